//! Long bytes on pages of their own, away from the heap.
//!
//! A heap gives memory back when what lies at its end is free: then all of it that became free since, in one go. Who
//! frees the last of a thousand long pieces pays for the thousand, tens of milliseconds for some hundred megabytes, and
//! holds the heap's lock meanwhile. What has pages of its own costs what it is long, and nobody else waits.
//!
//! Worth while from some dozens of pages on: a system call each to have and to give back.

use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::shared_bytes::SharedBytes;

/// Bytes on pages of their own, which the system has back when this is dropped.
#[derive(Debug)]
pub struct MappedBytes {
    /// The first byte; of nothing in particular when there are none.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: owns its pages and never changes them after they were made.
unsafe impl Send for MappedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappedBytes {}

impl MappedBytes {
    /// A copy of `bytes`.
    ///
    /// # Errors
    /// The system has no memory or no more mappings for it.
    pub fn copy_of(bytes: &[u8]) -> io::Result<Self> {
        let mut start = NonNull::dangling();
        if !bytes.is_empty() {
            start = map(bytes.len())?;
            // SAFETY: so many bytes were mapped just now for reading and writing, and nobody else knows of them.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
        }
        Ok(Self {
            start,
            len: bytes.len(),
        })
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped and written for as long as this lives, and nobody writes
        // to them; of none, `start` is aligned and not null.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for MappedBytes {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping is of this length and this one's alone; whoever borrowed from it is gone.
            unsafe { unmap(self.start, self.len) };
        }
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
        self.len
    }

    fn piece_at(&self, at: usize) -> &[u8] {
        self.get(at..).unwrap_or_default()
    }
}

/// Fresh pages for `len` bytes, which are not zero.
pub(crate) fn map(len: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: asks for a new mapping wherever there is room; no other one is touched.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// `map(len)` gave `start`, nobody has given it back yet, and nobody looks at it any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise: the mapping is whole and nobody's.
    let unmapped = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    debug_assert_eq!(unmapped, 0, "{}", io::Error::last_os_error());
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

    #[test]
    fn what_the_system_does_not_have_is_an_error() {
        assert!(map(usize::MAX / 2).is_err());
    }
}
