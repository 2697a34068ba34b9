//! 80-bit numbers, the `long double` of C on x86-64, in software.
//!
//! INCRBYFLOAT and HINCRBYFLOAT add in this format and print 17 digits after the point. Clients see
//! the sums to the last digit, so they are computed bit for bit as the hardware and the C library
//! compute them, on every machine. A number has 64 significant bits and an exponent of 15; every
//! operation rounds once, half to even.

use crate::natural::Natural;
use crate::numeral::{self, Decimal, Magnitude};
use crate::significand::Significand;
use std::fmt;

/// Maximum length of a text for [`Extended::parse`], as on the reference server.
pub const TEXT_BYTES_MAX: usize = 5119;

/// An 80-bit floating-point number.
#[derive(Clone, Copy, Debug)]
pub struct Extended {
    is_negative: bool,
    class: Class,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// `mantissa * 2^exponent`. The mantissa's top bit is set unless the exponent is the smallest.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
    NotANumber,
}

/// The exponent of the last bit of the largest numbers.
const EXPONENT_MAX: i32 = 16383 - 63;
/// The exponent of the last bit of the smallest numbers.
const EXPONENT_MIN: i32 = -16382 - 63;

/// Maximum number of digits printed after the point.
const FRACTION_DIGITS: u32 = 17;

impl Extended {
    /// Returns the number nearest to what `text` spells in decimal or hexadecimal, or an infinity.
    ///
    /// `None` if the text is longer than [`TEXT_BYTES_MAX`], is not a number or is `nan`, or if the
    /// number is too large, or is not zero but would round to zero. Texts of up to 19 digits with
    /// small exponents are fast; the longest take some hundred microseconds.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let numeral = numeral::parse(text)?;
        let class = match numeral.magnitude {
            Magnitude::Decimal(decimal) => nearest_of_text(from_decimal(&decimal)?)?,
            Magnitude::Binary(significand) => nearest_of_text(significand)?,
            Magnitude::Infinite => Class::Infinite,
            Magnitude::NotANumber => return None,
        };
        Some(Self {
            is_negative: numeral.is_negative,
            class,
        })
    }

    /// Whether this is NaN, such as the sum of opposite infinities.
    #[must_use]
    pub fn is_nan(&self) -> bool {
        self.class == Class::NotANumber
    }

    /// Whether the number is strictly between -1 and 1.
    #[must_use]
    pub fn is_below_one(&self) -> bool {
        match self.class {
            // The mantissa has 64 bits at most.
            Class::Finite { mantissa, exponent } => mantissa == 0 || exponent < -63,
            Class::Infinite | Class::NotANumber => false,
        }
    }

    /// Whether this is one of the infinities.
    #[must_use]
    pub fn is_infinite(&self) -> bool {
        self.class == Class::Infinite
    }
}

impl From<i64> for Extended {
    /// Converts exactly: 64 bits are enough for every value.
    fn from(value: i64) -> Self {
        let significand = Significand {
            bits: u128::from(value.unsigned_abs()),
            exponent: 0,
            inexact: false,
        };
        Self {
            is_negative: value < 0,
            class: nearest(significand),
        }
    }
}

impl std::ops::Add for Extended {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (large, small) = if self.magnitude_key() >= other.magnitude_key() {
            (self, other)
        } else {
            (other, self)
        };
        match (large.class, small.class) {
            (
                Class::Finite { mantissa, exponent },
                Class::Finite {
                    mantissa: small_mantissa,
                    exponent: small_exponent,
                },
            ) => {
                let shift = exponent.abs_diff(small_exponent);
                let subtract = large.is_negative != small.is_negative;
                let sum = add_finite(mantissa, small_mantissa, shift, subtract);
                let class = nearest(Significand {
                    bits: sum.bits,
                    exponent: sum.exponent + i64::from(exponent),
                    inexact: sum.inexact,
                });
                // The sum of opposite numbers is a positive zero, in either order.
                let is_zero = sum.bits == 0 && subtract;
                Self {
                    is_negative: large.is_negative && !is_zero,
                    class,
                }
            }
            (Class::Infinite, Class::Infinite) if large.is_negative != small.is_negative => Self {
                is_negative: true,
                class: Class::NotANumber,
            },
            _ => large,
        }
    }
}

/// Prints seventeen digits after the point, without trailing zeros (and without the point if no
/// digit remains); never an exponent; `inf`, `-inf`, `nan`.
impl fmt::Display for Extended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mantissa, exponent) = match self.class {
            Class::Finite { mantissa, exponent } => (mantissa, exponent),
            Class::Infinite if self.is_negative => return out.write_str("-inf"),
            Class::Infinite => return out.write_str("inf"),
            Class::NotANumber => return out.write_str("nan"),
        };
        let (whole, fraction) = match u32::try_from(exponent) {
            Ok(shift) => {
                let mut whole = Natural::new(mantissa);
                whole.shift_left(shift);
                (whole.into_text(), 0)
            }
            Err(_negative) => {
                let (whole, fraction) = fixed_point(mantissa, exponent.unsigned_abs());
                (whole.to_string(), fraction)
            }
        };
        if self.is_negative && (fraction != 0 || whole != "0") {
            out.write_str("-")?;
        }
        out.write_str(&whole)?;
        if fraction == 0 {
            return Ok(());
        }
        let digits = format!("{fraction:017}");
        write!(out, ".{}", digits.trim_end_matches('0'))
    }
}

