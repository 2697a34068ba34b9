//! Natural numbers of any size, for the rare texts whose value fits no machine word.
//!
//! Only what is needed to read and print an 80-bit number exactly: at most some 35,000 bits, with
//! simple quadratic algorithms.

use crate::significand::Significand;
use std::cmp::Ordering;
use std::fmt::Write;

/// A number as 64-bit limbs, least significant first, without trailing zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Natural {
    limbs: Vec<u64>,
}

impl Natural {
    pub(crate) fn new(value: u64) -> Self {
        let mut natural = Self { limbs: vec![value] };
        natural.trim();
        natural
    }

    /// Returns the number that decimal digits (0 to 9, not their text) spell.
    pub(crate) fn from_digits(digits: impl Iterator<Item = u8>) -> Self {
        let mut natural = Self { limbs: Vec::new() };
        let (mut piece, mut scale) = (0, 1);
        for digit in digits {
            piece = piece * 10 + u64::from(digit);
            scale *= 10;
            if scale == DECIMAL_PIECE {
                natural.multiply_add(scale, piece);
                (piece, scale) = (0, 1);
            }
        }
        natural.multiply_add(scale, piece);
        natural
    }

    /// Multiplies by five to the power of `exponent`.
    pub(crate) fn multiply_by_power_of_five(&mut self, exponent: u32) {
        /// The exponent of the largest power of five in 64 bits.
        const STEP: u32 = 27;
        for _ in 0..exponent / STEP {
            self.multiply_add(5_u64.pow(STEP), 0);
        }
        self.multiply_add(5_u64.pow(exponent % STEP), 0);
    }

    /// Multiplies by two to the power of `count`.
    pub(crate) fn shift_left(&mut self, count: u32) {
        if let bits @ 1.. = count % 64 {
            let mut carry = 0;
            for limb in &mut self.limbs {
                (*limb, carry) = (*limb << bits | carry, *limb >> (64 - bits));
            }
            self.limbs.push(carry);
            self.trim();
        }
        if !self.limbs.is_empty() {
            let zeros = std::iter::repeat_n(0, (count / 64) as usize);
            self.limbs.splice(0..0, zeros);
        }
    }

    pub(crate) fn bit_length(&self) -> u32 {
        let limbs_count = u32::try_from(self.limbs.len()).unwrap_or(u32::MAX);
        let top_zeros = self.limbs.last().map_or(0, |top| top.leading_zeros());
        limbs_count.saturating_mul(64) - top_zeros
    }

    /// Returns the upper 128 bits (fewer if there are no more) and whether any bits below are set.
    pub(crate) fn to_significand(&self) -> Significand {
        let mut limbs = self.limbs.iter().rev();
        let mut next = || u128::from(limbs.next().copied().unwrap_or(0));
        let (first, second, third) = (next(), next(), next());
        let inexact_below = limbs.any(|&limb| limb != 0);
        // Three limbs are 192 bits; shifted so that the top one is fully used, 128 remain.
        let zeros = self.limbs.last().map_or(0, |top| top.leading_zeros());
        let upper = first << 64 | second;
        let (bits, below) = match zeros {
            0 => (upper, third),
            _ => (
                upper << zeros | third >> (64 - zeros),
                third << (64 + zeros),
            ),
        };
        Significand {
            bits,
            exponent: i64::from(self.bit_length()) - 128,
            inexact: below != 0 || inexact_below,
        }
    }

