//! Whole numbers between text and machine form.

/// Decimal digits of a number, kept on the stack.
pub(crate) struct Digits {
    bytes: [u8; 20],
    start: usize,
}

impl Digits {
    /// The digits of `number`.
    pub(crate) fn of_unsigned(mut number: u64) -> Self {
        let mut bytes = [b'0'; 20];
        let mut start = bytes.len();
        loop {
            start -= 1;
            bytes[start] = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
            if number == 0 {
                return Self { bytes, start };
            }
        }
    }

    /// The digits of `number`, after a minus sign when it is negative.
    pub(crate) fn of_signed(number: i64) -> Self {
        let mut digits = Self::of_unsigned(number.unsigned_abs());
        if number < 0 {
            digits.start -= 1;
            digits.bytes[digits.start] = b'-';
        }
        digits
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Reads a whole number as the protocol writes it: an optional minus sign, no plus sign, no
/// leading zero, no blanks, nothing after it.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if !matches!(digits, [b'1'..=b'9', ..]) {
        return None;
    }
    let mut number = 0_i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?;
        number = if negative {
            number.checked_sub(i64::from(digit))?
        } else {
            number.checked_add(i64::from(digit))?
        };
    }
    Some(number)
}
