//! The thread "group": what this node does as a member of the control group, and what it does where it leads.
//!
//! ```text
//!   heartbeats, seals, joins of peers ─┐                 ┌─► Duty: seal, office, follow, lease
//!   Duty is done ──────────────────────┼─► Member, Leader┼─► links: heartbeats, seals
//!   the control state has changed ─────┘    one at a time└─► RaftLog: proposals, members
//! ```
//!
//! It never waits but for the next event, and for that no longer than a part of a heartbeat. Raft has a thread of its own: a
//! slow disk of the control log delays what is decided, and no heartbeat.
//!
//! Invariants
//!  1. The leader's part acts only once this node has applied what was committed before it was elected.
//!  2. What a seal's answer says of the log was looked up after the seal was durable.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::control_log::ControlLog as _;
use cluster::entry::ShardChange;
use cluster::leader::{self, Leader};
use cluster::member::{self, Member};
use cluster::message::{Heartbeat, Message, Seal};
use cluster::state::roles;
use cluster::{Applied, ControlState, Entry, NodeId, NodeRecord, Shard, ShardId, Times};
use consensus::{RaftLog, Standing};

use super::control::Part;
use super::duty::{Duty, PrimaryAddress};
use super::files::{KnownPeer, Place};
use super::forming;
use super::handing_over::HandedOver;
use super::links::{Asked, Links, Reply, Subject, Told};
use super::reconcile::{Look, Reconciler};
use super::unique;
use super::view::{SHARD, Seen};
use crate::config::DurabilityLevel;
use crate::node::Node;
use crate::replication::following::Link;

/// Parts of a heartbeat for which the thread waits at most.
const TICKS_PER_HEARTBEAT: u64 = 4;
/// A seal is begun anew where nothing was heard of it for so long.
const SEAL_MS: u64 = 1_000;

/// What the thread hears.
pub(crate) enum Event {
    /// A peer asks.
    Asked(Asked),
    /// What a peer answered.
    Told(NodeId, Told),
    /// A seal is durable.
    Sealed(Seal, bool),
    /// An office has begun, or not.
    Office(u64, bool),
    /// The control state has changed.
    StateChanged,
    /// What was asked of the control log has been done, or not.
    Reconciled(Result<(), String>),
    /// This node's own record was proposed.
    Recorded,
    /// A node's entry to join has been applied, or not.
    Joined(NodeId, Result<Applied, String>, Reply),
    /// A node is to leave.
    Leave(NodeId),
    /// What became of that.
    Left(NodeId, Result<Applied, String>),
    /// The directives have changed.
    Configured,
    /// This node leaves, whatever the others say.
    Forget,
    /// A replica has all that this primary has, and no write begins; or that did not come about.
    Ready(NodeId, Result<(), String>, HandedOver),
    /// The copy at this address is to take the office, or the one that has most.
    FailOver(Option<(String, u16)>),
    /// The shard of this node was proposed, and the control state here is newer than that. It was refused for sure, or not.
    Began { is_refused: bool },
    /// The hash slots that this node brought are its shard's, or are not to be had.
    Claimed(Result<Applied, String>),
    /// The end.
    Stop,
}

/// See the module.
pub(crate) struct Driver {
    pub(super) node: Weak<Node>,
    part: Arc<Part>,
    pub(super) own: NodeId,
    pub(super) record: NodeRecord,
    pub(super) links: Arc<Links>,
    pub(super) log: Arc<RaftLog<Links>>,
    pub(super) events: SyncSender<Event>,
    pub(super) duty: Option<Arc<Duty>>,
    pub(super) member: Member,
    pub(super) leader: Leader,
    pub(super) state: Arc<ControlState>,
    pub(super) standing: Standing,
    reconciler: Reconciler,
    /// Of which shard this node is.
    pub(super) shard: Option<ShardId>,
    /// It is in cluster mode.
    pub(super) is_cluster: bool,
    /// Its own shard, or the slots of that, were proposed.
    pub(super) begins: bool,
    /// The shard that was proposed.
    pub(super) proposed_shard: Option<ShardId>,
    /// Whether it follows somebody now, or did last.
    was_replica: bool,
    /// Since when nobody is known to lead.
    leaderless_ms: Option<u64>,
    /// When this node left its office for another one; writes do not wait forever.
    pub(super) handed_over_ms: Option<u64>,
    /// A copy is waited for that is to take the office.
    pub(super) hands_over: bool,
    /// Who waits for the answer to which seal.
    sealing: Vec<(Seal, Reply)>,
    /// What is being made durable, and since when.
    sealing_now: Option<(Seal, u64)>,
    followed: Option<(u64, PrimaryAddress)>,
    records_own: bool,
    has_left: bool,
    published: Option<(u64, Option<u64>, u64, usize)>,
    pub(super) times: Times,
    tick: Duration,
}

