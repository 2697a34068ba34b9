//! The world of the simulation: nodes with their disks and clocks, links, faults, clients, and the checks.

#[cfg(test)]
mod cases;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::random::Prng;

#[cfg(test)]
pub(super) use cases::{
    NextLeader, run, run_blank_copy, run_changed_timeouts, run_failed_log, run_hand_over,
    run_log_copy_that_goes, run_lost_primary, run_lowered_timeout, run_restarted_voter,
};

use super::{ControlLogs, Links};
use crate::directives::NodeTimeout;
use crate::entry::{Entry, ShardChange};
use crate::leader::{self, Leader};
use crate::member::{self, Member};
use crate::message::{Fetch, Message, Seal};
use crate::state::{
    ControlState, CopyKind, FEATURE_LEVEL, LogEnd, NodeId, NodeRecord, ShardId, roles,
};
use crate::times::Times;

const SHARD: ShardId = ShardId(0);
/// Duration of a step.
pub const STEP_MS: u64 = 10;
/// Start time of a world.
const BEGIN_MS: u64 = 1_000;
/// Faults happen until this time, ...
const FAULTS_MS: u64 = 24_000;
/// ... and by this time the group must work again.
const END_MS: u64 = 36_000;
const CALM_MS: u64 = 3_000;

/// A violated promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A primary lacks a committed frame at a position of its log.
    CommittedLost {
        /// The primary's term.
        term: u64,
        /// The position.
        at: usize,
    },
    /// A primary replied after one of a newer term had.
    TwoAnswer {
        /// The older term.
        term: u64,
        /// The newer one.
        newest: u64,
    },
    /// Frames with equal terms and positions differ.
    FramesDiffer {
        /// The position.
        at: usize,
    },
    /// Two nodes have different states at one index.
    StatesDiffer {
        /// The index.
        index: u64,
    },
    /// The shard's term decreased as the index grew.
    TermFell {
        /// The term before.
        from: u64,
        /// The term after.
        to: u64,
    },
    /// A member without the shard's data became its primary: it was blank, or a log-only copy.
    EmptyPrimary {
        /// The term.
        term: u64,
    },
    /// After the end of all faults no primary replied.
    NotWell {
        /// Number of replies.
        replies: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Counts of what happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests that got a reply.
    pub replies: u64,
    /// Changes of the primary.
    pub promotions: u64,
    /// Nodes that lost power.
    pub restarts: u64,
    /// Links that were cut.
    pub cuts: u64,
    /// How often a log-only copy handed its tail on.
    pub rests: u64,
}

impl Summary {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        self.promotions += other.promotions;
        self.restarts += other.restarts;
        self.cuts += other.cuts;
        self.rests += other.rests;
    }
}

/// The initial conditions of a world.
#[derive(Debug)]
pub struct Beginning {
    random: Prng,
    is_quorum: bool,
    /// The node that keeps only the log, if any.
    log_copy: Option<NodeId>,
    /// The nodes, all of which vote.
    pub ids: Vec<NodeId>,
    /// The group's times.
    pub times: Times,
}

impl Beginning {
    /// Creates the conditions of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Prng::seeded(seed);
        let count = if random.below(3) == 0 { 5 } else { 3 };
        let is_quorum = random.below(4) != 0;
        let has_log_copy = is_quorum && seed % 3 == 1;
        Self {
            is_quorum,
            log_copy: has_log_copy.then_some(NodeId([count; 20])),
            ids: (1..=count).map(|byte| NodeId([byte; 20])).collect(),
            times: Times::of(1_500),
            random,
        }
    }

    /// Returns the entries of a group whose members all have joined.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let record = NodeRecord {
            roles: roles::DATA,
            start_count: 1,
            feature_level: FEATURE_LEVEL,
            ..NodeRecord::default()
        };
        let mut entries: Vec<Entry> = Vec::new();
        for node in &self.ids {
            let (node, record) = (*node, record.clone());
            entries.push(Entry::Join { node, record });
        }
        let shard = |expected_epoch, change| Entry::Shard {
            shard: SHARD,
            expected_epoch,
            change,
        };
        let create = ShardChange::Create {
            primary: self.ids[0],
            end: LogEnd::default(),
            is_quorum: self.is_quorum,
        };
        entries.push(shard(0, create));
        for node in &self.ids[1..] {
            let kind = match self.log_copy == Some(*node) {
                true => CopyKind::LogOnly,
                false => CopyKind::Data,
            };
            let node = *node;
            entries.push(shard(entries.len() as u64, ShardChange::Add { node, kind }));
            entries.push(shard(entries.len() as u64, ShardChange::Finish));
        }
        entries
    }
}

