//! The primary's end of its links: two threads for each link, and one state machine for all.
//!
//! ```text
//!   replica ─► reader thread ─ attach, ack ─► Primary (one lock, held for a step) ─ actions ─► outbox
//!                                                                                      │
//!   replica ◄─ sender thread ◄── pieces of the log, by its own cursor ◄────────────────┘
//!                             ◄── part files of a checkpoint
//! ```
//!
//! A sender holds a cursor and one piece of at most 256 KiB. It blocks only in the socket of its
//! own replica: a replica that stalls costs two sleeping threads, and no other thread waits for it.
//! No part of the log waits in memory for a replica. A replica that needs more than the log still
//! has gets a full sync over the same link.
//!
//! The reader handles an acknowledgement at once, even while the sender is blocked.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use durability::checkpoint::{Manifest, encode_manifest};
use durability::disk::Disk;
use durability::log::{Cursor, Log, Read};
use replication::attach::FullReason;
use replication::link::{
    ASK, Ack, Block, Digest, Full, Hello, LOG_ONLY, MANIFEST_PART, Message, Resume, SLOTS, Source,
    SyncEnd, WHOLE_PART,
};
use replication::primary::{Action, CloseReason, LinkId, Piece, Primary, Stage, Times};
use replication::{PrimaryLog, Refusal, TermId};

use super::session::{
    Conduit, Identity, LinkFault, Reader, Received, Session, Side, Writer, check_data_versions,
    welcome,
};

/// Number of bytes of a part file in one message.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;
/// Maximum sleep of a sender.
const TICK: Duration = Duration::from_millis(100);
/// Sleep of a sender while something that it sent is about to be committed, and the maximum number
/// of such sleeps in a row.
const NEWS_TICK: Duration = Duration::from_millis(2);
const NEWS_TICKS_MAX: u32 = 100;
/// How often to check how much of its log a log-only copy may discard.
const FLOOR_LOOK_MS: u64 = 1_000;
/// How often a replica's last acknowledgement is reported again while its pings come.
const TOLD_AGAIN_MS: u64 = 500;
/// Minimum time between two log lines about refused links.
const REFUSED_TOLD_MS: u64 = 1_000;
/// Maximum number of links at a time, including unauthenticated ones.
pub(crate) const LINKS_MAX: usize = 256;

/// What a primary's links need of the server.
pub(crate) trait PrimaryHome: Send + Sync {
    /// How this node identifies itself to a peer at an address, and the key of its links.
    ///
    /// # Errors
    /// Why there can be no links.
    fn identity(&self, address: &str) -> Result<Identity, String>;

    /// This node's ID.
    fn node_id(&self) -> TermId;

    /// The log that is sent, or `None` if there is none at present.
    fn log(&self) -> Option<Arc<Log>>;

    /// What this node has, for a replica that attaches. This node's term frame is durable when this
    /// returns.
    ///
    /// # Errors
    /// Why no replica can be answered now: the link is closed, and the replica tries again.
    fn view(&self) -> Result<PrimaryLog, String>;

    /// Returns a checkpoint that the log continues: the one in force, or a new one. For a log-only
    /// copy it has no parts.
    ///
    /// # Errors
    /// Why there is none: the link is closed, and the replica tries again.
    fn full_copy(&self, reason: FullReason, is_log_only: bool) -> Result<FullCopy, String>;

    /// The sequence at which the log of a log-only copy may begin, if known.
    fn floor(&self) -> Option<u64> {
        None
    }

    /// Returns the observer of a replica that has connected.
    fn observe(&self, peer: &Hello, address: &str, kill: Kill) -> Box<dyn Observer>;

    /// Serves a link of the control group until it ends. Returns false if this node is in no group.
    fn serve_control(&self, session: Session, address: &str) -> bool;

    /// Serves a link that moves hash slots until it ends.
    fn serve_slots(&self, session: Session) {
        session.conduit.end();
    }

    /// `repl-timeout`.
    fn timeout_ms(&self) -> u64;

    /// The sequence up to which a majority of the copies has the log, or 0 if copies are not
    /// counted.
    fn committed(&self) -> u64;

