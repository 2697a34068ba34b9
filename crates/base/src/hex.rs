//! Lower-case hexadecimal digits.

/// Returns the two digits of a byte.
#[inline]
#[must_use]
pub fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)])
}

/// Returns the digits of `bytes`, two for each. O(n).
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let pairs = bytes.iter().flat_map(|byte| digits(*byte));
    pairs.map(char::from).collect()
}

/// Returns the bytes that digits of either case stand for, two for each, or `None` if their number
/// differs. O(n).
#[must_use]
pub fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes_again() {
        assert_eq!(bytes(&text(&[0, 15, 160, 255])), Some([0, 15, 160, 255]));
        assert_eq!(bytes("FF0a"), Some([255, 10]));
        for wrong in ["", "0", "000", "0g", "+1", "é"] {
            assert_eq!(bytes::<1>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(text(b""), "");
        assert_eq!(text(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }
}
