// Looking at messages, and messages for later.

import assert from "node:assert/strict";

import Long from "long";

import { cases, next, settled, SILENCE, test } from "./support.js";

const LATER = 3_600_000;

function inAWhile(milliseconds = LATER) {
  return new Date(Date.now() + milliseconds);
}

cases("browsing and scheduling", () => {
  test("peeking shows messages without taking them", async (scope) => {
    const { sender, receiver } = await scope.pair();
    await sender.sendMessages(["m-1", "m-2", "m-3"].map((messageId) => ({ body: 0, messageId })));
    const ids = async (...arguments_) =>
      (await receiver.peekMessages(...arguments_)).map((message) => message.messageId);
    assert.deepEqual(await ids(2), ["m-1", "m-2"]);
    assert.deepEqual(await ids(2), ["m-3"], "a second peek goes on behind the first");
    const [, second] = await receiver.peekMessages(2, { fromSequenceNumber: Long.ONE });
    assert.deepEqual(await ids(10, { fromSequenceNumber: second.sequenceNumber }), ["m-2", "m-3"]);
    assert.equal((await next(receiver)).deliveryCount, 0);
  });

  test("peeking says what state a message is in", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: 0, messageId: "deferred" });
    await settled(receiver, "deferMessage");
    await sender.sendMessages({ body: 0, messageId: "active" });
    await sender.scheduleMessages({ body: 0, messageId: "scheduled" }, inAWhile());
    const states = (await scope.peek(queue)).map(({ messageId, state }) => [messageId, state]);
    const expected = ["deferred", "active", "scheduled"].map((state) => [state, state]);
    assert.deepEqual(states, expected);
  });

  test("a scheduled message comes when its time has come", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const due = inAWhile(2_000);
    const [number] = await sender.scheduleMessages([{ body: "later", messageId: "m-1" }], due);
    assert.ok(number.greaterThan(0));
    const message = await next(receiver);
    assert.equal(message.body, "later");
    assert.ok(message.enqueuedTimeUtc >= due, `${message.enqueuedTimeUtc} is before ${due}`);
    await receiver.completeMessage(message);
  });

  test("a message may carry the time at which it is to come", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const due = inAWhile(2_000);
    await sender.sendMessages([
      { body: "later", messageId: "m-1", scheduledEnqueueTimeUtc: due },
      { body: "now", messageId: "m-2" },
    ]);
    assert.equal((await settled(receiver, "completeMessage")).body, "now");
    const later = await settled(receiver, "completeMessage");
    assert.equal(later.body, "later");
    assert.ok(later.enqueuedTimeUtc >= due);
  });

  test("a cancelled message never comes", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    const messages = ["m-1", "m-2"].map((messageId) => ({ body: 0, messageId }));
    const numbers = await sender.scheduleMessages(messages, inAWhile(5 * SILENCE));
    await sender.cancelScheduledMessages(numbers[0]);
    assert.equal((await settled(receiver, "completeMessage")).messageId, "m-2");
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE }), []);
    assert.deepEqual(await scope.peek(queue), []);
  });
});
