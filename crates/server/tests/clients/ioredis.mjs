// ioredis against a server: ioredis.mjs PORT. Connects as the client does by default.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import process from "node:process";

// Packages lie in the working directory, not beside this file.
const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis");

const port = Number(process.argv[2]);
const redis = new Redis(port);

await redis.flushall();

assert.equal(await redis.set("greeting", "hello"), "OK");
assert.equal(await redis.get("greeting"), "hello");
assert.equal(await redis.get("nothing"), null);
assert.equal(await redis.set("greeting", "x", "NX"), null);
assert.equal(await redis.set("greeting", "again", "EX", 1000, "GET"), "hello");
assert.ok((await redis.ttl("greeting")) > 990);
assert.equal(await redis.append("greeting", "!"), 6);
assert.equal(await redis.incr("count"), 1);
assert.equal(await redis.incrby("count", 41), 42);
assert.equal(await redis.incrbyfloat("share", 0.1), "0.1");
assert.equal(await redis.mset({ a: "1", b: "2" }), "OK");
assert.deepEqual(await redis.mget("a", "b", "nothing"), ["1", "2", null]);
assert.equal(await redis.getdel("a"), "1");
assert.equal(await redis.getrange("greeting", 0, 1), "ag");

const binary = Buffer.from([0, 255, 13, 10]);
await redis.set("binary", binary);
assert.deepEqual(await redis.getBuffer("binary"), binary);

assert.equal(await redis.setbit("bits", 7, 1), 0);
assert.equal(await redis.bitcount("bits"), 1);
assert.equal(await redis.bitpos("bits", 1), 7);
assert.deepEqual(await redis.bitfield("f", "SET", "u8", 0, 200, "GET", "u4", 0), [0, 12]);

assert.equal(await redis.rename("bits", "renamed"), "OK");
assert.equal(await redis.copy("renamed", "copied"), 1);
assert.equal(await redis.pexpireat("copied", 4000000000000), 1);
assert.equal(await redis.pexpiretime("copied"), 4000000000000);
assert.equal(await redis.exists("copied", "nothing"), 1);
assert.equal(await redis.object("ENCODING", "count"), "int");
assert.equal(await redis.type("copied"), "string");
assert.equal(await redis.unlink("copied", "renamed"), 2);

assert.equal(await redis.rpush("list", "a", "b", "3"), 3);
assert.deepEqual(await redis.lrange("list", 0, -1), ["a", "b", "3"]);
assert.equal(await redis.linsert("list", "BEFORE", "b", "x"), 4);
assert.equal(await redis.lpos("list", "b"), 2);
assert.equal(await redis.lmove("list", "other", "LEFT", "RIGHT"), "a");
assert.deepEqual(await redis.lmpop(2, "nothing", "other", "LEFT"), ["other", ["a"]]);
assert.deepEqual(await redis.lpop("list", 2), ["x", "b"]);

assert.equal(await redis.hset("hash", { a: 1, b: "two" }), 2);
assert.deepEqual(await redis.hgetall("hash"), { a: "1", b: "two" });
assert.deepEqual(await redis.hmget("hash", "b", "nothing"), ["two", null]);
assert.equal(await redis.hincrby("hash", "a", 4), 5);
const deadline = 4000000000000;
assert.deepEqual(await redis.call("HPEXPIREAT", "hash", deadline, "FIELDS", 2, "a", "c"), [1, -2]);
assert.deepEqual(await redis.call("HPEXPIRETIME", "hash", "FIELDS", 2, "a", "b"), [deadline, -1]);
assert.deepEqual(await redis.call("HPERSIST", "hash", "FIELDS", 1, "a"), [1]);
assert.equal(await redis.hdel("hash", "a", "b"), 2);

assert.equal(await redis.sadd("set", "a", "b"), 2);
assert.equal(await redis.sadd("numbers", 1, 2, 3), 3);
assert.deepEqual(await redis.smembers("numbers"), ["1", "2", "3"]);
assert.deepEqual(await redis.smismember("set", "a", "x"), [1, 0]);
assert.equal(await redis.sadd("more", "b", "c"), 2);
assert.deepEqual(await redis.sinter("set", "more"), ["b"]);
assert.equal(await redis.sintercard(2, "set", "more", "LIMIT", 1), 1);
assert.equal(await redis.sunionstore("all", "set", "more"), 3);

