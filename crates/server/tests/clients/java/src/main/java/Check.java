import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.GeoCoordinate;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.args.GeoUnit;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.RestoreParams;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.params.SortingParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.Tuple;

/** Jedis against a server: Check PORT. Connects as the client does by default, then with RESP3. */
public final class Check {
    /** Longer than any reply takes on a slow machine; by itself it gives up after two seconds. */
    private static final int PATIENCE_MS = 120_000;
    private static final DefaultJedisClientConfig PATIENT =
            DefaultJedisClientConfig.builder().timeoutMillis(PATIENCE_MS).build();

    private static void equal(Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    private static void strings(Jedis jedis) {
        equal(jedis.set("greeting", "hello"), "OK");
        equal(jedis.get("greeting"), "hello");
        equal(jedis.get("nothing"), null);
        equal(jedis.set("greeting", "x", SetParams.setParams().nx()), null);
        equal(jedis.setGet("greeting", "again", SetParams.setParams().ex(1000)), "hello");
        equal(jedis.ttl("greeting") > 990, true);
        equal(jedis.append("greeting", "!"), 6L);
        equal(jedis.incrBy("count", 42), 42L);
        equal(jedis.incrByFloat("share", 0.5), 0.5);
        equal(jedis.mset("a", "1", "b", "2"), "OK");
        equal(jedis.mget("a", "b", "nothing"), Arrays.asList("1", "2", null));
        equal(jedis.getDel("a"), "1");
        byte[] key = "binary".getBytes(StandardCharsets.UTF_8);
        byte[] value = {0, -1, 13, 10};
        jedis.set(key, value);
        equal(Arrays.equals(jedis.get(key), value), true);
        try {
            jedis.incr("binary");
            throw new AssertionError("a text was incremented");
        } catch (JedisDataException error) {
            equal(error.getMessage(), "ERR value is not an integer or out of range");
        }
    }

    private static void bitmaps(Jedis jedis) {
        equal(jedis.setbit("bits", 7, true), false);
        equal(jedis.getbit("bits", 7), true);
        equal(jedis.bitcount("bits"), 1L);
        equal(jedis.bitpos("bits", true), 7L);
        equal(jedis.bitfield("f", "SET", "u8", "0", "200", "GET", "u4", "0"), List.of(0L, 12L));
    }

    private static void keys(Jedis jedis) {
        Pipeline pipeline = jedis.pipelined();
        List<Response<String>> replies = new ArrayList<>();
        for (int number = 0; number < 1000; number++) {
            replies.add(pipeline.set("many:" + number, "" + number));
        }
        pipeline.sync();
        replies.forEach(reply -> equal(reply.get(), "OK"));
        Set<String> found = new HashSet<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = jedis.scan(cursor, new ScanParams().match("many:*").count(100));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        equal(found.size(), 1000);
        equal(jedis.rename("bits", "renamed"), "OK");
        equal(jedis.copy("renamed", "copied", false), true);
        equal(jedis.pexpireAt("copied", 4_000_000_000_000L), 1L);
        equal(jedis.pexpireTime("copied"), 4_000_000_000_000L);
        equal(jedis.objectEncoding("count"), "int");
        equal(jedis.type("copied"), "string");
        equal(jedis.unlink("copied", "renamed"), 2L);
        equal(jedis.exists("copied"), false);
    }

    private static void listsAndHashes(Jedis jedis) {
        equal(jedis.rpush("list", "a", "b", "3"), 3L);
        equal(jedis.lrange("list", 0, -1), List.of("a", "b", "3"));
        equal(jedis.lpos("list", "b"), 1L);
        equal(jedis.rpoplpush("list", "other"), "3");
        equal(jedis.lpop("other", 2), List.of("3"));
        equal(jedis.hset("hash", Map.of("a", "1", "b", "two")), 2L);
        equal(jedis.hgetAll("hash"), Map.of("a", "1", "b", "two"));
        equal(jedis.hincrBy("hash", "a", 4), 5L);
        equal(jedis.hpexpireAt("hash", 4_000_000_000_000L, "a", "c"), List.of(1L, -2L));
        equal(jedis.hpexpireTime("hash", "a", "b"), List.of(4_000_000_000_000L, -1L));
        equal(jedis.hpersist("hash", "a"), List.of(1L));
        equal(jedis.hdel("hash", "b"), 1L);
    }

    private static void setsAndSortedSets(Jedis jedis) {
        equal(jedis.sadd("set", "1", "2", "3"), 3L);
        equal(jedis.sadd("more", "3", "4"), 2L);
        equal(jedis.smembers("set"), Set.of("1", "2", "3"));
        equal(jedis.sinter("set", "more"), Set.of("3"));
        equal(jedis.sintercard(1, "set", "more"), 1L);
        equal(jedis.smismember("set", "1", "9"), List.of(true, false));
        equal(jedis.sdiffstore("rest", "set", "more"), 2L);
        equal(jedis.zadd("sorted", Map.of("a", 1.0, "b", 2.5)), 2L);
        equal(jedis.zrange("sorted", 0, -1), List.of("a", "b"));
        equal(jedis.zrangeWithScores("sorted", 1, 1), List.of(new Tuple("b", 2.5)));
        equal(jedis.zrank("sorted", "b"), 1L);
        equal(jedis.zincrby("sorted", 0.5, "b"), 3.0);
        equal(jedis.zunionstore("union", "sorted", "set"), 5L);
        equal(jedis.zpopmin("sorted"), new Tuple("a", 1.0));
    }

    private static void streams(Jedis jedis) {
        StreamEntryID id = new StreamEntryID(5, 1);
        equal(jedis.xadd("stream", id, Map.of("a", "1")), id);
        equal(jedis.xlen("stream"), 1L);
        equal(jedis.xrange("stream", "-", "+").get(0).getFields(), Map.of("a", "1"));
        equal(jedis.xgroupCreate("stream", "group", new StreamEntryID(0, 0), false), "OK");
        var wanted = Map.of("stream", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        var read = jedis.xreadGroup("group", "alice", XReadGroupParams.xReadGroupParams(), wanted);
        equal(read.get(0).getValue().get(0).getID(), id);
        equal(jedis.xpending("stream", "group").getTotal(), 1L);
        equal(jedis.xinfoStream("stream").getLength(), 1L);
        equal(jedis.xack("stream", "group", id), 1L);
        equal(jedis.xdel("stream", id), 1L);
    }

    private static void sketchesPlacesAndPayloads(Jedis jedis) {
        equal(jedis.pfadd("sketch", "a", "b", "c"), 1L);
        equal(jedis.pfcount("sketch"), 3L);
        equal(jedis.geoadd("places", 15.087269, 37.502669, "Catania"), 1L);
        equal(jedis.geohash("places", "Catania"), List.of("sqdtr74hyu0"));
        var near = jedis.geosearch("places", new GeoCoordinate(15, 37), 100, GeoUnit.KM);
        equal(near.get(0).getMemberByString(), "Catania");
        equal(jedis.sort("set", new SortingParams().desc()), List.of("3", "2", "1"));
        for (String key : List.of("list", "hash", "set", "sorted", "stream", "sketch")) {
            byte[] payload = jedis.dump(key);
            equal(jedis.restore("restored", 0, payload, RestoreParams.restoreParams().replace()), "OK");
            equal(jedis.type("restored"), jedis.type(key));
        }
    }

    private static void connection(Jedis jedis) {
        equal(jedis.ping(), "PONG");
        equal(jedis.echo("back"), "back");
        equal(jedis.clientSetname("tester"), "OK");
        equal(jedis.clientGetname(), "tester");
        equal(jedis.info().contains("redis_version:"), true);
        equal(jedis.configGet("maxmemory").containsKey("maxmemory"), true);
        equal(jedis.time().size(), 2);
        equal(jedis.select(5), "OK");
        equal(jedis.set("only", "here"), "OK");
        equal(jedis.select(0), "OK");
        equal(jedis.exists("only"), false);
    }

    private static void transactions(Jedis jedis, HostAndPort address) {
        Transaction transaction = jedis.multi();
        Response<String> set = transaction.set("t", "1");
        Response<Long> incremented = transaction.incr("t");
        equal(transaction.exec().size(), 2);
        equal(set.get() + incremented.get(), "OK2");
        jedis.watch("t");
        try (Jedis other = new Jedis(address, PATIENT)) {
            equal(other.incr("t"), 3L);
        }
        Transaction late = jedis.multi();
        late.set("t", "100");
        equal(late.exec(), null);
        equal(jedis.get("t"), "3");
        Transaction dropped = jedis.multi();
        dropped.set("t", "100");
        equal(dropped.discard(), "OK");
        equal(jedis.get("t"), "3");
    }

    /** Workers take from a queue what others put there, all with connections of one pool. */
    private static void queue(HostAndPort address) throws InterruptedException {
        try (JedisPool pool = new JedisPool(address, PATIENT)) {
            try (Jedis jedis = pool.getResource()) {
                jedis.del("none", "queue");
            }
            Set<String> done = ConcurrentHashMap.newKeySet();
            List<Thread> workers = new ArrayList<>();
            for (int worker = 0; worker < 3; worker++) {
                workers.add(new Thread(() -> {
                    try (Jedis jedis = pool.getResource()) {
                        String job = "";
                        while (!job.equals("stop")) {
                            job = jedis.blpop(0, "none", "queue").get(1);
                            done.add(job);
                        }
                    }
                }));
            }
            workers.forEach(Thread::start);
            try (Jedis jedis = pool.getResource()) {
                for (int job = 0; job < 200; job++) {
                    jedis.rpush("queue", "job:" + job);
                }
                jedis.rpush("queue", "stop", "stop", "stop");
            }
            for (Thread worker : workers) {
                worker.join();
            }
            equal(done.size(), 201);
        }
    }

    private static void subscriptions(HostAndPort address) throws InterruptedException {
        CountDownLatch subscribed = new CountDownLatch(1);
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + " " + message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis jedis = new Jedis(address, PATIENT)) {
                jedis.subscribe(listener, "news");
                equal(jedis.ping(), "PONG");
            }
        });
        thread.start();
        subscribed.await();
        try (Jedis jedis = new Jedis(address, PATIENT)) {
            equal(jedis.publish("news", "hello"), 1L);
        }
        thread.join();
        equal(heard, List.of("news hello"));
    }

    private static void pooled(HostAndPort address) {
        try (JedisPooled pool = new JedisPooled(address, PATIENT)) {
            pool.del("shared");
            List<Thread> threads = new ArrayList<>();
            for (int worker = 0; worker < 4; worker++) {
                threads.add(new Thread(() -> {
                    for (int count = 0; count < 250; count++) {
                        pool.incr("shared");
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                try {
                    thread.join();
                } catch (InterruptedException error) {
                    throw new AssertionError(error);
                }
            }
            equal(pool.get("shared"), "1000");
        }
    }

    public static void main(String[] args) throws InterruptedException {
        HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(args[0]));
        var resp3 = DefaultJedisClientConfig.builder().timeoutMillis(PATIENCE_MS).protocol(RedisProtocol.RESP3).build();
        for (var config : List.of(PATIENT, resp3)) {
            try (Jedis jedis = new Jedis(address, config)) {
                jedis.flushAll();
                strings(jedis);
                bitmaps(jedis);
                keys(jedis);
                listsAndHashes(jedis);
                setsAndSortedSets(jedis);
                streams(jedis);
                sketchesPlacesAndPayloads(jedis);
                connection(jedis);
                transactions(jedis, address);
            }
        }
        pooled(address);
        queue(address);
        subscriptions(address);
        System.out.println("jedis, RESP2 and RESP3: passed");
    }
}
