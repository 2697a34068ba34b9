"""Celery against a server, as broker and for results: celery_queue.py PORT."""

import os
import sys

PORT = int(sys.argv[1])
os.environ["BROKER_PORT"] = str(PORT)

import redis
from celery import chain, chord, group
from celery.contrib.testing.worker import start_worker

import celery_tasks as tasks

PATIENCE_S = 120

r = redis.Redis(port=PORT)
r.flushall()
early = tasks.add.delay(1, 2)
later = tasks.add.apply_async((3, 4), countdown=0.2, priority=5)
with start_worker(
    tasks.app,
    concurrency=3,
    pool="threads",
    perform_ping_check=False,
    shutdown_timeout=PATIENCE_S,
    loglevel="ERROR",
):
    assert early.get(timeout=PATIENCE_S) == 3
    assert later.get(timeout=PATIENCE_S) == 7
    assert tasks.stumble.delay().get(timeout=PATIENCE_S) == 2
    sums = group(tasks.add.s(number, number) for number in range(50)).apply_async()
    assert sums.get(timeout=PATIENCE_S) == [2 * number for number in range(50)]
    assert chain(tasks.add.s(1, 1), tasks.add.s(3)).apply_async().get(timeout=PATIENCE_S) == 5
    joined = chord(tasks.add.s(number, 1) for number in range(10))(tasks.total.s())
    assert joined.get(timeout=PATIENCE_S) == 55
    early.forget()
    assert not r.exists(f"app:celery-task-meta-{early.id}")
assert r.llen("app:celery") == 0
print("celery: passed")
