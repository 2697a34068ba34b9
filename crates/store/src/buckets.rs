//! A range of buckets that never moves: the home buckets of an index, or its overflow buckets.
//!
//! The system provides memory when a bucket is first touched. Fresh buckets are all zero.

use std::io;

#[cfg(not(any(loom, shuttle)))]
use crate::bucket::BUCKET_BYTES;
use crate::bucket::Bucket;
#[cfg(not(any(loom, shuttle)))]
use crate::reservation::{HUGE_PAGE_BYTES, Reservation};

/// Above this many bytes, huge pages are requested before the buckets are used.
pub(crate) const HUGE_FROM_BYTES: usize = 64 << 20;

/// Buckets by number.
#[derive(Debug)]
pub(crate) struct Buckets {
    #[cfg(not(any(loom, shuttle)))]
    range: Reservation,
    #[cfg(any(loom, shuttle))]
    buckets: Box<[Bucket]>,
    count: usize,
}

impl Buckets {
    /// Reserves address space for `wanted` buckets, or for as many as possible.
    ///
    /// # Errors
    /// If not even 2 MiB of address space are available.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn new(wanted: usize) -> io::Result<Self> {
        let bytes = wanted
            .saturating_mul(BUCKET_BYTES)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let range = Reservation::new(bytes, HUGE_PAGE_BYTES)?;
        let count = (range.bytes() / BUCKET_BYTES).min(wanted);
        Ok(Self { range, count })
    }

    /// `wanted` buckets for a model checker.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn new(wanted: usize) -> io::Result<Self> {
        Ok(Self {
            buckets: (0..wanted).map(|_| Bucket::default()).collect(),
            count: wanted,
        })
    }

    /// Number of buckets.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bucket with a number.
    ///
    /// # Panics
    /// If there is no such bucket.
    #[inline]
    pub(crate) fn at(&self, number: usize) -> &Bucket {
        assert!(number < self.count, "a bucket outside of the index");
        #[cfg(not(any(loom, shuttle)))]
        {
            // SAFETY: inside the mapping (asserted; `count` buckets fit into it), aligned because
            // the base is and a bucket's size is its alignment. Zeroes are a valid bucket, and a
            // bucket consists of nothing but atomics.
            unsafe { self.range.base().cast::<Bucket>().add(number).as_ref() }
        }
        #[cfg(any(loom, shuttle))]
        {
            &self.buckets[number]
        }
    }

    /// Prefetches a bucket. A number that is too large is ignored.
    #[inline]
    pub(crate) fn prefetch(&self, number: usize) {
        #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
        {
            let bucket = self.range.base().as_ptr().cast::<Bucket>();
            let address = bucket.wrapping_add(number);
            // SAFETY: a prefetch affects nothing but caches, whatever the address.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    address.cast(),
                );
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
        let _ = number;
    }

    /// Prepares huge pages if bucket `number` is the first of 2 MiB. It and all buckets before it
    /// are in use from now on. In a large index, requests a huge page for the next 2 MiB, so that
    /// its memory is there before its first use. In a small index, moves the 2 MiB before it to a
    /// huge page.
    #[inline]
    pub(crate) fn before_first_use(&self, number: usize) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let start = number * BUCKET_BYTES;
            if start.is_multiple_of(HUGE_PAGE_BYTES) {
                self.see_to_huge_pages(start);
            }
        }
        #[cfg(any(loom, shuttle))]
        let _ = number;
    }

    #[cfg(not(any(loom, shuttle)))]
    #[cold]
    fn see_to_huge_pages(&self, start: usize) {
        let (behind, end) = (start + HUGE_PAGE_BYTES, start + 2 * HUGE_PAGE_BYTES);
        if behind >= HUGE_FROM_BYTES && end <= self.range.bytes() {
            self.range.prepare_huge(behind..end);
        }
        if start <= HUGE_FROM_BYTES
            && let Some(before) = start.checked_sub(HUGE_PAGE_BYTES)
        {
            self.range.make_huge(before..start);
        }
    }

    /// Returns the memory of some buckets to the system; they read as zero from now on.
    pub(crate) fn discard_range(&self, numbers: std::ops::Range<usize>) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let (start, end) = (numbers.start * BUCKET_BYTES, numbers.end * BUCKET_BYTES);
            let end = end.min(self.range.bytes());
            self.range.discard(start.min(end)..end);
        }
        #[cfg(any(loom, shuttle))]
        let _ = numbers;
    }

    /// Returns the memory of all buckets to the system; they read as zero from now on. The index
    /// must no longer be in use.
    pub(crate) fn discard(&self) {
        #[cfg(not(any(loom, shuttle)))]
        self.range.discard(0..self.range.bytes());
    }
}
