// Sending to a queue, receiving from it, and settling.

import assert from "node:assert/strict";

import { cases, next, test } from "./support.js";

cases("queues", () => {
  test("a completed message is gone", async (scope) => {
    const queue = await scope.queue();
    const client = scope.client();
    await client.createSender(queue).sendMessages({ body: "one", messageId: "m-1" });
    const receiver = client.createReceiver(queue);
    const message = await next(receiver);
    assert.equal(message.body, "one");
    assert.equal(message.messageId, "m-1");
    assert.equal(message.deliveryCount, 0);
    await receiver.completeMessage(message);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });
});
