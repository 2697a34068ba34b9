//! Cold values: connects the store, the room `tier` and the threads.
//!
//! ```text
//!   worker ── have_values ──► readers (own ring, or threads) ── read ──► tier
//!      ▲                          │ loaded
//!      └──── ValuesRead ◄─────────┘            demoter (thread): store ── victims ──► tier ── stubs ──► store
//! ```
//!
//! A checkpoint names the segments that contain its cold values (`persistence`'s `places`). A start
//! takes these segments over and removes the others. Values that moved after the checkpoint come
//! back into memory from the checkpoint and the log. So a tier works with every level of
//! durability.

#[cfg(test)]
mod bed;
mod demoter;
mod lock;
mod readers;
mod ring_reads;
mod scrubber;
mod settler;
mod trainer;
mod tuning;
mod values;
mod watcher;

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use base::clock::Clock;
use durability::disk::{Disk, SystemDisk};
use engine::port::ValuesAre;
use engine::{CommandError, Promotion, Shared};
use persistence::places::locator_of;
use reactor::{ConnectionId, Ring, Waker};
use store::{ColdKind, Handle, Key, Locator, Store};
use tier::{EntryHead, Tier, TierFault, TierOptions};

use crate::config::{Config, TierConfig, TierIo};
use crate::log::Log;
use crate::open_files;
use demoter::Demoter;
use lock::TierLock;
use readers::{Readers, WantedValue};
pub(crate) use ring_reads::RingReads;
use scrubber::Scrubber;
use settler::Settler;
use trainer::Trainer;
use tuning::Tuning;
use values::Values;
use watcher::{STALLED, Watcher};

/// Maximum memory of an object that may be demoted.
const OBJECT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of attempts of `DEBUG DEMOTE` to write one key's value while its bucket changes.
const DEMOTE_ATTEMPTS_MAX: usize = 100;

/// Share of the tier, in percent, kept only for the last checkpoint, above which a new checkpoint
/// is requested.
const KEPT_PERCENT_MAX: u64 = 20;

/// The origin of a request that waits for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// The worker.
    pub(crate) worker: usize,
    /// The connection; `None` means all of the worker.
    pub(crate) connection: Option<ConnectionId>,
}

/// Resumes requests that wait for values.
pub(crate) trait Wakes: Send + Sync {
    /// Resumes those of one requester.
    fn wake(&self, requester: Requester);

    /// Resumes all.
    fn wake_all(&self);
}

/// The environment of a tier.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) store: Arc<Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<Log>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) requests: Arc<dyn Wakes>,
}

/// A tier in use.
pub(crate) struct TierInUse {
    tier: Arc<Tier>,
    values: Arc<Values>,
    readers: Arc<Readers>,
    demoter: Arc<Demoter>,
    scrubber: Arc<Scrubber>,
    trainer: Arc<Trainer>,
    watcher: Arc<Watcher>,
    tuning: Arc<Tuning>,
    /// Settings of the workers' rings, if they read by rings.
    rings: Option<Rings>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Keeps other servers from using the directory.
    _lock: TierLock,
}

/// Settings that rings need.
struct Rings {
    depth: usize,
    settler: Arc<Settler>,
}

