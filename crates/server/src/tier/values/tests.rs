//! Reads of values concurrent with changes of their segments and failures of the device.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::path::Path;

use durability::simulated::SimulatedDisk;

use super::super::Requester;
use super::super::bed::{Bed, locator};
use super::*;

const REQUESTER: Requester = Requester {
    worker: 0,
    connection: None,
};

const VALUE_BYTES: usize = 50_000;

fn bed_on(disk: &SimulatedDisk, read_timeout_ms: u64) -> Bed {
    Bed::on(
        Arc::new(disk.clone()),
        Path::new("/tier"),
        0,
        read_timeout_ms,
    )
}

fn bed() -> Bed {
    bed_on(&SimulatedDisk::new(3), 60_000)
}

fn want(bed: &Bed, key: &[u8], locator: Locator) {
    let wanted = vec![bed.wanted(key, locator)];
    bed.readers.want(wanted, 0, Some(REQUESTER));
}

#[test]
fn a_slot_that_has_another_segment_by_now_is_not_read() {
    let bed = bed();
    let old = bed.append(b"old", VALUE_BYTES);
    let name = bed.values.unloaded(locator(old)).unwrap();
    bed.append(b"other", VALUE_BYTES);
    bed.tier.forget(old);
    assert_eq!(bed.tier.remove_dead(), 1);
    let new = bed.append(b"new", VALUE_BYTES);
    assert_eq!(locator(new), locator(old), "told apart by its name alone");
    assert!(bed.values.preload(b"old", locator(old), name).is_none());
    assert_eq!(bed.values.figures.damaged.load(Ordering::Relaxed), 0);
    bed.readers.stop();
    assert!(bed.is_right(b"new", locator(new), VALUE_BYTES));
}

#[test]
fn a_device_that_gives_no_answer_is_an_error_and_no_wait_without_end() {
    let disk = SimulatedDisk::new(3);
    let bed = bed_on(&disk, 20);
    let places = [&b"a"[..], b"b", b"c"].map(|key| locator(bed.append(key, VALUE_BYTES)));
    let reader = bed.reader();
    let refused = || bed.values.figures.refused.load(Ordering::Relaxed);
    disk.stall_reads(true);
    // One read that has begun, one that has not, and one with its key locked.
    want(&bed, b"a", places[0]);
    want(&bed, b"b", places[1]);
    while bed.woken.0.load(Ordering::Acquire) < 2 {
        let time = Duration::from_millis(20);
        bed.readers
            .give_up_after(time, None, &bed.values, &*bed.woken);
        std::thread::yield_now();
    }
    assert_eq!((refused(), bed.readers.pending()), (2, 0));
    assert!(bed.readers.is_stalled(Duration::from_millis(1)));
    for (key, place) in [(b"a", places[0]), (b"b", places[1])] {
        assert_eq!(bed.values.unloaded(place), None, "what came of it is known");
        assert!(bed.values.load(key, place).is_none());
        assert!(bed.values.unloaded(place).is_some(), "and asked for again");
    }
    assert!(bed.values.load(b"c", places[2]).is_none());
    assert_eq!(refused(), 3);
    // The device is back.
    disk.stall_reads(false);
    want(&bed, b"b", places[1]);
    bed.woken.wait(3);
    for (key, place) in [(b"a", places[0]), (b"b", places[1]), (b"c", places[2])] {
        while !bed.is_right(key, place, VALUE_BYTES) {
            std::thread::yield_now();
        }
    }
    assert!(!bed.readers.is_stalled(Duration::from_secs(1)));
    bed.readers.stop();
    reader.join().unwrap();
}

#[test]
fn one_read_serves_all_who_want_a_value() {
    let bed = bed();
    let place = locator(bed.append(b"key", VALUE_BYTES));
    for new in [1, 0, 0] {
        let name = bed.values.unloaded(place).unwrap();
        let key = b"key".to_vec();
        let wanted = WantedValue {
            key,
            locator: place,
            name,
        };
        assert_eq!(bed.readers.want(vec![wanted], 0, Some(REQUESTER)), new);
    }
    assert_eq!((bed.readers.pending(), bed.readers.coalesced()), (1, 2));
    let reader = bed.reader();
    bed.woken.wait(3);
    assert_eq!(bed.values.figures.reads.load(Ordering::Relaxed), 1);
    assert!(bed.is_right(b"key", place, VALUE_BYTES));
    bed.readers.stop();
    reader.join().unwrap();
}

#[test]
fn a_request_of_many_values_is_woken_once_and_what_is_read_ahead_wakes_nobody() {
    let bed = bed();
    let keys = [&b"a"[..], b"b", b"c", b"ahead"];
    let wanted = keys.map(|key| {
        let locator = locator(bed.append(key, VALUE_BYTES));
        let name = bed.values.unloaded(locator).unwrap();
        let key = key.to_vec();
        WantedValue { key, locator, name }
    });
    let places = wanted.each_ref().map(|value| value.locator);
    let mut wanted = Vec::from(wanted);
    bed.readers.want(vec![wanted.pop().unwrap()], 0, None);
    bed.readers.want(wanted, 0, Some(REQUESTER));
    let reader = bed.reader();
    while bed.readers.pending() > 0 {
        std::thread::yield_now();
    }
    bed.woken.wait(1);
    bed.readers.stop();
    reader.join().unwrap();
    assert_eq!(bed.woken.0.load(Ordering::Acquire), 1);
    for (key, place) in keys.into_iter().zip(places) {
        assert!(bed.values.unloaded(place).is_none());
        assert!(bed.is_right(key, place, VALUE_BYTES));
    }
}
