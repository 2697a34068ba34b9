// BullMQ against a server: bullmq.mjs PORT. Every step of a queue is one of its scripts.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import process from "node:process";

// Packages lie in the working directory, not beside this file.
const require = createRequire(process.cwd() + "/");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const Redis = require("ioredis");

const connection = { port: Number(process.argv[2]), maxRetriesPerRequest: null };
const redis = new Redis(connection);
await redis.flushall();

const queue = new Queue("sums", { connection });
const events = new QueueEvents("sums", { connection });
await events.waitUntilReady();

let failures = 0;
const worker = new Worker(
  "sums",
  async (job) => {
    if (job.name === "fails") {
      failures += 1;
      throw new Error("as it should");
    }
    await job.updateProgress(50);
    return job.data.one + job.data.two;
  },
  { connection, concurrency: 4, autorun: false },
);

// Before anybody works: priorities, delays, names that are taken, removal.
const low = await queue.add("low", { one: 1, two: 1 }, { priority: 10 });
const high = await queue.add("high", { one: 2, two: 2 }, { priority: 1 });
const delayed = await queue.add("delayed", { one: 3, two: 3 }, { delay: 200 });
const same = await queue.add("same", { one: 4, two: 4 }, { jobId: "one-of-it" });
assert.equal((await queue.add("same", { one: 9, two: 9 }, { jobId: "one-of-it" })).id, same.id);
const removed = await queue.add("removed", { one: 5, two: 5 });
await removed.remove();
const failing = await queue.add("fails", {}, { attempts: 3, backoff: { type: "fixed", delay: 10 } });
const many = await queue.addBulk(
  Array.from({ length: 100 }, (_, number) => ({ name: "many", data: { one: number, two: number } })),
);
const counts = await queue.getJobCounts("wait", "prioritized", "delayed");
assert.deepEqual(counts, { wait: 102, prioritized: 2, delayed: 1 });

await queue.pause();
assert.equal(await queue.isPaused(), true);
await queue.resume();

worker.run();
assert.equal(await high.waitUntilFinished(events), 4);
assert.equal(await low.waitUntilFinished(events), 2);
assert.equal(await delayed.waitUntilFinished(events), 6);
for (const [number, job] of many.entries()) {
  assert.equal(await job.waitUntilFinished(events), number * 2);
}
await assert.rejects(failing.waitUntilFinished(events), /as it should/);
assert.equal(failures, 3);
// When the queue gave them out. Who of four at once begins to work first is not the queue's.
const [highAt, lowAt] = (await Promise.all([high, low].map((job) => queue.getJob(job.id)))).map((job) => job.processedOn);
assert.ok(highAt <= lowAt, `${highAt} ${lowAt}`);
assert.equal(await queue.getCompletedCount(), 104);
assert.equal(await queue.getFailedCount(), 1);

// Tried again by hand, and cleaned up.
await (await queue.getJob(failing.id)).retry();
while ((await queue.getFailedCount()) !== 1 || failures === 3) {
  await new Promise((done) => setTimeout(done, 10));
}
assert.equal((await queue.clean(0, 1000, "completed")).length, 104);

// Repeated by a scheduler.
await queue.upsertJobScheduler("each", { every: 50, limit: 3 }, { name: "repeated", data: { one: 1, two: 0 } });
while ((await queue.getCompletedCount()) < 3) {
  await new Promise((done) => setTimeout(done, 10));
}
await queue.removeJobScheduler("each");

// A parent that waits for its children.
const flow = new FlowProducer({ connection });
const { job: parent } = await flow.add({
  name: "parent",
  queueName: "sums",
  data: { one: 20, two: 22 },
  children: [1, 2, 3].map((number) => ({ name: "child", queueName: "sums", data: { one: number, two: number } })),
});
assert.equal(await parent.waitUntilFinished(events), 42);
assert.deepEqual(Object.values(await parent.getChildrenValues()).sort(), [2, 4, 6]);

await worker.close();
await queue.obliterate({ force: true });
assert.deepEqual(await redis.keys("bull:sums:*"), []);
await Promise.all([flow.close(), events.close(), queue.close()]);
redis.disconnect();
console.log("bullmq: passed");