impl TierInUse {
    /// Opens the tier that the configuration asks for. Called before the store has any keys.
    ///
    /// # Errors
    /// The directory cannot be used, `maxmemory` does not say when values must leave memory, or the
    /// requested way to read does not exist.
    pub(crate) fn open(
        around: &Around,
        wanted: &TierConfig,
        config: &Config,
    ) -> io::Result<Arc<Self>> {
        let workers = usize::from(config.threads_count.max(1));
        if config.memory_bytes_max == 0 && wanted.demote_at_percent != 0 {
            return Err(io::Error::other(
                "tier-path needs a maxmemory: that says when values are moved to the tier",
            ));
        }
        let has_rings = has_rings(wanted.io, &around.log)?;
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let directory = wanted.directory();
        disk.create_directory(&directory).map_err(|error| {
            let text = format!("{}: {error}", directory.display());
            io::Error::new(error.kind(), text)
        })?;
        let on_disk = bytes_max(&*disk, wanted, 0);
        let options = TierOptions {
            directory,
            bytes_max: open_files::make_room_for_tier(config, on_disk, wanted.segment_bytes),
            segment_bytes: wanted.segment_bytes,
        };
        tell_if_less(&around.log, on_disk, options.bytes_max);
        let lock = TierLock::take(&options.directory)?;
        let tier = Arc::new(Tier::open(disk, &options).map_err(io::Error::other)?);
        tier.set_sample_bytes_max(sample_bytes_max(config.memory_bytes_max));
        let tuning = Arc::new(Tuning::new(wanted));
        let readers = Arc::new(Readers::new(&around.clock, workers));
        let reading = (&readers, &tuning);
        let values = Values::new(&tier, around, reading, wanted.read_buffer_bytes);
        let values = Arc::new(values);
        if !around.store.set_cold_values(Arc::clone(&values) as _) {
            return Err(io::Error::other("this build has no tier"));
        }
        around.store.set_cold_room(true);
        let demoter = Arc::new(Demoter::new(&tier, &values, &tuning));
        let in_use = Arc::new(Self {
            watcher: Arc::new(Watcher::new((&readers, &values), &demoter, &tuning)),
            demoter,
            scrubber: Arc::new(Scrubber::new(&tier, &tuning)),
            trainer: Arc::new(Trainer::new(&tier)),
            readers,
            tuning,
            rings: has_rings.then(|| Rings {
                depth: wanted.read_depth,
                settler: Arc::new(Settler::new(&tier)),
            }),
            threads: Mutex::default(),
            tier,
            values,
            _lock: lock,
        });
        in_use.apply(&around.shared, wanted);
        in_use.start(around)?;
        Ok(in_use)
    }

