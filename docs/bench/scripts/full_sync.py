#!/usr/bin/env python3
"""Full syncs, partial syncs and keeping up by PSYNC, with redis-server beside in the same run.

    docs/bench/scripts/full_sync.py target/release/iolite [million keys] [base port]

Times are wall time, and in brackets seconds of CPU that the primary and the replica used.
"""
import os, signal, socket, subprocess, sys, tempfile, time

IOLITE = sys.argv[1]
KEYS = int(float(sys.argv[2] if len(sys.argv) > 2 else 1) * 1_000_000)
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 24900
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, kind, *args):
        global PORT
        PORT += 1
        self.port, self.kind = PORT, kind
        self.directory = tempfile.TemporaryDirectory(prefix="full-sync-")
        self.args = args
        self.start()

    def start(self):
        binary = IOLITE if self.kind == "iolite" else "redis-server"
        args = [binary, "--port", str(self.port), "--dir", self.directory.name]
        args += ["--enable-debug-command", "yes", *self.args]
        if self.kind == "redis":
            args += ["--save", "", "--client-output-buffer-limit", "replica 0 0 0"]
        self.log = open(os.path.join(self.directory.name, "out"), "ab")
        self.process = subprocess.Popen(args, stdout=self.log, stderr=self.log)
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
        for line in self.say("INFO all").splitlines():
            if line.startswith(name + ":"):
                return line.split(":", 1)[1]

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.kill()
        self.process.wait()

    def said(self, what):
        lines = open(os.path.join(self.directory.name, "out")).read().splitlines()
        return [line.split(" * ")[-1] for line in lines if what in line][-1:]


def timed(name, primary, replica, work):
    before = primary.cpu(), replica.cpu()
    start = time.monotonic()
    work()
    took = time.monotonic() - start
    print(f"{name}: {took:.2f} s (primary {primary.cpu() - before[0]:.2f}, replica {replica.cpu() - before[1]:.2f})", flush=True)
    return took


def follow(primary, replica):
    def work():
        replica.say(f"REPLICAOF 127.0.0.1 {primary.port}")
        while replica.info("master_link_status") != "up" or replica.say("DBSIZE") != primary.say("DBSIZE"):
            time.sleep(0.01)
    return work


def caught_up(primary, replica):
    while replica.info("slave_repl_offset") != primary.info("master_repl_offset"):
        time.sleep(0.01)


def load(server, count, size):
    subprocess.run(["redis-benchmark", "-p", str(server.port), "-t", "set", "-n", str(count), "-r", "100000",
                    "-d", str(size), "-P", "50", "-c", "8", "-q"], stdout=subprocess.DEVNULL, check=True)


LOG = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]
populate = f"DEBUG POPULATE {KEYS} key 100"

print(f"{KEYS} keys of 100 bytes")
redis = Server("redis"); redis.say(populate)
iolite = Server("iolite", *LOG); iolite.say(populate)
iolite.say("BGREWRITEAOF")
while iolite.info("aof_rewrite_in_progress") != "0":
    time.sleep(0.05)

for round in range(2):
    one = Server("redis", "--repl-diskless-sync-delay", "0")
    redis.say("CONFIG SET repl-diskless-sync-delay 0")
    base = timed("redis -> redis, full sync", redis, one, follow(redis, one)); one.stop()
    one = Server("redis")
    ours = timed("iolite -> redis, full sync", iolite, one, follow(iolite, one)); one.stop()
    print(f"  ratio {ours / base:.2f}")
    for how in ["disabled", "flush-before-load"]:
        one = Server("iolite", "--durability", "none", "--repl-diskless-load", how)
        ours = timed(f"redis -> iolite, full sync, repl-diskless-load {how}", redis, one, follow(redis, one)); one.stop()
        print(f"  ratio {ours / base:.2f}")
    one = Server("iolite", *LOG)
    ours = timed("iolite -> iolite, own link, full sync", iolite, one, follow(iolite, one))
    print(f"  ratio {ours / base:.2f}")
    one.stop(); one.start()
    print("  its start from disk:", *one.said("loaded:")); one.stop()
redis.stop()

one = Server("redis"); follow(iolite, one)()
before = iolite.info("sync_full")
os.kill(one.process.pid, signal.SIGSTOP)
iolite.say("CLIENT KILL TYPE replica")
load(iolite, 1_000_000, 1000)
os.kill(one.process.pid, signal.SIGCONT)
timed("iolite -> redis, partial sync after 1 GB of log", iolite, one, lambda: caught_up(iolite, one))
print(f"  full syncs: {int(iolite.info('sync_full')) - int(before)}")
one.stop(); iolite.stop()

for kind, args in [("redis", []), ("iolite", ["--durability", "none"]), ("iolite", LOG)]:
    primary, one = Server(kind, *args), Server("redis")
    follow(primary, one)()
    start = time.monotonic()
    load(primary, 2_000_000, 100)
    wrote = time.monotonic() - start
    caught_up(primary, one)
    behind = time.monotonic() - start - wrote
    print(f"{kind} {' '.join(args[:2])} -> redis: 2 M SET in {wrote:.2f} s, the replica {behind:.2f} s later, "
          f"primary {primary.cpu():.2f}, replica {one.cpu():.2f} s of CPU", flush=True)
    primary.stop(); one.stop()
