//! What the server knows about a client: [`Session`], owned by its worker, and [`ClientRecord`],
//! the part that other threads may look at (CLIENT LIST).

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::{Permit, User};
use protocol::{Decoder, Request, Resp};
use store::{DatabaseId, Handle, Key};

use crate::arrival::Arrival;
use crate::push::Push;
use crate::replication::{ReplicaHello, SyncRequest};
use crate::spec::CommandSpec;
use crate::subscriptions::Subscriptions;
use crate::table::CommandIndex;
use crate::tracking::Tracking;
use crate::transaction::Transaction;
use crate::waiting::{Wait, Waiter};
use crate::watch::Watches;

/// Which replies a client gets (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All of them.
    #[default]
    On,
    /// None until it says ON.
    Off,
    /// Not the one of the next command (set by SKIP, armed when that command begins).
    SkipNext,
    /// Not the one of the running command.
    Skip,
}

/// What becomes of a connection after the running command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    #[default]
    Stay,
    /// It is closed once its replies are sent.
    Close,
    /// It is given the stream ([`Session::sync`]) once its replies are sent.
    HandOver,
}

/// Protocol state of one client.
pub struct Session {
    /// The part that other threads may look at.
    pub client: Arc<ClientRecord>,
    /// State of an incomplete request.
    pub decoder: Decoder,
    /// The long argument of the request that comes next or is coming.
    pub arrival: Option<Box<Arrival>>,
    /// The database it selected.
    pub database: DatabaseId,
    /// Protocol version of its replies.
    pub resp: Resp,
    /// Whether it may run commands that need authentication.
    pub authenticated: bool,
    /// Who it is, and what that user may do.
    pub permit: Permit,
    /// Which replies it gets.
    pub reply_mode: ReplyMode,
    /// What becomes of it after the running command.
    pub fate: Fate,
    /// What it is subscribed to, if it is to anything.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// What it tracks, if CLIENT TRACKING is on.
    pub tracking: Option<Box<Tracking>>,
    /// Pushes that the worker numbered below this were delivered to it, or came before it asked for
    /// their like.
    pub pushes_seen: u64,
    /// Whether pushes have to wait for the end of the running command, whose reply has several parts.
    pub holds_pushes: bool,
    /// Whether a script runs for it.
    pub in_script: bool,
    /// Those that wait for a reply, and are to be written behind it.
    pub held_pushes: Vec<Push>,
    /// What it publishes is more than can be delivered: it has to wait.
    pub is_throttled: bool,
    /// The reply of the running command is sent whatever [`ReplyMode`] says, because it is a push.
    pub reply_is_push: bool,
    /// A request to be run aside ([`crate::Next::Aside`]), as it came.
    pub aside: Option<Box<[u8]>>,
    /// What it queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The keys it watches.
    pub watches: Option<Box<Watches>>,
    /// What it waits for ([`crate::Next::Blocks`]).
    pub wait: Option<Box<Wait>>,
    /// Whether its replies wait until the log is on disk, whatever other clients' do.
    pub waits_for_disk: bool,
    /// What its running script ran, as MONITOR shows it.
    pub script_shown: Box<[String]>,
    /// Its requests are those of the primary that the server follows: nothing is refused to it because the server
    /// is a replica, and nobody asks whether it may.
    pub is_of_primary: bool,
    /// What it said of itself as a replica.
    pub replica: Option<Box<ReplicaHello>>,
    /// The stream that it is to be given ([`Fate::HandOver`]).
    pub sync: Option<Box<SyncRequest>>,
}

impl Session {
    /// A fresh session for `client`, as its [user](ClientRecord::set_user); `authenticated` when no
    /// password is asked for.
    #[must_use]
    pub fn new(client: Arc<ClientRecord>, authenticated: bool) -> Self {
        Self {
            permit: client.permit(),
            client,
            decoder: Decoder::default(),
            arrival: None,
            database: 0,
            resp: Resp::V2,
            authenticated,
            reply_mode: ReplyMode::On,
            fate: Fate::Stay,
            subscriptions: None,
            tracking: None,
            pushes_seen: 0,
            holds_pushes: false,
            in_script: false,
            held_pushes: Vec::new(),
            is_throttled: false,
            reply_is_push: false,
            aside: None,
            transaction: None,
            watches: None,
            wait: None,
            waits_for_disk: false,
            script_shown: Box::default(),
            is_of_primary: false,
            replica: None,
            sync: None,
        }
    }

