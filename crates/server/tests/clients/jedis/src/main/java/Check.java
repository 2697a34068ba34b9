import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against a server: Check PORT. Connects as the client does by default, then with RESP3. */
public final class Check {
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
        try (Jedis other = new Jedis(address)) {
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
        try (JedisPool pool = new JedisPool(address.getHost(), address.getPort())) {
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
            try (Jedis jedis = new Jedis(address)) {
                jedis.subscribe(listener, "news");
                equal(jedis.ping(), "PONG");
            }
        });
        thread.start();
        subscribed.await();
        try (Jedis jedis = new Jedis(address)) {
            equal(jedis.publish("news", "hello"), 1L);
        }
        thread.join();
        equal(heard, List.of("news hello"));
    }

    private static void pooled(HostAndPort address) {
        try (JedisPooled pool = new JedisPooled(address.getHost(), address.getPort())) {
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
        var resp3 = DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP3).build();
        for (var config : List.of(DefaultJedisClientConfig.builder().build(), resp3)) {
            try (Jedis jedis = new Jedis(address, config)) {
                jedis.flushAll();
                strings(jedis);
                bitmaps(jedis);
                keys(jedis);
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
