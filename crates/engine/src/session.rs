//! What the server knows about a client: [`Session`], owned by its worker. The part that other threads may
//! look at is its [`ClientRecord`].

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
    /// A request that ran in the last call was refused before it looked at anything.
    pub was_refused: bool,
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
    /// Its replies wait until a majority of the copies has what they show (CLIENT DURABILITY QUORUM).
    pub waits_for_majority: bool,
    /// What its running script ran, as MONITOR shows it.
    pub script_shown: Box<[String]>,
    /// Its requests are those of the primary that the server follows: nothing is refused to it because the server
    /// is a replica, and nobody asks whether it may.
    pub is_of_primary: bool,
    /// What other nodes serve is done there for it (CLIENT FORWARD ON), as if there were one server.
    pub forwards: bool,
    /// What it said of itself as a replica.
    pub replica: Option<Box<ReplicaHello>>,
    /// How often its next request waited for values out of memory.
    pub(crate) cold_rounds: u8,
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
    pub(crate) fn queue(&mut self, request: Request<'_>, row: QueuedRow) {
        if let Some(transaction) = &mut self.transaction {
            transaction.push(request, row);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_is_small() {
        let session_bytes = size_of::<Session>();
        assert!(session_bytes <= 216, "{session_bytes} bytes");
    }
}
