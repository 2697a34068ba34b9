//! The part of a loop that a service reaches through [`Io`](crate::Io): connections, the output
//! written to them, and the lists of connections that need attention.
//!
//! Nothing here calls the service, so a service's call can change all of it. The loop handles the
//! consequences after the call returned.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::balancer::Newcomer;
use crate::connections::{Connection, ConnectionId, Connections, Interest, Phase};
use crate::outbox::Outbox;
use crate::service::{CloseReason, Traffic, WATERMARKS};
use crate::transport::Source;
use crate::waker::Waker;

/// The state of a loop. See the module documentation.
pub(crate) struct LoopState {
    pub(crate) epoll: OwnedFd,
    pub(crate) waker: Waker,
    pub(crate) connections: Connections,
    pub(crate) outbox: Outbox,
    /// Connections that have input left to be served; `queued` is set in each.
    pub(crate) ready: Vec<ConnectionId>,
    /// Connections whose phase changed. They are handled after the turn's output is flushed.
    pub(crate) ending: Vec<ConnectionId>,
    /// For each watermark, the connections with held output, by ascending tickets. A connection may
    /// occur several times, and may already be closed.
    pub(crate) held: [VecDeque<(u64, ConnectionId)>; WATERMARKS],
    /// Connections whose sockets became full since the last turn ended; `is_suspect` is set in
    /// each.
    pub(crate) blocked: Vec<ConnectionId>,
    /// Connections that epoll does not watch.
    pub(crate) software: Vec<ConnectionId>,
    pub(crate) stopping: bool,
    pub(crate) traffic: Traffic,
}

impl LoopState {
    pub(crate) fn new(waker: Waker) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            waker,
            connections: Connections::default(),
            outbox: Outbox::default(),
            ready: Vec::new(),
            ending: Vec::new(),
            held: std::array::from_fn(|_| VecDeque::new()),
            blocked: Vec::new(),
            software: Vec::new(),
            stopping: false,
            traffic: Traffic::default(),
        })
    }

    /// Adds a connection and watches it.
    pub(crate) fn open(&mut self, newcomer: Newcomer) -> ConnectionId {
        let mut connection = Connection::new(newcomer.carrier);
        connection.carrier.attach(&self.waker);
        let id = self.connections.insert(connection);
        let Some(connection) = self.connections.get_mut(id) else {
            return id;
        };
        let watched = match connection.carrier.source() {
            Source::Fd(fd) => {
                let token = EventData::new_u64(id.to_token());
                epoll::add(&self.epoll, fd, token, Interest::Input.flags())
            }
            Source::Software(_) => {
                self.software.push(id);
                Ok(())
            }
        };
        if let Err(error) = watched {
            self.doom(id, CloseReason::Failed(error.kind()));
        }
        id
    }

    /// Removes a connection. Dropping it closes its transport.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.connections.remove(id)?;
        if let Source::Software(_) = connection.carrier.source() {
            self.software.retain(|&other| other != id);
        }
        Some(connection)
    }

    /// Removes a connection whose transport will be used elsewhere.
    pub(crate) fn detach(&mut self, id: ConnectionId) -> Option<Connection> {
        let connection = self.remove(id)?;
        if let Source::Fd(fd) = connection.carrier.source() {
            // It was watched since it was opened.
            let _unwatched = epoll::delete(&self.epoll, fd);
        }
        Some(connection)
    }

    /// Ends a connection at the end of the turn, even if output still waits.
    pub(crate) fn doom(&mut self, id: ConnectionId, reason: CloseReason) {
        self.close(id, Phase::Doomed(reason));
    }

    /// Moves a connection towards its end, never back. Returns whether its phase changed.
    pub(crate) fn close(&mut self, id: ConnectionId, phase: Phase) -> bool {
        let Some(connection) = self.connections.get_mut(id) else {
            return false;
        };
        let goes_on = match connection.phase {
            Phase::Open => true,
            Phase::Draining(_) => matches!(phase, Phase::Doomed(_)),
            Phase::Doomed(_) | Phase::Lingering => false,
        };
        if goes_on {
            connection.phase = phase;
            self.ending.push(id);
        }
        goes_on
    }

    /// Pauses a connection. Usually leaves epoll unchanged until input comes: most pauses end
    /// before, and cost no system call.
    pub(crate) fn pause(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.paused = true;
            if connection.interest != Interest::Input {
                self.watch(id);
            }
        }
    }

    pub(crate) fn resume(&mut self, id: ConnectionId) {
        match self.connections.get_mut(id) {
            Some(connection) if connection.paused => connection.paused = false,
            _ => return,
        }
        self.watch(id);
        self.enqueue_kept(id);
    }

    /// Schedules the input that a connection or its transport keeps, if any, for the next turn.
    pub(crate) fn enqueue_kept(&mut self, id: ConnectionId) {
        let connection = self.connections.get(id);
        if connection.is_some_and(|one| !one.input.is_empty() || one.carrier.holds_input()) {
            self.enqueue(id);
        }
    }

    /// Schedules the input that a connection's transport holds, if any, for the next turn.
    pub(crate) fn enqueue_held(&mut self, id: ConnectionId) {
        let connection = self.connections.get(id);
        if connection.is_some_and(|connection| connection.carrier.holds_input()) {
            self.enqueue(id);
        }
    }

    /// Schedules the input that a connection keeps, or will get back, for the next turn.
    pub(crate) fn enqueue(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push(id);
        }
    }

    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        if let Some(connection) = self.connections.get(id)
            && connection.phase == Phase::Open
        {
            self.outbox.write(id, bytes);
        }
    }

    pub(crate) fn write_shared(&mut self, id: ConnectionId, bytes: &Arc<[u8]>) {
        if let Some(connection) = self.connections.get(id)
            && connection.phase == Phase::Open
        {
            self.outbox.write_shared(id, bytes);
        }
    }

    /// Makes epoll watch a connection for the events that its state needs.
    pub(crate) fn watch(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let interest = connection.wanted_interest();
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        if interest == Interest::Output {
            // The socket of a connection that already was in the list accepted bytes meanwhile.
            connection.has_taken = connection.is_suspect;
            if !connection.is_suspect {
                connection.is_suspect = true;
                self.blocked.push(id);
            }
        }
        if let Source::Fd(fd) = connection.carrier.source() {
            let token = EventData::new_u64(id.to_token());
            if let Err(error) = epoll::modify(&self.epoll, fd, token, interest.flags()) {
                self.doom(id, CloseReason::Failed(error.kind()));
            }
        }
    }

    /// Makes a connection be served from now on, however much waits for its socket, until that was
    /// sent.
    pub(crate) fn serve_insistent(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && let Some(pending) = &mut connection.pending
        {
            pending.insist();
            self.watch(id);
            self.enqueue_kept(id);
        }
    }

    /// Whether any connection without a descriptor is ready.
    pub(crate) fn has_software_event(&self) -> bool {
        let ids = self.software.iter();
        ids.into_iter()
            .any(|&id| !self.software_event(id).is_empty())
    }

    /// Returns the events of a connection without a descriptor, limited to those that its state
    /// needs.
    pub(crate) fn software_event(&self, id: ConnectionId) -> EventFlags {
        let Some(connection) = self.connections.get(id) else {
            return EventFlags::empty();
        };
        let Source::Software(readiness) = connection.carrier.source() else {
            return EventFlags::empty();
        };
        let mut event = EventFlags::empty();
        event.set(EventFlags::IN, readiness.readable);
        event.set(EventFlags::OUT, readiness.writable);
        event.set(EventFlags::RDHUP, readiness.departed);
        event & connection.interest.flags()
    }
}
