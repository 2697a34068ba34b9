//! Settings of the tier.

use std::path::PathBuf;

use engine::Promotion;
use tier::Compression;

/// How values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierIo {
    /// By io_uring if the kernel offers it, otherwise by threads.
    Auto,
    /// By io_uring only.
    IoUring,
    /// By threads.
    Threads,
}

/// Where values go that do not fit into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierConfig {
    /// Directory that contains the segments' directory.
    pub path: PathBuf,
    /// Maximum length of all files together; 0 means nine tenths of the free disk space.
    pub bytes_max: u64,
    /// Minimum length of a value that may leave memory.
    pub value_bytes_min: usize,
    /// Maximum length of a value that may leave memory.
    pub value_bytes_max: usize,
    /// Used memory, in percent of `maxmemory`, above which values are demoted; 0 means as soon as
    /// the command that used them is done.
    pub demote_at_percent: u64,
    /// Which values come back into memory when they are read.
    pub promotion: Promotion,
    /// Use of a segment, in percent, below which it is compacted.
    pub compact_below_percent: u64,
    /// Maximum number of bytes of values that were read for requests that are about to run.
    pub read_buffer_bytes: usize,
    /// How values are read.
    pub io: TierIo,
    /// Maximum number of concurrent io_uring reads of one worker.
    pub read_depth: usize,
    /// Maximum time that a request waits for one read, in milliseconds.
    pub read_timeout_ms: u64,
    /// Which values are compressed, and how.
    pub compression: Compression,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Bytes of segments that are read again per second to find damage; 0 means none.
    pub scrub_bytes_per_second: u64,
}

impl TierConfig {
    /// Returns the directory of the segments.
    pub fn directory(&self) -> PathBuf {
        self.path.join(tier::DIRECTORY_NAME)
    }
}
