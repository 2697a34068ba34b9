//! Values by number, in pieces of the same length, so that growth moves no value.
//!
//! A plain vector would copy everything when it grows, and keep up to half of its capacity unused.
//! A pool allocates one more piece instead. Numbers of removed values are reused.
//!
//! A clone shares the pieces. Before a change, a piece that is shared is copied. So a copy of a set
//! costs one count per piece, and a later change at most one piece. Pools of long values use short
//! pieces, because the whole piece is copied with the value that is changed.

use std::array;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::memory::allocated;
use crate::relocation::Relocation;

/// Default number of values per piece, for short values.
const PIECE: usize = 8;

/// Bytes of the reference counts of a shared piece.
const COUNTS_BYTES: usize = 16;

/// A number that no value has.
pub(super) const NONE: u32 = u32::MAX;

/// Values by number.
#[derive(Clone, Debug)]
pub(super) struct Pool<T, const PIECE: usize = { self::PIECE }> {
    pieces: Vec<Arc<[T; PIECE]>>,
    free: Vec<u32>,
    len: usize,
}

impl<T, const PIECE: usize> Default for Pool<T, PIECE> {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Clone + Default, const PIECE: usize> Pool<T, PIECE> {
    /// Returns how many numbers were assigned, including those of removed values.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of the pieces.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pieces.len() * allocated(COUNTS_BYTES + PIECE * size_of::<T>())
            + allocated(self.pieces.capacity() * size_of::<Arc<[T; PIECE]>>())
            + allocated(self.free.capacity() * size_of::<u32>())
    }

    /// Moves its pieces as far as the relocation allows. For each moved or visited piece `inner`
    /// moves what its values consist of.
    pub(super) fn move_pieces(
        &mut self,
        relocation: &mut Relocation<'_>,
        mut inner: impl FnMut(&mut T, &mut Relocation<'_>),
    ) {
        if relocation.is_one_next() {
            relocation.buffer(&mut self.pieces);
            relocation.buffer(&mut self.free);
        }
        let first = relocation.pass_by(self.pieces.len());
        for piece in &mut self.pieces[first..] {
            if !relocation.is_next() {
                return;
            }
            let empty = || array::from_fn(|_| T::default());
            if let Some(values) = relocation.unshared(piece, empty) {
                values.iter_mut().for_each(|value| inner(value, relocation));
            }
        }
    }

    /// Stores `value` and returns its number.
    ///
    /// # Panics
    /// If all numbers are in use. The chunks of members run out long before.
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

    /// Stores `value` under the number [`Pool::len`].
    pub(super) fn push(&mut self, value: T) {
        let place = self.len % PIECE;
        if place == 0 {
            self.pieces.push(Arc::new(array::from_fn(|_| T::default())));
        }
        if let Some(piece) = self.pieces.last_mut() {
            Arc::make_mut(piece)[place] = value;
        }
        self.len += 1;
    }

    /// Removes and returns the value with the highest number. Must not be mixed with
    /// [`Pool::remove`].
    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        let piece = Arc::make_mut(self.pieces.last_mut()?);
        let value = std::mem::take(&mut piece[last % PIECE]);
        if last.is_multiple_of(PIECE) {
            self.pieces.pop();
        }
        self.len = last;
        Some(value)
    }

    /// Removes and returns the value of `number`. The number will be reused.
    pub(super) fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        std::mem::take(&mut self[number])
    }
}

/// A vector whose clone has the same capacity as the original, so that sizes counted by capacity
/// stay right.
#[derive(Debug)]
pub(super) struct Kept<T>(Vec<T>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Clone for Kept<T> {
    fn clone(&self) -> Self {
        let mut copy = Vec::with_capacity(self.0.capacity());
        copy.extend_from_slice(&self.0);
        Self(copy)
    }
}

impl<T> Deref for Kept<T> {
    type Target = Vec<T>;

    #[inline]
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Kept<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> From<Vec<T>> for Kept<T> {
    fn from(values: Vec<T>) -> Self {
        Self(values)
    }
}

impl<T> IntoIterator for Kept<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Kept<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T, const PIECE: usize> Pool<T, PIECE> {
    /// Returns the value of a number, or `None` if there is none.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        Some(&self.pieces.get(number / PIECE)?[number % PIECE])
    }
}

impl<T, const PIECE: usize> std::ops::Index<u32> for Pool<T, PIECE> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        let number = number as usize;
        &self.pieces[number / PIECE][number % PIECE]
    }
}

impl<T: Clone, const PIECE: usize> std::ops::IndexMut<u32> for Pool<T, PIECE> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        let number = number as usize;
        &mut Arc::make_mut(&mut self.pieces[number / PIECE])[number % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_values_and_are_given_out_again() {
        let mut pool = Pool::<u32>::default();
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
        let mut pool = Pool::<u32>::default();
        (0..200_u32).for_each(|value| pool.push(value));
        for value in (0..200).rev() {
            assert_eq!(pool.pop(), Some(value));
        }
        assert_eq!(pool.pop(), None);
    }

    #[test]
    fn a_clone_shares_pieces_until_one_side_changes_them() {
        let mut pool = Pool::<Vec<u32>>::default();
        (0..100_u32).for_each(|value| pool.push(vec![value]));
        let kept = pool.clone();
        pool[50] = vec![7];
        pool.push(vec![100]);
        assert_eq!((&kept[50], &pool[50]), (&vec![50], &vec![7]));
        let pieces = kept.pieces.iter().zip(&pool.pieces);
        let copied = pieces.filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!(copied.count(), 2, "that of 50, and the last");
        assert_eq!((kept.len(), pool.len()), (100, 101));
    }
}
