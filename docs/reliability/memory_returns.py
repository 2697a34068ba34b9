#!/usr/bin/env python3
"""How much memory a server keeps after its data is gone.

    python3 docs/reliability/memory_returns.py SERVER [SERVER ...] [--only PART] [--megabytes N] [--port P]

Each SERVER is the path of a binary that takes Redis' options: `target/release/iolite`, `redis-server`.
Parts:
  returns    types x sizes of values; RSS 10 s after FLUSHALL and 10 s after 90 % of the keys were deleted
  cycles     types with values of different sizes in turn, FLUSHALL between; the largest RSS beside the largest live data
  limit      cycles under `maxmemory 300mb` at full write rate, with each policy; the largest RSS, sampled every 20 ms
  small      bytes of RSS for each small collection
  cost       processor time of HSET, ZADD, RPUSH and XADD, in ns of the server for each command
"live" is what the clients stored: keys and values, without anything that a server adds.
"""
import argparse, os, random, socket, subprocess, sys, tempfile, threading, time

MB = 1 << 20
TYPES = ("SET", "RPUSH", "HSET", "ZADD", "XADD", "SADD")
SIZES = {"64": (64, 64), "2k": (2048, 2048), "20k": (20_000, 20_000), "500k": (500_000, 500_000), "random": (2, 1 << 20)}


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.count, self.pending = [], 0, 0
        self.reader = self.socket.makefile("rb", 1 << 16)
        self.errors = 0

    def add(self, *words):
        out = [b"*%d\r\n" % len(words)]
        for word in words:
            out.append(b"$%d\r\n%b\r\n" % (len(word), word))
        self.buffer.append(b"".join(out))
        self.pending += len(self.buffer[-1])
        self.count += 1
        if self.count >= 200 or self.pending > 256 << 10:
            self.flush()

    def flush(self):
        if self.buffer:
            self.socket.sendall(b"".join(self.buffer))
            for _ in range(self.count):
                self.reply()
        self.buffer, self.count, self.pending = [], 0, 0

    def reply(self):
        line = self.reader.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            self.errors += 1
        if kind == b"$" and int(rest) >= 0:
            return self.reader.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(max(0, int(rest)))]
        return rest

    def call(self, *words):
        self.flush()
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        return self.reply()


