//! Buffers of the clients of one worker: counted when they grow, and checked again while they
//! exist.
//!
//! The loop reports when a client's unread output or incomplete input grows. From then on the
//! client is watched until both are gone, because three limits depend on time: output above its
//! soft limit, a closing client that does not take its output, and the memory of all clients
//! together. Clients without buffers, which are nearly all, cost nothing here.

use std::sync::atomic::Ordering;

use engine::{ClientRecord, Session};
use reactor::{ConnectionId, Io, Verdict};

use super::sessions::{Connected, Sessions};
use crate::config::{Config, OutputLimit};
use crate::counters::{Count, WorkerCounters};
use crate::limits::{
    self, OutputState, UNAUTHENTICATED_BYTES_SPARED, UNAUTHENTICATED_INPUT_BYTES_MAX,
    UNAUTHENTICATED_OUTPUT_BYTES_MAX,
};

/// Maximum time that a closing client may take nothing of its remaining output.
const DEPARTURE_MS_MAX: u64 = 10_000;

/// Length from which an argument alone is reported as unanswered input, without its header, as in
/// Redis.
const LONG_ARGUMENT_BYTES: usize = 32 * 1024;

/// Change of the held memory that is worth a report.
const MUCH_BYTES: usize = 16 * 1024;

/// Memory in the buffers of a worker's clients.
pub(super) struct Buffers {
    /// Clients that hold something. Some may be closed already.
    watched: Vec<ConnectionId>,
    held_bytes: u64,
    unauthenticated_bytes: u64,
    /// Limit for the clients that have not authenticated, together.
    unauthenticated_bytes_max: u64,
    /// Whether the memory has grown, or shrunk much, since the last query.
    has_changed: bool,
    /// Growth of sessions since the last report.
    untold_bytes: usize,
}

/// Memory of one client.
#[derive(Default)]
pub(super) struct Holding {
    /// Incomplete input.
    input_bytes: usize,
    /// The part of it before a long argument that is awaited: already parsed, and kept only because
    /// it lies there.
    header_bytes: usize,
    /// Memory of requests queued since MULTI, watched keys, subscriptions and the like.
    session_bytes: usize,
    /// Memory of an offloaded request.
    offloaded_bytes: usize,
    /// Output that the socket did not take.
    output_bytes: usize,
    /// Sum of the above, with the capacity of the buffers as far as it is known.
    held_bytes: u64,
    /// Whether it counts among the clients that have not authenticated.
    is_unauthenticated: bool,
    is_watched: bool,
    output: OutputState,
    /// Time at which a check last saw the client take or send something.
    progress_ms: u64,
}

impl Buffers {
    /// Starts with nothing held. `workers_count` workers share the limit for clients that have not
    /// authenticated.
    pub(super) fn new(workers_count: usize) -> Self {
        Self {
            watched: Vec::new(),
            held_bytes: 0,
            unauthenticated_bytes: 0,
            unauthenticated_bytes_max: limits::unauthenticated_bytes_max(workers_count),
            has_changed: false,
            untold_bytes: 0,
        }
    }

    /// Returns the memory of all clients together, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Returns and clears whether the memory has grown, or shrunk much, since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Whether there was such a change since the last [`take_change`](Self::take_change).
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Records that a client's unread output has grown. Returns whether the client may continue.
    pub(super) fn output_grew(
        &mut self,
        connected: &mut Connected,
        pending_bytes: usize,
        config: &Config,
        now_ms: u64,
    ) -> Verdict {
        connected.holding.output_bytes = pending_bytes;
        self.grew(connected, now_ms);
        self.judge_output(connected, config, now_ms)
    }

    /// Records that a client's incomplete input has grown to `buffered_bytes`, without a [bulk
    /// upload](engine::arrival). Returns whether the client may continue.
    pub(super) fn input_grew(
        &mut self,
        connected: &mut Connected,
        buffered_bytes: usize,
        config: &Config,
        now_ms: u64,
    ) -> Verdict {
        connected.holding.input_bytes = buffered_bytes + arrived_bytes(connected);
        self.grew(connected, now_ms);
        self.judge_input(connected, config)
    }

    /// Records that all of a client's input was consumed.
    #[inline]
    pub(super) fn input_gone(&mut self, connected: &mut Connected) {
        if connected.holding.input_bytes > 0 {
            connected.holding.input_bytes = 0;
            connected.holding.header_bytes = 0;
            self.account_sizes(connected);
        }
    }

    /// Records that the incomplete `rest` of a client's input needs `needed` bytes.
    pub(super) fn awaits(connected: &mut Connected, rest: &[u8], needed: usize) {
        connected.holding.header_bytes = 0;
        if needed >= LONG_ARGUMENT_BYTES {
            let awaited = protocol::awaited_argument(rest);
            let long = awaited.filter(|awaited| awaited.len >= LONG_ARGUMENT_BYTES);
            connected.holding.header_bytes = long.map_or(0, |awaited| awaited.start);
        }
    }