/// What a driver begins with.
pub(crate) struct Setup {
    pub(crate) node: Weak<Node>,
    pub(crate) part: Arc<Part>,
    pub(crate) own: NodeId,
    pub(crate) record: NodeRecord,
    pub(crate) times: Times,
    pub(crate) links: Arc<Links>,
    pub(crate) log: Arc<RaftLog<Links>>,
    pub(crate) events: SyncSender<Event>,
    /// None for a witness.
    pub(crate) duty: Option<Arc<Duty>>,
    pub(crate) declines: bool,
    pub(crate) now_ms: u64,
}

impl Driver {
    pub(crate) fn new(setup: Setup) -> Self {
        let Setup {
            node,
            part,
            own,
            record,
            times,
            links,
            log,
            events,
            duty,
            declines,
            now_ms,
        } = setup;
        let mut member = Member::new(own, times, record.start_count, now_ms);
        member.set_declines(declines);
        let shard = duty.as_ref().and_then(|duty| duty.shard_of_log());
        if let (Some(duty), Some(shard)) = (&duty, shard) {
            let (end, applied) = duty.log_end();
            member.add_copy(shard, duty.seal_term(), end, applied);
        }
        Self {
            shard,
            is_cluster: record.roles & roles::CLUSTER != 0,
            begins: false,
            proposed_shard: None,
            was_replica: false,
            leaderless_ms: None,
            handed_over_ms: None,
            hands_over: false,
            times,
            node,
            part,
            own,
            record,
            links,
            log,
            events,
            duty,
            member,
            leader: Leader::new(times, now_ms),
            state: Arc::default(),
            standing: Standing::default(),
            reconciler: Reconciler::default(),
            sealing: Vec::new(),
            sealing_now: None,
            followed: None,
            records_own: false,
            has_left: false,
            published: None,
            tick: Duration::from_millis((times.heartbeat_ms / TICKS_PER_HEARTBEAT).max(1)),
        }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        loop {
            let mut next = match events.recv_timeout(self.tick) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(now_ms) = self.now_ms() else { return };
            self.look(now_ms);
            while let Some(event) = next {
                if matches!(event, Event::Stop) {
                    return;
                }
                self.hear(now_ms, event);
                next = events.try_recv().ok();
            }
            if self.has_left {
                return self.end();
            }
            self.act_in_time(now_ms);
        }
    }

    /// This node is in the group no more, and follows nobody. In cluster mode it is by itself from here on: a former primary with
    /// what it has, a former replica with nothing. Otherwise what it has stays, and it writes nothing until it is started without a group, or joins anew.
    fn end(&self) {
        if let Some(duty) = &self.duty {
            duty.leave_office();
        }
        self.tell("This node has left the control group");
        let node = self.node.upgrade().filter(|_| self.is_cluster);
        if let Some(node) = &node {
            // What is to go is known to be so before anybody sees this node by itself.
            node.group.publish(Seen::default());
            self.part.obey_nobody();
            node.replication.end_under_group(node, self.was_replica);
        }
        if let Err(error) = self.part.forget_group() {
            self.warn(&format!("That this node has left cannot be kept: {error}"));
        }
        if let Some(node) = node {
            node.cluster_mode.be_by_itself(&node);
        }
    }

    /// Milliseconds by the clock that leases are counted with; none once the server is gone.
    pub(super) fn now_ms(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        (!node.is_stopping()).then(|| node.core.clock.boottime_ms())
    }

    /// Looks at what has changed: the log of this node, Raft, the control state.
    fn look(&mut self, now_ms: u64) {
        self.note_log();
        self.note_level();
        self.standing = self.log.standing();
        self.note_leader(now_ms);
        let state = self.log.watch();
        if state.index > self.state.index {
            let was_in = self.state.nodes.contains_key(&self.own);
            self.state = state;
            self.take_state();
            self.has_left |= was_in && !self.state.nodes.contains_key(&self.own);
        }
        let is_led = self.standing.leader.is_some();
        self.leaderless_ms = match (is_led, self.leaderless_ms) {
            (true, _) => None,
            (false, since) => Some(since.unwrap_or(now_ms)),
        };
        self.publish(now_ms);
        self.begin_own_shard();
    }

