//! Connections to other nodes: what is sent on each, and which request each reply belongs to.
//!
//! A worker has one to each node for all its clients with the same [`Terms`]: their requests of one
//! turn are one write, and a node's replies to them one read. A client has its own for requests
//! that would delay other clients or that concern a session: waits for keys, watched keys,
//! transactions, requests that may take long.

use std::collections::VecDeque;
use std::sync::Arc;

use access::User;
use engine::{ClientRecord, Session};
use protocol::{Resp, encode_request};
use reactor::ConnectionId;
use store::DatabaseId;

use super::replies::{Scanned, Scanner};

/// Pause after a failed connection.
const PAUSE_MS: u64 = 20;
/// A connection without an awaited reply is closed after this time.
const IDLE_MS: u64 = 60_000;
/// Maximum memory that is kept for unsent bytes.
const UNSENT_KEPT_BYTES: usize = 64 * 1024;

/// State of the connection to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is none, and none is made before this time.
    Closed { until_ms: u64 },
    /// A thread is making it.
    Dialling,
    /// It is open.
    Open(ConnectionId),
}

/// An awaited reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// To a command that sets the client's state: anything but an error.
    Silent,
    /// To a command that is queued there, for this client's request with this number.
    Queued(ConnectionId, u64),
    /// To a part of this client's request.
    Part(ConnectionId, u64, usize),
}

impl Awaited {
    /// The client whose request it belongs to.
    pub(crate) fn client(self) -> Option<ConnectionId> {
        match self {
            Self::Silent => None,
            Self::Queued(client, _) | Self::Part(client, ..) => Some(client),
        }
    }
}

/// What a connection has received next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReply {
    /// This many bytes without a receiver: the reply to a command that sets the client's state, or
    /// a push; forwarding clients get no pushes from other nodes.
    Passed(usize),
    /// A reply of this many bytes to a request.
    Reply(usize, Awaited),
    /// Part of a reply, or nothing. At least this many bytes are needed before scanning can go on;
    /// 0 if nothing was received.
    Needs(usize),
    /// Not a valid reply, not awaited, or the node refused a command that sets the client's state.
    Wrong,
}

/// The user and state with which a client's requests run at another node.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) user: Arc<User>,
    pub(crate) told: Told,
}

impl Terms {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            user: Arc::clone(session.permit.user()),
            told: Told::of(session),
        }
    }

    fn are_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.user, &other.user) && self.told == other.told
    }

    /// Whether they equal those of a session as it is now.
    #[inline]
    pub(crate) fn are_those_of(&self, session: &Session) -> bool {
        Arc::ptr_eq(&self.user, session.permit.user()) && self.told == Told::of(session)
    }
}

/// The state of a client that is set at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    database: DatabaseId,
    pub(crate) resp: Resp,
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

/// A connection to one node.
pub(crate) struct Upstream {
    pub(crate) node: [u8; 20],
    /// Serial of the attempt to make it.
    pub(crate) serial: u64,
    pub(crate) link: Link,
    /// The terms on which it was made. A shared one is only for clients with the same terms.
    pub(crate) terms: Terms,
    /// The state that was set at the node.
    told: Told,
    /// Bytes to be sent.
    pub(crate) unsent: Vec<u8>,
    /// The awaited replies, in order.
    pub(crate) queue: VecDeque<Awaited>,
    pub(crate) scanner: Scanner,
    /// Whether it is not read from, because too many of its replies wait for earlier ones.
    pub(crate) is_paused: bool,
    /// When the last reply came, or the wait for the first awaited one began.
    pub(crate) moved_ms: u64,
}

/// The loss of a connection.
pub(crate) struct Loss<'r> {
    pub(crate) node: [u8; 20],
    pub(crate) was_open: bool,
    pub(crate) reason: &'r str,
    pub(crate) now_ms: u64,
}

/// Whether a request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Yes, over the connection at this index.
    Yes(usize),
    /// The connection at this index has to be made first.
    Dial(usize),
    /// Not yet, for example because a connection has just failed.
    Later,
}

/// The connections of one client, or those shared by a worker's clients.
#[derive(Default)]
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
    next_serial: u64,
}

