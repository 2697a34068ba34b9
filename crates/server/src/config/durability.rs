//! Settings of durability.
//!
//! There are two views of one setting: Redis' `appendonly`, `appendfsync` and `save`, and our
//! `durability`, which names the level that those three make together. [`super::Settings`] keeps
//! both in step: setting one changes the other.
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

/// What is kept on disk, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    /// Which acknowledged writes survive a crash.
    pub level: DurabilityLevel,
    /// When the log is synced (`appendfsync`).
    pub sync: DurabilityLevel,
    /// Whether a copy counts for a majority only after its log is on disk.
    pub quorum_fsync: bool,
    /// What a read at quorum level waits for, in addition to the data that it shows.
    pub quorum_reads: QuorumReads,
    /// Conditions for an automatic checkpoint, at every level; one that holds is enough.
    pub save_points: Vec<SavePoint>,
    /// Whether writes are refused while the last background checkpoint failed.
    pub refuses_writes_after_failed_save: bool,
    /// Maximum number of bytes that a checkpoint holds in memory beside the records themselves.
    pub checkpoint_buffer_bytes_max: u64,
    /// Whether a save also writes an RDB file.
    pub also_saves_rdb: bool,
    /// Growth of the log since the last checkpoint that starts a new one, in percent of its length
    /// behind that checkpoint; 0 means never.
    pub log_growth_percent: u32,
    /// Length of the log, in bytes, below which its growth never starts a checkpoint.
    pub log_growth_bytes_min: u64,
    /// Length of a log file, in bytes, at which the log continues in a new file.
    pub log_segment_bytes: u64,
    /// Whether the server starts although the end of the log is torn.
    pub accepts_torn_log: bool,
    /// Kind of shutdown that SIGTERM requests.
    pub at_terminate: ShutdownRequest,
    /// Kind of shutdown that SIGINT requests.
    pub at_interrupt: ShutdownRequest,
    /// Name of the RDB file in the working directory. Another server or a save may have written it.
    pub rdb_file_name: PathBuf,
    /// Name of the directory with Redis' append-only files, in the working directory.
    pub aof_directory_name: PathBuf,
    /// Prefix of the names of Redis' append-only files, and the whole name of a single one.
    pub aof_file_name: PathBuf,
}

/// How many acknowledged writes survive a crash, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurabilityLevel {
    /// Nothing.
    None,
    /// What the last checkpoint contains.
    Checkpoint,
    /// Everything, while the operating system keeps running.
    Os,
    /// As `Os`; and if the machine stops, all but about the last second.
    EverySecond,
    /// Everything.
    Always,
    /// What a majority of the copies in a control group has.
    Quorum,
}

impl DurabilityLevel {
    /// Whether every write goes into the log.
    pub fn has_log(self) -> bool {
        self >= Self::Os
    }
}

/// How a primary makes sure that it is still the primary when it answers a read at quorum level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuorumReads {
    /// By its lease, which relies on a clock.
    Lease,
    /// By its lease, and by asking a majority of the members after the read.
    Confirm,
}

/// A condition for a checkpoint: so many changes in so many seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last checkpoint, at least 1.
    pub seconds: u64,
    /// Changes since the last checkpoint.
    pub changes: u64,
}
