//! The loop of one worker thread.
//!
//! A turn
//! 1. sleeps in epoll until an event (it does not sleep if a connection has input left to be
//!    served), after spinning for a moment if that pays (`spin`);
//! 2. handles events: wake-ups and connections from other workers, new peers, input, space for
//!    output; then gives connections that yielded their next share, and calls [`Service::turn`];
//! 3. flushes the output of all of them, one send per range, except output that has to wait
//!    ([`Service::before_flush`]), and
//! 4. ends connections: only now, so that no range of the turn can refer to a reused slot.
//!
//! Output is also flushed within a turn when [`FLUSH_BYTES`] have accumulated. Epoll is
//! level-triggered: it reports again what a turn leaves in a socket.

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
/// Output is flushed within a turn when this much has accumulated. 16 KB measured worse than
/// anything from 64 to 256 KB for values of 2 KB.
pub const FLUSH_BYTES: usize = 128 * 1024;
/// Maximum number of events taken from epoll at once.
const EVENTS_MAX: usize = 128;
/// Maximum number of connections taken from the balancer per turn, so that many new connections do
/// not delay the existing ones.
const NEWCOMERS_MAX: usize = 128;
/// Maximum time of a sleep: epoll counts milliseconds in 32 bits.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// The token of the waker. The tokens of listeners follow it. Tokens of connections are larger than
/// any 32-bit number, because their generation is never 0.
const WAKER_TOKEN: u64 = 0;

/// Options of a loop that do not depend on the protocol.
#[derive(Clone)]
pub struct Options {
    /// The clock for the times below.
    pub clock: Arc<dyn Clock>,
    /// How long a connection that the service closed waits for its peer to close, too. Closing a
    /// socket with unread input resets the connection, and then the peer loses what it has not read
    /// yet.
    pub linger: Duration,
    /// How long the loop accepts nothing after descriptors or memory ran out.
    pub accept_pause: Duration,
    /// Maximum time for which the loop polls for events before it blocks, if recent sleeps were
    /// that short; zero for never. Only for loops with a core of their own.
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
    /// Buffers for kept input.
    spares: SpareBuffers,
    state: LoopState,
    clock: Arc<dyn Clock>,
    /// Time at which the connection that is being served first filled the buffer.
    rounds_began_ns: Option<u64>,
    spin: Spin,
    /// Reused memory for the list of connections that get a share in a turn.
    shares: Vec<ConnectionId>,
    acceptor: Acceptor,
    lingering: Lingering,
    suspects: Suspects,
    balancer: Arc<Balancer>,
    worker: usize,
}

impl<S: Service> EventLoop<S> {
    /// Creates the loop of worker number `worker` of `balancer`, which accepts from the shared
    /// `listeners`.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
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

    /// Runs turns until the service asks to stop. Then closes all connections and returns the
    /// service.
    ///
    /// # Errors
    /// If epoll itself fails, which no peer can cause.
    pub fn run(mut self) -> io::Result<S> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.is_stopping() {
            self.turn_with(None, &mut events)?;
        }
        self.close_all();
        Ok(self.service)
    }

    /// Runs one turn: sleeps until an event, for at most `timeout` (`None`: until the service's
    /// deadline), then serves what is ready and flushes. For drivers without a thread per loop;
    /// other callers use [`run`](Self::run).
    ///
    /// # Errors
    /// If epoll itself fails, which no peer can cause.
    pub fn turn(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.turn_with(timeout, &mut Vec::with_capacity(EVENTS_MAX))
    }

    /// Runs one turn, with memory for its events.
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

    /// Returns the service, between turns.
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

    /// Serves one connection that has an event.
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
            // A queued connection has input that must be served before it receives more.
            if !connection.queued {
                self.receive(id);
            }
        } else if connection.phase == Phase::Lingering {
            self.discard_input(id);
        } else if event.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.state.doom(id, CloseReason::PeerClosed);
        } else {
            // The input of a paused connection stays in its socket.
            self.state.watch(id);
        }
    }

    /// Serves connections that epoll does not watch. Production has none: one branch.
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

    /// Gives their next share to connections that had input left when the turn began. Connections
    /// that yield again, or for the first time in this turn, wait in the other list: each gets one
    /// share per turn.
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

/// Returns the monotonic time `duration` from now.
fn after(clock: &dyn Clock, duration: Duration) -> u64 {
    let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    clock.monotonic_ns().saturating_add(duration_ns)
}

/// Returns how long it is until a monotonic time, or zero if the time has passed.
fn until(clock: &dyn Clock, time_ns: u64) -> Duration {
    Duration::from_nanos(time_ns.saturating_sub(clock.monotonic_ns()))
}
