#!/usr/bin/env python3
"""Instructions of a GET and a SET of keys in memory: without a tier, with one, and with one that holds another key's value.

    docs/bench/scripts/tier_instructions.py target/release/iolite [port]

Callgrind counts each thread; shown is the difference of 16,000 and 48,000 requests, at pipeline 16, for each thread that
has one. What depends on time (polling, background threads) is in it: look at the ratios, and twice.
"""
import os, random, shutil, socket, subprocess, sys, tempfile, time

IOLITE = sys.argv[1]
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 26500
FEW, MANY, KEYS, PIPELINE = 16_000, 48_000, 1_000, 16
VALUE = b"x" * 100
SERVERS = {
    "no limit": [],
    "maxmemory": ["--maxmemory", "1gb"],
    "maxmemory, allkeys-lru": ["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"],
    "a tier": ["--maxmemory", "1gb", "--tier-path", "TIER"],
    "a tier, one value in it": ["--maxmemory", "1gb", "--tier-path", "TIER"],
}


def words(*parts):
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def instructions(kind, command, count):
    """What each thread of a server executed for so many requests, by number of the thread."""
    directory = tempfile.mkdtemp(prefix="tier-instructions-")
    arguments = [os.path.join(directory, "tier") if word == "TIER" else word for word in SERVERS[kind]]
    process = subprocess.Popen(
        ["taskset", "-c", "0", "valgrind", "--tool=callgrind", "--quiet", "--separate-threads=yes"]
        + [f"--callgrind-out-file={directory}/counts", IOLITE, "--port", str(PORT), "--dir", directory]
        + ["--save", "", "--threads", "1", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        try:
            client = socket.create_connection(("127.0.0.1", PORT))
            break
        except OSError:
            time.sleep(0.2)
    replies = client.makefile("rb")

    def say(*parts):
        client.sendall(words(*parts))
        return replies.readline()

    for number in range(KEYS):
        say(b"SET", b"key:%06d" % number, VALUE)
    if kind.endswith("value in it"):
        say(b"CONFIG", b"SET", b"tier-demote-at", b"0")
        say(b"SET", b"cold", VALUE * 10)
        time.sleep(1)
        say(b"CONFIG", b"SET", b"tier-demote-at", b"90")
        assert say(b"OBJECT", b"TIER", b"cold") == b"$3\r\n" and replies.readline() == b"ssd\r\n"
    chance = random.Random(1)
    reply_bytes = len(b"$100\r\n\r\n") + len(VALUE) if command == "GET" else len(b"+OK\r\n")
    for _ in range(count // PIPELINE):
        keys = [b"key:%06d" % chance.randrange(KEYS) for _ in range(PIPELINE)]
        rest = (VALUE,) if command == "SET" else ()
        client.sendall(b"".join(words(command.encode(), key, *rest) for key in keys))
        replies.read(PIPELINE * reply_bytes)
    client.sendall(b"SHUTDOWN NOSAVE\r\n")
    process.wait()
    counts = {}
    for name in os.listdir(directory):
        if name.startswith("counts-"):
            lines = open(os.path.join(directory, name), errors="ignore")
            sums = [int(line.split()[1]) for line in lines if line.startswith("totals:")]
            counts[int(name.split("-")[1])] = sum(sums)
    shutil.rmtree(directory)
    return counts


for command in ("GET", "SET"):
    for kind in SERVERS:
        few, many = instructions(kind, command, FEW), instructions(kind, command, MANY)
        differences = [(many[thread] - few.get(thread, 0)) / (MANY - FEW) for thread in sorted(many)]
        shown = ", ".join(f"{difference:.0f}" for difference in differences if difference > 10)
        print(f"{command} {kind}: {shown}", flush=True)
