//! Bytes of a file as they are received: the current item, and bytes that were read ahead.
//!
//! ```text
//!   buffer   │ passed │ the item so far │ read ahead │ room │
//!                     start             cursor       filled
//! ```
//!
//! Skipped bytes are added to the checksum and freed before more are read. The buffer grows as
//! bytes are received: at most to twice its content.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use base::crc::crc64;

use super::{Fault, FileError};
use crate::reader::{Limits, Malformed, Reader};

/// Minimum number of bytes read at a time.
const READ_BYTES: usize = 64 << 10;
/// A longer buffer is freed once the item that needed it was skipped.
const KEPT_BYTES: usize = 1 << 20;
/// Maximum length of a text's head: compressed, with two lengths.
const TEXT_HEAD_BYTES: usize = 1 + 2 * LENGTH_BYTES;
const LENGTH_BYTES: usize = 9;

/// A file that is being read.
#[derive(Debug)]
pub(super) struct Input<R> {
    source: R,
    limits: Limits,
    buffer: Vec<u8>,
    start: usize,
    cursor: usize,
    filled: usize,
    /// Number of freed bytes: the buffer's offset in the file.
    before: u64,
    /// Checksum of the freed bytes.
    sum: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(source: R, limits: Limits) -> Self {
        Self {
            source,
            limits,
            buffer: Vec::new(),
            start: 0,
            cursor: 0,
            filled: 0,
            before: 0,
            sum: 0,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Begins an item at the present position.
    pub(super) fn begin(&mut self) {
        self.start = self.cursor;
    }

    /// Returns the offset of the next byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.cursor as u64
    }

    /// Returns how many bytes of the item were read.
    pub(super) fn position(&self) -> usize {
        self.cursor - self.start
    }

    /// Returns a part of the item.
    pub(super) fn part(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[self.start + range.start..self.start + range.end]
    }

    /// Returns the offset in the file of a position in the item.
    pub(super) fn offset_of(&self, position: usize) -> u64 {
        self.before + (self.start + position) as u64
    }

    /// Takes the next byte.
    pub(super) fn byte(&mut self) -> Result<u8, FileError> {
        self.array().map(|[byte]| byte)
    }

    /// Takes the next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        self.offer(N)?;
        let Some(front) = self.ahead().first_chunk::<N>().copied() else {
            return Err(self.ended());
        };
        self.cursor += N;
        Ok(front)
    }

    /// Returns the next byte without taking it, or `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, FileError> {
        self.offer(1)?;
        Ok(self.ahead().first().copied())
    }

    /// Goes back to a position in the item.
    pub(super) fn go_back(&mut self, position: usize) {
        self.cursor = self.start + position;
    }

    /// Skips the next `count` bytes.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), FileError> {
        self.offer(count)?;
        if self.ahead().len() < count {
            return Err(self.ended());
        }
        self.cursor += count;
        Ok(())
    }

    /// Takes the next length.
    pub(super) fn length(&mut self) -> Result<u64, FileError> {
        self.head(LENGTH_BYTES, |reader| reader.length())
    }

    /// Skips the next text. Returns its range in the item.
    pub(super) fn text(&mut self) -> Result<Range<usize>, FileError> {
        let begin = self.position();
        let len = self.head(TEXT_HEAD_BYTES, |reader| reader.text_head())?;
        self.skip(len)?;
        Ok(begin..self.position())
    }

    /// Reads something of at most `bytes_max` bytes with a reader.
    #[inline]
    fn head<T>(
        &mut self,
        bytes_max: usize,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Malformed>,
    ) -> Result<T, FileError> {
        self.offer(bytes_max)?;
        let ahead = self.ahead();
        let mut reader = Reader::new(ahead, 0, &self.limits);
        match read(&mut reader) {
            Ok(value) => {
                self.cursor += ahead.len() - reader.rest().len();
                Ok(value)
            }
            Err(Malformed::Ended) => Err(self.ended()),
            Err(malformed) => Err(self.wrong(malformed)),
        }
    }

    /// Returns the checksum of all bytes up to here.
    pub(super) fn sum(&self) -> u64 {
        crc64(self.sum, &self.buffer[..self.cursor])
    }

    /// Whether nothing follows.
    pub(super) fn is_at_end(&mut self) -> Result<bool, FileError> {
        self.offer(1)?;
        Ok(self.ahead().is_empty())
    }

    /// Returns the bytes that were read ahead, and the source of the rest.
    pub(super) fn into_rest(mut self) -> (Vec<u8>, R) {
        self.buffer.truncate(self.filled);
        self.buffer.drain(..self.cursor);
        (self.buffer, self.source)
    }

    /// Returns an error at the present position.
    pub(super) fn wrong(&self, fault: impl Into<Fault>) -> FileError {
        FileError {
            offset: self.offset(),
            fault: fault.into(),
        }
    }

    /// Returns the error of a file that ends too early.
    fn ended(&self) -> FileError {
        FileError {
            offset: self.before + self.filled as u64,
            fault: Malformed::Ended.into(),
        }
    }

    fn ahead(&self) -> &[u8] {
        &self.buffer[self.cursor..self.filled]
    }

    /// Reads until `count` bytes are available, or the file ends.
    fn offer(&mut self, count: usize) -> Result<(), FileError> {
        while self.ahead().len() < count {
            let missing = count - self.ahead().len();
            self.make_room(missing);
            let end = self.filled.saturating_add(missing.max(READ_BYTES));
            let end = end.min(self.buffer.len());
            let room = &mut self.buffer[self.filled..end];
            match self.source.read(room) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.wrong(Fault::Read(error))),
            }
        }
        Ok(())
    }

    /// Grows the buffer behind the bytes that were read ahead: by what is missing, but at most by
    /// its content.
    fn make_room(&mut self, missing: usize) {
        if self.filled < self.buffer.len() {
            return;
        }
        self.give_back();
        let held = self.filled;
        let more = missing.min(held).max(READ_BYTES);
        let len = held + more;
        if self.buffer.len() > KEPT_BYTES && len <= KEPT_BYTES {
            self.buffer.truncate(len);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.len() < len {
            self.buffer.resize(len, 0);
        }
    }

    /// Adds the skipped bytes to the checksum, and moves the rest to the front.
    fn give_back(&mut self) {
        self.sum = crc64(self.sum, &self.buffer[..self.start]);
        self.before += self.start as u64;
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.cursor -= self.start;
        self.start = 0;
    }
}
