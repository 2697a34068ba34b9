//! Mistakes that tests plant, to see that the simulation finds them.
//!
//! In a build for users the question whether one is on is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Votes are given and entries acknowledged before they are on disk.
    NotSynced,
    /// A vote is given before it is on disk.
    VoteNotSynced,
    /// A start takes all entries that it finds for committed, and applies them.
    AppliedBeforeCommit,
}

base::planted!(Bug);
