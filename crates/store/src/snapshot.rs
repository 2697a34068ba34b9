//! A consistent snapshot of all databases, taken while they are read and written.
//!
//! ```text
//!    generation 6 ─────── cut ───────► generation 7
//!
//!    bucket   0  1  2  3  4  5  6  7  8  9      SN is the lowest bit of a generation:
//!    SN       7  7  7  7  6  6  7  6  6  6      on 7 a bucket was saved, on 6 it is as at the cut
//!             └───┬────┘        └ saved by who changed it, before the change
//!              saved by the scanner, which goes on with 4
//! ```
//!
//! The cut is one number that goes up. A write that holds all of its buckets reads it **once**:
//! with the old number the write belongs to the snapshot as a whole, with the new one not at all.
//! Before it changes a bucket on the other side, it puts the bucket's records, as they are, into a
//! buffer, and puts the bucket on its own side. A scanner walks all buckets and does the same for
//! those not yet saved. It visits without changing a version, so it disturbs no reader.
//!
//! A record that is merely overwritten in its place, as by SET of a text, is saved **alone**: its
//! link is marked ([`crate::bucket::Link::SAVED`]), and its bucket stays behind. The four records
//! beside it, which are in no cache, are left to the scanner or to a thread that changes them. A
//! thread that saves the bucket later leaves out the marked records and clears the marks.
//!
//! Why that is consistent: a bucket's lock puts "saved" and every write in one order. A write of
//! several keys that read the old number has held all of its buckets since before, so the scanner
//! comes to them only after it has ended. A write that read the new number saves what it is about
//! to change. Reading the number anew for each bucket would let the cut go through the middle of a
//! write; a test does so on purpose and finds broken sums.
//!
//! Rules
//!  1. The cut is made while no thread has the store for itself, so that what happens there is on
//!     one side as a whole, and while no database gets an index or loses it.
//!  2. A thread that changes the content of a bucket calls [`crate::local::Local::choose_side`]
//!     once it holds all of its buckets, and [`crate::local::Local::save_first`] before its first
//!     change of each: [`crate::writer`], [`crate::expire`], [`crate::members`], [`crate::evict`].
//!     A thread that only overwrites a record calls [`crate::local::Local::save_alone`] instead:
//!     the record's link must stay what it is.
//!  3. A split passes the bucket's side on. Two buckets on different sides are not merged: the
//!     scanner brings them to one side.
//!  4. A thread that moves records changes no content and need not check the side.
//!  5. An index that is emptied or given another number meanwhile is walked to its end all the
//!     same, and its records are saved under the number it had at the cut.
//!  6. A link is marked only in a bucket that is behind: a thread that puts a bucket on the other
//!     side clears the marks, whether the records are saved or given up. Otherwise the next
//!     snapshot would lack those records. Links that are moved to another bucket of the same side,
//!     and records that are moved, keep the mark.
//!  7. A lock set that is on the old side is not given a bucket with a mark: another thread was
//!     there after the cut.
//!  8. No cut while a snapshot is in progress, which it is until all buckets are on the new side.
//!
//! Memory: saved data counts as held until the sink drops it. The scanner pauses at half of the
//! soft limit. At the soft limit writers are slowed down before they take their first lock
//! ([`crate::Handle::make_room`]), unless they ask and do something else meanwhile
//! ([`crate::Handle::should_back_off`]). At the hard limit the snapshot is given up. No thread ever
//! waits with a bucket held. A snapshot that was given up or cancelled still puts all buckets on
//! the new side, without saving any.
//!
//! A large object is not copied whole with its bucket held: it shares its nodes with the copy, and
//! a thread that changes the object later copies the nodes that it changes.
//!
//! Source: the cut without a drain phase follows from Garnet's checkpoints (PVLDB 19(2), 5.1);
//! bucket-wise pre-images stand for its record versions.

mod batch;
#[cfg(any(test, feature = "naive"))]
pub(crate) mod naive;
mod place;
mod saved_cold;
mod saving;
mod walk;

#[cfg(all(test, not(any(loom, shuttle))))]
mod collected;

use std::fmt;
use std::ops::ControlFlow;

use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::{CachePadded, Mutex, MutexGuard};

