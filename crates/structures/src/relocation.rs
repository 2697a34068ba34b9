//! Moves the pieces of collections to where their allocator has them close together.
//!
//! After most collections are deleted, the remaining ones are spread thinly over the allocator's
//! pages, a piece or two in each, and no page becomes free. The caller knows the allocator and
//! decides for each piece whether it should move; this module enumerates the pieces. A move
//! allocates a new piece of the same length and frees the old one. No counter changes, and no
//! client sees it.
//!
//! A collection may have millions of pieces, and its key is locked meanwhile. So a [`Relocation`]
//! does a bounded amount of work and reports where it stopped. The collection may change before the
//! next relocation begins there; then some pieces are skipped or visited twice.
//!
//! A piece that a copy of the collection shares is not moved, because that would create a second
//! piece.

use std::mem::replace;
use std::sync::Arc;

/// Cost of asking whether a piece should move, in bytes moved.
const LOOK_COST: u64 = 128;

/// Cost of a move besides its bytes.
const MOVE_COST: u64 = 256;

/// One bounded step of moving the pieces of a collection. See the module documentation.
pub struct Relocation<'j> {
    wants_move: &'j mut dyn FnMut(*const u8) -> bool,
    /// Number of pieces at the front that are still to be skipped.
    passed_by: usize,
    /// The first piece that was not visited.
    place: usize,
    work_left: u64,
    is_cut: bool,
    moved: u64,
    left: u64,
}

impl<'j> Relocation<'j> {
    /// Creates a relocation that starts at piece number `from` and does about as much work as
    /// moving `work_bytes`. `wants_move` returns whether the piece at an address should move.
    #[must_use]
    pub fn new(
        from: usize,
        work_bytes: u64,
        wants_move: &'j mut dyn FnMut(*const u8) -> bool,
    ) -> Self {
        Self {
            wants_move,
            passed_by: from,
            place: from,
            work_left: work_bytes,
            is_cut: false,
            moved: 0,
            left: 0,
        }
    }

    /// Returns where the next relocation has to begin, or `None` if this one reached the end.
    #[must_use]
    pub fn rest(&self) -> Option<usize> {
        self.is_cut.then_some(self.place)
    }

    /// Returns the work that was not done, in bytes.
    #[must_use]
    pub fn work_left(&self) -> u64 {
        self.work_left
    }

    /// Returns the number of allocations that were moved, and of those that were left in place.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.moved, self.left)
    }

    /// Returns how many of the next `len` pieces are skipped.
    pub(crate) fn pass_by(&mut self, len: usize) -> usize {
        let count = self.passed_by.min(len);
        self.passed_by -= count;
        count
    }

    /// Whether there is work left for another piece.
    pub(crate) fn is_next(&mut self) -> bool {
        if self.work_left == 0 {
            self.is_cut = true;
            return false;
        }
        self.place += 1;
        true
    }

    /// Whether the next piece, which stands alone, is to be visited.
    pub(crate) fn is_one_next(&mut self) -> bool {
        self.pass_by(1) == 0 && self.is_next()
    }

    /// Whether the piece at an address should move. Counts the work for it.
    fn wants(&mut self, address: *const u8, bytes: usize) -> bool {
        let wants = (self.wants_move)(address);
        let cost = match wants {
            true => LOOK_COST + MOVE_COST + bytes as u64,
            false => LOOK_COST,
        };
        self.work_left = self.work_left.saturating_sub(cost);
        self.moved += u64::from(wants);
        self.left += u64::from(!wants);
        wants
    }

    /// Whether the piece of `bytes` bytes that contains `value` should move.
    pub(crate) fn wants_at<T>(&mut self, value: &T, bytes: usize) -> bool {
        self.wants((&raw const *value).cast(), bytes)
    }

    /// Moves a buffer with its content. Its capacity stays the same. Returns whether it was moved.
    pub fn buffer<T>(&mut self, buffer: &mut Vec<T>) -> bool {
        let bytes = buffer.capacity() * size_of::<T>();
        let wants = bytes > 0 && self.wants(buffer.as_ptr().cast(), bytes);
        if wants {
            let mut moved = Vec::with_capacity(buffer.capacity());
            moved.append(buffer);
            *buffer = moved;
        }
        wants
    }

    /// Moves bytes of a fixed length.
    pub(crate) fn bytes(&mut self, bytes: &mut Box<[u8]>) {
        if !bytes.is_empty() && self.wants(bytes.as_ptr(), bytes.len()) {
            *bytes = bytes[..].into();
        }
    }

    /// Moves a value in a box. `empty` takes its place meanwhile. Returns whether it was moved.
    pub fn boxed<T>(&mut self, value: &mut Box<T>, empty: impl FnOnce() -> T) -> bool {
        let wants = self.wants((&raw const **value).cast(), size_of::<T>());
        if wants {
            let moved = Box::new(replace(&mut **value, empty()));
            drop(replace(value, moved));
        }
        wants
    }

    /// Moves a value behind an `Arc` unless it is shared. `empty` takes its place meanwhile.
    /// Returns the value so that its own pieces can be moved, or `None` if it is shared.
    pub(crate) fn unshared<'v, T>(
        &mut self,
        value: &'v mut Arc<T>,
        empty: impl FnOnce() -> T,
    ) -> Option<&'v mut T> {
        let address = Arc::as_ptr(value).cast();
        let inner = Arc::get_mut(value)?;
        if self.wants(address, size_of::<T>()) {
            let moved = Arc::new(replace(inner, empty()));
            *value = moved;
        }
        Arc::get_mut(value)
    }
}

impl std::fmt::Debug for Relocation<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relocation")
            .field("place", &self.place)
            .field("work_left", &self.work_left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
