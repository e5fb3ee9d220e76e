// Topics, subscriptions and their rules.

import assert from "node:assert/strict";

import { cases, next, settled, SILENCE, test } from "./support.js";

function sql(name, expression, action) {
  const properties = { FilterType: "Sql", SqlFilter: { SqlExpression: expression } };
  if (action !== undefined) {
    properties.Action = { SqlExpression: action };
  }
  return { Name: name, Properties: properties };
}

function correlation(name, filter) {
  return { Name: name, Properties: { FilterType: "Correlation", CorrelationFilter: filter } };
}

function subscription(name, rules = []) {
  return { Name: name, Properties: {}, Rules: rules };
}

/** Which messages are in a subscription. */
async function ids(client, topic, name) {
  const messages = await client.createReceiver(topic, name).peekMessages(100);
  return messages.map((message) => message.messageId);
}

cases("topics", () => {
  test("each subscription gets its own copy", async (scope) => {
    const topic = await scope.topic([subscription("one"), subscription("two")]);
    const client = scope.client();
    await client.createSender(topic).sendMessages({ body: "news", messageId: "m-1" });
    const receiver = client.createReceiver(topic, "one");
    assert.equal((await settled(receiver, "completeMessage")).body, "news");
    assert.deepEqual(await ids(client, topic, "one"), []);
    assert.deepEqual(await ids(client, topic, "two"), ["m-1"]);
  });

  test("a correlation rule takes what equals it", async (scope) => {
    const filter = { Label: "order", Properties: { region: "eu" } };
    const topic = await scope.topic([subscription("eu-orders", [correlation("eu", filter)])]);
    const client = scope.client();
    const message = (messageId, subject, region) =>
      ({ body: 0, messageId, subject, applicationProperties: { region } });
    await client.createSender(topic).sendMessages([
      message("m-1", "order", "eu"),
      message("m-2", "order", "us"),
      message("m-3", "invoice", "eu"),
    ]);
    assert.deepEqual(await ids(client, topic, "eu-orders"), ["m-1"]);
  });

  test("an SQL rule takes what it is true for, and its action changes the copy", async (scope) => {
    const rule = sql("large", "amount > 100 AND sys.Label LIKE 'order%'", "SET checked = TRUE");
    const topic = await scope.topic([subscription("large", [rule]), subscription("all")]);
    const client = scope.client();
    const message = (messageId, subject, amount) =>
      ({ body: 0, messageId, subject, applicationProperties: { amount } });
    await client.createSender(topic).sendMessages([
      message("m-1", "order-7", 101),
      message("m-2", "order-8", 100),
      message("m-3", "invoice-7", 500),
    ]);
    assert.deepEqual(await ids(client, topic, "large"), ["m-1"]);
    const large = await next(client.createReceiver(topic, "large"));
    assert.deepEqual(large.applicationProperties, {
      amount: 101,
      checked: true,
      RuleName: "large",
    });
    const all = await next(client.createReceiver(topic, "all"));
    assert.deepEqual(all.applicationProperties, { amount: 101 });
  });

  test("the rule manager adds, lists and removes rules, which then decide", async (scope) => {
    const topic = await scope.topic([subscription("some")]);
    const client = scope.client();
    const sender = client.createSender(topic);
    const rules = client.createRuleManager(topic, "some");
    const list = async () => {
      const found = [];
      for await (const rule of rules.listRules()) found.push(rule);
      return found.sort((one, other) => one.name.localeCompare(other.name));
    };
    assert.deepEqual((await list()).map((rule) => rule.name), ["$Default"]);
    await rules.deleteRule("$Default");
    await sender.sendMessages({ body: 0, messageId: "for nobody" });
    const action = { sqlExpression: "SET seen = 1" };
    await rules.createRule("by-color", { sqlExpression: "color = 'red'" }, action);
    await rules.createRule("by-id", { correlationId: "c-1" });
    const [byColor, byId] = await list();
    assert.deepEqual([byColor.name, byId.name], ["by-color", "by-id"]);
    assert.equal(byColor.filter.sqlExpression, "color = 'red'");
    assert.equal(byColor.action.sqlExpression, "SET seen = 1");
    assert.equal(byId.filter.correlationId, "c-1");
    await sender.sendMessages({ body: 0, messageId: "m-1", applicationProperties: { color: "red" } });
    await sender.sendMessages({ body: 0, messageId: "m-2", correlationId: "c-1" });
    await sender.sendMessages({ body: 0, messageId: "m-3", applicationProperties: { color: "blue" } });
    assert.deepEqual(await ids(client, topic, "some"), ["m-1", "m-2"]);
    await assert.rejects(rules.deleteRule("unknown"), { code: "MessagingEntityNotFound" });
    await assert.rejects(rules.createRule("by-id", { correlationId: "c-2" }), {
      code: "MessagingEntityAlreadyExists",
    });
  });

  test("a subscription has a dead-letter queue", async (scope) => {
    const topic = await scope.topic([subscription("one")]);
    const client = scope.client();
    await client.createSender(topic).sendMessages({ body: "bad", messageId: "m-1" });
    const receiver = client.createReceiver(topic, "one");
    await receiver.deadLetterMessage(await next(receiver), { deadLetterReason: "why" });
    const deadLetters = client.createReceiver(topic, "one", { subQueueType: "deadLetter" });
    const dead = await settled(deadLetters, "completeMessage");
    assert.deepEqual([dead.body, dead.deadLetterReason], ["bad", "why"]);
  });

  test("a scheduled message of a topic reaches its subscriptions", async (scope) => {
    const topic = await scope.topic([subscription("one")]);
    const client = scope.client();
    const sender = client.createSender(topic);
    const due = new Date(Date.now() + 10 * SILENCE);
    await sender.scheduleMessages({ body: "later", messageId: "m-1" }, due);
    assert.deepEqual(await ids(client, topic, "one"), []);
    const message = await next(client.createReceiver(topic, "one"));
    assert.equal(message.body, "later");
    assert.ok(message.enqueuedTimeUtc >= due);
  });
});