pub use batch::{Batch, Run, Saved, SavedValue};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use collected::Collected;
pub use saved_cold::SavedCold;

use crate::before_writes::BeforeWrites;
use batch::Held;
use place::Walk;

/// Number of writers' buffers: each thread has its own while there are no more threads than this.
const BUFFERS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// Takes what a snapshot saves. The thread that drives the scanner calls it, with no lock of the
/// store held. It may take its time, though meanwhile what writers save is held in memory. A
/// snapshot that was given up may end in the tick of any thread.
pub trait SnapshotSink: Send {
    /// Takes some records. They come in no order, each record of the cut once. Their memory counts
    /// as held by the snapshot until the batch is dropped. A break cancels the snapshot.
    fn take(&mut self, batch: Batch) -> ControlFlow<()>;

    /// Whether the sink reads cold values ([`Batch::records`]), and not only their locators
    /// ([`Batch::records_unread`]).
    fn reads_cold(&self) -> bool {
        true
    }

    /// Receives how the snapshot ended, and what the sink took until then. The last call.
    fn end(&mut self, ending: Ending, totals: &Totals);
}

/// How a snapshot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The sink was given every record of the cut.
    Complete,
    /// A caller cancelled it.
    Cancelled,
    /// Writers saved more than the sink took, up to the hard limit.
    OverLimit,
}

/// What a snapshot saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The generation that began with the cut.
    pub generation: u64,
    /// Number of records given to the sink.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Maximum memory that was held for it at a time.
    pub held_bytes_max: u64,
}

/// How much memory a snapshot may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Writers are slowed down above this; the scanner pauses above half of it.
    pub soft_bytes: u64,
    /// The snapshot is given up above this, counting only what writers saved. One bucket per thread
    /// may come on top.
    pub hard_bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            soft_bytes: 64 << 20,
            hard_bytes: 256 << 20,
        }
    }
}

/// Outcome of a call of [`crate::Handle::advance_snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotStep {
    /// No snapshot is in progress.
    Idle,
    /// There is more to do at once.
    More,
    /// There is more to do, but not now: too much is held, or another thread is in the way.
    Later,
}

/// Progress of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// What was given to the sink so far.
    pub totals: Totals,
    /// Memory held for it now.
    pub held_bytes: u64,
    /// Number of buckets that the scanner has passed.
    pub buckets_done: u64,
    /// Number of buckets of the databases of the cut when it began; tables may have grown since.
    pub buckets: u64,
    /// Whether the snapshot continues only to put all buckets on one side, saving none.
    pub is_given_up: bool,
    /// Whether records of an emptied database, which nothing else needs, stay in memory until it is
    /// over.
    pub keeps_emptied: bool,
}

/// The error that a snapshot is already in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInProgress;

impl fmt::Display for SnapshotInProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot is in progress")
    }
}

impl std::error::Error for SnapshotInProgress {}

/// The snapshot in progress, if there is one, and the number of cuts.
#[derive(Default)]
pub(crate) struct Snapshots {
    generation: CachePadded<AtomicU64>,
    phase: CachePadded<AtomicU64>,
    soft_bytes: AtomicU64,
    hard_bytes: AtomicU64,
    /// How far records reach, on average at the cut.
    span_bytes: AtomicUsize,
    counts: Counts,
    held: std::sync::Arc<Held>,
    /// Records that writers saved, until there are enough to hand over.
    buffers: [CachePadded<Mutex<Option<Batch>>>; BUFFERS],
    next_buffer: AtomicU64,
    /// Batches that the sink has not yet been given.
    ready: Mutex<Vec<Batch>>,
    /// Locked after `delivery`, and before a database gets or loses its index.
    walk: Mutex<Option<Walk>>,
    delivery: Mutex<Option<Box<dyn SnapshotSink>>>,
    /// For a test that plants a bug: whether the generation is read for each bucket.
    #[cfg(test)]
    pub(crate) reads_for_each_bucket: AtomicBool,
}

/// Progress in numbers.
#[derive(Default)]
struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
    buckets_done: AtomicU64,
    buckets: AtomicU64,
    /// Whether every record was put into a batch.
    is_walked: AtomicBool,
    /// Whether indexes that were emptied since the cut are kept.
    keeps_emptied: AtomicBool,
}