impl Extended {
    /// Orders numbers by their distance from zero, with NaN last.
    fn magnitude_key(&self) -> (u8, i32, u64) {
        match self.class {
            Class::Finite { mantissa, exponent } => (0, exponent, mantissa),
            Class::Infinite => (1, 0, 0),
            Class::NotANumber => (2, 0, 0),
        }
    }
}

/// Adds `small >> shift` to `large`, or subtracts it. The exponent of the sum is relative to that
/// of `large`.
fn add_finite(large: u64, small: u64, shift: u32, subtract: bool) -> Significand {
    /// Both are shifted up by so many bits: one bit of 128 stays free for a carry.
    const ROOM: u32 = 63;
    let large = u128::from(large) << ROOM;
    let small_wide = u128::from(small) << ROOM;
    let shifted = small_wide.checked_shr(shift).unwrap_or(0);
    let inexact = shifted.checked_shl(shift) != Some(small_wide);
    let bits = match subtract {
        false => large + shifted,
        // The difference also lacks what was cut off from the smaller number.
        true => large - shifted - u128::from(inexact),
    };
    Significand {
        bits,
        exponent: -i64::from(ROOM),
        inexact,
    }
}

/// Returns `mantissa / 2^shift` in units of 10^-17, half to even, as whole part and fraction.
fn fixed_point(mantissa: u64, shift: u32) -> (u128, u128) {
    const UNITS: u128 = 10_u128.pow(FRACTION_DIGITS);
    // 64 bits times 57 bits; so a shift by more than 121 leaves less than one half.
    let scaled = u128::from(mantissa) * UNITS;
    let units = match shift {
        0 => scaled,
        1..=121 => {
            let (kept, cut_off, half) = (
                scaled >> shift,
                scaled & ((1 << shift) - 1),
                1_u128 << (shift - 1),
            );
            let up = cut_off > half || (cut_off == half && kept & 1 == 1);
            kept + u128::from(up)
        }
        _ => 0,
    };
    (units / UNITS, units % UNITS)
}

/// Returns the number nearest to a binary number, possibly infinite or zero.
fn nearest(significand: Significand) -> Class {
    let (kept, exponent) = significand.round(64, i64::from(EXPONENT_MIN));
    // Rounding up may have produced 65 bits, the last of which is 0.
    let (mantissa, exponent) = match u64::try_from(kept) {
        Ok(mantissa) => (mantissa, exponent),
        Err(_carry) => (1 << 63, exponent.saturating_add(1)),
    };
    match i32::try_from(exponent) {
        Ok(exponent) if exponent <= EXPONENT_MAX => Class::Finite { mantissa, exponent },
        _ => Class::Infinite,
    }
}

/// Like [`nearest`], but returns `None` if the number overflowed or underflowed.
fn nearest_of_text(significand: Significand) -> Option<Class> {
    match nearest(significand) {
        Class::Finite { mantissa: 0, .. } if significand.bits != 0 => None,
        Class::Infinite => None,
        class => Some(class),
    }
}

/// Returns the binary number that decimal digits spell, exactly or with more bits than are kept.
/// `None` if it is outside every range, so that the work is bounded.
fn from_decimal(decimal: &Decimal<'_>) -> Option<Significand> {
    let leading_zeros = decimal.digits().take_while(|&digit| digit == 0).count();
    let digits_count = decimal.whole.len() + decimal.fraction.len() - leading_zeros;
    if digits_count == 0 {
        return Some(Significand {
            bits: 0,
            exponent: 0,
            inexact: false,
        });
    }
    let exponent = decimal.exponent - i64::try_from(decimal.fraction.len()).ok()?;
    // The number is below 10^magnitude and at least a tenth of that.
    let magnitude = exponent + i64::try_from(digits_count).ok()?;
    if !(-4960..=4940).contains(&magnitude) {
        return None;
    }
    let exponent = i32::try_from(exponent).ok()?;
    let digits = decimal.digits().skip(leading_zeros);
    if digits_count <= 19 && exponent.unsigned_abs() <= 18 {
        let digits = digits.fold(0, |sum, digit| sum * 10 + u64::from(digit));
        return Some(scale_small(digits, exponent));
    }
    Some(scale_large(Natural::from_digits(digits), exponent))
}

/// Returns `digits * 10^exponent` for non-zero digits and an exponent from -18 to 18.
fn scale_small(digits: u64, exponent: i32) -> Significand {
    let power = 10_u128.pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return Significand {
            bits: u128::from(digits) * power,
            exponent: 0,
            inexact: false,
        };
    }
    // The dividend fills 128 bits and the divisor at most 60, so the quotient has at least 68.
    let zeros = u128::from(digits).leading_zeros();
    let dividend = u128::from(digits) << zeros;
    Significand {
        bits: dividend / power,
        exponent: -i64::from(zeros),
        inexact: dividend % power != 0,
    }
}

/// Returns `digits * 10^exponent` for non-zero digits.
fn scale_large(mut digits: Natural, exponent: i32) -> Significand {
    let scaled = if exponent >= 0 {
        digits.multiply_by_power_of_five(exponent.unsigned_abs());
        digits.to_significand()
    } else {
        let mut power = Natural::new(1);
        power.multiply_by_power_of_five(exponent.unsigned_abs());
        digits.divide(power)
    };
    Significand {
        exponent: scaled.exponent + i64::from(exponent),
        ..scaled
    }
}

#[cfg(test)]
mod tests;
