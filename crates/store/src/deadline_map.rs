//! The parts of an index that have records with a deadline.
//!
//! One bit for each group of 64 neighbouring buckets. There may be few such records among very
//! many, and a search for them skips the other buckets, 4096 per load.
//!
//! A writer that gives a record a deadline sets the bit while it holds the bucket. Only a thread
//! that looked for such a record in vain clears the bit ([`DeadlineMap::clear`]), and it does so
//! before it looks once more at every bucket of the group with the bucket locked. A writer that
//! found the bit still set had its bucket locked before that look, so the look sees its record; a
//! later writer sees the cleared bit. A record that is removed, moves or loses its deadline leaves
//! its bit set for a while.

use std::io;

use base::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(any(loom, shuttle)))]
use crate::reservation::{HUGE_PAGE_BYTES, Reservation};

/// Number of buckets in a group.
pub(crate) const GROUP_BUCKETS: u64 = 64;

const BITS: u64 = u64::BITS as u64;

const BUCKETS_PER_WORD: usize = 64 * u64::BITS as usize;
const _: () = assert!(BUCKETS_PER_WORD as u64 == GROUP_BUCKETS * BITS);

/// One bit for each group of buckets.
#[derive(Debug)]
pub(crate) struct DeadlineMap {
    #[cfg(not(any(loom, shuttle)))]
    range: Reservation,
    #[cfg(any(loom, shuttle))]
    words: Box<[AtomicU64]>,
    words_count: usize,
}

impl DeadlineMap {
    /// Creates a map for `buckets` buckets, without a record that has a deadline.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub(crate) fn new(buckets: usize) -> io::Result<Self> {
        let words_count = buckets.div_ceil(BUCKETS_PER_WORD).max(1);
        #[cfg(not(any(loom, shuttle)))]
        {
            let bytes = (words_count * size_of::<u64>()).next_multiple_of(HUGE_PAGE_BYTES);
            let range = Reservation::new(bytes, bytes)?;
            Ok(Self { range, words_count })
        }
        #[cfg(any(loom, shuttle))]
        Ok(Self {
            words: (0..words_count).map(|_| AtomicU64::new(0)).collect(),
            words_count,
        })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words_count, "a bucket outside of the index");
        #[cfg(not(any(loom, shuttle)))]
        {
            // SAFETY: inside the range, which was made for that many words and is aligned to pages;
            // it is only accessed here, as atomic words.
            unsafe { self.range.base().cast::<AtomicU64>().add(at).as_ref() }
        }
        #[cfg(any(loom, shuttle))]
        {
            &self.words[at]
        }
    }

    fn place(group: u64) -> (usize, u64) {
        let at = usize::try_from(group / BITS).unwrap_or(usize::MAX);
        (at, 1 << (group % BITS))
    }

    /// Notes that a bucket has such a record. The caller holds the bucket.
    #[inline]
    pub(crate) fn note(&self, bucket: u64) {
        let (at, bit) = Self::place(bucket / GROUP_BUCKETS);
        let word = self.word(at);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the group of a bucket may have such a record.
    #[inline]
    pub(crate) fn is_noted(&self, bucket: u64) -> bool {
        let (at, bit) = Self::place(bucket / GROUP_BUCKETS);
        self.word(at).load(Ordering::Relaxed) & bit != 0
    }

    /// Clears the note of a group. The caller looks through all of the group afterwards, and notes
    /// what it finds.
    pub(crate) fn clear(&self, group: u64) {
        let (at, bit) = Self::place(group);
        self.word(at).fetch_and(!bit, Ordering::Relaxed);
    }

    /// Returns the first noted group from `start` on, wrapping around, of an index of `groups`.
    pub(crate) fn next(&self, start: u64, groups: u64) -> Option<u64> {
        let start = if start < groups { start } else { 0 };
        self.first(start, groups).or_else(|| self.first(0, start))
    }

    /// Returns the first noted group of `start..end`.
    fn first(&self, start: u64, end: u64) -> Option<u64> {
        let mut group = start;
        while group < end {
            let (at, bit) = Self::place(group);
            let ahead = self.word(at).load(Ordering::Relaxed) & !(bit - 1);
            if ahead != 0 {
                let found = group / BITS * BITS + u64::from(ahead.trailing_zeros());
                return (found < end).then_some(found);
            }
            group = (group / BITS + 1) * BITS;
        }
        None
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn noted_groups_are_found_in_order_and_around() {
        let map = DeadlineMap::new(1 << 20).unwrap();
        let groups = (1 << 20) / GROUP_BUCKETS;
        assert_eq!(map.next(5, groups), None);
        for group in [3, 64, 65, 9_000, groups - 1] {
            map.note(group * GROUP_BUCKETS + 17);
            assert!(map.is_noted(group * GROUP_BUCKETS));
        }
        let walk = [
            (0, 3),
            (3, 3),
            (4, 64),
            (65, 65),
            (66, 9_000),
            (9_001, groups - 1),
        ];
        for (start, found) in walk {
            assert_eq!(map.next(start, groups), Some(found));
        }
        assert_eq!(map.next(groups, groups), Some(3), "around");
        assert_eq!(map.next(9_001, 9_002), Some(3), "only those of the table");
        map.clear(3);
        assert!(!map.is_noted(3 * GROUP_BUCKETS + 63));
        assert_eq!(map.next(0, groups), Some(64));
    }
}
