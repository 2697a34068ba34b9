//! Clients that wait, watch, subscribe and track, and everything that may happen to them meanwhile:
//! they are served, unblocked, killed or gone, and their keys are flushed, swapped, evicted or of
//! another type.
//!
//! No reply is compared here (the schedules do that). The checks: the server lives, the remaining
//! clients are served, and in the end nothing of the disconnected clients remains. The test takes a
//! few seconds; `CHURN_SECONDS` sets a longer time. `SERVER_BIN` may name a binary built with a
//! sanitizer.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use base::random::Prng;
use protocol::Value;
use testkit::client::{Client, Received};
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};

use crate::ledger::number_from;

const THREADS_COUNT: u64 = 3;
const CLIENTS_PER_THREAD: usize = 24;
/// Maximum time for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// The commands of clients. A word in angle brackets stands for one of a few.
const SAYINGS: &[&str] = &[
    "BLPOP <l> <l> <t>",
    "BRPOP <l> <t>",
    "BLMOVE <l> <l> LEFT RIGHT <t>",
    "BLMPOP <t> 2 <l> <l> LEFT COUNT 2",
    "BZPOPMIN <z> <z> <t>",
    "BZMPOP <t> 1 <z> MAX",
    "XREAD BLOCK <ms> STREAMS <x> $",
    "XREADGROUP GROUP g c BLOCK <ms> STREAMS <x> >",
    "WAIT 1 <ms>",
    "LPUSH <l> <v> <v>",
    "RPUSH <l> <v>",
    "ZADD <z> 1 <v>",
    "XADD <x> * f <v>",
    "XGROUP CREATE <x> g $ MKSTREAM",
    "XGROUP DESTROY <x> g",
    "SET <l> <v>",
    "SET <k> <big>",
    "SET <k> <v> PX 3",
    "INCR <k>",
    "DEL <l> <z> <x>",
    "RENAME <l> <l>",
    "WATCH <k> <k>",
    "MULTI",
    "LPUSH <l> <v>",
    "EXEC",
    "DISCARD",
    "SUBSCRIBE <c> <c>",
    "PSUBSCRIBE c* <c>",
    "SSUBSCRIBE <c>",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "PUBLISH <c> <v>",
    "PUBLISH <c> <big>",
    "SPUBLISH <c> <v>",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON BCAST PREFIX k",
    "CLIENT TRACKING OFF",
    "CLIENT NO-EVICT ON",
    "CLIENT PAUSE 2 WRITE",
    "GET <k>",
    "MGET <k> <k>",
    "HELLO 3",
    "RESET",
    "QUIT",
    "CLIENT UNBLOCK <id>",
    "CLIENT UNBLOCK <id> ERROR",
    "CLIENT KILL ID <id>",
    "CLIENT KILL ID <id>",
    "CLIENT KILL TYPE pubsub",
    "CLIENT LIST",
    "FLUSHALL",
    "FLUSHDB ASYNC",
    "SWAPDB 0 1",
    "SELECT 1",
    "SELECT 0",
    "CONFIG SET notify-keyspace-events KEA",
    "CONFIG SET notify-keyspace-events <none>",
];

/// Returns one word of a command. Ids are those of the last thousand connections.
fn word(kind: &str, random: &mut Prng, newest_id: i64) -> String {
    let few = |name: &str, random: &mut Prng| format!("{name}{}", random.below(4));
    match kind {
        "<t>" => ["0", "0.001", "0.02", "5"][random.index(4)].to_owned(),
        "<ms>" => ["0", "1", "20", "5000"][random.index(4)].to_owned(),
        "<k>" => format!("k{}", random.below(2000)),
        "<big>" => "x".repeat(1 << random.below(15)),
        "<id>" => {
            let back = random.below(200);
            (newest_id - i64::try_from(back).unwrap_or(0)).to_string()
        }
        "<none>" => String::new(),
        kind => match kind
            .strip_prefix('<')
            .and_then(|kind| kind.strip_suffix('>'))
        {
            Some(name) => few(name, random),
            None => kind.to_owned(),
        },
    }
}

/// A client that sends commands and does not always read replies.
#[derive(Default)]
struct Restless {
    client: Option<Client>,
    /// Number of commands since the last reply.
    unanswered: u32,
    /// Number of commands since it connected.
    said: u32,
}

/// Maximum number of unanswered commands. The server does not read from a client that waits
/// forever, so further commands fill the client's socket: the client disconnects before that.
const UNANSWERED_MAX: u32 = 60;
/// Maximum number of commands of one connection: what a waiting client receives need not be a
/// reply.
const SAID_MAX: u32 = 500;

