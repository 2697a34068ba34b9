//! The primary that this node follows, and how far it is: state that the following thread works
//! with, and what other threads are shown of it.
//!
//! One thread follows. For each connection it runs the loop of one of the two protocols ([`Ended`]
//! says what comes next), and starts again after a pause, until another order ends it. The loop
//! checks [`Following::is_stopping`] between reads, and sets with [`Following::stop_with`] how a
//! waiting read is ended.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use engine::ClientRecord;

pub use super::primary::Primary;
use crate::node::Node;

/// State of the link to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Link {
    /// No connection; the next attempt comes soon.
    Connect,
    /// A connection is being made.
    Connecting,
    /// Both ends identify themselves.
    Handshake,
    /// The data is being received.
    Sync,
    /// The stream is being received.
    Connected,
    /// The primary's data may not replace the data here.
    Refused,
    /// What the primary sent could not be applied: a full sync is needed.
    Broken,
}

impl Link {
    const ALL: [Self; 7] = [
        Self::Connect,
        Self::Connecting,
        Self::Handshake,
        Self::Sync,
        Self::Connected,
        Self::Refused,
        Self::Broken,
    ];

    /// Redis' word (ROLE).
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Connect | Self::Refused | Self::Broken => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Sync => "sync",
            Self::Connected => "connected",
        }
    }

    /// iolite's own word.
    #[must_use]
    pub fn own_word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Broken => "broken",
            other => other.word(),
        }
    }
}

/// How a connection to the primary ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The thread tries again after a pause.
    Again,
    /// The primary speaks the own link, at this port.
    OwnLink(u16),
    /// The primary does not speak the own link.
    NoOwnLink,
    /// [Refused](Following::refuse): the thread tries again after a long pause.
    Refused,
    /// Refused for a reason that only an operator can remove: the thread tries again after a very
    /// long pause.
    Unfit,
}

/// Progress of the link. Written by the following thread, read by any thread.
#[derive(Debug)]
struct Progress {
    link: AtomicU8,
    /// When the link was lost or first wanted.
    down_since_unix_ms: AtomicU64,
    heard_unix_ms: AtomicU64,
    read_offset: AtomicI64,
    applied_offset: AtomicI64,
    sync_total: AtomicU64,
    sync_read: AtomicU64,
}

/// See the module.
pub struct Following {
    node: Weak<Node>,
    primary: Primary,
    forces: bool,
    link_port: u16,
    fails_over: AtomicBool,
    may_discard: AtomicBool,
    progress: Progress,
    refused: Mutex<String>,
    client: Mutex<Option<Arc<ClientRecord>>>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    is_stopping: AtomicBool,
    stop: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// On whose order a node follows, and what it may do for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// REPLICAOF of a client: unrelated data may be discarded once.
    pub may_discard: bool,
    /// REPLICAOF … FORCE: the primary's data replaces the data here in any case.
    pub forces: bool,
    /// The end of a FAILOVER: the primary is asked to become one.
    pub fails_over: bool,
    /// Port of the primary's own links, or 0 if unknown; then the primary is asked for it.
    pub link_port: u16,
}

impl Following {
    pub(super) fn new(node: Weak<Node>, primary: Primary, by: Authority, now_unix_ms: u64) -> Self {
        Self {
            node,
            primary,
            forces: by.forces,
            link_port: by.link_port,
            fails_over: AtomicBool::new(by.fails_over),
            may_discard: AtomicBool::new(by.may_discard),
            progress: Progress {
                link: AtomicU8::new(Link::Connect as u8),
                down_since_unix_ms: AtomicU64::new(now_unix_ms),
                heard_unix_ms: AtomicU64::new(0),
                read_offset: AtomicI64::new(0),
                applied_offset: AtomicI64::new(0),
                sync_total: AtomicU64::new(0),
                sync_read: AtomicU64::new(0),
            },
            refused: Mutex::default(),
            client: Mutex::default(),
            stopping: Mutex::default(),
            stopped: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            stop: Mutex::default(),
        }
    }

    /// The node, or `None` if it is gone; then the thread ends.
    #[must_use]
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// The primary that this node follows.
    #[must_use]
    pub fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Whether the primary's data replaces the data here in any case.
    #[must_use]
    pub fn forces(&self) -> bool {
        self.forces
    }

    /// Port of the primary's own links, or 0 if the primary has to be asked.
    #[must_use]
    pub fn link_port(&self) -> u16 {
        self.link_port
    }

    /// Whether unrelated data may be discarded.
    #[must_use]
    pub fn may_discard(&self) -> bool {
        self.may_discard.load(Ordering::SeqCst)
    }

    /// Takes the permission to discard unrelated data: true once for each REPLICAOF.
    #[must_use]
    pub fn take_discard(&self) -> bool {
        self.may_discard.swap(false, Ordering::SeqCst)
    }

    /// Whether to ask the other node to become the primary: the end of a FAILOVER.
    #[must_use]
    pub fn fails_over(&self) -> bool {
        self.fails_over.load(Ordering::SeqCst)
    }

    /// Notes that the other node has become the primary: this node follows from now on, and its
    /// waiting writers are answered.
    pub fn handed_over(&self) {
        if self.fails_over.swap(false, Ordering::SeqCst)
            && let Some(node) = self.node()
        {
            node.replication.handed_over(&node, &self.primary);
        }
    }

    /// Whether the thread has to leave its connection.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Sets how a waiting read is ended when the thread has to leave. Calls `stop` at once if the
    /// thread has to leave already.
    pub fn stop_with(&self, stop: Box<dyn Fn() + Send>) {
        let mut place = lock(&self.stop);
        let stop = place.insert(stop);
        if self.is_stopping() {
            stop();
        }
    }

