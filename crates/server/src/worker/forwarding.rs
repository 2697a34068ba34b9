//! A worker's part of forwarding: its forwarding clients and their connections to other nodes
//! ([`crate::forward`]).

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use engine::hash_slots::Routes;
use engine::{Next, ReplyMode, Session};
use protocol::{Batch, Limits, ReplyBuffer, Request};
use reactor::{ConnectionId, Io, Received, Then, Verdict};

use super::running::SHARE;
use super::sessions::Connected;
use super::{Arena, Worker};
use crate::counters::bump;
use crate::forward::client::{Forwarding, Sender, nothing_done, owner_of};
use crate::forward::rules::{Own, Rules, Sent, Way};
use crate::forward::upstream::Upstreams;
use crate::forward::window::{Entry, Work};

/// Interval between two looks at clients with pending requests at other nodes.
pub(super) const LOOK_MS: u64 = 5;
/// Maximum number of requests that are decoded at once.
const BATCH: usize = 16;

/// State of a worker for all forwarding clients.
#[derive(Default)]
pub(super) struct ForwardingLoop {
    /// Upstreams that clients share.
    pub(super) shared: Upstreams,
    /// Connections to other nodes: the client, or `None` if shared, and the serial number of the
    /// upstream.
    pub(super) upstreams: HashMap<ConnectionId, (Option<ConnectionId>, u64)>,
    /// Clients with pending requests at other nodes.
    pub(super) busy: Vec<ConnectionId>,
    /// Connections to other nodes that ended.
    pub(super) lost: Vec<(Option<ConnectionId>, u64)>,
    /// Connections that are no longer needed.
    pub(super) unwanted: Vec<ConnectionId>,
    pub(super) look_due_ms: u64,
    batch: Batch,
    scratch: Option<ReplyBuffer>,
}

impl ForwardingLoop {
    /// Returns how long the loop may sleep.
    pub(super) fn left_ms(&self, now_ms: u64) -> Option<u64> {
        if !self.lost.is_empty() || !self.unwanted.is_empty() {
            return Some(0);
        }
        (!self.busy.is_empty()).then(|| self.look_due_ms.saturating_sub(now_ms).max(1))
    }

    /// Whether a connection leads to another node.
    pub(super) fn has(&self, id: ConnectionId) -> bool {
        self.upstreams.contains_key(&id)
    }
}

/// Why a worker stopped accepting requests of a client.
enum Ended {
    /// All complete requests were accepted; the next one needs so many bytes.
    NeedsMore(usize),
    /// No request is accepted until the pending ones are answered.
    Waits,
    /// The client has had its turn.
    Yields,
    /// As the [`Then`] says.
    With(Then),
}

impl Worker {
    /// As [`received`](reactor::Service::received), for a forwarding client.
    #[cold]
    pub(super) fn received_forwarding(
        &mut self,
        io: &mut Io<'_>,
        id: ConnectionId,
        input: &[u8],
        output: &mut Arena,
    ) -> Received {
        let Some(mut forward) = self.take_forwarding(id) else {
            return Received::consumed(input.len()).then(Then::CloseNow);
        };
        let mut at = 0;
        let ended = self.take_in(id, input, &mut at, output, &mut forward);
        Self::send_all(io, &mut forward.own);
        forward.window.drain(|replies| output.push_slice(replies));
        let then = match ended {
            Ended::With(then) => then,
            Ended::Yields => Then::Yield,
            Ended::Waits if forward.window.is_empty() => match forward.window.after.take() {
                Some(outcome) => self.go_on(id, &outcome, Verdict::Keep),
                None => Then::Yield,
            },
            Ended::Waits => {
                forward.is_paused = true;
                Then::Pause
            }
            Ended::NeedsMore(_) => Then::Continue,
        };
        let needed = match ended {
            Ended::NeedsMore(needed) => needed,
            _ => 0,
        };
        if forward.is_paused
            && let Some(connected) = self.sessions.get_mut(id)
        {
            connected.begin_to_be_blocked();
        }
        self.put_forwarding(id, forward);
        Received {
            consumed: at,
            needed,
            then,
        }
    }

