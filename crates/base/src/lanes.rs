//! Comparison of several small numbers at once.

/// Returns one bit, from the lowest on, for each of sixteen numbers: set if it equals `wanted`.
#[inline(always)]
#[must_use]
pub fn equal(numbers: &[u16; 16], wanted: u16) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_set1_epi16,
        };
        let first = numbers.as_ptr().cast::<__m128i>();
        // SAFETY: every processor of this architecture has SSE2, and the two loads, which ask for no
        // alignment, read the 32 bytes of `numbers`.
        let hits = unsafe {
            let wanted = _mm_set1_epi16(wanted.cast_signed());
            let low = _mm_cmpeq_epi16(_mm_loadu_si128(first), wanted);
            let high = _mm_cmpeq_epi16(_mm_loadu_si128(first.add(1)), wanted);
            _mm_movemask_epi8(_mm_packs_epi16(low, high))
        };
        hits.cast_unsigned()
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let hit = |(index, one): (usize, &u16)| u32::from(*one == wanted) << index;
        numbers.iter().enumerate().map(hit).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_its_bit() {
        for wanted in [0, 1, 0x7FFF, 0x8000, u16::MAX] {
            for places in [0_u32, 1, 0x8000, 0x0180, 0xA5C3, 0xFFFF] {
                let other = wanted ^ 0x0100;
                let number = |at| if places >> at & 1 == 1 { wanted } else { other };
                let numbers = std::array::from_fn(number);
                assert_eq!(equal(&numbers, wanted), places);
            }
        }
    }
}
