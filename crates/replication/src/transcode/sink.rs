//! Where the stream goes: a buffer, a counter, or a buffer that wants only what comes later.

/// Takes the bytes of the stream in order.
pub trait Sink {
    /// The next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// So many newlines.
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

/// Counts bytes and keeps none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count(u64);

impl Count {
    /// How many were put.
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

/// Drops the first bytes: those that a replica which comes back has already.
#[derive(Debug)]
pub struct Skip<S> {
    sink: S,
    left: u64,
}

impl<S> Skip<S> {
    /// Drops so many.
    #[must_use]
    pub fn new(sink: S, bytes: u64) -> Self {
        Self { sink, left: bytes }
    }

    /// How many are still to be dropped.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// What the rest went to.
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

/// Hands on, and counts.
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
