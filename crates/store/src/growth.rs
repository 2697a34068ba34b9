//! Growing an index: one bucket is split into two at a time.
//!
//! The thread that inserted does the split, after it has released its own bucket. It holds no lock
//! but that of the bucket that it splits, and gives up if another thread splits or uses that
//! bucket. So an operation pays for at most a few splits, and no thread waits.
//!
//! The new bucket is built where no thread can find it yet, then the state is raised, then the old
//! bucket is released with its new depth. A thread that came to the old bucket with the old state
//! sees the depth and looks again.

use base::sync::atomic::Ordering;

use crate::bucket::{Bucket, LINKS, Link};
use crate::index::Index;

/// Records per bucket at which the table grows. Measured: at 5 of 7 a lookup is 2 ns slower than at
/// 3; at 6 a fifth of the buckets overflow.
pub(crate) const LOAD: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 5 };

/// How many buckets ahead of the split are prefetched, and of how many of these the records are.
const BUCKETS_AHEAD: u64 = 8;
const RECORDS_AHEAD: u64 = 4;

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// The table has one more bucket.
    Done,
    /// Another thread splits, or uses the next bucket to split.
    Busy,
    /// There is no space for more buckets.
    Full,
}

impl Index {
    /// Whether the table should grow to hold `keys` records.
    #[inline]
    pub(crate) fn wants_split(&self, keys: u64) -> bool {
        keys > self.state().buckets() * u64::from(LOAD)
    }

    /// Splits the next bucket. The caller holds no bucket. `hash_of` returns the hash of the key
    /// that a link leads to, and `prefetch` prefetches the record that a link names.
    pub(crate) fn split(
        &self,
        hash_of: impl FnMut(Link) -> u64,
        prefetch: impl FnMut(Link),
    ) -> Split {
        if self.splitting.load(Ordering::Relaxed) || self.splitting.swap(true, Ordering::Acquire) {
            return Split::Busy;
        }
        let outcome = self.split_next(hash_of, prefetch);
        self.splitting.store(false, Ordering::Release);
        outcome
    }

    fn split_next(
        &self,
        mut hash_of: impl FnMut(Link) -> u64,
        prefetch: impl FnMut(Link),
    ) -> Split {
        let state = self.state();
        if !self.has_room(state) {
            return Split::Full;
        }
        let Some(source) = self.try_lock_number(state.split) else {
            return Split::Busy;
        };
        let depth = state.level + 1;
        let target_number = state.buckets();
        self.before_first_use(target_number);
        let target = self.bucket(target_number);
        target.renew(self.shrinking.era());
        target.begin(depth, source.word());
        let moves = |link: Link| hash_of(link) >> state.level & 1 != 0;
        if self.distribute(source, target, moves) {
            if self.deadlines.is_noted(state.split) {
                self.deadlines.note(target_number);
            }
            self.set_state(state.next());
            source.unlock_split(depth);
            self.look_ahead(state.split, prefetch);
            Split::Done
        } else {
            source.unlock(true);
            Split::Full
        }
    }

    /// Moves the links of a chain for which `moves` returns true to a new chain. Returns `false`,
    /// with nothing moved, if there are not enough overflow buckets.
    fn distribute(
        &self,
        source: &Bucket,
        target: &Bucket,
        mut moves: impl FnMut(Link) -> bool,
    ) -> bool {
        if !self.reserve_chain(source, target, &mut moves) {
            return false;
        }
        let (mut stay, mut go) = (Writing::new(source), Writing::new(target));
        let mut next = Some(source);
        while let Some(bucket) = next {
            for at in 0..LINKS {
                let link = bucket.link(at);
                if link.offset().is_none() {
                    continue;
                }
                // Writing never overtakes reading: at most the link just read is overwritten.
                let writing = if moves(link) { &mut go } else { &mut stay };
                writing.put(self, link);
            }
            next = self.after(bucket);
        }
        stay.finish(self);
        go.finish(self);
        true
    }

    /// Gives the new chain as many buckets as it will need.
    fn reserve_chain(
        &self,
        source: &Bucket,
        target: &Bucket,
        moves: &mut impl FnMut(Link) -> bool,
    ) -> bool {
        (0..LINKS).for_each(|at| target.set_link(at, Link::NONE));
        if source.overflow() == 0 {
            return true;
        }
        let mut count = 0_usize;
        self.for_each(source, |spot| count += usize::from(moves(spot.link)));
        for _ in 1..count.div_ceil(LINKS) {
            let Some(number) = self.overflow().take() else {
                self.cut(target);
                return false;
            };
            // Inserted at the front; the order does not matter, because all of them are empty.
            let bucket = self.overflow().get(number);
            bucket
                .into_iter()
                .for_each(|bucket| bucket.set_overflow(target.overflow()));
            target.set_overflow(number);
        }
        true
    }

