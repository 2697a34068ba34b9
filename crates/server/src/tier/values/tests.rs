//! Values that are read beside what happens to their segments and to the device.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use base::clock::SystemClock;
use durability::disk::Disk;
use durability::simulated::SimulatedDisk;
use persistence::places::locator_of;
use store::{Options, Store};
use tier::{Entry, Place, TierOptions};

use super::super::{Requester, Wakes, spawn};
use super::*;
use crate::config::{TierConfig, TierIo};
use crate::log::Level;

/// How often a worker was woken.
#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicUsize);

impl Woken {
    pub(crate) fn wait(&self, times: usize) {
        while self.0.load(Ordering::Acquire) < times {
            std::thread::yield_now();
        }
    }
}

impl Wakes for Woken {
    fn wake(&self, _: Requester) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn wake_all(&self) {}
}

const REQUESTER: Requester = Requester {
    worker: 0,
    connection: None,
};

struct Bed {
    disk: SimulatedDisk,
    tier: Arc<Tier>,
    readers: Arc<Readers>,
    values: Arc<Values>,
    woken: Arc<Woken>,
}

impl Bed {
    fn new(read_timeout_ms: u64) -> Self {
        let disk = SimulatedDisk::new(3);
        let options = TierOptions {
            directory: Path::new("/tier").to_owned(),
            bytes_max: 1 << 30,
            segment_bytes: 64 << 10,
        };
        let tier = Tier::open(Arc::new(disk.clone()) as Arc<dyn Disk>, &options).unwrap();
        let tier = Arc::new(tier);
        tier.set_compresses(false);
        let woken = Arc::new(Woken::default());
        let around = Around {
            store: Store::new(&Options::default()).unwrap(),
            shared: Arc::default(),
            log: Arc::new(Log::new(Level::Warning, None)),
            clock: Arc::new(SystemClock::default()),
            requests: Arc::clone(&woken) as _,
        };
        let tuning = Arc::new(Tuning::new(&config(read_timeout_ms)));
        let readers = Arc::new(Readers::new(&around.clock, 0));
        let values = Values::new(&tier, &around, (&readers, &tuning), 1 << 20);
        Self {
            disk,
            tier,
            readers,
            values: Arc::new(values),
            woken,
        }
    }

    fn reader(&self) -> JoinHandle<()> {
        let (readers, values) = (Arc::clone(&self.readers), Arc::clone(&self.values));
        let woken = Arc::clone(&self.woken);
        spawn("reader".to_owned(), move || readers.run(&values, &*woken)).unwrap()
    }

    fn append(&self, key: &[u8]) -> Place {
        let entry = Entry {
            kind: ColdKind::BYTES.number(),
            keyspace: 0,
            key,
            body: &[7; 50_000],
        };
        self.tier.append(&entry).unwrap()
    }

    fn want(&self, key: &[u8], locator: Locator) {
        let name = self.values.unloaded(locator).unwrap();
        let key = key.to_vec();
        let wanted = vec![WantedValue { key, locator, name }];
        self.readers.want(wanted, 0, Some(REQUESTER));
    }

    fn is_right(&self, key: &[u8], locator: Locator) -> bool {
        let value = self.values.load(key, locator);
        value.is_some_and(
            |value| matches!(&*value, ColdValue::Text(text) if *text == vec![7; 50_000]),
        )
    }
}

pub(crate) fn config(read_timeout_ms: u64) -> TierConfig {
    TierConfig {
        path: "/".into(),
        bytes_max: 0,
        value_bytes_min: 64,
        value_bytes_max: 1 << 20,
        demote_at_percent: 90,
        promotion: engine::Promotion::Second,
        compact_below_percent: 50,
        read_buffer_bytes: 1 << 20,
        io: TierIo::Threads,
        read_depth: 4,
        read_timeout_ms,
        compresses: false,
        segment_bytes: 64 << 10,
        scrub_bytes_per_second: 0,
    }
}

fn locator(place: Place) -> Locator {
    locator_of(place, ColdKind::BYTES).unwrap()
}

#[test]
fn a_slot_that_has_another_segment_by_now_is_not_read() {
    let bed = Bed::new(60_000);
    let old = bed.append(b"old");
    let name = bed.values.unloaded(locator(old)).unwrap();
    bed.append(b"other");
    bed.tier.forget(old);
    assert_eq!(bed.tier.remove_dead(), 1);
    let new = bed.append(b"new");
    assert_eq!(locator(new), locator(old), "told apart by its name alone");
    assert!(bed.values.preload(b"old", locator(old), name).is_none());
    assert_eq!(bed.values.figures.damaged.load(Ordering::Relaxed), 0);
    bed.readers.stop();
    assert!(bed.is_right(b"new", locator(new)));
}

#[test]
fn a_device_that_gives_no_answer_is_an_error_and_no_wait_without_end() {
    let bed = Bed::new(20);
    let places = [&b"a"[..], b"b", b"c"].map(|key| locator(bed.append(key)));
    let reader = bed.reader();
    let refused = || bed.values.figures.refused.load(Ordering::Relaxed);
    bed.disk.stall_reads(true);
    // One that is begun, one that is not, and one with its key held.
    bed.want(b"a", places[0]);
    bed.want(b"b", places[1]);
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
    bed.disk.stall_reads(false);
    bed.want(b"b", places[1]);
    bed.woken.wait(3);
    for (key, place) in [(b"a", places[0]), (b"b", places[1]), (b"c", places[2])] {
        while !bed.is_right(key, place) {
            std::thread::yield_now();
        }
    }
    assert!(!bed.readers.is_stalled(Duration::from_secs(1)));
    bed.readers.stop();
    reader.join().unwrap();
}

#[test]
fn one_read_serves_all_who_want_a_value() {
    let bed = Bed::new(60_000);
    let place = locator(bed.append(b"key"));
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
    assert!(bed.is_right(b"key", place));
    bed.readers.stop();
    reader.join().unwrap();
}

#[test]
fn a_request_of_many_values_is_woken_once_and_what_is_read_ahead_wakes_nobody() {
    let bed = Bed::new(60_000);
    let keys = [&b"a"[..], b"b", b"c", b"ahead"];
    let wanted = keys.map(|key| {
        let locator = locator(bed.append(key));
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
        assert!(bed.is_right(key, place));
    }
}
