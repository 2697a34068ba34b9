//! Upstreams of forwarding clients: replies of other nodes, lost connections and timeouts.

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
use crate::forward::client::{Forwarding, NO_NODE, Sender};
use crate::forward::rules::{Rules, Way};
use crate::forward::upstream::{Awaited, Link, NextReply, Upstream, Upstreams};
use crate::forward::window::{Aim, Entry, Part, SAVED_BYTES_MAX, Stage, Work};
use crate::job::Piece;

impl Worker {
    /// Sends a client the replies that are ready, and resumes it once no request is pending at
    /// other nodes.
    pub(super) fn settle(&mut self, io: &mut Io<'_>, id: ConnectionId, forward: &mut Forwarding) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let client = &connected.session.client;
        let count = forward.window.drain(|replies| {
            bump(&client.output_bytes_total, replies.len());
            io.write(id, replies);
        });
        if count == 0 {
            return;
        }
        client
            .active_unix_ms
            .store(self.node.core.clock.now_unix_ms(), Ordering::Relaxed);
        for upstream in forward.own.iter_mut() {
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

    /// Continues a client whose last request ran here while others were pending at other nodes.
    fn go_on_after(&mut self, io: &mut Io<'_>, id: ConnectionId, outcome: &Outcome) {
        match self.go_on(id, outcome, Verdict::Keep) {
            Then::Pause => {}
            Then::CloseAfterFlush => io.close_after_flush(id),
            Then::CloseNow | Then::HandOver => drop(io.close(id)),
            Then::Continue | Then::Yield | Then::Receive => io.resume(id),
        }
    }

    /// Handles a new connection to another node.
    #[cold]
    pub(super) fn upstream_opened(
        &mut self,
        io: &mut Io<'_>,
        link: ConnectionId,
        newcomer: Newcomer,
    ) {
        let Newcomer { client, serial } = newcomer;
        let Some(client) = client else {
            let is_wanted = open(&mut self.forwarding.shared, link, serial);
            return self.keep_if(io, link, (None, serial), is_wanted);
        };
        let Some(mut forward) = self.take_forwarding(client) else {
            io.close(link);
            return;
        };
        let is_wanted = open(&mut forward.own, link, serial);
        self.keep_if(io, link, (Some(client), serial), is_wanted);
        Self::send_all(io, &mut forward.own);
        self.put_forwarding(client, forward);
    }

    fn keep_if(
        &mut self,
        io: &mut Io<'_>,
        link: ConnectionId,
        of: (Option<ConnectionId>, u64),
        is_wanted: bool,
    ) {
        if is_wanted {
            self.forwarding.upstreams.insert(link, of);
        } else {
            io.close(link);
        }
    }

    /// Handles a failed connection to another node.
    #[cold]
    pub(super) fn not_forwarded(
        &mut self,
        client: Option<ConnectionId>,
        serial: u64,
        reason: &str,
    ) {
        self.lose_upstream(client, reason, |it| {
            it.serial == serial && it.link == Link::Dialling
        });
    }

    /// Marks the upstream for which `is_it` holds as lost: one of `client`, or a shared one. The
    /// next look at the clients answers them.
    fn lose_upstream(
        &mut self,
        client: Option<ConnectionId>,
        reason: &str,
        is_it: impl Fn(&Upstream) -> bool,
    ) {
        let Some(client) = client else {
            let at = self.forwarding.shared.iter().position(is_it);
            return at.map_or((), |at| self.lose_shared(at, reason));
        };
        let Some(mut forward) = self.take_forwarding(client) else {
            return;
        };
        let at = forward.own.iter().position(is_it);
        if let Some(at) = at {
            forward.lose(at, reason, self.now_ms);
        }
        self.put_forwarding(client, forward);
        self.forwarding.look_due_ms = self.now_ms;
    }

    /// Marks a shared upstream as lost, for each request that clients sent on it. The next look at
    /// the clients answers them.
    fn lose_shared(&mut self, at: usize, reason: &str) {
        let now_ms = self.now_ms;
        let (loss, all_awaited) = self.forwarding.shared.get_mut(at).lose(reason, now_ms);
        for awaited in all_awaited {
            if let Awaited::Part(client, number, part) = awaited
                && let Some(mut forward) = self.take_forwarding(client)
            {
                forward.lose_part((number, part), &loss);
                self.put_forwarding(client, forward);
            }
        }
        self.forwarding.look_due_ms = now_ms;
    }

    /// As [`received`](reactor::Service::received), for a connection to another node. Closes one
    /// that is not known.
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
        let Some(client) = client else {
            return match self.forwarding.shared.of_serial(serial) {
                Some(at) => self.take_shared_replies(io, at, input),
                None => closed,
            };
        };
        let Some(mut forward) = self.take_forwarding(client) else {
            return closed;
        };
        let received = match forward.own.of_serial(serial) {
            Some(at) => self.take_replies(io, client, &mut forward, at, input),
            None => closed,
        };
        self.put_forwarding(client, forward);
        received
    }

    /// Takes a node's replies to one client.
    fn take_replies(
        &mut self,
        io: &mut Io<'_>,
        client: ConnectionId,
        forward: &mut Forwarding,
        at: usize,
        input: &[u8],
    ) -> Received {
        let now_ms = self.now_ms;
        let mut consumed = 0;
        let mut received = loop {
            let upstream = forward.own.get_mut(at);
            match upstream.next_reply(&input[consumed..], now_ms) {
                NextReply::Passed(len) => consumed += len,
                NextReply::Reply(len, awaited) => {
                    let reply = &input[consumed..consumed + len];
                    consumed += len;
                    hand_on(forward, awaited, reply, now_ms);
                }
                NextReply::Needs(needed) => break needs(consumed, needed),
                NextReply::Wrong => break Received::consumed(consumed).then(Then::CloseNow),
            }
        };
        self.settle(io, client, forward);
        Self::send_all(io, &mut forward.own);
        if received.then == Then::Continue && forward.window.saved_bytes > SAVED_BYTES_MAX {
            forward.own.get_mut(at).is_paused = true;
            received.then = Then::Pause;
        }
        received
    }

    /// Takes a node's replies on a shared upstream. Replies to one client are mostly adjacent.
    fn take_shared_replies(&mut self, io: &mut Io<'_>, at: usize, input: &[u8]) -> Received {
        let now_ms = self.now_ms;
        let mut consumed = 0;
        let mut current: Option<(ConnectionId, Box<Forwarding>)> = None;
        let received = loop {
            let upstream = self.forwarding.shared.get_mut(at);
            let (len, awaited) = match upstream.next_reply(&input[consumed..], now_ms) {
                NextReply::Passed(len) => {
                    consumed += len;
                    continue;
                }
                NextReply::Reply(len, awaited) => (len, awaited),
                NextReply::Needs(needed) => break needs(consumed, needed),
                NextReply::Wrong => break Received::consumed(consumed).then(Then::CloseNow),
            };
            let reply = &input[consumed..consumed + len];
            consumed += len;
            let Some(client) = awaited.client() else {
                continue;
            };
            if current.as_ref().is_none_or(|(of, _)| *of != client) {
                self.settle_current(io, current.take());
                // The reply is dropped if its client is gone.
                current = self.take_forwarding(client).map(|it| (client, it));
            }
            if let Some((_, forward)) = &mut current {
                hand_on(forward, awaited, reply, now_ms);
            }
        };
        self.settle_current(io, current);
        received
    }

    fn settle_current(
        &mut self,
        io: &mut Io<'_>,
        current: Option<(ConnectionId, Box<Forwarding>)>,
    ) {
        if let Some((client, mut forward)) = current {
            self.settle(io, client, &mut forward);
            self.put_forwarding(client, forward);
        }
    }

    /// Whether the buffers of a connection without client may grow further: a node's reply may have
    /// any length, as on a connection of one client.
    pub(super) fn upstream_limit(&self, id: ConnectionId) -> Verdict {
        match self.forwarding.has(id) {
            true => Verdict::Keep,
            false => Verdict::Close,
        }
    }

    /// Handles the end of a connection: of an upstream, or of a client with upstreams.
    pub(super) fn forget_forwarding(&mut self, id: ConnectionId, gone: Option<&Connected>) {
        if let Some(of) = self.forwarding.upstreams.remove(&id) {
            self.forwarding.lost.push(of);
        }
        if let Some(forward) = gone.and_then(|it| it.forward.as_deref()) {
            self.forwarding.unwanted.extend(forward.own.open_links());
        }
    }

    /// Handles lost upstreams, timeouts and requests to send again. Called once per turn.
    pub(super) fn look_after_forwarding(&mut self, io: &mut Io<'_>) {
        for id in std::mem::take(&mut self.forwarding.unwanted) {
            self.forwarding.upstreams.remove(&id);
            io.close(id);
        }
        for (client, serial) in std::mem::take(&mut self.forwarding.lost) {
            self.lose_upstream(client, "the connection was lost", |it| {
                it.serial == serial && it.open_link().is_some()
            });
        }
        Self::send_all(io, &mut self.forwarding.shared);
        if self.forwarding.busy.is_empty() || self.now_ms < self.forwarding.look_due_ms {
            return;
        }
        self.forwarding.look_due_ms = self.now_ms + LOOK_MS;
        self.end_stuck(io);
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

    /// Gives up shared upstreams on which nothing was answered for too long.
    fn end_stuck(&mut self, io: &mut Io<'_>) {
        let timeout_ms = self.config.config().cluster.forward_timeout_ms;
        for at in 0..self.forwarding.shared.len() {
            let upstream = self.forwarding.shared.get_mut(at);
            if upstream.queue.is_empty() || upstream.moved_ms + timeout_ms > self.now_ms {
                continue;
            }
            if let Some(link) = upstream.open_link() {
                self.forwarding.upstreams.remove(&link);
                io.close(link);
            }
            self.lose_shared(at, "there was no answer in time");
        }
    }

    /// Closes shared upstreams that were not needed for long.
    pub(super) fn end_idle_upstreams(&mut self) {
        let ended = self.forwarding.shared.end_idle(self.now_ms);
        self.forwarding.unwanted.extend(ended);
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
        self.end_overdue(io, id, forward, timeout_ms);
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        for link in forward.leave(&connected.session) {
            self.forwarding.upstreams.remove(&link);
            io.close(link);
        }
        if !forward.window.again.is_empty() && now_ms >= forward.again_ms {
            let mut again = std::mem::take(&mut forward.window.again);
            again.sort_unstable();
            again.dedup();
            let mut sender = Sender {
                node: &self.node,
                routes,
                shared: &mut self.forwarding.shared,
                worker: self.index,
                client: id,
                now_ms,
            };
            for (number, part) in again {
                let entry = forward.window.get_mut(number);
                let is_late = entry.is_some_and(|it| it.began_ms + timeout_ms <= now_ms);
                if is_late {
                    forward.answer(number, part, NO_NODE);
                } else if forward.window.again.is_empty() {
                    forward.send_part(&mut sender, number, part);
                } else {
                    // Keeps the order: it stays behind the parts before it.
                    forward.window.again.push((number, part));
                }
            }
        }
        self.settle(io, id, forward);
        Self::send_all(io, &mut forward.own);
        Self::send_all(io, &mut self.forwarding.shared);
    }

    /// Gives up the client's own upstreams that do not answer the first request in time.
    fn end_overdue(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        forward: &mut Forwarding,
        timeout_ms: u64,
    ) {
        let now_ms = self.now_ms;
        let Some((number, entry)) = forward.window.front_mut() else {
            return;
        };
        if entry.blocks || entry.began_ms + timeout_ms > now_ms {
            return;
        }
        let awaited = |part: usize| Awaited::Part(id, number, part);
        let mut late = Vec::new();
        for part in 0..entry.parts_count() {
            let is_sent = entry
                .part_mut(part)
                .is_some_and(|it| it.stage == Stage::Sent);
            if is_sent {
                late.push(awaited(part));
            }
        }
        for at in 0..forward.own.len() {
            let upstream = forward.own.get_mut(at);
            if !late.iter().any(|one| upstream.queue.contains(one)) {
                continue;
            }
            if let Some(link) = upstream.open_link() {
                self.forwarding.upstreams.remove(&link);
                io.close(link);
            }
            forward.lose(at, "there was no answer in time", now_ms);
        }
    }

    /// Sends a request again that waited here for a key whose hash slot moved away. Returns false
    /// if `reply` does not say so.
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
        // The client waited, so none of its requests is pending at other nodes.
        forward.enter_lane(&connected.session, true);
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
        // The client keeps waiting.
        forward.is_paused = true;
        forward.try_again(self.now_ms, number, 0);
        self.put_forwarding(id, forward);
        true
    }
}

/// Records that a connection is open. Returns false if it is no longer wanted.
fn open(upstreams: &mut Upstreams, link: ConnectionId, serial: u64) -> bool {
    let mut all = upstreams.iter_mut();
    let wanted = all.find(|it| it.serial == serial && it.link == Link::Dialling);
    wanted.map(|it| it.link = Link::Open(link)).is_some()
}

/// Passes a reply to the client that waits for it.
fn hand_on(forward: &mut Forwarding, awaited: Awaited, reply: &[u8], now_ms: u64) {
    match awaited {
        Awaited::Silent => {}
        Awaited::Queued(_, number) => forward.take_queued(number, reply),
        Awaited::Part(_, number, part) => forward.take_reply(number, part, reply, now_ms),
    }
}

fn needs(consumed: usize, needed: usize) -> Received {
    Received {
        consumed,
        needed,
        then: Then::Continue,
    }
}

/// Returns the destination of a request that waited for keys.
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
        // The hash slot is this node's again.
        _ => routes
            .endpoints
            .get(usize::from(routes.own))
            .map_or(Aim::Slot(0), |own| Aim::Node(own.id)),
    }
}
