//! Blocks of a stream's entries, each a listpack with its own layout.
//!
//! ```text
//!   block  entries │ deleted ones │ n │ n names │ 0 │ entry entry …
//!   entry  flags │ ms │ seq │ [n │ name] value … │ number of elements before this
//!   flags  1: deleted, 2: has the names of the block
//! ```
//!
//! `ms` and `seq` are the distances from the block's id, each separately, modulo 2^64. Written
//! blocks have Redis' default size, whatever is configured.

use structures::stream::{Entry, EntryLog, Refused};
use structures::{Element, ElementText, EntryId, Packed};

use crate::bytes::Bytes;
use crate::elements::Elements;
use crate::listpack;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_text};

const DELETED: i64 = 1;
const SAME_NAMES: i64 = 2;

/// Default limits to which Redis fills a block.
const BLOCK_BYTES_MAX: usize = 4096;
const BLOCK_ENTRIES_MAX: i64 = 100;

/// Appends the entries of the next block.
pub(super) fn read(reader: &mut Reader<'_>, log: &mut EntryLog) -> Result<(), Malformed> {
    let id = reader.text()?;
    let mut id = Bytes(id.as_bytes());
    let first = EntryId::new(
        u64::from_be_bytes(id.array()?),
        u64::from_be_bytes(id.array()?),
    );
    if !id.is_empty() {
        return Err(Malformed::Length);
    }
    let text = reader.text()?;
    let mut elements = listpack::open(text.as_bytes())?;
    let entries = integer(&mut elements)?;
    let mut deleted = integer(&mut elements)?;
    let names = texts(&mut elements)?;
    if entries < 0 || deleted < 0 || integer(&mut elements)? != 0 {
        return Err(Malformed::Block);
    }
    let mut block = Block {
        reader,
        log,
        first,
        names,
    };
    // The loop ends even if the counts are wrong: it runs out of elements.
    for _ in 0..entries.checked_add(deleted).ok_or(Malformed::Block)? {
        deleted -= i64::from(!block.read_entry(&mut elements)?);
    }
    if deleted == 0 && elements.len() == 0 {
        Ok(())
    } else {
        Err(Malformed::Block)
    }
}

struct Block<'r, 'b, 'e> {
    reader: &'r Reader<'b>,
    log: &'r mut EntryLog,
    first: EntryId,
    names: Vec<ElementText<'e>>,
}

impl Block<'_, '_, '_> {
    /// Appends the next entry. Returns `false` if it is a deleted one.
    fn read_entry(&mut self, elements: &mut Elements<'_>) -> Result<bool, Malformed> {
        let before = elements.len();
        let flags = integer(elements)?;
        let ms = integer(elements)?.cast_unsigned();
        let seq = integer(elements)?.cast_unsigned();
        let id = EntryId::new(
            self.first.ms.wrapping_add(ms),
            self.first.seq.wrapping_add(seq),
        );
        let has_same_names = flags & SAME_NAMES != 0;
        let own = match has_same_names {
            true => take_texts(elements, self.names.len())?,
            false => pairs(elements)?,
        };
        let read = before - elements.len();
        if integer(elements)? != i64::try_from(read).unwrap_or(i64::MAX) {
            return Err(Malformed::Block);
        }
        if flags & DELETED != 0 {
            return Ok(false);
        }
        let limits = self.reader.limits().stream;
        let appended = match has_same_names {
            true => {
                let pairs = self.names.iter().zip(&own);
                let pairs = pairs.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
                self.log.append(id, pairs, limits)
            }
            false => {
                let (pairs, _) = own.as_chunks::<2>();
                let pairs = pairs
                    .iter()
                    .map(|[name, value]| (name.as_bytes(), value.as_bytes()));
                self.log.append(id, pairs, limits)
            }
        };
        appended.map(|()| true).map_err(|refused| match refused {
            Refused::Id => Malformed::Number,
            Refused::Size => Malformed::TooLong,
        })
    }
}

/// Takes the next element, which is an integer.
fn integer(elements: &mut Elements<'_>) -> Result<i64, Malformed> {
    match elements.next() {
        Some(Element::Integer(number)) => Ok(number),
        _ => Err(Malformed::Block),
    }
}