    /// Counts the memory of a client's session, if requests changed it. Returns whether the client
    /// may continue.
    #[inline]
    pub(super) fn requests_ran(&mut self, connected: &mut Connected, config: &Config) -> Verdict {
        let was_empty = connected.holding.session_bytes == 0;
        if was_empty && !connected.session.holds_memory() {
            return Verdict::Keep;
        }
        self.session_changed(connected, config)
    }

    /// Records that an offloaded request of so many bytes runs from now on; 0 means that it has
    /// ended.
    pub(super) fn runs_aside(&mut self, connected: &mut Connected, bytes: usize) {
        connected.holding.offloaded_bytes = bytes;
        connected.holding.session_bytes = connected.session.held_bytes();
        self.account_sizes(connected);
        self.note_growth(bytes);
    }

    /// Records the bytes that waiting requests of a client of the memcached port hold; 0 means none
    /// any more.
    pub(super) fn memcached_holds(&mut self, connected: &mut Connected, bytes: usize) {
        if bytes != connected.holding.offloaded_bytes {
            self.runs_aside(connected, bytes);
        }
    }

    #[cold]
    fn session_changed(&mut self, connected: &mut Connected, config: &Config) -> Verdict {
        let before = connected.holding.session_bytes;
        let session_bytes = connected.session.held_bytes();
        connected.holding.session_bytes = session_bytes;
        if session_bytes != before {
            self.account_sizes(connected);
            self.note_growth(session_bytes.saturating_sub(before));
        }
        self.judge_input(connected, config)
    }

    /// Counts the present memory of a client and returns it.
    pub(super) fn refresh(&mut self, connected: &mut Connected, io: &Io<'_>) -> u64 {
        let id = connected.id;
        let arrived_bytes = arrived_bytes(connected);
        let session_bytes = connected.session.held_bytes();
        let holding = &mut connected.holding;
        holding.session_bytes = session_bytes;
        let offloaded_bytes = holding.offloaded_bytes;
        holding.input_bytes = io.input_bytes(id) + arrived_bytes;
        holding.output_bytes = io.pending_output_bytes(id);
        let Session {
            decoder, arrival, ..
        } = &connected.session;
        let arrival_bytes = arrival.as_ref().map_or(0, |arrival| arrival.held_bytes());
        let buffer_bytes = io.buffer_bytes(id) + decoder.held_bytes() + arrival_bytes;
        let held_bytes = buffer_bytes + session_bytes + offloaded_bytes;
        self.account(connected, held_bytes as u64);
        connected.holding.held_bytes
    }

    /// Forgets a client that is gone.
    pub(super) fn forget(&mut self, connected: &mut Connected) {
        // Otherwise writes would be refused because of its memory until the next check.
        self.has_changed |= connected.holding.held_bytes >= MUCH_BYTES as u64;
        self.account(connected, 0);
    }

