//! The control leader's reconciler: returns the next step from the present members to the desired
//! ones.
//!
//! ```text
//!   joined, not told ─► learner ─► voter (1, 3 or 5)        joined with data ─► member of the shard ─► the change ends
//!   left ─► not told any more      lost for long ─► replaced      primary leads ─► another voter leads
//!   a shard's last replica is lost, another shard has some to spare ─► one of those moves (see `spare_replicas`)
//! ```
//!
//! There is one step at a time: the next begins when the last has succeeded or failed.
//!
//! If possible, the control leader is another node than the primary. If both are lost at once, an
//! election has to be held and the lost leader's leases have to end, before the lost primary's
//! silence counts.

use std::collections::BTreeSet;
use std::fmt;

use cluster::control_log::RaftId;
use cluster::entry::ShardChange;
use cluster::state::{CopyKind, Drain, FEATURE_LEVEL, Node, roles};
use cluster::voters::{next_voters, without_leaving};
use cluster::{ControlState, Entry, Membership, NodeId, ShardId};
use consensus::Change;

use super::log_copies::{is_of_log, log_copy_to_add, log_copy_to_drop};
use super::spare_replicas::Move;
use super::view::SHARD;

/// A node that was silent for longer is not asked to lead.
const LEADER_SILENT_MS_MAX: u64 = 500;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Changes Raft's members.
    Members(Change),
    /// Gives a node a copy of the shard.
    Add(NodeId, Entry),
    /// Takes the log-only copy from a node.
    Drop(NodeId, Entry),
    /// Moves a replica to another shard, which has none left.
    Move(NodeId, Entry),
    /// Ends a change of the shard's members.
    Finish(Entry),
    /// Makes writes wait for a majority from now on, or ends that.
    SetQuorum(bool, Entry),
    /// Makes another voter lead the group.
    Lead(NodeId, RaftId),
    /// Takes the copy or the membership from a node that is to leave.
    Part(NodeId, Entry),
    /// Raises the feature level, because all nodes know it.
    Level(u16, Entry),
}

/// The receiver of a step.
pub(crate) enum Asks {
    Raft(Change),
    Entry(Entry),
}

impl Step {
    pub(crate) fn into_asks(self) -> Asks {
        match self {
            Self::Members(change) => Asks::Raft(change),
            Self::Lead(_, id) => Asks::Raft(Change::Lead(id)),
            Self::Add(_, entry)
            | Self::Drop(_, entry)
            | Self::Move(_, entry)
            | Self::Part(_, entry)
            | Self::Finish(entry)
            | Self::Level(_, entry)
            | Self::SetQuorum(_, entry) => Asks::Entry(entry),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(Change::Learn(ids)) => write!(f, "tells members {ids:?} what is decided"),
            Self::Members(Change::Voters(ids)) => write!(f, "has members {ids:?} vote"),
            Self::Members(Change::Forget(ids)) => write!(f, "forgets members {ids:?}"),
            Self::Add(node, entry) if is_of_log(entry) => {
                write!(f, "gives node {node} a copy of the log")
            }
            Self::Add(node, _) => write!(f, "gives node {node} a copy of the data"),
            Self::Drop(node, _) => write!(f, "takes the copy of the log from node {node}"),
            Self::Move(node, _) => write!(
                f,
                "has node {node} be a replica of a shard that has none left: its own has more than it needs"
            ),
            Self::Members(Change::Lead(id)) => write!(f, "has member {id} lead"),
            Self::Lead(node, _) => {
                write!(
                    f,
                    "has node {node} lead the group: this one is the primary, or is not to lead"
                )
            }
            Self::Part(node, Entry::Leave { .. }) => write!(f, "has node {node} leave"),
            Self::Part(node, _) => write!(f, "takes the copy of the data from node {node}"),
            Self::Level(level, _) => write!(f, "raises the feature level to {level}"),
            Self::Finish(_) => f.write_str("ends a change of who has a copy of the data"),
            Self::SetQuorum(true, _) => f.write_str("has writes wait for a majority"),
            Self::SetQuorum(false, _) => f.write_str("has writes wait for no majority"),
        }
    }
}

