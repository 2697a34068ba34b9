//! The links between the nodes of a control group: numbered questions, and their answers.
//!
//! ```text
//!   ask(node, subject, bytes) ─► queue ─► thread "control" of the peer: connects, greets, sends ──► link
//!   done(answer) ◄────────────────────── its thread "control-in" ◄──────────────────────────────────┘
//!
//!   link of a peer ─► the thread that accepted it ─► handler(question) … answer ─► queue ─► thread "control-out"
//! ```
//!
//! Both ends have proved that they know the secret before anything is asked. The connecting end
//! asks, the other end answers. A link is made when a node is to be asked something, and ends when
//! that node does not answer for a while. Only the threads of a peer's own links wait for the peer;
//! what does not fit into their queues is refused at once.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cluster::NodeId;
use cluster::control_log::RaftId;
use replication::link::{Answer, Message};

pub(super) use super::asking::spawn;
pub(crate) use super::asking::{Done, Subject, Told};
use super::asking::{LOOK, Order, Pieces, To, pieces};
use super::files::Place;
use super::link_table::{Contact, LinkTable, Waiting};
use crate::node::Node;
use crate::replication::session::{LinkFault, Reader, Received, Session, Writer};

/// Maximum number of questions that wait to be sent to one node.
const QUEUE_MAX: usize = 256;

/// A question of a peer.
pub(crate) struct Asked {
    /// The asking node, from its hello.
    pub(crate) from: NodeId,
    /// The subject of the question.
    pub(crate) subject: Subject,
    /// The question.
    pub(crate) bytes: Vec<u8>,
    /// Takes the answer.
    pub(crate) reply: Reply,
}

/// Sends the answer to a question. If it is dropped unused, it answers that there is none.
pub(crate) struct Reply {
    number: u64,
    queue: SyncSender<Answering>,
    waiting: Arc<AtomicUsize>,
    is_answered: bool,
}

/// An answer that waits to be sent.
struct Answering {
    number: u64,
    told: Told,
    _waiting: Waiting,
}

impl Reply {
    /// Sends the answer. If the peer's queue is full, the answer is lost.
    pub(crate) fn answer(mut self, told: Told) {
        self.put(told);
    }

    fn put(&mut self, told: Told) {
        self.is_answered = true;
        let bytes = told.as_ref().map_or_else(String::len, Vec::len);
        let _full = self.queue.try_send(Answering {
            number: self.number,
            told,
            _waiting: Waiting::count(&self.waiting, bytes),
        });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            self.put(Err("there is no answer".to_owned()));
        }
    }
}

/// Answers questions.
pub(crate) type Handler = Box<dyn Fn(Asked) + Send + Sync>;

struct Peer {
    place: Arc<Mutex<Place>>,
    queue: SyncSender<Order>,
    waiting: Arc<AtomicUsize>,
    contact: Arc<Contact>,
}

/// See the module.
pub(crate) struct Links {
    node: Weak<Node>,
    handler: Handler,
    peers: Mutex<BTreeMap<NodeId, Peer>>,
    raft_ids: Mutex<BTreeMap<RaftId, NodeId>>,
    stopping: Arc<AtomicBool>,
    /// This node's group: its incarnation, and the first digits of its founder's name.
    group: AtomicU64,
    pub(super) table: Arc<LinkTable>,
}