    /// Whether it may be sent something that it did not ask for, beside what it monitors.
    #[inline]
    #[must_use]
    pub fn hears_pushes(&self) -> bool {
        self.subscriptions.is_some() || self.tracking.is_some() || !self.held_pushes.is_empty()
    }

    /// Whether a wait of it for keys has ended and the answer is on the way: pushes have to come
    /// behind that.
    #[must_use]
    pub fn is_being_answered(&self) -> bool {
        let wait = self.wait.as_ref();
        wait.is_some_and(|wait| !wait.waiter.waits())
    }

    /// Whether it is subscribed to something in RESP2, and so may send but a few commands.
    #[inline]
    #[must_use]
    pub fn only_listens(&self) -> bool {
        self.subscriptions.is_some() && self.resp == Resp::V2
    }

    /// Is another user from now on, and says so in the client's record.
    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.set_user(Arc::clone(&user));
        self.permit = Permit::new(user);
        self.authenticated = true;
    }

    /// Chooses a database and says so in the client's record.
    pub fn select(&mut self, database: DatabaseId) {
        self.database = database;
        self.client.database.store(database, Ordering::Relaxed);
    }

    /// Begins a transaction.
    pub fn begin_transaction(&mut self) {
        self.transaction = Some(Box::default());
        self.tell_transaction();
    }

    /// Adds a request of a command to the transaction, if one was begun.
    pub(crate) fn queue(
        &mut self,
        request: Request<'_>,
        command: (CommandIndex, &'static CommandSpec, usize),
    ) {
        if let Some(transaction) = &mut self.transaction {
            transaction.push(request, command);
            self.tell_transaction();
        }
    }

    /// Has EXEC refused, if a transaction was begun.
    pub(crate) fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
    }

    /// Forgets the transaction, and what was watched for it.
    pub(crate) fn end_transaction(&mut self, store: &mut Handle) {
        self.transaction = None;
        self.unwatch(store);
    }

    /// Watches a key. Once one was changed there is no use in it.
    pub fn watch(&mut self, store: &mut Handle, key: &Key<'_>) {
        if self.client.has_flag(ClientRecord::TOUCHED) {
            return;
        }
        let watches = self.watches.get_or_insert_default();
        watches.add(store, key, &self.client);
        self.tell_transaction();
    }

    /// Watches no key any more.
    pub fn unwatch(&mut self, store: &mut Handle) {
        if let Some(watches) = self.watches.take() {
            watches.end(store);
        }
        // Nobody sets it any more.
        self.client.set_flag(ClientRecord::TOUCHED, false);
        self.tell_transaction();
    }

    /// Says in the client's record what is queued and watched.
    fn tell_transaction(&self) {
        let queued = self
            .transaction
            .as_ref()
            .map_or(0, |it| it.queue().len() + 1);
        let watched = self.watches.as_ref().map_or(0, |it| it.count());
        let client = &self.client;
        for (cell, count) in [(&client.transaction, queued), (&client.watched, watched)] {
            cell.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        let bytes = self.transaction_bytes() as u64;
        client.transaction_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether requests are queued or keys watched.
    #[inline]
    #[must_use]
    pub fn has_transaction(&self) -> bool {
        self.transaction.is_some() || self.watches.is_some()
    }

    /// Whether it holds any memory beside its buffers, as far as that is
    /// [counted](Session::held_bytes).
    #[inline]
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        self.has_transaction()
            || self.subscriptions.is_some()
            || self.tracking.is_some()
            || self.wait.is_some()
    }

    /// Bytes of memory behind what it queued and watches, is subscribed to, tracks by prefixes and waits
    /// for, about. Takes no longer the more that is.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let subscriptions = self.subscriptions.as_ref();
        let tracking = self.tracking.as_ref();
        let wait = self.wait.as_ref();
        self.transaction_bytes()
            + subscriptions.map_or(0, |own| own.held_bytes())
            + tracking.map_or(0, |tracking| tracking.prefix_bytes)
            + wait.map_or(0, |wait| wait.waiter.subject.held_bytes())
    }

    /// Bytes of memory behind queued requests and watched keys.
    #[must_use]
    pub fn transaction_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |it| it.held_bytes());
        queued + self.watches.as_ref().map_or(0, |it| it.held_bytes())
    }

    /// Chooses the protocol version and says so in the client's record.
    pub fn speak(&mut self, resp: Resp) {
        self.resp = resp;
        self.client
            .resp
            .store(if resp == Resp::V3 { 3 } else { 2 }, Ordering::Relaxed);
    }
}

