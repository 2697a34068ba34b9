//! Lists: elements in an order that clients choose.
//!
//! ```text
//!   small   one Packed                         (OBJECT ENCODING: listpack)
//!   large   Blocks ─ [Packed] [Packed] …       (quicklist)
//! ```
//!
//! Pushing and popping at both ends is O(1). To find an element by its number, the list uses the
//! counts of the blocks, from the nearer end, and then searches inside one block. A copy shares the
//! blocks. A change touches one block, or removes whole ones. A full block is split in two.
//!
//! The maximum length of a block is configured ([`BlockLimit`]) and passed to every operation that
//! adds elements, so a change of the configuration affects all later operations. A list becomes
//! large when its one block passes the limit, and small again when it has shrunk to half of it.
//!
//! Invariants
//!  1. No block is empty, unless it is the only one.
//!  2. `len` and `buffer_bytes` of blocks are the sums over the blocks.

use std::ops::Range;

use crate::compact::{CompactKind, OneBuffer};
use crate::element::Element;
use crate::kind::Encoding;
use crate::packed::Packed;
use crate::relocation::Relocation;

mod blocks;
mod limit;
#[cfg(test)]
mod tests;

pub use limit::BlockLimit;

use blocks::{Block, Blocks, ElementPosition};

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where LPUSH adds (LEFT).
    Front,
    /// Where RPUSH adds (RIGHT).
    Back,
}

/// A list. See the module documentation.
#[derive(Clone, Debug)]
pub struct List {
    form: Repr,
}

#[derive(Clone, Debug)]
enum Repr {
    Small(Packed),
    Large(Box<Blocks>),
}

