//! When entries of a table stop to exist: a heap of deadlines, earliest first.
//!
//! A changed deadline leaves its old mark behind; marks are held against the entries when their
//! time comes. Once more than half of the marks are stale the heap is built anew, so it holds at most
//! twice what is needed, 16 bytes a mark.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So few marks are never worth a rebuild.
const MARKS_MIN: usize = 64;

/// An entry that stops to exist: when, and its hash.
pub(super) type Mark = (u64, u64);

#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    marks: BinaryHeap<Reverse<Mark>>,
    /// Entries that have a deadline.
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

    /// An entry lost its deadline, or got another that is added beside.
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

    /// Only these marks count from now on.
    pub(super) fn rebuild(&mut self, marks: Vec<Mark>) {
        self.live = marks.len();
        self.marks = marks.into_iter().map(Reverse).collect();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.marks.capacity() * size_of::<Reverse<Mark>>()
    }
}
