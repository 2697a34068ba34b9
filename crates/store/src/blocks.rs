//! Lists of words in blocks, and the memory behind them.
//!
//! A pool takes its memory from the system, not from the process' allocator. Lists of millions of
//! words come and go, and their memory must go back as soon as they are gone, whatever lies around
//! it. A pool knows exactly how much it holds, so its memory counts against the memory limit.

use crate::reservation::{HUGE_PAGE_BYTES, Reservation};

/// Words of a block. A block with its link and length has 256 bytes.
pub(crate) const BLOCK_WORDS: usize = 31;

/// Address space is reserved in pieces of this many bytes.
const PIECE_BYTES: usize = if cfg!(miri) {
    64 << 10
} else {
    HUGE_PAGE_BYTES
};

const BLOCKS_PER_PIECE: usize = PIECE_BYTES / size_of::<Block>();

/// An emptied pool that touched more blocks than this gives its memory back.
const KEPT_BLOCKS_MAX: u32 = 64;

/// Some words, and the number of the list's next block.
#[derive(Debug)]
#[repr(C)]
struct Block {
    next: u32,
    len: u32,
    words: [u64; BLOCK_WORDS],
}

const _: () = assert!(size_of::<Block>() == 256);

/// Blocks by number, from 1; 0 is none.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pieces: Vec<Reservation>,
    /// The first free block that was used before.
    free: u32,
    /// Number of blocks that were ever used.
    touched: u32,
    in_use: u32,
}

impl Blocks {
    /// Bytes of memory in use.
    pub(crate) fn bytes(&self) -> usize {
        self.touched as usize * size_of::<Block>()
    }

    /// Returns the block with a number.
    ///
    /// # Panics
    /// If there is no such block.
    #[expect(
        clippy::needless_pass_by_ref_mut,
        reason = "the block borrows the pool"
    )]
    fn at(&mut self, number: u32) -> &mut Block {
        assert!(number != 0 && number <= self.touched, "no such block");
        let at = number as usize - 1;
        let piece = &self.pieces[at / BLOCKS_PER_PIECE];
        // SAFETY: inside the piece, which has space for that many blocks; aligned because its base
        // is and a block's size is a multiple of its alignment. Memory of a piece starts as zeroes,
        // which is a valid block, and is only accessed here, through `&mut self`.
        unsafe {
            piece
                .base()
                .cast::<Block>()
                .add(at % BLOCKS_PER_PIECE)
                .as_mut()
        }
    }

    /// Takes an empty block and puts it in front of the list that begins with `next`.
    ///
    /// # Panics
    /// If the system has no address space left; any allocation would then panic too.
    fn take(&mut self, next: u32) -> u32 {
        let number = if self.free == 0 {
            if self.touched as usize == self.pieces.len() * BLOCKS_PER_PIECE {
                let piece = Reservation::new(PIECE_BYTES, PIECE_BYTES);
                self.pieces
                    .push(piece.expect("the system has no addresses left for deadlines"));
            }
            self.touched += 1;
            self.touched
        } else {
            let number = self.free;
            self.free = self.at(number).next;
            number
        };
        self.in_use += 1;
        let block = self.at(number);
        (block.next, block.len) = (next, 0);
        number
    }

    /// Moves the memory out if it holds no words, or returns `None` if that is not worth it.
    /// Dropping the result takes long.
    pub(crate) fn take_empty(&mut self) -> Option<Self> {
        let worth_it = self.in_use == 0 && self.touched > KEPT_BLOCKS_MAX;
        worth_it.then(|| std::mem::take(self))
    }

    fn give(&mut self, number: u32) {
        self.in_use -= 1;
        let free = self.free;
        self.at(number).next = free;
        self.free = number;
    }
}

/// A list of words in the blocks of a pool. If a list is forgotten, its words stay in the pool.
#[derive(Debug, Default)]
pub(crate) struct List {
    first: u32,
}

impl List {
    /// The list without words.
    pub(crate) const EMPTY: Self = Self { first: 0 };

    /// Whether the list has no words.
    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0
    }

    /// Adds a word.
    pub(crate) fn push(&mut self, blocks: &mut Blocks, word: u64) {
        if self.first == 0 || blocks.at(self.first).len as usize == BLOCK_WORDS {
            self.first = blocks.take(self.first);
        }
        let block = blocks.at(self.first);
        block.words[block.len as usize] = word;
        block.len += 1;
    }

    /// Removes and returns the word that was added last.
    pub(crate) fn pop(&mut self, blocks: &mut Blocks) -> Option<u64> {
        if self.first == 0 {
            return None;
        }
        let block = blocks.at(self.first);
        block.len -= 1;
        let word = block.words[block.len as usize];
        if block.len == 0 {
            let next = block.next;
            blocks.give(self.first);
            self.first = next;
        }
        Some(word)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_words_apart() {
        let mut blocks = Blocks::default();
        let mut lists = [List::EMPTY, List::EMPTY, List::EMPTY];
        for word in 0..1000 {
            for (list, salt) in lists.iter_mut().zip(1..) {
                list.push(&mut blocks, word * salt);
            }
        }
        for (list, salt) in lists.iter_mut().zip(1..) {
            for word in (0..1000).rev() {
                assert_eq!(list.pop(&mut blocks), Some(word * salt));
            }
            assert!(list.is_empty() && list.pop(&mut blocks).is_none());
        }
    }

    #[test]
    fn memory_is_used_again_and_given_back() {
        let mut blocks = Blocks::default();
        let (mut one, mut other) = (List::EMPTY, List::EMPTY);
        let words = if cfg!(miri) { 3_000 } else { 300_000 };
        (0..words).for_each(|word| one.push(&mut blocks, word));
        let bytes = blocks.bytes();
        while let Some(word) = one.pop(&mut blocks) {
            other.push(&mut blocks, word);
        }
        assert!(blocks.bytes() <= bytes + size_of::<Block>());
        assert!(blocks.take_empty().is_none(), "there are lists in it");
        while other.pop(&mut blocks).is_some() {}
        assert!(blocks.take_empty().is_some());
        assert_eq!(blocks.bytes(), 0);
        one.push(&mut blocks, 7);
        assert_eq!(one.pop(&mut blocks), Some(7));
    }
}
