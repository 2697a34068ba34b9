//! Hexadecimal digits, small ones.

/// The two digits of a byte.
#[inline]
#[must_use]
pub fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [byte >> 4, byte & 15].map(|nibble| DIGITS[usize::from(nibble)])
}

/// The digits of `bytes`, two for each. O(n).
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let pairs = bytes.iter().flat_map(|byte| digits(*byte));
    pairs.map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(text(b""), "");
        assert_eq!(text(&[0x00, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }
}
