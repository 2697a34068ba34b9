//! Entries that somebody else reads the bytes of: who has the kernel read many at once, beside what it does.
//!
//! ```text
//!   file being written   through the system's cache, which has what is not on the device yet
//!   sealed ─► settled    the device has all of it, the cache nothing: whole blocks, past the cache
//! ```
//!
//! So values do not push out of the system's memory what others have there, nor take a page of it each.

use std::fs::File;
use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::entry::OwnedEntry;
use crate::fault::TierFault;
use crate::segment::Segment;
use crate::tier::{Place, Tier, entry_at, lock};

/// An entry whose bytes somebody else reads. Its segment's file stays open as long as this lives.
#[derive(Debug)]
pub struct EntryRead {
    segment: Arc<Segment>,
    offset_bytes: u64,
    bytes: usize,
}

/// What is to be read for an entry.
#[derive(Debug)]
pub struct Extent {
    /// Of which file.
    pub file: Arc<File>,
    /// From where on.
    pub offset_bytes: u64,
    /// How many bytes, with those before and behind the entry that blocks have.
    pub bytes: usize,
}

impl EntryRead {
    /// What is to be read. None where the segment is no file of the system.
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

    /// The entry of a key, in what was read of an [extent](Self::extent), which began there.
    ///
    /// # Errors
    /// As [`Tier::read`], which may do better: it tries again.
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
    /// An entry to be read by somebody else, in the segment of this ordinal. None where its slot has another by now.
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

    /// Sees to it that a sealed segment is on the device, and can be read past the system's cache; whether there was one of
    /// which that was not seen to. Takes its time. For one thread.
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
        // Nobody else sets it.
        let _already_set = segment.blocks.set(blocks);
        true
    }
}
