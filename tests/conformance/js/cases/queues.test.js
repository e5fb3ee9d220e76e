// Sending to a queue, receiving from it, and settling.

import assert from "node:assert/strict";

import { cases, next, settled, SILENCE, test } from "./support.js";

cases("queues", () => {
  test("a completed message is gone", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "one", messageId: "m-1" });
    const message = await next(receiver);
    assert.equal(message.body, "one");
    assert.equal(message.messageId, "m-1");
    assert.equal(message.deliveryCount, 0);
    await receiver.completeMessage(message);
    assert.deepEqual(await scope.peek(queue), []);
  });

  test("a message that is sent without an id can be settled", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "one" });
    assert.equal((await settled(receiver, "completeMessage")).body, "one");
    assert.deepEqual(await scope.peek(queue), []);
  });

  test("an array of messages arrives in order", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const bodies = ["one", "two", "three"];
    await sender.sendMessages(bodies.map((body, index) => ({ body, messageId: `m-${index}` })));
    for (const body of bodies) {
      const message = await next(receiver);
      assert.equal(message.body, body);
      await receiver.completeMessage(message);
    }
  });

  test("a batch takes what the link allows and arrives whole", async (scope) => {
    const { queue, sender } = await scope.pair();
    const batch = await sender.createMessageBatch();
    let added = 0;
    while (batch.tryAddMessage({ body: Buffer.alloc(50 * 1024, added), messageId: `m-${added}` })) {
      added += 1;
      assert.ok(added < 1000, "the batch has no end");
    }
    assert.equal(batch.count, added);
    assert.ok(added > 1 && batch.sizeInBytes <= batch.maxSizeInBytes);
    await sender.sendMessages(batch);
    const found = await scope.peek(queue);
    assert.deepEqual(found.map((message) => message.body[0]), [...Array(added).keys()]);
  });

  test("an abandoned message comes again with its failure counted", async (scope) => {
    const { sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "one", messageId: "m-1", applicationProperties: { try: 1 } });
    await receiver.abandonMessage(await next(receiver), { try: 2 });
    const again = await next(receiver);
    assert.equal(again.messageId, "m-1");
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.applicationProperties.try, 2);
    await receiver.completeMessage(again);
  });

  test("a deferred message is received by its number only", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "later", messageId: "m-1" });
    const { sequenceNumber } = await settled(receiver, "deferMessage");
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE }), []);
    const [deferred] = await receiver.receiveDeferredMessages(sequenceNumber);
    assert.equal(deferred.body, "later");
    assert.equal(deferred.state, "deferred");
    await receiver.completeMessage(deferred);
    assert.deepEqual(await scope.peek(queue), []);
  });

  test("a dead-lettered message is in the dead-letter queue with its reason", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "bad", messageId: "m-1" });
    await receiver.deadLetterMessage(await next(receiver), {
      deadLetterReason: "unreadable",
      deadLetterErrorDescription: "no JSON",
      checkedBy: "billing",
    });
    const deadLetters = scope.deadLetters(queue);
    const dead = await next(deadLetters);
    assert.equal(dead.body, "bad");
    assert.equal(dead.deadLetterReason, "unreadable");
    assert.equal(dead.deadLetterErrorDescription, "no JSON");
    assert.equal(dead.applicationProperties.checkedBy, "billing");
    await deadLetters.completeMessage(dead);
    assert.deepEqual(await deadLetters.peekMessages(10), []);
  });

  test("a message that fails too often is dead-lettered", async (scope) => {
    const { queue, sender, receiver } = await scope.pair({ MaxDeliveryCount: 2 });
    await sender.sendMessages({ body: "bad", messageId: "m-1" });
    await settled(receiver, "abandonMessage");
    await settled(receiver, "abandonMessage");
    const dead = await next(scope.deadLetters(queue));
    assert.equal(dead.deadLetterReason, "MaxDeliveryCountExceeded");
    assert.equal(dead.deliveryCount, 2);
  });

  test("receive-and-delete takes a message at once", async (scope) => {
    const { queue, sender, receiver } = await scope.pair({}, { receiveMode: "receiveAndDelete" });
    await sender.sendMessages({ body: "one", messageId: "m-1" });
    const message = await next(receiver);
    assert.equal(message.body, "one");
    assert.equal(message.lockedUntilUtc, undefined);
    assert.deepEqual(await scope.peek(queue), []);
    await assert.rejects(receiver.completeMessage(message), /receiveAndDelete/);
  });

  test("the receiver without an end hands out one message after the other", async (scope) => {
    const { sender, receiver } = await scope.pair();
    await sender.sendMessages(["m-0", "m-1", "m-2"].map((messageId) => ({ body: 0, messageId })));
    const ids = [];
    for await (const message of receiver.getMessageIterator()) {
      ids.push(message.messageId);
      await receiver.completeMessage(message);
      if (ids.length === 3) break;
    }
    assert.deepEqual(ids, ["m-0", "m-1", "m-2"]);
  });
});
