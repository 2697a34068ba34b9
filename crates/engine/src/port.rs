//! What commands need of the server, as traits that the server implements: one for each area, and
//! [`ServerPort`] for all of them.
//!
//! Commands know no socket, thread or file. They call these traits for everything they cannot do
//! themselves (configuration, the list of clients, INFO, shutdown).

use std::sync::Arc;

use access::{Change as UserChange, User};
use protocol::Reply;
use store::{Handle, Key, Locator};

use crate::client_record::ClientRecord;
use crate::cluster::{ClusterOrder, ClusterSeen, DISABLED, Ordered};
use crate::counters::Latencies;
use crate::error::CommandError;
use crate::push::Push;
use crate::replication::{
    Copies, FailoverOrder, Followed, NodeOrder, ReplicaOf, RoleReport, SyncRequest,
};
use crate::session::Session;
use crate::shared_change::SharedChange;
use crate::slot_moves::{MoveAnswer, MoveOrder, SlotMove};
use crate::topic::{Topic, TopicKind};
use crate::tracking::Follower;
use crate::waiting::Waiter;

/// The error of ACL LOAD and ACL SAVE if the users have no file of their own.
pub const NO_USERS_FILE: CommandError = CommandError::fixed(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
     the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration \
     file set) in order to store users in the Redis configuration.",
);

/// The server as commands see it: all ports together.
pub trait ServerPort:
    ConfigPort
    + ClientsPort
    + UsersPort
    + PubSubPort
    + TrackingPort
    + PersistencePort
    + ProcessPort
    + ReplicationPort
    + ClusterPort
    + TierPort
{
}

impl<T> ServerPort for T where
    T: ConfigPort
        + ClientsPort
        + UsersPort
        + PubSubPort
        + TrackingPort
        + PersistencePort
        + ProcessPort
        + ReplicationPort
        + ClusterPort
        + TierPort
{
}

/// Which values return to memory when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// All values.
    First,
    /// Values that were also read recently.
    #[default]
    Second,
    /// Only values that are changed.
    Never,
}

impl Promotion {
    /// Whether a value returns to memory, given whether it was used before.
    #[must_use]
    pub fn applies(self, was_used: bool) -> bool {
        match self {
            Self::First => true,
            Self::Second => was_used,
            Self::Never => false,
        }
    }
}

/// The operations of TIER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierOrder {
    /// Bring all values back into memory, and keep them there.
    Drain,
    /// Report the status.
    Status,
    /// Rewrite what is still referenced, and remove the rest.
    Compact,
    /// Read everything.
    Scrub,
}

/// The error for a request to the tier if there is none.
pub const NO_TIER: CommandError =
    CommandError::fixed("ERR There is no tier: set tier-path in the configuration file");

/// Where the values that a request needs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesAre {
    /// In memory.
    Here,
    /// All of them were already being read.
    Coming,
    /// Some reads begin only now.
    Wanted,
}

/// Values out of memory.
pub trait TierPort {
    /// Returns whether the values at these places are in memory, for the request that asks. If not,
    /// begins to read them; the client's requests continue when all of them are there.
    fn have_values(&mut self, wanted: Vec<(Vec<u8>, Locator)>) -> ValuesAre {
        drop(wanted);
        ValuesAre::Here
    }

    /// Begins to read values that later requests of the client will need. Nothing waits for them.
    fn read_ahead(&mut self, wanted: Vec<(Vec<u8>, Locator)>) {
        drop(wanted);
    }

    /// Returns which values come back into memory.
    fn promotes(&self) -> Promotion {
        Promotion::default()
    }

    /// Moves the value of a key out of memory, and waits for it. Returns whether it was moved.
    ///
    /// # Errors
    /// If there is no tier, or it does not take the value.
    fn demote(&mut self, store: &mut Handle, key: &Key<'_>) -> Result<bool, CommandError> {
        let _ = (store, key);
        Err(NO_TIER)
    }

    /// Executes a TIER operation, and returns the names and values of its reply.
    ///
    /// # Errors
    /// If there is no tier, or it fails.
    fn tier(
        &mut self,
        store: &mut Handle,
        order: TierOrder,
    ) -> Result<Vec<(&'static str, String)>, CommandError> {
        let _ = (store, order);
        Err(NO_TIER)
    }
}

