//! What other nodes answer to clients that forward, what is lost on the way, and what takes too long.

use std::sync::atomic::Ordering;

use engine::hash_slots::Routes;
use engine::{Outcome, Session};
use protocol::{Batch, Limits, encode_request};
use reactor::{ConnectionId, Io, Received, Then, Verdict};

use super::Worker;
use super::forwarding::LOOK_MS;
use super::sessions::Connected;
use crate::counters::bump;
use crate::forward::Newcomer;
use crate::forward::replies::Scanned;
use crate::forward::rules::{Rules, Way};
use crate::forward::upstream::{Awaited, Forwarding, Link, NO_NODE, Sender};
use crate::forward::window::{Aim, Entry, Part, Stage, Work};
use crate::job::Piece;

/// More replies than this that wait for others before them have their node wait.
const SAVED_BYTES_MAX: usize = 16 << 20;

impl Worker {
    /// Sends a client the replies that are there, and lets it go on when nothing is on its way any more.
    pub(super) fn settle(&mut self, io: &mut Io<'_>, id: ConnectionId, forward: &mut Forwarding) {
        let mut out = Vec::new();
        let count = forward.window.drain(&mut out);
        if count == 0 {
            return;
        }
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let client = &connected.session.client;
        bump(&client.output_bytes_total, out.len());
        client
            .active_unix_ms
            .store(self.node.core.clock.now_unix_ms(), Ordering::Relaxed);
        io.write(id, &out);
        for upstream in &mut forward.upstreams {
            if let Link::Open(link) = upstream.link
                && std::mem::take(&mut upstream.is_paused)
            {
                io.resume(link);
            }
        }
        if forward.window.is_empty() && std::mem::take(&mut forward.is_paused) {
            connected.end_to_wait();
            match forward.window.after.take() {
                None => io.resume(id),
                Some(outcome) => self.go_on_after(io, id, &outcome),
            }
        }
    }

    /// What becomes of a client whose last request ran while others were on their way.
    fn go_on_after(&mut self, io: &mut Io<'_>, id: ConnectionId, outcome: &Outcome) {
        match self.go_on(id, outcome, Verdict::Keep) {
            Then::Pause => {}
            Then::CloseAfterFlush => io.close_after_flush(id),
            Then::CloseNow | Then::HandOver => drop(io.close(id)),
            Then::Continue | Then::Yield | Then::Receive => io.resume(id),
        }
    }

    /// A connection to another node is there.
    #[cold]
    pub(super) fn upstream_opened(
        &mut self,
        io: &mut Io<'_>,
        link: ConnectionId,
        newcomer: Newcomer,
    ) {
        let client = newcomer.client;
        let Some(mut forward) = self.take_forwarding(client) else {
            io.close(link);
            return;
        };
        let mut upstreams = forward.upstreams.iter_mut();
        let wanted = upstreams.find(|it| it.serial == newcomer.serial && it.link == Link::Dialling);
        match wanted {
            Some(upstream) => {
                upstream.link = Link::Open(link);
                let of = (client, newcomer.serial);
                self.forwarding.upstreams.insert(link, of);
            }
            None => drop(io.close(link)),
        }
        Self::send_all(io, &mut forward);
        self.put_forwarding(client, forward);
    }

    /// There is no connection to another node.
    #[cold]
    pub(super) fn not_forwarded(&mut self, client: ConnectionId, serial: u64, reason: &str) {
        let Some(mut forward) = self.take_forwarding(client) else {
            return;
        };
        let mut upstreams = forward.upstreams.iter();
        let at = upstreams.position(|it| it.serial == serial && it.link == Link::Dialling);
        if let Some(at) = at {
            forward.lose(at, reason, self.now_ms);
        }
        self.put_forwarding(client, forward);
    }

    /// As [`received`](reactor::Service::received), of a connection to another node, or of none.
    #[cold]
    pub(super) fn received_upstream(
        &mut self,
        io: &mut Io<'_>,
        link: ConnectionId,
        input: &[u8],
    ) -> Received {
        let closed = Received::consumed(input.len()).then(Then::CloseNow);
        let Some(&(client, serial)) = self.forwarding.upstreams.get(&link) else {
            return closed;
        };
        let Some(mut forward) = self.take_forwarding(client) else {
            return closed;
        };
        let at = forward.upstreams.iter().position(|it| it.serial == serial);
        let received = match at {
            Some(at) => self.take_replies(io, client, &mut forward, at, input),
            None => closed,
        };
        self.put_forwarding(client, forward);
        received
    }

