//! The replica's end of its link: one thread that connects, receives, appends and applies.
//!
//! ```text
//!   primary ─► messages ─► Replica (state machine) ─ actions ─► log: append ─► store: apply
//!      ▲                                                              │            │
//!      └──────────────── ack: appended, durable, applied ◄───────────┴────────────┘
//! ```
//!
//! What is received is appended and applied before more is read: data that waits stays in the
//! buffers of the sockets. During a long step (loading a checkpoint) a second thread sends signs of
//! life.

use std::fmt;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replication::TermId;
use replication::attach::{Attach, Refusal};
use replication::link::{Block, Digest, Full, Message, Resume, SyncEnd};
use replication::replica::{Action, OwnLog, Replica, State};

use super::session::{
    Conduit, Identity, LinkFault, Reader, Received, Session, Side, Writer, check_data_versions,
    conduit, greet,
};
use super::verify::Saying;
use crate::replica_reads::Standing;

/// Received frames of at least this many bytes are acknowledged as appended before they are
/// applied.
const EARLY_ACK_BYTES: usize = 64 << 10;
/// How long to wait for a message: short while something appended is not durable yet, otherwise
/// long.
const SHORT_LOOK: Duration = Duration::from_millis(20);
const LONG_LOOK: Duration = Duration::from_millis(200);
/// Period of the pings that a node sends during a long step.
const BUSY_PING: Duration = Duration::from_secs(1);
/// Period of the pings that a node sends during a full sync.
const SYNC_PING_MS: u64 = 1_000;
/// How often the pinging thread checks whether the step has ended.
const BUSY_LOOK: Duration = Duration::from_millis(5);
/// After this many failed connections in a row `follow` returns, and its caller finds the primary
/// again.
const FAILURES_MAX: u32 = 4;

/// What a replica's link needs of the server.
pub(crate) trait ReplicaHome: Send + Sync {
    /// The identity that this node shows to that peer, and the key of its links.
    ///
    /// # Errors
    /// Why no link is possible.
    fn identity(&self, peer: IpAddr) -> io::Result<Identity>;

    /// Connects to the port of the primary's links.
    ///
    /// # Errors
    /// Errors of the system.
    fn dial(&self) -> io::Result<TcpStream>;

    /// Publishes the connection to the primary, so that other threads can end it.
    fn connected(&self, conduit: Option<Arc<dyn Conduit>>);

    /// Whether following has to stop.
    fn is_stopping(&self) -> bool;

    /// Sleeps, and returns whether to go on.
    fn pause(&self, time: Duration) -> bool;

    /// `repl-timeout`.
    fn timeout_ms(&self) -> u64;

    /// Milliseconds since 1970 UTC.
    fn now_ms(&self) -> u64;

    /// Notes the replica's state, and how far its log is.
    fn note(&self, state: State, log: OwnLog, is_online: bool);

    /// Notes how far the replica is, and in which term. Called after each message, because reads at
    /// level quorum wait for it.
    fn note_standing(&self, standing: Standing) {
        let _nobody_waits = standing;
    }

    /// Whether this node may follow a primary of this term.
    fn accepts(&self, term: u64) -> bool;

    /// Checks that this log may continue with the primary's, from its end or from where it is
    /// rewound to.
    ///
    /// # Errors
    /// Why it must not.
    fn goes_on(&self) -> Result<(), String>;

    /// Whether only committed frames are applied.
    fn applies_committed_only(&self) -> bool;

    /// Notes that this node has everything up to `committed`, as a primary of the present term
    /// says.
    fn note_committed(&self, committed: u64);

    /// Notes that a message was received.
    fn heard(&self);

    /// Notes that the primary hands over its office: this node takes the office as soon as the link
    /// has ended.
    fn take_over(&self);

    /// Notes that the primary will want the keys of these groups at a digest point.
    fn note_wanted(&self, number: u64, groups: Vec<u16>);

    /// Takes the answers about digest points that are to be sent to the primary.
    fn take_sayings(&self) -> Vec<Saying>;

    /// Writes a line to the server log.
    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>);
}

/// The log and the data of a replica.
pub(crate) trait ReplicaData {
    /// What this node has, for the request to attach.
    fn attach(&mut self) -> Attach;

    /// How far this node's log is.
    fn log(&self) -> OwnLog;

