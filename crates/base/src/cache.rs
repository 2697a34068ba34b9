//! Prefetching of memory that is about to be used.
//!
//! A load that misses the cache waits for the time of some hundred instructions. A caller that is
//! about to read several independent places prefetches all of them first, so that the waits
//! overlap.

use std::mem::MaybeUninit;

/// Bytes of a cache line.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
const LINE_BYTES: usize = 64;

/// Starts to load the cache line in which `place` begins. Costs one instruction, reads nothing, and
/// does nothing on machines without a known prefetch instruction.
#[inline(always)]
pub fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let address = std::ptr::from_ref(place).cast::<i8>();
        // SAFETY: a prefetch affects only caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = place;
}

/// Starts to load the cache lines of `bytes`, one for each 64 bytes, before they are written: a
/// store to a line that is not cached delays the release of a lock behind it. The lines come as for
/// reading, because not every supported processor can request them for writing. Costs one
/// instruction per line, and does nothing on machines without a known prefetch instruction.
#[inline(always)]
pub fn prefetch_room(bytes: &[MaybeUninit<u8>]) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    for byte in bytes.iter().step_by(LINE_BYTES) {
        let address = std::ptr::from_ref(byte).cast::<i8>();
        // SAFETY: a prefetch affects only caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = bytes;
}
