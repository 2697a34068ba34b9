//! Housekeeping between commands: what expired, what the process holds, what can be given back.

use crate::accounting::resident_bytes;
use crate::chunk::CLEANED_AT_ONCE;
use crate::indexed::Indexed;
use crate::record_span::RecordSpan;
use crate::shared::Shared;

/// The resident set is measured so often.
const MEASURE_EVERY_MS: u64 = 100;

/// … and so often by writers that evict: at a gigabyte a second, 10 MB come between two measurements.
const MEASURE_WRITING_EVERY_MS: u64 = 10;

/// Buckets of a snapshot that was given up that are passed in one tick: some ten microseconds.
const BUCKETS_PER_TICK: usize = 256;

/// It is looked so often whether records should be moved together.
const MOVE_EVERY_MS: u64 = 1_000;

impl Indexed {
    /// One bounded step; whether more is waiting.
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

    /// Gives free memory back to the system: what is free at once, and what is wholly free once the
    /// records that lie in its way were moved, in the ticks that follow.
    pub(crate) fn purge(&mut self) {
        let shared = &*self.shared;
        self.local.tell_bytes(shared);
        shared.mover.begin_asked(shared);
        shared.slab.recall();
        self.local.cache.settle();
        shared.arena_ref().give_dirty();
    }

    /// Corrects what the counters say, for a writer that is about to evict.
    pub(crate) fn measure_writing(&self) {
        measure(
            &self.shared,
            self.local.now_unix_ms,
            MEASURE_WRITING_EVERY_MS,
        );
    }

    /// Whether this thread has not told what it counted for a while.
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

/// Corrects what the counters say by what the system says, where there is a limit.
fn measure(shared: &Shared, now_unix_ms: u64, every_ms: u64) {
    if shared.budget.limit_bytes() == 0 || !shared.last_measure.is_due(now_unix_ms, every_ms) {
        return;
    }
    if let Ok(resident) = resident_bytes() {
        // As Redis leaves out what is on its way to disk or replicas: no record goes for it.
        let resident = resident.saturating_sub(shared.snapshots.held_bytes());
        let used = shared.ledger.used_bytes();
        shared.budget.correct(resident, used, shared.idle_bytes());
    }
}
