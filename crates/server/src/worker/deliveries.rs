//! Delivery of pushes to the clients of one worker.
//!
//! ```text
//!   mail ──► inbox: letters, numbered ──► round: the letters at the front, by who gets them
//!                                              │  a few connections a turn
//!                                              ▼
//!                                         one send for each connection and round
//! ```
//!
//! A round takes the letters that wait at its beginning. Clients that are subscribed to only one of
//! the round's topics share one copy of its messages in memory. Other clients get their own
//! selection, in the order of publication. A round takes several turns. Meanwhile other clients are
//! served, and what they publish waits for the next round: the higher the load, the more messages
//! leave with each send.
//!
//! A client may have to get its pushes before its round: before a change of its subscriptions, and
//! when it published something itself ([`Deliveries::catch_up`]). [`Session::pushes_seen`] is its
//! position.
//!
//! Invariant: for each member of a topic, the letters of the topic numbered below `pushes_seen`
//! were delivered, or were published before the member subscribed.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use engine::{ClientRecord, Push, Session, Topic, TopicKind};
use protocol::{Reply, Resp};
use reactor::{ConnectionId, Io};

use super::arena::Arena;
use super::sessions::Sessions;
use crate::counters::bump;
use crate::link::Message;
use crate::mail::{Address, Letter};
use crate::node::Node;

/// Maximum number of connections that are sent something in one turn: about a third of a
/// millisecond.
const SENDS_MAX: usize = 64;
/// Length at which a round takes no further letters.
const ROUND_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of subscriptions that are checked before a round of several topics begins.
const ROUND_MEMBERS_MAX: usize = 16 * 1024;

/// See the module documentation.
pub(crate) struct Deliveries {
    node: Arc<Node>,
    worker: usize,
    inbox: VecDeque<Letter>,
    /// Number of the letter at the front of the inbox.
    first: u64,
    /// Addresses that missed a letter.
    missed: HashSet<Address>,
    members: HashMap<Topic, BTreeSet<ConnectionId>>,
    round: Option<Round>,
    rounds_count: u64,
}

/// The last round of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundMark {
    /// Number of the last round that looked at the connection.
    round: u64,
    /// Whether that round has letters to several addresses for it.
    is_mixed: bool,
}

/// The letters at the front of the inbox, and the progress of their delivery.
struct Round {
    number: u64,
    letters_count: usize,
    groups: Vec<Group>,
    by_address: HashMap<Address, usize>,
    /// The group that is being delivered, and the last member that was visited.
    group: usize,
    last: Option<ConnectionId>,
}

/// The letters to one address, as positions in the inbox.
struct Group {
    to: Address,
    letters: Vec<usize>,
    /// All letters joined, per version of the protocol, once it was needed.
    joined: [Option<Arc<[u8]>>; 2],
}

impl Deliveries {
    /// Starts without letters.
    pub(super) fn new(node: Arc<Node>, worker: usize) -> Self {
        Self {
            node,
            worker,
            inbox: VecDeque::new(),
            first: 0,
            missed: HashSet::new(),
            members: HashMap::new(),
            round: None,
            rounds_count: 0,
        }
    }

    /// Returns the number of the worker.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Whether letters wait to be delivered.
    pub(super) fn wait(&self) -> bool {
        !self.inbox.is_empty() || self.node.workers()[self.worker].mail.waits()
    }

