//! Places for frames: who appends takes one, and says when it is filled.
//!
//! A claim is one addition to the tail. Before it, the appender publishes a place that is not above the one
//! that it will get, and takes that back once the frame is copied. So everything below the tail and
//! below all published places is **complete**:
//!
//!  1. Whoever sees a tail that is above a claim sees what was published before the claim: the
//!     addition releases it, and reading the tail acquires it.
//!  2. Whoever sees that taken back, or what is published for a later claim, sees the frame: both are stored with
//!     release, after it.

use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{CachePadded, Mutex};

use super::lock;

/// Nothing is being filled.
const NONE: u64 = u64::MAX;

/// The tail of the log, and who is filling places below it.
#[derive(Debug)]
pub(super) struct Places {
    tail: CachePadded<AtomicU64>,
    claimants: Mutex<Vec<Arc<Claimant>>>,
}

/// One appender, as others see it: a place not above the one that it is filling, or [`NONE`].
pub(super) type Claimant = CachePadded<AtomicU64>;

impl Places {
    pub(super) fn new(start: u64) -> Self {
        Self {
            tail: CachePadded::new(AtomicU64::new(start)),
            claimants: Mutex::default(),
        }
    }

    /// Where the next frame will begin.
    #[inline]
    pub(super) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    pub(super) fn join(&self) -> Arc<Claimant> {
        let claimant = Arc::new(Claimant::new(AtomicU64::new(NONE)));
        lock(&self.claimants).push(Arc::clone(&claimant));
        claimant
    }

    /// As [`Places::join`], if nobody else has.
    pub(super) fn join_alone(&self) -> Option<Arc<Claimant>> {
        let mut claimants = lock(&self.claimants);
        if !claimants.is_empty() {
            return None;
        }
        let claimant = Arc::new(Claimant::new(AtomicU64::new(NONE)));
        claimants.push(Arc::clone(&claimant));
        Some(claimant)
    }

    /// Whether no more than one has joined.
    pub(super) fn is_alone(&self) -> bool {
        lock(&self.claimants).len() <= 1
    }

    /// The next frame begins at a sequence below the tail: by the one who has joined, who fills nothing.
    pub(super) fn set_tail(&self, sequence: u64) {
        self.tail.store(sequence, Ordering::Release);
    }

    pub(super) fn leave(&self, claimant: &Arc<Claimant>) {
        lock(&self.claimants).retain(|one| !Arc::ptr_eq(one, claimant));
    }

    /// A place of so many bytes. [`Places::fill`] is called once it is filled.
    #[inline]
    pub(super) fn claim(&self, claimant: &Claimant, bytes: u64) -> u64 {
        claimant.store(self.tail.load(Ordering::Relaxed), Ordering::Release);
        self.tail.fetch_add(bytes, Ordering::AcqRel)
    }

    /// The claimant's place is filled.
    #[inline]
    pub(super) fn fill(&self, claimant: &Claimant) {
        claimant.store(NONE, Ordering::Release);
    }

    /// Everything below this was filled.
    pub(super) fn complete(&self) -> u64 {
        // The tail first: an appender that joins afterwards claims nothing below it.
        let tail = self.tail();
        let claimants = lock(&self.claimants);
        let places = claimants.iter().map(|one| one.load(Ordering::Acquire));
        places.fold(tail, u64::min)
    }
}
