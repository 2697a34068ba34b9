//! Handshakes, on threads of their own.
//!
//! ```text
//!   accepted --> inbox --> waiting (a socket) --first byte--> begun (a Stream) --complete--> Balancer
//!                              '---- not TLS, too late ----------'--- refused ---> Attendant
//! ```
//!
//! A handshake costs as much processor time as hundreds of requests. The threads that make
//! handshakes are `nice`: the system preempts them when workers have work to do, so a crowd of new
//! connections waits and connected clients do not. A silent peer costs only its socket. The memory
//! of all handshakes that have begun is bounded, and so are their number and their time.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::Clock;
use reactor::{Balancer, PeerInfo, Porter};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;

use crate::error::HandshakeError;
use crate::server::Server;
use crate::stream::{Handshake, Stream};

/// Time that a peer may take from its accept to the end of its handshake.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum number of bytes that the unfinished handshakes of a thread may hold together, besides
/// their state.
const HELD_BYTES_MAX: usize = 8 << 20;
/// A handshake that holds no more than this is never refused because of the total.
const HELD_BYTES_SPARED: usize = 4 * 1024;
/// Maximum number of unfinished handshakes of a thread. Beyond that, the oldest is refused.
const BEGUN_MAX: usize = 2048;
/// Maximum number of events taken at once.
const EVENTS_MAX: usize = 64;
/// Nice value of the handshake threads: their scheduling weight is a tenth of a worker's.
const NICENESS: i32 = 10;
/// Interval at which the attendant checks its files.
const TICK_NS: u64 = 1_000_000_000;
/// The token of the bell. The tokens of visitors are larger.
const BELL_TOKEN: u64 = 0;
/// The first byte of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// The reply to a peer that does not speak TLS.
const SPEAK_TLS: &[u8] = b"-ERR This port takes TLS connections only\r\n";

/// A peer that was refused.
#[derive(Debug)]
pub struct Refused<'a> {
    /// The refused peer.
    pub peer: &'a PeerInfo,
    /// The reason.
    pub error: &'a HandshakeError,
}

/// The owner of the handshakes. Its methods are called on the handshake threads.
pub trait Attendant: Send + Sync {
    /// Reports that a peer is refused.
    fn refused(&self, refused: &Refused<'_>);

    /// Called about once a second on one of the threads, to check whether files changed.
    fn tick(&self) {}
}

/// Counts of handshakes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Completed handshakes.
    pub completed: u64,
    /// Completed handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Refused peers.
    pub refused: u64,
    /// Peers whose handshake is neither complete nor refused.
    pub pending: u64,
}

/// See the module.
pub struct Handshakes {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    server: Mutex<Arc<Server>>,
    balancer: OnceLock<Weak<Balancer>>,
    clock: Arc<dyn Clock>,
    attendant: Box<dyn Attendant>,
    desks: Vec<Desk>,
    next_desk: AtomicUsize,
    is_stopping: AtomicBool,
    completed: AtomicU64,
    resumed: AtomicU64,
    refused: AtomicU64,
    accepted: AtomicU64,
}

/// The inbox of a thread, in which it finds new peers.
struct Desk {
    inbox: Mutex<Vec<(OwnedFd, PeerInfo)>>,
    bell: OwnedFd,
}

