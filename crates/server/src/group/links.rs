//! The links between the nodes of a control group: questions with a number, and their answers.
//!
//! ```text
//!   ask(node, subject, bytes) ─► queue ─► thread "control" of the peer: connects, greets, sends ──► link
//!   done(answer) ◄────────────────────── its thread "control-in" ◄──────────────────────────────────┘
//!
//!   link of a peer ─► the thread that accepted it ─► handler(question) … answer ─► queue ─► thread "control-out"
//! ```
//!
//! Both ends have proved that they know the secret before anything is asked. The end that connected asks, the other
//! answers. A link is made when something is to be said to a node, and ends when that node does not answer for a while.
//! Nothing here waits for a peer but the threads of its own links; what does not fit into their queues is refused at once.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cluster::NodeId;
use cluster::control_log::RaftId;
use replication::link::{Answer, Ask, Message};

use super::files::Place;
use crate::node::Node;
use crate::replication::session::{LinkFault, Reader, Received, Session, Writer, conduit, greet};
use crate::replication::{dial, identity_for};

/// Questions that wait to be sent to one node.
const QUEUE_MAX: usize = 256;
/// Questions without an answer, of one link.
const PENDING_MAX: usize = 1_024;
/// A question or an answer is not longer.
const WHOLE_BYTES_MAX: usize = 64 << 20;
/// A piece of one.
const PIECE_BYTES: usize = 512 << 10;
/// How long a connection may take.
const DIAL_TIME: Duration = Duration::from_secs(1);
/// How often a thread looks up.
const LOOK: Duration = Duration::from_millis(100);
/// After a connection that failed none is tried for so long; twice as long each time, ...
const PAUSE_MS_MIN: u64 = 50;
/// ... up to this.
const PAUSE_MS_MAX: u64 = 500;
/// Whoever does not answer for so long is taken for gone.
const SILENCE_MS: u64 = 5_000;

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Subject {
    /// A request of Raft.
    Raft = 1,
    /// Heartbeats and seals.
    Member = 2,
    /// A node wants to join.
    Join = 3,
    /// A node of a cluster meets another one.
    Meet = 4,
    /// A primary is to hand its office over.
    HandOver = 5,
    /// A message for the subscribers of a node.
    Publish = 6,
    /// A client's connection to a node is to be let in.
    Forward = 7,
    /// A node says where it is now, and asks where others are.
    Places = 8,
    /// A primary asks a member whether it knows of no later term.
    Confirm = 9,
    /// A replica asks its primary what is committed.
    ReadIndex = 10,
}

impl Subject {
    /// Whether it is between members of one group: those of another incarnation of it are refused.
    fn is_of_members(self) -> bool {
        matches!(
            self,
            Self::Raft
                | Self::Member
                | Self::HandOver
                | Self::Places
                | Self::Confirm
                | Self::ReadIndex
        )
    }

    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Raft,
            Self::Member,
            Self::Join,
            Self::Meet,
            Self::HandOver,
            Self::Publish,
            Self::Forward,
            Self::Places,
            Self::Confirm,
            Self::ReadIndex,
        ];
        all.into_iter().find(|one| *one as u8 == byte)
    }
}

/// An answer, or why there is none.
pub(crate) type Told = Result<Vec<u8>, String>;
/// Who is told.
pub(crate) type Done = Box<dyn FnOnce(Told) + Send>;

/// A question of a peer.
pub(crate) struct Asked {
    /// Who asks: the node of its hello.
    pub(crate) from: NodeId,
    /// About what.
    pub(crate) subject: Subject,
    /// The question.
    pub(crate) bytes: Vec<u8>,
    /// Where the answer goes.
    pub(crate) reply: Reply,
}

/// Where the answer to a question goes. Dropped, it says that there is none.
pub(crate) struct Reply {
    number: u64,
    queue: SyncSender<(u64, Told)>,
    is_answered: bool,
}

impl Reply {
    /// Answers; where the peer takes nothing the answer is lost.
    pub(crate) fn answer(mut self, told: Told) {
        self.put(told);
    }

    fn put(&mut self, told: Told) {
        self.is_answered = true;
        let _full = self.queue.try_send((self.number, told));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            self.put(Err("there is no answer".to_owned()));
        }
    }
}

