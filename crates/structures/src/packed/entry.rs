//! The bytes of one packed element. They are those of an entry in Redis' listpack, so a dump of a
//! small collection is a copy.
//!
//! ```text
//!   head ─ data ─ length of both, to be read from the right
//!
//!   0xxxxxxx                     number 0..=127            1111 0001 + 2   16-bit number
//!   10llllll + data              text up to 63 bytes       1111 0010 + 3   24-bit number
//!   110xxxxx + 1                 13-bit number             1111 0011 + 4   32-bit number
//!   1110llll + 1 + data          text up to 4095 bytes     1111 0100 + 8   64-bit number
//!   1111 0000 + 4 + data         longer text               (little endian, two's complement)
//! ```
//!
//! The length behind an entry has seven bits per byte, the lowest in the last byte. All bytes
//! except the first have their top bit set.
//!
//! Source of the format: antirez/listpack, listpack.md.

use crate::element::Element;

/// Maximum bytes of a number's head and data.
const NUMBER_BYTES_MAX: usize = 9;
/// Maximum bytes of the length behind an entry.
const BACK_BYTES_MAX: usize = 5;

const TEXT6: u8 = 0x80;
const INT13: u8 = 0xc0;
const TEXT12: u8 = 0xe0;
const TEXT32: u8 = 0xf0;
const INT16: u8 = 0xf1;
const INT24: u8 = 0xf2;
const INT32: u8 = 0xf3;
const INT64: u8 = 0xf4;

/// Whether `number` fits into a signed number of `bits` bits.
fn fits(number: i64, bits: u32) -> bool {
    let bound = 1 << (bits - 1);
    (-bound..bound).contains(&number)
}

/// An element, encoded to be written to a block.
pub(super) struct Encoded<'a> {
    head: [u8; NUMBER_BYTES_MAX],
    head_len: usize,
    text: &'a [u8],
    back: [u8; BACK_BYTES_MAX],
    back_len: usize,
}

impl<'a> Encoded<'a> {
    #[inline]
    pub(super) fn new(element: Element<'a>) -> Self {
        let mut encoded = Self {
            head: [0; NUMBER_BYTES_MAX],
            head_len: 0,
            text: b"",
            back: [0; BACK_BYTES_MAX],
            back_len: 0,
        };
        match element {
            Element::Integer(number) => encoded.put_number(number),
            Element::Bytes(text) => encoded.put_text(text),
        }
        let inner = encoded.head_len + encoded.text.len();
        encoded.back_len = put_back(&mut encoded.back, inner);
        encoded
    }

    fn put_number(&mut self, number: i64) {
        let bytes = number.to_le_bytes();
        let marker = match number {
            0..=127 => return self.put_head(&bytes[..1]),
            _ if fits(number, 13) => {
                let high = INT13 | (bytes[1] & 0x1f);
                return self.put_head(&[high, bytes[0]]);
            }
            _ if fits(number, 16) => INT16,
            _ if fits(number, 24) => INT24,
            _ if fits(number, 32) => INT32,
            _ => INT64,
        };
        self.head[0] = marker;
        let data_len = number_data_len(marker);
        self.head[1..=data_len].copy_from_slice(&bytes[..data_len]);
        self.head_len = 1 + data_len;
    }

    #[inline]
    fn put_text(&mut self, text: &'a [u8]) {
        self.text = text;
        let [low, second, third, fourth, ..] = text.len().to_le_bytes();
        match text.len() {
            0..64 => self.put_head(&[TEXT6 | low]),
            64..4096 => self.put_head(&[TEXT12 | second, low]),
            _ => self.put_head(&[TEXT32, low, second, third, fourth]),
        }
    }

    #[inline]
    fn put_head(&mut self, head: &[u8]) {
        self.head[..head.len()].copy_from_slice(head);
        self.head_len = head.len();
    }

    /// Whether `bytes`, which begin with a whole entry, begin with this element.
    #[inline]
    pub(super) fn is_at(&self, bytes: &[u8]) -> bool {
        bytes[0] == self.head[0]
            && bytes.len() >= self.len()
            && bytes[..self.head_len] == self.head[..self.head_len]
            && bytes[self.head_len..self.head_len + self.text.len()] == *self.text
    }

    /// Returns the bytes it takes in a block.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head_len + self.text.len() + self.back_len
    }

    /// Writes it to `room`, which has [`Encoded::len`] bytes.
    #[inline]
    pub(super) fn write_to(&self, room: &mut [u8]) {
        let (head, room) = room.split_at_mut(self.head_len);
        head.copy_from_slice(&self.head[..self.head_len]);
        let (text, back) = room.split_at_mut(self.text.len());
        text.copy_from_slice(self.text);
        back.copy_from_slice(&self.back[..self.back_len]);
    }
}

fn number_data_len(marker: u8) -> usize {
    match marker {
        INT16 => 2,
        INT24 => 3,
        INT32 => 4,
        _ => 8,
    }
}

/// Returns the bytes of the length behind an entry whose head and data have `inner` bytes.
#[inline]
fn back_len(inner: usize) -> usize {
    match inner {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => BACK_BYTES_MAX,
    }
}

#[inline]
fn put_back(back: &mut [u8; BACK_BYTES_MAX], inner: usize) -> usize {
    let count = back_len(inner);
    let mut rest = inner;
    for (at, byte) in back[..count].iter_mut().enumerate().rev() {
        let more = if at == 0 { 0 } else { 0x80 };
        *byte = more | (rest & 0x7f).to_le_bytes()[0];
        rest >>= 7;
    }
    count
}