    /// Appends frames of a primary of this term to the log, unchanged.
    ///
    /// # Errors
    /// Why the frames cannot be appended. Nothing was appended then.
    fn append(&mut self, term: u64, first: u64, bytes: &[u8]) -> Result<(), String>;

    /// Applies the appended frames that end at or before `up_to`.
    ///
    /// # Errors
    /// Why no more can be applied. This node needs a full sync then.
    fn apply(&mut self, up_to: u64) -> Result<(), String>;

    /// When the last applied frame was written, in milliseconds since 1970 UTC by the primary's
    /// clock.
    fn applied_unix_ms(&self) -> u64;

    /// Saves the log from a sequence on to a separate place, truncates the log, and restores the
    /// data as of that sequence.
    ///
    /// # Errors
    /// Why that is not possible. This node needs a full sync then.
    fn rewind(&mut self, to: u64) -> Result<(), String>;

    /// Begins a full sync, or resumes one where its received data ends.
    ///
    /// # Errors
    /// Why it cannot begin.
    fn begin_sync(&mut self, full: &Full, primary: TermId) -> Result<(), String>;

    /// Returns what is kept of a full sync from a primary whose link broke.
    fn kept_sync(&mut self, primary: TermId) -> Option<Resume>;

    /// Takes a piece of a part file.
    ///
    /// # Errors
    /// Why the piece is not kept.
    fn block(&mut self, block: &Block<'_>) -> Result<(), String>;

    /// Takes the end of a part file.
    ///
    /// # Errors
    /// Why the part is not kept.
    fn end_part(&mut self, end: &Block<'_>) -> Result<(), String>;

    /// Replaces this node's data with the full sync, which is complete.
    ///
    /// # Errors
    /// Why it does not. This node then has its former data, or needs a full sync.
    fn end_sync(&mut self, end: &SyncEnd<'_>) -> Result<(), String>;

    /// Truncates the front of a log-only copy at `to`: all copies of the data have the log up to
    /// there.
    fn trim(&mut self, to: u64);

    /// Forgets a partly received piece, because the link ended.
    fn forget_piece(&mut self);
}

/// Why `follow` ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The caller stopped it.
    Stopped,
    /// The primary refused this replica.
    Refused(Refusal),
    /// Several connections in a row failed: that node may not be a primary any more.
    Unreachable,
}

/// Follows a primary over its own link until the caller stops it, the primary refuses, or
/// connections fail repeatedly. `may_discard`: an operator asked to follow this primary, so
/// unrelated data may be discarded, once.
pub(crate) fn follow(
    home: &dyn ReplicaHome,
    data: &mut dyn ReplicaData,
    may_discard: bool,
) -> Ended {
    let mut following = Follow {
        home,
        data,
        machine: Replica::new(home.timeout_ms()),
        failures: 0,
        is_broken: false,
        primary_ahead_ms: 0,
        primary: TermId::default(),
        said_ms: 0,
    };
    // The only action is to connect.
    let _connect = following.machine.follow(may_discard, home.now_ms());
    let ended = following.run();
    home.connected(None);
    ended
}

struct Follow<'f> {
    home: &'f dyn ReplicaHome,
    data: &'f mut dyn ReplicaData,
    machine: Replica,
    /// Failed connections in a row.
    failures: u32,
    /// Whether this node's data is unusable, so that it asks for a full sync.
    is_broken: bool,
    /// How far the primary's clock is ahead of this node's.
    primary_ahead_ms: i64,
    /// Which node the primary is.
    primary: TermId,
    /// When this node last sent a ping during a full sync.
    said_ms: u64,
}

/// A connected link.
struct Link {
    reader: Reader,
    writer: Mutex<Writer>,
}

impl Follow<'_> {
    fn run(&mut self) -> Ended {
        loop {
            if self.home.is_stopping() {
                return Ended::Stopped;
            }
            match self.machine.state() {
                State::Connecting => self.connect(),
                State::Refused(refusal) => return Ended::Refused(refusal),
                _ if self.failures >= FAILURES_MAX => return Ended::Unreachable,
                _ => {
                    if !self.home.pause(SHORT_LOOK) {
                        return Ended::Stopped;
                    }
                    // The pause is over: the only action is to connect.
                    let _connect = self.machine.on_tick(self.home.now_ms());
                }
            }
            self.note();
        }
    }

