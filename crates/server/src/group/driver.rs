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
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cluster::control_log::{ControlLog as _, RaftId};
use cluster::leader::Leader;
use cluster::member::Member;
use cluster::message::{Heartbeat, Message, Seal};
use cluster::state::{LEVEL_OF_TIMES, roles};
use cluster::{Applied, ControlState, NodeId, NodeRecord, ShardId, Times, Unavailable};
use consensus::{RaftLog, Standing};

use super::catching_up::CatchingUp;
use super::control::Part;
use super::duty::{Duty, PrimaryAddress};
use super::fetching::Fetching;
use super::handing_over::{HandedOver, HandingOver};
use super::known_timeout::Timing;
use super::links::{Asked, Links, Reply, Subject, Told};
use super::own_shard::Beginning;
use super::reconcile::Reconciler;
use super::retirement::{Reason, Retirement};
use super::spare_replicas::SpareReplicas;
use super::taking_up::Published;
use super::view::Seen;
use crate::config::DurabilityLevel;
use crate::node::Node;
use crate::replication::following::Link;

/// Parts of a heartbeat for which the thread waits at most.
const TICKS_PER_HEARTBEAT: u64 = 4;

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
    /// This node is to lead nothing, for this reason.
    Retire(Reason),
    /// That is no reason any more.
    Stay(Reason),
    /// Whoever ordered a restart of this node was answered.
    RestartAnswered,
    /// The directives have changed, and what this node says of itself may have.
    Configured(Box<NodeRecord>),
    /// A client has ordered that this replica be promoted.
    Summoned,
    /// This node leaves, whatever the others say.
    Forget,
    /// A replica has all that this primary has, and no write begins; or that did not come about.
    Ready(NodeId, Result<(), String>, HandedOver),
    /// The copy at this address is to take the office, or the one that has most.
    FailOver(Option<(String, u16)>),
    /// The control state here is the newest there was when that was asked, or nobody knows.
    Looked(bool),
    /// A client has ordered that this node be a copy of that shard, and its own shard is about to spare it; or no longer.
    Destination(Option<ShardId>),
    /// What the group has decided is here, or nobody could be asked.
    CaughtUp(bool),
    /// What became of the entry by which the shard of this node begins.
    Began(Result<Applied, Unavailable>),
    /// What became of that by which it gets the hash slots that this node brought.
    Claimed(Result<Applied, Unavailable>),
    /// The end.
    Stop,
}

