//! From the parts of a checkpoint into the store.
//!
//! Parts share nothing, so as many threads as there are parts load side by side. Records go in as they
//! were at the cut, those whose time has come since then included: the log behind the checkpoint may
//! know more of them. Whoever loads says what time it is ([`Handle::begin`]), and 0 makes nobody's
//! time come.

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

/// How long a thread that loads waits before it asks again whether there is memory.
const MEMORY_WAIT: Duration = Duration::from_millis(1);

/// So many keys are looked ahead at before the first of them is put.
const AHEAD: usize = 32;

/// How far a load has come, for others to look at.
#[derive(Debug, Default)]
pub struct LoadProgress {
    /// Records in the store.
    pub records: AtomicU64,
    /// Bytes of files that were read.
    pub bytes: AtomicU64,
}

/// Why a checkpoint was not loaded. The store is left with some of it.
#[derive(Debug)]
pub enum LoadFault {
    /// A file is missing or damaged.
    File(CheckpointFault),
    /// A record that came whole makes no sense.
    Record {
        /// The file.
        path: PathBuf,
        /// Where the block ends that it is in.
        before: u64,
        /// Its key.
        key: Vec<u8>,
        /// What is wrong with it.
        fault: BodyFault,
    },
    /// There are as many records as the manifest says, but not in each database.
    Counts,
    /// A thread ended before its work.
    Thread,
    /// Values are in segments of a tier, and there is none.
    NoTier {
        /// How many records.
        records: u64,
    },
    /// A segment of the tier is not what it should be.
    Segment {
        /// What is wrong.
        fault: TierFault,
        /// How many records have their value in the segments.
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

/// Where the checkpoint is that is to be loaded, and how.
#[derive(Clone, Copy, Debug)]
pub struct Source<'s> {
    /// The files.
    pub disk: &'s dyn Disk,
    /// Where the manifest is.
    pub directory: &'s Path,
    /// What it says.
    pub manifest: &'s Manifest,
    /// What objects are made with.
    pub limits: &'s Limits,
    /// Told of what was loaded.
    pub progress: &'s LoadProgress,
    /// What becomes of keys that are there already.
    pub existing: Existing,
    /// Whether the databases were empty before: they have to hold what the manifest says then.
    pub is_all: bool,
    /// Waited for each key (`key-load-delay`).
    pub delay: &'s KeyDelay,
    /// Where values are that the parts only name.
    pub tier: Option<&'s Tier>,
    /// Tells whether values are on their way out of memory.
    pub gate: &'s Gate,
}

/// Puts records into the store, whatever they were read from.
#[derive(Clone, Copy)]
pub(crate) struct Putter<'p> {
    pub(crate) limits: &'p Limits,
    pub(crate) existing: Existing,
    pub(crate) tier: Option<&'p Tier>,
}

impl Source<'_> {
    /// Loads all parts with at most `threads` threads, at the time 0, and holds the databases against
    /// what the manifest says of them, where they were empty before.
    ///
    /// # Errors
    /// [`LoadFault`]: then the store has some of the records and must not be served.
    pub fn load(&self, store: &Arc<Store>, threads: usize) -> Result<(), LoadFault> {
        let (next, first_fault) = (AtomicUsize::new(0), Mutex::new(None));
        let parts = self.manifest.parts.len();
        let mut handle = store.handle();
        // Those that are not there are refused where a record comes that is in one.
        let databases = ..store.databases();
        let mut room = self.records_max();
        for (database, records) in self.manifest.databases.range(databases) {
            // Memory is taken for what is there, whatever is said of it.
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
            // One that is not asked for its end is waited for all the same.
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

    /// How many records the files of all parts can hold. One that is not to be had holds none, and is refused when it is
    /// its turn.
    fn records_max(&self) -> u64 {
        let directory = self.directory.join(&self.manifest.directory);
        let bytes = self.manifest.parts.iter().map(|part| {
            let file = self.disk.open(&directory.join(&part.name));
            let bytes = file.and_then(|file| file.size()).unwrap_or(0);
            bytes.min(part.bytes)
        });
        bytes.fold(0, u64::saturating_add) / RECORD_BYTES_MIN
    }

    /// Loads one part, at the time that the handle was told; how many records of each database were in it.
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

    /// Puts the records of a block, and counts them by databases. Where one does not go in: its key, and why.
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

/// Holds the databases against what a manifest says of them.
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

/// Waits while values are on their way out of memory, which has no room for others. Whoever sees to that says so until there is
/// room, or none to be had.
pub(crate) fn wait_for_memory(gate: &Gate, handle: &mut Handle) {
    handle.tell_memory();
    while gate.is_memory_full() || handle.store().waits_for_demotion() {
        std::thread::sleep(MEMORY_WAIT);
    }
}