impl Counts {
    fn reset(&self, buckets: u64) {
        self.is_walked.store(false, Ordering::Relaxed);
        self.keeps_emptied.store(false, Ordering::Relaxed);
        self.buckets.store(buckets, Ordering::Relaxed);
        for count in [&self.records, &self.bytes, &self.buckets_done] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// The state of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Saving,
    Cancelled,
    OverLimit,
    /// The sink has all records.
    Ending,
}

impl Phase {
    fn from_word(word: u64) -> Self {
        match word {
            0 => Self::Idle,
            1 => Self::Saving,
            2 => Self::Cancelled,
            3 => Self::OverLimit,
            _ => Self::Ending,
        }
    }

    fn to_word(self) -> u64 {
        match self {
            Self::Idle => 0,
            Self::Saving => 1,
            Self::Cancelled => 2,
            Self::OverLimit => 3,
            Self::Ending => 4,
        }
    }
}

impl Snapshots {
    /// Number of cuts so far. A thread that changes buckets reads it once it holds all of them.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The generation while a snapshot is in progress. Only advice may follow from it.
    #[inline]
    pub(crate) fn cut_in_progress(&self, before_writes: &BeforeWrites) -> Option<u64> {
        let is_there = before_writes.get() & BeforeWrites::SNAPSHOT != 0;
        is_there.then(|| self.generation())
    }

    /// Raises the generation to `at_least`, or to the number after it. Its lowest bit does not
    /// change, nor does the side of any bucket, so threads that change something meanwhile need not
    /// know.
    pub(crate) fn raise_generation(&self, at_least: u64) -> Result<u64, SnapshotInProgress> {
        let _nobody_begins = lock(&self.delivery);
        if self.phase() != Phase::Idle {
            return Err(SnapshotInProgress);
        }
        let current = self.generation();
        let ahead = at_least.saturating_sub(current);
        let raised = current.saturating_add(ahead.saturating_add(ahead & 1));
        self.generation.store(raised, Ordering::Relaxed);
        Ok(raised)
    }

    /// Returns the number of a buffer for one thread.
    pub(crate) fn assign_buffer(&self) -> usize {
        let next = self.next_buffer.fetch_add(1, Ordering::Relaxed);
        usize::try_from(next).unwrap_or(0) % BUFFERS
    }

    /// Whether so much is held that a writer should wait a moment before it locks.
    #[inline]
    pub(crate) fn is_pressing(&self) -> bool {
        self.phase() == Phase::Saving && self.held.sum() >= self.soft_bytes.load(Ordering::Relaxed)
    }

    /// Memory held for a snapshot.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.sum()
    }

    /// Stops saving. Returns whether there was a snapshot to stop.
    pub(crate) fn cancel(&self) -> bool {
        self.leave_saving(Phase::Cancelled)
    }

    /// The progress of the snapshot in progress, or `None` if there is none.
    pub(crate) fn progress(&self) -> Option<SnapshotProgress> {
        let phase = self.phase();
        (phase != Phase::Idle).then(|| SnapshotProgress {
            totals: self.totals(),
            held_bytes: self.held.sum(),
            buckets_done: self.counts.buckets_done.load(Ordering::Relaxed),
            buckets: self.counts.buckets.load(Ordering::Relaxed),
            is_given_up: matches!(phase, Phase::Cancelled | Phase::OverLimit),
            keeps_emptied: self.counts.keeps_emptied.load(Ordering::Relaxed),
        })
    }

    fn totals(&self) -> Totals {
        Totals {
            generation: self.generation(),
            records: self.counts.records.load(Ordering::Relaxed),
            bytes: self.counts.bytes.load(Ordering::Relaxed),
            held_bytes_max: self.held.sum_max(),
        }
    }

    #[inline]
    fn phase(&self) -> Phase {
        Phase::from_word(self.phase.load(Ordering::Acquire))
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase.to_word(), Ordering::Release);
    }

    /// Changes from saving to `phase`. Returns whether it was saving.
    fn leave_saving(&self, phase: Phase) -> bool {
        let (saving, next) = (Phase::Saving.to_word(), phase.to_word());
        self.phase
            .compare_exchange(saving, next, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots")
            .field("generation", &self.generation())
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
