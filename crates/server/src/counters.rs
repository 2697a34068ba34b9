//! What the server counts, beyond what the store and the engines count.
//!
//! Every worker writes cells of its own and readers sum them, so counting never moves a cache line
//! between cores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A number that one thread at a time adds to and any thread reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction: right only for the cell's one writer.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0
            .store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds from any thread.
    pub fn add_shared(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum so far.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Starts again at `value`.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// The cells of one worker, padded so that two workers never share a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerCounters {
    /// Requests executed.
    pub requests: Counter,
    /// Bytes received.
    pub input_bytes: Counter,
    /// Bytes replied.
    pub output_bytes: Counter,
    /// Connections taken in.
    pub connections: Counter,
    /// Loop turns.
    pub turns: Counter,
    /// Batches read from sockets.
    pub reads: Counter,
    /// Replies flushed to sockets.
    pub writes: Counter,
    /// Clients closed because of their query buffer.
    pub query_limit_closes: Counter,
    /// Clients closed because of their output buffer.
    pub output_limit_closes: Counter,
    /// Clients closed because the client memory cap was reached.
    pub evicted_clients: Counter,
}

impl WorkerCounters {
    /// CONFIG RESETSTAT.
    pub fn reset(&self) {
        for cell in [
            &self.requests,
            &self.input_bytes,
            &self.output_bytes,
            &self.connections,
            &self.turns,
            &self.reads,
            &self.writes,
            &self.query_limit_closes,
            &self.output_limit_closes,
            &self.evicted_clients,
        ] {
            cell.set(0);
        }
    }
}

/// Rates of the last moments, as INFO's `instantaneous_*` fields show them.
#[derive(Debug, Default)]
pub struct Rates {
    state: Mutex<RateState>,
}

#[derive(Debug, Default)]
struct RateState {
    last_ms: u64,
    last: [u64; 3],
    samples: [[f64; 3]; RATE_SAMPLES],
    next: usize,
}

/// Samples that a rate is the mean of.
const RATE_SAMPLES: usize = 16;
/// Least time between two samples.
const RATE_INTERVAL_MS: u64 = 100;

impl Rates {
    /// Takes a sample of sums (requests, input bytes, output bytes) if the last one is old enough.
    #[allow(clippy::cast_precision_loss, reason = "a rate shown to people")]
    pub fn sample(&self, now_ms: u64, sums: [u64; 3]) {
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

    /// Means per second: requests, input bytes, output bytes.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "sixteen samples")]
    pub fn per_second(&self) -> [f64; 3] {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut means = [0.0; 3];
        for sample in &state.samples {
            for (mean, value) in means.iter_mut().zip(sample) {
                *mean += value / RATE_SAMPLES as f64;
            }
        }
        means
    }

    /// Forgets the samples.
    pub fn reset(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = RateState::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_of_its_samples() {
        let rates = Rates::default();
        for step in 0..=16_u64 {
            rates.sample(1_000 + step * 100, [step * 50, 0, step]);
        }
        let [requests, input, output] = rates.per_second();
        assert!((requests - 500.0).abs() < 1e-6, "{requests}");
        assert!(input.abs() < 1e-6);
        assert!((output - 10.0).abs() < 1e-6, "{output}");
    }

    #[test]
    fn samples_too_close_together_are_not_taken() {
        let rates = Rates::default();
        rates.sample(1_000, [0; 3]);
        rates.sample(1_050, [1_000_000; 3]);
        assert_eq!(rates.per_second(), [0.0; 3]);
    }
}
