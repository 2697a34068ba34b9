//! Listpacks: the blocks of small collections since version 10.
//!
//! ```text
//!   bytes (4) │ count (2) │ entry entry … │ ff
//!   entry:  head │ data │ length of both, to be read from the right
//! ```
//!
//! The count is 65535 if there are that many entries or more. A [`Packed`] has the same entries,
//! each in its shortest form; entries of other writers need not be in that form.
//!
//! Source: antirez/listpack, listpack.md.

use structures::{Element, Packed};

use crate::bytes::{Bytes, END, index};
use crate::elements::Elements;
use crate::reader::Malformed;

const HEAD_BYTES: usize = 6;
/// The count's value if the number of entries does not fit.
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Maximum length of a collection's block, as in Redis; longer collections use the plain forms.
pub(crate) const BYTES_MAX: usize = 1 << 30;

/// Returns the elements of a listpack.
///
/// # Errors
/// If the block is not a listpack.
pub(crate) fn open(block: &[u8]) -> Result<Elements<'_>, Malformed> {
    let mut bytes = Bytes(block);
    let total = u32::from_le_bytes(bytes.array()?);
    let stated = u16::from_le_bytes(bytes.array()?);
    let entries = bytes.entries(block, total)?;
    let (mut rest, mut count) = (entries, 0);
    while !rest.is_empty() {
        take(&mut rest)?;
        count += 1;
    }
    if stated != COUNT_UNKNOWN && usize::from(stated) != count {
        return Err(Malformed::Block);
    }
    Ok(Elements::new(entries, count, take))
}

/// Returns the listpack of a block's entries.
pub(crate) fn framed(packed: &Packed) -> Vec<u8> {
    let total = HEAD_BYTES + packed.content_bytes() + 1;
    let count = u16::try_from(packed.len()).unwrap_or(COUNT_UNKNOWN);
    let mut block = Vec::with_capacity(total);
    // A block with its frame is shorter than 4 GiB (`packed::CONTENT_BYTES_MAX`).
    let stated = u32::try_from(total).unwrap_or(u32::MAX);
    block.extend_from_slice(&stated.to_le_bytes());
    block.extend_from_slice(&count.to_le_bytes());
    block.extend_from_slice(packed.content());
    block.push(END);
    block
}

fn take<'a>(bytes: &mut Bytes<'a>) -> Result<Element<'a>, Malformed> {
    let before = bytes.len();
    let first = bytes.byte()?;
    let element = match first {
        0..=0x7f => Element::Integer(first.into()),
        0x80..=0xbf => text(bytes, u32::from(first & 0x3f))?,
        0xc0..=0xdf => {
            let value = i64::from(first & 0x1f) << 8 | i64::from(bytes.byte()?);
            // Thirteen bits, signed.
            Element::Integer(if value < 1 << 12 {
                value
            } else {
                value - (1 << 13)
            })
        }
        0xe0..=0xef => {
            let len = u32::from(first & 0x0f) << 8 | u32::from(bytes.byte()?);
            text(bytes, len)?
        }
        0xf0 => {
            let len = u32::from_le_bytes(bytes.array()?);
            text(bytes, len)?
        }
        0xf1 => Element::Integer(bytes.signed(2)?),
        0xf2 => Element::Integer(bytes.signed(3)?),
        0xf3 => Element::Integer(bytes.signed(4)?),
        0xf4 => Element::Integer(bytes.signed(8)?),
        _ => return Err(Malformed::Block),
    };
    take_back(bytes, before - bytes.len())?;
    Ok(element)
}

fn text<'a>(bytes: &mut Bytes<'a>, len: u32) -> Result<Element<'a>, Malformed> {
    bytes.take(index(len.into())?).map(Element::parse)
}

/// Takes the length behind an entry, which must be `inner`: seven bits per byte, the lowest in the
/// last.
fn take_back(bytes: &mut Bytes<'_>, inner: usize) -> Result<(), Malformed> {
    let len = match inner {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut stated = 0;
    for (at, byte) in bytes.take(len)?.iter().enumerate() {
        if (byte & 0x80 == 0) != (at == 0) {
            return Err(Malformed::Block);
        }
        stated = stated << 7 | usize::from(byte & 0x7f);
    }
    if stated == inner {
        Ok(())
    } else {
        Err(Malformed::Block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_framed_opens_again() {
        let long = vec![b'x'; 70_000];
        let texts: [&[u8]; 9] = [
            b"",
            b"a",
            b"-1",
            b"127",
            b"4095",
            b"-8388608",
            b"9223372036854775807",
            &long[..100],
            &long,
        ];
        let mut packed = Packed::new();
        for text in texts {
            packed.push_back(Element::parse(text));
        }
        let block = framed(&packed);
        assert!(open(&block).unwrap().eq(packed.iter()));
        for end in 0..block.len() {
            assert!(open(&block[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn longer_forms_of_a_number_are_read() {
        // 5 as a text, in 13 bits, and in 64 bits.
        let entries = [
            &[0x81, b'5', 2][..],
            &[0xc0, 5, 2],
            &[0xf4, 5, 0, 0, 0, 0, 0, 0, 0, 9],
        ];
        for entry in entries {
            let block = block_of(1, entry);
            let elements: Vec<_> = open(&block).unwrap().collect();
            assert_eq!(elements, [Element::Integer(5)]);
        }
    }

    #[test]
    fn lies_are_found() {
        let good = block_of(1, &[0x81, b'a', 2]);
        assert!(open(&good).is_ok());
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // Only the letter may change, or the whole entry become a number.
                let is_fine = at == 7 || (at, bit) == (6, 6);
                assert_eq!(open(&bad).is_ok(), is_fine, "{at} {bit}");
            }
        }
        assert!(open(&block_of(2, &[5, 1])).is_err(), "a count too high");
        assert!(open(&block_of(COUNT_UNKNOWN, &[5, 1])).is_ok());
        assert!(open(&block_of(1, &[0xf0, 0xff, 0xff, 0xff, 0xff, 1])).is_err());
        assert!(open(&block_of(1, &[0xf5, 1])).is_err(), "no such form");
    }

    fn block_of(count: u16, entries: &[u8]) -> Vec<u8> {
        let total = u32::try_from(entries.len() + 7).unwrap();
        let mut block = total.to_le_bytes().to_vec();
        block.extend_from_slice(&count.to_le_bytes());
        block.extend_from_slice(entries);
        block.push(END);
        block
    }
}
