//! Segments that are kept while the caller records their entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::segment::Segment;

/// Keeps segments from being removed, and counts the recorded entries in them.
#[derive(Debug, Default)]
pub struct Hold {
    /// Segments by slot. The slots stay the same while the segments are held.
    held: BTreeMap<u32, (Arc<Segment>, u64)>,
}

impl Hold {
    /// Counts one more entry of a held segment. Returns its ordinal, or `None` if it is not held.
    pub(crate) fn again(&mut self, slot: u32) -> Option<u64> {
        let (segment, entries) = self.held.get_mut(&slot)?;
        *entries += 1;
        Some(segment.ordinal)
    }

    /// Holds one more segment, with one entry. Returns its ordinal.
    pub(crate) fn take(&mut self, segment: Arc<Segment>) -> u64 {
        segment.pins.fetch_add(1, Ordering::AcqRel);
        let ordinal = segment.ordinal;
        self.held.insert(segment.slot, (segment, 1));
        ordinal
    }

    /// Takes over what another hold keeps.
    pub fn join(&mut self, mut other: Self) {
        for (slot, (segment, entries)) in std::mem::take(&mut other.held) {
            match self.held.get_mut(&slot) {
                Some((_, own)) => {
                    *own += entries;
                    segment.pins.fetch_sub(1, Ordering::AcqRel);
                }
                None => {
                    self.held.insert(slot, (segment, entries));
                }
            }
        }
    }

    /// Whether it holds no segments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Arc<Segment>, u64)> {
        self.held
            .values()
            .map(|(segment, entries)| (segment, *entries))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for (segment, _) in self.held.values() {
            segment.pins.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
