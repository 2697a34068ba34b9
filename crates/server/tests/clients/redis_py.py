"""redis-py against a server: redis_py.py PORT. Connects as the client does by default."""

import sys
import threading
import time
import uuid

import redis
from redis.lock import Lock

PORT = int(sys.argv[1])


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, **options)


def strings(r):
    assert r.set("greeting", "hello") is True
    assert r.get("greeting") == b"hello"
    assert r.get("nothing") is None
    assert r.set("greeting", "again", nx=True) is None
    assert r.set("greeting", "again", get=True) == b"hello"
    assert r.setex("brief", 1000, "x") is True
    assert 990 <= r.ttl("brief") <= 1000
    assert r.getex("brief", persist=True) == b"x"
    assert r.ttl("brief") == -1
    assert r.append("greeting", "!") == 6
    assert r.strlen("greeting") == 6
    assert r.getrange("greeting", 0, 1) == b"ag"
    assert r.setrange("greeting", 5, "?") == 6
    assert r.incr("count") == 1
    assert r.incrby("count", 41) == 42
    assert r.decr("count") == 41
    assert r.incrbyfloat("share", 1.5) == 1.5
    assert r.mset({"a": "1", "b": b"\x00\xff\r\n"}) is True
    assert r.mget("a", "b", "nothing") == [b"1", b"\x00\xff\r\n", None]
    assert r.msetnx({"a": "2", "c": "3"}) is False
    assert r.getdel("a") == b"1"
    assert r.lcs("greeting", "greeting", len=True) == 6
    try:
        r.incr("b")
        raise AssertionError("a text was incremented")
    except redis.ResponseError as error:
        assert str(error) == "value is not an integer or out of range"
    big = bytes(range(256)) * 40_000
    assert r.set("big", big) is True
    assert r.get("big") == big


def bitmaps(r):
    assert r.setbit("bits", 7, 1) == 0
    assert r.getbit("bits", 7) == 1
    assert r.bitcount("bits") == 1
    assert r.bitpos("bits", 1) == 7
    assert r.bitop("NOT", "inverted", "bits") == 1
    assert r.get("inverted") == b"\xfe"
    field = r.bitfield("fields", default_overflow="SAT")
    assert field.set("u8", 0, 250).incrby("u8", 0, 10).get("u4", 0).execute() == [0, 255, 15]


def keys(r):
    assert r.exists("bits", "nothing") == 1
    assert r.type("bits") == b"string"
    assert r.rename("bits", "renamed") is True
    assert r.copy("renamed", "copied") is True
    assert r.expire("copied", 100) is True
    assert r.expire("copied", 50, gt=True) is False
    assert r.pexpireat("copied", 4_000_000_000_000) is True
    assert r.pexpiretime("copied") == 4_000_000_000_000
    assert r.persist("copied") is True
    assert r.object("encoding", "count") == b"int"
    assert r.touch("copied", "renamed") == 2
    with r.pipeline(transaction=False) as pipe:
        for number in range(1000):
            pipe.set(f"many:{number}", number)
        assert all(pipe.execute())
    found = set(r.scan_iter("many:*", count=100))
    assert len(found) == 1000, len(found)
    assert set(r.keys("many:*")) == found
    assert r.delete(*found) == 1000
    assert r.unlink("copied", "renamed") == 2
    assert r.randomkey() is not None
    assert r.dbsize() > 0
    assert r.move("greeting", 5) is True
    other = connect(db=5, protocol=r.connection_pool.connection_kwargs["protocol"])
    assert other.get("greeting") == b"again?"
    assert other.flushdb() is True
    other.close()


def near(pairs, expected):
    """Whether members with scores are these: pairs in RESP2, lists in RESP3."""
    return [(member, score) for member, score in pairs] == expected


def lists(r):
    assert r.rpush("list", "a", "b", 3) == 3
    assert r.lpush("list", b"\x00\r\n") == 4
    assert r.lrange("list", 0, -1) == [b"\x00\r\n", b"a", b"b", b"3"]
    assert r.lpos("list", "b") == 2
    assert r.linsert("list", "BEFORE", "b", "x") == 5
    assert r.lset("list", 0, "y") is True
    assert r.lindex("list", -1) == b"3"
    assert r.lmove("list", "other", "LEFT", "RIGHT") == b"y"
    assert r.lmpop(2, "nothing", "other", direction="LEFT") == [b"other", [b"y"]]
    assert r.lrem("list", 0, "x") == 1
    assert r.ltrim("list", 1, -1) is True
    assert r.lpop("list", 5) == [b"b", b"3"]
    assert r.exists("list") == 0


