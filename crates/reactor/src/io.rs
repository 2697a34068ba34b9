//! What a service may ask of the loop while it is called.

use std::sync::Arc;

use crate::connections::{ConnectionId, Phase};
use crate::loop_state::LoopState;
use crate::service::{CloseReason, Traffic, WATERMARKS};
use crate::waker::Waker;

/// The loop's side of a call of a [`Service`](crate::Service). Stale ids are ignored everywhere.
pub struct Io<'a> {
    state: &'a mut LoopState,
}

impl<'a> Io<'a> {
    pub(crate) fn new(state: &'a mut LoopState) -> Self {
        Self { state }
    }

    /// Ends a connection without waiting for a slow reader: what its socket takes at once of what
    /// was written so far is sent. Whether that is news: what ends already, ends for the first reason.
    pub fn close(&mut self, id: ConnectionId) -> bool {
        self.state.close(id, Phase::Doomed(CloseReason::Requested))
    }

    /// Ends a connection once all that was written so far was taken. Nothing more is read from it.
    pub fn close_after_flush(&mut self, id: ConnectionId) {
        self.state
            .close(id, Phase::Draining(CloseReason::Requested));
    }

    /// Stops serving a connection until it is resumed, as [`Then::Pause`](crate::Then::Pause)
    /// does, from outside of its own call.
    pub fn pause(&mut self, id: ConnectionId) {
        self.state.pause(id);
    }

    /// Serves a paused connection again, from the input that it left.
    pub fn resume(&mut self, id: ConnectionId) {
        self.state.resume(id);
    }

    /// Sends `bytes` to a connection, after everything written to it so far. Copies them. Not for
    /// the connection whose `received` is being called: that one has the output arena.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.state.write(id, bytes);
    }

    /// Sends `bytes` to a connection, after everything written to it so far, from where they lie: for
    /// what many connections get. Not for the connection whose `received` is being called.
    pub fn write_shared(&mut self, id: ConnectionId, bytes: &Arc<[u8]>) {
        self.state.write_shared(id, bytes);
    }

    /// Sends to `id` what was written to the output arena since the last call of this method (or
    /// since the arena was handed to the service), up to its length `output_bytes`. Only in
    /// [`Service::woken`](crate::Service::woken) and [`Service::turn`](crate::Service::turn);
    /// what is not addressed is dropped.
    pub fn address(&mut self, id: ConnectionId, output_bytes: usize) {
        self.state.outbox.address(Some(id), output_bytes);
    }

    /// Sends what waits for a ticket that the watermarks have reached
    /// ([`Service::before_flush`](crate::Service::before_flush)).
    pub fn release(&mut self, up_to: &[u64; WATERMARKS]) {
        self.state.release(up_to);
    }

    /// The connections with output that waits for a ticket, in the order of their tickets.
    #[must_use]
    pub fn held(&self) -> Vec<ConnectionId> {
        self.state.held_ids()
    }

    /// Sends what a connection is owed, whatever ticket it waits for.
    pub fn release_one(&mut self, id: ConnectionId) {
        self.state.release_one(id, &[u64::MAX; WATERMARKS]);
    }

    /// Drops what of a connection waits for a ticket, if any does, sends it `line` instead, and ends the
    /// connection once that was taken.
    pub fn refuse_held(&mut self, id: ConnectionId, line: &[u8]) {
        self.state.refuse_held(id, line);
    }

    /// Whether the connection is on its way out: it is not read from any more, and ends at the
    /// latest when the output it is owed was taken.
    #[must_use]
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(id);
        connection.is_none_or(|connection| connection.phase != Phase::Open)
    }

    /// What went through all connections of this loop so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.state.traffic
    }

    /// Bytes of output that the connection's socket did not take yet.
    #[must_use]
    pub fn pending_output_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.pending_bytes())
    }

    /// Bytes of unconsumed input kept for the connection.
    #[must_use]
    pub fn input_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.input.len())
    }

    /// Bytes of memory that the buffers of one connection hold: input and output.
    #[must_use]
    pub fn buffer_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.buffer_bytes())
    }

    /// Bytes of memory that the buffers of all connections of this loop hold. Looks at each.
    #[must_use]
    pub fn buffer_bytes_total(&self) -> usize {
        self.state
            .connections
            .iter()
            .map(|connection| connection.buffer_bytes())
            .sum()
    }

    /// How many connections this loop has, those that wait for their peer to close included.
    #[must_use]
    pub fn connections_count(&self) -> usize {
        self.state.connections.len()
    }

    /// The waker of this loop.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.state.waker.clone()
    }

    /// Ends the loop after this turn: what sockets take at once is sent, then every connection is
    /// closed with [`CloseReason::Stopped`].
    pub fn stop(&mut self) {
        self.state.stopping = true;
    }
}