    /// Milliseconds since 1970 UTC.
    fn now_ms(&self) -> u64;

    /// Writes a line to the server log.
    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>);
}

/// Ends a link.
pub(crate) type Kill = Box<dyn Fn() + Send + Sync>;

/// Is notified of what happens to one replica.
pub(crate) trait Observer: Send + Sync {
    fn stage(&self, stage: Stage);
    fn acked(&self, ack: &Ack);
    fn sent(&self, sequence: u64);
    fn digest(&self, digest: &Digest<'_>);
    /// The replica takes office with the log up to a sequence, or refuses with 0.
    fn took_over(&self, sequence: u64);
    /// Name of the replica.
    fn name(&self) -> &str;
}

/// A checkpoint that is sent. It keeps its files and the log after it until then.
pub(crate) struct FullCopy {
    pub(crate) disk: Arc<dyn Disk>,
    /// The directory that contains the manifest's directory.
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
    pub(crate) source: Source,
    /// Keeps the log from its sequence on, until all of it was sent.
    pub(crate) _pin: Box<dyn Any + Send>,
}

/// All links from this node's replicas.
pub(crate) struct PrimaryLinks {
    home: Arc<dyn PrimaryHome>,
    hub: Mutex<Hub>,
    next: AtomicU64,
    /// Number of links, including unauthenticated ones.
    count: AtomicU64,
    syncs: AtomicU64,
    /// Full syncs whose links broke, for replicas that resume them.
    broken_off: Mutex<Vec<BrokenOff>>,
    refused: AtomicU64,
    refused_told_ms: AtomicU64,
    stopping: AtomicBool,
}

/// A full sync whose link broke.
struct BrokenOff {
    full: Full,
    copy: FullCopy,
    /// After this time it cannot be resumed.
    until_ms: u64,
}

struct Hub {
    primary: Primary,
    /// Whether replicas may be answered: there is a term.
    is_open: bool,
    links: BTreeMap<LinkId, Arc<Outbox>>,
}

/// The work of a sender.
struct Outbox {
    /// Name of the replica.
    name: OnceLock<String>,
    waiting: Mutex<Waiting>,
    woken: Condvar,
    conduit: Arc<dyn Conduit>,
    heard_ms: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    actions: VecDeque<Action<'static>>,
    has_news: bool,
    is_closed: bool,
}

/// Returns a function that ends a link from another thread.
fn kill_of(outbox: &Arc<Outbox>) -> Kill {
    let outbox = Arc::downgrade(outbox);
    Box::new(move || {
        if let Some(outbox) = Weak::upgrade(&outbox) {
            outbox.close();
        }
    })
}

impl Outbox {
    fn put(&self, actions: Vec<Action<'static>>) {
        if !actions.is_empty() {
            lock(&self.waiting).actions.extend(actions);
            self.woken.notify_one();
        }
    }

    fn wake(&self) {
        lock(&self.waiting).has_news = true;
        self.woken.notify_one();
    }

    fn close(&self) {
        lock(&self.waiting).is_closed = true;
        self.woken.notify_one();
        self.conduit.end();
    }

    fn is_closed(&self) -> bool {
        lock(&self.waiting).is_closed
    }

