//! How much memory the store holds for its contents, after workloads that leave much memory idle.
//!
//! A separate binary, because some of it measures the memory of the process. Small sizes always run
//! and use the store's own figures; the full sizes are run by hand, one at a time:
//! `cargo test -p store --release --test space -- --ignored --nocapture --test-threads=1`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a wrong test fails"
)]

use std::sync::Arc;

use base::random::Prng;
use store::{Deadline, Handle, Options, Policy, Store, resident_bytes};

const MIB: u64 = 1 << 20;

fn store() -> (Arc<Store>, Handle) {
    let store = Store::new(&Options { databases: 16 }).unwrap();
    let handle = store.handle();
    (store, handle)
}

/// Returns a key of 16 bytes.
fn name(number: u64) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap();
        rest /= 10;
    }
    name
}

static BYTES: [u8; 1 << 20] = [b'v'; 1 << 20];

fn set(handle: &mut Handle, number: u64, len: usize, deadline: Deadline) -> bool {
    let name = name(number);
    let key = handle.key(0, &name);
    let done = handle
        .make_room(name.len() + len)
        .and_then(|()| handle.upsert(&key, &BYTES[..len], deadline, |_| ()));
    done.is_ok()
}

fn load(handle: &mut Handle, keys: u64, len: usize) {
    for number in 0..keys {
        assert!(set(handle, number, len, Deadline::Never));
    }
}

fn remove(handle: &mut Handle, number: u64) {
    let name = name(number);
    let key = handle.key(0, &name);
    handle.delete(&key, |_| ());
}

/// Ticks as a server does until nothing is left to do. Returns the number of ticks.
fn settle(handle: &mut Handle, now_unix_ms: &mut u64) -> u32 {
    let mut ticks = 0;
    for _ in 0..5 {
        *now_unix_ms += 1_001;
        ticks += 1;
        while handle.tick(*now_unix_ms) {
            ticks += 1;
        }
    }
    ticks
}

