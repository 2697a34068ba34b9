//! The log of a replica: the bytes of its primary's log, at the same sequences.
//!
//! ```text
//!   frames of the link ──► Follower ── sums, sequences ──► memory ──► as any log: write_out, sync_step
//! ```
//!
//! There is one follower and no other appender. The follower appends bytes unchanged, once all of
//! them were checked: sums include the sequence, so a frame at a wrong sequence is refused. A frame
//! that comes in pieces is kept until it is whole.
//!
//! If a replica's history departs from that of its primary, it discards the end of its log
//! ([`Follower::truncate`]). Other frames then get the same sequences, so the old ones must not
//! come back: the suffix is overwritten in the ring, and the ring is synced, before a new file
//! begins at that sequence. A crash at any moment leaves the log with or without the suffix, and
//! without it once the call has returned.

use std::fmt;
use std::io;
use std::sync::Arc;

use base::sync::atomic::Ordering;

use super::appender::write_across;
use super::cursor::{READ_BYTES_MAX, Read};
use super::fault::LogFault;
use super::frame::{self, Frame, HEAD_BYTES, UNKNOWN_KIND, WORD_BYTES};
use super::locks::lock;
use super::open_log::Log;
use super::place::Claimant;
use super::reader::LogError;
use super::ring;

/// Appends the frames that a primary sends. See the module.
pub struct Follower {
    log: Arc<Log>,
    claimant: Arc<Claimant>,
    /// The beginning of an incomplete frame, which starts at the log's tail.
    piece: Vec<u8>,
    frame_bytes_max: u64,
}

/// Why frames were not appended. If one is refused, none is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// Frames before these are missing.
    Gap {
        /// Sequence of the next byte.
        expected: u64,
        /// Sequence of the given bytes.
        found: u64,
    },
    /// The log has frames there already.
    Overlap {
        /// Sequence of the next byte.
        expected: u64,
        /// Sequence of the given bytes.
        found: u64,
    },
    /// A frame was changed, or is at a wrong sequence.
    Malformed {
        /// Where the frame begins.
        sequence: u64,
        /// Its flaw.
        what: &'static str,
    },
    /// The frame is of a kind that only a newer server knows.
    UnknownKind {
        /// Where the frame begins.
        sequence: u64,
    },
    /// A piece belongs to a frame that is longer than allowed.
    TooLong {
        /// Where the frame begins.
        sequence: u64,
        /// Its stated length.
        bytes: u64,
        /// Maximum length.
        bytes_max: u64,
    },
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { expected, found } => write!(
                f,
                "frames are missing: the log ends at sequence {expected}, the next ones are for {found}"
            ),
            Self::Overlap { expected, found } => write!(
                f,
                "the log has frames at sequence {found} already, and ends at {expected}"
            ),
            Self::Malformed { sequence, what } => write!(f, "at sequence {sequence}: {what}"),
            Self::UnknownKind { sequence } => write!(
                f,
                "at sequence {sequence}: {UNKNOWN_KIND}; a newer server wrote it"
            ),
            Self::TooLong {
                sequence,
                bytes,
                bytes_max,
            } => write!(
                f,
                "the frame at sequence {sequence} has {bytes} bytes, and may have {bytes_max}"
            ),
        }
    }
}

impl std::error::Error for AppendError {}

/// Why a log was not truncated.
#[derive(Debug)]
pub enum TruncateError {
    /// The log ends before that sequence.
    Beyond {
        /// Where it ends.
        end: u64,
    },
    /// The log begins after that sequence.
    Missing {
        /// Where it begins.
        oldest: u64,
    },
    /// No frame begins there.
    NoFrame,
    /// There are other appenders.
    Appenders,
    /// The log cannot be read there.
    Damaged(LogError),
    /// A file failed. The discarded frames are no longer read, and they are gone for good once the
    /// fault has healed; until then they come back after a restart.
    Fault(LogFault),
}

impl fmt::Display for TruncateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { end } => write!(f, "the log ends at sequence {end}"),
            Self::Missing { oldest } => write!(f, "the log begins at sequence {oldest}"),
            Self::NoFrame => f.write_str("no frame of the log begins there"),
            Self::Appenders => f.write_str("others append to the log"),
            Self::Damaged(error) => fmt::Display::fmt(error, f),
            Self::Fault(fault) => fmt::Display::fmt(fault, f),
        }
    }
}

