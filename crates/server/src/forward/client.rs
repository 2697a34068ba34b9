//! State of a client that forwards: its requests in flight, and the connections that they use.

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

/// Pause before a request is sent again. By then this node mostly knows the slot's new owner.
const AGAIN_MS: u64 = 5;

/// The connections and terms of the requests in flight. It changes only when none is in flight:
/// otherwise an earlier request of the client could run last.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Whether requests use the client's own connections, not the shared ones.
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
    /// The other node where keys are watched, if any.
    pub(crate) watched: Option<[u8; 20]>,
    /// Whether that connection was lost, so the keys are no longer watched: EXEC does nothing.
    pub(crate) is_watch_lost: bool,
    /// Whether the client is not read from.
    pub(crate) is_paused: bool,
    /// Whether the worker has it on its list.
    pub(crate) is_listed: bool,
    /// When requests are sent again.
    pub(crate) again_ms: u64,
}

/// What sending requests needs.
pub(crate) struct Sender<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) routes: &'a Routes,
    /// The connections shared by the worker's clients.
    pub(crate) shared: &'a mut Upstreams,
    pub(crate) worker: usize,
    pub(crate) client: ConnectionId,
    pub(crate) now_ms: u64,
}

impl Forwarding {
    /// Switches to the client's own connections or to shared ones, on the terms of its session.
    /// Returns false if requests in flight have to be answered first.
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

    /// Sends all parts of a request, unless earlier ones are to be sent again.
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

    /// Notes the reply to a part of a request.
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

    /// Handles a node's reply to a command that was queued there for a request.
    pub(crate) fn take_queued(&mut self, number: u64, reply: &[u8]) {
        if let Some(entry) = self.window.get_mut(number) {
            entry.is_refused |= is_refusal(reply);
        }
    }

    /// Handles a node's reply to a part of a request.
    pub(crate) fn take_reply(&mut self, number: u64, part: usize, reply: &[u8], now_ms: u64) {
        let Some(entry) = self.window.get_mut(number) else {
            return;
        };
        let is_refused = std::mem::take(&mut entry.is_refused) || is_refusal(reply);
        if !is_refused {
            self.answer(number, part, reply);
        } else if entry.is_conditional {
            // The slot moved, and with it what was watched.
            let resp = self.lane.as_ref().map_or(Resp::V2, |it| it.terms.told.resp);
            self.answer(number, part, nothing_done(resp));
        } else {
            self.try_again(now_ms, number, part);
        }
    }

    /// Handles the loss of the connection over which a part of a request was sent, or the failure
    /// to make it. Unsent and read-only parts are sent again.
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

    /// Handles the loss of one of the client's own connections, or the failure to make it.
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

    /// Closes connections of the client's former user, and those that are not needed. Returns their
    /// IDs.
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

    /// Ends watching keys at another node. Returns the connection that has to be closed for that.
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

/// Returns the node that a part of a request goes to now, or `None` if no node serves the slot.
fn node_of(aim: Aim, routes: &Routes) -> Option<[u8; 20]> {
    match aim {
        Aim::Slot(_) if routes.is_down && !routes.reads_when_down => None,
        _ => owner_of(aim, routes),
    }
}

/// Returns the node that has the data for a part of a request.
pub(crate) fn owner_of(aim: Aim, routes: &Routes) -> Option<[u8; 20]> {
    match aim {
        Aim::Node(node) => Some(node),
        Aim::Slot(slot) => {
            let owner = usize::from(routes.owner(slot)?);
            routes.endpoints.get(owner).map(|endpoint| endpoint.id)
        }
    }
}

/// Returns the reply of EXEC if a watched key was changed, or may have been.
pub(crate) fn nothing_done(resp: Resp) -> &'static [u8] {
    match resp {
        Resp::V2 => b"*-1\r\n",
        Resp::V3 => b"_\r\n",
    }
}

/// The reply if no node serves a slot for too long.
pub(crate) const NO_NODE: &[u8] = b"-CLUSTERDOWN Hash slot not served\r\n";
