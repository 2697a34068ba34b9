//! Follows a Redis or Valkey primary: one connection, from the first byte to the last.
//!
//! ```text
//!   socket ──► Connection ──► replication::redis_follower (what the bytes are)
//!     ▲          │   ├─ snapshot ──► persistence::import ──► store
//!     └─ ACK ◄───┘   └─ stream ──► pieces ──► Applier: engine ──► store, own log
//! ```
//!
//! Invariants
//!  1. One value says of which stream the data here is,
//!     [`FollowedStream`](persistence::followed::FollowedStream): a history and an offset, or
//!     nothing while the data is incomplete. The own log has it, too, in the same frame as the
//!     effects of each batch: a server that was killed asks for exactly the next byte.
//!  2. The data here is dropped only when the primary's data has begun to arrive, and never for an
//!     empty or older primary unless an operator asked for that.
//!  3. Data that was received and not applied is forgotten with the connection.

mod applier;
mod failed_command;
mod snapshot;

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use replication::redis_follower::{
    Commands, Event, Failure, Follower, Held, Introduction, Piece, judge_full_sync,
};
use store::Source;

use persistence::followed::{NO_STREAM, OWN};
use persistence::tail::Appended;

use super::following::{Ended, Following, Link, Primary};
use super::history::{History, ReplicationId};
use super::own_link;
use super::session::{Conduit, Side};
use crate::config::system_reason;
use crate::node::Node;
use applier::{Applier, Stop};

/// Maximum time that a read waits: acknowledgements may be due, and another thread may want this
/// one to stop.
const READ_WAIT: Duration = Duration::from_millis(200);
/// Number of bytes that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// The version of Valkey that this server claims: a Valkey primary writes its snapshot for that
/// version. Redis primaries ignore it.
const VERSION: &str = "9.0.0";
/// Maximum memory that the buffer of unapplied bytes keeps after they are applied.
const WAITING_BYTES_KEPT: usize = 1 << 20;

/// Why a connection ended.
#[derive(Debug)]
enum Lost {
    /// An error of the system, or the primary closed the connection.
    Io(io::Error),
    /// The primary sent an error that ends the connection.
    Failure(Failure),
    /// What the primary sent cannot be applied: a full sync is needed.
    Broken(String),
    /// The primary's data may not replace the data here.
    Refused(String),
    /// This server's configuration cannot hold the primary's data.
    Unfit(String),
    /// Another thread wants this one to stop.
    Stopped,
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Failure> for Lost {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Stop> for Lost {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Asked => Self::Stopped,
            Stop::Fault(reason) => Self::Broken(reason),
        }
    }
}

/// Follows the primary over one connection.
pub(super) fn follow(following: &Following) -> Ended {
    let Some(node) = following.node() else {
        return Ended::Again;
    };
    following.set_link(Link::Connecting);
    let Primary { host, port } = following.primary();
    node.core
        .log
        .notice(format_args!("Connecting to primary {host}:{port}"));
    let socket = match connect(&node, host, *port) {
        Ok(socket) => socket,
        Err(error) => {
            let reason = system_reason(&error);
            node.core
                .log
                .warning(format_args!("Cannot connect to {host}:{port}: {reason}"));
            return Ended::Again;
        }
    };
    let own = Arc::clone(&socket);
    following.stop_with(Box::new(move || own.end()));
    let mut connection = Connection::new(following, Arc::clone(&node), socket);
    let ended = connection.run();
    let lost = match ended {
        Ok(ended) => return ended,
        Err(lost) => lost,
    };
    connection.tell(&lost);
    match lost {
        Lost::Refused(reason) => {
            following.refuse(&reason);
            Ended::Refused
        }
        Lost::Unfit(reason) => {
            following.refuse(&reason);
            Ended::Unfit
        }
        Lost::Broken(_) => {
            following.set_link(Link::Broken);
            Ended::Again
        }
        _ => Ended::Again,
    }
}

/// Connects to a primary, encrypted if `tls-replication` says so.
fn connect(node: &Node, host: &str, port: u16) -> io::Result<Arc<dyn Conduit>> {
    let config = node.core.config.current();
    let timeout = Duration::from_secs(u64::from(config.replication.timeout_s.max(1)));
    let mut last = io::Error::from(ErrorKind::NotFound);
    let names = &node.replication.host_names;
    for address in names.resolve(host, port, &node.core.log)? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(timeout))?;
                socket.set_write_timeout(Some(timeout))?;
                let socket = match config.replication.links_by_certificate {
                    true => encrypt(node, &socket)?,
                    false => Arc::new(socket),
                };
                socket.set_receive_time(READ_WAIT)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Encrypts the connection by a handshake in which both ends show certificates.