    /// Who leads, and who may: when this node acknowledged itself counts for leaders after it.
    fn note_leader(&mut self, now_ms: u64) {
        let standing = &self.standing;
        let reign = standing.leader.map(|leader| (standing.term, leader));
        if let Some(reign) = reign.filter(|_| standing.is_leader) {
            self.member.note_acknowledged(reign, now_ms);
        }
        let membership = self.log.membership();
        let ids = membership.voters.iter();
        let voters = ids.map(|id| self.state.node_of(*id).map(|(node, _)| *node));
        // Where one of them is not known yet, no majority can be counted.
        let voters = voters.collect::<Option<BTreeSet<NodeId>>>();
        let voters = voters.filter(|_| !membership.is_changing);
        self.leader.set_voters(voters.unwrap_or_default(), now_ms);
        let reign = reign.filter(|_| standing.is_ready);
        self.leader.set_leading(reign, now_ms);
    }

    /// Whether writes are to wait for a majority may have been changed.
    fn note_level(&mut self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let level = node.core.config.current().durability.level;
        let is_quorum = self.duty.is_some() && level == DurabilityLevel::Quorum;
        let roles = match is_quorum {
            true => self.record.roles | roles::QUORUM,
            false => self.record.roles & !roles::QUORUM,
        };
        if roles != self.record.roles {
            self.record.roles = roles;
            self.record_own();
        }
    }

    fn note_log(&mut self) {
        let Some(duty) = &self.duty else { return };
        let Some(shard_id) = self
            .shard
            .filter(|shard| duty.shard_of_log() == Some(*shard))
        else {
            return;
        };
        let (end, applied) = duty.log_end();
        self.member.note_filled(shard_id);
        self.member.note_log(shard_id, end, applied);
        // It follows the primary of this term, and has something of it.
        let node = self.node.upgrade();
        let following = node.and_then(|node| node.replication.following());
        let is_connected = following.is_some_and(|one| one.link() == Link::Connected);
        let shard = self.state.shards.get(&shard_id);
        if is_connected
            && shard.is_some_and(|shard| shard.term == end.term && shard.primary != self.own)
        {
            let _sealed_out = self.member.accept(shard_id, end.term);
        }
    }

    /// Takes up another control state.
    pub(super) fn take_state(&mut self) {
        let state = Arc::clone(&self.state);
        let peers = forming::peers_of(&state, self.own);
        for KnownPeer {
            node,
            raft_id,
            place,
        } in &peers
        {
            self.links.set_place(*node, *raft_id, place);
        }
        if !state.nodes.is_empty() {
            self.links.retain(|node| state.nodes.contains_key(node));
        }
        if let Err(error) = self.part.keep_peers(peers) {
            self.warn(&format!(
                "Where the other nodes of the control group are cannot be kept: {error}"
            ));
        }
        if let Some(id) = state.shard_of(self.own).filter(|_| self.duty.is_some()) {
            self.take_shard(id);
        }
        let is_primary = self
            .own_shard()
            .is_some_and(|shard| shard.primary == self.own);
        if !is_primary {
            // Before the role changes: who waited for that is told where to go.
            self.publish_seen();
        }
        let actions = self.member.on_state(&state);
        self.perform(actions);
        if is_primary {
            // After it: nobody is sent to a primary that does not know yet that it is to take over.
            self.publish_seen();
        }
        self.follow_again();
        self.record_own();
    }

    /// This node is of that shard.
    fn take_shard(&mut self, id: ShardId) {
        let Some(duty) = &self.duty else { return };
        if self.shard != Some(id) {
            self.followed = None;
            self.shard = Some(id);
        }
        duty.set_shard(id);
        if let Some(shard) = self.state.shards.get(&id) {
            self.was_replica = shard.primary != self.own;
            duty.set_members(shard);
        }
    }

    /// The shard that this node is of, as the group has it.
    pub(super) fn own_shard(&self) -> Option<&Shard> {
        self.state.shards.get(&self.shard?)
    }

    /// The primary may be elsewhere than it was.
    fn follow_again(&mut self) {
        let Some((term, known)) = &self.followed else {
            return;
        };
        let shard = self.own_shard();
        let Some(shard) = shard.filter(|shard| shard.term == *term && shard.primary != self.own)
        else {
            return;
        };
        let address = self.address_of(shard.primary);
        if address.as_ref().is_some_and(|address| address != known) {
            self.follow(shard.term, shard.primary);
        }
    }

