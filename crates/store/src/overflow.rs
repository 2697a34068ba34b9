//! Buckets behind buckets: where the links go that do not fit into seven.
//!
//! Numbered from 1, so that 0 in a word means "none". Free ones are a stack, linked through the
//! overflow field of their words. They stay buckets for ever: a reader that comes late finds links
//! of other keys or a chain that leads elsewhere, even round in a circle, and its validation fails.

use std::io;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

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

#[derive(Debug)]
struct Free {
    /// Number of the first free bucket that was used before; 0 is none.
    first: u32,
    /// Number of the first bucket that was never used.
    unused: u32,
}

impl Overflow {
    /// Reserves up to `wanted` buckets.
    ///
    /// # Errors
    /// When the addresses cannot be had.
    pub(crate) fn new(wanted: usize) -> io::Result<Self> {
        Ok(Self {
            buckets: Buckets::new(wanted.min(COUNT_MAX))?,
            free: CachePadded::new(Mutex::new(Free {
                first: 0,
                unused: 1,
            })),
            in_use: AtomicU64::new(0),
        })
    }

    /// The bucket of a number; none for 0.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Bucket> {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        (number != 0 && number < self.buckets.count()).then(|| self.buckets.at(number))
    }

    /// Starts to bring a bucket into the cache.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        self.buckets
            .prefetch(usize::try_from(number).unwrap_or(usize::MAX));
    }

    /// An empty bucket; none when all are in use. A leaf lock: may be called with a bucket held.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = lock(&self.free);
        let number = if free.first != 0 {
            let number = free.first;
            free.first = self.get(number)?.overflow();
            number
        } else {
            let number = free.unused;
            self.get(number)?;
            free.unused += 1;
            number
        };
        drop(free);
        self.in_use.fetch_add(1, Ordering::Relaxed);
        let bucket = self.get(number)?;
        (0..LINKS).for_each(|at| bucket.set_link(at, Link::NONE));
        bucket.set_overflow(0);
        Some(number)
    }

    /// Takes a bucket back that no chain leads to any more.
    pub(crate) fn give(&self, number: u32) {
        let Some(bucket) = self.get(number) else {
            return;
        };
        let mut free = lock(&self.free);
        bucket.set_overflow(free.first);
        free.first = number;
        drop(free);
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }

    /// Buckets that there are.
    pub(crate) fn reserved(&self) -> usize {
        self.buckets.count().saturating_sub(1)
    }

    /// Buckets in use.
    pub(crate) fn in_use(&self) -> u64 {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Gives the memory of all buckets back; for an index that nobody uses any more.
    pub(crate) fn discard(&self) {
        self.buckets.discard();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

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
