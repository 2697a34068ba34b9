"""pymemcache against a server: pymemcache_check.py PORT."""

import sys

from pymemcache import serde
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheServerError

client = Client(("127.0.0.1", int(sys.argv[1])), serde=serde.pickle_serde, timeout=60, default_noreply=False)

# Flags say how a value was made.
assert client.set("object", {"a": [1, 2]})
assert client.get("object") == {"a": [1, 2]}
assert client.set("number", 41)
assert client.incr("number", 1) == 42
assert client.decr("number", 50) == 0

value, cas = client.gets("object")
assert client.cas("object", {"b": 1}, cas) is True
assert client.cas("object", {"b": 2}, cas) is False
assert client.cas("none", 1, cas) is None

many = {f"key{number}": number for number in range(5000)}
assert client.set_many(many) == []
assert client.get_many(list(many)) == many
assert client.delete_many(["key0", "key1"])

assert client.add("new", "x") and not client.add("new", "y")
assert client.append("new", "y") and client.touch("new", 100)
assert not client.replace("none", "x") and not client.touch("none", 1)
assert client.delete("new") and client.get("new") is None

long = b"x" * 1_000_000
assert client.set("long", long) and client.get("long") == long
try:
    client.set("long", b"y" * 1_100_000)
    raise SystemExit("an item that is too long was stored")
except MemcacheServerError:
    pass
assert client.get("long") == long

assert int(client.stats()[b"curr_items"]) > 4000
client.flush_all()
assert client.get("object") is None
print("pymemcache: passed")
