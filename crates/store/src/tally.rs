//! Counting without sharing: every handle counts in its own cell, readers sum the cells.
//!
//! Only the owner of a cell writes it, with a plain load and store. So a count costs no locked
//! instruction, and no cache line moves between cores. The counts of a handle stay when the handle
//! is dropped.

use base::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use base::sync::{CachePadded, Mutex, MutexGuard};
use std::sync::{Arc, OnceLock};

use crate::hidden::HiddenSlots;
use crate::key::DatabaseId;
use crate::slot_counts::SlotCounts;

/// A handle reports its records to the index once their number has changed by this much.
const TOLD_EVERY: i64 = 16;

/// Counters of one handle.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) hits: Event,
    pub(crate) misses: Event,
    pub(crate) expired: Event,
    /// Members of structures that were removed because their deadline had passed.
    pub(crate) expired_members: Event,
    /// Ticks that left expired records for the next tick.
    pub(crate) expiry_left: Event,
    pub(crate) evicted: Event,
    /// Effects stated, whether there was a sink or not.
    pub(crate) changes: Event,
}

/// One counter, written by one thread.
#[derive(Debug, Default)]
pub(crate) struct Event(AtomicU64);

impl Event {
    /// Counts one. Only the owner calls this.
    #[inline]
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Counts several. Only the owner calls this.
    pub(crate) fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// The count; it may already be out of date.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Events {
    fn add(&self, other: &Self) {
        self.hits.add(other.hits.get());
        self.misses.add(other.misses.get());
        self.expired.add(other.expired.get());
        self.expired_members.add(other.expired_members.get());
        self.expiry_left.add(other.expiry_left.get());
        self.evicted.add(other.evicted.get());
        self.changes.add(other.changes.get());
    }
}

/// Records of one database that came and went through one handle and that its index does not know
/// of yet.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    pub(crate) keys: Pending,
    pub(crate) deadlines: Pending,
}

impl Delta {
    /// Discards the counts, because their index is gone.
    pub(crate) fn forget(&self) {
        self.keys.take();
        self.deadlines.take();
    }
}

/// A number that only its owner changes, or a thread that has the store for itself.
#[derive(Debug, Default)]
pub(crate) struct Pending(AtomicI64);

impl Pending {
    /// Adds `change`. Returns whether it is time to report to the index.
    #[inline]
    pub(crate) fn add(&self, change: i64) -> bool {
        let sum = self.0.load(Ordering::Relaxed) + change;
        self.0.store(sum, Ordering::Relaxed);
        sum.abs() >= TOLD_EVERY
    }

    /// The changes not yet reported.
    #[inline]
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes the changes not yet reported.
    pub(crate) fn take(&self) -> i64 {
        let sum = self.0.load(Ordering::Relaxed);
        self.0.store(0, Ordering::Relaxed);
        sum
    }
}

/// The counts of an index's records that handles have reported.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    keys: AtomicI64,
    deadlines: AtomicI64,
    begun: AtomicU64,
    ended: AtomicU64,
}

/// Numbers of records: all, and those with a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) keys: i64,
    pub(crate) deadlines: i64,
}

/// Maximum number of attempts to sum while handles report.
const SUM_TRIES: u32 = 100;

impl Counts {
    /// The sum of all reports so far.
    #[inline]
    pub(crate) fn about(&self) -> Records {
        Records {
            keys: self.keys.load(Ordering::Relaxed),
            deadlines: self.deadlines.load(Ordering::Relaxed),
        }
    }

    /// Moves the counts of a delta here. A thread that sums meanwhile notices, and sums again.
    pub(crate) fn tell(&self, delta: &Delta) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.keys.fetch_add(delta.keys.take(), Ordering::Relaxed);
        self.deadlines
            .fetch_add(delta.deadlines.take(), Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Release);
    }
}

/// One handle's counters.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) events: CachePadded<Events>,
    deltas: Box<[Delta]>,
    /// Present in cluster mode.
    slots: Option<SlotCounts>,
}

impl Cell {
    /// The counts that the index of a database does not know yet.
    #[inline]
    pub(crate) fn delta(&self, database: DatabaseId) -> &Delta {
        &self.deltas[usize::from(database)]
    }

    /// The counts of hash slots, in cluster mode.
    #[inline]
    pub(crate) fn slots(&self) -> Option<&SlotCounts> {
        self.slots.as_ref()
    }
}

/// The cells of all handles.
#[derive(Debug)]
pub(crate) struct Tallies {
    cells: Mutex<Cells>,
    databases: usize,
    /// The hash-slot counts of handles that are gone; in cluster mode.
    slots_gone: OnceLock<SlotCounts>,
}

#[derive(Debug, Default)]
struct Cells {
    live: Vec<Arc<Cell>>,
    /// The counts of handles that are gone.
    gone: Events,
    /// The counts at the last reset, which are subtracted.
    forgotten: Events,
}

/// Sums of [`Events`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) expired_members: u64,
    pub(crate) expiry_left: u64,
    pub(crate) evicted: u64,
    /// Since the start, regardless of resets.
    pub(crate) changes: u64,
}

impl Tallies {
    /// Creates the cells for `databases` databases.
    pub(crate) fn new(databases: DatabaseId) -> Self {
        Self {
            cells: Mutex::new(Cells::default()),
            databases: usize::from(databases),
            slots_gone: OnceLock::new(),
        }
    }

    /// Makes all handles created from now on count the keys of hash slots.
    pub(crate) fn count_slots(&self) {
        self.slots_gone
            .get_or_init(|| SlotCounts::new(self.databases));
    }