/// What answers questions.
pub(crate) type Handler = Box<dyn Fn(Asked) + Send + Sync>;

struct Order {
    subject: Subject,
    bytes: Vec<u8>,
    done: Done,
}

struct Peer {
    place: Arc<Mutex<Place>>,
    queue: SyncSender<Order>,
}

/// See the module.
pub(crate) struct Links {
    node: Weak<Node>,
    handler: Handler,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
    raft_ids: Mutex<BTreeMap<RaftId, NodeId>>,
    stopping: Arc<AtomicBool>,
    /// Of the group that this node is in.
    incarnation: AtomicU64,
}

impl Links {
    pub(crate) fn new(node: &Arc<Node>, handler: Handler) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::downgrade(node),
            handler,
            peers: Mutex::default(),
            raft_ids: Mutex::default(),
            stopping: Arc::default(),
            incarnation: AtomicU64::new(0),
        })
    }

    /// Says of which incarnation of the group this node is.
    pub(crate) fn set_incarnation(&self, incarnation: u64) {
        self.incarnation.store(incarnation, Ordering::Release);
    }

    /// A question with the incarnation before it, where that counts.
    fn question(&self, subject: Subject, bytes: Vec<u8>) -> Vec<u8> {
        if !subject.is_of_members() {
            return bytes;
        }
        let incarnation = self.incarnation.load(Ordering::Acquire);
        [&incarnation.to_le_bytes()[..], &bytes].concat()
    }

    /// The question of a peer, where it is of this node's group.
    fn admit(&self, subject: Subject, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        if !subject.is_of_members() {
            return Ok(bytes);
        }
        let own = self.incarnation.load(Ordering::Acquire);
        let (theirs, rest) = bytes
            .split_first_chunk()
            .ok_or("a question without an incarnation")?;
        let theirs = u64::from_le_bytes(*theirs);
        match theirs == own {
            true => Ok(rest.to_vec()),
            false => Err(format!(
                "it is of incarnation {theirs} of the control group, and this node of {own}: who is of the older one begins with an empty directory"
            )),
        }
    }

    /// Says where a node is, and what Raft calls it.
    pub(crate) fn set_place(&self, node: NodeId, raft_id: RaftId, place: &Place) {
        lock(&self.raft_ids).insert(raft_id, node);
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(&node) {
            lock(&peer.place).clone_from(place);
            return;
        }
        let place = Arc::new(Mutex::new(place.clone()));
        let (queue, orders) = sync_channel(QUEUE_MAX);
        let to = To {
            node: Weak::clone(&self.node),
            expected: Some(node),
            place: Arc::clone(&place),
            stopping: Arc::clone(&self.stopping),
        };
        match spawn("control", move || to.run(&orders)) {
            Ok(()) => drop(peers.insert(node, Peer { place, queue })),
            // It is tried again with the next state.
            Err(error) => self.tell(format_args!(
                "There is no thread for a control link: {error}"
            )),
        }
    }

    /// The nodes whose place is known.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        lock(&self.peers).keys().copied().collect()
    }

    /// Forgets nodes that are not among these.
    pub(crate) fn retain(&self, is_there: impl Fn(&NodeId) -> bool) {
        lock(&self.peers).retain(|node, _| is_there(node));
        lock(&self.raft_ids).retain(|_, node| is_there(node));
    }

    /// Asks a node. `done` is called soon, on some thread, or at once.
    pub(crate) fn ask(&self, node: NodeId, subject: Subject, bytes: Vec<u8>, done: Done) {
        let order = Order {
            subject,
            bytes: self.question(subject, bytes),
            done,
        };
        let queue = lock(&self.peers).get(&node).map(|peer| peer.queue.clone());
        let refused = match queue {
            None => Some(order),
            Some(queue) => queue.try_send(order).err().map(|error| match error {
                std::sync::mpsc::TrySendError::Full(order)
                | std::sync::mpsc::TrySendError::Disconnected(order) => order,
            }),
        };
        if let Some(order) = refused {
            (order.done)(Err("the node cannot be reached".to_owned()));
        }
    }

    /// Asks whoever is at a place, over a link of its own; waits for the answer.
    pub(crate) fn ask_once(
        &self,
        place: &Place,
        subject: Subject,
        bytes: Vec<u8>,
        time: Duration,
    ) -> Told {
        let (queue, orders) = sync_channel(1);
        let to = To {
            node: Weak::clone(&self.node),
            expected: None,
            place: Arc::new(Mutex::new(place.clone())),
            stopping: Arc::clone(&self.stopping),
        };
        spawn("control", move || to.run(&orders)).map_err(|error| error.to_string())?;
        let (sender, receiver) = sync_channel(1);
        let done: Done = Box::new(move |told| {
            // Nobody may wait any more.
            let _late = sender.send(told);
        });
        let order = Order {
            subject,
            bytes: self.question(subject, bytes),
            done,
        };
        queue
            .send(order)
            .map_err(|_| "the link has ended".to_owned())?;
        let told = receiver.recv_timeout(time);
        told.unwrap_or_else(|_| Err("there was no answer in time".to_owned()))
    }

    /// Serves a link that a peer made, until it ends.
    pub(crate) fn serve(&self, session: Session, address: &str) {
        let Session {
            conduit,
            mut reader,
            writer,
            peer,
            ..
        } = session;
        let (queue, answers) = sync_channel(QUEUE_MAX);
        let stopping = Arc::clone(&self.stopping);
        let writing = Arc::clone(&conduit);
        let spawned = spawn("control-out", move || {
            send_answers(writer, &answers, &stopping);
            writing.end();
        });
        let ended = match spawned {
            Ok(()) => self.hear(&mut reader, (NodeId(peer.node.0), address), &queue),
            Err(error) => Err(LinkFault::Io(error)),
        };
        conduit.end();
        if let Err(fault) = ended
            && !matches!(fault, LinkFault::Closed)
            && !self.stopping.load(Ordering::Acquire)
        {
            self.tell(format_args!("The control link of {address} ended: {fault}"));
        }
    }

    fn hear(
        &self,
        reader: &mut Reader,
        (from, address): (NodeId, &str),
        queue: &SyncSender<(u64, Told)>,
    ) -> Result<(), LinkFault> {
        let (mut pieces, mut is_told) = (Pieces::default(), false);
        while !self.stopping.load(Ordering::Acquire) {
            let ask = match reader.next()? {
                Received::Message(Message::Ask(ask)) => ask,
                Received::Message(_) => return Err(LinkFault::Secret),
                Received::Unknown | Received::Nothing => continue,
            };
            let (number, subject) = (ask.number, ask.subject);
            let Some(bytes) = pieces.add(number, ask.has_more, ask.bytes)? else {
                continue;
            };
            let reply = Reply {
                number,
                queue: queue.clone(),
                is_answered: false,
            };
            match Subject::of(subject) {
                Some(subject) => match self.admit(subject, bytes) {
                    Ok(bytes) => (self.handler)(Asked {
                        from,
                        subject,
                        bytes,
                        reply,
                    }),
                    Err(reason) => {
                        if !std::mem::replace(&mut is_told, true) {
                            self.tell(format_args!(
                                "What node {from} at {address} asks of this one is refused: {reason}"
                            ));
                        }
                        reply.answer(Err(reason));
                    }
                },
                None => reply.answer(Err(format!("subject {subject} is not known here"))),
            }
        }
        Ok(())
    }

    /// Ends all links.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        lock(&self.peers).clear();
    }

    fn tell(&self, line: fmt::Arguments<'_>) {
        if let Some(node) = self.node.upgrade() {
            node.core.log.notice(line);
        }
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

impl consensus::Carrier for Links {
    fn ask(
        &self,
        to: u64,
        request: Vec<u8>,
        time: Duration,
    ) -> impl Future<Output = Result<Vec<u8>, consensus::Unreached>> + Send {
        let (sender, receiver) = consensus::answer_channel();
        let node = lock(&self.raft_ids).get(&to).copied();
        match node {
            Some(node) => self.ask(
                node,
                Subject::Raft,
                request,
                Box::new(move |told| {
                    let _late = sender.send(told);
                }),
            ),
            None => {
                let _late = sender.send(Err("nobody knows where it is".to_owned()));
            }
        }
        consensus::within(time, receiver)
    }
}

/// Pieces of the question or answer that is coming.
#[derive(Default)]
struct Pieces {
    number: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Adds a piece; the whole, if that was the last one.
    fn add(
        &mut self,
        number: u64,
        has_more: bool,
        piece: &[u8],
    ) -> Result<Option<Vec<u8>>, LinkFault> {
        let is_next = self.bytes.is_empty() || self.number == number;
        if !is_next || self.bytes.len() + piece.len() > WHOLE_BYTES_MAX {
            return Err(LinkFault::Io(std::io::Error::other(
                "pieces of a control message that do not belong together",
            )));
        }
        self.number = number;
        self.bytes.extend_from_slice(piece);
        Ok((!has_more).then(|| std::mem::take(&mut self.bytes)))
    }
}

/// Cuts bytes into pieces, each with whether another one follows.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let count = bytes.len().div_ceil(PIECE_BYTES).max(1);
    (0..count).map(move |at| {
        let rest = &bytes[at * PIECE_BYTES..];
        (at + 1 < count, &rest[..rest.len().min(PIECE_BYTES)])
    })
}

