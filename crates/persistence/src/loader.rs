//! Loads the parts of a checkpoint into the store.
//!
//! Parts share nothing, so as many threads as there are parts load in parallel. Records are put as
//! they were at the cut, including those that have expired since then: the log behind the
//! checkpoint may have later changes of them. The caller sets the time ([`Handle::begin`]); at time
//! 0 nothing expires.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::record_head::COLD;
use durability::checkpoint::{
    Block, CheckpointFault, Manifest, PartReader, RECORD_BYTES_MIN, Record, open_part,
};
use durability::disk::Disk;
use engine::Gate;
use rdb::Limits;
use store::{Handle, Key, Store};
use tier::{Tier, TierFault};

use super::bodies::{self, BodyFault, Existing};
use super::key_delay::KeyDelay;
use super::places;

/// Time that a loading thread waits before it checks again for free memory.
const MEMORY_WAIT: Duration = Duration::from_millis(1);

/// Number of keys that are prefetched before the first of them is put.
const AHEAD: usize = 32;

/// The progress of a load, for other threads.
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// Records in the store.
    pub records: AtomicU64,
    /// Bytes of files that were read.
    pub bytes: AtomicU64,
}

/// Why a checkpoint was not loaded. The store may have some of its records.
#[derive(Debug)]
pub enum LoadFault {
    /// A file is missing or damaged.
    File(CheckpointFault),
    /// A record is whole but invalid.
    Record {
        /// The file.
        path: PathBuf,
        /// End of the block that contains it.
        before: u64,
        /// Its key.
        key: Vec<u8>,
        /// Its flaw.
        fault: BodyFault,
    },
    /// The total of the records is as in the manifest, but not the number in each database.
    Counts,
    /// A thread ended before its work was done.
    Thread,
    /// Values are in segments of a tier, but there is no tier.
    NoTier {
        /// Number of such records.
        records: u64,
    },
    /// A segment of the tier is invalid.
    Segment {
        /// Its flaw.
        fault: TierFault,
        /// Number of records whose values are in the segments.
        records: u64,
    },
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(fault) => fault.fmt(f),
            Self::Record {
                path,
                before,
                key,
                fault,
            } => write!(
                f,
                "{}: before offset {before}, key '{}': {fault}",
                path.display(),
                key.escape_ascii()
            ),
            Self::Counts => f.write_str("the databases have not as many records as were kept"),
            Self::NoTier { records } => write!(
                f,
                "the values of {records} keys are in a tier, and there is no tier-path. Start with it; TIER DRAIN and \
                 SAVE bring them back"
            ),
            Self::Segment { fault, records } => write!(
                f,
                "the values of {records} keys are in a tier, whose segments are not what they were: {fault}"
            ),
            Self::Thread => f.write_str("a loading thread ended before its work"),
        }
    }
}

impl std::error::Error for LoadFault {}

impl From<CheckpointFault> for LoadFault {
    fn from(fault: CheckpointFault) -> Self {
        Self::File(fault)
    }
}

/// The checkpoint to load, and how to load it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// The files.
    pub disk: &'s dyn Disk,
    /// Directory of the manifest.
    pub directory: &'s Path,
    /// The manifest.
    pub manifest: &'s Manifest,
    /// Limits with which objects are created.
    pub limits: &'s Limits,
    /// Progress, which the load updates.
    pub progress: &'s LoadProgress,
    /// What happens to keys that exist already.
    pub existing: Existing,
    /// Whether the databases were empty before: then they must hold exactly what the manifest says.
    pub is_all: bool,
    /// Delay for each key (`key-load-delay`).
    pub delay: &'s KeyDelay,
    /// The tier with the values that the parts only refer to.
    pub tier: Option<&'s Tier>,
    /// Says whether values are being moved out of memory.
    pub gate: &'s Gate,
}

/// Puts records into the store, from any source.
#[derive(Clone, Copy)]
pub(crate) struct Putter<'p> {
    pub(crate) limits: &'p Limits,
    pub(crate) existing: Existing,
    pub(crate) tier: Option<&'p Tier>,
}