    /// Returns `self / divisor`, neither of them zero, to 68 or more bits.
    pub(crate) fn divide(mut self, mut divisor: Natural) -> Significand {
        const QUOTIENT_BITS: u32 = 70;
        let (length, divisor_length) = (self.bit_length(), divisor.bit_length());
        if length > divisor_length {
            divisor.shift_left(length - divisor_length);
        } else {
            self.shift_left(divisor_length - length);
        }
        // Both have the same length now, so the quotient is between one half and two. Long division
        // gives its bits, starting with the one before the point.
        let mut bits: u128 = 0;
        for _ in 0..QUOTIENT_BITS {
            bits <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                bits |= 1;
            }
            self.shift_left(1);
        }
        let exponent = i64::from(length) - i64::from(divisor_length) - i64::from(QUOTIENT_BITS - 1);
        Significand {
            bits,
            exponent,
            inexact: !self.limbs.is_empty(),
        }
    }

    /// Returns the decimal text.
    pub(crate) fn into_text(mut self) -> String {
        let mut pieces = Vec::with_capacity(self.limbs.len() + 1);
        while !self.limbs.is_empty() {
            pieces.push(self.divide_small(DECIMAL_PIECE));
        }
        let mut text = pieces.pop().unwrap_or(0).to_string();
        for piece in pieces.iter().rev() {
            // Writing to a string does not fail.
            let _always_ok = write!(text, "{piece:019}");
        }
        text
    }

    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = summand;
        for limb in &mut self.limbs {
            (*limb, carry) = halves(u128::from(*limb) * u128::from(factor) + u128::from(carry));
        }
        self.limbs.push(carry);
        self.trim();
    }

    /// Divides in place. Returns the remainder.
    fn divide_small(&mut self, divisor: u64) -> u64 {
        let mut remainder = 0;
        for limb in self.limbs.iter_mut().rev() {
            let dividend = u128::from(remainder) << 64 | u128::from(*limb);
            // The remainder is below the divisor, so the quotient fits one limb.
            (*limb, _) = halves(dividend / u128::from(divisor));
            (remainder, _) = halves(dividend % u128::from(divisor));
        }
        self.trim();
        remainder
    }

    fn compare(&self, other: &Natural) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// Subtracts `other`, which is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        let others = other.limbs.iter().copied().chain(std::iter::repeat(0));
        for (limb, other) in self.limbs.iter_mut().zip(others) {
            (*limb, borrow) = subtract_limb(*limb, other, borrow);
        }
        self.trim();
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }
}

/// The largest power of ten in 64 bits: 19 digits.
const DECIMAL_PIECE: u64 = 10_u64.pow(19);

/// Returns the low and the high half.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
fn halves(wide: u128) -> (u64, u64) {
    (wide as u64, (wide >> 64) as u64)
}

/// Returns `limb - other - borrow`, and whether that borrows.
fn subtract_limb(limb: u64, other: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = limb.overflowing_sub(other);
    let (difference, second) = difference.overflowing_sub(u64::from(borrow));
    (difference, first || second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn natural(value: u128) -> Natural {
        let (low, high) = halves(value);
        let mut natural = Natural {
            limbs: vec![low, high],
        };
        natural.trim();
        natural
    }

    fn digits(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().map(|byte| byte - b'0')
    }

    #[test]
    fn long_numbers_come_back() {
        let text = "1234567890".repeat(500);
        assert_eq!(Natural::from_digits(digits(&text)).into_text(), text);
        assert_eq!(Natural::from_digits(digits("000")).into_text(), "0");
    }

    #[test]
    fn powers() {
        let mut number = Natural::new(1);
        number.multiply_by_power_of_five(100);
        number.shift_left(100);
        assert_eq!(number.into_text(), format!("1{}", "0".repeat(100)));
    }

    proptest! {
        #[test]
        fn shifts_and_texts_as_in_128_bits(value: u128, count in 0..128_u32) {
            let value = value >> count;
            let mut number = natural(value);
            prop_assert_eq!(number.clone().into_text(), value.to_string());
            prop_assert_eq!(number.bit_length(), 128 - value.leading_zeros());
            number.shift_left(count.min(value.leading_zeros()));
            prop_assert_eq!(number, natural(value << count.min(value.leading_zeros())));
        }

        #[test]
        fn quotients_as_in_128_bits(dividend in 1..u128::MAX, divisor in 1..u64::MAX, count in 0..100_u32) {
            let dividend = (dividend >> count).max(1);
            let quotient = natural(dividend).divide(Natural::new(divisor));
            // Both are cut off at the shorter of the two.
            let expected = dividend / u128::from(divisor);
            match u32::try_from(quotient.exponent) {
                Ok(shift) => prop_assert_eq!(quotient.bits, expected >> shift),
                Err(_negative) => {
                    let shift = u32::try_from(-quotient.exponent).unwrap();
                    prop_assert_eq!(quotient.bits.checked_shr(shift).unwrap_or(0), expected);
                }
            }
        }

        #[test]
        fn upper_bits(value in 1_u128.., count in 0..300_u32, low: bool) {
            let mut number = natural(value);
            number.shift_left(count);
            if low && count > 0 {
                number.limbs[0] |= 1;
            }
            let upper = number.to_significand();
            let zeros = value.leading_zeros();
            let below_is_seen = zeros >= count;
            let expected = (value << zeros) | u128::from(low && count > 0 && below_is_seen) << (zeros - count.min(zeros));
            prop_assert_eq!(upper.bits, expected);
            prop_assert_eq!(upper.inexact, low && count > 0 && !below_is_seen);
            prop_assert_eq!(upper.exponent, i64::from(count) - i64::from(zeros));
        }
    }
}