    /// Forgets the function of [`Following::stop_with`], because the connection is gone.
    pub fn forget_stop(&self) {
        *lock(&self.stop) = None;
    }

    /// Makes the thread leave.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        *lock(&self.stopping) = true;
        self.stopped.notify_all();
        self.break_off();
    }

    /// Ends the present connection; the thread makes another one (CLIENT KILL TYPE master).
    pub fn break_off(&self) {
        if let Some(stop) = &*lock(&self.stop) {
            stop();
        }
    }

    /// Waits for this time, and returns whether the thread goes on.
    #[must_use]
    pub fn pause(&self, duration: Duration) -> bool {
        let stopping = lock(&self.stopping);
        let waited = self
            .stopped
            .wait_timeout_while(stopping, duration, |stopping| !*stopping);
        let (stopping, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*stopping
    }

    /// State of the link.
    #[must_use]
    pub fn link(&self) -> Link {
        let word = usize::from(self.progress.link.load(Ordering::Acquire));
        Link::ALL.get(word).copied().unwrap_or(Link::Connect)
    }

    /// Sets the state of the link. Data shown to clients may be old unless the link is
    /// [connected](Link::Connected).
    pub fn set_link(&self, link: Link) {
        let before = self.link();
        let Some(node) = self.node() else { return };
        let now_unix_ms = node.core.clock.now_unix_ms();
        if before == Link::Connected && link != before {
            let since = &self.progress.down_since_unix_ms;
            since.store(now_unix_ms, Ordering::Relaxed);
        }
        self.progress.link.store(link as u8, Ordering::Release);
        if link == Link::Connected {
            lock(&self.refused).clear();
            self.note_io();
        }
        node.replication.judge_staleness(&node);
    }

    /// Notes why the primary's data may not replace the data here. The reason is logged once.
    pub fn refuse(&self, reason: &str) {
        let mut known = lock(&self.refused);
        let is_news = *known != reason;
        reason.clone_into(&mut known);
        drop(known);
        self.set_link(Link::Refused);
        if let Some(node) = self.node().filter(|_| is_news) {
            let Primary { host, port } = &self.primary;
            node.core
                .log
                .warning(format_args!("{host}:{port} is not followed: {reason}"));
        }
    }

    /// Why the primary is not followed; empty while it is.
    #[must_use]
    pub fn refused(&self) -> String {
        lock(&self.refused).clone()
    }

    /// Notes that something was read from the primary.
    pub fn note_io(&self) {
        if let Some(node) = self.node() {
            let heard = &self.progress.heard_unix_ms;
            heard.store(node.core.clock.now_unix_ms(), Ordering::Relaxed);
        }
    }

    /// Notes how many bytes of the data were read, and their total, or 0 if the total is unknown.
    pub fn note_sync(&self, total: u64, read: u64) {
        self.progress.sync_total.store(total, Ordering::Relaxed);
        self.progress.sync_read.store(read, Ordering::Relaxed);
    }

    /// Bytes of the data that is being received: the primary's total, and those read.
    #[must_use]
    pub fn sync(&self) -> (u64, u64) {
        let Progress {
            sync_total,
            sync_read,
            ..
        } = &self.progress;
        let total = sync_total.load(Ordering::Relaxed);
        (total, sync_read.load(Ordering::Relaxed))
    }

    /// Notes up to which offset the stream was read and applied.
    pub fn note_offset(&self, read: u64, applied: u64) {
        let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let Progress {
            read_offset,
            applied_offset,
            ..
        } = &self.progress;
        read_offset.store(signed(read), Ordering::Relaxed);
        applied_offset.store(signed(applied), Ordering::Relaxed);
    }

    /// Up to which offset the stream was read and applied.
    #[must_use]
    pub fn offsets(&self) -> (i64, i64) {
        let Progress {
            read_offset,
            applied_offset,
            ..
        } = &self.progress;
        let read = read_offset.load(Ordering::Relaxed);
        (read, applied_offset.load(Ordering::Relaxed))
    }

    /// Seconds since something was read from the primary, or -1 if the link is down.
    #[must_use]
    pub fn heard_seconds_ago(&self, now_unix_ms: u64) -> i64 {
        let heard = self.progress.heard_unix_ms.load(Ordering::Relaxed);
        if self.link() != Link::Connected && self.link() != Link::Sync || heard == 0 {
            return -1;
        }
        i64::try_from(now_unix_ms.saturating_sub(heard) / 1000).unwrap_or(i64::MAX)
    }

    /// Seconds since the link was lost or first wanted.
    #[must_use]
    pub fn down_seconds(&self, now_unix_ms: u64) -> u64 {
        let since = self.progress.down_since_unix_ms.load(Ordering::Relaxed);
        now_unix_ms.saturating_sub(since) / 1000
    }

    /// Shows the primary in the list of clients, or removes it with `None`.
    pub fn show_client(&self, client: Option<Arc<ClientRecord>>) {
        let Some(node) = self.node() else { return };
        let mut shown = lock(&self.client);
        if let Some(before) = shown.take() {
            node.sessions.clients.leave_foreign(before.id);
        }
        if let Some(client) = client {
            client.set_flag(ClientRecord::PRIMARY, true);
            node.sessions.clients.add_foreign(Arc::clone(&client));
            *shown = Some(client);
        }
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following")
            .field("primary", &self.primary)
            .field("link", &self.link())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
