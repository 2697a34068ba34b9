//! Peers that send everything before they read anything.
//!
//! The loop does not read from a peer that does not read, so that it computes no more answers than
//! the peer takes. But a peer that first writes a long pipeline, and reads only then, waits until
//! its last request is read, while this side waits until its first reply is read: forever. So the
//! loop reads again from a connection whose socket accepted nothing for [`PATIENCE`], until
//! everything that waits for it was sent. The service limits how much that may become
//! ([`Service::output_limit`]).

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;

use super::{EventLoop, Options, after, until};
use crate::connections::ConnectionId;
use crate::service::Service;

/// How long a socket may accept nothing before its peer is assumed to wait for this side.
const PATIENCE: Duration = Duration::from_millis(50);

/// Connections whose sockets were full, each once (`is_suspect` is set), oldest first.
pub(super) struct Suspects {
    clock: Arc<dyn Clock>,
    /// Connections with the time at which each is checked, on the monotonic clock. Some may already
    /// be closed.
    queue: VecDeque<(ConnectionId, u64)>,
}

impl Suspects {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            clock: Arc::clone(&options.clock),
            queue: VecDeque::new(),
        }
    }

    /// Returns how long it is until the oldest is checked.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let &(_, look_ns) = self.queue.front()?;
        Some(until(&*self.clock, look_ns))
    }

    fn push(&mut self, id: ConnectionId) {
        let look_ns = after(&*self.clock, PATIENCE);
        self.queue.push_back((id, look_ns));
    }

    fn pop_due(&mut self) -> Option<ConnectionId> {
        let due = |&mut (_, look_ns): &mut (_, u64)| until(&*self.clock, look_ns).is_zero();
        self.queue.pop_front_if(due).map(|(id, _)| id)
    }
}

impl<S: Service> EventLoop<S> {
    /// Serves the connections whose sockets accepted nothing for a while.
    #[inline]
    pub(super) fn look_at_suspects(&mut self) {
        for id in mem::take(&mut self.state.blocked) {
            self.suspects.push(id);
        }
        while let Some(id) = self.suspects.pop_due() {
            self.look_at(id);
        }
    }

    #[cold]
    fn look_at(&mut self, id: ConnectionId) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        let is_full = connection.waits_for_socket();
        if is_full && mem::take(&mut connection.has_taken) {
            return self.suspects.push(id);
        }
        connection.is_suspect = false;
        if is_full {
            self.state.serve_insistent(id);
        }
    }
}
