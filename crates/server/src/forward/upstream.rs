//! Connections to other nodes: what goes out on each, and whose the replies are that come back.
//!
//! A worker has one to each node for all clients that are there on the same [`Terms`]: what they send in one turn is one write,
//! and what a node answers in one is one read. A client has one of its own for what would hold up others or is
//! about a session: a wait for keys, watched keys, a transaction, a request that may take long.

use std::collections::VecDeque;
use std::sync::Arc;

use access::User;
use engine::{ClientRecord, Session};
use protocol::{Resp, encode_request};
use reactor::ConnectionId;
use store::DatabaseId;

use super::replies::{Scanned, Scanner};

/// After a connection that failed none is made for so long.
const PAUSE_MS: u64 = 20;
/// A connection of many on which nothing is awaited for so long is closed.
const IDLE_MS: u64 = 60_000;
/// Memory for what is to be sent that is kept.
const UNSENT_KEPT_BYTES: usize = 64 * 1024;

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
    /// Of a request that is queued there, for the request of this client with this number.
    Queued(ConnectionId, u64),
    /// Of a part of a request of this client.
    Part(ConnectionId, u64, usize),
}

impl Awaited {
    /// The client whose request it is of.
    pub(crate) fn client(self) -> Option<ConnectionId> {
        match self {
            Self::Silent => None,
            Self::Queued(client, _) | Self::Part(client, ..) => Some(client),
        }
    }
}

/// What a connection holds next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReply {
    /// So many bytes that are for nobody: the answer to what was said of the client, or a push, by which no client that forwards
    /// hears from another node.
    Passed(usize),
    /// A reply of so many bytes to a request.
    Reply(usize, Awaited),
    /// A part of one, or nothing. So many bytes have to be there before there can be more; 0 where none is awaited.
    Needs(usize),
    /// What no server sends, nobody awaits, or says that the node did not take what was said of the client.
    Wrong,
}

/// As whom and in which state a client's requests run at another node.
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

    /// Whether they are those of a session as it is now.
    #[inline]
    pub(crate) fn are_those_of(&self, session: &Session) -> bool {
        Arc::ptr_eq(&self.user, session.permit.user()) && self.told == Told::of(session)
    }
}

/// What a node is told of the client.
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

/// The connection to one node.
pub(crate) struct Upstream {
    pub(crate) node: [u8; 20],
    /// Which try it is.
    pub(crate) serial: u64,
    pub(crate) link: Link,
    /// On which it was made; shared ones are for clients on the same alone.
    pub(crate) terms: Terms,
    /// What the node has been told.
    told: Told,
    /// What is to be sent.
    pub(crate) unsent: Vec<u8>,
    /// The replies that are awaited, in their order.
    pub(crate) queue: VecDeque<Awaited>,
    pub(crate) scanner: Scanner,
    /// It is not read from, for too many of its replies wait for others.
    pub(crate) is_paused: bool,
    /// When a reply came, or the first that is awaited began to be.
    pub(crate) moved_ms: u64,
}

/// How a connection was lost.
pub(crate) struct Loss<'r> {
    pub(crate) node: [u8; 20],
    pub(crate) was_open: bool,
    pub(crate) reason: &'r str,
    pub(crate) now_ms: u64,
}

/// What stands in the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Nothing: the connection at this place is there.
    Yes(usize),
    /// The connection at this place is to be made.
    Dial(usize),
    /// A connection failed a moment ago.
    Later,
}

/// The connections of one client, or those that the clients of a worker share.
#[derive(Default)]
pub(crate) struct Upstreams {
    all: Vec<Upstream>,
    next_serial: u64,
}

impl Upstreams {
    /// The connection to a node on these terms. One that is to be made counts as being made from now on.
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
            // The connection of the user that the client was before: `leave` ends it.
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

    /// Where the connection of this try is.
    pub(crate) fn of_serial(&self, serial: u64) -> Option<usize> {
        self.all.iter().position(|it| it.serial == serial)
    }

    /// Where the connection to a node is.
    pub(crate) fn to_node(&self, node: [u8; 20]) -> Option<usize> {
        self.all.iter().position(|it| it.node == node)
    }

    /// Its connections that are there.
    pub(crate) fn open_links(&self) -> impl Iterator<Item = ConnectionId> {
        self.all.iter().filter_map(Upstream::open_link)
    }

    /// Takes out what nobody has needed for long; the connections that are to be closed.
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

    /// Notes a part of a request of a client, which is to be sent on these terms; so many replies come before its own.
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

    /// Takes up what `input` begins with.
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

    /// What is to be sent, where the connection is there.
    pub(crate) fn take_unsent(&mut self, write: impl FnOnce(ConnectionId, &[u8])) {
        if let Link::Open(link) = self.link
            && !self.unsent.is_empty()
        {
            write(link, &self.unsent);
            self.unsent.clear();
            self.unsent.shrink_to(UNSENT_KEPT_BYTES);
        }
    }

    /// It is lost, or was not made; what was awaited.
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

    /// It is not there any more, and none is made for a moment; what was awaited.
    fn close(&mut self, now_ms: u64) -> VecDeque<Awaited> {
        self.link = Link::Closed {
            until_ms: now_ms + PAUSE_MS,
        };
        self.unsent.clear();
        self.scanner = Scanner::default();
        self.is_paused = false;
        std::mem::take(&mut self.queue)
    }

    /// It is not there any more, and may be made again at once. Nothing is awaited.
    pub(crate) fn close_unused(&mut self) {
        let _nothing = self.close(0);
        self.link = Link::Closed { until_ms: 0 };
    }

    /// Notes that the node is told of the end of what is watched.
    pub(crate) fn unwatch(&mut self) {
        self.say(&[b"UNWATCH"]);
    }

    /// Says what the node does not know of the client yet.
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
