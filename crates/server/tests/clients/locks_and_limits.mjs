// redlock and rate-limiter-flexible against a server: locks_and_limits.mjs PORT. Both are scripts.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import process from "node:process";

const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis");
const Redlock = require("redlock");
const { RateLimiterRedis } = require("rate-limiter-flexible");

const redis = new Redis(Number(process.argv[2]));
await redis.flushall();

const once = new Redlock([redis], { retryCount: 0 });
const held = await once.lock(["report", "invoices"], 100000);
assert.ok((await redis.pttl("report")) > 50000);
await assert.rejects(once.lock(["invoices"], 100000));
const longer = await held.extend(300000);
assert.ok((await redis.pttl("invoices")) > 200000);
await longer.unlock();
assert.equal(await redis.exists("report", "invoices"), 0);
await assert.rejects(longer.unlock(), "it is not held any more");

// Whoever holds it has it alone.
const patient = new Redlock([redis], { retryCount: 1000, retryDelay: 2, retryJitter: 2 });
let inside = 0;
await Promise.all(
  Array.from({ length: 20 }, async () => {
    const lock = await patient.lock("alone", 100000);
    assert.equal(++inside, 1);
    await new Promise((done) => setImmediate(done));
    inside -= 1;
    await lock.unlock();
  }),
);

const limiter = new RateLimiterRedis({ storeClient: redis, points: 5, duration: 60, blockDuration: 600 });
for (let left = 4; left >= 0; left -= 1) {
  assert.equal((await limiter.consume("ada")).remainingPoints, left);
}
const refused = await limiter.consume("ada").catch((refusal) => refusal);
assert.ok(refused.msBeforeNext > 500000, JSON.stringify(refused));
assert.equal((await limiter.consume("grace", 2)).remainingPoints, 3);
assert.equal((await limiter.reward("grace", 1)).remainingPoints, 4);
assert.equal((await limiter.get("grace")).consumedPoints, 1);
assert.equal(await limiter.delete("ada"), true);

redis.disconnect();
console.log("redlock, rate-limiter-flexible: passed");
