//! Ownership of hash slots while they move from one shard to another, as far as the control state
//! decides it: when a move may begin, when a node may take slots in, and which of a node's keys may
//! be removed.
//!
//! ```text
//!   source: begin ─► copy … ─► Entry::Move, with what `begin` found ─► lost: removed
//!   target:         may_take_in ─► copy … ─► (link gone) Entry::EndMoves ─► lost: removed
//! ```
//!
//! Invariant: callers pass the state of a read barrier. A state that a node merely knows may be
//! old, and a node that relied on it would remove its own keys.

use crate::entry::{Entry, SlotRange};
use crate::state::{ControlState, NodeId, ShardId};

/// The two shards of a move, each with the index of its last entry when the copy began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The shard that has the slots.
    pub from: (ShardId, u64),
    /// The shard that gets them.
    pub to: (ShardId, u64),
}

impl Ends {
    /// Returns the entry that hands the slots over if both shards are as they were when the copy
    /// began.
    #[must_use]
    pub fn entry(&self, ranges: &[SlotRange]) -> Entry {
        Entry::Move {
            ranges: ranges.to_vec(),
            from: self.from,
            to: self.to,
        }
    }
}

/// How a requested move may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outset {
    /// The target owns the slots already: the reply was lost with the process that waited for it.
    Done,
    /// The copy may begin.
    Begin(Ends),
    /// The copy may begin once the source is in office in the present term. Earlier, the source
    /// could be restarted, take that office, and serve the slots while the proposed move gives them
    /// away.
    NotInOffice,
}

/// Decides whether slots may be moved from one node to another. `office` is the term in which the
/// source is in office.
///
/// # Errors
/// Why they may not.
pub fn begin(
    state: &ControlState,
    (source, target): (NodeId, NodeId),
    office: u64,
    ranges: &[SlotRange],
) -> Result<Outset, &'static str> {
    let to = state.shard_of(target);
    if to.is_some_and(|to| are_of(state, to, ranges)) {
        return Ok(Outset::Done);
    }
    let (from, term) =
        primary_of(state, source).ok_or("this node is not the primary of a shard")?;
    let (to, _) = primary_of(state, target).ok_or("the target is not the primary of a shard")?;
    if from.0 == to.0 {
        return Err("source and target are of one shard");
    }
    if !are_of(state, from.0, ranges) {
        return Err("not all of the slots are this node's");
    }
    Ok(match term == office {
        true => Outset::Begin(Ends { from, to }),
        false => Outset::NotInOffice,
    })
}

/// Checks whether a node may take in slots that another node sends. What it has of them may be
/// removed then.
///
/// # Errors
/// Why it may not.
pub fn may_take_in(
    state: &ControlState,
    (source, target): (NodeId, NodeId),
    ranges: &[SlotRange],
) -> Result<(), &'static str> {
    primary_of(state, target).ok_or("the target is not the primary of a shard")?;
    let source = state.shard_of(source);
    match source.is_some_and(|source| are_of(state, source, ranges)) {
        true => Ok(()),
        false => Err("the slots are not the source's, as far as the target knows"),
    }
}

/// Returns those of `ranges` that another shard owns: a node may remove their keys. A range stays
/// whole if another shard owns all of it.
#[must_use]
pub fn lost(state: &ControlState, own: NodeId, ranges: &[SlotRange]) -> Vec<SlotRange> {
    let Some(own) = state.shard_of(own) else {
        return Vec::new();
    };
    let is_lost = |slot: &u16| state.slots.owner(*slot).is_some_and(|owner| owner != own);
    let lost = ranges.iter();
    lost.flat_map(|&(first, last)| ranges_of((first..=last).filter(is_lost)))
        .collect()
}

/// Whether a node's shard owns the first of some slots, which have one owner.
#[must_use]
pub fn is_own(state: &ControlState, own: NodeId, ranges: &[SlotRange]) -> bool {
    let own = state.shard_of(own);
    let first = ranges.first().map_or(0, |(first, _)| *first);
    own.is_some() && state.slots.owner(first) == own
}

/// Combines slots, in ascending order, into ranges.
pub fn ranges_of(slots: impl Iterator<Item = u16>) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(slot) => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    ranges
}

/// Returns the shard of which a node is the primary, with the index of the last entry about it, and
/// its term.
fn primary_of(state: &ControlState, node: NodeId) -> Option<((ShardId, u64), u64)> {
    let id = state.shard_of(node)?;
    let shard = state.shards.get(&id)?;
    (shard.primary == node).then_some(((id, shard.epoch), shard.term))
}

fn are_of(state: &ControlState, shard: ShardId, ranges: &[SlotRange]) -> bool {
    let mut slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
    slots.all(|slot| state.slots.owner(slot) == Some(shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_put_together_to_ranges() {
        assert_eq!(ranges_of(std::iter::empty()), []);
        let slots = [0, 1, 2, 5, 16_382, 16_383];
        assert_eq!(
            ranges_of(slots.into_iter()),
            [(0, 2), (5, 5), (16_382, 16_383)]
        );
    }
}