impl Handshakes {
    /// Makes handshakes with the configuration in `server`, on `threads_count` threads once they
    /// are started.
    ///
    /// # Errors
    /// If the process may not open more descriptors.
    pub fn new(
        server: Server,
        threads_count: usize,
        clock: Arc<dyn Clock>,
        attendant: Box<dyn Attendant>,
    ) -> io::Result<Self> {
        let desk = || -> io::Result<Desk> {
            let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            let inbox = Mutex::default();
            Ok(Desk { inbox, bell })
        };
        let desks = (0..threads_count.max(1)).map(|_| desk());
        let shared = Shared {
            server: Mutex::new(Arc::new(server)),
            balancer: OnceLock::new(),
            clock,
            attendant,
            desks: desks.collect::<io::Result<_>>()?,
            next_desk: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            completed: AtomicU64::new(0),
            resumed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
        })
    }

    /// Starts the threads, which pass connections to the workers of `balancer`. Only the first call
    /// has an effect.
    ///
    /// # Errors
    /// If the process may not have more threads or descriptors.
    pub fn start(&self, balancer: &Arc<Balancer>) -> io::Result<()> {
        if self.shared.balancer.set(Arc::downgrade(balancer)).is_err() {
            return Ok(());
        }
        for index in 0..self.shared.desks.len() {
            let office = Office::new(Arc::clone(&self.shared), index)?;
            let thread = std::thread::Builder::new().name(format!("handshakes-{index}"));
            lock(&self.threads).push(thread.spawn(move || office.run())?);
        }
        Ok(())
    }

    /// Uses `server` for the handshakes that begin from now on.
    pub fn change(&self, server: Server) {
        *lock(&self.shared.server) = Arc::new(server);
    }

    /// Returns the configuration that new handshakes use.
    #[must_use]
    pub fn server(&self) -> Arc<Server> {
        Arc::clone(&lock(&self.shared.server))
    }

    /// Returns the counts of handshakes so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (completed, refused) = (of(&self.shared.completed), of(&self.shared.refused));
        let pending = of(&self.shared.accepted).saturating_sub(completed + refused);
        Figures {
            completed,
            resumed: of(&self.shared.resumed),
            refused,
            pending,
        }
    }

    /// Refuses all peers from now on, and waits for the threads to end.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.desks.iter().for_each(Desk::ring);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has ended too: nothing else depends on its result.
            drop(thread.join());
        }
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Porter for Handshakes {
    fn receive(&self, socket: OwnedFd, peer: PeerInfo) {
        let shared = &self.shared;
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        let desk = shared.next_desk.fetch_add(1, Ordering::Relaxed) % shared.desks.len();
        let desk = &shared.desks[desk];
        lock(&desk.inbox).push((socket, peer));
        desk.ring();
    }
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}