impl std::error::Error for TruncateError {}

impl Log {
    /// Returns a follower, unless there is another appender. Of a frame that comes in pieces, up to
    /// `frame_bytes_max` are kept until it is whole.
    #[must_use]
    pub fn follower(self: &Arc<Self>, frame_bytes_max: u64) -> Option<Follower> {
        let claimant = self.places.join_alone()?;
        Some(Follower {
            log: Arc::clone(self),
            claimant,
            piece: Vec::new(),
            frame_bytes_max,
        })
    }
}

impl Follower {
    /// Returns the log to which it appends.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Returns the sequence of the next byte: the log's tail, or the end of the last piece.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.log.tail() + self.piece.len() as u64
    }

    /// Forgets the pieces of an incomplete frame, because their link has ended.
    pub fn forget_piece(&mut self) {
        self.piece = Vec::new();
    }

    /// Appends frames unchanged. The first byte is at `first`, which is [`Follower::next`]; the
    /// last frame may be a piece. Returns the end of the log. The caller checks for room before
    /// ([`Log::has_room`]). The appended frames are with the system after [`Log::write_out`].
    ///
    /// # Errors
    /// [`AppendError`]. Then nothing is appended, and pieces are forgotten.
    pub fn append_frames(&mut self, first: u64, bytes: &[u8]) -> Result<u64, AppendError> {
        let appended = self.append_checked(first, bytes);
        if appended.is_err() {
            self.forget_piece();
        }
        appended
    }

    fn append_checked(&mut self, first: u64, bytes: &[u8]) -> Result<u64, AppendError> {
        let expected = self.next();
        if first > expected {
            return Err(AppendError::Gap {
                expected,
                found: first,
            });
        }
        if first < expected {
            return Err(AppendError::Overlap {
                expected,
                found: first,
            });
        }
        let tail = self.log.tail();
        let rest = self.complete_piece(tail, bytes)?;
        if rest.is_empty() && !self.piece.is_empty() && !self.has_whole_piece() {
            return Ok(tail);
        }
        let at = tail + self.piece.len() as u64;
        let whole_bytes = self.check(at, rest)?;
        let (whole, next) = rest.split_at(whole_bytes);
        let piece = std::mem::take(&mut self.piece);
        for frames in [&piece, whole] {
            self.append(frames);
        }
        self.piece = piece;
        self.piece.clear();
        self.piece.extend_from_slice(next);
        if self.piece.is_empty() {
            self.piece.shrink_to(READ_BYTES_MAX);
        }
        Ok(self.log.tail())
    }

    /// Adds the missing bytes to the piece; returns the rest.
    fn complete_piece<'b>(
        &mut self,
        tail: u64,
        mut bytes: &'b [u8],
    ) -> Result<&'b [u8], AppendError> {
        while !self.piece.is_empty() && !bytes.is_empty() {
            let length = self.piece_length();
            let wanted = length.saturating_sub(self.piece.len());
            if wanted == 0 {
                break;
            }
            let (here, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.piece.extend_from_slice(here);
            bytes = rest;
            if self.piece.len() >= HEAD_BYTES {
                self.check_head(tail, &self.piece)?;
            }
        }
        if self.has_whole_piece() {
            Frame::decode(&self.piece, tail).map_err(|what| refused(tail, what))?;
        }
        Ok(bytes)
    }

    /// Returns the full length of the piece's frame, or that of a head until it is known.
    fn piece_length(&self) -> usize {
        frame::frame_length(&self.piece).unwrap_or(HEAD_BYTES)
    }

    fn has_whole_piece(&self) -> bool {
        self.piece.len() >= HEAD_BYTES && self.piece.len() == self.piece_length()
    }

    /// Checks the whole frames; returns their length. The bytes behind them may become a frame.
    fn check(&self, first: u64, bytes: &[u8]) -> Result<usize, AppendError> {
        let mut whole = 0;
        loop {
            let (rest, sequence) = (&bytes[whole..], first + whole as u64);
            if rest.len() < HEAD_BYTES {
                return Ok(whole);
            }
            let length = self.check_head(sequence, rest)?;
            if length > rest.len() {
                return Ok(whole);
            }
            Frame::decode(rest, sequence).map_err(|what| refused(sequence, what))?;
            whole += length;
        }
    }

    /// Returns the length of the frame that begins with `bytes`.
    fn check_head(&self, sequence: u64, bytes: &[u8]) -> Result<usize, AppendError> {
        let length = frame::frame_length(bytes).map_err(|what| refused(sequence, what))?;
        let is_piece = length > bytes.len();
        if is_piece && length as u64 > self.frame_bytes_max {
            return Err(AppendError::TooLong {
                sequence,
                bytes: length as u64,
                bytes_max: self.frame_bytes_max,
            });
        }
        Ok(length)
    }

    /// Appends whole frames, which were checked.
    fn append(&self, frames: &[u8]) {
        let (words, _) = frames.as_chunks::<WORD_BYTES>();
        if words.is_empty() {
            return;
        }
        let places = &self.log.places;
        let sequence = places.claim(&self.claimant, frames.len() as u64);
        let _chunk = write_across(&self.log, sequence, words);
        places.fill(&self.claimant);
    }

    /// Discards everything from `sequence` on, at which a frame begins: the log ends there, and
    /// other frames may get the same sequences. On return everything below is durable.
    /// [`Log::durable`] falls, which nothing else causes.
    ///
    /// # Errors
    /// [`TruncateError`]. Except for [`TruncateError::Fault`], the log is unchanged.
    pub fn truncate(&mut self, sequence: u64) -> Result<(), TruncateError> {
        self.forget_piece();
        let end = self.log.tail();
        if sequence > end {
            return Err(TruncateError::Beyond { end });
        }
        if sequence == end {
            return Ok(());
        }
        self.check_frame(sequence)?;
        if !self.log.places.is_alone() {
            return Err(TruncateError::Appenders);
        }
        self.log
            .give_up_from(sequence)
            .map_err(TruncateError::Fault)
    }

    /// Checks that a frame begins at `sequence`.
    fn check_frame(&self, sequence: u64) -> Result<(), TruncateError> {
        let (mut cursor, mut bytes) = (self.log.cursor(), Vec::new());
        let mut at = sequence;
        loop {
            match cursor.read(at, READ_BYTES_MAX, &mut bytes) {
                Read::Frames { end, .. } if cursor.is_in_frame() => at = end,
                // The sum of a long frame was checked.
                Read::Frames { .. } if at > sequence => return Ok(()),
                Read::Frames { .. } => {
                    let frame = Frame::decode(&bytes, sequence);
                    return frame.map(|_| ()).map_err(|_| TruncateError::NoFrame);
                }
                Read::AtTail => return Err(TruncateError::NoFrame),
                Read::Lapped { oldest } => return Err(TruncateError::Missing { oldest }),
                Read::Damaged(LogError::Damage {
                    sequence: place, ..
                }) if place == sequence => {
                    return Err(TruncateError::NoFrame);
                }
                Read::Damaged(error) => return Err(TruncateError::Damaged(error)),
            }
        }
    }
}