impl List {
    /// Creates a list without elements.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            form: Repr::Small(Packed::new()),
        }
    }

    /// Takes the buffer out of a small list; see [`Packed::take_buffer`].
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<(CompactKind, OneBuffer)> {
        match &mut self.form {
            Repr::Small(packed) => Some((CompactKind::List, packed.take_buffer()?)),
            Repr::Large(_) => None,
        }
    }

    /// Returns the small list with this buffer.
    #[inline]
    pub(crate) fn from_buffer(_: CompactKind, buffer: OneBuffer) -> Self {
        Self {
            form: Repr::Small(Packed::from_buffer(buffer)),
        }
    }

    /// Returns the number of elements.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Repr::Small(packed) => packed.len(),
            Repr::Large(blocks) => blocks.len(),
        }
    }

    /// Whether it has no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the answer of OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Repr::Small(_) => Encoding::Listpack,
            Repr::Large(_) => Encoding::Quicklist,
        }
    }

    /// Returns the bytes it takes beyond itself. O(1).
    #[inline]
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            Repr::Small(packed) => packed.memory_bytes(),
            Repr::Large(blocks) => blocks.memory_bytes(),
        }
    }

    /// Moves the pieces it consists of, as far as the relocation allows. Of a large list: the row
    /// of blocks, then each block in turn.
    pub(crate) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        match &mut self.form {
            Repr::Small(packed) if relocation.is_one_next() => packed.move_pieces(relocation),
            Repr::Small(_) => {}
            Repr::Large(blocks) => {
                if relocation.is_one_next() {
                    relocation.boxed(blocks, Blocks::default);
                }
                blocks.move_pieces(relocation);
            }
        }
    }

    /// Returns the number of pieces of memory it consists of. O(1).
    #[must_use]
    pub fn allocations(&self) -> usize {
        match &self.form {
            Repr::Small(_) => 1,
            Repr::Large(blocks) => 2 + 2 * blocks.count(),
        }
    }

    /// Returns the number of blocks (DEBUG, tests).
    #[must_use]
    pub fn blocks(&self) -> usize {
        match &self.form {
            Repr::Small(_) => 1,
            Repr::Large(blocks) => blocks.count(),
        }
    }

    /// Returns the element at an end.
    #[inline]
    #[must_use]
    pub fn peek(&self, end: End) -> Option<Element<'_>> {
        let block = match &self.form {
            Repr::Small(packed) => packed,
            Repr::Large(blocks) => blocks.end_block(end)?,
        };
        match end {
            End::Front => block.front(),
            End::Back => block.back(),
        }
    }

    /// Returns the element with number `index` from the front. O(blocks).
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len() {
            return None;
        }
        match &self.form {
            Repr::Small(packed) => packed.get(packed.seek(index)),
            Repr::Large(blocks) => {
                let (number, inside) = blocks.locate(index);
                let block = blocks.block(number)?;
                block.get(block.seek(inside))
            }
        }
    }

    /// Returns all elements in order; iterates from both ends.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Element<'_>> {
        self.packed_blocks().flat_map(Packed::iter)
    }

    /// Calls `visit` for the elements with numbers in `range`, in order. Ignores numbers that the
    /// list does not have.
    #[inline]
    pub fn for_each(&self, range: Range<usize>, mut visit: impl FnMut(Element<'_>)) {
        let end = range.end.min(self.len());
        if range.start >= end {
            return;
        }
        let mut left = end - range.start;
        match &self.form {
            Repr::Small(packed) => {
                let from = packed.iter_from(packed.seek(range.start));
                from.take(left).for_each(visit);
            }
            Repr::Large(blocks) => {
                let (mut number, mut inside) = blocks.locate(range.start);
                while left > 0
                    && let Some(block) = blocks.block(number)
                {
                    let part = left.min(block.len() - inside);
                    let from = block.iter_from(block.seek(inside));
                    from.take(part).for_each(&mut visit);
                    left -= part;
                    number += 1;
                    inside = 0;
                }
            }
        }
    }

    /// Calls `found` with the number of every element that equals `element`, until `found` returns
    /// `false`. Looks at the first `compared` elements only. O(n).
    pub fn for_each_equal(
        &self,
        element: Element<'_>,
        compared: usize,
        mut found: impl FnMut(usize) -> bool,
    ) {
        let mut before = 0;
        for block in self.packed_blocks() {
            let in_block = |number| found(before + number);
            if before >= compared || !block.for_each_equal(element, compared - before, in_block) {
                return;
            }
            before += block.len();
        }
    }

    /// Announces that `count` elements of `bytes` in all will be added. A small list that would
    /// become too long becomes a large one. Only needed for the encoding, which depends on what is
    /// added at once.
    pub fn expect(&mut self, bytes: usize, count: usize, limit: BlockLimit) {
        if let Repr::Small(packed) = &mut self.form {
            let content_bytes = packed.content_bytes().saturating_add(bytes);
            if limit.is_passed_by(content_bytes, packed.len() + count) {
                let blocks = Blocks::with(std::mem::take(packed));
                self.form = Repr::Large(Box::new(blocks));
            }
        }
    }

    /// Adds an element at an end. O(1), except for the bytes that a growing buffer moves.
    #[inline]
    pub fn push(&mut self, end: End, element: Element<'_>, limit: BlockLimit) {
        self.expect(element.len(), 1, limit);
        match &mut self.form {
            Repr::Small(packed) => match end {
                End::Front => packed.push_front(element),
                End::Back => packed.push_back(element),
            },
            Repr::Large(blocks) => blocks.push(end, element, limit),
        }
    }

    /// Removes `count` elements, or all, from an end. O(1) for one. Removes whole blocks at once.
    #[inline]
    pub fn pop(&mut self, end: End, count: usize, limit: BlockLimit) {
        match &mut self.form {
            Repr::Small(packed) => {
                match end {
                    End::Front => packed.pop_front(count),
                    End::Back => packed.pop_back(count),
                };
            }
            Repr::Large(blocks) => {
                blocks.pop(end, count);
                self.shrink(limit);
            }
        }
    }

    /// Replaces element number `index`. Returns whether the element exists. O(blocks).
    pub fn set(&mut self, index: usize, element: Element<'_>, limit: BlockLimit) -> bool {
        if index >= self.len() {
            return false;
        }
        // Counted as an additional element, as in Redis, though it replaces one.
        self.expect(element.len(), 1, limit);
        match &mut self.form {
            Repr::Small(packed) => packed.replace(packed.seek(index), element),
            Repr::Large(blocks) => {
                let place = place_of(blocks, index);
                blocks.replace(place, element, limit);
                self.shrink(limit);
            }
        }
        true
    }

    /// Inserts an element before (or behind) the first element that equals `pivot`. Returns whether
    /// there is one. O(n) for the search, one block for the change.
    pub fn insert_beside(
        &mut self,
        pivot: Element<'_>,
        before: bool,
        element: Element<'_>,
        limit: BlockLimit,
    ) -> bool {
        let Some(ElementPosition { block, at }) = self.find(pivot) else {
            return false;
        };
        self.expect(element.len(), 1, limit);
        let beside = |packed: &Packed| if before { at } else { packed.after(at) };
        match &mut self.form {
            Repr::Small(packed) => packed.insert(beside(packed), element),
            Repr::Large(blocks) => {
                let at = blocks.block(block).map_or(at, beside);
                blocks.insert(ElementPosition { block, at }, element, limit);
            }
        }
        true
    }

    /// Removes the elements with numbers in `range`, as far as they exist. O(blocks).
    pub fn remove(&mut self, range: Range<usize>, limit: BlockLimit) {
        let end = range.end.min(self.len());
        let range = range.start.min(end)..end;
        match &mut self.form {
            Repr::Small(packed) => {
                packed.remove(packed.seek(range.start), range.len());
            }
            Repr::Large(blocks) => {
                blocks.remove(range, limit);
                self.shrink(limit);
            }
        }
    }

    /// Removes at most `count` elements that equal `element`, starting from the end `from`. Returns
    /// the number of removed elements. O(n).
    pub fn remove_equal(
        &mut self,
        element: Element<'_>,
        count: usize,
        from: End,
        limit: BlockLimit,
    ) -> usize {
        match &mut self.form {
            Repr::Small(packed) => remove_equal_in(packed, element, count, from),
            Repr::Large(blocks) => {
                let (mut removed, all) = (0, blocks.count());
                for step in 0..all {
                    if removed == count {
                        break;
                    }
                    let number = match from {
                        End::Front => step,
                        End::Back => all - 1 - step,
                    };
                    // Does not copy a shared block that has no such element.
                    let has = |block: &Packed| block.find(element, block.first(), 1).is_some();
                    if blocks.block(number).is_some_and(has) {
                        removed += blocks.change(number, |block| {
                            remove_equal_in(block, element, count - removed, from)
                        });
                    }
                }
                if removed > 0 {
                    blocks.settle(limit);
                    self.shrink(limit);
                }
                removed
            }
        }
    }

    /// Returns the blocks in order; iterates from both ends.
    pub fn packed_blocks(&self) -> impl DoubleEndedIterator<Item = &Packed> {
        let (small, (front, back)) = match &self.form {
            Repr::Small(packed) => (Some(packed), Default::default()),
            Repr::Large(blocks) => (None, blocks.as_slices()),
        };
        let large = front.iter().chain(back).map(Block::packed);
        small.into_iter().chain(large)
    }

    /// Returns the position of the first element that equals `element`.
    fn find(&self, element: Element<'_>) -> Option<ElementPosition> {
        self.packed_blocks()
            .enumerate()
            .find_map(|(number, block)| {
                let at = block.find(element, block.first(), 1)?;
                Some(ElementPosition { block: number, at })
            })
    }

    /// Makes the list small again if it is short enough.
    #[inline]
    fn shrink(&mut self, limit: BlockLimit) {
        if let Repr::Large(blocks) = &mut self.form
            && blocks.count() <= 1
            && let Some(packed) = blocks.take_small(limit)
        {
            self.form = Repr::Small(packed);
        }
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

/// Two lists are equal if they have the same elements, whatever their blocks.
impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

fn place_of(blocks: &Blocks, index: usize) -> ElementPosition {
    let (block, inside) = blocks.locate(index);
    let at = blocks.block(block).map(|packed| packed.seek(inside));
    ElementPosition {
        block,
        at: at.unwrap_or_default(),
    }
}

/// Removes at most `count` elements of a block that equal `element`, starting from the end `from`.
/// Returns the number of removed elements.
fn remove_equal_in(block: &mut Packed, element: Element<'_>, count: usize, from: End) -> usize {
    let mut removed = 0;
    match from {
        End::Front => {
            let mut place = block.first();
            while removed < count
                && let Some(found) = block.find(element, place, 1)
            {
                removed += block.remove(found, 1);
                place = found;
            }
        }
        End::Back => {
            let mut place = block.end();
            while removed < count
                && let Some(before) = block.before(place)
            {
                if block.get(before) == Some(element) {
                    removed += block.remove(before, 1);
                }
                place = before;
            }
        }
    }
    removed
}
