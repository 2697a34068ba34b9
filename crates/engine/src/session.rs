//! What the server knows about a client: [`Session`], owned by its worker. Other threads may read
//! its [`ClientRecord`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use access::{Permit, User};
use protocol::{Decoder, Request, Resp};
use store::{DatabaseId, Handle, Key};

use crate::arrival::Arrival;
pub use crate::client_record::{ClientNames, ClientRecord};
use crate::push::Push;
use crate::queued::{QueuedRow, Transaction};
use crate::replication::{ReplicaHello, SyncRequest};
use crate::subscriptions::Subscriptions;
use crate::tracking::Tracking;
use crate::waiting::Wait;
use crate::watch::Watches;

/// Which replies a client gets (CLIENT REPLY).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// All replies.
    #[default]
    On,
    /// No replies until the client says ON.
    Off,
    /// Not the reply of the next command (set by SKIP, armed when that command begins).
    SkipNext,
    /// Not the reply of the running command.
    Skip,
}

/// What happens to a connection after the running command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It stays open.
    #[default]
    Stay,
    /// It is closed after its replies are sent.
    Close,
    /// It gets the replication stream ([`Session::sync`]) after its replies are sent.
    HandOver,
}

/// Protocol state of one client.
pub struct Session {
    /// The part that other threads may read.
    pub client: Arc<ClientRecord>,
    /// State of an incomplete request.
    pub decoder: Decoder,
    /// The separately received argument of the next request, complete or not.
    pub arrival: Option<Box<Arrival>>,
    /// Selected database.
    pub database: DatabaseId,
    /// Protocol version of its replies.
    pub resp: Resp,
    /// Whether the client may run commands that need authentication.
    pub authenticated: bool,
    /// The client's user, and what the user may do.
    pub permit: Permit,
    /// Which replies the client gets.
    pub reply_mode: ReplyMode,
    /// What happens to the connection after the running command.
    pub fate: Fate,
    /// The client's subscriptions, if any.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The client's tracking, if CLIENT TRACKING is on.
    pub tracking: Option<Box<Tracking>>,
    /// Pushes that the worker numbered below this were delivered to the client, or preceded its
    /// first request for such pushes.
    pub pushes_seen: u64,
    /// Whether pushes must wait for the end of the running command because its reply has several
    /// parts.
    pub holds_pushes: bool,
    /// Whether the client runs a script.
    pub in_script: bool,
    /// Pushes that wait for a reply, to be written after it.
    pub held_pushes: Vec<Push>,
    /// Whether the client must wait because it publishes more than can be delivered.
    pub is_throttled: bool,
    /// Whether a request of the last call was refused before it read anything.
    pub was_refused: bool,
    /// Whether the reply of the running command is sent regardless of [`ReplyMode`], because it is
    /// a push.
    pub reply_is_push: bool,
    /// A request to be offloaded ([`crate::Next::Aside`]), as received.
    pub aside: Option<Box<[u8]>>,
    /// Requests queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// Watched keys.
    pub watches: Option<Box<Watches>>,
    /// The client's wait ([`crate::Next::Blocks`]).
    pub wait: Option<Box<Wait>>,
    /// Whether the client's replies wait until the log is on disk, regardless of other clients.
    pub waits_for_disk: bool,
    /// Whether the client's replies wait until a majority of the copies has the data they show
    /// (CLIENT DURABILITY QUORUM).
    pub waits_for_majority: bool,
    /// The commands that its script ran, as MONITOR shows them.
    pub script_shown: Box<[String]>,
    /// Whether the requests come from the primary that the server follows: none is refused because
    /// the server is a replica, and permissions are not checked.
    pub is_of_primary: bool,
    /// Whether requests for other nodes are forwarded there (CLIENT FORWARD ON), as if there were
    /// one server.
    pub forwards: bool,
    /// What the client announced as a replica.
    pub replica: Option<Box<ReplicaHello>>,
    /// Number of times that its next request waited for values out of memory.
    pub(crate) cold_rounds: u8,
    /// The replication stream that the connection is to get ([`Fate::HandOver`]).
    pub sync: Option<Box<SyncRequest>>,
}

