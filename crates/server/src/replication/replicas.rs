//! The replicas of this node: their identity, how far each is, and the clients that wait for them.
//!
//! One thread per link serves each replica. It registers the replica, publishes its progress, and
//! removes it by dropping the handle. All other code reads: INFO, ROLE, WAIT, the rule that a write
//! needs a number of replicas.
//!
//! Positions are sequences of the log, so replicas of both protocols are comparable. The offset
//! that clients see is kept as well.
//!
//! Clients that wait for replicas are in a list. The thread that notes progress answers those whose
//! condition is met, so no thread polls. Order: a link thread writes its positions before it reads
//! the list, and a waiter enters the list before it reads the positions; so one of them sees the
//! other.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{ClientRecord, Copies, Progress, Waiter};

/// Protocol of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// iolite's own protocol.
    Own,
    /// Redis' PSYNC.
    Redis,
}

/// State of a replica's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaState {
    /// The replica identifies itself.
    Handshake,
    /// The replica waits for the data.
    Waiting,
    /// The data for the replica is being written.
    Cutting,
    /// The data is being sent.
    Sending,
    /// The log is being sent from files.
    CatchingUp,
    /// The log is being sent as it grows.
    Online,
    /// It was online and lacks more than the log has: a full sync follows.
    Recovery,
}

impl ReplicaState {
    const ALL: [Self; 7] = [
        Self::Handshake,
        Self::Waiting,
        Self::Cutting,
        Self::Sending,
        Self::CatchingUp,
        Self::Online,
        Self::Recovery,
    ];

    /// Redis' word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Handshake | Self::Waiting | Self::Cutting => "wait_bgsave",
            Self::Sending => "send_bulk",
            Self::CatchingUp | Self::Online | Self::Recovery => "online",
        }
    }

    /// iolite's own word.
    #[must_use]
    pub fn own_word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Waiting => "waiting",
            Self::Cutting => "cutting",
            Self::Sending => "sending",
            Self::CatchingUp => "catching-up",
            Self::Online => "online",
            Self::Recovery => "recovery",
        }
    }

    /// Whether the log is being sent to it.
    #[must_use]
    pub fn is_online(self) -> bool {
        matches!(self, Self::CatchingUp | Self::Online)
    }
}

/// A replica that is about to be registered.
pub struct NewReplica {
    /// Its connection, or `None` if it did not connect as a client.
    pub client: Option<Arc<ClientRecord>>,
    /// Protocol of its link.
    pub kind: Kind,
    /// Where it serves clients, as it announced: address ...
    pub host: String,
    /// ... and port; 0 if not announced.
    pub port: u16,
}

/// What a replica acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Sequence up to which its readers see everything.
    pub applied: u64,
    /// Sequence up to which its log is on its disk; 0 if it does not report that.
    pub durable: u64,
    /// The offset that clients are shown.
    pub offset: u64,
}

