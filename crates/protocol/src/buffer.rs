//! The bytes of replies on their way out.
//!
//! ```text
//!   bytes:  | sent |  waiting to be sent  |  room, already initialised  |
//!           0    start                   end                      bytes.len()
//! ```
//!
//! All of `bytes` is initialised once, when it grows, so that writing a reply neither zero-fills
//! nor allocates in steady state. Invariant: `start <= end <= bytes.len()`.

/// A growing byte buffer with a write cursor; see [`Reply`](crate::Reply) for what fills it.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReplyBuffer {
    /// An empty buffer; allocates nothing before its first reply.
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// An empty buffer that takes `capacity_bytes` before it grows.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self {
            bytes: vec![0; capacity_bytes],
            start: 0,
            end: 0,
        }
    }

    /// What waits to be sent.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// How many bytes wait to be sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Bytes of memory held, used or not.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets all content and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// The current end, to which [`truncate`](Self::truncate) can return. Valid until the next
    /// [`consume`](Self::consume) or [`clear`](Self::clear).
    #[inline]
    pub fn mark(&self) -> usize {
        self.len()
    }

    /// Drops everything written after `mark`; does nothing if there is none.
    #[inline]
    pub fn truncate(&mut self, mark: usize) {
        self.end = self.end.min(self.start.saturating_add(mark));
    }

    /// Drops the first `sent` bytes (at most all); moves nothing.
    #[inline]
    pub fn consume(&mut self, sent: usize) {
        self.start = self.end.min(self.start.saturating_add(sent));
        if self.start == self.end {
            self.clear();
        }
    }

    /// Gives memory back so that about `capacity_bytes` stay, or as many as wait to be sent.
    pub fn shrink_to(&mut self, capacity_bytes: usize) {
        self.compact();
        if self.bytes.capacity() > capacity_bytes {
            self.bytes.truncate(capacity_bytes.max(self.end));
            self.bytes.shrink_to_fit();
        }
    }

    /// Room for exactly `count` more bytes, with unspecified content. What of it is meant to be
    /// sent is declared by [`commit`](Self::commit).
    #[inline]
    pub fn reserve(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count {
            self.grow(count);
        }
        &mut self.bytes[self.end..][..count]
    }

    /// Counts the first `count` bytes of the last [`reserve`](Self::reserve) as written (at most
    /// what the buffer holds).
    #[inline]
    pub fn commit(&mut self, count: usize) {
        self.end = self.bytes.len().min(self.end + count);
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Opens a gap of `count` bytes at `mark`, moving what follows; the gap's content is
    /// unspecified.
    pub(crate) fn open_gap(&mut self, mark: usize, count: usize) {
        self.reserve(count);
        let at = self.start + mark;
        self.bytes.copy_within(at..self.end, at + count);
        self.end += count;
    }

    /// Overwrites the bytes at `mark`, which must have been written before.
    pub(crate) fn overwrite(&mut self, mark: usize, bytes: &[u8]) {
        let at = self.start + mark;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[cold]
    fn grow(&mut self, count: usize) {
        self.compact();
        let wanted = self
            .end
            .checked_add(count)
            .expect("a buffer's size fits usize");
        if wanted > self.bytes.len() {
            let doubled = self.bytes.len().saturating_mul(2).max(256);
            self.bytes
                .reserve_exact(wanted.max(doubled) - self.bytes.len());
            self.bytes.resize(self.bytes.capacity(), 0);
        }
    }

    fn compact(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consume_then_grow_keeps_the_rest_in_order() {
        let mut buffer = ReplyBuffer::new();
        buffer.push_slice(&[b'a'; 200]);
        buffer.push_slice(b"tail");
        buffer.consume(200);
        assert_eq!(buffer.as_slice(), b"tail");
        buffer.push_slice(&[b'b'; 1000]);
        assert_eq!(&buffer.as_slice()[..5], b"tailb");
        assert_eq!(buffer.len(), 1004);
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
}
