//! Cost of one worker's engine per request, without sockets: decoding, lookup, store, reply.
//! `cargo bench -p server --profile dist`; words after `--` select rows (`get`, `1000`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "run by hand")]

use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::random::Prng;
use engine::{ClientRecord, Engine, Session, Share};
use protocol::{ReplyBuffer, encode_request};
use server::config::{Origin, Settings, SharedConfig};
use server::node::Node;
use server::port::Port;
use store::Store;

/// Number of different requests per figure: few enough to stay in the cache, as just received
/// requests do, and enough that the keys of a large store do not.
const REQUESTS: usize = 6_400;
/// Number of runs per figure. The fastest counts, because other programs only ever add time.
const RUNS: usize = 200;

struct Bench {
    node: Node,
    engine: Engine,
    session: Session,
    output: ReplyBuffer,
    random: Prng,
}

impl Bench {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Store::new(&store::Options::default()).unwrap();
        let config = Arc::new(SharedConfig::new(Settings::default(), Origin::default()));
        let node = Node::new(testkit::table(), store, config, Arc::clone(&clock));
        let shared = Arc::clone(&node.core.shared);
        let engine = Engine::new(
            node.core.env.table,
            node.core.store.handle(),
            shared,
            clock,
            Prng::seeded(1),
        );
        let client = ClientRecord::new(1, String::new(), String::new(), 0, -1, 0);
        Self {
            node,
            engine,
            session: Session::new(Arc::new(client), true),
            output: ReplyBuffer::with_capacity(1 << 20),
            random: Prng::seeded(2),
        }
    }

    fn run(&mut self, requests: &[u8]) {
        let share = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        self.output.clear();
        let mut port = Port::new(&self.node, true);
        let (session, output) = (&mut self.session, &mut self.output);
        let outcome = self.engine.run(session, &mut port, requests, output, share);
        assert_eq!(outcome.consumed, requests.len());
    }

    /// Returns pipelines of requests to random keys among `keys`.
    fn pipelines(&mut self, words: &[&str], depth: usize, keys: u64) -> Vec<Vec<u8>> {
        let count = REQUESTS / depth;
        (0..count)
            .map(|_| {
                let mut requests = Vec::new();
                for _ in 0..depth {
                    let key = format!("memtier-{:08}", self.random.below(keys));
                    let word = |word: &&str| match *word {
                        "$" => key.clone().into_bytes(),
                        word => word.as_bytes().to_vec(),
                    };
                    let words: Vec<Vec<u8>> = words.iter().map(word).collect();
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    encode_request(&mut requests, &words);
                }
                requests
            })
            .collect()
    }

    fn fill(&mut self, keys: u64) {
        let mut requests = Vec::new();
        for number in 0..keys {
            let key = format!("memtier-{number:08}");
            encode_request(
                &mut requests,
                &[b"SET".as_slice(), key.as_bytes(), b"xxxxxxxx"],
            );
            if requests.len() > 1 << 16 {
                self.run(&requests);
                requests.clear();
            }
        }
        self.run(&requests);
    }

    /// Loads other keys of a large store into the cache.
    fn disturb(&mut self, keys: u64) {
        if keys > REQUESTS as u64 {
            for pipeline in self.pipelines(&["GET", "$"], 100, keys) {
                self.run(&pipeline);
            }
        }
    }

    /// Returns the fastest of some runs, in nanoseconds per request.
    fn measure(&mut self, words: &[&str], depth: usize, keys: u64) -> f64 {
        let pipelines = self.pipelines(words, depth, keys);
        let clock = SystemClock::new();
        let mut best = f64::MAX;
        for _ in 0..RUNS {
            self.disturb(keys);
            let start = clock.monotonic_ns();
            for pipeline in &pipelines {
                self.run(pipeline);
            }
            let elapsed = clock.monotonic_ns() - start;
            best = best.min(elapsed as f64 / (pipelines.len() * depth) as f64);
        }
        best
    }
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |word: &str, among: &[&str]| {
        let asked = |one: &&str| chosen.iter().any(|asked| asked == one);
        asked(&word) || !among.iter().any(asked)
    };
    let rows: [(&str, &[&str]); 4] = [
        ("ping", &["PING"]),
        ("get", &["GET", "$"]),
        ("set", &["SET", "$", "yyyyyyyy"]),
        ("exists", &["EXISTS", "$"]),
    ];
    let sizes = ["1000", "1000000"];
    for size in sizes.into_iter().filter(|size| is_chosen(size, &sizes)) {
        let keys = size.parse().unwrap();
        let mut bench = Bench::new();
        bench.fill(keys);
        for (name, words) in rows {
            if !is_chosen(name, &rows.map(|(name, _)| name)) {
                continue;
            }
            let [one, many, more] = [1, 16, 100].map(|depth| bench.measure(words, depth, keys));
            println!(
                "{name:8} {keys:8} keys  pipeline 1: {one:6.1} ns  16: {many:6.1} ns  100: {more:6.1} ns"
            );
        }
    }
}
