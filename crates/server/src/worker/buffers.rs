//! What the clients of one worker hold in buffers: counted as it grows, looked at again while it
//! is there.
//!
//! The loop says when a client's unread output or incomplete input grows; from then on the client
//! is watched until both are gone, because three limits are limits in time: output above its soft
//! limit, a client on its way out that does not take what it is owed, and what all clients hold
//! together. Clients without buffers, which are nearly all, cost nothing here.

use std::sync::atomic::Ordering;

use commands::{ClientRecord, Session};
use reactor::{ConnectionId, Io, Verdict};

use super::{Connected, Sessions};
use crate::config::Config;
use crate::counters::{Count, WorkerCounters};
use crate::limits::{
    self, OutputState, UNAUTHENTICATED_BYTES_SPARED, UNAUTHENTICATED_INPUT_BYTES_MAX,
    UNAUTHENTICATED_OUTPUT_BYTES_MAX,
};

/// How long a client on its way out may take nothing of what it is still owed.
const DEPARTURE_MS_MAX: u64 = 10_000;

/// What the buffers of a worker's clients hold.
pub(super) struct Buffers {
    /// Clients that hold something; some may be gone already.
    watched: Vec<ConnectionId>,
    held_bytes: u64,
    unauthenticated_bytes: u64,
    /// What clients that have not authenticated may hold together.
    unauthenticated_bytes_max: u64,
    /// Something has grown since this was last asked.
    has_grown: bool,
}

/// What one client holds.
#[derive(Default)]
pub(super) struct Holding {
    /// Incomplete input.
    input_bytes: usize,
    /// Memory behind requests queued since MULTI, and watched keys.
    queue_bytes: usize,
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
            has_grown: false,
        }
    }

    /// What all of them hold together, in bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether what clients hold has grown since this was last asked.
    pub(super) fn take_growth(&mut self) -> bool {
        std::mem::take(&mut self.has_grown)
    }

    /// Whether something has grown that nobody asked about yet.
    pub(super) fn has_grown(&self) -> bool {
        self.has_grown
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
    /// [arriving](commands::arrival) apart: whether it may go on.
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
            self.account_sizes(connected);
        }
    }

    /// Requests may have run: counts those that a client has queued, if they became more or fewer.
    /// Whether it may go on.
    #[inline]
    pub(super) fn requests_ran(
        &mut self,
        connected: &mut Connected,
        config: &Config,
        now_ms: u64,
    ) -> Verdict {
        let was_empty = connected.holding.queue_bytes == 0;
        if was_empty && !connected.session.has_transaction() {
            return Verdict::Keep;
        }
        self.queue_changed(connected, config, now_ms)
    }

    #[cold]
    fn queue_changed(
        &mut self,
        connected: &mut Connected,
        config: &Config,
        now_ms: u64,
    ) -> Verdict {
        let before = connected.holding.queue_bytes;
        let queue_bytes = connected.session.transaction_bytes();
        connected.holding.queue_bytes = queue_bytes;
        if queue_bytes > before {
            self.grew(connected, now_ms);
        } else if queue_bytes < before {
            self.account_sizes(connected);
        }
        self.judge_input(connected, config)
    }

    /// Counts what a client holds at this moment, and gives it.
    pub(super) fn refresh(&mut self, connected: &mut Connected, io: &Io<'_>) -> u64 {
        let id = connected.id;
        let arrived_bytes = arrived_bytes(connected);
        let queue_bytes = connected.session.transaction_bytes();
        let holding = &mut connected.holding;
        holding.queue_bytes = queue_bytes;
        holding.input_bytes = io.input_bytes(id) + arrived_bytes;
        holding.output_bytes = io.pending_output_bytes(id);
        let Session {
            decoder, arrival, ..
        } = &connected.session;
        let arrival_bytes = arrival.as_ref().map_or(0, |arrival| arrival.held_bytes());
        let held_bytes = io.buffer_bytes(id) + decoder.held_bytes() + arrival_bytes + queue_bytes;
        self.account(connected, held_bytes as u64);
        connected.holding.held_bytes
    }

    /// The client is gone.
    pub(super) fn forget(&mut self, connected: &mut Connected) {
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
            counters.bump(Count::OutputLimitCloses);
            io.close(id);
        } else if self.judge_input(connected, config) == Verdict::Close {
            counters.bump(Count::QueryLimitCloses);
            io.close(id);
        }
        connected.holding.is_watched = held_bytes > 0;
        connected.holding.is_watched
    }

    fn grew(&mut self, connected: &mut Connected, now_ms: u64) {
        let holding = &mut connected.holding;
        if !holding.is_watched {
            holding.is_watched = true;
            holding.progress_ms = now_ms;
            self.watched.push(connected.id);
        }
        self.account_sizes(connected);
        self.has_grown = true;
    }

    /// Counts the bytes in a client's buffers, when the memory behind them is not known.
    fn account_sizes(&mut self, connected: &mut Connected) {
        let holding = &connected.holding;
        self.account(
            connected,
            (holding.input_bytes + holding.queue_bytes + holding.output_bytes) as u64,
        );
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
        for (cell, bytes) in [
            (&client.query_bytes, holding.input_bytes as u64),
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
        let limits = &config.output_limits;
        let is_subscriber = connected
            .session
            .client
            .has_flag(ClientRecord::PUBSUB | ClientRecord::MONITOR);
        let limit = if is_subscriber {
            &limits.pubsub
        } else {
            &limits.normal
        };
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

/// Bytes of a long argument that came apart from the rest of its request.
fn arrived_bytes(connected: &Connected) -> usize {
    let arrival = connected.session.arrival.as_ref();
    arrival.map_or(0, |arrival| arrival.arrived_bytes())
}
