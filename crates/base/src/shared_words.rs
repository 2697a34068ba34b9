//! Words that several threads write to, on the heap or in a mapped file.
//!
//! ```text
//!   SharedWords ──► words ──► heap, or pages of a file that the system keeps when the process is gone
//!        └ owner: keeps them where they are
//! ```
//!
//! Words are atomics: reading and writing them takes only a shared reference. Those of a file are
//! in the file at once, as far as readers on the same machine see; a device has them when the
//! system writes them.
//!
//! A mapped file must not become shorter while it is mapped, and its device must accept the pages
//! that the system writes back: a process that touches an unavailable page is ended. So
//! [`SharedWords::of_file`] accepts only file systems that write pages in place, and
//! [`SharedWords::keep_in_memory`] asks the system to keep the pages.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::atomic::AtomicU64;

/// A row of words. Clones and [parts](Self::part) refer to the same words.
#[derive(Clone)]
pub struct SharedWords {
    words: NonNull<[AtomicU64]>,
    _owner: Owner,
}

/// The owner of the words' memory, which keeps them in place.
#[derive(Clone)]
#[allow(dead_code, reason = "held, never read")]
enum Owner {
    Heap(Arc<[AtomicU64]>),
    #[cfg(not(any(loom, shuttle)))]
    File(Arc<mapped::Mapping>),
}

// SAFETY: gives out only shared references to atomics, and any thread may drop the owner.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Allocates `count` words on the heap, all zero.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            words: NonNull::from(&*words),
            _owner: Owner::Heap(words),
        }
    }

    /// Locks the pages of these words in memory, if they are a file's, from the first on as far as
    /// the process may. Pages beyond work as well, unless a device cannot return one.
    pub fn keep_in_memory(&self) {
        #[cfg(not(any(loom, shuttle)))]
        if let Owner::File(mapping) = &self._owner {
            mapping.lock(self);
        }
    }

    /// Returns some of these words.
    ///
    /// # Panics
    /// If the range reaches beyond them.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        Self {
            words: NonNull::from(&self[range]),
            _owner: self._owner.clone(),
        }
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the words are the owner's, or some of them, and stay in place for the owner's
        // lifetime, which is at least as long as that of this value.
        unsafe { self.words.as_ref() }
    }
}

impl fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWords")
            .field("count", &self.len())
            .finish_non_exhaustive()
    }
}

