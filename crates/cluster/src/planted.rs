//! Mistakes that tests plant, to see that the simulation finds them.
//!
//! In a build for users the question whether one is on is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What heartbeats said of members counts as their answers, and they go on in the old term.
    PromoteWithoutSeal,
    /// A leader grants leases though no quorum is behind it.
    LeaseWithoutQuorum,
    /// A member is promoted while the lease of the primary may stand.
    PromoteWithinLease,
    /// The holder of a lease counts from when the grant came, and without the margin.
    LeaseFromReceipt,
    /// One answer is enough to promote on a quorum shard.
    OneAnswer,
    /// Entries that expect another state are applied all the same.
    ApplyUnchecked,
    /// A new leader does not wait for the grants of its predecessor.
    ForgetPredecessor,
}

/// Whether a mistake is planted on this thread.
#[cfg(not(any(test, feature = "planted")))]
#[inline]
pub(crate) const fn is_on(_: Bug) -> bool {
    false
}

#[cfg(any(test, feature = "planted"))]
pub(crate) use on::is_on;
#[cfg(any(test, feature = "planted"))]
pub use on::plant;

#[cfg(any(test, feature = "planted"))]
mod on {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a mistake on this thread, or takes it away.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    /// Whether a mistake is planted on this thread.
    pub(crate) fn is_on(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
