"""Checkpoints and starts with ten million keys of 16 and 100 bytes, beside fio and redis-server, in turns.

python3 ten_million.py IOLITE DIRECTORY [KEYS] [ROUNDS]
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time

BATCH = 10_000
PORTS = {"iolite": 17801, "redis": 17802}
TICK = os.sysconf("SC_CLK_TCK")


def load_average():
    return os.getloadavg()[0]


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))

    def ask(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))
        reply = self.socket.recv(1 << 20)
        if reply[:1] == b"$":
            length = int(reply[1 : reply.index(b"\r\n")])
            while len(reply) < length + reply.index(b"\r\n") + 4:
                reply += self.socket.recv(1 << 20)
        return reply

    def info(self, name):
        for line in self.ask("INFO").split(b"\r\n"):
            if line.startswith(name.encode() + b":"):
                return line.split(b":", 1)[1].decode()
        raise KeyError(name)

    def fill(self, keys):
        chance = random.Random(2026).randbytes(16 << 20)
        for first in range(0, keys, BATCH):
            sets = []
            for number in range(first, min(first + BATCH, keys)):
                at = number * 7919 % (len(chance) - 100)
                sets.append(
                    b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$100\r\n%s\r\n"
                    % (number, chance[at : at + 100])
                )
            self.socket.sendall(b"".join(sets))
            left = len(sets) * len(b"+OK\r\n")
            while left:
                left -= len(self.socket.recv(min(left, 1 << 20)))


def start(name, binary, directory):
    """Starts a server; the seconds until it answers PING with PONG."""
    options = ["--port", str(PORTS[name]), "--save", "", "--dir", directory, "--appendonly", "no"]
    began = time.monotonic()
    process = subprocess.Popen(
        [binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while True:
        try:
            client = Client(PORTS[name])
            if client.ask("PING") == b"+PONG\r\n":
                return process, client, time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.01)


def processor_seconds(pid):
    """Of the process and its children that ended."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / TICK


def save(process, client):
    before = processor_seconds(process.pid)
    began = time.monotonic()
    client.ask("BGSAVE")
    time.sleep(0.05)
    while client.info("rdb_bgsave_in_progress") != "0":
        time.sleep(0.01)
    seconds = time.monotonic() - began
    assert client.info("rdb_last_bgsave_status") == "ok"
    return seconds, processor_seconds(process.pid) - before


def size_of(directory):
    return sum(
        os.path.getsize(os.path.join(where, name))
        for where, _, names in os.walk(directory)
        for name in names
    )


def fio(directory, jobs, size):
    command = (
        f"fio --name=w --rw=write --bs=256k --size={size // jobs} --numjobs={jobs} --end_fsync=1"
        f" --directory={directory} --group_reporting --output-format=json --refill_buffers"
    )
    began = time.monotonic()
    told = json.loads(subprocess.run(command.split(), stdout=subprocess.PIPE, check=True).stdout)
    seconds = time.monotonic() - began
    written = told["jobs"][0]["write"]
    for name in os.listdir(directory):
        os.remove(os.path.join(directory, name))
    return written["io_bytes"] / written["runtime"] / 1000, seconds


def main():
    binary, directory = sys.argv[1:3]
    keys = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000_000
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    places = {}
    for name in ["iolite", "redis", "fio"]:
        places[name] = os.path.join(directory, name)
        shutil.rmtree(places[name], ignore_errors=True)
        os.makedirs(places[name])
    binaries = {"iolite": binary, "redis": "redis-server"}
    servers = {}
    for name in binaries:
        process, client, _ = start(name, binaries[name], places[name])
        servers[name] = process, client
        began = time.monotonic()
        client.fill(keys)
        used = client.info("used_memory_rss")
        print(f"{name}: filled in {time.monotonic() - began:.1f} s, rss {used}, {client.ask('DBSIZE')}")
    for turn in range(rounds + 1):
        if turn == rounds:
            servers["redis"][1].ask("CONFIG", "SET", "rdbcompression", "no")
        for name in binaries:
            seconds, processor = save(*servers[name])
            size = size_of(places[name])
            print(
                f"turn {turn} {name}: BGSAVE {seconds:.2f} s wall, {processor:.2f} s processor,"
                f" {size} bytes, {size / seconds / 1e6:.0f} MB/s, load {load_average():.1f}",
                flush=True,
            )
        size = size_of(places["iolite"])
        for jobs in [1, 2]:
            speed, seconds = fio(places["fio"], jobs, size)
            print(
                f"turn {turn} fio, {jobs} files: {speed:.0f} MB/s, {seconds:.2f} s wall with its own"
                f" start, load {load_average():.1f}",
                flush=True,
            )
    for name in binaries:
        servers[name][1].ask("DBSIZE")
        servers[name][0].kill()
        servers[name][0].wait()
    for turn in range(rounds):
        for cache in ["warm", "cold"]:
            for name in binaries:
                if cache == "cold":
                    subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True)
                else:
                    subprocess.run(f"find {places[name]} -type f -exec cat {{}} + > /dev/null", shell=True)
                process, client, seconds = start(name, binaries[name], places[name])
                assert client.ask("DBSIZE") == b":%d\r\n" % keys
                processor = processor_seconds(process.pid)
                print(
                    f"turn {turn} {name}: start, cache {cache}: {seconds:.2f} s wall, {processor:.2f} s"
                    f" processor, load {load_average():.1f}",
                    flush=True,
                )
                process.kill()
                process.wait()


main()
