//! Requests of a service to the loop during a call.

use std::sync::Arc;

use crate::connections::{ConnectionId, Phase};
use crate::loop_state::LoopState;
use crate::service::{CloseReason, Traffic, WATERMARKS};
use crate::waker::Waker;

/// The loop's interface during a call of a [`Service`](crate::Service). Ignores stale ids
/// everywhere.
pub struct Io<'a> {
    state: &'a mut LoopState,
}

impl<'a> Io<'a> {
    pub(crate) fn new(state: &'a mut LoopState) -> Self {
        Self { state }
    }

    /// Ends a connection without waiting for a slow reader: sends as much of the output so far as
    /// its socket accepts at once. Returns whether this has an effect: a connection that is already
    /// ending keeps its first reason.
    pub fn close(&mut self, id: ConnectionId) -> bool {
        self.state.close(id, Phase::Doomed(CloseReason::Requested))
    }

    /// Ends a connection after all output so far was sent. Nothing more is read from it.
    pub fn close_after_flush(&mut self, id: ConnectionId) {
        self.state
            .close(id, Phase::Draining(CloseReason::Requested));
    }

    /// Stops serving a connection until it is resumed, as [`Then::Pause`](crate::Then::Pause) does,
    /// but from outside the connection's own call.
    pub fn pause(&mut self, id: ConnectionId) {
        self.state.pause(id);
    }

    /// Serves a paused connection again, beginning with its unconsumed input.
    pub fn resume(&mut self, id: ConnectionId) {
        self.state.resume(id);
    }

    /// Sends a copy of `bytes` to a connection, after everything written to it so far. Not for the
    /// connection whose `received` is being called, which has the output arena.
    pub fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.state.write(id, bytes);
    }

    /// Sends `bytes` to a connection without copying them, after everything written to it so far.
    /// For bytes that many connections get. Not for the connection whose `received` is being
    /// called.
    pub fn write_shared(&mut self, id: ConnectionId, bytes: &Arc<[u8]>) {
        self.state.write_shared(id, bytes);
    }

    /// Sends to `id` what was written to the output arena since the last call of this method (or
    /// since the arena was passed to the service), up to its length `output_bytes`. Only in
    /// [`Service::woken`](crate::Service::woken) and [`Service::turn`](crate::Service::turn).
    /// Output that is not addressed is dropped.
    pub fn address(&mut self, id: ConnectionId, output_bytes: usize) {
        self.state.outbox.address(Some(id), output_bytes);
    }

    /// Sends the output whose tickets the watermarks have reached
    /// ([`Service::before_flush`](crate::Service::before_flush)).
    pub fn release(&mut self, up_to: &[u64; WATERMARKS]) {
        self.state.release(up_to);
    }

    /// Returns the connections with output that waits for a ticket, in the order of their tickets.
    #[must_use]
    pub fn held(&self) -> Vec<ConnectionId> {
        self.state.held_ids()
    }

    /// Sends the held output of a connection, whatever ticket it waits for.
    pub fn release_one(&mut self, id: ConnectionId) {
        self.state.release_one(id, &[u64::MAX; WATERMARKS]);
    }

    /// If output of a connection waits for a ticket, replaces it by `line`, and ends the connection
    /// after that was sent.
    pub fn refuse_held(&mut self, id: ConnectionId, line: &[u8]) {
        self.state.refuse_held(id, line);
    }

    /// Whether the connection is ending: nothing more is read from it, and it ends at the latest
    /// after its pending output was sent.
    #[must_use]
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        let connection = self.state.connections.get(id);
        connection.is_none_or(|connection| connection.phase != Phase::Open)
    }

    /// Returns the traffic of all connections of this loop so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.state.traffic
    }

    /// Returns the bytes of output that the connection's socket has not accepted yet.
    #[must_use]
    pub fn pending_output_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.pending_bytes())
    }

    /// Returns the bytes of unconsumed input of the connection.
    #[must_use]
    pub fn input_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.input.len())
    }

    /// Returns the bytes of one connection's input and output buffers.
    #[must_use]
    pub fn buffer_bytes(&self, id: ConnectionId) -> usize {
        let connection = self.state.connections.get(id);
        connection.map_or(0, |connection| connection.buffer_bytes())
    }

    /// Returns the bytes of the buffers of all connections of this loop. Visits each connection.
    #[must_use]
    pub fn buffer_bytes_total(&self) -> usize {
        self.state
            .connections
            .iter()
            .map(|connection| connection.buffer_bytes())
            .sum()
    }

    /// Returns the number of connections of this loop, including those that wait for their peer to
    /// close.
    #[must_use]
    pub fn connections_count(&self) -> usize {
        self.state.connections.len()
    }

    /// Returns the waker of this loop.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.state.waker.clone()
    }

    /// Ends the loop after this turn: sends what sockets accept at once, then closes every
    /// connection with [`CloseReason::Stopped`].
    pub fn stop(&mut self) {
        self.state.stopping = true;
    }
}
