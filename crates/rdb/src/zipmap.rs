//! Zipmaps: small hashes of servers before version 4.
//!
//! ```text
//!   count (1) │ len name │ len spare value spare │ … │ ff
//! ```
//!
//! A length is one byte, or 254 and four little-endian bytes. `spare` is the number of unused bytes
//! behind the value. The count is 254 or more if it does not state the number of entries.

use crate::bytes::{Bytes, END, index};
use crate::reader::Malformed;

const LONG: u8 = 254;

/// Calls `visit` with every name and value.
///
/// # Errors
/// If the block is not a zipmap, or `visit` fails.
pub(crate) fn for_each<'a>(
    block: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut bytes = Bytes(block);
    let stated = bytes.byte()?;
    let mut count = 0_usize;
    while let Some(name_len) = take_len(&mut bytes)? {
        let name = bytes.take(name_len)?;
        let value_len = take_len(&mut bytes)?.ok_or(Malformed::Block)?;
        let spare = bytes.byte()?;
        let value = bytes.take(value_len)?;
        bytes.take(spare.into())?;
        visit(name, value)?;
        count += 1;
    }
    let is_counted = stated >= LONG || usize::from(stated) == count;
    if bytes.is_empty() && is_counted {
        Ok(())
    } else {
        Err(Malformed::Block)
    }
}

/// Takes the next length, or `None` at the end.
fn take_len(bytes: &mut Bytes<'_>) -> Result<Option<usize>, Malformed> {
    match bytes.byte()? {
        END => Ok(None),
        LONG => index(u32::from_le_bytes(bytes.array()?).into()).map(Some),
        short => Ok(Some(short.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(block: &[u8]) -> Result<Pairs, Malformed> {
        let mut pairs = Vec::new();
        for_each(block, |name, value| {
            pairs.push((name.to_vec(), value.to_vec()));
            Ok(())
        })?;
        Ok(pairs)
    }

    #[test]
    fn names_and_values_are_read() {
        let block = b"\x02\x01a\x02\x01xy?\x02bc\xfe\x01\0\0\0\0z\xff";
        let expected = [
            (b"a".to_vec(), b"xy".to_vec()),
            (b"bc".to_vec(), b"z".to_vec()),
        ];
        assert_eq!(pairs(block).unwrap(), expected);
        for end in 0..block.len() {
            assert!(pairs(&block[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn lies_are_found() {
        assert!(pairs(b"\x02\x01a\x01\0x\xff").is_err(), "a count too high");
        assert!(
            pairs(b"\x01\x01a\x01\0x\xff\xff").is_err(),
            "something behind"
        );
        assert!(pairs(b"\x01\x01a\xff").is_err(), "a name without a value");
        assert!(pairs(b"\x01\xfe\xff\xff\xff\xffa\xff").is_err());
        assert!(
            pairs(b"\xfe\x01a\x01\0x\xff").is_ok(),
            "a count that says nothing"
        );
    }
}