    /// Subscribes a connection to a topic; see [`engine::PubSubPort::subscribe`].
    pub(crate) fn subscribe(
        &mut self,
        (session, connection): (&mut Session, ConnectionId),
        kind: TopicKind,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Topic {
        let node = Arc::clone(&self.node);
        let worker = self.worker;
        let topic = node
            .sessions
            .pubsub
            .enter(kind, name, worker, || self.collect_mail());
        self.catch_up(session, reply);
        self.members
            .entry(topic.clone())
            .or_default()
            .insert(connection);
        topic
    }

    /// Ends a subscription; see [`engine::PubSubPort::unsubscribe`].
    pub(crate) fn unsubscribe(
        &mut self,
        (session, connection): (&mut Session, ConnectionId),
        topic: &Topic,
        reply: &mut Reply<'_>,
    ) {
        let node = Arc::clone(&self.node);
        let worker = self.worker;
        node.sessions
            .pubsub
            .leave(topic, worker, || self.collect_mail());
        self.catch_up(session, reply);
        self.remove_member(topic, connection);
    }

    /// Ends all subscriptions of a closed connection.
    pub(super) fn forget(&mut self, session: &Session, connection: ConnectionId) {
        let subscriptions = session.subscriptions.as_ref();
        for topic in subscriptions.into_iter().flat_map(|own| own.all()) {
            self.node.sessions.pubsub.leave(&topic, self.worker, || ());
            self.remove_member(&topic, connection);
        }
    }

    fn remove_member(&mut self, topic: &Topic, connection: ConnectionId) {
        if let Some(members) = self.members.get_mut(topic) {
            members.remove(&connection);
            if members.is_empty() {
                self.members.remove(topic);
            }
        }
    }

    /// Writes all letters that were posted for a client so far.
    pub(crate) fn catch_up(&mut self, session: &mut Session, reply: &mut Reply<'_>) {
        self.collect_mail();
        let seen = usize::try_from(session.pushes_seen.saturating_sub(self.first));
        for letter in self.inbox.iter().skip(seen.unwrap_or(usize::MAX)) {
            if is_for(&letter.to, session) {
                if session.holds_pushes {
                    session.held_pushes.push(letter.push.clone());
                } else {
                    letter.push.write(reply);
                }
            }
        }
        session.pushes_seen = self.end();
    }

    /// Delivers the waiting letters, as far as one turn permits.
    pub(super) fn deliver(&mut self, sessions: &mut Sessions, io: &mut Io<'_>, output: &mut Arena) {
        self.collect_mail();
        let mut sends_left = SENDS_MAX;
        while sends_left > 0 && !self.inbox.is_empty() {
            let mut round = match self.round.take() {
                Some(round) => round,
                None => self.begin_round(sessions),
            };
            let mut delivery = Delivery {
                deliveries: self,
                sessions,
                io,
                output,
                sends_left,
            };
            let is_done = delivery.go_on(&mut round);
            sends_left = delivery.sends_left;
            if is_done {
                self.end_round(&round);
            } else {
                self.round = Some(round);
            }
        }
    }

    /// Returns the connections that missed a letter.
    pub(super) fn take_missed(&mut self, sessions: &Sessions) -> Vec<ConnectionId> {
        if self.missed.is_empty() {
            return Vec::new();
        }
        let missed = std::mem::take(&mut self.missed);
        let connections = missed.iter().flat_map(|to| match to {
            Address::Client { id, place } => Vec::from_iter(sessions.connection_of(*id, *place)),
            Address::Topic(topic) => {
                let members = self.members.get(topic);
                Vec::from_iter(members.into_iter().flatten().copied())
            }
        });
        connections.collect()
    }

    fn collect_mail(&mut self) {
        let mail = &self.node.workers()[self.worker].mail;
        if mail.waits() {
            let taken = mail.take();
            self.inbox.extend(taken.letters);
            self.missed.extend(taken.missed);
        }
    }

    /// Returns the number of the next letter.
    fn end(&self) -> u64 {
        self.first + self.inbox.len() as u64
    }

    /// Collects the letters of a round.
    fn begin_round(&mut self, sessions: &mut Sessions) -> Round {
        self.rounds_count += 1;
        let mut round = Round {
            number: self.rounds_count,
            letters_count: 0,
            groups: Vec::new(),
            by_address: HashMap::new(),
            group: 0,
            last: None,
        };
        let (mut bytes, mut members_count) = (0, 0);
        for (place, letter) in self.inbox.iter().enumerate() {
            if bytes > ROUND_BYTES_MAX {
                break;
            }
            let group = match round.by_address.get(&letter.to) {
                Some(group) => *group,
                None => {
                    members_count += self.members_of(&letter.to);
                    if place > 0 && members_count > ROUND_MEMBERS_MAX {
                        break;
                    }
                    round.add_group(&letter.to)
                }
            };
            round.groups[group].letters.push(place);
            round.letters_count += 1;
            bytes += letter.push.len();
        }
        if round.groups.len() > 1 {
            self.mark(&round, sessions);
        }
        round
    }

    /// Returns the maximum number of connections that an address leads to.
    fn members_of(&self, to: &Address) -> usize {
        match to {
            Address::Client { .. } => 1,
            Address::Topic(topic) => self.members.get(topic).map_or(0, BTreeSet::len),
        }
    }

    /// Marks the connections that get letters to more than one of the round's addresses.
    fn mark(&self, round: &Round, sessions: &mut Sessions) {
        for group in &round.groups {
            let (one, members) = match &group.to {
                Address::Client { id, place } => (sessions.connection_of(*id, *place), None),
                Address::Topic(topic) => (None, self.members.get(topic)),
            };
            let ids = one
                .into_iter()
                .chain(members.into_iter().flatten().copied());
            for id in ids {
                if let Some(connected) = sessions.get_mut(id) {
                    let is_mixed = connected.round.round == round.number;
                    connected.round = RoundMark {
                        round: round.number,
                        is_mixed,
                    };
                }
            }
        }
    }

    fn end_round(&mut self, round: &Round) {
        let done = self.inbox.drain(..round.letters_count);
        let bytes = done.map(|letter| letter.held_bytes()).sum();
        self.first += round.letters_count as u64;
        if self.inbox.is_empty() && self.inbox.capacity() > 1024 {
            self.inbox = VecDeque::new();
        }
        if self.node.workers()[self.worker].mail.delivered(bytes) {
            self.node.broadcast(&Message::MailDelivered);
        }
    }
}

impl Round {
    fn add_group(&mut self, to: &Address) -> usize {
        let group = self.groups.len();
        self.by_address.insert(to.clone(), group);
        self.groups.push(Group {
            to: to.clone(),
            letters: Vec::new(),
            joined: [None, None],
        });
        group
    }

