//! The bytes of replies that wait to be sent.
//!
//! ```text
//!   bytes:  |  written, waiting to be sent  |  room, already initialised  |
//!           0                              end                     bytes.len()
//! ```
//!
//! All of `bytes` is initialised once, when it grows, so writing a reply neither zero-fills nor
//! allocates in steady state. Large contents are not copied into it but attached at a place between
//! two of its bytes. Invariants
//!  1. `end <= bytes.len()`.
//!  2. Places of attachments do not descend, and none is beyond `end`.

use base::shared_bytes::{Attachment, SharedBytes};

/// Space for any reply that is written at once, see [`ReplyBuffer::append_chunk`].
pub(crate) const CHUNK_BYTES: usize = 128;

/// A growing byte buffer with a write cursor. [`Reply`](crate::Reply) writes to it.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    end: usize,
    attachments: Vec<Attachment>,
    attached_bytes: usize,
}

impl ReplyBuffer {
    /// Creates an empty buffer. Allocates nothing before its first reply.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            end: 0,
            attachments: Vec::new(),
            attached_bytes: 0,
        }
    }

    /// Creates an empty buffer that takes `capacity_bytes` before it grows.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self {
            bytes: vec![0; capacity_bytes],
            ..Self::new()
        }
    }

    /// Returns the bytes that wait to be sent, without attachments.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Returns the number of bytes that wait to be sent, without attachments.
    #[inline]
    pub fn len(&self) -> usize {
        self.end
    }

    /// Whether nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Returns the bytes of memory, used or not, without attachments.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the number of bytes that wait to be sent, including attachments.
    #[inline]
    pub fn len_with_attachments(&self) -> usize {
        self.len() + self.attached_bytes
    }

    /// Attaches `content` at the end of the bytes written so far.
    pub fn attach(&mut self, content: Box<dyn SharedBytes>) {
        self.attached_bytes += content.len();
        self.attachments.push(Attachment {
            place: self.len(),
            content,
        });
    }

    /// Takes all attachments, in the order of their places.
    pub fn take_attachments(&mut self) -> Vec<Attachment> {
        self.attached_bytes = 0;
        std::mem::take(&mut self.attachments)
    }

    /// Returns a copy of the bytes that wait to be sent, with attachments in their places.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len_with_attachments());
        let mut copied = 0;
        for Attachment { place, content } in &self.attachments {
            bytes.extend_from_slice(&self.as_slice()[copied..*place]);
            copied = *place;
            let mut at = 0;
            while at < content.len() {
                let piece = content.piece_at(at);
                bytes.extend_from_slice(piece);
                at += piece.len();
            }
        }
        bytes.extend_from_slice(&self.as_slice()[copied..]);
        bytes
    }

    /// Returns the bytes of memory, used or not, without attachments.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Removes all content and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.end = 0;
        if !self.attachments.is_empty() {
            drop(self.take_attachments());
        }
    }

    /// Returns the current end, to which [`truncate`](Self::truncate) can return. Valid until the
    /// next [`clear`](Self::clear).
    #[inline]
    pub fn mark(&self) -> usize {
        self.end
    }

    /// Drops everything written after `mark`, if anything was.
    #[inline]
    pub fn truncate(&mut self, mark: usize) {
        // Often there is nothing: a reader returns to its mark before it begins.
        if self.end > mark {
            self.cut(mark);
        }
    }

    #[cold]
    fn cut(&mut self, mark: usize) {
        self.end = mark;
        if !self.attachments.is_empty() {
            self.detach(mark);
        }
    }

    /// Drops the attachments from `mark` on. An attachment at the mark was attached after the mark
    /// was taken, because every reply with an attachment ends with bytes.
    #[cold]
    fn detach(&mut self, mark: usize) {
        let stays = self.attachments.partition_point(|one| one.place < mark);
        for dropped in self.attachments.drain(stays..) {
            self.attached_bytes -= dropped.content.len();
        }
    }

    /// Frees memory beyond about `capacity_bytes`, but keeps the bytes that wait to be sent.
    pub fn shrink_to(&mut self, capacity_bytes: usize) {
        if self.bytes.capacity() > capacity_bytes {
            self.bytes.truncate(capacity_bytes.max(self.end));
            self.bytes.shrink_to_fit();
        }
    }

    /// Returns space for exactly `count` more bytes, with unspecified content.
    /// [`commit`](Self::commit) sets how many of them are sent.
    #[inline]
    pub fn reserve(&mut self, count: usize) -> &mut [u8] {
        let end = self.end.saturating_add(count);
        if end > self.bytes.len() {
            return self.grow(count);
        }
        &mut self.bytes[self.end..end]
    }

    /// Counts the first `count` bytes of the last [`reserve`](Self::reserve) as written (at most as
    /// many as the buffer has).
    #[inline]
    pub fn commit(&mut self, count: usize) {
        self.end = self.bytes.len().min(self.end + count);
    }

    /// Appends `count` bytes with unspecified content, for the caller to write.
    #[inline]
    pub(crate) fn append(&mut self, count: usize) -> &mut [u8] {
        let start = self.end;
        if self.bytes.len() - start < count {
            self.grow(count);
        }
        self.end = start + count;
        &mut self.bytes[start..][..count]
    }

    /// Appends `count` bytes, at most [`CHUNK_BYTES`], with unspecified content, for the caller to
    /// write. The caller may also write the bytes behind them, up to [`CHUNK_BYTES`]; these do not
    /// count.
    #[inline(always)]
    pub(crate) fn append_chunk(&mut self, count: usize) -> &mut [u8; CHUNK_BYTES] {
        let start = self.end;
        if self.bytes.len() - start < CHUNK_BYTES {
            self.grow(CHUNK_BYTES);
            return self.append_chunk(count);
        }
        self.end = start + count.min(CHUNK_BYTES);
        let room = self.bytes[start..].first_chunk_mut();
        room.expect("there is room")
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Opens a gap of `count` bytes at `mark`, moving the bytes behind it. The gap's content is
    /// unspecified.
    pub(crate) fn open_gap(&mut self, mark: usize, count: usize) {
        self.reserve(count);
        self.bytes.copy_within(mark..self.end, mark + count);
        self.end += count;
        for attachment in &mut self.attachments {
            if attachment.place > mark {
                attachment.place += count;
            }
        }
    }

    /// Overwrites the bytes at `mark`, which must have been written before.
    pub(crate) fn overwrite(&mut self, mark: usize, bytes: &[u8]) {
        self.bytes[mark..mark + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes space for `count` more bytes, and returns it.
    #[cold]
    fn grow(&mut self, count: usize) -> &mut [u8] {
        let wanted = self
            .end
            .checked_add(count)
            .expect("a buffer's size fits usize");
        let doubled = self.bytes.len().saturating_mul(2).max(256);
        self.bytes
            .reserve_exact(wanted.max(doubled) - self.bytes.len());
        self.bytes.resize(self.bytes.capacity(), 0);
        &mut self.bytes[self.end..wanted]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, Resp};

    #[test]
    fn strings_of_any_length_fit_however_little_room_is_left() {
        for len in 0..200 {
            for capacity in [0, len, len + 8, CHUNK_BYTES - 1, CHUNK_BYTES, 300] {
                let mut buffer = ReplyBuffer::with_capacity(capacity);
                let content = vec![b'x'; len];
                let mut reply = Reply::new(&mut buffer, Resp::V2);
                reply.bulk(&content);
                reply.bulk(&content);
                let once = format!("${len}\r\n{}\r\n", "x".repeat(len));
                assert_eq!(buffer.as_slice(), once.repeat(2).as_bytes());
            }
        }
    }

    #[test]
    fn truncate_returns_to_a_mark() {
        let mut buffer = ReplyBuffer::new();
        buffer.push_slice(b"kept");
        let mark = buffer.mark();
        buffer.push_slice(b"dropped");
        buffer.truncate(mark);
        assert_eq!(buffer.as_slice(), b"kept");
        buffer.truncate(1000);
        assert_eq!(buffer.as_slice(), b"kept");
    }

    #[test]
    fn steady_state_does_not_grow() {
        let mut buffer = ReplyBuffer::with_capacity(64);
        let capacity = buffer.capacity();
        for _ in 0..1000 {
            buffer.push_slice(&[0; 60]);
            buffer.clear();
        }
        assert_eq!(buffer.capacity(), capacity);
    }

    #[test]
    fn shrinking_keeps_what_waits() {
        let mut buffer = ReplyBuffer::with_capacity(10_000);
        buffer.push_slice(&[b'x'; 500]);
        buffer.shrink_to(100);
        assert!(buffer.capacity() < 1_000);
        assert_eq!(buffer.as_slice(), [b'x'; 500]);
    }

    #[test]
    fn attachments_keep_their_places() {
        let mut buffer = ReplyBuffer::new();
        let mark = buffer.mark();
        buffer.push_slice(b"*0\r\n$3\r\n");
        buffer.attach(Box::new(b"big".to_vec()));
        buffer.push_slice(b"\r\n");
        let second = buffer.mark();
        buffer.push_slice(b"$4\r\n");
        buffer.attach(Box::new(b"more".to_vec()));
        buffer.push_slice(b"\r\n");
        assert_eq!(buffer.to_vec(), b"*0\r\n$3\r\nbig\r\n$4\r\nmore\r\n");
        assert_eq!(buffer.len_with_attachments(), buffer.to_vec().len());
        buffer.truncate(second);
        assert_eq!(buffer.to_vec(), b"*0\r\n$3\r\nbig\r\n");
        buffer.open_gap(mark, 1);
        buffer.overwrite(mark, b"*10\r\n");
        assert_eq!(buffer.to_vec(), b"*10\r\n$3\r\nbig\r\n");
        buffer.truncate(mark);
        assert_eq!(
            (buffer.to_vec().len(), buffer.len_with_attachments()),
            (0, 0)
        );
    }
}
