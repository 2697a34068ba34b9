//! What a client that forwards has: the requests on their way, and its connections to other nodes.

use std::collections::VecDeque;
use std::sync::Arc;

use access::User;
use cluster::NodeId;
use engine::hash_slots::Routes;
use engine::{ClientRecord, Session};
use protocol::{Decoder, Resp, encode_request};
use reactor::ConnectionId;
use store::DatabaseId;

use super::dial::{self, Wish};
use super::merge::Merge;
use super::replies::{Scanner, is_refusal};
use super::window::{Aim, Stage, Window, Work};
use crate::node::Node;

/// After a connection that failed none is made for so long.
const PAUSE_MS: u64 = 20;
/// What is to be sent again is, after so long: who owns the slot is known here by then, mostly.
const AGAIN_MS: u64 = 5;

/// How far the connection to a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is none. None is made before this.
    Closed { until_ms: u64 },
    /// A thread makes it.
    Dialling,
    /// It is there.
    Open(ConnectionId),
}

/// A reply that is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Of what was said of the client. Anything but an error.
    Silent,
    /// Of a request that is queued there, for the request with this number.
    Queued(u64),
    /// Of a part of a request.
    Part(u64, usize),
}

/// What a node was told of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    database: DatabaseId,
    resp: Resp,
    no_touch: bool,
    waits_for_disk: bool,
    waits_for_majority: bool,
}

impl Told {
    const NOTHING: Self = Self {
        database: 0,
        resp: Resp::V2,
        no_touch: false,
        waits_for_disk: false,
        waits_for_majority: false,
    };

    fn of(session: &Session) -> Self {
        Self {
            database: session.database,
            resp: session.resp,
            no_touch: session.client.has_flag(ClientRecord::NO_TOUCH),
            waits_for_disk: session.waits_for_disk,
            waits_for_majority: session.waits_for_majority,
        }
    }
}

/// The connection of a client to one node.
pub(crate) struct Upstream {
    pub(crate) node: [u8; 20],
    /// Which try it is.
    pub(crate) serial: u64,
    pub(crate) link: Link,
    user: Arc<User>,
    told: Told,
    /// What is to be sent.
    pub(crate) unsent: Vec<u8>,
    /// The replies that are awaited, in their order.
    pub(crate) queue: VecDeque<Awaited>,
    pub(crate) scanner: Scanner,
    /// It is not read from, for too many of its replies wait for others.
    pub(crate) is_paused: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Forwarding {
    pub(crate) window: Window,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) decoder: Decoder,
    /// Where keys are watched, if at another node.
    pub(crate) watched: Option<[u8; 20]>,
    /// They are not any more, since the connection was lost: EXEC comes to nothing.
    pub(crate) is_watch_lost: bool,
    /// The client is not read from.
    pub(crate) is_paused: bool,
    /// The worker looks after it.
    pub(crate) is_listed: bool,
    /// When it is tried again.
    pub(crate) again_ms: u64,
    next_serial: u64,
}

/// What requests are sent by.
pub(crate) struct Sender<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) routes: &'a Routes,
    pub(crate) worker: usize,
    pub(crate) client: ConnectionId,
    pub(crate) session: &'a Session,
    pub(crate) now_ms: u64,
}

impl Forwarding {
    /// Sends all parts of a request, unless others before it are to be sent again.
    pub(crate) fn send(&mut self, sender: &Sender<'_>, number: u64) {
        let count = self
            .window
            .get_mut(number)
            .map_or(0, |entry| entry.parts_count());
        for part in 0..count {
            if self.window.again.is_empty() {
                self.send_part(sender, number, part);
            } else {
                self.window.again.push((number, part));
            }
        }
    }

    /// Sends a part of a request, or notes that it is to be sent again.
    pub(crate) fn send_part(&mut self, sender: &Sender<'_>, number: u64, part: usize) {
        let Some(entry) = self.window.get_mut(number) else {
            return;
        };
        let is_conditional = entry.is_conditional;
        let Some(piece) = entry.part_mut(part) else {
            return;
        };
        let (aim, bytes, extra) = (piece.aim, piece.bytes.clone(), piece.extra_replies);
        let node = match aim {
            Aim::Node(node) => Some(node),
            Aim::Slot(_) if sender.routes.is_down && !sender.routes.reads_when_down => None,
            Aim::Slot(slot) => {
                let owner = sender.routes.owner(slot).map(usize::from);
                let endpoint = owner.and_then(|owner| sender.routes.endpoints.get(owner));
                endpoint.map(|endpoint| endpoint.id)
            }
        };
        let at = node.and_then(|node| self.ready(sender, node));
        let Some(at) = at else {
            return self.try_again(sender.now_ms, number, part);
        };
        let upstream = &mut self.upstreams[at];
        if is_conditional && !matches!(upstream.link, Link::Open(_)) {
            return self.answer(number, part, nothing_done(sender.session.resp));
        }
        upstream.tell(sender.session);
        let bytes = self.window.bytes.get(bytes).unwrap_or_default();
        upstream.unsent.extend_from_slice(bytes);
        let queued = std::iter::repeat_n(Awaited::Queued(number), extra);
        upstream.queue.extend(queued);
        upstream.queue.push_back(Awaited::Part(number, part));
        if let Some(piece) = self.window.get_mut(number).and_then(|it| it.part_mut(part)) {
            piece.stage = Stage::Sent;
        }
    }

