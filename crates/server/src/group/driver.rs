//! The thread "group": this node's work as a member of the control group, and as its leader if it
//! leads.
//!
//! ```text
//!   heartbeats, seals, joins of peers ─┐                 ┌─► Duty: seal, office, follow, lease
//!   Duty is done ──────────────────────┼─► Member, Leader┼─► links: heartbeats, seals
//!   the control state has changed ─────┘    one at a time└─► RaftLog: proposals, members
//! ```
//!
//! The thread waits only for the next event, at most a fraction of a heartbeat. Raft has a thread
//! of its own: a slow disk of the control log delays decisions, but no heartbeat.
//!
//! Invariants
//!  1. The leader's part acts only after this node has applied everything that was committed before
//!     its election.
//!  2. A seal's answer describes the log as read after the seal was durable.

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

/// The thread waits at most a heartbeat divided by this.
const TICKS_PER_HEARTBEAT: u64 = 4;

/// An event for the thread.
pub(crate) enum Event {
    /// A peer's question.
    Asked(Asked),
    /// A peer's answer.
    Told(NodeId, Told),
    /// A seal is durable.
    Sealed(Seal, bool),
    /// An office has begun, or failed.
    Office(u64, bool),
    /// The control state has changed.
    StateChanged,
    /// A change requested from the control log was made, or failed.
    Reconciled(Result<(), String>),
    /// This node's own record was proposed.
    Recorded,
    /// A node's entry to join was applied, or failed.
    Joined(NodeId, Result<Applied, String>, Reply),
    /// This node is to lead nothing, for this reason.
    Retire(Reason),
    /// This reason has ended.
    Stay(Reason),
    /// The order to restart this node was answered.
    RestartAnswered,
    /// The directives have changed, and possibly this node's record.
    Configured(Box<NodeRecord>),
    /// A client has ordered the promotion of this replica.
    Summoned,
    /// This node leaves, regardless of the other members.
    Forget,
    /// A replica has all of this primary's log and no write begins; or that failed.
    Ready(NodeId, Result<(), String>, HandedOver),
    /// The copy at this address, or else the one with the longest log, is to take the office.
    FailOver(Option<(String, u16)>),
    /// Whether the control state here was the newest when the question was sent. False if no leader
    /// answered.
    Looked(bool),
    /// A client has ordered this node to become a copy of that shard, and its own shard is about to
    /// release it; `None` cancels that.
    Destination(Option<ShardId>),
    /// Whether the group's decisions are known here. False if no node could be asked.
    CaughtUp(bool),
    /// Outcome of the entry that begins this node's shard.
    Began(Result<Applied, Unavailable>),
    /// Outcome of the entry that assigns the hash slots that this node brought to its shard.
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
    /// The shard of this node.
    pub(super) shard: Option<ShardId>,
    /// Whether the node is in cluster mode.
    pub(super) is_cluster: bool,
    /// Progress of beginning a shard.
    pub(super) beginning: Beginning,
    /// Whether the hash slots that it brought were proposed for its shard.
    pub(super) claims: bool,
    /// Whether this node is writing the group's first users and libraries.
    pub(super) writes_documents: Arc<AtomicBool>,
    /// Whether it follows a primary now, or did last.
    pub(super) was_replica: bool,
    /// The shard that it joins once it is in none.
    pub(super) destination: Option<ShardId>,
    /// Since when no leader is known.
    pub(super) leaderless_ms: Option<u64>,
    /// Whether no leader has been known for a node timeout.
    pub(super) is_cut_off: bool,
    /// When a leader last answered a heartbeat, or when the driver began.
    pub(super) heard_leader_ms: u64,
    pub(super) catching_up: CatchingUp,
    /// When other nodes were last asked for their addresses.
    pub(super) asked_places_ms: u64,
    pub(super) handing_over: HandingOver,
    /// Why this node leads nothing.
    pub(super) retirement: Retirement,
    /// Until when it takes an office by order, even if it is configured to decline.
    pub(super) summoned_until_ms: u64,
    /// When it last tried to hand over because it is drained or about to stop.
    pub(super) gave_way_ms: Option<u64>,
    /// Since when its log cannot be written.
    pub(super) faulty_since_ms: Option<u64>,
    /// Seals in progress, each with the peer that waits for its answer.
    pub(super) sealing: Vec<(Seal, Reply)>,
    /// The seal that is being made durable, and since when.
    pub(super) sealing_now: Option<(Seal, u64)>,
    /// The part of a log-only copy's log that is being fetched.
    pub(super) fetching: Fetching,
    pub(super) followed: Option<(u64, PrimaryAddress)>,
    pub(super) records_own: bool,
    pub(super) has_left: bool,
    /// Whether the group uses a level of the control log that this node does not know.
    pub(super) is_outdated: bool,
    pub(super) published: Option<Published>,
    /// The leader that was last logged.
    pub(super) told_leader: Option<Option<RaftId>>,
    pub(super) times: Times,
    pub(super) timing: Timing,
    pub(super) tick: Duration,
}