impl Upstreams {
    /// Returns the connection to a node on these terms. If it has to be made, it is marked as being
    /// made from now on.
    pub(crate) fn ready(
        &mut self,
        node: [u8; 20],
        terms: &Terms,
        is_shared: bool,
        now_ms: u64,
    ) -> Ready {
        let found = self
            .all
            .iter()
            .position(|it| it.node == node && (!is_shared || it.terms.are_like(terms)));
        let at = found.unwrap_or_else(|| {
            self.all.push(Upstream {
                node,
                serial: 0,
                link: Link::Closed { until_ms: 0 },
                terms: terms.clone(),
                told: Told::NOTHING,
                unsent: Vec::new(),
                queue: VecDeque::new(),
                scanner: Scanner::default(),
                is_paused: false,
                moved_ms: now_ms,
            });
            self.all.len() - 1
        });
        let upstream = &mut self.all[at];
        match upstream.link {
            Link::Closed { until_ms } if until_ms > now_ms => Ready::Later,
            Link::Closed { .. } => {
                self.next_serial += 1;
                upstream.serial = self.next_serial;
                upstream.link = Link::Dialling;
                upstream.told = Told::NOTHING;
                upstream.terms = terms.clone();
                Ready::Dial(at)
            }
            // The connection of the client's former user: `leave` ends it.
            _ if !Arc::ptr_eq(&upstream.terms.user, &terms.user) => Ready::Later,
            _ => Ready::Yes(at),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.all.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Upstream> {
        self.all.iter_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Upstream {
        &mut self.all[at]
    }

    /// Index of the connection with this serial.
    pub(crate) fn of_serial(&self, serial: u64) -> Option<usize> {
        self.all.iter().position(|it| it.serial == serial)
    }

    /// Index of the connection to a node.
    pub(crate) fn to_node(&self, node: [u8; 20]) -> Option<usize> {
        self.all.iter().position(|it| it.node == node)
    }

    /// The open connections.
    pub(crate) fn open_links(&self) -> impl Iterator<Item = ConnectionId> {
        self.all.iter().filter_map(Upstream::open_link)
    }

    /// Removes connections that were unused for long. Returns those that have to be closed.
    pub(crate) fn end_idle(&mut self, now_ms: u64) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        self.all.retain(|it| {
            let is_idle = it.queue.is_empty() && it.moved_ms + IDLE_MS <= now_ms;
            let ends = is_idle && it.link != Link::Dialling;
            if ends {
                ended.extend(it.open_link());
            }
            !ends
        });
        ended
    }
}

impl Upstream {
    pub(crate) fn open_link(&self) -> Option<ConnectionId> {
        match self.link {
            Link::Open(id) => Some(id),
            _ => None,
        }
    }

    /// Queues a part of a client's request, to be sent on these terms. `extra_replies` come before
    /// its own.
    pub(crate) fn push(
        &mut self,
        told: Told,
        bytes: &[u8],
        (client, number, part): (ConnectionId, u64, usize),
        extra_replies: usize,
        now_ms: u64,
    ) {
        if self.queue.is_empty() {
            self.moved_ms = now_ms;
        }
        self.tell(told);
        self.unsent.extend_from_slice(bytes);
        let queued = std::iter::repeat_n(Awaited::Queued(client, number), extra_replies);
        self.queue.extend(queued);
        self.queue.push_back(Awaited::Part(client, number, part));
    }

    /// Consumes what `input` begins with.
    pub(crate) fn next_reply(&mut self, input: &[u8], now_ms: u64) -> NextReply {
        match self.scanner.next(input) {
            Scanned::Reply(len) if input.starts_with(b">") => NextReply::Passed(len),
            Scanned::Reply(len) => match self.queue.pop_front() {
                Some(Awaited::Silent) if input.starts_with(b"-") => NextReply::Wrong,
                Some(Awaited::Silent) => NextReply::Passed(len),
                Some(awaited) => {
                    self.moved_ms = now_ms;
                    NextReply::Reply(len, awaited)
                }
                None => NextReply::Wrong,
            },
            Scanned::Needs(needed) => NextReply::Needs(if input.is_empty() { 0 } else { needed }),
            Scanned::Malformed => NextReply::Wrong,
        }
    }

    /// Writes the unsent bytes, if the connection is open.
    pub(crate) fn take_unsent(&mut self, write: impl FnOnce(ConnectionId, &[u8])) {
        if let Link::Open(link) = self.link
            && !self.unsent.is_empty()
        {
            write(link, &self.unsent);
            self.unsent.clear();
            self.unsent.shrink_to(UNSENT_KEPT_BYTES);
        }
    }

    /// Notes that the connection is lost, or could not be made. Returns the awaited replies.
    pub(crate) fn lose<'r>(
        &mut self,
        reason: &'r str,
        now_ms: u64,
    ) -> (Loss<'r>, VecDeque<Awaited>) {
        let loss = Loss {
            node: self.node,
            was_open: self.open_link().is_some(),
            reason,
            now_ms,
        };
        (loss, self.close(now_ms))
    }

    /// Marks the connection as closed, with a pause before the next attempt. Returns the awaited
    /// replies.
    fn close(&mut self, now_ms: u64) -> VecDeque<Awaited> {
        self.link = Link::Closed {
            until_ms: now_ms + PAUSE_MS,
        };
        self.unsent.clear();
        self.scanner = Scanner::default();
        self.is_paused = false;
        std::mem::take(&mut self.queue)
    }

    /// Marks an unused connection as closed; it may be made again at once. No reply is awaited.
    pub(crate) fn close_unused(&mut self) {
        let _nothing = self.close(0);
        self.link = Link::Closed { until_ms: 0 };
    }

    /// Queues an UNWATCH for the node.
    pub(crate) fn unwatch(&mut self) {
        self.say(&[b"UNWATCH"]);
    }

    /// Queues commands that set the client's state where the node's differs.
    fn tell(&mut self, now: Told) {
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