    /// The connection to a node, which is there or is being made; none where it is to be tried later.
    fn ready(&mut self, sender: &Sender<'_>, node: [u8; 20]) -> Option<usize> {
        let at = self.upstreams.iter().position(|it| it.node == node);
        let at = at.unwrap_or_else(|| {
            self.upstreams.push(Upstream {
                node,
                serial: 0,
                link: Link::Closed { until_ms: 0 },
                user: Arc::clone(sender.session.permit.user()),
                told: Told::NOTHING,
                unsent: Vec::new(),
                queue: VecDeque::new(),
                scanner: Scanner::default(),
                is_paused: false,
            });
            self.upstreams.len() - 1
        });
        let upstream = &mut self.upstreams[at];
        let is_same = Arc::ptr_eq(&upstream.user, sender.session.permit.user());
        match upstream.link {
            Link::Closed { until_ms } if until_ms > sender.now_ms => None,
            Link::Closed { .. } => {
                self.next_serial += 1;
                upstream.serial = self.next_serial;
                upstream.link = Link::Dialling;
                upstream.told = Told::NOTHING;
                upstream.user = Arc::clone(sender.session.permit.user());
                let wish = Wish {
                    worker: sender.worker,
                    client: sender.client,
                    serial: upstream.serial,
                    to: NodeId(node),
                    user: upstream.user.name().to_vec(),
                };
                dial::begin(sender.node, wish);
                Some(at)
            }
            // The connection of the user that the client was before: `leave` ends it.
            _ if !is_same => None,
            _ => Some(at),
        }
    }

    /// Notes that a part of a request is to be sent again.
    pub(crate) fn try_again(&mut self, now_ms: u64, number: u64, part: usize) {
        if let Some(piece) = self.window.get_mut(number).and_then(|it| it.part_mut(part)) {
            piece.stage = Stage::Unsent;
            if self.window.again.is_empty() {
                self.again_ms = now_ms + AGAIN_MS;
            }
            self.window.again.push((number, part));
        }
    }

    /// Notes the reply of a part of a request.
    pub(crate) fn answer(&mut self, number: u64, part: usize, reply: &[u8]) {
        let Some(entry) = self.window.get_mut(number) else {
            return;
        };
        if let Some(piece) = entry.part_mut(part) {
            piece.stage = Stage::Done;
        }
        let whole = match &mut entry.work {
            Work::Here => None,
            Work::One(_) => Some(reply.to_vec()),
            Work::Several(merge) => Merge::answer(merge, part, reply),
        };
        if let Some(whole) = whole {
            self.window.answer(number, whole);
        }
    }

    /// Takes up the next reply of a node; false where it should not have come.
    pub(crate) fn take_reply(&mut self, at: usize, reply: &[u8], now_ms: u64) -> bool {
        let Some(awaited) = self.upstreams[at].queue.pop_front() else {
            return false;
        };
        match awaited {
            Awaited::Silent => !reply.starts_with(b"-"),
            Awaited::Queued(number) => {
                if let Some(entry) = self.window.get_mut(number) {
                    entry.is_refused |= is_refusal(reply);
                }
                true
            }
            Awaited::Part(number, part) => {
                let Some(entry) = self.window.get_mut(number) else {
                    return true;
                };
                let is_refused = std::mem::take(&mut entry.is_refused) || is_refusal(reply);
                if !is_refused {
                    self.answer(number, part, reply);
                } else if entry.is_conditional {
                    // The slot went, and what was watched with it.
                    let resp = self.upstreams[at].told.resp;
                    self.answer(number, part, nothing_done(resp));
                } else {
                    self.try_again(now_ms, number, part);
                }
                true
            }
        }
    }

