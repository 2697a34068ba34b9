//! The thread that reads all segments again, slowly, so that damage is known before a value is wanted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tier::Tier;

use super::Around;
use super::tuning::Tuning;

/// Between two rounds, and between two looks at a rate of nothing.
const REST: Duration = Duration::from_secs(1);

/// It rests whenever so many bytes were read.
const PIECE_BYTES: u64 = 256 << 10;

/// See the module.
pub(super) struct Scrubber {
    tier: Arc<Tier>,
    tuning: Arc<Tuning>,
    entries: AtomicU64,
    damaged: AtomicU64,
    is_over: AtomicBool,
    rest: Mutex<()>,
    ends: Condvar,
}

impl Scrubber {
    pub(super) fn new(tier: &Arc<Tier>, tuning: &Arc<Tuning>) -> Self {
        Self {
            tier: Arc::clone(tier),
            tuning: Arc::clone(tuning),
            entries: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            rest: Mutex::default(),
            ends: Condvar::new(),
        }
    }

    /// Entries that were read, and segments in which something was damaged, since the start.
    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.entries), count(&self.damaged))
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ends.notify_all();
    }

    /// Reads one segment after the other, until it is over.
    pub(super) fn run(&self, around: &Around) {
        let mut last = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if self.tuning.now().scrub_bytes_per_second == 0 {
                self.rest(REST);
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
                !self.is_over.load(Ordering::Relaxed)
            });
            match next {
                None => {
                    last = 0;
                    self.rest(REST);
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

    /// Rests for as long as so many bytes are to take.
    fn pace(&self, bytes: u64) {
        let rate = self.tuning.now().scrub_bytes_per_second.max(1);
        self.rest(Duration::from_micros(
            bytes.saturating_mul(1_000_000) / rate,
        ));
    }

    fn rest(&self, time: Duration) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let resting = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        // Who wakes early reads on, no harm done.
        let _woken = self.ends.wait_timeout(resting, time);
    }
}
