//! What a client that forwards has: its requests on their way, and over which connections they go.

use std::sync::Arc;

use cluster::NodeId;
use engine::Session;
use engine::hash_slots::Routes;
use protocol::{Decoder, Resp};
use reactor::ConnectionId;

use super::dial::{self, Wish};
use super::merge::Merge;
use super::replies::is_refusal;
use super::upstream::{Awaited, Link, Loss, Ready, Terms, Upstreams};
use super::window::{Aim, Stage, Window, Work};
use crate::node::Node;

/// What is to be sent again is, after so long: who owns the slot is known here by then, mostly.
const AGAIN_MS: u64 = 5;

/// Over which connections the requests go that are on their way, and on which terms. It changes only when none is, or what a
/// client sent first might be done last.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Over the client's own, not over those that it shares.
    is_own: bool,
    terms: Terms,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Forwarding {
    pub(crate) window: Window,
    lane: Option<Lane>,
    /// The client's own connections.
    pub(crate) own: Upstreams,
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
}

/// What requests are sent by.
pub(crate) struct Sender<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) routes: &'a Routes,
    /// The connections that the clients of the worker share.
    pub(crate) shared: &'a mut Upstreams,
    pub(crate) worker: usize,
    pub(crate) client: ConnectionId,
    pub(crate) now_ms: u64,
}

impl Forwarding {
    /// Has what is sent from now on go over connections of the client's own, or over shared ones, on the terms of its
    /// session; false where others have to be answered first.
    pub(crate) fn enter_lane(&mut self, session: &Session, needs_own: bool) -> bool {
        let needs_own = needs_own || self.watched.is_some();
        if let Some(lane) = &self.lane
            && lane.terms.are_those_of(session)
            && (lane.is_own == needs_own || (lane.is_own && !self.window.is_empty()))
        {
            return true;
        }
        if !self.window.is_empty() {
            return false;
        }
        self.lane = Some(Lane {
            is_own: needs_own,
            terms: Terms::of(session),
        });
        true
    }

