//! The keys that are requested most, found by continuous sampling of one request in
//! [`REQUESTS_PER_SAMPLE`].
//!
//! The keys of samples are counted in a table of [`KEYS_MAX`] entries (space-saving: Metwally,
//! Agrawal, El Abbadi 2005). A key that is not in the table replaces the rarest one and inherits
//! its count, which is remembered as the possible error. So a key with more than a `KEYS_MAX`th of
//! all requests is certainly in the table. Counts cover two windows of [`WINDOW_SECONDS`], the
//! current one and the previous one, so that formerly hot keys are forgotten.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::DatabaseId;

/// Average number of requests per sampled request.
pub const REQUESTS_PER_SAMPLE: u64 = 1024;
/// Number of keys that are counted at a time.
const KEYS_MAX: usize = 128;
const WINDOW_SECONDS: u64 = 10;
/// Length of keys for which memory is allocated in advance.
const KEY_BYTES_USUAL: usize = 64;
/// Maximum length of a counted key: longer keys would make the table large.
const KEY_BYTES_MAX: usize = 1024;

/// A key that is requested often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Its database.
    pub database: DatabaseId,
    /// The key.
    pub key: Box<[u8]>,
    /// Minimum number of samples that contained it.
    pub samples: u64,
}

/// The keys that were requested most in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeyReport {
    /// Most frequent first.
    pub keys: Vec<HotKey>,
    /// Total number of samples, including those without a key.
    pub samples: u64,
    /// The period of the samples in seconds.
    pub seconds: u64,
}

impl HotKeyReport {
    /// Returns a key's requests per second, and its percentage of all requests.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn rate_of(&self, key: &HotKey) -> (u64, f64) {
        let requests = key.samples.saturating_mul(REQUESTS_PER_SAMPLE);
        let percent = key.samples as f64 * 100.0 / self.samples.max(1) as f64;
        (requests / self.seconds.max(1), percent)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct HotKeys {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// [`KEYS_MAX`] entries, with memory for keys of usual length: counting allocates nothing.
    places: Box<[Counted]>,
    /// Number of entries at the front that hold a key.
    keys_count: usize,
    window: u64,
    window_started_s: u64,
    samples: Windows,
}

#[derive(Debug, Default)]
struct Counted {
    hash: u64,
    database: DatabaseId,
    key: Vec<u8>,
    count: Windows,
    /// Maximum error of the count.
    error: u64,
}

/// Counts of the current window and of the previous one.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    current: u64,
    previous: u64,
}

impl Windows {
    fn sum(self) -> u64 {
        self.current + self.previous
    }

    /// Advances by this many windows.
    fn pass(&mut self, windows: u64) {
        *self = Self {
            current: 0,
            previous: if windows == 1 { self.current } else { 0 },
        };
    }
}

impl HotKeys {
    /// Counts the first key of a sampled request. Does nothing if another thread is counting right
    /// now.
    pub(crate) fn add(&self, now_s: u64, database: DatabaseId, key: Option<(&[u8], u64)>) {
        if let Ok(mut table) = self.table.try_lock() {
            table.pass_to(now_s);
            table.samples.current += 1;
            if let Some((key, hash)) = key.filter(|(key, _)| key.len() <= KEY_BYTES_MAX) {
                table.count(database, key, hash);
            }
        }
    }