class Server:
    def __init__(self, binary, port, *options):
        self.port = port
        self.directory = tempfile.TemporaryDirectory()
        words = [binary, "--port", str(port), "--save", "", "--appendonly", "no", *options]
        self.process = subprocess.Popen(words, cwd=self.directory.name, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.client = Client(port)
                break
            except OSError:
                time.sleep(0.05)

    def rss(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    def cpu_ns(self):
        tasks = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{tasks}/{t}/schedstat").read().split()[0]) for t in os.listdir(tasks))

    def settled(self, seconds=10):
        """RSS once it does not fall any more, at most so long after."""
        end = time.time() + seconds
        rss, since = self.rss(), time.time()
        while time.time() < end and time.time() - since < 4:
            time.sleep(0.25)
            now = self.rss()
            if now < rss - (256 << 10):
                rss, since = now, time.time()
        return self.rss()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


RANDOM = os.urandom(2 << 20)


def value(size):
    start = random.randrange(len(RANDOM) - size) if size < len(RANDOM) else 0
    return RANDOM[start:start + size]


def fill(client, kind, sizes, total, prefix=b"k", stop=None):
    """Keys with values until there are `total` bytes. Long values: several in a key; short: hundreds."""
    low, high = sizes
    live, number, lengths = 0, 0, {}
    while live < total and not (stop and stop()):
        key = b"%b:%b:%d" % (prefix, kind.encode(), number)
        number += 1
        own = len(key)
        if kind == "SET":
            item = value(random.randint(low, high))
            client.add(b"SET", key, item)
            own += len(item)
        else:
            for at in range(max(1, min(200, 400_000 // high)) if high == low else 4):
                item = value(random.randint(low, high))
                field = b"f%d" % at
                own += len(item)
                if kind == "RPUSH":
                    client.add(b"RPUSH", key, item)
                elif kind == "HSET":
                    client.add(b"HSET", key, field, item)
                elif kind == "SADD":
                    client.add(b"SADD", key, item)
                elif kind == "ZADD":
                    client.add(b"ZADD", key, b"%d" % at, item)
                else:
                    client.add(b"XADD", key, b"*", b"f", item)
        lengths[key] = own
        live += own
    client.flush()
    return live, lengths


def returns(binary, port, total):
    print(f"{'type':6} {'values':>7} {'live':>6} | {'full':>6} | {'flushed':>7} {'limit':>6} | {'10 % live':>9} {'RSS':>6} {'limit':>6}")
    bad = 0
    for kind in TYPES:
        for name, sizes in SIZES.items():
            server = Server(binary, port)
            live, lengths = fill(server.client, kind, sizes, total)
            full = server.rss()
            keys = list(lengths)
            random.seed(7)
            random.shuffle(keys)
            left = live
            for key in keys[: len(keys) * 9 // 10]:
                server.client.add(b"DEL", key)
                left -= lengths[key]
            server.client.flush()
            deleted, limit = server.settled(), 16 * MB + 1.15 * left
            fill(server.client, kind, sizes, total - left, b"again")
            server.client.call("FLUSHALL")
            flushed = server.settled()
            is_bad = flushed > 16 * MB or deleted > limit
            bad += is_bad
            print(f"{kind:6} {name:>7} {live / MB:6.0f} | {full / MB:6.0f} | {flushed / MB:7.1f} {16:6.1f} | {left / MB:9.1f} {deleted / MB:6.1f} {limit / MB:6.1f} {'OVER' if is_bad else ''}", flush=True)
            server.stop()
    print(f"{bad} of {len(TYPES) * len(SIZES)} over")


def cycles(binary, port, total):
    server = Server(binary, port)
    print("cycles: live, full RSS, RSS / live")
    for turn in range(2):
        for kind, name in (("RPUSH", "2k"), ("SET", "20k"), ("HSET", "64"), ("SET", "500k"), ("XADD", "random"), ("ZADD", "20k"), ("SET", "2k"), ("HSET", "random")):
            live, _ = fill(server.client, kind, SIZES[name], total)
            full = server.settled(5)
            over = full > 1.15 * live + 16 * MB
            print(f"{kind:6} {name:>7} {live / MB:6.0f} {full / MB:6.0f} {full / live:5.2f} {'OVER' if over else ''}", flush=True)
            server.client.call("FLUSHALL")
            time.sleep(1)
    print(f"at the end, flushed: {server.settled() / MB:.1f} MB")
    server.stop()


def limit(binary, port, total):
    most = 300 * MB
    for policy in (os.environ.get("POLICIES") or "allkeys-lru allkeys-lfu allkeys-random volatile-lru volatile-ttl noeviction").split():
        server = Server(binary, port, "--maxmemory", "300mb", "--maxmemory-policy", policy)
        seen, done = [0, ""], False
        phase = ""

        def watch():
            while not done:
                rss = server.rss()
                if rss > seen[0]:
                    seen[:] = [rss, phase]
                time.sleep(0.02)

        thread = threading.Thread(target=watch)
        thread.start()
        for phase, kind, sizes in [(f"{k} {n}", k, SIZES[n]) for k, n in (("RPUSH", "2k"), ("SET", "20k"), ("HSET", "64"), ("SET", "500k"), ("XADD", "random"), ("ZADD", "20k"), ("HSET", "random"), ("SET", "64"))]:
            end = time.time() + 6
            fill(server.client, kind, sizes, 3 * most if sizes[1] > 64 else most, phase.encode(), lambda: time.time() > end)
            if policy == "noeviction":
                server.client.call("FLUSHALL")
        done = True
        thread.join()
        print(f"{policy:15} largest RSS {seen[0] / MB:6.1f} MB ({seen[0] / most:.2f} of maxmemory, in {seen[1]})  {'OVER' if seen[0] > 1.05 * most else ''}", flush=True)
        server.stop()


def small(binary, port, _total):
    for what, words in {
        "hash of 1": [b"HSET", None, b"field", b"value"],
        "hash of 10": [b"HSET", None] + [w for n in range(10) for w in (b"field%d" % n, b"value%d" % n)],
        "hash of 30": [b"HSET", None] + [w for n in range(30) for w in (b"field%d" % n, b"value%d" % n)],
        "list of 3": [b"RPUSH", None, b"one", b"two", b"three"],
        "set of 5": [b"SADD", None] + [b"member%d" % n for n in range(5)],
        "zset of 5": [b"ZADD", None] + [w for n in range(5) for w in (b"%d" % n, b"member%d" % n)],
        "stream of 1": [b"XADD", None, b"*", b"f", b"v"],
    }.items():
        server = Server(binary, port)
        before, count = server.rss(), 200_000
        for number in range(count):
            server.client.add(words[0], b"key:%09d" % number, *words[2:])
        server.client.flush()
        time.sleep(0.5)
        print(f"{what:12} {(server.rss() - before) / count:7.1f} bytes", flush=True)
        server.stop()


def cost(binary, port, _total):
    M = 1_000_000
    prep = [(M, ["HSET", "bigh", "f__rand_int__", "value"]), (M, ["ZADD", "bigz", "__rand_int__", "m__rand_int__"])]
    cases = {
        "HSET big": ["HSET", "bigh", "f__rand_int__", "value"],
        "HSET small": ["HSET", "h__rand_int__", "f1", "v1", "f2", "v2"],
        "HSET 2k": ["HSET", "l__rand_int__", "f1", "x" * 2048],
        "ZADD big": ["ZADD", "bigz", "__rand_int__", "m__rand_int__"],
        "RPUSH": ["RPUSH", "pushl", "value"],
        "RPUSH many": ["RPUSH", "p__rand_int__", "value"],
        "RPUSH 2k": ["RPUSH", "longl", "x" * 2048],
        "XADD": ["XADD", "bigx", "MAXLEN", "~", "300000", "*", "f", "v"],
        "XADD many": ["XADD", "x__rand_int__", "*", "f", "v"],
        "GET": ["GET", "nothing"],
        "SET 20k": ["SET", "s__rand_int__", "x" * 20_000],
    }
    server = Server(binary, port, "--io-threads", "1")

    def bench(count, words, keys=M):
        subprocess.run(["redis-benchmark", "-p", str(port), "-c", "10", "-P", "50", "-n", str(count), "-r", str(keys), "-q", *words], check=True, stdout=subprocess.DEVNULL)

    for count, words in prep:
        bench(count, words)
    for name, words in cases.items():
        best = 1e9
        for _ in range(3):
            count = 20_000 if "20k" in name else 50_000 if "2k" in name else 300_000
            before = server.cpu_ns()
            bench(count, words, 1000 if "20k" in name else 20_000 if "2k" in name else 100_000)
            best = min(best, (server.cpu_ns() - before) / count)
        print(f"{name:12} {best:8.0f} ns", flush=True)
    server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+")
    parser.add_argument("--only")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--port", type=int, default=23100)
    options = parser.parse_args()
    for number, binary in enumerate(options.servers):
        for part in (returns, cycles, limit, small, cost):
            if options.only in (None, part.__name__):
                print(f"== {part.__name__}: {os.path.basename(binary)}", flush=True)
                random.seed(1)
                part(binary, options.port + number, options.megabytes * MB)


if __name__ == "__main__":
    main()
