//! Places for frames: an appender claims one, and says when it is filled.
//!
//! A claim is one addition to the tail. Before it, the appender publishes a place that is not above
//! the one that it will get, and withdraws it once the frame is copied. So everything below the
//! tail and below all published places is **complete**:
//!
//!  1. A thread that sees a tail above a claim also sees the place that was published before the
//!     claim: the addition releases it, and reading the tail acquires it.
//!  2. A thread that sees that place withdrawn, or the place published for a later claim, also sees
//!     the frame: both are stored with release, after the frame.

use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

use super::locks::lock;

/// Value of an appender that fills no place.
const NONE: u64 = u64::MAX;

/// The tail of the log, and the appenders that fill places below it.
#[derive(Debug)]
pub(super) struct Places {
    tail: CachePadded<AtomicU64>,
    claimants: Mutex<Vec<Arc<Claimant>>>,
}

/// Published state of one appender: a place not above the one that it is filling, or [`NONE`].
pub(super) type Claimant = CachePadded<AtomicU64>;

impl Places {
    pub(super) fn new(start: u64) -> Self {
        Self {
            tail: CachePadded::new(AtomicU64::new(start)),
            claimants: Mutex::default(),
        }
    }

    /// Returns the sequence of the next frame.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    pub(super) fn join(&self) -> Arc<Claimant> {
        let claimant = Arc::new(Claimant::new(AtomicU64::new(NONE)));
        lock(&self.claimants).push(Arc::clone(&claimant));
        claimant
    }

    /// Like [`Places::join`], but returns `None` if another appender has joined.
    pub(super) fn join_alone(&self) -> Option<Arc<Claimant>> {
        let mut claimants = lock(&self.claimants);
        if !claimants.is_empty() {
            return None;
        }
        let claimant = Arc::new(Claimant::new(AtomicU64::new(NONE)));
        claimants.push(Arc::clone(&claimant));
        Some(claimant)
    }

    /// Whether at most one appender has joined.
    pub(super) fn is_alone(&self) -> bool {
        lock(&self.claimants).len() <= 1
    }

    /// Sets the tail to a lower sequence. Only for the single joined appender while it fills
    /// nothing.
    pub(super) fn set_tail(&self, sequence: u64) {
        self.tail.store(sequence, Ordering::Release);
    }

    pub(super) fn leave(&self, claimant: &Arc<Claimant>) {
        lock(&self.claimants).retain(|one| !Arc::ptr_eq(one, claimant));
    }

    /// Claims a place of `bytes` bytes. The caller calls [`Places::fill`] once it is filled.
    #[inline]
    pub(super) fn claim(&self, claimant: &Claimant, bytes: u64) -> u64 {
        claimant.store(self.tail.load(Ordering::Relaxed), Ordering::Release);
        self.tail.fetch_add(bytes, Ordering::AcqRel)
    }

    /// Declares the claimant's place filled.
    #[inline]
    pub(super) fn fill(&self, claimant: &Claimant) {
        claimant.store(NONE, Ordering::Release);
    }

    /// Returns the sequence below which every place is filled.
    pub(super) fn complete(&self) -> u64 {
        // The tail is read first: an appender that joins afterwards claims nothing below it.
        let tail = self.tail();
        let claimants = lock(&self.claimants);
        let places = claimants.iter().map(|one| one.load(Ordering::Acquire));
        places.fold(tail, u64::min)
    }
}