fn encrypt(node: &Node, socket: &TcpStream) -> io::Result<Arc<dyn Conduit>> {
    let encryption = node.replication.own.encryption(node, None);
    let Some(encryption) = encryption.map_err(io::Error::other)? else {
        return Err(ErrorKind::Unsupported.into());
    };
    let encrypted = socket.encrypt(&encryption.tls, Side::Replica);
    let (conduit, _) = encrypted.map_err(|error| {
        let reason = system_reason(&error);
        io::Error::other(format!(
            "{reason} (with tls-replication yes REPLICAOF names a port for encrypted connections)"
        ))
    })?;
    Ok(conduit)
}

/// See the module.
struct Connection<'f> {
    following: &'f Following,
    node: Arc<Node>,
    socket: Arc<dyn Conduit>,
    machine: Follower,
    /// Where to continue the stream, if the primary agrees.
    from: Option<Source>,
    /// Bytes that were received and not consumed yet.
    input: Vec<u8>,
    room: Vec<u8>,
}

/// What the primary sent; its content is stored elsewhere.
enum Step {
    OwnLink(u16),
    Continues(Option<ReplicationId>),
    Full(ReplicationId, u64),
    SnapshotBegins(Option<u64>),
    Snapshot,
    SnapshotEnds,
    Stream,
}

impl<'f> Connection<'f> {
    fn new(following: &'f Following, node: Arc<Node>, socket: Arc<dyn Conduit>) -> Self {
        let config = node.core.config.current();
        let replication = &config.replication;
        let from = stream_here(&node);
        let introduction = Introduction {
            user: replication.user.clone().unwrap_or_default(),
            password: replication.password.clone().unwrap_or_default(),
            listening_port: config.port_for_peers(),
            ip_address: replication.announce_host.clone(),
            version: Some(VERSION),
            asks_for_link: own_link::can_follow(&node, following),
            from: from.map(|from| (id_of(&from), from.offset)),
            is_failover: following.fails_over(),
            timeout_ms: u64::from(replication.timeout_s) * 1000,
        };
        Self {
            following,
            socket,
            machine: Follower::new(introduction),
            from,
            input: Vec::new(),
            room: vec![0; READ_BYTES],
            node,
        }
    }

    fn now_ms(&self) -> u64 {
        self.node.core.clock.monotonic_ms()
    }

    /// Logs why the connection ended.
    fn tell(&self, lost: &Lost) {
        let log = &self.node.core.log;
        match lost {
            Lost::Io(error) => log.notice(format_args!(
                "The connection to the primary is lost: {}",
                system_reason(error)
            )),
            Lost::Failure(failure) => log.warning(format_args!("{failure}")),
            Lost::Broken(reason) => log.warning(format_args!(
                "What the primary sent cannot be applied, its data is needed anew: {reason}"
            )),
            // The code that refuses logs this.
            Lost::Refused(_) | Lost::Unfit(_) | Lost::Stopped => {}
        }
    }

    fn run(&mut self) -> Result<Ended, Lost> {
        self.following.set_link(Link::Handshake);
        let now_ms = self.now_ms();
        self.machine.on_connected(now_ms);
        let mut applier = Applier::new(&self.node, self.following);
        let mut content = Vec::new();
        loop {
            match self.next_step(&mut content)? {
                Step::OwnLink(port) => return Ok(Ended::OwnLink(port)),
                Step::Continues(id) => self.continues(id, &mut applier)?,
                Step::Full(id, offset) => {
                    self.take_snapshot(id, offset, &mut applier)?;
                }
                Step::SnapshotBegins(_) | Step::Snapshot | Step::SnapshotEnds | Step::Stream => {
                    let reason = "the primary sent something out of turn".to_owned();
                    return Err(Lost::Broken(reason));
                }
            }
            self.following.set_link(Link::Connected);
            self.following.handed_over();
            let streamed = self.stream(&mut applier);
            let applied = applier.offset();
            self.following.note_offset(applied, applied);
            applier.end();
            streamed?;
        }
    }