    fn start(&self, around: &Around) -> io::Result<()> {
        let mut threads = Vec::new();
        for number in 0..Readers::threads(self.rings.is_some()) {
            let (readers, values) = (Arc::clone(&self.readers), Arc::clone(&self.values));
            let requests = Arc::clone(&around.requests);
            let body = move || readers.run(&values, &*requests);
            threads.push(spawn(format!("tier-read-{number}"), body)?);
        }
        if let Some(rings) = &self.rings {
            let settler = Arc::clone(&rings.settler);
            threads.push(spawn("tier-settle".to_owned(), move || settler.run())?);
        }
        let (scrubber, own) = (Arc::clone(&self.scrubber), around.clone());
        threads.push(spawn("tier-scrub".to_owned(), move || scrubber.run(&own))?);
        let (trainer, log) = (Arc::clone(&self.trainer), Arc::clone(&around.log));
        // This thread is not joined: its present work takes seconds, and the next start removes
        // what it was about to write.
        drop(spawn("tier-train".to_owned(), move || trainer.run(&log))?);
        let (watcher, own) = (Arc::clone(&self.watcher), around.clone());
        threads.push(spawn("tier-watch".to_owned(), move || watcher.run(&own))?);
        let (demoter, around) = (Arc::clone(&self.demoter), around.clone());
        threads.push(spawn("tier-demote".to_owned(), move || {
            demoter.run(&around);
        })?);
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) = threads;
        Ok(())
    }

    /// Stops its threads.
    pub(crate) fn stop(&self) {
        self.readers.stop();
        self.demoter.stop();
        self.scrubber.stop();
        self.trainer.stop();
        self.watcher.stop();
        if let Some(rings) = &self.rings {
            rings.settler.stop();
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if self.readers.is_stalled(STALLED) {
            // Threads that wait for the device for good end with the process.
            threads.clear();
        }
        for thread in threads.drain(..) {
            // A thread that panicked has already reported it.
            let _ended = thread.join();
        }
    }

    /// Makes the ring by which a worker reads for its own requests, or `None` if threads read.
    /// Called on the worker's thread.
    pub(crate) fn ring_reads(
        &self,
        worker: usize,
        waker: &Waker,
        requests: Arc<dyn Wakes>,
    ) -> Option<RingReads> {
        let rings = self.rings.as_ref()?;
        match Ring::new(rings.depth, waker) {
            Ok(ring) => {
                let parts = (&self.readers, &self.values, &self.tuning);
                Some(RingReads::new((worker, ring), parts, requests))
            }
            Err(error) => {
                self.values.tell_broken_ring(worker, &error);
                None
            }
        }
    }

    /// Returns whether all these values are in memory for a request. Starts reading the missing
    /// ones.
    pub(crate) fn have_values(
        &self,
        wanted: Vec<(Vec<u8>, Locator)>,
        requester: Requester,
    ) -> ValuesAre {
        let missing = self.missing(wanted);
        if missing.is_empty() {
            return ValuesAre::Here;
        }
        match self
            .readers
            .want(missing, requester.worker, Some(requester))
        {
            0 => ValuesAre::Coming,
            _ => ValuesAre::Wanted,
        }
    }

    /// Starts reading values that later requests of a worker will need.
    pub(crate) fn read_ahead(&self, wanted: Vec<(Vec<u8>, Locator)>, worker: usize) {
        self.readers.want(self.missing(wanted), worker, None);
    }

    fn missing(&self, wanted: Vec<(Vec<u8>, Locator)>) -> Vec<WantedValue> {
        let missing = wanted.into_iter().filter_map(|(key, locator)| {
            let name = self.values.unloaded(locator)?;
            Some(WantedValue { key, locator, name })
        });
        missing.collect()
    }

    /// Returns the segments.
    pub(crate) fn segments(&self) -> &Arc<Tier> {
        &self.tier
    }

    /// Whether so much is kept only for the checkpoint in force that a new one should be made.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let figures = self.tier.figures();
        figures.kept_bytes > self.tier.bytes_max() / 100 * KEPT_PERCENT_MAX
    }

    /// Returns which values come back into memory when they are read.
    pub(crate) fn promotion(&self) -> Promotion {
        self.tuning.now().promotion
    }

    /// Applies the present configuration. The location of the files does not change.
    pub(crate) fn change(
        &self,
        (shared, log): (&Shared, &Log),
        wanted: &TierConfig,
        config: &Config,
    ) {
        self.apply(shared, wanted);
        self.tier
            .set_sample_bytes_max(sample_bytes_max(config.memory_bytes_max));
        let used = self.tier.figures().used_bytes;
        let on_disk = bytes_max(&SystemDisk, wanted, used);
        // The length of a segment is read only at start.
        let segment_bytes = self.tier.segment_bytes();
        let bytes_max = open_files::make_room_for_tier(config, on_disk, segment_bytes);
        if bytes_max != self.tier.bytes_max() {
            tell_if_less(log, on_disk, bytes_max);
        }
        self.tier.set_bytes_max(bytes_max);
    }

    fn apply(&self, shared: &Shared, wanted: &TierConfig) {
        self.tuning.set(wanted);
        self.tier.set_compression(wanted.compression);
        let always = wanted.demote_at_percent == 0;
        shared
            .settings
            .demotes_always
            .store(always, Ordering::Relaxed);
    }

    /// Starts to bring all values back into memory, and stops demotion. Returns the status; `keys`
    /// is the number of keys whose values are cold.
    pub(crate) fn drain(&self, keys: u64) -> Vec<(&'static str, String)> {
        self.demoter.drain();
        vec![("keys", keys.to_string())]
    }

    /// Demotes the value of a key at once.
    pub(crate) fn demote(&self, store: &mut Handle, key: &Key<'_>) -> Result<bool, CommandError> {
        for _ in 0..DEMOTE_ATTEMPTS_MAX {
            let Some(victim) = store.victim_of(key, &self.tuning.now().limits) else {
                return Ok(false);
            };
            if !self.values.comes_back_as_it_is(&victim) {
                return Ok(false);
            }
            if self.demoter.write(store, &[victim]).map_err(refusal)? == 1 {
                return Ok(true);
            }
            // The bucket changed while the value was written: another of its keys did, or the index
            // grew.
        }
        Ok(false)
    }

    /// Compacts the segments and frees the rest. Returns the result.
    pub(crate) fn compact(
        &self,
        store: &mut Handle,
    ) -> Result<Vec<(&'static str, String)>, CommandError> {
        let mut moved = 0;
        let below = self.tuning.now().compact_below_percent.max(1);
        while let Some(slot) = self.tier.next_to_compact(below) {
            let count = compact(&self.tier, store, slot).map_err(refusal)?;
            moved += count;
            if count == 0 && self.tier.remove_dead() == 0 {
                // Its live entries change faster than they are moved.
                break;
            }
        }
        let removed = self.tier.remove_dead();
        Ok(vec![
            ("moved", moved.to_string()),
            ("removed", removed.to_string()),
        ])
    }

    /// Reads all segments. Returns the result.
    pub(crate) fn scrub(&self) -> Vec<(&'static str, String)> {
        let (read, faults) = self.tier.scrub();
        vec![
            ("entries", read.to_string()),
            ("damaged_segments", faults.len().to_string()),
        ]
    }

    /// Returns the state of the tier; `keys` is the number of keys whose values are cold.
    pub(crate) fn standing(&self, keys: u64) -> Standing {
        let own = &self.values.figures;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Standing {
            keys,
            tier: self.tier.figures(),
            memory_bytes: self.tier.memory_bytes(),
            demoted: count(&own.demoted),
            reads: count(&own.reads),
            reads_pending: self.readers.pending(),
            coalesced: self.readers.coalesced(),
            blocking_reads: count(&own.blocking_reads),
            damaged: count(&own.damaged),
            refused: count(&own.refused),
            scrubbed: self.scrubber.counts().0,
            scrub_errors: self.scrubber.counts().1,
            io: match self.rings {
                Some(_) => "io_uring",
                None => "threads",
            },
            state: match self.readers.is_stalled(STALLED) {
                true => "failed",
                false => self.demoter.state(),
            },
        }
    }
}

