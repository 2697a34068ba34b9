//! A large list: blocks of packed elements, with their sums.
//!
//! Blocks are shared until one of the sharers changes them. A copy of the list (COPY, a snapshot)
//! takes as long as incrementing the counts of its blocks, and a later change copies one block. The
//! length of a block is stored beside the pointer to it, so finding an element by its number does
//! not touch other blocks.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::{BlockLimit, End};
use crate::element::Element;
use crate::memory::allocated;
use crate::packed::{At, Packed};
use crate::relocation::Relocation;

/// A row of blocks of packed elements, none of which is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    blocks: VecDeque<Block>,
    len: usize,
    /// Bytes of the blocks' buffers.
    buffer_bytes: usize,
}

/// A block with its number of elements.
#[derive(Clone, Debug)]
pub(super) struct Block {
    packed: Arc<Packed>,
    len: u32,
}

impl Block {
    fn new(packed: Packed) -> Self {
        Self {
            len: short_len(&packed),
            packed: Arc::new(packed),
        }
    }

    #[inline]
    pub(super) fn packed(&self) -> &Packed {
        &self.packed
    }

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }
}

/// The position of an element: its block, and the position in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ElementPosition {
    pub(super) block: usize,
    pub(super) at: At,
}

impl Blocks {
    /// Creates it with the elements of one block, if there are any.
    pub(super) fn with(first: Packed) -> Self {
        let mut blocks = Self::default();
        if !first.is_empty() {
            blocks.len = first.len();
            blocks.buffer_bytes = first.memory_bytes();
            blocks.blocks.push_back(Block::new(first));
        }
        blocks
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + allocated(self.blocks.capacity() * size_of::<Block>())
            + self.blocks.len() * SHARED_BYTES
            + self.buffer_bytes
    }

    /// Moves its pieces, block after block, as far as the relocation allows.
    pub(super) fn move_pieces(&mut self, relocation: &mut Relocation<'_>) {
        if relocation.is_one_next() {
            // This also makes a row that wraps around its end contiguous.
            let mut row = Vec::from(std::mem::take(&mut self.blocks));
            relocation.buffer(&mut row);
            self.blocks = row.into();
        }
        let first = relocation.pass_by(self.blocks.len());
        for block in self.blocks.range_mut(first..) {
            if !relocation.is_next() {
                return;
            }
            if let Some(packed) = relocation.unshared(&mut block.packed, Packed::new) {
                packed.move_pieces(relocation);
            }
        }
    }

    pub(super) fn as_slices(&self) -> (&[Block], &[Block]) {
        self.blocks.as_slices()
    }

    pub(super) fn block(&self, number: usize) -> Option<&Packed> {
        self.blocks.get(number).map(Block::packed)
    }

    /// Returns the block at one end.
    pub(super) fn end_block(&self, end: End) -> Option<&Packed> {
        let block = match end {
            End::Front => self.blocks.front(),
            End::Back => self.blocks.back(),
        };
        block.map(Block::packed)
    }

    /// Takes the only block out if `limit` says that the list is small. The block that remains is
    /// then empty.
    pub(super) fn take_small(&mut self, limit: BlockLimit) -> Option<Packed> {
        let [only] = self.blocks.make_contiguous() else {
            return None;
        };
        limit
            .is_half_full_with(only.packed.content_bytes(), only.len())
            .then(|| Arc::unwrap_or_clone(std::mem::take(&mut only.packed)))
    }

    /// Returns the block that contains the element with number `index`, and the element's number in
    /// it. O(blocks), from the nearer end. `index` is below `len`.
    pub(super) fn locate(&self, index: usize) -> (usize, usize) {
        if index <= self.len / 2 {
            let mut before = 0;
            for (number, block) in self.blocks.iter().enumerate() {
                if index < before + block.len() {
                    return (number, index - before);
                }
                before += block.len();
            }
        }
        let mut start = self.len;
        for (number, block) in self.blocks.iter().enumerate().rev() {
            start -= block.len();
            if start <= index {
                return (number, index - start);
            }
        }
        (0, 0)
    }

