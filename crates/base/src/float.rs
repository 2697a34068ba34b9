//! Doubles and their text, as arguments and replies spell them.
//!
//! Parsing accepts what C's `strtod` accepts, if that is the whole text and no space precedes it.
//! Printing gives the fewest digits that parse back to the same double.

use crate::number::IntegerText;
use crate::numeral::{self, Magnitude};
use crate::significand::Significand;
use std::fmt::{self, Write};

/// Upper bound of a double's text: sign, 17 digits, point and `e-308` are 24 bytes.
pub const TEXT_BYTES_MAX: usize = 32;

/// Returns the double nearest to the number that `text` spells; NaN if it spells NaN.
///
/// `None` if the text is not a number, or if the number is too large for a double, or is not zero
/// but would round to zero. Linear in the length of the text.
///
/// ```
/// assert_eq!(base::float::parse(b"-1.5e3"), Some(-1500.0));
/// assert_eq!(base::float::parse(b"1e999"), None);
/// ```
#[must_use]
pub fn parse(text: &[u8]) -> Option<f64> {
    let numeral = numeral::parse(text)?;
    let magnitude = match numeral.magnitude {
        Magnitude::Decimal(decimal) => {
            // What was accepted is ASCII, and a subset of what std parses.
            let value: f64 = std::str::from_utf8(decimal.text).ok()?.parse().ok()?;
            (value.is_finite() && (value != 0.0 || decimal.is_zero())).then_some(value)?
        }
        Magnitude::Binary(significand) => nearest(significand)?,
        Magnitude::Infinite => f64::INFINITY,
        Magnitude::NotANumber => f64::NAN,
    };
    Some(if numeral.is_negative {
        -magnitude
    } else {
        magnitude
    })
}