/// The state of a tier.
pub(crate) struct Standing {
    /// Number of keys whose values are cold.
    pub(crate) keys: u64,
    /// Figures of the segments.
    pub(crate) tier: tier::Figures,
    /// Memory that compression takes.
    pub(crate) memory_bytes: u64,
    /// Number of demoted values.
    pub(crate) demoted: u64,
    /// Number of reads of values.
    pub(crate) reads: u64,
    /// Number of reads that are wanted or under way.
    pub(crate) reads_pending: u64,
    /// Number of waits for a value that was already being read.
    pub(crate) coalesced: u64,
    /// Number of reads with the key locked.
    pub(crate) blocking_reads: u64,
    /// Number of reads that returned other bytes than were written.
    pub(crate) damaged: u64,
    /// Number of reads that the system refused.
    pub(crate) refused: u64,
    /// Number of entries that were read again in the background.
    pub(crate) scrubbed: u64,
    /// Number of segments with damage.
    pub(crate) scrub_errors: u64,
    /// How values are read: `io_uring` or `threads`.
    pub(crate) io: &'static str,
    /// ok, full, idle, failed, draining or drained.
    pub(crate) state: &'static str,
}

/// Returns how many bytes of sample values are collected for a dictionary: as many as are wanted
/// without a memory limit, otherwise an eighth of the limit less the memory that the training
/// needs.
fn sample_bytes_max(memory_bytes_max: u64) -> usize {
    let room = match memory_bytes_max {
        0 => u64::MAX,
        limit => (limit / 8).saturating_sub(tier::TRAINING_BYTES),
    };
    usize::try_from(room).unwrap_or(usize::MAX)
}

