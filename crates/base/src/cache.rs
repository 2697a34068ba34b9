//! Asking the cache for memory that is about to be used.
//!
//! A load that misses the cache waits for some hundred instructions' time. Whoever is about to look
//! at several places that do not depend on each other asks for all of them first, so that the waits
//! overlap.

use std::mem::MaybeUninit;

/// Bytes of a line of the cache.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
const LINE_BYTES: usize = 64;

/// Starts to bring the line in which `place` begins into the cache. Costs one instruction, reads
/// nothing, and does nothing on machines for which it is not known how.
#[inline(always)]
pub fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    {
        let address = std::ptr::from_ref(place).cast::<i8>();
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = place;
}

/// Starts to bring the lines of `bytes`, one for each 64 of them, into the cache before they are written: a store to a line
/// that is not there holds up whoever releases a lock behind it. They come as for reading, since not every processor of
/// the kind that is built for can ask for more. Costs an instruction for each line, and does nothing on machines for
/// which it is not known how.
#[inline(always)]
pub fn prefetch_room(bytes: &[MaybeUninit<u8>]) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom, shuttle))))]
    for byte in bytes.iter().step_by(LINE_BYTES) {
        let address = std::ptr::from_ref(byte).cast::<i8>();
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom, shuttle)))))]
    let _ = bytes;
}