    fn address_of(&self, node: NodeId) -> Option<PrimaryAddress> {
        let record = &self.state.nodes.get(&node)?.record;
        Some(PrimaryAddress {
            host: record.host.clone(),
            client_port: record.client_port,
            link_port: record.link_port,
        })
    }

    fn follow(&mut self, term: u64, primary: NodeId) {
        let (Some(duty), Some(address)) = (&self.duty, self.address_of(primary)) else {
            return;
        };
        duty.follow(term, &address);
        self.tell(&format!(
            "This node follows {primary} at {}:{}, the primary of term {term}",
            address.host, address.client_port
        ));
        self.followed = Some((term, address));
    }

    /// Has the group know where this node is now.
    fn record_own(&mut self) {
        let known = self.state.nodes.get(&self.own);
        let is_known = known.is_none_or(|known| known.record == self.record);
        if is_known || self.records_own {
            return;
        }
        self.records_own = true;
        let entry = Entry::Node {
            node: self.own,
            record: self.record.clone(),
        };
        let events = self.events.clone();
        let proposal = unique::proposal(entry);
        self.log
            .propose_anywhere(&proposal, move |_| post(&events, Event::Recorded));
    }

    /// Shows what this node knows to everybody else.
    fn publish(&mut self, now_ms: u64) {
        let membership = self.log.membership();
        let standing = &self.standing;
        let now = (
            self.state.index,
            standing.leader,
            standing.term,
            membership.voters.len(),
        );
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let is_cut_off = self
            .leaderless_ms
            .is_some_and(|since_ms| now_ms >= since_ms + self.times.node_timeout_ms);
        node.cluster_mode.note_cut_off(&node, is_cut_off);
        if self.published == Some(now) {
            return;
        }
        let leader = standing
            .leader
            .and_then(|leader| self.state.node_of(leader));
        let leader = leader.map(|(id, _)| *id);
        if self
            .published
            .is_some_and(|before| before.1 != standing.leader)
        {
            let term = standing.term;
            self.tell(&match leader {
                Some(leader) => {
                    format!("The control leader is {leader}, in term {term} of the control log")
                }
                None => "There is no control leader".to_owned(),
            });
        }
        self.published = Some(now);
        self.publish_seen();
    }