assert.equal(await redis.zadd("sorted", 1, "a", 2.5, "b", "inf", "c"), 3);
assert.deepEqual(await redis.zrange("sorted", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5", "c", "inf"]);
assert.deepEqual(await redis.zrange("sorted", "(1", "+inf", "BYSCORE", "LIMIT", 0, 1), ["b"]);
assert.equal(await redis.zrank("sorted", "b"), 1);
assert.equal(await redis.zincrby("sorted", 0.5, "b"), "3");
assert.deepEqual(await redis.zmscore("sorted", "b", "x"), ["3", null]);
assert.equal(await redis.zunionstore("union", 2, "sorted", "set", "AGGREGATE", "MAX"), 3);
assert.deepEqual(await redis.zpopmin("sorted"), ["a", "1"]);

assert.equal(await redis.xadd("stream", "5-1", "a", "1"), "5-1");
assert.equal(await redis.xadd("stream", "MAXLEN", "~", 10, "6-*", "b", "2"), "6-0");
assert.deepEqual(await redis.xrange("stream", "-", "+", "COUNT", 1), [["5-1", ["a", "1"]]]);
assert.equal(await redis.xgroup("CREATE", "stream", "group", "0"), "OK");
const read = await redis.xreadgroup("GROUP", "group", "alice", "COUNT", 1, "STREAMS", "stream", ">");
assert.deepEqual(read, [["stream", [["5-1", ["a", "1"]]]]]);
assert.deepEqual(await redis.xpending("stream", "group"), [1, "5-1", "5-1", [["alice", "1"]]]);
assert.deepEqual(await redis.xclaim("stream", "group", "bob", 0, "5-1", "JUSTID"), ["5-1"]);
assert.equal(await redis.xack("stream", "group", "5-1"), 1);

assert.equal(await redis.pfadd("sketch", "a", "b", "c"), 1);
assert.equal(await redis.pfcount("sketch"), 3);
assert.equal(await redis.geoadd("places", 13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"), 2);
assert.equal(await redis.geodist("places", "Palermo", "Catania", "km"), "166.2742");
const around = ["FROMLONLAT", 15, 37, "BYRADIUS", 100, "km", "ASC"];
assert.deepEqual(await redis.geosearch("places", ...around), ["Catania"]);
assert.equal(await redis.rpush("unsorted", 3, 1, 2), 3);
assert.deepEqual(await redis.sort("unsorted", "DESC", "LIMIT", 0, 2), ["3", "2"]);
for (const key of ["list", "set", "sorted", "stream", "sketch"]) {
  const payload = await redis.dumpBuffer(key);
  assert.equal(await redis.restore("restored", 0, payload, "REPLACE"), "OK");
  assert.equal(await redis.type("restored"), await redis.type(key));
}

const pipeline = redis.pipeline();
for (let number = 0; number < 1000; number++) {
  pipeline.set(`many:${number}`, number);
}
const replies = await pipeline.exec();
assert.ok(replies.every(([error, reply]) => error === null && reply === "OK"));
const found = new Set();
for await (const keys of redis.scanStream({ match: "many:*", count: 100 })) {
  keys.forEach((key) => found.add(key));
}
assert.equal(found.size, 1000);

// Requests in flight at once, answered in their order.
const counts = await Promise.all(Array.from({ length: 500 }, () => redis.incr("shared")));
assert.deepEqual(counts, Array.from({ length: 500 }, (_, index) => index + 1));

await assert.rejects(redis.incr("binary"), /value is not an integer or out of range/);
await assert.rejects(redis.call("NONSENSE", "x"), /unknown command 'NONSENSE'/);
assert.equal(await redis.ping(), "PONG");
assert.equal(await redis.echo("back"), "back");
assert.equal(await redis.client("SETNAME", "tester"), "OK");
assert.equal(await redis.client("GETNAME"), "tester");
assert.match(await redis.info(), /redis_version:/);
assert.ok((await redis.command("COUNT")) > 50);
assert.equal((await redis.config("GET", "maxmemory"))[0], "maxmemory");

const other = new Redis(port, { db: 5, connectionName: "other" });
await other.set("only", "here");
assert.equal(await redis.get("only"), null);
assert.equal(await other.get("only"), "here");
await other.quit();

const automatic = new Redis(port, { enableAutoPipelining: true });
const values = await Promise.all(["count", "b", "nothing"].map((key) => automatic.get(key)));
assert.deepEqual(values, ["42", "2", null]);
// Transactions among what is put into pipelines by itself.
await Promise.all(
  Array.from({ length: 50 }, async (_, number) => {
    const transaction = automatic.multi().set(`auto:${number}`, number).incr(`auto:${number}`);
    const replies = await transaction.exec();
    assert.deepEqual(replies, [[null, "OK"], [null, number + 1]]);
    assert.equal(await automatic.get(`auto:${number}`), String(number + 1));
  }),
);
automatic.disconnect();

const [first, wrong, last] = await redis.multi().set("m", 1).lpush("m", 1).incr("m").exec();
assert.deepEqual([first, last], [[null, "OK"], [null, 2]]);
assert.match(wrong[0].message, /WRONGTYPE/);
await redis.watch("m");
await redis.incr("m");
assert.equal(await redis.multi().set("m", 100).exec(), null);
await assert.rejects(redis.multi().set("m").exec(), /EXECABORT/);

const subscriber = new Redis(port);
const heard = [];
const heardTwo = new Promise((resolve) => {
  const hear = (...words) => heard.push(words) === 2 && resolve();
  subscriber.on("message", hear);
  subscriber.on("pmessage", hear);
});
assert.equal(await subscriber.subscribe("news"), 1);
assert.equal(await subscriber.psubscribe("n*"), 2);
assert.equal(await redis.publish("news", "hello"), 2);
await heardTwo;
assert.deepEqual(heard, [
  ["news", "hello"],
  ["n*", "news", "hello"],
]);
assert.equal(await subscriber.unsubscribe("news"), 1);
assert.equal(await subscriber.punsubscribe("n*"), 0);
assert.equal(await subscriber.get("m"), "3");
subscriber.disconnect();

await redis.del("none", "queue", "log");
const waiting = new Redis(port);
const popped = waiting.blpop("none", "queue", 0);
await redis.rpush("queue", "job");
assert.deepEqual(await popped, ["queue", "job"]);
assert.equal(await waiting.blpop("none", 0.01), null);
const entry = waiting.xread("BLOCK", 0, "STREAMS", "log", "0");
await redis.xadd("log", "1-1", "f", "v");
assert.deepEqual(await entry, [["log", [["1-1", ["f", "v"]]]]]);
waiting.disconnect();

// It gives another client, and stays what it was.
const plain = new Redis(port);
const monitor = await plain.monitor();
// The other client may still be asking who the server is.
const seen = new Promise((resolve) => {
  monitor.on("monitor", (_, words) => words[0] === "set" && resolve(words));
});
await redis.set("watched", "x");
assert.deepEqual(await seen, ["set", "watched", "x"]);
monitor.disconnect();
plain.disconnect();

await redis.quit();
console.log("ioredis: passed");