/// The configuration as CONFIG sees it, and what it allows.
pub trait ConfigPort {
    /// Passes the name and value of each directive that matches one of the patterns to `emit`, each
    /// once.
    fn config_get(&mut self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8]));

    /// Sets several directives, all or none. If it may wait (for other nodes and for a disk), the
    /// caller is outside of the store with nothing locked.
    ///
    /// # Errors
    /// The error for the client, or [`CommandError::Aside`] if it would wait and may not. Nothing
    /// has changed.
    fn config_set(&mut self, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Result<(), CommandError>;

    /// Whether these directives belong to a control group: they are set on all of its nodes or on
    /// none, and that waits for other nodes.
    fn shares_directives(&self, pairs: &[(&[u8], &[u8])]) -> bool {
        let _ = pairs;
        false
    }

    /// Rewrites the configuration file. With `all`, includes directives that have their defaults.
    ///
    /// # Errors
    /// The error for the client.
    fn config_rewrite(&mut self, all: bool) -> Result<(), CommandError>;

    /// Whether DEBUG is allowed for this client (`enable-debug-command`).
    fn debug_allowed(&self, session: &Session) -> bool;
}

/// Clients other than the one that sent the running command.
pub trait ClientsPort {
    /// Returns lines of CLIENT LIST for the clients that match the filter, oldest first.
    fn clients(&mut self, filter: &ClientFilter) -> String;

    /// Returns the client with this id, or `None` if it is not connected.
    fn client(&mut self, id: u64) -> Option<Arc<ClientRecord>>;

    /// Sends a waiting client its reply ([`crate::Next::Blocks`]), and lets it continue. Sends
    /// nothing if the reply is empty.
    fn answer(&mut self, client: &ClientRecord, reply: Vec<u8>);

    /// Asks the owners of all matching clients to close them, and returns their number. The
    /// caller's own connection is counted if it matches, but the caller closes it (`Fate::Close`).
    fn kill_clients(&mut self, session: &Session, filter: &ClientFilter) -> KillCount;

    /// Sends a client a push, after everything it was sent so far. The client of the running
    /// command gets it after the reply. Never waits and takes no lock that is held for long, so
    /// keys may be locked. A client that has gone gets nothing. A client whose worker has too much
    /// pending is closed.
    fn push(&mut self, to: &ClientRecord, push: &Push);

    /// Pauses clients until a time (CLIENT PAUSE). `writes_only` lets reads pass.
    fn pause_clients(&mut self, until_unix_ms: u64, writes_only: bool);

    /// Ends the pause (CLIENT UNPAUSE).
    fn unpause_clients(&mut self);
}

/// What the server does for users, beyond the rules that the engine checks.
pub trait UsersPort {
    /// Closes the clients of a user that have subscriptions which its rules no longer allow. The
    /// caller closes its own connection.
    fn end_subscribers(&mut self, user: &Arc<User>) {
        let _ = user;
    }

    /// ACL LOAD: loads the users from their file, all or none. Returns what happened to the
    /// previous users.
    ///
    /// # Errors
    /// The error for the client.
    fn load_users(&mut self) -> Result<Vec<UserChange>, CommandError> {
        Err(NO_USERS_FILE)
    }

    /// ACL SAVE: writes all users to their file.
    ///
    /// # Errors
    /// The error for the client.
    fn save_users(&mut self) -> Result<(), CommandError> {
        Err(NO_USERS_FILE)
    }

    /// Whether users belong to a control group: they are changed on all of its nodes or on none.
    fn shares_users(&self) -> bool {
        false
    }

    /// Changes what the nodes of a control group share, and waits until the change is in force
    /// here. The caller is outside of the store. Writes nothing to `reply` if another thread
    /// continues the change and answers the client.
    ///
    /// # Errors
    /// The error for the client; the errors of [`crate::shared_change::MakePart`].
    fn change_shared(
        &mut self,
        change: &Arc<SharedChange>,
        reply: &mut Reply<'_>,
    ) -> Result<(), CommandError> {
        let _ = (change, reply);
        Err(CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }
}

/// Channels and their subscribers.
pub trait PubSubPort {
    /// Sends a message to the subscribers of a channel. `kind` is [`TopicKind::Channel`], which
    /// also reaches the subscribers of patterns, or [`TopicKind::ShardChannel`]. Like
    /// [`ClientsPort::push`], never waits.
    fn publish(&mut self, kind: TopicKind, channel: &[u8], message: &[u8]) -> Published;

