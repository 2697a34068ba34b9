//! The text of floating-point numbers, as the C library's `strtod` family accepts it.
//!
//! An optional sign, then decimal digits with an optional point and exponent, or hexadecimal digits
//! after `0x` with an exponent of two, or `inf`, `infinity`, `nan`, `nan(...)` in any case. The
//! whole text must be used, and spaces are refused.

use crate::significand::Significand;

/// Larger exponents are clamped to this: no format reaches it, however many digits a text has, and
/// sums of such exponents stay far from the limits of the type.
const EXPONENT_MAX: i64 = 1 << 40;

/// What a text spells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numeral<'text> {
    pub(crate) is_negative: bool,
    pub(crate) magnitude: Magnitude<'text>,
}

/// A number without its sign.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Magnitude<'text> {
    Decimal(Decimal<'text>),
    Binary(Significand),
    Infinite,
    NotANumber,
}

/// The digits `whole`.`fraction` times ten to the power of `exponent`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal<'text> {
    /// The text without its sign.
    pub(crate) text: &'text [u8],
    pub(crate) whole: &'text [u8],
    pub(crate) fraction: &'text [u8],
    pub(crate) exponent: i64,
}

impl Decimal<'_> {
    /// Returns all digits in order.
    pub(crate) fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole
            .iter()
            .chain(self.fraction)
            .map(|byte| byte - b'0')
    }

    /// Whether every digit is 0.
    pub(crate) fn is_zero(&self) -> bool {
        self.digits().all(|digit| digit == 0)
    }
}

/// Returns what `text` spells, if it is a number.
pub(crate) fn parse(text: &[u8]) -> Option<Numeral<'_>> {
    let (is_negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let magnitude = match unsigned {
        [b'0', b'x' | b'X', digits @ ..] => Magnitude::Binary(parse_hexadecimal(digits)?),
        [b'0'..=b'9' | b'.', ..] => Magnitude::Decimal(parse_decimal(unsigned)?),
        word => parse_word(word)?,
    };
    Some(Numeral {
        is_negative,
        magnitude,
    })
}

fn parse_decimal(text: &[u8]) -> Option<Decimal<'_>> {
    let (whole, fraction, rest) = split_digits(text, u8::is_ascii_digit)?;
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', exponent @ ..] => parse_exponent(exponent)?,
        _ => return None,
    };
    Some(Decimal {
        text,
        whole,
        fraction,
        exponent,
    })
}

/// Parses what follows `0x`.
fn parse_hexadecimal(text: &[u8]) -> Option<Significand> {
    /// Maximum number of digits kept. Of further digits only whether they are zero matters.
    const DIGITS_MAX: u32 = 32;
    let (whole, fraction, rest) = split_digits(text, u8::is_ascii_hexdigit)?;
    let mut exponent = match rest {
        [] => 0,
        [b'p' | b'P', exponent @ ..] => parse_exponent(exponent)?,
        _ => return None,
    };
    exponent -= 4 * i64::try_from(fraction.len()).ok()?;
    let mut bits: u128 = 0;
    let mut digits_count = 0;
    let mut inexact = false;
    for &byte in whole.iter().chain(fraction) {
        let digit = char::from(byte).to_digit(16)?;
        if digits_count < DIGITS_MAX {
            bits = bits << 4 | u128::from(digit);
            digits_count += u32::from(bits != 0);
        } else {
            inexact |= digit != 0;
            exponent += 4;
        }
    }
    Some(Significand {
        bits,
        exponent,
        inexact,
    })
}

fn parse_word<'text>(word: &[u8]) -> Option<Magnitude<'text>> {
    let lower = word.to_ascii_lowercase();
    match lower.as_slice() {
        b"inf" | b"infinity" => Some(Magnitude::Infinite),
        b"nan" => Some(Magnitude::NotANumber),
        [b'n', b'a', b'n', b'(', payload @ .., b')'] => payload
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
            .then_some(Magnitude::NotANumber),
        _ => None,
    }
}

/// Returns the digits, the digits after a point, and the rest, or `None` if there is no digit at
/// all.
fn split_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<(&[u8], &[u8], &[u8])> {
    let digits_of = |text: &[u8]| text.iter().take_while(|&byte| is_digit(byte)).count();
    let (whole, rest) = text.split_at(digits_of(text));
    let (fraction, rest) = match rest {
        [b'.', after_point @ ..] => after_point.split_at(digits_of(after_point)),
        _ => rest.split_at(0),
    };
    (!whole.is_empty() || !fraction.is_empty()).then_some((whole, fraction, rest))
}

/// Parses an optional sign and one or more digits; stops growing at [`EXPONENT_MAX`].
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        rest => (1, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits.iter().fold(0, |sum: i64, &digit| {
        (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX)
    });
    Some(sign * exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_the_c_library_leaves_over() {
        let refused: [&[u8]; 28] = [
            b"", b"-", b"+", b".", b"-.", b"e5", b".e5", b"1e", b"1e+", b"1e-", b"1e1.5", b" 1",
            b"1 ", b"1_0", b"++1", b"+-1", b"0x", b"0x.", b"0xp1", b"0x1p", b"0x1p+", b"0x1g",
            b"1p3", b"infinit", b"nan(", b"nan(-)", b"nan)", b"1\0",
        ];
        for text in refused {
            assert!(parse(text).is_none(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn exponents_stop_growing() {
        let text = format!("1e-{}", "9".repeat(100));
        let Some(Magnitude::Decimal(decimal)) = parse(text.as_bytes()).map(|n| n.magnitude) else {
            panic!("not a decimal");
        };
        assert_eq!(decimal.exponent, -EXPONENT_MAX);
    }

    #[test]
    fn hexadecimal_digits_beyond_the_bits_count_as_a_little_more() {
        let text = format!("0x00{}.{}1p0", "f".repeat(32), "0".repeat(9));
        let Some(Magnitude::Binary(number)) = parse(text.as_bytes()).map(|n| n.magnitude) else {
            panic!("not binary");
        };
        let expected = Significand {
            bits: u128::MAX,
            exponent: 0,
            inexact: true,
        };
        assert_eq!(number, expected);
    }
}
