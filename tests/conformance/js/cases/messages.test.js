// What a message carries, and the checks of the entity on it.

import assert from "node:assert/strict";

import { cases, eventually, next, settled, SILENCE, test } from "./support.js";

const MEBIBYTE = 1024 * 1024;

cases("messages", () => {
  test("all properties come back as they were sent", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const sent = {
      body: "one",
      messageId: "m-1",
      correlationId: "c-1",
      contentType: "application/json",
      subject: "order placed",
      to: "billing",
      replyTo: "answers",
      replyToSessionId: "s-1",
      partitionKey: "p-1",
    };
    const timeToLive = 600_000;
    await sender.sendMessages({ ...sent, timeToLive });
    const received = await next(receiver);
    for (const [name, value] of Object.entries(sent)) {
      assert.deepEqual(received[name], value, name);
    }
    assert.ok(Math.abs(received.enqueuedTimeUtc - Date.now()) < 60_000);
    assert.equal(received.expiresAtUtc - received.enqueuedTimeUtc, timeToLive);
    // The client counts from the time at which the message was made.
    assert.ok(Math.abs(received.timeToLive - timeToLive) < 60_000);
    assert.equal(received.sequenceNumber.toNumber(), 1);
  });

  test("application properties of every type come back", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const properties = {
      text: "übung",
      empty: "",
      whole: 7,
      negative: -7,
      large: 2 ** 40,
      fraction: 0.25,
      yes: true,
      no: false,
      date: new Date("2024-02-29T12:00:00.123Z"),
      nothing: null,
    };
    await sender.sendMessages({ body: 1, messageId: "m-1", applicationProperties: properties });
    const received = await next(receiver);
    const found = { ...received.applicationProperties };
    // The client hands dates out as the number of their milliseconds.
    found.date = new Date(found.date);
    assert.deepEqual(found, properties);
  });

  test("bodies of every kind come back", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const bodies = ["text", 42, true, null, { a: [1, "two"] }, [1, 2], Buffer.from([0, 255])];
    for (const body of bodies) {
      await sender.sendMessages({ body, messageId: "m" });
      assert.deepEqual((await settled(receiver, "completeMessage")).body, body);
    }
  });

  test("AMQP bodies keep their section", async (scope) => {
    const { sender, receiver } = await scope.pair();
    const bodies = { value: { a: 1 }, sequence: [1, "two", false], data: "text" };
    for (const [bodyType, body] of Object.entries(bodies)) {
      await sender.sendMessages({ body, bodyType, properties: { messageId: bodyType } });
      const received = await settled(receiver, "completeMessage");
      assert.deepEqual(received.body, body);
      assert.equal(received._rawAmqpMessage.bodyType, bodyType);
    }
  });

  test("a message that is too large is refused, and the link goes on", async (scope) => {
    const { queue, sender } = await scope.pair();
    const large = { body: Buffer.alloc(MEBIBYTE), messageId: "large" };
    await assert.rejects(sender.sendMessages(large), { code: "MessageSizeExceeded" });
    await sender.sendMessages({ body: "small", messageId: "small" });
    assert.deepEqual((await scope.peek(queue)).map((message) => message.messageId), ["small"]);
  });

  test("an unknown entity is named in the error of sender and receiver", async (scope) => {
    const client = scope.client();
    const expected = { code: "MessagingEntityNotFound" };
    const send = client.createSender("nowhere").sendMessages({ body: 1, messageId: "m-1" });
    await assert.rejects(send, expected);
    await assert.rejects(client.createReceiver("nowhere").receiveMessages(1), expected);
  });

  test("a duplicate within the window is dropped", async (scope) => {
    const { queue, sender } = await scope.pair({
      RequiresDuplicateDetection: true,
      DuplicateDetectionHistoryTimeWindow: "PT1M",
    });
    await sender.sendMessages({ body: "first", messageId: "m-1" });
    await sender.sendMessages({ body: "again", messageId: "m-1" });
    await sender.sendMessages({ body: "other", messageId: "m-2" });
    assert.deepEqual((await scope.peek(queue)).map((message) => message.body), ["first", "other"]);
  });

  test("a message that nobody receives in time is dropped", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages({ body: "old", messageId: "m-1", timeToLive: 100 });
    await eventually(async () => (await scope.peek(queue)).length === 0);
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE }), []);
    assert.deepEqual(await scope.deadLetters(queue).peekMessages(1), []);
  });

  test("a message that nobody receives in time is dead-lettered where that is set", async (scope) => {
    const { queue, sender } = await scope.pair({ DeadLetteringOnMessageExpiration: true });
    await sender.sendMessages({ body: "old", messageId: "m-1", timeToLive: 100 });
    const dead = await next(scope.deadLetters(queue));
    assert.equal(dead.body, "old");
    assert.equal(dead.deadLetterReason, "TTLExpiredException");
  });

  test("a message is forwarded to another queue", async (scope) => {
    const target = await scope.queue();
    const source = await scope.queue({ ForwardTo: target });
    const client = scope.client();
    await client.createSender(source).sendMessages({ body: "on its way", messageId: "m-1" });
    const receiver = client.createReceiver(target);
    assert.equal((await settled(receiver, "completeMessage")).body, "on its way");
  });
});
