#!/usr/bin/env python3
"""Full syncs of one data set in turns: by Redis' own replication, and by the own link of one or more builds of Iolite.

    docs/bench/scripts/full_sync_in_turns.py [--keys millions] [--rounds n] [--port base] BUILD...

The replica is empty each time. Times are wall time from REPLICAOF until the replica is up and has as many keys, in brackets
seconds of processor time of the primary and of the replica. After each sync of Iolite its replica is started again:
how long it takes until it answers, with the same checkpoint loaded from its disk.
"""
import argparse, os, shutil, socket, subprocess, tempfile, time

TICKS = os.sysconf("SC_CLK_TCK")
arguments = argparse.ArgumentParser()
arguments.add_argument("--keys", type=float, default=2)
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--port", type=int, default=24100)
arguments.add_argument("builds", nargs="+")
arguments = arguments.parse_args()
KEYS = int(arguments.keys * 1_000_000)
LOG = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--save", ""]
REDIS = ["--save", "", "--client-output-buffer-limit", "replica 0 0 0", "--repl-diskless-sync-delay", "0"]
CHUNK = 100_000
next_port = arguments.port


class Server:
    def __init__(self, binary, args):
        global next_port
        next_port += 1
        self.port, self.binary, self.args = next_port, binary, args
        self.directory = tempfile.mkdtemp(prefix="full-sync-")
        self.start()

    def start(self):
        own = ["--port", str(self.port), "--dir", self.directory, "--enable-debug-command", "yes"]
        if self.args is LOG:
            own += ["--repl-port", str(self.port + 400)]
        out = open(os.path.join(self.directory, "out"), "ab")
        self.process = subprocess.Popen([self.binary, *own, *self.args], stdout=out, stderr=out)
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                self.file = self.socket.makefile("rb")
                if self.say("GET none") is None:
                    return
            except OSError:
                pass
            time.sleep(0.02)

    def say(self, line):
        self.socket.sendall(line.encode() + b"\r\n")
        head = self.file.readline()
        if head[:1] == b"$":
            length = int(head[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2].decode()
        return head[1:-2].decode()

    def info(self, name):
        lines = [line for line in self.say("INFO replication persistence").splitlines() if line.startswith(name + ":")]
        return lines[0].split(":", 1)[1] if lines else None

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        shutil.rmtree(self.directory)


def sync(name, primary, replica):
    before = primary.cpu(), replica.cpu()
    start = time.monotonic()
    replica.say(f"REPLICAOF 127.0.0.1 {primary.port}")
    while replica.info("master_link_status") != "up" or replica.say("DBSIZE") != f"{KEYS}":
        time.sleep(0.01)
    took = time.monotonic() - start
    cpu = primary.cpu() - before[0], replica.cpu() - before[1]
    print(f"{name}: {took:.2f} s ({cpu[0]:.2f}, {cpu[1]:.2f})", flush=True)


print(f"{KEYS} keys of 100 bytes, load average {os.getloadavg()[0]:.1f}")
primaries = []
for build in ["redis-server", *arguments.builds]:
    primary = Server(build, REDIS if build == "redis-server" else LOG)
    for part in range(0, KEYS, CHUNK):
        primary.say(f"DEBUG POPULATE {min(CHUNK, KEYS - part)} key:{part // CHUNK:04} 100")
    if primary.args is LOG:
        primary.say("BGREWRITEAOF")
        while primary.info("aof_rewrite_in_progress") != "0":
            time.sleep(0.05)
    primaries.append(primary)

for _ in range(arguments.rounds):
    for primary in primaries:
        loads = ["disabled", "on-empty-db"] if primary.args is REDIS else ["disabled"]
        for how in loads:
            replica = Server(primary.binary, primary.args)
            replica.say(f"CONFIG SET repl-diskless-load {how}")
            name = primary.binary if primary.args is LOG else f"{primary.binary}, repl-diskless-load {how}"
            sync(name, primary, replica)
            if primary.args is LOG:
                replica.kill()
                begun = time.monotonic()
                replica.start()
                print(f"  its start from disk: {time.monotonic() - begun:.2f} s", flush=True)
            replica.end()
for primary in primaries:
    primary.end()
