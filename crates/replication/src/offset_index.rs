//! Finds the sequence in the log for an offset of the stream.
//!
//! ```text
//!   log      ├───────── 1 MiB ─────────┼───────── 1 MiB ─────────┼──► sequence
//!   entries  (seq, offset, database)   (seq, offset, database)
//!                                       └─ transcode from here ──► drop what is in front of the offset
//! ```
//!
//! A Redis replica that reconnects names an offset. The stream is not stored: it is made again from
//! the log, starting at the nearest entry below the offset. So a partial sync reaches as far back
//! as the log.
//!
//! Invariant: sequences of entries ascend, and offsets do not descend. There are at most
//! [`ENTRIES_MAX`] entries: when there would be more, every second one is dropped, and the distance
//! between them doubles.

use crate::transcode::Place;

/// Maximum number of entries.
pub const ENTRIES_MAX: usize = 16_384;
/// Initial number of log bytes between two entries.
pub const SPACING_BYTES: u64 = 1 << 20;

/// Where to begin for an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The place where the transcoder begins.
    pub place: Place,
    /// Number of bytes of its output that precede the offset.
    pub surplus_bytes: u64,
}

/// Places of one stream, oldest first.
#[derive(Clone, Debug)]
pub struct OffsetIndex {
    places: Vec<Place>,
    spacing_bytes: u64,
}

impl Default for OffsetIndex {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            spacing_bytes: SPACING_BYTES,
        }
    }
}

impl OffsetIndex {
    /// Creates an index that begins at the place where counting begins.
    #[must_use]
    pub fn new(first: Place) -> Self {
        let mut index = Self::default();
        index.note(first);
        index
    }

    /// Adds the place if it is far enough from the last one. O(1), except when entries are thinned
    /// out.
    pub fn note(&mut self, place: Place) {
        if let Some(last) = self.places.last() {
            let is_near = place.sequence < last.sequence.saturating_add(self.spacing_bytes);
            if is_near || place.offset < last.offset {
                return;
            }
        }
        if self.places.len() == ENTRIES_MAX {
            let mut at = 0;
            // Keeps the first entry, which says how far back the stream reaches.
            self.places.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.spacing_bytes = self.spacing_bytes.saturating_mul(2);
        }
        self.places.push(place);
    }

    /// Returns where to begin for the byte at `offset`, or `None` if it is older than all entries.
    /// O(log n).
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<Start> {
        let after = self.places.partition_point(|place| place.offset <= offset);
        let place = *self.places.get(after.checked_sub(1)?)?;
        Some(Start {
            place,
            surplus_bytes: offset - place.offset,
        })
    }

    /// Returns the oldest offset that can be found.
    #[must_use]
    pub fn oldest_offset(&self) -> Option<u64> {
        self.places.first().map(|place| place.offset)
    }

    /// Returns the entries, oldest first.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Drops the entries below `sequence`, where the log begins now.
    pub fn forget_below(&mut self, sequence: u64) {
        let below = self
            .places
            .partition_point(|place| place.sequence < sequence);
        self.places.drain(..below);
    }

    /// Drops the entries after `sequence`, where the log was truncated.
    pub fn truncate(&mut self, sequence: u64) {
        let kept = self
            .places
            .partition_point(|place| place.sequence <= sequence);
        self.places.truncate(kept);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    fn place(sequence: u64, offset: u64) -> Place {
        Place {
            sequence,
            offset,
            database: Some(0),
        }
    }

    #[test]
    fn the_nearest_entry_below_is_found() {
        let mut index = OffsetIndex::new(place(64, 1000));
        for step in 1..=4 * 1024 {
            index.note(place(64 + step * 1024, 1000 + step * 500));
        }
        assert_eq!(index.places().len(), 5);
        assert_eq!(index.find(999), None);
        let found = index.find(1000 + 1024 * 500 + 77).unwrap();
        assert_eq!(found.place, place(64 + SPACING_BYTES, 1000 + 1024 * 500));
        assert_eq!(found.surplus_bytes, 77);
        let last = index.find(u64::MAX).unwrap();
        assert_eq!(last.place.sequence, 64 + 4 * SPACING_BYTES);
    }

    #[test]
    fn what_the_log_lost_is_not_found() {
        let mut index = OffsetIndex::default();
        for step in 0..10 {
            index.note(place(step * SPACING_BYTES, step * 10));
        }
        index.forget_below(3 * SPACING_BYTES);
        assert_eq!(index.oldest_offset(), Some(30));
        assert_eq!(index.find(29), None);
        index.truncate(5 * SPACING_BYTES);
        assert_eq!(index.find(95).unwrap().place, place(5 * SPACING_BYTES, 50));
    }

    #[test]
    fn entries_are_bounded_and_the_oldest_one_stays() {
        let mut index = OffsetIndex::default();
        let count = 3 * ENTRIES_MAX as u64;
        for step in 0..count {
            index.note(place(step * SPACING_BYTES, step * 10));
            assert!(index.places().len() <= ENTRIES_MAX);
        }
        assert_eq!(index.oldest_offset(), Some(0));
        let rises = |pair: &[Place]| pair[0].sequence < pair[1].sequence;
        assert!(index.places().windows(2).all(rises));
        // The place found is never further away than the distance between entries.
        let spacing_steps = 4;
        for step in (0..count - spacing_steps).step_by(997) {
            let found = index.find(step * 10).unwrap();
            assert!(found.surplus_bytes < spacing_steps * 10, "{step}");
        }
    }
}