    /// Checks all clients that hold something, and closes those that reached a time limit.
    pub(super) fn look(
        &mut self,
        sessions: &mut Sessions,
        io: &mut Io<'_>,
        config: &Config,
        counters: &WorkerCounters,
        now: (u64, u64),
    ) {
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|&id| {
            sessions
                .get_mut(id)
                .is_some_and(|connected| self.look_at(connected, io, config, counters, now))
        });
        self.watched = watched;
    }

    /// Checks one client. Returns whether it must be watched further.
    fn look_at(
        &mut self,
        connected: &mut Connected,
        io: &mut Io<'_>,
        config: &Config,
        counters: &WorkerCounters,
        (now_ms, now_unix_ms): (u64, u64),
    ) -> bool {
        let id = connected.id;
        let input_bytes = io.input_bytes(id) + arrived_bytes(connected);
        let output_bytes = io.pending_output_bytes(id);
        let holding = &mut connected.holding;
        if output_bytes < holding.output_bytes || input_bytes > holding.input_bytes {
            holding.progress_ms = now_ms;
            let active_unix_ms = &connected.session.client.active_unix_ms;
            active_unix_ms.store(now_unix_ms, Ordering::Relaxed);
        }
        let held_bytes = self.refresh(connected, io);
        let stuck_ms = now_ms.saturating_sub(connected.holding.progress_ms);
        if io.is_closing(id) && stuck_ms > DEPARTURE_MS_MAX {
            io.close(id);
        } else if self.judge_output(connected, config, now_ms) == Verdict::Close {
            if io.close(id) {
                counters.bump(Count::OutputLimitCloses);
            }
        } else if self.judge_input(connected, config) == Verdict::Close && io.close(id) {
            counters.bump(Count::QueryLimitCloses);
        }
        // The session's memory does not change until the client sends something.
        let Holding {
            session_bytes,
            offloaded_bytes,
            ..
        } = connected.holding;
        connected.holding.is_watched = held_bytes > (session_bytes + offloaded_bytes) as u64;
        connected.holding.is_watched
    }

    /// Reports a change soon if sessions have grown much. Small growth is found by the regular
    /// checks.
    fn note_growth(&mut self, bytes: usize) {
        self.untold_bytes += bytes;
        if self.untold_bytes >= MUCH_BYTES {
            self.untold_bytes = 0;
            self.has_changed = true;
        }
    }

    fn grew(&mut self, connected: &mut Connected, now_ms: u64) {
        let holding = &mut connected.holding;
        if !holding.is_watched {
            holding.is_watched = true;
            holding.progress_ms = now_ms;
            self.watched.push(connected.id);
        }
        self.account_sizes(connected);
        self.has_changed = true;
    }

    /// Counts the bytes in a client's buffers, while their capacity is unknown.
    fn account_sizes(&mut self, connected: &mut Connected) {
        let holding = &connected.holding;
        let buffer_bytes = holding.input_bytes + holding.output_bytes;
        let held_bytes = buffer_bytes + holding.session_bytes + holding.offloaded_bytes;
        self.account(connected, held_bytes as u64);
    }

    /// Counts a client's memory, and stores it in its record.
    fn account(&mut self, connected: &mut Connected, held_bytes: u64) {
        let Connected {
            session, holding, ..
        } = connected;
        self.held_bytes = self.held_bytes - holding.held_bytes + held_bytes;
        if holding.is_unauthenticated {
            self.unauthenticated_bytes -= holding.held_bytes;
        }
        holding.held_bytes = held_bytes;
        holding.is_unauthenticated = !session.authenticated;
        if holding.is_unauthenticated {
            self.unauthenticated_bytes += held_bytes;
        }
        let client = &session.client;
        let query_bytes = holding.input_bytes.saturating_sub(holding.header_bytes);
        for (cell, bytes) in [
            (&client.query_bytes, query_bytes as u64),
            (&client.output_bytes, holding.output_bytes as u64),
            (&client.held_bytes, held_bytes),
        ] {
            cell.store(bytes, Ordering::Relaxed);
        }
    }

    fn judge_output(&self, connected: &mut Connected, config: &Config, now_ms: u64) -> Verdict {
        let output_bytes = connected.holding.output_bytes as u64;
        if !connected.session.authenticated
            && (output_bytes > UNAUTHENTICATED_OUTPUT_BYTES_MAX || self.is_too_much(connected))
        {
            return Verdict::Close;
        }
        let limit = output_limit_of(connected, config);
        connected.holding.output.judge(limit, output_bytes, now_ms)
    }

    fn judge_input(&self, connected: &Connected, config: &Config) -> Verdict {
        let transaction = connected.session.transaction.as_ref();
        let queued_bytes = transaction.map_or(0, |transaction| transaction.wire_bytes());
        let input_bytes = (connected.holding.input_bytes + queued_bytes) as u64;
        let is_too_much = if connected.session.authenticated {
            input_bytes > config.query_buffer_bytes_max
        } else {
            input_bytes > UNAUTHENTICATED_INPUT_BYTES_MAX || self.is_too_much(connected)
        };
        if is_too_much {
            Verdict::Close
        } else {
            Verdict::Keep
        }
    }

    /// Whether a client that has not authenticated must be closed because all such clients hold too
    /// much.
    fn is_too_much(&self, connected: &Connected) -> bool {
        self.unauthenticated_bytes > self.unauthenticated_bytes_max
            && connected.holding.held_bytes > UNAUTHENTICATED_BYTES_SPARED
    }
}

/// Whether a client may be sent so many bytes, read or not: a hard limit also bounds the replies of
/// one request.
pub(super) fn judge_replies(connected: &Connected, bytes: usize, config: &Config) -> Verdict {
    let limit = output_limit_of(connected, config);
    if limit.hard_bytes != 0 && bytes as u64 > limit.hard_bytes {
        Verdict::Close
    } else {
        Verdict::Keep
    }
}

/// Returns the limit of a client's class.
fn output_limit_of<'a>(connected: &Connected, config: &'a Config) -> &'a OutputLimit {
    let limits = &config.output_limits;
    let client = &connected.session.client;
    if client.has_flag(ClientRecord::PUBSUB | ClientRecord::MONITOR) {
        &limits.pubsub
    } else {
        &limits.normal
    }
}

/// Returns the received bytes of a bulk upload.
fn arrived_bytes(connected: &Connected) -> usize {
    let arrival = connected.session.arrival.as_ref();
    arrival.map_or(0, |arrival| arrival.arrived_bytes())
}