    fn publish_seen(&self) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        let leader = self.standing.leader;
        let leader = leader.and_then(|leader| self.state.node_of(leader));
        node.group.publish(Seen {
            own: self.own,
            state: Arc::clone(&self.state),
            membership: self.log.membership(),
            leader: leader.map(|(id, _)| *id),
            control_term: self.standing.term,
        });
        node.cluster_mode.state_changed(&node);
    }

    fn hear(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Asked(asked) => self.answer(now_ms, asked),
            Event::Told(node, told) => self.told(now_ms, node, told),
            Event::Sealed(seal, is_certain) => self.sealed(seal, is_certain),
            Event::Office(term, is_begun) => self.begin_office(term, is_begun),
            Event::Reconciled(outcome) => {
                self.reconciler.end();
                if let Err(reason) = outcome {
                    self.tell(&format!(
                        "A change of the control group came to nothing: {reason}"
                    ));
                }
            }
            Event::Recorded => {
                self.records_own = false;
                self.record_own();
            }
            Event::Joined(node, outcome, reply) => self.answer_joined(node, outcome, reply),
            Event::Leave(node) => self.leave(node),
            Event::Left(node, Ok(Applied::Done)) => {
                self.tell(&format!("Node {node} has left the control group"));
            }
            Event::Left(node, outcome) => self.tell(&format!(
                "Node {node} does not leave the control group: {}",
                match outcome {
                    Ok(_) =>
                        "it is no member, the primary, or one that a majority may need".to_owned(),
                    Err(reason) => reason,
                }
            )),
            Event::Configured => self.configured(),
            Event::Forget => self.has_left = true,
            Event::Ready(to, outcome, done) => self.leave_office_to(to, outcome, done),
            Event::FailOver(address) => self.fail_over(address),
            Event::Began { is_refused } => self.began(is_refused),
            Event::Claimed(applied) => self.claimed(applied),
            Event::StateChanged | Event::Stop => {}
        }
    }

    /// What this node says of itself may have changed.
    fn configured(&mut self) {
        if let Some(node) = self.node.upgrade() {
            let is_quorum = self.record.roles & roles::QUORUM;
            self.record = self.part.record(&node);
            self.record.roles |= is_quorum;
            self.record_own();
        }
    }

    fn leave(&self, node: NodeId) {
        let proposal = unique::proposal(Entry::Leave { node });
        let events = self.events.clone();
        self.log.propose_anywhere(&proposal, move |applied| {
            let outcome = applied.map_err(|error| error.to_string());
            post(&events, Event::Left(node, outcome));
        });
    }

    fn answer(&mut self, now_ms: u64, asked: Asked) {
        let Asked {
            from,
            subject,
            bytes,
            reply,
        } = asked;
        match subject {
            Subject::Raft => {
                // By the time of now, which is after the leader sent it: that is what its quorum counts from.
                if let (Some(reign), Some(now_ms)) = (consensus::leader_of(&bytes), self.now_ms()) {
                    self.member.note_acknowledged(reign, now_ms);
                }
                self.log.serve(bytes, move |answer| reply.answer(answer));
            }
            Subject::Join => self.join(from, &bytes, reply),
            Subject::HandOver => self.hear_of_hand_over(from, reply),
            Subject::Meet | Subject::Publish => {
                reply.answer(Err("not a question for the group".to_owned()));
            }
            Subject::Member => match Message::decode(&bytes) {
                Ok(Message::Heartbeat(beat)) if beat.node == from => {
                    let answer = self.on_heartbeat(now_ms, &beat);
                    reply.answer(Ok(answer.map_or_else(Vec::new, |answer| answer.encode())));
                }
                Ok(Message::Seal(seal)) => self.seal(seal, Some(reply)),
                Ok(_) => reply.answer(Err("not a question".to_owned())),
                Err(what) => reply.answer(Err(what.to_string())),
            },
        }
    }

    fn on_heartbeat(&mut self, now_ms: u64, beat: &Heartbeat) -> Option<Message> {
        let has_quorum = self.standing.has_quorum;
        let state = Arc::clone(&self.state);
        if !state.nodes.contains_key(&beat.node) {
            // What tells it so in the control log may not have reached it before nobody told it anything any more.
            let knows_all = self.standing.is_ready && has_quorum;
            return knows_all.then_some(Message::Gone(state.index));
        }
        let reply = self.leader.on_heartbeat(now_ms, beat, &state, has_quorum)?;
        Some(Message::Reply(reply))
    }

    fn told(&mut self, now_ms: u64, from: NodeId, told: Told) {
        let Ok(bytes) = told else { return };
        if bytes.is_empty() {
            return;
        }
        match Message::decode(&bytes) {
            Ok(Message::Reply(reply)) => {
                self.member.on_reply(now_ms, &reply);
                self.set_lease();
            }
            Ok(Message::Gone(index)) => {
                let joined = self.state.nodes.get(&self.own).map(|own| own.raft_id);
                self.has_left |= joined.is_some_and(|joined| joined <= index);
            }
            Ok(Message::Answer(answer)) if answer.node == from => self.leader.on_answer(&answer),
            _ => {}
        }
    }

    fn set_lease(&self) {
        if let (Some(duty), Some(shard)) = (&self.duty, self.shard) {
            duty.set_lease_until_ms(self.member.lease_until_ms(shard));
        }
    }

    fn seal(&mut self, seal: Seal, reply: Option<Reply>) {
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

    /// A seal is durable, and the log as it is.
    fn sealed(&mut self, seal: Seal, is_certain: bool) {
        if self.sealing_now.is_some_and(|(now, _)| now == seal) {
            self.sealing_now = None;
        }
        self.note_log();
        let answer = self.member.on_sealed(seal, is_certain);
        let actions = answer.into_iter().collect();
        self.perform(actions);
    }

    fn begin_office(&mut self, term: u64, is_begun: bool) {
        self.note_log();
        let Some(shard) = self.shard else { return };
        if is_begun && self.member.on_office(shard, term) {
            self.tell(&format!("This node is the primary, in term {term}"));
        } else {
            self.member.give_up_office(shard, term);
            self.tell(&format!(
                "This node did not become the primary of term {term}"
            ));
        }
        self.member.hurry();
        self.routes_changed();
    }

    /// Whether this node serves its hash slots may have changed with its role.
    pub(super) fn routes_changed(&self) {
        if let Some(node) = self.node.upgrade() {
            node.cluster_mode.state_changed(&node);
        }
    }

    pub(super) fn perform(&mut self, actions: Vec<member::Action>) {
        for action in actions {
            match action {
                member::Action::Heartbeat(beat) => self.send_heartbeat(&beat),
                member::Action::Seal(seal) => self.begin_seal(seal),
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
                    self.followed = None;
                    if let Some(duty) = &self.duty {
                        let events = self.events.clone();
                        let done = move |is_begun| post(&events, Event::Office(term, is_begun));
                        duty.take_office(term, Box::new(done));
                    }
                }
                member::Action::Follow { term, primary, .. } => self.follow(term, primary),
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
        // Asked again, it is being done already; but what took its place may have come to nothing.
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

    /// Tells every voter that this node is there.
    fn send_heartbeat(&mut self, beat: &Heartbeat) {
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
                self.member.on_reply(now_ms, &reply);
                self.set_lease();
            }
        }
    }

    fn ask(&self, node: NodeId, bytes: Vec<u8>) {
        let events = self.events.clone();
        let done = move |told| post(&events, Event::Told(node, told));
        self.links.ask(node, Subject::Member, bytes, Box::new(done));
    }

    /// What is due because time has passed.
    fn act_in_time(&mut self, now_ms: u64) {
        self.end_hand_over(now_ms);
        let actions = self.member.on_tick(now_ms);
        self.perform(actions);
        let state = Arc::clone(&self.state);
        let orders = self
            .leader
            .on_tick(now_ms, &state, self.standing.has_quorum);
        for order in orders {
            match order {
                leader::Action::Propose(entry) => self.propose(entry),
                leader::Action::Seal { to, seal } if to == self.own => self.seal(seal, None),
                leader::Action::Seal { to, seal } => self.ask(to, Message::Seal(seal).encode()),
            }
        }
        if self.standing.is_ready && self.standing.has_quorum {
            self.reconcile(now_ms);
        }
    }

    fn propose(&self, entry: Entry) {
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

    /// Has the members of Raft and of the shard be those that there are.
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
        let silence_ms = |node: NodeId| self.leader.silence_ms(node, now_ms);
        let next = self.reconciler.next(&Look {
            state: &state,
            members: &membership,
            silence_ms: &silence_ms,
            settled,
            unfinished: self.log.unfinished_change(),
            own: self.own,
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
                    done(applied.map(drop).map_err(|error| error.to_string()));
                });
            }
        }
    }

    /// The first entries of a group: this node, and the shard that it is the primary of.
    fn found(&mut self) {
        if !self.reconciler.begin() {
            return;
        }
        let join = unique::proposal(Entry::Join {
            node: self.own,
            record: self.record.clone(),
        });
        // In cluster mode each node begins a shard of its own.
        let duty = self.duty.clone().filter(|_| !self.is_cluster);
        if let Some(duty) = &duty {
            if let Err(reason) = duty.begin_shard(SHARD) {
                self.warn(&format!("This node cannot begin the group: {reason}"));
                return self.reconciler.end();
            }
            let (end, applied) = duty.log_end();
            self.shard = Some(SHARD);
            self.member
                .begin_copy(SHARD, duty.seal_term(), end, applied);
        }
        let end = duty.map(|duty| duty.log_end().0);
        let create = end.map(|end| {
            unique::proposal(Entry::Shard {
                shard: SHARD,
                expected_epoch: 0,
                change: ShardChange::Create {
                    primary: self.own,
                    end,
                    is_quorum: false,
                },
            })
        });
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

    pub(super) fn warn(&self, line: &str) {
        if let Some(node) = self.node.upgrade() {
            node.core.log.warning(format_args!("{line}"));
        }
    }

    pub(super) fn tell(&self, line: &str) {
        if let Some(node) = self.node.upgrade() {
            node.core.log.notice(format_args!("{line}"));
        }
    }
}

/// Leaves an event for the thread; where it does not keep up, what peers say is lost and said again.
pub(crate) fn post(events: &SyncSender<Event>, event: Event) {
    match event {
        Event::Asked(_) | Event::Told(..) | Event::StateChanged => match events.try_send(event) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        },
        // What is done once is not lost; the thread is there until the server stops.
        event => drop(events.send(event)),
    }
}

/// Where a node is.
pub(super) fn place_of(record: &NodeRecord) -> Place {
    Place {
        host: record.host.clone(),
        port: record.link_port,
    }
}
