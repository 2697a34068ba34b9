//! What keeps a node under a control group from writing and answering out of its turn: the seal, the office, the lease.
//!
//! ```text
//!   group ─ seal(term) ──► seal:  frames of a primary below are refused         (the link that appends)
//!   group ─ office(term) ─► office: this node is the primary of the term        (role, log)
//!   group ─ lease ────────► until when writes begin, and replies at quorum leave (workers, once a batch)
//! ```
//!
//! Without a control group nothing of this is in force, and whoever asks pays one load and one branch.
//!
//! Invariants
//!  1. A seal rises, and once it has, nothing of a lower term is appended: both happen under one lock.
//!  2. There is no office of a term below the seal.
//!  3. A lease without an office is no lease.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module. One for each node.
#[derive(Default)]
pub struct Fence {
    is_grouped: AtomicBool,
    /// Held while something is appended, while the seal rises, and while an office begins or ends.
    appending: Mutex<()>,
    seal: AtomicU64,
    office: AtomicU64,
    /// By the clock of this node that goes on while the machine sleeps; 0 without an office.
    lease_until_ms: AtomicU64,
    /// How many copies the shard has, this one included.
    copies: AtomicUsize,
    is_quorum: AtomicBool,
}

/// As long as this lives the seal stays as it is.
pub struct Turn<'f> {
    _appending: MutexGuard<'f, ()>,
}

impl Fence {
    /// From now on a control group decides.
    pub fn set_grouped(&self) {
        self.is_grouped.store(true, Ordering::SeqCst);
    }

    /// Whether a control group decides.
    #[inline]
    #[must_use]
    pub fn is_grouped(&self) -> bool {
        self.is_grouped.load(Ordering::Relaxed)
    }

    /// Nothing of lower terms is taken.
    #[must_use]
    pub fn seal(&self) -> u64 {
        self.seal.load(Ordering::SeqCst)
    }

    /// The term in which this node is the primary; 0 for none.
    #[must_use]
    pub fn office(&self) -> u64 {
        self.office.load(Ordering::SeqCst)
    }

    /// Raises the seal: from here on nothing of lower terms is appended, and an office of a lower term is over. Whether
    /// there was one.
    pub fn raise(&self, term: u64) -> bool {
        let _alone = self.lock();
        self.seal.fetch_max(term, Ordering::SeqCst);
        let office = self.office();
        let is_over = office > 0 && office < term;
        if is_over {
            self.end_office_locked();
        }
        is_over
    }

    /// The turn to append frames of a primary of this term, unless it is sealed out. Without a control group everybody's
    /// are taken.
    #[must_use]
    pub fn turn(&self, term: u64) -> Option<Turn<'_>> {
        let appending = self.lock();
        if self.is_grouped() {
            if term < self.seal() {
                return None;
            }
            self.seal.store(term, Ordering::SeqCst);
        }
        Some(Turn {
            _appending: appending,
        })
    }

    /// Whether frames of a primary of this term may be taken; older ones are refused from then on.
    #[must_use]
    pub fn accept(&self, term: u64) -> bool {
        self.turn(term).is_some()
    }

    /// The office of a term begins, unless a later seal came before; whether it does.
    #[must_use]
    pub fn begin_office(&self, term: u64) -> bool {
        let _alone = self.lock();
        if term < self.seal() {
            return false;
        }
        self.seal.store(term, Ordering::SeqCst);
        self.lease_until_ms.store(0, Ordering::SeqCst);
        self.office.store(term, Ordering::SeqCst);
        true
    }

    /// The office is over, and the lease with it; whether there was one.
    pub fn end_office(&self) -> bool {
        let _alone = self.lock();
        let was_in_office = self.office() > 0;
        self.end_office_locked();
        was_in_office
    }

    fn end_office_locked(&self) {
        self.lease_until_ms.store(0, Ordering::SeqCst);
        self.office.store(0, Ordering::SeqCst);
    }

    /// Until when the lease of the present office stands. A lease only grows.
    pub fn set_lease_until_ms(&self, until_ms: u64) {
        let _alone = self.lock();
        if self.office() > 0 {
            self.lease_until_ms.fetch_max(until_ms, Ordering::SeqCst);
        }
    }

    /// Gives the lease back: nothing is answered any more that takes one.
    pub fn give_lease_back(&self) {
        let _alone = self.lock();
        self.lease_until_ms.store(0, Ordering::SeqCst);
    }

    /// Until when writes may begin.
    #[inline]
    #[must_use]
    pub fn lease_until_ms(&self) -> u64 {
        self.lease_until_ms.load(Ordering::SeqCst)
    }

    /// How many copies the shard has, and whether its writes wait for a majority of them.
    pub fn set_members(&self, copies: usize, is_quorum: bool) {
        self.copies.store(copies, Ordering::SeqCst);
        self.is_quorum.store(is_quorum, Ordering::SeqCst);
    }

    /// How many copies the shard has.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::SeqCst)
    }

    /// Whether its writes wait for a majority.
    #[must_use]
    pub fn is_quorum(&self) -> bool {
        self.is_quorum.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.appending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("is_grouped", &self.is_grouped())
            .field("seal", &self.seal())
            .field("office", &self.office())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped() -> Fence {
        let fence = Fence::default();
        fence.set_grouped();
        fence
    }

    #[test]
    fn a_seal_refuses_frames_of_lower_terms_and_ends_their_office() {
        let fence = grouped();
        assert!(fence.begin_office(3));
        fence.set_lease_until_ms(1_000);
        assert!(fence.raise(4));
        assert_eq!((fence.office(), fence.lease_until_ms()), (0, 0));
        assert!(!fence.accept(3) && !fence.begin_office(3));
        assert!(fence.accept(4));
        assert!(fence.accept(6), "a later primary seals out those before it");
        assert!(!fence.accept(5));
        assert!(!fence.raise(5), "a late seal changes nothing");
        assert_eq!(fence.seal(), 6);
    }

    #[test]
    fn a_lease_takes_an_office_and_only_grows() {
        let fence = grouped();
        fence.set_lease_until_ms(1_000);
        assert_eq!(fence.lease_until_ms(), 0);
        assert!(fence.begin_office(1));
        fence.set_lease_until_ms(1_000);
        fence.set_lease_until_ms(900);
        assert_eq!(fence.lease_until_ms(), 1_000);
        assert!(
            fence.begin_office(2),
            "the lease of another term counts no more"
        );
        assert_eq!(fence.lease_until_ms(), 0);
        assert!(fence.end_office() && !fence.end_office());
    }

    #[test]
    fn without_a_group_everybody_is_followed() {
        let fence = Fence::default();
        fence.raise(9);
        assert!(fence.accept(1));
    }
}
