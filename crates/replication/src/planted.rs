//! Mistakes that tests plant, to see that the simulation finds them.
//!
//! In a build for users the question whether one is on is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The primary does not compare histories: every replica with data is given a full sync.
    SkipLineage,
    /// The replica acknowledges frames before its log has them.
    AckBeforeAppend,
    /// An acknowledgement counts though its sender is in an older term.
    AckOfOlderTerm,
    /// The end that a replica names when it attaches counts as acknowledged.
    AttachCounts,
    /// The primary goes on after a piece that the link lost.
    SkipPiece,
    /// A replica in a full sync counts as online.
    SyncingCounts,
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
