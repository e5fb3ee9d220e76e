// What the cases share: entities of their own, clients that are closed, and waiting.

import { randomUUID } from "node:crypto";
import { describe, it } from "node:test";

import { ServiceBusClient } from "@azure/service-bus";

const CONNECTION_STRING = environment("SERVICEBUS_CONNECTION_STRING");
const CONTROL_URL = environment("EMULATOR_CONTROL_URL");

/** Far beyond what anything here takes, for machines under load. */
export const PATIENCE = 30_000;

/** A receive that nothing is to come of waits this long. */
export const SILENCE = 1_000;

/** Runs cases at the same time: most of them wait for a lock or a timer. */
export function cases(name, defined) {
  describe(name, { concurrency: true }, defined);
}

/** A case. It gets a scope, which is closed after it, and fails when it takes too long. */
export function test(name, run) {
  it(name, { timeout: 3 * PATIENCE }, async () => {
    const scope = new Scope();
    try {
      await run(scope);
    } finally {
      await scope.close();
    }
  });
}

/** The entities and clients of one case. */
class Scope {
  #undo = [];

  /** Makes a queue with these properties of the official emulator's configuration. */
  async queue(properties = {}) {
    const name = `queue-${randomUUID()}`;
    await this.#put(`queues/${name}`, properties);
    return name;
  }

  /** Makes a topic with these subscriptions: `{ Name, Properties, Rules }`. */
  async topic(subscriptions, properties = {}) {
    const name = `topic-${randomUUID()}`;
    await this.#put(`topics/${name}`, { Properties: properties, Subscriptions: subscriptions });
    return name;
  }

  /** A client with a connection of its own. */
  client(options = {}) {
    const client = new ServiceBusClient(CONNECTION_STRING, {
      retryOptions: { maxRetries: 0, timeoutInMs: PATIENCE },
      ...options,
    });
    this.#undo.push(() => client.close());
    return client;
  }

  async #put(path, body) {
    await control("PUT", path, body);
    this.#undo.push(() => control("DELETE", path));
  }

  async close() {
    while (this.#undo.length > 0) {
      await this.#undo.pop()();
    }
  }
}

/** Asks the emulator's control API. */
async function control(method, path, body) {
  const response = await fetch(`${CONTROL_URL}/control/${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) {
    throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  }
}

/** The next message; it has to come. */
export async function next(receiver) {
  const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: PATIENCE });
  if (message === undefined) {
    throw new Error("no message has come");
  }
  return message;
}

/** Waits until `condition` holds, which it may say by a promise. */
export async function eventually(condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    if (Date.now() > end) {
      throw new Error(`it did not become true: ${condition}`);
    }
    await sleep(20);
  }
}

export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function environment(name) {
  const value = process.env[name];
  if (value === undefined) {
    throw new Error(`${name} is not set: run \`cargo xtask conformance js\``);
  }
  return value;
}
