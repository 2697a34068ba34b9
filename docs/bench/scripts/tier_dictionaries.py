#!/usr/bin/env python3
"""Short values out of memory, by LZ4, zstd with a dictionary, and as they are: servers in turns.

    docs/bench/scripts/tier_dictionaries.py BINARY [--keys 200000] [--rounds 3] [--seconds 3] [--max 256mb]
        [--only json:lz4,json:auto]

Values are JSON of 200 to 800 bytes, a record each with names, addresses, times, a random session and some items; and, for
what does not compress, noise of 300 bytes. Each server has one kind and one `tier-compression`, with all values moved out of
memory. A line says: bytes of values, bytes on the device for them (entries with heads and keys), processor time of the server for
writing one value and moving it out, reads a second of 64 connections with a pipeline of 16, and processor time of a read. The
last lines are medians of all rounds. Reads are from the system's cache or past it, as the server does; it is the processor's time that is
compared.
"""
import argparse, os, random, shutil, socket, statistics, subprocess, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("binary")
parser.add_argument("--keys", type=int, default=200_000)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--seconds", type=int, default=3)
parser.add_argument("--max", default="256mb")
parser.add_argument("--only", default="json:no,json:lz4,json:zstd,json:auto,noise:no,noise:lz4,noise:auto")
parser.add_argument("--port", type=int, default=22500)
options = parser.parse_args()
home = tempfile.mkdtemp(prefix="tier-dictionaries-", dir=".")

WORDS = """amber anchor april arrow autumn bamboo basket beacon berry birch bottle branch bridge bronze button cactus camera candle
canyon carpet castle cedar cherry circle clover cobalt coffee comet copper coral cotton cradle crystal dancer desert dragon eagle ember
engine falcon feather fiddle forest fossil garden garnet ginger glacier guitar hammer harbor hazel helmet horizon island ivory jacket
jasmine jungle kettle ladder lantern lemon lilac linen lizard magnet maple marble market meadow melon meteor mirror mosaic needle nickel
nutmeg oasis olive onyx opal orange orchid oyster paddle pebble pepper piano pigeon planet pocket prairie quartz rabbit raven ribbon river
rocket saddle saffron salmon sapphire shadow shell silver spider spruce stone summer sunset temple thunder timber topaz tulip tunnel
turtle valley velvet violet walnut willow window winter yarrow zephyr""".split()


def record(random):
    word = lambda: random.choice(WORDS)
    time_of = lambda: "2026-%02d-%02dT%02d:%02d:%02dZ" % tuple(random.randrange(1, top) for top in (13, 29, 24, 60, 60))
    items = ",".join(
        '{"sku":"%s-%05d","quantity":%d,"price_cents":%d}' % (word(), random.randrange(100000), random.randrange(1, 6), random.randrange(50000))
        for _ in range(random.randrange(8))
    )
    return (
        '{"id":%d,"user":"%s.%s","email":"%s.%s%d@example.com","created_at":"%s","last_seen":"%s","status":"%s","session":"%032x",'
        '"score":%.2f,"tags":[%s],"items":[%s]}'
        % (
            random.randrange(10**8), word(), word(), word(), word(), random.randrange(1000), time_of(), time_of(),
            random.choice(["active", "inactive", "pending"]), random.getrandbits(128), random.random() * 1000,
            ",".join('"%s"' % word() for _ in range(random.randrange(4))), items,
        )
    ).encode()


def noise(random):
    return random.randbytes(300)


def command(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Server:
    def __init__(self, number, compression):
        self.port = options.port + number
        directory = os.path.join(home, str(number))
        shutil.rmtree(directory, ignore_errors=True)
        os.mkdir(directory)
        self.process = subprocess.Popen(
            [options.binary, "--port", str(self.port), "--dir", directory, "--tier-path", ".", "--maxmemory", options.max]
            + ["--tier-compression", compression, "--tier-promotion", "never", "--tier-scrub", "0", "--enable-debug-command", "yes"]
            + ["--tier-read-buffer", "1mb", "--save", "", "--durability", "none", "--threads", "2"],
            stdout=open(os.path.join(home, f"{number}.log"), "w"),
            stderr=subprocess.STDOUT,
        )
        for _ in range(200):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        self.socket.sendall(command(*words))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if line[:1] == b"$":
            length = int(line[1:])
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if line[:1] in b"*%":
            return [self.reply() for _ in range(int(line[1:]) * (2 if line[:1] == b"%" else 1))]
        return line[1:-2]

    def status(self):
        told = self.ask("TIER", "STATUS")
        return {told[at].decode(): told[at + 1].decode() for at in range(0, len(told), 2)}

    def cpu_us(self):
        words = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")

    def fill(self, values, first):
        """Writes values and moves each out of memory."""
        for at in range(0, len(values), 200):
            some = values[at : at + 200]
            batch = b"".join(
                command("SET", f"key:{first + at + number:012d}", value) + command("DEBUG", "DEMOTE", f"key:{first + at + number:012d}")
                for number, value in enumerate(some)
            )
            self.socket.sendall(batch)
            for _ in range(2 * len(some)):
                self.reply()

    def read(self, keys):
        """Reads a second, and processor time of one."""
        before, began = self.cpu_us(), time.time()
        reads_before = int(self.status()["tier_reads"])
        said = subprocess.run(
            [options.binary, "bench", "-p", str(self.port), "-c", "64", "-P", "16", "-t", "get", "-r", str(keys), "--no-progress"]
            + ["--seed", str(random.getrandbits(32)), "--duration", str(options.seconds)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        reads = int(self.status()["tier_reads"]) - reads_before
        return reads / (time.time() - began), (self.cpu_us() - before) / max(reads, 1)

    def stop(self):
        self.process.kill()
        self.process.wait()


def measure(number, kind, compression, values):
    # Samples for a dictionary are values, too; what is measured comes after them.
    server = Server(number, compression)
    try:
        training = values[: len(values) // 4]
        server.fill(training, 0)
        for _ in range(3000):
            is_done = compression in ("no", "lz4") or int(server.status().get("tier_compression_memory", 0)) < 5 << 20
            if is_done:
                break
            time.sleep(0.1)
        before, cpu = server.status(), server.cpu_us()
        rest = values[len(training) :]
        server.fill(rest, 0)
        after, spent = server.status(), server.cpu_us() - cpu
        raw = int(after["tier_raw_bytes"]) - int(before["tier_raw_bytes"])
        stored = int(after["tier_writes_bytes"]) - int(before["tier_writes_bytes"])
        reads, read_us = server.read(len(rest))
        row = (raw / len(rest), stored / len(rest), spent / len(rest), reads, read_us)
        show(f"{kind} {compression} ({after.get('tier_dictionaries', 0)} dictionaries)", row)
        return row
    finally:
        server.stop()


def show(what, row):
    print("%-40s %6.0f B a value, %6.0f B on the device, %6.2f us to write, %8.0f reads/s, %6.2f us a read" % (what, *row), flush=True)


def main():
    try:
        chosen = random.Random(7)
        kinds = {"json": [record(chosen) for _ in range(options.keys)], "noise": [noise(chosen) for _ in range(options.keys)]}
        loads = [tuple(load.split(":")) for load in options.only.split(",")]
        rows = {load: [] for load in loads}
        for _ in range(options.rounds):
            for number, load in enumerate(loads):
                rows[load].append(measure(number, *load, kinds[load[0]]))
        print("medians")
        for load, all_rows in rows.items():
            show(" ".join(load), tuple(statistics.median(column) for column in zip(*all_rows)))
    finally:
        shutil.rmtree(home, ignore_errors=True)


main()
