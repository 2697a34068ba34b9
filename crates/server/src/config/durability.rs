//! What the directives say about durability.
//!
//! Two views of one thing: Redis' `appendonly`, `appendfsync` and `save`, and our `durability`, which
//! names the level that they make together. [`super::Settings`] keeps both in step: whichever is set
//! last changes the other.
//!
//! | `durability` | `appendonly` | `appendfsync` | `save` |
//! |---|---|---|---|
//! | `none` | `no` | any | no points |
//! | `checkpoint` | `no` | any | points |
//! | `os` | `yes` | `no` | any |
//! | `everysec` | `yes` | `everysec` | any |
//! | `always` | `yes` | `always` | any |
//! | `quorum` | `yes` | any: how this copy's log is synced | any |

use std::path::PathBuf;

use engine::ShutdownRequest;

/// What is kept, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// What is left after a crash of what was acknowledged.
    pub level: DurabilityLevel,
    /// How the log is synced (`appendfsync`).
    pub sync: DurabilityLevel,
    /// Whether a copy counts for a majority once it is on disk only.
    pub quorum_fsync: bool,
    /// What reads that wait for a majority wait for beside what they show.
    pub quorum_reads: QuorumReads,
    /// When a checkpoint is made without being asked for, at every level: one of them is enough.
    pub save_points: Vec<SavePoint>,
    /// Whether writes are refused while the last checkpoint in the background is one that failed.
    pub refuses_writes_after_failed_save: bool,
    /// Bytes that a checkpoint may hold in memory beside the records themselves.
    pub checkpoint_buffer_bytes_max: u64,
    /// Whether a save leaves an RDB file beside its checkpoint.
    pub also_saves_rdb: bool,
    /// A checkpoint is made when the log has grown by so many hundredths of what it was behind the
    /// last one; 0 means never.
    pub log_growth_percent: u32,
    /// The log is left to grow up to so many bytes whatever the checkpoint behind it is.
    pub log_growth_bytes_min: u64,
    /// The log goes on in another file when one has so many bytes.
    pub log_segment_bytes: u64,
    /// Whether a start goes on where the end of the log was cut off.
    pub accepts_torn_log: bool,
    /// What SIGTERM asks for.
    pub at_terminate: ShutdownRequest,
    /// What SIGINT asks for.
    pub at_interrupt: ShutdownRequest,
    /// Name, in the working directory, of the RDB file: one that was left by another server, or by a save.
    pub rdb_file_name: PathBuf,
    /// Name, in the working directory, of the directory with Redis' append-only files.
    pub aof_directory_name: PathBuf,
    /// What the names of Redis' append-only files begin with, and the whole name of a single one.
    pub aof_file_name: PathBuf,
}

/// How much of what was acknowledged is left after a crash, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurabilityLevel {
    /// Nothing.
    None,
    /// What the last checkpoint has.
    Checkpoint,
    /// Everything, as long as the operating system goes on.
    Os,
    /// The same; and all but about the last second when the machine stops.
    EverySecond,
    /// Everything.
    Always,
    /// What a majority of the copies has, under a control group.
    Quorum,
}

impl DurabilityLevel {
    /// Whether every write goes into the log.
    pub fn has_log(self) -> bool {
        self >= Self::Os
    }
}

/// What says that a primary is one still, when it answers a read that waits for a majority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuorumReads {
    /// Its lease: a clock.
    Lease,
    /// The lease, and a majority of the members that is asked after the read.
    Confirm,
}

/// So many changes in so many seconds are worth a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last checkpoint, 1 at least.
    pub seconds: u64,
    /// Changes since the last checkpoint.
    pub changes: u64,
}