/// A double's text in a buffer of its own.
#[derive(Clone, Copy)]
pub struct FloatText {
    buffer: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl FloatText {
    /// Prints the fewest digits that parse back to `value`, as replies print doubles.
    ///
    /// Whole numbers up to 2^62 have no exponent; `inf`, `-inf` and `nan` are words.
    ///
    /// ```
    /// assert_eq!(base::float::FloatText::shortest(0.1).as_bytes(), b"0.1");
    /// assert_eq!(base::float::FloatText::shortest(1e30).as_bytes(), b"1e+30");
    /// ```
    #[must_use]
    pub fn shortest(value: f64) -> Self {
        let mut text = Self::empty();
        if let Some(word) = word_of(value) {
            text.push(word);
        } else if let Some(whole) = whole_number(value) {
            text.push(IntegerText::new(whole).as_bytes());
        } else {
            text.push_shortest(value);
        }
        text
    }

    /// Like `shortest`, but whole numbers also have an exponent if that is shorter.
    ///
    /// ```
    /// assert_eq!(base::float::FloatText::digits(1e10).as_bytes(), b"1e+10");
    /// assert_eq!(base::float::FloatText::digits(1e7).as_bytes(), b"10000000");
    /// ```
    #[must_use]
    pub fn digits(value: f64) -> Self {
        let mut text = Self::empty();
        match word_of(value) {
            Some(word) => text.push(word),
            None => text.push_shortest(value),
        }
        text
    }

    /// Prints seventeen significant digits, as C's `%.17g` does; the words are those of
    /// [`shortest`](Self::shortest).
    ///
    /// ```
    /// assert_eq!(base::float::FloatText::seventeen(0.1).as_bytes(), b"0.10000000000000001");
    /// ```
    #[must_use]
    pub fn seventeen(value: f64) -> Self {
        let mut text = Self::empty();
        match word_of(value) {
            Some(word) => text.push(word),
            None => text.push_seventeen(value),
        }
        text
    }

    /// Returns the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    fn empty() -> Self {
        Self {
            buffer: [0; TEXT_BYTES_MAX],
            length: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.buffer[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    fn push_zeros(&mut self, count: i32) {
        for _ in 0..count {
            self.push(b"0");
        }
    }

    /// Prints a finite number, with an exponent if that is shorter, in the layout of the double
    /// printer of servers of version 7.2.
    fn push_shortest(&mut self, value: f64) {
        let digits = Digits::of(format_args!("{:e}", value.abs()));
        let (count, scale) = (digits.count(), digits.scale());
        self.push_sign(value);
        if scale >= 0 && digits.exponent < count + 7 {
            self.push(digits.as_bytes());
            self.push_zeros(scale);
        } else if scale < 0 && (scale > -7 || digits.exponent.abs() < 4) {
            self.push_with_point(&digits);
        } else {
            self.push_with_exponent(&digits, 1);
        }
    }

    /// Prints a finite number as `%.17g`.
    fn push_seventeen(&mut self, value: f64) {
        let mut digits = Digits::of(format_args!("{:.16e}", value.abs()));
        digits.trim();
        self.push_sign(value);
        if !(-4..17).contains(&digits.exponent) {
            self.push_with_exponent(&digits, 2);
        } else if digits.scale() < 0 {
            self.push_with_point(&digits);
        } else {
            self.push(digits.as_bytes());
            self.push_zeros(digits.scale());
        }
    }

    fn push_sign(&mut self, value: f64) {
        if value.is_sign_negative() {
            self.push(b"-");
        }
    }

    /// Appends the digits with a point among or before them.
    fn push_with_point(&mut self, digits: &Digits) {
        match usize::try_from(digits.exponent) {
            Ok(exponent) => {
                let (whole, fraction) = digits.as_bytes().split_at(exponent + 1);
                self.push(whole);
                self.push(b".");
                self.push(fraction);
            }
            Err(_negative) => {
                self.push(b"0.");
                self.push_zeros(-digits.exponent - 1);
                self.push(digits.as_bytes());
            }
        }
    }

    /// Appends the digits with a point after the first, and an exponent of at least
    /// `exponent_digits_min` digits.
    fn push_with_exponent(&mut self, digits: &Digits, exponent_digits_min: usize) {
        let (first, fraction) = digits.as_bytes().split_at(1);
        self.push(first);
        if !fraction.is_empty() {
            self.push(b".");
            self.push(fraction);
        }
        self.push(if digits.exponent < 0 { b"e-" } else { b"e+" });
        let exponent = IntegerText::new(i64::from(digits.exponent.abs()));
        if exponent.as_bytes().len() < exponent_digits_min {
            self.push(b"0");
        }
        self.push(exponent.as_bytes());
    }
}

impl Write for FloatText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > TEXT_BYTES_MAX - self.length {
            return Err(fmt::Error);
        }
        self.push(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for FloatText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FloatText({})", self.as_bytes().escape_ascii())
    }
}

fn word_of(value: f64) -> Option<&'static [u8]> {
    Some(match value {
        _ if value.is_nan() => b"nan",
        f64::INFINITY => b"inf",
        f64::NEG_INFINITY => b"-inf",
        0.0 if value.is_sign_negative() => b"-0",
        _ => return None,
    })
}

/// Returns `value` as an integer if it is whole and small enough to be printed as one.
#[expect(clippy::cast_possible_truncation, reason = "in range and whole")]
fn whole_number(value: f64) -> Option<i64> {
    /// 2^62, half the range of the type, as on the reference server.
    const LIMIT: f64 = (1_u64 << 62) as f64;
    (value.abs() <= LIMIT && value.trunc() == value).then_some(value as i64)
}

/// Returns the double nearest to a binary number, or `None` if that is infinite, or is zero for a
/// non-zero number.
fn nearest(significand: Significand) -> Option<f64> {
    /// The exponent of the last bit of the smallest doubles.
    const EXPONENT_MIN: i64 = -1074;
    const IMPLICIT_BIT: u64 = 1 << 52;
    let (kept, exponent) = significand.round(53, EXPONENT_MIN);
    let kept = u64::try_from(kept).ok()?;
    if kept == 0 {
        return (significand.bits == 0).then_some(0.0);
    }
    // The exponent field is one above that of numbers without the implicit bit, which is subtracted
    // from the digits. Without the implicit bit the two cancel out. If rounding produced one more
    // bit, the addition carries it into the exponent.
    let field = u64::try_from(exponent - EXPONENT_MIN + 1).ok()?;
    if field > 2046 {
        return None;
    }
    let value = f64::from_bits((field << 52) + kept - IMPLICIT_BIT);
    value.is_finite().then_some(value)
}

/// Decimal digits, the first of which stands for the units, times ten to the power of `exponent`.
struct Digits {
    text: FloatText,
    exponent: i32,
}

impl Digits {
    /// Parses what std prints with an exponent: `1.234e-5`.
    fn of(printed: fmt::Arguments<'_>) -> Self {
        let mut source = FloatText::empty();
        // 17 digits, a point and an exponent of three digits: it fits.
        let _always_fits = source.write_fmt(printed);
        let mut digits = Self {
            text: FloatText::empty(),
            exponent: 0,
        };
        let (mut in_exponent, mut is_negative) = (false, false);
        for &byte in source.as_bytes() {
            match byte {
                b'.' => {}
                b'e' => in_exponent = true,
                b'-' => is_negative = true,
                digit if in_exponent => {
                    digits.exponent = digits.exponent * 10 + i32::from(digit - b'0');
                }
                digit => digits.text.push(&[digit]),
            }
        }
        if is_negative {
            digits.exponent = -digits.exponent;
        }
        digits
    }

    fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    fn count(&self) -> i32 {
        i32::try_from(self.text.length).unwrap_or(i32::MAX)
    }

    /// Returns the power of ten that the last digit stands for.
    fn scale(&self) -> i32 {
        self.exponent - self.count() + 1
    }

    /// Drops trailing zeros, except for the first digit.
    fn trim(&mut self) {
        while self.text.length > 1 && self.as_bytes().ends_with(b"0") {
            self.text.length -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
