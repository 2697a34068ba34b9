//! Clients that write to the primary all the while: every kind of command, keys that expire soon,
//! transactions and scripts; and counters that show what was acknowledged.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use base::random::Prng;
use testkit::differential::rounds;

use super::super::*;
use super::OK;
use crate::replication::NOT_OF_DATA;

/// Number of counters, each of one client.
pub(super) const WRITERS: usize = 3;
/// The database of the counters, which no random command names.
const COUNTERS_DATABASE: &str = "13";
/// A script that empties everything but the counters, as one step.
const FLUSH: &str = "
    redis.call('SELECT', 13)
    local kept = redis.call('MGET', unpack(KEYS))
    redis.call('FLUSHALL')
    for at, key in ipairs(KEYS) do
        if kept[at] then redis.call('SET', key, kept[at]) end
    end";
const LIBRARY: &str = "#!lua name=faults
redis.register_function('put', function(keys, args)
    redis.call('SET', keys[1], args[1])
    return redis.call('INCR', 'functions')
end)";
/// Commands besides [`NOT_OF_DATA`] that do not concern data, or that the faults use themselves.
const LEFT_OUT: &[&str] = &[
    "FAILOVER",
    "SAVE",
    "BGSAVE",
    "BGREWRITEAOF",
    "PSYNC",
    "SYNC",
    "REPLCONF",
    "ACL",
    "MODULE",
    "CLUSTER",
    "KEYS",
    "SCAN",
];

/// Returns the name of a writer's counter.
pub(super) fn counter(writer: usize) -> String {
    format!("counter:{writer}")
}

/// Returns the counters of a node.
pub(super) fn counters(node: &Node) -> [u64; WRITERS] {
    let mut client = node.client();
    run(&mut client, &format!("SELECT {COUNTERS_DATABASE}"));
    std::array::from_fn(
        |writer| match run(&mut client, &format!("GET {}", counter(writer))) {
            Value::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
            _ => 0,
        },
    )
}

/// The state that all writers share.
#[derive(Default)]
struct Known {
    stop: AtomicBool,
    port: AtomicU16,
    /// The number of the current reign, and the count of each writer that was acknowledged in it.
    acknowledged: Mutex<(u64, [u64; WRITERS])>,
}

/// See the module.
pub(super) struct Load {
    known: Arc<Known>,
    threads: Vec<JoinHandle<()>>,
    seed: u64,
    counts: Arc<Mutex<[u64; WRITERS]>>,
}

impl Load {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            known: Arc::default(),
            threads: Vec::new(),
            seed,
            counts: Arc::default(),
        }
    }

    /// Writes to this port from now on. `keeps`: whether earlier acknowledgements still count.
    pub(super) fn turn_to(&self, port: u16, keeps: bool) {
        let mut acknowledged = lock(&self.known.acknowledged);
        if !keeps {
            *acknowledged = (acknowledged.0 + 1, [0; WRITERS]);
        }
        self.known.port.store(port, Ordering::Release);
    }

    pub(super) fn acknowledged(&self) -> [u64; WRITERS] {
        lock(&self.known.acknowledged).1
    }

    pub(super) fn is_running(&self) -> bool {
        !self.threads.is_empty()
    }

    pub(super) fn begin(&mut self) {
        if self.is_running() {
            return;
        }
        self.known.stop.store(false, Ordering::Release);
        self.seed += 1;
        for writer in 0..WRITERS {
            let (known, counts) = (Arc::clone(&self.known), Arc::clone(&self.counts));
            let seed = self.seed * 7 + writer as u64;
            self.threads.push(std::thread::spawn(move || {
                write(&known, &counts, writer, seed);
            }));
        }
    }

    pub(super) fn end(&mut self) {
        self.known.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.known.stop.store(true, Ordering::Release);
    }
}

/// Two connections: one for random commands, and one that counts.
struct Pair {
    port: u16,
    plays: Client,
    counts: Client,
}

fn connect(port: u16) -> std::io::Result<Pair> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let (plays, mut counts) = (Client::connect_tcp(address)?, Client::connect_tcp(address)?);
    counts.command(&["SELECT", COUNTERS_DATABASE])?;
    Ok(Pair {
        port,
        plays,
        counts,
    })
}