/// One replica. Written by its link's thread, read by any thread.
pub struct Replica {
    /// Its unique number; numbers are never reused.
    pub id: u64,
    /// Its connection, or `None` if it did not connect as a client.
    pub client: Option<Arc<ClientRecord>>,
    /// Protocol of its link.
    pub kind: Kind,
    /// Where it serves clients: address ...
    pub host: String,
    /// ... and port.
    pub port: u16,
    state: AtomicU8,
    sent: AtomicU64,
    applied: AtomicU64,
    durable: AtomicU64,
    offset: AtomicU64,
    acked_unix_ms: AtomicU64,
    /// See [`Attached::note_behind`].
    behind_ms: AtomicU64,
    wants_ack: AtomicBool,
    stopping: AtomicBool,
    stop: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Replica {
    /// State of its link.
    #[must_use]
    pub fn state(&self) -> ReplicaState {
        let word = usize::from(self.state.load(Ordering::Acquire));
        let known = ReplicaState::ALL.get(word).copied();
        known.unwrap_or(ReplicaState::Handshake)
    }

    /// Sequence up to which the log was sent to it.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Its last acknowledgement.
    #[must_use]
    pub fn acked(&self) -> Ack {
        Ack {
            applied: self.applied.load(Ordering::SeqCst),
            durable: self.durable.load(Ordering::SeqCst),
            offset: self.offset.load(Ordering::SeqCst),
        }
    }

    /// Whether it has acknowledged anything yet.
    #[must_use]
    pub fn was_heard(&self) -> bool {
        self.acked_unix_ms.load(Ordering::Relaxed) > 0
    }

    /// Milliseconds since its last acknowledgement.
    #[must_use]
    pub fn lag_ms(&self, now_unix_ms: u64) -> u64 {
        now_unix_ms.saturating_sub(self.acked_unix_ms.load(Ordering::Relaxed))
    }

    /// The age of the data that its readers see, or `None` if it does not report that.
    #[must_use]
    pub fn behind_ms(&self) -> Option<u64> {
        Some(self.behind_ms.load(Ordering::Relaxed)).filter(|ms| *ms != u64::MAX)
    }

    /// Ends its link.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(stop) = &*lock(&self.stop) {
            stop();
        }
    }

    fn is_online(&self) -> bool {
        self.state().is_online()
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("id", &self.id)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// A callback that is set once.
type Hook<T> = std::sync::OnceLock<Box<dyn Fn(T) + Send + Sync>>;

/// All replicas of a node. See the module.
#[derive(Default)]
pub struct Replicas {
    all: Mutex<Vec<Arc<Replica>>>,
    count: AtomicUsize,
    last_id: AtomicU64,
    waits: Mutex<Vec<Arc<Waiter>>>,
    waits_count: AtomicUsize,
    /// Called when a client waits for replicas: they are to be asked how far they are.
    wanted: Hook<()>,
    /// Called when a replica was added or removed, or acknowledged something.
    moved: Hook<()>,
}

impl Replicas {
    /// Registers a replica. The caller serves it, and removes it by dropping the returned handle.
    #[must_use]
    pub fn register(self: &Arc<Self>, new: NewReplica) -> Attached {
        let replica = Arc::new(Replica {
            id: self.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            client: new.client,
            kind: new.kind,
            host: new.host,
            port: new.port,
            state: AtomicU8::new(ReplicaState::Handshake as u8),
            sent: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            acked_unix_ms: AtomicU64::new(0),
            behind_ms: AtomicU64::new(u64::MAX),
            wants_ack: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            stop: Mutex::default(),
        });
        if let Some(client) = &replica.client {
            client.set_flag(ClientRecord::REPLICA, true);
        }
        let mut all = lock(&self.all);
        all.push(Arc::clone(&replica));
        self.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        Attached {
            replicas: Arc::clone(self),
            replica,
        }
    }

    /// All replicas, the oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Replica>> {
        lock(&self.all).clone()
    }

    /// Number of replicas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many online replicas have the log up to a sequence.
    #[must_use]
    pub fn copies(&self, sequence: u64) -> Copies {
        let mut copies = Copies::default();
        for replica in lock(&self.all).iter().filter(|one| one.is_online()) {
            let acked = replica.acked();
            copies.applied += usize::from(acked.applied >= sequence);
            copies.durable += usize::from(acked.durable >= sequence.max(1));
        }
        copies
    }

    /// Returns how many replicas are online and acknowledged something within the last
    /// `lag_ms_max`.
    #[must_use]
    pub fn good_count(&self, now_unix_ms: u64, lag_ms_max: u64) -> usize {
        let all = lock(&self.all);
        let is_good =
            |one: &&Arc<Replica>| one.is_online() && one.lag_ms(now_unix_ms) <= lag_ms_max;
        all.iter().filter(is_good).count()
    }

    /// Returns the highest applied sequence among online replicas.
    #[must_use]
    pub fn furthest(&self) -> Option<u64> {
        let all = lock(&self.all);
        let online = all.iter().filter(|one| one.is_online());
        online.map(|one| one.acked().applied).max()
    }

    /// Ends the links of all replicas that `ends` selects.
    pub fn stop(&self, ends: impl Fn(&Replica) -> bool) {
        for replica in self.all() {
            if ends(&replica) {
                replica.stop();
            }
        }
    }

    /// Sets the callback that asks replicas how far they are.
    pub fn on_wanted(&self, hook: Box<dyn Fn(()) + Send + Sync>) {
        let _already_set = self.wanted.set(hook);
    }

    /// Sets the callback for replicas that were added, were removed or acknowledged something.
    pub fn on_moved(&self, hook: Box<dyn Fn(()) + Send + Sync>) {
        let _already_set = self.moved.set(hook);
    }

    /// Adds a waiter. Checks `progress` once more after that, because replicas may have advanced
    /// meanwhile.
    pub fn wait(&self, waiter: &Arc<Waiter>, progress: &dyn Progress, answer: Answer<'_>) {
        let mut waits = lock(&self.waits);
        waits.retain(|one| one.waits());
        waits.push(Arc::clone(waiter));
        self.waits_count.store(waits.len(), Ordering::SeqCst);
        drop(waits);
        for replica in lock(&self.all).iter() {
            replica.wants_ack.store(true, Ordering::SeqCst);
        }
        if let Some(wanted) = self.wanted.get() {
            wanted(());
        }
        self.serve_waits(progress, answer);
    }

    /// Whether any client waits.
    #[inline]
    #[must_use]
    pub fn has_waits(&self) -> bool {
        self.waits_count.load(Ordering::SeqCst) > 0
    }

    /// Answers the waiters whose condition is met.
    pub fn serve_waits(&self, progress: &dyn Progress, answer: Answer<'_>) {
        if !self.has_waits() {
            return;
        }
        let mut waits = lock(&self.waits);
        waits.retain(|waiter| {
            if !waiter.waits() {
                return false;
            }
            if !waiter.subject.is_reached(progress) {
                return true;
            }
            // If its time is just over, another thread answers.
            if waiter.claim() {
                let reply = waiter.subject.in_vain(progress);
                answer(&waiter.subject.client, reply);
            }
            false
        });
        self.waits_count.store(waits.len(), Ordering::SeqCst);
    }

    fn tell_moved(&self) {
        if let Some(moved) = self.moved.get() {
            moved(());
        }
    }
}