/// Takes a count other than 0, of items that take `each` elements each.
fn count(elements: &mut Elements<'_>, each: usize) -> Result<usize, Malformed> {
    let count = usize::try_from(integer(elements)?).map_err(|_| Malformed::Block)?;
    if count == 0 || count > elements.len() / each {
        return Err(Malformed::Block);
    }
    Ok(count)
}

fn texts<'a>(elements: &mut Elements<'a>) -> Result<Vec<ElementText<'a>>, Malformed> {
    let count = count(elements, 1)?;
    take_texts(elements, count)
}

fn pairs<'a>(elements: &mut Elements<'a>) -> Result<Vec<ElementText<'a>>, Malformed> {
    let count = count(elements, 2)?;
    take_texts(elements, 2 * count)
}

fn take_texts<'a>(
    elements: &mut Elements<'a>,
    count: usize,
) -> Result<Vec<ElementText<'a>>, Malformed> {
    if count > elements.len() {
        return Err(Malformed::Block);
    }
    let texts = elements.by_ref().take(count).map(|element| element.text());
    Ok(texts.collect())
}

/// Writes the number of blocks, and the blocks.
pub(super) fn write(log: &EntryLog, style: Style, out: &mut impl Output) {
    let (mut blocks, mut count) = (Vec::new(), 0);
    let mut building: Option<Building<'_>> = None;
    for entry in log.iter() {
        if let Some(full) = building.take_if(|block| block.is_full_for(&entry)) {
            full.write(style, &mut blocks);
            count += 1;
            out.step();
        }
        building
            .get_or_insert_with(|| Building::new(entry))
            .push(&entry);
    }
    if let Some(last) = building {
        last.write(style, &mut blocks);
        count += 1;
    }
    write_length(count, out);
    for piece in blocks.chunks(BLOCK_BYTES_MAX) {
        out.extend_from_slice(piece);
    }
}

/// A block that is being built.
struct Building<'a> {
    first: Entry<'a>,
    /// The part before the entries, without their number.
    names: Packed,
    entries: Packed,
    count: i64,
}

impl<'a> Building<'a> {
    fn new(first: Entry<'a>) -> Self {
        let mut names = Packed::new();
        names.push_back(whole(first.fields().len()));
        first.fields().for_each(|(name, _)| names.push_back(name));
        names.push_back(Element::Integer(0));
        Self {
            first,
            names,
            entries: Packed::new(),
            count: 0,
        }
    }

    fn is_full_for(&self, entry: &Entry<'_>) -> bool {
        // Frame, number of entries, and number of deleted entries.
        const HEAD_BYTES: usize = 7 + 2 + 2;
        let texts = entry.fields().map(|(name, value)| name.len() + value.len());
        let bytes = HEAD_BYTES + self.names.content_bytes() + self.entries.content_bytes();
        bytes + texts.sum::<usize>() >= BLOCK_BYTES_MAX || self.count >= BLOCK_ENTRIES_MAX
    }

    fn push(&mut self, entry: &Entry<'_>) {
        let before = self.entries.len();
        let names = entry.fields().map(|(name, _)| name);
        let has_same_names = names.eq(self.first.fields().map(|(name, _)| name));
        let from = self.first.id;
        let flags = if has_same_names { SAME_NAMES } else { 0 };
        let mut push = |element| self.entries.push_back(element);
        push(Element::Integer(flags));
        push(Element::Integer(
            entry.id.ms.wrapping_sub(from.ms).cast_signed(),
        ));
        push(Element::Integer(
            entry.id.seq.wrapping_sub(from.seq).cast_signed(),
        ));
        if !has_same_names {
            push(whole(entry.fields().len()));
        }
        for (name, value) in entry.fields() {
            if !has_same_names {
                push(name);
            }
            push(value);
        }
        let pushed = self.entries.len() - before;
        self.entries.push_back(whole(pushed));
        self.count += 1;
    }

    fn write(self, style: Style, out: &mut impl Output) {
        let mut id = [0; 16];
        let (ms, seq) = id.split_at_mut(8);
        ms.copy_from_slice(&self.first.id.ms.to_be_bytes());
        seq.copy_from_slice(&self.first.id.seq.to_be_bytes());
        write_text(&id, style, out);
        let mut block = Packed::new();
        block.push_back(Element::Integer(self.count));
        block.push_back(Element::Integer(0));
        block.append(&self.names);
        block.append(&self.entries);
        write_text(&listpack::framed(&block), style, out);
    }
}

fn whole(count: usize) -> Element<'static> {
    Element::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}