fn write(known: &Known, counts: &Mutex<[u64; WRITERS]>, writer: usize, seed: u64) {
    let mut random = Prng::seeded(seed);
    let mut requests: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut round = 0;
    let mut pair: Option<Pair> = None;
    while !known.stop.load(Ordering::Acquire) {
        let port = known.port.load(Ordering::Acquire);
        if pair.as_ref().is_none_or(|pair| pair.port != port) {
            pair = connect(port).ok();
        }
        let Some(now) = &mut pair else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        if requests.is_empty() {
            requests = rounds(seed, round..round + 1).flatten().collect();
            round += 1;
        }
        let request = requests.pop().unwrap_or_default();
        if step(known, counts, writer, now, &request, &mut random).is_err() {
            pair = None;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs random commands, and counts.
fn step(
    known: &Known,
    counts: &Mutex<[u64; WRITERS]>,
    writer: usize,
    pair: &mut Pair,
    request: &[Vec<u8>],
    random: &mut Prng,
) -> std::io::Result<()> {
    match random.below(3) {
        0 => own(&mut pair.plays, random)?,
        _ => play(&mut pair.plays, request)?,
    }
    let reign = lock(&known.acknowledged).0;
    let count = lock(counts)[writer] + 1;
    let request = ["SET", &counter(writer), &count.to_string()];
    let reply = pair.counts.command(&request)?;
    if reply != Value::Simple(OK.to_vec()) {
        std::thread::sleep(Duration::from_millis(5));
        return Ok(());
    }
    // A failed write does not count, so the difference of two counts is the number of writes.
    lock(counts)[writer] = count;
    let mut acknowledged = lock(&known.acknowledged);
    if acknowledged.0 == reign {
        acknowledged.1[writer] = count;
    }
    Ok(())
}

fn play(client: &mut Client, request: &[Vec<u8>]) -> std::io::Result<()> {
    let name = request.first().map(|name| name.to_ascii_uppercase());
    let name = String::from_utf8(name.unwrap_or_default()).unwrap_or_default();
    if name == "FLUSHALL" {
        let mut flush: Vec<String> = ["EVAL", FLUSH].map(str::to_owned).to_vec();
        flush.push(WRITERS.to_string());
        flush.extend((0..WRITERS).map(counter));
        return client.command(&flush).map(drop);
    }
    let is_left_out = |names: &[&str]| names.contains(&name.as_str());
    if is_left_out(NOT_OF_DATA) || is_left_out(LEFT_OUT) || request.is_empty() {
        return Ok(());
    }
    client.command(request).map(drop)
}

/// Runs commands that the grammar does not draw, because it is for two servers that must reply the
/// same.
fn own(client: &mut Client, random: &mut Prng) -> std::io::Result<()> {
    let key = format!("own:{}", random.below(60));
    let length = match random.below(40) {
        0 => 300_000,
        1..=4 => random.below(20_000),
        _ => random.below(300),
    };
    let value = "x".repeat(usize::try_from(length).unwrap());
    let soon = (1 + random.below(300)).to_string();
    let script = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('INCR', 'scripts') redis.call('SPOP', 'pool')";
    let lines: Vec<Vec<&str>> = match random.below(12) {
        0 => vec![
            vec!["DISCARD"],
            vec!["MULTI"],
            vec!["SELECT", "1"],
            vec!["SET", &key, &value],
            vec!["SELECT", "3"],
            vec!["RPUSH", &key, &value],
            vec!["EXEC"],
        ],
        1 => vec![vec!["SET", &key, &value, "PX", &soon]],
        2 => vec![vec!["PEXPIRE", &key, &soon]],
        3 => vec![vec!["EVAL", script, "1", &key, &value]],
        4 => vec![
            vec!["FUNCTION", "LOAD", "REPLACE", LIBRARY],
            vec!["FCALL", "put", "1", &key, &value],
        ],
        5 => vec![vec!["SADD", "pool", &key, &soon], vec!["SPOP", "pool"]],
        6 => vec![vec!["XADD", "log", "MAXLEN", "~", "100", "*", "f", &value]],
        7 => vec![
            vec!["XGROUP", "CREATE", "log", "readers", "0", "MKSTREAM"],
            vec![
                "XREADGROUP",
                "GROUP",
                "readers",
                "me",
                "COUNT",
                "2",
                "STREAMS",
                "log",
                ">",
            ],
        ],
        8 => vec![
            vec!["RPUSH", "queue", &value],
            vec!["BLPOP", "queue", "0.01"],
        ],
        9 => vec![vec!["HINCRBYFLOAT", "floats", &key, "1.1"]],
        10 => vec![vec!["GETEX", &key, "PX", &soon]],
        _ => vec![vec!["SET", &key, &value]],
    };
    for line in lines {
        client.command(&line)?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
