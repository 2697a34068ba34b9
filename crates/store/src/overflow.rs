//! Overflow buckets: they hold the links that do not fit into the seven of a home bucket.
//!
//! They are numbered from 1, so that 0 in a word means "none". A page of memory holds 64 of them,
//! and one word per page says which of these are in use. The free bucket with the lowest number is
//! taken first, so that later pages become wholly free. Their memory goes back to the system from
//! time to time ([`Overflow::clean`]).
//!
//! They stay buckets for ever. A late reader may find links of other keys, no links at all
//! (returned memory reads as zero), or a chain that leads elsewhere or even in a circle. Its
//! validation then fails.

use std::io;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

use crate::arena::distance;
#[cfg(not(any(loom, shuttle)))]
use crate::bucket::BUCKET_BYTES;
use crate::bucket::{Bucket, LINKS, Link};
use crate::buckets::Buckets;
use crate::chunk::lock;

/// A word has 24 bits for the number.
const COUNT_MAX: usize = 1 << 24;

/// The overflow buckets of an index.
#[derive(Debug)]
pub(crate) struct Overflow {
    buckets: Buckets,
    free: CachePadded<Mutex<Free>>,
    in_use: AtomicU64,
}

/// Buckets of a page.
const PAGE_BUCKETS: usize = 64;

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(PAGE_BUCKETS * BUCKET_BYTES == 4096);

/// Maximum number of pages cleaned at once (1 MiB), without a lock.
const CLEANED_AT_ONCE: usize = 256;

/// Number of free pages that keep their memory, for chains that come and go (64 KiB).
const KEPT_PAGES: usize = 16;

/// Which buckets are free.
#[derive(Debug)]
struct Free {
    /// For each page that was ever used, one bit per bucket: whether it is in use.
    used: Vec<u64>,
    /// For each of those pages, whether it may have memory.
    touched: Vec<bool>,
    /// No page before this one has a free bucket.
    lowest: usize,
}

impl Free {
    /// All buckets are free, except number 0.
    fn new() -> Self {
        Self {
            used: vec![1],
            touched: vec![true],
            lowest: 0,
        }
    }

    /// Takes the first free bucket of `count`.
    fn take(&mut self, count: usize) -> Option<usize> {
        while self.used.get(self.lowest) == Some(&u64::MAX) {
            self.lowest += 1;
        }
        let page = self.lowest;
        let used = self.used.get(page).map_or(0, |used| used.trailing_ones());
        let number = page * PAGE_BUCKETS + distance(u64::from(used));
        if number >= count {
            return None;
        }
        if page == self.used.len() {
            self.used.push(0);
            self.touched.push(true);
        }
        self.used[page] |= 1 << used;
        self.touched[page] = true;
        Some(number)
    }

    fn give(&mut self, number: usize) {
        let page = number / PAGE_BUCKETS;
        if let Some(used) = self.used.get_mut(page) {
            *used &= !(1 << (number % PAGE_BUCKETS));
            self.lowest = self.lowest.min(page);
        }
    }

    /// Takes some pages that may have memory and have no bucket in use, except a few that keep it.
    /// The pages count as used until they are [given back](Free::put_back).
    fn take_emptied(&mut self) -> Vec<usize> {
        let pages = self.used.iter().zip(&mut self.touched).enumerate();
        let emptied = pages.filter(|(_, (used, touched))| **used == 0 && **touched);
        let emptied: Vec<usize> = emptied
            .skip(KEPT_PAGES)
            .take(CLEANED_AT_ONCE)
            .map(|(page, (_, touched))| {
                *touched = false;
                page
            })
            .collect();
        emptied.iter().for_each(|&page| self.used[page] = u64::MAX);
        emptied
    }

    fn put_back(&mut self, pages: &[usize]) {
        for &page in pages {
            self.used[page] = 0;
            self.lowest = self.lowest.min(page);
        }
    }
}

impl Overflow {
    /// Reserves up to `wanted` buckets.
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub(crate) fn new(wanted: usize) -> io::Result<Self> {
        Ok(Self {
            buckets: Buckets::new(wanted.min(COUNT_MAX))?,
            free: CachePadded::new(Mutex::new(Free::new())),
            in_use: AtomicU64::new(0),
        })
    }

