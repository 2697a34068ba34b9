//! A node that is drained or about to stop hands over what it leads: the office of its shard to a
//! replica that has everything, and the lead of the control group to another voter.
//!
//! ```text
//!   SIGTERM, SHUTDOWN ─► retire ─┐                      ┌─► FAILOVER, again and again until another is the primary
//!   entry "drain" ───────────────┴─► give_way, each tick┴─► the reconciler has another voter lead
//! ```
//!
//! It does so only if another node can take over. A node that is alone stops as usual.

use std::time::Duration;

use cluster::control_log::ControlLog as _;
use cluster::state::{CopyKind, Drain, Node as Member};
use cluster::{Applied, Entry, NodeId};
use engine::CommandError;
use engine::replication::NodeOrder;

use super::control::Part;
use super::driver::{Driver, Event};
use super::files::id_of;
use super::handing_over::HandingOver;
use super::holder::IN_NO_GROUP;
use super::retirement::Reason;
use super::unique;
use super::view::Seen;
use crate::poll::poll;

/// How often to check whether everything is handed over.
const LOOK: Duration = Duration::from_millis(5);
/// Minimum time that a node to be restarted waits for other nodes to lead, because
/// `shutdown-timeout` may be 0.
const RESTART_WAIT_MIN: Duration = Duration::from_secs(1);
/// Maximum time for an order to promote this node.
const SUMMONED: Duration = Duration::from_secs(20);

impl Driver {
    /// Adds a reason to lead nothing.
    pub(super) fn retire(&mut self, reason: Reason, now_ms: u64) {
        self.retirement.begin(reason, now_ms);
        self.gave_way_ms = None;
        self.state_willingness(now_ms);
    }

    /// Removes a reason to lead nothing.
    pub(super) fn stay(&mut self, reason: Reason, now_ms: u64) {
        let followed = self.retirement.follows();
        if self.retirement.end(reason) {
            self.gave_way_ms = None;
            self.state_willingness(now_ms);
        }
        if !followed {
            self.follow_present();
        }
    }

    /// Follows the present primary.
    fn follow_present(&mut self) {
        let shard = self.own_shard();
        if let Some((term, primary)) = shard.map(|shard| (shard.term, shard.primary))
            && primary != self.own
        {
            self.follow(term, primary);
        }
    }

    /// If an announced restart is delayed, makes this node follow until it comes. If it does not
    /// come at all, lets the node lead again.
    pub(super) fn end_overdue_retirement(&mut self, now_ms: u64) {
        if self.retirement.is_late(now_ms) {
            self.follow_present();
        }
        if self.retirement.is_overdue(now_ms) {
            self.tell("This node was to be restarted, and was not: it may lead again");
            self.stay(Reason::Restart, now_ms);
        }
    }

    /// Handles a client's order to promote this node: for some time the node accepts an office,
    /// even if it is configured to decline.
    pub(super) fn be_summoned(&mut self, now_ms: u64) {
        self.stay(Reason::Restart, now_ms);
        let time_ms = u64::try_from(SUMMONED.as_millis()).unwrap_or(u64::MAX);
        self.summoned_until_ms = now_ms.saturating_add(time_ms);
        self.state_willingness(now_ms);
    }

    /// Sets whether this node takes an office that the group gives it.
    pub(super) fn state_willingness(&mut self, now_ms: u64) {
        let declines = self.record.declines();
        let is_summoned = now_ms < self.summoned_until_ms;
        self.member
            .set_declines(self.retirement.is_on() || (declines && !is_summoned));
    }

    /// Hands over the office if this node should not have it. The reconciler moves the group's
    /// lead.
    pub(super) fn give_way(&mut self, now_ms: u64) {
        let own = self.state.nodes.get(&self.own);
        let is_drained = own.is_some_and(|own| own.drain != Drain::No);
        let is_in_office = self
            .shard
            .is_some_and(|shard| self.member.office(shard).is_some());
        let is_free = self.handing_over == HandingOver::No;
        if !(is_drained || self.retirement.is_on()) || !is_in_office || !is_free {
            return;
        }
        let is_due = |at_ms| now_ms >= at_ms + self.times.node_timeout_ms;
        let has_successor = successor(&self.state, self.own);
        if !has_successor || !self.gave_way_ms.is_none_or(is_due) {
            return;
        }
        self.gave_way_ms = Some(now_ms);
        self.fail_over(None);
    }
}

/// Whether a copy of a node's shard may take the node's place.
fn successor(state: &cluster::ControlState, own: NodeId) -> bool {
    let shard = state.shard_of(own).and_then(|id| state.shards.get(&id));
    shard.is_some_and(|shard| {
        let mut members = shard.members.iter();
        members.any(|(id, kind)| {
            let node = state.nodes.get(id);
            let node = node.filter(|node| is_willing(node) && !node.record.declines());
            *id != own && *kind == CopyKind::Data && node.is_some()
        })
    })
}