    /// Subscribes the session's client to a topic. Messages published before, to any of its
    /// subscriptions, are written to `reply`. Returns the topic with the name that all its
    /// subscribers share, for [`Session::subscriptions`].
    fn subscribe(
        &mut self,
        session: &mut Session,
        kind: TopicKind,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Topic;

    /// Ends a subscription. Messages published before are written to `reply`.
    fn unsubscribe(&mut self, session: &mut Session, topic: &Topic, reply: &mut Reply<'_>);

    /// Writes to `reply` the pending pushes that the session's client caused itself.
    fn catch_up(&mut self, session: &mut Session, reply: &mut Reply<'_>);

    /// Returns the channels with subscribers, in no order, without those that only match subscribed
    /// patterns.
    fn channels(&self, kind: TopicKind) -> Vec<Arc<[u8]>>;

    /// Returns the number of subscribers of a channel.
    fn subscribers(&self, kind: TopicKind, channel: &[u8]) -> usize;

    /// Returns the number of distinct patterns with subscribers.
    fn patterns_count(&self) -> usize;
}

/// The client cache: which clients are notified of changes of which keys.
pub trait TrackingPort {
    /// Begins to notify a client of changes, as its options say.
    fn follow(&mut self, follower: &Arc<Follower>);

    /// Ends the notifications: the client no longer tracks keys.
    fn unfollow(&mut self, store: &mut Handle, follower: &Arc<Follower>);

    /// Records that a client is about to read keys.
    fn track(&mut self, store: &mut Handle, follower: &Arc<Follower>, keys: &[Key<'_>]);

    /// Notifies all clients with tracking that all keys of a database, or of all databases, are
    /// gone. To be called before the keys are removed.
    fn tell_flush(&mut self, store: &mut Handle);
}

/// Persistence: checkpoints and the log.
pub trait PersistencePort {
    /// FLUSHALL deleted everything. That is to be on disk soon, even if otherwise only save points
    /// decide. The client does not wait for it.
    fn flushed_all(&mut self) {}

    /// SAVE: saves everything to disk, and returns when that is done. The caller is outside of the
    /// store.
    ///
    /// # Errors
    /// Why nothing was saved.
    fn save(&mut self) -> Result<(), SaveRefusal> {
        Err(SaveRefusal::Impossible)
    }

    /// BGSAVE and BGREWRITEAOF: has another thread save everything to disk.
    ///
    /// # Errors
    /// Why nothing will be saved.
    fn begin_save(&mut self, kind: SaveKind, time: SaveTime) -> Result<SaveStart, SaveRefusal> {
        let _ = (kind, time);
        Err(SaveRefusal::Impossible)
    }

    /// Whether a SHUTDOWN would save first.
    fn saves_at_shutdown(&self, request: ShutdownRequest) -> bool {
        let _ = request;
        false
    }

    /// Whether a control group decides which node is the primary, and lets writes wait for a
    /// majority.
    fn has_quorum(&self) -> bool {
        false
    }

    /// Returns the position of the log with regard to the client's writes, or `None` without a log.
    fn log_position(&mut self, session: &Session) -> Option<LogPosition> {
        let _ = session;
        None
    }

    /// Returns the sequence up to which the log is on disk.
    fn log_durable(&self) -> u64 {
        0
    }

    /// Requests that the log is on disk up to this sequence soon. Never waits.
    fn request_log_sync(&mut self, up_to: u64) {
        let _ = up_to;
    }

    /// DEBUG RELOAD: saves, deletes everything, and loads it again, each as the options say. The
    /// caller is outside of the store.
    ///
    /// # Errors
    /// The error for the client.
    fn reload(&mut self, options: ReloadOptions) -> Result<(), CommandError> {
        let _ = options;
        Err(CommandError::fixed("ERR nothing is kept here"))
    }

    /// Returns the time of the last successful save, in seconds since 1970 UTC (LASTSAVE).
    fn last_save_unix(&self) -> i64;
}

/// The process: its statistics, time, memory and shutdown.
pub trait ProcessPort {
    /// INFO: returns the requested sections (lower case; the default ones if empty).
    fn info(&mut self, store: &mut Handle, sections: &[String]) -> String;

    /// Returns the run times of commands since the last CONFIG RESETSTAT.
    fn latencies(&mut self) -> Latencies {
        Latencies::default()
    }

    /// CONFIG RESETSTAT.
    fn reset_statistics(&mut self);

    /// Writes a line into the server's log (redis.log).
    fn log_line(&mut self, level: LogLevel, text: &[u8]) {
        let _ = (level, text);
    }

    /// SHUTDOWN. On success the server stops, unless the request is to abort a shutdown, and the
    /// command sends no reply. The caller is outside of the store if [it
    /// saves](PersistencePort::saves_at_shutdown), because that takes time.
    ///
    /// # Errors
    /// The error for the client if it cannot.
    fn shutdown(&mut self, request: ShutdownRequest) -> Result<(), CommandError>;

    /// Returns microseconds since 1970 UTC (TIME).
    fn now_unix_us(&self) -> u64;

    /// DEBUG SLEEP: blocks the calling worker for this long.
    fn sleep_seconds(&mut self, seconds: f64);

    /// Pauses briefly so that other threads make progress. The caller is outside of the store.
    fn rest(&mut self) {}

    /// DEBUG LEASE: makes a primary of a control group assume that its lease lasts this long.
    fn extend_lease(&mut self, ms: u64) {
        let _ = ms;
    }

    /// DEBUG SET-ACTIVE-EXPIRE.
    fn set_active_expire(&mut self, on: bool);

    /// Called repeatedly while a running script exceeds its time limit; `is_news` is set the first
    /// time. Waiting clients are to be notified ([`Running::busy`](crate::scripts::Running::busy)).
    fn script_is_late(&mut self, is_news: bool) {
        let _ = is_news;
    }

    /// Returns the server's memory use.
    fn memory(&mut self) -> ServerMemory;

    /// Returns all statistics of the allocator (MEMORY MALLOC-STATS).
    fn allocator_statistics(&mut self) -> String {
        String::new()
    }

    /// MEMORY PURGE.
    fn purge_memory(&mut self, store: &mut Handle);
}

/// The server's replication as commands see it. Without replication it behaves like a primary
/// without replicas.
pub trait ReplicationPort {
    /// Returns the server's role (ROLE).
    fn role(&mut self) -> RoleReport {
        RoleReport::default()
    }

    /// Whether the server follows another one, or is about to.
    fn is_replica(&self) -> bool {
        false
    }

    /// REPLICAOF: begins to follow another server, or none. Does not wait: writes wait until the
    /// change is done.
    ///
    /// # Errors
    /// The error for the client; nothing has changed.
    fn replica_of(
        &mut self,
        session: &Session,
        order: &ReplicaOf,
    ) -> Result<Followed, CommandError> {
        let _ = session;
        match order {
            ReplicaOf::NoOne => Ok(Followed::Changed),
            ReplicaOf::Primary { .. } => {
                Err(CommandError::fixed("ERR not allowed without a server"))
            }
        }
    }

    /// FAILOVER: begins to hand the primary's role over to a replica, or aborts that. Never waits.
    ///
    /// # Errors
    /// The error for the client.
    fn fail_over(&mut self, order: &FailoverOrder) -> Result<(), CommandError> {
        match order {
            FailoverOrder::Abort => Err(NO_FAILOVER),
            FailoverOrder::Begin { .. } => Err(CommandError::fixed(
                "ERR FAILOVER requires connected replicas.",
            )),
        }
    }

    /// Checks whether the session's connection may get the replication stream now, as far as can be
    /// known before the connection is turned over.
    ///
    /// # Errors
    /// The error for the client.
    fn admit_sync(&mut self, session: &Session, request: &SyncRequest) -> Result<(), CommandError> {
        let _ = (session, request);
        Err(CommandError::fixed("ERR not allowed without a server"))
    }

    /// REPLICATION VERIFY: begins to compare the data with that of replicas. Never waits.
    ///
    /// # Errors
    /// The error for the client.
    fn verify_replicas(&mut self) -> Result<(), CommandError> {
        Err(CommandError::fixed(
            "ERR there is no replica by the own link to compare with",
        ))
    }

    /// REPLICATION LEAVE, DRAIN and UNDRAIN: makes a node of the control group leave, do less, or
    /// do everything again. Waits until that is decided.
    ///
    /// # Errors
    /// The error for the client.
    fn order_node(&mut self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        let _ = (node, order);
        Err(CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }

    /// REPLICATION LEAVE FOR-RESTART: makes this node hand over everything it leads, and lead
    /// nothing until it is restarted. Waits until other nodes lead, or until `shutdown-timeout`.
    ///
    /// # Errors
    /// The error for the client.
    fn leave_for_restart(&mut self) -> Result<(), CommandError> {
        Err(CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }

    /// REPLICATION DIFFERENCES: returns the keys that the last comparison found to differ, at most
    /// a hundred, each with replica, database and key.
    fn differences(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the port of our own replication link and this node's name, for a replica that can
    /// use it, or `None` if there is none.
    fn own_link(&mut self) -> Option<(u16, String)> {
        None
    }

    /// Returns how many replicas have the log up to a sequence.
    fn copies(&self, sequence: u64) -> Copies {
        let _ = sequence;
        Copies::default()
    }

    /// Has a waiting request answered when enough replicas have what it waits for. Asks the
    /// replicas to acknowledge soon.
    fn await_copies(&mut self, waiter: &Arc<Waiter>) {
        let _ = waiter;
    }
}

/// The cluster as commands see it.
pub trait ClusterPort {
    /// Returns the cluster as this node sees it, or `None` outside of one.
    fn cluster(&mut self) -> Option<Arc<ClusterSeen>> {
        None
    }

    /// Changes the cluster. Waits for disks and for other nodes: the caller is outside of the
    /// store.
    ///
    /// # Errors
    /// The error for the client.
    fn order(&mut self, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        let _ = order;
        Err(DISABLED)
    }

    /// Moves slots. Waits for other nodes: the caller is outside of the store.
    ///
    /// # Errors
    /// The error for the client.
    fn move_slots(&mut self, order: &MoveOrder) -> Result<MoveAnswer, CommandError> {
        let _ = order;
        Err(DISABLED)
    }

    /// Returns the user that another node of the cluster is admitted as, by the token it was given.
    /// A token is valid once.
    fn redeem(&mut self, token: &[u8]) -> Option<Arc<User>> {
        let _ = token;
        None
    }

    /// Whether a slot is being moved to another node.
    fn is_leaving(&mut self, slot: u16) -> bool {
        let _ = slot;
        false
    }

    /// Returns all moves of slots that this node knows.
    fn slot_moves(&mut self) -> Vec<SlotMove> {
        Vec::new()
    }

    /// MIGRATE: sends requests to another server and returns its replies, one for each. Waits for
    /// that server: the caller is outside of the store.
    ///
    /// # Errors
    /// The error for the client.
    fn ask_server(
        &mut self,
        ask: &AskServer<'_>,
    ) -> Result<Vec<Result<(), Vec<u8>>>, CommandError> {
        let _ = ask;
        Err(CommandError::fixed(
            "IOERR error or timeout connecting to the client",
        ))
    }
}

/// Requests to another server.
#[derive(Clone, Copy, Debug)]
pub struct AskServer<'a> {
    /// The server's name or address.
    pub host: &'a [u8],
    /// Its port.
    pub port: &'a [u8],
    /// Maximum wait in each step.
    pub timeout_ms: u64,
    /// The encoded requests, one after the other.
    pub requests: &'a [u8],
    /// Number of requests.
    pub count: usize,
}

/// The error of FAILOVER ABORT if no failover is in progress.
pub const NO_FAILOVER: CommandError = CommandError::fixed("ERR No failover in progress.");

/// The importance of a line in the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Useful for debugging.
    Debug,
    /// Occasionally useful.
    Verbose,
    /// Useful to operators.
    Notice,
    /// Something is wrong.
    Warning,
}

/// Positions in the log, in bytes since it was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// The end of what the client wrote last.
    pub wrote: u64,
    /// The position up to which it is on disk.
    pub durable: u64,
    /// Whether the log is ever on disk: otherwise it is only in memory, for replicas.
    pub is_kept: bool,
}

impl LogPosition {
    /// Whether everything that the client wrote is on disk.
    #[must_use]
    pub fn is_durable(self) -> bool {
        self.is_kept && self.wrote <= self.durable
    }
}

/// The result of publishing a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Number of subscribers that receive it. A client counts once for each of its matching
    /// subscriptions.
    pub receivers: usize,
    /// Whether some of them have so much pending that the publisher should wait.
    pub is_crowded: bool,
    /// Whether replicas of this node get the message as an effect.
    pub is_for_replicas: bool,
}

/// What the process's allocator reports, plus the memory that the store maps itself, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorMemory {
    /// Allocated by the program, rounded up to the allocator's size classes.
    pub allocated: u64,
    /// Pages that hold at least one allocation.
    pub active: u64,
    /// Pages that may be in memory, free ones included.
    pub resident: u64,
    /// Free pages that the system may take when it needs them.
    pub muzzy: u64,
}

/// A server's memory use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerMemory {
    /// Resident memory of the process, including shared pages of the program.
    pub resident: u64,
    /// Memory in use: what was allocated at the start, records, index and clients.
    pub used: u64,
    /// The maximum that was ever in use.
    pub peak: u64,
    /// Memory in use before the first client connected.
    pub startup: u64,
    /// Clients and their buffers.
    pub clients: u64,
    /// The part of `used` that is neither keys nor values.
    pub overhead: u64,
    /// The operation log's memory, which is not part of `used`. Its resident pages are part of
    /// `resident`.
    pub log: u64,
    /// What the allocator reports.
    pub allocator: AllocatorMemory,
}

impl ServerMemory {
    /// Returns the resident memory without the operation log's.
    #[must_use]
    pub fn resident_without_log(&self) -> u64 {
        self.resident.saturating_sub(self.log)
    }

    /// Returns the part of `used` that keys and values take.
    #[must_use]
    pub fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead)
    }
}

/// Number of clients that CLIENT KILL closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillCount {
    /// All clients, including the caller.
    pub clients: u64,
    /// Whether the caller is among them.
    pub caller: bool,
}