/// See the module.
pub(crate) struct Driver {
    pub(super) node: Weak<Node>,
    pub(super) part: Arc<Part>,
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
    pub(super) reconciler: Reconciler,
    pub(super) spare_replicas: SpareReplicas,
    /// Of which shard this node is.
    pub(super) shard: Option<ShardId>,
    /// It is in cluster mode.
    pub(super) is_cluster: bool,
    /// How far it is with beginning one.
    pub(super) beginning: Beginning,
    /// The hash slots that it brought were proposed to be its shard's.
    pub(super) claims: bool,
    /// The group's first users and libraries are being written by this node.
    pub(super) writes_documents: Arc<AtomicBool>,
    /// Whether it follows somebody now, or did last.
    pub(super) was_replica: bool,
    /// Where it goes once it is of none.
    pub(super) destination: Option<ShardId>,
    /// Since when nobody is known to lead.
    pub(super) leaderless_ms: Option<u64>,
    /// Nobody has been for a node timeout.
    pub(super) is_cut_off: bool,
    /// When a leader last answered a heartbeat, or this began.
    pub(super) heard_leader_ms: u64,
    pub(super) catching_up: CatchingUp,
    /// When others were last asked where they are.
    pub(super) asked_places_ms: u64,
    pub(super) handing_over: HandingOver,
    /// Why it leads nothing.
    pub(super) retirement: Retirement,
    /// Until when it takes an office by order, though it declines otherwise.
    pub(super) summoned_until_ms: u64,
    /// When it last tried to hand over because it is drained or about to stop.
    pub(super) gave_way_ms: Option<u64>,
    /// Since when its log cannot be written.
    pub(super) faulty_since_ms: Option<u64>,
    /// Who waits for the answer to which seal.
    pub(super) sealing: Vec<(Seal, Reply)>,
    /// What is being made durable, and since when.
    pub(super) sealing_now: Option<(Seal, u64)>,
    /// What a copy of the log alone has more, as long as it is being got.
    pub(super) fetching: Fetching,
    pub(super) followed: Option<(u64, PrimaryAddress)>,
    pub(super) records_own: bool,
    pub(super) has_left: bool,
    /// The group uses what this node does not know.
    pub(super) is_outdated: bool,
    pub(super) published: Option<Published>,
    /// Who was said to lead.
    pub(super) told_leader: Option<Option<RaftId>>,
    pub(super) times: Times,
    pub(super) timing: Timing,
    pub(super) tick: Duration,
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
    /// None for a witness that keeps no log.
    pub(crate) duty: Option<Arc<Duty>>,
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
            now_ms,
        } = setup;
        let mut member = Member::new(own, times, record.start_count, now_ms);
        member.set_declines(record.declines());
        let shard = duty.as_ref().and_then(|duty| duty.shard_of_log());
        if let (Some(duty), Some(shard)) = (&duty, shard) {
            let (end, applied) = duty.log_end();
            member.add_copy(shard, duty.seal_term(), end, applied);
        }
        Self {
            shard,
            is_cluster: record.roles & roles::CLUSTER != 0,
            beginning: Beginning::No,
            claims: false,
            writes_documents: Arc::default(),
            was_replica: false,
            destination: None,
            leaderless_ms: None,
            is_cut_off: false,
            heard_leader_ms: now_ms,
            catching_up: CatchingUp::default(),
            asked_places_ms: 0,
            handing_over: HandingOver::No,
            retirement: Retirement::default(),
            summoned_until_ms: 0,
            gave_way_ms: None,
            faulty_since_ms: None,
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
            spare_replicas: SpareReplicas::default(),
            sealing: Vec::new(),
            sealing_now: None,
            fetching: Fetching::default(),
            followed: None,
            records_own: false,
            has_left: false,
            is_outdated: false,
            published: None,
            told_leader: None,
            timing: Timing::default(),
            tick: Self::tick_of(&times),
        }
    }

    /// The time between two looks where nothing happens.
    pub(super) fn tick_of(times: &Times) -> Duration {
        Duration::from_millis((times.heartbeat_ms / TICKS_PER_HEARTBEAT).max(1))
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        self.await_group();
        loop {
            let mut next = match events.recv_timeout(self.tick) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(now_ms) = self.now_ms() else { return };
            self.look(now_ms);
            if self.is_outdated {
                return self.stand_aside();
            }
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
        self.part.note_end();
    }

    /// This node was started by an older version than its group has come to use. Others do without it.
    fn stand_aside(&self) {
        if let Some(duty) = &self.duty {
            duty.leave_office();
        }
        self.log.stop();
        self.warn(&format!(
            "This node knows level {} of the control log, and its group is at level {}: it takes no part until it is started by a version that knows that",
            self.record.feature_level,
            self.log.watch().feature_level
        ));
    }

    /// Milliseconds by the clock that leases are counted with; none once the server is gone.
    pub(super) fn now_ms(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        (!node.is_stopping()).then(|| node.core.clock.boottime_ms())
    }

    /// Looks at what has changed: the log of this node, Raft, the control state.
    pub(super) fn look(&mut self, now_ms: u64) {
        self.note_log();
        self.look_at_fetch();
        self.note_level();
        let before = std::mem::replace(&mut self.standing, self.log.standing());
        self.tell_control_faults(&before);
        self.look_at_timeout(now_ms);
        self.standing.has_quorum &= self.timing.is_lease_stated();
        self.note_leader(now_ms);
        let state = self.log.watch();
        self.is_outdated = state.feature_level > self.record.feature_level;
        let is_new = state.index > self.state.index || self.catching_up.has_confirmed_shard();
        if is_new && !self.is_outdated {
            let was_in = self.state.nodes.contains_key(&self.own);
            self.state = state;
            self.take_state();
            self.has_left |= was_in && !self.state.nodes.contains_key(&self.own);
        }
        self.note_whether_led(now_ms);
        self.publish(now_ms);
        self.begin_own_shard();
    }

    /// Who leads and is confirmed by nobody leads no more, and is the last to hear so. Neither does one that is heard no more: Raft
    /// names it until there is another, which there is not in a minority.
    fn note_whether_led(&mut self, now_ms: u64) {
        let Standing {
            is_leader,
            has_quorum,
            leader,
            ..
        } = &self.standing;
        let since_ms = if *is_leader {
            (!has_quorum).then_some(now_ms)
        } else if now_ms >= self.heard_leader_ms + self.times.election_ms_max {
            Some(self.heard_leader_ms)
        } else {
            leader.is_none().then_some(now_ms)
        };
        self.leaderless_ms = since_ms.map(|since_ms| {
            let known_ms = self.leaderless_ms.unwrap_or(since_ms);
            known_ms.min(since_ms)
        });
    }

    /// Who leads, as far as is known here; nobody does where that is not confirmed for a node timeout.
    pub(super) fn leader(&self) -> Option<RaftId> {
        self.standing.leader.filter(|_| !self.is_cut_off)
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

    pub(super) fn note_log(&mut self) {
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
        if self.record.roles & roles::LOG != 0 {
            self.member.note_begins(shard_id, duty.log_begins());
        }
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

    fn hear(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Asked(asked) => self.answer(now_ms, asked),
            Event::Told(node, told) => self.told(now_ms, node, told),
            Event::Sealed(seal, is_certain) => self.sealed(seal, is_certain),
            Event::Office(term, is_begun) => self.begin_office(term, is_begun),
            Event::Reconciled(outcome) => match outcome {
                Ok(()) => self.reconciler.end(),
                Err(reason) => {
                    self.reconciler.fail(now_ms);
                    self.tell(&format!(
                        "A change of the control group came to nothing: {reason}"
                    ));
                }
            },
            Event::Recorded => {
                self.records_own = false;
                self.record_own();
            }
            Event::Joined(node, outcome, reply) => self.answer_joined(node, outcome, reply),
            Event::Retire(reason) => self.retire(reason, now_ms),
            Event::Stay(reason) => self.stay(reason, now_ms),
            Event::RestartAnswered => self.retirement.answered(now_ms),
            Event::Configured(record) => self.configured(*record),
            Event::Summoned => self.be_summoned(now_ms),
            Event::Forget => self.has_left = true,
            Event::Ready(to, outcome, done) => self.leave_office_to(to, outcome, done),
            Event::FailOver(address) => self.fail_over(address),
            Event::Destination(shard) => self.destination = shard,
            Event::Looked(is_newest) => self.looked(is_newest),
            Event::Began(applied) => self.began(applied),
            Event::CaughtUp(is_newest) => self.caught_up(is_newest),
            Event::Claimed(applied) => self.claimed(applied),
            Event::StateChanged | Event::Stop => {}
        }
    }

    fn configured(&mut self, record: NodeRecord) {
        let is_quorum = self.record.roles & roles::QUORUM;
        self.record = record;
        self.record.roles |= is_quorum;
        self.record_own();
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
            Subject::Member if !self.standing.takes_part() => {
                reply.answer(Err("its control log cannot be written".to_owned()));
            }
            Subject::Join => self.join(from, &bytes, reply),
            Subject::HandOver => self.hear_of_hand_over(from, reply),
            Subject::Meet
            | Subject::Publish
            | Subject::Forward
            | Subject::Places
            | Subject::Confirm
            | Subject::ReadIndex
            | Subject::Merge
            | Subject::GiveWay => {
                reply.answer(Err("not a question for the group".to_owned()));
            }
            Subject::Member => match Message::decode(&bytes) {
                Ok(Message::Heartbeat(beat))
                    if beat.sent_ms.is_some() && self.record.feature_level < LEVEL_OF_TIMES =>
                {
                    reply.answer(Err("heartbeats with a time are not known here".to_owned()));
                }
                Ok(Message::Heartbeat(beat)) if beat.node == from => {
                    let answer = self.on_heartbeat(now_ms, &beat);
                    reply.answer(Ok(answer.map_or_else(Vec::new, |answer| answer.encode())));
                }
                Ok(Message::Seal(seal)) => self.seal(seal, Some(reply)),
                Ok(Message::Fetch(fetch)) => self.fetch(fetch, Some(reply)),
                Ok(_) => reply.answer(Err("not a question".to_owned())),
                Err(what) => reply.answer(Err(what.to_string())),
            },
        }
    }

    pub(super) fn on_heartbeat(&mut self, now_ms: u64, beat: &Heartbeat) -> Option<Message> {
        let has_quorum = self.standing.has_quorum;
        let state = Arc::clone(&self.state);
        if !state.nodes.contains_key(&beat.node) {
            // What tells it so in the control log may not have reached it before nobody told it anything any more.
            let knows_all = self.standing.is_ready && has_quorum;
            return knows_all.then_some(Message::Gone(state.index));
        }
        let reply = self.leader.on_heartbeat(now_ms, beat, &state, has_quorum)?;
        // Who is led by a leader that nobody else confirms is to know.
        has_quorum.then_some(Message::Reply(reply))
    }

    fn told(&mut self, now_ms: u64, from: NodeId, told: Told) {
        let Ok(bytes) = told else { return };
        if bytes.is_empty() {
            return;
        }
        match Message::decode(&bytes) {
            Ok(Message::Reply(reply)) => {
                self.hear_leader(now_ms, &reply);
            }
            Ok(Message::Gone(index)) => {
                let joined = self.state.nodes.get(&self.own).map(|own| own.raft_id);
                self.has_left |= joined.is_some_and(|joined| joined <= index);
            }
            Ok(Message::Answer(answer)) if answer.node == from => self.leader.on_answer(&answer),
            _ => {}
        }
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
