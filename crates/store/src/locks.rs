//! Several keys at once: all their buckets are locked, in one order for all threads.
//!
//! The order is (database, position). A bucket is an interval of positions whatever the size of the
//! table, so the order stays right while the table grows, and a bucket that is held is not split.
//! Keys of one bucket are neighbours in the order; the bucket is locked once.

use crate::indexed::Indexed;
use crate::key::{DatabaseId, Key};
use crate::local::Held;

/// A set of more keys than this makes the table ready for them first, for it cannot grow while the
/// set is held and chains would become long.
const READY_FROM_KEYS: usize = 64;

impl Indexed {
    /// Whether a lock set is held, or the whole store.
    pub(crate) fn holds_several(&self) -> bool {
        self.is_alone() || !self.local.held.is_empty()
    }

    /// Locks the buckets of `keys`. This thread is inside and holds nothing.
    pub(crate) fn lock_set(&mut self, keys: &[Key<'_>]) {
        debug_assert!(self.local.held.is_empty());
        let mut places = std::mem::take(&mut self.places);
        places.extend(keys.iter().map(Key::position));
        places.sort_unstable();
        let mut rest = places.as_slice();
        while let Some(&(database, _)) = rest.first() {
            let count = rest.partition_point(|place| place.0 == database);
            self.need_index(database);
            if count > READY_FROM_KEYS {
                let more = count as u64;
                self.grow(database, more, u32::try_from(count).unwrap_or(u32::MAX));
            }
            self.lock_in_order(database, &rest[..count]);
            rest = &rest[count..];
        }
        self.local.choose_side(&self.shared);
        places.clear();
        self.places = places;
    }

    /// Locks what the places of one database lie in, which are in order.
    fn lock_in_order(&mut self, database: DatabaseId, places: &[(DatabaseId, u64)]) {
        let Some(index) = self.seen.get(database) else {
            unreachable!("made before");
        };
        let mut end = None;
        for &(_, position) in places {
            // By the depth that the held bucket had when it was locked, which it keeps.
            let is_held = end.is_some_and(|end: u64| end == 0 || position < end);
            if !is_held {
                let home = index.lock(position.reverse_bits());
                end = Some(home.end_position());
                self.local.held.push(Held {
                    database,
                    home,
                    changed: false,
                });
            }
        }
    }

    /// Gives all buckets of the lock set back.
    pub(crate) fn release_held(&mut self) {
        for held in &self.local.held {
            if let Some(index) = self.seen.get(held.database) {
                index.bucket(held.home.number).unlock(held.changed);
            }
        }
        self.local.held.clear();
    }

    /// Makes up for what could not be split while a set with keys of these databases was held.
    pub(crate) fn grow_after(&mut self, keys: &[Key<'_>]) {
        let mut last = None;
        for key in keys {
            if last.replace(key.database()) != Some(key.database()) {
                self.grow_after_set(key.database());
            }
        }
    }
}
