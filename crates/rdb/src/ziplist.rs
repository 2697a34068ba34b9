//! Ziplists: the blocks of small collections up to version 9.
//!
//! ```text
//!   bytes (4) │ place of the last entry (4) │ count (2) │ entry entry … │ ff
//!   entry:  length of the entry before (1, or fe and 4) │ head │ data
//!
//!   00llllll + data              text up to 63 bytes       1100 0000 + 2   16-bit number
//!   01llllll + 1 + data          text up to 16383 bytes    1101 0000 + 4   32-bit number
//!   10000000 + 4 + data          longer text               1110 0000 + 8   64-bit number
//!   1111 0001 … 1111 1101        number 0..=12             1111 0000 + 3   24-bit number
//!                                                          1111 1110 + 1   8-bit number
//! ```
//!
//! Lengths of texts are big-endian, everything else is little-endian.

use structures::Element;

use crate::bytes::{Bytes, END, index};
use crate::elements::Elements;
use crate::reader::Malformed;

const HEAD_BYTES: usize = 10;
/// The byte before a preceding length that does not fit into one byte.
const LONG: u8 = 0xfe;
const COUNT_UNKNOWN: u16 = u16::MAX;

/// Returns the elements of a ziplist.
///
/// # Errors
/// If the block is not a ziplist.
pub(crate) fn open(block: &[u8]) -> Result<Elements<'_>, Malformed> {
    let mut bytes = Bytes(block);
    let total = u32::from_le_bytes(bytes.array()?);
    let tail = u32::from_le_bytes(bytes.array()?);
    let stated = u16::from_le_bytes(bytes.array()?);
    let entries = bytes.entries(block, total)?;
    let (mut rest, mut count) = (entries, 0);
    let (mut last, mut before) = (HEAD_BYTES, 0);
    while !rest.is_empty() {
        let left = rest.len();
        if index(take_before(&mut rest)?.into())? != before {
            return Err(Malformed::Block);
        }
        take_element(&mut rest)?;
        last = HEAD_BYTES + entries.len() - left;
        before = left - rest.len();
        count += 1;
    }
    let is_counted = stated == COUNT_UNKNOWN || usize::from(stated) == count;
    if !is_counted || index(tail.into())? != last {
        return Err(Malformed::Block);
    }
    Ok(Elements::new(entries, count, take))
}

fn take<'a>(bytes: &mut Bytes<'a>) -> Result<Element<'a>, Malformed> {
    take_before(bytes)?;
    take_element(bytes)
}

fn take_before(bytes: &mut Bytes<'_>) -> Result<u32, Malformed> {
    match bytes.byte()? {
        LONG => bytes.array().map(u32::from_le_bytes),
        END => Err(Malformed::Block),
        short => Ok(short.into()),
    }
}

fn take_element<'a>(bytes: &mut Bytes<'a>) -> Result<Element<'a>, Malformed> {
    let first = bytes.byte()?;
    let text = |bytes: &mut Bytes<'a>, len: u32| bytes.take(index(len.into())?).map(Element::parse);
    match first {
        0..=0x3f => text(bytes, first.into()),
        0x40..=0x7f => {
            let len = u32::from(first & 0x3f) << 8 | u32::from(bytes.byte()?);
            text(bytes, len)
        }
        0x80 => {
            let len = u32::from_be_bytes(bytes.array()?);
            text(bytes, len)
        }
        0xc0 => bytes.signed(2).map(Element::Integer),
        0xd0 => bytes.signed(4).map(Element::Integer),
        0xe0 => bytes.signed(8).map(Element::Integer),
        0xf0 => bytes.signed(3).map(Element::Integer),
        0xfe => bytes.signed(1).map(Element::Integer),
        0xf1..=0xfd => Ok(Element::Integer(i64::from(first & 0x0f) - 1)),
        _ => Err(Malformed::Block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a ziplist from entries without the preceding lengths.
    fn block_of(entries: &[&[u8]]) -> Vec<u8> {
        let (mut content, mut before, mut last) = (Vec::new(), 0, HEAD_BYTES);
        for entry in entries {
            last = HEAD_BYTES + content.len();
            match u8::try_from(before) {
                Ok(short) if short < LONG => content.push(short),
                _ => {
                    content.push(LONG);
                    content.extend_from_slice(&u32::try_from(before).unwrap().to_le_bytes());
                }
            }
            content.extend_from_slice(entry);
            before = HEAD_BYTES + content.len() - last;
        }
        let total = u32::try_from(HEAD_BYTES + content.len() + 1).unwrap();
        let mut block = total.to_le_bytes().to_vec();
        block.extend_from_slice(&u32::try_from(last).unwrap().to_le_bytes());
        block.extend_from_slice(&u16::try_from(entries.len()).unwrap().to_le_bytes());
        block.extend_from_slice(&content);
        block.push(END);
        block
    }

    #[test]
    fn every_form_is_read() {
        let mut long = vec![0x41, 0x2c];
        long.extend_from_slice(&[b'x'; 300]);
        let mut longer = vec![0x80, 0, 0, 0x40, 0];
        longer.extend_from_slice(&[b'y'; 16_384]);
        let block = block_of(&[
            &[2, b'h', b'i'],
            &long,
            &longer,
            &[0xc0, 0x18, 0xfc],
            &[0xd0, 0, 0, 0, 0x80],
            &[0xe0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0xf0, 0, 0, 0x80],
            &[0xfe, 0xff],
            &[0xf1],
            &[0xfd],
            &[1, b'7'],
        ]);
        let expected = [
            Element::Bytes(b"hi"),
            Element::Bytes(&long[2..]),
            Element::Bytes(&longer[5..]),
            Element::Integer(-1000),
            Element::Integer(i64::from(i32::MIN)),
            Element::Integer(1),
            Element::Integer(-8_388_608),
            Element::Integer(-1),
            Element::Integer(0),
            Element::Integer(12),
            Element::Integer(7),
        ];
        assert_eq!(open(&block).unwrap().collect::<Vec<_>>(), expected);
        assert_eq!(open(&block_of(&[])).unwrap().len(), 0);
    }

    #[test]
    fn lies_are_found() {
        let good = block_of(&[&[1, b'a'], &[1, b'b']]);
        assert!(open(&good).is_ok());
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // Only the letters may change.
                assert_eq!(open(&bad).is_ok(), at == 12 || at == 15, "{at} {bit}");
            }
            assert!(open(&good[..at]).is_err());
        }
        assert!(open(&block_of(&[&[0xff]])).is_err(), "no such form");
        assert!(open(&block_of(&[&[0x80, 0xff, 0xff, 0xff, 0xff]])).is_err());
    }
}
