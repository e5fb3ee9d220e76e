// What the JavaScript client, @azure/service-bus, sends: all of a client over one connection.

import { createRequire } from "node:module";

// The client is looked for where the command is run.
const require = createRequire(`${process.cwd()}/`);
const { ServiceBusClient } = require("@azure/service-bus");

// The replay's clock must not have come to it.
const FAR = new Date("2150-01-01T00:00:00Z");

async function send(client) {
  const sender = client.createSender("orders");
  await sender.sendMessages({
    body: { kind: "object" },
    messageId: "m-1",
    subject: "subject",
    applicationProperties: { colour: "red", weight: 3, at: new Date(0) },
    timeToLive: 3_600_000,
  });
  const batch = await sender.createMessageBatch();
  for (let number = 0; number < 5; number++) {
    batch.tryAddMessage({ body: `body ${number}`, messageId: `b-${number}` });
  }
  await sender.sendMessages(batch);
  const numbers = await sender.scheduleMessages([{ body: "later" }, { body: "too" }], FAR);
  await sender.cancelScheduledMessages(numbers);
  await sender.close();
  const topic = client.createSender("events");
  await topic.sendMessages({ body: "body", subject: "all", applicationProperties: { colour: "red" } });
  await topic.close();
}

async function receive(client) {
  const receiver = client.createReceiver("orders");
  await receiver.peekMessages(10);
  const [one, two, three, four] = await receiver.receiveMessages(4);
  await receiver.renewMessageLock(one);
  await receiver.completeMessage(one);
  await receiver.abandonMessage(two, { tried: 1 });
  await receiver.deadLetterMessage(three, { deadLetterReason: "why", deadLetterErrorDescription: "because" });
  await receiver.deferMessage(four);
  const [deferred] = await receiver.receiveDeferredMessages(four.sequenceNumber);
  await receiver.completeMessage(deferred);
  await receiver.close();
  const dead = client.createReceiver("orders", { subQueueType: "deadLetter" });
  const [late] = await dead.receiveMessages(1);
  await dead.completeMessage(late);
  await dead.close();
  const deleting = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
  await deleting.receiveMessages(2);
  await deleting.close();
}

async function sessions(client) {
  const receiver = await client.acceptNextSession("sessions");
  await receiver.setSessionState("half done");
  await receiver.getSessionState();
  await receiver.renewSessionLock();
  const [one, two] = await receiver.receiveMessages(2);
  await receiver.completeMessage(one);
  await receiver.deferMessage(two);
  const [deferred] = await receiver.receiveDeferredMessages(two.sequenceNumber);
  await receiver.abandonMessage(deferred);
  await receiver.close();
  const named = await client.acceptSession("sessions", "s-2");
  await named.close();
}

async function rules(client) {
  const rules = client.createRuleManager("events", "all");
  await rules.createRule("sql", { sqlExpression: "colour = 'red'" }, { sqlExpression: "SET seen = 1" });
  await rules.createRule("correlation", { subject: "blue", applicationProperties: { weight: 3 } });
  await rules.getRules();
  await rules.deleteRule("sql");
}

for (const session of [send, receive, sessions, rules]) {
  const client = new ServiceBusClient(process.env.SERVICEBUS_CONNECTION_STRING);
  await session(client);
  await client.close();
}
