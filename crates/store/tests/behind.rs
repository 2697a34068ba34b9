//! Removals happen in time, and what takes long is done in the background.
//!
//! The full sizes are run by hand, one at a time:
//! `cargo test -p store --release --test behind -- --ignored --nocapture --test-threads=1`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a wrong test fails"
)]

use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::random::Prng;
use store::{Deadline, Handle, Options, Store, resident_bytes};

const MIB: u64 = 1 << 20;
const START: u64 = 1_700_000_000_000;

fn store() -> (Arc<Store>, Handle) {
    let store = Store::new(&Options { databases: 16 }).unwrap();
    let handle = store.handle();
    (store, handle)
}

fn set(handle: &mut Handle, number: u64, value: &[u8], deadline: Deadline) {
    let name = number.to_le_bytes();
    let key = handle.key(0, &name);
    handle.upsert(&key, value, deadline, |_| ()).unwrap();
}

/// Returns the processor time of this thread in nanoseconds.
fn thread_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

/// Returns processor and wall time of one step, in nanoseconds.
fn timed(step: impl FnOnce()) -> (u64, u64) {
    let clock = SystemClock::new();
    let (thread, wall) = (thread_ns(), clock.monotonic_ns());
    step();
    (thread_ns() - thread, clock.monotonic_ns() - wall)
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Waits until all deleted values are freed.
fn wait_for_reclaim(handle: &mut Handle) {
    while handle.statistics().lazyfree_pending > 0 {
        handle.tick(START);
        std::thread::yield_now();
    }
}

/// Checks that keys with deadlines spread over a time are all gone with the tick of their deadline.
/// Returns the times of the ticks, in order.
fn expire(keys: u64, spread_ms: u64) -> Vec<u64> {
    let (_store, mut handle) = store();
    handle.begin(START);
    let mut random = Prng::seeded(9);
    let mut ends = vec![0_u64; usize::try_from(spread_ms).unwrap() + 1];
    for number in 0..keys {
        let after = 1 + random.below(spread_ms);
        ends[usize::try_from(after).unwrap()] += 1;
        set(
            &mut handle,
            number,
            &[b'v'; 100],
            Deadline::At(START + after),
        );
    }
    let (mut left, mut costs) = (keys, Vec::new());
    for (now, ended) in (START..).zip(ends) {
        let mut more = true;
        while more {
            let expired = handle.statistics().expired;
            costs.push(timed(|| more = handle.tick(now)).0);
            let step = handle.statistics().expired - expired;
            assert!(step <= 400, "{step} records removed in one step");
        }
        left -= ended;
        assert_eq!(handle.len(0), usize::try_from(left).unwrap());
        assert_eq!(handle.expiring_len(0), handle.len(0));
    }
    assert_eq!(handle.len(0), 0);
    for second in 1..5 {
        while handle.tick(START + spread_ms + second * 1001) {}
    }
    let memory = handle.statistics().memory;
    assert_eq!(memory.slot_bytes, 0);
    assert!(memory.slot_held_bytes <= MIB, "{memory:?}");
    costs.sort_unstable();
    costs
}

#[test]
fn what_expires_is_gone_with_its_tick() {
    expire(20_000, 300);
}

#[test]
#[ignore = "full size: a minute, measures time"]
fn what_expires_is_gone_with_its_tick_in_full() {
    let before = resident_bytes().unwrap();
    let costs = expire(1_000_000, 10_000);
    let after = resident_bytes().unwrap();
    let at = |part: usize| micros(costs[costs.len() * part / 1000]);
    println!("1 M keys expire over 10 s of ticks 1 ms apart, processor time of a step:");
    println!(
        "  p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
        at(500),
        at(990),
        at(999)
    );
    println!(
        "  longest {:.1} us, steps {}",
        micros(*costs.last().unwrap()),
        costs.len()
    );
    println!(
        "  held before {} MiB, after {} MiB",
        before / MIB,
        after / MIB
    );
}

/// Flushes a store of some keys. Returns processor and wall time.
fn flush(keys: u64) -> (u64, u64) {
    let (_store, mut handle) = store();
    handle.begin(START);
    for number in 0..keys {
        set(&mut handle, number, b"12345678", Deadline::Never);
    }
    let full = resident_bytes().unwrap();
    let took = timed(|| {
        let gone = handle.flush(None);
        assert_eq!(gone, usize::try_from(keys).unwrap());
    });
    assert_eq!(handle.len(0), 0);
    set(&mut handle, 1, b"new", Deadline::Never);
    let clock = SystemClock::new();
    let start = clock.monotonic_ns();
    wait_for_reclaim(&mut handle);
    let behind_ms = (clock.monotonic_ns() - start) / 1_000_000;
    handle.purge();
    while handle.tick(START + 2_000) {}
    assert_eq!(handle.len(0), 1);
    let memory = handle.statistics().memory;
    assert!(memory.slot_held_bytes <= MIB, "{memory:?}");
    println!(
        "  FLUSHALL of {keys} keys: {:.1} us of processor, {:.1} us in all; reclaimed {behind_ms} ms \
         later, {} to {} MiB held",
        micros(took.0),
        micros(took.1),
        full / MIB,
        resident_bytes().unwrap() / MIB
    );
    took
}

#[test]
fn a_flush_gives_memory_back_behind() {
    flush(50_000);
}

#[test]
#[ignore = "full size: half a minute, measures time"]
fn a_flush_takes_no_time_in_full() {
    let (thread, _wall) = flush(10_000_000);
    assert!(thread < 1_000_000);
}

/// Deletes one long value. Returns processor and wall time.
fn delete_long(len: usize) -> (u64, u64) {
    let (_store, mut handle) = store();
    handle.begin(START);
    let value = vec![b'v'; len];
    set(&mut handle, 1, &value, Deadline::Never);
    let full = resident_bytes().unwrap();
    let took = timed(|| {
        let name = 1_u64.to_le_bytes();
        let key = handle.key(0, &name);
        assert!(handle.delete(&key, |_| ()));
    });
    wait_for_reclaim(&mut handle);
    handle.purge();
    while handle.tick(START + 2_000) {}
    assert_eq!(handle.statistics().memory.long_value_bytes, 0);
    println!(
        "  DEL of {} MiB: {:.1} us of processor, {:.1} us in all; {} to {} MiB held",
        len as u64 / MIB,
        micros(took.0),
        micros(took.1),
        full / MIB,
        resident_bytes().unwrap() / MIB
    );
    took
}

#[test]
fn a_long_value_is_freed_behind() {
    delete_long(20 << 20);
}

#[test]
#[ignore = "full size: measures time"]
fn deleting_a_long_value_takes_no_time_in_full() {
    let (thread, _wall) = delete_long(512 << 20);
    assert!(thread < 1_000_000);
}