    /// Returns the next step of the primary's bytes, and appends its content to `content`.
    fn next_step(&mut self, content: &mut Vec<u8>) -> Result<Step, Lost> {
        let mut start = 0;
        loop {
            let now_ms = self.now_ms();
            let (taken, event) = self.machine.on_bytes(&self.input[start..], now_ms)?;
            let step = event.map(|event| match event {
                Event::OwnLink { port } => Step::OwnLink(port),
                Event::Continues { id } => Step::Continues(id),
                Event::Full { id, offset } => Step::Full(id, offset),
                Event::SnapshotBegins { bytes } => Step::SnapshotBegins(bytes),
                Event::Snapshot(bytes) => {
                    content.extend_from_slice(bytes);
                    Step::Snapshot
                }
                Event::SnapshotEnds => Step::SnapshotEnds,
                Event::Stream(bytes) => {
                    content.extend_from_slice(bytes);
                    Step::Stream
                }
            });
            start += taken;
            if let Some(step) = step {
                self.input.drain(..start);
                return Ok(step);
            }
            if taken == 0 {
                self.input.drain(..start);
                start = 0;
                self.receive()?;
            }
        }
    }

    /// Sends what is due, and waits a while for more bytes.
    fn receive(&mut self) -> Result<(), Lost> {
        if self.following.is_stopping() || self.node.is_stopping() {
            return Err(Lost::Stopped);
        }
        let now_ms = self.now_ms();
        self.machine.on_tick(now_ms)?;
        self.send()?;
        match self.socket.receive(&mut self.room) {
            Ok(0) if self.following.is_stopping() => Err(Lost::Stopped),
            Ok(0) => Err(Lost::Io(ErrorKind::UnexpectedEof.into())),
            Ok(read) => {
                self.following.note_io();
                let counts = &self.node.replication.counts;
                let count = &counts.input_bytes;
                count.fetch_add(read as u64, std::sync::atomic::Ordering::Relaxed);
                self.input.extend_from_slice(&self.room[..read]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(Lost::Io(error)),
            },
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let output = self.machine.take_output();
        let mut rest = &output[..];
        while !rest.is_empty() {
            let sent = self.socket.send(rest)?;
            if sent == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Continues the stream from the offset of the data here, under another ID if one is given.
    fn continues(
        &mut self,
        id: Option<ReplicationId>,
        applier: &mut Applier<'_>,
    ) -> Result<(), Lost> {
        let Some(from) = self.from else {
            return Err(Lost::Broken("nothing was to be continued".to_owned()));
        };
        let (own, offset) = (id_of(&from), from.offset);
        let id = id.unwrap_or(own);
        let mut history = self.node.replication.history();
        if id != history.id {
            if id != own {
                history.second = Some((own, offset + 1));
            }
            history.id = id;
            self.node.replication.set_history(history);
        }
        applier.begin_stream(source_of(id, offset, from.database))?;
        self.machine.set_applied(offset, None);
        self.following.note_offset(offset, offset);
        self.node.core.log.notice(format_args!(
            "The primary continues its stream {id} from offset {offset}"
        ));
        Ok(())
    }

    /// Replaces the data here with the primary's.
    fn take_snapshot(
        &mut self,
        id: ReplicationId,
        offset: u64,
        applier: &mut Applier<'_>,
    ) -> Result<(), Lost> {
        let held = self.held(applier);
        judge_full_sync(&held, id, offset).map_err(Lost::Refused)?;
        self.node.core.log.notice(format_args!(
            "The primary gives all of its data: stream {id}, offset {offset}"
        ));
        self.following.set_link(Link::Sync);
        let begun_unix_us = self.node.core.clock.now_unix_us();
        let taken = snapshot::take(self, &held, applier);
        let failure = taken.as_ref().err().map(|lost| format!("{lost:?}"));
        self.node.core.shared.observer.spans.note(
            "full sync",
            begun_unix_us,
            &*self.node.core.clock,
            failure.as_ref().map_or(Ok(()), |reason| Err(reason as _)),
            &[("iolite.primary", &"redis")],
        );
        let database = taken?;
        self.node
            .replication
            .set_history(History { id, second: None });
        // The permission to discard data holds for this full sync only.
        let _used_up = self.following.take_discard();
        applier.keep_all();
        applier.begin_stream(source_of(id, offset, database))?;
        self.machine.set_applied(offset, None);
        self.following.note_offset(offset, offset);
        let now_ms = self.now_ms();
        self.machine.on_loaded(now_ms);
        Ok(())
    }

    /// Returns what a full sync would replace.
    fn held(&self, applier: &mut Applier<'_>) -> Held {
        let stream = stream_here(&self.node).map(|here| (id_of(&here), here.offset));
        let accepts_older = self.node.core.config.current().replication.accepts_older;
        // A partial copy of a primary's data is not worth keeping.
        let has_data = !self.node.core.env.followed.is_broken() && applier.has_data();
        Held {
            stream,
            has_data,
            may_discard: self.following.forces() || accepts_older || self.following.may_discard(),
        }
    }

    /// Notes in the log, and for the next acknowledgement, how far the stream is applied.
    fn tell_applied(&mut self, applier: &mut Applier<'_>) -> Result<(), Lost> {
        applier.keep_up()?;
        applier.write_out()?;
        let durable = applier.durable_offset();
        self.machine.set_applied(applier.offset(), durable);
        Ok(())
    }

    /// Applies the stream until the connection ends.
    fn stream(&mut self, applier: &mut Applier<'_>) -> Result<(), Lost> {
        let mut commands = Commands::default();
        let (mut waiting, mut start) = (Vec::new(), 0);
        let mut read = applier.offset();
        loop {
            let mut is_asked = false;
            loop {
                let piece = commands.next_piece(&waiting[start..]).map_err(|flaw| {
                    Lost::Broken(format!("at offset {}: {flaw}", applier.offset()))
                })?;
                let Some(piece) = piece else { break };
                let bytes = match piece {
                    Piece::Commands { bytes, is_open } => {
                        applier.apply(&waiting[start..start + bytes], is_open)?;
                        bytes
                    }
                    Piece::GetAck { bytes } => {
                        is_asked = true;
                        applier.pass(bytes);
                        bytes
                    }
                    Piece::Nothing { bytes } => {
                        applier.pass(bytes);
                        bytes
                    }
                };
                start += bytes;
            }
            waiting.drain(..start);
            start = 0;
            if waiting.capacity() > WAITING_BYTES_KEPT && waiting.len() < WAITING_BYTES_KEPT / 2 {
                waiting.shrink_to(WAITING_BYTES_KEPT / 2);
            }
            self.tell_applied(applier)?;
            self.following.note_offset(read, applier.offset());
            if is_asked {
                let now_ms = self.now_ms();
                self.machine.acknowledge(now_ms);
            }
            while self.input.is_empty() {
                self.receive()?;
                if self.input.is_empty() {
                    self.tell_applied(applier)?;
                }
            }
            let before = waiting.len();
            match self.next_step(&mut waiting)? {
                Step::Stream => read += (waiting.len() - before) as u64,
                _ => return Err(Lost::Broken("the stream is none any more".to_owned())),
            }
        }
    }
}

/// Returns the stream that the data here is of, and its offset.
fn stream_here(node: &Node) -> Option<Source> {
    let followed = &node.core.env.followed;
    match followed.get() {
        None if followed.is_broken() => None,
        // The node's own stream: it was a primary.
        None => {
            let (id, offset) = node.replication.stream.resume(node)?;
            Some(source_of(id, offset, 0))
        }
        source => source,
    }
}

fn source_of(id: ReplicationId, offset: u64, database: u16) -> Source {
    let mut source = Source {
        id: NO_STREAM,
        offset,
        database,
    };
    source.id.copy_from_slice(id.as_str().as_bytes());
    source
}

fn id_of(source: &Source) -> ReplicationId {
    ReplicationId::parse(&source.id).unwrap_or(ReplicationId::NONE)
}

/// Notes in the log that the data belongs to no followed stream any more. The node takes writes
/// from here on.
pub(super) fn end_following(node: &Node) {
    let followed = &node.core.env.followed;
    if followed.get().is_none() && !followed.is_broken() {
        return;
    }
    followed.set(OWN);
    state(node, &OWN);
}

/// Appends a position in the stream to the log, if there is one.
fn state(node: &Node, source: &Source) {
    let Some(log) = node.keeping.log_in_use.get() else {
        return;
    };
    let appended = Appended::default();
    let mut store = node.core.store.handle();
    store.set_sink(Some(Arc::clone(&log).sink(&appended)));
    store.begin_group();
    store.state_source(source);
    store.end_group();
    store.set_sink(None);
    if let Err(reason) = log.write_out(appended.end()) {
        node.core
            .log
            .warning(format_args!("The log cannot be written: {reason}"));
    }
}
