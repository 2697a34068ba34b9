//! A byte buffer on pages of its own, to be filled repeatedly.
//!
//! Writes to a device that bypass the system's cache must be aligned to the device's blocks in
//! memory, too: the alignment of pages is more than any device asks for.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

/// Bytes that begin at a page boundary, initially zero. Their pages are returned to the system when
/// this is dropped.
pub struct PageBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: owns its pages, as a box of bytes would.
unsafe impl Send for PageBuffer {}
// SAFETY: changed through `&mut` only.
unsafe impl Sync for PageBuffer {}

impl PageBuffer {
    /// Allocates `len` bytes, at least one.
    ///
    /// # Errors
    /// The system has no memory or no more mappings for it.
    pub fn new(len: usize) -> io::Result<Self> {
        let start = map(len)?;
        Ok(Self { start, len })
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `start` on are mapped for the lifetime of this value, zero where
        // nothing was written, and no thread writes while they are borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this value owns them exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length and belongs to this value alone; all borrows of it
        // have ended.
        unsafe { unmap(self.start, self.len) };
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Maps fresh pages for `len` bytes, at least one.
fn map(len: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: requests a new mapping at any free address; no other mapping is touched.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Unmaps what [`map`] returned.
///
/// # Safety
/// `map(len)` returned `start`, it was not unmapped yet, and it is not accessed any more.
unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise: the mapping is whole and unused.
    let unmapped = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    debug_assert_eq!(unmapped, 0, "{}", io::Error::last_os_error());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn it_begins_a_page_with_zeroes_and_keeps_what_is_written() {
        for len in [1, 4096, 300_000] {
            let mut buffer = PageBuffer::new(len).unwrap();
            assert!(buffer.as_ptr().addr().is_multiple_of(4096));
            assert_eq!(*buffer, vec![0; len]);
            buffer[len - 1] = 7;
            assert_eq!((buffer.len(), buffer[len - 1]), (len, 7));
        }
        assert!(PageBuffer::new(0).is_err());
    }

    #[test]
    fn what_the_system_does_not_have_is_an_error() {
        assert!(map(usize::MAX / 2).is_err());
    }
}