def hashes(r):
    assert r.hset("hash", mapping={"a": 1, "b": "two", "c": 1.5}) == 3
    assert r.hget("hash", "b") == b"two"
    assert r.hmget("hash", "a", "nothing") == [b"1", None]
    assert r.hgetall("hash") == {b"a": b"1", b"b": b"two", b"c": b"1.5"}
    assert r.hincrby("hash", "a", 4) == 5
    assert r.hincrbyfloat("hash", "c", 0.25) == 1.75
    assert r.hsetnx("hash", "a", 7) == 0
    assert sorted(r.hkeys("hash")) == [b"a", b"b", b"c"]
    assert set(dict(r.hscan_iter("hash"))) == {b"a", b"b", b"c"}
    assert r.hexpire("hash", 1000, "a", "nothing") == [1, -2]
    assert 990 <= r.httl("hash", "a")[0] <= 1000
    assert r.hpexpireat("hash", 4_000_000_000_000, "b") == [1]
    assert r.hpexpiretime("hash", "a", "b", "c")[1:] == [4_000_000_000_000, -1]
    assert r.hpersist("hash", "a", "c") == [1, -1]
    assert r.execute_command("HGETDEL", "hash", "FIELDS", 1, "c") == [b"1.75"]
    assert r.hdel("hash", "a", "b") == 2
    assert r.exists("hash") == 0


def sets(r):
    assert r.sadd("set", "a", "b", "c") == 3
    assert r.sadd("numbers", 1, 2, 3) == 3
    assert r.object("encoding", "numbers") == b"intset"
    assert r.smembers("set") == {b"a", b"b", b"c"}
    assert r.sismember("set", "a") == 1
    assert r.smismember("set", ["a", "x"]) == [1, 0]
    assert r.sadd("more", "b", "c", "d") == 3
    assert r.sinter("set", "more") == {b"b", b"c"}
    assert r.sunion("set", "more") == {b"a", b"b", b"c", b"d"}
    assert r.sdiff("set", "more") == {b"a"}
    assert r.sintercard(2, ["set", "more"], limit=1) == 1
    assert r.sinterstore("common", "set", "more") == 2
    assert r.smove("set", "common", "a") is True
    assert set(r.sscan_iter("common")) == {b"a", b"b", b"c"}
    assert r.spop("common", 3) is not None
    assert r.srandmember("set", -5) != []
    assert r.delete("set", "more", "numbers", "common") == 3


def sorted_sets(r):
    assert r.zadd("sorted", {"a": 1, "b": 2.5, "c": float("inf")}) == 3
    assert r.zadd("sorted", {"a": 2}, gt=True, ch=True) == 1
    assert r.zscore("sorted", "c") == float("inf")
    assert r.zmscore("sorted", ["a", "x"]) == [2.0, None]
    assert near(r.zrange("sorted", 0, 1, withscores=True), [(b"a", 2.0), (b"b", 2.5)])
    assert r.zrange("sorted", "(2", "+inf", byscore=True) == [b"b", b"c"]
    assert r.zrevrange("sorted", 0, 0) == [b"c"]
    assert r.zrank("sorted", "b") == 1
    assert r.zincrby("sorted", -1, "b") == 1.5
    assert r.zcount("sorted", "-inf", 2) == 2
    assert r.zadd("others", {"a": 10, "z": 1}) == 2
    assert near(r.zunion(["sorted", "others"], withscores=True)[:2], [(b"z", 1.0), (b"b", 1.5)])
    assert r.zinter(["sorted", "others"]) == [b"a"]
    assert r.zinterstore("both", {"sorted": 2, "others": 1}, aggregate="MAX") == 1
    assert r.zscore("both", "a") == 10.0
    assert near(r.zpopmin("sorted", 1), [(b"b", 1.5)])
    assert dict(r.zscan_iter("others")) == {b"a": 10.0, b"z": 1.0}
    assert r.zremrangebyscore("others", 0, 5) == 1
    assert r.delete("sorted", "others", "both") == 3