fn is_willing(node: &Member) -> bool {
    !node.is_failed && node.drain == Drain::No
}

/// Whether a node leads its shard, and the group, if another node could lead it.
fn leads(seen: &Seen) -> (bool, bool) {
    let Seen { own, state, .. } = seen;
    let shard = state.shard_of(*own).and_then(|id| state.shards.get(&id));
    let is_primary = shard.is_some_and(|shard| shard.primary == *own);
    let is_other_voter = |(id, node): (&NodeId, &Member)| {
        id != own && is_willing(node) && seen.membership.voters.contains(&node.raft_id)
    };
    let is_leader = seen.leader == Some(*own);
    (
        is_primary && successor(state, *own),
        is_leader && state.nodes.iter().any(is_other_voter),
    )
}

impl Part {
    /// Whether this node leads something that another node could lead.
    pub(super) fn has_to_give(&self) -> bool {
        let node = self.node.upgrade();
        let node = node.filter(|node| node.group.is_there());
        node.is_some_and(|node| leads(&node.group.get()) != (false, false))
    }

    /// Hands over what this node leads, and waits until other nodes have it, while `goes_on`.
    /// Returns whether they have.
    pub(super) fn give_away(
        &self,
        reason: Reason,
        time: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> bool {
        if !self.post(Event::Retire(reason)) {
            return true;
        }
        let done = poll(time, LOOK, || {
            let is_given = !self.has_to_give();
            (is_given || !goes_on()).then_some(is_given)
        });
        done.unwrap_or(false)
    }

    /// Hands over what this node leads, because it is about to be restarted. It leads nothing until
    /// then, or until an order to lead again.
    pub(super) fn leave_for_restart(&self) -> Result<(), CommandError> {
        let node = self.node.upgrade().filter(|node| node.group.is_there());
        let node = node.ok_or(IN_NO_GROUP)?;
        node.core.log.notice(format_args!(
            "An operator has this node give away what it leads, to start it anew."
        ));
        let timeout_s = node.core.config.current().replication.shutdown_timeout_s;
        let time = Duration::from_secs(u64::from(timeout_s)).max(RESTART_WAIT_MIN);
        if self.give_away(Reason::Restart, time, &|| !node.is_stopping()) {
            return Ok(());
        }
        let _in_a_group = self.post(Event::Stay(Reason::Restart));
        Err(CommandError::fixed(
            "ERR nobody has taken over what this node leads within shutdown-timeout",
        ))
    }

    /// Drains a node, undrains it, or makes it leave.
    pub(super) fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        let error = CommandError::fixed;
        let node = std::str::from_utf8(node).ok().and_then(id_of);
        let node = node.ok_or_else(|| error("ERR a node is named by 40 digits"))?;
        let log = self.raft_log();
        let log = log.ok_or(IN_NO_GROUP)?;
        let state = log.watch();
        if !state.nodes.contains_key(&node) {
            return Err(error("ERR no node of the control group has this name"));
        }
        let shard = state.shard_of(node);
        let is_needed = shard.is_some_and(|id| {
            let is_empty = state.is_cluster() == Some(true) && state.slots.of(id).is_empty();
            let is_primary = state.shards.get(&id).is_some_and(|one| one.primary == node);
            is_primary && !is_empty && !successor(&state, node)
        });
        if order == NodeOrder::Leave && is_needed {
            return Err(error(
                "ERR it is the primary, and no replica is there to take its place",
            ));
        }
        let drain = match order {
            NodeOrder::Leave => Drain::Leaving,
            NodeOrder::Drain => Drain::Drained,
            NodeOrder::Undrain => Drain::No,
        };
        let applied = log.propose(&unique::proposal(Entry::Drain { node, drain }));
        match applied {
            Ok(Applied::Done) => {
                if let Some(own) = self.node.upgrade() {
                    if order == NodeOrder::Undrain && own.group.get().own == node {
                        let _in_a_group = self.post(Event::Stay(Reason::Restart));
                    }
                    own.core.log.notice(format_args!(
                        "An operator has node {node} of the control group {}",
                        match drain {
                            Drain::Leaving => "leave",
                            Drain::Drained => "lead nothing",
                            Drain::No => "lead again, and stay",
                        }
                    ));
                }
                Ok(())
            }
            Ok(_) => Err(error("ERR no node of the control group has this name")),
            Err(reason) => Err(CommandError::Text(
                format!("ERR The control group did not take the change: {reason}").into(),
            )),
        }
    }
}
