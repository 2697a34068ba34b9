//! How connections end.
//!
//! One that ends by the service's wish after its output was taken says so to its peer (no more will
//! be sent) and then lingers without the service, reading and dropping what still comes, until the
//! peer closes too or a time has passed: closing at once would reset the connection if any input
//! were unread, and a reset takes from the peer what it has not read yet.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;

use super::{EventLoop, Options, after, until};
use crate::connections::{ConnectionId, Phase};
use crate::detached::Detached;
use crate::service::{CloseReason, Service};

/// Connections that may linger; beyond, the oldest are closed.
const LINGERING_MAX: usize = 1024;

/// Connections without a service, oldest first.
pub(super) struct Lingering {
    clock: Arc<dyn Clock>,
    duration: Duration,
    /// With the time at which each is closed, on the monotonic clock; some may be gone already.
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

    /// How long until the oldest is closed.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let &(_, close_ns) = self.queue.front()?;
        Some(until(&*self.clock, close_ns))
    }

    fn push(&mut self, id: ConnectionId) {
        let close_ns = after(&*self.clock, self.duration);
        self.queue.push_back((id, close_ns));
    }

    /// One whose time is over or that is too many.
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
    /// Ends the connections whose phase says so and whose output is out.
    pub(super) fn end_connections(&mut self) {
        for id in mem::take(&mut self.state.ending) {
            let Some(connection) = self.state.connections.get(id) else {
                continue;
            };
            match connection.phase {
                Phase::Doomed(reason) => self.end(id, reason),
                Phase::Draining(reason) if connection.pending.is_none() => self.part(id, reason),
                // It may have been watched for input while output is held.
                Phase::Draining(_) => self.state.watch(id),
                Phase::Open | Phase::Lingering => {}
            }
        }
        while let Some(id) = self.lingering.pop_due() {
            self.state.remove(id);
        }
    }

    /// Closes all connections, when the loop is over.
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

    /// Drops what a lingering connection's peer still sends.
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

    /// Closes a connection at once. The service knows first: who sees the end of a connection can see what
    /// the service makes of it.
    fn end(&mut self, id: ConnectionId, reason: CloseReason) {
        self.service.closed(id, reason);
        self.state.remove(id);
        self.balancer.leave(self.worker);
    }

    /// Lets a connection that owes its peer nothing more leave the loop.
    fn hand_over(&mut self, id: ConnectionId) {
        if let Some(connection) = self.state.detach(id) {
            self.balancer.leave(self.worker);
            let detached = Detached::new(connection.carrier, connection.input);
            self.service.handed_over(id, detached);
        }
    }

    /// Closes a connection that owes its peer nothing more, without taking anything from it.
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