def streams(r):
    first = r.xadd("stream", {"a": "1", "b": b"\xff"}, id="5-1")
    assert first == b"5-1"
    assert r.xadd("stream", {"c": "2"}, id="6-0", maxlen=10, approximate=False) == b"6-0"
    assert r.xlen("stream") == 2
    assert r.xrange("stream", "-", "+") == [(b"5-1", {b"a": b"1", b"b": b"\xff"}), (b"6-0", {b"c": b"2"})]
    assert r.xrevrange("stream", count=1) == [(b"6-0", {b"c": b"2"})]
    assert r.xgroup_create("stream", "group", id="0") is True
    assert len(r.xreadgroup("group", "alice", {"stream": ">"}, count=1)) == 1
    assert r.xpending("stream", "group")["pending"] == 1
    [pending] = r.xpending_range("stream", "group", "-", "+", 10)
    assert (pending["message_id"], pending["consumer"]) == (b"5-1", b"alice")
    assert r.xclaim("stream", "group", "bob", 0, ["5-1"])[0][0] == b"5-1"
    assert r.xautoclaim("stream", "group", "carol", 0)[1][0][0] == b"5-1"
    assert r.xack("stream", "group", "5-1") == 1
    assert r.xinfo_stream("stream")["length"] == 2
    assert r.xinfo_groups("stream")[0]["last-delivered-id"] == b"5-1"
    assert {one["name"] for one in r.xinfo_consumers("stream", "group")} == {b"alice", b"bob", b"carol"}
    assert r.xread({"stream": "5-1"}) != []
    assert r.xdel("stream", "6-0") == 1
    assert r.xtrim("stream", maxlen=0, approximate=False) == 1
    assert r.xgroup_destroy("stream", "group") == 1
    assert r.delete("stream") == 1


