//! Short values with LZ4, with zstd and a dictionary, and uncompressed: bytes on the device,
//! processor time to write and to read one.
//!
//!     cargo bench -p tier --bench compression [VALUES]
//!
//! Values are JSON of 200 to 800 bytes and, as incompressible data, noise of 300 bytes. They are
//! written 2,000 at a time, as in demotions, and read one by one in random order, from the system's
//! cache. Times are those of the thread.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench tells people, and ends when something is wrong"
)]

use std::fmt::Write as _;
use std::sync::Arc;

use base::random::Prng;
use durability::disk::SystemDisk;
use tier::{Compression, Entry, Place, Tier, TierOptions};

const WORDS: [&str; 40] = [
    "amber", "anchor", "april", "arrow", "autumn", "bamboo", "basket", "beacon", "berry", "birch",
    "bottle", "branch", "bridge", "bronze", "button", "cactus", "camera", "candle", "canyon",
    "carpet", "castle", "cedar", "cherry", "circle", "clover", "cobalt", "coffee", "comet",
    "copper", "coral", "cotton", "cradle", "crystal", "dancer", "desert", "dragon", "eagle",
    "ember", "engine", "falcon",
];

fn record(random: &mut Prng) -> Vec<u8> {
    let mut word = || WORDS[random.index(WORDS.len())];
    let (first, second, third) = (word(), word(), word());
    let mut text = format!(
        "{{\"id\":{},\"user\":\"{first}.{second}\",\"email\":\"{first}.{third}{}@example.com\",\
         \"created_at\":\"2026-{:02}-{:02}T{:02}:{:02}:{:02}Z\",\"status\":\"{}\",\"session\":\"{:016x}{:016x}\",\"score\":{}.{},\
         \"items\":[",
        random.index(100_000_000),
        random.index(1_000),
        random.index(12) + 1,
        random.index(28) + 1,
        random.index(24),
        random.index(60),
        random.index(60),
        ["active", "inactive", "pending"][random.index(3)],
        random.next_u64(),
        random.next_u64(),
        random.index(1_000),
        random.index(100),
    );
    for number in 0..random.index(9) {
        let comma = if number > 0 { "," } else { "" };
        let (word, sku) = (WORDS[random.index(WORDS.len())], random.index(100_000));
        let (quantity, price) = (random.index(5) + 1, random.index(50_000));
        let _written = write!(
            text,
            "{comma}{{\"sku\":\"{word}-{sku:05}\",\"quantity\":{quantity},\"price_cents\":{price}}}"
        );
    }
    text.push_str("]}");
    text.into_bytes()
}

fn noise(random: &mut Prng) -> Vec<u8> {
    let mut bytes = vec![0; 300];
    random.fill(&mut bytes);
    bytes
}

/// Returns the processor time of this thread.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn write(tier: &Tier, values: &[Vec<u8>]) -> Vec<Place> {
    let mut places = Vec::with_capacity(values.len());
    for some in values.chunks(2_000) {
        let first = places.len();
        let keys: Vec<_> = (first..first + some.len())
            .map(|key| format!("key:{key:012}").into_bytes())
            .collect();
        let entries: Vec<_> = keys
            .iter()
            .zip(some)
            .map(|(key, body)| Entry {
                kind: 0,
                keyspace: 0,
                key,
                body,
            })
            .collect();
        places.extend(tier.append_all(&entries).unwrap());
    }
    places
}

fn measure(what: &str, values: &[Vec<u8>], compression: Compression) {
    let directory = std::env::current_dir().unwrap().join("tier-bench");
    let _left = std::fs::remove_dir_all(&directory);
    let options = TierOptions {
        directory: directory.clone(),
        bytes_max: u64::MAX / 2,
        segment_bytes: 64 << 20,
    };
    let tier = Tier::open(Arc::new(SystemDisk), &options).unwrap();
    tier.set_compression(compression);
    // Samples of the same kind, which are not measured.
    let training = write(&tier, &values[..values.len() / 3]);
    let began_ns = cpu_ns();
    let trained = tier.train(&|| true).unwrap();
    let trained_ms = (cpu_ns() - began_ns) / 1_000_000;
    for place in training {
        tier.forget(place);
    }
    let values = &values[values.len() / 3..];
    let (count, before) = (values.len() as f64, tier.figures());
    let began_ns = cpu_ns();
    let places = write(&tier, values);
    let write_us = (cpu_ns() - began_ns) as f64 / count / 1_000.0;
    let written = (tier.figures().written_bytes - before.written_bytes) as f64 / count;
    let raw = (tier.figures().raw_bytes - before.raw_bytes) as f64 / count;
    let mut random = Prng::seeded(3);
    let mut read_us = Vec::new();
    for _ in 0..5 {
        let began_ns = cpu_ns();
        for _ in 0..values.len() {
            let at = random.index(values.len());
            let read = tier.read(places[at], format!("key:{at:012}").as_bytes());
            assert_eq!(read.unwrap().body.len(), values[at].len());
        }
        read_us.push((cpu_ns() - began_ns) as f64 / count / 1_000.0);
    }
    read_us.sort_by(f64::total_cmp);
    let dictionary = trained.is_some_and(|trained| trained.has_dictionary);
    println!(
        "{what:<12} {compression:<6?} {raw:5.0} B a value {written:5.0} B on the device {write_us:6.2} us to write {:6.2} us to read   \
         dictionary: {dictionary}, {trained_ms} ms of training, {} KiB",
        read_us[2],
        tier.memory_bytes() >> 10
    );
    let _left = std::fs::remove_dir_all(&directory);
}

fn main() {
    let count = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let count: usize = count.unwrap_or(120_000);
    let mut random = Prng::seeded(7);
    let json: Vec<_> = (0..count).map(|_| record(&mut random)).collect();
    let noise: Vec<_> = (0..count).map(|_| noise(&mut random)).collect();
    for (what, values) in [("JSON", &json), ("noise", &noise)] {
        for compression in [
            Compression::No,
            Compression::Lz4,
            Compression::Zstd,
            Compression::Auto,
        ] {
            measure(what, values, compression);
        }
    }
}
