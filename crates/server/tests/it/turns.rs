//! Measures the longest turn of a worker while large collections are built, combined, copied and
//! deleted, in processor time of its thread. This is the maximum time that another client waits
//! because of the server itself, whatever else the machine does.
//!
//! ```text
//! cargo test --release -p server --test it turns -- --ignored --nocapture
//! ```
//!
//! prints a table of every step. `TURN_MEMBERS` sets the size of the collections, `TURN_ROUNDS` the
//! number of repetitions. On a virtual machine whose clock includes time taken by other machines, a
//! turn is the server's own if it is long each time.

use std::net::TcpStream;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};

use crate::stalls::{run_to_the_end, setting};

/// Number of elements sent at once.
const ROUND: usize = 6_400;

/// A collection to build, and how to build it.
struct Collection {
    key: &'static str,
    verb: &'static str,
    /// Number of elements in one request.
    elements: usize,
    /// The words of one element.
    words: fn(usize) -> Vec<String>,
}

const COLLECTIONS: [Collection; 7] = [
    Collection {
        key: "set",
        verb: "SADD",
        elements: 100,
        words: |number| vec![member(number)],
    },
    Collection {
        key: "other",
        verb: "SADD",
        elements: 100,
        words: |number| vec![member(number * 2)],
    },
    Collection {
        key: "zset",
        verb: "ZADD",
        elements: 100,
        words: |number| vec![score(number), member(number)],
    },
    Collection {
        key: "zset:single",
        verb: "ZADD",
        elements: 1,
        words: |number| vec![score(number), member(number)],
    },
    Collection {
        key: "hash",
        verb: "HSET",
        elements: 100,
        words: |number| vec![member(number), number.to_string()],
    },
    Collection {
        key: "list",
        verb: "RPUSH",
        elements: 100,
        words: |number| vec![member(number)],
    },
    Collection {
        key: "stream",
        verb: "XADD",
        elements: 1,
        words: |number| vec!["*".to_owned(), "field".to_owned(), member(number)],
    },
];

/// The commands that run on the collections.
const STEPS: [&str; 20] = [
    "SUNIONSTORE union set other",
    "SINTERSTORE both set other",
    "SDIFFSTORE rest set other",
    "SMEMBERS set",
    "ZUNIONSTORE scores 2 zset zset:single",
    "ZRANGESTORE range zset 0 -1",
    "ZREMRANGEBYRANK range 0 -2",
    "HGETALL hash",
    "LRANGE list 0 -1",
    "XRANGE stream - +",
    "COPY set copy",
    "SREM copy member:0000000000",
    "COPY zset zcopy",
    "ZADD zcopy 1 member:0000000000",
    "DEL set",
    "DEL zset",
    "DEL hash",
    "DEL list",
    "DEL stream",
    "FLUSHALL",
];

fn member(number: usize) -> String {
    format!("member:{number:010}")
}

/// Returns a score in no particular order.
fn score(number: usize) -> String {
    (number.wrapping_mul(0x9E37_79B1) % 1_000_003).to_string()
}

fn start() -> Server {
    // No turn takes that long: turns are measured, but no event is kept.
    let measured = [
        "--latency-monitor-threshold",
        "86400000",
        "--io-threads",
        "1",
    ];
    ServerBuilder::iolite()
        .tcp()
        .args(&measured)
        .start()
        .unwrap()
}

fn build(client: &mut Client, collection: &Collection, members: usize) {
    for start in (0..members).step_by(ROUND) {
        let numbers: Vec<usize> = (start..members.min(start + ROUND)).collect();
        let requests = numbers.chunks(collection.elements).map(|numbers| {
            let head = [collection.verb, collection.key].map(str::to_owned);
            let words = numbers
                .iter()
                .flat_map(|number| (collection.words)(*number));
            head.into_iter().chain(words).collect()
        });
        let requests: Vec<Vec<String>> = requests.collect();
        client.pipeline(&requests).unwrap();
    }
}

/// Returns the processor time of the longest turn since the last call, in microseconds.
fn longest_turn_us(control: &mut Client) -> u64 {
    let info = control.command(&["INFO", "debug"]).unwrap();
    control.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let (Value::Bulk(text) | Value::Verbatim { text, .. }) = info else {
        panic!("{info:?}");
    };
    let info = String::from_utf8(text).unwrap();
    let mut lines = info.lines();
    let longest = lines.find_map(|line| line.strip_prefix("eventloop_cpu_max:"));
    longest.unwrap().trim().parse().unwrap()
}

/// Measures the longest turn of each step, in microseconds.
fn longest_turns(members: usize, mut show: impl FnMut(&str, u64)) {
    let server = start();
    let (mut control, mut client) = (server.client().unwrap(), server.client().unwrap());
    longest_turn_us(&mut control);
    for collection in &COLLECTIONS {
        build(&mut client, collection, members);
        let name = format!("{} {}", collection.verb, collection.key);
        show(&name, longest_turn_us(&mut control));
    }
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    for step in STEPS {
        run_to_the_end(&mut stream, step);
        show(step, longest_turn_us(&mut control));
    }
}

/// A tenth of a second is far more than a turn takes, even in a build without optimisations, and
/// far less than any of these steps would take in one piece.
///
/// The clock of a virtual machine may include time given to other machines: a turn is the server's
/// own if it is long each time.
#[test]
fn no_turn_is_as_long_as_its_command() {
    let mut always_long: Option<Vec<String>> = None;
    for _ in 0..4 {
        let mut long = Vec::new();
        longest_turns(100_000, |step, longest_us| {
            assert!(longest_us > 0, "{step}: not measured");
            if longest_us >= 100_000 {
                long.push(step.to_owned());
            }
        });
        if let Some(before) = &always_long {
            long.retain(|step| before.contains(step));
        }
        if long.is_empty() {
            return;
        }
        always_long = Some(long);
    }
    panic!("100 ms and more each time: {always_long:?}");
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
#[ignore = "prints figures of an optimised build"]
fn longest_turns_of_large_collections() {
    let members = setting("TURN_MEMBERS", 10_000_000);
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for round in 0..setting("TURN_ROUNDS", 1) {
        let mut at = 0;
        longest_turns(members, |step, longest_us| {
            let ms = format!("{}.{:03}", longest_us / 1000, longest_us % 1000);
            println!("round {round}: {step}: {ms}");
            if steps.len() == at {
                steps.push((step.to_owned(), Vec::new()));
            }
            steps[at].1.push(ms);
            at += 1;
        });
    }
    println!(
        "| Step, {members} elements | longest turn of each round, ms of processor time |\n|---|---|"
    );
    for (step, rounds) in steps {
        println!("| {step} | {} |", rounds.join(", "));
    }
}
