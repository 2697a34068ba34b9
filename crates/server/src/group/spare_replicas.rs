//! A shard that lost its last replica gets one from a shard with replicas to spare
//! (`cluster-migration-barrier`).
//!
//! ```text
//!   a primary with hash slots, whose replicas were lost or left, 5 s ago
//!     └─► of the shard with the most replicas, if those are more than the barrier: the replica with the lowest name
//! ```
//!
//! If the giving shard's writes wait for a majority, the replica first leaves that shard, by a
//! change that the old and the new members agree to, and is then in no shard. There the number of
//! copies is part of the promise to clients.
//!
//! ```text
//!   control leader: the replica is removed ─► both sets have what was committed: the change ends
//!     └─► the replica, of no shard: adds itself to a shard that lacks one; where none does any more, it begins its own, empty
//! ```
//!
//! The control leader keeps no state between the steps, so another node may be leader by then. One
//! replica moves at a time.

use std::collections::BTreeMap;

use cluster::state::{CopyKind, Drain, LEVEL_OF_SPARES, Shard, roles};
use cluster::{ControlState, NodeId, ShardId};

/// A replica that comes back within this time is not replaced, as in Redis.
const PATIENCE_MS: u64 = 5_000;
/// After this time without a check, the leader does not know how long a state has lasted.
const BLIND_MS: u64 = 1_000;

/// A replica that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The replica.
    pub(crate) node: NodeId,
    /// The shard that gets it.
    pub(crate) to: ShardId,
    /// The shard that it leaves first, if writes wait for a majority there.
    pub(crate) from: Option<ShardId>,
}

/// The control leader's observations of shards and their replicas.
#[derive(Debug, Default)]
pub(super) struct SpareReplicas {
    /// For each shard that has or had replicas: since when none of them is there.
    without_ms: BTreeMap<ShardId, Option<u64>>,
    looked_ms: u64,
}

impl SpareReplicas {
    /// Returns the next replica to move, if there is one.
    pub(super) fn next(
        &mut self,
        state: &ControlState,
        barrier: usize,
        now_ms: u64,
    ) -> Option<Move> {
        if now_ms > self.looked_ms + BLIND_MS {
            for since_ms in self.without_ms.values_mut() {
                *since_ms = None;
            }
        }
        self.looked_ms = now_ms;
        self.without_ms
            .retain(|id, _| state.shards.contains_key(id));
        let mut to = None;
        for (id, shard) in &state.shards {
            let is_there = has_replica(state, shard);
            // A shard that never had a replica is not meant to have one.
            if shard.members.len() > 1 {
                self.without_ms.entry(*id).or_default();
            }
            let Some(since_ms) = self.without_ms.get_mut(id) else {
                continue;
            };
            if is_there {
                *since_ms = None;
                continue;
            }
            let since_ms = *since_ms.get_or_insert(now_ms);
            if now_ms >= since_ms + PATIENCE_MS && lacks_replica(state, *id) && to.is_none() {
                to = Some(*id);
            }
        }
        let to = to.filter(|_| !is_one_on_its_way(state))?;
        let may_go = |id: &NodeId| {
            let node = state.nodes.get(id);
            node.is_some_and(|node| {
                node.record.roles & roles::STAYS == 0 && node.drain == Drain::No
            })
        };
        let others = state.shards.iter().filter(|(id, _)| **id != to);
        let donors = others.filter_map(|(id, shard)| {
            let replicas = replicas(state, shard);
            let spares = may_give(state, shard) && replicas.len() > barrier;
            let node = replicas.iter().copied().find(may_go).filter(|_| spares)?;
            let from = Some(*id).filter(|_| shard.is_quorum);
            Some((replicas.len(), std::cmp::Reverse(node), from))
        });
        // Among shards with equally many replicas, the replica with the lowest name.
        let (_, std::cmp::Reverse(node), from) = donors.max()?;
        Some(Move { node, to, from })
    }
}

/// Returns the shard that a released replica joins. Among the shards that lack a replica, one that
/// has lost its replica comes before one that never had any.
pub(super) fn needy(state: &ControlState) -> Option<ShardId> {
    let lacking = state.shards.iter();
    let lacking = lacking.filter(|(id, _)| lacks_replica(state, **id));
    let neediest = lacking.max_by_key(|(id, shard)| (shard.members.len(), std::cmp::Reverse(**id)));
    neediest.map(|(id, _)| *id)
}

