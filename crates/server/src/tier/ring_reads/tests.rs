//! Reads of files by rings. Without rings in the kernel, these tests show nothing.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::ops::Deref;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use durability::disk::SystemDisk;
use reactor::Waker;
use store::{ColdValues as _, Locator};

use super::super::Requester;
use super::super::bed::{Bed as Parts, locator};
use super::*;

/// Length of a value; a segment holds one of them.
const VALUE_BYTES: usize = 50_000;

/// A test bed on files, for two workers.
struct Bed {
    directory: tempfile::TempDir,
    parts: Parts,
}

impl Deref for Bed {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Bed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let parts = Parts::on(Arc::new(SystemDisk), directory.path(), 2, 60_000);
        Self { directory, parts }
    }

    /// Makes the reads of a worker, with `depth` concurrent reads.
    fn reads(&self, worker: usize, depth: usize) -> Option<RingReads> {
        let ring = Ring::new(depth, &Waker::new().unwrap()).ok()?;
        let parts = (&self.readers, &self.values, &self.tuning);
        let requests = Arc::clone(&self.woken);
        Some(RingReads::new((worker, ring), parts, requests))
    }

    fn append(&self, key: &[u8], bytes: usize) -> Locator {
        locator(self.parts.append(key, bytes))
    }

    fn want(&self, wanted: Vec<WantedValue>, worker: usize) -> usize {
        let requester = Requester {
            worker,
            connection: Some(ConnectionId::NOBODY),
        };
        self.readers.want(wanted, worker, Some(requester))
    }

    /// Runs turns until `count` connections of a worker can continue.
    fn turns(&self, reads: &mut RingReads, count: usize) -> Vec<ConnectionId> {
        let mut own = Vec::new();
        while own.len() < count {
            reads.turn(self.clock.monotonic_ns(), &mut own);
            std::thread::yield_now();
        }
        own
    }

    fn count(&self, figure: &std::sync::atomic::AtomicU64) -> u64 {
        figure.load(Ordering::Relaxed)
    }
}

#[test]
fn values_are_read_from_the_cache_and_past_it_whatever_their_length() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 4) else {
        return;
    };
    let lengths = [1, 100, 4_096, VALUE_BYTES, 3 << 20, 700];
    for is_settled in [false, true] {
        let keys = [b"a", b"b", b"c", b"d", b"e", b"f"];
        let places: Vec<_> = keys
            .iter()
            .zip(lengths)
            .map(|(key, bytes)| bed.append(&key[..], bytes))
            .collect();
        while is_settled && bed.tier.settle_next() {}
        let wanted = keys.iter().zip(&places);
        let wanted = wanted.map(|(key, place)| bed.wanted(&key[..], *place));
        assert_eq!(bed.want(wanted.collect(), 0), keys.len());
        assert_eq!(bed.turns(&mut reads, 1).len(), 1);
        for ((key, place), bytes) in keys.iter().zip(&places).zip(lengths) {
            assert!(bed.values.unloaded(*place).is_none(), "it was read");
            assert!(bed.is_right(&key[..], *place, bytes), "{bytes}");
        }
    }
    let figures = &bed.values.figures;
    assert_eq!(bed.count(&figures.reads), 2 * lengths.len() as u64);
    assert_eq!(bed.count(&figures.blocking_reads), 0);
    assert_eq!(bed.woken.0.load(Ordering::Acquire), 0, "nobody else");
}

#[test]
fn one_read_serves_requests_of_both_workers_and_a_shallow_ring_all_in_turn() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 1) else {
        return;
    };
    let keys: Vec<_> = (b'a'..=b'z').map(|byte| [byte]).collect();
    let places: Vec<_> = keys.iter().map(|key| bed.append(key, 1_000)).collect();
    for (key, place) in keys.iter().zip(&places) {
        let wanted = bed.wanted(key, *place);
        let other = bed.wanted(key, *place);
        assert_eq!(bed.want(vec![wanted], 0), 1);
        assert_eq!(bed.want(vec![other], 1), 0);
    }
    bed.turns(&mut reads, keys.len());
    assert_eq!(bed.woken.0.load(Ordering::Acquire), keys.len());
    assert_eq!(bed.count(&bed.values.figures.reads), keys.len() as u64);
    assert_eq!(bed.readers.pending(), 0);
}

