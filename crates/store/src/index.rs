//! The index of one database: from a key's hash to the link of its record.
//!
//! ```text
//!   state = level, split            number of a hash's bucket:
//!                                      low `level` bits, or one more if that is below `split`
//!   0        split        2^level        2^level + split
//!   ├──────────┼────────────┼──────────────┤─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┤
//!   │ depth    │ depth      │ depth        │ reserved, untouched │
//!   │ level+1  │ level      │ level+1      │                     │
//! ```
//!
//! Linear hashing: the table grows by one bucket at a time (see [`crate::growth`]) in a range that
//! never moves. So the table is never rehashed at once, and there is never a second table.
//!
//! A finder loads the state, then checks the bucket that the state leads to. If the bucket's depth
//! is not the expected one, the state was old and the search starts again. So growing needs no
//! barrier.
//!
//! A bucket of depth d holds the hashes whose low d bits are its number. The reversed bits of a
//! hash are its position (`hash.reverse_bits()`), and a bucket is an interval of positions. The
//! order of positions is the order in which several keys are locked, and the order of SCAN.

use std::io;

use base::sync::CachePadded;
use base::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use crate::bucket::{BUCKET_BYTES, Bucket, LINKS, Link};
use crate::buckets::Buckets;
use crate::deadline_map::DeadlineMap;
use crate::key::DatabaseId;
use crate::overflow::Overflow;
use crate::shrink::state::Shrinking;
use crate::tally::Counts;
use crate::wait::Wait;

/// Number of attempts of [`Index::lock_soon`]. A request that locks several keys without marking
/// them as long holds them for a much shorter time.
const PATIENCE: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 100_000 };

/// Parameters of a new index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The table starts with `2^level` buckets.
    pub(crate) level: u32,
    /// Maximum number of home buckets.
    pub(crate) buckets_max: usize,
    /// Maximum number of overflow buckets.
    pub(crate) overflow_max: usize,
}

/// The index of one database.
#[derive(Debug)]
pub(crate) struct Index {
    /// Number that no other index of the process has or had.
    id: u64,
    /// Number of the database that had this index at the last cut.
    cut_database: AtomicU16,
    buckets: Buckets,
    overflow: Overflow,
    state: CachePadded<AtomicU64>,
    /// Held by the thread that splits or merges.
    pub(crate) splitting: CachePadded<AtomicBool>,
    /// Whether the table is shrinking, and how far it has come.
    pub(crate) shrinking: Shrinking,
    /// The counts that handles have reported; the rest is still in their cells.
    pub(crate) counts: CachePadded<Counts>,
    /// Where records with a deadline are.
    pub(crate) deadlines: DeadlineMap,
    /// Where the eviction hand is.
    pub(crate) hand: CachePadded<AtomicU64>,
}

/// Size of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) level: u32,
    pub(crate) split: u64,
}

impl State {
    fn from_word(word: u64) -> Self {
        let [level, ..] = word.to_le_bytes();
        Self {
            level: u32::from(level),
            split: word >> 8,
        }
    }

    fn to_word(self) -> u64 {
        u64::from(self.level) | self.split << 8
    }

    /// Number of home buckets.
    #[inline]
    pub(crate) fn buckets(self) -> u64 {
        (1 << self.level) + self.split
    }

    /// Returns the home bucket of a hash.
    #[inline]
    pub(crate) fn home(self, hash: u64) -> Home {
        let level = self.level;
        let mask = (1 << level) - 1;
        let number = hash & mask;
        if number < self.split {
            Home {
                number: hash & (mask << 1 | 1),
                depth: level + 1,
            }
        } else {
            Home {
                number,
                depth: level,
            }
        }
    }

    /// Returns the depth of a bucket, or `None` if it is not live.
    #[inline]
    pub(crate) fn depth_of(self, number: u64) -> Option<u32> {
        let is_split = number < self.split || number >= 1 << self.level;
        (number < self.buckets()).then_some(self.level + u32::from(is_split))
    }

    /// Returns the state before the last split, or `None` if there is only one bucket.
    pub(crate) fn previous(self) -> Option<Self> {
        if self.split > 0 {
            return Some(Self {
                split: self.split - 1,
                ..self
            });
        }
        let level = self.level.checked_sub(1)?;
        Some(Self {
            level,
            split: (1 << level) - 1,
        })
    }

