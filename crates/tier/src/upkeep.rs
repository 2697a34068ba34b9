//! What is done to segments that are full: what is in use of them is written together, and all of it is read again.

use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::entry::EntryHead;
use crate::fault::TierFault;
use crate::segment::Segment;
use crate::tier::{Place, Purpose, Tier, lock, place};

impl Tier {
    /// The slot of the sealed segment of which the smallest part is alive, if that is below `percent`, or one that could not
    /// be synced.
    #[must_use]
    pub fn next_to_compact(&self, percent: u64) -> Option<u32> {
        let slots = lock(&self.slots);
        let part = |segment: &Segment| {
            if segment.is_untrusted.load(Ordering::Relaxed) {
                return 0;
            }
            let end = segment.end_bytes.load(Ordering::Relaxed);
            segment.live_bytes.load(Ordering::Relaxed) * 100 / end.max(1)
        };
        let sealed = slots.all().filter(|segment| {
            segment.is_sealed.load(Ordering::Relaxed)
                && !segment.is_damaged.load(Ordering::Relaxed)
                && segment.live_bytes.load(Ordering::Relaxed) > 0
        });
        let least = sealed.min_by_key(|segment| (part(segment), segment.ordinal))?;
        (part(least) < percent).then_some(least.slot)
    }

    /// Writes what is still named of a segment elsewhere: `is_named` tells that of an entry and its place, and `moved`
    /// has its name changed from one place to another, and tells whether that was done. How many were moved. They stay
    /// compressed as they are; but what needs a dictionary that is not in use any more does not need it afterwards, unless that
    /// would make it longer.
    ///
    /// # Errors
    /// As [`Tier::append`] and [`Tier::read`]. A segment with an entry that cannot be read is left as it is from
    /// then on.
    pub fn compact(
        &self,
        slot: u32,
        mut is_named: impl FnMut(&EntryHead<'_>, Place) -> bool,
        mut moved: impl FnMut(&EntryHead<'_>, Place, Place) -> bool,
    ) -> Result<u64, TierFault> {
        let segment = self.segment(slot)?;
        let mut count = 0;
        let mut packer = self.codecs.packer();
        let scanned = segment.scan(|offset, bytes, entry| {
            let old = place(slot, offset, bytes)?;
            if !is_named(&entry.head, old) {
                return Ok(());
            }
            let number = entry.dictionary().map(|one| one.name.number);
            let entry = match number {
                Some(_) if number != packer.dictionary() => entry
                    .again(&self.codecs, &mut packer)
                    .map_err(|what| segment.damaged(offset, what))?,
                _ => entry,
            };
            let appended = self.append_stored(std::slice::from_ref(&entry), Purpose::Compaction)?;
            let new = appended.into_iter().next().ok_or(TierFault::TooLong)?;
            self.compacted_bytes
                .fetch_add(bytes as u64, Ordering::Relaxed);
            if moved(&entry.head, old, new) {
                self.forget(old);
                count += 1;
            } else {
                self.forget(new);
            }
            Ok(())
        });
        if scanned.as_ref().is_err_and(TierFault::is_damage) {
            segment.is_damaged.store(true, Ordering::Relaxed);
        }
        scanned.map(|()| count)
    }

    /// Reads all entries of the sealed segment that comes after this ordinal and was not found damaged yet: its ordinal, and
    /// what is wrong with the first bad one. `pace` is told the length of each, and says whether to go on. None where
    /// there is no such segment.
    pub fn scrub_after(
        &self,
        ordinal: u64,
        pace: &mut dyn FnMut(u64) -> bool,
    ) -> Option<(u64, Result<(), TierFault>)> {
        let next = {
            let slots = lock(&self.slots);
            let later = slots.all().filter(|segment| {
                segment.ordinal > ordinal
                    && segment.is_sealed.load(Ordering::Relaxed)
                    && !segment.is_damaged.load(Ordering::Relaxed)
            });
            later.min_by_key(|segment| segment.ordinal).map(Arc::clone)
        }?;
        let mut goes_on = true;
        let scanned = next.scan(|_, bytes, _| {
            goes_on = pace(bytes as u64);
            match goes_on {
                true => Ok(()),
                // Ends the scan, and is nothing that is wrong.
                false => Err(TierFault::Full),
            }
        });
        if !goes_on {
            return Some((next.ordinal, Ok(())));
        }
        if scanned.as_ref().is_err_and(TierFault::is_damage) {
            next.is_damaged.store(true, Ordering::Relaxed);
        }
        Some((next.ordinal, scanned))
    }

    /// Reads all entries of all segments, and the dictionaries; how many entries, and what is wrong with the first bad one of
    /// each segment, and with dictionaries.
    #[must_use]
    pub fn scrub(&self) -> (u64, Vec<TierFault>) {
        let segments: Vec<_> = lock(&self.slots).all().map(Arc::clone).collect();
        let (mut count, mut faults) = (0, self.scrub_dictionaries());
        for segment in segments {
            let scanned = segment.scan(|_, _, _| {
                count += 1;
                Ok(())
            });
            faults.extend(scanned.err());
        }
        (count, faults)
    }
}