    /// Waits for work. Returns an empty list if only time passed or the log grew, and `None` at the
    /// end of the link.
    fn take(&self, time: Duration) -> Option<VecDeque<Action<'static>>> {
        let mut waiting = lock(&self.waiting);
        if waiting.actions.is_empty() && !waiting.has_news && !waiting.is_closed {
            let woken = self.woken.wait_timeout(waiting, time);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.has_news = false;
        (!waiting.is_closed).then(|| std::mem::take(&mut waiting.actions))
    }
}

impl PrimaryLinks {
    /// Creates the links. No replica is answered before [`PrimaryLinks::begin_term`].
    pub(crate) fn new(home: Arc<dyn PrimaryHome>) -> Arc<Self> {
        Arc::new(Self {
            home,
            hub: Mutex::new(Hub {
                primary: Primary::new(0, Times::default()),
                is_open: false,
                links: BTreeMap::new(),
            }),
            next: AtomicU64::new(1),
            count: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            broken_off: Mutex::default(),
            refused: AtomicU64::new(0),
            refused_told_ms: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Answers replicas in this term from now on. Links of another term end, and their replicas
    /// attach again.
    pub(crate) fn begin_term(&self, term: u64) {
        let mut hub = lock(&self.hub);
        if hub.is_open && hub.primary.term() == term {
            return;
        }
        let times = Times {
            timeout_ms: self.home.timeout_ms(),
            ..Times::default()
        };
        hub.primary = Primary::new(term, times);
        hub.is_open = true;
        Self::close_all(&mut hub);
    }

    /// Ends all links, and answers no replica until the next term begins: this node's data is being
    /// replaced.
    pub(crate) fn end_term(&self) {
        let mut hub = lock(&self.hub);
        hub.is_open = false;
        Self::close_all(&mut hub);
        drop(hub);
        lock(&self.broken_off).clear();
    }

    /// Drops checkpoints whose full sync was not resumed in time.
    pub(crate) fn upkeep(&self) {
        let now_ms = self.home.now_ms();
        let longest_ms = self.home.timeout_ms();
        // A clock that was set back does not prolong the time.
        lock(&self.broken_off)
            .retain(|one| now_ms < one.until_ms && one.until_ms - now_ms <= longest_ms);
    }

    /// Takes the full sync that a replica may resume, if it is of this node and this term.
    fn take_up(&self, resume: &Resume, term: u64) -> Option<BrokenOff> {
        self.upkeep();
        let mut all = lock(&self.broken_off);
        let at = all.iter().position(|one| {
            (one.full.sync, one.full.generation, one.full.term)
                == (resume.sync, resume.generation, term)
        })?;
        Some(all.swap_remove(at))
    }

    /// Sends a message to the replicas that are sent the log, or to the one with a name. Returns
    /// their number.
    pub(crate) fn say(&self, name: Option<&str>, message: &Message<'static>) -> usize {
        let hub = lock(&self.hub);
        let is_meant = |(id, outbox): &(&LinkId, &Arc<Outbox>)| {
            let is_it = |name: &str| outbox.name.get().is_some_and(|own| own == name);
            hub.primary.stage(**id) == Some(Stage::Streaming) && name.is_none_or(is_it)
        };
        let meant = hub.links.iter().filter(is_meant);
        meant
            .map(|(id, outbox)| outbox.put(vec![Action::Send(*id, message.clone())]))
            .count()
    }

    fn close_all(hub: &mut Hub) {
        for (id, outbox) in std::mem::take(&mut hub.links) {
            hub.primary.on_closed(id);
            outbox.close();
        }
    }

    /// Ends everything for good.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.end_term();
    }

    /// Whether another link may be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < LINKS_MAX as u64
    }

    /// Serves a connection on threads of its own.
    ///
    /// # Errors
    /// No thread can be started.
    #[allow(clippy::disallowed_methods, reason = "the threads of one link")]
    pub(crate) fn serve(
        self: &Arc<Self>,
        conduit: Arc<dyn Conduit>,
        address: String,
    ) -> io::Result<()> {
        let counted = Counted::new(self);
        let links = Arc::clone(self);
        let thread = std::thread::Builder::new().name("link-in".into());
        let _detached: JoinHandle<()> = thread.spawn(move || {
            let _counted = counted;
            links.run(conduit, &address);
        })?;
        Ok(())
    }

    /// The reader thread of a link.
    fn run(self: &Arc<Self>, conduit: Arc<dyn Conduit>, address: &str) {
        let identity = self.home.identity(address);
        let identity = identity.map_err(|reason| LinkFault::Io(io::Error::other(reason)));
        let session = match identity.and_then(|identity| welcome(conduit, &identity)) {
            Ok(session) => session,
            Err(fault) => return self.note_refused(address, &fault),
        };
        let Some(session) = self.sort(session, address) else {
            return;
        };
        if let Err(fault) = check_data_versions(&session.peer, Side::Primary) {
            return self.note_refused(address, &fault);
        }
        let Session {
            conduit,
            mut reader,
            writer,
            peer,
            ..
        } = session;
        // A log without a term begins one now; without a term no replica is answered.
        if let Err(reason) = self.home.view() {
            self.home.tell(
                false,
                format_args!("The link to replica {address} waits: {reason}"),
            );
            return;
        }
        let outbox = Arc::new(Outbox {
            name: OnceLock::new(),
            waiting: Mutex::default(),
            woken: Condvar::new(),
            conduit,
            heard_ms: AtomicU64::new(self.home.now_ms()),
        });
        let id = LinkId(self.next.fetch_add(1, Ordering::Relaxed));
        {
            let mut hub = lock(&self.hub);
            if !hub.is_open || self.stopping.load(Ordering::Acquire) {
                return;
            }
            hub.primary.on_connected(id, self.home.now_ms());
            hub.links.insert(id, Arc::clone(&outbox));
        }
        let observer = self.home.observe(&peer, address, kill_of(&outbox));
        let observer: Arc<dyn Observer> = observer.into();
        let _set_once = outbox.name.set(observer.name().to_owned());
        let sender = Sender {
            links: Arc::clone(self),
            id,
            outbox: Arc::clone(&outbox),
            writer,
            observer: Arc::clone(&observer),
            log: None,
            bytes: Vec::new(),
            stage: None,
            told: 0,
            sent: 0,
            is_log_only: peer.features & LOG_ONLY != 0,
            floor_ms: 0,
            floor: 0,
            news_ticks: 0,
            address: address.to_owned(),
        };
        self.run_both(id, &outbox, (&mut reader, sender), &*observer, address);
    }

    /// Passes links of the control group and of slot moves on. Returns the link if it is a
    /// replica's.
    fn sort(&self, mut session: Session, address: &str) -> Option<Session> {
        let end_ms = self.home.now_ms().saturating_add(self.home.timeout_ms());
        loop {
            match session.reader.peek_kind() {
                Ok(Some(ASK)) => {
                    if !self.home.serve_control(session, address) {
                        self.home.tell(
                            false,
                            format_args!(
                                "{address} asks for the control group: this node is in none"
                            ),
                        );
                    }
                    return None;
                }
                Ok(Some(SLOTS)) => {
                    self.home.serve_slots(session);
                    return None;
                }
                Ok(Some(_)) => return Some(session),
                // A silent peer is not waited for forever.
                Ok(None) if self.home.now_ms() < end_ms => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Counts a refused link, and logs that at most once in a while: a peer with the wrong secret
    /// tries again and again.
    fn note_refused(&self, address: &str, fault: &LinkFault) {
        let count = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let now_ms = self.home.now_ms();
        let told_ms = self.refused_told_ms.load(Ordering::Relaxed);
        if now_ms.saturating_sub(told_ms) < REFUSED_TOLD_MS {
            return;
        }
        self.refused_told_ms.store(now_ms, Ordering::Relaxed);
        let is_warning = matches!(
            fault,
            LinkFault::Secret | LinkFault::Certificates | LinkFault::Version { .. }
        );
        self.home.tell(
            is_warning,
            format_args!("A replication link from {address} was refused: {fault} ({count} so far)"),
        );
    }

    /// Number of refused links.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    #[allow(clippy::disallowed_methods, reason = "the threads of one link")]
    fn run_both(
        &self,
        id: LinkId,
        outbox: &Arc<Outbox>,
        (reader, sender): (&mut Reader, Sender),
        observer: &dyn Observer,
        address: &str,
    ) {
        let thread = std::thread::Builder::new().name("link-out".into());
        let ended = match thread.spawn(move || sender.run()) {
            Ok(sending) => {
                let ended = self.read(id, reader, outbox, observer);
                outbox.close();
                let _panicked = sending.join();
                ended
            }
            Err(error) => Err(error.into()),
        };
        let mut hub = lock(&self.hub);
        hub.primary.on_closed(id);
        hub.links.remove(&id);
        drop(hub);
        if let Err(fault) = ended
            && !self.stopping.load(Ordering::Acquire)
        {
            self.home.tell(
                false,
                format_args!("The link to replica {address} ended: {fault}"),
            );
        }
    }

    fn read(
        &self,
        id: LinkId,
        reader: &mut Reader,
        outbox: &Outbox,
        observer: &dyn Observer,
    ) -> Result<(), LinkFault> {
        let mut last: Option<(Ack, u64)> = None;
        while !outbox.is_closed() {
            let message = match reader.next()? {
                Received::Message(message) => message,
                Received::Unknown | Received::Nothing => continue,
            };
            let now_ms = self.home.now_ms();
            outbox.heard_ms.store(now_ms, Ordering::Relaxed);
            if let (Message::Ping { .. }, Some((ack, told_ms))) = (&message, &mut last)
                && now_ms.saturating_sub(*told_ms) >= TOLD_AGAIN_MS
            {
                // The replica has nothing new to acknowledge, but is alive.
                *told_ms = now_ms;
                observer.acked(ack);
            }
            match &message {
                Message::Digest(digest) => {
                    observer.digest(digest);
                    continue;
                }
                Message::Takeover { sequence } => {
                    observer.took_over(*sequence);
                    continue;
                }
                _ => {}
            }
            // Determined without a lock, because it may wait for the disk.
            let view = match message {
                Message::Attach(..) => self.home.view().map_err(io::Error::other)?,
                _ => PrimaryLog::default(),
            };
            let ack = match &message {
                Message::Ack(ack) => Some(*ack),
                _ => None,
            };
            let mut hub = lock(&self.hub);
            if !hub.links.contains_key(&id) {
                return Ok(());
            }
            let actions = hub.primary.on_message(id, message, &view, now_ms);
            let counts = ack.filter(|ack| {
                hub.primary.term() == ack.term && hub.primary.stage(id) == Some(Stage::Streaming)
            });
            drop(hub);
            outbox.put(actions);
            if let Some(ack) = counts {
                last = Some((ack, now_ms));
                observer.acked(&ack);
            }
        }
        Ok(())
    }
}

/// Counts a link while its thread runs.
struct Counted(Arc<PrimaryLinks>);

impl Counted {
    fn new(links: &Arc<PrimaryLinks>) -> Self {
        links.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(links))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The sender thread of a link.
struct Sender {
    links: Arc<PrimaryLinks>,
    id: LinkId,
    outbox: Arc<Outbox>,
    writer: Writer,
    observer: Arc<dyn Observer>,
    /// The log that is read, and the waker of this thread when the log grows.
    log: Option<Reading>,
    bytes: Vec<u8>,
    stage: Option<Stage>,
    /// The committed sequence that the replica knows, and the sequence up to which it was sent the
    /// log.
    told: u64,
    sent: u64,
    /// Whether the replica is a log-only copy; when its floor was last checked; and the floor that
    /// it was sent.
    is_log_only: bool,
    floor_ms: u64,
    floor: u64,
    /// Number of checks in a row that found no news about commits.
    news_ticks: u32,
    address: String,
}

struct Reading {
    log: Arc<Log>,
    cursor: Cursor,
    waker: durability::log::Waker,
}

impl Sender {
    fn run(mut self) {
        if let Err(fault) = self.work()
            && !self.outbox.is_closed()
        {
            let address = &self.address;
            self.links.home.tell(
                false,
                format_args!("The link to replica {address} ended: {fault}"),
            );
        }
        self.outbox.close();
    }

    fn work(&mut self) -> Result<(), LinkFault> {
        while let Some(actions) = self.outbox.take(self.tick()) {
            for action in actions {
                self.perform(action)?;
            }
            self.look_for_log()?;
            self.tell_committed()?;
            self.tell_floor()?;
            let now_ms = self.links.home.now_ms();
            let due = self.with_primary(|primary, id| primary.on_tick_of(id, now_ms));
            for action in due.unwrap_or_default() {
                self.perform(action)?;
            }
            self.tell_stage();
        }
        Ok(())
    }

    /// Maximum time to sleep: shorter while the replica waits for the commit of what it has.
    fn tick(&self) -> Duration {
        let waits = self.told > 0 && self.told < self.sent;
        match waits && self.news_ticks < NEWS_TICKS_MAX {
            true => NEWS_TICK,
            false => TICK,
        }
    }

    /// Sends a log-only copy how much of its log it may discard.
    fn tell_floor(&mut self) -> Result<(), LinkFault> {
        let now_ms = self.links.home.now_ms();
        let is_due = now_ms < self.floor_ms || now_ms - self.floor_ms >= FLOOR_LOOK_MS;
        if !self.is_log_only || !is_due {
            return Ok(());
        }
        self.floor_ms = now_ms;
        let stage = self.with_primary(|primary, id| primary.stage(id)).flatten();
        let floor = self.links.home.floor().unwrap_or(0);
        if stage == Some(Stage::Streaming) && floor > self.floor {
            self.floor = floor;
            self.send(&Message::Floor { sequence: floor })?;
        }
        Ok(())
    }

    /// Sends the replica the committed sequence, if it did not come with frames.
    fn tell_committed(&mut self) -> Result<(), LinkFault> {
        let committed = self.links.home.committed();
        if committed <= self.told {
            self.news_ticks = self.news_ticks.saturating_add(1);
            return Ok(());
        }
        self.news_ticks = 0;
        let news = self.with_primary(|primary, id| primary.on_committed(id, committed));
        if let Some(Action::Send(_, message)) = news.flatten() {
            self.told = committed;
            self.send(&message)?;
        }
        Ok(())
    }

    /// Does a step of the state machine. Returns `None` if the link is no longer part of it.
    fn with_primary<R>(&self, step: impl FnOnce(&mut Primary, LinkId) -> R) -> Option<R> {
        let mut hub = lock(&self.links.hub);
        hub.links
            .contains_key(&self.id)
            .then(|| step(&mut hub.primary, self.id))
    }

    fn tell_stage(&mut self) {
        let stage = self.with_primary(|primary, id| primary.stage(id)).flatten();
        if let Some(now) = stage
            && stage != self.stage
        {
            self.stage = stage;
            self.observer.stage(now);
        }
    }

    /// Returns the present log, and a cursor in it.
    fn reading(&mut self) -> Result<&mut Reading, LinkFault> {
        let log = self.links.home.log();
        let log = log.ok_or_else(|| io::Error::other("there is no log just now"))?;
        match &mut self.log {
            Some(reading) if Arc::ptr_eq(&reading.log, &log) => {}
            slot => {
                let outbox = Arc::downgrade(&self.outbox);
                let waker = log.on_appended(move || {
                    if let Some(outbox) = Weak::upgrade(&outbox) {
                        outbox.wake();
                    }
                });
                *slot = Some(Reading {
                    cursor: log.cursor(),
                    waker,
                    log,
                });
            }
        }
        self.log.as_mut().ok_or(LinkFault::Closed)
    }

    /// Sends the new part of the log, if the replica is at a stage where it gets the log.
    fn look_for_log(&mut self) -> Result<(), LinkFault> {
        let stage = self.with_primary(|primary, id| primary.stage(id)).flatten();
        let is_sent_log = matches!(
            stage,
            Some(Stage::Sending { .. } | Stage::Finishing { .. } | Stage::Streaming)
        );
        if !is_sent_log {
            return Ok(());
        }
        let reading = self.reading()?;
        reading.waker.arm();
        let end = reading.log.tail_complete();
        let next = self.with_primary(|primary, id| primary.on_log_of(id, end));
        match next.flatten() {
            Some(action) => self.perform(action),
            None => Ok(()),
        }
    }

    fn send(&mut self, message: &Message<'_>) -> Result<(), LinkFault> {
        let (links, outbox) = (&self.links, &self.outbox);
        let timeout_ms = links.home.timeout_ms();
        self.writer.send(message, &|| {
            let now_ms = links.home.now_ms();
            // A clock that was set back does not hide silence.
            let heard_ms = outbox.heard_ms.fetch_min(now_ms, Ordering::Relaxed);
            !outbox.is_closed() && now_ms.saturating_sub(heard_ms) < timeout_ms
        })
    }

    fn perform(&mut self, action: Action<'static>) -> Result<(), LinkFault> {
        let mut next = Some(action);
        while let Some(action) = next.take() {
            match action {
                Action::Send(_, message) => {
                    if let Message::Refuse(refusal) = &message {
                        self.tell_refused(*refusal);
                    }
                    self.send(&message)?;
                }
                Action::Read {
                    from, bytes_max, ..
                } => next = self.send_piece(from, bytes_max)?,
                Action::BeginSync { reason, resume, .. } => self.send_all(reason, resume)?,
                Action::Close(_, CloseReason::Silent) => return Err(LinkFault::Silent),
                Action::Close(_, reason) => {
                    let text = format!("{reason:?}").to_lowercase();
                    return Err(io::Error::other(text).into());
                }
            }
        }
        Ok(())
    }

    fn tell_refused(&self, refusal: Refusal) {
        let address = &self.address;
        self.links.home.tell(
            true,
            format_args!("Replica {address} is refused: {refusal}"),
        );
    }

    /// Reads a piece of the log and sends it. Returns the next action.
    fn send_piece(
        &mut self,
        from: u64,
        bytes_max: u64,
    ) -> Result<Option<Action<'static>>, LinkFault> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let reading = self.reading()?;
        let read = reading.cursor.read(from, max, &mut bytes);
        let end = reading.log.tail_complete();
        let now_ms = self.links.home.now_ms();
        let committed = self.links.home.committed();
        let next = match read {
            Read::Frames { end: sent, .. } => {
                let actions = self.with_primary(|primary, id| {
                    primary.on_read(id, Piece::Frames(&bytes), committed, now_ms)
                });
                (self.told, self.sent) = (self.told.max(committed), sent);
                self.news_ticks = 0;
                for action in actions.unwrap_or_default() {
                    if let Action::Send(_, message) = action {
                        self.send(&message)?;
                    }
                }
                self.observer.sent(sent);
                self.with_primary(|primary, id| primary.on_sent(id, end))
                    .and_then(|mut actions| actions.pop())
            }
            // The rest is read when there is more.
            Read::AtTail => {
                let _later = self.with_primary(|primary, id| primary.on_sent(id, from));
                None
            }
            Read::Lapped { oldest } => {
                let address = &self.address;
                self.links.home.tell(
                    false,
                    format_args!(
                        "Replica {address} is at sequence {from}, and the log begins at {oldest}: it is given a full sync"
                    ),
                );
                self.recover()
            }
            Read::Damaged(error) => {
                self.links.home.tell(
                    true,
                    format_args!("The log cannot be sent from sequence {from} on: {error}"),
                );
                self.recover()
            }
        };
        self.bytes = bytes;
        Ok(next)
    }

    fn recover(&self) -> Option<Action<'static>> {
        let gone = self.with_primary(|primary, id| primary.on_read(id, Piece::Gone, 0, 0));
        gone.and_then(|mut actions| actions.pop())
    }

    /// Sends a checkpoint, or the rest of one that a replica has in part. The log continues from it
    /// afterwards. The files and the log that are needed for it are kept, also while the link is
    /// broken.
    fn send_all(&mut self, reason: FullReason, resume: Option<Resume>) -> Result<(), LinkFault> {
        self.tell_stage();
        let links = Arc::clone(&self.links);
        let term = self.with_primary(|primary, _| primary.term());
        let term = term.ok_or(LinkFault::Closed)?;
        let own = links.home.node_id();
        let resume = resume.filter(|resume| resume.node == own);
        let resumed =
            resume.and_then(|resume| Some((links.take_up(&resume, term)?, resume.blocks)));
        let (full, copy, kept) = match resumed {
            Some((found, kept)) => {
                let address = &self.address;
                links.home.tell(
                    false,
                    format_args!(
                        "Replica {address} goes on with full sync {}",
                        found.full.sync
                    ),
                );
                (found.full, found.copy, kept)
            }
            None => {
                let copy = links.home.full_copy(reason, self.is_log_only);
                let copy = copy.map_err(io::Error::other)?;
                (self.describe(&copy, term)?, copy, Vec::new())
            }
        };
        let sent = self.send_copy(&copy, full, &kept);
        if sent.is_err() {
            let until_ms = links.home.now_ms().saturating_add(links.home.timeout_ms());
            lock(&links.broken_off).push(BrokenOff {
                full,
                copy,
                until_ms,
            });
        }
        sent
    }

    /// Returns the full sync that sends this checkpoint.
    fn describe(&self, copy: &FullCopy, term: u64) -> Result<Full, LinkFault> {
        let manifest = &copy.manifest;
        let log_from = manifest.log_sequence;
        let log_from =
            log_from.ok_or_else(|| io::Error::other("no log goes on from the checkpoint"))?;
        Ok(Full {
            sync: self.links.syncs.fetch_add(1, Ordering::Relaxed) + 1,
            term,
            streams: 1,
            source: copy.source,
            generation: manifest.generation,
            log_from,
            records: manifest.records(),
            bytes: manifest.bytes(),
            fork: u64::MAX,
        })
    }

    fn send_copy(&mut self, copy: &FullCopy, full: Full, kept: &[u32]) -> Result<(), LinkFault> {
        let (manifest, log_from) = (&copy.manifest, full.log_from);
        // The log after it is sent when all parts are sent, and is kept here meanwhile.
        let begun = self.with_primary(|primary, id| primary.on_sync_begun(id, full, log_from));
        for action in begun.unwrap_or_default() {
            self.perform(action)?;
        }
        self.tell_stage();
        for (number, part) in manifest.parts.iter().enumerate() {
            let skip = kept.get(number).copied().unwrap_or(0);
            if skip == WHOLE_PART {
                continue;
            }
            let path = copy.directory.join(&manifest.directory).join(&part.name);
            let part_number =
                u16::try_from(number).map_err(|_| io::Error::other("too many parts"))?;
            let place = (full.sync, part_number, skip);
            self.send_part(copy, &path, place, part.bytes)?;
        }
        let mut encoded = encode_manifest(manifest)?;
        if encoded.len() > Message::payload_bytes_max() {
            self.send_long_manifest(full.sync, &encoded)?;
            encoded.clear();
        }
        let sequence = self.reading()?.log.tail_complete();
        let end = SyncEnd {
            sync: full.sync,
            sequence,
            manifest: &encoded,
        };
        let sent = self.with_primary(|primary, id| primary.on_sync_sent(id, end));
        for action in sent.unwrap_or_default() {
            if let Action::Send(_, message) = action {
                self.send(&message)?;
            }
        }
        self.tell_stage();
        Ok(())
    }

    /// Sends a manifest that is too long for one message: its libraries of functions may be.
    fn send_long_manifest(&mut self, sync: u64, encoded: &[u8]) -> Result<(), LinkFault> {
        for (number, bytes) in (0..).zip(encoded.chunks(BLOCK_BYTES)) {
            self.send(&Message::Block(Block {
                sync,
                part: MANIFEST_PART,
                number,
                bytes,
            }))?;
        }
        Ok(())
    }

    fn send_part(
        &mut self,
        copy: &FullCopy,
        path: &std::path::Path,
        (sync, part, skip): (u64, u16, u32),
        length: u64,
    ) -> Result<(), LinkFault> {
        let file = copy.disk.open(path)?;
        let mut bytes = vec![0; BLOCK_BYTES];
        // A replica that claims more blocks than the part has is treated as having all of them.
        let blocks = u32::try_from(length.div_ceil(BLOCK_BYTES as u64)).unwrap_or(u32::MAX);
        let mut number = skip.min(blocks);
        let mut at = u64::from(number) * BLOCK_BYTES as u64;
        while at < length {
            let most = usize::try_from(length - at)
                .unwrap_or(usize::MAX)
                .min(BLOCK_BYTES);
            let count = file.read_at(&mut bytes[..most], at)?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            // All blocks but the last have the same length, so the block's number gives its offset.
            if count < most {
                return Err(io::Error::other("a part file is read in pieces").into());
            }
            let bytes = &bytes[..count];
            self.send(&Message::Block(Block {
                sync,
                part,
                number,
                bytes,
            }))?;
            at += count as u64;
            number += 1;
        }
        self.send(&Message::PartEnd(Block {
            sync,
            part,
            number,
            bytes: &[],
        }))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
