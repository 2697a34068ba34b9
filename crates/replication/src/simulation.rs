//! Whole nodes in one thread under one seed: links that break, disks that forget, operators that
//! change their minds. The state machines are the real ones, and every message passes through the
//! real codec.
//!
//! A node's data is its history: the bytes of all frames since sequence 0. Those below `oldest` are
//! in a checkpoint and no longer in its log. A frame has eight bytes; term frames are recognized by
//! their content.
//!
//! Invariants that are checked while it runs
//!  1. Two histories are the same up to the fork of their lineages.
//!  2. A primary counts only what the replica at the other end of a live link really has.
//!  3. A node discards data only for a primary that has a newer term or all of the data, or because
//!     an operator allowed it.
//!  4. After links hold and one primary is followed, all nodes have its history.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::{BTreeMap, VecDeque};

use base::random::Prng;

use crate::attach::{Attach, PrimaryLog};
use crate::lineage::{Lineage, Term, TermId};
use crate::link::{
    BODY_BYTES_MAX, Block, Full, HEADER_BYTES, Header, Message, Source, SyncEnd, encode,
};
use crate::planted::{Bug, plant};
use crate::primary::{self, LinkId, Piece, Primary, Stage, Times};
use crate::replica::{self, OwnLog, Replica, State};

const NODES: usize = 4;
const STEPS: u64 = 600;
const FRAME_BYTES: usize = 8;
const TIMES: Times = Times {
    timeout_ms: 2_000,
    ping_ms: 100,
};

/// A task that a node performs between two messages, later than it was requested.
#[derive(Debug)]
enum Task {
    Append {
        first: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        to: usize,
    },
    BeginSync {
        log_from: usize,
    },
    Load(Vec<u8>),
    EndSync,
    /// On a primary.
    Read {
        link: LinkId,
        from: usize,
        bytes_max: usize,
    },
    SendSync {
        link: LinkId,
    },
}

enum Role {
    Primary(Box<Primary>),
    Replica(Box<Replica>, usize),
}

struct Node {
    history: Vec<u8>,
    oldest: usize,
    durable: usize,
    role: Role,
    tasks: VecDeque<Task>,
    /// State of a full sync: the records so far, where its log begins, and that log.
    sync: Option<(Vec<u8>, usize, Vec<u8>)>,
    /// Whether an operator chose the primary, and the permission is not used yet.
    may_discard: bool,
}

/// A connection. Messages wait in it as bytes.
struct Link {
    replica: usize,
    primary: usize,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
    /// Whether each end considers it open.
    replica_open: bool,
    primary_open: bool,
}

