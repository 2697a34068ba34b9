//! Reads the log while it is written, from any frame on: what a primary sends to one replica.
//!
//! ```text
//!   files, below `durable`             memory, up to `complete`
//!   ├───────────────────────┬──────────────────────┬──────────►  sequence
//!   oldest file             oldest chunk that      complete
//!                           was not taken again
//! ```
//!
//! A cursor returns the bytes of whole frames as they are in the log. They come from memory while
//! they are there, otherwise from the log's files. No appender waits for a cursor, however slow it
//! is. If frames are gone from memory and from the files, the cursor reports that.
//!
//! Rules
//!  1. Only complete frames are returned. They need not be durable.
//!  2. Bytes from memory are copied first; then the cursor checks that the memory was not reused
//!     meanwhile.
//!  3. Bytes from files are durable, and their sums are checked before they are returned. A long
//!     frame comes in pieces; the last one is returned only if the sum of all of them is right.

mod files;

use std::fmt;
use std::sync::Arc;

use base::sync::thread;

use super::frame::{self, Frame, HEAD_BYTES, SUM_BYTES, SUM_OF_NO_SUM, WORD_BYTES, WRONG_SUM};
use super::memory::Piece;
use super::open_log::Log;
use super::reader::LogError;
use crate::checksum;
use files::Files;

/// Maximum number of bytes of one read, whatever the caller asks for.
pub const READ_BYTES_MAX: usize = 1 << 20;
/// Maximum number of attempts when memory and files each say that the other one has the frames.
const TRIES_MAX: usize = 64;

/// The result of [`Cursor::read`].
#[derive(Debug)]
pub enum Read {
    /// The bytes of whole frames, or the next piece of a frame that is longer than requested.
    Frames {
        /// Where they begin, as requested.
        first: u64,
        /// Where they end, which is where the next read begins.
        end: u64,
    },
    /// No further frame is complete yet.
    AtTail,
    /// The log no longer reaches back so far. The replica needs a full sync.
    Lapped {
        /// Frames below it are gone.
        oldest: u64,
    },
    /// The log's own file is damaged there, or unreadable: none of it may be sent. The replica
    /// needs a full sync.
    Damaged(LogError),
}

/// A position in a log from which one reader reads on. See the module.
///
/// It uses a file and 256 KiB while it reads from files, and neither while it reads from memory.
pub struct Cursor {
    log: Arc<Log>,
    pieces: Vec<Piece>,
    long: Option<Long>,
    files: Option<Files>,
}

/// A frame that is returned in pieces.
#[derive(Clone, Copy, Debug)]
struct Long {
    first: u64,
    /// Start of the next piece.
    next: u64,
    end: u64,
    /// The sum that the frame states, and that of the pieces so far.
    stated_sum: u32,
    sum: u32,
}

/// Why the requested frames cannot be returned.
enum Refusal {
    Lapped { oldest: u64 },
    Damaged(LogError),
}

impl Log {
    /// Returns a cursor for one reader.
    #[must_use]
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor {
            log: Arc::clone(self),
            pieces: Vec::new(),
            long: None,
            files: None,
        }
    }

    /// Returns the sequence below which every frame is whole: a [`Cursor`] returns all of them.
    #[must_use]
    pub fn tail_complete(&self) -> u64 {
        self.places.complete()
    }

    /// Returns the sequence from which on a [`Cursor`] finds all frames, unless they are damaged.
    /// Without files it may lie within a frame.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.oldest_in_files()
            .unwrap_or_else(|| self.memory.oldest())
    }
}

impl Cursor {
    /// Reads from `from` on, which is the start of a frame, the end of the log, or the end of the
    /// piece that was returned last. Fills `bytes` with whole frames of at most `max_bytes` in all,
    /// or, if the first one is longer, with that much of it. The pieces of such a frame follow each
    /// other, each of them whole words; the head in the first piece states the frame's length.
    /// `max_bytes` counts as at least 64 and at most [`READ_BYTES_MAX`].
    ///
    /// `bytes` keeps its capacity, so that nothing is allocated in the steady state.
    pub fn read(&mut self, from: u64, max_bytes: usize, bytes: &mut Vec<u8>) -> Read {
        let max_bytes = max_bytes.clamp(64, READ_BYTES_MAX) / WORD_BYTES * WORD_BYTES;
        self.long = self.long.filter(|long| long.next == from);
        let read = self.read_at(from, max_bytes, bytes);
        if !matches!(read, Ok(Some(_))) {
            bytes.clear();
        }
        match read {
            Ok(Some(end)) => Read::Frames { first: from, end },
            Ok(None) => Read::AtTail,
            Err(Refusal::Lapped { oldest }) => Read::Lapped { oldest },
            Err(Refusal::Damaged(error)) => Read::Damaged(error),
        }
    }

