//! A reserved range of address space that never moves. Memory is provided only where it is touched.
//!
//! The index and the record arena each live in one, so they grow by touching the next page: nothing
//! is copied and no pointer changes. Fresh memory reads as zero.
//!
//! Reserving more than the machine has is free as long as it is not touched, except under limits on
//! address space, strict overcommit, valgrind and sanitizers; there the size is halved until it
//! fits ([`Reservation::new`]). A page without access rights follows the range, so that a bulk copy
//! with a wrong length stops there.
//!
//! Under Miri the range is plain zeroed heap memory of the minimum size.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
#[cfg(not(miri))]
use std::sync::Arc;
#[cfg(not(miri))]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(miri))]
use crate::prefault;

/// Size of the smallest kind of page. The guard page has this size, or that of one of the system's
/// pages where those are larger (the mapping is 2 MiB longer than the used part).
#[cfg(not(miri))]
const PAGE_BYTES: usize = 4096;

/// Size and alignment of a huge page on x86-64 and on AArch64 with 4 KiB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Collapses memory into huge pages at once, since Linux 6.1. `libc` has this constant for some C
/// libraries only.
#[cfg(not(miri))]
const MADV_COLLAPSE: libc::c_int = 25;

/// Beyond this, memory is no longer kept from becoming huge pages again: where that setting differs
/// between neighbours, the system needs a separate mapping, and a process may have 65,530 of those.
#[cfg(not(miri))]
const SPLIT_BYTES_MAX: usize = 16 << 30;

/// Bytes of a page of this system: 4 KiB, or also 16 or 64 KiB on 64-bit Arm.
#[cfg(not(miri))]
fn page_bytes() -> usize {
    // SAFETY: reads a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(1 << 16)
}

/// Returns the whole pages of a range, or an empty range at its end if there are none.
#[cfg(not(miri))]
fn whole_pages(range: &Range<usize>, page_bytes: usize) -> Range<usize> {
    let start = range.start.next_multiple_of(page_bytes);
    let end = range.end / page_bytes * page_bytes;
    match start < end {
        true => start..end,
        false => range.end..range.end,
    }
}

/// Returns the huge page that a byte lies in.
#[cfg(not(miri))]
fn huge_page_of(at: usize) -> Range<usize> {
    let start = at / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    start..start + HUGE_PAGE_BYTES
}

/// A mapped range, given back to the system when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: NonNull<u8>,
    bytes: usize,
    #[cfg(not(miri))]
    mapped: Arc<Mapped>,
}

/// The whole mapping, around the aligned range that is used.
#[cfg(not(miri))]
#[derive(Debug)]
pub(crate) struct Mapped {
    base: NonNull<libc::c_void>,
    bytes: usize,
}

// SAFETY: it only names a mapping, as `Reservation` does.
#[cfg(not(miri))]
unsafe impl Send for Mapped {}
// SAFETY: as for `Send`: it is only used to unmap the mapping once nothing names it any more.
#[cfg(not(miri))]
unsafe impl Sync for Mapped {}

/// Advice about a part of a mapping that takes the system a while (see [`crate::prefault`]).
#[cfg(not(miri))]
#[derive(Debug)]
pub(crate) struct Advice {
    mapped: Arc<Mapped>,
    /// Bytes from the start of the mapping.
    start: usize,
    bytes: usize,
    kind: AdviceKind,
}

/// The request to the system.
#[cfg(not(miri))]
#[derive(Clone, Copy, Debug)]
enum AdviceKind {
    /// Provides the memory, in huge pages where none of it is there yet.
    Populate,
    /// Moves existing memory to huge pages. A thread that touches it meanwhile waits some tenths of
    /// a millisecond.
    Collapse,
}

#[cfg(not(miri))]
impl Advice {
    /// Creates advice about `bytes` bytes of the mapping, from `start` bytes after its beginning.
    ///
    /// # Panics
    /// If the part does not lie inside the mapping.
    fn new(mapped: &Arc<Mapped>, start: usize, bytes: usize, kind: AdviceKind) -> Self {
        assert!(
            start.saturating_add(bytes) <= mapped.bytes,
            "memory outside of the reserved range"
        );
        Self {
            mapped: Arc::clone(mapped),
            start,
            bytes,
            kind,
        }
    }

