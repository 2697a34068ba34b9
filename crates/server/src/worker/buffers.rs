//! What the clients of one worker hold in buffers: counted as it grows, looked at again while it
//! is there.
//!
//! The loop says when a client's unread output or incomplete input grows; from then on the client
//! is watched until both are gone, because three limits are limits in time: output above its soft
//! limit, a client on its way out that does not take what it is owed, and what all clients hold
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

/// How long a client on its way out may take nothing of what it is still owed.
const DEPARTURE_MS_MAX: u64 = 10_000;

/// Of an argument of this size, nothing but itself is told as unanswered input, as Redis does.
const LONG_ARGUMENT_BYTES: usize = 32 * 1024;

/// That so much is free at once is worth telling.
const MUCH_BYTES: usize = 16 * 1024;

/// What the buffers of a worker's clients hold.
pub(super) struct Buffers {
    /// Clients that hold something; some may be gone already.
    watched: Vec<ConnectionId>,
    held_bytes: u64,
    unauthenticated_bytes: u64,
    /// What clients that have not authenticated may hold together.
    unauthenticated_bytes_max: u64,
    /// Something has grown, or much has gone, since this was last asked.
    has_changed: bool,
    /// By how much sessions have grown since.
    untold_bytes: usize,
}

/// What one client holds.
#[derive(Default)]
pub(super) struct Holding {
    /// Incomplete input.
    input_bytes: usize,
    /// What of it stands before a long argument that is awaited: known already, and kept only because it
    /// lies there.
    header_bytes: usize,
    /// Memory behind requests queued since MULTI, watched keys, subscriptions and the like.
    session_bytes: usize,
    /// Memory behind a request that runs aside.
    offloaded_bytes: usize,
    /// Output that its socket did not take.
    output_bytes: usize,
    /// All of that, with the memory behind them as far as it is known.
    held_bytes: u64,
    /// Counted among those that have not authenticated.
    is_unauthenticated: bool,
    is_watched: bool,
    output: OutputState,
    /// When the client last took or sent something, as far as anybody looked.
    progress_ms: u64,
}

impl Buffers {
    /// Nothing is held; `workers_count` workers share what is allowed before authentication.
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

    /// What all of them hold together, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether what clients hold has grown, or become much less, since this was last asked.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Whether there was such a change that nobody asked about yet.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// A client's unread output has grown: whether it may go on.
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

    /// A client's incomplete input has grown, to so many bytes beside what is
    /// [arriving](engine::arrival) apart: whether it may go on.
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

    /// All of a client's input was consumed.
    #[inline]
    pub(super) fn input_gone(&mut self, connected: &mut Connected) {
        if connected.holding.input_bytes > 0 {
            connected.holding.input_bytes = 0;
            connected.holding.header_bytes = 0;
            self.account_sizes(connected);
        }
    }

    /// The incomplete `rest` of a client's input needs `needed` bytes.
    pub(super) fn awaits(connected: &mut Connected, rest: &[u8], needed: usize) {
        connected.holding.header_bytes = 0;
        if needed >= LONG_ARGUMENT_BYTES {
            let awaited = protocol::awaited_argument(rest);
            let long = awaited.filter(|awaited| awaited.len >= LONG_ARGUMENT_BYTES);
            connected.holding.header_bytes = long.map_or(0, |awaited| awaited.start);
        }
    }

    /// Requests may have run: counts what a client's session holds, if that became more or less. Whether
    /// it may go on.
    #[inline]
    pub(super) fn requests_ran(&mut self, connected: &mut Connected, config: &Config) -> Verdict {
        let was_empty = connected.holding.session_bytes == 0;
        if was_empty && !connected.session.holds_memory() {
            return Verdict::Keep;
        }
        self.session_changed(connected, config)
    }

    /// A request of so many bytes runs aside from now on, or none any more.
    pub(super) fn runs_aside(&mut self, connected: &mut Connected, bytes: usize) {
        connected.holding.offloaded_bytes = bytes;
        connected.holding.session_bytes = connected.session.held_bytes();
        self.account_sizes(connected);
        self.note_growth(bytes);
    }

    /// Requests of a client of the memcached port hold so many bytes while they wait, or none any more.
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

    /// Counts what a client holds at this moment, and gives it.
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

    /// The client is gone.
    pub(super) fn forget(&mut self, connected: &mut Connected) {
        // Else writes would be refused for its sake until somebody looks.
        self.has_changed |= connected.holding.held_bytes >= MUCH_BYTES as u64;
        self.account(connected, 0);
    }

    /// Looks at all clients that hold something, and closes those that reached a limit in time.
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

    /// Looks at one client; whether it is to be watched further.
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
        // What a session holds stays as it is until the client sends something.
        let Holding {
            session_bytes,
            offloaded_bytes,
            ..
        } = connected.holding;
        connected.holding.is_watched = held_bytes > (session_bytes + offloaded_bytes) as u64;
        connected.holding.is_watched
    }

    /// Has somebody look at what all hold before long when sessions have come to hold much more; a
    /// little is found out in time.
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

    /// Counts the bytes in a client's buffers, when the memory behind them is not known.
    fn account_sizes(&mut self, connected: &mut Connected) {
        let holding = &connected.holding;
        let buffer_bytes = holding.input_bytes + holding.output_bytes;
        let held_bytes = buffer_bytes + holding.session_bytes + holding.offloaded_bytes;
        self.account(connected, held_bytes as u64);
    }

    /// Counts what a client holds now, and says so in its record.
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

    /// Whether a client that has not authenticated has to go because all of them hold too much.
    fn is_too_much(&self, connected: &Connected) -> bool {
        self.unauthenticated_bytes > self.unauthenticated_bytes_max
            && connected.holding.held_bytes > UNAUTHENTICATED_BYTES_SPARED
    }
}

/// Whether a client may be sent so many bytes, be they read or not: a hard limit bounds what a request
/// answers with, too.
pub(super) fn judge_replies(connected: &Connected, bytes: usize, config: &Config) -> Verdict {
    let limit = output_limit_of(connected, config);
    if limit.hard_bytes != 0 && bytes as u64 > limit.hard_bytes {
        Verdict::Close
    } else {
        Verdict::Keep
    }
}

/// The limit of a client's class.
fn output_limit_of<'a>(connected: &Connected, config: &'a Config) -> &'a OutputLimit {
    let limits = &config.output_limits;
    let client = &connected.session.client;
    if client.has_flag(ClientRecord::PUBSUB | ClientRecord::MONITOR) {
        &limits.pubsub
    } else {
        &limits.normal
    }
}

/// Bytes of a long argument that came apart from the rest of its request.
fn arrived_bytes(connected: &Connected) -> usize {
    let arrival = connected.session.arrival.as_ref();
    arrival.map_or(0, |arrival| arrival.arrived_bytes())
}
