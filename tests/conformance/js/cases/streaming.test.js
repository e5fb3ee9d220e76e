// Handlers that the client calls, and ending that.

import assert from "node:assert/strict";

import { cases, eventually, next, SILENCE, sleep, test } from "./support.js";

function messages(count) {
  return [...Array(count).keys()].map((number) => ({ body: number, messageId: `m-${number}` }));
}

/** Subscribes with a handler; an error outside of it is an error of the case. */
function subscribe(receiver, processMessage, options = {}) {
  const errors = [];
  const processError = async ({ error }) => void errors.push(error);
  const subscription = receiver.subscribe({ processMessage, processError }, options);
  return { errors, close: () => subscription.close() };
}

cases("streaming", () => {
  test("as many handlers run at the same time as were asked for, and no more", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    const COUNT = 30;
    const LIMIT = 5;
    await sender.sendMessages(messages(COUNT));
    let [running, most, done] = [0, 0, 0];
    let open;
    const full = new Promise((resolve) => (open = resolve));
    const handle = async () => {
      running += 1;
      most = Math.max(most, running);
      if (running === LIMIT) open();
      // Nobody goes on before all that may run do.
      await full;
      await new Promise(setImmediate);
      running -= 1;
      done += 1;
    };
    const subscription = subscribe(receiver, handle, { maxConcurrentCalls: LIMIT });
    await eventually(() => done === COUNT);
    assert.equal(most, LIMIT);
    await eventually(async () => (await scope.peek(queue)).length === 0);
    await subscription.close();
    assert.deepEqual(subscription.errors, []);
  });

  test("a message whose handler throws comes again", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages(messages(1));
    const counts = [];
    const subscription = subscribe(receiver, async (message) => {
      counts.push(message.deliveryCount);
      if (counts.length < 3) throw new Error("not yet");
    });
    await eventually(async () => (await scope.peek(queue)).length === 0);
    await subscription.close();
    assert.deepEqual(counts, [0, 1, 2]);
    assert.deepEqual(subscription.errors.map((error) => error.message), ["not yet", "not yet"]);
  });

  test("a handler may settle by itself", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages(messages(2));
    const settle = async (message) => {
      if (message.body === 0) await receiver.completeMessage(message);
      else await receiver.deadLetterMessage(message, { deadLetterReason: "odd" });
    };
    const subscription = subscribe(receiver, settle, { autoCompleteMessages: false });
    const dead = await next(scope.deadLetters(queue));
    assert.deepEqual([dead.body, dead.deadLetterReason], [1, "odd"]);
    await eventually(async () => (await scope.peek(queue)).length === 0);
    await subscription.close();
    assert.deepEqual(subscription.errors, []);
  });

  test("a session is streamed in order", async (scope) => {
    const queue = await scope.queue({ RequiresSession: true });
    const client = scope.client();
    const sent = messages(20).map((message) => ({ ...message, sessionId: "A" }));
    await client.createSender(queue).sendMessages(sent);
    const receiver = await client.acceptSession(queue, "A");
    const bodies = [];
    const subscription = subscribe(receiver, async (message) => void bodies.push(message.body));
    await eventually(() => bodies.length === 20);
    await subscription.close();
    assert.deepEqual(bodies, sent.map((message) => message.body));
    assert.deepEqual(subscription.errors, []);
  });

  test("after its end a subscription takes nothing, and its receiver can still settle", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages(messages(1));
    const held = [];
    const hold = async (message) => void held.push(message);
    const subscription = subscribe(receiver, hold, { autoCompleteMessages: false });
    await eventually(() => held.length === 1);
    await subscription.close();
    await sender.sendMessages({ body: "after", messageId: "after" });
    await receiver.completeMessage(held[0]);
    const [left] = await scope.peek(queue);
    assert.equal(left.body, "after");
    const other = scope.client().createReceiver(queue);
    assert.equal((await next(other)).deliveryCount, 0);
    assert.equal(held.length, 1);
  });

  test("a receiver that is closed while it waits takes no message with it", async (scope) => {
    const { queue, sender, receiver } = await scope.pair();
    await sender.sendMessages(messages(1));
    await receiver.completeMessage(await next(receiver));
    // It has a link now. The client ends the wait only when its time is over.
    const waiting = receiver.receiveMessages(1, { maxWaitTimeInMs: 3 * SILENCE });
    await sleep(SILENCE);
    await receiver.close();
    await sender.sendMessages({ body: "second", messageId: "m-2" });
    assert.deepEqual(await waiting, []);
    const again = await next(scope.client().createReceiver(queue));
    assert.deepEqual([again.body, again.deliveryCount], ["second", 0]);
    await assert.rejects(receiver.receiveMessages(1), /closed/);
  });
});
