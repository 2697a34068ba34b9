//! The loading of data as clients see it: whether it is in progress, how far it is, and how long it
//! may take.
//!
//! The loading code reports its begin and end and counts what it read; any thread may show it in
//! INFO.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::loader::LoadProgress;

/// Figures of the last loading.
#[derive(Debug, Default)]
pub struct Loading {
    goes_on: AtomicBool,
    began_unix_ms: AtomicU64,
    total_bytes: AtomicU64,
    loaded_bytes: AtomicU64,
    keys_loaded: AtomicU64,
    keys_expired: AtomicU64,
    /// What was read of the parts of a checkpoint.
    parts: LoadProgress,
}

/// The progress of a loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether it is in progress.
    pub goes_on: bool,
    /// When it began.
    pub began_unix_ms: u64,
    /// Bytes to read.
    pub total_bytes: u64,
    /// Bytes read.
    pub loaded_bytes: u64,
}

impl Loading {
    /// Begins a loading of `total_bytes`.
    pub fn begin(&self, total_bytes: u64, now_unix_ms: u64) {
        for (cell, value) in [
            (&self.began_unix_ms, now_unix_ms),
            (&self.total_bytes, total_bytes),
            (&self.loaded_bytes, 0),
            (&self.keys_loaded, 0),
            (&self.keys_expired, 0),
            (&self.parts.records, 0),
            (&self.parts.bytes, 0),
        ] {
            cell.store(value, Ordering::Relaxed);
        }
        self.goes_on.store(true, Ordering::Release);
    }

    /// Ends the loading, however much of it was read.
    pub fn end(&self) {
        self.goes_on.store(false, Ordering::Release);
    }

    /// Returns the counters for the loader of a checkpoint.
    #[must_use]
    pub fn parts(&self) -> &LoadProgress {
        &self.parts
    }

    /// Adds bytes that were found to be read.
    pub fn add_total(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that were read.
    pub fn add_bytes(&self, bytes: u64) {
        self.loaded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds keys that were put into the store, and others that were left out because they had
    /// expired.
    pub fn add_keys(&self, loaded: u64, expired: u64) {
        self.keys_loaded.fetch_add(loaded, Ordering::Relaxed);
        self.keys_expired.fetch_add(expired, Ordering::Relaxed);
    }

    /// Returns the numbers of loaded keys, and of those left out because they had expired.
    #[must_use]
    pub fn keys(&self) -> [u64; 2] {
        let of = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let loaded = of(&self.keys_loaded) + of(&self.parts.records);
        [loaded, of(&self.keys_expired)]
    }

    /// Returns the progress.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            goes_on: self.goes_on.load(Ordering::Acquire),
            began_unix_ms: self.began_unix_ms.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            loaded_bytes: self.loaded_bytes.load(Ordering::Relaxed)
                + self.parts.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Progress {
    /// Returns the percentage that was read.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "shown with two digits")]
    pub fn percent(&self) -> f64 {
        if self.total_bytes == 0 {
            return 0.0;
        }
        let part = self.loaded_bytes as f64 * 100.0 / self.total_bytes as f64;
        part.min(100.0)
    }

    /// Returns the seconds until the end at the present speed; 1 while that is unknown, and 0 if
    /// nothing is loaded.
    #[must_use]
    pub fn eta_seconds(&self, now_unix_ms: u64) -> u64 {
        if !self.goes_on {
            return 0;
        }
        let elapsed_ms = u128::from(now_unix_ms.saturating_sub(self.began_unix_ms));
        if self.loaded_bytes == 0 || elapsed_ms == 0 {
            return 1;
        }
        let left = u128::from(self.total_bytes.saturating_sub(self.loaded_bytes));
        let left_ms = elapsed_ms * left / u128::from(self.loaded_bytes);
        u64::try_from(left_ms.div_ceil(1000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_was_read() {
        let loading = Loading::default();
        assert_eq!(loading.progress().eta_seconds(5), 0);
        loading.begin(1_000, 10_000);
        assert_eq!(loading.progress().eta_seconds(12_000), 1);
        loading.add_bytes(250);
        let progress = loading.progress();
        assert!((progress.percent() - 25.0).abs() < 0.001);
        assert_eq!(progress.eta_seconds(10_000), 1);
        assert_eq!(progress.eta_seconds(12_000), 6);
        loading.add_total(250);
        assert_eq!(loading.progress().eta_seconds(12_000), 8);
        loading.end();
        let over = loading.progress();
        assert_eq!((over.eta_seconds(13_000), over.goes_on), (0, false));
    }

    #[test]
    fn what_was_loaded_is_known_until_the_next_time() {
        let loading = Loading::default();
        loading.begin(10, 1);
        loading.add_keys(3, 1);
        loading.add_keys(4, 0);
        loading.end();
        assert_eq!(loading.keys(), [7, 1]);
        loading.begin(10, 2);
        assert_eq!(loading.keys(), [0, 0]);
    }

    #[test]
    fn more_was_read_than_was_announced() {
        let progress = Progress {
            goes_on: true,
            total_bytes: 10,
            loaded_bytes: 20,
            began_unix_ms: 0,
        };
        assert!((progress.percent() - 100.0).abs() < 0.001);
        assert_eq!(progress.eta_seconds(1000), 0);
    }
}
