//! Bytes from a stranger, taken from the front.

use crate::reader::Malformed;

/// What is left of some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

/// The last byte of a listpack, a ziplist and a zipmap.
pub(crate) const END: u8 = 0xff;

impl<'a> Bytes<'a> {
    /// What is in front of [`END`] in `block`, of which the head was taken and states `total` bytes.
    pub(crate) fn entries(self, block: &[u8], total: u32) -> Result<Self, Malformed> {
        let Some((&END, entries)) = self.0.split_last() else {
            return Err(Malformed::Block);
        };
        if index(total.into())? != block.len() {
            return Err(Malformed::Block);
        }
        Ok(Self(entries))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Malformed::Ended)?;
        self.0 = rest;
        Ok(front)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk().ok_or(Malformed::Ended)?;
        self.0 = rest;
        Ok(*front)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// A whole number of `count` bytes, at most eight, with a sign and little end first.
    pub(crate) fn signed(&mut self, count: usize) -> Result<i64, Malformed> {
        let bytes = self.take(count)?;
        let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut whole = [if is_negative { 0xff } else { 0 }; 8];
        let room = whole.get_mut(..count).ok_or(Malformed::Length)?;
        room.copy_from_slice(bytes);
        Ok(i64::from_le_bytes(whole))
    }
}

/// A length as an index: on a machine with 64 bits always, unless it is nonsense.
pub(crate) fn index(length: u64) -> Result<usize, Malformed> {
    usize::try_from(length).map_err(|_| Malformed::Length)
}
