//! The shard that a node in cluster mode begins after it has joined a group, and the hash slots
//! that it brings.
//!
//! ```text
//!   No ── in the group, of no shard as far as is known here ─► Looking: a read barrier ── it is of one, or nobody knows ─► No
//!                                                                   │ it is of none
//!                       No ◄── refused ── Proposed: the log is of the new shard (SEAL), entry "the shard begins"
//!                       No ◄── seen in the state ──┘   ▲ nobody knows what became of it: the same request again
//! ```
//!
//! Without the barrier a restarted node that knows an old state would take its log for that of a
//! new shard.
//!
//! A replica that its shard has released proposes itself as a copy of the shard that an operator
//! ordered, or of one that lacks a replica, instead. While a change that ends its membership is in
//! progress, it begins nothing, because its copy may be needed.

use std::sync::Arc;

use cluster::entry::ShardChange;
use cluster::state::Drain;
use cluster::{Applied, ControlLog as _, ControlState, Entry, Proposal, ShardId, Unavailable};

use super::driver::{Driver, Event, post};
use super::duty::Duty;
use super::links::spawn;
use super::{spare_replicas, unique};

/// Progress of beginning a shard of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It has a shard, or has not checked.
    No,
    /// It checks whether it has one.
    Looking,
    /// It has proposed one.
    Proposed(Proposal),
}

impl Driver {
    /// In cluster mode, begins a shard if this node has data and is in none. Brings the hash slots
    /// that it owned by itself.
    pub(super) fn begin_own_shard(&mut self) {
        let known = self.state.nodes.get(&self.own);
        // A node that is to leave begins nothing.
        let is_in = known.is_some_and(|own| own.drain != Drain::Leaving);
        if !self.is_cluster || self.duty.is_none() || !is_in || self.standing.leader.is_none() {
            return;
        }
        match self.state.shard_of(self.own) {
            Some(shard) => {
                self.beginning = Beginning::No;
                self.destination = self.destination.filter(|to| *to != shard);
                self.claim(shard);
            }
            None if self.beginning == Beginning::No && !self.state.is_needed(self.own) => {
                let (events, log) = (self.events.clone(), Arc::clone(&self.log));
                let look = move || post(&events, Event::Looked(log.read_barrier().is_ok()));
                if spawn("shard", look).is_ok() {
                    self.beginning = Beginning::Looking;
                }
            }
            None => {}
        }
    }

    /// Handles the result of the check: whether the control state here was the newest.
    pub(super) fn looked(&mut self, is_newest: bool) {
        self.beginning = Beginning::No;
        let state = self.log.watch();
        if !is_newest || state.is_needed(self.own) {
            return;
        }
        if let Some(entry) = self.joins_another(&state) {
            return self.propose_own_shard(unique::proposal(entry));
        }
        // No earlier shard can have this number, because there was no such index.
        let shard = ShardId(u32::try_from(state.index).unwrap_or(u32::MAX));
        match self.begin_shard(shard) {
            Ok(entry) => self.propose_own_shard(unique::proposal(entry)),
            Err(reason) => self.warn(&format!("This node cannot begin its shard: {reason}")),
        }
    }

    /// Returns the entry by which a released replica joins the shard that was ordered, or one that
    /// lacks a replica. A node that was never a replica here has another purpose.
    fn joins_another(&self, state: &ControlState) -> Option<Entry> {
        let may_grow = |id: &ShardId| state.shards.get(id).is_some_and(|to| state.may_grow(to));
        let needy = || spare_replicas::needy(state).filter(|_| self.was_replica);
        let to = self.destination.filter(may_grow).or_else(needy)?;
        Some(Entry::add_data_copy(to, state.shards.get(&to)?, self.own))
    }

    /// Assigns the data here to that shard from now on. Returns the entry that begins the shard.
    pub(super) fn begin_shard(&mut self, shard: ShardId) -> Result<Entry, String> {
        let duty: Arc<Duty> = self.duty.clone().ok_or("it keeps no data")?;
        duty.begin_shard(shard)?;
        self.shard = Some(shard);
        let (end, applied) = duty.log_end();
        self.member
            .begin_copy(shard, duty.seal_term(), end, applied);
        Ok(Entry::Shard {
            shard,
            expected_epoch: 0,
            change: ShardChange::Create {
                primary: self.own,
                end,
                is_quorum: false,
            },
        })
    }

    fn propose_own_shard(&mut self, proposal: Proposal) {
        let events = self.events.clone();
        let done = move |applied| post(&events, Event::Began(applied));
        self.log.propose_anywhere(&proposal, done);
        self.beginning = Beginning::Proposed(proposal);
    }

    /// Handles the outcome of the entry that begins this node's shard.
    pub(super) fn began(&mut self, applied: Result<Applied, Unavailable>) {
        let Beginning::Proposed(proposal) = &self.beginning else {
            return;
        };
        match applied {
            // Either the state here will soon have it, or there will be no new state before the
            // next start.
            Ok(Applied::Done) | Err(Unavailable::Ended) => {}
            Ok(Applied::Stale | Applied::Refused) => self.beginning = Beginning::No,
            Err(_) => self.propose_own_shard(proposal.clone()),
        }
    }

    /// Proposes the hash slots that this node owned by itself for its shard.
    fn claim(&mut self, shard: ShardId) {
        // A node that leaves the cluster keeps them for the next one.
        let is_held = self.claims || self.part.merging.gives_way();
        let Some(node) = self.node.upgrade().filter(|_| !is_held) else {
            return;
        };
        let ranges = node.cluster_mode.claims();
        if ranges.is_empty() {
            return;
        }
        let mut slots = ranges.iter().flat_map(|(first, last)| *first..=*last);
        if slots.all(|slot| self.state.slots.owner(slot) == Some(shard)) {
            return node.cluster_mode.forget_claims(&node);
        }
        self.claims = true;
        let slots = Entry::Slots {
            ranges,
            expected: None,
            owner: Some(shard),
        };
        let events = self.events.clone();
        let done = move |applied| post(&events, Event::Claimed(applied));
        self.log.propose_anywhere(&unique::proposal(slots), done);
    }

    /// Handles the outcome of the proposal for the brought hash slots.
    pub(super) fn claimed(&mut self, applied: Result<Applied, Unavailable>) {
        self.claims = false;
        match applied {
            // The next check finds whether the shard owns them. A proposal that was repeated too
            // early is stale, although the shard may own them.
            Ok(Applied::Done) | Err(_) => return,
            Ok(Applied::Stale) if !self.are_of_others() => return,
            Ok(Applied::Stale | Applied::Refused) => {
                self.warn("The hash slots that this node owned by itself have another owner");
            }
        }
        if let Some(node) = self.node.upgrade() {
            node.cluster_mode.forget_claims(&node);
        }
    }

    /// Whether another shard owns some of the hash slots that this node brought, as far as this
    /// node knows.
    fn are_of_others(&self) -> bool {
        let state = self.log.watch();
        let own = state.shard_of(self.own);
        let claims = self.node.upgrade().map(|node| node.cluster_mode.claims());
        let claims = claims.unwrap_or_default();
        let mut slots = claims.iter().flat_map(|(first, last)| *first..=*last);
        slots.any(|slot| {
            state
                .slots
                .owner(slot)
                .is_some_and(|owner| Some(owner) != own)
        })
    }
}
