//! What an allocation costs beyond its bytes.
//!
//! Structures count their memory while they change, so the store can ask for it at any time. The
//! count follows the server's allocator, jemalloc: multiples of 16 bytes up to 128, and above that
//! four sizes between each power of two and the next.

/// Allocations of up to [`FINE_BYTES_MAX`] are multiples of this.
pub(crate) const STEP_BYTES: usize = 16;
const FINE_BYTES_MAX: usize = 128;
/// The smallest allocation.
const LEAST_BYTES: usize = 8;
/// Number of sizes between a power of two and the next, as a power of two.
const SIZES_BITS: u32 = 2;

/// A buffer grows in place only if at least this fraction (1/n) of its content is free.
pub(crate) const SPARE_PART: usize = 4;
/// Maximum unused bytes of a buffer that grew, in tests of medium lengths.
#[cfg(test)]
pub(crate) const SPARE_BYTES_MAX: usize = 2 << 10;

/// Returns the bytes that an allocation of `bytes` takes; 0 for 0.
#[inline]
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    if bytes <= LEAST_BYTES {
        return LEAST_BYTES;
    }
    if bytes <= FINE_BYTES_MAX {
        return bytes.next_multiple_of(STEP_BYTES);
    }
    let step = 1 << ((bytes - 1).ilog2() - SIZES_BITS);
    // No allocation is longer than an `isize`, so there is a next step.
    bytes.next_multiple_of(step)
}

/// Returns the length of a buffer for `bytes` that is expected to grow: all of its allocation. The
/// next size is at least an eighth longer, so appending rarely copies the buffer.
pub(crate) fn grown(bytes: usize) -> usize {
    stepped(bytes)
}

/// Returns the length that an allocation for `bytes` has in any case.
pub(crate) fn stepped(bytes: usize) -> usize {
    allocated(bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::allocated;

    #[test]
    fn allocations_are_rounded_as_the_allocator_does() {
        assert_eq!(allocated(0), 0);
        assert_eq!(allocated(1), 8);
        assert_eq!(allocated(9), 16);
        assert_eq!(allocated(24), 32);
        assert_eq!(allocated(128), 128);
        assert_eq!(allocated(129), 160);
        assert_eq!(allocated(256), 256);
        assert_eq!(allocated(257), 320);
        assert_eq!(allocated(4096), 4096);
        assert_eq!(allocated(4097), 5120);
        assert_eq!(allocated(20_000), 20_480);
    }
}
