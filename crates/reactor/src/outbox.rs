//! Maps each part of a turn's output to its connection.
//!
//! Output is written to two buffers: replies to the service's arena, and what a service sends to
//! connections other than the one being served ([`Io::write`](crate::Io::write)) to a buffer here.
//! One list of ranges, in the order of writing, covers both. Within each buffer ranges are
//! adjacent, so a range needs only its end. Bytes that many connections get are in neither buffer:
//! they are sent to each connection from a shared copy.

use std::sync::Arc;

use crate::connections::ConnectionId;

/// Ranges of output in the order of writing.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) ranges: Vec<Range>,
    /// Output outside the arena.
    pub(crate) aside: Vec<u8>,
    /// Bytes that several connections get.
    pub(crate) shared: Vec<Arc<[u8]>>,
    /// Length of the addressed part of the arena.
    addressed_bytes: usize,
}

/// Output of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// The connection, or `None` for output that is not addressed.
    pub(crate) id: Option<ConnectionId>,
    pub(crate) place: RangeBuffer,
    /// End of the range in its buffer; for shared bytes, their index.
    pub(crate) end: usize,
}

/// The buffer of a range.
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

    /// Adds output outside the arena.
    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.aside.extend_from_slice(bytes);
            self.push(Some(id), RangeBuffer::Other, self.aside.len());
        }
    }

    /// Adds bytes that are sent without being copied.
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

    /// Clears everything and frees the memory outside the arena beyond `capacity_bytes`.
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