impl Source<'_> {
    /// Loads all parts with at most `threads` threads, at time 0. If the databases were empty
    /// before, checks their counts against the manifest.
    ///
    /// # Errors
    /// [`LoadFault`]: then the store has some of the records and must not be served.
    pub fn load(&self, store: &Arc<Store>, threads: usize) -> Result<(), LoadFault> {
        let (next, first_fault) = (AtomicUsize::new(0), Mutex::new(None));
        let parts = self.manifest.parts.len();
        let mut handle = store.handle();
        // Databases that do not exist are refused when one of their records comes.
        let databases = ..store.databases();
        let mut room = self.records_max();
        for (database, records) in self.manifest.databases.range(databases) {
            // Memory is reserved for the records that can exist, whatever the manifest says.
            let expected = room.min(*records);
            room -= expected;
            handle.expect(*database, expected);
        }
        let work = || {
            let mut handle = store.handle();
            handle.begin(0);
            while let number = next.fetch_add(1, Ordering::Relaxed)
                && number < parts
            {
                if let Err(fault) = self.load_part(number, &mut handle) {
                    next.store(parts, Ordering::Relaxed);
                    let mut first = first_fault.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(fault);
                }
            }
            handle.tell_memory();
        };
        let joined = std::thread::scope(|scope| {
            let others = threads.min(parts).saturating_sub(1);
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            work();
            let mut others = others.into_iter();
            // A thread that is not joined here is waited for nevertheless.
            others.try_for_each(|other| other.join().map_err(|_| LoadFault::Thread))
        });
        for (database, _) in self.manifest.databases.range(databases) {
            handle.expect(*database, 0);
        }
        joined?;
        let first_fault = first_fault.into_inner();
        if let Some(fault) = first_fault.unwrap_or_else(PoisonError::into_inner) {
            return Err(fault);
        }
        if !self.is_all {
            return Ok(());
        }
        check_counts(self.manifest, &mut handle)
    }

    /// Returns how many records the files of all parts can hold. A missing file counts as empty,
    /// and is refused when it is loaded.
    fn records_max(&self) -> u64 {
        let directory = self.directory.join(&self.manifest.directory);
        let bytes = self.manifest.parts.iter().map(|part| {
            let file = self.disk.open(&directory.join(&part.name));
            let bytes = file.and_then(|file| file.size()).unwrap_or(0);
            bytes.min(part.bytes)
        });
        bytes.fold(0, u64::saturating_add) / RECORD_BYTES_MIN
    }

    /// Loads one part, at the handle's time; returns the number of records of each database in it.
    ///
    /// # Errors
    /// [`LoadFault`]: then the store has some of the records and must not be served.
    pub fn load_part(
        &self,
        number: usize,
        handle: &mut Handle,
    ) -> Result<BTreeMap<u16, u64>, LoadFault> {
        let mut reader = open_part(self.disk, self.directory, self.manifest, number)?;
        let mut databases = BTreeMap::new();
        let putter = Putter {
            limits: self.limits,
            existing: self.existing,
            tier: self.tier,
        };
        let version = reader.head().value_version;
        let mut before = 0;
        while let Some(block) = reader.next_block()? {
            handle.enter();
            let put = putter.put_block(&block, version, handle, &mut databases);
            handle.leave();
            let records = block.len() as u64;
            put.map_err(|(key, fault)| self.record_fault(&reader, key, fault))?;
            self.delay.wait(records, &|| false);
            wait_for_memory(self.gate, handle);
            let progress = self.progress;
            progress.records.fetch_add(records, Ordering::Relaxed);
            let bytes = reader.bytes() - before;
            progress.bytes.fetch_add(bytes, Ordering::Relaxed);
            before = reader.bytes();
        }
        // The foot, which is in no block.
        let rest = self.manifest.parts[number].bytes - before;
        self.progress.bytes.fetch_add(rest, Ordering::Relaxed);
        Ok(databases)
    }

    fn record_fault(&self, reader: &PartReader, key: Vec<u8>, fault: BodyFault) -> LoadFault {
        LoadFault::Record {
            path: reader.path().to_owned(),
            before: reader.bytes(),
            key,
            fault,
        }
    }
}

impl Putter<'_> {
    fn put(
        &self,
        handle: &mut Handle,
        key: &Key<'_>,
        record: &Record<'_>,
        version: u16,
    ) -> Result<(), BodyFault> {
        if record.head.type_code == COLD {
            let named = (&record.head, record.body);
            return places::put(self.tier, handle, key, named, self.existing);
        }
        bodies::put(handle, key, record, version, self.limits, self.existing)
    }

    /// Puts the records of a block, and counts them by database. If one cannot be put, returns its
    /// key and the reason.
    pub(crate) fn put_block(
        &self,
        block: &Block<'_>,
        version: u16,
        handle: &mut Handle,
        databases: &mut BTreeMap<u16, u64>,
    ) -> Result<(), (Vec<u8>, BodyFault)> {
        let mut records = block.records();
        let mut ahead: Vec<(Record<'_>, u64)> = Vec::with_capacity(AHEAD);
        loop {
            ahead.clear();
            for record in records.by_ref().take(AHEAD) {
                let database = record.head.database;
                if database >= handle.store().databases() {
                    return Err((record.key.to_vec(), BodyFault::Database(database)));
                }
                let lookahead = handle.lookahead(database);
                let hash = lookahead.hash(record.key);
                lookahead.bucket(hash);
                ahead.push((record, hash));
            }
            if ahead.is_empty() {
                return Ok(());
            }
            for (record, hash) in &ahead {
                let database = record.head.database;
                let key = Key::with_hash(record.key, *hash, database);
                self.put(handle, &key, record, version)
                    .map_err(|fault| (record.key.to_vec(), fault))?;
                *databases.entry(database).or_default() += 1;
            }
        }
    }
}

/// Checks the number of keys in each database against the manifest.
pub(crate) fn check_counts(manifest: &Manifest, handle: &mut Handle) -> Result<(), LoadFault> {
    let counts = &manifest.databases;
    let is_right = (0..handle.store().databases()).all(|database| {
        let kept = counts.get(&database).copied().unwrap_or(0);
        handle.len(database) as u64 == kept
    });
    if is_right {
        Ok(())
    } else {
        Err(LoadFault::Counts)
    }
}

/// Waits while values are being moved out of full memory. The code that moves them keeps the gate
/// closed until there is free memory, or none can be had.
pub(crate) fn wait_for_memory(gate: &Gate, handle: &mut Handle) {
    handle.tell_memory();
    while gate.is_memory_full() || handle.store().waits_for_demotion() {
        std::thread::sleep(MEMORY_WAIT);
    }
}
