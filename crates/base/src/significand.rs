//! The bits of a binary number that has more of them than its format keeps.
//!
//! Parsing and adding produce a [`Significand`]; [`Significand::round`] then fits it into a double
//! or an 80-bit number. It rounds once, half to even, as the hardware does.

/// `bits * 2^exponent`, or slightly more if it is inexact.
///
/// "Slightly more" is less than one unit of the last bit. Code that sets `inexact` ensures that at
/// least 66 bits are significant, so that no format's rounding looks below the last of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Significand {
    pub(crate) bits: u128,
    pub(crate) exponent: i64,
    pub(crate) inexact: bool,
}

impl Significand {
    /// Returns the nearest number of `precision_bits` (at most 64) and its exponent, which is not
    /// below `exponent_min`: small numbers keep fewer bits, down to none.
    ///
    /// Rounding up may return `2^precision_bits` itself.
    pub(crate) fn round(self, precision_bits: u32, exponent_min: i64) -> (u128, i64) {
        const HALF: u128 = 1 << 127;
        if self.bits == 0 {
            return (0, exponent_min);
        }
        let zeros = self.bits.leading_zeros();
        let bits = self.bits << zeros;
        let exponent = self.exponent.saturating_sub(i64::from(zeros));
        let dropped_count =
            i64::from(u128::BITS - precision_bits).max(exponent_min.saturating_sub(exponent));
        let (kept, dropped) = match u32::try_from(dropped_count) {
            // At least half of the number's bits are dropped, so neither shift is zero.
            Ok(count @ 1..=127) => (bits >> count, bits << (128 - count)),
            Ok(128) => (0, bits),
            _ => return (0, exponent_min),
        };
        let is_odd = kept & 1 == 1;
        let up = dropped > HALF || (dropped == HALF && (self.inexact || is_odd));
        (
            kept + u128::from(up),
            exponent.saturating_add(dropped_count),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(bits: u128, exponent: i64, inexact: bool) -> (u128, i64) {
        let significand = Significand {
            bits,
            exponent,
            inexact,
        };
        significand.round(4, -10)
    }

    #[test]
    fn halves_go_to_even() {
        assert_eq!(round(0b1000_1000, 0, false), (0b1000, 4));
        assert_eq!(round(0b1001_1000, 0, false), (0b1010, 4));
        assert_eq!(round(0b1000_1000, 0, true), (0b1001, 4));
        assert_eq!(round(0b1000_0111, 0, true), (0b1000, 4));
        assert_eq!(round(0b1000_1001, 0, false), (0b1001, 4));
        assert_eq!(round(0b1111_1000, 0, false), (0b1_0000, 4));
    }

    #[test]
    fn small_numbers_lose_bits() {
        assert_eq!(round(0b1011, -10, false), (0b1011, -10));
        assert_eq!(round(0b1011, -11, false), (0b110, -10));
        assert_eq!(round(0b1011, -14, false), (1, -10));
        assert_eq!(round(0b1000, -14, false), (0, -10));
        assert_eq!(round(0b1000, -14, true), (1, -10));
        assert_eq!(round(0b1111, -15, false), (0, -10));
        assert_eq!(round(1, i64::MIN, false), (0, -10));
        assert_eq!(round(0, 5, false), (0, -10));
    }
}
