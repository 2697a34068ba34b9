//! Which node keeps a log-only copy: one that offers it (`witness-log yes`), if that makes the
//! number of copies odd.
//!
//! ```text
//!   two copies of the data ─ both follow, a witness offers it ─► a copy of the log ─ a third copy of the data is there ─► none
//! ```
//!
//! Why the number has to be odd, and what must not change meanwhile: see [`cluster::state`], its
//! module of copies.

use cluster::entry::ShardChange;
use cluster::state::{CopyKind, Drain, LEVEL_OF_LOG_COPIES, Node, Shard, roles};
use cluster::{ControlState, Entry, NodeId, ShardId};

use super::reconcile::Look;

/// Whether an entry gives a node a log-only copy.
pub(super) fn is_of_log(entry: &Entry) -> bool {
    matches!(
        entry,
        Entry::Shard {
            change: ShardChange::Add {
                kind: CopyKind::LogOnly,
                ..
            },
            ..
        }
    )
}

/// The available nodes that offer to keep a log-only copy.
fn who_offers<'s>(state: &'s ControlState) -> impl Iterator<Item = NodeId> + 's {
    let may_have = |node: &Node| {
        let is_one = node.record.roles & roles::LOG != 0;
        is_one && !node.is_failed && node.drain != Drain::Leaving
    };
    let nodes = state.nodes.iter();
    nodes
        .filter(move |(_, node)| may_have(node))
        .map(|(id, _)| *id)
}

/// Returns the node that should get a log-only copy, which makes the number of copies odd. Its log
/// begins where all copies of the data have it, so all of them must be known to be there.
pub(super) fn log_copy_to_add(look: &Look<'_>, id: ShardId, shard: &Shard) -> Option<NodeId> {
    let state = look.state;
    let is_wanted = state.feature_level >= LEVEL_OF_LOG_COPIES
        && shard.may_be_added(CopyKind::LogOnly)
        && look.follows.contains(&id);
    let mut offering = who_offers(state).filter(|_| is_wanted);
    offering.find(|node| !shard.members.contains_key(node))
}

