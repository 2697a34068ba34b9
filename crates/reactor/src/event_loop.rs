//! The loop of one worker thread.
//!
//! A turn
//! 1. sleeps in epoll until something is ready (not at all when a connection has input left to be
//!    served), after looking for a moment where that pays (`spin`);
//! 2. takes what came: wake-ups and handed-over connections, new peers, input, room for output;
//!    then gives connections that yielded their next share, and calls [`Service::turn`];
//! 3. flushes the output of all of them, one send per range, except what has to wait
//!    ([`Service::before_flush`]), and
//! 4. ends connections: only now, so that no range of the turn can meet a slot used anew.
//!
//! Output also is flushed in between when [`FLUSH_BYTES`] have gathered. Epoll is level-triggered:
//! what a turn leaves in a socket is reported again.

mod accept;
mod end;
mod input;
mod insistent;
mod output;
mod spare;
mod spin;

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::balancer::Balancer;
use crate::connections::{ConnectionId, Phase};
use crate::io::Io;
use crate::listener::Listener;
use crate::loop_state::LoopState;
use crate::service::{CloseReason, OutputArena as _, Service};

pub(crate) use output::is_passing;

use accept::Acceptor;
use end::Lingering;
use insistent::Suspects;
use spare::SpareBuffers;
use spin::Spin;

/// Size of the thread's input buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Output is flushed within a turn when this much has gathered: 16 KB measured worse than anything
/// from 64 to 256 KB for values of 2 KB.
pub const FLUSH_BYTES: usize = 128 * 1024;
/// Events taken from epoll at once.
const EVENTS_MAX: usize = 128;
/// Connections taken from the balancer per turn, so that a crowd does not hold up those inside.
const NEWCOMERS_MAX: usize = 128;
/// The longest sleep: epoll counts milliseconds in 32 bits.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// The token of the waker; listeners follow it. Tokens of connections are larger than any 32-bit
/// number, as their generation is never 0.
const WAKER_TOKEN: u64 = 0;

/// How a loop behaves where no protocol is concerned.
#[derive(Clone)]
pub struct Options {
    /// What the two times below are measured with.
    pub clock: Arc<dyn Clock>,
    /// How long a connection that the service closed waits for its peer to close too. Closing a
    /// socket with unread input resets it, which takes from the peer what it has not read yet.
    pub linger: Duration,
    /// How long nothing is accepted after descriptors or memory ran out.
    pub accept_pause: Duration,
    /// How long the loop at most looks for events before it blocks, where recent sleeps were
    /// that short; zero for never. Only for loops that have a core to themselves.
    pub spin: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            linger: Duration::from_secs(2),
            accept_pause: Duration::from_millis(100),
            spin: Duration::ZERO,
        }
    }
}

