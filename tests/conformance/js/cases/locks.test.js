// Locks of messages, in queues whose locks last as short as the broker allows.

import assert from "node:assert/strict";

import { cases, next, sleep, test } from "./support.js";

const LOCK = 5_000;
const PROPERTIES = { LockDuration: "PT5S" };
const WITHOUT_RENEWAL = { maxAutoLockRenewalDurationInMs: 0 };

cases("locks", () => {
  test("a renewed lock lasts longer", async (scope) => {
    const { sender, receiver } = await scope.pair(PROPERTIES, WITHOUT_RENEWAL);
    await sender.sendMessages({ body: "slow", messageId: "m-1" });
    const message = await next(receiver);
    const before = message.lockedUntilUtc;
    await sleep(0.6 * LOCK);
    const after = await receiver.renewMessageLock(message);
    assert.ok(after - before >= 0.5 * LOCK, `${after} is not long after ${before}`);
    assert.equal(message.lockedUntilUtc, after);
    await sleep(before - Date.now() + 500);
    await receiver.completeMessage(message);
  });

  test("a message whose lock has expired cannot be settled and comes again", async (scope) => {
    const { sender, receiver } = await scope.pair(PROPERTIES, WITHOUT_RENEWAL);
    await sender.sendMessages({ body: "slow", messageId: "m-1" });
    const late = await next(receiver);
    await sleep(late.lockedUntilUtc - Date.now() + 500);
    await assert.rejects(receiver.completeMessage(late), { code: "MessageLockLost" });
    await assert.rejects(receiver.renewMessageLock(late), { code: "MessageLockLost" });
    const again = await next(receiver);
    assert.equal(again.messageId, "m-1");
    assert.equal(again.deliveryCount, 1);
    assert.notEqual(again.lockToken, late.lockToken);
    await receiver.completeMessage(again);
  });

  test("the client keeps a lock by renewing it", async (scope) => {
    const { sender, receiver } = await scope.pair(PROPERTIES);
    await sender.sendMessages({ body: "slow", messageId: "m-1" });
    const message = await next(receiver);
    const first = message.lockedUntilUtc;
    await sleep(first - Date.now() + 1_000);
    assert.ok(message.lockedUntilUtc > first, "the client has not renewed the lock");
    await receiver.completeMessage(message);
  });

  test("a locked message is settled over another connection than it came by", async (scope) => {
    const { queue, sender, receiver } = await scope.pair(PROPERTIES, WITHOUT_RENEWAL);
    await sender.sendMessages({ body: "one", messageId: "m-1" });
    const message = await next(receiver);
    await receiver.close();
    // Without the link that delivered it, the client settles by the lock's token.
    await scope.client().createReceiver(queue).completeMessage(message);
    assert.deepEqual(await scope.peek(queue), []);
  });
});
