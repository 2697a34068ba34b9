//! Reads the part of the log that is only in files, for a [`Cursor`].
//!
//! In contrast to [`Reader`](super::super::Reader), which determines how a log ends, this reads
//! files that are written, renamed, reused and removed meanwhile. It reads only durable bytes.
//! Before it reports damage it checks again: the bytes, which may have been written since they were
//! read, and which file has them.

use std::path::PathBuf;
use std::sync::Arc;

use base::sync::atomic::Ordering;

use super::super::locks::lock;
use super::super::open_log::Log;
use super::super::reader::LogError;
use super::super::reader::{self, WINDOW_BYTES, Window};
use super::super::segment::{BLOCK_HEAD_BYTES, BlockHead, SEGMENT_HEAD_BYTES, SegmentHead};
use super::{Cursor, Refusal};

/// A file of the log, and a position in it.
#[derive(Debug)]
pub(super) struct Files {
    /// Version of the list of files when this one was chosen.
    version: u64,
    path: PathBuf,
    window: Window,
    salt: u64,
    /// Start of the next file, which replaces this one from there on.
    limit: Option<u64>,
    at: Place,
}

/// A position between two blocks, or within one.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Expected chain value of the next block's head.
    chain: u32,
    offset: u64,
    sequence: u64,
    /// Bytes of the block that were passed, and those that are left.
    block_passed: u64,
    block_left: u64,
}

/// Number of looks before damage is reported.
const LOOKS: usize = 3;

impl Log {
    /// Returns the start of the oldest file, or `None` without files.
    pub(super) fn oldest_in_files(&self) -> Option<u64> {
        let writer = lock(&self.writer);
        writer.files().first().map(|(first, _)| *first)
    }

    fn files_version(&self) -> u64 {
        self.files_version.load(Ordering::Acquire)
    }
}

impl Cursor {
    /// Reads from `from` up to `end`, which is durable, or less; returns where that ends.
    pub(super) fn read_files(
        &mut self,
        from: u64,
        end: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<u64, Refusal> {
        let long = self.long;
        let mut look = 0;
        loop {
            let read = self.open_at(from).and_then(|files| files.copy(end, bytes));
            let kept = match read {
                Ok(()) => self.keep_checked(from, bytes),
                Err(error) => Err(Refusal::Damaged(error)),
            };
            let refusal = match kept {
                Ok(kept) => {
                    self.files = self.files.take().and_then(|files| files.back_at(kept));
                    return Ok(kept);
                }
                Err(refusal) => refusal,
            };
            look += 1;
            let oldest = self.log.oldest_in_files();
            if let Some(oldest) = oldest.filter(|oldest| *oldest > from) {
                self.files = None;
                return Err(Refusal::Lapped { oldest });
            }
            if look == LOOKS {
                self.files = None;
                return Err(refusal);
            }
            self.long = long;
            self.files = if look == 1 {
                self.files.take().and_then(|files| files.renewed_at(from))
            } else {
                None
            };
        }
    }

    /// Returns the file that has `from`, positioned there.
    fn open_at(&mut self, from: u64) -> Result<&mut Files, LogError> {
        let version = self.log.files_version();
        let is_right = |files: &Files| {
            files.version == version
                && files.at.sequence <= from
                && files.limit.is_none_or(|limit| from < limit)
        };
        let files = match self.files.take().filter(is_right) {
            Some(files) => files,
            None => Files::open(&self.log, version, from)?,
        };
        let files = self.files.insert(files);
        files.place_at(from)?;
        Ok(files)
    }
}

impl Files {
    fn open(log: &Arc<Log>, version: u64, from: u64) -> Result<Self, LogError> {
        let writer = lock(&log.writer);
        let files = writer.files();
        let behind = files.partition_point(|(first, _)| *first <= from);
        let limit = files.get(behind).map(|(first, _)| *first);
        let here = behind.checked_sub(1).and_then(|at| files.get(at));
        let Some((first, path)) = here.cloned() else {
            let first = limit.unwrap_or(u64::MAX);
            return Err(LogError::Missing { from, first });
        };
        drop(writer);
        let mut window = Window::open(&*log.disk, &path).map_err(reader::io_error(&path))?;
        let head = window
            .view(0, SEGMENT_HEAD_BYTES)
            .map_err(reader::io_error(&path))?;
        let head = head.and_then(|bytes| SegmentHead::decode(bytes).ok());
        let Some(head) = head else {
            return Err(LogError::Damage {
                path,
                offset: 0,
                sequence: first,
                what: "the head of the file is damaged",
            });
        };
        Ok(Self {
            version,
            path,
            window,
            salt: head.salt,
            limit,
            at: Place {
                chain: head.chain(),
                offset: SEGMENT_HEAD_BYTES as u64,
                sequence: first,
                block_passed: 0,
                block_left: 0,
            },
        })
    }

