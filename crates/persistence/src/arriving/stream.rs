//! A part that arrives in pieces, as a file that is read from front to back.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use durability::disk::DiskFile;

use super::Piece;
use super::queue::Queue;

pub(super) struct Stream {
    pieces: Arc<Queue<Piece>>,
    window: Mutex<Window>,
}

/// What arrived and may be read yet.
#[derive(Default)]
struct Window {
    bytes: Vec<u8>,
    /// So many of them were read, and are forgotten soon.
    read_bytes: usize,
    /// Where the others begin in the part.
    start: u64,
    is_over: bool,
}

impl Window {
    fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(bytes) if self.rest().is_empty() => {
                (self.bytes, self.read_bytes) = (bytes, 0);
            }
            Piece::Bytes(bytes) => {
                self.bytes.drain(..self.read_bytes);
                self.read_bytes = 0;
                self.bytes.extend_from_slice(&bytes);
            }
            Piece::End => self.is_over = true,
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.read_bytes..]
    }

    /// Forgets what is before a place.
    fn forget(&mut self, until: u64) -> io::Result<()> {
        let passed = until.checked_sub(self.start);
        let passed = passed.and_then(|bytes| usize::try_from(bytes).ok());
        // Nobody reads backwards, or beyond what is there.
        let passed = passed.filter(|bytes| *bytes <= self.rest().len());
        self.read_bytes += passed.ok_or(io::ErrorKind::InvalidInput)?;
        self.start = until;
        Ok(())
    }
}

impl Stream {
    /// The part that this piece is the first of.
    pub(super) fn new(pieces: Arc<Queue<Piece>>, first: Piece) -> Self {
        let mut window = Window::default();
        window.add(first);
        Self {
            pieces,
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
        window.forget(offset)?;
        while window.rest().len() < buffer.len() && !window.is_over {
            let piece = self.pieces.pop();
            window.add(piece.ok_or(io::ErrorKind::UnexpectedEof)?);
        }
        let count = buffer.len().min(window.rest().len());
        buffer[..count].copy_from_slice(&window.rest()[..count]);
        Ok(count)
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