struct World {
    random: Prng,
    now_ms: u64,
    nodes: Vec<Node>,
    links: BTreeMap<LinkId, Link>,
    last_link: u64,
    last_sync: u64,
    /// Terms by the bytes of their term frames.
    terms: BTreeMap<[u8; FRAME_BYTES], Term>,
    written: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let node = || Node {
            history: Vec::new(),
            oldest: 0,
            durable: 0,
            role: Role::Replica(Box::new(Replica::new(TIMES.timeout_ms)), 0),
            tasks: VecDeque::new(),
            sync: None,
            may_discard: false,
        };
        let mut world = Self {
            random: Prng::seeded(seed),
            now_ms: 1_000,
            nodes: (0..NODES).map(|_| node()).collect(),
            links: BTreeMap::new(),
            last_link: 0,
            last_sync: 0,
            terms: BTreeMap::new(),
            written: 0,
        };
        world.promote(0);
        for node in 1..NODES {
            world.follow(node, 0, false);
        }
        world
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.below(bound as u64)).unwrap()
    }

    fn lineage_of(&self, history: &[u8]) -> Lineage {
        let terms = history.as_chunks::<FRAME_BYTES>().0.iter();
        Lineage::new(
            terms
                .filter_map(|frame| self.terms.get(frame).copied())
                .collect(),
        )
        .unwrap()
    }

    fn primary_log(&self, node: usize) -> PrimaryLog {
        let node = &self.nodes[node];
        PrimaryLog {
            lineage: self.lineage_of(&node.history),
            oldest: node.oldest as u64,
            end: node.history.len() as u64,
            has_data: !node.history.is_empty(),
            is_whole: node.oldest == 0,
        }
    }

    fn attach_of(&self, node: usize) -> Attach {
        let node = &self.nodes[node];
        Attach {
            lineage: self.lineage_of(&node.history),
            end: node.history.len() as u64,
            durable: node.durable as u64,
            has_data: !node.history.is_empty(),
            ..Attach::default()
        }
    }

    fn own_log(&self, node: usize) -> OwnLog {
        let node = &self.nodes[node];
        match &node.sync {
            Some((_, log_from, log)) => OwnLog {
                appended: (log_from + log.len()) as u64,
                ..OwnLog::default()
            },
            None => OwnLog {
                appended: node.history.len() as u64,
                durable: node.durable as u64,
                applied: node.history.len() as u64,
                settled: 0,
            },
        }
    }

    // Actions of operators, disks and the network.

    /// Makes a node a primary in a new term.
    fn promote(&mut self, node: usize) {
        self.leave(node);
        let start = self.nodes[node].history.len() as u64;
        let number = self.lineage_of(&self.nodes[node].history).last_number() + 1;
        let mut id = [0; 20];
        id[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        let mut frame = [0; FRAME_BYTES];
        frame.copy_from_slice(&id[..FRAME_BYTES]);
        let id = TermId(id);
        self.terms.insert(frame, Term { number, id, start });
        self.nodes[node].history.extend_from_slice(&frame);
        // The term frame is durable before any other node learns of the term.
        self.nodes[node].durable = self.nodes[node].history.len();
        self.nodes[node].role = Role::Primary(Box::new(Primary::new(number, TIMES)));
    }

    /// Makes a node follow another one.
    fn follow(&mut self, node: usize, of: usize, may_discard: bool) {
        self.leave(node);
        let mut replica = Replica::new(TIMES.timeout_ms);
        let actions = own(replica.follow(may_discard, self.now_ms));
        self.nodes[node].may_discard = may_discard;
        self.nodes[node].role = Role::Replica(Box::new(replica), of);
        self.at_replica(node, None, actions);
    }

    /// Ends the activity of a node: closes its ends of links, and drops its pending tasks.
    fn leave(&mut self, node: usize) {
        for link in self.links.values_mut() {
            if link.replica == node {
                link.replica_open = false;
            }
            if link.primary == node {
                link.primary_open = false;
            }
        }
        self.nodes[node].tasks.clear();
        if self.nodes[node].sync.take().is_some() {
            (self.nodes[node].oldest, self.nodes[node].durable) = (0, 0);
        }
    }

    /// Ends the process of a node and starts it again. After a power cut it has only what was
    /// durable.
    fn restart(&mut self, node: usize, is_power_cut: bool) {
        self.leave(node);
        let it = &mut self.nodes[node];
        if is_power_cut {
            it.history.truncate(it.durable);
            it.oldest = it.oldest.min(it.history.len());
        }
        match &it.role {
            Role::Primary(_) => self.promote(node),
            Role::Replica(_, of) => {
                let of = *of;
                self.follow(node, of, false);
            }
        }
    }

    fn write(&mut self, node: usize) {
        if !matches!(self.nodes[node].role, Role::Primary(_)) {
            return;
        }
        for _ in 0..=self.below(3) {
            self.written += 1;
            // Never the bytes of a term frame, which are random.
            let frame = (self.written | 0xfeed << 48).to_le_bytes();
            self.nodes[node].history.extend_from_slice(&frame);
        }
        let end = self.nodes[node].history.len() as u64;
        if let Role::Primary(primary) = &mut self.nodes[node].role {
            let actions = own(primary.on_log(end));
            self.at_primary(node, actions);
        }
    }

    fn step(&mut self) {
        let node = self.below(NODES);
        match self.below(100) {
            0..20 => self.write(node),
            20..60 => self.deliver(),
            60..82 => self.work(node),
            82..88 => self.tick(),
            88..91 => self.nodes[node].durable = self.nodes[node].history.len(),
            91..93 => {
                let kept = self.nodes[node].history.len() / FRAME_BYTES + 1;
                let oldest = self.below(kept) * FRAME_BYTES;
                let it = &mut self.nodes[node];
                it.oldest = it.oldest.max(oldest.min(it.durable));
            }
            93..96 => self.cut_link(),
            96 | 97 => {
                let is_power_cut = self.below(2) == 0;
                self.restart(node, is_power_cut);
            }
            98 => self.promote(node),
            _ => {
                let of = self.below(NODES);
                let may_discard = self.below(2) == 0;
                if of != node {
                    self.follow(node, of, may_discard);
                }
            }
        }
    }

    fn tick(&mut self) {
        self.now_ms += 1 + self.random.below(300);
        let now_ms = self.now_ms;
        for node in 0..NODES {
            match &mut self.nodes[node].role {
                Role::Primary(primary) => {
                    let actions = own(primary.on_tick(now_ms));
                    self.at_primary(node, actions);
                }
                Role::Replica(replica, _) => {
                    let actions = own(replica.on_tick(now_ms));
                    let link = self.link_of(node);
                    self.at_replica(node, link, actions);
                }
            }
        }
    }

    /// Breaks a connection: one end notices now, the other when it was silent for too long.
    fn cut_link(&mut self) {
        let Some(id) = self.any_link() else {
            return;
        };
        if self.below(2) == 0 {
            self.close_at_replica(id);
        } else {
            self.close_at_primary(id);
        }
    }

    fn any_link(&mut self) -> Option<LinkId> {
        let at = self.below(self.links.len().max(1));
        self.links.keys().nth(at).copied()
    }

    fn close_at_replica(&mut self, id: LinkId) {
        let now_ms = self.now_ms;
        let Some(link) = self.links.get_mut(&id).filter(|link| link.replica_open) else {
            return;
        };
        link.replica_open = false;
        let node = link.replica;
        self.nodes[node]
            .tasks
            .retain(|task| matches!(task, Task::Read { .. } | Task::SendSync { .. }));
        if self.nodes[node].sync.take().is_some() {
            (self.nodes[node].oldest, self.nodes[node].durable) = (0, 0);
        }
        if let Role::Replica(replica, _) = &mut self.nodes[node].role {
            replica.on_closed(now_ms);
        }
    }

    fn close_at_primary(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.primary_open) else {
            return;
        };
        link.primary_open = false;
        let node = link.primary;
        if let Role::Primary(primary) = &mut self.nodes[node].role {
            primary.on_closed(id);
        }
    }

    fn link_of(&self, node: usize) -> Option<LinkId> {
        let is_own = |(_, link): &(&LinkId, &Link)| link.replica == node && link.replica_open;
        self.links.iter().find(is_own).map(|(id, _)| *id)
    }

    // Messages.

    fn deliver(&mut self) {
        let Some(id) = self.any_link() else {
            return;
        };
        if self.below(2) == 0 {
            self.deliver_down(id);
        } else {
            self.deliver_up(id);
        }
        let link = &self.links[&id];
        if !link.replica_open && !link.primary_open {
            self.links.remove(&id);
        }
    }

    fn deliver_down(&mut self, id: LinkId) {
        let link = self.links.get_mut(&id).unwrap();
        let node = link.replica;
        let Some(bytes) = link.down.pop_front() else {
            // The other end is closed, and everything it sent was delivered.
            if !link.primary_open {
                self.close_at_replica(id);
            }
            return;
        };
        if !link.replica_open {
            return;
        }
        let (primary, now_ms) = (link.primary, self.now_ms);
        let is_piece = read(&bytes, |message| matches!(message, Message::Frames(_)));
        if let Role::Replica(replica, _) = &mut self.nodes[node].role {
            let actions = read(&bytes, |message| own(replica.on_message(message, now_ms)));
            self.at_replica(node, Some(id), actions);
        }
        // The link has space again after a message was delivered.
        let end = self.nodes[primary].history.len() as u64;
        if is_piece
            && self.links.get(&id).is_some_and(|link| link.primary_open)
            && let Role::Primary(machine) = &mut self.nodes[primary].role
        {
            let actions = own(machine.on_sent(id, end));
            self.at_primary(primary, actions);
        }
    }

    fn deliver_up(&mut self, id: LinkId) {
        let link = self.links.get_mut(&id).unwrap();
        let node = link.primary;
        let Some(bytes) = link.up.pop_front() else {
            if !link.replica_open {
                self.close_at_primary(id);
            }
            return;
        };
        if !link.primary_open {
            return;
        }
        let (log, now_ms) = (self.primary_log(node), self.now_ms);
        if let Role::Primary(primary) = &mut self.nodes[node].role {
            let actions = read(&bytes, |message| {
                primary.on_message(id, message, &log, now_ms)
            });
            let gives_up = actions.iter().any(|action| {
                matches!(
                    action,
                    primary::Action::Send(_, Message::Rewind { .. })
                        | primary::Action::BeginSync { .. }
                )
            });
            let link = &self.links[&id];
            if gives_up && link.replica_open {
                self.check_given_up(link.replica, node);
            }
            self.at_primary(node, own(actions));
            self.check_counted(node, id);
        }
    }

    // Actions of nodes.

    fn at_replica(&mut self, node: usize, link: Option<LinkId>, actions: Vec<Owned>) {
        for action in actions {
            match action {
                Owned::Connect => self.connect(node),
                Owned::Close => {
                    if let Some(link) = link.and_then(|id| self.links.get_mut(&id)) {
                        link.replica_open = false;
                    }
                    self.nodes[node].tasks.clear();
                    if self.nodes[node].sync.take().is_some() {
                        (self.nodes[node].oldest, self.nodes[node].durable) = (0, 0);
                    }
                }
                Owned::Send(_, bytes) => {
                    if let Some(link) = link.and_then(|id| self.links.get_mut(&id)) {
                        link.up.push_back(bytes);
                    }
                }
                Owned::Task(task) => self.nodes[node].tasks.push_back(task),
            }
        }
    }

    fn at_primary(&mut self, node: usize, actions: Vec<Owned>) {
        for action in actions {
            match action {
                Owned::Connect => unreachable!("a primary connects to nobody"),
                Owned::Close => {}
                Owned::Send(id, bytes) => {
                    let id = id.unwrap();
                    if bytes.is_empty() {
                        self.close_at_primary(id);
                    } else if let Some(link) = self.links.get_mut(&id) {
                        link.down.push_back(bytes);
                    }
                }
                Owned::Task(task) => self.nodes[node].tasks.push_back(task),
            }
        }
    }

    fn connect(&mut self, node: usize) {
        let Role::Replica(_, of) = self.nodes[node].role else {
            return;
        };
        if !matches!(self.nodes[of].role, Role::Primary(_)) {
            // Only primaries answer; the server, not this simulation, supports chains.
            if let Role::Replica(replica, _) = &mut self.nodes[node].role {
                replica.on_closed(self.now_ms);
            }
            return;
        }
        self.last_link += 1;
        let id = LinkId(self.last_link);
        let link = Link {
            replica: node,
            primary: of,
            up: VecDeque::new(),
            down: VecDeque::new(),
            replica_open: true,
            primary_open: true,
        };
        self.links.insert(id, link);
        let (attach, log, now_ms) = (self.attach_of(node), self.own_log(node), self.now_ms);
        if let Role::Primary(primary) = &mut self.nodes[of].role {
            primary.on_connected(id, now_ms);
        }
        if let Role::Replica(replica, _) = &mut self.nodes[node].role {
            let actions = own(replica.on_connected(attach, log, now_ms));
            self.at_replica(node, Some(id), actions);
        }
    }

    /// Performs the next task of a node.
    fn work(&mut self, node: usize) {
        let Some(task) = self.nodes[node].tasks.pop_front() else {
            return;
        };
        match task {
            Task::Append { first, bytes } => {
                let it = &mut self.nodes[node];
                let log = match &mut it.sync {
                    Some((_, log_from, log)) => {
                        assert_eq!(first, *log_from + log.len());
                        log
                    }
                    None => {
                        assert_eq!(
                            first,
                            it.history.len(),
                            "appended where the log does not end"
                        );
                        &mut it.history
                    }
                };
                log.extend_from_slice(&bytes);
                self.report_log(node);
            }
            Task::Truncate { to } => {
                let it = &mut self.nodes[node];
                it.history.truncate(to);
                (it.oldest, it.durable) = (it.oldest.min(to), it.durable.min(to));
                let (attach, log) = (self.attach_of(node), self.own_log(node));
                let link = self.link_of(node);
                if let Role::Replica(replica, _) = &mut self.nodes[node].role {
                    let actions = own(replica.on_truncated(attach, log));
                    self.at_replica(node, link, actions);
                }
            }
            Task::BeginSync { log_from } => {
                let it = &mut self.nodes[node];
                it.history.clear();
                (it.oldest, it.durable) = (0, 0);
                it.sync = Some((Vec::new(), log_from, Vec::new()));
            }
            Task::Load(bytes) => {
                if let Some((records, ..)) = &mut self.nodes[node].sync {
                    records.extend_from_slice(&bytes);
                }
            }
            Task::EndSync => self.end_sync(node),
            Task::Read {
                link,
                from,
                bytes_max,
            } => self.read_log(node, link, from, bytes_max),
            Task::SendSync { link } => self.send_sync(node, link),
        }
    }

    fn end_sync(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let Some((records, log_from, log)) = it.sync.take() else {
            return;
        };
        assert_eq!(records.len(), log_from, "a full sync without all records");
        it.history = records;
        it.history.extend_from_slice(&log);
        (it.oldest, it.durable) = (log_from, log_from);
        let own_log = self.own_log(node);
        let link = self.link_of(node);
        if let Role::Replica(replica, _) = &mut self.nodes[node].role {
            let actions = own(replica.on_synced(own_log));
            self.at_replica(node, link, actions);
        }
    }

    fn report_log(&mut self, node: usize) {
        let (log, link) = (self.own_log(node), self.link_of(node));
        if let Role::Replica(replica, _) = &mut self.nodes[node].role {
            let actions = own(replica.on_log(log));
            self.at_replica(node, link, actions);
        }
    }

    fn read_log(&mut self, node: usize, link: LinkId, from: usize, bytes_max: usize) {
        let now_ms = self.now_ms;
        let it = &mut self.nodes[node];
        let end = it.history.len().min(from + bytes_max);
        let bytes = it.history[from.min(end)..end].to_vec();
        let piece = if from < it.oldest {
            Piece::Gone
        } else {
            Piece::Frames(&bytes)
        };
        if let Role::Primary(primary) = &mut it.role {
            let actions = own(primary.on_read(link, piece, 0, now_ms));
            self.at_primary(node, actions);
        }
    }

    /// Sends a full sync: everything below a random sequence as records, the rest as log.
    fn send_sync(&mut self, node: usize, link: LinkId) {
        self.last_sync += 1;
        let end = self.nodes[node].history.len();
        let oldest = self.nodes[node].oldest;
        let log_from = oldest + self.below((end - oldest) / FRAME_BYTES + 1) * FRAME_BYTES;
        let records = self.nodes[node].history[..log_from].to_vec();
        let Role::Primary(primary) = &mut self.nodes[node].role else {
            return;
        };
        let full = Full {
            sync: self.last_sync,
            term: primary.term(),
            streams: 1,
            source: Source::Checkpoint,
            generation: 1,
            log_from: log_from as u64,
            records: records.len() as u64,
            bytes: records.len() as u64,
            fork: u64::MAX,
        };
        let mut actions = own(primary.on_sync_begun(link, full, end as u64));
        if primary.stage(link) == (Some(Stage::Sending { sync: full.sync })) {
            for (number, bytes) in records.chunks(64).enumerate() {
                let block = Block {
                    sync: full.sync,
                    part: 0,
                    number: u32::try_from(number).unwrap(),
                    bytes,
                };
                actions.push(sent(Some(link), &Message::Block(block)));
            }
            let end = SyncEnd {
                sync: full.sync,
                sequence: end as u64,
                manifest: b"",
            };
            actions.extend(own(primary.on_sync_sent(link, end)));
        }
        self.at_primary(node, actions);
    }

    // Invariants.

    fn check_histories(&self) {
        for one in &self.nodes {
            for other in &self.nodes {
                let (lineage, others) = (
                    self.lineage_of(&one.history),
                    self.lineage_of(&other.history),
                );
                let ends = (one.history.len() as u64, other.history.len() as u64);
                let fork = lineage.fork(ends.0, &others, ends.1).unwrap_or(0);
                let fork = usize::try_from(fork).unwrap();
                assert!(
                    one.history[..fork] == other.history[..fork],
                    "histories differ below their fork"
                );
            }
        }
    }

    fn check_counted(&self, node: usize, id: LinkId) {
        let Role::Primary(primary) = &self.nodes[node].role else {
            return;
        };
        let Some(link) = self.links.get(&id).filter(|link| link.replica_open) else {
            return;
        };
        let Some(ack) = primary.acked(id) else {
            return;
        };
        if primary.appended_count(ack.appended) == 0 {
            return;
        }
        let is_counted = matches!(primary.stage(id), Some(Stage::Streaming))
            || crate::planted::is_on(Bug::SyncingCounts);
        let (has, counted) = (
            &self.nodes[link.replica].history,
            usize::try_from(ack.appended).unwrap(),
        );
        let history = &self.nodes[node].history;
        assert!(
            !is_counted
                || (has.len() >= counted
                    && has[..counted] == history[..counted.min(history.len())]),
            "counted what the replica has not"
        );
    }

    /// Checks that a primary may make a node discard its data.
    fn check_given_up(&self, node: usize, primary: usize) {
        let (it, history) = (&self.nodes[node], &self.nodes[primary].history);
        let (own, others) = (self.lineage_of(&it.history), self.lineage_of(history));
        let is_prefix = history.starts_with(&it.history);
        let is_newer = others.last_number() > own.last_number();
        let is_related = own.terms().first() == others.terms().first();
        assert!(
            is_prefix || (is_newer && is_related) || it.may_discard,
            "node {node} gives up its data to node {primary}"
        );
    }

    /// Heals everything and makes all nodes follow the one that is furthest.
    fn converge(&mut self) {
        let furthest = (0..NODES).max_by_key(|&node| {
            let history = &self.nodes[node].history;
            (self.lineage_of(history).last_number(), history.len())
        });
        let primary = furthest.unwrap();
        self.promote(primary);
        for node in (0..NODES).filter(|&node| node != primary) {
            self.follow(node, primary, true);
        }
        for round in 0..40_000 {
            match round % 8 {
                0 => self.tick(),
                1..4 => {
                    let node = self.below(NODES);
                    self.work(node);
                }
                _ => self.deliver(),
            }
            if round % 64 == 0 && self.is_converged(primary) {
                return;
            }
        }
        panic!("not all nodes have the history of node {primary}");
    }

    fn is_converged(&self, primary: usize) -> bool {
        self.nodes.iter().all(|node| {
            let is_online = match &node.role {
                Role::Primary(_) => true,
                Role::Replica(replica, _) => {
                    replica.state() == State::Following && replica.is_online()
                }
            };
            is_online && node.history == self.nodes[primary].history
        })
    }
}