impl Restless {
    fn step(&mut self, server: &Server, random: &mut Prng, newest_id: &mut i64) -> io::Result<()> {
        let is_filled = self.unanswered > UNANSWERED_MAX || self.said > SAID_MAX;
        if random.below(60) == 0 || is_filled {
            *self = Self::default();
        }
        let client = match &mut self.client {
            Some(client) => client,
            None => {
                let mut client = server.client()?;
                if let Value::Integer(id) = client.command(&["CLIENT", "ID"])? {
                    *newest_id = id;
                }
                self.client.insert(client)
            }
        };
        for _ in 0..=random.below(3) {
            let saying = SAYINGS[random.index(SAYINGS.len())];
            let words = saying.split(' ');
            let words: Vec<String> = words.map(|kind| word(kind, random, *newest_id)).collect();
            client.send(&words)?;
            self.unanswered += 1;
            self.said += 1;
        }
        while let Received::Value(value) = client.arrived()? {
            // A waiting client also receives pushes of its subscriptions.
            if !matches!(value, Value::Push(_)) {
                self.unanswered = 0;
            }
        }
        Ok(())
    }
}

fn churn(server: &Server, seed: u64, duration: Duration) -> u64 {
    let mut random = Prng::seeded(seed);
    let mut clients: Vec<Restless> = Vec::new();
    clients.resize_with(CLIENTS_PER_THREAD, Restless::default);
    let mut newest_id = 0;
    let mut steps_count = 0;
    let patience = Patience::of(duration);
    while patience.lasts() {
        let client = &mut clients[random.index(CLIENTS_PER_THREAD)];
        // The client was killed or disconnected: it connects again.
        if client.step(server, &mut random, &mut newest_id).is_err() {
            *client = Restless::default();
        }
        steps_count += 1;
    }
    steps_count
}

#[test]
fn whoever_goes_leaves_nothing_behind() {
    let seconds = std::env::var("CHURN_SECONDS").map_or(2, |text| text.parse().unwrap());
    let first_seed = number_from("CHURN_SEED", 0);
    let args = ["--io-threads", "4", "--maxmemory", "24mb"];
    let policy = ["--maxmemory-policy", "allkeys-lru"];
    let builder = ServerBuilder::iolite().args(&args).args(&policy);
    let mut server = builder.start().unwrap();
    let steps_count: u64 = std::thread::scope(|scope| {
        let server = &server;
        let threads: Vec<_> = (0..THREADS_COUNT)
            .map(|thread| {
                let seed = first_seed + thread;
                scope.spawn(move || churn(server, seed, Duration::from_secs(seconds)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    println!("{steps_count} steps");
    assert!(server.is_running().unwrap(), "{}", server.log());
    let log = server.log();
    assert!(
        !log.contains("panicked") && !log.contains("Sanitizer"),
        "{log}"
    );
    nothing_is_left(&server);
    everybody_is_served(&server);
}

/// The counters that are zero when all other clients are gone.
const LEFT: &[&str] = &[
    "blocked_clients",
    "tracking_clients",
    "pubsub_clients",
    "watching_clients",
    "total_blocking_keys",
    "total_watched_keys",
    "clients_in_timeout_table",
    "pubsub_channels",
    "pubsub_patterns",
    "pubsubshard_channels",
    "tracking_total_keys",
    "tracking_total_items",
    "tracking_total_prefixes",
];

fn nothing_is_left(server: &Server) {
    let mut client = server.client().unwrap();
    // Tracking clients that are gone are removed key by key.
    client.command(&["FLUSHALL"]).unwrap();
    let patience = Patience::of(PATIENCE);
    loop {
        let figures = figures(&mut client);
        let left: Vec<_> = LEFT
            .iter()
            .filter_map(|name| Some((name, figures.get(*name)?)))
            .filter(|(_, value)| *value != "0")
            .collect();
        let clients = &figures["connected_clients"];
        if left.is_empty() && clients == "1" {
            break;
        }
        assert!(patience.lasts(), "{clients} clients, {left:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn figures(client: &mut Client) -> BTreeMap<String, String> {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]).unwrap() else {
        panic!("INFO is a text");
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Waiters of every kind, on many connections, are served by another client.
fn everybody_is_served(server: &Server) {
    let mut feeder = server.client().unwrap();
    feeder.command(&["CLIENT", "UNPAUSE"]).unwrap();
    // A sanitizer alone may need more than the limit.
    feeder
        .command(&["CONFIG", "SET", "maxmemory", "0"])
        .unwrap();
    let mut waiters: Vec<Client> = (0..40).map(|_| server.client().unwrap()).collect();
    for (at, waiter) in waiters.iter_mut().enumerate() {
        let key = format!("waiter:{at}");
        waiter.send(&["BLPOP", &key, "0"]).unwrap();
    }
    for at in 0..waiters.len() {
        let key = format!("waiter:{at}");
        let reply = feeder.command(&["RPUSH", &key, "served"]).unwrap();
        assert_eq!(reply, Value::Integer(1));
    }
    for waiter in &mut waiters {
        let reply = waiter.receive().unwrap();
        assert!(matches!(reply, Some(Value::Array(_))), "{reply:?}");
    }
}
