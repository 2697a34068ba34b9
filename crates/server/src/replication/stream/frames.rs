//! Iterates over the frames of a log, and puts each into the stream.

use std::fmt;
use std::sync::Arc;

use durability::log::{Control, Cursor, Frame, Log, Read, frame_bytes, frames};
use replication::transcode::{Sink, Transcoder, Unsupported};

/// Number of bytes that are read from the log at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Why a frame cannot be read or sent.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// The log begins after it.
    Lapped,
    /// The log cannot be read.
    Damaged(String),
    /// The peer has no command for it.
    Unsupported(Unsupported),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lapped => f.write_str("the log does not reach back so far"),
            Self::Damaged(what) => write!(f, "the log cannot be read: {what}"),
            Self::Unsupported(what) => what.fmt(f),
        }
    }
}

/// Reads the frames of a log from a sequence on, and joins the pieces of long ones.
pub(crate) struct Frames {
    cursor: Cursor,
    piece: Vec<u8>,
    long: Vec<u8>,
    /// The sequence to read next.
    pub(super) next: u64,
}

impl Frames {
    pub(crate) fn new(log: &Arc<Log>, from: u64) -> Self {
        Self {
            cursor: log.cursor(),
            piece: Vec::new(),
            long: Vec::new(),
            next: from,
        }
    }

    /// The sequence to read next: all frames before it were visited.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Reads the next piece, and visits its frames. Returns whether there was one.
    pub(crate) fn read(
        &mut self,
        mut visit: impl FnMut(&Frame<'_>) -> Result<(), Unsupported>,
    ) -> Result<bool, Obstacle> {
        let (first, end) = match self.cursor.read(self.next, PIECE_BYTES, &mut self.piece) {
            Read::Frames { first, end } => (first, end),
            Read::AtTail => return Ok(false),
            Read::Lapped { .. } => return Err(Obstacle::Lapped),
            Read::Damaged(error) => return Err(Obstacle::Damaged(error.to_string())),
        };
        self.next = end;
        if self.long.is_empty() {
            let length = frame_bytes(&self.piece).unwrap_or(0);
            if length <= self.piece.len() as u64 {
                for frame in frames(first, &self.piece) {
                    visit(&frame).map_err(Obstacle::Unsupported)?;
                }
                return Ok(true);
            }
        }
        self.long.extend_from_slice(&self.piece);
        let length = frame_bytes(&self.long).unwrap_or(0);
        if length > self.long.len() as u64 {
            return Ok(true);
        }
        let long = std::mem::take(&mut self.long);
        for frame in frames(end - long.len() as u64, &long) {
            visit(&frame).map_err(Obstacle::Unsupported)?;
        }
        Ok(true)
    }
}

/// Puts a frame into the stream.
pub(crate) fn put(
    transcoder: &mut Transcoder,
    frame: &Frame<'_>,
    sink: &mut impl Sink,
) -> Result<(), Unsupported> {
    let end = frame.sequence + frame.length;
    match frame.control() {
        Some(Control::Ping) => transcoder.ping(end, sink),
        Some(Control::GetAck) => transcoder.getack(end, sink),
        Some(Control::Term(_)) => transcoder.term(end),
        Some(Control::Trim(_)) => transcoder.trim()?,
        _ if frame.effects().next().is_none() => transcoder.silent(end),
        _ => transcoder.effects(frame.effects(), end, sink)?,
    }
    Ok(())
}