def sketches_places_and_order(r):
    assert r.pfadd("sketch", *range(1000)) == 1
    assert 980 <= r.pfcount("sketch") <= 1020
    assert r.pfadd("sketch2", "x") == 1
    assert r.pfmerge("merged", "sketch", "sketch2") is True
    assert r.pfcount("merged") >= r.pfcount("sketch")
    assert r.geoadd("places", (13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania")) == 2
    assert abs(float(r.geodist("places", "Palermo", "Catania", "km")) - 166.2742) < 0.001
    assert r.geohash("places", "Palermo") in ([b"sqc8b49rny0"], ["sqc8b49rny0"])
    near_by = r.geosearch("places", longitude=15, latitude=37, radius=100, unit="km", withdist=True)
    assert near_by[0][0] == b"Catania" and abs(near_by[0][1] - 56.4413) < 0.001
    r.rpush("unsorted", 3, 1, 2)
    r.mset({"weight:1": 9, "weight:2": 8, "weight:3": 7})
    assert r.sort("unsorted", desc=True) == [b"3", b"2", b"1"]
    assert r.sort("unsorted", by="weight:*", get="#") == [b"3", b"2", b"1"]
    assert r.sort("unsorted", store="ordered") == 3
    for key in ("sketch", "places", "unsorted"):
        payload = r.dump(key)
        assert r.restore("restored", 50_000, payload, replace=True) == b"OK"
        assert r.type("restored") == r.type(key)
        assert 0 < r.pttl("restored") <= 50_000
        assert r.dump("restored") == payload


def connection_and_server(r):
    assert r.ping() is True
    assert r.echo("back") == b"back"
    assert isinstance(r.client_id(), int)
    assert r.client_setname("tester") is True
    # The library's names are those it was written with: any number of texts.
    assert any(client["name"] == "tester" for client in r.client_list())
    info = r.info()
    assert info["redis_version"] and info["tcp_port"] == PORT, info
    assert r.config_get("maxmemory")["maxmemory"] is not None
    assert r.config_set("timeout", 0) is True
    assert len(r.time()) == 2
    assert r.command_count() > 50
    assert r.memory_usage("count") > 0
    assert r.role()[0] in (b"master", "master")


def pipelines(r):
    with r.pipeline(transaction=False) as pipe:
        pipe.set("p", 1).incr("p").get("p").get("nothing").execute_command("NONSENSE")
        replies = pipe.execute(raise_on_error=False)
    assert replies[:4] == [True, 2, b"2", None], replies
    assert "unknown command" in str(replies[4]), replies


def transactions(r):
    with r.pipeline() as pipe:
        pipe.multi()
        pipe.set("t", 1).incr("t").get("t")
        assert pipe.execute() == [True, 2, b"2"]
    with r.pipeline() as pipe:
        pipe.set("t", 1).lpush("t", 1).get("t")
        replies = pipe.execute(raise_on_error=False)
        assert replies[0] is True and replies[2] == b"1", replies
        assert "wrong kind of value" in str(replies[1]), replies
    with r.pipeline() as pipe:
        pipe.watch("t")
        assert pipe.get("t") == b"1"
        assert r.incr("t") == 2
        pipe.multi()
        pipe.set("t", 100)
        try:
            pipe.execute()
            raise AssertionError("a watched key had changed")
        except redis.WatchError:
            assert r.get("t") == b"2"
    # The helper that tries again until nobody interferes.
    def double(pipe):
        value = int(pipe.get("t"))
        pipe.multi()
        pipe.set("t", value + 1)

    r.set("t", 0)
    workers = [
        threading.Thread(target=lambda: [r.transaction(double, "t") for _ in range(25)])
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert r.get("t") == b"100"


class WatchedLock(Lock):
    """The lock of the library, released by WATCH and MULTI instead of a script."""

    def do_release(self, expected_token):
        def release(pipe):
            if pipe.get(self.name) != expected_token:
                raise redis.exceptions.LockNotOwnedError("not mine any more")
            pipe.multi()
            pipe.delete(self.name)

        self.redis.transaction(release, self.name)


def locks(r, kind):
    r.set("guarded", 0)

    def add():
        for _ in range(10):
            with kind(r, "lock", timeout=30, sleep=0.002):
                r.set("guarded", int(r.get("guarded")) + 1)

    workers = [threading.Thread(target=add) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert r.get("guarded") == b"40"
    held = kind(r, "lock", timeout=0.02)
    assert held.acquire() is True
    while r.exists("lock"):
        time.sleep(0.005)
    other = kind(r, "lock", timeout=30)
    assert other.acquire(blocking=False) is True
    try:
        held.release()
        raise AssertionError("a lock of somebody else was released")
    except redis.exceptions.LockError:
        pass
    assert other.extend(30) and r.pttl("lock") > 30_000
    other.release()


def blocking(r):
    r.delete("none", "queue", "done", "ranking", "log")
    threading.Timer(0.05, lambda: r.rpush("queue", "job")).start()
    assert r.blpop(["none", "queue"], timeout=30) in ((b"queue", b"job"), [b"queue", b"job"])
    assert r.blpop("none", timeout=0.01) is None
    threading.Timer(0.05, lambda: r.zadd("ranking", {"a": 2})).start()
    name, member, score = r.bzpopmin("ranking", timeout=30)
    assert (name, member, score) == (b"ranking", b"a", 2.0)
    threading.Timer(0.05, lambda: r.lpush("queue", "moved")).start()
    assert r.blmove("queue", "done", 30, "RIGHT", "LEFT") == b"moved"
    r.xgroup_create("log", "readers", mkstream=True)
    threading.Timer(0.05, lambda: r.xadd("log", {"f": "v"})).start()
    entries = r.xreadgroup("readers", "one", {"log": ">"}, block=30_000)
    assert b"f" in str(entries).encode() and r.xlen("log") == 1, entries
    assert r.xread({"log": "$"}, block=5) in ([], {}, None)


def subscriptions(r):
    with r.pubsub() as messages:
        messages.subscribe("news")
        messages.psubscribe("ne*")
        for kind in ("subscribe", "psubscribe"):
            assert messages.get_message(timeout=30)["type"] == kind
        assert r.publish("news", "hello") == 2
        kinds = [messages.get_message(timeout=30)["type"] for _ in range(2)]
        assert kinds == ["message", "pmessage"], kinds
        assert r.pubsub_numsub("news") == [(b"news", 1)]
        assert r.pubsub_numpat() == 1
        messages.ping()
        assert messages.get_message(timeout=30)["type"] == "pong"
        messages.unsubscribe()
        assert messages.get_message(timeout=30)["type"] == "unsubscribe"
    heard = []
    messages = r.pubsub(ignore_subscribe_messages=True)
    messages.subscribe(**{"by-thread": lambda message: heard.append(message["data"])})
    listener = messages.run_in_thread(sleep_time=0.01)
    while r.publish("by-thread", "x") == 0 or not heard:
        time.sleep(0.005)
    listener.stop()
    listener.join()
    messages.close()


def threads(r):
    def count():
        for _ in range(500):
            r.incr("shared")

    r.delete("shared")
    workers = [threading.Thread(target=count) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert r.get("shared") == b"4000"


def decoded():
    r = connect(decode_responses=True, client_name="decoded")
    text = str(uuid.uuid4()) + " \u00e4"
    assert r.set("text", text) is True
    assert r.get("text") == text
    assert r.client_getname() == "decoded"
    r.close()


for protocol in (2, 3):
    r = connect(protocol=protocol)
    r.flushall()
    types = (lists, hashes, sets, sorted_sets, streams, sketches_places_and_order)
    for part in (
        strings,
        bitmaps,
        keys,
        *types,
        connection_and_server,
        pipelines,
        transactions,
        lambda r: locks(r, Lock),
        lambda r: locks(r, WatchedLock),
        blocking,
        subscriptions,
        threads,
    ):
        part(r)
    r.close()
r = connect()
assert r.ping() is True
decoded()
print("redis-py", redis.__version__, "RESP2 and RESP3: passed")
