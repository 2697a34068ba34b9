//! Maximum length of a block of a list (`list-max-listpack-size`).

/// Bytes of a listpack besides its entries. The limits apply to what Redis' listpack would have.
const FRAME_BYTES: usize = 7;
/// Maximum bytes of a block that is limited by its number of elements.
const SAFETY_BYTES: usize = 8 << 10;
/// Block sizes for -1, -2, … -5.
const SIZES_BYTES: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Maximum length of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimit {
    bytes_max: Option<usize>,
    count_max: usize,
}

impl BlockLimit {
    /// Creates the limit from the value of the directive: a number of elements, or -1 to -5 for 4
    /// to 64 KiB.
    #[must_use]
    pub fn from_directive(value: i64) -> Self {
        match usize::try_from(value) {
            Ok(count) => Self {
                bytes_max: None,
                count_max: count.max(1),
            },
            Err(_) => {
                let at = usize::try_from(value.unsigned_abs() - 1).unwrap_or(usize::MAX);
                Self {
                    bytes_max: Some(SIZES_BYTES[at.min(SIZES_BYTES.len() - 1)]),
                    count_max: usize::MAX,
                }
            }
        }
    }

    /// Whether a block with `content_bytes` in `count` elements is too long.
    #[inline]
    pub(super) fn is_passed_by(self, content_bytes: usize, count: usize) -> bool {
        content_bytes.saturating_add(FRAME_BYTES) > self.bytes_max.unwrap_or(SAFETY_BYTES)
            || count > self.count_max
    }

    /// Returns the maximum bytes of elements in a block, or `None` if the number of elements is
    /// limited.
    pub(super) fn content_bytes_max(self) -> Option<usize> {
        Some(self.bytes_max? - FRAME_BYTES)
    }

    /// Whether a list is short enough to be one block again: half of the limit, so that it does not
    /// switch back and forth.
    pub(super) fn is_half_full_with(self, content_bytes: usize, count: usize) -> bool {
        let bytes_max = self.bytes_max.unwrap_or(usize::MAX);
        content_bytes + FRAME_BYTES <= bytes_max / 2 && count <= self.count_max / 2
    }
}

impl Default for BlockLimit {
    /// Returns 8 KiB.
    fn default() -> Self {
        Self::from_directive(-2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_values_are_sizes_and_others_counts() {
        let passed =
            |value, bytes, count| BlockLimit::from_directive(value).is_passed_by(bytes, count);
        assert!(!passed(-1, 4089, 10_000) && passed(-1, 4090, 1));
        assert!(!passed(-2, 8185, 10_000) && passed(-2, 8186, 1));
        assert!(!passed(-5, 65_529, 1) && passed(-5, 65_530, 1));
        assert!(!passed(i64::MIN, 65_529, 1) && passed(-99, 65_530, 1));
        assert!(!passed(128, 100, 128) && passed(128, 100, 129) && passed(128, 8186, 2));
        assert!(!passed(0, 1, 1) && passed(0, 1, 2));
        let half =
            |value, bytes, count| BlockLimit::from_directive(value).is_half_full_with(bytes, count);
        assert!(half(-2, 4089, 1) && !half(-2, 4090, 1));
        assert!(half(10, 90_000, 5) && !half(10, 1, 6));
    }
}
