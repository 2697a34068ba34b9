//! Turns orders of clients into entries of the control log. The commands have checked what they
//! could.

use std::time::Duration;

use cluster::entry::{ShardChange, SlotRange};
use cluster::state::{Drain, Shard};
use cluster::{Applied, ControlState, Entry, NodeId, ShardId};
use engine::CommandError;
use engine::cluster::{ClusterOrder, FailoverKind, Ordered, SlotOrder};

use super::state::Part;
use super::{lock, propose};
use crate::config::LINK_PORT_DISTANCE;
use crate::group::holder::{Meeting, SharedLog, TakesPart};
use crate::node::Node;
use crate::poll::poll;

const MEANWHILE: CommandError =
    CommandError::fixed("ERR the cluster has changed meanwhile: nothing was done");
const STARTING: CommandError =
    CommandError::fixed("ERR this node does not take part in its cluster yet");
const NOT_SPARED: CommandError = CommandError::fixed(
    "ERR the shard of this replica would have no majority without it: writes would wait there",
);
const NO_MAJORITY: CommandError =
    CommandError::fixed("ERR that shard has no majority, and would have none with this node");
const NO_PORT: CommandError =
    CommandError::fixed("ERR the port for nodes would be above 65535: name it");

/// How long an order waits until it can be carried out.
const ORDER_TIME: Duration = Duration::from_secs(10);
/// Time between two checks.
const LOOK: Duration = Duration::from_millis(20);
/// How long a node that is to be forgotten may take to give up its vote.
const FORGET_TIME: Duration = Duration::from_secs(3);

/// Context of an order.
struct Ordering<'o> {
    node: &'o Node,
    log: SharedLog,
    own: NodeId,
}

impl Part {
    /// Carries out an order.
    pub(super) fn carry_out(
        &self,
        node: &Node,
        order: &ClusterOrder,
    ) -> Result<Ordered, CommandError> {
        let ordering = Ordering {
            node,
            log: self.log(node).ok_or(STARTING)?,
            own: self.own(node),
        };
        match order {
            ClusterOrder::Meet(host, port, link_port) => ordering.meet(host, *port, *link_port),
            ClusterOrder::Forget(id) => self.forget(&ordering, id),
            ClusterOrder::Reset { is_hard } => {
                self.reset(node, *is_hard)?;
                Ok(Ordered::Done)
            }
            order => ordering.carry_out(order),
        }
    }

    fn forget(&self, ordering: &Ordering<'_>, id: &str) -> Result<Ordered, CommandError> {
        let unknown = || CommandError::Text(format!("ERR Unknown node {id}").into());
        let node = base::hex::bytes(id).map(NodeId).ok_or_else(unknown)?;
        let is_member = |state: &ControlState| state.nodes.contains_key(&node);
        let state = ordering.log.watch();
        self.note_left(&state);
        if !is_member(&state) {
            let has_left = lock(&self.left).has(node);
            return has_left.then_some(Ordered::Done).ok_or_else(unknown);
        }
        if leaves_with_a_vote(&ordering.log, &state, node) {
            let drain = |drain| propose(&ordering.log, Entry::Drain { node, drain });
            drain(Drain::Leaving)?;
            let has_left = || (!is_member(&ordering.log.watch())).then_some(Ordered::Done);
            if let Some(done) = poll(FORGET_TIME, LOOK, has_left) {
                return Ok(done);
            }
            // If it cannot be removed at once either, its former state is restored.
            drain(Drain::No)?;
        }
        match propose(&ordering.log, Entry::Leave { node })? {
            // Stale: another node got the same order before.
            Applied::Done | Applied::Stale => Ok(Ordered::Done),
            Applied::Refused => Err(CommandError::fixed(
                "ERR the cluster needs that node: it owns hash slots or has replicas, or a majority may need it",
            )),
        }
    }

    fn reset(&self, node: &Node, is_hard: bool) -> Result<(), CommandError> {
        let refuse = |reason: String| CommandError::Text(format!("ERR {reason}").into());
        if let Some(part) = node.control.part() {
            part.leave_for_good().map_err(refuse)?;
        }
        let config = node.core.config.current();
        let reset = self.lone.reset(is_hard);
        let reset = reset.and_then(|()| self.introduce(&config));
        node.replication
            .own
            .set_id(replication::TermId(self.lone.own().0));
        reset.map_err(|error| refuse(error.to_string()))
    }
}

