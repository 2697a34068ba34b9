//! Nanoseconds per operation and bytes per key of the store, beside std's HashMap.
//!
//! `cargo run --release -p store --example ops [keys [operations]]`. Thread CPU time, one thread;
//! keys of 16 bytes, drawn uniformly; batches of 16 with both stages of prefetch, as in a pipeline.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::collections::HashMap;
use std::hint::black_box;

use base::random::Prng;
use store::{Deadline, Handle, Key, Options, Store, resident_bytes};

const BATCH: usize = 16;

fn main() {
    let argument = |at, otherwise| {
        let text = std::env::args().nth(at);
        text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let size = Size {
        keys: argument(1, 1_000_000),
        operations: argument(2, 4_000_000),
    };
    let Size { keys, operations } = size;
    println!("{keys} keys of 16 B, {operations} operations, batches of {BATCH}");
    for value_len in [8, 100] {
        measure_store(size, value_len);
    }
    for value_len in [8, 100] {
        measure_std(size, value_len);
    }
}

#[derive(Clone, Copy)]
struct Size {
    keys: usize,
    operations: usize,
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

fn measure_store(size: Size, value_len: usize) {
    let keys = size.keys;
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
    let get = batched(&mut handle, size, true, |handle, key| {
        get_one(handle, key, &mut out)
    });
    println!("  GET                       {get:7.1} ns");
    let get = batched(&mut handle, size, false, |handle, key| {
        get_one(handle, key, &mut out)
    });
    println!("  GET without prefetch      {get:7.1} ns");
    let set = batched(&mut handle, size, true, |handle, key| {
        set_one(handle, key, &value)
    });
    println!("  SET                       {set:7.1} ns");
    let incr = batched(&mut handle, size, true, incr_one);
    println!("  INCR                      {incr:7.1} ns");
    let hot = timed(size.operations, |_| {
        let key = handle.key(0, b"key:000000000001");
        black_box(handle.read(&key, |record| record.map(|record| record.len())));
    });
    println!("  GET of one key            {hot:7.1} ns");
}

// Separate functions, so that an instruction counter can distinguish them.

#[inline(never)]
fn get_one(handle: &mut Handle, key: &Key<'_>, out: &mut [u8]) -> usize {
    handle.read(key, |record| {
        record.map_or(0, |record| {
            let len = record.len();
            record.copy_to(0, &mut out[..len]);
            len
        })
    })
}

#[inline(never)]
fn set_one(handle: &mut Handle, key: &Key<'_>, value: &[u8]) -> usize {
    let set = handle.upsert(key, value, Deadline::Never, |_| ());
    usize::from(set.is_ok())
}

#[inline(never)]
fn incr_one(handle: &mut Handle, key: &Key<'_>) -> usize {
    handle.modify(key, |entry| {
        let record = entry.record();
        let number = record.and_then(|record| record.integer()).unwrap_or(0);
        let set = entry.set_integer(number + 1, Deadline::Keep);
        usize::from(set.is_ok())
    })
}

/// Returns nanoseconds per operation of `run` on uniformly drawn keys.
fn batched(
    handle: &mut Handle,
    size: Size,
    prefetches: bool,
    mut run: impl FnMut(&mut Handle, &Key<'_>) -> usize,
) -> f64 {
    let mut random = Prng::seeded(5);
    let mut names = [[0; 16]; BATCH];
    let mut sum = 0;
    let spent = timed(size.operations / BATCH, |_| {
        for place in &mut names {
            *place = name(random.index(size.keys));
        }
        let keys: [Key<'_>; BATCH] = std::array::from_fn(|at| handle.key(0, &names[at]));
        if prefetches {
            let ahead = handle.lookahead(0);
            keys.iter().for_each(|key| ahead.bucket(key.hash()));
            ahead.records(&keys, |key| key.hash());
        }
        for key in &keys {
            sum += run(handle, key);
        }
    });
    black_box(sum);
    let drawing = timed(size.operations / BATCH, |_| {
        for place in &mut names {
            *place = black_box(name(random.index(size.keys)));
        }
    });
    (spent - drawing) / BATCH as f64
}

fn measure_std(size: Size, value_len: usize) {
    let keys = size.keys;
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
    let get = timed(size.operations, |_| {
        let found = map.get(name(random.index(size.keys)).as_slice());
        if let Some(value) = found {
            out[..value.len()].copy_from_slice(value);
        }
        black_box(&out);
    });
    println!("  GET                       {get:7.1} ns");
    let set = timed(size.operations, |_| {
        if let Some(old) = map.get_mut(name(random.index(size.keys)).as_slice()) {
            old.clear();
            old.extend_from_slice(&value);
        }
    });
    println!("  SET                       {set:7.1} ns");
}

/// Returns nanoseconds of thread CPU time per call.
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
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