    pub(super) fn take_forwarding(&mut self, id: ConnectionId) -> Option<Box<Forwarding>> {
        let connected = self.sessions.get_mut(id)?;
        Some(connected.forward.take().unwrap_or_default())
    }

    /// Whether a client no longer forwards and has no pending request: then it is served as other
    /// clients.
    #[cold]
    pub(super) fn ends_forwarding(&mut self, id: ConnectionId) -> bool {
        let Some(connected) = self.sessions.get_mut(id) else {
            return false;
        };
        let has_some = |forward: &Forwarding| !forward.window.is_empty();
        if connected.session.forwards || connected.forward.as_deref().is_some_and(has_some) {
            return false;
        }
        if let Some(forward) = connected.forward.take() {
            self.forwarding.unwanted.extend(forward.own.open_links());
        }
        true
    }

    /// Returns the forwarding state to its client, and lists the client for the next look.
    pub(super) fn put_forwarding(&mut self, id: ConnectionId, mut forward: Box<Forwarding>) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        if !forward.window.is_empty() && !forward.is_listed {
            forward.is_listed = true;
            if self.forwarding.busy.is_empty() {
                self.forwarding.look_due_ms = self.now_ms + LOOK_MS;
            }
            self.forwarding.busy.push(id);
        }
        connected.forward = Some(forward);
    }

    /// Accepts requests, up to the maximum that may be pending.
    fn take_in(
        &mut self,
        id: ConnectionId,
        input: &[u8],
        at: &mut usize,
        output: &mut Arena,
        forward: &mut Forwarding,
    ) -> Ended {
        let routes = self.node.core.shared.hash_slots.routes();
        let mut batch = std::mem::take(&mut self.forwarding.batch);
        let mut taken = 0;
        let ended = loop {
            if forward.window.is_full() {
                break Ended::Waits;
            }
            let rest = &input[*at..];
            let Some(connected) = self.sessions.get_mut(id) else {
                break Ended::With(Then::CloseNow);
            };
            if !connected.session.forwards && !forward.window.is_empty() {
                break Ended::Waits;
            }
            let (base, limits) = (*at, self.decoder_limits(id));
            let decoded = forward.decoder.decode(rest, &limits, BATCH, &mut batch);
            if let Some(ended) = self.take_batch(id, (&batch, rest), at, output, forward, &routes) {
                forward.decoder.reset();
                break ended;
            }
            *at = base + decoded.consumed;
            taken += batch.len();
            if decoded.error.is_some() {
                forward.decoder.reset();
                if !forward.window.is_empty() {
                    break Ended::Waits;
                }
                // The engine replies with the error.
                let rest = &input[*at..];
                let Some((outcome, verdict)) = self.run_engine(id, rest, output) else {
                    break Ended::With(Then::CloseNow);
                };
                *at += outcome.consumed;
                break Ended::With(self.go_on(id, &outcome, verdict));
            }
            if batch.is_empty() || *at == input.len() {
                break Ended::NeedsMore(decoded.needed);
            }
            if taken >= SHARE.requests_max {
                break Ended::Yields;
            }
        };
        self.forwarding.batch = batch;
        ended
    }

    fn decoder_limits(&mut self, id: ConnectionId) -> Limits {
        let settings = &self.node.core.shared.settings;
        let (bytes_max, arguments_max) = (
            settings.string_bytes_max(),
            settings.arguments_max.load(Ordering::Relaxed),
        );
        let connected = self.sessions.get_mut(id);
        Limits {
            bulk_bytes_max: bytes_max,
            multibulk_max: arguments_max,
            authenticated: connected.is_some_and(|it| it.session.authenticated),
            ..Limits::default()
        }
    }

    /// Accepts the requests of a batch. Returns why it stopped, if it did so before the end of the
    /// batch.
    fn take_batch(
        &mut self,
        id: ConnectionId,
        (batch, rest): (&Batch, &[u8]),
        at: &mut usize,
        output: &mut Arena,
        forward: &mut Forwarding,
        routes: &Routes,
    ) -> Option<Ended> {
        let base = *at;
        // Start of the adjacent requests that the engine will run.
        let (mut own_from, mut end) = (0, 0);
        for (index, request) in batch.iter(rest).enumerate() {
            let start = end;
            end = batch.end_of(index);
            let raw = &rest[start..end];
            let before = forward.window.bytes.len();
            let mut way = self.judge(id, forward, routes, (request, raw));
            if own_from < start && !matches!(way, Way::Own(Own::PLAIN)) {
                // The requests before it may change how this one is routed, so they run first.
                forward.window.bytes.truncate(before);
                *at = base + own_from;
                let ended = self.run_here(id, &rest[own_from..start], at, output, forward);
                if ended.is_some() {
                    return ended;
                }
                own_from = start;
                way = self.judge(id, forward, routes, (request, raw));
            }
            let is_alone = way.blocks() && !forward.window.is_empty();
            if forward.window.is_full() || is_alone || !self.enters_lane(id, forward, &way) {
                forward.window.bytes.truncate(before);
                *at = base + own_from;
                return Some(Ended::Waits);
            }
            if !self.take_one(id, forward, routes, way) {
                own_from = end;
                *at = base + end;
            }
        }
        if own_from < end {
            *at = base + own_from;
            return self.run_here(id, &rest[own_from..end], at, output, forward);
        }
        None
    }

    /// Decides how a request is handled. The bytes to send are appended to the window's bytes.
    fn judge(
        &mut self,
        id: ConnectionId,
        forward: &mut Forwarding,
        routes: &Routes,
        (request, raw): (Request<'_>, &[u8]),
    ) -> Way {
        let rules = Rules {
            table: self.node.core.env.table,
            routes,
            splits_writes: self.config.config().cluster.splits_writes,
            watched: forward.watched,
        };
        match self.sessions.get_mut(id) {
            Some(connected) if connected.session.forwards => {
                let bytes = &mut forward.window.bytes;
                rules.way(&connected.session, request, raw, bytes)
            }
            _ => Way::Own(Own::PLAIN),
        }
    }

    /// Whether a request may be sent while others are pending.
    fn enters_lane(&mut self, id: ConnectionId, forward: &mut Forwarding, way: &Way) -> bool {
        let (Way::One(sent, _) | Way::Several(sent, _)) = way else {
            return true;
        };
        let connected = self.sessions.get_mut(id);
        connected.is_none_or(|it| forward.enter_lane(&it.session, sent.needs_own))
    }

    /// Accepts a request. Returns whether the engine must run it.
    fn take_one(
        &mut self,
        id: ConnectionId,
        forward: &mut Forwarding,
        routes: &Routes,
        way: Way,
    ) -> bool {
        match way {
            Way::Own(own) => {
                if own.ends_watch {
                    let ended = forward.end_watch();
                    self.forwarding.unwanted.extend(ended);
                }
                return true;
            }
            Way::Refused(text) => {
                self.end_refused_exec(id, forward);
                let reply = format!("-{text}\r\n").into_bytes();
                forward.window.push_done(reply, self.now_ms);
            }
            Way::One(sent, part) => self.forward(id, forward, routes, sent, Work::One(part)),
            Way::Several(sent, merge) => {
                self.forward(id, forward, routes, sent, Work::Several(Box::new(merge)));
            }
        }
        false
    }

    /// Runs requests here. Returns why it stopped, unless all of them simply ran.
    fn run_here(
        &mut self,
        id: ConnectionId,
        requests: &[u8],
        at: &mut usize,
        output: &mut Arena,
        forward: &mut Forwarding,
    ) -> Option<Ended> {
        let is_first = forward.window.is_empty();
        let mut done = 0;
        while done < requests.len() {
            let rest = &requests[done..];
            let ran = if is_first {
                self.run_engine(id, rest, output)
            } else {
                let mut scratch = self.forwarding.scratch.take();
                let scratch = scratch.get_or_insert_with(|| ReplyBuffer::with_capacity(0));
                let ran = self.run_engine(id, rest, scratch);
                let reply = scratch.to_vec();
                if !reply.is_empty() {
                    forward.window.push_done(reply, self.now_ms);
                }
                ran
            };
            let Some((outcome, verdict)) = ran else {
                return Some(Ended::With(Then::CloseNow));
            };
            done += outcome.consumed;
            *at += outcome.consumed;
            let goes_on = matches!(outcome.next, Next::Read | Next::Yield);
            if goes_on && verdict == Verdict::Keep && outcome.consumed > 0 {
                continue;
            }
            if is_first {
                return Some(Ended::With(self.go_on(id, &outcome, verdict)));
            }
            if verdict == Verdict::Close {
                return Some(Ended::With(Then::CloseNow));
            }
            let did_not_run = matches!(
                outcome.next,
                Next::Paused | Next::Busy | Next::LogFull | Next::Elsewhere
            );
            if !did_not_run {
                forward.window.after = Some(outcome);
            }
            return Some(Ended::Waits);
        }
        None
    }

    /// Ends the transaction of a refused EXEC.
    fn end_refused_exec(&mut self, id: ConnectionId, forward: &mut Forwarding) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        if connected.session.transaction.is_some() {
            self.engine.end_transaction(&mut connected.session);
            let ended = forward.end_watch();
            self.forwarding.unwanted.extend(ended);
        }
    }

    /// Accepts a request for other nodes, and sends it.
    fn forward(
        &mut self,
        id: ConnectionId,
        forward: &mut Forwarding,
        routes: &Routes,
        sent: Sent,
        work: Work,
    ) {
        let Some(connected) = self.sessions.get_mut(id) else {
            return;
        };
        let session = &mut connected.session;
        bump(&session.client.requests, 1);
        let mut entry = Entry {
            work,
            reply: None,
            is_silent: is_silent(session),
            is_read: sent.is_read,
            blocks: sent.blocks,
            is_refused: false,
            is_conditional: false,
            began_ms: self.now_ms,
        };
        if sent.is_exec {
            entry.is_conditional = forward.watched.take().is_some();
            self.engine.end_transaction(session);
            if std::mem::take(&mut forward.is_watch_lost) {
                entry.reply = Some(nothing_done(session.resp).to_vec());
            }
        }
        if sent.watches
            && let Work::One(part) = &entry.work
        {
            forward.watched = owner_of(part.aim, routes);
        }
        let is_answered = entry.reply.is_some();
        let number = forward.window.push(entry);
        if sent.blocks {
            forward.window.is_barrier = true;
        }
        if !is_answered {
            let mut sender = Sender {
                node: &self.node,
                routes,
                shared: &mut self.forwarding.shared,
                worker: self.index,
                client: id,
                now_ms: self.now_ms,
            };
            forward.send(&mut sender, number);
        }
    }

    /// Passes unsent bytes to the open connections.
    pub(super) fn send_all(io: &mut Io<'_>, upstreams: &mut Upstreams) {
        for upstream in upstreams.iter_mut() {
            upstream.take_unsent(|link, bytes| io.write(link, bytes));
        }
    }
}

/// Whether the next reply is suppressed.
fn is_silent(session: &mut Session) -> bool {
    match session.reply_mode {
        ReplyMode::On => false,
        ReplyMode::Off => true,
        ReplyMode::SkipNext | ReplyMode::Skip => {
            session.reply_mode = ReplyMode::On;
            true
        }
    }
}

/// Whether a client forwards, or still has forwarding state.
#[inline]
pub(super) fn forwards(connected: &Connected) -> bool {
    connected.session.forwards || connected.forward.is_some()
}