/// Whether a node that may leave has a vote: if it left with its vote, the remaining nodes could
/// decide nothing any more.
fn leaves_with_a_vote(log: &SharedLog, state: &ControlState, node: NodeId) -> bool {
    let known = state.nodes.get(&node);
    let votes = known.is_some_and(|known| log.membership().voters.contains(&known.raft_id));
    let shard = state.shard_of(node).and_then(|id| state.shards.get(&id));
    let leads = shard.is_some_and(|shard| shard.primary == node);
    votes && (!leads || state.empty_shard_of(node).is_some())
}

impl Ordering<'_> {
    fn carry_out(&self, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        let state = self.log.watch();
        let own = state.shard_of(self.own);
        match order {
            ClusterOrder::AddSlots(ranges) => self.give(ranges, None, own),
            ClusterOrder::DelSlots(ranges) => self.take(&state, ranges),
            ClusterOrder::FlushSlots => {
                let ranges = own.map(|own| state.slots.of(own)).unwrap_or_default();
                self.give(&ranges, own, None)
            }
            ClusterOrder::SetSlot(slot, to) => self.set_slot(&state, *slot, to),
            // The index of an entry is higher than those of all earlier ones, whatever their
            // subject.
            ClusterOrder::BumpEpoch => Ok(Ordered::Said(format!("STILL {}", state.index))),
            ClusterOrder::Replicate(id) => self.replicate(id),
            ClusterOrder::Failover(kind) => self.fail_over(*kind),
            ClusterOrder::SetConfigEpoch(_)
            | ClusterOrder::Meet(..)
            | ClusterOrder::Forget(_)
            | ClusterOrder::Reset { .. } => Ok(Ordered::Done),
        }
    }

    /// Returns the group's membership. It is set soon after clients are served.
    fn part(&self) -> Result<&dyn TakesPart, CommandError> {
        let time = match cfg!(feature = "cluster") {
            true => ORDER_TIME,
            false => Duration::ZERO,
        };
        poll(time, LOOK, || self.node.control.part()).ok_or(STARTING)
    }

    fn meet(&self, host: &str, port: u16, link_port: Option<u16>) -> Result<Ordered, CommandError> {
        let link_port = link_port.or_else(|| port.checked_add(LINK_PORT_DISTANCE));
        let meeting = Meeting {
            host: host.to_owned(),
            link_port: link_port.ok_or(NO_PORT)?,
        };
        let met = self.part()?.meet(&meeting);
        met.map_err(|reason| CommandError::Text(format!("ERR {reason}").into()))?;
        Ok(Ordered::Done)
    }

    /// Makes this node a replica of another one, in place of its present role.
    fn replicate(&self, id: &str) -> Result<Ordered, CommandError> {
        let primary = base::hex::bytes(id).map(NodeId).ok_or(MEANWHILE)?;
        // Another change of the shard may be in progress, or come first.
        let step = || {
            self.go_to(primary)
                .map(|is_there| is_there.then_some(Ordered::Done))
        };
        let added = poll(ORDER_TIME, LOOK, || step().transpose()).unwrap_or(Err(MEANWHILE));
        if added.is_err() {
            self.part()?.set_destination(None);
        }
        added
    }

    /// Takes this node's next step towards the shard of that primary. Returns whether it has a copy
    /// of it now.
    fn go_to(&self, primary: NodeId) -> Result<bool, CommandError> {
        let state = self.log.watch();
        let to = state.shard_of(primary).ok_or(MEANWHILE)?;
        let own = state.shard_of(self.own);
        let known = |id: ShardId| Some((id, state.shards.get(&id)?));
        match own.and_then(known) {
            Some((own, _)) if own == to => Ok(true),
            Some(own) if own.1.is_quorum && own.1.primary != self.own => {
                self.leave(&state, own, to)?;
                Ok(false)
            }
            // A change that ends its membership is in progress: its copy may be needed until then.
            None if state.is_needed(self.own) => Ok(false),
            _ => {
                let (to, shard) = known(to).ok_or(MEANWHILE)?;
                let entry = Entry::add_data_copy(to, shard, self.own);
                Ok(propose(&self.log, entry)? == Applied::Done)
            }
        }
    }

    /// Releases the copy here from a shard whose writes wait for a majority, by a change that the
    /// members agree to, if the shard can do without it.
    fn leave(
        &self,
        state: &ControlState,
        (id, own): (ShardId, &Shard),
        to: ShardId,
    ) -> Result<(), CommandError> {
        let target = state.shards.get(&to).ok_or(MEANWHILE)?;
        if !state.may_spare(own) {
            return Err(NOT_SPARED);
        }
        if !state.may_grow(target) {
            return Err(NO_MAJORITY);
        }
        if !state.may_change(own) || !state.may_change(target) {
            return Ok(());
        }
        // Otherwise it would begin its own shard in between.
        self.part()?.set_destination(Some(to));
        let removed = Entry::Shard {
            shard: id,
            expected_epoch: own.epoch,
            change: ShardChange::Remove { node: self.own },
        };
        propose(&self.log, removed).map(|_| ())
    }

    /// Makes this replica the primary.
    fn fail_over(&self, kind: FailoverKind) -> Result<Ordered, CommandError> {
        let refuse = |reason: &str| Err(CommandError::Text(format!("ERR {reason}").into()));
        let state = self.log.watch();
        let shard_id = state.shard_of(self.own).ok_or(MEANWHILE)?;
        let shard = state.shards.get(&shard_id).ok_or(MEANWHILE)?;
        let handed = self.part()?.hand_over(shard.primary);
        match (handed, kind) {
            (Err(reason), FailoverKind::Agreed) => return refuse(&reason),
            // If the primary is gone, the group replaces it by itself.
            (Err(_), FailoverKind::Forced | FailoverKind::Takeover) | (Ok(()), _) => {}
        }
        let promoted = poll(ORDER_TIME, LOOK, || {
            let state = self.log.watch();
            match state.shards.get(&shard_id) {
                None => Some(Err(MEANWHILE)),
                Some(shard) => (shard.primary == self.own).then_some(Ok(Ordered::Done)),
            }
        });
        promoted.unwrap_or_else(|| refuse("the group has not made this node the primary"))
    }

    fn give(
        &self,
        ranges: &[SlotRange],
        expected: Option<ShardId>,
        owner: Option<ShardId>,
    ) -> Result<Ordered, CommandError> {
        if ranges.is_empty() || expected == owner {
            return Ok(Ordered::Done);
        }
        let entry = Entry::Slots {
            ranges: ranges.to_vec(),
            expected,
            owner,
        };
        match propose(&self.log, entry)? {
            Applied::Done => Ok(Ordered::Done),
            Applied::Stale | Applied::Refused => {
                // Another node may have got the same order at the same time.
                let state = self.log.watch();
                let mut slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
                let is_so = slots.all(|slot| state.slots.owner(slot) == owner);
                is_so.then_some(Ordered::Done).ok_or(MEANWHILE)
            }
        }
    }

    /// Takes slots from their owners.
    fn take(&self, state: &ControlState, ranges: &[SlotRange]) -> Result<Ordered, CommandError> {
        for shard in state.shards.keys() {
            let is_its = |slot: &u16| state.slots.owner(*slot) == Some(*shard);
            let slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
            let mut of_shard: Vec<SlotRange> = Vec::new();
            let mut slots: Vec<u16> = slots.filter(is_its).collect();
            slots.sort_unstable();
            for slot in slots {
                match of_shard.last_mut() {
                    Some((_, last)) if *last + 1 == slot => *last = slot,
                    _ => of_shard.push((slot, slot)),
                }
            }
            self.give(&of_shard, Some(*shard), None)?;
        }
        Ok(Ordered::Done)
    }

    fn set_slot(
        &self,
        state: &ControlState,
        slot: u16,
        to: &SlotOrder,
    ) -> Result<Ordered, CommandError> {
        match to {
            SlotOrder::Stable => Ok(Ordered::Done),
            SlotOrder::Node(id) => {
                let mut nodes = state.nodes.keys();
                let node = nodes.find(|node| node.to_string() == *id);
                let owner = node.and_then(|node| state.shard_of(*node));
                let owner = owner.ok_or(MEANWHILE)?;
                self.give(&[(slot, slot)], state.slots.owner(slot), Some(owner))
            }
            // A node by itself knows no other node, so there is nothing to move.
            SlotOrder::Importing(_) | SlotOrder::Migrating(_) => Ok(Ordered::Done),
        }
    }
}
