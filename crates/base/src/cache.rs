//! Asking the cache for memory that is about to be read.
//!
//! A load that misses the cache waits for some hundred instructions' time. Whoever is about to look
//! at several places that do not depend on each other asks for all of them first, so that the waits
//! overlap.

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