impl Desk {
    #[expect(clippy::host_endian_bytes, reason = "the kernel takes a native number")]
    fn ring(&self) {
        // The write fails only if the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// The state of one handshake thread.
struct Office {
    shared: Arc<Shared>,
    index: usize,
    epoll: OwnedFd,
    visitors: HashMap<u64, Visitor>,
    last_token: u64,
    /// Deadlines and tokens of visitors, in order of time. Some visitors are already gone.
    deadlines: VecDeque<(u64, u64)>,
    /// Tokens of the handshakes that have begun, oldest first. Some visitors are already gone.
    begun: VecDeque<u64>,
    begun_count: usize,
    held_bytes: usize,
    tick_due_ns: u64,
}

/// A peer whose handshake is not complete.
struct Visitor {
    peer: PeerInfo,
    state: State,
    waits_for_room: bool,
    held_bytes: usize,
}

enum State {
    /// The peer has not sent anything yet.
    Waiting(OwnedFd),
    Begun(Box<Stream<UnbufferedServerConnection>>),
    /// A placeholder between two states.
    Gone,
}

/// The result of a step for a visitor.
enum Step {
    Stays,
    Enters,
}

impl Office {
    fn new(shared: Arc<Shared>, index: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let bell = EventData::new_u64(BELL_TOKEN);
        epoll::add(&epoll, &shared.desks[index].bell, bell, EventFlags::IN)?;
        Ok(Self {
            shared,
            index,
            epoll,
            visitors: HashMap::new(),
            last_token: BELL_TOKEN,
            deadlines: VecDeque::new(),
            begun: VecDeque::new(),
            begun_count: 0,
            held_bytes: 0,
            tick_due_ns: 0,
        })
    }

    fn run(mut self) {
        // If the system does not allow this, handshakes have the same priority as requests.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            if self.wait(&mut events).is_err() {
                break;
            }
            self.take_in();
            for event in &events {
                let token = event.data.u64();
                if token == BELL_TOKEN {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.shared.desks[self.index].bell, &mut count);
                } else {
                    self.advance(token);
                    // A step takes as long as dozens of requests. Without the yield, the system
                    // would check only at its next tick whether a worker waits for this processor.
                    std::thread::yield_now();
                }
            }
            self.refuse_late();
            self.tick();
        }
        self.close();
    }

    /// Lets the attendant check its files, if this is the first thread and the time has come.
    fn tick(&mut self) {
        let now_ns = self.shared.clock.monotonic_ns();
        if self.index == 0 && now_ns >= self.tick_due_ns {
            self.shared.attendant.tick();
            self.tick_due_ns = now_ns.saturating_add(TICK_NS);
        }
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> Result<(), Errno> {
        events.clear();
        let now_ns = self.shared.clock.monotonic_ns();
        let first = self.deadlines.front();
        let timeout = first.map(|(end_ns, _)| Duration::from_nanos(end_ns.saturating_sub(now_ns)));
        let tick = match self.index {
            0 => Duration::from_nanos(self.tick_due_ns.saturating_sub(now_ns)),
            _ => TIME_MAX,
        };
        let timeout = Timespec::try_from(timeout.unwrap_or(tick).min(tick)).unwrap_or_default();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes in the peers that are new in the inbox.
    fn take_in(&mut self) {
        let newcomers = std::mem::take(&mut *lock(&self.shared.desks[self.index].inbox));
        if newcomers.is_empty() {
            return;
        }
        let time_ns = u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = self.shared.clock.monotonic_ns().saturating_add(time_ns);
        for (socket, peer) in newcomers {
            self.last_token += 1;
            let token = self.last_token;
            let watched = epoll::add(
                &self.epoll,
                &socket,
                EventData::new_u64(token),
                EventFlags::IN,
            );
            let visitor = Visitor {
                peer,
                state: State::Waiting(socket),
                waits_for_room: false,
                held_bytes: 0,
            };
            self.visitors.insert(token, visitor);
            self.deadlines.push_back((end_ns, token));
            if let Err(error) = watched {
                self.refuse(token, &HandshakeError::from(io::Error::from(error)));
            }
        }
    }

    /// Continues with a visitor whose socket reported an event.
    fn advance(&mut self, token: u64) {
        let Some(visitor) = self.visitors.get_mut(&token) else {
            return;
        };
        if let State::Waiting(socket) = &visitor.state {
            match listen(socket) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.refuse(token, &error),
            }
            if let Err(error) = self.begin(token) {
                return self.refuse(token, &error);
            }
        }
        match self.step(token) {
            Ok(Step::Stays) => {}
            Ok(Step::Enters) => self.let_in(token),
            Err(error) => self.refuse(token, &error),
        }
    }

    /// Begins the handshake of a waiting visitor.
    fn begin(&mut self, token: u64) -> Result<(), HandshakeError> {
        let config = Arc::clone(&lock(&self.shared.server).config);
        let Some(visitor) = self.visitors.get_mut(&token) else {
            return Ok(());
        };
        visitor.begin(&config)?;
        self.begun.push_back(token);
        self.begun_count += 1;
        while self.begun_count > BEGUN_MAX
            && let Some(oldest) = self.begun.pop_front()
        {
            self.refuse(oldest, &HandshakeError::TooMuch);
        }
        // Visitors that are gone leave their tokens behind, so the queue is purged when it is too
        // long.
        if self.begun.len() > 2 * BEGUN_MAX {
            let visitors = &self.visitors;
            self.begun.retain(|token| visitors.contains_key(token));
        }
        Ok(())
    }

    fn step(&mut self, token: u64) -> Result<Step, HandshakeError> {
        let Some(visitor) = self.visitors.get_mut(&token) else {
            return Ok(Step::Stays);
        };
        let State::Begun(stream) = &mut visitor.state else {
            return Ok(Step::Stays);
        };
        let progress = stream.handshake().map_err(explain)?;
        if progress == Handshake::Done {
            return Ok(Step::Enters);
        }
        let held = reactor::Transport::held_bytes(&**stream);
        self.held_bytes = self.held_bytes + held - visitor.held_bytes;
        visitor.held_bytes = held;
        if self.held_bytes > HELD_BYTES_MAX && held > HELD_BYTES_SPARED {
            return Err(HandshakeError::TooMuch);
        }
        let waits_for_room = progress == Handshake::Writes;
        if std::mem::replace(&mut visitor.waits_for_room, waits_for_room) != waits_for_room {
            let interest = if waits_for_room {
                EventFlags::OUT
            } else {
                EventFlags::IN
            };
            let data = EventData::new_u64(token);
            epoll::modify(&self.epoll, stream.socket(), data, interest).map_err(io::Error::from)?;
        }
        Ok(Step::Stays)
    }

    /// Hands a visitor to a worker.
    fn let_in(&mut self, token: u64) {
        let Some(visitor) = self.take_out(token) else {
            return;
        };
        let State::Begun(stream) = visitor.state else {
            return;
        };
        let Some(balancer) = self.shared.balancer.get().and_then(Weak::upgrade) else {
            return;
        };
        self.shared.completed.fetch_add(1, Ordering::Relaxed);
        let resumed = u64::from(stream.is_resumed());
        self.shared.resumed.fetch_add(resumed, Ordering::Relaxed);
        let security = Some(Arc::new(stream.security()));
        let peer = PeerInfo {
            security,
            ..visitor.peer
        };
        balancer.enter(stream, peer);
    }

    fn refuse(&mut self, token: u64, error: &HandshakeError) {
        let Some(visitor) = self.take_out(token) else {
            return;
        };
        if let (HandshakeError::Plaintext, State::Waiting(socket)) = (error, &visitor.state) {
            // A new socket has space for one line. If the send fails, the peer loses only this
            // message.
            let _ = rustix::net::send(socket, SPEAK_TLS, SendFlags::NOSIGNAL);
            // If a socket is closed with unread input, the system may discard the line that was
            // sent. So the input is read.
            let _ = rustix::net::recv(socket, &mut [0; 4096], RecvFlags::empty());
        }
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
        let peer = &visitor.peer;
        self.shared.attendant.refused(&Refused { peer, error });
    }

    fn take_out(&mut self, token: u64) -> Option<Visitor> {
        let visitor = self.visitors.remove(&token)?;
        self.held_bytes -= visitor.held_bytes;
        if let State::Begun(_) = visitor.state {
            self.begun_count -= 1;
        }
        let socket = match &visitor.state {
            State::Waiting(socket) => Some(socket.as_fd()),
            State::Begun(stream) => Some(stream.as_fd()),
            State::Gone => None,
        };
        if let Some(socket) = socket {
            // Deleting a socket that was never registered fails, which does no harm.
            let _ = epoll::delete(&self.epoll, socket);
        }
        Some(visitor)
    }

    fn refuse_late(&mut self) {
        let now_ns = self.shared.clock.monotonic_ns();
        while let Some(&(end_ns, token)) = self.deadlines.front() {
            let is_gone = !self.visitors.contains_key(&token);
            if !is_gone && end_ns > now_ns {
                break;
            }
            self.deadlines.pop_front();
            if !is_gone {
                self.refuse(token, &HandshakeError::TimedOut);
            }
        }
    }

    fn close(mut self) {
        self.take_in();
        let tokens: Vec<u64> = self.visitors.keys().copied().collect();
        for token in tokens {
            self.refuse(token, &HandshakeError::Stopped);
        }
    }
}

impl Visitor {
    fn begin(&mut self, config: &Arc<ServerConfig>) -> Result<(), HandshakeError> {
        let side = UnbufferedServerConnection::new(Arc::clone(config))?;
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Waiting(socket) => State::Begun(Box::new(Stream::new(socket, side))),
            other => other,
        };
        Ok(())
    }
}

/// Returns whether the first byte is there and begins a handshake.
fn listen(socket: &OwnedFd) -> Result<bool, HandshakeError> {
    let mut first = [0];
    match rustix::net::recv(socket, &mut first, RecvFlags::PEEK) {
        Ok((0, _)) => Err(HandshakeError::Departed),
        Ok(_) if first == [HANDSHAKE_RECORD] => Ok(true),
        Ok(_) => Err(HandshakeError::Plaintext),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Translates the error of a failed handshake step.
fn explain(error: io::Error) -> HandshakeError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HandshakeError::Departed,
        io::ErrorKind::InvalidData => {
            let cause = error.into_inner().and_then(|cause| cause.downcast().ok());
            cause.map_or(HandshakeError::TooMuch, |cause: Box<rustls::Error>| {
                HandshakeError::Tls(*cause)
            })
        }
        _ => error.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete at each point where it could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
