"""redis-py against a server: redis_py.py PORT. Connects as the client does by default."""

import sys
import threading
import uuid

import redis

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
    for part in (strings, bitmaps, keys, connection_and_server, pipelines, threads):
        part(r)
    r.close()
r = connect()
assert r.ping() is True
decoded()
print("redis-py", redis.__version__, "RESP2 and RESP3: passed")
