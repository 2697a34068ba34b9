//! Iterators over the entries between two ids.

use std::collections::btree_map;
use std::sync::Arc;

use super::block::{Block, Entries};
use super::entry::Entry;
use super::id::EntryId;

/// The blocks of a log that may contain the requested entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks<'a> {
    pub(super) sealed: btree_map::Range<'a, EntryId, Arc<Block>>,
    pub(super) tail: Option<&'a Block>,
}

impl<'a> Iterator for Blocks<'a> {
    type Item = &'a Block;

    #[inline]
    fn next(&mut self) -> Option<&'a Block> {
        match self.sealed.next() {
            Some((_, block)) => Some(block),
            None => self.tail.take(),
        }
    }
}

impl DoubleEndedIterator for Blocks<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match self.tail.take() {
            Some(tail) => Some(tail),
            None => self.sealed.next_back().map(|(_, block)| &**block),
        }
    }
}

/// Entries in the order of their ids.
#[derive(Clone, Debug)]
pub struct Range<'a> {
    pub(super) blocks: Blocks<'a>,
    pub(super) current: Option<Entries<'a>>,
    pub(super) from: EntryId,
    pub(super) to: EntryId,
}

impl<'a> Iterator for Range<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            let Some(current) = &mut self.current else {
                self.current = Some(self.blocks.next()?.iter());
                continue;
            };
            match current.next() {
                None => self.current = None,
                Some(entry) if entry.id < self.from => {}
                Some(entry) if entry.id <= self.to => return Some(entry),
                Some(_) => {
                    self.blocks = Blocks::default();
                    self.current = None;
                }
            }
        }
    }
}

/// Entries from the last to the first. The positions of a block's entries are collected when the
/// iterator reaches the block.
#[derive(Clone, Debug)]
pub struct Backwards<'a> {
    pub(super) blocks: Blocks<'a>,
    pub(super) current: Option<(&'a Block, Vec<u32>)>,
    pub(super) from: EntryId,
    pub(super) to: EntryId,
}

impl<'a> Iterator for Backwards<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        loop {
            if let Some((block, places)) = &mut self.current
                && let Some(place) = places.pop()
            {
                return Some(block.get(place));
            }
            let block = self.blocks.next_back()?;
            self.current = Some((block, block.iter().places(self.from, self.to)));
        }
    }
}