    #[inline]
    pub(super) fn push(&mut self, end: End, element: Element<'_>, limit: BlockLimit) {
        let bytes = Packed::entry_bytes(element);
        let block = self.end_block(end);
        if !block.is_some_and(|block| takes(block, bytes, limit)) {
            self.fit(end);
            let fresh = self.fresh(end, bytes, limit);
            self.buffer_bytes += fresh.memory_bytes();
            let fresh = Block::new(fresh);
            match end {
                End::Front => self.blocks.push_front(fresh),
                End::Back => self.blocks.push_back(fresh),
            }
        }
        match end {
            End::Front => self.change(0, |block| block.push_front(element)),
            End::Back => self.change(self.blocks.len() - 1, |block| block.push_back(element)),
        }
    }

    /// Returns a new block for an end at which the last block is full. An element of `bytes` will
    /// be added to it.
    ///
    /// In a long list the block's full capacity is allocated at once. A buffer that grows to 8 KiB
    /// step by step moves ten times, and leaves gaps between blocks that nothing of their length
    /// fills.
    fn fresh(&self, end: End, bytes: usize, limit: BlockLimit) -> Packed {
        match limit.content_bytes_max() {
            Some(room) if self.blocks.len() >= ROOMY_FROM_BLOCKS && bytes <= room => match end {
                End::Front => Packed::with_room_in_front(room),
                End::Back => Packed::with_room_behind(room),
            },
            _ => Packed::new(),
        }
    }

    /// Frees the unused capacity of the block at an end, which is full. A shared block keeps it.
    #[cold]
    fn fit(&mut self, end: End) {
        let block = match end {
            End::Front => self.blocks.front_mut(),
            End::Back => self.blocks.back_mut(),
        };
        if let Some(packed) = block.and_then(|block| Arc::get_mut(&mut block.packed)) {
            let before = packed.memory_bytes();
            packed.shrink_to_fit();
            self.buffer_bytes = self.buffer_bytes + packed.memory_bytes() - before;
        }
    }

    /// Removes `count` elements, or all, from one end.
    pub(super) fn pop(&mut self, end: End, count: usize) {
        let mut left = count.min(self.len);
        while left > 0 {
            let number = match end {
                End::Front => 0,
                End::Back => self.blocks.len() - 1,
            };
            let whole = self.blocks[number].len();
            if whole <= left {
                self.drop_blocks(number..number + 1);
                left -= whole;
                continue;
            }
            self.change(number, |block| match end {
                End::Front => block.pop_front(left),
                End::Back => block.pop_back(left),
            });
            left = 0;
        }
    }

    /// Inserts an element before the one at `place`, which may be the end of a block.
    pub(super) fn insert(
        &mut self,
        place: ElementPosition,
        element: Element<'_>,
        limit: BlockLimit,
    ) {
        let ElementPosition { block, at } = place;
        let bytes = Packed::entry_bytes(element);
        if takes(self.packed(block), bytes, limit) {
            self.change(block, |block| block.insert(at, element));
        } else if at == self.packed(block).first() {
            self.insert_between(block, element, bytes, limit);
        } else if at == self.packed(block).end() {
            self.insert_between(block + 1, element, bytes, limit);
        } else {
            let tail = self.change(block, |block| block.split_off(at));
            self.add_block(block + 1, tail);
            self.insert_between(block + 1, element, bytes, limit);
        }
    }

    /// Inserts an element between block `number` and the one before it.
    fn insert_between(
        &mut self,
        number: usize,
        element: Element<'_>,
        bytes: usize,
        limit: BlockLimit,
    ) {
        let has_room = |blocks: &Self, number| {
            let block: Option<&Packed> = blocks.block(number);
            block.is_some_and(|block| takes(block, bytes, limit))
        };
        if number > 0 && has_room(self, number - 1) {
            self.change(number - 1, |block| block.push_back(element));
        } else if has_room(self, number) {
            self.change(number, |block| block.push_front(element));
        } else {
            let mut block = Packed::new();
            block.push_back(element);
            self.add_block(number, block);
        }
    }

    /// Replaces the element at `place`.
    pub(super) fn replace(
        &mut self,
        place: ElementPosition,
        element: Element<'_>,
        limit: BlockLimit,
    ) {
        let ElementPosition { block, at } = place;
        let bytes = Packed::entry_bytes(element);
        if self.blocks[block].len() == 1 || takes(self.packed(block), bytes, limit) {
            self.change(block, |block| block.replace(at, element));
            return;
        }
        self.change(block, |block| block.remove(at, 1));
        self.insert(place, element, limit);
    }

