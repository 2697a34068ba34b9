//! Shrinking an index: the last bucket is merged into the one that it was split from.
//!
//! The reverse of [`crate::growth`], done in ticks once most records are gone. Both buckets are
//! tried, never waited for: if another thread uses one of them, or a snapshot has saved one and not
//! the other, the merge is done later. The records go to the lower bucket, the state is lowered,
//! then the lower bucket is released with its new depth and the upper one with a depth that no
//! search asks for. A thread that came to either with the old state sees the depth and looks again.
//!
//! Memory after the last bucket goes back to the system in steps, one step late, so that a table
//! that grows and shrinks does not request it again at once. It then reads as zero, which is a
//! bucket of depth 0. No late thread takes it for the bucket it looks for, because depth 0 exists
//! only in a table of one bucket.

pub(crate) mod state;

use base::sync::atomic::Ordering;

use crate::bucket::{BUCKET_BYTES, Bucket, LINKS, Link};
use crate::buckets::HUGE_FROM_BYTES;
use crate::growth::LOAD;
use crate::index::{Index, State};
use crate::indexed::Indexed;

/// Maximum number of merges in one tick: some tens of microseconds.
const MERGES_PER_TICK: i64 = 256;

/// The table begins to shrink when it has this many times the buckets that it needs …
const SPARE_TIMES: u64 = 4;
/// … and goes on until it has this many times.
const KEPT_TIMES: u64 = 2;

/// Memory of buckets goes back in steps of this many bytes …
const STEP_BYTES: u64 = 64 << 10;
/// … and in steps of this many where there are huge pages.
const HUGE_STEP_BYTES: u64 = 2 << 20;

/// How many buckets ahead are prefetched.
const BUCKETS_AHEAD: u64 = 4;

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The table has one bucket less.
    Done,
    /// Another thread splits or merges, or uses one of the two buckets.
    Busy,
    /// The table has its initial size.
    Small,
}

impl Indexed {
    /// Shrinks tables that are mostly empty, in a bounded step. Returns whether there is more to
    /// do.
    pub(crate) fn shrink_some(&mut self) -> bool {
        let (shared, local) = (&*self.shared, &mut *self.local);
        let mut left = MERGES_PER_TICK;
        for (database, index) in self.seen.iter() {
            while left > 0
                && index.wants_merge(local.keys_about(index, database))
                && index.merge() == Merge::Done
            {
                left -= 1;
            }
        }
        if left < MERGES_PER_TICK {
            local.count_buckets(shared, left - MERGES_PER_TICK);
        }
        left == 0
    }
}

impl Index {
    /// Whether the table should shrink, given that it has `keys` records.
    #[inline]
    pub(crate) fn wants_merge(&self, keys: u64) -> bool {
        let buckets = self.state().buckets();
        let keys = keys.max(self.shrinking.expected.load(Ordering::Relaxed));
        let is_on = self.shrinking.is_on.load(Ordering::Relaxed);
        let times = if is_on { KEPT_TIMES } else { SPARE_TIMES };
        let wants = buckets > 1 << self.shrinking.level_min
            && keys.saturating_mul(times) < buckets * u64::from(LOAD);
        if wants != is_on {
            self.shrinking.is_on.store(wants, Ordering::Relaxed);
        }
        wants
    }

    /// Merges the last bucket into the one that it was split from. The caller holds no bucket.
    pub(crate) fn merge(&self) -> Merge {
        if self.splitting.load(Ordering::Relaxed) || self.splitting.swap(true, Ordering::Acquire) {
            return Merge::Busy;
        }
        let outcome = self.merge_last();
        self.splitting.store(false, Ordering::Release);
        outcome
    }

    fn merge_last(&self) -> Merge {
        let smaller = match self.state().previous() {
            Some(smaller) if smaller.level >= self.shrinking.level_min => smaller,
            _ => return Merge::Small,
        };
        let Some(lower) = self.try_lock_number(smaller.split) else {
            return Merge::Busy;
        };
        let Some(upper) = self.try_lock_number(smaller.buckets()) else {
            lower.unlock(false);
            return Merge::Busy;
        };
        let moved = lower.is_on_side_of(upper) && self.move_links(upper, lower);
        if moved {
            lower.inherit_listeners(upper);
            if self.deadlines.is_noted(smaller.buckets()) {
                self.deadlines.note(smaller.split);
            }
            self.set_state(smaller);
            lower.unlock_split(smaller.level);
            upper.unlock_split(Bucket::DEAD_DEPTH);
            self.after_merge(smaller);
            Merge::Done
        } else {
            upper.unlock(false);
            // The chain may have become longer.
            lower.unlock(true);
            Merge::Busy
        }
    }

    /// Moves all links of one chain to another. Returns `false`, with nothing moved, if there are
    /// not enough overflow buckets.
    fn move_links(&self, from: &Bucket, to: &Bucket) -> bool {
        let mut count = 0;
        self.for_each(from, |_| count += 1);
        if !self.make_places(to, count) {
            return false;
        }
        self.for_each(from, |spot| {
            let placed = self.insert(to, spot.link);
            debug_assert!(placed.is_some(), "there were places for all");
            spot.bucket.set_link(spot.at, Link::NONE);
        });
        self.cut(from);
        true
    }

    /// Extends a chain until it has `count` free links. Returns whether it has.
    fn make_places(&self, home: &Bucket, count: usize) -> bool {
        let (mut free, mut last) = (0, home);
        loop {
            free += (0..LINKS)
                .filter(|&at| last.link(at).offset().is_none())
                .count();
            last = match self.after(last) {
                Some(next) => next,
                None if free >= count => return true,
                None => match self.extend(last) {
                    Some(next) => next,
                    None => return false,
                },
            };
        }
    }

