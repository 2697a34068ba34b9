//! A collection that is one buffer, taken apart: so small a thing that who keeps many of them keeps its
//! parts where the pointer to it would be, and needs no allocation for what leads to the buffer.
//!
//! Taken apart and put together again it is what it was: the buffer with its capacity, and the two
//! numbers that say what is in it. Neither copies any of it.

/// A buffer of so many bytes is too long for a collection in parts.
pub const ONE_BUFFER_BYTES_END: usize = 64 << 10;

/// Which collection it is, and what its buffer has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactKind {
    /// The elements of a list.
    List,
    /// The fields of a hash, names and values in turn.
    Hash,
    /// The members of a set.
    Set,
    /// The numbers of a set of nothing else.
    Numbers,
    /// The members of a sorted set, each with its score.
    SortedSet,
}

impl CompactKind {
    /// Its number, below 256.
    #[inline]
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// By its number.
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
    /// What it is.
    pub kind: CompactKind,
    /// What is in it.
    pub buffer: OneBuffer,
}

/// A buffer of less than 64 KiB, and what it takes to read it, which is below 65,536 then, too.
#[derive(Debug)]
pub struct OneBuffer {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Bytes in front that are not in use; of numbers, bytes that each takes.
    pub front: u32,
    /// Number of elements; of numbers nothing.
    pub count: u32,
}