    /// A connection is lost, or was not made. What was not sent, and what only reads, is sent again.
    pub(crate) fn lose(&mut self, at: usize, reason: &str, now_ms: u64) {
        let upstream = &mut self.upstreams[at];
        let was_open = matches!(upstream.link, Link::Open(_));
        upstream.link = Link::Closed {
            until_ms: now_ms + PAUSE_MS,
        };
        upstream.unsent.clear();
        upstream.scanner = Scanner::default();
        upstream.is_paused = false;
        let node = upstream.node;
        if self.watched == Some(node) {
            self.is_watch_lost = true;
        }
        for awaited in std::mem::take(&mut self.upstreams[at].queue) {
            let Awaited::Part(number, part) = awaited else {
                continue;
            };
            let Some(entry) = self.window.get_mut(number) else {
                continue;
            };
            entry.is_refused = false;
            if !was_open || entry.is_read {
                self.try_again(now_ms, number, part);
            } else {
                let id = NodeId(node);
                let text =
                    format!("-ERR forwarding to node {id}: {reason}; the command may have run\r\n");
                self.answer(number, part, text.as_bytes());
            }
        }
    }

    /// The connections of a user that the client is not any more, and those that are not wanted: their ids.
    pub(crate) fn leave(&mut self, session: &Session, now_ms: u64) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        for at in 0..self.upstreams.len() {
            let upstream = &self.upstreams[at];
            let is_same = Arc::ptr_eq(&upstream.user, session.permit.user());
            if let Link::Open(id) = upstream.link
                && !is_same
                && upstream.queue.is_empty()
            {
                ended.push(id);
                self.lose(at, "", now_ms);
                self.upstreams[at].link = Link::Closed { until_ms: 0 };
            }
        }
        ended
    }

    /// Ends what is watched at another node; the connection that is to be closed for it.
    pub(crate) fn end_watch(&mut self, now_ms: u64) -> Option<ConnectionId> {
        self.is_watch_lost = false;
        let node = self.watched.take()?;
        let at = self.upstreams.iter().position(|it| it.node == node)?;
        let upstream = &mut self.upstreams[at];
        let Link::Open(id) = upstream.link else {
            return None;
        };
        if !upstream.queue.is_empty() {
            let words: [&[u8]; 1] = [b"UNWATCH"];
            encode_request(&mut upstream.unsent, &words);
            upstream.queue.push_back(Awaited::Silent);
            return None;
        }
        self.lose(at, "", now_ms);
        self.upstreams[at].link = Link::Closed { until_ms: 0 };
        Some(id)
    }

    /// Its connections.
    pub(crate) fn open_links(&self) -> impl Iterator<Item = ConnectionId> {
        self.upstreams.iter().filter_map(|it| match it.link {
            Link::Open(id) => Some(id),
            _ => None,
        })
    }
}

/// What EXEC answers when a watched key was changed, or may have been.
pub(crate) fn nothing_done(resp: Resp) -> &'static [u8] {
    match resp {
        Resp::V2 => b"*-1\r\n",
        Resp::V3 => b"_\r\n",
    }
}

/// What is answered where nobody serves a slot for too long.
pub(crate) const NO_NODE: &[u8] = b"-CLUSTERDOWN Hash slot not served\r\n";

impl Upstream {
    /// Says what the node does not know of the client yet.
    fn tell(&mut self, session: &Session) {
        let now = Told::of(session);
        if now == self.told {
            return;
        }
        let number = now.database.to_string();
        let on = |yes| if yes { &b"ON"[..] } else { &b"OFF"[..] };
        let level: &[u8] = match (now.waits_for_disk, now.waits_for_majority) {
            (_, true) => b"QUORUM",
            (true, false) => b"ALWAYS",
            (false, false) => b"DEFAULT",
        };
        let was = std::mem::replace(&mut self.told, now);
        if now.resp != was.resp {
            self.say(&[b"HELLO", if now.resp == Resp::V3 { b"3" } else { b"2" }]);
        }
        if now.database != was.database {
            self.say(&[b"SELECT", number.as_bytes()]);
        }
        if now.no_touch != was.no_touch {
            self.say(&[b"CLIENT", b"NO-TOUCH", on(now.no_touch)]);
        }
        if (now.waits_for_disk, now.waits_for_majority)
            != (was.waits_for_disk, was.waits_for_majority)
        {
            self.say(&[b"CLIENT", b"DURABILITY", level]);
        }
    }

    fn say(&mut self, words: &[&[u8]]) {
        encode_request(&mut self.unsent, words);
        self.queue.push_back(Awaited::Silent);
    }
}
