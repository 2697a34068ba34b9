//! Untrusted bytes, taken from the front.

use crate::reader::Malformed;

/// The remaining bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

/// The last byte of a listpack, a ziplist and a zipmap.
pub(crate) const END: u8 = 0xff;

impl<'a> Bytes<'a> {
    /// Returns what precedes [`END`] in `block`, whose head was already taken and states `total`
    /// bytes.
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

    /// Takes the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Malformed::Ended)?;
        self.0 = rest;
        Ok(front)
    }

    /// Takes the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk().ok_or(Malformed::Ended)?;
        self.0 = rest;
        Ok(*front)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    /// Takes a signed little-endian integer of `count` bytes, at most eight.
    pub(crate) fn signed(&mut self, count: usize) -> Result<i64, Malformed> {
        let bytes = self.take(count)?;
        let is_negative = bytes.last().is_some_and(|last| last & 0x80 != 0);
        let mut whole = [if is_negative { 0xff } else { 0 }; 8];
        let room = whole.get_mut(..count).ok_or(Malformed::Length)?;
        room.copy_from_slice(bytes);
        Ok(i64::from_le_bytes(whole))
    }
}

/// Converts a length to an index. On a 64-bit machine this fails only for nonsensical lengths.
pub(crate) fn index(length: u64) -> Result<usize, Malformed> {
    usize::try_from(length).map_err(|_| Malformed::Length)
}