impl Log {
    /// See [`Follower::truncate`].
    fn give_up_from(&self, sequence: u64) -> Result<(), LogFault> {
        let syncing = lock(&self.syncing);
        let mut writer = lock(&self.writer);
        let before = self.places.tail();
        self.places.set_tail(sequence);
        for mark in [&self.wanted, &self.stored, &*self.written, &*self.durable] {
            mark.fetch_min(sequence, Ordering::AcqRel);
        }
        self.memory.give_up(sequence, before);
        if self.is_volatile {
            return Ok(());
        }
        writer.has_stale_ring = self.has_ring();
        let healed = self.heal(&mut writer);
        drop(writer);
        drop(syncing);
        self.tell();
        healed
    }

    /// Syncs the ring if a device may still have discarded frames in it.
    pub(super) fn forget_stale_ring(&self, is_stale: &mut bool) -> io::Result<()> {
        if *is_stale {
            ring::sync(&*self.disk, &self.directory)?;
            *is_stale = false;
        }
        Ok(())
    }
}

fn refused(sequence: u64, what: &'static str) -> AppendError {
    if what == UNKNOWN_KIND {
        AppendError::UnknownKind { sequence }
    } else {
        AppendError::Malformed { sequence, what }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.places.leave(&self.claimant);
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("next", &self.next())
            .finish_non_exhaustive()
    }
}
