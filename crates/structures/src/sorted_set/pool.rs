//! Values by number, in pieces of the same length, so that growing moves none of them.
//!
//! A plain vector would copy everything when it grows, and keep up to half of it unused; here
//! growing allocates one more piece. Numbers of removed values are given out again.

use crate::memory::allocated;

/// Values in one piece.
const PIECE: usize = 64;

/// No value has this number.
pub(super) const NONE: u32 = u32::MAX;

/// Values by number.
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    pieces: Vec<Vec<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Default> Pool<T> {
    /// Numbers given out so far, those given back among them.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the pieces.
    pub(super) fn memory_bytes(&self) -> usize {
        let full = (self.pieces.len().saturating_sub(1)) * allocated(PIECE * size_of::<T>());
        let last = self.pieces.last().map_or(0, Vec::capacity);
        full + allocated(last * size_of::<T>())
            + allocated(self.pieces.capacity() * size_of::<Vec<T>>())
            + allocated(self.free.capacity() * size_of::<u32>())
    }

    /// The number that `value` is kept under.
    ///
    /// # Panics
    /// When all numbers are in use. The chunks of members run out long before.
    pub(super) fn add(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self[number] = value;
            return number;
        }
        let number = u32::try_from(self.len).unwrap_or(NONE);
        assert!(number != NONE, "2^32 values in a pool");
        self.push(value);
        number
    }

    /// Keeps `value` under the number [`Pool::len`].
    pub(super) fn push(&mut self, value: T) {
        if self.len.is_multiple_of(PIECE) {
            self.pieces.push(Vec::new());
        }
        if let Some(piece) = self.pieces.last_mut() {
            // The first piece grows, so that a small collection takes little.
            if piece.len() == piece.capacity() {
                let more = if self.len < PIECE {
                    self.len.clamp(1, PIECE - self.len)
                } else {
                    PIECE
                };
                piece.reserve_exact(more);
            }
            piece.push(value);
        }
        self.len += 1;
    }

    /// Takes the value of the highest number away. Not to be mixed with [`Pool::remove`].
    pub(super) fn pop(&mut self) -> Option<T> {
        let piece = self.pieces.last_mut()?;
        let value = piece.pop();
        if piece.is_empty() {
            self.pieces.pop();
        }
        self.len -= 1;
        value
    }

    /// Takes the value of `number` away; the number is given out again.
    pub(super) fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(&mut self[number])
    }
}

impl<T> std::ops::Index<u32> for Pool<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        let number = number as usize;
        &self.pieces[number / PIECE][number % PIECE]
    }
}

impl<T> std::ops::IndexMut<u32> for Pool<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut self.pieces[number / PIECE][number % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_values_and_are_given_out_again() {
        let mut pool = Pool::default();
        for value in 0..1_000_u32 {
            assert_eq!(pool.add(value), value);
        }
        assert_eq!(pool.remove(500), 500);
        assert_eq!(pool.add(7), 500);
        assert_eq!(pool[500], 7);
        assert_eq!(pool.len(), 1_000);
        assert!(pool.memory_bytes() >= 4_000);
    }

    #[test]
    fn the_last_goes_first() {
        let mut pool = Pool::default();
        (0..200_u32).for_each(|value| pool.push(value));
        for value in (0..200).rev() {
            assert_eq!(pool.pop(), Some(value));
        }
        assert_eq!(pool.pop(), None);
    }
}
