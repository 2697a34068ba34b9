//! The end of connections.
//!
//! If the service wants a connection to end after its output was sent, the loop signals to the peer
//! that no more will be sent. The connection then lingers without the service: the loop reads and
//! drops further input until the peer closes, too, or a time has passed. Closing at once would
//! reset the connection if any input were unread, and then the peer would lose what it has not read
//! yet.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;

use super::{EventLoop, Options, after, until};
use crate::connections::{ConnectionId, Phase};
use crate::detached::Detached;
use crate::service::{CloseReason, Service};

/// Maximum number of lingering connections. Beyond it, the oldest are closed.
const LINGERING_MAX: usize = 1024;

/// Connections without a service, oldest first.
pub(super) struct Lingering {
    clock: Arc<dyn Clock>,
    duration: Duration,
    /// Connections with the time at which each is closed, on the monotonic clock. Some may already
    /// be closed.
    queue: VecDeque<(ConnectionId, u64)>,
}

impl Lingering {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            clock: Arc::clone(&options.clock),
            duration: options.linger,
            queue: VecDeque::new(),
        }
    }

    /// Returns how long it is until the oldest is closed.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let &(_, close_ns) = self.queue.front()?;
        Some(until(&*self.clock, close_ns))
    }

    fn push(&mut self, id: ConnectionId) {
        let close_ns = after(&*self.clock, self.duration);
        self.queue.push_back((id, close_ns));
    }

    /// Takes a connection whose time is over or that exceeds the maximum.
    fn pop_due(&mut self) -> Option<ConnectionId> {
        let &(id, close_ns) = self.queue.front()?;
        if self.queue.len() <= LINGERING_MAX && !until(&*self.clock, close_ns).is_zero() {
            return None;
        }
        self.queue.pop_front();
        Some(id)
    }
}

impl<S: Service> EventLoop<S> {
    /// Ends the connections whose phase requires it and whose output is sent.
    pub(super) fn end_connections(&mut self) {
        for id in mem::take(&mut self.state.ending) {
            let Some(connection) = self.state.connections.get(id) else {
                continue;
            };
            match connection.phase {
                Phase::Doomed(reason) => self.end(id, reason),
                Phase::Draining(reason) if connection.pending.is_none() => self.part(id, reason),
                // It may have been watched for input while its output was held.
                Phase::Draining(_) => self.state.watch(id),
                Phase::Open | Phase::Lingering => {}
            }
        }
        while let Some(id) = self.lingering.pop_due() {
            self.state.remove(id);
        }
    }

    /// Closes all connections at the end of the loop.
    pub(super) fn close_all(&mut self) {
        for id in self.state.connections.ids() {
            match self.state.connections.get(id) {
                Some(connection) if connection.phase == Phase::Lingering => {
                    self.state.remove(id);
                }
                _ => self.end(id, CloseReason::Stopped),
            }
        }
        while self.balancer.take(self.worker).is_some() {
            self.balancer.leave(self.worker);
        }
    }

    /// Drops the input of a lingering connection.
    pub(super) fn discard_input(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        match connection.carrier.recv(&mut self.buffer) {
            Ok(count) if count > 0 => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => {
                self.state.remove(id);
            }
        }
    }

    /// Closes a connection at once. Notifies the service first, so that a peer that sees the end of
    /// its connection can already see the service's reaction.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) {
        self.service.closed(id, reason);
        self.state.remove(id);
        self.balancer.leave(self.worker);
    }

    /// Removes a connection without pending output from the loop and hands it to the service.
    fn hand_over(&mut self, id: ConnectionId) {
        if let Some(connection) = self.state.detach(id) {
            self.balancer.leave(self.worker);
            let detached = Detached::new(connection.carrier, connection.input);
            self.service.handed_over(id, detached);
        }
    }

    /// Closes a connection without pending output, so that the peer loses nothing.
    fn part(&mut self, id: ConnectionId, reason: CloseReason) {
        if reason == CloseReason::PeerClosed {
            return self.end(id, reason);
        }
        if reason == CloseReason::HandedOver {
            return self.hand_over(id);
        }
        self.service.closed(id, reason);
        if let Some(connection) = self.state.connections.get_mut(id) {
            connection.carrier.shutdown_send();
            connection.input = Vec::new();
            connection.phase = Phase::Lingering;
        }
        self.balancer.leave(self.worker);
        self.state.watch(id);
        self.lingering.push(id);
        self.discard_input(id);
    }
}
