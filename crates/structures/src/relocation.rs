//! Moving the pieces that collections are made of to where their allocator has them close together.
//!
//! When most collections are gone, those that are left lie thinly over the allocator's pages, a piece or two in
//! each, and no page becomes free. Whoever knows the allocator says of a piece whether it should move; here is
//! which pieces there are. A move is a new piece of the same length, and the old one is freed: nothing that is
//! counted changes, and no client sees it.
//!
//! A collection may have millions of pieces, and its key is held meanwhile. So a [`Relocation`] does a bounded
//! amount of work and says where it stopped. The collection may change before the next one begins there: then some
//! pieces are passed by, or looked at twice.
//!
//! A piece that a copy of the collection shares stays where it is, as two would come of it.

use std::mem::replace;
use std::sync::Arc;

/// What it costs to ask where a piece lies, as bytes moved.
const LOOK_COST: u64 = 128;

/// What a move costs besides its bytes.
const MOVE_COST: u64 = 256;

/// Some of the pieces of a collection on their way elsewhere. See the module's head.
pub struct Relocation<'j> {
    wants_move: &'j mut dyn FnMut(*const u8) -> bool,
    /// Pieces in front that are passed by.
    passed_by: usize,
    /// The first piece that was not looked at.
    place: usize,
    work_left: u64,
    is_cut: bool,
    moved: u64,
    left: u64,
}

impl<'j> Relocation<'j> {
    /// From piece number `from` on, with about as much work as it takes to move `work_bytes`. `wants_move` says
    /// whether what lies at an address should lie elsewhere.
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

    /// Where the next is to begin; none when this came to the end.
    #[must_use]
    pub fn rest(&self) -> Option<usize> {
        self.is_cut.then_some(self.place)
    }

    /// Work that was not done, in bytes.
    #[must_use]
    pub fn work_left(&self) -> u64 {
        self.work_left
    }

    /// Allocations that were moved, and those that were left where they were.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.moved, self.left)
    }

    /// How many of `len` pieces, which come next, are passed by.
    pub(crate) fn pass_by(&mut self, len: usize) -> usize {
        let count = self.passed_by.min(len);
        self.passed_by -= count;
        count
    }

    /// Whether there is work left for one more piece.
    pub(crate) fn is_next(&mut self) -> bool {
        if self.work_left == 0 {
            self.is_cut = true;
            return false;
        }
        self.place += 1;
        true
    }

    /// Whether one piece, which comes next, is to be looked at.
    pub(crate) fn is_one_next(&mut self) -> bool {
        self.pass_by(1) == 0 && self.is_next()
    }

    /// Whether what lies at an address should move; counts the work for it.
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

    /// Whether what `value` is a part of, and which has so many bytes, should move.
    pub(crate) fn wants_at<T>(&mut self, value: &T, bytes: usize) -> bool {
        self.wants((&raw const *value).cast(), bytes)
    }

    /// Moves a buffer with what is in it; whether it was. Its capacity stays the same.
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

    /// Moves a value in a box; meanwhile `empty` stands in its place.
    pub fn boxed<T>(&mut self, value: &mut Box<T>, empty: impl FnOnce() -> T) -> bool {
        let wants = self.wants((&raw const **value).cast(), size_of::<T>());
        if wants {
            let moved = Box::new(replace(&mut **value, empty()));
            drop(replace(value, moved));
        }
        wants
    }

    /// Moves a value that may be shared, if it is not; meanwhile `empty` stands in its place. The value, for its
    /// own pieces.
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
