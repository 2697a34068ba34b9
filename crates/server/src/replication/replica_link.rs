//! The replica's end of its link: one thread that connects, receives, appends and applies.
//!
//! ```text
//!   primary ─► messages ─► Replica (state machine) ─ actions ─► log: append ─► store: apply
//!      ▲                                                              │            │
//!      └──────────────── ack: appended, durable, applied ◄───────────┴────────────┘
//! ```
//!
//! What is received is appended and applied before more is read: what waits is in the sockets, and its memory is theirs.
//! While the thread is long in one step (a checkpoint is loaded), another one says that this node is alive.

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

/// Received frames of so many bytes are acknowledged as appended before they are applied.
const EARLY_ACK_BYTES: usize = 64 << 10;
/// How long a message is waited for while something appended is not durable yet, and otherwise.
const SHORT_LOOK: Duration = Duration::from_millis(20);
const LONG_LOOK: Duration = Duration::from_millis(200);
/// How often a node that is busy says that it is alive.
const BUSY_PING: Duration = Duration::from_secs(1);
/// How often a node says so that is in a full sync.
const SYNC_PING_MS: u64 = 1_000;
/// How often that thread looks whether it may end.
const BUSY_LOOK: Duration = Duration::from_millis(5);
/// So many connections in a row that came to nothing, and whoever runs this looks again what the primary is.
const FAILURES_MAX: u32 = 4;

/// What the link of a replica needs of the server.
pub(crate) trait ReplicaHome: Send + Sync {
    /// Who this node is for that peer, and the key of its links.
    ///
    /// # Errors
    /// Why there can be no link.
    fn identity(&self, peer: IpAddr) -> io::Result<Identity>;

    /// A connection to the port of the primary's links.
    ///
    /// # Errors
    /// Those of the system.
    fn dial(&self) -> io::Result<TcpStream>;

    /// The connection by which the primary is followed now, for who wants to end it.
    fn connected(&self, conduit: Option<Arc<dyn Conduit>>);

    /// Whether to follow no longer.
    fn is_stopping(&self) -> bool;

    /// Sleeps; whether to go on.
    fn pause(&self, time: Duration) -> bool;

    /// `repl-timeout`.
    fn timeout_ms(&self) -> u64;

    /// Milliseconds since 1970 UTC.
    fn now_ms(&self) -> u64;

    /// Where the replica stands now, and what of its log.
    fn note(&self, state: State, log: OwnLog, is_online: bool);

    /// How far the replica is, and in which term. Told after each message: whoever reads at quorum waits for it.
    fn note_standing(&self, standing: Standing) {
        let _nobody_waits = standing;
    }

    /// Whether a primary of this term may be followed.
    fn accepts(&self, term: u64) -> bool;

    /// The log here goes on with the primary's from where it ends, or is rewound to.
    ///
    /// # Errors
    /// Why it must not.
    fn goes_on(&self) -> Result<(), String>;

    /// Whether only what is committed is applied.
    fn applies_committed_only(&self) -> bool;

    /// A primary of the present term has told this node what is committed, and it has all of that.
    fn note_committed(&self, committed: u64);

    /// A message came.
    fn heard(&self);

    /// The primary hands its office over: this node takes it as soon as the link has ended.
    fn take_over(&self);

    /// The primary will want keys of these groups at a digest point.
    fn note_wanted(&self, number: u64, groups: Vec<u16>);

    /// What the primary is to hear about digest points.
    fn take_sayings(&self) -> Vec<Saying>;

    /// A line for the operator.
    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>);
}

/// The log and the data of a replica.
pub(crate) trait ReplicaData {
    /// What this node has.
    fn attach(&mut self) -> Attach;

    /// How far it is.
    fn log(&self) -> OwnLog;

    /// Appends frames of a primary of this term to the log, as they are.
    ///
    /// # Errors
    /// Why they are not: nothing was appended.
    fn append(&mut self, term: u64, first: u64, bytes: &[u8]) -> Result<(), String>;

