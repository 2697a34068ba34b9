//! How often a key is found in a store that is too small for all keys, under each policy.
//!
//! A request looks a key up and, if it is missing, sets it: a cache in front of something slower.
//! The traces have the shapes that are published for such caches: popularity by Zipf's law, with
//! keys that are requested once, with scans, and with popularity that drifts. The small size always
//! runs and is compared with an exact LRU list; the full size is compared with `redis-server` under
//! the same policy and with space for as many keys:
//! `cargo test -p store --release --test hit_ratio -- --ignored --nocapture`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a wrong test fails"
)]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use base::clock::{Clock, SystemClock};
use base::random::Prng;
use store::{Deadline, Handle, Options, Policy, Store};

const VALUE: [u8; 100] = [b'v'; 100];

/// Number of requests looked up together, as a client that pipelines does.
const BATCH: usize = 16;

/// A shape of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Zipf08,
    Zipf099,
    /// Three of ten keys are requested only once.
    OneHit,
    /// Walks over cold keys between requests by Zipf's law.
    Scans,
    /// What is popular changes all the time.
    Drift,
}

const SHAPES: [(Shape, &str); 5] = [
    (Shape::Zipf08, "Zipf 0.8"),
    (Shape::Zipf099, "Zipf 0.99"),
    (Shape::OneHit, "Zipf 0.99, 30 % asked once"),
    (Shape::Scans, "Zipf 0.9 with scans"),
    (Shape::Drift, "Zipf 0.99, drifting"),
];

/// Draws ranks by Zipf's law.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(ranks: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=ranks).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    fn draw(&self, random: &mut Prng) -> u64 {
        let wanted = random.unit_f64() * self.sums.last().unwrap();
        self.sums.partition_point(|sum| *sum < wanted) as u64
    }
}

/// Returns the key numbers of a trace.
fn trace(shape: Shape, keys: u32, requests: u32) -> Vec<u64> {
    const ONCE: u64 = 1 << 40;
    const COLD: u64 = 1 << 41;
    let exponent = match shape {
        Shape::Zipf08 => 0.8,
        Shape::Scans => 0.9,
        Shape::Zipf099 | Shape::OneHit | Shape::Drift => 0.99,
    };
    let zipf = Zipf::new(keys, exponent);
    let mut random = Prng::seeded(42);
    let scan = u64::from(keys / 10);
    let request = |at: u64| {
        let rank = zipf.draw(&mut random);
        match shape {
            Shape::OneHit if random.below(10) < 3 => ONCE + at,
            // One request in four belongs to a walk over a tenth as many cold keys.
            Shape::Scans if at / scan % 4 == 3 => COLD + at % scan + at / (scan * 40) * scan,
            // Over the whole trace, popularity moves on by as many keys as there are.
            Shape::Drift => (rank + at * u64::from(keys) / u64::from(requests)) % u64::from(keys),
            _ => rank,
        }
    };
    (0..u64::from(requests)).map(request).collect()
}

/// A cache under test. Returns how many of the requested keys it did not have.
trait Cache {
    fn ask(&mut self, keys: &[u64]) -> usize;

    /// Returns misses per hundred requests, of the second half of a trace.
    fn run(&mut self, trace: &[u64]) -> f64 {
        let (warm_up, rest) = trace.split_at(trace.len() / 2);
        warm_up.chunks(BATCH).for_each(|keys| {
            self.ask(keys);
        });
        let misses: usize = rest.chunks(BATCH).map(|keys| self.ask(keys)).sum();
        misses as f64 * 100.0 / rest.len() as f64
    }
}

fn name(number: u64) -> [u8; 16] {
    let mut name = *b"00000000:key:key";
    name[..8].copy_from_slice(&number.to_le_bytes());
    name
}

/// Deadlines far ahead, each later than the ones before: all keys live for the same time.
#[derive(Default)]
struct Deadlines(u64);

impl Deadlines {
    fn next_ms(&mut self) -> u64 {
        self.0 += 1;
        (1 << 42) + self.0
    }
}

