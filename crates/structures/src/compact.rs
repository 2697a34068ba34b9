//! A collection that is one buffer, taken apart. The parts are small: an owner of many collections
//! stores them where the pointer to the collection would be, and needs no allocation that leads to
//! the buffer.
//!
//! A collection that is taken apart and put together again is unchanged: the same buffer with its
//! capacity, and the two numbers that describe its content. Neither step copies the content.

/// A buffer of this length or more is too long for a collection in parts.
pub const ONE_BUFFER_BYTES_END: usize = 64 << 10;

/// Kind of the collection, and thereby what its buffer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactKind {
    /// The elements of a list.
    List,
    /// The fields of a hash, names and values in turn.
    Hash,
    /// The members of a set.
    Set,
    /// The numbers of a set that contains only numbers.
    Numbers,
    /// The members of a sorted set, each with its score.
    SortedSet,
}

impl CompactKind {
    /// Returns the number of this kind, below 256.
    #[inline]
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this number, or `None` if there is none.
    #[inline]
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::List,
            1 => Self::Hash,
            2 => Self::Set,
            3 => Self::Numbers,
            4 => Self::SortedSet,
            _ => return None,
        })
    }
}

/// The parts of a collection that is one buffer of less than 64 KiB.
#[derive(Debug)]
pub struct Compact {
    /// Kind of the collection.
    pub kind: CompactKind,
    /// Its content.
    pub buffer: OneBuffer,
}

/// A buffer of less than 64 KiB, and the two numbers needed to read it, which are therefore below
/// 65,536.
#[derive(Debug)]
pub struct OneBuffer {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Unused bytes at the front. For a set of numbers: the bytes that each number takes.
    pub front: u32,
    /// Number of elements. Unused for a set of numbers.
    pub count: u32,
}