/// Input of the reconciler.
pub(crate) struct Look<'l> {
    /// The group's state.
    pub(crate) state: &'l ControlState,
    /// Raft's members.
    pub(crate) members: &'l Membership,
    /// Returns for how long a node has been silent.
    pub(crate) silence_ms: &'l dyn Fn(NodeId) -> u64,
    /// The shards whose change of members may end.
    pub(crate) settled: BTreeSet<ShardId>,
    /// The shards whose data copies all follow their primary.
    pub(crate) follows: BTreeSet<ShardId>,
    /// A voter that was silent for this time is replaced.
    pub(crate) voter_lost_ms: u64,
    /// The voters of a change that a former leader began and did not end.
    pub(crate) unfinished: Option<BTreeSet<RaftId>>,
    /// The replica to move to another shard.
    pub(crate) spare: Option<Move>,
    /// This node.
    pub(crate) own: NodeId,
    /// Whether this node is about to stop or to be restarted.
    pub(crate) retires: bool,
    /// The present time, by the clock of leases.
    pub(crate) now_ms: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reconciler {
    is_busy: bool,
    /// Number of failed steps in a row.
    failures: u32,
    /// No step is made before this time.
    rests_until_ms: u64,
}

/// Pause after a failed step; it doubles with each failure. The reason for a refusal may take a
/// while to change, and each attempt is an entry of the control log.
const REST_MS: u64 = 50;
const REST_MS_MAX: u64 = 2_000;

impl Reconciler {
    /// Marks a step as in progress. Returns false if one is in progress already.
    pub(crate) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_busy, true)
    }

    /// Notes that the step has succeeded.
    pub(crate) fn end(&mut self) {
        self.is_busy = false;
        self.failures = 0;
    }

    /// Notes that the step has failed.
    pub(crate) fn fail(&mut self, now_ms: u64) {
        self.is_busy = false;
        let doubled = REST_MS.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.rests_until_ms = now_ms.saturating_add(doubled.min(REST_MS_MAX));
    }

    /// Returns the next step, if there is one and none is in progress.
    pub(crate) fn next(&mut self, look: &Look<'_>) -> Option<Step> {
        if look.now_ms < self.rests_until_ms {
            return None;
        }
        if let Some(voters) = look.unfinished.clone().filter(|_| !self.is_busy) {
            // Until the change has ended, a majority of the old voters is needed, too.
            self.is_busy = true;
            return Some(Step::Members(Change::Voters(voters)));
        }
        if self.is_busy || look.members.is_changing {
            return None;
        }
        let step = raft_step(look)
            .or_else(|| level_step(look.state))
            .or_else(|| {
                look.state
                    .shards
                    .keys()
                    .find_map(|id| shard_step(look, *id))
            })
            .or_else(|| leave_step(look))
            .or_else(|| move_step(look))
            .or_else(|| lead_step(look));
        self.is_busy = step.is_some();
        step
    }
}

fn raft_step(look: &Look<'_>) -> Option<Step> {
    let Look {
        state,
        members,
        silence_ms,
        ..
    } = look;
    let joined: BTreeSet<RaftId> = state.nodes.values().map(|node| node.raft_id).collect();
    let told: BTreeSet<RaftId> = members.voters.union(&members.learners).copied().collect();
    let new: BTreeSet<RaftId> = joined.difference(&told).copied().collect();
    if !new.is_empty() {
        return Some(Step::Members(Change::Learn(new)));
    }
    let is_lost = |node: &Node| {
        let known = state.node_of(node.raft_id);
        let is_silent = known.is_some_and(|(id, _)| silence_ms(*id) >= look.voter_lost_ms);
        is_silent || node.drain == Drain::Leaving
    };
    let voters = next_voters(state, members, is_lost);
    if let Some(voters) = voters.or_else(|| without_leaving(state, members, look.own)) {
        return Some(Step::Members(Change::Voters(voters)));
    }
    let gone: BTreeSet<RaftId> = members.learners.difference(&joined).copied().collect();
    (!gone.is_empty()).then_some(Step::Members(Change::Forget(gone)))
}

/// Raises the level to what all nodes know. Afterwards no older node can join, and no node that was
/// downgraded can rejoin.
fn level_step(state: &ControlState) -> Option<Step> {
    let known = state.nodes.values().map(|node| node.record.feature_level);
    let level = known.min()?.min(FEATURE_LEVEL);
    let entry = Entry::FeatureLevel { level };
    (level > state.feature_level).then_some(Step::Level(level, entry))
}

