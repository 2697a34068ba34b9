//! Housekeeping between commands: expiry, memory measurement, return of free memory.

use crate::accounting::resident_bytes;
use crate::chunk::CLEANED_AT_ONCE;
use crate::indexed::Indexed;
use crate::record_span::RecordSpan;
use crate::shared::Shared;

/// Milliseconds between measurements of the resident set …
const MEASURE_EVERY_MS: u64 = 100;

/// … and between those of writers that evict: at a gigabyte a second, 10 MB come between two
/// measurements.
const MEASURE_WRITING_EVERY_MS: u64 = 10;

/// Number of buckets of a given-up snapshot that one tick passes: some ten microseconds.
const BUCKETS_PER_TICK: usize = 256;

/// Milliseconds between checks whether records should be compacted.
const MOVE_EVERY_MS: u64 = 1_000;

impl Indexed {
    /// Does one bounded step. Returns whether more is waiting.
    pub(crate) fn tick(&mut self, now_unix_ms: u64) -> bool {
        let entered = self.enter();
        self.local.set_time(now_unix_ms);
        self.local.cache.settle();
        let more = self.expire_due()
            | self.evict_in_passing()
            | self.move_some()
            | self.shrink_some()
            | self.finish_given_up(BUCKETS_PER_TICK);
        self.shared.arena_ref().clean_surplus(CLEANED_AT_ONCE);
        if self.is_measure_due(now_unix_ms) {
            let shared = &*self.shared;
            self.local.tell_bytes(shared);
            let indexes = self.seen.iter().map(|(_, index)| &**index);
            self.record_span = RecordSpan::of(indexes, &shared.slab);
            measure(shared, now_unix_ms, MEASURE_EVERY_MS);
            if shared.last_move.is_due(now_unix_ms, MOVE_EVERY_MS) {
                shared.mover.begin_if_due(shared);
                shared.arena_ref().clean_unused();
                let indexes = self.seen.iter().map(|(_, index)| index);
                indexes.for_each(|index| index.overflow().clean());
            }
        }
        if entered {
            self.leave();
        }
        more
    }

    /// Returns free memory to the system: what is free now at once, and what becomes free once
    /// records have been moved in the following ticks.
    pub(crate) fn purge(&mut self) {
        let shared = &*self.shared;
        self.local.tell_bytes(shared);
        shared.mover.begin_asked(shared);
        shared.slab.recall();
        self.local.cache.settle();
        shared.arena_ref().give_dirty();
    }

    /// Corrects the counters by a measurement, for a writer that is about to evict.
    pub(crate) fn measure_writing(&self) {
        measure(
            &self.shared,
            self.local.now_unix_ms,
            MEASURE_WRITING_EVERY_MS,
        );
    }

    /// Whether this thread has not reported its counts for a while.
    fn is_measure_due(&mut self, now_unix_ms: u64) -> bool {
        // The clock may have been set back.
        let since = now_unix_ms.abs_diff(self.told_unix_ms);
        let due = since >= MEASURE_EVERY_MS;
        if due {
            self.told_unix_ms = now_unix_ms;
        }
        due
    }
}

/// Corrects the counters by the system's measurement, if there is a memory limit.
fn measure(shared: &Shared, now_unix_ms: u64, every_ms: u64) {
    if shared.budget.limit_bytes() == 0 || !shared.last_measure.is_due(now_unix_ms, every_ms) {
        return;
    }
    if let Ok(resident) = resident_bytes() {
        // Redis also leaves out data on its way to disk or replicas: no record is evicted for it.
        let resident = resident.saturating_sub(shared.snapshots.held_bytes());
        let used = shared.ledger.used_bytes();
        shared.budget.correct(resident, used, shared.idle_bytes());
    }
}
