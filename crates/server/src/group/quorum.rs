//! The control leader's steps that are about a majority: writes may wait for one, and a change of who has a copy ends when
//! a majority of both sets has what the primary had when it took the change up.
//!
//! Whether writes may wait is as the configuration of the node that leads says (`durability quorum`). It is not turned off
//! again by itself: clients that asked for it count on it.

use cluster::entry::ShardChange;
use cluster::leader::Leader;
use cluster::{ControlState, Entry, LogEnd};

use super::view::SHARD;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct QuorumSteps {
    /// Of the change with this epoch: where the primary's log ended when it had taken it up.
    taken_up: Option<(u64, LogEnd)>,
}

impl QuorumSteps {
    /// The next step, if there is one.
    pub(crate) fn next(
        &mut self,
        leader: &Leader,
        state: &ControlState,
        wants_quorum: bool,
    ) -> Option<Entry> {
        let shard = state.shards.get(&SHARD)?;
        let entry = |change| Entry::Shard {
            shard: SHARD,
            expected_epoch: shard.epoch,
            change,
        };
        if !shard.is_quorum {
            let is_changing = shard.old_members.is_some();
            let is_quorum = true;
            return (wants_quorum && !is_changing)
                .then(|| entry(ShardChange::SetQuorum { is_quorum }));
        }
        shard.old_members.as_ref()?;
        let known = self.taken_up.filter(|(epoch, _)| *epoch == shard.epoch);
        let (_, end) = match known {
            Some(known) => known,
            None => *self
                .taken_up
                .insert((shard.epoch, leader.primary_end(SHARD, shard)?)),
        };
        leader
            .is_committed(SHARD, shard, end.sequence)
            .then(|| entry(ShardChange::Finish))
    }
}

#[cfg(test)]
mod tests {
    use cluster::message::{CopyStatus, Heartbeat};
    use cluster::state::{CopyKind, Node};
    use cluster::{NodeId, Shard, Times};

    use super::*;

    fn node(name: u8) -> NodeId {
        NodeId([name; 20])
    }

    fn beat(leader: &mut Leader, state: &ControlState, name: u8, sequence: u64) {
        let copy = CopyStatus {
            shard: SHARD,
            office: if name == 1 { 4 } else { 0 },
            end: LogEnd { term: 4, sequence },
            ..CopyStatus::default()
        };
        let beat = Heartbeat {
            node: node(name),
            number: sequence,
            index: state.index,
            copies: vec![copy],
            ..Heartbeat::default()
        };
        // It is noted whether it leads or not.
        let _not_leading = leader.on_heartbeat(10, &beat, state, true);
    }

    fn state(is_quorum: bool, members: &[u8], old: Option<&[u8]>) -> ControlState {
        let set = |names: &[u8]| {
            let all = names.iter().map(|name| (node(*name), CopyKind::Data));
            all.collect()
        };
        let shard = Shard {
            term: 4,
            epoch: 20,
            primary: node(1),
            members: set(members),
            old_members: old.map(set),
            is_quorum,
            ..Shard::default()
        };
        let nodes = [1, 2].map(|name| (node(name), Node::default()));
        let mut state = ControlState::default();
        state.index = 20;
        state.nodes = nodes.into();
        state.shards = [(SHARD, shard)].into();
        state
    }

    fn change(entry: Option<Entry>) -> Option<ShardChange> {
        match entry? {
            Entry::Shard { change, .. } => Some(change),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn quorum_is_turned_on_where_it_is_wanted_and_no_change_goes_on() {
        let leader = Leader::new(Times::default(), 0);
        let mut steps = QuorumSteps::default();
        let off = state(false, &[1, 2], None);
        let on = Some(ShardChange::SetQuorum { is_quorum: true });
        assert_eq!(change(steps.next(&leader, &off, true)), on);
        assert_eq!(change(steps.next(&leader, &off, false)), None);
        let changing = state(false, &[1, 2], Some(&[1]));
        assert_eq!(change(steps.next(&leader, &changing, true)), None);
        assert_eq!(
            change(steps.next(&leader, &state(true, &[1], None), true)),
            None
        );
    }

    #[test]
    fn a_change_ends_when_both_sets_have_what_the_primary_had() {
        let mut leader = Leader::new(Times::default(), 0);
        let mut steps = QuorumSteps::default();
        let changing = state(true, &[1, 2], Some(&[1]));
        assert_eq!(change(steps.next(&leader, &changing, true)), None);
        beat(&mut leader, &changing, 1, 100);
        beat(&mut leader, &changing, 2, 60);
        assert_eq!(change(steps.next(&leader, &changing, true)), None);
        beat(&mut leader, &changing, 1, 300);
        beat(&mut leader, &changing, 2, 100);
        let finish = Some(ShardChange::Finish);
        assert_eq!(change(steps.next(&leader, &changing, true)), finish);
    }
}