    /// Returns the bucket with a number, or `None` for 0.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Bucket> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        (number != 0 && number < self.buckets.count()).then(|| self.buckets.at(number))
    }

    /// Prefetches a bucket.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        self.buckets
            .prefetch(usize::try_from(number).unwrap_or(usize::MAX));
    }

    /// Takes an empty bucket, or returns `None` if all are in use. A leaf lock: may be called with
    /// a bucket held.
    pub(crate) fn take(&self) -> Option<u32> {
        let number = lock(&self.free).take(self.buckets.count())?;
        let number = u32::try_from(number).ok()?;
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let bucket = self.get(number)?;
        (0..LINKS).for_each(|at| bucket.set_link(at, Link::NONE));
        bucket.set_overflow(0);
        Some(number)
    }

    /// Takes back a bucket that no chain leads to any more.
    pub(crate) fn give(&self, number: u32) {
        if self.get(number).is_none() {
            return;
        }
        lock(&self.free).give(distance(number.into()));
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of buckets that are reserved.
    pub(crate) fn reserved(&self) -> usize {
        self.buckets.count().saturating_sub(1)
    }

    /// Number of buckets in use.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Returns the memory of pages without a used bucket to the system, in a bounded step. Called
    /// about once a second.
    pub(crate) fn clean(&self) {
        let pages = lock(&self.free).take_emptied();
        if pages.is_empty() {
            return;
        }
        // No thread takes any of them meanwhile. Late readers find zeroes: a bucket without links
        // that is the last of a chain.
        for run in pages.chunk_by(|before, after| before + 1 == *after) {
            if let ([first, ..], [.., last]) = (run, run) {
                self.buckets
                    .discard_range(first * PAGE_BUCKETS..(last + 1) * PAGE_BUCKETS);
            }
        }
        lock(&self.free).put_back(&pages);
    }

    /// Returns the memory of all buckets to the system. The index must no longer be in use.
    pub(crate) fn discard(&self) {
        self.buckets.discard();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn memory_of_empty_pages_goes_back_and_comes_again() {
        let count = 40 * PAGE_BUCKETS;
        let overflow = Overflow::new(count).unwrap();
        let taken: Vec<_> = (1..count).map(|_| overflow.take().unwrap()).collect();
        assert_eq!(overflow.take(), None);
        let last = *taken.last().unwrap();
        overflow.get(last).unwrap().set_overflow(5);
        let kept = [1, 700];
        let given = taken.iter().filter(|number| !kept.contains(number));
        given.for_each(|&number| overflow.give(number));
        overflow.get(700).unwrap().set_overflow(9);
        (0..3).for_each(|_| overflow.clean());
        assert_eq!(overflow.get(700).unwrap().overflow(), 9);
        if cfg!(not(miri)) {
            assert_eq!(overflow.get(last).unwrap().overflow(), 0);
        }
        let again: Vec<_> = (3..count).map(|_| overflow.take().unwrap()).collect();
        assert!(again.is_sorted() && again.iter().all(|number| !kept.contains(number)));
        assert_eq!(overflow.take(), None);
    }

    #[test]
    fn given_buckets_come_back_empty() {
        let overflow = Overflow::new(8).unwrap();
        let (one, two) = (overflow.take().unwrap(), overflow.take().unwrap());
        assert_ne!(one, two);
        overflow.get(one).unwrap().set_visited(3);
        overflow.get(one).unwrap().set_overflow(two);
        overflow.give(two);
        overflow.give(one);
        assert_eq!(overflow.in_use(), 0);
        let again = overflow.take().unwrap();
        assert_eq!(again, one);
        let bucket = overflow.get(again).unwrap();
        assert_eq!((bucket.overflow(), bucket.link(3)), (0, Link::NONE));
    }

    #[test]
    fn an_end_comes() {
        let overflow = Overflow::new(3).unwrap();
        assert!(overflow.get(0).is_none() && overflow.get(3).is_none());
        assert_eq!((overflow.take(), overflow.take()), (Some(1), Some(2)));
        assert_eq!(overflow.take(), None);
    }
}
