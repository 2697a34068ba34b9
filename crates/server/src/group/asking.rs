//! Questions to one node: the threads that connect to it, send questions, and receive its answers.
//!
//! ```text
//!   Order ─► queue ─► run: connects, greets ─► talk ── pieces ──► link
//!   done(answer) ◄── hear_answers, a thread of its own ◄───────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cluster::NodeId;
use replication::link::{Ask, Message};

use super::files::Place;
use super::link_table::{Contact, LinkTable, OpenLink, Waiting};
use crate::node::Node;
use crate::replication::session::{LinkFault, Reader, Received, Session, Writer, conduit, greet};
use crate::replication::{dial, identity_for};

/// Maximum number of unanswered questions of one link.
const PENDING_MAX: usize = 1_024;
/// Maximum length of a question or an answer.
const WHOLE_BYTES_MAX: usize = 64 << 20;
/// Length of a piece of a question or an answer.
const PIECE_BYTES: usize = 512 << 10;
/// Timeout of a connection.
const DIAL_TIME: Duration = Duration::from_secs(1);
/// How often a thread checks whether to stop.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// After a failed connection the next attempt is made after this time; the time doubles with each
/// failure, ...
const PAUSE_MS_MIN: u64 = 50;
/// ... up to this.
const PAUSE_MS_MAX: u64 = 500;
/// A node that has not answered for this time counts as gone.
const SILENCE_MS: u64 = 5_000;

/// The subject of a question.
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
    /// A replica wants the office of its primary.
    HandOver = 5,
    /// A message for a node's subscribers.
    Publish = 6,
    /// A token to admit a client's connection at a node.
    Forward = 7,
    /// A node announces its present address, and asks for those of other nodes.
    Places = 8,
    /// A primary asks a member whether it knows a later term.
    Confirm = 9,
    /// A replica asks its primary what is committed.
    ReadIndex = 10,
    /// A node of another cluster asks which one gives way.
    Merge = 11,
    /// A cluster gives way: sent to its founder, and from the founder to its nodes.
    GiveWay = 12,
}

impl Subject {
    /// Whether it is between members of one group. Members of another incarnation of the group are
    /// refused.
    pub(super) fn is_of_members(self) -> bool {
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

    pub(super) fn of(byte: u8) -> Option<Self> {
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
            Self::Merge,
            Self::GiveWay,
        ];
        all.into_iter().find(|one| *one as u8 == byte)
    }
}

/// An answer, or why there is none.
pub(crate) type Told = Result<Vec<u8>, String>;
/// Called with the answer.
pub(crate) type Done = Box<dyn FnOnce(Told) + Send>;

/// A question to be sent.
pub(super) struct Order {
    subject: Subject,
    bytes: Vec<u8>,
    pub(super) done: Done,
    waiting: Waiting,
}

impl Order {
    pub(super) fn new(
        subject: Subject,
        bytes: Vec<u8>,
        done: Done,
        waiting: &Arc<AtomicUsize>,
    ) -> Self {
        let waiting = Waiting::count(waiting, bytes.len());
        Self {
            subject,
            bytes,
            done,
            waiting,
        }
    }
}

/// Pieces of a question or answer that is being received.
#[derive(Default)]
pub(super) struct Pieces {
    number: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Adds a piece. Returns the whole if that was the last one.
    pub(super) fn add(
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

/// Cuts bytes into pieces, each with whether another follows.
pub(super) fn pieces(bytes: &[u8]) -> impl Iterator<Item = (bool, &[u8])> {
    let count = bytes.len().div_ceil(PIECE_BYTES).max(1);
    (0..count).map(move |at| {
        let rest = &bytes[at * PIECE_BYTES..];
        (at + 1 < count, &rest[..rest.len().min(PIECE_BYTES)])
    })
}

/// State shared by the threads of one peer.
#[derive(Clone)]
pub(super) struct To {
    pub(super) node: Weak<Node>,
    /// The node that has to be there, or `None` for any node.
    pub(super) expected: Option<NodeId>,
    pub(super) place: Arc<Mutex<Place>>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) table: Arc<LinkTable>,
    pub(super) contact: Arc<Contact>,
    /// Bytes that wait to be sent there.
    pub(super) waiting: Arc<AtomicUsize>,
}

/// Unanswered questions of one link.
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

    /// Whether a question has waited long, and nothing was received for as long.
    fn is_silent(&self, now_ms: u64) -> bool {
        let heard_ms = self.heard_ms.load(Ordering::Relaxed);
        let oldest_ms = lock(&self.waiting).values().map(|(at_ms, _)| *at_ms).min();
        oldest_ms.is_some_and(|at_ms| now_ms > at_ms.max(heard_ms) + SILENCE_MS)
    }
}

impl To {
    pub(super) fn run(&self, orders: &Receiver<Order>) {
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
        Some(node.core.clock.monotonic_ms())
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

    /// Sends questions over a link until the link ends.
    fn talk(&self, session: Session, first: Order, orders: &Receiver<Order>) {
        let Session {
            conduit,
            reader,
            mut writer,
            ..
        } = session;
        let _listed = self.list();
        let pending = Arc::new(Pending::default());
        let (hearing, socket) = (Arc::clone(&pending), Arc::clone(&conduit));
        let to = self.clone();
        let spawned = spawn("control-in", move || {
            to.hear_answers(reader, &hearing);
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

    /// Adds the link to the table, if the node at its other end is known.
    fn list(&self) -> Option<OpenLink> {
        let created_unix_ms = self.node.upgrade()?.core.clock.now_unix_ms();
        let node = self.expected?;
        let table = &self.table;
        Some(table.open(node, true, created_unix_ms, &self.waiting))
    }

    /// Sends a question. Returns whether the link goes on.
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
            waiting: _until_sent,
        } = order;
        let mut waiting = lock(&pending.waiting);
        if waiting.len() >= PENDING_MAX {
            drop(waiting);
            done(Err("too many questions wait for that node".to_owned()));
            return !pending.is_silent(now_ms);
        }
        waiting.insert(number, (now_ms, done));
        drop(waiting);
        self.table.note_sent();
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

    fn hear_answers(&self, mut reader: Reader, pending: &Pending) {
        let mut whole = Pieces::default();
        let has_ended = || pending.has_ended.load(Ordering::Acquire);
        while !self.stopping.load(Ordering::Acquire) && !has_ended() {
            let answer = match reader.next() {
                Ok(Received::Message(Message::Answer(answer))) => answer,
                Ok(Received::Unknown | Received::Nothing) => continue,
                Ok(Received::Message(_)) | Err(_) => return,
            };
            let (number, is_refused) = (answer.number, answer.is_refused);
            let Ok(bytes) = whole.add(number, answer.has_more, answer.bytes) else {
                return;
            };
            let Some(now_ms) = self.now_ms() else { return };
            pending.heard_ms.store(now_ms, Ordering::Relaxed);
            let Some(bytes) = bytes else { continue };
            let (waited, oldest_ms) = {
                let mut waiting = lock(&pending.waiting);
                let waited = waiting.remove(&number);
                let oldest = waiting.first_key_value();
                (waited, oldest.map(|(_, (at_ms, _))| *at_ms))
            };
            self.table.note_received();
            self.contact.note_answered(now_ms, oldest_ms);
            if let Some((_, done)) = waited {
                done(match is_refused {
                    true => Err(String::from_utf8_lossy(&bytes).into_owned()),
                    false => Ok(bytes),
                });
            }
        }
    }
}

/// Starts a thread of the control group.
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