/// Which clients CLIENT LIST shows or CLIENT KILL closes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// Conditions that must all hold, or must not hold if the second part is set.
    pub conditions: Vec<(ClientCondition, bool)>,
    /// Excludes the caller (this id).
    pub except: Option<u64>,
}

impl ClientFilter {
    /// Returns a filter with one condition.
    #[must_use]
    pub fn of(condition: ClientCondition) -> Self {
        Self {
            conditions: vec![(condition, false)],
            except: None,
        }
    }

    /// Adds ids to those that the filter already selects or excludes.
    pub fn add_ids(&mut self, more: Vec<u64>, is_negated: bool) {
        for (condition, negated) in &mut self.conditions {
            if let ClientCondition::Id(ids) = condition
                && *negated == is_negated
            {
                ids.extend(more);
                return;
            }
        }
        self.conditions
            .push((ClientCondition::Id(more), is_negated));
    }
}

/// A condition on a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCondition {
    /// It has one of these ids.
    Id(Vec<u64>),
    /// Peer address.
    Address(String),
    /// This server's address of the connection.
    LocalAddress(String),
    /// Peer address without its port.
    Ip(String),
    /// Kind: normal, master, replica or pubsub.
    Kind(ClientKind),
    /// Authenticated as this user.
    User(String),
    /// Connected at least this many seconds ago.
    AgeSeconds(u64),
    /// Has sent nothing for at least this many seconds.
    IdleSeconds(u64),
    /// Has all of these flag letters.
    Flags(String),
    /// Has this name.
    Name(String),
    /// Its library.
    LibraryName(String),
    /// Version of its library.
    LibraryVersion(String),
    /// Selected this database.
    Database(u16),
    /// Announced this capability; none is known.
    Capability(String),
}