    fn note(&self) {
        let (state, log) = (self.machine.state(), self.data.log());
        self.home.note(state, log, self.machine.is_online());
        self.home.note_standing(Standing {
            is_online: self.machine.is_online(),
            term: self.machine.term(),
            committed: self.machine.told_committed(),
            applied: log.applied,
        });
    }

    /// Connects, and follows until the link ends.
    fn connect(&mut self) {
        self.note();
        let ended = match self.open() {
            Ok(mut link) => {
                let ended = self.receive(&mut link);
                self.home.connected(None);
                self.data.forget_piece();
                ended
            }
            Err(fault) => {
                self.failures += 1;
                Err(fault)
            }
        };
        if let Err(fault) = ended
            && !self.home.is_stopping()
        {
            self.home.tell(
                false,
                format_args!("The link to the primary ended: {fault}"),
            );
        }
        self.machine.on_closed(self.home.now_ms());
    }

    fn open(&mut self) -> Result<Link, LinkFault> {
        let socket = self.home.dial()?;
        let identity = self.home.identity(socket.peer_addr()?.ip())?;
        let conduit = conduit(socket)?;
        self.home.connected(Some(Arc::clone(&conduit)));
        let session = greet(conduit, &identity)?;
        check_data_versions(&session.peer, Side::Replica)?;
        let Session {
            reader,
            writer,
            is_encrypted,
            peer,
            ..
        } = session;
        self.primary = peer.node;
        let kept = self.data.kept_sync(peer.node);
        self.machine.keep_sync(kept);
        if is_encrypted {
            self.home
                .tell(false, format_args!("The link to the primary is encrypted"));
        }
        let writer = Mutex::new(writer);
        Ok(Link { reader, writer })
    }

    fn receive(&mut self, link: &mut Link) -> Result<(), LinkFault> {
        let Link { reader, writer } = link;
        let mut attach = self.data.attach();
        attach.is_damaged |= self.is_broken;
        let actions = self
            .machine
            .on_connected(attach, self.data.log(), self.home.now_ms());
        self.perform(actions, writer)?;
        loop {
            if self.home.is_stopping() {
                return Ok(());
            }
            let log = self.data.log();
            let is_synced = log.durable == log.appended;
            reader.set_time(if is_synced { LONG_LOOK } else { SHORT_LOOK })?;
            if is_synced && matches!(self.machine.state(), State::Following) {
                // Not only after a time without messages: the primary may send often, and WAITAOF
                // waits for this acknowledgement.
                let actions = self.machine.on_log(log);
                self.perform(actions, writer)?;
            }
            let now_ms = self.home.now_ms();
            for saying in self.home.take_sayings() {
                let digest = Message::Digest(Digest {
                    number: saying.number,
                    sequence: saying.sequence,
                    state: saying.state,
                    bytes: &saying.bytes,
                });
                self.send(&digest, writer)?;
            }
            let actions = match reader.next()? {
                Received::Message(Message::Takeover { sequence }) => {
                    self.home.heard();
                    return self.answer_takeover(sequence, writer);
                }
                Received::Message(Message::Floor { sequence }) => {
                    self.home.heard();
                    self.data.trim(sequence);
                    Vec::new()
                }
                Received::Message(Message::Verify { number, groups }) => {
                    self.home.heard();
                    self.home.note_wanted(number, groups);
                    Vec::new()
                }
                Received::Message(message) => {
                    self.home.heard();
                    self.note_clock(&message);
                    self.check_term(&message)?;
                    self.machine.on_message(message, self.home.now_ms())
                }
                Received::Unknown => Vec::new(),
                Received::Nothing => {
                    let mut actions = self.machine.on_log(log);
                    actions.extend(self.machine.on_tick(now_ms));
                    actions
                }
            };
            self.perform(actions, writer)?;
            self.say_alive(writer)?;
            self.note();
            if matches!(self.machine.state(), State::Following) {
                self.failures = 0;
            }
        }
    }

