//! Measures how long clients wait for other keys while commands run that take a second. The figures
//! need a quiet machine.
//!
//! ```text
//! cargo test --release -p server --test it stalls -- --ignored --nocapture
//! ```
//!
//! A client runs one long command after the other, and other clients request unrelated keys. Their
//! waits are compared with a control run, in which a thread without a server uses as much processor
//! time. `STALL_MEMBERS` sets the size of the collections, `STALL_SECONDS` the duration of each
//! run.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};

/// Number of clients that request other keys, each in a thread.
const CLIENTS: usize = 4;

/// The long commands, run one at a time.
const LONG: [&str; 8] = [
    "SORT list ALPHA LIMIT 0 10",
    "LRANGE list 0 -1",
    "SUNIONSTORE union one two",
    "SUNION one two",
    "SINTERCARD 2 one two",
    "ZUNIONSTORE scores 2 one two",
    "SMEMBERS one",
    "KEYS none*",
];

pub(crate) fn setting(name: &str, otherwise: usize) -> usize {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Starts a server with a list, two sets that share half of their members, and as many keys.
fn filled(members: usize) -> Server {
    let server = ServerBuilder::iolite().tcp().start().unwrap();
    let mut client = server.client().unwrap();
    let mut add = |head: &[&str], part: &dyn Fn(usize) -> Vec<String>| {
        for start in (0..members).step_by(1000) {
            let mut words: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
            words.extend((start..members.min(start + 1000)).flat_map(part));
            client.command(&words).unwrap();
        }
    };
    add(&["RPUSH", "list"], &|number| vec![format!("e{number}")]);
    add(&["SADD", "one"], &|number| vec![format!("m{number}")]);
    add(&["SADD", "two"], &|number| {
        vec![format!("m{}", number + members / 2)]
    });
    add(&["MSET"], &|number| {
        vec![format!("key:{number}"), "v".to_owned()]
    });
    server
}

/// Measured waits, in microseconds.
struct Waits(Vec<u64>);

impl Waits {
    fn part(&self, per_million: usize) -> u64 {
        let at = self.0.len().saturating_sub(1) * per_million / 1_000_000;
        self.0.get(at).copied().unwrap_or(0)
    }

    #[allow(clippy::print_stdout, reason = "figures for who reads the run")]
    fn show(&self, name: &str, beside: usize) {
        println!(
            "{name:30} {:>8} requests  p50 {:>6}  p99 {:>6}  p99.99 {:>7}  longest {:>7} µs, beside {beside}",
            self.0.len(),
            self.part(500_000),
            self.part(990_000),
            self.part(999_900),
            self.part(1_000_000),
        );
    }
}

/// Measures the waits for a GET, a SET and a PING while `beside` runs repeatedly in another thread.
fn waits_beside(
    server: &Server,
    duration: Duration,
    mut beside: impl FnMut() + Send,
) -> (Waits, usize) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let mut runs = 0;
            while !is_over.load(Ordering::Relaxed) {
                beside();
                runs += 1;
            }
            runs
        });
        let askers: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || ask(server.client().unwrap(), number, duration)))
            .collect();
        let waits = askers.into_iter().flat_map(|asker| asker.join().unwrap());
        let mut waits: Vec<u64> = waits.collect();
        is_over.store(true, Ordering::Relaxed);
        waits.sort_unstable();
        (Waits(waits), runs.join().unwrap())
    })
}

fn ask(mut client: Client, number: usize, duration: Duration) -> Vec<u64> {
    let clock = SystemClock::new();
    let (patience, key) = (Patience::of(duration), format!("own:{number}"));
    let mut waits = Vec::new();
    while patience.lasts() {
        for request in [&["SET", &key, "v"][..], &["GET", &key], &["PING"]] {
            let began_ns = clock.moment().ns;
            client.command(request).unwrap();
            waits.push((clock.moment().ns - began_ns) / 1000);
        }
    }
    waits
}

/// Runs a request and receives its reply without decoding it: decoding a million elements would
/// take as much processor time as sending them.
pub(crate) fn run_to_the_end(stream: &mut TcpStream, line: &str) {
    const END: &[u8] = b"+PONG\r\n";
    stream
        .write_all(format!("{line}\r\nPING\r\n").as_bytes())
        .unwrap();
    let (mut buffer, mut last) = (vec![0; 1 << 16], Vec::new());
    while !last.ends_with(END) {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "closed");
        last.extend_from_slice(&buffer[count.saturating_sub(END.len())..count]);
        last.drain(..last.len().saturating_sub(END.len()));
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
#[ignore = "prints figures, which mean something on a quiet machine only"]
fn stalls_beside_long_commands() {
    let members = setting("STALL_MEMBERS", 1_000_000);
    let duration = Duration::from_secs(setting("STALL_SECONDS", 10) as u64);
    let server = filled(members);
    let mut burnt = 0_u64;
    let (control, rounds) = waits_beside(&server, duration, || {
        for _ in 0..1_000_000 {
            burnt = black_box(burnt.wrapping_mul(31).wrapping_add(7));
        }
    });
    control.show("a thread that only computes", rounds);
    for line in LONG {
        let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
        let (waits, runs) = waits_beside(&server, duration, || run_to_the_end(&mut stream, line));
        waits.show(line, runs);
        let (part, of) = (waits.part(990_000), control.part(990_000).max(1));
        println!(
            "{:30} p99 is {}.{:02} of the control's",
            "",
            part / of,
            part * 100 / of % 100
        );
    }
}