    /// Sends all parts of a request, unless others before it are to be sent again.
    pub(crate) fn send(&mut self, sender: &mut Sender<'_>, number: u64) {
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
    pub(crate) fn send_part(&mut self, sender: &mut Sender<'_>, number: u64, part: usize) {
        let (Some(lane), Some(entry)) = (&self.lane, self.window.get_mut(number)) else {
            return;
        };
        let is_conditional = entry.is_conditional;
        let Some(piece) = entry.part_mut(part) else {
            return;
        };
        let (aim, bytes, extra) = (piece.aim, piece.bytes.clone(), piece.extra_replies);
        let told = lane.terms.told;
        let upstreams = match lane.is_own {
            true => &mut self.own,
            false => &mut *sender.shared,
        };
        let ready = node_of(aim, sender.routes).map_or(Ready::Later, |node| {
            upstreams.ready(node, &lane.terms, !lane.is_own, sender.now_ms)
        });
        let at = match ready {
            Ready::Later => return self.try_again(sender.now_ms, number, part),
            Ready::Yes(at) => at,
            Ready::Dial(at) => {
                let upstream = upstreams.get_mut(at);
                let wish = Wish {
                    worker: sender.worker,
                    client: lane.is_own.then_some(sender.client),
                    serial: upstream.serial,
                    to: NodeId(upstream.node),
                    user: upstream.terms.user.name().to_vec(),
                };
                dial::begin(sender.node, wish);
                at
            }
        };
        let upstream = upstreams.get_mut(at);
        if is_conditional && !matches!(upstream.link, Link::Open(_)) {
            return self.answer(number, part, nothing_done(told.resp));
        }
        let bytes = self.window.bytes.get(bytes).unwrap_or_default();
        let of = (sender.client, number, part);
        upstream.push(told, bytes, of, extra, sender.now_ms);
        if let Some(piece) = self.window.get_mut(number).and_then(|it| it.part_mut(part)) {
            piece.stage = Stage::Sent;
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
        match &mut entry.work {
            Work::Here => {}
            Work::One(_) => self.window.answer(number, reply),
            Work::Several(merge) => {
                if let Some(whole) = Merge::answer(merge, part, reply) {
                    self.window.answer(number, &whole);
                }
            }
        }
    }

    /// Takes the reply of a node to what is queued there for a request.
    pub(crate) fn take_queued(&mut self, number: u64, reply: &[u8]) {
        if let Some(entry) = self.window.get_mut(number) {
            entry.is_refused |= is_refusal(reply);
        }
    }

    /// Takes the reply of a node to a part of a request.
    pub(crate) fn take_reply(&mut self, number: u64, part: usize, reply: &[u8], now_ms: u64) {
        let Some(entry) = self.window.get_mut(number) else {
            return;
        };
        let is_refused = std::mem::take(&mut entry.is_refused) || is_refusal(reply);
        if !is_refused {
            self.answer(number, part, reply);
        } else if entry.is_conditional {
            // The slot went, and what was watched with it.
            let resp = self.lane.as_ref().map_or(Resp::V2, |it| it.terms.told.resp);
            self.answer(number, part, nothing_done(resp));
        } else {
            self.try_again(now_ms, number, part);
        }
    }

    /// The connection is lost over which a part of a request was sent, or was not made. What was not sent, and what only
    /// reads, is sent again.
    pub(crate) fn lose_part(&mut self, (number, part): (u64, usize), loss: &Loss<'_>) {
        let Some(entry) = self.window.get_mut(number) else {
            return;
        };
        entry.is_refused = false;
        if !loss.was_open || entry.is_read {
            self.try_again(loss.now_ms, number, part);
        } else {
            let (id, reason) = (NodeId(loss.node), loss.reason);
            let text =
                format!("-ERR forwarding to node {id}: {reason}; the command may have run\r\n");
            self.answer(number, part, text.as_bytes());
        }
    }

    /// A connection of the client's own is lost, or was not made.
    pub(crate) fn lose(&mut self, at: usize, reason: &str, now_ms: u64) {
        let (loss, awaited) = self.own.get_mut(at).lose(reason, now_ms);
        if self.watched == Some(loss.node) {
            self.is_watch_lost = true;
        }
        for awaited in awaited {
            if let Awaited::Part(_, number, part) = awaited {
                self.lose_part((number, part), &loss);
            }
        }
    }

    /// The connections of a user that the client is not any more, and those that are not wanted: their ids.
    pub(crate) fn leave(&mut self, session: &Session) -> Vec<ConnectionId> {
        let mut ended = Vec::new();
        for upstream in self.own.iter_mut() {
            let is_same = Arc::ptr_eq(&upstream.terms.user, session.permit.user());
            if let Link::Open(id) = upstream.link
                && !is_same
                && upstream.queue.is_empty()
            {
                ended.push(id);
                upstream.close_unused();
                if self.watched == Some(upstream.node) {
                    self.is_watch_lost = true;
                }
            }
        }
        ended
    }

    /// Ends what is watched at another node; the connection that is to be closed for it.
    pub(crate) fn end_watch(&mut self) -> Option<ConnectionId> {
        self.is_watch_lost = false;
        let node = self.watched.take()?;
        let at = self.own.to_node(node)?;
        let upstream = self.own.get_mut(at);
        let id = upstream.open_link()?;
        if !upstream.queue.is_empty() {
            upstream.unwatch();
            return None;
        }
        upstream.close_unused();
        Some(id)
    }
}

/// The node that a part of a request is for now; none where nobody serves the slot.
fn node_of(aim: Aim, routes: &Routes) -> Option<[u8; 20]> {
    match aim {
        Aim::Slot(_) if routes.is_down && !routes.reads_when_down => None,
        _ => owner_of(aim, routes),
    }
}

/// The node that has what a part of a request is about.
pub(crate) fn owner_of(aim: Aim, routes: &Routes) -> Option<[u8; 20]> {
    match aim {
        Aim::Node(node) => Some(node),
        Aim::Slot(slot) => {
            let owner = usize::from(routes.owner(slot)?);
            routes.endpoints.get(owner).map(|endpoint| endpoint.id)
        }
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
