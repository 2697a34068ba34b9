//! The shard that a node in cluster mode begins when it has come into a group, and the hash slots that it brings.
//!
//! ```text
//!   in the group, of no shard ─► log is of a new shard (SEAL) ─► entry: the shard begins ─► entry: its hash slots
//! ```

use std::sync::Arc;

use cluster::entry::ShardChange;
use cluster::{Applied, ControlLog as _, Entry, ShardId};

use super::driver::{Driver, Event, post};
use super::duty::Duty;
use super::links::spawn;
use super::unique;

impl Driver {
    /// In cluster mode a node that has data and is of no shard begins one, and brings the hash slots that it owned by itself.
    pub(super) fn begin_own_shard(&mut self) {
        let Some(duty) = self.duty.clone().filter(|_| self.is_cluster) else {
            return;
        };
        let is_in = self.state.nodes.contains_key(&self.own);
        if !is_in || self.begins || self.standing.leader.is_none() {
            return;
        }
        match self.state.shard_of(self.own) {
            None => self.propose_shard(&duty),
            Some(shard) => {
                self.proposed_shard = None;
                self.claim(shard);
            }
        }
    }

    fn propose_shard(&mut self, duty: &Duty) {
        // No shard before it had this number: there was no such index. Where nobody knows what became of it, it is proposed
        // again under the same: this node never begins two.
        let new = || ShardId(u32::try_from(self.state.index).unwrap_or(u32::MAX));
        let shard = self.proposed_shard.unwrap_or_else(new);
        if let Err(reason) = duty.begin_shard(shard) {
            self.warn(&format!("This node cannot begin its shard: {reason}"));
            return;
        }
        self.begins = true;
        self.proposed_shard = Some(shard);
        self.shard = Some(shard);
        let (end, applied) = duty.log_end();
        self.member
            .begin_copy(shard, duty.seal_term(), end, applied);
        let create = Entry::Shard {
            shard,
            expected_epoch: 0,
            change: ShardChange::Create {
                primary: self.own,
                end,
                is_quorum: false,
            },
        };
        let (events, log) = (self.events.clone(), Arc::clone(&self.log));
        let unsure = self.events.clone();
        let done = move |applied: Result<Applied, cluster::Unavailable>| {
            let catch_up = move || {
                let is_seen = log.read_barrier().is_ok();
                let is_refused = is_seen && applied == Ok(Applied::Refused);
                post(&events, Event::Began { is_refused });
            };
            if spawn("began", catch_up).is_err() {
                let is_refused = false;
                post(&unsure, Event::Began { is_refused });
            }
        };
        self.log.propose_anywhere(&unique::proposal(create), done);
    }

    /// The shard of this node is in the control state, or has to be proposed again.
    pub(super) fn began(&mut self, is_refused: bool) {
        self.begins = false;
        let state = self.log.watch();
        if is_refused && state.shard_of(self.own).is_none() {
            self.proposed_shard = None;
        }
    }

    fn claim(&mut self, shard: ShardId) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let ranges = node.cluster_mode.claims();
        if ranges.is_empty() {
            return;
        }
        self.begins = true;
        let slots = Entry::Slots {
            ranges,
            expected: None,
            owner: Some(shard),
        };
        let events = self.events.clone();
        let done = move |applied: Result<Applied, cluster::Unavailable>| {
            let applied = applied.map_err(|error| error.to_string());
            post(&events, Event::Claimed(applied));
        };
        self.log.propose_anywhere(&unique::proposal(slots), done);
    }

    /// What became of the hash slots that this node brought.
    pub(super) fn claimed(&mut self, applied: Result<Applied, String>) {
        self.begins = false;
        match applied {
            // It is tried again.
            Err(_) => return,
            Ok(Applied::Done) => {}
            Ok(_) => self.warn("The hash slots that this node owned by itself have another owner"),
        }
        if let Some(node) = self.node.upgrade() {
            node.cluster_mode.forget_claims(&node);
        }
    }
}
