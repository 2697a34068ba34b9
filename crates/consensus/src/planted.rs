//! Mistakes that tests plant to verify that the simulation detects them.
//!
//! In a release build, the check for a planted mistake is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Votes are given and entries acknowledged before they are on disk.
    NotSynced,
    /// A vote is given before it is on disk.
    VoteNotSynced,
    /// A start treats all entries that it finds as committed, and applies them.
    AppliedBeforeCommit,
}

base::planted!(Bug);
