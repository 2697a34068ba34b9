//! How long requests took.
//!
//! Plain requests are too quick to be timed one by one: the clock is read at the end of a batch, and
//! what ran since it was read last shares that time. All others are timed by themselves. A batch that
//! took less than anybody wants to hear of holds no slow request; in one that took longer it was the
//! longest request, for short ones take a microsecond or less each and no limit that low is left to
//! batches ([`Observer::looks_at_each`](crate::observer::Observer::looks_at_each)).

use super::ledger::Ledger;
use crate::batch::BATCH_MAX;
use crate::command_index::CommandIndex;

/// Plain requests that ran since the clock was read.
pub(super) struct Lap {
    since_ns: u64,
    /// Bytes of replies that had been written then.
    pub(super) since_output: usize,
    /// Number of the first one in its batch.
    pub(super) first: usize,
    /// How many there were.
    pub(super) requests: usize,
    /// How many of them were not refused.
    calls: usize,
    /// Which commands they were, and how often each.
    rows: [(CommandIndex, usize); BATCH_MAX],
    rows_count: usize,
}

impl Lap {
    pub(super) const fn begin(since_ns: u64, since_output: usize) -> Self {
        Self {
            since_ns,
            since_output,
            first: 0,
            requests: 0,
            calls: 0,
            rows: [(0, 0); BATCH_MAX],
            rows_count: 0,
        }
    }

    /// Whether nothing is to be charged for the time that passed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Says that requests of a batch from `first` on ran, `calls` of them to their end.
    #[inline]
    pub(super) fn add(&mut self, index: CommandIndex, first: usize, requests: usize, calls: usize) {
        if self.requests == 0 {
            self.first = first;
        }
        self.requests += requests;
        self.calls += calls;
        if let Some(row) = self.rows.get_mut(self.rows_count) {
            *row = (index, calls);
            self.rows_count += 1;
        }
    }

    /// Begins anew.
    #[inline]
    pub(super) fn restart(&mut self, now_ns: u64, output: usize) {
        (self.since_ns, self.since_output) = (now_ns, output);
        (self.requests, self.calls, self.rows_count) = (0, 0, 0);
    }

    /// Charges what ran with the time that passed. Says how much that was.
    #[inline]
    pub(super) fn end(&self, ledger: &Ledger<'_>, now_ns: u64) -> u64 {
        let mut span_ns = now_ns.wrapping_sub(self.since_ns);
        if span_ns >= ledger.observer.alarm_ns() {
            span_ns = ledger.believable(span_ns);
        }
        let each_ns = span_ns / (self.calls.max(1) as u64);
        let in_detail = ledger.observer.tracks_latency();
        for &(index, calls) in self.rows.iter().take(self.rows_count) {
            if calls > 0 {
                ledger.counters.count_time(index, calls, each_ns, in_detail);
            }
        }
        span_ns
    }

    /// When the clock was read last.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }
}
