//! Performs the member's actions: heartbeats, seals, offices. Feeds the results back to the member.

use std::collections::BTreeSet;

use cluster::message::{Fetch, Heartbeat, HeartbeatReply, Message, Seal};
use cluster::{ControlLog as _, NodeId, drift, member};

use super::driver::{Driver, Event, post};
use super::libraries;
use super::links::{Reply, Subject};

/// A seal without an outcome is begun again after this time.
const SEAL_MS: u64 = 1_000;

impl Driver {
    /// Handles the leader's answer to a heartbeat.
    pub(super) fn hear_leader(&mut self, now_ms: u64, reply: &HeartbeatReply) {
        self.heard_leader_ms = now_ms;
        let was_off = drift::is_off(self.member.drift_ppm());
        self.member.on_reply(now_ms, reply);
        if let Some(granted_ms) = self.member.granted_ms() {
            self.leader.note_lease_of_leader(granted_ms, now_ms);
            self.tell_of_other_timeout(reply, granted_ms);
        }
        let ppm = self.member.drift_ppm();
        if drift::is_off(ppm) != was_off {
            match was_off {
                false => self.warn(&format!(
                    "The clock of this node goes at another rate than the control leader's, by {ppm} parts in a million: it gets no lease"
                )),
                true => self.tell("The clock of this node goes as fast as the control leader's again"),
            }
        }
        self.set_lease();
    }

    fn set_lease(&self) {
        if let (Some(duty), Some(shard)) = (&self.duty, self.shard) {
            let until_ms = self.member.lease_until_ms(shard);
            if self.member.counts_longer() {
                duty.shorten_lease_to_ms(until_ms);
            }
            duty.set_lease_until_ms(until_ms);
        }
    }

    pub(super) fn seal(&mut self, seal: Seal, reply: Option<Reply>) {
        let actions = self.member.on_seal(seal);
        let is_taken = actions
            .iter()
            .any(|action| matches!(action, member::Action::Seal(_)));
        match reply {
            Some(reply) if is_taken => self.sealing.push((seal, reply)),
            Some(reply) => reply.answer(Err("a later term is sealed".to_owned())),
            None => {}
        }
        self.perform(actions);
    }

    /// Notes that a seal and the log are durable.
    pub(super) fn sealed(&mut self, seal: Seal, is_certain: bool) {
        if self.sealing_now.is_some_and(|(now, _)| now == seal) {
            self.sealing_now = None;
        }
        self.note_log();
        let answer = self.member.on_sealed(seal, is_certain);
        let actions = answer.into_iter().collect();
        self.perform(actions);
    }

    pub(super) fn begin_office(&mut self, term: u64, is_begun: bool) {
        self.note_log();
        let Some(shard) = self.shard else { return };
        if is_begun && self.member.on_office(shard, term) {
            self.tell(&format!("This node is the primary, in term {term}"));
            if let Some(node) = self.node.upgrade() {
                // The log of the data may have older ones.
                libraries::state_to_log(&node);
            }
        } else {
            self.member.give_up_office(shard, term);
            self.tell(&format!(
                "This node did not become the primary of term {term}"
            ));
        }
        self.member.hurry();
        self.routes_changed();
    }

    /// Publishes whether this node serves its hash slots, which may have changed with its role.
    pub(super) fn routes_changed(&self) {
        if let Some(node) = self.node.upgrade() {
            node.cluster_mode.publish(&node);
        }
    }

    pub(super) fn perform(&mut self, actions: Vec<member::Action>) {
        for action in actions {
            match action {
                member::Action::Heartbeat(beat) => self.send_heartbeat(&beat),
                member::Action::Seal(seal) => self.begin_seal(seal),
                // Only a message starts a fetch: see `fetch`.
                member::Action::Fetch(_) => {}
                member::Action::Answer(answer) => {
                    let bytes = Message::Answer(answer).encode();
                    let (known, others) = std::mem::take(&mut self.sealing)
                        .into_iter()
                        .partition(|(seal, _)| *seal == answer.seal);
                    self.sealing = others;
                    let known: Vec<(Seal, Reply)> = known;
                    for (_, reply) in known {
                        reply.answer(Ok(bytes.clone()));
                    }
                    self.leader.on_answer(&answer);
                }
                member::Action::TakeOffice { term, .. } => {
                    self.note_later_term();
                    self.followed = None;
                    if let Some(duty) = &self.duty {
                        let events = self.events.clone();
                        let done = move |is_begun| post(&events, Event::Office(term, is_begun));
                        duty.take_office(term, Box::new(done));
                    }
                }
                member::Action::Follow { term, primary, .. } => {
                    self.note_later_term();
                    self.follow(term, primary);
                }
                member::Action::LeaveOffice { .. } => {
                    if let Some(duty) = &self.duty {
                        duty.leave_office();
                        self.tell("This node is the primary no more");
                        self.routes_changed();
                    }
                }
            }
        }
    }

