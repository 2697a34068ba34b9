//! Bugs that tests plant, to see that they find them.
//!
//! In a build for users the question whether one is on is a constant.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Sums of frames are not looked at when they are read.
    NoChecksum,
    /// A sync that failed counts as one that did not.
    FailedSyncBelieved,
    /// Deletions are passed over when the log is read: what was deleted comes back.
    DeletePassedOver,
    /// The last effect of a group is left out.
    GroupCutShort,
    /// A manifest is renamed that was not synced.
    ManifestUnsynced,
    /// A manifest is called durable whose directory was not synced.
    ManifestNameUnsynced,
    /// Segments are called durable that were not synced.
    SyncSkipped,
    /// Segments are called durable whose directory was not synced.
    DirectorySyncSkipped,
    /// What is being synced is called durable before it is.
    AcknowledgedEarly,
}

base::planted!(Bug);