    /// Returns the state after one more split.
    pub(crate) fn next(self) -> Self {
        if self.split + 1 == 1 << self.level {
            Self {
                level: self.level + 1,
                split: 0,
            }
        } else {
            Self {
                split: self.split + 1,
                ..self
            }
        }
    }
}

/// The number of a bucket, and the depth that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) number: u64,
    pub(crate) depth: u32,
}

impl Home {
    /// First position of the bucket's interval.
    pub(crate) fn first_position(self) -> u64 {
        self.number.reverse_bits()
    }

    /// First position after the interval; 0 after the last.
    pub(crate) fn end_position(self) -> u64 {
        let width = 1_u64.checked_shl(64 - self.depth).unwrap_or(0);
        self.first_position().wrapping_add(width)
    }
}

/// The place of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'i> {
    pub(crate) bucket: &'i Bucket,
    pub(crate) at: usize,
    pub(crate) link: Link,
}

impl Index {
    /// Creates an empty index. A snapshot that began with `generation` has nothing to save in it.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub(crate) fn new(id: u64, shape: Shape, generation: u64) -> io::Result<Self> {
        let buckets = Buckets::new(shape.buckets_max.max(1 << shape.level))?;
        let state = State {
            level: shape.level,
            split: 0,
        };
        let index = Self {
            id,
            cut_database: AtomicU16::new(0),
            deadlines: DeadlineMap::new(buckets.count())?,
            buckets,
            overflow: Overflow::new(shape.overflow_max)?,
            state: CachePadded::new(AtomicU64::new(state.to_word())),
            splitting: CachePadded::new(AtomicBool::new(false)),
            shrinking: Shrinking::new(shape.level),
            counts: CachePadded::new(Counts::default()),
            hand: CachePadded::new(AtomicU64::new(0)),
        };
        for number in 0..state.buckets() {
            let bucket = index.bucket(number);
            bucket.begin(state.level, bucket.word());
            bucket.set_side(generation);
        }
        Ok(index)
    }

    /// Number that tells this index from all others.
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Number of the database that had this index at the last cut.
    pub(crate) fn cut_database(&self) -> DatabaseId {
        self.cut_database.load(Ordering::Relaxed)
    }

    /// Notes the number of the index's database. Only the thread that makes a cut calls this.
    pub(crate) fn set_cut_database(&self, database: DatabaseId) {
        self.cut_database.store(database, Ordering::Relaxed);
    }

    /// Size of the table; it may already be out of date.
    #[inline]
    pub(crate) fn state(&self) -> State {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    /// Publishes a split or a merge. The caller holds `splitting`.
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state.to_word(), Ordering::Release);
    }

    /// Whether the range has space for one more bucket.
    pub(crate) fn has_room(&self, state: State) -> bool {
        u64::try_from(self.buckets.count()).is_ok_and(|count| state.buckets() < count)
    }

    /// Returns a home bucket.
    #[inline]
    pub(crate) fn bucket(&self, number: u64) -> &Bucket {
        self.buckets.at(narrow(number))
    }

    /// Returns the memory of home buckets that are not live to the system; they read as zero from
    /// now on.
    pub(crate) fn discard_buckets(&self, numbers: std::ops::Range<u64>) {
        self.buckets
            .discard_range(narrow(numbers.start)..narrow(numbers.end));
    }

    /// Prepares the memory around a bucket (see [`Buckets::before_first_use`]).
    pub(crate) fn before_first_use(&self, number: u64) {
        self.buckets.before_first_use(narrow(number));
    }

    /// The overflow buckets.
    #[inline]
    pub(crate) fn overflow(&self) -> &Overflow {
        &self.overflow
    }

    /// Returns the next bucket of a chain.
    #[inline]
    pub(crate) fn after(&self, bucket: &Bucket) -> Option<&Bucket> {
        self.overflow.get(bucket.overflow())
    }

    /// Prefetches a home bucket.
    #[inline]
    pub(crate) fn prefetch_number(&self, number: u64) {
        self.buckets.prefetch(narrow(number));
    }

    /// Bytes of the buckets in use.
    pub(crate) fn bytes(&self) -> u64 {
        (self.state().buckets() + self.overflow.in_use()) * BUCKET_BYTES as u64
    }

    /// Bytes of the home buckets in use.
    pub(crate) fn home_bytes(&self) -> u64 {
        self.state().buckets() * BUCKET_BYTES as u64
    }

    /// Returns the memory to the system. The index must no longer be in use.
    pub(crate) fn discard(&self) {
        self.buckets.discard();
        self.overflow.discard();
    }

    /// Locks the bucket of `hash`.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> Home {
        let mut wait = Wait::default();
        loop {
            let home = self.state().home(hash);
            let bucket = self.bucket(home.number);
            let word = bucket.word();
            if word.is_free_at(home.depth) && bucket.try_lock(word) {
                return home;
            }
            wait.pause();
        }
    }

    /// Locks the bucket of `hash`, or returns `None` if its holder may take long.
    pub(crate) fn lock_unless_long(&self, hash: u64) -> Option<Home> {
        let mut wait = Wait::default();
        loop {
            let home = self.state().home(hash);
            let bucket = self.bucket(home.number);
            let word = bucket.word();
            if word.is_free_at(home.depth) && bucket.try_lock(word) {
                return Some(home);
            }
            if word.is_long() && wait.is_long_enough() {
                return None;
            }
            wait.pause();
        }
    }

    /// Locks the bucket of `hash`, or returns `None` if others hold it for longer than usual.
    pub(crate) fn lock_soon(&self, hash: u64) -> Option<Home> {
        let mut wait = Wait::default();
        for _ in 0..PATIENCE {
            let home = self.state().home(hash);
            let bucket = self.bucket(home.number);
            let word = bucket.word();
            if !word.is_locked() && word.depth() == home.depth && bucket.try_lock(word) {
                return Some(home);
            }
            wait.pause();
        }
        None
    }

    /// Locks the bucket of `hash` if it is free.
    pub(crate) fn try_lock(&self, hash: u64) -> Option<&Bucket> {
        let home = self.state().home(hash);
        let bucket = self.bucket(home.number);
        let word = bucket.word();
        let free = !word.is_locked() && word.depth() == home.depth;
        (free && bucket.try_lock(word)).then_some(bucket)
    }

    /// Locks a bucket by its number if it is live and free.
    pub(crate) fn try_lock_number(&self, number: u64) -> Option<&Bucket> {
        let depth = self.state().depth_of(number)?;
        let bucket = self.bucket(number);
        let word = bucket.word();
        let free = !word.is_locked() && !word.is_long() && word.depth() == depth;
        (free && bucket.try_lock(word)).then_some(bucket)
    }

    /// Finds the link of a key in the chain of `home`. The caller holds `home`. `is` decides
    /// whether the record that a link names is the key's.
    #[inline]
    pub(crate) fn find<'i>(
        &'i self,
        home: &'i Bucket,
        hash: u64,
        mut is: impl FnMut(Link) -> bool,
    ) -> Option<Spot<'i>> {
        let mut bucket = home;
        loop {
            for at in bucket.candidates(hash) {
                let link = bucket.link(at);
                if link.offset().is_some() && is(link) {
                    return Some(Spot { bucket, at, link });
                }
            }
            bucket = self.after(bucket)?;
        }
    }

    /// Whether a record in the chain of `home` was saved alone. The caller holds `home`.
    pub(crate) fn has_saved(&self, home: &Bucket) -> bool {
        let mut has = false;
        self.for_each(home, |spot| has |= spot.link.has(Link::SAVED));
        has
    }

    /// Puts a link into the chain of `home`. The caller holds `home`. Returns `None` if no overflow
    /// bucket is left.
    pub(crate) fn insert<'i>(&'i self, home: &'i Bucket, link: Link) -> Option<Spot<'i>> {
        let mut bucket = home;
        loop {
            if let Some(at) = (0..LINKS).find(|&at| bucket.link(at).offset().is_none()) {
                bucket.set_link(at, link);
                return Some(Spot { bucket, at, link });
            }
            bucket = match self.after(bucket) {
                Some(next) => next,
                None => self.extend(bucket)?,
            };
        }
    }

    /// Removes the link at `spot` from the chain of `home`. The caller holds `home`. The chain's
    /// last link takes its place, so that chains stay short; other spots of the chain are void
    /// afterwards.
    pub(crate) fn remove(&self, home: &Bucket, spot: Spot<'_>) {
        spot.bucket.set_link(spot.at, Link::NONE);
        if home.overflow() == 0 {
            return;
        }
        let (before, last) = self.chain_end(home);
        let filled = (0..LINKS).filter(|&at| last.link(at).offset().is_some());
        let Some(from) = filled.last() else {
            self.cut(before);
            return;
        };
        if !std::ptr::eq(last, spot.bucket) {
            spot.bucket.set_link(spot.at, last.link(from));
            last.set_link(from, Link::NONE);
        }
        if (0..LINKS).all(|at| last.link(at).offset().is_none()) {
            self.cut(before);
        }
    }

    /// Returns the last bucket of a chain of several, and the bucket before it.
    fn chain_end<'i>(&'i self, home: &'i Bucket) -> (&'i Bucket, &'i Bucket) {
        let (mut before, mut last) = (home, home);
        while let Some(next) = self.after(last) {
            (before, last) = (last, next);
        }
        (before, last)
    }

    /// Appends an empty bucket to a chain that ends with `last`.
    pub(crate) fn extend(&self, last: &Bucket) -> Option<&Bucket> {
        let number = self.overflow.take()?;
        last.set_overflow(number);
        self.overflow.get(number)
    }

    /// Ends a chain with `last` and recycles the buckets after it.
    pub(crate) fn cut(&self, last: &Bucket) {
        let mut number = last.overflow();
        last.set_overflow(0);
        while let Some(bucket) = self.overflow.get(number) {
            let next = bucket.overflow();
            self.overflow.give(number);
            number = next;
        }
    }

    /// Calls `visit` with every link of the chain of `home`. The caller holds `home`.
    pub(crate) fn for_each<'i>(&'i self, home: &'i Bucket, mut visit: impl FnMut(Spot<'i>)) {
        let mut next = Some(home);
        while let Some(bucket) = next {
            for at in 0..LINKS {
                let link = bucket.link(at);
                if link.offset().is_some() {
                    visit(Spot { bucket, at, link });
                }
            }
            next = self.after(bucket);
        }
    }
}