/// Copies the bytes of words as they lie in memory. Words that other threads change meanwhile are
/// copied in parts, with their old or their new value.
///
/// # Panics
/// If `bytes` has another length than the words.
#[cfg(not(any(loom, shuttle)))]
pub fn copy_out(words: &[AtomicU64], bytes: &mut [u8]) {
    assert_eq!(size_of_val(words), bytes.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads what `words` lends and writes what `bytes` lends, which have the same length
    // and do not overlap. That other threads may write to the words meanwhile is as with a system
    // call that reads them: the compiler assumes nothing about the result. The direction flag is
    // clear on entry, as it always is.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes.len() => _,
            inout("rsi") words.as_ptr() => _,
            inout("rdi") bytes.as_mut_ptr() => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let (places, _) = bytes.as_chunks_mut();
        for (place, word) in places.iter_mut().zip(words) {
            *place = word
                .load(std::sync::atomic::Ordering::Relaxed)
                .to_le()
                .to_le_bytes();
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
mod mapped {
    use std::fs::File;
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd as _;
    use std::ptr::{self, NonNull};
    use std::sync::Arc;

    use super::{AtomicU64, Owner, SharedWords};

    impl SharedWords {
        /// Maps the first `count` words of a file, as its bytes lie there. The file is open for
        /// reading and writing and at least that long. `None` if the file system may need new space
        /// for a page that is written again, as copy-on-write file systems do. If any process
        /// shortens the file, this process is ended.
        ///
        /// # Errors
        /// Those of the system; a count of zero is refused, too.
        pub fn of_file(file: &File, count: usize) -> io::Result<Option<Self>> {
            if !writes_in_place(file)? {
                return Ok(None);
            }
            let bytes = count.checked_mul(size_of::<AtomicU64>());
            let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
            if file.metadata()?.len() < bytes as u64 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mapping = Arc::new(Mapping::new(file, bytes)?);
            let words = NonNull::slice_from_raw_parts(mapping.start.cast(), count);
            Ok(Some(Self {
                words,
                _owner: Owner::File(mapping),
            }))
        }
    }

    /// Whether an allocated page of a file stays in place when it is written again, without needing
    /// anything of a device.
    fn writes_in_place(file: &File) -> io::Result<bool> {
        let mut about = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: takes a descriptor, which `file` keeps open, and a buffer for the result.
        if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so all of it is initialized.
        let about = unsafe { about.assume_init() };
        // C libraries differ in the types of both.
        let kinds = [libc::EXT4_SUPER_MAGIC, libc::TMPFS_MAGIC].map(i128::from);
        Ok(kinds.contains(&i128::from(about.f_type)))
    }

    /// Bytes that are locked in memory at once: each piece is locked completely or not at all.
    const LOCKED_BYTES: usize = 4 << 20;

    /// Pages of a file.
    pub(super) struct Mapping {
        start: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: holds only the right to unmap the pages, which any thread may do.
    unsafe impl Send for Mapping {}
    // SAFETY: a shared reference to it permits nothing.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(file: &File, bytes: usize) -> io::Result<Self> {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let (kind, descriptor) = (libc::MAP_SHARED, file.as_raw_fd());
            // SAFETY: requests a new mapping at any free address; no other mapping is touched.
            let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, descriptor, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Self { start, bytes })
        }

        /// Locks the pages of some of its words in memory, as far as the process may.
        pub(super) fn lock(&self, words: &[AtomicU64]) {
            debug_assert!(size_of_val(words) <= self.bytes);
            for words in words.chunks(LOCKED_BYTES / size_of::<AtomicU64>()) {
                // SAFETY: the words are borrowed, so they are mapped; nothing is written to them.
                let locked = unsafe { libc::mlock(words.as_ptr().cast(), size_of_val(words)) };
                if locked != 0 {
                    return;
                }
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping has this length and belongs to this value alone; words of it keep
            // this value alive.
            let unmapped = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
            debug_assert_eq!(unmapped, 0, "{}", io::Error::last_os_error());
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn parts_are_the_same_words_and_outlive_the_whole() {
        let whole = SharedWords::new(8);
        let part = whole.part(2..5);
        whole[3].store(7, Ordering::Relaxed);
        part[2].store(9, Ordering::Relaxed);
        assert_eq!(whole[4].load(Ordering::Relaxed), 9);
        drop(whole);
        let values: Vec<u64> = part.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        assert_eq!(values, [0, 7, 9]);
    }

    #[test]
    fn bytes_are_copied_as_they_lie() {
        for count in [0, 1, 7, 300] {
            let words = SharedWords::new(count);
            let mut expected = Vec::new();
            for (number, word) in words.iter().enumerate() {
                let value = (number as u64).wrapping_mul(0x0102_0304_0506_0709);
                word.store(value, Ordering::Relaxed);
                expected.extend(value.to_le().to_le_bytes());
            }
            let mut bytes = vec![1; count * 8];
            copy_out(&words, &mut bytes);
            assert_eq!(bytes, expected);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a file")]
    fn words_of_a_file_are_its_bytes_and_stay_when_they_are_dropped() {
        let path = std::env::temp_dir().join(format!("iolite-words-of-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        assert!(SharedWords::of_file(&file, 513).is_err(), "it is shorter");
        assert!(SharedWords::of_file(&file, usize::MAX).is_err());
        // Without a mapping there is nothing to check.
        if let Some(words) = SharedWords::of_file(&file, 512).unwrap() {
            assert_eq!(
                words[511].load(Ordering::Relaxed),
                u64::from_le_bytes([1; 8])
            );
            let part = words.part(511..512);
            words.keep_in_memory();
            drop(words);
            part[0].store(u64::from_le_bytes([2; 8]), Ordering::Relaxed);
            drop(part);
            let mut bytes = [0; 16];
            file.read_exact_at(&mut bytes, 4096 - 16).unwrap();
            assert_eq!(bytes, [[1; 8], [2; 8]].concat()[..]);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
