//! Sorted sets: members with scores as doubles or texts, in a ziplist or in a listpack.

use base::float::{self, FloatText};
use structures::{Element, Encoding, Packed, SortedSet};

use crate::code;
use crate::elements::Elements;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_text};
use crate::{listpack, ziplist};

/// The first version with listpacks.
const LISTPACK_VERSION: u16 = 10;

pub(super) fn read_plain(reader: &mut Reader<'_>, is_text: bool) -> Result<SortedSet, Malformed> {
    let count = reader.collection(2)?;
    let mut set = Building::new(reader, count);
    for _ in 0..count {
        let member = reader.text()?;
        let score = match is_text {
            true => reader.double_text()?,
            false => reader.double()?,
        };
        set.add(member.as_bytes(), score)?;
    }
    Ok(set.set)
}

pub(super) fn read_ziplist(reader: &mut Reader<'_>) -> Result<SortedSet, Malformed> {
    let text = reader.text()?;
    read_block(reader, ziplist::open(text.as_bytes())?)
}

pub(super) fn read_listpack(reader: &mut Reader<'_>) -> Result<SortedSet, Malformed> {
    let text = reader.text()?;
    read_block(reader, listpack::open(text.as_bytes())?)
}

fn read_block(reader: &Reader<'_>, elements: Elements<'_>) -> Result<SortedSet, Malformed> {
    let (count, pairs) = elements.groups::<2>()?;
    let mut set = Building::new(reader, count);
    for [member, score] in pairs {
        let score = match score {
            #[allow(
                clippy::cast_precision_loss,
                reason = "what the text would be rounded to"
            )]
            Element::Integer(whole) => whole as f64,
            Element::Bytes(text) => float::parse(text).ok_or(Malformed::Number)?,
        };
        set.add(member.text().as_bytes(), score)?;
    }
    Ok(set.set)
}

/// A sorted set that is being built.
struct Building<'a> {
    set: SortedSet,
    limits: &'a structures::SortedSetLimits,
}

impl<'a> Building<'a> {
    fn new(reader: &Reader<'a>, count: usize) -> Self {
        let limits = &reader.limits().sorted_set;
        Self {
            set: SortedSet::for_members(count, 0, limits),
            limits,
        }
    }

    fn add(&mut self, member: &[u8], score: f64) -> Result<(), Malformed> {
        if score.is_nan() {
            return Err(Malformed::Number);
        }
        match self.set.insert(member, score, self.limits)? {
            Some(_) => Err(Malformed::Twice),
            None => Ok(()),
        }
    }
}

pub(super) fn type_code(set: &SortedSet, style: Style) -> u8 {
    if is_block(set, style) {
        code::SORTED_SET_LISTPACK
    } else {
        code::SORTED_SET
    }
}

pub(super) fn write(set: &SortedSet, style: Style, out: &mut impl Output) {
    if !is_block(set, style) {
        write_length(set.len(), out);
        // From the end, as in Redis: that is fast for readers that insert at the front.
        for one in set.iter().rev() {
            write_text(one.member.as_bytes(), style, out);
            out.extend_from_slice(&one.score.to_le_bytes());
        }
        return;
    }
    let mut packed = Packed::new();
    for one in set.iter() {
        packed.push_back(Element::parse(one.member.as_bytes()));
        push_score(&mut packed, one.score);
    }
    write_text(&listpack::framed(&packed), style, out);
}

/// Appends a score as its shortest text, or as an integer if it is one.
fn push_score(packed: &mut Packed, score: f64) {
    let text = FloatText::shortest(score);
    packed.push_back(Element::parse(text.as_bytes()));
}

fn is_block(set: &SortedSet, style: Style) -> bool {
    style.version >= LISTPACK_VERSION
        && set.encoding() == Encoding::Listpack
        && set.memory_bytes() <= listpack::BYTES_MAX / 4
}
