//! A node that is drained, or about to stop, gives away what it leads: the office of its shard to a replica that has
//! everything, and the lead of the control group to another voter.
//!
//! ```text
//!   SIGTERM, SHUTDOWN ─► retire ─┐                      ┌─► FAILOVER, again and again until another is the primary
//!   entry "drain" ───────────────┴─► give_way, each tick┴─► the reconciler has another voter lead
//! ```
//!
//! It does so only where somebody is there to take over; a node that is alone stops as ever.

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

/// How often it is looked whether everything is given away.
const LOOK: Duration = Duration::from_millis(5);
/// A node that is to be restarted waits at least this long for others to lead: `shutdown-timeout` may be 0.
const RESTART_WAIT_MIN: Duration = Duration::from_secs(1);
/// How long an order to promote this node may take.
const SUMMONED: Duration = Duration::from_secs(20);

impl Driver {
    /// There is a reason to lead nothing.
    pub(super) fn retire(&mut self, reason: Reason, now_ms: u64) {
        self.retirement.begin(reason, now_ms);
        self.gave_way_ms = None;
        self.state_willingness(now_ms);
    }

    /// A reason to lead nothing is none any more.
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

    /// Follows the primary that there is.
    fn follow_present(&mut self) {
        let shard = self.own_shard();
        if let Some((term, primary)) = shard.map(|shard| (shard.term, shard.primary))
            && primary != self.own
        {
            self.follow(term, primary);
        }
    }

    /// Who ordered a restart has not restarted this node: it follows until that comes, and leads again where it does not.
    pub(super) fn end_overdue_retirement(&mut self, now_ms: u64) {
        if self.retirement.is_late(now_ms) {
            self.follow_present();
        }
        if self.retirement.is_overdue(now_ms) {
            self.tell("This node was to be restarted, and was not: it may lead again");
            self.stay(Reason::Restart, now_ms);
        }
    }

    /// A client has ordered that this node be promoted: it is for so long as that takes, whatever it is configured to.
    pub(super) fn be_summoned(&mut self, now_ms: u64) {
        self.stay(Reason::Restart, now_ms);
        let time_ms = u64::try_from(SUMMONED.as_millis()).unwrap_or(u64::MAX);
        self.summoned_until_ms = now_ms.saturating_add(time_ms);
        self.state_willingness(now_ms);
    }

    /// Says whether this node takes an office that the group gives it.
    pub(super) fn state_willingness(&mut self, now_ms: u64) {
        let declines = self.record.declines();
        let is_summoned = now_ms < self.summoned_until_ms;
        self.member
            .set_declines(self.retirement.is_on() || (declines && !is_summoned));
    }

    /// Hands the office over where this node is not to have it. The reconciler sees to who leads.
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

/// Whether a copy of a node's shard may take its place.
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

/// What a node leads that somebody else may lead: its shard, the group.
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
    /// Whether this node leads something that another one could.
    pub(super) fn has_to_give(&self) -> bool {
        let node = self.node.upgrade();
        let node = node.filter(|node| node.group.is_there());
        node.is_some_and(|node| leads(&node.group.get()) != (false, false))
    }

    /// Gives away what this node leads, and waits until others have it; no longer than `goes_on` says. Whether it is given
    /// away.
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

    /// Gives away what this node leads, because it is to be restarted; leads nothing until then, or until an order to lead
    /// again comes to this node.
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

    /// Has a node do less, or leave.
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
