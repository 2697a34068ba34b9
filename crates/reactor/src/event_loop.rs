//! The loop of one worker thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::balancer::Balancer;
use crate::connections::{ConnectionId, Connections, Phase};
use crate::listener::Listener;
use crate::service::Service;
use crate::waker::Waker;

/// Size of the thread's input buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Output is flushed within a turn when this much has gathered: 16 KB measured worse than anything
/// from 64 to 256 KB for values of 2 KB.
pub const FLUSH_BYTES: usize = 128 * 1024;

/// How a loop behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {}

/// One worker: connections, their buffers, and the service that serves them.
pub struct EventLoop<S: Service> {
    service: S,
    output: S::Output,
    core: Core,
}

/// What a service reaches through [`Io`](crate::Io).
pub(crate) struct Core {
    pub(crate) connections: Connections,
    pub(crate) waker: Waker,
    pub(crate) stopping: bool,
}

impl<S: Service> EventLoop<S> {
    /// The loop of worker number `worker` of `balancer`, which accepts from the shared `listeners`.
    ///
    /// # Errors
    /// When the process may open no more descriptors.
    pub fn new(
        service: S,
        output: S::Output,
        balancer: &Arc<Balancer>,
        worker: usize,
        listeners: &Arc<[Listener]>,
        options: Options,
    ) -> io::Result<Self> {
        let _ = (listeners, options);
        Ok(Self {
            service,
            output,
            core: Core {
                connections: Connections::default(),
                waker: balancer.waker(worker),
                stopping: false,
            },
        })
    }

    /// Runs turns until the service asks to stop; then closes all connections and gives the
    /// service back.
    ///
    /// # Errors
    /// When epoll itself fails, which no peer can cause.
    pub fn run(mut self) -> io::Result<S> {
        while !self.core.stopping {
            self.turn(None)?;
        }
        Ok(self.service)
    }

    /// One turn: sleeps until something happens, but at most `timeout` (`None`: as long as the
    /// service's deadline allows), then serves what is ready and flushes. For drivers without a
    /// thread per loop; [`run`](Self::run) otherwise.
    ///
    /// # Errors
    /// When epoll itself fails, which no peer can cause.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let _ = (timeout, &mut self.output);
        Ok(())
    }

    /// The service, between turns.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }
}

impl Core {
    pub(crate) fn close(&mut self, id: ConnectionId, phase: Phase) {
        let _ = (id, phase);
    }
    pub(crate) fn pause(&mut self, id: ConnectionId) {
        let _ = id;
    }
    pub(crate) fn resume(&mut self, id: ConnectionId) {
        let _ = id;
    }
    pub(crate) fn write(&mut self, id: ConnectionId, bytes: &[u8]) {
        let _ = (id, bytes);
    }
    pub(crate) fn address(&mut self, id: Option<ConnectionId>, output_bytes: usize) {
        let _ = (id, output_bytes);
    }
}
