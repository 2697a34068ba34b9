//! Long byte strings on pages of their own, outside of the heap.
//!
//! A heap returns memory to the system when the memory at its end becomes free: then all that
//! became free since, at once. The thread that frees the last of a thousand long pieces pays for
//! the thousand, tens of milliseconds for some hundred megabytes, and holds the heap's lock
//! meanwhile. A piece on its own pages costs time for its own length, and no other thread waits.
//!
//! Worthwhile from a few dozen pages on: allocation and release cost a system call each.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use crate::page_buffer::PageBuffer;
use crate::shared_bytes::SharedBytes;

/// Bytes on pages of their own, which are returned to the system when this is dropped.
#[derive(Debug)]
pub struct MappedBytes {
    /// `None` if there are no bytes.
    pages: Option<PageBuffer>,
}

impl MappedBytes {
    /// Copies `bytes`.
    ///
    /// # Errors
    /// The system has no memory or no more mappings for it.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        if bytes.is_empty() {
            return Ok(Self { pages: None });
        }
        let mut pages = PageBuffer::new(bytes.len())?;
        pages.copy_from_slice(bytes);
        Ok(Self { pages: Some(pages) })
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages.as_deref().unwrap_or_default()
    }
}

impl PartialEq for MappedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for MappedBytes {}

impl SharedBytes for Arc<MappedBytes> {
    fn len(&self) -> usize {
        self.deref().len()
    }

    fn piece_at(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_same_and_begins_a_page() {
        for len in [0, 1, 4095, 4096, 4097, 300_000] {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
            let mapped = Arc::new(MappedBytes::copy_of(&bytes).unwrap());
            assert_eq!(&**mapped, bytes);
            assert_eq!(SharedBytes::len(&mapped), len);
            assert!(len == 0 || mapped.as_ptr().addr().is_multiple_of(4096));
            assert_eq!(mapped.piece_at(len / 2), &bytes[len / 2..]);
            assert!(mapped.piece_at(len + 1).is_empty());
        }
    }
}
