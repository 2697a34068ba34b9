//! Lists: plain elements, one ziplist, or rows of ziplists or listpacks.

use structures::{BlockLimit, Element, End, List};

use crate::code;
use crate::elements::Elements;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_text};
use crate::{listpack, ziplist};

/// The first version with rows of listpacks.
const LISTPACKS_VERSION: u16 = 10;

/// Kinds of a node in a row of listpacks.
const ONE_ELEMENT: u64 = 1;
const LISTPACK: u64 = 2;

pub(super) fn read_plain(reader: &mut Reader<'_>) -> Result<List, Malformed> {
    let count = reader.collection(1)?;
    let mut list = Rows::new(reader, 1);
    for _ in 0..count {
        list.push(Element::parse(reader.text()?.as_bytes()));
    }
    Ok(list.list)
}

pub(super) fn read_ziplist(reader: &mut Reader<'_>) -> Result<List, Malformed> {
    let mut list = Rows::new(reader, 1);
    list.extend(ziplist::open(reader.text()?.as_bytes())?);
    list.finish()
}

pub(super) fn read_ziplists(reader: &mut Reader<'_>) -> Result<List, Malformed> {
    let count = reader.collection(1)?;
    let mut list = Rows::new(reader, count);
    for _ in 0..count {
        list.extend(ziplist::open(reader.text()?.as_bytes())?);
    }
    list.finish()
}

pub(super) fn read_listpacks(reader: &mut Reader<'_>) -> Result<List, Malformed> {
    let count = reader.collection(2)?;
    let mut list = Rows::new(reader, count);
    for _ in 0..count {
        let container = reader.length()?;
        let text = reader.text()?;
        match container {
            ONE_ELEMENT => list.push(Element::parse(text.as_bytes())),
            LISTPACK => list.extend(listpack::open(text.as_bytes())?),
            _ => return Err(Malformed::Length),
        }
    }
    list.finish()
}

/// A list that is being built.
struct Rows {
    list: List,
    limit: BlockLimit,
}

impl Rows {
    /// Begins a list that had this number of blocks at its origin: several blocks do not become
    /// one listpack.
    fn new(reader: &Reader<'_>, blocks: usize) -> Self {
        let limit = reader.limits().list_blocks;
        let mut list = List::new();
        if blocks > 1 {
            list.expect(usize::MAX, 0, limit);
        }
        Self { list, limit }
    }

    fn push(&mut self, element: Element<'_>) {
        self.list.push(End::Back, element, self.limit);
    }

    fn extend(&mut self, elements: Elements<'_>) {
        elements.for_each(|element| self.push(element));
    }

    fn finish(self) -> Result<List, Malformed> {
        if self.list.is_empty() {
            return Err(Malformed::Empty);
        }
        Ok(self.list)
    }
}

pub(super) fn type_code(style: Style) -> u8 {
    if style.version >= LISTPACKS_VERSION {
        code::LIST_LISTPACKS
    } else {
        code::LIST
    }
}

pub(super) fn write(list: &List, style: Style, out: &mut impl Output) {
    if style.version < LISTPACKS_VERSION {
        write_length(list.len(), out);
        for element in list.iter() {
            write_text(element.text().as_bytes(), style, out);
        }
        return;
    }
    write_length(list.blocks(), out);
    for block in list.packed_blocks() {
        // Only a block of one element can be so long.
        if block.content_bytes() > listpack::BYTES_MAX
            && let Some(element) = block.front()
        {
            out.push(ONE_ELEMENT.to_le_bytes()[0]);
            write_text(element.text().as_bytes(), style, out);
        } else {
            out.push(LISTPACK.to_le_bytes()[0]);
            write_text(&listpack::framed(block), style, out);
        }
    }
}
