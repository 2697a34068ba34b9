//! Where in the log an offset of the stream is.
//!
//! ```text
//!   log      ├───────── 1 MiB ─────────┼───────── 1 MiB ─────────┼──► sequence
//!   entries  (seq, offset, database)   (seq, offset, database)
//!                                       └─ transcode from here ──► drop what is in front of the offset
//! ```
//!
//! A Redis replica that comes back names an offset. The stream is not kept: it is made again from the log, from
//! the nearest entry below. So a partial resync reaches as far as the log does.
//!
//! Invariant: entries rise in sequence and do not fall in offset. There are at most [`ENTRIES_MAX`]: with
//! more log than that every second one goes, and the distance between them doubles.

use crate::transcode::Place;

/// Entries that are kept.
pub const ENTRIES_MAX: usize = 16_384;
/// Bytes of log between two entries, at first.
pub const SPACING_BYTES: u64 = 1 << 20;

/// Where to begin, for an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The transcoder begins here.
    pub place: Place,
    /// So many bytes of what it makes come before the offset.
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
    /// An index that begins at a place: where counting begins.
    #[must_use]
    pub fn new(first: Place) -> Self {
        let mut index = Self::default();
        index.note(first);
        index
    }

    /// Keeps the place if the last one is far enough away. O(1) but when entries are thinned out.
    pub fn note(&mut self, place: Place) {
        if let Some(last) = self.places.last() {
            let is_near = place.sequence < last.sequence.saturating_add(self.spacing_bytes);
            if is_near || place.offset < last.offset {
                return;
            }
        }
        if self.places.len() == ENTRIES_MAX {
            let mut at = 0;
            // The first one stays: it says how far back the stream reaches.
            self.places.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.spacing_bytes = self.spacing_bytes.saturating_mul(2);
        }
        self.places.push(place);
    }

    /// Where to begin for the byte at `offset`; none when that is older than everything here. O(log n).
    #[must_use]
    pub fn find(&self, offset: u64) -> Option<Start> {
        let after = self.places.partition_point(|place| place.offset <= offset);
        let place = *self.places.get(after.checked_sub(1)?)?;
        Some(Start {
            place,
            surplus_bytes: offset - place.offset,
        })
    }

    /// The oldest offset that can be found.
    #[must_use]
    pub fn oldest_offset(&self) -> Option<u64> {
        self.places.first().map(|place| place.offset)
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The log does not reach back below `sequence` any more.
    pub fn forget_below(&mut self, sequence: u64) {
        let below = self
            .places
            .partition_point(|place| place.sequence < sequence);
        self.places.drain(..below);
    }

    /// The log was truncated at `sequence`: later places are no more.
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
        // Found is never more than the distance away.
        let spacing_steps = 4;
        for step in (0..count - spacing_steps).step_by(997) {
            let found = index.find(step * 10).unwrap();
            assert!(found.surplus_bytes < spacing_steps * 10, "{step}");
        }
    }
}
