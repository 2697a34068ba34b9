//! The thread that slowly reads all segments again, to find damage before a value is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tier::Tier;

use super::Around;
use super::tuning::Tuning;
use crate::rest::Rest;

/// Time between two rounds, and between two checks of a rate of 0.
const REST: Duration = Duration::from_secs(1);

/// Number of bytes that are read between two pauses.
const PIECE_BYTES: u64 = 256 << 10;

/// See the module documentation.
pub(super) struct Scrubber {
    tier: Arc<Tier>,
    tuning: Arc<Tuning>,
    entries: AtomicU64,
    damaged: AtomicU64,
    rest: Rest,
}

impl Scrubber {
    pub(super) fn new(tier: &Arc<Tier>, tuning: &Arc<Tuning>) -> Self {
        Self {
            tier: Arc::clone(tier),
            tuning: Arc::clone(tuning),
            entries: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            rest: Rest::default(),
        }
    }

    /// Returns the number of entries read, and of segments with damage, since the start.
    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.entries), count(&self.damaged))
    }

    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Reads one segment after the other, until it is stopped.
    pub(super) fn run(&self, around: &Around) {
        let mut last = 0;
        while !self.rest.is_over() {
            if self.tuning.now().scrub_bytes_per_second == 0 {
                self.rest.sleep(REST);
                continue;
            }
            let mut read = 0;
            let next = self.tier.scrub_after(last, &mut |bytes| {
                self.entries.fetch_add(1, Ordering::Relaxed);
                read += bytes;
                if read >= PIECE_BYTES {
                    self.pace(read);
                    read = 0;
                }
                !self.rest.is_over()
            });
            match next {
                None => {
                    last = 0;
                    self.read_dictionaries(around);
                    self.rest.sleep(REST);
                }
                Some((ordinal, outcome)) => {
                    last = ordinal;
                    self.pace(read);
                    if let Err(fault) = outcome {
                        self.damaged.fetch_add(1, Ordering::Relaxed);
                        around
                            .log
                            .warning(format_args!("A segment of the tier is damaged: {fault}"));
                    }
                }
            }
        }
    }

    /// Reads the dictionaries; called once per round.
    fn read_dictionaries(&self, around: &Around) {
        for fault in self.tier.scrub_dictionaries() {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            around
                .log
                .warning(format_args!("A dictionary of the tier is damaged: {fault}"));
        }
    }

    /// Pauses for as long as `bytes` should take at the configured rate.
    fn pace(&self, bytes: u64) {
        let mut left = bytes;
        while left > 0 && !self.rest.is_over() {
            // At most a second at a time, because the rate may change meanwhile.
            let rate = self.tuning.now().scrub_bytes_per_second;
            let paid = left.min(rate);
            let time = match rate {
                0 => REST,
                rate => Duration::from_micros(paid.saturating_mul(1_000_000) / rate),
            };
            self.rest.sleep(time);
            left -= paid;
        }
    }
}