/// The time that a cache uses.
#[derive(Clone, Copy)]
enum Time {
    /// The machine's time.
    Real(SystemClock),
    /// A millisecond per look: the speed of the machine, and where a minute ends, change nothing.
    Counted(u64),
}

impl Time {
    fn next_unix_ms(&mut self) -> u64 {
        match self {
            Self::Real(clock) => clock.now_unix_ms(),
            Self::Counted(ms) => {
                *ms += 1;
                *ms
            }
        }
    }
}

/// Our store.
struct Ours {
    handle: Handle,
    time: Time,
    is_volatile: bool,
    deadlines: Deadlines,
}

impl Ours {
    fn new(policy: Policy, limit_bytes: u64, time: Time) -> Self {
        let store = Store::new(&Options { databases: 1 }).unwrap();
        store.set_memory_limit(limit_bytes, policy, 5);
        Self {
            handle: store.handle(),
            time,
            is_volatile: policy.is_volatile(),
            deadlines: Deadlines::default(),
        }
    }

    /// Creates a store with space for `keys` keys.
    fn with_room(policy: Policy, keys: u64, time: Time) -> Self {
        let mut limit = keys * 160;
        for _ in 0..4 {
            let mut probe = Self::new(policy, limit, time);
            for number in 0..keys * 2 {
                probe.ask(&[number]);
            }
            limit = limit * keys / probe.handle.len(0) as u64;
        }
        Self::new(policy, limit, time)
    }
}

impl Cache for Ours {
    fn ask(&mut self, keys: &[u64]) -> usize {
        self.handle.begin(self.time.next_unix_ms());
        let mut missing = Vec::new();
        for &number in keys {
            let name = name(number);
            let key = self.handle.key(0, &name);
            if !self.handle.read(&key, |record| record.is_some()) {
                missing.push(number);
            }
        }
        for &number in &missing {
            let name = name(number);
            let key = self.handle.key(0, &name);
            let deadline = if self.is_volatile {
                Deadline::At(self.deadlines.next_ms())
            } else {
                Deadline::Never
            };
            self.handle.make_room(name.len() + VALUE.len()).unwrap();
            self.handle.upsert(&key, &VALUE, deadline, |_| ()).unwrap();
        }
        missing.len()
    }
}

/// A list that evicts the longest unused key.
struct Lru {
    room: usize,
    now: u64,
    used_at: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Lru {
    fn with_room(keys: usize) -> Self {
        Self {
            room: keys,
            now: 0,
            used_at: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }
}

impl Cache for Lru {
    fn ask(&mut self, keys: &[u64]) -> usize {
        let mut misses = 0;
        for &key in keys {
            self.now += 1;
            match self.used_at.insert(key, self.now) {
                Some(before) => {
                    self.by_use.remove(&before);
                }
                None => misses += 1,
            }
            self.by_use.insert(self.now, key);
            if self.used_at.len() > self.room {
                let (_, victim) = self.by_use.pop_first().unwrap();
                self.used_at.remove(&victim);
            }
        }
        misses
    }
}

/// A `redis-server` of this machine.
struct Redis {
    process: Child,
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    is_volatile: bool,
    deadlines: Deadlines,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _killed = self.process.kill();
        let _waited = self.process.wait();
    }
}

impl Redis {
    fn start(policy: Policy, limit_bytes: u64) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let process = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--maxmemory", &limit_bytes.to_string()])
            .args(["--maxmemory-policy", policy.name()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true).unwrap();
        Self {
            process,
            stream: BufReader::new(stream),
            request: Vec::new(),
            is_volatile: policy.is_volatile(),
            deadlines: Deadlines::default(),
        }
    }

