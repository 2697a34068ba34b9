//! The few configured limits that commands check, shared by all workers.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use protocol::Limits;
use structures::ELEMENT_BYTES_MAX;

use crate::thresholds::Thresholds;

/// Written by CONFIG SET, read by any worker; every field by itself.
#[derive(Debug)]
pub struct Settings {
    /// `proto-max-bulk-len`: longest argument, and longest string a command may make.
    pub bulk_bytes_max: AtomicU64,
    /// Beyond how many bytes a client that is no subscriber is closed instead of being sent them at once; 0 for never.
    pub replies_bytes_max: AtomicU64,
    /// Most arguments of one request; no directive, but what is applied again may have more.
    pub arguments_max: AtomicU32,
    /// Which use of a record the memory policy keeps: a [`UseClock`].
    pub use_clock: AtomicU8,
    /// `rdbcompression`: whether DUMP compresses long texts.
    pub compresses_dumps: AtomicBool,
    /// Whether values leave memory as soon as the command is done that used them: the strictest test of all that
    /// brings them back.
    pub demotes_always: AtomicBool,
    /// Sizes at which collections change their form.
    pub thresholds: Thresholds,
}

/// What is kept about the use of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UseClock {
    /// When it was used last, or nothing.
    Recency,
    /// How often it is used (`*-lfu`).
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
    /// Longest string a command may make, in bytes.
    #[inline]
    #[must_use]
    pub fn string_bytes_max(&self) -> u64 {
        self.bulk_bytes_max.load(Ordering::Relaxed)
    }

    /// What a value of the dump format is read into.
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

    /// What is kept about the use of a record.
    #[must_use]
    pub fn use_clock(&self) -> UseClock {
        if self.use_clock.load(Ordering::Relaxed) == UseClock::Frequency as u8 {
            UseClock::Frequency
        } else {
            UseClock::Recency
        }
    }

    /// Says what is kept about the use of a record.
    pub fn set_use_clock(&self, clock: UseClock) {
        self.use_clock.store(clock as u8, Ordering::Relaxed);
    }
}
