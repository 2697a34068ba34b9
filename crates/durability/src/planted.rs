//! Bugs that tests plant, to check that they find them.
//!
//! In a build for users, the check whether a bug is planted is a constant.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The sums of frames are not checked when they are read.
    NoChecksum,
    /// A failed sync counts as a successful one.
    FailedSyncBelieved,
    /// Deletions are skipped when the log is read: deleted keys come back.
    DeletePassedOver,
    /// The last effect of a group is left out.
    GroupCutShort,
    /// A manifest is renamed before it was synced.
    ManifestUnsynced,
    /// A manifest is reported durable although its directory was not synced.
    ManifestNameUnsynced,
    /// Segments are reported durable although they were not synced.
    SyncSkipped,
    /// Segments are reported durable although their directory was not synced.
    DirectorySyncSkipped,
    /// Bytes are reported durable before their sync has ended.
    AcknowledgedEarly,
}

base::planted!(Bug);
