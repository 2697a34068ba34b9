//! A part that is received in pieces, as a file that is read from front to back.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use durability::disk::DiskFile;

use super::Piece;
use super::queue::Queue;
use super::spares::Spares;

pub(super) struct Stream {
    pieces: Arc<Queue<Piece>>,
    spares: Arc<Spares>,
    window: Mutex<Window>,
}

/// Received bytes that can be read.
#[derive(Default)]
struct Window {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes of the first piece that were read.
    passed_bytes: usize,
    /// Number of unread bytes.
    left_bytes: usize,
    /// Offset of the unread bytes in the part.
    start: u64,
    is_over: bool,
}

impl Window {
    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(bytes) => {
                self.left_bytes += bytes.len();
                self.pieces.push_back(bytes);
            }
            Piece::End => self.is_over = true,
        }
    }

    /// Forgets the bytes before `until`.
    fn forget(&mut self, until: u64, spares: &Spares) -> io::Result<()> {
        let passed = until.checked_sub(self.start);
        let passed = passed.and_then(|bytes| usize::try_from(bytes).ok());
        // No caller reads backwards, or beyond the received bytes.
        let passed = passed.filter(|bytes| *bytes <= self.left_bytes);
        let passed = passed.ok_or(io::ErrorKind::InvalidInput)?;
        self.passed_bytes += passed;
        self.left_bytes -= passed;
        self.start = until;
        while let Some(piece) = self.pieces.pop_front_if(|it| it.len() <= self.passed_bytes) {
            self.passed_bytes -= piece.len();
            spares.give(piece);
        }
        Ok(())
    }

    /// Copies the next bytes, as many as there are; returns their number.
    fn copy_to(&self, mut buffer: &mut [u8]) -> usize {
        let room = buffer.len();
        let mut from = self.passed_bytes;
        for piece in &self.pieces {
            let piece = &piece[std::mem::take(&mut from)..];
            let count = piece.len().min(buffer.len());
            let (now, later) = buffer.split_at_mut(count);
            now.copy_from_slice(&piece[..count]);
            buffer = later;
        }
        room - buffer.len()
    }
}

impl Stream {
    /// Returns the part that begins with this piece. Pieces that were read go to `spares`.
    pub(super) fn new(pieces: Arc<Queue<Piece>>, spares: Arc<Spares>, first: Piece) -> Self {
        let mut window = Window::default();
        window.add(first);
        Self {
            pieces,
            spares,
            window: Mutex::new(window),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl DiskFile for Stream {
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        refused()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let window = self.window.lock();
        let mut window = window.unwrap_or_else(PoisonError::into_inner);
        window.forget(offset, &self.spares)?;
        while window.left_bytes < buffer.len() && !window.is_over {
            let piece = self.pieces.pop();
            window.add(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
        }
        Ok(window.copy_to(buffer))
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn size(&self) -> io::Result<u64> {
        refused()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }
}