    /// Number of keys in a hash slot; 0 if hash slots are not counted.
    pub(crate) fn keys_in_slot(&self, slot: u16) -> u64 {
        let cells = self.lock();
        let gone = self.slots_gone.get().map_or(0, |gone| gone.of(slot));
        let live = cells.live.iter().filter_map(|cell| cell.slots());
        let sum = gone + live.map(|counts| counts.of(slot)).sum::<i64>();
        sum.max(0).unsigned_abs()
    }

    /// Number of keys of a database in the hidden slots, or in all others.
    pub(crate) fn keys_in_slots(
        &self,
        database: DatabaseId,
        hidden: &HiddenSlots,
        are_hidden: bool,
    ) -> u64 {
        let cells = self.lock();
        let live = cells.live.iter().filter_map(|cell| cell.slots());
        let all = live.chain(self.slots_gone.get());
        let sum: i64 = all
            .map(|counts| counts.sum(database, hidden, are_hidden))
            .sum();
        sum.max(0).unsigned_abs()
    }

    /// Clears the hash-slot counts of a database whose keys are all gone.
    pub(crate) fn forget_slots(&self, database: DatabaseId) {
        let cells = self.lock();
        let live = cells.live.iter().filter_map(|cell| cell.slots());
        for counts in live.chain(self.slots_gone.get()) {
            counts.forget(database);
        }
    }

    /// Returns a cell for a new handle.
    pub(crate) fn join(&self) -> Arc<Cell> {
        let cell = Arc::new(Cell {
            events: CachePadded::new(Events::default()),
            deltas: (0..self.databases).map(|_| Delta::default()).collect(),
            slots: self
                .slots_gone
                .get()
                .map(|_| SlotCounts::new(self.databases)),
        });
        self.lock().live.push(Arc::clone(&cell));
        cell
    }

    /// Keeps the counts of a handle that is dropped. Its deltas must have been reported already.
    pub(crate) fn part(&self, cell: &Arc<Cell>) {
        let mut cells = self.lock();
        cells.live.retain(|other| !Arc::ptr_eq(other, cell));
        cells.gone.add(&cell.events);
        if let (Some(gone), Some(counts)) = (self.slots_gone.get(), cell.slots()) {
            gone.add_all(counts);
        }
    }

    /// Events since the last reset.
    pub(crate) fn sums(&self) -> Sums {
        let cells = self.lock();
        let all = cells.total();
        let past = &cells.forgotten;
        let since = |of: fn(&Events) -> &Event| of(&all).get().wrapping_sub(of(past).get());
        Sums {
            hits: since(|events| &events.hits),
            misses: since(|events| &events.misses),
            expired: since(|events| &events.expired),
            expired_members: since(|events| &events.expired_members),
            expiry_left: since(|events| &events.expiry_left),
            evicted: since(|events| &events.evicted),
            changes: all.changes.get(),
        }
    }

    /// Resets the counters.
    pub(crate) fn reset(&self) {
        let mut cells = self.lock();
        cells.forgotten = cells.total();
    }

    /// Number of records of a database whose index has `counts`. The result was exact at some time
    /// during the call, because two consecutive sums have the same parts. If other threads write so
    /// much that no two sums agree, it may be off by the records that came or went during the sum.
    pub(crate) fn records(&self, database: DatabaseId, counts: &Counts) -> Records {
        let mut sum = Records::default();
        let mut before = None;
        for _ in 0..SUM_TRIES {
            let ended = counts.ended.load(Ordering::Acquire);
            sum = counts.about();
            // Distinguishes sums of different parts.
            let mut parts = 0_i64;
            self.for_each_delta(database, |delta| {
                let (keys, deadlines) = (delta.keys.get(), delta.deadlines.get());
                sum.keys += keys;
                sum.deadlines += deadlines;
                for part in [keys, deadlines] {
                    parts = parts.wrapping_mul(1_000_003).wrapping_add(part);
                }
            });
            fence(Ordering::Acquire);
            let is_whole = counts.begun.load(Ordering::Relaxed) == ended;
            let found = is_whole.then_some((sum, parts));
            if is_whole && found == before {
                break;
            }
            before = found;
        }
        sum
    }

    /// Calls `visit` with each handle's unreported counts of a database.
    pub(crate) fn for_each_delta(&self, database: DatabaseId, visit: impl FnMut(&Delta)) {
        let cells = self.lock();
        cells
            .live
            .iter()
            .map(|cell| cell.delta(database))
            .for_each(visit);
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Cells {
    fn total(&self) -> Events {
        let sum = Events::default();
        sum.add(&self.gone);
        self.live.iter().for_each(|cell| sum.add(&cell.events));
        sum
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_handle_and_can_be_forgotten() {
        let tallies = Tallies::new(1);
        let (one, two) = (tallies.join(), tallies.join());
        one.events.hits.count();
        two.events.hits.count();
        tallies.part(&one);
        assert_eq!(tallies.sums().hits, 2);
        tallies.reset();
        assert_eq!(tallies.sums(), Sums::default());
        two.events.evicted.count();
        assert_eq!((tallies.sums().hits, tallies.sums().evicted), (0, 1));
    }

    #[test]
    fn an_index_is_told_in_batches() {
        let pending = Pending::default();
        assert!((1..TOLD_EVERY).all(|_| !pending.add(1)));
        assert!(pending.add(1));
        assert_eq!((pending.take(), pending.get()), (TOLD_EVERY, 0));
        assert!(!pending.add(-1));
    }
}
