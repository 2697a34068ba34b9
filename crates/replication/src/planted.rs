//! Bugs that tests plant to check that the simulation finds them.
//!
//! In a release build the check for a planted bug is a constant.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The primary does not compare histories: every replica with data gets a full sync.
    SkipLineage,
    /// The replica acknowledges frames before its log has them.
    AckBeforeAppend,
    /// An acknowledgement counts even if its sender is in an older term.
    AckOfOlderTerm,
    /// The end that a replica names when it attaches counts as acknowledged.
    AttachCounts,
    /// The primary continues after a piece that the link lost.
    SkipPiece,
    /// A replica in a full sync counts as online.
    SyncingCounts,
}

base::planted!(Bug);
