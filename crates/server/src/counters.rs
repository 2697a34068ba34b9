//! Counters of the server, in addition to those of the store and the engines.
//!
//! Every worker writes cells of its own and readers sum them, so counting never moves a cache line
//! between cores. Cells are never reset: CONFIG RESETSTAT keeps the sums of that moment, which are
//! subtracted from then on ([`Sums::since`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A number that one thread writes and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction. Only the cell's single writer may call this.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.set(self.get().wrapping_add(amount));
    }

    /// Returns the number.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the number.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What a worker counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    /// Bytes received.
    InputBytes,
    /// Bytes sent.
    OutputBytes,
    /// Receives from sockets that returned data.
    Reads,
    /// Sends to sockets that took data.
    Writes,
    /// Receives that workers other than the first did.
    ReadsBeside,
    /// Sends that workers other than the first did.
    WritesBeside,
    /// Turns of the loop.
    Turns,
    /// Nanoseconds of these turns, without waiting.
    BusyNs,
    /// Nanoseconds of them spent on upkeep.
    UpkeepNs,
    /// Nanoseconds of the store's housekeeping when keys were due to expire.
    ExpireNs,
    /// Connections accepted.
    Connections,
    /// Connections refused.
    Rejections,
    /// Clients closed because of their query buffer.
    QueryLimitCloses,
    /// Clients closed because of their output buffer.
    OutputLimitCloses,
    /// Clients closed because all clients together held too much.
    EvictedClients,
}

const COUNTS: usize = Count::EvictedClients as usize + 1;

/// The cells of one worker, aligned so that two workers never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    cells: [Counter; COUNTS],
    /// Bytes in the buffers of its clients now.
    pub client_bytes: Counter,
    /// Number of clients that wait for keys with a timeout.
    pub timeouts: Counter,
    /// Nanoseconds of the longest turn since CONFIG RESETSTAT.
    pub busy_ns_max: Counter,
    /// Maximum processor time of its thread in a measured turn since CONFIG RESETSTAT, in
    /// nanoseconds.
    pub cpu_ns_max: Counter,
    /// Maximum number of requests of one turn since CONFIG RESETSTAT.
    pub requests_max: Counter,
}

impl WorkerCounters {
    /// Returns the cell of one count. Only its worker writes it.
    #[inline]
    #[must_use]
    pub fn cell(&self, count: Count) -> &Counter {
        &self.cells[count as usize]
    }

    /// Adds one.
    #[inline]
    pub fn bump(&self, count: Count) {
        self.cell(count).add(1);
    }

    /// Counts a turn with its duration and number of requests.
    #[inline]
    pub fn count_turn(&self, busy_ns: u64, requests: u64) {
        self.bump(Count::Turns);
        self.cell(Count::BusyNs).add(busy_ns);
        if busy_ns > self.busy_ns_max.get() {
            self.busy_ns_max.set(busy_ns);
        }
        if requests > self.requests_max.get() {
            self.requests_max.set(requests);
        }
    }

    /// Records the processor time of a turn.
    pub fn note_turn_cpu(&self, cpu_ns: u64) {
        if cpu_ns > self.cpu_ns_max.get() {
            self.cpu_ns_max.set(cpu_ns);
        }
    }

    /// Resets the maxima. Only these cells are written by other threads, too.
    pub fn forget_most(&self) {
        self.busy_ns_max.set(0);
        self.cpu_ns_max.set(0);
        self.requests_max.set(0);
    }
}

/// Sums over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums([u64; COUNTS]);

impl Sums {
    /// Adds the cells of one worker.
    pub fn add(&mut self, counters: &WorkerCounters) {
        for (sum, cell) in self.0.iter_mut().zip(&counters.cells) {
            *sum = sum.wrapping_add(cell.get());
        }
    }

    /// Returns what was counted since `earlier`.
    #[must_use]
    pub fn since(mut self, earlier: &Self) -> Self {
        for (now, then) in self.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(then);
        }
        self
    }

    /// Returns one of the sums.
    #[must_use]
    pub fn of(&self, count: Count) -> u64 {
        self.0[count as usize]
    }
}

/// Recent rates, as INFO's `instantaneous_*` fields show them.
#[derive(Debug, Default)]
pub struct Rates {
    state: Mutex<RateState>,
    /// Times in which records were compacted.
    pub moving: Span,
    /// Times in which the used memory was above the limit.
    pub over_limit: Span,
}

/// Duration of a condition that is checked regularly.
#[derive(Debug, Default)]
pub struct Span {
    /// Begin in milliseconds of uptime plus one; 0 while the condition does not hold.
    began: AtomicU64,
    past_ms: AtomicU64,
}

impl Span {
    /// Records whether the condition holds now. Called by one thread only.
    pub fn note(&self, now_ms: u64, is_so: bool) {
        let began = self.began.load(Ordering::Relaxed);
        if is_so && began == 0 {
            self.began.store(now_ms + 1, Ordering::Relaxed);
        } else if !is_so && began != 0 {
            self.past_ms
                .fetch_add((now_ms + 1).saturating_sub(began), Ordering::Relaxed);
            self.began.store(0, Ordering::Relaxed);
        }
    }

