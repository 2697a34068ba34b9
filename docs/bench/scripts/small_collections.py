"""Resident bytes of small collections: servers by turns, each shape in a server of its own.

    python3 small_collections.py 100000 redis=redis-server iolite=target/dist/iolite

What VmRSS grows by over so many collections of a shape, each made by one command through `redis-cli --pipe`,
divided by how many there are.
"""

import re
import socket
import subprocess
import sys
import tempfile
import time


def request(parts):
    strings = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n" % len(parts) + strings


def fields(number, count):
    pairs = ((b"field:%d" % at, b"value:%04d" % ((number + at) % 10000)) for at in range(count))
    return [part for pair in pairs for part in pair]


def members(number, count):
    return [b"member:%04d" % ((number + at) % 10000) for at in range(count)]


def scored(number, count):
    pairs = ((b"%d" % (number % 1000 + at), m) for at, m in enumerate(members(number, count)))
    return [part for pair in pairs for part in pair]


def numbers(number, count):
    return [b"%d" % ((number + at * 7) % 30000) for at in range(count)]


SHAPES = {
    "hash of 1": (b"HSET", b"h:%d", lambda i: fields(i, 1)),
    "hash of 5": (b"HSET", b"h:%d", lambda i: fields(i, 5)),
    "hash of 10": (b"HSET", b"h:%d", lambda i: fields(i, 10)),
    "hash of 10, keys of 16 B": (b"HSET", b"hash:%011d", lambda i: fields(i, 10)),
    "set of 1": (b"SADD", b"s:%d", lambda i: members(i, 1)),
    "set of 10": (b"SADD", b"s:%d", lambda i: members(i, 10)),
    "set of 10 numbers": (b"SADD", b"s:%d", lambda i: numbers(i, 10)),
    "sorted set of 1": (b"ZADD", b"z:%d", lambda i: scored(i, 1)),
    "sorted set of 10": (b"ZADD", b"z:%d", lambda i: scored(i, 10)),
    "list of 1": (b"RPUSH", b"l:%d", lambda i: members(i, 1)),
    "list of 10": (b"RPUSH", b"l:%d", lambda i: members(i, 10)),
    "stream of 1": (b"XADD", b"x:%d", lambda i: [b"*", b"field", b"value:%04d" % (i % 10000)]),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def resident_bytes(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def bytes_each(binary, shape, count):
    name, key, values = shape
    port = free_port()
    own = [] if "redis-server" in binary else ["--io-threads", "1"]
    with tempfile.TemporaryDirectory() as directory:
        words = [binary, "--port", str(port), "--dir", directory, "--save", "", *own]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.8)
            client = ["redis-cli", "-p", str(port)]
            # What buffers of the connection take is there before.
            subprocess.run([*client, "--pipe"], input=b"PING\r\n" * 20000, capture_output=True, check=True)
            before = resident_bytes(server)
            requests = b"".join(request([name, key % i, *values(i)]) for i in range(count))
            subprocess.run([*client, "--pipe"], input=requests, capture_output=True, check=True)
            time.sleep(1.5)
            after = resident_bytes(server)
            found = subprocess.run([*client, "dbsize"], capture_output=True, check=True)
            assert int(found.stdout) == count, found.stdout
        finally:
            server.kill()
            server.wait()
    return (after - before) / count


def main():
    count = int(sys.argv[1])
    servers = [word.split("=", 1) for word in sys.argv[2:]]
    for title, shape in SHAPES.items():
        row = [f"{name} {bytes_each(binary, shape, count):6.0f}" for name, binary in servers]
        print(f"{title:26}", *row, flush=True)


main()
