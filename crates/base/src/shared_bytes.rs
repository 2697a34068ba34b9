//! Bytes that several parts of the process read without copying them.

use std::sync::Arc;

/// Bytes that do not change while anything holds them: the store lends them and the network sends
/// them.
pub trait SharedBytes: Send {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the contiguous bytes that start at `at`; empty only at the end.
    fn piece_at(&self, at: usize) -> &[u8];
}

impl SharedBytes for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }

    fn piece_at(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
}

impl SharedBytes for Arc<[u8]> {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn piece_at(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
}

impl std::fmt::Debug for dyn SharedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} shared bytes", self.len())
    }
}

/// Bytes that belong between two bytes of a buffer, and are sent from where they lie.
#[derive(Debug)]
pub struct Attachment {
    /// How many of the buffer's bytes come before it.
    pub place: usize,
    /// The bytes that are sent there.
    pub content: Box<dyn SharedBytes>,
}