    /// Returns how long the condition has held by now, in milliseconds; 0 if it does not hold.
    pub fn current_ms(&self, now_ms: u64) -> u64 {
        match self.began.load(Ordering::Relaxed) {
            0 => 0,
            began => (now_ms + 1).saturating_sub(began),
        }
    }

    /// Returns how long the condition held in total, in milliseconds.
    pub fn total_ms(&self, now_ms: u64) -> u64 {
        self.past_ms.load(Ordering::Relaxed) + self.current_ms(now_ms)
    }

    fn reset(&self) {
        self.past_ms.store(0, Ordering::Relaxed);
        self.began.store(0, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct RateState {
    last_ms: u64,
    last: RateSums,
    samples: [[f64; RATES]; RATE_SAMPLES],
    next: usize,
}

/// Number of rates.
const RATES: usize = 5;
/// The sums that rates are computed from: requests, input bytes, output bytes, turns, nanoseconds
/// of turns.
pub type RateSums = [u64; RATES];

/// Number of samples that a rate is the mean of.
const RATE_SAMPLES: usize = 16;
/// Minimum time between two samples.
const RATE_INTERVAL_MS: u64 = 100;

impl Rates {
    /// Takes a sample of sums if the last one is old enough.
    #[allow(clippy::cast_precision_loss, reason = "a rate shown to people")]
    pub fn sample(&self, now_ms: u64, sums: RateSums) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed_ms = now_ms.saturating_sub(state.last_ms);
        if elapsed_ms < RATE_INTERVAL_MS {
            return;
        }
        if state.last_ms != 0 {
            let next = state.next;
            for (index, sum) in sums.iter().enumerate() {
                let grown = sum.saturating_sub(state.last[index]);
                state.samples[next][index] = grown as f64 * 1000.0 / elapsed_ms as f64;
            }
            state.next = (next + 1) % RATE_SAMPLES;
        }
        state.last_ms = now_ms;
        state.last = sums;
    }

    /// Returns means per second, in the order of [`RateSums`].
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "sixteen samples")]
    pub fn per_second(&self) -> [f64; RATES] {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut means = [0.0; RATES];
        for sample in &state.samples {
            for (mean, value) in means.iter_mut().zip(sample) {
                *mean += value / RATE_SAMPLES as f64;
            }
        }
        means
    }

    /// Drops the samples.
    pub fn reset(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = RateState::default();
        self.moving.reset();
        self.over_limit.reset();
    }
}

/// Adds to a number that only this thread writes.
#[inline]
pub(crate) fn bump(cell: &AtomicU64, amount: usize) {
    let sum = cell.load(Ordering::Relaxed).wrapping_add(amount as u64);
    cell.store(sum, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_adds_up() {
        let span = Span::default();
        for (now_ms, is_so) in [(0, true), (5, true), (10, false), (20, false), (30, true)] {
            span.note(now_ms, is_so);
        }
        assert_eq!((span.total_ms(34), span.current_ms(34)), (14, 4));
        span.note(35, false);
        assert_eq!((span.total_ms(40), span.current_ms(40)), (15, 0));
    }

    #[test]
    fn sums_are_over_workers_and_since_a_moment() {
        let workers = [WorkerCounters::default(), WorkerCounters::default()];
        let sum = || {
            let mut sums = Sums::default();
            workers.iter().for_each(|worker| sums.add(worker));
            sums
        };
        workers[0].count_turn(50, 7);
        workers[1].count_turn(70, 3);
        workers[1].count_turn(20, 4);
        assert_eq!(workers[1].busy_ns_max.get(), 70);
        assert_eq!(workers[1].requests_max.get(), 4);
        assert_eq!(sum().of(Count::BusyNs), 140);
        let earlier = sum();
        assert_eq!(earlier.of(Count::Turns), 3);
        workers[1].bump(Count::Reads);
        let since = sum().since(&earlier);
        assert_eq!((since.of(Count::Turns), since.of(Count::Reads)), (0, 1));
    }

    #[test]
    fn a_rate_is_the_mean_of_its_samples() {
        let rates = Rates::default();
        for step in 0..=16_u64 {
            rates.sample(1_000 + step * 100, [step * 50, 0, step, 0, 0]);
        }
        let [requests, input, output, ..] = rates.per_second();
        assert!((requests - 500.0).abs() < 1e-6, "{requests}");
        assert!(input.abs() < 1e-6);
        assert!((output - 10.0).abs() < 1e-6, "{output}");
    }

    #[test]
    fn samples_too_close_together_are_not_taken() {
        let rates = Rates::default();
        rates.sample(1_000, [0; RATES]);
        rates.sample(1_050, [1_000_000; RATES]);
        assert_eq!(rates.per_second(), [0.0; RATES]);
    }
}
