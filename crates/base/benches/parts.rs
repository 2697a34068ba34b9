//! Times the small parts that every request passes. Each figure is the best of many short runs, so
//! that other work on the machine disturbs it little. `cargo bench -p base`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use base::clock::{Clock, SystemClock};
use base::extended::Extended;
use base::float::{self, FloatText};
use base::glob::{self, Case};
use base::hash::KeyHasher;
use base::number::{self, IntegerText, TEXT_BYTES_MAX};
use base::random::Prng;
use std::hint::black_box;

const ITEMS: usize = 1_000;
const RUNS: usize = 500;

fn main() {
    integers("of 1 to 3 digits", |prng| prng.below(1_000).cast_signed());
    integers("of 8 digits", |prng| {
        10_000_000 + prng.below(90_000_000).cast_signed()
    });
    integers("of any length", |prng| {
        prng.next_u64().cast_signed() >> prng.below(64)
    });
    for length in [4, 8, 16, 24, 40, 100, 500] {
        hash(length);
    }
    let matched = |pattern: &[u8], text: &[u8]| glob::matches(pattern, text, Case::Sensitive);
    let key = b"user:000000001234:profile";
    report("match user:*", || matched(b"user:*", black_box(key)));
    report("match *:profile", || matched(b"*:profile", black_box(key)));
    report("parse 0.1 as double", || float::parse(black_box(b"0.1")));
    report("print 0.1 as double", || {
        FloatText::shortest(black_box(0.1))
    });
    report("print 12.0 as double", || {
        FloatText::shortest(black_box(12.0))
    });
    report("10.5 + 0.1 in 80 bits, text to text", || {
        let sum = Extended::parse(black_box(b"10.5")).zip(Extended::parse(b"0.1"));
        sum.map(|(one, other)| (one + other).to_string())
    });
    let mut prng = Prng::seeded(1);
    report("random number below 1000", || prng.below(black_box(1_000)));
    let clock = SystemClock::new();
    report("wall clock", || clock.now_unix_ms());
}

fn integers(which: &str, draw: fn(&mut Prng) -> i64) {
    let mut prng = Prng::seeded(2);
    let values: Vec<i64> = (0..ITEMS).map(|_| draw(&mut prng)).collect();
    let texts: Vec<IntegerText> = values
        .iter()
        .map(|&value| IntegerText::new(value))
        .collect();
    let mut next = (0..ITEMS).cycle();
    report(&format!("parse integers {which}"), || {
        number::parse_i64(texts[next.next().unwrap_or(0)].as_bytes())
    });
    report(&format!("print integers {which}"), || {
        let mut out = [0; TEXT_BYTES_MAX];
        let length = number::write_i64(&mut out, values[next.next().unwrap_or(0)]);
        black_box(&out[..length]);
    });
}

fn hash(length: usize) {
    let hasher = KeyHasher::seeded(3);
    let key = vec![b'k'; length];
    report(&format!("hash key of {length} B"), || {
        hasher.hash(black_box(&key))
    });
}

fn report<R>(what: &str, mut run: impl FnMut() -> R) {
    let clock = SystemClock::new();
    let best_ns = (0..RUNS).map(|_| {
        let start_ns = clock.monotonic_ns();
        for _ in 0..ITEMS {
            black_box(run());
        }
        clock.monotonic_ns() - start_ns
    });
    let best_ns = best_ns.min().unwrap_or(0);
    println!("{:7.2} ns  {what}", best_ns as f64 / ITEMS as f64);
}