/// Whether a further copy would be the shard's only one besides the primary's, and is of use.
fn lacks_replica(state: &ControlState, id: ShardId) -> bool {
    let shard = state.shards.get(&id);
    shard.is_some_and(|shard| {
        let lacks = !has_replica(state, shard) && !state.slots.of(id).is_empty();
        lacks && state.may_change(shard) && state.may_grow(shard)
    })
}

/// Whether a node with data is in no shard: it is about to join one, or to begin one.
fn is_one_on_its_way(state: &ControlState) -> bool {
    state.nodes.iter().any(|(id, node)| {
        let has_data = node.record.roles & roles::DATA != 0;
        let is_there = !node.is_failed && node.drain != Drain::Leaving;
        has_data && is_there && state.shard_of(*id).is_none()
    })
}

/// The replicas of a shard that are there, ordered by name.
fn replicas(state: &ControlState, shard: &Shard) -> Vec<NodeId> {
    let members = shard.members.iter();
    members
        .filter(|(id, kind)| **kind == CopyKind::Data && **id != shard.primary)
        .map(|(id, _)| *id)
        .filter(|id| state.is_there(*id))
        .collect()
}

fn has_replica(state: &ControlState, shard: &Shard) -> bool {
    !replicas(state, shard).is_empty()
}

/// Whether a shard can do without one of its replicas now.
fn may_give(state: &ControlState, shard: &Shard) -> bool {
    let knows = !shard.is_quorum || state.feature_level >= LEVEL_OF_SPARES;
    state.may_change(shard) && state.may_spare(shard) && knows
}

#[cfg(test)]
mod tests {
    use cluster::state::Node;

    use super::*;

    fn id(byte: u8) -> NodeId {
        NodeId([byte; 20])
    }

    /// Shards 0, 1 …, each with these nodes; the first node is the primary. Each shard owns one
    /// hash slot.
    fn state_of(shards: &[&[u8]]) -> ControlState {
        let mut state = ControlState::default();
        for (number, nodes) in (0..).zip(shards) {
            for byte in *nodes {
                state.nodes.insert(id(*byte), Node::default());
            }
            let shard = Shard {
                primary: id(nodes[0]),
                members: nodes.iter().map(|one| (id(*one), CopyKind::Data)).collect(),
                ..Shard::default()
            };
            state.shards.insert(ShardId(number), shard);
        }
        let index = state.index + 1;
        for (slot, shard) in (0..).zip(state.shards.keys().copied().collect::<Vec<_>>()) {
            let entry = cluster::Entry::Slots {
                ranges: vec![(slot, slot)],
                expected: None,
                owner: Some(shard),
            };
            let mut request = cluster::RequestId::default();
            request.0[..2].copy_from_slice(&slot.to_le_bytes());
            let proposal = cluster::Proposal { request, entry };
            assert_eq!(state.apply(index, &proposal), cluster::Applied::Done);
        }
        state
    }

    fn fail(state: &mut ControlState, byte: u8) {
        let node = state.nodes.get_mut(&id(byte)).expect("it is there");
        node.is_failed = true;
    }

    /// Returns the move after the state has lasted long enough.
    fn settled(spare: &mut SpareReplicas, state: &ControlState, barrier: usize) -> Option<Move> {
        let from_ms = spare.looked_ms;
        (0..=PATIENCE_MS / 500).find_map(|step| spare.next(state, barrier, from_ms + step * 500))
    }

    #[test]
    fn the_last_replica_is_replaced_by_one_of_the_shard_that_has_most() {
        let mut state = state_of(&[&[1, 11], &[2, 21, 22], &[3, 33, 32, 31]]);
        let mut spare = SpareReplicas::default();
        assert_eq!(settled(&mut spare, &state, 1), None);
        fail(&mut state, 11);
        let now_ms = spare.looked_ms + 500;
        assert_eq!(spare.next(&state, 1, now_ms), None, "it may come back");
        let (to, from) = (ShardId(0), None);
        let node = id(31);
        assert_eq!(
            settled(&mut spare, &state, 1),
            Some(Move { node, to, from })
        );
        assert_eq!(settled(&mut spare, &state, 3), None, "below the barrier");
        // A node that must stay does not move, nor does a drained one.
        let one = state.nodes.get_mut(&node).expect("it is there");
        one.record.roles |= roles::STAYS;
        let node = id(32);
        assert_eq!(
            settled(&mut spare, &state, 1),
            Some(Move { node, to, from })
        );
        state.nodes.get_mut(&node).expect("it is there").drain = Drain::Drained;
        let node = id(33);
        assert_eq!(
            settled(&mut spare, &state, 1),
            Some(Move { node, to, from })
        );
    }