impl Links {
    pub(crate) fn new(node: &Arc<Node>, handler: Handler) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::downgrade(node),
            handler,
            peers: Mutex::default(),
            raft_ids: Mutex::default(),
            stopping: Arc::default(),
            group: AtomicU64::new(0),
            table: Arc::default(),
        })
    }

    /// Sets this node's group and its incarnation.
    pub(crate) fn set_group(&self, incarnation: u64, founder: Option<NodeId>) {
        let group = named(incarnation, founder);
        self.group.store(group, Ordering::Release);
    }

    /// Prefixes a question with this node's group, if its subject is for members only.
    fn question(&self, subject: Subject, bytes: Vec<u8>) -> Vec<u8> {
        if !subject.is_of_members() {
            return bytes;
        }
        let group = self.group.load(Ordering::Acquire);
        [&group.to_le_bytes()[..], &bytes].concat()
    }

    /// Returns a peer's question without that prefix, or an error if the peer is not of this node's
    /// group.
    fn admit(&self, subject: Subject, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        if !subject.is_of_members() {
            return Ok(bytes);
        }
        let own = self.group.load(Ordering::Acquire);
        let (theirs, rest) = bytes
            .split_first_chunk()
            .ok_or("a question without an incarnation")?;
        check_group(own, u64::from_le_bytes(*theirs))?;
        Ok(rest.to_vec())
    }

    /// Sets a node's address and its number in Raft.
    pub(crate) fn set_place(&self, node: NodeId, raft_id: RaftId, place: &Place) {
        lock(&self.raft_ids).insert(raft_id, node);
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(&node) {
            lock(&peer.place).clone_from(place);
            return;
        }
        let place = Arc::new(Mutex::new(place.clone()));
        let (queue, orders) = sync_channel(QUEUE_MAX);
        let peer = Peer {
            place,
            queue,
            waiting: Arc::default(),
            contact: self.table.contact(node),
        };
        let to = To {
            expected: Some(node),
            contact: Arc::clone(&peer.contact),
            waiting: Arc::clone(&peer.waiting),
            ..self.to(&peer.place)
        };
        match spawn("control", move || to.run(&orders)) {
            Ok(()) => drop(peers.insert(node, peer)),
            // The next control state tries again.
            Err(error) => self.tell(format_args!(
                "There is no thread for a control link: {error}"
            )),
        }
    }

    /// Returns the state for asking whichever node is at an address.
    fn to(&self, place: &Arc<Mutex<Place>>) -> To {
        To {
            node: Weak::clone(&self.node),
            expected: None,
            place: Arc::clone(place),
            stopping: Arc::clone(&self.stopping),
            table: Arc::clone(&self.table),
            contact: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Milliseconds of the monotonic clock, or `None` once the server is gone.
    fn now_ms(&self) -> Option<u64> {
        let node = self.node.upgrade()?;
        Some(node.core.clock.monotonic_ms())
    }

    /// The nodes whose address is known.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        lock(&self.peers).keys().copied().collect()
    }

    /// Forgets all nodes for which `is_there` is false.
    pub(crate) fn retain(&self, is_there: impl Fn(&NodeId) -> bool) {
        lock(&self.peers).retain(|node, _| is_there(node));
        lock(&self.raft_ids).retain(|_, node| is_there(node));
        self.table.retain(is_there);
    }

    /// Asks a node. `done` is called at once, or later on another thread.
    pub(crate) fn ask(&self, node: NodeId, subject: Subject, bytes: Vec<u8>, done: Done) {
        let bytes = self.question(subject, bytes);
        let now_ms = self.now_ms();
        let peer = lock(&self.peers).get(&node).map(|peer| {
            if let Some(now_ms) = now_ms {
                peer.contact.note_asked(now_ms);
            }
            (peer.queue.clone(), Arc::clone(&peer.waiting))
        });
        let refused = match peer {
            None => Some(done),
            Some((queue, waiting)) => {
                let order = Order::new(subject, bytes, done, &waiting);
                queue.try_send(order).err().map(|error| match error {
                    TrySendError::Full(order) | TrySendError::Disconnected(order) => order.done,
                })
            }
        };
        if let Some(done) = refused {
            done(Err("the node cannot be reached".to_owned()));
        }
    }

    /// Asks whichever node is at an address, over a separate link, and waits for the answer.
    pub(crate) fn ask_once(
        &self,
        place: &Place,
        subject: Subject,
        bytes: Vec<u8>,
        time: Duration,
    ) -> Told {
        let (queue, orders) = sync_channel(1);
        let to = self.to(&Arc::new(Mutex::new(place.clone())));
        spawn("control", move || to.run(&orders)).map_err(|error| error.to_string())?;
        let (sender, receiver) = sync_channel(1);
        let done: Done = Box::new(move |told| {
            // The waiting thread may have given up.
            let _late = sender.send(told);
        });
        let bytes = self.question(subject, bytes);
        queue
            .send(Order::new(subject, bytes, done, &Arc::default()))
            .map_err(|_| "the link has ended".to_owned())?;
        let told = receiver.recv_timeout(time);
        told.unwrap_or_else(|_| Err("there was no answer in time".to_owned()))
    }

    /// Serves a link that a peer made until it ends.
    pub(crate) fn serve(&self, session: Session, address: &str) {
        let Session {
            conduit,
            mut reader,
            writer,
            peer,
            ..
        } = session;
        let (queue, answers) = sync_channel(QUEUE_MAX);
        let from = NodeId(peer.node.0);
        let waiting = Arc::default();
        let now_unix_ms = |node: Arc<Node>| node.core.clock.now_unix_ms();
        let created_unix_ms = self.node.upgrade().map_or(0, now_unix_ms);
        let _listed = self.table.open(from, false, created_unix_ms, &waiting);
        let (stopping, table) = (Arc::clone(&self.stopping), Arc::clone(&self.table));
        let writing = Arc::clone(&conduit);
        let spawned = spawn("control-out", move || {
            send_answers(writer, &answers, &stopping, &table);
            writing.end();
        });
        let ended = match spawned {
            Ok(()) => self.hear(&mut reader, (from, address), &(queue, waiting)),
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
        (queue, waiting): &(SyncSender<Answering>, Arc<AtomicUsize>),
    ) -> Result<(), LinkFault> {
        let (mut pieces, mut is_told) = (Pieces::default(), false);
        let contact = self.table.contact(from);
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
            self.table.note_received();
            contact.note_heard(self.now_ms().unwrap_or(0));
            let reply = Reply {
                number,
                queue: queue.clone(),
                waiting: Arc::clone(waiting),
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

/// Encodes a group's incarnation as one number, with the first digits of the founder's name above
/// it, if the founder is named.
fn named(incarnation: u64, founder: Option<NodeId>) -> u64 {
    let founder = founder.map_or(0, |NodeId([a, b, c, d, ..])| {
        u32::from_le_bytes([a, b, c, d])
    });
    u64::from(founder) << 32 | incarnation & u64::from(u32::MAX)
}

/// Checks that two numbers are of the same incarnation of the same group, as far as they say.
fn check_group(own: u64, theirs: u64) -> Result<(), String> {
    let (own_founder, their_founder) = (own >> 32, theirs >> 32);
    if own_founder != their_founder && own_founder != 0 && their_founder != 0 {
        return Err(
            "it is of another group than this node, or knows nothing yet of this one".to_owned(),
        );
    }
    let incarnation = |group: u64| group & u64::from(u32::MAX);
    let (own, theirs) = (incarnation(own), incarnation(theirs));
    match own == theirs {
        true => Ok(()),
        false => Err(format!(
            "it is of incarnation {theirs} of the control group, and this node of {own}: who is of the older one begins with an empty directory"
        )),
    }
}

fn send_answers(
    mut writer: Writer,
    answers: &Receiver<Answering>,
    stopping: &AtomicBool,
    table: &LinkTable,
) {
    let mut send = |answering: &Answering| -> Result<(), LinkFault> {
        let number = answering.number;
        let (is_refused, bytes) = match &answering.told {
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
        table.note_sent();
        Ok(())
    };
    while !stopping.load(Ordering::Acquire) {
        match answers.recv_timeout(LOOK) {
            Ok(answering) if send(&answering).is_err() => return,
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_another_group_or_incarnation_are_refused() {
        let [one, other] = [1, 2].map(|byte| Some(NodeId([byte; 20])));
        assert!(check_group(named(0, one), named(0, one)).is_ok());
        assert!(check_group(named(0, one), named(0, other)).is_err());
        // A group of an older version, or a node that does not know its founder yet.
        assert!(check_group(named(0, None), named(0, other)).is_ok());
        assert!(check_group(named(3, one), named(3, None)).is_ok());
        for founder in [None, one] {
            let refused = check_group(named(2, one), named(1, founder)).unwrap_err();
            assert!(refused.starts_with("it is of incarnation 1"), "{refused}");
        }
        assert_eq!(named(7, None), 7);
    }
}