    /// Removes the elements with numbers in `range`, which lies within the list.
    pub(super) fn remove(&mut self, range: Range<usize>, limit: BlockLimit) {
        if range.is_empty() {
            return;
        }
        let mut left = range.len();
        let (mut number, inside) = self.locate(range.start);
        if inside > 0 {
            let removed = self.change(number, |block| block.remove(block.seek(inside), left));
            left -= removed;
            number += 1;
        }
        let first = number;
        while left > 0 && self.blocks[number].len() <= left {
            left -= self.blocks[number].len();
            number += 1;
        }
        self.drop_blocks(first..number);
        if left > 0 {
            self.change(first, |block| block.pop_front(left));
        }
        self.join(first, limit);
        self.join(first.saturating_sub(1), limit);
    }

    /// Drops the empty blocks, and joins blocks with few elements left.
    pub(super) fn settle(&mut self, limit: BlockLimit) {
        self.blocks.retain(|block| !block.packed.is_empty());
        let buffers = self.blocks.iter().map(|block| block.packed.memory_bytes());
        self.buffer_bytes = buffers.sum();
        let mut number = 0;
        while number + 1 < self.blocks.len() {
            if !self.join(number, limit) {
                number += 1;
            }
        }
    }

    /// Changes a block and updates the sums.
    #[inline]
    pub(super) fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Packed) -> R) -> R {
        let block = &mut self.blocks[number];
        let (bytes, len) = (block.packed.memory_bytes(), block.len());
        let packed = Arc::make_mut(&mut block.packed);
        let answer = change(packed);
        block.len = short_len(packed);
        self.buffer_bytes = self.buffer_bytes + packed.memory_bytes() - bytes;
        self.len = self.len + block.len() - len;
        answer
    }

    fn packed(&self, number: usize) -> &Packed {
        &self.blocks[number].packed
    }

    fn add_block(&mut self, number: usize, block: Packed) {
        self.buffer_bytes += block.memory_bytes();
        self.len += block.len();
        self.blocks.insert(number, Block::new(block));
    }

    fn drop_blocks(&mut self, range: Range<usize>) {
        match range.len() {
            0 => {}
            1 if range.start == 0 => {
                let gone = self.blocks.pop_front();
                gone.into_iter()
                    .for_each(|block| self.forget(block.packed()));
            }
            _ => {
                let gone: Vec<_> = self.blocks.drain(range).collect();
                gone.iter().for_each(|block| self.forget(block.packed()));
            }
        }
        if self.blocks.len() < self.blocks.capacity() / SPARE_PART {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
    }

    fn forget(&mut self, gone: &Packed) {
        self.buffer_bytes -= gone.memory_bytes();
        self.len -= gone.len();
    }

    /// Joins a block with the next one if both fit into half a block. Returns whether it did.
    fn join(&mut self, number: usize, limit: BlockLimit) -> bool {
        let (Some(one), Some(next)) = (self.block(number), self.block(number + 1)) else {
            return false;
        };
        let bytes = one.content_bytes() + next.content_bytes();
        if !limit.is_half_full_with(bytes, one.len() + next.len())
            || limit.is_passed_by(bytes, one.len() + next.len())
        {
            return false;
        }
        if let Some(next) = self.blocks.remove(number + 1) {
            self.forget(next.packed());
            self.change(number, |block| block.append(next.packed()));
        }
        true
    }
}

/// The row of blocks is shrunk if less than this fraction (1/n) of it is in use.
const SPARE_PART: usize = 8;

/// Minimum number of blocks at which a new block gets its full capacity: at most an eighth of the
/// list.
const ROOMY_FROM_BLOCKS: usize = 8;

/// Bytes of a shared block beside its buffer: two counts, and the block itself.
const SHARED_BYTES: usize = allocated(2 * size_of::<usize>() + size_of::<Packed>());

/// Returns a block's number of elements. Its content has less than 4 GiB.
#[inline]
fn short_len(packed: &Packed) -> u32 {
    u32::try_from(packed.len()).unwrap_or(u32::MAX)
}

/// Whether a block can take another entry of `bytes`.
#[inline]
fn takes(block: &Packed, bytes: usize, limit: BlockLimit) -> bool {
    block.is_empty() || !limit.is_passed_by(block.content_bytes() + bytes, block.len() + 1)
}
