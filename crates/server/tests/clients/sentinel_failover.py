"""redis-py over a failover of a group: PORTS of Sentinels and the PASSWORD are in the environment.

Each client writes keys one after another. When it is ready the program says so; a line of input says that the primary
was lost. What was confirmed is read back then.
"""

import asyncio
import os
import sys
import threading
import time

import redis.asyncio
import redis.sentinel

PLACES = [("127.0.0.1", int(port)) for port in os.environ["PORTS"].split()]
PASSWORD = os.environ["PASSWORD"]
NAME = "mymaster"
# Writes that are confirmed before the failover, and that begin after it and are.
KEYS = 100
# No client needs as much; a busy machine fails nothing.
PATIENCE_S = 60

lost = threading.Event()
lost_at = None


class Written:
    """What one client wrote, and how long it could not."""

    def __init__(self, client):
        self.client = client
        self.numbers = []
        self.errors = 0
        self.after = 0
        self.gap_s = None

    def key(self, number):
        return f"{self.client}:{number}"

    def confirmed(self, number, is_after):
        self.numbers.append(number)
        if is_after:
            self.after += 1
            self.gap_s = self.gap_s or time.monotonic() - lost_at

    def failed(self, error):
        # The connection may be gone before this program is told why.
        assert lost.wait(5), f"{self.client}: {error!r} before the failover"
        self.errors += 1
        assert time.monotonic() - lost_at < PATIENCE_S, f"{self.client}: {error!r}"

    def tell(self):
        print(
            f"{self.client}: writes again after {self.gap_s:.1f} s and {self.errors} errors, "
            f"{len(self.numbers)} keys"
        )


def with_threads(ready):
    options = {"password": PASSWORD, "socket_timeout": 1}
    sentinel = redis.sentinel.Sentinel(PLACES, sentinel_kwargs=options, **options)
    written = Written("redis-py")
    primary = sentinel.master_for(NAME)
    number = 0
    while written.after < KEYS:
        is_after = lost.is_set()
        number += 1
        try:
            assert primary.set(written.key(number), number) is True
            written.confirmed(number, is_after)
        except redis.RedisError as error:
            written.failed(error)
            time.sleep(0.05)
        if number == KEYS:
            ready()
        time.sleep(0.002)
    for number in written.numbers:
        assert primary.get(written.key(number)) == str(number).encode(), number
    replica = sentinel.slave_for(NAME)
    assert replica.role()[0] == b"slave"
    end = time.monotonic() + PATIENCE_S
    for number in written.numbers:
        while replica.get(written.key(number)) != str(number).encode():
            assert time.monotonic() < end, f"{number} is not at the replica"
            time.sleep(0.01)
    written.tell()


async def with_asyncio(ready):
    options = {"password": PASSWORD, "socket_timeout": 1}
    sentinel = redis.asyncio.Sentinel(PLACES, sentinel_kwargs=options, **options)
    written = Written("redis-py asyncio")
    primary = sentinel.master_for(NAME)
    number = 0
    while written.after < KEYS:
        is_after = lost.is_set()
        number += 1
        try:
            assert await primary.set(written.key(number), number) is True
            written.confirmed(number, is_after)
        except redis.RedisError as error:
            written.failed(error)
            await asyncio.sleep(0.05)
        if number == KEYS:
            ready()
        await asyncio.sleep(0.002)
    for number in written.numbers:
        assert await primary.get(written.key(number)) == str(number).encode(), number
    replica = sentinel.slave_for(NAME)
    assert (await replica.role())[0] == b"slave"
    end = time.monotonic() + PATIENCE_S
    for number in written.numbers:
        while await replica.get(written.key(number)) != str(number).encode():
            assert time.monotonic() < end, f"{number} is not at the replica"
            await asyncio.sleep(0.01)
    await replica.aclose()
    await primary.aclose()
    written.tell()


def main():
    global lost_at
    both = threading.Barrier(3)
    failures = []

    def guarded(client):
        try:
            client()
        except BaseException:
            both.abort()
            failures.append(client)
            raise

    def ready():
        both.wait(PATIENCE_S)

    clients = [lambda: with_threads(ready), lambda: asyncio.run(with_asyncio(ready))]
    threads = [threading.Thread(target=guarded, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    ready()
    print("ready", flush=True)
    sys.stdin.readline()
    lost_at = time.monotonic()
    lost.set()
    for thread in threads:
        thread.join()
    sys.exit(1 if failures else 0)


main()
