//! Hashes: plain fields, a zipmap, a ziplist or a listpack; with deadlines in three layouts.
//!
//! ```text
//!   24  earliest deadline (8) │ count │ deadline, name, value …    0: none; else 1 + what it is
//!                                                                  later than the earliest
//!   25  earliest deadline (8) │ listpack: name, value, deadline …  0: none; ascending, none last
//!   22 and 23  the same without the earliest deadline, deadlines absolute
//!   22 of Valkey  count │ name, value, deadline (8) …              -1: none
//!   29  template │ listpack: number of the template, value …       templates: see there
//!   31  template │ value …
//! ```

use structures::{Element, Encoding, FieldDeadline, Hash, HashLimits, Packed};

use crate::code;
use crate::elements::Elements;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_length_u64, write_text};
use crate::{VERSION_VALKEY, listpack, templates, ziplist, zipmap};

/// The first version with listpacks.
const LISTPACK_VERSION: u16 = 10;
/// The first version with deadlines of fields.
pub(super) const DEADLINES_VERSION: u16 = 12;

/// Maximum deadline of a field: Redis stores 48 bits.
const DEADLINE_UNIX_MS_MAX: u64 = (1 << 48) - 2;

pub(super) fn read_plain(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let count = reader.collection(2)?;
    let mut hash = Building::new(reader);
    for _ in 0..count {
        let (name, value) = (reader.text()?, reader.text()?);
        hash.add(name.as_bytes(), value.as_bytes(), FieldDeadline::Never)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_zipmap(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let text = reader.text()?;
    let mut hash = Building::new(reader);
    zipmap::for_each(text.as_bytes(), |name, value| {
        hash.add(name, value, FieldDeadline::Never)
    })?;
    if hash.hash.is_empty() {
        return Err(Malformed::Empty);
    }
    Ok(hash.hash)
}

pub(super) fn read_ziplist(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let text = reader.text()?;
    read_block(reader, ziplist::open(text.as_bytes())?)
}

pub(super) fn read_listpack(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let text = reader.text()?;
    read_block(reader, listpack::open(text.as_bytes())?)
}

fn read_block(reader: &Reader<'_>, elements: Elements<'_>) -> Result<Hash, Malformed> {
    let (_, pairs) = elements.groups::<2>()?;
    let mut hash = Building::new(reader);
    for [name, value] in pairs {
        let (name, value) = (name.text(), value.text());
        hash.add(name.as_bytes(), value.as_bytes(), FieldDeadline::Never)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_deadlines(
    reader: &mut Reader<'_>,
    has_earliest: bool,
) -> Result<Hash, Malformed> {
    let earliest = read_earliest(reader, has_earliest)?;
    let count = reader.collection(3)?;
    let mut hash = Building::new(reader);
    for _ in 0..count {
        let deadline = match (reader.length()?, earliest) {
            (0, _) => FieldDeadline::Never,
            (later, Some(earliest)) => deadline((later - 1).checked_add(earliest))?,
            (absolute, None) => deadline(Some(absolute))?,
        };
        let (name, value) = (reader.text()?, reader.text()?);
        hash.add(name.as_bytes(), value.as_bytes(), deadline)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_listpack_deadlines(
    reader: &mut Reader<'_>,
    has_earliest: bool,
) -> Result<Hash, Malformed> {
    // Deadlines are absolute here: the earliest only serves readers that skip the rest.
    read_earliest(reader, has_earliest)?;
    let text = reader.text()?;
    let (_, triples) = listpack::open(text.as_bytes())?.groups::<3>()?;
    let mut hash = Building::new(reader);
    for [name, value, at] in triples {
        let deadline = match at {
            Element::Integer(0) => FieldDeadline::Never,
            Element::Integer(at) => deadline(u64::try_from(at).ok())?,
            Element::Bytes(_) => return Err(Malformed::Number),
        };
        let (name, value) = (name.text(), value.text());
        hash.add(name.as_bytes(), value.as_bytes(), deadline)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_valkey(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let count = reader.collection(10)?;
    let mut hash = Building::new(reader);
    for _ in 0..count {
        let (name, value) = (reader.text()?, reader.text()?);
        let deadline = match reader.time_unix_ms()? {
            -1 => FieldDeadline::Never,
            at => deadline(u64::try_from(at).ok())?,
        };
        hash.add(name.as_bytes(), value.as_bytes(), deadline)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_template_listpack(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let names = templates::read_names(reader)?;
    let text = reader.text()?;
    let mut values = listpack::open(text.as_bytes())?;
    // The template's number in the server, meaningless elsewhere.
    let Some(Element::Integer(_)) = values.next() else {
        return Err(Malformed::Block);
    };
    if values.len() != names.len() {
        return Err(Malformed::Block);
    }
    let mut hash = Building::new(reader);
    for (name, value) in names.iter().zip(values) {
        hash.add(name, value.text().as_bytes(), FieldDeadline::Never)?;
    }
    Ok(hash.hash)
}

pub(super) fn read_template(reader: &mut Reader<'_>) -> Result<Hash, Malformed> {
    let names = templates::read_names(reader)?;
    let mut hash = Building::new(reader);
    for name in names {
        let value = reader.text()?;
        hash.add(&name, value.as_bytes(), FieldDeadline::Never)?;
    }
    Ok(hash.hash)
}

fn read_earliest(reader: &mut Reader<'_>, has_earliest: bool) -> Result<Option<u64>, Malformed> {
    if !has_earliest {
        return Ok(None);
    }
    let earliest = u64::try_from(reader.time_unix_ms()?);
    earliest.map(Some).map_err(|_| Malformed::Number)
}

fn deadline(unix_ms: Option<u64>) -> Result<FieldDeadline, Malformed> {
    unix_ms
        // A field with the time 0 would always be expired.
        .filter(|at| (1..=DEADLINE_UNIX_MS_MAX).contains(at))
        .map(FieldDeadline::At)
        .ok_or(Malformed::Number)
}

/// A hash that is being built.
struct Building<'a> {
    hash: Hash,
    limits: &'a HashLimits,
}

impl<'a> Building<'a> {
    fn new(reader: &Reader<'a>) -> Self {
        Self {
            hash: Hash::new(),
            limits: &reader.limits().hash,
        }
    }

    fn add(&mut self, name: &[u8], value: &[u8], deadline: FieldDeadline) -> Result<(), Malformed> {
        // At time 0 every field exists, whatever its deadline.
        match self.hash.set(name, value, deadline, 0, self.limits)? {
            true => Ok(()),
            false => Err(Malformed::Twice),
        }
    }
}

pub(super) fn type_code(hash: &Hash, style: Style) -> u8 {
    if has_deadlines(hash, style) {
        match hash.encoding() {
            _ if style.version == VERSION_VALKEY => code::HASH_DEADLINES_EARLY,
            Encoding::ListpackEx => code::HASH_LISTPACK_DEADLINES,
            _ => code::HASH_DEADLINES,
        }
    } else if block(hash, style).is_some() {
        code::HASH_LISTPACK
    } else {
        code::HASH
    }
}

pub(super) fn write(hash: &Hash, style: Style, out: &mut impl Output) {
    match type_code(hash, style) {
        code::HASH_LISTPACK_DEADLINES => write_listpack_deadlines(hash, style, out),
        code::HASH_DEADLINES => write_deadlines(hash, style, out),
        code::HASH_DEADLINES_EARLY => write_valkey(hash, style, out),
        _ if let Some(packed) = block(hash, style) => {
            write_text(&listpack::framed(packed), style, out);
        }
        _ => {
            write_length(hash.len(), out);
            for field in hash.iter(0) {
                write_text(field.name.as_bytes(), style, out);
                write_text(field.value.as_bytes(), style, out);
            }
        }
    }
}

fn write_deadlines(hash: &Hash, style: Style, out: &mut impl Output) {
    let earliest = write_earliest(hash, out);
    write_length(hash.len(), out);
    for field in hash.iter(0) {
        let later = field.deadline_unix_ms.map_or(0, |at| at - earliest + 1);
        write_length_u64(later, out);
        write_text(field.name.as_bytes(), style, out);
        write_text(field.value.as_bytes(), style, out);
    }
}

fn write_valkey(hash: &Hash, style: Style, out: &mut impl Output) {
    write_length(hash.len(), out);
    for field in hash.iter(0) {
        write_text(field.name.as_bytes(), style, out);
        write_text(field.value.as_bytes(), style, out);
        let at = field.deadline_unix_ms.map(i64::try_from);
        let at = at.map_or(-1, |at| at.unwrap_or(i64::MAX));
        out.extend_from_slice(&at.to_le_bytes());
    }
}

fn write_listpack_deadlines(hash: &Hash, style: Style, out: &mut impl Output) {
    write_earliest(hash, out);
    let mut fields: Vec<_> = hash.iter(0).collect();
    fields.sort_by_key(|field| field.deadline_unix_ms.unwrap_or(u64::MAX));
    let mut packed = Packed::new();
    for field in fields {
        let at = field.deadline_unix_ms.unwrap_or(0);
        packed.push_back(Element::parse(field.name.as_bytes()));
        packed.push_back(Element::parse(field.value.as_bytes()));
        packed.push_back(Element::Integer(i64::try_from(at).unwrap_or(i64::MAX)));
    }
    write_text(&listpack::framed(&packed), style, out);
}

/// Writes the earliest of all deadlines, and returns it.
fn write_earliest(hash: &Hash, out: &mut impl Output) -> u64 {
    let fields = hash.iter(0).inspect(|_| out.step());
    let deadlines = fields.filter_map(|field| field.deadline_unix_ms);
    let earliest = deadlines.min().unwrap_or(0);
    out.extend_from_slice(&earliest.to_le_bytes());
    earliest
}

fn has_deadlines(hash: &Hash, style: Style) -> bool {
    style.version >= DEADLINES_VERSION && hash.has_deadlines()
}

/// Returns the block that holds the hash, if it can be written as it is.
fn block(hash: &Hash, style: Style) -> Option<&Packed> {
    hash.packed().filter(|packed| {
        style.version >= LISTPACK_VERSION && packed.content_bytes() <= listpack::BYTES_MAX
    })
}
