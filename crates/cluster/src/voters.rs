//! The choice of voters: the reconciler's one decision, from the available nodes.
//!
//! 1 of up to two nodes, 3 of up to four, 5 of more; spread over distinct zones, then hosts. A
//! voter that was silent for a while is replaced if a healthy node is available. One change at a
//! time.

use std::collections::BTreeSet;

use crate::control_log::{Membership, RaftId};
use crate::state::{ControlState, Drain, Node, NodeId};

/// Returns how many of `nodes` nodes vote.
#[must_use]
pub fn wanted_voters(nodes: usize) -> usize {
    match nodes {
        0..=2 => 1,
        3 | 4 => 3,
        _ => 5,
    }
}

/// Returns the next set of voters, if it differs: one joins, or one is replaced. `is_lost` tells
/// whether a node was silent for longer than a voter may be.
#[must_use]
pub fn next_voters(
    state: &ControlState,
    now: &Membership,
    is_lost: impl Fn(&Node) -> bool,
) -> Option<BTreeSet<RaftId>> {
    if now.is_changing {
        return None;
    }
    let is_member = |id: &RaftId| state.node_of(*id).is_some();
    if let Some(gone) = now.voters.iter().find(|id| !is_member(id)) {
        return Some(without(&now.voters, *gone)).filter(|voters| !voters.is_empty());
    }
    let candidate = best_candidate(state, now, &is_lost);
    let lost = now
        .voters
        .iter()
        .find(|id| state.node_of(**id).is_some_and(|(_, node)| is_lost(node)));
    if let (Some(lost), Some(candidate)) = (lost, candidate) {
        let mut voters = without(&now.voters, *lost);
        voters.insert(candidate);
        return Some(voters);
    }
    let wanted = wanted_voters(state.nodes.len());
    // Two voters tolerate no more failures than one: voters are added in pairs.
    let missing = wanted.saturating_sub(now.voters.len());
    if missing == 0 {
        return None;
    }
    let mut voters = now.clone();
    for _ in 0..missing {
        let next = best_candidate(state, &voters, &is_lost)?;
        voters.voters.insert(next);
    }
    Some(voters.voters)
}

/// Returns the voters without one that is to leave and that no node can replace. It leaves after it
/// has lost its vote, so that the remaining voters decide without it. Never removes the leader,
/// which hands over its leadership first, and never if the remaining voters would have no majority.
#[must_use]
pub fn without_leaving(
    state: &ControlState,
    now: &Membership,
    leader: NodeId,
) -> Option<BTreeSet<RaftId>> {
    let leaves = |id: &&RaftId| {
        let known = state.node_of(**id);
        known.is_some_and(|(id, node)| node.drain == Drain::Leaving && *id != leader)
    };
    let gone = now.voters.iter().find(leaves)?;
    let left = without(&now.voters, *gone);
    let is_there = |id: &&RaftId| {
        let known = state.node_of(**id);
        known.is_some_and(|(_, node)| !node.is_failed)
    };
    let there = left.iter().filter(is_there).count();
    (!now.is_changing && 2 * there > left.len()).then_some(left)
}

fn without(voters: &BTreeSet<RaftId>, gone: RaftId) -> BTreeSet<RaftId> {
    voters.iter().copied().filter(|id| *id != gone).collect()
}

/// Returns the node whose zone and host have the fewest voters, and among those the oldest.
fn best_candidate(
    state: &ControlState,
    now: &Membership,
    is_lost: &impl Fn(&Node) -> bool,
) -> Option<RaftId> {
    let voters: Vec<&Node> = now
        .voters
        .iter()
        .filter_map(|id| state.node_of(*id).map(|(_, node)| node))
        .collect();
    let crowd = |node: &&Node| {
        let in_zone = |voter: &&&Node| voter.record.zone == node.record.zone;
        let on_host = |voter: &&&Node| voter.record.host == node.record.host;
        let zone = voters.iter().filter(in_zone).count();
        (zone, voters.iter().filter(on_host).count(), node.raft_id)
    };
    state
        .nodes
        .values()
        .filter(|node| !now.voters.contains(&node.raft_id) && !node.is_failed && !is_lost(node))
        .min_by_key(crowd)
        .map(|node| node.raft_id)
}

