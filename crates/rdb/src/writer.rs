//! Writing of lengths and texts: the counterpart of [`reader`](crate::reader).

use base::number::parse_i64;

use crate::lzf;

/// How to write values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The version of the format, from 9 to 12, or that of Valkey. It determines the available
    /// types.
    pub version: u16,
    /// Whether long texts are compressed (`rdbcompression`).
    pub compresses: bool,
}

/// The destination of values, written front to back.
pub trait Output {
    /// Appends a byte.
    fn push(&mut self, byte: u8);

    /// Appends some bytes.
    fn extend_from_slice(&mut self, bytes: &[u8]);

    /// Called between steps of long work that produces no bytes yet.
    fn step(&mut self) {}
}

impl Output for Vec<u8> {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.push(byte);
    }

    #[inline]
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Maximum length of a text that is written as a number.
const NUMBER_BYTES_MAX: usize = 11;
/// Minimum length of a text that is compressed.
const COMPRESSED_BYTES_MIN: usize = 21;
/// Minimum number of bytes that compression has to save.
const SAVED_BYTES_MIN: usize = 4;

const NUMBER8: u8 = 0xc0;
const NUMBER16: u8 = 0xc1;
const NUMBER32: u8 = 0xc2;
const COMPRESSED: u8 = 0xc3;

/// Writes a length.
pub fn write_length(length: usize, out: &mut impl Output) {
    write_length_u64(length as u64, out);
}

/// Writes a length that need not belong to something in memory.
pub fn write_length_u64(length: u64, out: &mut impl Output) {
    let bytes = length.to_be_bytes();
    let [.., low4, low3, low2, low] = bytes;
    match length {
        0..64 => out.push(low),
        64..16_384 => out.extend_from_slice(&[0x40 | low2, low]),
        16_384..=0xffff_ffff => out.extend_from_slice(&[0x80, low4, low3, low2, low]),
        _ => {
            out.push(0x81);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Writes a text: as a number, if it spells a short one; compressed, if that is shorter; or as it
/// is.
pub fn write_text(text: &[u8], style: Style, out: &mut impl Output) {
    if text.len() <= NUMBER_BYTES_MAX
        && let Some(number) = parse_i64(text)
        && write_number(number, out)
    {
        return;
    }
    if style.compresses
        && text.len() >= COMPRESSED_BYTES_MIN
        && let Some(packed) = lzf::compress(text, text.len() - SAVED_BYTES_MIN)
    {
        out.push(COMPRESSED);
        write_length(packed.len(), out);
        write_length(text.len(), out);
        out.extend_from_slice(&packed);
        return;
    }
    write_length(text.len(), out);
    out.extend_from_slice(text);
}

/// Writes a number, if it is short enough. Returns whether it did.
fn write_number(number: i64, out: &mut impl Output) -> bool {
    if let Ok(short) = i8::try_from(number) {
        out.push(NUMBER8);
        out.extend_from_slice(&short.to_le_bytes());
    } else if let Ok(short) = i16::try_from(number) {
        out.push(NUMBER16);
        out.extend_from_slice(&short.to_le_bytes());
    } else if let Ok(short) = i32::try_from(number) {
        out.push(NUMBER32);
        out.extend_from_slice(&short.to_le_bytes());
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::{Malformed, Reader};
    use crate::tests::limits;

    fn length(bytes: &[u8]) -> Result<u64, Malformed> {
        Reader::new(bytes, 11, &limits(0)).length()
    }

    #[test]
    fn lengths_take_as_little_as_they_need() {
        let cases = [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 5),
            (u64::from(u32::MAX), 5),
            (u64::from(u32::MAX) + 1, 9),
            (u64::MAX, 9),
        ];
        for (length, bytes) in cases {
            let mut out = Vec::new();
            write_length_u64(length, &mut out);
            assert_eq!(out.len(), bytes, "{length}");
            assert_eq!(self::length(&out), Ok(length));
            assert_eq!(self::length(&out[..bytes - 1]), Err(Malformed::Ended));
        }
    }

    #[test]
    fn short_numbers_are_written_as_numbers() {
        let style = Style {
            version: 11,
            compresses: true,
        };
        let cases = [
            ("0", 2),
            ("-128", 2),
            ("128", 3),
            ("-32768", 3),
            ("32768", 5),
            ("-2147483648", 5),
            ("2147483648", 11),
            ("007", 4),
            ("-0", 3),
            ("", 1),
        ];
        for (text, bytes) in cases {
            let mut out = Vec::new();
            write_text(text.as_bytes(), style, &mut out);
            assert_eq!(out.len(), bytes, "{text}");
            let limits = limits(0);
            let back = Reader::new(&out, 11, &limits).text().unwrap();
            assert_eq!(back.as_bytes(), text.as_bytes());
        }
    }

    #[test]
    fn a_count_is_held_against_what_is_left() {
        let limits = limits(0);
        let reader = |bytes| Reader::new(bytes, 11, &limits);
        let bytes = [&[5][..], &[0; 10]].concat();
        assert_eq!(reader(&bytes).count(2), Ok(5));
        assert_eq!(reader(&bytes).count(3), Err(Malformed::Ended));
        assert_eq!(reader(&[0]).collection(1), Err(Malformed::Empty));
        assert_eq!(reader(&[0xc0, 5]).count(1), Err(Malformed::Length));
        assert_eq!(reader(&[0x82]).length(), Err(Malformed::Length));
        let long = reader(&[0x80, 0, 0x10, 0, 1]).text();
        assert_eq!(long.map(|_| ()), Err(Malformed::TooLong));
    }
}
