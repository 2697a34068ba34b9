//! The shard that a node in cluster mode begins when it has come into a group, and the hash slots that it brings.
//!
//! ```text
//!   No ── in the group, of no shard as far as is known here ─► Looking: a read barrier ── it is of one, or nobody knows ─► No
//!                                                                   │ it is of none
//!                       No ◄── refused ── Proposed: the log is of the new shard (SEAL), entry "the shard begins"
//!                       No ◄── seen in the state ──┘   ▲ nobody knows what became of it: the same request again
//! ```
//!
//! Without the barrier a node that was started again, and knows an old state, would take its log for that of a new shard.
//!
//! A replica that its shard has spared proposes itself as a copy of the shard that an operator has ordered, or of one that lacks
//! a replica, instead. As long as a change goes on that
//! ends its membership it begins nothing: what it has may be needed.

use std::sync::Arc;

use cluster::entry::ShardChange;
use cluster::state::Drain;
use cluster::{Applied, ControlLog as _, ControlState, Entry, Proposal, ShardId, Unavailable};

use super::driver::{Driver, Event, post};
use super::duty::Duty;
use super::links::spawn;
use super::{spare_replicas, unique};

/// How far a node is with beginning a shard of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It has one, or has not looked.
    No,
    /// It looks whether it has one.
    Looking,
    /// It has proposed one.
    Proposed(Proposal),
}

impl Driver {
    /// In cluster mode a node that has data and is of no shard begins one, and brings the hash slots that it owned by itself.
    pub(super) fn begin_own_shard(&mut self) {
        let known = self.state.nodes.get(&self.own);
        // Who is to leave begins nothing.
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

    /// The control state here is the newest there was when it was asked for, or nobody knows.
    pub(super) fn looked(&mut self, is_newest: bool) {
        self.beginning = Beginning::No;
        let state = self.log.watch();
        if !is_newest || state.is_needed(self.own) {
            return;
        }
        if let Some(entry) = self.joins_another(&state) {
            return self.propose_own_shard(unique::proposal(entry));
        }
        // No shard before it had this number: there was no such index.
        let shard = ShardId(u32::try_from(state.index).unwrap_or(u32::MAX));
        match self.begin_shard(shard) {
            Ok(entry) => self.propose_own_shard(unique::proposal(entry)),
            Err(reason) => self.warn(&format!("This node cannot begin its shard: {reason}")),
        }
    }

    /// The entry by which a replica that was spared is one of the shard that it is ordered to, or of one that lacks it. Who was never
    /// a replica here is meant for something else.
    fn joins_another(&self, state: &ControlState) -> Option<Entry> {
        let may_grow = |id: &ShardId| state.shards.get(id).is_some_and(|to| state.may_grow(to));
        let needy = || spare_replicas::needy(state).filter(|_| self.was_replica);
        let to = self.destination.filter(may_grow).or_else(needy)?;
        Some(Entry::add_data_copy(to, state.shards.get(&to)?, self.own))
    }

    /// What is here is of that shard from now on; the entry by which it begins.
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

    /// What became of the entry by which the shard of this node begins.
    pub(super) fn began(&mut self, applied: Result<Applied, Unavailable>) {
        let Beginning::Proposed(proposal) = &self.beginning else {
            return;
        };
        match applied {
            // The state here has it soon; or there will be none before the next start.
            Ok(Applied::Done) | Err(Unavailable::Ended) => {}
            Ok(Applied::Stale | Applied::Refused) => self.beginning = Beginning::No,
            Err(_) => self.propose_own_shard(proposal.clone()),
        }
    }

    /// Has the hash slots that this node owned by itself be those of its shard.
    fn claim(&mut self, shard: ShardId) {
        // Who leaves the cluster has kept them for the next one.
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

    /// What became of the hash slots that this node brought.
    pub(super) fn claimed(&mut self, applied: Result<Applied, Unavailable>) {
        self.claims = false;
        match applied {
            // It is looked again whether they are its shard's. Proposed again before the state here had them, they may be.
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

    /// Whether another shard owns some of the hash slots that this node brought, as far as is known here.
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