#[test]
fn what_a_ring_finds_damaged_or_short_is_left_to_threads_which_tell_of_it() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 4) else {
        return;
    };
    let thread = bed.reader();
    let places = [&b"good"[..], b"flipped", b"short"].map(|key| bed.append(key, VALUE_BYTES));
    while bed.tier.settle_next() {}
    let file = |locator: Locator| {
        let (ordinal, _) = bed.values.name(locator).unwrap();
        let path = bed.directory.path().join(tier::segment_name(ordinal));
        std::fs::File::options().write(true).open(path).unwrap()
    };
    file(places[1]).write_all_at(b"x", 10_000).unwrap();
    file(places[2]).set_len(20_000).unwrap();
    let wanted = [&b"good"[..], b"flipped", b"short"].into_iter().zip(places);
    for (key, place) in wanted {
        bed.want(vec![bed.wanted(key, place)], 0);
    }
    assert_eq!(bed.turns(&mut reads, 1).len(), 1);
    let mut own = Vec::new();
    while bed.readers.pending() > 0 {
        reads.turn(bed.clock.monotonic_ns(), &mut own);
        std::thread::yield_now();
    }
    bed.woken.wait(2);
    assert!(bed.is_right(b"good", places[0], VALUE_BYTES));
    assert!(bed.values.load(b"flipped", places[1]).is_none());
    assert!(bed.values.load(b"short", places[2]).is_none());
    assert_eq!(bed.count(&bed.values.figures.damaged), 2);
    assert_eq!(bed.count(&bed.values.figures.blocking_reads), 0);
    bed.readers.stop();
    thread.join().unwrap();
}

#[test]
fn who_waits_with_a_key_held_waits_for_no_worker() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 4) else {
        return;
    };
    let thread = bed.reader();
    let place = bed.append(b"key", VALUE_BYTES);
    bed.want(vec![bed.wanted(b"key", place)], 0);
    // The worker runs no turn meanwhile.
    assert!(bed.is_right(b"key", place, VALUE_BYTES));
    bed.woken.wait(1);
    let mut own = Vec::new();
    while reads.readers.wants_ring(0) || !reads.ring.is_empty() {
        reads.turn(bed.clock.monotonic_ns(), &mut own);
        std::thread::yield_now();
    }
    assert!(own.is_empty(), "it was told already");
    bed.readers.stop();
    thread.join().unwrap();
}

#[test]
fn a_worker_gives_up_what_takes_too_long_and_asks_for_it_again() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 4) else {
        return;
    };
    let place = bed.append(b"key", VALUE_BYTES);
    bed.want(vec![bed.wanted(b"key", place)], 0);
    bed.readers
        .give_up_after(Duration::ZERO, None, &bed.values, &*bed.woken);
    assert_eq!(bed.readers.pending(), 1, "that is not for others to do");
    bed.readers
        .give_up_after(Duration::ZERO, Some(0), &bed.values, &*bed.woken);
    bed.woken.wait(1);
    assert_eq!(bed.count(&bed.values.figures.refused), 1);
    assert!(bed.values.load(b"key", place).is_none());
    bed.want(vec![bed.wanted(b"key", place)], 0);
    assert_eq!(bed.turns(&mut reads, 1).len(), 1);
    assert!(bed.is_right(b"key", place, VALUE_BYTES));
    bed.readers.note_oldest(0, 5_000_000_000);
    assert!(bed.readers.is_stalled(Duration::from_secs(5)));
    reads.turn(bed.clock.monotonic_ns(), &mut Vec::new());
    bed.readers.note_oldest(0, 0);
    assert!(!bed.readers.is_stalled(Duration::from_secs(5)));
}

#[test]
fn a_ring_that_fails_leaves_all_to_threads() {
    let bed = Bed::new();
    let Some(mut reads) = bed.reads(0, 2) else {
        return;
    };
    let keys = [b"a", b"b", b"c", b"d"];
    let places = keys.map(|key| bed.append(&key[..], VALUE_BYTES));
    for (key, place) in keys.iter().zip(places) {
        bed.want(vec![bed.wanted(&key[..], place)], 0);
    }
    reads.begin(0);
    reads.give_way(&std::io::Error::other("no more"));
    let thread = bed.reader();
    let mut own = Vec::new();
    while bed.readers.pending() > 0 || !reads.ring.is_empty() {
        reads.turn(bed.clock.monotonic_ns(), &mut own);
        std::thread::yield_now();
    }
    bed.woken.wait(4);
    let place = bed.append(b"later", VALUE_BYTES);
    bed.want(vec![bed.wanted(b"later", place)], 0);
    bed.woken.wait(5);
    for (key, place) in keys.iter().zip(places) {
        assert!(bed.is_right(&key[..], place, VALUE_BYTES));
    }
    bed.readers.stop();
    thread.join().unwrap();
}