/// Answers a client that waited.
pub type Answer<'a> = &'a dyn Fn(&ClientRecord, Vec<u8>);

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replicas").finish_non_exhaustive()
    }
}

/// A registered replica. Dropping this removes the replica.
#[derive(Debug)]
pub struct Attached {
    replicas: Arc<Replicas>,
    replica: Arc<Replica>,
}

impl Attached {
    /// The replica.
    #[must_use]
    pub fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    /// Sets the state of its link.
    pub fn set_state(&self, state: ReplicaState) {
        self.replica.state.store(state as u8, Ordering::SeqCst);
        self.replicas.tell_moved();
    }

    /// Notes the sequence up to which the log was sent to it.
    pub fn note_sent(&self, sequence: u64) {
        self.replica.sent.store(sequence, Ordering::Relaxed);
    }

    /// Notes the age of the data that its readers see, in milliseconds of this server's clock.
    pub fn note_behind(&self, ms: u64) {
        self.replica.behind_ms.store(ms, Ordering::Relaxed);
    }

    /// Notes a sign of life without a new position.
    pub fn note_heard(&self, now_unix_ms: u64) {
        self.replica
            .acked_unix_ms
            .store(now_unix_ms, Ordering::Relaxed);
    }

    /// Notes its acknowledgement.
    pub fn ack(&self, ack: Ack, now_unix_ms: u64) {
        let replica = &self.replica;
        replica.applied.store(ack.applied, Ordering::SeqCst);
        replica.durable.store(ack.durable, Ordering::SeqCst);
        replica.offset.store(ack.offset, Ordering::SeqCst);
        self.note_heard(now_unix_ms);
        self.replicas.tell_moved();
    }

    /// Whether a client waits for its acknowledgement. Resets the flag.
    #[must_use]
    pub fn take_wants_ack(&self) -> bool {
        let wants_ack = &self.replica.wants_ack;
        wants_ack.load(Ordering::SeqCst) && wants_ack.swap(false, Ordering::SeqCst)
    }

    /// Whether the link has to end.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.replica.stopping.load(Ordering::SeqCst)
    }

    /// Sets how the link's thread is woken when the link has to end. Calls `stop` at once if it has
    /// to end already.
    pub fn stop_with(&self, stop: Box<dyn Fn() + Send>) {
        let mut place = lock(&self.replica.stop);
        let stop = place.insert(stop);
        if self.is_stopping() {
            stop();
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut all = lock(&self.replicas.all);
        all.retain(|one| one.id != self.replica.id);
        self.replicas.count.store(all.len(), Ordering::SeqCst);
        drop(all);
        self.replicas.tell_moved();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u16) -> NewReplica {
        NewReplica {
            client: None,
            kind: Kind::Redis,
            host: "10.0.0.1".to_owned(),
            port,
        }
    }

    fn ack(applied: u64, durable: u64) -> Ack {
        Ack {
            applied,
            durable,
            offset: applied,
        }
    }

    #[test]
    fn only_those_count_that_are_online_and_have_it() {
        let replicas = Arc::<Replicas>::default();
        let one = replicas.register(replica(1));
        let two = replicas.register(replica(2));
        one.ack(ack(70, 60), 1_000);
        two.ack(ack(80, 0), 5_000);
        assert_eq!(replicas.copies(0), Copies::default(), "none is online");
        one.set_state(ReplicaState::Online);
        two.set_state(ReplicaState::CatchingUp);
        let copies = |sequence| {
            let copies = replicas.copies(sequence);
            (copies.applied, copies.durable)
        };
        assert_eq!(copies(60), (2, 1));
        assert_eq!(copies(71), (1, 0));
        assert_eq!(copies(0), (2, 1), "who says nothing of its disk has none");
        assert_eq!(replicas.good_count(6_000, 1_000), 1);
        assert_eq!(replicas.good_count(6_000, 5_000), 2);
        drop(two);
        assert_eq!((replicas.len(), copies(71)), (1, (0, 0)));
    }

    #[test]
    fn a_link_that_ends_before_it_says_how_is_told_so() {
        let replicas = Arc::<Replicas>::default();
        let attached = replicas.register(replica(1));
        replicas.stop(|replica| replica.port == 2);
        assert!(!attached.is_stopping());
        replicas.stop(|_| true);
        let called = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&called);
        attached.stop_with(Box::new(move || own.store(true, Ordering::Relaxed)));
        assert!(called.load(Ordering::Relaxed) && attached.is_stopping());
    }

    #[test]
    fn who_came_went_or_moved_is_told() {
        let replicas = Arc::<Replicas>::default();
        let told = Arc::new(AtomicUsize::new(0));
        let own = Arc::clone(&told);
        replicas.on_moved(Box::new(move |()| {
            own.fetch_add(1, Ordering::Relaxed);
        }));
        let attached = replicas.register(replica(1));
        attached.ack(ack(1, 1), 1);
        attached.set_state(ReplicaState::Online);
        drop(attached);
        assert_eq!(told.load(Ordering::Relaxed), 3);
    }
}
