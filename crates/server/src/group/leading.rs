//! Periodic work of the thread "group", and its work as control leader: proposals, seals of other
//! nodes, and the reconciler's steps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::message::Message;
use cluster::state::roles;
use cluster::{Applied, ControlLog as _, Entry, NodeId, drift, leader};

use super::driver::{Driver, Event, post};
use super::links::spawn;
use super::reconcile::Look;
use super::view::SHARD;
use super::{documents, libraries, unique};

impl Driver {
    /// Does what is due.
    pub(super) fn act_in_time(&mut self, now_ms: u64) {
        self.end_hand_over(now_ms);
        self.end_overdue_retirement(now_ms);
        self.state_willingness(now_ms);
        self.give_way(now_ms);
        self.look_at_log(now_ms);
        self.look_for_others(now_ms);
        self.ask_again(now_ms);
        self.give_up_awaiting(now_ms);
        let actions = self.member.on_tick(now_ms);
        self.perform(actions);
        for (node, ppm) in self.leader.take_judged() {
            self.tell_clock(node, ppm);
        }
        let state = Arc::clone(&self.state);
        let orders = self
            .leader
            .on_tick(now_ms, &state, self.standing.has_quorum);
        for order in orders {
            match order {
                leader::Action::Propose(entry) => self.propose(entry),
                leader::Action::Seal { to, seal } if to == self.own => self.seal(seal, None),
                leader::Action::Seal { to, seal } => self.ask(to, Message::Seal(seal).encode()),
                leader::Action::Fetch { to, fetch } if to == self.own => self.fetch(fetch, None),
                leader::Action::Fetch { to, fetch } => self.ask(to, Message::Fetch(fetch).encode()),
            }
        }
        self.state_longest_lease(now_ms);
        if self.standing.is_ready && self.standing.has_quorum {
            self.reconcile(now_ms);
            self.write_first_documents();
        }
    }

    /// Repeats unanswered questions that reads wait for.
    fn ask_again(&self, now_ms: u64) {
        if let Some(node) = self.node.upgrade() {
            let after_ms = self.times.heartbeat_ms / 2;
            node.replication.ask_again(now_ms, after_ms);
            self.part.reads.answer_waiting(&node);
        }
    }

    /// Logs the leader's finding about a node's clock.
    fn tell_clock(&self, node: NodeId, ppm: i64) {
        if !self.leader.leads() {
            return;
        }
        match drift::is_off(ppm) {
            true => self.warn(&format!(
                "The clock of node {node} is off by {ppm} parts in a million: it gets no lease"
            )),
            false => self.tell(&format!("The clock of node {node} goes well again")),
        }
    }

    pub(super) fn propose(&self, entry: Entry) {
        match &entry {
            Entry::Promote { term, primary, end, .. } => self.tell(&format!(
                "The control leader promotes {primary} to the primary of term {term}: its log ends at {} of term {}",
                end.sequence, end.term
            )),
            Entry::NodeState { node, is_failed: true } => {
                self.tell(&format!("Node {node} is not heard any more"));
            }
            Entry::NodeState { node, .. } => self.tell(&format!("Node {node} is heard again")),
            _ => {}
        }
        let proposal = unique::proposal(entry);
        let events = self.events.clone();
        self.log
            .propose_later(&proposal, move |_| post(&events, Event::StateChanged));
    }

    /// Writes this node's users and libraries as the group's, if the group has none yet.
    fn write_first_documents(&self) {
        let is_founded = !self.state.nodes.is_empty() && self.duty.is_some();
        let Some(node) = self.node.upgrade().filter(|_| is_founded) else {
            return;
        };
        let users = documents::is_wanted(&node) && !documents::are_complete(&self.state);
        let libraries = libraries::is_wanted(&node) && !libraries::are_complete(&self.state);
        if !users && !libraries || self.writes_documents.swap(true, Ordering::Relaxed) {
            return;
        }
        let (log, writes) = (Arc::clone(&self.log), Arc::clone(&self.writes_documents));
        let spawned = spawn("documents", move || {
            if libraries {
                libraries::write_first(&node, &*log);
            }
            if users {
                documents::write_first(&node);
            }
            writes.store(false, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.writes_documents.store(false, Ordering::Relaxed);
        }
    }

    /// Adjusts the members of Raft and of the shards to the existing nodes.
    fn reconcile(&mut self, now_ms: u64) {
        if self.state.nodes.is_empty() {
            self.found();
            return;
        }
        let membership = self.log.membership();
        let state = Arc::clone(&self.state);
        let changing = state
            .shards
            .iter()
            .filter(|(_, one)| one.old_members.is_some());
        let settled = changing.filter(|(id, shard)| self.leader.is_settled(**id, shard));
        let settled = settled.map(|(id, _)| *id).collect();
        let shards = state.shards.iter();
        let leader = &mut self.leader;
        let follows = shards.filter(|(id, shard)| leader.all_follow(**id, shard, now_ms));
        let follows = follows.map(|(id, _)| *id).collect();
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let config = node.core.config.current();
        let barrier = config.cluster.migration_barrier;
        let spare = match self.is_cluster {
            true => self.spare_replicas.next(&state, barrier, now_ms),
            false => None,
        };
        let silence_ms = |node: NodeId| self.leader.silence_ms(node, now_ms);
        let next = self.reconciler.next(&Look {
            state: &state,
            members: &membership,
            silence_ms: &silence_ms,
            settled,
            follows,
            voter_lost_ms: config.group.voter_lost_ms,
            unfinished: self.log.unfinished_change(),
            spare,
            own: self.own,
            retires: self.retirement.is_on(),
            now_ms,
        });
        let Some(step) = next else {
            return;
        };
        self.tell(&format!("The control leader {step}"));
        let events = self.events.clone();
        let done = move |outcome| post(&events, Event::Reconciled(outcome));
        match step.into_asks() {
            super::reconcile::Asks::Raft(change) => self.log.change_later(change, done),
            super::reconcile::Asks::Entry(entry) => {
                let proposal = unique::proposal(entry);
                self.log.propose_later(&proposal, move |applied| {
                    done(match applied {
                        Ok(Applied::Refused) => Err("it was refused".to_owned()),
                        // The state has changed since, so the next step will differ.
                        Ok(Applied::Done | Applied::Stale) => Ok(()),
                        Err(error) => Err(error.to_string()),
                    });
                });
            }
        }
    }

    /// Proposes the first entries of a group: this node, and the shard that it is the primary of.
    fn found(&mut self) {
        if !self.reconciler.begin() {
            return;
        }
        let join = unique::proposal(Entry::Join {
            node: self.own,
            record: self.record.clone(),
        });
        // In cluster mode each node begins its own shard.
        let has_data = self.record.roles & roles::DATA != 0;
        let has_shard = has_data && !self.is_cluster;
        let create = match has_shard.then(|| self.begin_shard(SHARD)).transpose() {
            Ok(entry) => entry.map(unique::proposal),
            Err(reason) => {
                self.warn(&format!("This node cannot begin the group: {reason}"));
                return self.reconciler.end();
            }
        };
        let (log, events) = (Arc::clone(&self.log), self.events.clone());
        self.tell("A control group begins here");
        let done = move |applied: Result<Applied, cluster::Unavailable>| {
            let outcome = applied.map(drop).map_err(|error| error.to_string());
            post(&events, Event::Reconciled(outcome));
        };
        self.log
            .propose_later(&join, move |joined| match (joined, create) {
                (Ok(_), Some(create)) => log.propose_later(&create, done),
                (joined, _) => done(joined),
            });
    }
}
