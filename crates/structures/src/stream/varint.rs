//! Numbers and texts in as few bytes as they need.
//!
//! ```text
//!   number   seven bits a byte, the lowest first; all bytes but the last have their top bit set
//!   text     number 2·length, then the bytes
//!          │ number 2·zigzag + 1, when the text is that of a whole number below 2^62 (and the
//!            negative ones alike)
//! ```

use crate::element::Element;

/// Maximum bytes of a number.
pub(super) const BYTES_MAX: usize = 10;

/// Minimum bytes of the text of a number with more bits. Such a number is stored as its text.
const LONG_NUMBER_BYTES: usize = 19;
/// From this on a number's zigzag form has no bit left for the mark.
const NUMBER_BOUND: i64 = 1 << 62;

/// Appends a number to the buffer.
#[inline]
pub(super) fn put(buffer: &mut Vec<u8>, value: u64) {
    let mut rest = value;
    while rest >= 0x80 {
        buffer.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    buffer.push(rest.to_le_bytes()[0]);
}

/// Returns the bytes that a number takes.
#[inline]
pub(super) fn len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Writes a number so that it fills all of `room`, which is long enough.
#[inline]
pub(super) fn put_over(room: &mut [u8], value: u64) {
    let mut rest = value;
    let last = room.len() - 1;
    for byte in &mut room[..last] {
        *byte = rest.to_le_bytes()[0] | 0x80;
        rest >>= 7;
    }
    room[last] = rest.to_le_bytes()[0] & 0x7f;
}

/// Takes a number from the front of `bytes`.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> u64 {
    let first = bytes[0];
    if first < 0x80 {
        *bytes = &bytes[1..];
        return u64::from(first);
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            *bytes = &bytes[at + 1..];
            break;
        }
    }
    value
}

/// Appends a text to the buffer.
#[inline]
pub(super) fn put_text(buffer: &mut Vec<u8>, text: &[u8]) {
    match Element::parse(text) {
        Element::Integer(number) if (-NUMBER_BOUND..NUMBER_BOUND).contains(&number) => {
            let zigzag = (number << 1 ^ number >> 63).cast_unsigned();
            put(buffer, zigzag << 1 | 1);
        }
        _ => {
            put(buffer, (text.len() as u64) << 1);
            buffer.extend_from_slice(text);
        }
    }
}

/// Takes a text from the front of `bytes`.
#[inline]
pub(super) fn take_text<'a>(bytes: &mut &'a [u8]) -> Element<'a> {
    let head = take(bytes);
    let half = head >> 1;
    if head & 1 != 0 {
        let number = (half >> 1).cast_signed() ^ -(half & 1).cast_signed();
        return Element::Integer(number);
    }
    let (text, rest) = bytes.split_at(usize::try_from(half).unwrap_or(usize::MAX));
    *bytes = rest;
    match text.len() {
        LONG_NUMBER_BYTES | 20 => Element::parse(text),
        _ => Element::Bytes(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let mut buffer = Vec::new();
                put(&mut buffer, value);
                assert_eq!(buffer.len(), len(value));
                assert!(buffer.len() <= BYTES_MAX);
                let mut room = [0; BYTES_MAX];
                put_over(&mut room, value);
                for mut bytes in [&buffer[..], &room[..]] {
                    assert_eq!(take(&mut bytes), value);
                    assert!(bytes.is_empty());
                }
            }
        }
    }

    #[test]
    fn texts_come_back_in_one_form() {
        let numbers = [
            0,
            1,
            -1,
            31,
            32,
            -4096,
            1 << 61,
            NUMBER_BOUND - 1,
            -NUMBER_BOUND,
        ];
        let long = [NUMBER_BOUND, i64::MAX, i64::MIN, -NUMBER_BOUND - 1];
        let mut texts: Vec<Vec<u8>> = numbers
            .iter()
            .chain(&long)
            .map(|number| number.to_string().into_bytes())
            .collect();
        texts.extend(["", "a", "01", "-0", "99999999999999999999"].map(|text| text.into()));
        texts.extend([63, 64, 127, 128, 20_000].map(|len| vec![b'x'; len]));
        for text in texts {
            let mut buffer = Vec::new();
            put_text(&mut buffer, &text);
            let mut bytes = &buffer[..];
            assert_eq!(take_text(&mut bytes), Element::parse(&text));
            assert!(bytes.is_empty());
        }
    }
}
