//! Which connection each part of a turn's output belongs to.
//!
//! Output is written to two buffers: replies to the service's arena, and what a service sends to
//! other connections than the one being served ([`Io::write`](crate::Io::write)) to a buffer here.
//! One list of ranges, in the order of writing, spans both; within each buffer ranges are
//! adjacent, so that a range needs only its end. What many connections get is in neither: it is sent
//! to each from the one place where it lies.

use std::sync::Arc;

use crate::connections::ConnectionId;

/// Ranges of output in the order of writing.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) ranges: Vec<Range>,
    /// Output that is not in the arena.
    pub(crate) aside: Vec<u8>,
    /// What several connections get.
    pub(crate) shared: Vec<Arc<[u8]>>,
    /// How far the arena is addressed.
    addressed_bytes: usize,
}

/// Output of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// `None` for output that nobody was addressed with.
    pub(crate) id: Option<ConnectionId>,
    pub(crate) place: RangeBuffer,
    /// Where the range ends in its buffer; its number among those that are shared.
    pub(crate) end: usize,
}

/// The buffer that a range lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeBuffer {
    Arena,
    Other,
    Shared,
}

impl Outbox {
    /// Addresses the arena up to `arena_bytes` to `id`.
    #[inline]
    pub(crate) fn address(&mut self, id: Option<ConnectionId>, arena_bytes: usize) {
        if arena_bytes > self.addressed_bytes {
            self.addressed_bytes = arena_bytes;
            self.push(id, RangeBuffer::Arena, arena_bytes);
        }
    }

    /// Adds output aside from the arena.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.aside.extend_from_slice(bytes);
            self.push(Some(id), RangeBuffer::Other, self.aside.len());
        }
    }

    /// Adds bytes that are sent from where they lie.
    pub(crate) fn write_shared(&mut self, id: ConnectionId, bytes: &Arc<[u8]>) {
        if bytes.is_empty() {
            return;
        }
        let is_last = self
            .shared
            .last()
            .is_some_and(|last| Arc::ptr_eq(last, bytes));
        if !is_last {
            self.shared.push(Arc::clone(bytes));
        }
        self.ranges.push(Range {
            id: Some(id),
            place: RangeBuffer::Shared,
            end: self.shared.len() - 1,
        });
    }

    /// Forgets everything and gives back all memory aside beyond `capacity_bytes`.
    pub(crate) fn clear(&mut self, capacity_bytes: usize) {
        self.ranges.clear();
        self.aside.clear();
        self.shared.clear();
        self.aside.shrink_to(capacity_bytes);
        self.addressed_bytes = 0;
    }

    fn push(&mut self, id: Option<ConnectionId>, place: RangeBuffer, end: usize) {
        match self.ranges.last_mut() {
            Some(last) if last.id == id && last.place == place => last.end = end,
            _ => self.ranges.push(Range { id, place, end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> ConnectionId {
        ConnectionId::from_token(1 << 32 | number)
    }

    #[test]
    fn neighbours_of_one_connection_are_one_range() {
        let mut outbox = Outbox::default();
        outbox.address(Some(id(1)), 10);
        outbox.address(Some(id(1)), 30);
        outbox.address(Some(id(2)), 30);
        outbox.write(id(2), b"abc");
        outbox.write(id(2), b"de");
        outbox.write(id(3), b"");
        outbox.address(Some(id(2)), 40);
        let ends: Vec<_> = outbox.ranges.iter().map(|range| range.end).collect();
        assert_eq!(ends, [30, 5, 40]);
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        for number in [1, 1, 2] {
            outbox.write_shared(id(number), &shared);
        }
        let last = outbox.ranges.last().unwrap();
        assert_eq!((outbox.ranges.len(), last.end), (6, 0));
        outbox.clear(0);
        assert!(outbox.ranges.is_empty() && outbox.shared.is_empty());
        outbox.address(Some(id(4)), 1);
        assert_eq!(outbox.ranges.len(), 1);
    }
}
