//! One entry as it is read.

use super::id::EntryId;
use super::varint::take_text;
use crate::element::Element;

/// An entry, borrowed from its block. Its fields are read when they are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: EntryId,
    pub(super) pairs: usize,
    /// Names of the fields, when the entry has those of its block.
    pub(super) names: Option<&'a [u8]>,
    /// Values; names before each when the entry has its own.
    pub(super) body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Its fields with their values, in the order in which they were given.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            left: self.pairs,
            names: self.names,
            body: self.body,
        }
    }

    /// Whether it has the names of its block's first entry (a dump says so).
    #[must_use]
    pub fn shares_names(&self) -> bool {
        self.names.is_some()
    }
}

/// Entries with the same id, fields and values are equal, whatever they share.
impl PartialEq for Entry<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.pairs == other.pairs && self.fields().eq(other.fields())
    }
}

/// Fields of an entry with their values.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    left: usize,
    names: Option<&'a [u8]>,
    body: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => take_text(names),
            None => take_text(&mut self.body),
        };
        Some((name, take_text(&mut self.body)))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}
