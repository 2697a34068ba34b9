//! What an allocation costs beyond its bytes.
//!
//! Structures count their memory while they change, so that the store can ask at any time. The
//! count follows the allocator that the server runs on: 8 bytes in front of every piece, which is
//! then a multiple of 16 and at least 32 bytes long.

/// In front of every allocation.
const OVERHEAD_BYTES: usize = 8;
/// Allocations are multiples of this.
pub(crate) const STEP_BYTES: usize = 16;
/// The smallest allocation.
const LEAST_BYTES: usize = 32;

/// A buffer grows by this part of what it has to hold …
pub(crate) const SPARE_PART: usize = 4;
/// … but not by more bytes than this …
pub(crate) const SPARE_BYTES_MAX: usize = 2 << 10;
/// … and only by the step when it holds no more than this: of small buffers there are many, and copying
/// one is cheap.
const SMALL_BYTES: usize = 256;

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

/// Length of a buffer for `bytes` that is expected to grow.
pub(crate) fn grown(bytes: usize) -> usize {
    let spare = match bytes {
        ..=SMALL_BYTES => 0,
        _ => (bytes / SPARE_PART).min(SPARE_BYTES_MAX),
    };
    stepped(bytes + spare)
}

/// The next length that an allocation has room for anyhow: eight bytes short of a step, which what the
/// allocator puts in front fills up.
pub(crate) fn stepped(bytes: usize) -> usize {
    allocated(bytes.max(1)) - OVERHEAD_BYTES
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
