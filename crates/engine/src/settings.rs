//! The few configured limits that commands check. All workers share them.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use protocol::Limits;
use structures::ELEMENT_BYTES_MAX;

use crate::thresholds::Thresholds;

/// The limits, written by CONFIG SET and read by any worker, each by itself.
#[derive(Debug)]
pub struct Settings {
    /// `proto-max-bulk-len`: maximum length of an argument, and of a string that a command creates.
    pub bulk_bytes_max: AtomicU64,
    /// Output in bytes above which a client that is not a subscriber is closed instead of receiving
    /// it; 0 for never.
    pub replies_bytes_max: AtomicU64,
    /// Maximum number of arguments of a request. Not a directive, but replayed requests may have
    /// more.
    pub arguments_max: AtomicU32,
    /// What the memory policy records about the use of a key: a [`UseClock`].
    pub use_clock: AtomicU8,
    /// `rdbcompression`: whether DUMP compresses long texts.
    pub compresses_dumps: AtomicBool,
    /// Whether values leave memory directly after each command that used them: the strictest test
    /// of the code that brings them back.
    pub demotes_always: AtomicBool,
    /// Sizes at which collections change their encoding.
    pub thresholds: Thresholds,
}

/// What is recorded about the use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseClock {
    /// The time of its last use, or nothing.
    Recency,
    /// The frequency of its use (`*-lfu`).
    Frequency,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            bulk_bytes_max: AtomicU64::new(512 * 1024 * 1024),
            replies_bytes_max: AtomicU64::new(0),
            arguments_max: AtomicU32::new(Limits::default().multibulk_max),
            use_clock: AtomicU8::new(0),
            compresses_dumps: AtomicBool::new(true),
            demotes_always: AtomicBool::new(false),
            thresholds: Thresholds::default(),
        }
    }
}

impl Settings {
    /// Returns the maximum length of a string that a command creates, in bytes.
    #[inline]
    #[must_use]
    pub fn string_bytes_max(&self) -> u64 {
        self.bulk_bytes_max.load(Ordering::Relaxed)
    }

    /// Returns the limits for reading a value of the dump format.
    #[must_use]
    pub fn value_limits(&self) -> rdb::Limits {
        let thresholds = &self.thresholds;
        let string_bytes_max = usize::try_from(self.string_bytes_max()).unwrap_or(usize::MAX);
        rdb::Limits {
            string_bytes_max: string_bytes_max.min(ELEMENT_BYTES_MAX),
            list_blocks: thresholds.list_blocks(),
            hash: thresholds.hash_limits(),
            set: thresholds.set_limits(),
            sorted_set: thresholds.sorted_set_limits(),
            stream: thresholds.stream_blocks(),
        }
    }

    /// Returns what is recorded about the use of a key.
    #[must_use]
    pub fn use_clock(&self) -> UseClock {
        if self.use_clock.load(Ordering::Relaxed) == UseClock::Frequency as u8 {
            UseClock::Frequency
        } else {
            UseClock::Recency
        }
    }

    /// Sets what is recorded about the use of a key.
    pub fn set_use_clock(&self, clock: UseClock) {
        self.use_clock.store(clock as u8, Ordering::Relaxed);
    }
}