    /// Pings the primary during a full sync, because the pieces of a full sync are not acknowledged
    /// one by one.
    fn say_alive(&mut self, writer: &Mutex<Writer>) -> Result<(), LinkFault> {
        let now_ms = self.home.now_ms();
        let is_due = now_ms < self.said_ms || now_ms - self.said_ms >= SYNC_PING_MS;
        if !is_due || !matches!(self.machine.state(), State::Syncing { .. }) {
            return Ok(());
        }
        self.said_ms = now_ms;
        let ping = Message::Ping {
            unix_ms: now_ms,
            echo_unix_ms: 0,
        };
        self.send(&ping, writer)
    }

    /// Answers a primary that hands over its office. This node accepts if it has all of the
    /// primary's log.
    fn answer_takeover(&self, sequence: u64, writer: &Mutex<Writer>) -> Result<(), LinkFault> {
        let log = self.data.log();
        let has_all =
            (log.appended, log.applied) == (sequence, sequence) && self.machine.is_online();
        let sequence = if has_all { sequence } else { 0 };
        self.send(&Message::Takeover { sequence }, writer)?;
        if has_all {
            self.home.take_over();
        }
        Ok(())
    }

    /// Refuses a primary of an older term than this node knows: that primary has not noticed yet
    /// that it was replaced.
    fn check_term(&self, message: &Message<'_>) -> Result<(), LinkFault> {
        let term = match message {
            Message::Continue { term, .. } => *term,
            Message::Full(full) => full.term,
            _ => return Ok(()),
        };
        let accepted = match message {
            _ if !self.home.accepts(term) => Err(format!(
                "it is primary in term {term}, and a later one is known here"
            )),
            Message::Continue { .. } => self.home.goes_on(),
            _ => Ok(()),
        };
        accepted.map_err(|reason| LinkFault::Io(io::Error::other(reason)))
    }

    fn note_clock(&mut self, message: &Message<'_>) {
        if let Message::Ping { unix_ms, .. } = message {
            let (theirs, ours) = (i64::try_from(*unix_ms), i64::try_from(self.home.now_ms()));
            self.primary_ahead_ms = theirs.unwrap_or(0).saturating_sub(ours.unwrap_or(0));
        }
    }

    /// Returns the age of the applied data in milliseconds, or 0 if all that was received is
    /// applied.
    fn lag_ms(&self) -> u32 {
        let log = self.data.log();
        if log.applied >= log.appended {
            return 0;
        }
        let now = self
            .home
            .now_ms()
            .saturating_add_signed(self.primary_ahead_ms);
        u32::try_from(now.saturating_sub(self.data.applied_unix_ms())).unwrap_or(u32::MAX)
    }

    fn send(&self, message: &Message<'_>, writer: &Mutex<Writer>) -> Result<(), LinkFault> {
        let began_ms = self.home.now_ms();
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.send(message, &|| {
            let waited_ms = self.home.now_ms().saturating_sub(began_ms);
            !self.home.is_stopping() && waited_ms < self.home.timeout_ms()
        })
    }