/// Bytes held for slots and index.
fn held_bytes(handle: &Handle) -> u64 {
    let memory = handle.statistics().memory;
    memory.slot_held_bytes + memory.index_bytes
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

/// Rewrites every value to a random 50 to 149 bytes, three times. Returns the bytes then held, and
/// those that a fresh load of the same values holds.
fn rewritten(keys: u64, measure: impl Fn(&Handle) -> u64) -> (u64, u64) {
    let mut lens = vec![100; usize::try_from(keys).unwrap()];
    let mut random = Prng::seeded(1);
    let mut now = 1_000;
    let rewritten = {
        let (_store, mut handle) = store();
        let before = measure(&handle);
        load(&mut handle, keys, 100);
        println!("  loaded {:.1} MiB", mib(measure(&handle) - before));
        for _ in 0..3 {
            for (number, len) in (0..).zip(&mut lens) {
                *len = 50 + random.index(100);
                set(&mut handle, number, *len, Deadline::Never);
            }
        }
        println!("  rewritten {:.1} MiB", mib(measure(&handle) - before));
        handle.purge();
        let ticks = settle(&mut handle, &mut now);
        let bytes = measure(&handle) - before;
        println!("  purged {:.1} MiB in {ticks} ticks", mib(bytes));
        bytes
    };
    let (_store, mut handle) = store();
    let before = measure(&handle);
    for (number, len) in (0..).zip(&lens) {
        set(&mut handle, number, *len, Deadline::Never);
    }
    let fresh = measure(&handle) - before;
    println!("  fresh {:.1} MiB", mib(fresh));
    (rewritten, fresh)
}

#[test]
fn rewritten_values_cost_what_new_ones_do() {
    let (rewritten, fresh) = rewritten(20_000, held_bytes);
    // A chunk of each class and thread is not full, which weighs more in a small store.
    let slack = 52 * (64 << 10);
    assert!(
        rewritten <= fresh + fresh / 10 + slack,
        "{rewritten} after rewriting, {fresh} fresh"
    );
}

#[test]
#[ignore = "full size: some seconds, measures the process"]
fn rewritten_values_cost_what_new_ones_do_in_full() {
    println!("1 M keys of 100 B, rewritten to 50..150 B three times:");
    let (rewritten, fresh) = rewritten(1_000_000, |_| resident_bytes().unwrap());
    println!("  ratio {:.3}", rewritten as f64 / fresh as f64);
    assert!(rewritten <= fresh + fresh / 10);
}

/// Deletes nine of ten keys. Returns the bytes held before loading, full, and afterwards.
fn deleted(keys: u64, measure: impl Fn(&Handle) -> u64) -> [u64; 3] {
    let (store, mut handle) = store();
    // From a few megabytes on, because the small size has no more.
    store.set_moving(Some((2 * MIB, 20)));
    let mut now = 1_000;
    let before = measure(&handle);
    load(&mut handle, keys, 100);
    let full = measure(&handle);
    (0..keys)
        .filter(|number| number % 10 != 0)
        .for_each(|number| remove(&mut handle, number));
    let ticks = settle(&mut handle, &mut now);
    let left = measure(&handle);
    println!(
        "  {:.1} MiB full, {:.1} left after {ticks} ticks",
        mib(full - before),
        mib(left - before)
    );
    for number in (0..keys).step_by(10) {
        let name = name(number);
        let key = handle.key(0, &name);
        assert_eq!(
            handle.read(&key, |record| record.map(|record| record.len())),
            Some(100)
        );
    }
    [before, full, left]
}

#[test]
fn memory_of_deleted_keys_is_given_back() {
    let [before, full, left] = deleted(60_000, held_bytes);
    let used_by_deleted = (full - before) / 10 * 9;
    assert!(
        full - left >= used_by_deleted / 10 * 8,
        "{before} {full} {left}"
    );
}

#[test]
#[ignore = "full size: some seconds, measures the process"]
fn memory_of_deleted_keys_is_given_back_in_full() {
    println!("1 M keys of 100 B, 90 % deleted:");
    let [before, full, left] = deleted(1_000_000, |_| resident_bytes().unwrap());
    let used_by_deleted = (full - before) / 10 * 9;
    let given = (full - left) as f64 / used_by_deleted as f64;
    println!("  given back {:.1} % of what they used", given * 100.0);
    assert!(given >= 0.8);
}

const POLICIES: [Policy; 7] = [
    Policy::AllKeysLru,
    Policy::AllKeysLfu,
    Policy::AllKeysRandom,
    Policy::VolatileLru,
    Policy::VolatileLfu,
    Policy::VolatileRandom,
    Policy::VolatileTtl,
];

/// A writer that writes as fast as it can and ticks as a server does. It records the maximum held
/// beyond the limit, in per cent of the limit.
struct Churn {
    handle: Handle,
    limit_bytes: u64,
    random: Prng,
    now_unix_ms: u64,
    writes: u64,
    most_bytes: u64,
    refused: u64,
}

impl Churn {
    fn new(limit_bytes: u64, policy: Policy) -> (Arc<Store>, Self) {
        let (store, handle) = store();
        store.set_memory_limit(limit_bytes, policy, 5);
        let churn = Self {
            handle,
            limit_bytes,
            random: Prng::seeded(3),
            now_unix_ms: 1_000,
            writes: 0,
            most_bytes: 0,
            refused: 0,
        };
        (store, churn)
    }

    /// Does `writes` writes of keys below `keys` with values of up to `len_max` bytes.
    fn run(&mut self, writes: u64, keys: u64, len_max: usize, measure: &impl Fn(&Handle) -> u64) {
        let every = (64 << 10) / u64::try_from(len_max).unwrap() + 1;
        for _ in 0..writes {
            self.writes += 1;
            self.handle.begin(self.now_unix_ms);
            let number = self.random.below(keys) + (len_max as u64) * 1_000_000_000;
            let len = len_max - self.random.index(len_max / 2 + 1);
            let deadline = Deadline::At(1 << 40 | self.random.below(1 << 30));
            self.refused += u64::from(!set(&mut self.handle, number, len, deadline));
            if self.writes.is_multiple_of(every) {
                self.now_unix_ms += 1;
                self.handle.tick(self.now_unix_ms);
            }
            if self.writes.is_multiple_of(every * 64) {
                self.most_bytes = self.most_bytes.max(measure(&self.handle));
            }
        }
    }

    fn over_percent(&self) -> f64 {
        (self.most_bytes as f64 / self.limit_bytes as f64 - 1.0) * 100.0
    }
}

#[test]
fn the_limit_holds_while_sizes_change() {
    for policy in POLICIES {
        let (_store, mut churn) = Churn::new(8 * MIB, policy);
        let measure = |handle: &Handle| {
            let statistics = handle.statistics();
            let memory = statistics.memory;
            statistics.used_bytes + (memory.slot_held_bytes - memory.slot_bytes)
        };
        churn.run(60_000, 1_000_000, 100, &measure);
        churn.run(20, 1_000_000, 1 << 20, &measure);
        churn.run(8_000, 1_000_000, 900, &measure);
        churn.run(20_000, 1_000_000, 60, &measure);
        assert_eq!(churn.refused, 0, "{policy}");
        // The page granularity of large values and of classes is an eighth of so small a limit.
        assert!(
            churn.over_percent() < 12.0,
            "{policy}: {:.1} %",
            churn.over_percent()
        );
    }
}

#[test]
#[ignore = "full size: a minute, measures the process"]
fn the_limit_holds_while_sizes_change_in_full() {
    let base = resident_bytes().unwrap();
    println!(
        "limit 60 MiB; the process holds {:.1} MiB when empty",
        mib(base)
    );
    for policy in POLICIES {
        let (store, mut churn) = Churn::new(60 * MIB, policy);
        let measure = |_: &Handle| resident_bytes().unwrap();
        print!("  {:16}", policy.name());
        for (writes, keys, len_max) in [
            (1_500_000, 10_000_000, 100),
            (600, 1_000, 1 << 20),
            (200_000, 10_000_000, 900),
            (20_000, 100_000, 16_000),
            (1_500_000, 10_000_000, 60),
        ] {
            churn.most_bytes = 0;
            churn.run(writes, keys, len_max, &measure);
            print!(" {len_max:7} B: {:+5.1} %", churn.over_percent());
            assert!(churn.over_percent() <= 5.0, "{policy}");
        }
        println!(
            " refused {} moved {}",
            churn.refused,
            store.statistics().moved
        );
    }
}