    /// Returns memory that is no longer needed to the system, and prefetches what the next merge
    /// needs.
    fn after_merge(&self, state: State) {
        let buckets = state.buckets();
        let is_huge = buckets * BUCKET_BYTES as u64 >= HUGE_FROM_BYTES as u64;
        let step_bytes = if is_huge { HUGE_STEP_BYTES } else { STEP_BYTES };
        let step = step_bytes / BUCKET_BYTES as u64;
        if buckets.is_multiple_of(step) {
            self.shrinking.discards.fetch_add(1, Ordering::Relaxed);
            self.discard_buckets(buckets + step..buckets + 2 * step);
        }
        self.prefetch_number(buckets.saturating_sub(BUCKETS_AHEAD));
        self.prefetch_number(state.split.saturating_sub(BUCKETS_AHEAD));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::arena::Offset;
    use crate::growth::Split;
    use crate::index::Shape;

    fn index(overflow_max: usize) -> Index {
        let shape = Shape {
            level: 0,
            buckets_max: 1 << 16,
            overflow_max,
        };
        Index::new(1, shape, 0).unwrap()
    }

    /// In these tests the offset is the hash.
    fn hash_of(link: Link) -> u64 {
        link.offset().unwrap().bytes() / 16 - 1
    }

    fn insert(index: &Index, hash: u64) {
        let home = index.lock(hash);
        let bucket = index.bucket(home.number);
        let link = Link::new(hash, Offset::new((hash + 1) * 16).unwrap(), 0);
        index.insert(bucket, link).unwrap();
        bucket.unlock(true);
    }

    fn contains(index: &Index, hash: u64) -> bool {
        let home = index.lock(hash);
        let bucket = index.bucket(home.number);
        let found = index.find(bucket, hash, |link| hash_of(link) == hash);
        bucket.unlock(false);
        found.is_some()
    }

    fn grow_to(index: &Index, buckets: u64) {
        while index.state().buckets() < buckets {
            assert_eq!(index.split(hash_of, |_| ()), Split::Done);
        }
    }

    #[test]
    fn nothing_is_lost_on_the_way_down_and_up_again() {
        let index = index(1000);
        (0..500).for_each(|hash| insert(&index, hash));
        for _ in 0..2 {
            grow_to(&index, 200);
            while index.state().buckets() > 1 {
                assert_eq!(index.merge(), Merge::Done);
                if index.state().buckets().is_multiple_of(32) {
                    assert!((0..500).all(|hash| contains(&index, hash)));
                }
            }
            assert_eq!(index.merge(), Merge::Small);
            assert!((0..500).all(|hash| contains(&index, hash)));
        }
        grow_to(&index, 200);
        assert_eq!(index.overflow().in_use(), 0, "chains are recycled");
    }

    #[test]
    fn memory_given_back_is_good_for_buckets_again() {
        let index = index(1000);
        (0..100).for_each(|hash| insert(&index, hash));
        for _ in 0..2 {
            grow_to(&index, 10_000);
            assert!((0..100).all(|hash| contains(&index, hash)));
            while index.state().buckets() > 10 {
                assert_eq!(index.merge(), Merge::Done);
            }
            assert!(index.shrinking.era() > 0);
            assert!((0..100).all(|hash| contains(&index, hash)));
        }
    }

    #[test]
    fn without_overflow_buckets_a_merge_changes_nothing() {
        let index = index(2);
        grow_to(&index, 2);
        (0..2 * LINKS as u64 + 1).for_each(|hash| insert(&index, hash));
        assert_eq!(index.merge(), Merge::Busy);
        assert_eq!(index.state().buckets(), 2);
        assert!((0..2 * LINKS as u64 + 1).all(|hash| contains(&index, hash)));
    }

    #[test]
    fn a_bucket_in_use_is_not_merged() {
        let index = index(3);
        grow_to(&index, 2);
        for number in 0..2 {
            let home = index.lock(number);
            assert_eq!(index.merge(), Merge::Busy);
            index.bucket(home.number).unlock(false);
        }
        assert_eq!(index.merge(), Merge::Done);
    }

    #[test]
    fn what_a_snapshot_saved_is_kept_apart_from_what_it_has_not() {
        let index = index(3);
        grow_to(&index, 2);
        let home = index.lock(1);
        let bucket = index.bucket(home.number);
        bucket.set_inherited_bits();
        bucket.unlock(false);
        assert_eq!(index.merge(), Merge::Busy);
        let home = index.lock(0);
        let bucket = index.bucket(home.number);
        bucket.set_inherited_bits();
        bucket.unlock(false);
        assert_eq!(index.merge(), Merge::Done);
    }

    #[test]
    fn a_table_shrinks_by_half_of_what_it_has_to_spare() {
        let index = index(1000);
        grow_to(&index, 1000);
        assert!(!index.wants_merge(1000 * u64::from(LOAD) / SPARE_TIMES));
        let keys = 1000 * u64::from(LOAD) / SPARE_TIMES - 1;
        while index.wants_merge(keys) {
            assert_eq!(index.merge(), Merge::Done);
        }
        let buckets = index.state().buckets();
        assert!((490..510).contains(&buckets), "{buckets}");
        assert!(!index.wants_merge(keys - 100), "not again for a little");
    }
}