/// What CLIENT LIST shows of a client. Written by its worker, read by any thread; every field by
/// itself, so a line may be a moment old.
#[derive(Debug)]
pub struct ClientRecord {
    /// Unique for the life of the server, never used again.
    pub id: u64,
    /// Peer address as `ip:port` or `path:0`.
    pub address: Box<str>,
    /// Our address of the connection.
    pub local_address: Box<str>,
    /// Number of the worker that owns it.
    pub worker: usize,
    /// Number of its connection at that worker, which is given to others later.
    pub place: u32,
    /// File descriptor, for information only.
    pub fd: i32,
    /// When it connected.
    pub connected_unix_ms: u64,
    /// When its last request began.
    pub active_unix_ms: AtomicU64,
    /// Selected database.
    pub database: AtomicU16,
    /// 2 or 3.
    pub resp: AtomicU8,
    /// [`ClientRecord::NO_EVICT`] and its kin.
    pub flags: AtomicU32,
    /// Index into the command table of the last command; `u16::MAX` before the first.
    pub last_command: AtomicU16,
    /// One more than the requests it queued since MULTI; 0 outside of a transaction.
    pub transaction: AtomicU32,
    /// How many keys it watches.
    pub watched: AtomicU32,
    /// Bytes of memory behind these requests.
    pub transaction_bytes: AtomicU64,
    /// Who is told of changes instead of it: 0 when it is itself, -1 when it tracks nothing.
    pub redirect: AtomicI64,
    /// To how many channels, patterns and shard channels it is subscribed.
    pub subscriptions: [AtomicU32; 3],
    /// Bytes waiting in its query buffer.
    pub query_bytes: AtomicU64,
    /// Bytes waiting to be sent.
    pub output_bytes: AtomicU64,
    /// Bytes of memory behind both.
    pub held_bytes: AtomicU64,
    /// Requests it sent so far.
    pub requests: AtomicU64,
    /// Bytes it sent and was sent so far.
    pub input_bytes_total: AtomicU64,
    /// Bytes it was sent so far.
    pub output_bytes_total: AtomicU64,
    /// Absent while it calls itself nothing.
    names: Mutex<Option<Box<ClientNames>>>,
    waiter: Mutex<Option<Arc<Waiter>>>,
    /// Whose it is; `None` for what the server does by itself.
    user: Mutex<Option<Arc<User>>>,
}

/// What a client calls itself.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO LIB-NAME.
    pub library_name: String,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: String,
}

/// The name of who authenticated as nobody else.
const DEFAULT_USER: &str = "default";

impl ClientRecord {
    /// CLIENT NO-EVICT ON.
    pub const NO_EVICT: u32 = 1;
    /// CLIENT NO-TOUCH ON.
    pub const NO_TOUCH: u32 = 2;
    /// CLIENT KILL: no request of it is begun any more; its worker will close it.
    pub const KILLED: u32 = 4;
    /// Its worker was asked to close it because all clients together hold too much.
    pub const EVICTED: u32 = 8;
    /// A request of it waits for something, such as the end of CLIENT PAUSE.
    pub const BLOCKED: u32 = 16;
    /// Subscribed to something: its unread output counts as a subscriber's.
    pub const PUBSUB: u32 = 32;
    /// It sees all commands (MONITOR); its unread output counts as a subscriber's.
    pub const MONITOR: u32 = 128;
    /// CLIENT TRACKING is on.
    pub const TRACKING: u32 = 1 << 20;
    /// Its invalidations go to a client that is gone.
    pub const TRACKING_BROKEN: u32 = 1 << 21;
    /// It is told of all changes of keys with its prefixes.
    pub const TRACKING_BROADCAST: u32 = 1 << 22;
    /// It is connected no more.
    pub const GONE: u32 = 1 << 23;
    /// CLIENT CAPA REDIRECT.
    pub const REDIRECTS: u32 = 1 << 24;
    /// It is a replica of ours (`S`).
    pub const REPLICA: u32 = 1 << 25;
    /// It is the primary that the server follows (`M`).
    pub const PRIMARY: u32 = 1 << 26;
    /// A key that it watches was changed.
    pub const TOUCHED: u32 = 1 << 16;