    fn take_replies(
        &mut self,
        io: &mut Io<'_>,
        client: ConnectionId,
        forward: &mut Forwarding,
        at: usize,
        input: &[u8],
    ) -> Received {
        let mut consumed = 0;
        let mut received = loop {
            let rest = &input[consumed..];
            match forward.upstreams[at].scanner.next(rest) {
                // What nobody asked for: nothing that a client that forwards hears comes from another node.
                Scanned::Reply(len) if rest.starts_with(b">") => consumed += len,
                Scanned::Reply(len) => {
                    let is_awaited = forward.take_reply(at, &rest[..len], self.now_ms);
                    consumed += len;
                    if !is_awaited {
                        break Received::consumed(consumed).then(Then::CloseNow);
                    }
                }
                Scanned::Needs(needed) => {
                    break Received {
                        consumed,
                        needed: if rest.is_empty() { 0 } else { needed },
                        then: Then::Continue,
                    };
                }
                Scanned::Malformed => {
                    break Received::consumed(consumed).then(Then::CloseNow);
                }
            }
        };
        self.settle(io, client, forward);
        Self::send_all(io, forward);
        if received.then == Then::Continue && forward.window.saved_bytes > SAVED_BYTES_MAX {
            forward.upstreams[at].is_paused = true;
            received.then = Then::Pause;
        }
        received
    }

    /// Whether what is no client's may hold more: what a node answers may be as long as it likes, as for a client of its own.
    pub(super) fn upstream_limit(&self, id: ConnectionId) -> Verdict {
        match self.forwarding.has(id) {
            true => Verdict::Keep,
            false => Verdict::Close,
        }
    }

    /// A connection ended: one to another node, or a client that had some.
    pub(super) fn forget_forwarding(&mut self, id: ConnectionId, gone: Option<&Connected>) {
        if let Some(of) = self.forwarding.upstreams.remove(&id) {
            self.forwarding.lost.push(of);
        }
        if let Some(forward) = gone.and_then(|it| it.forward.as_deref()) {
            self.forwarding.unwanted.extend(forward.open_links());
        }
    }