    /// Gives the advice to the system. The content stays as it is, even if it is in use meanwhile.
    pub(crate) fn run(&self) {
        let all: &[_] = match self.kind {
            AdviceKind::Populate => &[libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE],
            AdviceKind::Collapse => &[MADV_COLLAPSE],
        };
        for advice in all {
            // SAFETY: inside the mapping (checked when this was made), which exists while it is
            // named here. No such advice changes content; a refusal changes nothing.
            unsafe {
                let start = self.mapped.base.as_ptr().byte_add(self.start);
                libc::madvise(start, self.bytes, *advice);
            }
        }
    }
}

// SAFETY: a `Reservation` only names a range that it owns; it gives out the address and never
// touches the content itself. The code that dereferences the address answers for the accesses.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`; every method takes `&self` and is a system call without shared state here.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `wanted_bytes`, or a half, a quarter … of it, but not less than `bytes_min`. Both
    /// must be multiples of 2 MiB, the range's alignment.
    ///
    /// If the full size is refused, half of the size that fits is taken, so that a process under a
    /// limit keeps address space for everything else.
    ///
    /// # Errors
    /// The system's error if even `bytes_min` was refused.
    #[cfg(not(miri))]
    pub(crate) fn new(wanted_bytes: usize, bytes_min: usize) -> io::Result<Self> {
        let mut bytes = wanted_bytes.max(bytes_min);
        let first_refusal = match Self::map(bytes) {
            Ok(reservation) => return Ok(reservation),
            Err(error) => error,
        };
        while bytes / 2 >= bytes_min {
            bytes /= 2;
            if let Ok(reservation) = Self::map(bytes) {
                if bytes / 2 < bytes_min {
                    return Ok(reservation);
                }
                drop(reservation);
                return Self::map(bytes / 2);
            }
        }
        Err(first_refusal)
    }

    #[cfg(not(miri))]
    fn map(bytes: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let mapped_bytes = bytes
            .checked_add(HUGE_PAGE_BYTES + PAGE_BYTES)
            .ok_or_else(too_large)?;
        // SAFETY: an anonymous private mapping at an address of the system's choice touches no
        // memory of this process.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapped = Mapped {
            base: NonNull::new(address).ok_or_else(too_large)?,
            bytes: mapped_bytes,
        };
        let aligned_by = address.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `aligned_by` is below 2 MiB and the mapping is 2 MiB and a page longer than
        // `bytes`, so this address and the guard page behind the range are inside it.
        let (base, guard) = unsafe {
            let base = mapped.base.cast::<u8>().add(aligned_by);
            (base, base.add(bytes))
        };
        // SAFETY: the guard page was mapped above and nothing uses it.
        if unsafe { libc::mprotect(guard.as_ptr().cast(), PAGE_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base,
            bytes,
            mapped: Arc::new(mapped),
        })
    }

    /// As on a real system, with zeroed heap memory of `bytes_min`.
    #[cfg(miri)]
    pub(crate) fn new(_wanted_bytes: usize, bytes_min: usize) -> io::Result<Self> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes_min)) };
        Ok(Self {
            base: NonNull::new(base).ok_or_else(too_large)?,
            bytes: bytes_min,
        })
    }

    #[cfg(miri)]
    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, 4096).expect("a small power of two")
    }

    /// First address of the range; a multiple of 2 MiB (of 4 KiB under Miri).
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the range.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests that the memory of `range` (bytes from the base, multiples of 2 MiB) be there soon,
    /// in huge pages, without waiting for it. Advice only.
    pub(crate) fn prepare_huge(&self, range: Range<usize>) {
        #[cfg(not(miri))]
        prefault::ask(self.later(range, AdviceKind::Populate));
        #[cfg(miri)]
        let _ = range;
    }

    /// Requests that the memory of `range` be moved to huge pages soon, without waiting for it. For
    /// memory in full use: parts that were never touched are provided, too.
    pub(crate) fn make_huge(&self, range: Range<usize>) {
        #[cfg(not(miri))]
        prefault::ask(self.later(range, AdviceKind::Collapse));
        #[cfg(miri)]
        let _ = range;
    }

    #[cfg(not(miri))]
    fn later(&self, range: Range<usize>, kind: AdviceKind) -> Advice {
        let before = self.base.as_ptr().addr() - self.mapped.base.as_ptr().addr();
        Advice::new(&self.mapped, before + range.start, range.len(), kind)
    }

    /// Returns the memory of `range` (bytes from the base, multiples of a word) to the system; it
    /// reads as zero from now on. Under Miri the content stays.
    ///
    /// The system takes whole pages, including those of which only a part is named: with pages of
    /// 16 or 64 KiB the neighbours' part would go, too. So partial pages are zeroed instead.
    pub(crate) fn discard(&self, range: Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.bytes,
            "memory outside of the reserved range"
        );
        #[cfg(not(miri))]
        {
            let whole = whole_pages(&range, page_bytes());
            self.zero(range.start..whole.start);
            self.zero(whole.end..range.end);
            self.keep_given_back(&whole);
            self.advise(whole, libc::MADV_DONTNEED);
        }
    }

    #[cfg(not(miri))]
    fn zero(&self, range: Range<usize>) {
        const WORD_BYTES: usize = size_of::<AtomicU64>();
        assert!(range.start.is_multiple_of(WORD_BYTES) && range.end.is_multiple_of(WORD_BYTES));
        for at in range.step_by(WORD_BYTES) {
            // SAFETY: the range lies inside this mapping: the caller has checked. The word is
            // aligned, as the base is a multiple of 2 MiB; all users treat the content as atomic
            // words that may turn zero.
            let word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) };
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Ensures that returned parts of a huge page stay returned: in a range with huge pages
    /// enabled, the system sooner or later makes one of every 2 MiB of which a page is in use. For
    /// 2 MiB that are returned as a whole, huge pages are enabled again.
    #[cfg(not(miri))]
    fn keep_given_back(&self, range: &Range<usize>) {
        let end = self.bytes.min(SPLIT_BYTES_MAX);
        if range.is_empty() || range.end > end {
            return;
        }
        let (first, last) = (huge_page_of(range.start), huge_page_of(range.end - 1));
        for page in [&first, &last] {
            let is_whole = range.start <= page.start && page.end <= range.end;
            if !is_whole {
                self.advise(page.clone(), libc::MADV_NOHUGEPAGE);
            }
        }
        let whole = range.start.next_multiple_of(HUGE_PAGE_BYTES)
            ..range.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if whole.start < whole.end {
            self.advise(whole, libc::MADV_HUGEPAGE);
        }
    }

    #[cfg(not(miri))]
    fn advise(&self, range: Range<usize>, advice: libc::c_int) {
        // SAFETY: the range lies inside this mapping: the caller has checked. The advice keeps it
        // mapped, and all users treat its content as atomic words that may turn zero. A refusal
        // changes nothing but residency, so the result is ignored.
        unsafe {
            let start = self.base.as_ptr().add(range.start);
            libc::madvise(start.cast(), range.len(), advice);
        }
    }
}