/// Whether workers read by rings.
fn has_rings(wanted: TierIo, log: &Log) -> io::Result<bool> {
    let tried = match wanted {
        TierIo::Threads => Ok(false),
        _ => reactor::try_ring().map(|()| true),
    };
    let has_rings = match tried {
        Err(cause) if wanted == TierIo::IoUring => {
            let why = format!("tier-io io_uring: the system gives none: {cause}");
            return Err(io::Error::new(cause.kind(), why));
        }
        Err(cause) => {
            log.notice(format_args!(
                "The tier is read by threads: io_uring cannot be had ({cause})"
            ));
            return Ok(false);
        }
        Ok(has_rings) => has_rings,
    };
    let way = if has_rings { "io_uring" } else { "threads" };
    log.notice(format_args!("The tier is read by {way}"));
    Ok(has_rings)
}

/// Moves the entries of a segment that are still named elsewhere. Returns their number.
fn compact(tier: &Tier, store: &mut Handle, slot: u32) -> Result<u64, TierFault> {
    let store = RefCell::new(store);
    let locator = |entry: &EntryHead<'_>, place| {
        let kind = ColdKind::from_number(entry.kind)?;
        locator_of(place, kind)
    };
    tier.compact(
        slot,
        |entry, place| {
            let named = locator(entry, place);
            named.is_some_and(|named| store.borrow_mut().names(entry.key, named))
        },
        |entry, old, new| {
            let places = locator(entry, old).zip(locator(entry, new));
            places.is_some_and(|(old, new)| {
                let mut store = store.borrow_mut();
                store.relocate(entry.key, old, new)
            })
        },
    )
}

/// Returns the maximum length of the files: the configured one as far as there is space, or nine
/// tenths of the space. The directory exists.
fn bytes_max(disk: &dyn Disk, wanted: &TierConfig, used_bytes: u64) -> u64 {
    let room = disk
        .room_bytes(&wanted.directory())
        .unwrap_or(u64::MAX / 10)
        .saturating_add(used_bytes);
    match wanted.bytes_max {
        0 => room / 10 * 9,
        asked => asked.min(room),
    }
}

/// Logs that a tier takes less than there is space for.
fn tell_if_less(log: &Log, on_disk: u64, bytes_max: u64) {
    if bytes_max < on_disk {
        log.warning(format_args!(
            "The system allows too few open files for a tier of {on_disk} bytes: it takes {bytes_max} at most. \
             Raise the limit with 'ulimit -n', or tier-segment-size."
        ));
    }
}

fn refusal(fault: TierFault) -> CommandError {
    CommandError::Text(format!("TIERFAIL {fault}").into())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the threads of the tier are made here"
)]
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn the_files_take_no_more_than_there_is() {
        let own = tempfile::tempdir().unwrap();
        std::fs::create_dir(own.path().join(tier::DIRECTORY_NAME)).unwrap();
        let mut wanted = TierConfig {
            path: own.path().to_owned(),
            bytes_max: u64::MAX / 2,
            ..bed::config(1_000)
        };
        let disk = SystemDisk;
        let room = disk.room_bytes(own.path()).unwrap();
        // Other processes may free space meanwhile, but not as much again.
        assert!(bytes_max(&disk, &wanted, 0) < room.saturating_mul(2));
        wanted.bytes_max = 1 << 20;
        assert_eq!(bytes_max(&disk, &wanted, 0), 1 << 20);
    }

    #[test]
    fn samples_and_training_take_an_eighth_of_memory_at_most() {
        const MIB: u64 = 1 << 20;
        assert_eq!(sample_bytes_max(100 * MIB), 0);
        assert_eq!(sample_bytes_max(128 * MIB), 0);
        assert_eq!(sample_bytes_max(144 * MIB), 2 << 20);
        assert_eq!(sample_bytes_max(0), usize::MAX);
    }
}
