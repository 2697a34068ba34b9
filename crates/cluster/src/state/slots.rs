//! Owners of hash slots.

use std::collections::BTreeMap;

use super::ShardId;
use crate::bytes::{Malformed, Reader, Writer};
use crate::entry::{SlotRange, are_ranges};

/// Ranges by their first slot, with their last slot and owner. They do not overlap, and adjacent
/// ranges of one owner are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(BTreeMap<u16, (u16, ShardId)>);

impl Slots {
    /// Returns the owner of a slot.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<ShardId> {
        let (_, (last, owner)) = self.0.range(..=slot).next_back()?;
        (slot <= *last).then_some(*owner)
    }

    /// Returns all ranges that have an owner, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (SlotRange, ShardId)> {
        self.0
            .iter()
            .map(|(first, (last, owner))| ((*first, *last), *owner))
    }

    /// Returns the ranges of one owner.
    #[must_use]
    pub fn of(&self, owner: ShardId) -> Vec<SlotRange> {
        let ranges = self.ranges().filter(|(_, of)| *of == owner);
        ranges.map(|(range, _)| range).collect()
    }

    /// Returns the number of slots that have an owner.
    #[must_use]
    pub fn count(&self) -> usize {
        let counts = self
            .ranges()
            .map(|((first, last), _)| usize::from(last - first) + 1);
        counts.sum()
    }

    /// Whether all slots of a range have this owner, or none.
    pub(super) fn are_of(&self, (first, last): SlotRange, owner: Option<ShardId>) -> bool {
        (first..=last).all(|slot| self.owner(slot) == owner)
    }

    /// Sets the owner of a range, or removes it.
    pub(super) fn set(&mut self, (first, last): SlotRange, owner: Option<ShardId>) {
        self.split(first);
        if let Some(after) = last.checked_add(1) {
            self.split(after);
        }
        self.0.retain(|at, _| !(first..=last).contains(at));
        let Some(owner) = owner else { return };
        let (mut from, mut to) = (first, last);
        let before = self.0.range(..first).next_back();
        if let Some((&at, &(end, of))) = before
            && of == owner
            && end.checked_add(1) == Some(first)
        {
            from = at;
        }
        if let Some(after) = last.checked_add(1)
            && let Some(&(end, of)) = self.0.get(&after)
            && of == owner
        {
            self.0.remove(&after);
            to = end;
        }
        self.0.insert(from, (to, owner));
    }

    /// Splits a range that crosses `slot`, so that one begins there.
    fn split(&mut self, slot: u16) {
        let Some((_, (last, owner))) = self.0.range_mut(..slot).next_back() else {
            return;
        };
        if *last >= slot {
            let rest = (*last, *owner);
            *last = slot - 1;
            self.0.insert(slot, rest);
        }
    }

    pub(super) fn encode(&self, writer: &mut Writer) {
        writer.count(self.0.len());
        for ((first, last), owner) in self.ranges() {
            writer.u16(first).u16(last).u32(owner.0);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut slots = Self::default();
        let mut ranges = Vec::new();
        for _ in 0..reader.count()? {
            let range = (reader.u16()?, reader.u16()?);
            ranges.push((range, ShardId(reader.u32()?)));
        }
        let plain: Vec<SlotRange> = ranges.iter().map(|(range, _)| *range).collect();
        if !are_ranges(&plain) {
            return Err(Malformed::Value);
        }
        for (range, owner) in ranges {
            slots.set(range, Some(owner));
        }
        Ok(slots)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_split_and_joined() {
        let (one, two) = (ShardId(1), ShardId(2));
        let mut slots = Slots::default();
        slots.set((0, 16_383), Some(one));
        slots.set((100, 200), Some(two));
        slots.set((201, 300), Some(two));
        let ranges: Vec<_> = slots.ranges().collect();
        assert_eq!(
            ranges,
            [((0, 99), one), ((100, 300), two), ((301, 16_383), one)]
        );
        assert_eq!((slots.owner(99), slots.owner(100)), (Some(one), Some(two)));
        slots.set((50, 16_383), None);
        assert_eq!((slots.of(one), slots.count()), (vec![(0, 49)], 50));
        slots.set((50, 50), Some(one));
        assert_eq!(slots.of(one), [(0, 50)]);
    }

    #[test]
    fn it_is_as_a_plain_table_of_owners() {
        let mut slots = Slots::default();
        let mut plain = vec![None; 64];
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let slot = |number: u64| u16::try_from(number).unwrap();
            let first = slot(next(64));
            let last = first + slot(next(u64::from(64 - first)));
            let owner = u32::try_from(next(4)).unwrap();
            let owner = (owner > 0).then_some(ShardId(owner));
            slots.set((first, last), owner);
            plain[usize::from(first)..=usize::from(last)].fill(owner);
            let seen: Vec<_> = (0..64).map(|slot| slots.owner(slot)).collect();
            assert_eq!(seen, plain);
            let ranges: Vec<_> = slots.ranges().collect();
            let touch = |pair: &[((u16, u16), ShardId)]| {
                pair[0].0.1 + 1 == pair[1].0.0 && pair[0].1 == pair[1].1
            };
            assert!(!ranges.windows(2).any(touch), "{ranges:?}");
        }
    }
}
