//! What the directives say about values out of memory.

use std::path::PathBuf;

use engine::Promotion;
use tier::Compression;

/// How values are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierIo {
    /// By io_uring where the kernel gives one, else by threads.
    Auto,
    /// By io_uring, or not at all.
    IoUring,
    /// By threads.
    Threads,
}

/// Where values go that do not fit into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierConfig {
    /// The directory that the segments' own is in.
    pub path: PathBuf,
    /// All files together are not longer; 0: nine tenths of the room there is.
    pub bytes_max: u64,
    /// Shorter strings stay in memory.
    pub value_bytes_min: usize,
    /// Longer ones stay.
    pub value_bytes_max: usize,
    /// Values leave from so many hundredths of `maxmemory` on; 0: as soon as the command is done that used them.
    pub demote_at_percent: u64,
    /// Which come back when they are read.
    pub promotion: Promotion,
    /// Segments of which fewer hundredths are in use are written together.
    pub compact_below_percent: u64,
    /// Bytes of values that were read for requests that are about to run.
    pub read_buffer_bytes: usize,
    /// How values are read.
    pub io: TierIo,
    /// Reads that one worker has under way at once by io_uring.
    pub read_depth: usize,
    /// A request waits no longer for one read, in milliseconds.
    pub read_timeout_ms: u64,
    /// Which values are compressed, and how.
    pub compression: Compression,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// Bytes of segments that are read again in a second, to find what is damaged; 0: none.
    pub scrub_bytes_per_second: u64,
}

impl TierConfig {
    /// The directory of the segments.
    pub fn directory(&self) -> PathBuf {
        self.path.join(tier::DIRECTORY_NAME)
    }
}