    /// Once a turn: what was lost, what takes too long, and what is to be sent again.
    pub(super) fn look_after_forwarding(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.forwarding.unwanted) {
            self.forwarding.upstreams.remove(&id);
            io.close(id);
        }
        for (client, serial) in std::mem::take(&mut self.forwarding.lost) {
            let Some(mut forward) = self.take_forwarding(client) else {
                continue;
            };
            let at = forward.upstreams.iter().position(|it| it.serial == serial);
            if let Some(at) = at
                && matches!(forward.upstreams[at].link, Link::Open(_))
            {
                forward.lose(at, "the connection was lost", self.now_ms);
                self.settle(io, client, &mut forward);
            }
            self.put_forwarding(client, forward);
        }
        if self.forwarding.busy.is_empty() || self.now_ms < self.forwarding.look_due_ms {
            return;
        }
        self.forwarding.look_due_ms = self.now_ms + LOOK_MS;
        let routes = self.node.core.shared.hash_slots.routes();
        for id in std::mem::take(&mut self.forwarding.busy) {
            let Some(mut forward) = self.take_forwarding(id) else {
                continue;
            };
            forward.is_listed = false;
            self.look_after_client(io, id, &mut forward, &routes);
            self.put_forwarding(id, forward);
        }
    }

    fn look_after_client(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        forward: &mut Forwarding,
        routes: &Routes,
    ) {
        let now_ms = self.now_ms;
        let timeout_ms = self.config.config().cluster.forward_timeout_ms;
        self.end_overdue(io, forward, timeout_ms);
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        for link in forward.leave(&connected.session, now_ms) {
            self.forwarding.upstreams.remove(&link);
            io.close(link);
        }
        if !forward.window.again.is_empty() && now_ms >= forward.again_ms {
            let mut again = std::mem::take(&mut forward.window.again);
            again.sort_unstable();
            again.dedup();
            let sender = Sender {
                node: &self.node,
                routes,
                worker: self.index,
                client: id,
                session: &connected.session,
                now_ms,
            };
            for (number, part) in again {
                let entry = forward.window.get_mut(number);
                let is_late = entry.is_some_and(|it| it.began_ms + timeout_ms <= now_ms);
                if is_late {
                    forward.answer(number, part, NO_NODE);
                } else if forward.window.again.is_empty() {
                    forward.send_part(&sender, number, part);
                } else {
                    // Behind what comes before it.
                    forward.window.again.push((number, part));
                }
            }
        }
        self.settle(io, id, forward);
        Self::send_all(io, forward);
    }

    /// Gives up on the nodes that do not answer the first request in time.
    fn end_overdue(&mut self, io: &mut Io<'_>, forward: &mut Forwarding, timeout_ms: u64) {
        let now_ms = self.now_ms;
        let Some((number, entry)) = forward.window.front_mut() else {
            return;
        };
        if entry.blocks || entry.began_ms + timeout_ms > now_ms {
            return;
        }
        let awaited = |part: usize| Awaited::Part(number, part);
        let mut late = Vec::new();
        for part in 0..entry.parts_count() {
            let is_sent = entry
                .part_mut(part)
                .is_some_and(|it| it.stage == Stage::Sent);
            if is_sent {
                late.push(awaited(part));
            }
        }
        for at in 0..forward.upstreams.len() {
            let upstream = &forward.upstreams[at];
            if !late.iter().any(|one| upstream.queue.contains(one)) {
                continue;
            }
            if let Link::Open(link) = upstream.link {
                self.forwarding.upstreams.remove(&link);
                io.close(link);
            }
            forward.lose(at, "there was no answer in time", now_ms);
        }
    }

    /// Sends a request again that waited for a key here whose slot went; false where that is none.
    #[cold]
    pub(super) fn forward_waiter(&mut self, id: ConnectionId, reply: &[Piece]) -> bool {
        let head = reply.first().map_or(&[][..], Piece::as_slice);
        if !head.starts_with(b"-MOVED ") && !head.starts_with(b"-CLUSTERDOWN ") {
            return false;
        }
        let Some(connected) = self.sessions.get_mut(id) else {
            return false;
        };
        if !connected.session.forwards {
            return false;
        }
        let Some(wait) = &connected.session.wait else {
            return false;
        };
        let mut raw = Vec::new();
        let request = wait.waiter.subject.request();
        let words: Vec<&[u8]> = request.iter().collect();
        encode_request(&mut raw, &words);
        self.engine.end_wait(&mut connected.session);
        self.forget_wait_end(id);
        let routes = self.node.core.shared.hash_slots.routes();
        let Some(mut forward) = self.take_forwarding(id) else {
            return false;
        };
        let Some(connected) = self.sessions.get_mut(id) else {
            return false;
        };
        let aim = first_aim(self.node.core.env.table, &connected.session, &routes, &raw);
        let start = forward.window.bytes.len();
        forward.window.bytes.extend_from_slice(&raw);
        let part = Part::new(aim, start..start + raw.len());
        let number = forward.window.push(Entry {
            work: Work::One(part),
            reply: None,
            is_silent: false,
            is_read: false,
            blocks: true,
            is_refused: false,
            is_conditional: false,
            began_ms: self.now_ms,
        });
        forward.window.is_barrier = true;
        // It waits as it did.
        forward.is_paused = true;
        forward.try_again(self.now_ms, number, 0);
        self.put_forwarding(id, forward);
        true
    }
}

/// The slot of a request that waited for keys.
fn first_aim(table: &'static engine::Table, session: &Session, routes: &Routes, raw: &[u8]) -> Aim {
    let mut batch = Batch::new();
    let mut decoder = protocol::Decoder::new();
    decoder.decode(raw, &Limits::default(), 1, &mut batch);
    let rules = Rules {
        table,
        routes,
        splits_writes: false,
        watched: None,
    };
    let request = batch.iter(raw).next();
    let way = request.map(|request| rules.way(session, request, raw, &mut Vec::new()));
    match way {
        Some(Way::One(_, part)) => part.aim,
        // It is this node's again.
        _ => routes
            .endpoints
            .get(usize::from(routes.own))
            .map_or(Aim::Slot(0), |own| Aim::Node(own.id)),
    }
}
