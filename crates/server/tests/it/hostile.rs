//! Tests a thousand bad clients beside a good one.
//!
//! The bad clients send junk, announce lengths that never come, send requests without reading
//! replies, send byte by byte, or do nothing. A disconnected client connects again. The good client
//! must get the right reply every time, and the server's memory must stay below what the settings
//! and the kind of attack allow.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};

use crate::ledger::number_from;

const CLIENTS_COUNT: usize = 1000;
const THREADS_COUNT: usize = 2;
/// Minimum duration of the attack, and minimum number of requests of the good client. The attack
/// lasts until both are reached.
const ATTACK: Duration = Duration::from_secs(10);
const GOOD_EXCHANGES_MIN: u64 = 100;
/// Maximum size of all clients' buffers together (`maxmemory-clients`).
const CLIENT_MEMORY_BYTES: u64 = 64 << 20;
/// A buffer doubles when it grows, and an evicted client's memory is freed by its own worker a turn
/// later. So for a moment the buffers may exceed the limit by this factor.
const OVERSHOOT: u64 = 2;
/// Memory of a connection besides its buffers: state, and the input of one read.
const CONNECTION_BYTES: u64 = 32 << 10;
/// Memory that the attack may leave in the keyspace and in the allocator's free lists.
const SLACK_BYTES: u64 = 64 << 20;
/// Size of the value that clients request without reading it.
const BIG_BYTES: usize = 256 << 10;

/// The kind of a bad client.
#[derive(Clone, Copy, Debug)]
enum Habit {
    /// Random bytes.
    Junk,
    /// A request that is truncated or changed at a random place.
    BrokenFrames,
    /// The head of a huge string, then a few bytes of it.
    HugeBulk,
    /// The head of a request with a million arguments, then some of them.
    HugeArray,
    /// An inline request without an end.
    EndlessLine,
    /// Requests a large value again and again and reads nothing.
    NeverReadsLarge,
    /// Sends small requests without pause and reads nothing.
    NeverReadsSmall,
    /// A proper request, one byte at a time.
    ByteByByte,
    /// Nothing.
    Silent,
    /// Connects, sends half a request, goes away.
    Restless,
}

const HABITS: [Habit; 10] = [
    Habit::Junk,
    Habit::BrokenFrames,
    Habit::HugeBulk,
    Habit::HugeArray,
    Habit::EndlessLine,
    Habit::NeverReadsLarge,
    Habit::NeverReadsSmall,
    Habit::ByteByByte,
    Habit::Silent,
    Habit::Restless,
];

struct BadClient {
    habit: Habit,
    stream: Option<UnixStream>,
    /// Number of steps since it connected.
    step: usize,
}

impl BadClient {
    fn new(habit: Habit) -> Self {
        Self {
            habit,
            stream: None,
            step: 0,
        }
    }

