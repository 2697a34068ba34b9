//! Whole numbers and their decimal text, on the path of every request and reply.
//!
//! Each number has exactly one text: no sign but `-`, no leading zeros, no spaces and no `-0`. So a
//! number that was parsed from a text prints as the same text, which lets the store keep an integer
//! instead of the given bytes.
//!
//! Parsing takes eight digits per step (one load, one range check and three multiplications for all
//! of them), printing two.

/// The longest text of a 64-bit number: `-9223372036854775808` or `18446744073709551615`.
pub const TEXT_BYTES_MAX: usize = 20;

/// Returns the number that `text` spells, if it is the canonical text of an [`i64`].
#[inline]
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => {
            let magnitude = parse_digits(digits)?;
            // 0 has no minus sign, and i64::MIN is the only number without a positive counterpart.
            if magnitude == 0 || magnitude > i64::MIN.unsigned_abs() {
                return None;
            }
            Some(0_i64.wrapping_sub_unsigned(magnitude))
        }
        digits => i64::try_from(parse_digits(digits)?).ok(),
    }
}

/// Returns the number that `text` spells, if it is the canonical text of a [`u64`].
#[inline]
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    parse_digits(text)
}

/// A number's text in a buffer of its own.
///
/// ```
/// assert_eq!(base::number::IntegerText::new(-42).as_bytes(), b"-42");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IntegerText {
    buffer: [u8; TEXT_BYTES_MAX],
    start: usize,
}

impl IntegerText {
    /// Prints `value`.
    #[inline]
    #[must_use]
    pub fn new(value: i64) -> Self {
        let mut text = Self::new_u64(value.unsigned_abs());
        if value < 0 {
            // At most 19 digits, so the sign fits.
            text.start -= 1;
            text.buffer[text.start] = b'-';
        }
        text
    }

    /// Prints `value`.
    #[inline]
    #[must_use]
    pub fn new_u64(value: u64) -> Self {
        let mut buffer = [0; TEXT_BYTES_MAX];
        let start = write_digits_backwards(&mut buffer, value);
        Self { buffer, start }
    }

    /// Returns the text, 1 to [`TEXT_BYTES_MAX`] bytes of ASCII.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

/// Returns the length of the text of `value`, including its sign.
#[inline]
#[must_use]
pub fn decimal_len(value: i64) -> usize {
    digits_count(value.unsigned_abs()) + usize::from(value < 0)
}

/// Writes the text of `value` at the start of `out`. Returns its length.
///
/// # Panics
/// If `out` is shorter than the text; [`TEXT_BYTES_MAX`] bytes are always enough.
#[inline]
pub fn write_i64(out: &mut [u8], value: i64) -> usize {
    let length = decimal_len(value);
    let out = &mut out[..length];
    write_digits_backwards(out, value.unsigned_abs());
    if value < 0 {
        out[0] = b'-';
    }
    length
}

/// Writes the text of `value` at the start of `out`. Returns its length.
///
/// # Panics
/// If `out` is shorter than the text; [`TEXT_BYTES_MAX`] bytes are always enough.
#[inline]
pub fn write_u64(out: &mut [u8], value: u64) -> usize {
    let length = digits_count(value);
    write_digits_backwards(&mut out[..length], value);
    length
}

/// Returns the number of decimal digits of `value`; one for zero.
#[inline]
#[must_use]
pub fn digits_count(value: u64) -> usize {
    /// Ten to the power of the index. A number with `n` or more digits is at least entry `n - 1`.
    const POWERS: [u64; 20] = {
        let mut powers = [1; 20];
        let mut index = 1;
        while index < powers.len() {
            powers[index] = powers[index - 1] * 10;
            index += 1;
        }
        powers
    };
    // 1233 / 4096 is slightly above log10(2): the guess is the digit count or one less.
    let bits = (value | 1).ilog2() + 1;
    let guess = (bits * 1233 / 4096) as usize;
    guess + usize::from(value | 1 >= POWERS[guess])
}

/// Writes the digits of `value` at the end of `out`. Returns the index of the first.
#[inline]
fn write_digits_backwards(out: &mut [u8], mut value: u64) -> usize {
    let mut start = out.len();
    while value >= 100 {
        let pair = digit_pair(value % 100);
        value /= 100;
        start -= 2;
        out[start..start + 2].copy_from_slice(&pair);
    }
    let pair = digit_pair(value);
    start -= 1;
    out[start] = pair[1];
    if value >= 10 {
        start -= 1;
        out[start] = pair[0];
    }
    start
}

/// Returns the two digits of a number below 100.
#[inline]
fn digit_pair(below_100: u64) -> [u8; 2] {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[b'0'; 2]; 100];
        let mut tens = 0;
        while tens < 10 {
            let mut ones = 0;
            while ones < 10 {
                pairs[(tens * 10 + ones) as usize] = [b'0' + tens, b'0' + ones];
                ones += 1;
            }
            tens += 1;
        }
        pairs
    };
    PAIRS[(below_100 % 100) as usize]
}

/// Returns the number that `digits` spell without sign or leading zero, if it fits in 64 bits.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    match digits {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        [b'1'..=b'9', ..] => return parse_twenty_digits(digits),
        _ => return None,
    }
    let mut rest = digits;
    let mut value = 0;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        value = value * 100_000_000 + eight_digits(*eight)?;
        rest = tail;
    }
    if let Some((&[a, b, c, d], tail)) = rest.split_first_chunk::<4>() {
        // Padded with zeros in front to eight digits.
        value = value * 10_000 + eight_digits([b'0', b'0', b'0', b'0', a, b, c, d])?;
        rest = tail;
    }
    for &byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// Like [`parse_digits`], for the only length at which a number may not fit.
#[cold]
fn parse_twenty_digits(digits: &[u8]) -> Option<u64> {
    let (&last, front) = digits.split_last()?;
    if front.len() != 19 || !last.is_ascii_digit() {
        return None;
    }
    parse_digits(front)?
        .checked_mul(10)?
        .checked_add(u64::from(last - b'0'))
}

/// Returns the number that eight digits spell, or `None` if a byte is not a digit.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);
    const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
    let word = u64::from_le_bytes(text);
    let digits = word.wrapping_sub(ZEROS);
    // A byte above '9' overflows into its top bit when 0x46 is added. A byte below '0', or with its
    // own top bit set, shows it after the subtraction. A borrow only ever follows such a byte.
    let above = word.wrapping_add(0x4646_4646_4646_4646);
    if (digits | above | word) & HIGH_BITS != 0 {
        return None;
    }
    // Neighbours are joined: eight digits into four pairs, two fours and then one number.
    let pairs = digits * 10 + (digits >> 8);
    let fours = (pairs & 0x00ff_00ff_00ff_00ff) * 100 + ((pairs >> 16) & 0x00ff_00ff_00ff_00ff);
    let (low, high) = (fours & 0xffff, (fours >> 32) & 0xffff);
    Some(low * 10_000 + high)
}

#[cfg(test)]
mod tests;
