// socket.io with its Redis adapters against a server: socket_io.mjs PORT. Two processes' worth of servers tell
// each other what to send, over publish/subscribe and over streams.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import process from "node:process";

const require = createRequire(process.cwd() + "/");
const Redis = require("ioredis");
const { Server } = require("socket.io");
const { io: connect } = require("socket.io-client");
const { createAdapter } = require("@socket.io/redis-adapter");
const { createAdapter: createStreamsAdapter } = require("@socket.io/redis-streams-adapter");

const port = Number(process.argv[2]);

function once(emitter, event) {
  return new Promise((resolve) => emitter.once(event, (...what) => resolve(what)));
}

async function until(condition, what) {
  for (let tries = 0; !(await condition()); tries += 1) {
    assert.ok(tries < 3000, what);
    await new Promise((done) => setTimeout(done, 10));
  }
}

async function exchange(name, adapter) {
  const clients = [];
  const redis = () => {
    const client = new Redis(port);
    clients.push(client);
    return client;
  };
  const nodes = await Promise.all(
    [0, 1].map(async () => {
      const http = createServer();
      const server = new Server(http, { adapter: adapter(redis) });
      server.on("connection", (socket) => socket.on("join", (room, joined) => joined(socket.join(room))));
      await new Promise((listening) => http.listen(0, "127.0.0.1", listening));
      return { server, url: `http://127.0.0.1:${http.address().port}` };
    }),
  );
  const sockets = nodes.map(({ url }) => connect(url, { transports: ["websocket"] }));
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  await Promise.all(sockets.map((socket) => socket.emitWithAck("join", "room")));

  // Both know of each other once both see both.
  await until(async () => {
    const seen = await Promise.all(nodes.map(({ server }) => server.fetchSockets().catch(() => [])));
    return seen.every((sockets) => sockets.length === 2);
  }, `${name}: the servers did not find each other`);

  const heard = sockets.map((socket) => once(socket, "news"));
  nodes[0].server.to("room").emit("news", "to all", Buffer.from([0, 255, 13, 10]));
  for (const [text, bytes] of await Promise.all(heard)) {
    assert.equal(text, "to all");
    assert.deepEqual([...bytes], [0, 255, 13, 10]);
  }

  const left = once(sockets[1], "disconnect");
  nodes[0].server.in(sockets[1].id).disconnectSockets();
  await left;

  sockets.forEach((socket) => socket.close());
  await Promise.all(nodes.map(({ server }) => server.close()));
  clients.forEach((client) => client.disconnect());
  console.log(`socket.io, ${name}: passed`);
}

const cleaner = new Redis(port);
await cleaner.flushall();
cleaner.disconnect();
await exchange("publish/subscribe", (redis) => createAdapter(redis(), redis()));
await exchange("streams", (redis) => createStreamsAdapter(redis()));
process.exit(0);