    /// Sends the client's next bytes, and connects first if necessary. Returns whether the
    /// connection was closed.
    fn misbehave(&mut self, socket: &Path, prng: &mut Prng) -> bool {
        let Some(stream) = self.stream.as_mut() else {
            // The server may be busy with the other clients. The next step tries again.
            self.stream = UnixStream::connect(socket).ok();
            if let Some(stream) = &self.stream {
                stream.set_nonblocking(true).unwrap();
            }
            self.step = 0;
            return false;
        };
        let bytes = bytes_of(self.habit, self.step, prng);
        self.step += 1;
        let is_gone = match stream.write(&bytes) {
            Ok(_) => matches!(self.habit, Habit::Restless) && self.step > 2,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        let is_closed = is_gone || (reads(self.habit) && is_ended(stream));
        if is_closed {
            self.stream = None;
        }
        is_closed
    }
}

/// Returns whether a client reads what it is sent. Errors must not fill its socket.
fn reads(habit: Habit) -> bool {
    !matches!(
        habit,
        Habit::NeverReadsLarge | Habit::NeverReadsSmall | Habit::Silent
    )
}

fn is_ended(stream: &mut UnixStream) -> bool {
    let mut sink = [0; 4096];
    match stream.read(&mut sink) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn bytes_of(habit: Habit, step: usize, prng: &mut Prng) -> Vec<u8> {
    const REQUEST: &[u8] = b"*3\r\n$3\r\nSET\r\n$5\r\nslow!\r\n$1\r\nx\r\n";
    match (habit, step) {
        (Habit::Junk, _) => random_bytes(prng, 2000),
        (Habit::BrokenFrames, _) => broken_frame(REQUEST, prng),
        (Habit::HugeBulk, 0) => b"*3\r\n$3\r\nSET\r\n$4\r\nhuge\r\n$536870912\r\n".to_vec(),
        (Habit::HugeArray, 0) => b"*1048576\r\n$4\r\nMGET\r\n".to_vec(),
        (Habit::HugeArray, _) => b"$1\r\nk\r\n".repeat(500),
        (Habit::HugeBulk | Habit::EndlessLine, _) => vec![b'x'; 4000],
        (Habit::NeverReadsLarge, _) => b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(16),
        (Habit::NeverReadsSmall, _) => b"*1\r\n$4\r\nPING\r\n".repeat(300),
        (Habit::ByteByByte, step) => vec![REQUEST[step % REQUEST.len()]],
        (Habit::Silent, _) => Vec::new(),
        (Habit::Restless, _) => REQUEST[..REQUEST.len() / 2].to_vec(),
    }
}

fn random_bytes(prng: &mut Prng, at_most: usize) -> Vec<u8> {
    let mut bytes = vec![0; 1 + prng.index(at_most)];
    prng.fill(&mut bytes);
    bytes
}

/// Returns the request with one byte changed, or without its end.
fn broken_frame(request: &[u8], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = request.to_vec();
    let at = prng.index(bytes.len());
    match prng.below(3) {
        0 => bytes.truncate(at),
        1 => bytes[at] = prng.next_u64().to_le_bytes()[0],
        _ => {
            let count = [
                b"*-9\r\n".as_slice(),
                b"$-1\r\n",
                b"*2147483648\r\n",
                b"*1\r\n$1048577000000\r\n",
            ];
            bytes = count[prng.index(count.len())].to_vec();
        }
    }
    bytes
}

/// Runs one thread's share of the bad clients until `stop` is set. Returns how often they were
/// disconnected.
fn attack(socket: &Path, share: usize, stop: &AtomicBool) -> u64 {
    let first = number_from("HOSTILE_SEED", 0);
    let mut prng = Prng::seeded(first + share as u64);
    let mut clients: Vec<BadClient> = (0..CLIENTS_COUNT / THREADS_COUNT)
        .map(|index| BadClient::new(HABITS[index % HABITS.len()]))
        .collect();
    let mut closed = 0;
    while !stop.load(Ordering::Relaxed) {
        for client in &mut clients {
            closed += u64::from(client.misbehave(socket, &mut prng));
        }
        // Leaves processor time for the server.
        std::thread::sleep(Duration::from_millis(1));
    }
    closed
}

/// Runs the good client: it writes, reads back and counts, and every reply must be right. Returns
/// the number of requests, and the longest time of one.
fn be_good(client: &mut Client, until: Instant) -> (u64, Duration) {
    let mut exchanges = 0;
    let mut longest = Duration::ZERO;
    while exchanges < GOOD_EXCHANGES_MIN || now() < until {
        let begin = now();
        let value = format!("value {exchanges}");
        let replies = client
            .pipeline(&[
                vec!["SET", "good", &value],
                vec!["GET", "good"],
                vec!["INCR", "good:count"],
            ])
            .unwrap();
        exchanges += 1;
        let count = i64::try_from(exchanges).unwrap();
        let right = [
            Value::Simple(b"OK".to_vec()),
            Value::Bulk(value.into_bytes()),
            Value::Integer(count),
        ];
        assert_eq!(replies, right);
        longest = longest.max(begin.elapsed());
    }
    (exchanges, longest)
}

#[expect(clippy::disallowed_methods, reason = "how long the machine takes")]
fn now() -> Instant {
    Instant::now()
}

fn start() -> Server {
    let client_memory = CLIENT_MEMORY_BYTES.to_string();
    let args = [
        "--maxclients",
        "2000",
        "--maxmemory-clients",
        &client_memory,
    ];
    ServerBuilder::iolite().args(&args).start().unwrap()
}

#[test]
#[ignore = "takes long: cargo xtask soak hostile"]
fn a_thousand_bad_clients_harm_nobody() {
    let mut server = start();
    let mut good = server.client().unwrap();
    let big = "x".repeat(BIG_BYTES);
    assert_eq!(
        good.command(&["SET", "big", &big]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    let before = server.rss_peak_bytes().unwrap();
    let stop = AtomicBool::new(false);
    let closed = AtomicU64::new(0);
    let socket = server.socket();
    let (exchanges, longest) = std::thread::scope(|scope| {
        for share in 0..THREADS_COUNT {
            let (stop, closed, socket) = (&stop, &closed, &socket);
            scope.spawn(move || closed.fetch_add(attack(socket, share, stop), Ordering::Relaxed));
        }
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            be_good(&mut good, now() + ATTACK)
        }));
        stop.store(true, Ordering::Relaxed);
        good.unwrap_or_else(|panic| {
            println!("the server's log:\n{}", server.log());
            let stats = server
                .client()
                .and_then(|mut late| late.command(&["INFO", "stats"]));
            if let Ok(Value::Bulk(stats)) = stats {
                println!("{}", String::from_utf8_lossy(&stats));
            }
            std::panic::resume_unwind(panic)
        })
    });
    let grown = server.rss_peak_bytes().unwrap().saturating_sub(before);
    let bound =
        OVERSHOOT * CLIENT_MEMORY_BYTES + CLIENTS_COUNT as u64 * CONNECTION_BYTES + SLACK_BYTES;
    println!(
        "good exchanges {exchanges}, the longest {longest:?}; bad clients closed {} times; \
         memory grew by {} MiB at most, allowed {} MiB",
        closed.load(Ordering::Relaxed),
        grown >> 20,
        bound >> 20
    );
    assert!(server.is_running().unwrap());
    assert!(
        grown <= bound,
        "memory grew by {grown} bytes, allowed {bound}"
    );
    // A client that behaves is served normally: the attack left nothing behind.
    let mut late = server.client().unwrap();
    assert_eq!(
        late.command(&["STRLEN", "big"]).unwrap(),
        Value::Integer(256 << 10)
    );
}
