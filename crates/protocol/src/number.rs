//! Whole numbers between text and machine form.

/// `00` to `99`, so that a division yields two digits.
const DIGIT_PAIRS: [[u8; 2]; 100] = digit_pairs();

/// Characters of the longest whole number.
pub(crate) const NUMBER_BYTES_MAX: usize = 20;

/// How many digits `number` has.
#[inline]
pub(crate) fn digits_count(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Writes `number` to the front of `room` and returns its length. The digits go where they belong
/// at once: copying them from elsewhere would wait for their single stores to become readable.
///
/// # Panics
/// When `room` is too short; [`NUMBER_BYTES_MAX`] always suffices.
#[inline]
pub(crate) fn write_unsigned(room: &mut [u8], mut number: u64) -> usize {
    let count = digits_count(number);
    for places in room[..count].rchunks_mut(2) {
        let [tens, ones] = DIGIT_PAIRS[(number % 100) as usize];
        number /= 100;
        match places {
            [first, second] => (*first, *second) = (tens, ones),
            [only] => *only = ones,
            _ => {}
        }
    }
    count
}

/// The same for a number that may be negative.
#[inline]
pub(crate) fn write_signed(room: &mut [u8], number: i64) -> usize {
    if number < 0 {
        room[0] = b'-';
        1 + write_unsigned(&mut room[1..], number.unsigned_abs())
    } else {
        write_unsigned(room, number.unsigned_abs())
    }
}

const fn digit_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[b'0'; 2]; 100];
    let mut index = 1;
    while index < 100 {
        pairs[index] = pairs[index - 1];
        pairs[index][1] += 1;
        if pairs[index][1] > b'9' {
            pairs[index] = [pairs[index][0] + 1, b'0'];
        }
        index += 1;
    }
    pairs
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: i64) {
        let mut room = [0; NUMBER_BYTES_MAX];
        let count = write_signed(&mut room, number);
        assert_eq!(&room[..count], number.to_string().as_bytes());
        assert_eq!(parse_i64(&room[..count]), Some(number));
    }

    #[test]
    fn numbers_read_back() {
        let around = |number: i64| (-101..=101).map(move |offset| number.saturating_add(offset));
        let powers = (0..19).map(|exponent| 10_i64.pow(exponent));
        for number in powers.chain([0, i64::MAX]).flat_map(around) {
            for number in [number, number.wrapping_neg()] {
                check(number);
            }
        }
        check(i64::MIN);
        let mut room = [0; NUMBER_BYTES_MAX];
        assert_eq!(write_unsigned(&mut room, u64::MAX), NUMBER_BYTES_MAX);
        assert_eq!(room, u64::MAX.to_string().as_bytes());
    }

    #[test]
    fn only_the_canonical_text_is_a_number() {
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "00",
            " 1",
            "1 ",
            "1.0",
            "1a",
            "0x1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999999",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
    }
}