/// Returns the bytes that `element` takes in a block.
#[inline]
pub(super) fn encoded_len(element: Element<'_>) -> usize {
    Encoded::new(element).len()
}

/// Returns the element at the front of `bytes`, which begin with a whole entry, and the entry's
/// length.
#[inline]
pub(super) fn decode(bytes: &[u8]) -> (Element<'_>, usize) {
    let first = bytes[0];
    match first {
        0..=0x7f => (Element::Integer(i64::from(first)), 2),
        TEXT6..INT13 => text(bytes, 1, usize::from(first & 0x3f)),
        INT13..TEXT12 => {
            let value = i64::from(first & 0x1f) << 8 | i64::from(bytes[1]);
            // Signed, thirteen bits: the upper half is negative.
            let value = if value >= 1 << 12 {
                value - (1 << 13)
            } else {
                value
            };
            (Element::Integer(value), 3)
        }
        TEXT12..TEXT32 => {
            let len = usize::from(first & 0x0f) << 8 | usize::from(bytes[1]);
            text(bytes, 2, len)
        }
        TEXT32 => {
            let len = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            text(bytes, 5, usize::try_from(len).unwrap_or(usize::MAX))
        }
        marker => {
            let data_len = number_data_len(marker);
            let data = &bytes[1..=data_len];
            let negative = data[data_len - 1] & 0x80 != 0;
            let mut whole = [if negative { 0xff } else { 0 }; 8];
            whole[..data_len].copy_from_slice(data);
            (Element::Integer(i64::from_le_bytes(whole)), data_len + 2)
        }
    }
}

#[inline]
fn text(bytes: &[u8], head: usize, len: usize) -> (Element<'_>, usize) {
    let inner = head + len;
    (Element::Bytes(&bytes[head..inner]), inner + back_len(inner))
}

/// Returns the length of the entry at the front of `bytes`. Steps from entry to entry wait for it,
/// so it is one table lookup for all entries except texts of 64 bytes and more.
#[inline]
pub(super) fn entry_len(bytes: &[u8]) -> usize {
    match SHORT_LENS[usize::from(bytes[0])] {
        0 => decode(bytes).1,
        short => usize::from(short),
    }
}

/// Lengths of entries by their first byte, or 0 if the first byte does not determine the length.
static SHORT_LENS: [u8; 256] = short_lens();

const fn short_lens() -> [u8; 256] {
    let mut lens = [0; 256];
    let mut first = 0;
    while first < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "below 256")]
        let byte = first as u8;
        lens[first] = match byte {
            0..=0x7f => 2,
            TEXT6..INT13 => 2 + (byte & 0x3f),
            INT13..TEXT12 => 3,
            TEXT12..=TEXT32 => 0,
            INT16 => 4,
            INT24 => 5,
            INT32 => 6,
            _ => 10,
        };
        first += 1;
    }
    lens
}

/// Returns the length of the entry at the end of `bytes`.
#[inline]
pub(super) fn last_entry_len(bytes: &[u8]) -> usize {
    let mut inner = 0_usize;
    for (at, byte) in bytes.iter().rev().enumerate() {
        inner |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return inner + at + 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(element: Element<'_>) -> usize {
        let encoded = Encoded::new(element);
        let mut bytes = vec![0; encoded.len()];
        encoded.write_to(&mut bytes);
        assert_eq!(decode(&bytes), (element, bytes.len()));
        assert_eq!(last_entry_len(&bytes), bytes.len());
        assert_eq!(encoded_len(element), bytes.len());
        assert_eq!(entry_len(&bytes), bytes.len());
        assert!(encoded.is_at(&bytes));
        bytes.len()
    }

    #[test]
    fn numbers_take_as_little_as_they_need() {
        let cases = [
            (0, 2),
            (127, 2),
            (128, 3),
            (-1, 3),
            (4095, 3),
            (-4096, 3),
            (4096, 4),
            (-32_768, 4),
            (32_768, 5),
            (-8_388_608, 5),
            (8_388_608, 6),
            (i64::from(i32::MIN), 6),
            (i64::from(i32::MAX) + 1, 10),
            (i64::MIN, 10),
            (i64::MAX, 10),
        ];
        for (number, len) in cases {
            assert_eq!(round(Element::Integer(number)), len, "{number}");
        }
    }

    #[test]
    fn texts_of_all_lengths_come_back() {
        for len in [
            0, 1, 63, 64, 125, 126, 127, 128, 4095, 4096, 16_380, 16_400, 2_100_000,
        ] {
            let text = vec![b'x'; len];
            round(Element::Bytes(&text));
        }
        assert_eq!(round(Element::Bytes(b"abc")), 5);
    }

    #[test]
    fn bytes_are_those_of_the_published_format() {
        let bytes = |element| {
            let encoded = Encoded::new(element);
            let mut bytes = vec![0; encoded.len()];
            encoded.write_to(&mut bytes);
            bytes
        };
        assert_eq!(bytes(Element::Integer(5)), [5, 1]);
        assert_eq!(bytes(Element::Integer(-1)), [0xdf, 0xff, 2]);
        assert_eq!(bytes(Element::Integer(1000)), [0xc3, 0xe8, 2]);
        assert_eq!(bytes(Element::Bytes(b"hi")), [0x82, b'h', b'i', 3]);
        let long = vec![b'x'; 200];
        let long = bytes(Element::Bytes(&long));
        assert_eq!(long[..2], [0xe0, 200]);
        // 202 = 1 * 128 + 74
        assert_eq!(long[202..], [1, 0x80 | 74]);
    }
}