fn shard_step(look: &Look<'_>, id: ShardId) -> Option<Step> {
    let state = look.state;
    let shard = state.shards.get(&id)?;
    let entry = |change| Entry::Shard {
        shard: id,
        expected_epoch: shard.epoch,
        change,
    };
    if shard.old_members.is_some() {
        // If writes wait for no majority, both sets agree at once.
        let may_end = !shard.is_quorum || look.settled.contains(&id);
        return may_end.then(|| Step::Finish(entry(ShardChange::Finish)));
    }
    let primary = state.nodes.get(&shard.primary)?;
    let is_quorum = primary.record.roles & roles::QUORUM != 0;
    if is_quorum != shard.is_quorum {
        let change = ShardChange::SetQuorum { is_quorum };
        return Some(Step::SetQuorum(is_quorum, entry(change)));
    }
    if let Some(node) = log_copy_to_drop(look, id, shard) {
        return Some(Step::Drop(node, entry(ShardChange::Remove { node })));
    }
    if id != SHARD {
        // In a cluster an operator decides which node has which copy.
        return None;
    }
    let is_spare = |(id, node): &(&NodeId, &Node)| {
        let may_have = !node.is_failed && node.drain != Drain::Leaving;
        may_have && node.record.roles & roles::DATA != 0 && !shard.members.contains_key(id)
    };
    let spare = state.nodes.iter().find(is_spare);
    let spare = spare.filter(|_| shard.may_be_added(CopyKind::Data));
    let (node, kind) = match spare {
        Some((node, _)) => (*node, CopyKind::Data),
        None => (log_copy_to_add(look, id, shard)?, CopyKind::LogOnly),
    };
    Some(Step::Add(node, entry(ShardChange::Add { node, kind })))
}

/// Returns the next step of a node that is to leave: first it loses its vote and any copy that a
/// majority may need, then its membership. A primary hands over its office before that.
fn leave_step(look: &Look<'_>) -> Option<Step> {
    let Look { state, members, .. } = look;
    let may_decide =
        |node: &Node| members.voters.len() > 1 && members.voters.contains(&node.raft_id);
    let mut leaving = state.nodes.iter();
    leaving.find_map(|(id, node)| {
        let is_next = node.drain == Drain::Leaving && !may_decide(node);
        let node = is_next.then_some(*id)?;
        let own = state.shard_of(*id);
        let Some((id, shard)) = own.and_then(|id| Some((id, state.shards.get(&id)?))) else {
            // The node stays until the change that took its copy has ended.
            let may_leave = !state.is_needed(node);
            return may_leave.then_some(Step::Part(node, Entry::Leave { node }));
        };
        let is_alone = shard.everybody().len() == 1;
        let is_needed = shard.primary == node && state.empty_shard_of(node).is_none();
        if shard.old_members.is_some() || is_needed {
            return None;
        }
        let entry = match shard.is_quorum && !is_alone {
            true => Entry::Shard {
                shard: id,
                expected_epoch: shard.epoch,
                change: ShardChange::Remove { node },
            },
            false => Entry::Leave { node },
        };
        Some(Step::Part(node, entry))
    })
}

/// Moves a spare replica to a shard that has none.
fn move_step(look: &Look<'_>) -> Option<Step> {
    let Move { node, to, from } = look.spare?;
    let changes = from.unwrap_or(to);
    let shard = look.state.shards.get(&changes)?;
    let kind = CopyKind::Data;
    let entry = Entry::Shard {
        shard: changes,
        expected_epoch: shard.epoch,
        change: match from {
            // The node then adds itself.
            Some(_) => ShardChange::Remove { node },
            None => ShardChange::Add { node, kind },
        },
    };
    Some(Step::Move(node, entry))
}

/// A node that is drained or about to stop leads only if no other node can. The primary leads only
/// if no other node does.
fn lead_step(look: &Look<'_>) -> Option<Step> {
    let Look {
        state,
        members,
        silence_ms,
        own,
        retires,
        ..
    } = *look;
    let is_drained = |id: NodeId| {
        let node = state.nodes.get(&id);
        node.is_some_and(|node| node.drain != Drain::No)
    };
    let is_primary = |id: NodeId| {
        state
            .shards
            .get(&SHARD)
            .is_some_and(|one| one.primary == id)
    };
    let gives_way = retires || is_drained(own);
    if !gives_way && !is_primary(own) {
        return None;
    }
    let can_lead = |(id, node): &(&NodeId, &Node)| {
        **id != own
            && members.voters.contains(&node.raft_id)
            && !node.is_failed
            && !is_drained(**id)
            && silence_ms(**id) <= LEADER_SILENT_MS_MAX
    };
    let others = state.nodes.iter().filter(can_lead);
    let (node, other) = others.min_by_key(|(id, _)| is_primary(**id))?;
    Some(Step::Lead(*node, other.raft_id))
}

