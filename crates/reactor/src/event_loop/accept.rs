//! New peers: accepts them, asks the service whether they are admitted, and hands them to their
//! workers.
//!
//! All loops watch all listeners exclusively: one peer wakes one loop. A loop that runs out of
//! descriptors or memory stops watching for a while, because the waiting peers would wake it again
//! at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt;

use super::{EventLoop, Options, WAKER_TOKEN, after, until};
use crate::balancer::Newcomer;
use crate::io::Io;
use crate::listener::{Listener, Porter};
use crate::service::{Endpoint, PeerInfo, Service};
use crate::transport::Carrier;

/// Maximum number of peers accepted per event, so that many new peers do not delay existing
/// connections: accepting a peer takes as long as about ten requests.
const ACCEPTS_MAX: usize = 16;
/// Maximum number of peers that wait at a listener, as systems are usually configured.
const WAITING_MAX: usize = 1 << 16;
/// Number of unanswered probes after which a silent peer is disconnected.
const KEEPALIVE_PROBES: u32 = 3;

/// A loop's view of the listeners.
pub(super) struct Acceptor {
    listeners: Arc<[Listener]>,
    /// Generation of these listeners in the balancer.
    generation: usize,
    clock: Arc<dyn Clock>,
    pause: Duration,
    /// Time at which the listeners are watched again, on the monotonic clock.
    resume_ns: Option<u64>,
}

impl Acceptor {
    pub(super) fn new(listeners: Arc<[Listener]>, options: &Options) -> Self {
        Self {
            listeners,
            generation: 0,
            clock: Arc::clone(&options.clock),
            pause: options.accept_pause,
            resume_ns: None,
        }
    }

    /// Watches the listeners.
    pub(super) fn start(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        self.resume_ns = None;
        for (token, listener) in (WAKER_TOKEN + 1..).zip(self.listeners.iter()) {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(epoll, listener.as_fd(), EventData::new_u64(token), flags)?;
        }
        Ok(())
    }

    /// Stops watching for a while.
    fn pause(&mut self, epoll: &OwnedFd) {
        if self.resume_ns.is_none() {
            self.resume_ns = Some(after(&*self.clock, self.pause));
            self.leave(epoll);
        }
    }

    /// Watches other listeners from now on.
    fn replace(&mut self, epoll: &OwnedFd, listeners: Arc<[Listener]>) -> io::Result<()> {
        if self.resume_ns.is_none() {
            self.leave(epoll);
        }
        self.listeners = listeners;
        self.start(epoll)
    }

    fn leave(&self, epoll: &OwnedFd) {
        for listener in self.listeners.iter() {
            // The listener is watched, so this cannot fail.
            let _ = epoll::delete(epoll, listener.as_fd());
        }
    }

    /// Watches the listeners again when the pause is over.
    pub(super) fn resume_when_due(&mut self, epoll: &OwnedFd) -> io::Result<()> {
        match self.resume_ns {
            Some(resume_ns) if until(&*self.clock, resume_ns).is_zero() => self.start(epoll),
            _ => Ok(()),
        }
    }

    /// Returns the remaining time of the pause.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        Some(until(&*self.clock, self.resume_ns?))
    }
}

impl<S: Service> EventLoop<S> {
    /// Switches to other listeners if the balancer has them. First accepts the peers that wait at
    /// the closing ones, because the system resets peers that wait at a socket when the socket is
    /// closed.
    pub(super) fn refresh_listeners(&mut self) -> io::Result<()> {
        let Some(listeners) = self.balancer.listeners_since(&mut self.acceptor.generation) else {
            return Ok(());
        };
        let closing = Arc::clone(&self.acceptor.listeners);
        for (index, listener) in closing.iter().enumerate() {
            self.accept_from(listener, index, WAITING_MAX);
        }
        self.acceptor.replace(&self.state.epoll, listeners)
    }

    /// Accepts the peers that wait at the listener of an epoll token.
    pub(super) fn accept(&mut self, token: u64) {
        let Ok(index) = usize::try_from(token - WAKER_TOKEN - 1) else {
            return;
        };
        let listeners = Arc::clone(&self.acceptor.listeners);
        let Some(listener) = listeners.get(index) else {
            return;
        };
        self.accept_from(listener, index, ACCEPTS_MAX);
    }

    /// Accepts up to `most` peers that wait at a listener, while descriptors are available.
    fn accept_from(&mut self, listener: &Listener, index: usize, most: usize) {
        for _ in 0..most {
            match listener.accept() {
                Ok((fd, peer, local)) => self.welcome((fd, peer, local), listener.porter(), index),
                Err(Errno::AGAIN) => return,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    self.service.accept_failed(&error.into());
                    self.acceptor.pause(&self.state.epoll);
                    return;
                }
                // This peer disconnected before it was accepted; the next one may be fine.
                Err(_) => {}
            }
        }
    }

    fn welcome(
        &mut self,
        (fd, peer, local): (OwnedFd, Endpoint, Endpoint),
        porter: Option<&dyn Porter>,
        index: usize,
    ) {
        let peer = PeerInfo {
            peer,
            local,
            fd: std::os::fd::AsRawFd::as_raw_fd(&fd),
            listener: Some(index),
            security: None,
        };
        if let Err(refusal) = self.service.admit(&peer) {
            // A new socket has space for a line; a peer that does not read it loses nothing.
            let _ = rustix::net::send(&fd, refusal, SendFlags::NOSIGNAL);
            return;
        }
        if matches!(peer.peer, Endpoint::Tcp(_)) {
            // A peer that is already disconnected is detected when it is read from.
            drop(keep_alive(&fd, self.service.keepalive_s()));
        }
        if let Some(porter) = porter {
            return porter.receive(fd, peer);
        }
        let worker = self.balancer.place();
        let newcomer = Newcomer {
            carrier: Carrier::Socket(fd),
            peer,
        };
        if worker == self.worker {
            self.open(newcomer);
        } else {
            self.balancer.send(worker, newcomer);
        }
    }

    /// Opens a connection that was placed on this worker.
    pub(super) fn open(&mut self, newcomer: Newcomer) {
        let peer = newcomer.peer.clone();
        let id = self.state.open(newcomer);
        self.service
            .opened(&mut Io::new(&mut self.state), id, &peer);
        self.state.enqueue_held(id);
    }
}

/// Makes the kernel probe a silent peer after `idle_s` seconds, then every third of that.
fn keep_alive(fd: &OwnedFd, idle_s: u32) -> io::Result<()> {
    if idle_s == 0 {
        return Ok(());
    }
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, Duration::from_secs(idle_s.into()))?;
    let interval_s = (idle_s / 3).max(1);
    sockopt::set_tcp_keepintvl(fd, Duration::from_secs(interval_s.into()))?;
    sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
    Ok(())
}
