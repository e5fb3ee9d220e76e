// What clients do when their connection breaks.

import assert from "node:assert/strict";

import { cases, eventually, next, settled, test } from "./support.js";

// What is sent before the client has heard of the break is tried again after the time-out.
const RETRIES = { retryOptions: { maxRetries: 10, retryDelayInMs: 100, timeoutInMs: 3_000 } };

cases("connections", () => {
  test("sender and receiver go on over a new connection", async (scope) => {
    const proxy = await scope.proxy();
    const queue = await scope.queue();
    const client = scope.client(RETRIES, proxy);
    const sender = client.createSender(queue);
    const receiver = client.createReceiver(queue);
    await sender.sendMessages({ body: "before", messageId: "m-1" });
    assert.equal((await settled(receiver, "completeMessage")).body, "before");
    assert.equal(proxy.cut(), 1);
    await sender.sendMessages({ body: "after", messageId: "m-2" });
    assert.equal((await settled(receiver, "completeMessage")).body, "after");
    assert.equal(proxy.connections, 2);
  });

  test("a message that was held when the connection broke is settled over the next", async (scope) => {
    const proxy = await scope.proxy();
    const queue = await scope.queue();
    const client = scope.client(RETRIES, proxy);
    await client.createSender(queue).sendMessages({ body: "held", messageId: "m-1" });
    const receiver = client.createReceiver(queue);
    const held = await next(receiver);
    assert.equal(proxy.cut(), 1);
    await receiver.completeMessage(held);
    assert.deepEqual(await scope.peek(queue), []);
  });

  test("a subscription goes on over a new connection", async (scope) => {
    const proxy = await scope.proxy();
    const queue = await scope.queue({ LockDuration: "PT5S" });
    const sender = scope.client().createSender(queue);
    const bodies = [];
    const errors = [];
    const subscription = scope.client(RETRIES, proxy).createReceiver(queue).subscribe({
      processMessage: async (message) => void bodies.push(message.body),
      processError: async ({ error }) => void errors.push(error),
    });
    await sender.sendMessages({ body: "before", messageId: "m-1" });
    await eventually(() => bodies.length === 1);
    assert.equal(proxy.cut(), 1);
    // What is sent now may be delivered to the old connection, and come again after its lock.
    await sender.sendMessages({ body: "after", messageId: "m-2" });
    await eventually(() => bodies.includes("after"));
    assert.equal(proxy.connections, 2);
    await subscription.close();
    assert.deepEqual(errors, []);
  });
});