/// Kind of a client, as named by `TYPE` filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// An ordinary client.
    Normal,
    /// The primary that this server follows.
    Primary,
    /// A replica of this server.
    Replica,
    /// A subscriber.
    PubSub,
}

/// The purpose of a save. Both make a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveKind {
    /// To save everything (BGSAVE).
    Snapshot,
    /// To shorten the log (BGREWRITEAOF).
    Rewrite,
}

/// When to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveTime {
    /// Now; otherwise the save is refused.
    Now,
    /// Now, or after a save that is in progress.
    WhenFree,
    /// A little later: a transaction requests it, and the save must include all of it.
    Later,
}

/// What DEBUG RELOAD does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadOptions {
    /// Whether everything is saved first; otherwise the last save is loaded (NOSAVE).
    pub saves: bool,
    /// Whether the data is deleted before the load; otherwise it stays (NOFLUSH).
    pub flushes: bool,
    /// Whether an existing key or library is replaced; otherwise it is an error (MERGE).
    pub merges: bool,
}

impl Default for ReloadOptions {
    fn default() -> Self {
        Self {
            saves: true,
            flushes: true,
            merges: false,
        }
    }
}

/// When a save will begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveStart {
    /// Now.
    Started,
    /// After the save that is in progress.
    Scheduled,
}

/// Why a save will not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveRefusal {
    /// A save is in progress.
    Busy(SaveKind),
    /// Saving is not possible; the server log says why.
    Impossible,
}

/// Options of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownRequest {
    /// SAVE or NOSAVE, if given.
    pub save: Option<bool>,
    /// NOW.
    pub now: bool,
    /// FORCE.
    pub force: bool,
    /// ABORT.
    pub abort: bool,
}
