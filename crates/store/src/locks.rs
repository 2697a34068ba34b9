//! Several keys at once: all their buckets are locked, in one order for all threads.
//!
//! The order is (database, position). A bucket is an interval of positions whatever the size of the
//! table, so the order stays right while the table grows; and a bucket that is held is not split.
//! Keys of one bucket are neighbours in the order; the bucket is locked once.
//!
//! If a thread meets a bucket that is held for long in the middle of its set, and has other work to
//! do, it releases what it holds and comes again ([`crate::parking`]).

use std::ops::ControlFlow;

use crate::index::{Home, Index};
use crate::indexed::Indexed;
use crate::key::{DatabaseId, Key};
use crate::local::Held;
use crate::parking::{BucketId, Busy, Hold, Wake};

/// For a set of at least this many keys, the table is grown first, because it cannot grow while the
/// set is held and chains would become long.
const READY_FROM_KEYS: usize = 64;

impl Indexed {
    /// Whether this thread holds a lock set, or the whole store.
    pub(crate) fn holds_several(&self) -> bool {
        self.is_alone() || !self.local.held.is_empty()
    }

    /// Locks the buckets of `keys`. This thread is inside and holds nothing.
    pub(crate) fn lock_set(&mut self, keys: &[Key<'_>]) {
        let locked = self.lock_each(keys, |index, hash| Some(index.lock(hash)));
        debug_assert!(locked.is_ok(), "it waits until it has them");
    }

    /// As [`Indexed::lock_set`], but holds nothing if the holder of one of them may take long.
    pub(crate) fn try_lock_set(&mut self, keys: &[Key<'_>], hold: Hold) -> Result<(), Busy> {
        let locked = self.lock_each(keys, Index::lock_unless_long);
        if locked.is_err() {
            self.release_held();
        } else if hold == Hold::Long {
            self.hold_long();
        }
        locked
    }

    fn lock_each(
        &mut self,
        keys: &[Key<'_>],
        lock: impl Fn(&Index, u64) -> Option<Home>,
    ) -> Result<(), Busy> {
        debug_assert!(self.local.held.is_empty());
        let mut places = std::mem::take(&mut self.places);
        places.extend(keys.iter().map(Key::position));
        places.sort_unstable();
        let mut rest = places.as_slice();
        let mut locked = Ok(());
        while let Some(&(database, _)) = rest.first() {
            let count = rest.partition_point(|place| place.0 == database);
            self.need_index(database);
            if count > READY_FROM_KEYS {
                let more = count as u64;
                self.grow(database, more, u32::try_from(count).unwrap_or(u32::MAX));
            }
            locked = self.lock_in_order(database, &rest[..count], &lock);
            if locked.is_err() {
                break;
            }
            rest = &rest[count..];
        }
        self.local.choose_side(&self.shared);
        places.clear();
        self.places = places;
        locked
    }

    /// Locks the buckets of the places of one database. The places are in order.
    fn lock_in_order(
        &mut self,
        database: DatabaseId,
        places: &[(DatabaseId, u64)],
        lock: impl Fn(&Index, u64) -> Option<Home>,
    ) -> Result<(), Busy> {
        let Some(index) = self.seen.get(database) else {
            unreachable!("made before");
        };
        let mut end = None;
        for &(_, position) in places {
            // By the depth that the held bucket had when it was locked; it keeps that depth.
            let is_held = end.is_some_and(|end: u64| end == 0 || position < end);
            if !is_held {
                let home = lock(index, position.reverse_bits()).ok_or(Busy)?;
                end = Some(home.end_position());
                self.local.held.push(Held {
                    database,
                    home,
                    changed: false,
                });
            }
        }
        Ok(())
    }

    /// Marks all held buckets as held for long. Inside a lock set without keys another set may be
    /// taken: both count as one, which ends with the first that is released.
    pub(crate) fn hold_long(&mut self) {
        if !std::mem::replace(&mut self.local.holds_long, true) {
            self.shared.parking.begin_long();
        }
        for held in &self.local.held {
            if let Some(index) = self.seen.get(held.database) {
                index.bucket(held.home.number).set_long();
            }
        }
    }

    /// Whether a key is in the lock set, or this thread has the whole store.
    pub(crate) fn holds(&self, key: &Key<'_>) -> bool {
        if self.is_alone() {
            return true;
        }
        let Some(index) = self.seen.get(key.database()) else {
            return false;
        };
        let home = index.state().home(key.hash());
        self.held_place(key.database(), home.first_position())
            .is_ok()
    }

    /// Adds keys to a lock set. They are locked out of order, so waiting for another thread might
    /// never end: the attempt is given up after a while.
    ///
    /// All changes made with the set belong to one side of a cut. If something was changed already,
    /// the set keeps its side. Then a bucket that a later cut has passed, or that has a record
    /// which the cut has passed, cannot be added.
    pub(crate) fn lock_more(&mut self, keys: &[Key<'_>]) -> Result<(), Busy> {
        for key in keys {
            if self.holds(key) {
                continue;
            }
            let database = key.database();
            self.need_index(database);
            let Some(index) = self.seen.get(database) else {
                return Err(Busy);
            };
            let home = index.lock_soon(key.hash()).ok_or(Busy)?;
            let bucket = index.bucket(home.number);
            let is_passed = || bucket.is_behind(self.local.generation) || index.has_saved(bucket);
            if self.is_before_cut() && is_passed() {
                bucket.unlock(false);
                return Err(Busy);
            }
            if self.local.holds_long {
                index.bucket(home.number).set_long();
            }
            let at = self
                .held_place(database, home.first_position())
                .unwrap_or_else(|at| at);
            let held = Held {
                database,
                home,
                changed: false,
            };
            self.local.held.insert(at, held);
        }
        if !self.has_changed_held() {
            self.local.choose_side(&self.shared);
        }
        Ok(())
    }

    /// Whether a cut was made since the set was taken, and the set belongs to the old side.
    fn is_before_cut(&self) -> bool {
        let sides = self.local.generation ^ self.shared.snapshots.generation();
        sides & 1 != 0 && self.has_changed_held()
    }

    fn has_changed_held(&self) -> bool {
        self.local.held.iter().any(|held| held.changed)
    }

    /// Returns the index of a bucket in the lock set, or the index at which it would be inserted.
    fn held_place(&self, database: DatabaseId, first_position: u64) -> Result<usize, usize> {
        let place = (database, first_position);
        let held = &self.local.held;
        held.binary_search_by_key(&place, |held| (held.database, held.home.first_position()))
    }

    /// Leaves a note at the first of `keys` that is held for long. Returns whether there is one; if
    /// not, `wake` is dropped.
    pub(crate) fn park(&mut self, keys: &[Key<'_>], wake: Wake) -> bool {
        debug_assert!(self.local.held.is_empty(), "waits with buckets held");
        let entered = self.enter();
        let parking = &self.shared.parking;
        let parked = keys.iter().try_fold(wake, |wake, key| {
            match self.seen.get(key.database()) {
                Some(index) => parking.park(index, key.hash(), wake),
                None => Err(wake),
            }
            .map_or_else(ControlFlow::Continue, ControlFlow::Break)
        });
        if entered {
            self.leave();
        }
        parked.is_break()
    }

    /// Releases all buckets of the lock set.
    pub(crate) fn release_held(&mut self) {
        self.local.tell_held_counts(&self.seen);
        for held in &self.local.held {
            if let Some(index) = self.seen.get(held.database) {
                index.bucket(held.home.number).unlock(held.changed);
            }
        }
        if self.local.holds_long {
            self.local.holds_long = false;
            self.shared.parking.end_long(self.places_held());
        }
        self.local.held.clear();
    }

    /// The buckets of the lock set.
    fn places_held(&self) -> impl Iterator<Item = BucketId> {
        self.local.held.iter().filter_map(|held| {
            let index = self.seen.get(held.database)?;
            Some(BucketId {
                index_id: index.id(),
                number: held.home.number,
            })
        })
    }

    /// Does the splits that could not be done while a set with keys of these databases was held.
    pub(crate) fn grow_after(&mut self, keys: &[Key<'_>]) {
        let mut last = None;
        for key in keys {
            if last.replace(key.database()) != Some(key.database()) {
                self.grow_after_set(key.database());
            }
        }
    }
}