    /// Whether the last result was a piece of a frame, but not the last piece.
    pub(super) fn is_in_frame(&self) -> bool {
        self.long.is_some()
    }

    /// Reads once; returns where the bytes end, or `None` at the tail.
    fn read_at(
        &mut self,
        from: u64,
        max_bytes: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<u64>, Refusal> {
        for _ in 0..TRIES_MAX {
            let complete = self.log.tail_complete();
            if from >= complete {
                return Ok(None);
            }
            let end = self.long.map_or(complete, |long| long.end);
            let end = end.min(from.saturating_add(max_bytes as u64));
            bytes.resize(usize::try_from(end - from).unwrap_or(usize::MAX), 0);
            if self.log.memory.copy(from, end, &mut self.pieces, bytes) {
                self.files = None;
                return self.keep_whole(from, bytes).map(Some);
            }
            // Frames that have left the memory were durable before.
            let durable = self.log.durable();
            if self.log.is_volatile {
                let oldest = self.log.memory.oldest();
                if oldest > from {
                    return Err(Refusal::Lapped { oldest });
                }
            } else if from < durable {
                return self.read_files(from, end.min(durable), bytes).map(Some);
            }
            thread::yield_now();
        }
        // The log is being truncated.
        Ok(None)
    }

    /// Cuts bytes from memory after the last whole frame; returns where that ends.
    fn keep_whole(&mut self, from: u64, bytes: &mut Vec<u8>) -> Result<u64, Refusal> {
        if self.long.is_some() {
            return self.next_piece(from, bytes);
        }
        let mut kept = 0;
        while let Some(rest) = bytes.get(kept..).filter(|rest| rest.len() >= HEAD_BYTES) {
            match frame::frame_length(rest) {
                Ok(length) if length <= rest.len() => kept += length,
                Ok(_) => break,
                Err(what) => return Err(self.damage(from + kept as u64, what)),
            }
        }
        self.keep(from, bytes, kept)
    }

    /// Like [`Cursor::keep_whole`], for bytes from files: checks all sums.
    fn keep_checked(&mut self, from: u64, bytes: &mut Vec<u8>) -> Result<u64, Refusal> {
        if self.long.is_some() {
            return self.next_piece(from, bytes);
        }
        let mut kept = 0;
        while let Some(rest) = bytes.get(kept..).filter(|rest| rest.len() >= HEAD_BYTES) {
            let at = from + kept as u64;
            let frame = match frame::frame_length(rest) {
                Ok(length) if length > rest.len() => break,
                Ok(_) => Frame::decode(rest, at),
                Err(what) => Err(what),
            };
            match frame {
                Ok(frame) => kept += usize::try_from(frame.length).unwrap_or(usize::MAX),
                // The frames before it are valid.
                Err(_) if kept > 0 => break,
                Err(what) => return Err(self.damage(at, what)),
            }
        }
        self.keep(from, bytes, kept)
    }

    /// Keeps `kept` bytes of whole frames, or begins a long frame if there are none.
    fn keep(&mut self, from: u64, bytes: &mut Vec<u8>, kept: usize) -> Result<u64, Refusal> {
        if kept > 0 {
            bytes.truncate(kept);
            return Ok(from + kept as u64);
        }
        let length = frame::frame_length(bytes).map_err(|what| self.damage(from, what))?;
        let end = from.saturating_add(length as u64);
        if end > self.log.tail_complete() {
            return Err(self.damage(from, "a frame is longer than the log"));
        }
        self.long = Some(Long {
            first: from,
            next: from,
            end,
            stated_sum: frame::u32_at(bytes, 0),
            sum: SUM_OF_NO_SUM,
        });
        self.next_piece(from, bytes)
    }

    /// Takes the next piece of a long frame; returns where it ends.
    fn next_piece(&mut self, from: u64, bytes: &[u8]) -> Result<u64, Refusal> {
        let end = from + bytes.len() as u64;
        let Some(long) = &mut self.long else {
            return Ok(end);
        };
        let summed = if from == long.first {
            bytes.get(SUM_BYTES..).unwrap_or_default()
        } else {
            bytes
        };
        (long.next, long.sum) = (end, checksum::append(long.sum, summed));
        if end < long.end {
            return Ok(end);
        }
        let (first, stated_sum) = (long.first, long.stated_sum);
        let sum = checksum::append(long.sum, &first.to_le_bytes());
        self.long = None;
        if sum != stated_sum {
            return Err(self.damage(first, WRONG_SUM));
        }
        Ok(end)
    }

    fn damage(&self, sequence: u64, what: &'static str) -> Refusal {
        let place = self.files.as_ref().map(Files::place);
        let (path, offset) = place.unwrap_or_else(|| (self.log.directory.clone(), 0));
        Refusal::Damaged(LogError::Damage {
            path,
            offset,
            sequence,
            what,
        })
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("long", &self.long)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
