//! Test bed for reads: a tier with its readers, and a recorder of the workers that were woken.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use base::clock::{Clock, SystemClock};
use durability::disk::Disk;
use persistence::places::locator_of;
use store::{ColdKind, ColdValue, ColdValues as _, Locator, Options, Store};
use tier::{Compression, Entry, Place, Tier, TierOptions};

use super::readers::{Readers, WantedValue};
use super::tuning::Tuning;
use super::values::Values;
use super::{Around, Requester, Wakes, spawn};
use crate::config::{TierConfig, TierIo};
use crate::log::{Level, Log};

/// Number of times that a worker was woken.
#[derive(Default)]
pub(super) struct Woken(pub(super) AtomicUsize);

impl Woken {
    pub(super) fn wait(&self, times: usize) {
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

/// See the module documentation.
pub(super) struct Bed {
    pub(super) tier: Arc<Tier>,
    pub(super) readers: Arc<Readers>,
    pub(super) values: Arc<Values>,
    pub(super) tuning: Arc<Tuning>,
    pub(super) woken: Arc<Woken>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Bed {
    /// Makes a bed whose segments hold one value of 50,000 bytes each.
    pub(super) fn on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        workers: usize,
        read_timeout_ms: u64,
    ) -> Self {
        let options = TierOptions {
            directory: directory.to_owned(),
            bytes_max: 1 << 30,
            segment_bytes: 64 << 10,
        };
        let tier = Arc::new(Tier::open(disk, &options).unwrap());
        tier.set_compression(Compression::No);
        let woken = Arc::new(Woken::default());
        let around = Around {
            store: Store::new(&Options::default()).unwrap(),
            shared: Arc::default(),
            log: Arc::new(Log::new(Level::Warning, None)),
            clock: Arc::new(SystemClock::default()),
            requests: Arc::clone(&woken) as _,
        };
        let tuning = Arc::new(Tuning::new(&config(read_timeout_ms)));
        let readers = Arc::new(Readers::new(&around.clock, workers));
        let values = Values::new(&tier, &around, (&readers, &tuning), 64 << 20);
        Self {
            tier,
            readers,
            values: Arc::new(values),
            tuning,
            woken,
            clock: around.clock,
        }
    }

    /// Starts a reader thread.
    pub(super) fn reader(&self) -> JoinHandle<()> {
        let (readers, values) = (Arc::clone(&self.readers), Arc::clone(&self.values));
        let woken = Arc::clone(&self.woken);
        spawn("reader".to_owned(), move || readers.run(&values, &*woken)).unwrap()
    }

    /// Writes a value of so many bytes.
    pub(super) fn append(&self, key: &[u8], bytes: usize) -> Place {
        let entry = Entry {
            kind: ColdKind::BYTES.number(),
            keyspace: 0,
            key,
            body: &vec![key[0]; bytes],
        };
        self.tier.append(&entry).unwrap()
    }

    pub(super) fn wanted(&self, key: &[u8], locator: Locator) -> WantedValue {
        let name = self.values.unloaded(locator).unwrap();
        let key = key.to_vec();
        WantedValue { key, locator, name }
    }

    /// Whether a value is the one that [`Bed::append`] wrote.
    pub(super) fn is_right(&self, key: &[u8], locator: Locator, bytes: usize) -> bool {
        let value = self.values.load(key, locator);
        value.is_some_and(
            |value| matches!(&*value, ColdValue::Text(text) if *text == vec![key[0]; bytes]),
        )
    }
}

pub(super) fn locator(place: Place) -> Locator {
    locator_of(place, ColdKind::BYTES).unwrap()
}

pub(super) fn config(read_timeout_ms: u64) -> TierConfig {
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
        compression: Compression::No,
        segment_bytes: 64 << 10,
        scrub_bytes_per_second: 0,
    }
}