    /// Returns the keys that were requested most, at most `count`.
    #[must_use]
    pub fn report(&self, now_s: u64, count: usize) -> HotKeyReport {
        let mut table = self.lock();
        table.pass_to(now_s);
        let mut keys: Vec<HotKey> = table.keys().iter().filter_map(Counted::certain).collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.samples));
        keys.truncate(count);
        HotKeyReport {
            keys,
            samples: table.samples.sum(),
            seconds: table.seconds(now_s),
        }
    }

    /// Forgets everything.
    pub fn reset(&self) {
        *self.lock() = Table::default();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Table {
    fn default() -> Self {
        let place = || Counted {
            key: Vec::with_capacity(KEY_BYTES_USUAL),
            ..Counted::default()
        };
        Self {
            places: std::iter::repeat_with(place).take(KEYS_MAX).collect(),
            keys_count: 0,
            window: 0,
            window_started_s: 0,
            samples: Windows::default(),
        }
    }
}

impl Table {
    /// The keys that are counted.
    fn keys(&self) -> &[Counted] {
        self.places.get(..self.keys_count).unwrap_or_default()
    }

    fn keys_mut(&mut self) -> &mut [Counted] {
        self.places.get_mut(..self.keys_count).unwrap_or_default()
    }

    /// Advances to the window of the current time.
    fn pass_to(&mut self, now_s: u64) {
        let window = now_s / WINDOW_SECONDS;
        let passed = window.saturating_sub(self.window);
        if passed == 0 {
            return;
        }
        if self.window == 0 || passed > 1 {
            self.window_started_s = now_s;
        } else if self.samples.previous > 0 || self.samples.current > 0 {
            self.window_started_s = self.window_started_s.max((window - 1) * WINDOW_SECONDS);
        }
        self.window = window;
        self.samples.pass(passed);
        let mut kept = 0;
        for at in 0..self.keys_count {
            let key = &mut self.places[at];
            key.count.pass(passed);
            key.error = key.error.min(key.count.sum());
            if key.count.sum() > 0 {
                self.places.swap(kept, at);
                kept += 1;
            }
        }
        self.keys_count = kept;
    }

    fn count(&mut self, database: DatabaseId, key: &[u8], hash: u64) {
        let is_it = |counted: &&mut Counted| {
            counted.hash == hash && counted.database == database && *counted.key == *key
        };
        if let Some(counted) = self.keys_mut().iter_mut().find(is_it) {
            counted.count.current += 1;
            return;
        }
        if self.keys_count < KEYS_MAX {
            self.places[self.keys_count].count = Windows::default();
            self.keys_count += 1;
        }
        let rarest = self.keys_mut().iter_mut().min_by_key(|key| key.count.sum());
        // The replaced key's memory is reused.
        if let Some(place) = rarest {
            place.error = place.count.sum();
            place.count.current += 1;
            (place.hash, place.database) = (hash, database);
            place.key.clear();
            place.key.extend_from_slice(key);
        }
    }

    /// Returns the number of seconds that the counts cover.
    fn seconds(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.window_started_s).max(1)
    }
}

impl Counted {
    /// Returns the key with its guaranteed minimum count, if that is more than one.
    fn certain(&self) -> Option<HotKey> {
        let samples = self.count.sum().saturating_sub(self.error);
        (samples > 1).then(|| HotKey {
            database: self.database,
            key: self.key.as_slice().into(),
            samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_a_tenth_of_the_requests_is_found_among_many() {
        let hot_keys = HotKeys::default();
        for number in 0..20_000_u64 {
            let key = if number % 10 == 0 { 0 } else { number };
            let text = key.to_string();
            hot_keys.add(1_000 + number / 4_000, 3, Some((text.as_bytes(), key)));
        }
        let report = hot_keys.report(1_005, 5);
        assert_eq!(report.samples, 20_000);
        let first = &report.keys[0];
        assert_eq!((&*first.key, first.database), (&b"0"[..], 3));
        assert!((1_900..=2_000).contains(&first.samples), "{first:?}");
        let (rate, percent) = report.rate_of(first);
        assert!(
            rate > 90_000 && (9.0..10.1).contains(&percent),
            "{rate} {percent}"
        );
    }

    #[test]
    fn what_was_hot_is_forgotten() {
        let hot_keys = HotKeys::default();
        for _ in 0..100 {
            hot_keys.add(1_000, 0, Some((b"old", 1)));
        }
        assert_eq!(hot_keys.report(1_012, 5).keys.len(), 1);
        assert!(hot_keys.report(1_025, 5).keys.is_empty());
        hot_keys.add(1_030, 0, Some((&[b'x'; KEY_BYTES_MAX + 1], 1)));
        hot_keys.reset();
        assert_eq!(hot_keys.report(1_031, 5).samples, 0);
    }
}
