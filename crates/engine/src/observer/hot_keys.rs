//! Which keys are asked for most, found out all the time by looking at one request in
//! [`REQUESTS_PER_SAMPLE`].
//!
//! The keys of samples are counted in a table of [`KEYS_MAX`] (space-saving: Metwally, Agrawal,
//! El Abbadi 2005): a key that is not in it takes the place of the one that is rarest, and its count
//! too, remembered as what the count may be too high by. So a key that gets more than a
//! `KEYS_MAX`th part of all requests is in it for sure. Counts are of two windows of
//! [`WINDOW_SECONDS`], the running one and the one before, so that what was hot is forgotten.

use std::sync::{Mutex, MutexGuard, PoisonError};

use store::DatabaseId;

/// One request in so many is looked at, on average.
pub const REQUESTS_PER_SAMPLE: u64 = 1024;
/// Keys that are counted at a time.
const KEYS_MAX: usize = 128;
const WINDOW_SECONDS: u64 = 10;
/// Keys up to this length find memory ready.
const KEY_BYTES_USUAL: usize = 64;
/// Longer keys are not counted: they would make the table large.
const KEY_BYTES_MAX: usize = 1024;

/// A key that is asked for often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// Its database.
    pub database: DatabaseId,
    /// The key.
    pub key: Box<[u8]>,
    /// Samples it was in, at least.
    pub samples: u64,
}

/// The keys that were asked for most in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotKeyReport {
    /// Most frequent first.
    pub keys: Vec<HotKey>,
    /// Samples altogether, those without a key included.
    pub samples: u64,
    /// In how many seconds they were taken.
    pub seconds: u64,
}

impl HotKeyReport {
    /// How often a key was asked for in a second, and its part of all requests in hundredths.
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
    /// [`KEYS_MAX`] of them, with memory for keys of usual length: counting allocates nothing.
    places: Box<[Counted]>,
    /// So many of them hold a key, the first ones.
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
    /// What the count may be too high by.
    error: u64,
}

/// Counts of the running window and of the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    current: u64,
    previous: u64,
}

impl Windows {
    fn sum(self) -> u64 {
        self.current + self.previous
    }

    /// Lets so many windows pass.
    fn pass(&mut self, windows: u64) {
        *self = Self {
            current: 0,
            previous: if windows == 1 { self.current } else { 0 },
        };
    }
}

impl HotKeys {
    /// Counts the first key of a request that was drawn; nothing when somebody else counts right now.
    pub(crate) fn add(&self, now_s: u64, database: DatabaseId, key: Option<(&[u8], u64)>) {
        if let Ok(mut table) = self.table.try_lock() {
            table.pass_to(now_s);
            table.samples.current += 1;
            if let Some((key, hash)) = key.filter(|(key, _)| key.len() <= KEY_BYTES_MAX) {
                table.count(database, key, hash);
            }
        }
    }

    /// What was asked for most, `count` keys at most.
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

    /// Begins the windows that have begun since the last call.
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
        // The memory of the key that was there is used again.
        if let Some(place) = rarest {
            place.error = place.count.sum();
            place.count.current += 1;
            (place.hash, place.database) = (hash, database);
            place.key.clear();
            place.key.extend_from_slice(key);
        }
    }

    /// So many seconds the counts are of.
    fn seconds(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.window_started_s).max(1)
    }
}

impl Counted {
    /// The key with what its count is at least, if that is more than once.
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
