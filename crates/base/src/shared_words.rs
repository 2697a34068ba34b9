//! Words that several threads write to, in memory of their own or in that of a file.
//!
//! ```text
//!   SharedWords ──► words ──► heap, or pages of a file that the system keeps when the process is gone
//!        └ owner: keeps them where they are
//! ```
//!
//! Words are atomics: who reads and writes them needs no more than a shared reference. Those of a file are in the
//! file at once, as far as readers on the same machine see; a device has them when the system writes them.
//!
//! A mapped file must not become shorter while it is mapped, and its device must take back what the system
//! may have put aside: a process that touches a page that is not to be had is ended. So [`SharedWords::of_file`]
//! takes only file systems that write pages where they were, and [`SharedWords::keep_in_memory`] asks the system to keep them.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sync::atomic::AtomicU64;

/// A row of words. Clones and [parts](Self::part) are the same words.
#[derive(Clone)]
pub struct SharedWords {
    words: NonNull<[AtomicU64]>,
    _owner: Owner,
}

/// What keeps words where they are.
#[derive(Clone)]
#[allow(dead_code, reason = "held, never read")]
enum Owner {
    Heap(Arc<[AtomicU64]>),
    #[cfg(not(any(loom, shuttle)))]
    File(Arc<mapped::Mapping>),
}

// SAFETY: gives out nothing but shared references to atomics, and the owner may be dropped by any thread.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// So many words of the heap, zeroes.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let words: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            words: NonNull::from(&*words),
            _owner: Owner::Heap(words),
        }
    }

    /// Keeps the pages of these words in memory, if they are a file's, from the first on as far as the process may. Those
    /// beyond work as well, until a device cannot give one back.
    pub fn keep_in_memory(&self) {
        #[cfg(not(any(loom, shuttle)))]
        if let Owner::File(mapping) = &self._owner {
            mapping.lock(self);
        }
    }

    /// Some of these words.
    ///
    /// # Panics
    /// The range reaches beyond them.
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
        // SAFETY: the words are the owner's, or some of them, and stay where they are for as long as it lives,
        // which is as long as this does.
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

/// Copies the bytes of words as they lie in memory, as many words as `bytes` has room for. Words that others change
/// meanwhile are copied in parts, as they were or as they become.
///
/// # Panics
/// `bytes` are not as many as the words have.
#[cfg(not(any(loom, shuttle)))]
pub fn copy_out(words: &[AtomicU64], bytes: &mut [u8]) {
    assert_eq!(size_of_val(words), bytes.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads what `words` lends and writes what `bytes` lends, which are as long as each other and apart. That
    // others may write to the words meanwhile is as with a system call that reads them: the compiler assumes
    // nothing of what comes out. The direction flag is clear on entry, as it always is.
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
        /// The first `count` words of a file that is open for reading and writing and no shorter than that, as the
        /// bytes lie there; none where the file system may need new room for a page that is written again, as
        /// those that copy on write do. Whoever makes the file shorter ends the process.
        ///
        /// # Errors
        /// Those of the system; no words at all are refused, too.
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

    /// Whether a page of a file that has its room stays where it is when it is written again, and that needs
    /// nothing of a device.
    fn writes_in_place(file: &File) -> io::Result<bool> {
        let mut about = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: takes a descriptor, which `file` keeps open, and room for what it says.
        if unsafe { libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so all of it was filled in.
        let about = unsafe { about.assume_init() };
        // C libraries differ in the type of both.
        let kinds = [libc::EXT4_SUPER_MAGIC, libc::TMPFS_MAGIC].map(i128::from);
        Ok(kinds.contains(&i128::from(about.f_type)))
    }

    /// So much is locked in memory at once: a limit is all or nothing for each piece.
    const LOCKED_BYTES: usize = 4 << 20;

    /// Pages of a file.
    pub(super) struct Mapping {
        start: NonNull<u8>,
        bytes: usize,
    }

    // SAFETY: nothing but the right to unmap the pages, which is any thread's.
    unsafe impl Send for Mapping {}
    // SAFETY: nothing can be done with a shared reference to it.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        fn new(file: &File, bytes: usize) -> io::Result<Self> {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let (kind, descriptor) = (libc::MAP_SHARED, file.as_raw_fd());
            // SAFETY: asks for a new mapping wherever there is room; no other one is touched.
            let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, descriptor, 0) };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Self { start, bytes })
        }

        /// Keeps the pages of some of its words in memory, as far as the process may.
        pub(super) fn lock(&self, words: &[AtomicU64]) {
            debug_assert!(size_of_val(words) <= self.bytes);
            for words in words.chunks(LOCKED_BYTES / size_of::<AtomicU64>()) {
                // SAFETY: the words are there, as they are borrowed, and nothing is written to them.
                let locked = unsafe { libc::mlock(words.as_ptr().cast(), size_of_val(words)) };
                if locked != 0 {
                    return;
                }
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping is of this length and this one's alone; words of it keep this alive.
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
        // Where it is not to be had, there is nothing to see.
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
