//! Counters of workers and engines since the last CONFIG RESETSTAT.

use std::sync::{Arc, MutexGuard, PoisonError};

use engine::{CommandError, Counts, EngineCounters, Latencies};

use super::Node;
use crate::counters::Sums;

impl Node {
    /// Returns the workers' counts since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.all_sums().since(&self.counted_before().1)
    }

    /// Returns the engines' counts since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.all_counts().since(&self.counted_before().0)
    }

    /// Returns the commands' times since the last CONFIG RESETSTAT.
    #[must_use]
    pub fn latencies(&self) -> Latencies {
        self.all_latencies().since(&self.counted_before().2)
    }

    pub(super) fn all_sums(&self) -> Sums {
        let mut sums = Sums::default();
        for worker in self.workers() {
            sums.add(&worker.counters);
        }
        sums
    }

    pub(super) fn all_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for engine in self.engines() {
            engine.add_to(&mut counts);
        }
        counts
    }

    fn all_latencies(&self) -> Latencies {
        let mut latencies = Latencies::default();
        for engine in self.engines() {
            engine.add_latencies_to(&mut latencies);
        }
        latencies
    }

    /// Counts the error reply of a request that waited on a thread of its own.
    pub(crate) fn count_error(&self, error: &CommandError) {
        if let Some(counters) = self.work.aside_counters.get() {
            counters.count_reply(error);
        }
    }

    fn engines(&self) -> impl Iterator<Item = &EngineCounters> {
        let workers = self.workers().iter().map(|one| &one.engine);
        let engines = workers.chain([&self.work.aside_counters]);
        engines.filter_map(|engine| engine.get().map(Arc::as_ref))
    }

    fn counted_before(&self) -> MutexGuard<'_, (Counts, Sums, Latencies)> {
        self.work
            .counted_before
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets all counts (CONFIG RESETSTAT).
    pub fn reset_counters(&self) {
        let counted = (self.all_counts(), self.all_sums(), self.all_latencies());
        *self.counted_before() = counted;
        for worker in self.workers() {
            worker.counters.forget_most();
        }
        self.keeping.saving.reset_counters();
        self.core.shared.hash_slots.usage.forget(|_| true);
        self.work.rates.reset();
    }
}
