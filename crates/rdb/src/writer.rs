//! Lengths and texts as they are written: the counterpart of [`reader`](crate::reader).

use base::number::parse_i64;

use crate::lzf;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The version of the format, from 9 to 12: which types there are.
    pub version: u16,
    /// Whether long texts are compressed (`rdbcompression`).
    pub compresses: bool,
}

/// Longer texts are not written as numbers.
const NUMBER_BYTES_MAX: usize = 11;
/// Shorter texts are not compressed.
const COMPRESSED_BYTES_MIN: usize = 21;
/// Compression has to save so many bytes.
const SAVED_BYTES_MIN: usize = 4;

const NUMBER8: u8 = 0xc0;
const NUMBER16: u8 = 0xc1;
const NUMBER32: u8 = 0xc2;
const COMPRESSED: u8 = 0xc3;

/// Writes a length.
pub fn write_length(length: usize, out: &mut Vec<u8>) {
    write_length_u64(length as u64, out);
}

/// Writes a length that need not be one of something in memory.
pub fn write_length_u64(length: u64, out: &mut Vec<u8>) {
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

/// Writes a text: as a number, if it spells one that is short; compressed, if that is shorter; or as
/// it is.
pub fn write_text(text: &[u8], style: Style, out: &mut Vec<u8>) {
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

/// Whether the number was written: longer ones are not.
fn write_number(number: i64, out: &mut Vec<u8>) -> bool {
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
