//! Destinations of the stream: a buffer, a counter, or a buffer that skips the first bytes.

/// A receiver of the bytes of the stream in order.
pub trait Sink {
    /// Adds the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Adds `count` newlines.
    fn fill(&mut self, count: u64) {
        const LINES: [u8; 256] = [b'\n'; 256];
        let mut left = count;
        while left > 0 {
            let now = left.min(LINES.len() as u64);
            self.put(&LINES[..usize::try_from(now).unwrap_or(LINES.len())]);
            left -= now;
        }
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A sink that counts bytes and keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count(u64);

impl Count {
    /// Returns the number of bytes added.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0
    }
}

impl Sink for Count {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }

    #[inline]
    fn fill(&mut self, count: u64) {
        self.0 += count;
    }
}

/// A sink that drops the first bytes: those that a reconnected replica already has.
#[derive(Debug)]
pub struct Skip<S> {
    sink: S,
    left: u64,
}

impl<S> Skip<S> {
    /// Creates a sink that drops the first `bytes` bytes.
    #[must_use]
    pub fn new(sink: S, bytes: u64) -> Self {
        Self { sink, left: bytes }
    }

    /// Returns how many bytes are still to be dropped.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns the sink of the remaining bytes.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }
}

impl<S: Sink> Sink for Skip<S> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.left == 0 {
            return self.sink.put(bytes);
        }
        let dropped = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.left -= dropped as u64;
        self.sink.put(&bytes[dropped..]);
    }

    fn fill(&mut self, count: u64) {
        let dropped = self.left.min(count);
        self.left -= dropped;
        self.sink.fill(count - dropped);
    }
}

/// A sink that passes bytes on, and counts them.
pub(super) struct Counted<'s, S> {
    sink: &'s mut S,
    bytes: u64,
}

impl<'s, S> Counted<'s, S> {
    pub(super) fn new(sink: &'s mut S) -> Self {
        Self { sink, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<S: Sink> Sink for Counted<'_, S> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.sink.put(bytes);
    }

    #[inline]
    fn fill(&mut self, count: u64) {
        self.bytes += count;
        self.sink.fill(count);
    }
}
