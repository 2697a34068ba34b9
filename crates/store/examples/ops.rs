//! Nanoseconds per operation and bytes per key of the store, beside std's HashMap.
//!
//! `cargo run --release -p store --example ops [keys]`. Thread CPU time, one thread; keys of 16
//! bytes, drawn evenly; batches of 16 with both stages of prefetch, as a pipeline has them.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::HashMap;
use std::hint::black_box;

use base::random::Prng;
use store::{Deadline, Handle, Key, Options, Store, resident_bytes};

const BATCH: usize = 16;
const OPERATIONS: usize = 4_000_000;

fn main() {
    let keys = std::env::args()
        .nth(1)
        .and_then(|argument| argument.parse().ok())
        .unwrap_or(1_000_000);
    println!("{keys} keys of 16 B, {OPERATIONS} operations, batches of {BATCH}");
    for value_len in [8, 100] {
        measure_store(keys, value_len);
    }
    for value_len in [8, 100] {
        measure_std(keys, value_len);
    }
}

fn name(number: usize) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    name
}

fn measure_store(keys: usize, value_len: usize) {
    let before = resident_bytes().unwrap_or(0);
    let Ok(store) = Store::new(&Options::default()) else {
        return println!("no addresses for a store");
    };
    let mut handle = store.handle();
    handle.enter();
    handle.begin(1_700_000_000_000);
    let value = vec![b'v'; value_len];
    let load = timed(keys, |number| {
        let names: [_; 1] = [name(number)];
        let key = handle.key(0, &names[0]);
        black_box(handle.upsert(&key, &value, Deadline::Never, |_| ())).ok();
    });
    handle.leave();
    handle.tick(1_700_000_000_000);
    let after = resident_bytes().unwrap_or(0);
    let per_key = (after.saturating_sub(before)) as f64 / keys as f64;
    println!("store, values of {value_len} B: {per_key:.1} B per key (RSS)");
    println!("  insert while growing      {load:7.1} ns");
    handle.enter();
    let mut out = [0; 128];
    let get = batched(&mut handle, keys, true, |handle, key| {
        handle.read(key, |record| {
            record.map_or(0, |record| {
                let len = record.len();
                record.copy_to(0, &mut out[..len]);
                len
            })
        })
    });
    println!("  GET                       {get:7.1} ns");
    let get = batched(&mut handle, keys, false, |handle, key| {
        handle.read(key, |record| {
            record.map_or(0, |record| {
                let len = record.len();
                record.copy_to(0, &mut out[..len]);
                len
            })
        })
    });
    println!("  GET without prefetch      {get:7.1} ns");
    let set = batched(&mut handle, keys, true, |handle, key| {
        usize::from(handle.upsert(key, &value, Deadline::Never, |_| ()).is_ok())
    });
    println!("  SET                       {set:7.1} ns");
    let incr = batched(&mut handle, keys, true, |handle, key| {
        handle.modify(key, |entry| {
            let number = entry
                .record()
                .and_then(|record| record.integer())
                .unwrap_or(0);
            usize::from(entry.set_integer(number + 1, Deadline::Keep).is_ok())
        })
    });
    println!("  INCR                      {incr:7.1} ns");
    let hot = timed(OPERATIONS, |_| {
        let key = handle.key(0, b"key:000000000001");
        black_box(handle.read(&key, |record| record.map(|record| record.len())));
    });
    println!("  GET of one key            {hot:7.1} ns");
}

/// Nanoseconds per operation of `run` on keys drawn evenly.
fn batched(
    handle: &mut Handle,
    keys: usize,
    prefetches: bool,
    mut run: impl FnMut(&mut Handle, &Key<'_>) -> usize,
) -> f64 {
    let mut random = Prng::seeded(5);
    let mut names = [[0; 16]; BATCH];
    let mut sum = 0;
    let spent = timed(OPERATIONS / BATCH, |_| {
        for place in &mut names {
            *place = name(random.index(keys));
        }
        let keys: [Key<'_>; BATCH] = std::array::from_fn(|at| handle.key(0, &names[at]));
        if prefetches {
            keys.iter().for_each(|key| handle.prefetch_bucket(key));
            keys.iter().for_each(|key| handle.prefetch_record(key));
        }
        for key in &keys {
            sum += run(handle, key);
        }
    });
    black_box(sum);
    let drawing = timed(OPERATIONS / BATCH, |_| {
        for place in &mut names {
            *place = black_box(name(random.index(keys)));
        }
    });
    (spent - drawing) / BATCH as f64
}

fn measure_std(keys: usize, value_len: usize) {
    let before = resident_bytes().unwrap_or(0);
    let mut map: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let value = vec![b'v'; value_len];
    let load = timed(keys, |number| {
        map.insert(name(number).to_vec(), value.clone());
    });
    let after = resident_bytes().unwrap_or(0);
    let per_key = (after.saturating_sub(before)) as f64 / keys as f64;
    println!("HashMap, values of {value_len} B: {per_key:.1} B per key (RSS)");
    println!("  insert while growing      {load:7.1} ns");
    let mut random = Prng::seeded(5);
    let mut out = [0; 128];
    let get = timed(OPERATIONS, |_| {
        let found = map.get(name(random.index(keys)).as_slice());
        if let Some(value) = found {
            out[..value.len()].copy_from_slice(value);
        }
        black_box(&out);
    });
    println!("  GET                       {get:7.1} ns");
    let set = timed(OPERATIONS, |_| {
        if let Some(old) = map.get_mut(name(random.index(keys)).as_slice()) {
            old.clear();
            old.extend_from_slice(&value);
        }
    });
    println!("  SET                       {set:7.1} ns");
}

/// Nanoseconds of thread CPU time per call.
fn timed(count: usize, mut run: impl FnMut(usize)) -> f64 {
    let start = cpu_ns();
    (0..count).for_each(&mut run);
    (cpu_ns() - start) / count as f64
}

fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