    /// Applies what was appended, as far as whole frames of it end no later than that.
    ///
    /// # Errors
    /// Why no more can be applied: this node is given everything anew.
    fn apply(&mut self, up_to: u64) -> Result<(), String>;

    /// When the frame was written that was applied last, in milliseconds since 1970 UTC by the primary's clock.
    fn applied_unix_ms(&self) -> u64;

    /// Keeps apart what the log has from a sequence on, truncates it, and has the data as they were there.
    ///
    /// # Errors
    /// Why not: this node is given everything anew.
    fn rewind(&mut self, to: u64) -> Result<(), String>;

    /// A full sync begins, or goes on where what was received of it ends.
    ///
    /// # Errors
    /// Why it cannot.
    fn begin_sync(&mut self, full: &Full, primary: TermId) -> Result<(), String>;

    /// What is kept of a full sync of a primary whose link broke.
    fn kept_sync(&mut self, primary: TermId) -> Option<Resume>;

    /// A piece of a part file.
    ///
    /// # Errors
    /// Why it is not kept.
    fn block(&mut self, block: &Block<'_>) -> Result<(), String>;

    /// A part is whole.
    ///
    /// # Errors
    /// Why it is not kept.
    fn end_part(&mut self, end: &Block<'_>) -> Result<(), String>;

    /// All is there: it replaces what this node had.
    ///
    /// # Errors
    /// Why it does not; then this node has what it had, or is given everything anew.
    fn end_sync(&mut self, end: &SyncEnd<'_>) -> Result<(), String>;

    /// All copies of the data have the log up to here: a copy of the log alone begins there from now on.
    fn trim(&mut self, to: u64);

    /// The link ended: what is half received is forgotten.
    fn forget_piece(&mut self);
}

/// Why following ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was to.
    Stopped,
    /// The primary refused this replica.
    Refused(Refusal),
    /// Nothing came of several connections in a row: it may be no such primary any more.
    Unreachable,
}

/// Follows a primary over its own link until that is to end, or comes to nothing. `may_discard`: an operator asked for it,
/// so unrelated data may be given up, once.
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
    // The one action is to connect.
    let _connect = following.machine.follow(may_discard, home.now_ms());
    let ended = following.run();
    home.connected(None);
    ended
}

struct Follow<'f> {
    home: &'f dyn ReplicaHome,
    data: &'f mut dyn ReplicaData,
    machine: Replica,
    /// Connections in a row that came to nothing.
    failures: u32,
    /// What this node has is no use: it asks for everything.
    is_broken: bool,
    /// How far the primary's clock is before the own one.
    primary_ahead_ms: i64,
    /// Which node the primary is.
    primary: TermId,
    /// When this node said last that it is there, in a full sync.
    said_ms: u64,
}

/// A link while it stands.
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
                    // A pause that is over: the one action is to connect.
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

    /// Connects, and follows as long as the link stands.
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
                // Not only once nothing has come for long: the primary is heard more often than that, and WAITAOF waits.
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

    /// What comes of a full sync is not acknowledged piece by piece: the primary hears all the same that this node is there.
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

    /// The primary hands its office over, to a replica that has all of its log.
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

    /// A primary of an older term than is known here is not followed: it does not know yet that it is one no more.
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

    /// How old what is applied is, where more was received.
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

    /// Does what the state machine asks for, and tells it what came of it.
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
        // What is in the log is applied, whether or not the link still stands.
        let next = self.apply();
        told.and(next)
    }

    /// Applies what may be.
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

    /// What this node has is no use any more: the link ends, and the next one asks for everything.
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

/// Does something that may take long, while another thread says over the link that this node is alive.
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
                    // Whoever reads next finds out that the link is gone.
                    let _gone = writer.send(&ping, &|| !is_done.load(Ordering::Acquire));
                }
            }
        };
        let speaker = std::thread::Builder::new().name("link-alive".into());
        // Without one the primary may lose patience, which costs a connection.
        let _refused = speaker.spawn_scoped(scope, speak);
        let result = step();
        is_done.store(true, Ordering::Release);
        result
    })
}
