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

base::planted!(Bug);
