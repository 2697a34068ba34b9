//! Maintenance of sealed segments: compaction of their live entries, and scrubbing of all entries.

use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::entry::EntryHead;
use crate::fault::TierFault;
use crate::segment::Segment;
use crate::tier::{Place, Purpose, Tier, lock, place};

impl Tier {
    /// Returns the slot of the sealed segment with the smallest live part, if that is below
    /// `percent`, or of one that could not be synced.
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

    /// Moves the named entries of a segment to other segments. `is_named` returns whether an entry
    /// is named at a place. `moved` changes its name from one place to another, and returns whether
    /// that succeeded. Returns the number of moved entries. They keep their compression, except
    /// entries that need a dictionary which is no longer in use. These are compressed again, unless
    /// that would make them longer.
    ///
    /// # Errors
    /// The same as those of [`Tier::append`] and [`Tier::read`]. A segment with an entry that
    /// cannot be read is left unchanged from then on.
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

    /// Reads all entries of the next sealed segment after this ordinal that is not known to be
    /// damaged. Returns its ordinal, and the fault of the first bad entry, or `None` if there is no
    /// such segment. `pace` gets the length of each entry, and returns whether to continue.
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
                // Ends the scan; this is not reported as a fault.
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

    /// Reads all entries of all segments, and the dictionaries. Returns the number of entries, and
    /// the faults of the first bad entry of each segment and of dictionaries.
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
