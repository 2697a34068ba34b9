import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.JedisSentineled;

/**
 * Jedis and Lettuce over a failover of a group: PORTS of Sentinels and the PASSWORD are in the environment.
 *
 * <p>Each client writes keys one after another. When it is ready the program says so; a line of input says that the primary
 * was lost. What was confirmed is read back then.
 */
public final class Failover {
  private static final String NAME = "mymaster";
  /** Writes that are confirmed before the failover, and that begin after it and are. */
  private static final int KEYS = 100;
  /** No client needs as much; a busy machine fails nothing. */
  private static final long PATIENCE_MS = 60_000;

  private static final List<Integer> PORTS =
      Stream.of(System.getenv("PORTS").split(" ")).map(Integer::valueOf).toList();
  private static final String PASSWORD = System.getenv("PASSWORD");

  /** When the primary was lost. */
  private static final CompletableFuture<Long> LOST = new CompletableFuture<>();

  private interface Write {
    String set(String key, String value) throws Exception;
  }

  private interface Client {
    void run(CountDownLatch ready) throws Exception;
  }

  /** A client writes: the numbers that were confirmed. */
  private static List<Integer> write(String client, CountDownLatch ready, Write write)
      throws Exception {
    List<Integer> confirmed = new ArrayList<>();
    int after = 0;
    int errors = 0;
    long gapMs = -1;
    for (int number = 1; after < KEYS; number++) {
      boolean isAfter = LOST.isDone();
      try {
        expect("OK".equals(write.set(client + ":" + number, "" + number)), client + ": no OK");
        confirmed.add(number);
        if (isAfter) {
          after++;
          gapMs = gapMs < 0 ? now() - LOST.get() : gapMs;
        }
      } catch (Exception error) {
        // The connection may be gone before this program is told why.
        long lost = LOST.get(5, TimeUnit.SECONDS);
        expect(now() - lost < PATIENCE_MS, client + ": " + error);
        errors++;
        Thread.sleep(50);
      }
      if (number == KEYS) {
        ready.countDown();
      }
      Thread.sleep(2);
    }
    System.out.printf(
        "%s: writes again after %.1f s and %d errors, %d keys%n",
        client, gapMs / 1000.0, errors, confirmed.size());
    return confirmed;
  }

  /** Reads back what was confirmed; where a replica is asked, it may be behind for a moment. */
  private static void read(
      String client, List<Integer> confirmed, boolean isReplica, Function<String, String> get)
      throws Exception {
    long end = now() + PATIENCE_MS;
    for (int number : confirmed) {
      while (!("" + number).equals(get.apply(client + ":" + number))) {
        expect(isReplica && now() < end, client + ": " + number + " is not there");
        Thread.sleep(10);
      }
    }
  }

  private static long now() {
    return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
  }

  private static void expect(boolean isSo, String what) {
    if (!isSo) {
      throw new AssertionError(what);
    }
  }

  private static void pool(CountDownLatch ready) throws Exception {
    String client = "JedisSentinelPool";
    Set<String> sentinels =
        PORTS.stream().map(port -> "127.0.0.1:" + port).collect(Collectors.toSet());
    try (JedisSentinelPool pool = new JedisSentinelPool(NAME, sentinels, PASSWORD, PASSWORD)) {
      List<Integer> confirmed =
          write(
              client,
              ready,
              (key, value) -> {
                try (Jedis jedis = pool.getResource()) {
                  return jedis.set(key, value);
                }
              });
      try (Jedis jedis = pool.getResource()) {
        read(client, confirmed, false, jedis::get);
      }
    }
  }

  private static void sentineled(CountDownLatch ready) throws Exception {
    String client = "JedisSentineled";
    Set<HostAndPort> sentinels =
        PORTS.stream().map(port -> new HostAndPort("127.0.0.1", port)).collect(Collectors.toSet());
    var config = DefaultJedisClientConfig.builder().password(PASSWORD).build();
    try (var jedis = new JedisSentineled(NAME, config, sentinels, config)) {
      List<Integer> confirmed = write(client, ready, jedis::set);
      read(client, confirmed, false, jedis::get);
    }
  }

  private static void lettuce(CountDownLatch ready) throws Exception {
    String client = "Lettuce";
    RedisURI.Builder builder = RedisURI.builder().withSentinelMasterId(NAME);
    for (int port : PORTS) {
      builder.withSentinel("127.0.0.1", port, PASSWORD);
    }
    RedisURI place = builder.withPassword(PASSWORD.toCharArray()).build();
    place.setTimeout(Duration.ofSeconds(1));
    RedisClient redis = RedisClient.create();
    try (var connection = MasterReplica.connect(redis, StringCodec.UTF8, place)) {
      List<Integer> confirmed = write(client, ready, connection.sync()::set);
      read(client, confirmed, false, connection.sync()::get);
      connection.setReadFrom(ReadFrom.REPLICA);
      read(client, confirmed, true, connection.sync()::get);
    } finally {
      redis.shutdown(0, 1, TimeUnit.SECONDS);
    }
  }

  public static void main(String[] args) throws Exception {
    List<Client> clients = List.of(Failover::pool, Failover::sentineled, Failover::lettuce);
    CountDownLatch ready = new CountDownLatch(clients.size());
    ExecutorService threads = Executors.newFixedThreadPool(clients.size());
    for (Client client : clients) {
      threads.execute(
          () -> {
            try {
              client.run(ready);
            } catch (Throwable error) {
              error.printStackTrace();
              System.exit(1);
            }
          });
    }
    threads.shutdown();
    expect(ready.await(PATIENCE_MS, TimeUnit.MILLISECONDS), "not all clients write");
    System.out.println("ready");
    System.in.read();
    LOST.complete(now());
    expect(threads.awaitTermination(3 * PATIENCE_MS, TimeUnit.MILLISECONDS), "a client hangs");
    // Or Maven waits for threads of the clients.
    System.out.flush();
    System.exit(0);
  }
}