/// Returns how many voters may be lost before the group can decide nothing.
#[must_use]
pub fn fault_tolerance(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::NodeRecord;

    fn state(zones: &[&str]) -> ControlState {
        let mut state = ControlState::default();
        for (at, zone) in zones.iter().enumerate() {
            let byte = u8::try_from(at + 1).unwrap();
            let node = Node {
                raft_id: u64::from(byte),
                record: NodeRecord {
                    zone: (*zone).to_owned(),
                    ..NodeRecord::default()
                },
                ..Node::default()
            };
            state.nodes.insert(NodeId([byte; 20]), node);
        }
        state
    }

    fn voters(ids: &[RaftId]) -> Membership {
        Membership {
            voters: ids.iter().copied().collect(),
            ..Membership::default()
        }
    }

    #[test]
    fn voters_come_in_odd_numbers_over_zones() {
        let next = |zones: &[&str], now: &[RaftId]| {
            next_voters(&state(zones), &voters(now), |_| false).map(Vec::from_iter)
        };
        assert_eq!(next(&["a"], &[1]), None);
        assert_eq!(next(&["a", "b"], &[1]), None);
        assert_eq!(next(&["a", "b", "c"], &[1]), Some(vec![1, 2, 3]));
        assert_eq!(next(&["a", "a", "b", "c"], &[1]), Some(vec![1, 3, 4]));
        assert_eq!(
            next(&["a", "a", "b", "b", "c"], &[1, 3, 5]),
            Some(vec![1, 2, 3, 4, 5])
        );
    }

    #[test]
    fn a_lost_voter_is_replaced_by_a_healthy_node_only() {
        let lost = |node: &Node| node.raft_id == 2;
        let four = state(&["a", "b", "c", "b"]);
        let next = next_voters(&four, &voters(&[1, 2, 3]), lost);
        assert_eq!(next.map(Vec::from_iter), Some(vec![1, 3, 4]));
        let three = state(&["a", "b", "c"]);
        assert_eq!(next_voters(&three, &voters(&[1, 2, 3]), lost), None);
        let mut changing = voters(&[1, 2, 3]);
        changing.is_changing = true;
        assert_eq!(next_voters(&four, &changing, lost), None);
    }

    #[test]
    fn a_node_that_is_to_leave_gives_its_vote_up_first() {
        let mut three = state(&["a", "b", "c"]);
        let id = |byte| NodeId([byte; 20]);
        let next = |state: &ControlState, now: &[RaftId], leader| {
            without_leaving(state, &voters(now), leader).map(Vec::from_iter)
        };
        assert_eq!(next(&three, &[1, 2, 3], id(1)), None);
        three.nodes.get_mut(&id(2)).unwrap().drain = Drain::Leaving;
        assert_eq!(next(&three, &[1, 2, 3], id(1)), Some(vec![1, 3]));
        assert_eq!(next(&three, &[1, 2], id(1)), Some(vec![1]));
        assert_eq!(next(&three, &[1, 2, 3], id(2)), None, "it leads");
        assert_eq!(next(&three, &[2], id(1)), None, "nobody would be left");
        three.nodes.get_mut(&id(3)).unwrap().is_failed = true;
        assert_eq!(next(&three, &[1, 2, 3], id(1)), None, "no majority");
    }

    #[test]
    fn a_node_that_left_votes_no_more() {
        let next = next_voters(&state(&["a", "b"]), &voters(&[1, 2, 9]), |_| false);
        assert_eq!(next.map(Vec::from_iter), Some(vec![1, 2]));
        assert_eq!([1, 2, 3, 5].map(fault_tolerance), [0, 0, 1, 2]);
    }
}