    /// Performs the actions of the state machine, and feeds the results back to it.
    fn perform<'m>(
        &mut self,
        actions: Vec<Action<'m>>,
        writer: &Mutex<Writer>,
    ) -> Result<(), LinkFault> {
        let mut waiting: Vec<Action<'m>> = actions;
        while !waiting.is_empty() {
            let mut next = Vec::new();
            for action in waiting {
                next.extend(self.act(action, writer)?);
            }
            waiting = next;
        }
        Ok(())
    }

    fn act<'m>(
        &mut self,
        action: Action<'m>,
        writer: &Mutex<Writer>,
    ) -> Result<Vec<Action<'m>>, LinkFault> {
        match action {
            Action::Connect => Ok(Vec::new()),
            Action::Close => Err(LinkFault::Closed),
            Action::Send(message) => self.send(&message, writer).map(|()| Vec::new()),
            Action::Append { first, bytes } => self.append(first, bytes, writer),
            Action::Committed => self.apply(),
            Action::Truncate { to } => {
                let rewound = while_alive(writer, self.home, || self.data.rewind(to));
                self.check_data(rewound, "The log was not rewound")?;
                let (attach, log) = (self.data.attach(), self.data.log());
                Ok(self.machine.on_truncated(attach, log))
            }
            Action::BeginSync(full) => {
                self.home.tell(
                    false,
                    format_args!(
                        "A full sync begins: {} records in {} bytes, the log from sequence {}",
                        full.records, full.bytes, full.log_from
                    ),
                );
                let begun = self.data.begin_sync(&full, self.primary);
                self.check_sync(begun)
            }
            Action::Load(block) => {
                let kept = self.data.block(&block);
                self.check_sync(kept)
            }
            Action::EndPart(end) => {
                let kept = self.data.end_part(&end);
                self.check_sync(kept)
            }
            Action::EndSync(end) => {
                let loaded = while_alive(writer, self.home, || self.data.end_sync(&end));
                self.check_sync(loaded)?;
                self.is_broken = false;
                let log = self.data.log();
                Ok(self.machine.on_synced(log))
            }
            Action::Report(refusal) => {
                self.home.tell(
                    true,
                    format_args!("The primary refuses this replica: {refusal}"),
                );
                Ok(Vec::new())
            }
        }
    }

    fn append<'m>(
        &mut self,
        first: u64,
        bytes: &[u8],
        writer: &Mutex<Writer>,
    ) -> Result<Vec<Action<'m>>, LinkFault> {
        if let Err(reason) = self.data.append(self.machine.term(), first, bytes) {
            self.home.tell(
                true,
                format_args!("What the primary sent is not appended: {reason}"),
            );
            return Ok(self.machine.on_append_failed(self.home.now_ms()));
        }
        let is_waited_for = self.home.applies_committed_only();
        let mut told = Ok(());
        if bytes.len() >= EARLY_ACK_BYTES || is_waited_for {
            self.machine.note_lag(self.lag_ms());
            let early = self.machine.on_log(self.data.log());
            told = self.perform(early, writer);
        }
        // What is in the log is applied even if the link has ended.
        let next = self.apply();
        told.and(next)
    }

    /// Applies the frames that may be applied.
    fn apply<'m>(&mut self) -> Result<Vec<Action<'m>>, LinkFault> {
        let committed = self.machine.committed();
        let up_to = match self.home.applies_committed_only() {
            true => committed,
            false => u64::MAX,
        };
        let applied = self.data.apply(up_to);
        self.check_data(applied, "What the primary sent cannot be applied")?;
        let log = self.data.log();
        if committed <= log.appended {
            self.home.note_committed(committed);
        }
        self.machine.note_lag(self.lag_ms());
        Ok(self.machine.on_log(log))
    }

    /// If a step failed, marks this node's data as unusable: the link ends, and the next one asks
    /// for a full sync.
    fn check_data(&mut self, done: Result<(), String>, what: &str) -> Result<(), LinkFault> {
        done.map_err(|reason| {
            self.is_broken = true;
            self.home.tell(
                true,
                format_args!("{what}: {reason}. A full sync is asked for"),
            );
            LinkFault::Io(io::Error::other(reason))
        })
    }

    fn check_sync<'m>(&mut self, done: Result<(), String>) -> Result<Vec<Action<'m>>, LinkFault> {
        match done {
            Ok(()) => Ok(Vec::new()),
            Err(reason) => {
                self.home
                    .tell(true, format_args!("The full sync failed: {reason}"));
                Ok(self.machine.on_sync_failed(None, self.home.now_ms()))
            }
        }
    }
}

/// Runs a step that may take long, while another thread sends pings over the link.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread that ends with the step"
)]
fn while_alive<R>(writer: &Mutex<Writer>, home: &dyn ReplicaHome, step: impl FnOnce() -> R) -> R {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let speak = || {
            let mut waited = Duration::ZERO;
            while !is_done.load(Ordering::Acquire) {
                std::thread::sleep(BUSY_LOOK);
                waited += BUSY_LOOK;
                if waited >= BUSY_PING {
                    waited = Duration::ZERO;
                    let ping = Message::Ping {
                        unix_ms: home.now_ms(),
                        echo_unix_ms: 0,
                    };
                    let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                    // The thread that reads next notices that the link has ended.
                    let _gone = writer.send(&ping, &|| !is_done.load(Ordering::Acquire));
                }
            }
        };
        let speaker = std::thread::Builder::new().name("link-alive".into());
        // Without this thread the primary may time out, which costs a connection.
        let _refused = speaker.spawn_scoped(scope, speak);
        let result = step();
        is_done.store(true, Ordering::Release);
        result
    })
}
