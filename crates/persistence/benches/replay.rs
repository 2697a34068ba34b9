//! What one replayed SET costs on the thread that applies it: `cargo bench -p persistence --bench
//! replay`, with `--profile dist` for meaningful figures.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "run by hand")]

use base::clock::{Clock, SystemClock};
use engine::Shared;
use persistence::replay::{Origin, ReplayFault, Replayer, replay_in_parallel};
use protocol::encode_request;
use store::{Options, Store};

const KEYS: u64 = 1_000_000;
const ROUNDS: u64 = 3;

/// Returns SETs of keys of 16 bytes and values of 100; each round has each key.
fn requests() -> Vec<Vec<u8>> {
    let value = [b'v'; 100];
    let request = |number: u64| {
        let key = format!("key:{:012}", number.wrapping_mul(7_919) % KEYS);
        let mut request = Vec::new();
        encode_request(&mut request, &[b"SET", key.as_bytes(), &value]);
        request
    };
    (0..KEYS).map(request).collect()
}

/// Prints the time of `work` per request, over all rounds.
fn measure(name: &str, work: impl FnOnce()) {
    let clock = SystemClock::new();
    let started_ns = clock.monotonic_ns();
    work();
    let each_ns = (clock.monotonic_ns() - started_ns) / (KEYS * ROUNDS);
    println!("{name:12} {each_ns:5} ns per SET");
}

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |word: &str| chosen.len() < 2 || chosen.iter().any(|asked| asked == word);
    let requests = requests();
    let like = Shared::default();
    if is_chosen("serial") {
        let store = Store::new(&Options::default()).unwrap();
        measure("serial", || {
            let mut replayer = Replayer::new(testkit::table(), &store, &like, Origin::Own);
            for round in 0..ROUNDS {
                for (position, request) in (round * KEYS..).zip(&requests) {
                    replayer.command(position, 0, request).unwrap();
                }
            }
            replayer.finish().unwrap();
        });
    }
    for threads in [2, 3, 5] {
        let name = format!("{threads} threads");
        if !is_chosen(&name) {
            continue;
        }
        let store = Store::new(&Options::default()).unwrap();
        measure(&name, || {
            let fed = replay_in_parallel(
                testkit::table(),
                &store,
                &like,
                Origin::Own,
                threads,
                |feed| {
                    for round in 0..ROUNDS {
                        for (position, request) in (round * KEYS..).zip(&requests) {
                            feed.command(position, 0, request)?;
                        }
                    }
                    Ok::<_, ReplayFault>(())
                },
            );
            fed.unwrap();
        });
    }
}
