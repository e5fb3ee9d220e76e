// Sessions of a queue.

import assert from "node:assert/strict";

import { cases, next, SILENCE, sleep, test } from "./support.js";

const PROPERTIES = { RequiresSession: true, LockDuration: "PT5S" };
const WITHOUT_RENEWAL = { maxAutoLockRenewalDurationInMs: 0 };

/** A queue with sessions, and messages in it: `{ A: ["a-1", "a-2"] }` are of session A. */
async function sessions(scope, messages = {}) {
  const queue = await scope.queue(PROPERTIES);
  const client = scope.client();
  const sender = client.createSender(queue);
  for (const [sessionId, ids] of Object.entries(messages)) {
    await sender.sendMessages(ids.map((messageId) => ({ body: messageId, messageId, sessionId })));
  }
  return { queue, client };
}

async function take(receiver, count) {
  const ids = [];
  while (ids.length < count) {
    const message = await next(receiver);
    ids.push(message.messageId);
    await receiver.completeMessage(message);
  }
  return ids;
}

cases("sessions", () => {
  test("a named session brings its own messages in order", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"], B: ["b-1", "b-2"] });
    const receiver = await client.acceptSession(queue, "B");
    assert.equal(receiver.sessionId, "B");
    const message = await next(receiver);
    assert.equal(message.sessionId, "B");
    await receiver.completeMessage(message);
    assert.deepEqual([message.messageId, ...(await take(receiver, 1))], ["b-1", "b-2"]);
    assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: SILENCE }), []);
  });

  test("the next available sessions are those with messages, each for one receiver", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"], B: ["b-1"] });
    const receivers = [await client.acceptNextSession(queue), await client.acceptNextSession(queue)];
    assert.deepEqual(receivers.map((receiver) => receiver.sessionId).sort(), ["A", "B"]);
    for (const receiver of receivers) {
      assert.deepEqual(await take(receiver, 1), [`${receiver.sessionId.toLowerCase()}-1`]);
    }
  });

  test("the wait for a next session ends when none comes", async (scope) => {
    const { queue } = await sessions(scope);
    const client = scope.client({ retryOptions: { maxRetries: 0, timeoutInMs: 2_000 } });
    await assert.rejects(client.acceptNextSession(queue), { code: "ServiceTimeout" });
  });

  test("a session that another one holds cannot be accepted until it is closed", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"] });
    const holder = await client.acceptSession(queue, "A");
    const other = scope.client();
    await assert.rejects(other.acceptSession(queue, "A"), { code: "SessionCannotBeLocked" });
    await holder.close();
    assert.deepEqual(await take(await other.acceptSession(queue, "A"), 1), ["a-1"]);
  });

  test("the state of a session outlives its receiver and can be cleared", async (scope) => {
    const { queue, client } = await sessions(scope);
    const first = await client.acceptSession(queue, "A");
    assert.equal(await first.getSessionState(), null);
    await first.setSessionState({ step: 2 });
    await first.close();
    const second = await client.acceptSession(queue, "A");
    assert.deepEqual(await second.getSessionState(), { step: 2 });
    await second.setSessionState(null);
    assert.equal(await second.getSessionState(), null);
  });

  test("a renewed session lock lasts longer", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"] });
    const receiver = await client.acceptSession(queue, "A", WITHOUT_RENEWAL);
    const before = receiver.sessionLockedUntilUtc;
    await sleep(3_000);
    const after = await receiver.renewSessionLock();
    assert.ok(after - before >= 2_500, `${after} is not long after ${before}`);
    await sleep(before - Date.now() + 500);
    assert.deepEqual(await take(receiver, 1), ["a-1"]);
  });

  test("a session whose lock has expired is lost and free for others", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"] });
    const receiver = await client.acceptSession(queue, "A", WITHOUT_RENEWAL);
    const held = await next(receiver);
    await sleep(receiver.sessionLockedUntilUtc - Date.now() + 500);
    await assert.rejects(receiver.completeMessage(held), { code: "SessionLockLost" });
    const other = await scope.client().acceptSession(queue, "A");
    const again = await next(other);
    assert.equal(again.messageId, "a-1");
    assert.equal(again.deliveryCount, 1);
    await other.completeMessage(again);
  });

  test("an abandoned message keeps its place in the session", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1", "a-2"] });
    const receiver = await client.acceptSession(queue, "A");
    await receiver.abandonMessage(await next(receiver));
    assert.deepEqual(await take(receiver, 2), ["a-1", "a-2"]);
  });

  test("deferred messages are received and peeked within their session", async (scope) => {
    const { queue, client } = await sessions(scope, { A: ["a-1"], B: ["b-1"] });
    const receiver = await client.acceptSession(queue, "A");
    const message = await next(receiver);
    await receiver.deferMessage(message);
    const peeked = await receiver.peekMessages(10);
    assert.deepEqual(peeked.map(({ messageId, state }) => [messageId, state]), [["a-1", "deferred"]]);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    assert.deepEqual(await receiver.peekMessages(10), []);
  });

  test("a message without a session is refused", async (scope) => {
    const { queue, client } = await sessions(scope);
    await assert.rejects(client.createSender(queue).sendMessages({ body: 1, messageId: "m-1" }));
    await assert.rejects(client.createReceiver(queue).receiveMessages(1));
  });
});
