//! What an allocation costs beyond its bytes.
//!
//! Structures count their memory while they change, so that the store can ask at any time. The
//! count follows the allocator that the server runs on: 8 bytes in front of every piece, which is
//! then a multiple of 16 and at least 32 bytes long.

/// In front of every allocation.
const OVERHEAD_BYTES: usize = 8;
/// Allocations are multiples of this.
const STEP_BYTES: usize = 16;
/// The smallest allocation.
const LEAST_BYTES: usize = 32;

/// Bytes that an allocation of `bytes` takes; none for none.
#[inline]
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let whole = (bytes + OVERHEAD_BYTES).next_multiple_of(STEP_BYTES);
    if whole < LEAST_BYTES {
        LEAST_BYTES
    } else {
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::allocated;

    #[test]
    fn allocations_are_rounded_as_the_allocator_does() {
        assert_eq!(allocated(0), 0);
        assert_eq!(allocated(1), 32);
        assert_eq!(allocated(24), 32);
        assert_eq!(allocated(25), 48);
        assert_eq!(allocated(40), 48);
        assert_eq!(allocated(4096), 4112);
    }
}
