#!/usr/bin/env python3
"""Hash slots that move between two nodes, idle and under full load, and what clients notice of it.

    docs/bench/scripts/slot_moves.py SERVER [--only NAME...] [--keys millions] [--rounds n] [--port base]

idle        all slots with keys of 8 B values back and forth, nobody writes: keys a second
reshard     `redis-cli --cluster reshard` of redis-server, 300,000 keys, for comparison
values      values of 16 KiB: GB a second
load        20 moves under writers that keep the source busy: how many succeed at the first try, longest pause of each writer
foreground  GETs of keys that stay, while others move: requests a second and p99, beside those without a move
failover    CLUSTER FAILOVER of a primary with one replica under writers: longest pause, errors other than MOVED
forward     GETs at pipeline 16 by another node's forward-port, beside those at the owner

Each node has a core (0 and 1), clients share both.
"""
import argparse, atexit, json, multiprocessing, os, shutil, socket, statistics, subprocess, sys, tempfile, time

arguments = argparse.ArgumentParser()
arguments.add_argument("server")
arguments.add_argument("--only", nargs="*")
arguments.add_argument("--keys", type=float, default=10)
arguments.add_argument("--rounds", type=int, default=4)
arguments.add_argument("--port", type=int, default=25100)
arguments = arguments.parse_args()
KEYS = int(arguments.keys * 1_000_000)
SERVER = os.path.abspath(arguments.server)
next_port = arguments.port


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else line[:-2]

    def say(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(request(*words))
        return self.reply()


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def cpu_ticks(process):
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def settle(*nodes):
    """Waits until what has moved away is removed, too."""
    while True:
        before = [cpu_ticks(node.process) for node in nodes]
        time.sleep(0.5)
        if all(cpu_ticks(node.process) - ticks < 5 for node, ticks in zip(nodes, before)):
            return


class Node(Client):
    def __init__(self, core, *more):
        global next_port
        next_port += 1
        self.port, self.directory = next_port, tempfile.mkdtemp(prefix="slot-moves-")
        own = ["--port", self.port, "--cluster-port", self.port + 500, "--dir", self.directory, "--cluster-enabled", "yes"]
        own += ["--threads", 1, "--save", "", "--enable-debug-command", "yes", *more]
        out = open(os.path.join(self.directory, "out"), "wb")
        words = ["taskset", "-c", str(core), SERVER, *map(str, own)]
        self.process = subprocess.Popen(words, stdout=out, stderr=out)
        atexit.register(self.process.kill)
        while True:
            try:
                super().__init__(self.port)
                break
            except OSError:
                time.sleep(0.02)
        while self.say("PING") != b"+PONG":
            time.sleep(0.02)

    def id(self):
        return self.say("CLUSTER", "MYID")

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def cluster(first, *others):
    """The first node has all hash slots."""
    answer = first.say("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    assert answer == b"+OK", answer
    for other in others:
        answer = other.say("CLUSTER", "MEET", "127.0.0.1", first.port, first.port + 500)
        assert answer == b"+OK", answer
    for node in (first, *others):
        while b"cluster_state:ok" not in node.say("CLUSTER", "INFO") or other_count(node) != len(others):
            time.sleep(0.05)


def other_count(node):
    return node.say("CLUSTER", "NODES").count(b"\n") - 1


def give(source, target, first=0, last=16383):
    """Moves slots; how many seconds it took, and what is listed of it."""
    began = time.monotonic()
    assert source.say("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", target.id()) == b"+OK"
    while True:
        moves = source.say("CLUSTER", "GETSLOTMIGRATIONS")
        newest = max(moves, key=lambda one: dict(zip(one[::2], one[1::2])).get(b"create_time", 0))
        fields = dict(zip(newest[::2], newest[1::2]))
        if fields[b"state"] in (b"success", b"failed", b"cancelled"):
            return time.monotonic() - began, fields
        time.sleep(0.02)


def fill_here(node, count, value_bytes, tag=b""):
    value, batch = b"v" * value_bytes, max(1, min(1000, (1 << 20) // (value_bytes + 40)))
    for start in range(0, count, batch):
        end = min(count, start + batch)
        node.socket.sendall(b"".join(request(b"SET", b"%skey:%012d" % (tag, n), value) for n in range(start, end)))
        for _ in range(start, end):
            assert node.reply() == b"+OK"


def two_with(count, value_bytes, *more):
    nodes = Node(0, *more), Node(1, *more)
    cluster(*nodes)
    fill_here(nodes[0], count, value_bytes)
    return nodes


def idle():
    a, b = two_with(KEYS, 8)
    rates = []
    for round in range(arguments.rounds):
        settle(a, b)
        took, fields = give(*((a, b) if round % 2 == 0 else (b, a)))
        rates.append(KEYS / took)
    print(f"idle: {KEYS:,} keys of 8 B: {', '.join(f'{rate / 1e6:.2f}' for rate in rates)} M keys/s", flush=True)
    a.end(), b.end()


def values():
    count = 60_000
    a, b = two_with(count, 16384)
    rates = []
    for round in range(arguments.rounds):
        settle(a, b)
        took, fields = give(*((a, b) if round % 2 == 0 else (b, a)))
        rates.append(count * 16384 / took)
    print(f"values: {count:,} of 16 KiB: {', '.join(f'{rate / 1e9:.2f}' for rate in rates)} GB/s", flush=True)
    a.end(), b.end()


def write(ports, seed, seconds, results):
    """Writes in batches to who has the slots; the longest pause of each second, and errors that are no MOVED."""
    clients, at, errors, written = [Client(port) for port in ports], 0, 0, 0
    batch, keys, pauses = 64, 20_000, []
    texts = [request(b"SET", b"w%d:%d" % (seed, n), b"12345678") for n in range(keys)]
    end, last, number = time.monotonic() + seconds, time.monotonic(), 0
    while time.monotonic() < end:
        wanted = [texts[(number + n) % keys] for n in range(batch)]
        number += batch
        while wanted:
            clients[at].socket.sendall(b"".join(wanted))
            replies = [clients[at].reply() for _ in wanted]
            left = [text for text, reply in zip(wanted, replies) if reply != b"+OK"]
            for reply in replies:
                if reply.startswith(b"-MOVED"):
                    port = int(reply.rsplit(b":", 1)[1])
                    if port in ports:
                        at = ports.index(port)
                elif reply != b"+OK":
                    errors += 1
                    print(reply, file=sys.stderr)
            written += len(wanted) - len(left)
            wanted = left
            if len(left) < batch:
                now = time.monotonic()
                pauses.append((now, now - last))
                last = now
    pauses.sort(key=lambda pair: -pair[1])
    results.put((written / seconds, errors, pauses[:200]))


def writers(ports, count, seconds):
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=write, args=(ports, n, seconds, results)) for n in range(count)]
    for process in processes:
        process.start()
    return processes, results


def longest_within(pauses, spans):
    """The longest pause that ends in each span."""
    return [max((length for end, length in pauses if first <= end <= last + 0.2), default=0) for first, last in spans]


def retries_of(node):
    """How often moves that this node gave were tried again."""
    moves = node.say("CLUSTER", "MIGRATION", "STATUS", "ALL")
    return sum(dict(zip(move[::2], move[1::2]))[b"retries"] for move in moves)


def load():
    a, b = two_with(1_000_000, 8)
    seconds, count = 60, 3
    processes, results = writers([a.port, b.port], count, seconds)
    time.sleep(2)
    spans, states = [], []
    for number in range(20):
        began = time.monotonic()
        took, fields = give(*((a, b) if number % 2 == 0 else (b, a)))
        spans.append((began, time.monotonic()))
        states.append(fields[b"state"])
        time.sleep(0.5)
    done = [results.get() for _ in processes]
    retries = sum(retries_of(node) for node in (a, b))
    longest = sorted(pause for _, _, pauses in done for pause in longest_within(pauses, spans))
    rate, errors = sum(one[0] for one in done), sum(one[1] for one in done)
    ms = [pause * 1000 for pause in longest]
    print(f"load: {states.count(b'success')} of 20 moves of 1 M keys under {rate:,.0f} SET/s, retries {retries}, errors {errors}; "
          f"longest pause of a writer a move: p50 {statistics.median(ms):.1f} ms, p90 {ms[int(len(ms) * .9)]:.1f}, most {ms[-1]:.1f}; "
          f"moves took {', '.join(f'{last - first:.2f}' for first, last in spans)} s", flush=True)
    a.end(), b.end()


def bench(port, *words, duration=3):
    """Requests a second and p99 in milliseconds of GETs at pipeline 16."""
    with tempfile.NamedTemporaryFile() as file:
        words = [SERVER, "bench", "-p", port, "-P", 16, "-c", 8, "--duration", duration, "--json", file.name, *words]
        subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = json.load(file)["runs"][0]
    return run["requests"] * 1e9 / run["wall_ns"], run["latency"]["p99_ns"] / 1e6


def foreground():
    # {x} is slot 16,287.
    a, b = two_with(KEYS, 8)
    fill_here(a, 100_000, 8, b"{x}")
    ratios = []
    get = ["-r", 100_000, "GET", "{x}key:__rand_int__"]
    for round in range(arguments.rounds):
        settle(a, b)
        alone = bench(a.port, *get, duration=2)
        results = multiprocessing.Queue()
        process = multiprocessing.Process(target=lambda: results.put(bench(a.port, *get, duration=2)))
        source, target = (a, b) if round % 2 == 0 else (b, a)
        process.start()
        time.sleep(0.3)
        took, fields = give(source, target, 0, 16000)
        beside = results.get()
        process.join()
        ratios.append((beside[0] / alone[0], beside[1] / alone[1], took))
    for rate, p99, took in ratios:
        print(f"foreground: throughput {rate:.2f} x, p99 {p99:.2f} x, the move took {took:.2f} s", flush=True)
    a.end(), b.end()


def failover():
    pair, third = (Node(0), Node(1)), Node(1)
    cluster(*pair, third)
    fill_here(pair[0], 100_000, 8)
    assert pair[1].say("CLUSTER", "REPLICATE", pair[0].id()) == b"+OK"
    while b"master_link_status:up" not in pair[1].say("INFO", "replication"):
        time.sleep(0.05)
    ports = [node.port for node in pair]
    processes, results = writers(ports, 2, 20)
    time.sleep(2)
    spans = []
    for number in range(8):
        began = time.monotonic()
        replica = pair[1 - number % 2]
        answer = replica.say("CLUSTER", "FAILOVER")
        spans.append((began, time.monotonic()))
        if answer != b"+OK":
            print(answer, file=sys.stderr)
        time.sleep(1.5)
    done = [results.get() for _ in processes]
    ms = sorted(1000 * pause for _, _, pauses in done for pause in longest_within(pauses, spans))
    rate, errors = sum(one[0] for one in done), sum(one[1] for one in done)
    print(f"failover: 8 under {rate:,.0f} SET/s, errors {errors}; longest pause p50 {statistics.median(ms):.1f} ms, most {ms[-1]:.1f}; "
          f"answered after {', '.join(f'{1000 * (last - first):.0f}' for first, last in spans)} ms", flush=True)
    for node in (*pair, third):
        node.end()


def forward():
    forward_port = arguments.port + 900
    a, b = Node(0), Node(1, "--forward-port", forward_port)
    cluster(a, b)
    fill_here(a, 100_000, 8)
    get = ["-r", 100_000, "GET", "key:__rand_int__"]
    ratios = []
    for _ in range(arguments.rounds):
        direct, forwarded = bench(a.port, *get), bench(forward_port, *get)
        ratios.append(forwarded[0] / direct[0])
    print(f"forward: {', '.join(f'{ratio:.2f}' for ratio in ratios)} of direct", flush=True)
    a.end(), b.end()


def reshard():
    ports = [arguments.port + 400, arguments.port + 401, arguments.port + 402]
    processes, directory = [], tempfile.mkdtemp(prefix="slot-moves-")
    for number, port in enumerate(ports):
        words = ["taskset", "-c", str(min(number, 1)), "redis-server", "--port", port, "--cluster-enabled", "yes", "--save", ""]
        words += ["--cluster-config-file", f"{directory}/{port}.conf", "--dir", directory]
        processes.append(subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL))
    time.sleep(1)
    hosts = [f"127.0.0.1:{port}" for port in ports]
    subprocess.run(["redis-cli", "--cluster", "create", *hosts, "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
    time.sleep(2)
    first, second = Client(ports[0]), Client(ports[1])
    count = 0
    for n in range(900_000):
        first.socket.sendall(request(b"SET", b"key:%012d" % n, b"12345678"))
        count += first.reply() == b"+OK"
        if count >= 100_000:
            break
    began = time.monotonic()
    words = ["redis-cli", "--cluster", "reshard", hosts[0], "--cluster-from", first.say("CLUSTER", "MYID").decode()]
    words += ["--cluster-to", second.say("CLUSTER", "MYID").decode(), "--cluster-slots", "5461", "--cluster-yes", "--cluster-pipeline", "100"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - began
    print(f"reshard: redis-server, {count:,} keys in {took:.1f} s: {count / took:,.0f} keys/s", flush=True)
    for process in processes:
        process.kill()
    shutil.rmtree(directory, ignore_errors=True)


ALL = [idle, reshard, values, load, foreground, failover, forward]
for one in ALL:
    if not arguments.only or one.__name__ in arguments.only:
        one()
