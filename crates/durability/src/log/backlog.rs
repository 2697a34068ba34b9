//! A log that is only in memory: the backlog of a primary that keeps no log on disk.
//!
//! It is a ring of chunks in the memory of the process. An appender reuses the oldest chunk once
//! everything in it is complete, whether or not a reader still needs it: a
//! [`Cursor`](super::Cursor) that is so far behind learns that it was lapped. Nothing in such a log
//! is durable, and [`Log::durable`] stays at its start. It never has a fault and always has room.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::Clock;

use super::memory::Memory;
use super::open_log::{Log, Make};
use super::options::Options;
use super::writer::Writer;
use crate::disk::{Disk, DiskFile};

/// Minimum number of chunks of a backlog, unless they would be smaller than a page.
const CHUNKS_MIN: u64 = 8;
const CHUNK_BYTES_MIN: u64 = 4096;

impl Log {
    /// Creates a log that keeps at least the last `backlog_bytes` of frames in memory, and nothing
    /// in files. It starts at `start`, a multiple of 8. Memory is allocated as needed, and kept.
    ///
    /// [`Log::write_out`] is called as for any log: it wakes readers.
    #[must_use]
    pub fn in_memory(clock: Arc<dyn Clock>, start: u64, backlog_bytes: u64) -> Arc<Self> {
        let default_bytes = Options::default().chunk_bytes;
        let chunk_bytes = (backlog_bytes / CHUNKS_MIN).clamp(CHUNK_BYTES_MIN, default_bytes);
        // Round down to a power of two.
        let chunk_bytes = 1 << chunk_bytes.ilog2();
        Self::of_backlog(clock, start, backlog_bytes, chunk_bytes)
    }

    /// Like [`Log::in_memory`], with chunks of `chunk_bytes`, a power of two.
    pub(super) fn of_backlog(
        clock: Arc<dyn Clock>,
        start: u64,
        backlog_bytes: u64,
        chunk_bytes: u64,
    ) -> Arc<Self> {
        // One chunk more, because the chunk that is being written is nearly empty at first.
        let ring_bytes = backlog_bytes.saturating_add(chunk_bytes);
        let memory = Memory::of_backlog(start, chunk_bytes, ring_bytes);
        let options = Options {
            chunk_bytes,
            ..Options::default()
        };
        let make = Make {
            disk: Arc::new(NoDisk),
            clock,
            directory: PathBuf::new(),
            options,
            memory,
            writer: Writer::without_files(),
            is_volatile: true,
        };
        Arc::new(Self::make(make, start, start))
    }
}

/// A disk without files.
#[derive(Debug)]
struct NoDisk;

fn none<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Disk for NoDisk {
    fn open(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        none()
    }

    fn open_for_writing(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        none()
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn DiskFile>> {
        none()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        none()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        none()
    }

    fn create_directory(&self, _: &Path) -> io::Result<()> {
        none()
    }

    fn remove_directory(&self, _: &Path) -> io::Result<()> {
        none()
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        none()
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        none()
    }
}