/// An action that owns its data.
enum Owned {
    Connect,
    Close,
    /// The link at a primary, and the bytes; no bytes: close it.
    Send(Option<LinkId>, Vec<u8>),
    Task(Task),
}

fn sent(link: Option<LinkId>, message: &Message<'_>) -> Owned {
    let mut bytes = Vec::new();
    encode(message, 0, &mut bytes);
    Owned::Send(link, bytes)
}

fn at(sequence: u64) -> usize {
    usize::try_from(sequence).unwrap()
}

fn own<A: IntoOwned>(actions: Vec<A>) -> Vec<Owned> {
    actions
        .into_iter()
        .filter_map(IntoOwned::into_owned)
        .collect()
}

trait IntoOwned {
    fn into_owned(self) -> Option<Owned>;
}

impl IntoOwned for primary::Action<'_> {
    fn into_owned(self) -> Option<Owned> {
        Some(match self {
            Self::Send(link, message) => sent(Some(link), &message),
            Self::Read {
                link,
                from,
                bytes_max,
            } => Owned::Task(Task::Read {
                link,
                from: at(from),
                bytes_max: at(bytes_max),
            }),
            Self::BeginSync { link, .. } => Owned::Task(Task::SendSync { link }),
            Self::Close(link, _) => Owned::Send(Some(link), Vec::new()),
        })
    }
}

