//! The elements of a validated block: a listpack or a ziplist.

use structures::Element;

use crate::bytes::Bytes;
use crate::reader::Malformed;

/// Takes one entry from the front of a block.
pub(crate) type TakeEntry = for<'a> fn(&mut Bytes<'a>) -> Result<Element<'a>, Malformed>;

/// Elements in order, with an exact count.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    entries: Bytes<'a>,
    left: usize,
    take: TakeEntry,
}

impl<'a> Elements<'a> {
    /// Creates an iterator over `entries`: `count` entries, all of which `take` accepts.
    pub(crate) fn new(entries: Bytes<'a>, count: usize, take: TakeEntry) -> Self {
        Self {
            entries,
            left: count,
            take,
        }
    }

    /// Returns the number of groups of `N` elements, and the groups.
    ///
    /// # Errors
    /// If some elements are left over, or there are none.
    pub(crate) fn groups<const N: usize>(
        mut self,
    ) -> Result<(usize, impl Iterator<Item = [Element<'a>; N]>), Malformed> {
        if !self.left.is_multiple_of(N) {
            return Err(Malformed::Block);
        }
        if self.left == 0 {
            return Err(Malformed::Empty);
        }
        let count = self.left / N;
        let each = move || {
            let mut group = [Element::Integer(0); N];
            for element in &mut group {
                *element = self.next()?;
            }
            Some(group)
        };
        Ok((count, std::iter::from_fn(each)))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        self.left = self.left.checked_sub(1)?;
        (self.take)(&mut self.entries).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Elements<'_> {}