    fn add(&mut self, words: &[&[u8]]) {
        write!(self.request, "*{}\r\n", words.len()).unwrap();
        for word in words {
            write!(self.request, "${}\r\n", word.len()).unwrap();
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    fn send(&mut self) {
        self.stream.get_mut().write_all(&self.request).unwrap();
        self.request.clear();
    }

    /// Returns the first line of a reply, and whether it is a value.
    fn receive(&mut self) -> (String, bool) {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(!line.starts_with('-'), "{line}");
        let len: Option<usize> = line
            .strip_prefix('$')
            .and_then(|len| len.trim().parse().ok());
        if let Some(len) = len {
            let mut value = vec![0; len + 2];
            self.stream.read_exact(&mut value).unwrap();
        }
        (line, len.is_some())
    }

    fn keys(&mut self) -> u64 {
        self.add(&[b"DBSIZE"]);
        self.send();
        self.receive().0[1..].trim().parse().unwrap()
    }
}

impl Cache for Redis {
    fn ask(&mut self, keys: &[u64]) -> usize {
        for &number in keys {
            self.add(&[b"GET", &name(number)]);
        }
        self.send();
        let mut missing = Vec::new();
        for &number in keys {
            if !self.receive().1 {
                missing.push(number);
            }
        }
        for &number in &missing {
            let deadline = self.deadlines.next_ms().to_string();
            if self.is_volatile {
                self.add(&[b"SET", &name(number), &VALUE, b"PXAT", deadline.as_bytes()]);
            } else {
                self.add(&[b"SET", &name(number), &VALUE]);
            }
        }
        self.send();
        missing.iter().for_each(|_| {
            self.receive();
        });
        missing.len()
    }
}

#[test]
fn a_cache_misses_no_more_often_than_an_exact_list() {
    let (keys, requests, room) = if cfg!(debug_assertions) {
        (10_000, 100_000, 1_000_u64)
    } else {
        (50_000, 500_000, 5_000)
    };
    for (shape, what) in SHAPES {
        let trace = trace(shape, keys, requests);
        for policy in [Policy::AllKeysLru, Policy::VolatileLru, Policy::AllKeysLfu] {
            let time = Time::Counted(1_700_000_000_000);
            let mut ours = Ours::with_room(policy, room, time);
            let misses = ours.run(&trace);
            let left = ours.handle.len(0);
            let list = Lru::with_room(left).run(&trace);
            println!("{what:28} {policy:12} misses {misses:5.2} list {list:5.2} keys {left}");
            let is_lfu = policy == Policy::AllKeysLfu;
            let allowed = match shape {
                // Earlier popularity is forgotten slowly.
                Shape::Drift if is_lfu => 25.0,
                Shape::Drift => 3.0,
                _ => 0.3,
            };
            assert!(
                misses <= list + allowed,
                "{what}, {policy}: {misses} {list}"
            );
        }
    }
}

/// Waits for the first half of a minute if counters decay by the minute: two servers are not
/// comparable if only one of them passes the end of a minute.
fn early_in_a_minute(policy: Policy) {
    let is_lfu = matches!(policy, Policy::AllKeysLfu | Policy::VolatileLfu);
    while is_lfu && SystemClock::new().now_unix_ms() % 60_000 > 30_000 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
#[ignore = "full size: minutes, needs redis-server"]
fn no_more_misses_than_redis() {
    const KEYS: u32 = 200_000;
    const REQUESTS: u32 = 1_000_000;
    const POLICIES: [Policy; 7] = [
        Policy::AllKeysLru,
        Policy::AllKeysLfu,
        Policy::AllKeysRandom,
        Policy::VolatileLru,
        Policy::VolatileLfu,
        Policy::VolatileRandom,
        Policy::VolatileTtl,
    ];
    println!("misses per hundred requests, {KEYS} keys, {REQUESTS} requests, 5 samples");
    println!("| trace | policy | room (keys) | Iolite | Redis | difference |");
    println!("|---|---|---|---|---|---|");
    for (shape, what) in SHAPES {
        let trace = trace(shape, KEYS, REQUESTS);
        for policy in POLICIES {
            early_in_a_minute(policy);
            let mut redis = Redis::start(policy, 5 << 20);
            let theirs = redis.run(&trace);
            let room = redis.keys();
            drop(redis);
            let mut ours = Ours::with_room(policy, room, Time::Real(SystemClock::new()));
            early_in_a_minute(policy);
            let misses = ours.run(&trace);
            let left = ours.handle.len(0);
            println!(
                "| {what} | {policy} | {left} / {room} | {misses:.2} | {theirs:.2} | {:+.2} |",
                misses - theirs
            );
        }
    }
}
