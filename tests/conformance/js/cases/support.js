// What the cases share: entities of their own, clients that are closed, and waiting.

import { randomUUID } from "node:crypto";
import { connect, createServer } from "node:net";
import { describe, it } from "node:test";

import { ServiceBusClient } from "@azure/service-bus";
import Long from "long";

const CONNECTION_STRING = environment("SERVICEBUS_CONNECTION_STRING");
const CONTROL_URL = environment("EMULATOR_CONTROL_URL");

/** Far beyond what anything here takes, for machines under load, in milliseconds. */
const PATIENCE = 60_000;

/** How long a receive waits that nothing is to come of, in milliseconds. */
export const SILENCE = 1_000;

/** Runs cases at the same time: most of them wait for a lock or a timer. */
export function cases(name, define) {
  describe(name, { concurrency: true }, define);
}

/** A case. It gets a scope, which is closed after it, and fails when it takes too long. */
export function test(name, run) {
  it(name, { timeout: 2 * PATIENCE }, async () => {
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
  #client;

  /** Makes a queue with these properties of the official emulator's configuration. */
  async queue(properties = {}) {
    const name = `queue-${randomUUID()}`;
    await this.#make(`queues/${name}`, properties);
    return name;
  }

  /** Makes a topic with these subscriptions: `{ Name, Properties, Rules }`. */
  async topic(subscriptions) {
    const name = `topic-${randomUUID()}`;
    await this.#make(`topics/${name}`, { Properties: {}, Subscriptions: subscriptions });
    return name;
  }

  async #make(path, body) {
    await control("PUT", path, body);
    this.#undo.push(() => control("DELETE", path));
  }

  /** A queue with a sender and a receiver. */
  async pair(properties = {}, receiverOptions = {}) {
    const queue = await this.queue(properties);
    const client = this.client();
    const receiver = client.createReceiver(queue, receiverOptions);
    return { queue, sender: client.createSender(queue), receiver };
  }

  /** A client with a connection of its own, which does not retry, so that errors are seen. */
  client(options = {}, proxy = undefined) {
    const target = proxy?.connectionString ?? CONNECTION_STRING;
    const retryOptions = { maxRetries: 0, timeoutInMs: PATIENCE };
    const client = new ServiceBusClient(target, { retryOptions, ...options });
    this.#undo.push(() => client.close());
    return client;
  }

  /** All that is in a queue, in whatever state, up to 100 messages. */
  async peek(queue) {
    this.#client ??= this.client();
    const receiver = this.#client.createReceiver(queue);
    try {
      return await receiver.peekMessages(100, { fromSequenceNumber: Long.ZERO });
    } finally {
      await receiver.close();
    }
  }

  /** A receiver for the dead-letter queue of a queue. */
  deadLetters(queue) {
    this.#client ??= this.client();
    return this.#client.createReceiver(queue, { subQueueType: "deadLetter" });
  }

  /** Something between a client and the emulator that can cut connections. */
  async proxy() {
    const proxy = await Proxy.start();
    this.#undo.push(() => proxy.close());
    return proxy;
  }

  async close() {
    while (this.#undo.length > 0) {
      await this.#undo.pop()();
    }
  }
}

/** Hands bytes on between clients and the emulator until it is told to cut the connections. */
class Proxy {
  static async start() {
    const proxy = new Proxy();
    await new Promise((resolve) => proxy.server.listen(0, "localhost", resolve));
    return proxy;
  }

  constructor() {
    /** How many there were until now. */
    this.connections = 0;
    this.open = new Set();
    const [, host, port] = /Endpoint=sb:\/\/([^:;]+):(\d+)/.exec(CONNECTION_STRING);
    this.server = createServer((near) => {
      this.connections += 1;
      const far = connect(Number(port), host);
      near.pipe(far).pipe(near);
      this.open.add(near);
      near.on("close", () => void (this.open.delete(near), far.destroy()));
      far.on("close", () => near.destroy());
      // That a connection breaks is what this is for.
      for (const socket of [near, far]) socket.on("error", () => {});
    });
  }

  get connectionString() {
    const { port } = this.server.address();
    return CONNECTION_STRING.replace(/(Endpoint=sb:\/\/[^:;]+):\d+/, `$1:${port}`);
  }

  /** Cuts all connections, and says how many there were. */
  cut() {
    const cut = this.open.size;
    for (const socket of this.open) socket.destroy();
    return cut;
  }

  close() {
    this.cut();
    return new Promise((resolve) => this.server.close(resolve));
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

/** The next message, after it was settled by this method of the receiver. */
export async function settled(receiver, settle) {
  const message = await next(receiver);
  await receiver[settle](message);
  return message;
}

/** Waits until `condition` holds, which it may say by a promise. */
export async function eventually(condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    if (Date.now() > end) {
      throw new Error(`it has not become true: ${condition}`);
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
    throw new Error(`${name} is not set; \`cargo xtask conformance js\` sets it`);
  }
  return value;
}