#[cfg(not(miri))]
impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping this value stands for; its owner is gone, and with it every
        // reference into the range (they borrow from the owner).
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
    }
}

#[cfg(miri)]
impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and nothing borrows from it any more.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.bytes)) };
    }
}

/// Memory of the machine in bytes, or of the address-space limit of the process if that is lower.
pub(crate) fn machine_memory_bytes() -> usize {
    #[cfg(miri)]
    return 64 << 20;
    #[cfg(not(miri))]
    {
        // SAFETY: `sysconf` reads two constants of the system.
        let (pages, page_bytes) = unsafe {
            (
                libc::sysconf(libc::_SC_PHYS_PAGES),
                libc::sysconf(libc::_SC_PAGESIZE),
            )
        };
        let machine_bytes = usize::try_from(pages)
            .unwrap_or(0)
            .saturating_mul(usize::try_from(page_bytes).unwrap_or(0));
        machine_bytes.max(1 << 30).min(address_space_bytes())
    }
}

/// The limit on address space (`ulimit -v`), or the largest number.
#[cfg(not(miri))]
fn address_space_bytes() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid place for the result.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    if limit.rlim_cur == libc::RLIM_INFINITY {
        usize::MAX
    } else {
        usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zero_and_keeps_what_is_written_until_discarded() {
        let range = Reservation::new(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        let last = range.bytes() - 1;
        // SAFETY: inside the range; nothing else uses it.
        unsafe {
            let address = range.base().as_ptr().add(last);
            assert_eq!(address.read(), 0);
            address.write(7);
            assert_eq!(address.read(), 7);
            range.discard(0..range.bytes());
            #[cfg(not(miri))]
            assert_eq!(address.read(), 0);
        }
    }

    /// The words around the discarded range stay, whatever pages the system has.
    #[test]
    #[cfg(not(miri))]
    fn what_is_discarded_reads_as_zero_to_the_word() {
        let reservation = Reservation::new(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        let words = |at: usize| {
            // SAFETY: inside the range; nothing else uses it.
            unsafe { AtomicU64::from_ptr(reservation.base().as_ptr().add(at).cast()) }
        };
        for range in [64..128, 4096..8192, 4160..200_000, 65_536..131_072] {
            let all = (0..HUGE_PAGE_BYTES).step_by(8);
            all.clone()
                .for_each(|at| words(at).store(7, Ordering::Relaxed));
            reservation.discard(range.clone());
            for at in all {
                let wanted = if range.contains(&at) { 0 } else { 7 };
                assert_eq!(words(at).load(Ordering::Relaxed), wanted, "{range:?}: {at}");
            }
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn whole_pages_are_those_of_the_system() {
        for (range, page_bytes, whole) in [
            (4096..8192, 4096, 4096..8192),
            (4096..8192, 65_536, 8192..8192),
            (0..8192, 65_536, 8192..8192),
            (4096..200_000, 65_536, 65_536..196_608),
            (65_536..131_072, 16_384, 65_536..131_072),
        ] {
            assert_eq!(
                whole_pages(&range, page_bytes),
                whole,
                "{range:?} {page_bytes}"
            );
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn what_is_populated_is_there_and_says_what_it_said() {
        provides_all_and_keeps_content(AdviceKind::Populate);
    }

    #[test]
    #[cfg(not(miri))]
    fn what_is_made_huge_is_there_and_says_what_it_said() {
        provides_all_and_keeps_content(AdviceKind::Collapse);
    }

    #[cfg(not(miri))]
    fn provides_all_and_keeps_content(kind: AdviceKind) {
        let range = Reservation::new(2 * HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        let here = || {
            let mut pages = [0_u8; 2 * HUGE_PAGE_BYTES / PAGE_BYTES];
            // SAFETY: the range is mapped, and there is a byte for each of its pages.
            let asked = unsafe {
                let start = range.base().as_ptr().cast();
                libc::mincore(start, range.bytes(), pages.as_mut_ptr())
            };
            assert_eq!(asked, 0);
            pages.iter().filter(|&page| page & 1 != 0).count()
        };
        // SAFETY: inside the range; nothing else uses it.
        unsafe { range.base().as_ptr().write(7) };
        assert_eq!(here(), 1);
        let advice = range.later(0..HUGE_PAGE_BYTES, kind);
        advice.run();
        // All of it, or nothing where the call is not known: before Linux 6.1, and under emulators.
        let provided = here();
        assert!(
            provided == HUGE_PAGE_BYTES / PAGE_BYTES || provided == 1,
            "{provided}"
        );
        // SAFETY: as above.
        assert_eq!(unsafe { range.base().as_ptr().read() }, 7);
        drop(range);
        advice.run();
    }

    #[test]
    #[cfg(not(miri))]
    fn an_impossible_size_is_halved_until_it_fits() {
        let range = Reservation::new(1 << 50, HUGE_PAGE_BYTES).unwrap();
        assert!(
            range.bytes() < 1 << 48,
            "more than the processor can address"
        );
        assert_eq!(range.base().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn refuses_when_even_the_minimum_does_not_fit() {
        assert!(Reservation::new(1 << 50, 1 << 50).is_err());
    }
}