impl IntoOwned for replica::Action<'_> {
    fn into_owned(self) -> Option<Owned> {
        Some(match self {
            Self::Connect => Owned::Connect,
            Self::Close => Owned::Close,
            Self::Send(message) => sent(None, &message),
            Self::Append { first, bytes } => Owned::Task(Task::Append {
                first: at(first),
                bytes: bytes.to_vec(),
            }),
            Self::Truncate { to } => Owned::Task(Task::Truncate { to: at(to) }),
            Self::BeginSync(full) => Owned::Task(Task::BeginSync {
                log_from: at(full.log_from),
            }),
            Self::Load(block) => Owned::Task(Task::Load(block.bytes.to_vec())),
            Self::EndSync(_) => Owned::Task(Task::EndSync),
            Self::EndPart(_) | Self::Report(_) | Self::Committed => return None,
        })
    }
}

/// Decodes a message as the other end does.
fn read<T>(bytes: &[u8], take: impl FnOnce(Message<'_>) -> T) -> T {
    let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
    let header = Header::decode(head, BODY_BYTES_MAX).unwrap();
    take(header.message(body).unwrap().unwrap())
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for step in 0..STEPS {
        world.step();
        if step % 16 == 0 {
            world.check_histories();
        }
    }
    world.check_histories();
    world.converge();
    world.check_histories();
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let first = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let first = first.unwrap_or(1);
    first..first + count.unwrap_or(1_000)
}

#[test]
fn nodes_agree_whatever_happens_to_them() {
    for seed in seeds() {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(
            outcome.is_ok(),
            "SEED={seed} SEEDS=1 cargo test -p replication simulation"
        );
    }
}

#[test]
fn planted_mistakes_are_found() {
    for bug in [
        Bug::SkipLineage,
        Bug::AckBeforeAppend,
        Bug::SkipPiece,
        Bug::SyncingCounts,
    ] {
        plant(Some(bug));
        let is_found = (1..200).any(|seed| std::panic::catch_unwind(|| run(seed)).is_err());
        plant(None);
        assert!(is_found, "{bug:?} is not found");
    }
}
