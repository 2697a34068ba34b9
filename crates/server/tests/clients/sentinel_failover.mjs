// ioredis and node-redis over a failover of a group: PORTS of Sentinels and the PASSWORD are in the environment.
//
// Each client writes keys one after another. When it is ready the program says so; a line of input says that the primary was
// lost. What was confirmed is read back then.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

// Packages lie in the working directory, not beside this file.
const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis");
const { createSentinel } = require("redis");

const sentinels = process.env.PORTS.split(" ").map((port) => ({ host: "127.0.0.1", port: Number(port) }));
const password = process.env.PASSWORD;
const name = "mymaster";
// Writes that are confirmed before the failover, and that begin after it and are.
const KEYS = 100;
// No client needs as much; a busy machine fails nothing.
const PATIENCE_MS = 60_000;

let lostAt = null;
const lost = new Promise((resolve) => {
  process.stdin.once("data", () => {
    lostAt = Date.now();
    resolve();
  });
});

// A client writes by `set`: the numbers that were confirmed.
async function write(client, set, ready) {
  const confirmed = [];
  let [number, after, errors, gapMs] = [0, 0, 0, null];
  while (after < KEYS) {
    const isAfter = lostAt !== null;
    number += 1;
    try {
      assert.equal(await set(`${client}:${number}`, String(number)), "OK");
      confirmed.push(number);
      if (isAfter) {
        after += 1;
        gapMs ??= Date.now() - lostAt;
      }
    } catch (error) {
      // The connection may be gone before this program is told why.
      await Promise.race([lost, sleep(5000)]);
      assert.ok(lostAt !== null, `${client}: ${error} before the failover`);
      assert.ok(Date.now() - lostAt < PATIENCE_MS, `${client}: ${error}`);
      errors += 1;
      await sleep(50);
    }
    if (number === KEYS) ready();
    await sleep(2);
  }
  const seconds = (gapMs / 1000).toFixed(1);
  console.log(`${client}: writes again after ${seconds} s and ${errors} errors, ${confirmed.length} keys`);
  return confirmed;
}

// Reads back by `get` what was confirmed; where a replica is asked, it may be behind for a moment.
async function read(client, confirmed, get, isReplica) {
  const end = Date.now() + PATIENCE_MS;
  for (const number of confirmed) {
    while ((await get(`${client}:${number}`)) !== String(number)) {
      assert.ok(isReplica && Date.now() < end, `${client}: ${number} was confirmed and is not there`);
      await sleep(10);
    }
  }
}

async function ioredis(ready) {
  const options = { sentinels, name, password, sentinelPassword: password };
  const primary = new Redis(options);
  primary.on("error", () => {});
  const confirmed = await write("ioredis", (key, value) => primary.set(key, value), ready);
  await read("ioredis", confirmed, (key) => primary.get(key), false);
  const replica = new Redis({ ...options, role: "slave" });
  replica.on("error", () => {});
  assert.equal((await replica.role())[0], "slave");
  await read("ioredis", confirmed, (key) => replica.get(key), true);
  await Promise.all([primary.quit(), replica.quit()]);
}

async function nodeRedis(ready) {
  const sentinel = createSentinel({
    name,
    sentinelRootNodes: sentinels,
    sentinelClientOptions: { password },
    nodeClientOptions: { password },
    replicaPoolSize: 1,
  });
  sentinel.on("error", () => {});
  await sentinel.connect();
  const confirmed = await write("node-redis", (key, value) => sentinel.set(key, value), ready);
  // What only reads goes to a replica.
  await read("node-redis", confirmed, (key) => sentinel.get(key), true);
  await sentinel.close();
}

const clients = [ioredis, nodeRedis];
let waiting = clients.length;
await Promise.all(
  clients.map((client) =>
    client(() => {
      waiting -= 1;
      if (waiting === 0) console.log("ready");
    }),
  ),
);
process.exit(0);
