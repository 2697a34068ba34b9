// The SDK of HTTP clients for serverless platforms against a server: upstash.mjs URL TOKEN.
//
// Fails with the first answer that is not the expected one.
import { createRequire } from "node:module";
import assert from "node:assert/strict";

const require = createRequire(process.cwd() + "/");
const { Redis } = require("@upstash/redis");

const [url, token] = process.argv.slice(2);
const redis = new Redis({ url, token });
const same = assert.deepEqual;

same(await redis.ping(), "PONG");
same(await redis.set("k", "v"), "OK");
same(await redis.get("k"), "v");
same(await redis.get("none"), null);
same(await redis.set("object", { a: [1, 2, "\u00e4"] }), "OK");
same(await redis.get("object"), { a: [1, 2, "\u00e4"] });
// A value that looks as the status does.
same(await redis.set("ok", "OK"), "OK");
same(await redis.get("ok"), "OK");
same(await redis.incr("n"), 1);
same(await redis.hset("h", { x: 1, y: "two" }), 2);
same(await redis.hgetall("h"), { x: 1, y: "two" });
same(await redis.rpush("l", "a", "b"), 2);
same(await redis.lrange("l", 0, -1), ["a", "b"]);
same(await redis.zadd("z", { score: 1.5, member: "m" }), 1);
same(await redis.zscore("z", "m"), 1.5);
same(await redis.zrange("z", 0, -1, { withScores: true }), ["m", 1.5]);
same(await redis.set("t", "x", { ex: 100, nx: true }), "OK");
same((await redis.scan(0, { match: "k*" }))[1], ["k"]);
same(await redis.mset({ m1: "a", m2: 2 }), "OK");
same(await redis.mget("m1", "m2", "none"), ["a", 2, null]);
same(await redis.eval("return {KEYS[1], ARGV[1]}", ["a"], ["b"]), ["a", "b"]);

const pipeline = redis.pipeline();
pipeline.set("p", 1);
pipeline.incr("p");
pipeline.get("p");
same(await pipeline.exec(), ["OK", 2, 2]);
const transaction = redis.multi();
transaction.incr("p");
transaction.get("p");
same(await transaction.exec(), [3, 3]);

await assert.rejects(redis.incr("k"), /not an integer/);
const failing = redis.pipeline();
failing.set("a", 1);
failing.incr("k");
await assert.rejects(failing.exec(), /not an integer/);
const stranger = new Redis({ url, token: "wrong", retry: false });
await assert.rejects(stranger.get("k"), /Unauthorized/);

console.log("upstash: passed");