    #[test]
    fn a_replica_that_left_is_replaced_too_and_one_that_never_was_is_not() {
        let mut state = state_of(&[&[1], &[2, 21, 22]]);
        let mut spare = SpareReplicas::default();
        assert_eq!(settled(&mut spare, &state, 1), None, "it never had one");
        state.nodes.insert(id(11), Node::default());
        let shard = |state: &mut ControlState, number| {
            let shard = state.shards.get_mut(&ShardId(number));
            std::mem::take(shard.expect("it is there"))
        };
        let mut changed = shard(&mut state, 0);
        changed.members.insert(id(11), CopyKind::Data);
        state.shards.insert(ShardId(0), changed.clone());
        assert_eq!(settled(&mut spare, &state, 1), None);
        changed.members.remove(&id(11));
        state.shards.insert(ShardId(0), changed);
        let moved = settled(&mut spare, &state, 1);
        assert_eq!(moved.map(|moved| moved.node), Some(id(21)));
    }

    #[test]
    fn nobody_moves_where_a_primary_is_lost_or_somebody_else_does() {
        let whole = state_of(&[&[1, 11], &[2, 21, 22]]);
        let changes: [fn(&mut ControlState); 4] = [
            |state| fail(state, 1),
            |state| fail(state, 2),
            |state| {
                let mut on_its_way = Node::default();
                on_its_way.record.roles |= roles::DATA;
                state.nodes.insert(id(9), on_its_way);
            },
            |state| {
                let shard = state.shards.get_mut(&ShardId(1)).expect("there");
                shard.old_members = Some(shard.members.clone());
            },
        ];
        for change in changes {
            let (mut state, mut spare) = (whole.clone(), SpareReplicas::default());
            assert_eq!(settled(&mut spare, &state, 1), None);
            fail(&mut state, 11);
            change(&mut state);
            assert_eq!(settled(&mut spare, &state, 1), None);
        }
    }

    /// Writes wait for a majority, and all nodes know the present level.
    fn at_quorum(shards: &[&[u8]], lost: &[u8]) -> ControlState {
        let mut state = state_of(shards);
        state.feature_level = LEVEL_OF_SPARES;
        for shard in state.shards.values_mut() {
            shard.is_quorum = true;
        }
        for byte in lost {
            fail(&mut state, *byte);
        }
        state
    }

    fn moved(state: &ControlState, barrier: usize) -> Option<(NodeId, Option<ShardId>)> {
        let moved = settled(&mut SpareReplicas::default(), state, barrier);
        moved.map(|moved| (moved.node, moved.from))
    }

    #[test]
    fn where_a_majority_counts_the_spare_one_leaves_its_shard_first() {
        let shards: &[&[u8]] = &[&[1, 11], &[2, 21, 22]];
        let mut state = at_quorum(shards, &[11]);
        assert_eq!(moved(&state, 1), Some((id(21), Some(ShardId(1)))));
        assert_eq!(moved(&state, 2), None, "below the barrier");
        assert_eq!(needy(&state), Some(ShardId(0)));
        state.feature_level = LEVEL_OF_SPARES - 1;
        assert_eq!(moved(&state, 1), None, "it would begin a shard");
    }

    #[test]
    fn where_a_majority_counts_nobody_goes_in_vain_or_is_missed() {
        // Useless: the primary and the new copy would be two of four, or two of five. Needed: three
        // of the giving shard's five are there, and they would be two of the remaining four.
        for (shards, lost) in [
            (&[&[1, 11, 12][..], &[2, 21, 22]], &[11, 12][..]),
            (&[&[1, 11, 12, 13], &[2, 21, 22]], &[11, 12, 13]),
            (&[&[1, 11], &[2, 21, 22, 23, 24]], &[11, 23, 24]),
        ] {
            assert_eq!(moved(&at_quorum(shards, lost), 1), None, "{lost:?}");
        }
    }

    #[test]
    fn who_did_not_look_for_a_while_waits_anew() {
        let mut state = state_of(&[&[1, 11], &[2, 21, 22]]);
        let mut spare = SpareReplicas::default();
        fail(&mut state, 11);
        assert_eq!(spare.next(&state, 1, 10_000), None);
        assert_eq!(spare.next(&state, 1, 10_000 + 2 * PATIENCE_MS), None);
        assert!(settled(&mut spare, &state, 1).is_some());
    }
}