/// One worker: connections, their buffers, and the service that serves them.
pub struct EventLoop<S: Service> {
    service: S,
    /// Replies of this turn.
    output: S::Output,
    /// Input of the connection that is being served; empty while it is lent out.
    buffer: Box<[u8]>,
    /// For input that is kept.
    spares: SpareBuffers,
    state: LoopState,
    clock: Arc<dyn Clock>,
    /// When the connection that is being served first filled the buffer.
    rounds_began_ns: Option<u64>,
    spin: Spin,
    /// Memory for the list of connections that get a share in a turn.
    shares: Vec<ConnectionId>,
    acceptor: Acceptor,
    lingering: Lingering,
    suspects: Suspects,
    balancer: Arc<Balancer>,
    worker: usize,
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
        options: &Options,
    ) -> io::Result<Self> {
        let state = LoopState::new(balancer.waker(worker))?;
        let bell = EventData::new_u64(WAKER_TOKEN);
        epoll::add(&state.epoll, state.waker.as_fd(), bell, EventFlags::IN)?;
        let mut acceptor = Acceptor::new(Arc::clone(listeners), options);
        acceptor.start(&state.epoll)?;
        Ok(Self {
            service,
            output,
            buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            spares: SpareBuffers::default(),
            state,
            clock: Arc::clone(&options.clock),
            rounds_began_ns: None,
            spin: Spin::new(&options.clock, options.spin),
            shares: Vec::new(),
            acceptor,
            lingering: Lingering::new(options),
            suspects: Suspects::new(options),
            balancer: Arc::clone(balancer),
            worker,
        })
    }

    /// Runs turns until the service asks to stop; then closes all connections and gives the
    /// service back.
    ///
    /// # Errors
    /// When epoll itself fails, which no peer can cause.
    pub fn run(mut self) -> io::Result<S> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_stopping() {
            self.turn_with(None, &mut events)?;
        }
        self.close_all();
        Ok(self.service)
    }

    /// One turn: sleeps until something happens, but at most `timeout` (`None`: as long as the
    /// service's deadline allows), then serves what is ready and flushes. For drivers without a
    /// thread per loop; [`run`](Self::run) otherwise.
    ///
    /// # Errors
    /// When epoll itself fails, which no peer can cause.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.turn_with(timeout, &mut Vec::with_capacity(EVENTS_MAX))
    }

    /// One turn, with memory for its events.
    #[inline]
    fn turn_with(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<()> {
        self.sleep(timeout, events)?;
        self.service.turn_started();
        let shares = mem::replace(&mut self.state.ready, mem::take(&mut self.shares));
        self.serve_events(events);
        self.serve_software();
        self.serve_ready(shares);
        self.service
            .turn(&mut Io::new(&mut self.state), &mut self.output);
        self.state.outbox.address(None, self.output.len());
        self.flush();
        self.look_at_suspects();
        self.end_connections();
        self.refresh_listeners()?;
        self.acceptor.resume_when_due(&self.state.epoll)?;
        self.service.turn_ended();
        Ok(())
    }

    /// Whether the service asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.state.stopping
    }

    /// The service, between turns.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    /// Waits for events.
    fn sleep(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<()> {
        let timeout = self.sleep_max(timeout);
        if timeout.is_zero() || !self.spin.is_on() {
            return self.poll(timeout, events);
        }
        let sleep = self.spin.begin();
        while self.spin.goes_on(sleep, timeout) {
            self.poll(Duration::ZERO, events)?;
            if !events.is_empty() {
                return Ok(());
            }
        }
        self.poll(self.spin.left(sleep, timeout), events)?;
        self.spin.blocked(sleep);
        Ok(())
    }

    /// Asks epoll for events, blocking for at most `timeout`.
    fn poll(&self, timeout: Duration, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        events.clear();
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.state.epoll, room, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn sleep_max(&self, timeout: Option<Duration>) -> Duration {
        if !self.state.ready.is_empty() || self.state.has_software_event() {
            return Duration::ZERO;
        }
        let bounds = [
            timeout,
            self.service.next_deadline(),
            self.acceptor.next_deadline(),
            self.lingering.next_deadline(),
            self.suspects.next_deadline(),
        ];
        bounds.into_iter().flatten().fold(SLEEP_MAX, Duration::min)
    }

    fn serve_events(&mut self, events: &[epoll::Event]) {
        for event in events {
            let token = event.data.u64();
            if token > u64::from(u32::MAX) {
                self.serve(ConnectionId::from_token(token), event.flags);
            } else if token == WAKER_TOKEN {
                self.wake_up();
            } else {
                self.accept(token);
            }
        }
    }

    /// Serves one connection for which something happened.
    #[inline]
    fn serve(&mut self, id: ConnectionId, event: EventFlags) {
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        if connection.waits_for_socket() {
            if event != EventFlags::IN {
                self.state.send_pending(id);
            }
            if !event.intersects(EventFlags::IN) {
                return;
            }
        }
        let Some(connection) = self.state.connections.get_mut(id) else {
            return;
        };
        if connection.may_receive() {
            // What is queued has input to be served before it may get more.
            if !connection.queued {
                self.receive(id);
            }
        } else if connection.phase == Phase::Lingering {
            self.discard_input(id);
        } else if event.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.state.doom(id, CloseReason::PeerClosed);
        } else {
            // What came to a connection that is paused stays in its socket.
            self.state.watch(id);
        }
    }

    /// Serves connections that epoll does not watch. None in production: one branch.
    fn serve_software(&mut self) {
        let mut index = 0;
        while let Some(&id) = self.state.software.get(index) {
            let event = self.state.software_event(id);
            if !event.is_empty() {
                self.serve(id, event);
            }
            index += 1;
        }
    }

    /// Gives connections that had input left when the turn began their next share. Those that
    /// yield again, or for the first time in this turn, wait in the other list: one share each per
    /// turn.
    fn serve_ready(&mut self, mut shares: Vec<ConnectionId>) {
        for id in shares.drain(..) {
            if let Some(connection) = self.state.connections.get_mut(id) {
                connection.queued = false;
                self.receive_kept(id);
                self.receive_held(id);
            }
        }
        self.shares = shares;
    }

    fn wake_up(&mut self) {
        self.state.waker.take();
        for _ in 0..NEWCOMERS_MAX {
            let Some(newcomer) = self.balancer.take(self.worker) else {
                break;
            };
            self.open(newcomer);
        }
        if self.balancer.has_newcomers(self.worker) {
            self.state.waker.wake();
        }
        self.service
            .woken(&mut Io::new(&mut self.state), &mut self.output);
        self.state.outbox.address(None, self.output.len());
        self.flush_if_full();
    }
}

/// The monotonic time `duration` from now.
fn after(clock: &dyn Clock, duration: Duration) -> u64 {
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    clock.monotonic_ns().saturating_add(duration_ns)
}

/// How long until a monotonic time; zero once it has come.
fn until(clock: &dyn Clock, time_ns: u64) -> Duration {
    Duration::from_nanos(time_ns.saturating_sub(clock.monotonic_ns()))
}