    fn begin_seal(&mut self, seal: Seal) {
        let now_ms = self.now_ms().unwrap_or(0);
        // A repeated request for it is in progress already, unless another seal replaced it and
        // failed.
        let is_under_way = |(known, at_ms): (Seal, u64)| known == seal && now_ms < at_ms + SEAL_MS;
        if self.sealing_now.is_some_and(is_under_way) {
            return;
        }
        let Some(duty) = &self.duty else { return };
        self.sealing_now = Some((seal, now_ms));
        let events = self.events.clone();
        let done = move |is_certain| post(&events, Event::Sealed(seal, is_certain));
        duty.seal(seal, Box::new(done));
    }

    /// Handles the leader's order to fetch the part of another node's log that this node lacks.
    pub(super) fn fetch(&mut self, fetch: Fetch, reply: Option<Reply>) {
        if self.fetching.fetch != Some(fetch) {
            let taken = self.member.on_fetch(fetch);
            let address = self.address_of(fetch.from).filter(|_| taken.is_some());
            let (Some(duty), Some(address)) = (&self.duty, address) else {
                if let Some(reply) = reply {
                    reply.answer(Err("this copy is not sealed for that".to_owned()));
                }
                return;
            };
            duty.follow(fetch.seal.term, &address);
            self.tell(&format!(
                "This node gets the rest of the log, up to {}, from {}, which keeps the log alone",
                fetch.end.sequence, fetch.from
            ));
            self.give_up_fetch();
            self.fetching.fetch = Some(fetch);
        }
        // Only the last request is answered: during a long fetch, many waiting ones would block
        // everything else between the two nodes.
        self.fetching.waiting = reply;
    }

    /// Checks whether the fetched log is complete.
    pub(super) fn look_at_fetch(&mut self) {
        let (Some(fetch), Some(duty)) = (self.fetching.fetch, &self.duty) else {
            return;
        };
        if !self.member.is_sealed_for(fetch.seal) {
            return self.give_up_fetch();
        }
        let (end, _) = duty.log_end();
        if end != fetch.end {
            return;
        }
        let waiting = self.fetching.end();
        let waiting = waiting.into_iter().map(|reply| (fetch.seal, reply));
        self.sealing.extend(waiting);
        let actions = self.member.on_fetched(fetch);
        self.perform(actions);
    }

    fn give_up_fetch(&mut self) {
        if let Some(reply) = self.fetching.end() {
            reply.answer(Err("a later seal came between".to_owned()));
        }
    }

    /// Sends a heartbeat to every voter, if this node takes part.
    fn send_heartbeat(&mut self, beat: &Heartbeat) {
        if !self.standing.takes_part() {
            return;
        }
        let bytes = Message::Heartbeat(beat.clone()).encode();
        let voters = self.log.membership().voters;
        let mut to: BTreeSet<NodeId> = voters
            .iter()
            .filter_map(|id| self.state.node_of(*id).map(|(node, _)| *node))
            .collect();
        to.extend(
            self.standing
                .leader
                .and_then(|id| self.state.node_of(id))
                .map(|(node, _)| *node),
        );
        for node in to {
            if node != self.own {
                self.ask(node, bytes.clone());
            } else if let Some(now_ms) = self.now_ms()
                && let Some(Message::Reply(reply)) = self.on_heartbeat(now_ms, beat)
            {
                self.hear_leader(now_ms, &reply);
            }
        }
    }

    pub(super) fn ask(&self, node: NodeId, bytes: Vec<u8>) {
        let events = self.events.clone();
        let done = move |told| post(&events, Event::Told(node, told));
        self.links.ask(node, Subject::Member, bytes, Box::new(done));
    }
}