/// Returns a bucket's number as `usize`; a number that does not fit becomes `usize::MAX`.
#[inline]
fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use crate::arena::Offset;

    pub(super) fn tiny() -> Index {
        let shape = Shape {
            level: 0,
            buckets_max: 64,
            overflow_max: 64,
        };
        Index::new(1, shape, 0).unwrap()
    }

    fn link(hash: u64) -> Link {
        Link::new(hash, Offset::new((hash + 1) * 16).unwrap(), 0)
    }

    #[test]
    fn every_hash_has_a_home_at_every_size_and_homes_are_intervals() {
        let mut state = State { level: 0, split: 0 };
        for _ in 0..100 {
            for hash in [0, 1, 77, u64::MAX, 0x1234_5678_9abc_def0] {
                let home = state.home(hash);
                assert!(home.number < state.buckets());
                let (first, end) = (home.first_position(), home.end_position());
                let position = hash.reverse_bits();
                assert!(position >= first && (end == 0 || position < end));
            }
            let next = state.next();
            assert_eq!(next.buckets(), state.buckets() + 1);
            assert_eq!(next.previous(), Some(state));
            for number in 0..state.buckets() {
                let home = state.home(number);
                assert_eq!(
                    (home.number, Some(home.depth)),
                    (number, state.depth_of(number))
                );
            }
            assert_eq!(state.depth_of(state.buckets()), None);
            assert_eq!(State::from_word(next.to_word()), next);
            state = next;
        }
    }

    #[test]
    fn chains_grow_and_shrink_with_what_they_hold() {
        let index = tiny();
        let home = index.lock(0);
        let bucket = index.bucket(home.number);
        for hash in 0..30 {
            index.insert(bucket, link(hash)).unwrap();
        }
        assert_eq!(index.overflow().in_use(), 4);
        for hash in 0..30 {
            let is = |found: Link| found.offset() == link(hash).offset();
            let spot = index.find(bucket, hash, is).expect("inserted above");
            index.remove(bucket, spot);
            assert!(index.find(bucket, hash, is).is_none());
            let mut left = 0;
            index.for_each(bucket, |_| left += 1);
            assert_eq!(left, 29 - hash);
        }
        assert_eq!(index.overflow().in_use(), 0);
        bucket.unlock(true);
    }
}
