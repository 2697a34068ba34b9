//! An entry as a reader sees it.

use super::id::EntryId;
use super::varint::take_text;
use crate::element::Element;

/// An entry, borrowed from its block. Its fields are decoded on demand.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: EntryId,
    pub(super) pairs: usize,
    /// Names of the fields, if the entry has those of its block.
    pub(super) names: Option<&'a [u8]>,
    /// Values, each after its name if the entry has its own names.
    pub(super) body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Returns its fields with their values, in the order in which the client gave them.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields {
            left: self.pairs,
            names: self.names,
            body: self.body,
        }
    }

    /// Whether it has the names of its block's first entry (a dump stores this).
    #[must_use]
    pub fn shares_names(&self) -> bool {
        self.names.is_some()
    }
}

/// Two entries are equal if they have the same id, fields and values, whether they share names or
/// not.
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