#[cfg(test)]
mod tests {
    use cluster::state::NodeRecord;
    use cluster::{LogEnd, Proposal, RequestId};

    use super::*;

    const NOBODY: NodeId = NodeId([0; 20]);
    const VOTER_LOST_MS: u64 = 300_000;

    /// All nodes were heard just now, and nothing is in progress.
    fn look<'l>(state: &'l ControlState, members: &'l Membership) -> Look<'l> {
        Look {
            state,
            members,
            silence_ms: &|_| 0,
            settled: BTreeSet::new(),
            follows: BTreeSet::new(),
            voter_lost_ms: VOTER_LOST_MS,
            unfinished: None,
            spare: None,
            own: NOBODY,
            retires: false,
            now_ms: 0,
        }
    }

    #[test]
    fn a_step_that_came_to_nothing_is_tried_again_later_and_later() {
        let mut state = state_of(3);
        for node in state.nodes.values_mut() {
            node.record.roles = roles::WITNESS;
        }
        let members = members(&[1], &[]);
        let mut reconciler = Reconciler::default();
        let is_tried = |reconciler: &mut Reconciler, now_ms| {
            let now = Look {
                now_ms,
                ..look(&state, &members)
            };
            reconciler.next(&now).is_some()
        };
        let mut now_ms = 0;
        for rest_ms in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
            assert!(is_tried(&mut reconciler, now_ms));
            reconciler.fail(now_ms);
            assert!(
                !is_tried(&mut reconciler, now_ms + rest_ms - 1),
                "{rest_ms}"
            );
            now_ms += rest_ms;
        }
        assert!(is_tried(&mut reconciler, now_ms));
        reconciler.end();
        assert!(is_tried(&mut reconciler, now_ms));
    }

    #[test]
    fn a_primary_that_leads_has_another_voter_lead() {
        let mut state = state_of(3);
        let primary = NodeId([1; 20]);
        // A node that keeps data would first get a copy.
        for (_, node) in state.nodes.iter_mut().filter(|(id, _)| **id != primary) {
            node.record.roles = roles::WITNESS;
        }
        let next = |voters: &[RaftId], silent: u8, own| {
            let silence_ms = |node: NodeId| u64::from(node.0[0] == silent) * 1_000;
            let mut reconciler = Reconciler::default();
            let members = members(voters, &[]);
            reconciler.next(&Look {
                silence_ms: &silence_ms,
                own,
                ..look(&state, &members)
            })
        };
        let lead = |byte: u8| Some(Step::Lead(NodeId([byte; 20]), byte.into()));
        assert_eq!(next(&[1, 2, 3], 0, primary), lead(2));
        assert_eq!(next(&[1, 2, 3], 2, primary), lead(3));
        assert_eq!(next(&[1, 2, 3], 0, NodeId([2; 20])), None);
    }

    #[test]
    fn who_is_drained_or_stops_has_another_voter_lead_that_is_not() {
        let mut state = state_of(3);
        for byte in 2..=3 {
            let node = state.nodes.get_mut(&NodeId([byte; 20])).expect("there");
            node.record.roles = roles::WITNESS;
        }
        let next = |state: &ControlState, retires| {
            let members = members(&[1, 2, 3], &[]);
            Reconciler::default().next(&Look {
                own: NodeId([2; 20]),
                retires,
                ..look(state, &members)
            })
        };
        assert_eq!(next(&state, false), None);
        let third = NodeId([3; 20]);
        assert_eq!(next(&state, true), Some(Step::Lead(third, 3)));
        let drain = |state: &mut ControlState, byte: u8| {
            let node = NodeId([byte; 20]);
            let drain = Drain::Drained;
            apply(state, Entry::Drain { node, drain });
        };
        drain(&mut state, 2);
        assert_eq!(next(&state, false), Some(Step::Lead(third, 3)));
        // The primary leads if no other node may.
        drain(&mut state, 3);
        let primary = NodeId([1; 20]);
        assert_eq!(next(&state, false), Some(Step::Lead(primary, 1)));
    }

    #[test]
    fn who_leaves_gives_its_copy_back_first_where_a_majority_may_need_it() {
        let mut state = state_of(2);
        let (first, second) = (NodeId([1; 20]), NodeId([2; 20]));
        let all = members(&[1], &[2]);
        let next = |state: &ControlState| {
            let step = Reconciler::default().next(&Look {
                settled: BTreeSet::from([SHARD]),
                ..look(state, &all)
            });
            step.map(Step::into_asks)
        };
        let primary = state.nodes.get_mut(&first).expect("it is there");
        primary.record.roles |= roles::QUORUM;
        while let Some(Asks::Entry(entry)) = next(&state) {
            apply(&mut state, entry);
        }
        assert_eq!(state.shards[&SHARD].members.len(), 2);
        for node in [first, second] {
            let drain = Drain::Leaving;
            apply(&mut state, Entry::Drain { node, drain });
        }
        while let Some(Asks::Entry(entry)) = next(&state) {
            apply(&mut state, entry);
        }
        // The primary is needed, because no node is left to replace it.
        assert_eq!(state.nodes.keys().copied().collect::<Vec<_>>(), [first]);
        assert_eq!(state.shards[&SHARD].members.len(), 1);
    }

    #[test]
    fn who_leaves_stays_until_the_change_that_took_its_copy_has_ended() {
        let mut state = state_of(3);
        let (voting, leaving) = (members(&[1, 2, 3], &[]), members(&[1, 2], &[3]));
        let next = |state: &ControlState, members: &Membership, is_settled: bool| {
            let step = Reconciler::default().next(&Look {
                settled: is_settled.then_some(SHARD).into_iter().collect(),
                ..look(state, members)
            });
            step.map(Step::into_asks)
        };
        let primary = state.nodes.get_mut(&NodeId([1; 20])).expect("it is there");
        primary.record.roles |= roles::QUORUM;
        while let Some(Asks::Entry(entry)) = next(&state, &voting, true) {
            apply(&mut state, entry);
        }
        assert_eq!(state.shards[&SHARD].members.len(), 3);
        let node = NodeId([3; 20]);
        let drain = Drain::Leaving;
        apply(&mut state, Entry::Drain { node, drain });
        while let Some(Asks::Entry(entry)) = next(&state, &leaving, false) {
            apply(&mut state, entry);
        }
        assert!(state.nodes.contains_key(&node) && state.is_needed(node));
        while let Some(Asks::Entry(entry)) = next(&state, &leaving, true) {
            apply(&mut state, entry);
        }
        assert!(!state.nodes.contains_key(&node));
    }

    fn state_of(count: u8) -> ControlState {
        let mut state = ControlState::default();
        for byte in 1..=count {
            let node = Node {
                raft_id: byte.into(),
                record: NodeRecord {
                    roles: roles::DATA,
                    ..NodeRecord::default()
                },
                ..Node::default()
            };
            state.nodes.insert(NodeId([byte; 20]), node);
        }
        let create = Entry::Shard {
            shard: SHARD,
            expected_epoch: 0,
            change: ShardChange::Create {
                primary: NodeId([1; 20]),
                end: LogEnd::default(),
                is_quorum: false,
            },
        };
        apply(&mut state, create);
        state
    }

    fn apply(state: &mut ControlState, entry: Entry) {
        let index = state.index + 100;
        let mut request = RequestId::default();
        request.0[..8].copy_from_slice(&index.to_le_bytes());
        let applied = state.apply(index, &Proposal { request, entry });
        assert_eq!(applied, cluster::Applied::Done);
    }

    fn members(voters: &[RaftId], learners: &[RaftId]) -> Membership {
        Membership {
            voters: voters.iter().copied().collect(),
            learners: learners.iter().copied().collect(),
            is_changing: false,
        }
    }

    #[test]
    fn a_node_that_joined_is_told_then_votes_then_has_a_copy() {
        let mut state = state_of(3);
        let mut members = members(&[1], &[]);
        let mut reconciler = Reconciler::default();
        let mut steps = Vec::new();
        for _ in 0..10 {
            let Some(step) = reconciler.next(&look(&state, &members)) else {
                break;
            };
            assert_eq!(
                reconciler.next(&look(&state, &members)),
                None,
                "one at a time"
            );
            steps.push(step.to_string());
            match step.into_asks() {
                Asks::Raft(Change::Learn(ids)) => members.learners.extend(ids),
                Asks::Raft(Change::Voters(ids)) => {
                    members = self::members(&Vec::from_iter(ids), &[]);
                }
                Asks::Raft(other) => panic!("{other:?}"),
                Asks::Entry(entry) => apply(&mut state, entry),
            }
            reconciler.end();
        }
        assert_eq!(steps.len(), 6, "{steps:?}");
        assert_eq!(members.voters.len(), 3);
        assert_eq!(state.shards[&SHARD].members.len(), 3);
        assert_eq!(reconciler.next(&look(&state, &members)), None);
    }

    #[test]
    fn a_change_that_a_leader_before_left_is_ended() {
        let state = state_of(1);
        let members = Membership {
            is_changing: true,
            ..members(&[1, 2, 3], &[])
        };
        let mut reconciler = Reconciler::default();
        let look = Look {
            unfinished: Some(BTreeSet::from([1, 2, 3])),
            ..look(&state, &members)
        };
        let step = reconciler.next(&look);
        let voters = BTreeSet::from([1, 2, 3]);
        assert_eq!(step, Some(Step::Members(Change::Voters(voters))));
        assert_eq!(reconciler.next(&look), None);
    }

    #[test]
    fn the_primary_says_whether_writes_wait_for_a_majority() {
        let mut state = state_of(2);
        let all = members(&[1], &[2]);
        let next = |state: &ControlState, is_settled: bool| {
            let settled = is_settled.then_some(SHARD).into_iter().collect();
            let step = Reconciler::default().next(&Look {
                settled,
                ..look(state, &all)
            });
            step.map(|step| match step.into_asks() {
                Asks::Entry(entry) => entry,
                Asks::Raft(change) => panic!("{change:?}"),
            })
        };
        let primary = state.nodes.get_mut(&NodeId([1; 20])).expect("it is there");
        primary.record.roles |= roles::QUORUM;
        let entry = next(&state, false).expect("a step");
        apply(&mut state, entry);
        assert!(state.shards[&SHARD].is_quorum);
        let entry = next(&state, false).expect("the other is added");
        apply(&mut state, entry);
        assert!(state.shards[&SHARD].old_members.is_some());
        assert_eq!(next(&state, false), None, "both sets have to have it first");
        let entry = next(&state, true).expect("a step");
        apply(&mut state, entry);
        assert!(state.shards[&SHARD].old_members.is_none());
        assert_eq!(next(&state, true), None);
    }

    #[test]
    fn who_left_is_forgotten_and_who_is_lost_replaced() {
        let mut state = state_of(4);
        let all: Vec<Entry> = (2..=4)
            .map(|byte| ShardChange::Add {
                node: NodeId([byte; 20]),
                kind: CopyKind::Data,
            })
            .map(|change| Entry::Shard {
                shard: SHARD,
                expected_epoch: 0,
                change,
            })
            .collect();
        for mut entry in all {
            if let Entry::Shard { expected_epoch, .. } = &mut entry {
                *expected_epoch = state.shards[&SHARD].epoch;
            }
            apply(&mut state, entry);
            let expected_epoch = state.shards[&SHARD].epoch;
            apply(
                &mut state,
                Entry::Shard {
                    shard: SHARD,
                    expected_epoch,
                    change: ShardChange::Finish,
                },
            );
        }
        let lost = |node: NodeId| u64::from(node.0[0] == 2) * VOTER_LOST_MS;
        let all = members(&[1, 2, 3], &[4]);
        let step = Reconciler::default().next(&Look {
            silence_ms: &lost,
            ..look(&state, &all)
        });
        let voters = BTreeSet::from([1, 3, 4]);
        assert_eq!(step, Some(Step::Members(Change::Voters(voters))));
        let all = members(&[1, 2, 3], &[4, 9]);
        let step = Reconciler::default().next(&look(&state, &all));
        let gone = BTreeSet::from([9]);
        assert_eq!(step, Some(Step::Members(Change::Forget(gone))));
    }
}
