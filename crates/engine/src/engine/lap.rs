//! How long requests took.
//!
//! Plain requests are too quick to be timed one by one. The clock is read at the end of a batch,
//! and the requests since its last reading share that time. All others are timed by themselves. A
//! batch below every reporting limit contains no slow request. In a batch above it, the longest
//! request is taken as the slow one, because short requests take a microsecond or less each, and
//! batches are not timed as a whole if a limit is that low
//! ([`Observer::looks_at_each`](crate::observer::Observer::looks_at_each)).

use super::ledger::Ledger;
use crate::batch::BATCH_MAX;
use crate::command_index::CommandIndex;

/// Plain requests that ran since the last clock reading.
pub(super) struct Lap {
    since_ns: u64,
    /// Bytes of replies written at that time.
    pub(super) since_output: usize,
    /// Index of the first request in its batch.
    pub(super) first: usize,
    /// Number of requests.
    pub(super) requests: usize,
    /// Number of requests that were not refused.
    calls: usize,
    /// The commands, and how often each ran.
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

    /// Whether no request is to be charged.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Records that requests of a batch ran, beginning with `first`. `calls` of them were not
    /// refused.
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

    /// Begins a new sample.
    #[inline]
    pub(super) fn restart(&mut self, now_ns: u64, output: usize) {
        (self.since_ns, self.since_output) = (now_ns, output);
        (self.requests, self.calls, self.rows_count) = (0, 0, 0);
    }

    /// Charges the requests with the time that passed, and returns that time.
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

    /// Returns the last clock reading.
    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }
}