fn send_answers(mut writer: Writer, answers: &Receiver<(u64, Told)>, stopping: &AtomicBool) {
    let mut send = |number, told: &Told| -> Result<(), LinkFault> {
        let (is_refused, bytes) = match told {
            Ok(bytes) => (false, bytes.as_slice()),
            Err(reason) => (true, reason.as_bytes()),
        };
        for (has_more, bytes) in pieces(bytes) {
            let answer = Answer {
                number,
                is_refused,
                has_more,
                bytes,
            };
            writer.send(&Message::Answer(answer), &|| false)?;
        }
        Ok(())
    };
    while !stopping.load(Ordering::Acquire) {
        match answers.recv_timeout(LOOK) {
            Ok((number, told)) if send(number, &told).is_err() => return,
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// What the thread of one peer has.
struct To {
    node: Weak<Node>,
    /// Who has to be there; none where anybody may.
    expected: Option<NodeId>,
    place: Arc<Mutex<Place>>,
    stopping: Arc<AtomicBool>,
}

/// Questions of one link that are not answered yet.
#[derive(Default)]
struct Pending {
    waiting: Mutex<BTreeMap<u64, (u64, Done)>>,
    heard_ms: AtomicU64,
    has_ended: AtomicBool,
}

impl Pending {
    fn fail_all(&self, reason: &str) {
        self.has_ended.store(true, Ordering::Release);
        for (_, (_, done)) in std::mem::take(&mut *lock(&self.waiting)) {
            done(Err(reason.to_owned()));
        }
    }

    /// Whether a question waits for long, and nothing was heard for as long.
    fn is_silent(&self, now_ms: u64) -> bool {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        let oldest_ms = lock(&self.waiting).values().map(|(at_ms, _)| *at_ms).min();
        oldest_ms.is_some_and(|at_ms| now_ms > at_ms.max(heard_ms) + SILENCE_MS)
    }
}

impl To {
    fn run(&self, orders: &Receiver<Order>) {
        let (mut pause_ms, mut not_before_ms) = (PAUSE_MS_MIN, 0);
        while !self.stopping.load(Ordering::Acquire) {
            let order = match orders.recv_timeout(LOOK) {
                Ok(order) => order,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(now_ms) = self.now_ms() else { return };
            if now_ms < not_before_ms {
                (order.done)(Err("the node cannot be reached".to_owned()));
                continue;
            }
            match self.connect() {
                Ok(session) => {
                    pause_ms = PAUSE_MS_MIN;
                    self.talk(session, order, orders);
                }
                Err(fault) => {
                    (order.done)(Err(fault.to_string()));
                    pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
                }
            }
            not_before_ms = self.now_ms().unwrap_or(0) + pause_ms;
        }
    }

    fn now_ms(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        Some(node.core.clock.monotonic_ns() / 1_000_000)
    }

    fn connect(&self) -> Result<Session, LinkFault> {
        let node = self.node.upgrade().ok_or(LinkFault::Closed)?;
        let Place { host, port } = lock(&self.place).clone();
        let stream = dial(&node, &host, port, DIAL_TIME)?;
        let identity = identity_for(&node, stream.peer_addr()?.ip())?;
        let session = greet(conduit(stream)?, &identity)?;
        let peer = NodeId(session.peer.node.0);
        if self.expected.is_some_and(|expected| expected != peer) {
            session.conduit.end();
            return Err(LinkFault::Io(std::io::Error::other(
                "another node is at that address",
            )));
        }
        Ok(session)
    }

    /// Asks over a link until that ends.
    fn talk(&self, session: Session, first: Order, orders: &Receiver<Order>) {
        let Session {
            conduit,
            reader,
            mut writer,
            ..
        } = session;
        let pending = Arc::new(Pending::default());
        let (hearing, socket) = (Arc::clone(&pending), Arc::clone(&conduit));
        let stopping = Arc::clone(&self.stopping);
        let clock = Weak::clone(&self.node);
        let spawned = spawn("control-in", move || {
            hear_answers(reader, &hearing, &stopping, &clock);
            hearing.fail_all("the link has ended");
            socket.end();
        });
        let mut next = Some(first);
        let mut number = 0;
        while spawned.is_ok() && !pending.has_ended.load(Ordering::Acquire) {
            let Some(now_ms) = self.now_ms() else { break };
            let order = match next.take().map_or_else(|| orders.recv_timeout(LOOK), Ok) {
                Ok(order) => order,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if pending.is_silent(now_ms) => break,
                Err(RecvTimeoutError::Timeout) => continue,
            };
            number += 1;
            if !self.put(&pending, &mut writer, number, order, now_ms) {
                break;
            }
        }
        if let Some(order) = next {
            (order.done)(Err("there is no thread for the link".to_owned()));
        }
        conduit.end();
        pending.fail_all("the link has ended");
    }

    /// Sends a question; whether the link goes on.
    fn put(
        &self,
        pending: &Pending,
        writer: &mut Writer,
        number: u64,
        order: Order,
        now_ms: u64,
    ) -> bool {
        let Order {
            subject,
            bytes,
            done,
        } = order;
        let mut waiting = lock(&pending.waiting);
        if waiting.len() >= PENDING_MAX {
            drop(waiting);
            done(Err("too many questions wait for that node".to_owned()));
            return !pending.is_silent(now_ms);
        }
        waiting.insert(number, (now_ms, done));
        drop(waiting);
        pieces(&bytes).all(|(has_more, bytes)| {
            let ask = Ask {
                number,
                subject: subject as u8,
                has_more,
                bytes,
            };
            writer.send(&Message::Ask(ask), &|| false).is_ok()
        }) && !pending.is_silent(now_ms)
    }
}

fn hear_answers(mut reader: Reader, pending: &Pending, stopping: &AtomicBool, node: &Weak<Node>) {
    let mut whole = Pieces::default();
    while !stopping.load(Ordering::Acquire) && !pending.has_ended.load(Ordering::Acquire) {
        let answer = match reader.next() {
            Ok(Received::Message(Message::Answer(answer))) => answer,
            Ok(Received::Unknown | Received::Nothing) => continue,
            Ok(Received::Message(_)) | Err(_) => return,
        };
        let (number, is_refused) = (answer.number, answer.is_refused);
        let Ok(bytes) = whole.add(number, answer.has_more, answer.bytes) else {
            return;
        };
        let Some(node) = node.upgrade() else { return };
        let now_ms = node.core.clock.monotonic_ns() / 1_000_000;
        pending.heard_ms.store(now_ms, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            let waiting = lock(&pending.waiting).remove(&number);
            if let Some((_, done)) = waiting {
                done(match is_refused {
                    true => Err(String::from_utf8_lossy(&bytes).into_owned()),
                    false => Ok(bytes),
                });
            }
        }
    }
}

/// Begins a thread of the control group.
#[allow(
    clippy::disallowed_methods,
    reason = "the threads of the control group"
)]
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.into());
    thread.spawn(run).map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_together_again() {
        let mut bytes = vec![0; 2 * PIECE_BYTES + 7];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(at % 251).expect("it fits");
        }
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, bytes.len()] {
            let mut whole = Pieces::default();
            let mut got = None;
            for (has_more, piece) in pieces(&bytes[..length]) {
                assert!(got.is_none());
                got = whole.add(5, has_more, piece).expect("they belong together");
            }
            assert_eq!(got.as_deref(), Some(&bytes[..length]));
        }
    }

    #[test]
    fn pieces_of_two_are_refused() {
        let mut whole = Pieces::default();
        assert!(whole.add(1, true, b"a").is_ok());
        assert!(whole.add(2, false, b"b").is_err());
    }
}