type Frame = (u64, u64);

#[derive(Clone)]
enum Parcel {
    Group(Message),
    Frames {
        term: u64,
        log: Arc<Vec<Frame>>,
    },
    Ack {
        term: u64,
        end: u64,
    },
    /// To a log-only copy: a request for its tail.
    AskRest(Fetch),
    /// The tail, with the position at which the log begins.
    Rest(Fetch, Arc<Vec<Frame>>, usize),
}

struct Node {
    id: NodeId,
    /// State that outlives a restart.
    log: Arc<Vec<Frame>>,
    seal: u64,
    start_count: u64,
    /// State that does not.
    member: Member,
    leader: Leader,
    times: Times,
    view: Arc<ControlState>,
    acked: BTreeMap<NodeId, u64>,
    /// Term frames and seals that are being synced, and until when.
    syncing: Vec<(u64, Syncing)>,
    asked: Option<usize>,
    /// What it fetches from a log-only copy. A reply to a process that is gone is dropped.
    fetching: Option<Fetch>,
    /// Faults.
    paused_until_ms: u64,
    clock_rate_ppm: u64,
    /// Whether nothing of the shard is here.
    is_blank: bool,
    /// Whether its disk refuses all writes.
    is_faulty: bool,
    /// Where its log begins, if this is a log-only copy.
    begins: Option<usize>,
}

#[derive(Clone, Copy)]
enum Syncing {
    Seal(Seal),
    Office(u64),
}

/// See the module.
pub struct World<L> {
    random: Prng,
    now_ms: u64,
    times: Times,
    nodes: Vec<Node>,
    logs: L,
    parcels: BTreeMap<(u64, u64), (usize, usize, Parcel)>,
    parcel: u64,
    cut: Vec<Vec<bool>>,
    is_quorum: bool,
    committed: Vec<Frame>,
    answered_term: u64,
    /// The shard's term by index of the state, as recorded by the first node that reached the
    /// index.
    shard_terms: BTreeMap<u64, u64>,
    writes: u64,
    /// The summary's replies when the calm time began.
    replies_before: u64,
    summary: Summary,
    fault: Option<Fault>,
}

impl<L: ControlLogs> World<L> {
    /// Creates a world on control logs that have the entries of its beginning.
    pub fn new(beginning: Beginning, logs: L) -> Self {
        let Beginning {
            random,
            is_quorum,
            log_copy,
            ids,
            times,
        } = beginning;
        let count = ids.len();
        let mut world = Self {
            now_ms: BEGIN_MS,
            times,
            nodes: Vec::new(),
            logs,
            parcels: BTreeMap::new(),
            parcel: 0,
            cut: vec![vec![false; count]; count],
            is_quorum,
            committed: Vec::new(),
            answered_term: 0,
            shard_terms: BTreeMap::new(),
            writes: 0,
            replies_before: 0,
            summary: Summary::default(),
            fault: None,
            random,
        };
        for id in ids {
            let node = world.node(id);
            world.nodes.push(node);
        }
        for node in &mut world.nodes {
            if log_copy == Some(node.id) {
                node.begins = Some(0);
                node.member.note_begins(SHARD, 0);
            }
        }
        world
    }