    /// Returns the file's path and the offset in it.
    pub(super) fn place(&self) -> (PathBuf, u64) {
        (self.path.clone(), self.at.offset)
    }

    /// Advances to a sequence that is in this file.
    fn place_at(&mut self, from: u64) -> Result<(), LogError> {
        while self.at.sequence < from {
            if self.at.block_left == 0 {
                self.enter_block()?;
            }
            self.pass(self.at.block_left.min(from - self.at.sequence));
        }
        Ok(())
    }

    /// Reads the head of the next block.
    fn enter_block(&mut self) -> Result<(), LogError> {
        let head = self
            .window
            .view(self.at.offset, BLOCK_HEAD_BYTES)
            .map_err(reader::io_error(&self.path))?;
        let head = head.and_then(|bytes| BlockHead::decode(bytes, self.salt));
        let is_next =
            |head: &BlockHead| head.sequence == self.at.sequence && head.chain == self.at.chain;
        let Some(head) = head.filter(is_next) else {
            return Err(self.damage("a block is not the next one"));
        };
        self.at.chain = head.next_chain(self.salt);
        self.at.offset += BLOCK_HEAD_BYTES as u64 + u64::from(head.gap);
        (self.at.block_passed, self.at.block_left) = (0, head.length);
        Ok(())
    }

    fn pass(&mut self, bytes: u64) {
        self.at.offset += bytes;
        self.at.sequence += bytes;
        self.at.block_passed += bytes;
        self.at.block_left -= bytes;
    }

    /// Fills `bytes` from the position up to `end`, or up to the start of the next file. Stops
    /// earlier at the end of a block if the next head is unreadable and `bytes` is not empty.
    fn copy(&mut self, end: u64, bytes: &mut Vec<u8>) -> Result<(), LogError> {
        let end = end.min(self.limit.unwrap_or(u64::MAX));
        bytes.clear();
        while self.at.sequence < end {
            while self.at.block_left == 0 {
                match self.enter_block() {
                    Err(_) if !bytes.is_empty() => return Ok(()),
                    entered => entered?,
                }
            }
            let wanted = self.at.block_left.min(end - self.at.sequence);
            let wanted = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(WINDOW_BYTES);
            let here = self.window.view(self.at.offset, wanted);
            match here.map_err(reader::io_error(&self.path))? {
                Some(here) => bytes.extend_from_slice(here),
                None => return Err(self.damage("the file is too short")),
            }
            self.pass(wanted as u64);
        }
        Ok(())
    }

    /// Returns to an earlier sequence, if it is in the block that was read last.
    fn back_at(mut self, sequence: u64) -> Option<Self> {
        let back = self.at.sequence.checked_sub(sequence)?;
        self.at.block_passed = self.at.block_passed.checked_sub(back)?;
        self.at.offset -= back;
        self.at.sequence -= back;
        self.at.block_left += back;
        Some(self)
    }

    /// Like [`Files::back_at`], but forgets the bytes read from the file.
    fn renewed_at(mut self, sequence: u64) -> Option<Self> {
        self.window.renew().ok()?;
        self.back_at(sequence)
    }

    fn damage(&self, what: &'static str) -> LogError {
        LogError::Damage {
            path: self.path.clone(),
            offset: self.at.offset,
            sequence: self.at.sequence,
            what,
        }
    }
}