    /// Prefetches what the next splits need.
    fn look_ahead(&self, split: u64, mut prefetch: impl FnMut(Link)) {
        let live = self.state().buckets();
        self.prefetch_number((split + BUCKETS_AHEAD).min(live - 1));
        if split + RECORDS_AHEAD < live {
            let bucket = self.bucket(split + RECORDS_AHEAD);
            (0..LINKS).for_each(|at| prefetch(bucket.link(at)));
        }
    }
}

/// Fills a chain from its beginning.
struct Writing<'i> {
    bucket: &'i Bucket,
    at: usize,
}

impl<'i> Writing<'i> {
    fn new(bucket: &'i Bucket) -> Self {
        Self { bucket, at: 0 }
    }

    fn put(&mut self, index: &'i Index, link: Link) {
        if self.at == LINKS
            && let Some(next) = index.after(self.bucket)
        {
            *self = Self::new(next);
        }
        self.bucket.set_link(self.at, link);
        self.at += 1;
    }

    /// Clears the rest of the chain and recycles the buckets that were not written to.
    fn finish(self, index: &Index) {
        (self.at..LINKS).for_each(|at| self.bucket.set_link(at, Link::NONE));
        index.cut(self.bucket);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::arena::Offset;
    use crate::index::Shape;

    fn index(buckets_max: usize, overflow_max: usize) -> Index {
        let shape = Shape {
            level: 0,
            buckets_max,
            overflow_max,
        };
        Index::new(1, shape, 0).unwrap()
    }

    /// In these tests the offset is the hash.
    fn link(hash: u64) -> Link {
        Link::new(hash, Offset::new((hash + 1) * 16).unwrap(), 0)
    }

    fn hash_of(link: Link) -> u64 {
        link.offset().unwrap().bytes() / 16 - 1
    }

    fn insert(index: &Index, hash: u64) {
        let home = index.lock(hash);
        let bucket = index.bucket(home.number);
        index.insert(bucket, link(hash)).unwrap();
        bucket.unlock(true);
    }

    fn contains(index: &Index, hash: u64) -> bool {
        let home = index.lock(hash);
        let bucket = index.bucket(home.number);
        let found = index.find(bucket, hash, |link| hash_of(link) == hash);
        bucket.unlock(false);
        found.is_some()
    }

    #[test]
    fn nothing_is_lost_while_a_table_grows_from_one_bucket() {
        let index = index(1000, 1000);
        for hash in 0..2000 {
            insert(&index, hash);
            while index.wants_split(hash + 1) {
                assert_eq!(index.split(hash_of, |_| ()), Split::Done);
            }
        }
        assert!((0..2000).all(|hash| contains(&index, hash)));
        assert_eq!(index.state().buckets(), 400);
        // The buckets not yet split in this round have 7 or 8 of the consecutive hashes.
        assert!(index.overflow().in_use() <= 400 - 2 * 144);
    }

    #[test]
    fn keys_that_all_go_one_way_keep_their_chain() {
        let index = index(64, 100);
        // The low ten bits are equal, so that only the last bucket or the first has them.
        for key in 0..50 {
            insert(&index, key << 10 | 1);
        }
        while index.split(hash_of, |_| ()) == Split::Done {}
        assert!((0..50).all(|key| contains(&index, key << 10 | 1)));
        assert_eq!(index.overflow().in_use(), 7);
    }

    #[test]
    fn without_overflow_buckets_a_split_changes_nothing() {
        let index = index(64, 3);
        for key in 0..21 {
            insert(&index, key << 1 | 1);
        }
        assert_eq!(index.overflow().in_use(), 2);
        assert_eq!(index.split(hash_of, |_| ()), Split::Full);
        assert_eq!(index.overflow().in_use(), 2);
        assert!((0..21).all(|key| contains(&index, key << 1 | 1)));
    }

    #[test]
    fn a_bucket_in_use_is_not_split() {
        let index = index(64, 3);
        let home = index.lock(0);
        assert_eq!(index.split(hash_of, |_| ()), Split::Busy);
        index.bucket(home.number).unlock(false);
        assert_eq!(index.split(hash_of, |_| ()), Split::Done);
    }

    #[test]
    fn both_halves_keep_what_was_said_about_the_whole() {
        let index = index(64, 3);
        let home = index.lock(0);
        index.bucket(home.number).set_inherited_bits();
        index.bucket(home.number).unlock(false);
        assert_eq!(index.split(hash_of, |_| ()), Split::Done);
        let bits = index.bucket(0).inherited_bits();
        assert!(bits != 0 && index.bucket(1).inherited_bits() == bits);
    }
}
