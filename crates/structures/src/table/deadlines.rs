//! Deadlines of a table's entries: a heap, earliest first.
//!
//! A changed deadline leaves its old mark behind. Marks are checked against the entries when their
//! time comes. When more than half of the marks are stale, the heap is rebuilt, so it has at most
//! twice the marks needed, 16 bytes each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Up to this number of marks a rebuild does not pay.
const MARKS_MIN: usize = 64;

/// A deadline of an entry, and the hash of its key.
pub(super) type Mark = (u64, u64);

#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    marks: BinaryHeap<Reverse<Mark>>,
    /// Number of entries that have a deadline.
    live: usize,
}

impl Deadlines {
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn add(&mut self, mark: Mark) {
        self.marks.push(Reverse(mark));
        self.live += 1;
    }

    /// Records that an entry lost its deadline, or got another, which is added separately.
    pub(super) fn forget(&mut self) {
        self.live -= 1;
    }

    pub(super) fn first(&self) -> Option<Mark> {
        self.marks.peek().map(|mark| mark.0)
    }

    pub(super) fn drop_first(&mut self) {
        self.marks.pop();
    }

    pub(super) fn is_mostly_stale(&self) -> bool {
        self.marks.len() > MARKS_MIN && self.marks.len() > 2 * self.live
    }

    /// Replaces all marks.
    pub(super) fn rebuild(&mut self, marks: Vec<Mark>) {
        self.live = marks.len();
        self.marks = marks.into_iter().map(Reverse).collect();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.marks.capacity() * size_of::<Reverse<Mark>>()
    }
}