    /// A record for a client that has just connected.
    #[must_use]
    pub fn new(
        id: u64,
        address: String,
        local_address: String,
        worker: usize,
        fd: i32,
        now_unix_ms: u64,
    ) -> Self {
        Self {
            id,
            address: address.into_boxed_str(),
            local_address: local_address.into_boxed_str(),
            worker,
            place: 0,
            fd,
            connected_unix_ms: now_unix_ms,
            active_unix_ms: AtomicU64::new(now_unix_ms),
            database: AtomicU16::new(0),
            resp: AtomicU8::new(2),
            flags: AtomicU32::new(0),
            last_command: AtomicU16::new(u16::MAX),
            transaction: AtomicU32::new(0),
            watched: AtomicU32::new(0),
            transaction_bytes: AtomicU64::new(0),
            redirect: AtomicI64::new(-1),
            subscriptions: Default::default(),
            query_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            input_bytes_total: AtomicU64::new(0),
            output_bytes_total: AtomicU64::new(0),
            names: Mutex::default(),
            waiter: Mutex::default(),
            user: Mutex::default(),
        }
    }

    /// What it calls itself now.
    #[must_use]
    pub fn names(&self) -> ClientNames {
        self.lock_names().as_deref().cloned().unwrap_or_default()
    }

    /// Changes what it calls itself.
    pub fn change_names(&self, change: impl FnOnce(&mut ClientNames)) {
        change(self.lock_names().get_or_insert_default());
    }

    /// Calls itself nothing any more; the library stays.
    pub fn clear_name(&self) {
        if let Some(names) = &mut *self.lock_names() {
            names.name = String::new();
        }
    }

    fn lock_names(&self) -> MutexGuard<'_, Option<Box<ClientNames>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user it authenticated as.
    #[must_use]
    pub fn user_name(&self) -> String {
        let user = self.user();
        user.map_or_else(
            || DEFAULT_USER.to_owned(),
            |user| String::from_utf8_lossy(user.name()).into_owned(),
        )
    }

    /// Its peer's address without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        let address = self.address.rsplit_once(':');
        address.map_or(&*self.address, |(host, _)| host)
    }

    /// Says whose it is.
    pub fn set_user(&self, user: Arc<User>) {
        *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(user);
    }

    /// Whose it is; `None` for what the server does by itself.
    #[must_use]
    pub fn user(&self) -> Option<Arc<User>> {
        let user = self.user.lock();
        user.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it may do.
    fn permit(&self) -> Permit {
        self.user().map_or_else(Permit::unrestricted, Permit::new)
    }

    /// What it waits for, if anything. The wait may have ended a moment ago.
    pub fn waiter(&self) -> Option<Arc<Waiter>> {
        let waiter = self.waiter.lock();
        waiter.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what it waits for; what it did before.
    pub(crate) fn set_waiter(&self, waiter: Option<Arc<Waiter>>) -> Option<Arc<Waiter>> {
        let mut place = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, waiter)
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set_flag(&self, flag: u32, on: bool) {
        if on {
            self.flags.fetch_or(flag, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flag, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an idle client costs here; its worker's tables and its connection's come to it.
    #[test]
    fn an_idle_client_is_small() {
        // Two counts stand before it in its `Arc`; the next size that is allocated is half a kilobyte.
        let record_bytes = size_of::<ClientRecord>() + 2 * size_of::<usize>();
        assert!(record_bytes <= 256, "{record_bytes} bytes");
        let session_bytes = size_of::<Session>();
        assert!(session_bytes <= 216, "{session_bytes} bytes");
    }
}
