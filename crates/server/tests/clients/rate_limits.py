"""Limiters of the package `limits` against a server: rate_limits.py PORT. All but one are scripts."""

import sys

import redis
from limits import RateLimitItemPerHour
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

PORT = int(sys.argv[1])
redis.Redis(port=PORT).flushall()
storage = RedisStorage(f"redis://127.0.0.1:{PORT}")
ten = RateLimitItemPerHour(10)

for strategy in (FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter):
    limiter = strategy(storage)
    name = strategy.__name__
    assert all(limiter.hit(ten, name, "ada") for _ in range(10)), name
    assert not limiter.hit(ten, name, "ada"), name
    assert not limiter.test(ten, name, "ada"), name
    assert limiter.hit(ten, name, "grace", cost=10), name
    assert limiter.get_window_stats(ten, name, "ada").remaining == 0, name
    limiter.clear(ten, name, "ada")
    assert limiter.hit(ten, name, "ada"), name
assert storage.reset() > 0
print("limits: passed")
