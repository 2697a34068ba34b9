//! Entries whose bytes the caller reads: it lets the kernel read many at once while it does other
//! work.
//!
//! ```text
//!   file being written   through the system's cache, which has what is not on the device yet
//!   sealed ─► settled    the device has all of it, the cache nothing: whole blocks, past the cache
//! ```
//!
//! So cold values neither evict other data from the system's memory, nor take a page of it each.

use std::fs::File;
use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::entry::OwnedEntry;
use crate::fault::TierFault;
use crate::segment::Segment;
use crate::tier::{Place, Tier, entry_at, lock};

/// An entry whose bytes the caller reads. Keeps its segment's file open.
#[derive(Debug)]
pub struct EntryRead {
    segment: Arc<Segment>,
    offset_bytes: u64,
    bytes: usize,
}

/// The range of a file to be read for an entry.
#[derive(Debug)]
pub struct Extent {
    /// The file.
    pub file: Arc<File>,
    /// Offset in the file.
    pub offset_bytes: u64,
    /// Length, including the bytes of its blocks before and after the entry.
    pub bytes: usize,
}

impl EntryRead {
    /// Returns the range to be read, or `None` if the segment is not a file of the system.
    #[must_use]
    pub fn extent(&self) -> Option<Extent> {
        let blocks = self.segment.blocks.get().and_then(Option::as_ref);
        let Some(blocks) = blocks else {
            return Some(Extent {
                file: Arc::clone(self.segment.file.system_file()?),
                offset_bytes: self.offset_bytes,
                bytes: self.bytes,
            });
        };
        let block = blocks.block_bytes as u64;
        let start = self.offset_bytes / block * block;
        let end = (self.offset_bytes + self.bytes as u64).next_multiple_of(block);
        Some(Extent {
            file: Arc::clone(&blocks.file),
            offset_bytes: start,
            bytes: usize::try_from(end - start).ok()?,
        })
    }

    /// Returns the entry of a key from the bytes of an [extent](Self::extent) that began at
    /// `from_bytes`.
    ///
    /// # Errors
    /// The same as those of [`Tier::read`], which may succeed because it retries.
    pub fn entry(&self, read: &[u8], from_bytes: u64, key: &[u8]) -> Result<OwnedEntry, TierFault> {
        let before = self.offset_bytes.checked_sub(from_bytes);
        let before = before.and_then(|before| usize::try_from(before).ok());
        let rest = before.and_then(|before| read.get(before..));
        let rest = rest.unwrap_or_default();
        let entry = &rest[..self.bytes.min(rest.len())];
        self.segment.entry_in(entry, self.offset_bytes, key)
    }
}

impl Tier {
    /// Returns an entry for the caller to read, in the segment with this ordinal, or `None` if its
    /// slot has another segment by now.
    #[must_use]
    pub fn entry_elsewhere(&self, place: Place, ordinal: u64) -> Option<EntryRead> {
        let segment = self.segment(place.slot).ok()?;
        let (offset_bytes, bytes) = entry_at(place);
        (segment.ordinal == ordinal).then_some(EntryRead {
            segment,
            offset_bytes,
            bytes,
        })
    }

    /// Writes a sealed segment to the device and opens it for reads that bypass the system's cache.
    /// Returns whether there was such a segment to handle. Takes long. Only one thread may call it.
    pub fn settle_next(&self) -> bool {
        let next = {
            let slots = lock(&self.slots);
            let mut all = slots.all();
            let is_left = |segment: &&Arc<Segment>| {
                segment.is_sealed.load(Ordering::Acquire) && segment.blocks.get().is_none()
            };
            all.find(is_left).map(Arc::clone)
        };
        let Some(segment) = next else {
            return false;
        };
        let end_bytes = segment.end_bytes.load(Ordering::Acquire);
        segment.file.settle(0..end_bytes);
        let blocks = self.disk.open_blocks(&segment.path);
        // No other thread sets it.
        let _already_set = segment.blocks.set(blocks);
        true
    }
}