/// The arguments of a new driver.
pub(crate) struct Setup {
    pub(crate) node: Weak<Node>,
    pub(crate) part: Arc<Part>,
    pub(crate) own: NodeId,
    pub(crate) record: NodeRecord,
    pub(crate) times: Times,
    pub(crate) links: Arc<Links>,
    pub(crate) log: Arc<RaftLog<Links>>,
    pub(crate) events: SyncSender<Event>,
    /// `None` for a witness that keeps no log.
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

    /// Returns the time between two checks without events.
    pub(super) fn tick_of(times: &Times) -> Duration {
        Duration::from_millis((times.heartbeat_ms / TICKS_PER_HEARTBEAT).max(1))
    }

    /// Runs until [`Event::Stop`].
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

    /// Ends this node's membership; it follows no node. In cluster mode it is by itself from here
    /// on: a former primary keeps its data, a former replica starts empty. Otherwise its data
    /// stays, and it takes no writes until it is started without a group, or joins again.
    fn end(&self) {
        if let Some(duty) = &self.duty {
            duty.leave_office();
        }
        self.tell("This node has left the control group");
        let node = self.node.upgrade().filter(|_| self.is_cluster);
        if let Some(node) = &node {
            // Data to be removed is marked as such before any client sees this node by itself.
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

    /// Stops taking part, because this node's version is too old for its group. The other members
    /// go on without it.
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

    /// Milliseconds by the clock of leases, or `None` once the server is stopping.
    pub(super) fn now_ms(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        (!node.is_stopping()).then(|| node.core.clock.boottime_ms())
    }

    /// Checks what has changed: this node's log, Raft, the control state.
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

    /// Updates since when no leader is known. A leader that no majority confirms leads no more, and
    /// learns that last. A leader that is silent does not count either: Raft names it until there
    /// is another, and in a minority there is none.
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

    /// The control leader as far as this node knows, or `None` if it was not confirmed for a node
    /// timeout.
    pub(super) fn leader(&self) -> Option<RaftId> {
        self.standing.leader.filter(|_| !self.is_cut_off)
    }

    /// Updates the leader and the voters. When this node acknowledged itself counts for later
    /// leaders.
    fn note_leader(&mut self, now_ms: u64) {
        let standing = &self.standing;
        let reign = standing.leader.map(|leader| (standing.term, leader));
        if let Some(reign) = reign.filter(|_| standing.is_leader) {
            self.member.note_acknowledged(reign, now_ms);
        }
        let membership = self.log.membership();
        let ids = membership.voters.iter();
        let voters = ids.map(|id| self.state.node_of(*id).map(|(node, _)| *node));
        // If one of them is not known yet, no majority can be counted.
        let voters = voters.collect::<Option<BTreeSet<NodeId>>>();
        let voters = voters.filter(|_| !membership.is_changing);
        self.leader.set_voters(voters.unwrap_or_default(), now_ms);
        let reign = reign.filter(|_| standing.is_ready);
        self.leader.set_leading(reign, now_ms);
    }

    /// Updates whether writes wait for a majority, which the configuration may have changed.
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
        // The node follows the primary of this term, and has part of its log.
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
                // The present time is after the leader's sending time, from which its quorum
                // counts.
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
            // The entry that removed it may not have reached it before the other nodes stopped
            // sending to it.
            let knows_all = self.standing.is_ready && has_quorum;
            return knows_all.then_some(Message::Gone(state.index));
        }
        let reply = self.leader.on_heartbeat(now_ms, beat, &state, has_quorum)?;
        // A node must not take a leader for valid that no majority confirms.
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

/// Queues an event for the thread. If the queue is full, messages of peers are dropped, because
/// peers repeat them.
pub(crate) fn post(events: &SyncSender<Event>, event: Event) {
    match event {
        Event::Asked(_) | Event::Told(..) | Event::StateChanged => match events.try_send(event) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        },
        // One-time events must not be lost. The thread runs until the server stops.
        event => drop(events.send(event)),
    }
}