/// Returns the node whose log-only copy is not needed: the number of data copies is odd, writes
/// wait for no majority, or another node keeps the copy in place of one that no longer does. If
/// that leaves an even number of copies, all data copies are there.
pub(super) fn log_copy_to_drop(look: &Look<'_>, id: ShardId, shard: &Shard) -> Option<NodeId> {
    let copy = shard.log_copy()?;
    let is_odd = !shard.count_of(CopyKind::Data).is_multiple_of(2);
    let all: Vec<NodeId> = who_offers(look.state).collect();
    let known = look.state.nodes.get(&copy);
    let keeps = known.is_some_and(|node| node.record.roles & roles::LOG != 0);
    let is_replaced = !all.contains(&copy) && (!all.is_empty() || !keeps);
    let is_unneeded = is_replaced && look.follows.contains(&id);
    (is_odd || !shard.is_quorum || is_unneeded).then_some(copy)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cluster::state::NodeRecord;
    use cluster::{Membership, Proposal, RequestId};
    use consensus::Change;

    use super::super::reconcile::{Asks, Reconciler};
    use super::super::view::SHARD;
    use super::*;

    fn node(byte: u8) -> NodeId {
        NodeId([byte; 20])
    }

    fn apply(state: &mut ControlState, entry: Entry) {
        let index = state.index + 1;
        let mut request = RequestId::default();
        request.0[..8].copy_from_slice(&index.to_le_bytes());
        let applied = state.apply(index, &Proposal { request, entry });
        assert_eq!(applied, cluster::Applied::Done);
    }

    fn join(state: &mut ControlState, byte: u8, bits: u8) {
        let record = NodeRecord {
            roles: bits,
            start_count: 1,
            feature_level: LEVEL_OF_LOG_COPIES,
            ..NodeRecord::default()
        };
        let node = node(byte);
        apply(state, Entry::Join { node, record });
    }

    /// Takes all steps of the reconciler. Node 1 is the primary, at quorum; all nodes that may vote
    /// do.
    fn settle(state: &mut ControlState, follows: bool) {
        let mut members = Membership {
            voters: state.nodes.values().map(|node| node.raft_id).collect(),
            ..Membership::default()
        };
        for _ in 0..20 {
            let step = Reconciler::default().next(&Look {
                state,
                members: &members,
                silence_ms: &|_| 0,
                settled: BTreeSet::from([SHARD]),
                follows: follows.then_some(SHARD).into_iter().collect(),
                voter_lost_ms: 1_000,
                unfinished: None,
                spare: None,
                own: node(99),
                retires: false,
                now_ms: 0,
            });
            match step.map(super::super::reconcile::Step::into_asks) {
                Some(Asks::Entry(entry)) => apply(state, entry),
                Some(Asks::Raft(Change::Voters(voters))) => {
                    let all = state.nodes.values().map(|node| node.raft_id);
                    members.learners = all.filter(|id| !voters.contains(id)).collect();
                    members.voters = voters;
                }
                Some(Asks::Raft(_)) | None => return,
            }
        }
        panic!("no end of steps: {state:?}");
    }

    fn kinds(state: &ControlState) -> (usize, usize) {
        let shard = &state.shards[&SHARD];
        assert!(shard.old_members.is_none());
        let count = |kind| shard.count_of(kind);
        (count(CopyKind::Data), count(CopyKind::LogOnly))
    }

    fn two_and_a_witness() -> ControlState {
        let mut state = ControlState::default();
        let level = LEVEL_OF_LOG_COPIES;
        join(&mut state, 1, roles::DATA | roles::QUORUM);
        apply(&mut state, Entry::FeatureLevel { level });
        let create = ShardChange::Create {
            primary: node(1),
            end: cluster::LogEnd::default(),
            is_quorum: true,
        };
        apply(
            &mut state,
            Entry::Shard {
                shard: SHARD,
                expected_epoch: 0,
                change: create,
            },
        );
        join(&mut state, 9, roles::WITNESS | roles::LOG);
        join(&mut state, 2, roles::DATA);
        state
    }

    #[test]
    fn a_copy_of_the_log_comes_to_two_copies_of_the_data_that_follow_and_goes_with_the_third() {
        let mut state = two_and_a_witness();
        settle(&mut state, false);
        assert_eq!(kinds(&state), (2, 0), "one of them is not known to follow");
        settle(&mut state, true);
        assert_eq!(kinds(&state), (2, 1));
        join(&mut state, 3, roles::DATA);
        settle(&mut state, true);
        assert_eq!(kinds(&state), (3, 0));
    }

    #[test]
    fn it_goes_where_nobody_waits_for_a_majority() {
        let mut state = two_and_a_witness();
        settle(&mut state, true);
        let record = NodeRecord {
            roles: roles::DATA,
            start_count: 1,
            feature_level: LEVEL_OF_LOG_COPIES,
            ..NodeRecord::default()
        };
        let node = node(1);
        apply(&mut state, Entry::Node { node, record });
        settle(&mut state, true);
        assert_eq!(kinds(&state), (2, 0));
    }

    #[test]
    fn another_node_keeps_it_in_place_of_one_that_is_lost() {
        let mut state = two_and_a_witness();
        settle(&mut state, true);
        let lost = Entry::NodeState {
            node: node(9),
            is_failed: true,
        };
        apply(&mut state, lost);
        settle(&mut state, true);
        assert_eq!(state.shards[&SHARD].log_copy(), Some(node(9)));
        join(&mut state, 8, roles::WITNESS | roles::LOG);
        settle(&mut state, false);
        assert_eq!(state.shards[&SHARD].log_copy(), Some(node(9)));
        settle(&mut state, true);
        assert_eq!(state.shards[&SHARD].log_copy(), Some(node(8)));
    }
}
