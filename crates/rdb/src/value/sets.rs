//! Sets: plain members, an intset, or a listpack.

use structures::{Element, IntSet, Set};

use crate::bytes::{Bytes, index};
use crate::code;
use crate::listpack;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_text};

/// The first version with listpacks of members.
const LISTPACK_VERSION: u16 = 11;

pub(super) fn read_plain(reader: &mut Reader<'_>) -> Result<Set, Malformed> {
    let limits = reader.limits().set;
    let count = reader.collection(1)?;
    let mut set = Set::new();
    for number in 0..count {
        let member = reader.text()?;
        let member = member.as_bytes();
        if number == 0 {
            set.expect(member, count, &limits)?;
        }
        if !set.insert(member, &limits)? {
            return Err(Malformed::Twice);
        }
    }
    Ok(set)
}

/// Reads the width, the count, and then the numbers in ascending order.
pub(super) fn read_ints(reader: &mut Reader<'_>) -> Result<Set, Malformed> {
    let limits = reader.limits().set;
    let text = reader.text()?;
    let mut bytes = Bytes(text.as_bytes());
    let width = index(u32::from_le_bytes(bytes.array()?).into())?;
    let count = index(u32::from_le_bytes(bytes.array()?).into())?;
    let ints = IntSet::from_bytes(width, bytes.0).ok_or(Malformed::Block)?;
    if ints.len() != count {
        return Err(Malformed::Block);
    }
    if ints.is_empty() {
        return Err(Malformed::Empty);
    }
    if count <= limits.intset_entries {
        return Ok(Set::from(ints));
    }
    let mut set = Set::new();
    for number in ints.iter() {
        let member = Element::Integer(number).text();
        set.insert(member.as_bytes(), &limits)?;
    }
    Ok(set)
}

pub(super) fn read_listpack(reader: &mut Reader<'_>) -> Result<Set, Malformed> {
    let limits = reader.limits().set;
    let text = reader.text()?;
    let (count, members) = listpack::open(text.as_bytes())?.groups::<1>()?;
    let mut set = Set::new();
    // Announces a non-numeric member, so that a block of numbers stays a block.
    set.expect(b"", count, &limits)?;
    for [member] in members {
        if !set.insert(member.text().as_bytes(), &limits)? {
            return Err(Malformed::Twice);
        }
    }
    Ok(set)
}

pub(super) fn type_code(set: &Set, style: Style) -> u8 {
    if set.ints().is_some() {
        code::SET_INTSET
    } else if is_block(set, style) {
        code::SET_LISTPACK
    } else {
        code::SET
    }
}

pub(super) fn write(set: &Set, style: Style, out: &mut impl Output) {
    if let Some(ints) = set.ints() {
        write_text(&framed(ints), style, out);
    } else if is_block(set, style)
        && let Some(packed) = set.packed()
    {
        write_text(&listpack::framed(packed), style, out);
    } else {
        write_length(set.len(), out);
        for member in set.iter() {
            write_text(member.as_bytes(), style, out);
        }
    }
}

fn is_block(set: &Set, style: Style) -> bool {
    style.version >= LISTPACK_VERSION
        && set
            .packed()
            .is_some_and(|packed| packed.content_bytes() <= listpack::BYTES_MAX)
}

fn framed(ints: &IntSet) -> Vec<u8> {
    let mut block = Vec::with_capacity(8 + ints.as_bytes().len());
    for number in [ints.width_bytes(), ints.len()] {
        // An intset is short: a directive limits it.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        block.extend_from_slice(&number.to_le_bytes());
    }
    block.extend_from_slice(ints.as_bytes());
    block
}
