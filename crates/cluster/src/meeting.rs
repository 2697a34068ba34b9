//! Decides what happens if two nodes in cluster mode meet: which one founds a cluster, which one
//! joins, and which of two clusters merges into the other.
//!
//! ```text
//!   both by themselves     the one that is contacted begins a cluster, the other joins it
//!   one is of a cluster    the other joins it
//!   both are               that with the higher founder gives way: all of its nodes join the other, its founder last
//! ```
//!
//! If nodes meet each other crosswise at the same time, several clusters begin, which have to
//! become one. A cluster is identified by its founder, which never changes. Of any two clusters the
//! same one gives way, whichever asks, so all clusters merge in one direction, and the one with the
//! lowest founder stays. Only a cluster that has just begun gives way; its founder decides whether
//! that applies.

use std::cmp::Ordering;

use crate::state::{ControlState, FIRST_RAFT_ID, LEVEL_OF_FOUNDERS, NodeId};

/// One of the two that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It is of no cluster.
    ByItself,
    /// It is in the cluster that this node founded; `None` if that node has left it.
    Of(Option<NodeId>),
}

/// The result of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Both are in the same cluster.
    Known,
    /// The contacted node founds a cluster, and the other joins it.
    Begin,
    /// The asking node joins the other's cluster.
    AskerJoins,
    /// The contacted node joins the asker's cluster.
    ContactedJoins,
    /// The asker's cluster gives way to the other.
    AskersGivesWay,
    /// The contacted node's cluster gives way to the asker's.
    ContactedsGivesWay,
    /// Nothing: both clusters stay as they are.
    Apart,
}

/// Decides the meeting of two nodes. See the module.
#[must_use]
pub fn judge(asker: Side, contacted: Side) -> Meeting {
    match (asker, contacted) {
        (Side::ByItself, Side::ByItself) => Meeting::Begin,
        (Side::ByItself, Side::Of(_)) => Meeting::AskerJoins,
        (Side::Of(_), Side::ByItself) => Meeting::ContactedJoins,
        (Side::Of(Some(askers)), Side::Of(Some(contacteds))) => match askers.cmp(&contacteds) {
            Ordering::Equal => Meeting::Known,
            Ordering::Greater => Meeting::AskersGivesWay,
            Ordering::Less => Meeting::ContactedsGivesWay,
        },
        (Side::Of(_), Side::Of(_)) => Meeting::Apart,
    }
}

/// Returns the node that founded a state's group, if it is still a member.
#[must_use]
pub fn founder(state: &ControlState) -> Option<NodeId> {
    state.node_of(FIRST_RAFT_ID).map(|(founder, _)| *founder)
}

/// Whether a group may give way: each primary can bring its data along, and all nodes know how. If
/// writes wait for a majority, no copy can be absent for a while. A founder that is a replica could
/// not be the last to go.
#[must_use]
pub fn may_give_way(state: &ControlState) -> bool {
    let mut shards = state.shards.values();
    let mut nodes = state.nodes.values();
    let founder_follows = founder(state).is_some_and(|it| followed(state, it).is_some());
    state.is_cluster() == Some(true)
        && state.incarnation == 0
        && !founder_follows
        && shards.all(|shard| shard.everybody().len() == 1 || !shard.is_quorum)
        && nodes.all(|node| node.record.feature_level >= LEVEL_OF_FOUNDERS)
}

/// Returns the primary that a node follows, if it follows one.
#[must_use]
pub fn followed(state: &ControlState, node: NodeId) -> Option<NodeId> {
    let shard = state.shards.get(&state.shard_of(node)?)?;
    (shard.primary != node).then_some(shard.primary)
}

/// Whether nodes may join from this group or leave to another one now: requests of its members can
/// be distinguished from those of another group's. A group that has just begun will soon reach that
/// level.
#[must_use]
pub fn is_told_apart(state: &ControlState) -> bool {
    state.feature_level >= LEVEL_OF_FOUNDERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, ShardChange};
    use crate::state::{Applied, CopyKind, LogEnd, NodeRecord, ShardId, roles};
    use crate::{Proposal, RequestId};

    #[test]
    fn of_two_clusters_the_same_gives_way_whoever_asks() {
        let [low, high] = [1, 2].map(|byte| Side::Of(Some(NodeId([byte; 20]))));
        assert_eq!(judge(low, high), Meeting::ContactedsGivesWay);
        assert_eq!(judge(high, low), Meeting::AskersGivesWay);
        assert_eq!(judge(low, low), Meeting::Known);
        assert_eq!(judge(low, Side::Of(None)), Meeting::Apart);
        assert_eq!(judge(Side::Of(None), Side::Of(None)), Meeting::Apart);
    }

    #[test]
    fn a_cluster_gives_way_unless_it_cannot_do_without_a_copy() {
        for is_quorum in [false, true] {
            assert_eq!(gives_way_with_a_replica(is_quorum), !is_quorum);
        }
    }

    fn gives_way_with_a_replica(is_quorum: bool) -> bool {
        let mut state = ControlState::default();
        let mut apply = |index: u8, entry| {
            let request = RequestId([index; 16]);
            let applied = state.apply(index.into(), &Proposal { request, entry });
            assert_eq!(applied, Applied::Done);
            (founder(&state), may_give_way(&state))
        };
        let nodes = [1, 2].map(|byte| NodeId([byte; 20]));
        let record = NodeRecord {
            roles: roles::DATA | roles::CLUSTER,
            feature_level: LEVEL_OF_FOUNDERS,
            ..NodeRecord::default()
        };
        for (index, node) in (1..).zip(nodes) {
            let record = record.clone();
            apply(index, Entry::Join { node, record });
        }
        let shard = ShardId(2);
        let change = |expected_epoch, change| Entry::Shard {
            shard,
            expected_epoch,
            change,
        };
        let create = ShardChange::Create {
            primary: nodes[0],
            end: LogEnd::default(),
            is_quorum,
        };
        assert_eq!(apply(3, change(0, create)), (Some(nodes[0]), true));
        let add = ShardChange::Add {
            node: nodes[1],
            kind: CopyKind::Data,
        };
        let (founder, may) = apply(4, change(3, add));
        assert_eq!(founder, Some(nodes[0]));
        assert_eq!(followed(&state, nodes[0]), None);
        assert_eq!(followed(&state, nodes[1]), Some(nodes[0]));
        may
    }
}