impl Session {
    /// Returns a new session for `client` as its [user](ClientRecord::set_user). `authenticated` is
    /// set if no password is required.
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
            cold_rounds: 0,
            fate: Fate::Stay,
            subscriptions: None,
            tracking: None,
            pushes_seen: 0,
            holds_pushes: false,
            in_script: false,
            held_pushes: Vec::new(),
            is_throttled: false,
            was_refused: false,
            reply_is_push: false,
            aside: None,
            transaction: None,
            watches: None,
            wait: None,
            waits_for_disk: false,
            waits_for_majority: false,
            script_shown: Box::default(),
            is_of_primary: false,
            forwards: false,
            replica: None,
            sync: None,
        }
    }

    /// Whether the client may receive pushes, besides what it monitors.
    #[inline]
    #[must_use]
    pub fn hears_pushes(&self) -> bool {
        self.subscriptions.is_some() || self.tracking.is_some() || !self.held_pushes.is_empty()
    }

    /// Whether a wait of the client has ended and its answer is on the way: pushes must come after
    /// that answer.
    #[must_use]
    pub fn is_being_answered(&self) -> bool {
        let wait = self.wait.as_ref();
        wait.is_some_and(|wait| !wait.waiter.waits())
    }

    /// Whether the client has subscriptions in RESP2, and so may send only a few commands.
    #[inline]
    #[must_use]
    pub fn only_listens(&self) -> bool {
        self.subscriptions.is_some() && self.resp == Resp::V2
    }

    /// Switches to another user, also in the client's record.
    pub fn log_in(&mut self, user: Arc<User>) {
        self.client.set_user(Arc::clone(&user));
        self.permit = Permit::new(user);
        self.authenticated = true;
    }

    /// Selects a database, also in the client's record.
    pub fn select(&mut self, database: DatabaseId) {
        self.database = database;
        self.client.database.store(database, Ordering::Relaxed);
    }

    /// Begins a transaction.
    pub fn begin_transaction(&mut self) {
        self.transaction = Some(Box::default());
        self.tell_transaction();
    }

    /// Adds a request to the transaction, if one was begun.
    pub(crate) fn queue(&mut self, request: Request<'_>, row: QueuedRow) {
        if let Some(transaction) = &mut self.transaction {
            transaction.push(request, row);
            self.tell_transaction();
        }
    }

    /// Causes EXEC to be refused, if a transaction was begun.
    pub(crate) fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
    }

    /// Forgets the transaction and its watched keys.
    pub(crate) fn end_transaction(&mut self, store: &mut Handle) {
        self.transaction = None;
        self.unwatch(store);
    }

    /// Watches a key. Does nothing if a watched key was already changed.
    pub fn watch(&mut self, store: &mut Handle, key: &Key<'_>) {
        if self.client.has_flag(ClientRecord::TOUCHED) {
            return;
        }
        let watches = self.watches.get_or_insert_default();
        watches.add(store, key, &self.client);
        self.tell_transaction();
    }

    /// Stops watching all keys.
    pub fn unwatch(&mut self, store: &mut Handle) {
        if let Some(watches) = self.watches.take() {
            watches.end(store);
        }
        // No other thread sets the flag any more.
        self.client.set_flag(ClientRecord::TOUCHED, false);
        self.tell_transaction();
    }

    /// Copies the numbers and the memory of queued requests and watched keys to the client's
    /// record.
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

    /// Whether the client holds memory besides its buffers, as far as that is
    /// [counted](Session::held_bytes).
    #[inline]
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        self.has_transaction()
            || self.subscriptions.is_some()
            || self.tracking.is_some()
            || self.wait.is_some()
    }

    /// Returns the approximate memory of queued requests, watched keys, subscriptions, tracked
    /// prefixes and the wait, in bytes. Takes constant time.
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

    /// Returns the memory of queued requests and watched keys, in bytes.
    #[must_use]
    pub fn transaction_bytes(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |it| it.held_bytes());
        queued + self.watches.as_ref().map_or(0, |it| it.held_bytes())
    }

    /// Selects the protocol version, also in the client's record.
    pub fn speak(&mut self, resp: Resp) {
        self.resp = resp;
        self.client
            .resp
            .store(if resp == Resp::V3 { 3 } else { 2 }, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_is_small() {
        let session_bytes = size_of::<Session>();
        assert!(session_bytes <= 216, "{session_bytes} bytes");
    }
}