    /// Makes a step, with the faults of its time. Returns whether another one follows.
    ///
    /// # Errors
    /// A violated promise.
    pub fn go_on(&mut self) -> Result<bool, Fault> {
        self.now_ms += STEP_MS;
        if self.now_ms < FAULTS_MS {
            self.make_trouble();
        } else if self.now_ms == FAULTS_MS {
            self.heal();
        }
        if self.now_ms == END_MS - CALM_MS {
            self.replies_before = self.summary.replies;
        }
        self.step();
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(self.now_ms < END_MS),
        }
    }

    /// Returns what happened, after the last step.
    ///
    /// # Errors
    /// If no primary replies any more.
    pub fn ended(self) -> Result<Summary, Fault> {
        let replies = self.summary.replies - self.replies_before;
        match replies {
            0..=5 => Err(Fault::NotWell { replies }),
            _ => Ok(self.summary),
        }
    }

    fn heal_links(&mut self) {
        let count = self.nodes.len();
        self.cut = vec![vec![false; count]; count];
    }

    fn node(&mut self, id: NodeId) -> Node {
        // The rate deviates by up to 0.4 % either way: 1 % between two clocks is allowed.
        let clock_rate_ppm = 996_000 + self.random.below(8_001);
        let mut node = Node {
            id,
            log: Arc::default(),
            seal: 0,
            start_count: 1,
            member: Member::new(id, self.times, 1, 0),
            leader: Leader::new(self.times, 0),
            times: self.times,
            view: Arc::default(),
            acked: BTreeMap::new(),
            syncing: Vec::new(),
            asked: None,
            fetching: None,
            paused_until_ms: 0,
            clock_rate_ppm,
            is_blank: false,
            is_faulty: false,
            begins: None,
        };
        node.member.add_copy(SHARD, 0, LogEnd::default(), 0);
        node
    }

    /// Returns the time of a node's own clock.
    fn clock_ms(&self, at: usize) -> u64 {
        self.now_ms * self.nodes[at].clock_rate_ppm / 1_000_000
    }

    fn is_up(&self, at: usize) -> bool {
        self.now_ms >= self.nodes[at].paused_until_ms
    }

    fn make_trouble(&mut self) {
        if self.random.below(50) != 0 {
            return;
        }
        let count = self.nodes.len() as u64;
        let at = usize::try_from(self.random.below(count)).unwrap_or(0);
        let other = usize::try_from(self.random.below(count)).unwrap_or(0);
        match self.random.below(12) {
            // Cuts links of one node, both ways or one; possibly only some, so that it reaches
            // clients but not voters.
            0..=2 => {
                self.summary.cuts += 1;
                let (out, back) = [(true, true), (true, false), (false, true)]
                    [usize::try_from(self.random.below(3)).unwrap_or(0)];
                for peer in 0..self.nodes.len() {
                    if self.random.below(4) != 0 {
                        self.cut[at][peer] |= out && peer != at;
                        self.cut[peer][at] |= back && peer != at;
                    }
                }
            }
            3 => self.cut[at][other] = at != other,
            4..=7 => self.heal_links(),
            8 | 9 => self.restart(at),
            10 => {
                // Like a stopped process: its clock goes on.
                let pause_ms = 100 + self.random.below(4_000);
                self.nodes[at].paused_until_ms = self.now_ms + pause_ms;
            }
            // A planned or mistaken change of the leader: the old one does not know of it.
            _ if self.is_up(at) => self.logs.unsettle(at),
            _ => {}
        }
    }

    fn heal(&mut self) {
        self.heal_links();
        for node in &mut self.nodes {
            node.paused_until_ms = 0;
        }
    }

    fn restart(&mut self, at: usize) {
        self.summary.restarts += 1;
        let until_ms = self.now_ms + self.random.below(3_000);
        self.logs.restart(at, until_ms);
        let (now_ms, times) = (self.clock_ms(at), self.times);
        let node = &mut self.nodes[at];
        node.start_count += 1;
        node.member = Member::new(node.id, times, node.start_count, now_ms);
        let end = end_of(&node.log);
        node.member.add_copy(SHARD, node.seal, end, end.sequence);
        if let Some(begins) = node.begins {
            node.member.note_begins(SHARD, begins as u64);
        }
        node.leader = Leader::new(times, now_ms);
        node.times = times;
        node.view = Arc::default();
        node.acked.clear();
        node.syncing.clear();
        node.asked = None;
        node.fetching = None;
        node.paused_until_ms = until_ms;
    }

    fn send(&mut self, from: usize, to: usize, parcel: Parcel) {
        if self.cut[from][to] && from != to {
            return;
        }
        let delay_ms = match self.random.below(200) {
            0 => self.random.below(1_500),
            1..=6 => self.random.below(60),
            _ => self.random.below(6),
        };
        self.parcel += 1;
        let key = (self.now_ms + delay_ms, self.parcel);
        self.parcels.insert(key, (from, to, parcel));
    }

    fn step(&mut self) {
        let links = Links {
            is_up: (0..self.nodes.len()).map(|at| self.is_up(at)).collect(),
            cut: self.cut.clone(),
        };
        self.logs.step(self.now_ms, &links);
        self.note_acknowledged();
        let is_up = &links.is_up;
        for (at, _) in is_up.iter().enumerate().filter(|(_, is_up)| **is_up) {
            self.learn(at, &links);
        }
        let later = self.parcels.split_off(&(self.now_ms + 1, 0));
        for ((_, number), (from, to, parcel)) in std::mem::replace(&mut self.parcels, later) {
            if is_up[to] {
                self.receive(from, to, parcel);
            } else {
                // A stopped process finds it when it continues.
                let key = (self.nodes[to].paused_until_ms, number);
                self.parcels.insert(key, (from, to, parcel));
            }
        }
        for (at, _) in is_up.iter().enumerate().filter(|(_, is_up)| **is_up) {
            self.tick(at);
        }
    }

    /// Notes when voters acknowledged a leader, by their own clocks. They forget it at a restart.
    fn note_acknowledged(&mut self) {
        for at in 0..self.nodes.len() {
            if let Some(reign) = self.logs.acknowledged(at, self.now_ms) {
                let clock_ms = self.clock_ms(at);
                self.nodes[at].member.note_acknowledged(reign, clock_ms);
            }
        }
    }

    /// Delivers committed entries to a node.
    fn learn(&mut self, at: usize, links: &Links) {
        let now_ms = self.clock_ms(at);
        let node = &mut self.nodes[at];
        let Some(view) = self.logs.learn(at, &node.view, links, &mut self.random) else {
            return;
        };
        node.view = Arc::clone(&view);
        let timeout = NodeTimeout::of_state(&view);
        node.leader.note_stated(timeout.longest_ms());
        let timeout_ms = timeout.set_ms.unwrap_or(self.times.node_timeout_ms);
        if timeout_ms != node.times.node_timeout_ms {
            node.times = self.times.changed_to(timeout_ms);
            node.leader.set_times(node.times, now_ms);
            node.member.set_times(node.times, now_ms);
        }
        let actions = node.member.on_state(&view);
        self.check_term(&view);
        self.act(at, actions);
    }

    fn check_term(&mut self, state: &ControlState) {
        let (index, to) = (
            state.index,
            state.shards.get(&SHARD).map_or(0, |shard| shard.term),
        );
        let before = self.shard_terms.range(..index).next_back();
        let after = self.shard_terms.range(index + 1..).next();
        if let Some((_, from)) = before.filter(|(_, from)| **from > to) {
            self.fault = Some(Fault::TermFell { from: *from, to });
        }
        if let Some((_, less)) = after.filter(|(_, less)| **less < to) {
            self.fault = Some(Fault::TermFell {
                from: to,
                to: *less,
            });
        }
        if *self.shard_terms.entry(index).or_insert(to) != to {
            self.fault = Some(Fault::StatesDiffer { index });
        }
        // The first term is that of the founder.
        self.summary.promotions = self.summary.promotions.max(to.saturating_sub(1));
    }

    fn tick(&mut self, at: usize) {
        let now_ms = self.clock_ms(at);
        let within_ms = self.nodes[at].times.quorum_ms;
        let has_quorum = self.logs.has_quorum(at, self.now_ms, within_ms);
        let reign = self.logs.reign(at);
        let voters = self.nodes.iter().map(|node| node.id).collect();
        let node = &mut self.nodes[at];
        node.leader.set_voters(voters, now_ms);
        node.leader.set_leading(reign, now_ms);
        let orders = node.leader.on_tick(now_ms, &node.view, has_quorum);
        let actions = node.member.on_tick(now_ms);
        self.act(at, actions);
        for order in orders {
            match order {
                leader::Action::Propose(entry) => self.logs.propose(at, entry, self.now_ms),
                leader::Action::Seal { to, seal } => {
                    let to = self.place(to);
                    self.send(at, to, Parcel::Group(Message::Seal(seal)));
                }
                leader::Action::Fetch { to, fetch } => {
                    let to = self.place(to);
                    self.send(at, to, Parcel::Group(Message::Fetch(fetch)));
                }
            }
        }
        self.finish_syncs(at);
        self.serve(at);
    }

    fn place(&self, id: NodeId) -> usize {
        self.nodes
            .iter()
            .position(|node| node.id == id)
            .unwrap_or(0)
    }

    fn act(&mut self, at: usize, actions: Vec<member::Action>) {
        for action in actions {
            match action {
                member::Action::Heartbeat(beat) => {
                    for to in 0..self.nodes.len() {
                        self.send(at, to, Parcel::Group(Message::Heartbeat(beat.clone())));
                    }
                }
                member::Action::Seal(seal) => self.sync(at, Syncing::Seal(seal)),
                member::Action::Fetch(fetch) => {
                    let from = self.place(fetch.from);
                    self.nodes[at].fetching = Some(fetch);
                    self.send(at, from, Parcel::AskRest(fetch));
                }
                member::Action::Answer(answer) => {
                    for to in 0..self.nodes.len() {
                        self.send(at, to, Parcel::Group(Message::Answer(answer)));
                    }
                }
                member::Action::TakeOffice { term, .. } => self.sync(at, Syncing::Office(term)),
                member::Action::Follow { .. } | member::Action::LeaveOffice { .. } => {
                    self.nodes[at].asked = None;
                }
            }
        }
    }

    fn sync(&mut self, at: usize, what: Syncing) {
        let done_ms = self.now_ms + self.random.below(20);
        self.nodes[at].syncing.push((done_ms, what));
    }

    fn finish_syncs(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let syncing = std::mem::take(&mut self.nodes[at].syncing);
        for (done_ms, what) in syncing {
            if done_ms > now_ms || self.nodes[at].is_faulty {
                self.nodes[at].syncing.push((done_ms, what));
                continue;
            }
            match what {
                Syncing::Seal(seal) => {
                    let node = &mut self.nodes[at];
                    node.seal = node.seal.max(seal.term);
                    let answer = node.member.on_sealed(seal, true);
                    self.act(at, answer.into_iter().collect());
                }
                Syncing::Office(term) => self.take_office(at, term),
            }
        }
    }

    fn take_office(&mut self, at: usize, term: u64) {
        let is_quorum = self.is_quorum;
        let node = &mut self.nodes[at];
        // Until the frame is written, a later seal may forbid it.
        if !node.member.on_office(SHARD, term) {
            return;
        }
        // A node that was stopped for long may enter an office that is over: it has no lease, and
        // commits nothing.
        let newest = self.committed.last().map_or(0, |frame| frame.0);
        if is_quorum && term > newest && !node.log.starts_with(&self.committed) {
            let at = self.committed.len();
            self.fault = Some(Fault::CommittedLost { term, at });
        }
        if node.is_blank || node.begins.is_some() {
            self.fault = Some(Fault::EmptyPrimary { term });
        }
        Arc::make_mut(&mut node.log).push((term, 0));
        node.acked.clear();
        let end = end_of(&node.log);
        node.member.note_log(SHARD, end, end.sequence);
    }

    fn receive(&mut self, from: usize, to: usize, parcel: Parcel) {
        let now_ms = self.clock_ms(to);
        let within_ms = self.nodes[to].times.quorum_ms;
        let has_quorum = self.logs.has_quorum(to, self.now_ms, within_ms);
        let node = &mut self.nodes[to];
        match parcel {
            Parcel::Group(Message::Heartbeat(beat)) => {
                let view = &node.view;
                let reply = node.leader.on_heartbeat(now_ms, &beat, view, has_quorum);
                if let Some(reply) = reply {
                    self.send(to, from, Parcel::Group(Message::Reply(reply)));
                }
            }
            Parcel::Group(Message::Reply(reply)) => {
                node.member.on_reply(now_ms, &reply);
                if let Some(lease_ms) = reply.lease_ms {
                    node.leader.note_lease_of_leader(lease_ms, now_ms);
                }
            }
            Parcel::Group(Message::Seal(seal)) => {
                let actions = node.member.on_seal(seal);
                self.act(to, actions);
            }
            Parcel::Group(Message::Answer(answer)) => node.leader.on_answer(&answer),
            // No node leaves here.
            Parcel::Group(Message::Gone(_)) => {}
            Parcel::Group(Message::Fetch(fetch)) => {
                let actions = node.member.on_fetch(fetch);
                self.act(to, actions.into_iter().collect());
            }
            Parcel::AskRest(fetch) => {
                let (log, begins) = (Arc::clone(&node.log), node.begins.unwrap_or(0));
                if node.member.is_sealed_for(fetch.seal) {
                    self.send(to, from, Parcel::Rest(fetch, log, begins));
                }
            }
            Parcel::Rest(fetch, log, begins) => self.take_rest(to, fetch, &log, begins),
            Parcel::Frames { term, log } => {
                if node.member.accept(SHARD, term) {
                    // An older log of the same term, overtaken on its way, removes nothing.
                    if !node.log.starts_with(&log) {
                        node.log = log;
                    }
                    let end = end_of(&node.log);
                    node.member.note_log(SHARD, end, end.sequence);
                    let end = end.sequence;
                    self.send(to, from, Parcel::Ack { term, end });
                }
            }
            Parcel::Ack { term, end } => {
                if node.member.office(SHARD) == Some(term) {
                    let id = self.nodes[from].id;
                    let known = self.nodes[to].acked.entry(id).or_default();
                    *known = (*known).max(end);
                }
            }
        }
    }

    /// Extends the log by the tail of a log-only copy.
    fn take_rest(&mut self, at: usize, fetch: Fetch, rest: &[Frame], begins: usize) {
        let node = &mut self.nodes[at];
        let is_wanted = node.fetching == Some(fetch) && node.member.is_sealed_for(fetch.seal);
        if !is_wanted || end_of(rest) != fetch.end {
            return;
        }
        node.fetching = None;
        let pairs = node.log.iter().zip(rest);
        let fork = pairs.take_while(|(own, theirs)| own == theirs).count();
        // The log-only copy has forgotten what is before.
        if fork < begins {
            self.fault = Some(Fault::FramesDiffer { at: fork });
            return;
        }
        node.log = Arc::new(rest.to_vec());
        let end = end_of(rest);
        node.member.note_log(SHARD, end, end.sequence);
        let actions = node.member.on_fetched(fetch);
        self.summary.rests += 1;
        self.act(at, actions);
    }

    /// Trims the log-only copy by what all data copies have, as far as their primary knows.
    fn trim(&mut self, primary: usize) {
        let node = &self.nodes[primary];
        let data = self.nodes.iter().filter(|one| one.begins.is_none());
        let others = data.filter(|one| one.id != node.id);
        let acked = others.map(|one| node.acked.get(&one.id).copied().unwrap_or(0));
        let floor = acked.min().and_then(|floor| usize::try_from(floor).ok());
        let Some(floor) = floor else { return };
        let term = node.member.office(SHARD).unwrap_or(0);
        let log = Arc::clone(&node.log);
        for node in &mut self.nodes {
            // The log-only copy learns of it with frames of that primary, which it has.
            let is_of_term = node.log.last().is_some_and(|frame| frame.0 == term);
            let has_all = is_of_term && floor <= node.log.len() && log.starts_with(&node.log);
            if let Some(begins) = node.begins.as_mut().filter(|_| has_all) {
                *begins = floor.max(*begins);
                node.member.note_begins(SHARD, *begins as u64);
            }
        }
    }

    /// Has a primary send its log and serve its clients.
    fn serve(&mut self, at: usize) {
        let now_ms = self.clock_ms(at);
        let Some(term) = self.nodes[at].member.office(SHARD) else {
            return;
        };
        let may_write = !self.nodes[at].is_faulty;
        if may_write
            && self.nodes[at].member.holds_lease(SHARD, now_ms)
            && self.random.below(20) == 0
        {
            self.writes += 1;
            let write = self.writes;
            let node = &mut self.nodes[at];
            Arc::make_mut(&mut node.log).push((term, write));
            let end = end_of(&node.log);
            node.member.note_log(SHARD, end, end.sequence);
        }
        if self.random.below(2) == 0 {
            let log = Arc::clone(&self.nodes[at].log);
            for to in (0..self.nodes.len()).filter(|to| *to != at) {
                let log = Arc::clone(&log);
                self.send(at, to, Parcel::Frames { term, log });
            }
        }
        if self.random.below(20) == 0 {
            self.trim(at);
        }
        let committed = self.commit(at, term);
        let node = &mut self.nodes[at];
        // A request that began when the log ended there: its reply reflects all of that.
        let wanted = *node.asked.get_or_insert(node.log.len());
        let is_ready = !self.is_quorum || committed >= wanted;
        if is_ready && node.member.holds_lease(SHARD, now_ms) {
            node.asked = None;
            self.summary.replies += 1;
            if term < self.answered_term {
                let newest = self.answered_term;
                self.fault = Some(Fault::TwoAnswer { term, newest });
            }
            self.answered_term = term;
        }
    }

    /// Returns how much of a primary's log is committed, and checks it against what was committed
    /// before.
    fn commit(&mut self, at: usize, term: u64) -> usize {
        if !self.is_quorum {
            return 0;
        }
        let node = &self.nodes[at];
        let Some(shard) = node.view.shards.get(&SHARD) else {
            return 0;
        };
        let mut ends = node.acked.clone();
        ends.insert(node.id, node.log.len() as u64);
        let end = usize::try_from(shard.committed(&ends)).unwrap_or(0);
        let own = node.log.iter().position(|frame| *frame == (term, 0));
        if own.is_none_or(|own| end <= own) {
            return 0;
        }
        let log = &node.log[..end.min(node.log.len())];
        let pairs = log.iter().zip(&self.committed);
        if let Some(at) = pairs.clone().position(|(own, known)| own != known) {
            self.fault = Some(match log[at].0 == self.committed[at].0 {
                true => Fault::FramesDiffer { at },
                false => Fault::CommittedLost { term, at },
            });
        }
        if log.len() > self.committed.len() {
            self.committed = log.to_vec();
        }
        log.len()
    }
}

fn end_of(log: &[Frame]) -> LogEnd {
    LogEnd {
        term: log.last().map_or(0, |frame| frame.0),
        sequence: log.len() as u64,
    }
}