    /// Returns the positions of a client's letters from `start` on, in order.
    fn letters_for(&self, session: &Session, start: usize) -> Vec<usize> {
        let topics = session.subscriptions.as_ref();
        let topics_count = topics.map_or(0, |own| own.count(&TopicKind::ALL));
        let mut places = Vec::new();
        if self.groups.len() <= topics_count + 1 {
            let own = self
                .groups
                .iter()
                .filter(|group| is_for(&group.to, session));
            places.extend(own.flat_map(|group| &group.letters).copied());
        } else {
            let ClientRecord { id, place, .. } = *session.client;
            let topics = topics.into_iter().flat_map(|own| own.all());
            let addresses = topics.map(Address::Topic);
            let groups = addresses
                .chain([Address::Client { id, place }])
                .filter_map(|to| self.by_address.get(&to));
            places.extend(
                groups
                    .flat_map(|group| &self.groups[*group].letters)
                    .copied(),
            );
        }
        places.retain(|place| *place >= start);
        places.sort_unstable();
        places
    }
}

/// One turn's part of a round.
struct Delivery<'d, 'i, 'l> {
    deliveries: &'d Deliveries,
    sessions: &'d mut Sessions,
    io: &'i mut Io<'l>,
    output: &'d mut Arena,
    sends_left: usize,
}

impl Delivery<'_, '_, '_> {
    /// Delivers letters of a round. Returns whether the round is done.
    fn go_on(&mut self, round: &mut Round) -> bool {
        while let Some(group) = round.groups.get(round.group) {
            let is_done = match group.to.clone() {
                Address::Client { id, place } => {
                    if let Some(id) = self.sessions.connection_of(id, place) {
                        self.deliver_to(round, id);
                    }
                    true
                }
                Address::Topic(topic) => self.deliver_to_members(round, &topic),
            };
            if !is_done {
                return false;
            }
            round.group += 1;
            round.last = None;
        }
        true
    }

    /// Visits the members of a topic. Returns whether it reached the end.
    fn deliver_to_members(&mut self, round: &mut Round, topic: &Topic) -> bool {
        let Some(members) = self.deliveries.members.get(topic) else {
            return true;
        };
        let start = round.last.map_or(Bound::Unbounded, Bound::Excluded);
        for &id in members.range((start, Bound::Unbounded)) {
            if self.sends_left == 0 {
                return false;
            }
            self.deliver_to(round, id);
            round.last = Some(id);
        }
        true
    }

    /// Delivers all letters of the round to a connection.
    fn deliver_to(&mut self, round: &mut Round, id: ConnectionId) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let Deliveries { inbox, first, .. } = self.deliveries;
        let session = &mut connected.session;
        let end = first + round.letters_count as u64;
        if session.pushes_seen >= end || self.io.is_closing(id) {
            return;
        }
        if session.is_being_answered() {
            let start = usize::try_from(session.pushes_seen.saturating_sub(*first));
            let places = round.letters_for(session, start.unwrap_or(usize::MAX));
            let pushes = places.into_iter().map(|place| inbox[place].push.clone());
            session.held_pushes.extend(pushes);
            session.pushes_seen = end;
            return;
        }
        let is_alone = round.groups.len() == 1
            || !(connected.round.round == round.number && connected.round.is_mixed);
        let group = &mut round.groups[round.group];
        let is_shared = matches!(group.to, Address::Topic(_));
        let bytes = if is_alone && is_shared && session.pushes_seen <= *first {
            let joined = group.joined(inbox, session.resp);
            self.io.write_shared(id, joined);
            joined.len()
        } else {
            let start = usize::try_from(session.pushes_seen.saturating_sub(*first));
            let before = self.output.len();
            for place in round.letters_for(session, start.unwrap_or(usize::MAX)) {
                let reply = &mut Reply::new(&mut *self.output, session.resp);
                inbox[place].push.write(reply);
            }
            self.io.address(id, self.output.len());
            self.output.len() - before
        };
        session.pushes_seen = end;
        bump(&session.client.output_bytes_total, bytes);
        self.sends_left = self.sends_left.saturating_sub(1);
    }
}

impl Group {
    /// Returns all letters of the group, in a version of the protocol.
    fn joined(&mut self, inbox: &VecDeque<Letter>, version: Resp) -> &Arc<[u8]> {
        let letters = &self.letters;
        let joined = match version {
            Resp::V2 => &mut self.joined[0],
            Resp::V3 => &mut self.joined[1],
        };
        joined.get_or_insert_with(|| {
            let pushes = letters.iter().map(|place| &inbox[*place].push);
            Push::join(pushes, version)
        })
    }
}

fn is_for(to: &Address, session: &Session) -> bool {
    match to {
        Address::Client { id, .. } => *id == session.client.id,
        Address::Topic(topic) => session
            .subscriptions
            .as_ref()
            .is_some_and(|own| own.contains(topic.kind, &topic.name)),
    }
}
