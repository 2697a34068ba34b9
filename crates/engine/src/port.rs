//! What commands need of the server around them, as traits that the server implements: one for each kind of user, and
//! [`ServerPort`] for all of them.
//!
//! Commands know no socket, thread or file. What they cannot do by themselves (configuration, the
//! list of clients, INFO, shutting down) they ask for here.

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

/// What ACL LOAD and ACL SAVE answer where users are in no file of their own.
pub const NO_USERS_FILE: CommandError = CommandError::fixed(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
     the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration \
     file set) in order to store users in the Redis configuration.",
);

/// The server, seen from a command: the ports of all who use it.
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

/// Which values come back into memory when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// All.
    First,
    /// Those that were read before, and not long ago.
    #[default]
    Second,
    /// Those that are changed.
    Never,
}

impl Promotion {
    /// Whether that holds for a value that was used before or not.
    #[must_use]
    pub fn applies(self, was_used: bool) -> bool {
        match self {
            Self::First => true,
            Self::Second => was_used,
            Self::Never => false,
        }
    }
}

/// What TIER can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierOrder {
    /// All values come back into memory, and none leaves it any more.
    Drain,
    /// Tell how things stand.
    Status,
    /// Write together what is still named, and remove the rest.
    Compact,
    /// Read everything.
    Scrub,
}

/// What a client hears that asks for something of the tier where there is none.
pub const NO_TIER: CommandError =
    CommandError::fixed("ERR There is no tier: set tier-path in the configuration file");

/// Where values are that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValuesAre {
    /// In memory.
    Here,
    /// They are being read, and were before.
    Coming,
    /// Some are asked for only now.
    Wanted,
}

/// Values out of memory.
pub trait TierPort {
    /// Whether the values at these places are in memory, for the request that asks; has them read if not, and the
    /// client's requests go on when all of them are.
    fn have_values(&mut self, wanted: Vec<(Vec<u8>, Locator)>) -> ValuesAre {
        drop(wanted);
        ValuesAre::Here
    }

    /// Has values read that later requests of the client will need. Nobody waits for them.
    fn read_ahead(&mut self, wanted: Vec<(Vec<u8>, Locator)>) {
        drop(wanted);
    }

    /// Which values come back into memory.
    fn promotes(&self) -> Promotion {
        Promotion::default()
    }

    /// Moves the value of a key out of memory, while the caller waits; whether it went.
    ///
    /// # Errors
    /// Where there is no tier, or it does not take the value.
    fn demote(&mut self, store: &mut Handle, key: &Key<'_>) -> Result<bool, CommandError> {
        let _ = (store, key);
        Err(NO_TIER)
    }

    /// Does what TIER asks for; names and values to be told.
    ///
    /// # Errors
    /// Where there is no tier, or it fails.
    fn tier(
        &mut self,
        store: &mut Handle,
        order: TierOrder,
    ) -> Result<Vec<(&'static str, String)>, CommandError> {
        let _ = (store, order);
        Err(NO_TIER)
    }
}

/// The configuration, as CONFIG sees it, and what it allows.
pub trait ConfigPort {
    /// Hands name and value of each directive that matches one of the patterns to `emit`, each once.
    fn config_get(&mut self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8]));

    /// Sets several directives, all or none. To be called outside of the store where it may wait for others and
    /// for a disk and nothing is locked.
    ///
    /// # Errors
    /// What the client is to read; [`CommandError::Aside`] where it would wait and may not. Nothing has changed.
    fn config_set(&mut self, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Result<(), CommandError>;

    /// Whether these are directives of a control group: they are set on all of its nodes or on none, which waits for
    /// others.
    fn shares_directives(&self, pairs: &[(&[u8], &[u8])]) -> bool {
        let _ = pairs;
        false
    }

    /// Writes the configuration file anew; with `all`, also what is as by default.
    ///
    /// # Errors
    /// What the client is to read.
    fn config_rewrite(&mut self, all: bool) -> Result<(), CommandError>;

    /// Whether DEBUG is allowed for this client (`enable-debug-command`).
    fn debug_allowed(&self, session: &Session) -> bool;
}

/// Clients other than the one that sent the running command.
pub trait ClientsPort {
    /// Lines of CLIENT LIST for the clients that the filter lets through, oldest first.
    fn clients(&mut self, filter: &ClientFilter) -> String;

    /// The client with this id, while it is connected.
    fn client(&mut self, id: u64) -> Option<Arc<ClientRecord>>;

    /// Sends a client that waits what its request is answered ([`crate::Next::Blocks`]), and lets it go
    /// on. Nothing is sent when the reply is empty.
    fn answer(&mut self, client: &ClientRecord, reply: Vec<u8>);

    /// Tells the owners of all matching clients to close them; how many they are. The caller's own
    /// connection, when it matches, is counted but left to the caller (`Fate::Close`).
    fn kill_clients(&mut self, session: &Session, filter: &ClientFilter) -> KillCount;

    /// Sends a client something that it did not ask for, behind what it was sent so far. The client
    /// that sent the running command gets it behind the reply. Waits for nothing and takes no lock
    /// that is held for long, so keys may be locked; a client that is gone meanwhile gets nothing, and
    /// one for whose worker too much waits already is closed.
    fn push(&mut self, to: &ClientRecord, push: &Push);

    /// CLIENT PAUSE until a time; `writes_only` lets reads pass.
    fn pause_clients(&mut self, until_unix_ms: u64, writes_only: bool);

    /// CLIENT UNPAUSE.
    fn unpause_clients(&mut self);
}

/// Users, where they are more than the rules that the engine checks.
pub trait UsersPort {
    /// Has those clients of a user closed that are subscribed to what its rules no longer allow; the
    /// caller's own connection is left to the caller.
    fn end_subscribers(&mut self, user: &Arc<User>) {
        let _ = user;
    }

    /// ACL LOAD: takes the users from their file, all or none; what became of those that were there.
    ///
    /// # Errors
    /// What the client is to read.
    fn load_users(&mut self) -> Result<Vec<UserChange>, CommandError> {
        Err(NO_USERS_FILE)
    }

    /// ACL SAVE: writes all users to their file.
    ///
    /// # Errors
    /// What the client is to read.
    fn save_users(&mut self) -> Result<(), CommandError> {
        Err(NO_USERS_FILE)
    }

    /// Whether users are those of a control group: they are changed on all of its nodes or on none.
    fn shares_users(&self) -> bool {
        false
    }

    /// Changes what the nodes of a control group share, and waits until that holds here: to be called outside of the store.
    /// Nothing is written to `reply` where the change goes on elsewhere: its client is answered from there.
    ///
    /// # Errors
    /// What the client is to read; those of [`crate::shared_change::MakePart`].
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

/// Channels, and who hears what is published to them.
pub trait PubSubPort {
    /// Sends a message to the subscribers of a channel: `kind` is [`TopicKind::Channel`], which also
    /// reaches those of patterns, or [`TopicKind::ShardChannel`]. As little as [`ClientsPort::push`] does
    /// it wait.
    fn publish(&mut self, kind: TopicKind, channel: &[u8], message: &[u8]) -> Published;

    /// Has the session's client sent what is published to a topic from now on. What was published
    /// before, to anything it is subscribed to, is written to `reply`. Gives the topic with the name that
    /// all its subscribers share, for [`Session::subscriptions`].
    fn subscribe(
        &mut self,
        session: &mut Session,
        kind: TopicKind,
        name: &[u8],
        reply: &mut Reply<'_>,
    ) -> Topic;

    /// Ends a subscription. What was published before is written to `reply`.
    fn unsubscribe(&mut self, session: &mut Session, topic: &Topic, reply: &mut Reply<'_>);

    /// Writes the pushes to `reply` that wait for the session's client because of what it did itself.
    fn catch_up(&mut self, session: &mut Session, reply: &mut Reply<'_>);

    /// Channels with subscribers, in no order; those with subscribed patterns only are not among them.
    fn channels(&self, kind: TopicKind) -> Vec<Arc<[u8]>>;

    /// How many clients are subscribed to a channel.
    fn subscribers(&self, kind: TopicKind, channel: &[u8]) -> usize;

    /// How many different patterns clients are subscribed to.
    fn patterns_count(&self) -> usize;
}

/// The client cache: who is told of changes of which keys.
pub trait TrackingPort {
    /// Has a client told of changes, as its options say.
    fn follow(&mut self, follower: &Arc<Follower>);

    /// Ends that; the client tracks nothing any more.
    fn unfollow(&mut self, store: &mut Handle, follower: &Arc<Follower>);

    /// Notes that a client is about to read keys.
    fn track(&mut self, store: &mut Handle, follower: &Arc<Follower>, keys: &[Key<'_>]);

    /// Tells all clients that track something that all keys of a database or of all are gone. To be
    /// called before they go.
    fn tell_flush(&mut self, store: &mut Handle);
}

/// What is kept: checkpoints and the log.
pub trait PersistencePort {
    /// FLUSHALL deleted everything. That is to be on disk soon, even where save points alone say when
    /// something is; nobody waits for it.
    fn flushed_all(&mut self) {}

    /// SAVE: keeps everything on disk, and comes back when that is done. To be called outside of the
    /// store.
    ///
    /// # Errors
    /// Why nothing was saved.
    fn save(&mut self) -> Result<(), SaveRefusal> {
        Err(SaveRefusal::Impossible)
    }

    /// BGSAVE and BGREWRITEAOF: has everything kept on disk by somebody else.
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

    /// Whether a control group decides who is the primary, and has it that writes may wait for a majority.
    fn has_quorum(&self) -> bool {
        false
    }

    /// How far the log is, as it concerns what the session's client wrote; `None` without a log.
    fn log_position(&mut self, session: &Session) -> Option<LogPosition> {
        let _ = session;
        None
    }

    /// Up to where the log is on disk.
    fn log_durable(&self) -> u64 {
        0
    }

    /// Asks that the log be on disk up to here soon. Waits for nothing.
    fn request_log_sync(&mut self, up_to: u64) {
        let _ = up_to;
    }

    /// DEBUG RELOAD: saves, forgets everything, and loads it again, each as the options say. To be called
    /// outside of the store.
    ///
    /// # Errors
    /// What the client is to read.
    fn reload(&mut self, options: ReloadOptions) -> Result<(), CommandError> {
        let _ = options;
        Err(CommandError::fixed("ERR nothing is kept here"))
    }

    /// Time of the last successful save, seconds since 1970 UTC (LASTSAVE).
    fn last_save_unix(&self) -> i64;
}

/// The process: what it tells of itself, its time, its memory and its end.
pub trait ProcessPort {
    /// INFO: the sections asked for (lower case; empty: the default ones).
    fn info(&mut self, store: &mut Handle, sections: &[String]) -> String;

    /// How long commands took since the last CONFIG RESETSTAT.
    fn latencies(&mut self) -> Latencies {
        Latencies::default()
    }

    /// CONFIG RESETSTAT.
    fn reset_statistics(&mut self);

    /// Writes a line into the server's log (redis.log).
    fn log_line(&mut self, level: LogLevel, text: &[u8]) {
        let _ = (level, text);
    }

    /// SHUTDOWN. On success the server stops, unless that was to be aborted; the command then sends no
    /// reply. To be called outside of the store where [it saves](PersistencePort::saves_at_shutdown): that
    /// takes its time.
    ///
    /// # Errors
    /// What the client is to read when it cannot.
    fn shutdown(&mut self, request: ShutdownRequest) -> Result<(), CommandError>;

    /// Microseconds since 1970 UTC (TIME).
    fn now_unix_us(&self) -> u64;

    /// DEBUG SLEEP: stops the calling worker for so long.
    fn sleep_seconds(&mut self, seconds: f64);

    /// Waits a moment for what others do. To be called outside of the store.
    fn rest(&mut self) {}

    /// DEBUG LEASE: has a primary of a control group believe that its lease lasts so long.
    fn extend_lease(&mut self, ms: u64) {
        let _ = ms;
    }

    /// DEBUG SET-ACTIVE-EXPIRE.
    fn set_active_expire(&mut self, on: bool);

    /// Says, now and again, that the script that runs takes longer than it should; `is_news` the first
    /// time. Those who wait for it are to be told
    /// ([`Running::busy`](crate::scripts::Running::busy)).
    fn script_is_late(&mut self, is_news: bool) {
        let _ = is_news;
    }

    /// What the server holds.
    fn memory(&mut self) -> ServerMemory;

    /// All that the allocator tells of itself (MEMORY MALLOC-STATS).
    fn allocator_statistics(&mut self) -> String {
        String::new()
    }

    /// MEMORY PURGE.
    fn purge_memory(&mut self, store: &mut Handle);
}

/// The server's replication, seen from a command. Without any it answers as a primary without replicas.
pub trait ReplicationPort {
    /// Which part the server has (ROLE).
    fn role(&mut self) -> RoleReport {
        RoleReport::default()
    }

    /// Whether it follows another server, or is about to.
    fn is_replica(&self) -> bool {
        false
    }

    /// REPLICAOF: follows another server from now on, or none. Waits for nothing: writes wait until it is so.
    ///
    /// # Errors
    /// What the client is to read; nothing has changed.
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

    /// FAILOVER: begins to hand the office over to a replica, or gives that up. Waits for nothing.
    ///
    /// # Errors
    /// What the client is to read.
    fn fail_over(&mut self, order: &FailoverOrder) -> Result<(), CommandError> {
        match order {
            FailoverOrder::Abort => Err(NO_FAILOVER),
            FailoverOrder::Begin { .. } => Err(CommandError::fixed(
                "ERR FAILOVER requires connected replicas.",
            )),
        }
    }

    /// Whether the session's connection may be given the stream now: everything that can be said before it is
    /// handed over.
    ///
    /// # Errors
    /// What the client is to read.
    fn admit_sync(&mut self, session: &Session, request: &SyncRequest) -> Result<(), CommandError> {
        let _ = (session, request);
        Err(CommandError::fixed("ERR not allowed without a server"))
    }

    /// REPLICATION VERIFY: begins to compare the data with that of replicas. Waits for nothing.
    ///
    /// # Errors
    /// What the client is to read.
    fn verify_replicas(&mut self) -> Result<(), CommandError> {
        Err(CommandError::fixed(
            "ERR there is no replica by the own link to compare with",
        ))
    }

    /// REPLICATION LEAVE, DRAIN and UNDRAIN: has a node of the control group do less, do all again, or leave. Waits until
    /// that is decided.
    ///
    /// # Errors
    /// What the client is to read.
    fn order_node(&mut self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        let _ = (node, order);
        Err(CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }

    /// REPLICATION LEAVE FOR-RESTART: has this node give away what it leads, and lead nothing until it is restarted. Waits
    /// until others lead that, or `shutdown-timeout` is over.
    ///
    /// # Errors
    /// What the client is to read.
    fn leave_for_restart(&mut self) -> Result<(), CommandError> {
        Err(CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }

    /// REPLICATION DIFFERENCES: the keys that the last comparison found to differ, at most a hundred: each as replica,
    /// database and key.
    fn differences(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The port of the own link, and this node's name, for a replica that can use it; `None` where there is none.
    fn own_link(&mut self) -> Option<(u16, String)> {
        None
    }

    /// How many replicas have the log up to a sequence.
    fn copies(&self, sequence: u64) -> Copies {
        let _ = sequence;
        Copies::default()
    }

    /// Has a request that waits for replicas answered when they have what it waits for. They are asked to say so
    /// soon.
    fn await_copies(&mut self, waiter: &Arc<Waiter>) {
        let _ = waiter;
    }
}

/// The cluster, seen from a command.
pub trait ClusterPort {
    /// The cluster as this node knows it; `None` outside of one.
    fn cluster(&mut self) -> Option<Arc<ClusterSeen>> {
        None
    }

    /// Changes it. Waits for disks and for others: to be called outside of the store.
    ///
    /// # Errors
    /// What the client is to read.
    fn order(&mut self, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        let _ = order;
        Err(DISABLED)
    }

    /// Moves slots. Waits for others: to be called outside of the store.
    ///
    /// # Errors
    /// What the client is to read.
    fn move_slots(&mut self, order: &MoveOrder) -> Result<MoveAnswer, CommandError> {
        let _ = order;
        Err(DISABLED)
    }

    /// The user that another node of the cluster was let in for, by the token that it was given; a token holds once.
    fn redeem(&mut self, token: &[u8]) -> Option<Arc<User>> {
        let _ = token;
        None
    }

    /// Whether a slot is on its way to another node.
    fn is_leaving(&mut self, slot: u16) -> bool {
        let _ = slot;
        false
    }

    /// All moves of slots that are known here.
    fn slot_moves(&mut self) -> Vec<SlotMove> {
        Vec::new()
    }

    /// MIGRATE: sends another server requests and gives its answers, one for each. Waits for it: to be called outside
    /// of the store.
    ///
    /// # Errors
    /// What the client is to read.
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

/// What another server is sent.
#[derive(Clone, Copy, Debug)]
pub struct AskServer<'a> {
    /// Its host.
    pub host: &'a [u8],
    /// Its port.
    pub port: &'a [u8],
    /// For how long each step may wait.
    pub timeout_ms: u64,
    /// Requests, encoded one behind the other.
    pub requests: &'a [u8],
    /// How many.
    pub count: usize,
}

/// What FAILOVER ABORT answers when there is none.
pub const NO_FAILOVER: CommandError = CommandError::fixed("ERR No failover in progress.");

/// How much a line of the server's log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Of use to who looks for a fault.
    Debug,
    /// Of use at times.
    Verbose,
    /// Of use to operators.
    Notice,
    /// Something is wrong.
    Warning,
}

/// How far the log is, in bytes since it was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// Behind what the client wrote last.
    pub wrote: u64,
    /// Up to here it is on disk.
    pub durable: u64,
    /// Whether anything of it ever is: otherwise it is in memory, for replicas.
    pub is_kept: bool,
}

impl LogPosition {
    /// Whether all that the client wrote is on disk.
    #[must_use]
    pub fn is_durable(self) -> bool {
        self.is_kept && self.wrote <= self.durable
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// How many subscribers it goes to; one that subscribed in several ways counts several times.
    pub receivers: usize,
    /// So much waits to be delivered to some of them that the publisher should wait.
    pub is_crowded: bool,
    /// Replicas of this node get it as an effect.
    pub is_for_replicas: bool,
}

/// What the allocator of the process says, with the memory that the store maps itself, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorMemory {
    /// Asked for by the program, rounded up to the sizes that the allocator has.
    pub allocated: u64,
    /// Pages that hold at least one allocation.
    pub active: u64,
    /// Pages that may be in memory, free ones included.
    pub resident: u64,
    /// Free pages that the system may take when it needs them.
    pub muzzy: u64,
}

/// What a server holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerMemory {
    /// What the process has in memory, shared pages of the program included.
    pub resident: u64,
    /// What is in use: what was taken at the start, records, index and clients.
    pub used: u64,
    /// The most that was ever in use.
    pub peak: u64,
    /// What was in use before the first client came.
    pub startup: u64,
    /// Clients with their buffers.
    pub clients: u64,
    /// The part of `used` that is neither keys nor values.
    pub overhead: u64,
    /// The operation log's memory, which is no part of `used`. What of it is in memory is part of `resident`.
    pub log: u64,
    /// What the allocator says.
    pub allocator: AllocatorMemory,
}

impl ServerMemory {
    /// What is in memory without the operation log's.
    #[must_use]
    pub fn resident_without_log(&self) -> u64 {
        self.resident.saturating_sub(self.log)
    }

    /// The part of `used` that keys and values take.
    #[must_use]
    pub fn dataset(&self) -> u64 {
        self.used.saturating_sub(self.overhead)
    }
}

/// How many clients CLIENT KILL hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KillCount {
    /// All of them, the caller included.
    pub clients: u64,
    /// Whether the caller is among them.
    pub caller: bool,
}

/// Which clients CLIENT LIST shows or CLIENT KILL hits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// All of these must hold, or must not where the second part says so.
    pub conditions: Vec<(ClientCondition, bool)>,
    /// Leaves the caller (this id) out.
    pub except: Option<u64>,
}

impl ClientFilter {
    /// A filter of one condition.
    #[must_use]
    pub fn of(condition: ClientCondition) -> Self {
        Self {
            conditions: vec![(condition, false)],
            except: None,
        }
    }

    /// Adds ids to those that it asks for already, or that it leaves out.
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

/// What may be asked about a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCondition {
    /// It has one of these ids.
    Id(Vec<u64>),
    /// Peer address.
    Address(String),
    /// Our address.
    LocalAddress(String),
    /// Peer address without its port.
    Ip(String),
    /// Kind: normal, master, replica or pubsub.
    Kind(ClientKind),
    /// Authenticated as this user.
    User(String),
    /// Connected at least this many seconds ago.
    AgeSeconds(u64),
    /// Said nothing for at least this many seconds.
    IdleSeconds(u64),
    /// Has all of these letters among its flags.
    Flags(String),
    /// Calls itself so.
    Name(String),
    /// Its library.
    LibraryName(String),
    /// Version of its library.
    LibraryVersion(String),
    /// Selected this database.
    Database(u16),
    /// Said that it has this capability; none is known.
    Capability(String),
}

/// Kind of a client, as `TYPE` filters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// An ordinary client.
    Normal,
    /// The primary we follow.
    Primary,
    /// A replica of ours.
    Replica,
    /// A subscriber.
    PubSub,
}

/// What a client had in mind that had everything saved. Both make a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveKind {
    /// To have everything saved (BGSAVE).
    Snapshot,
    /// To have the log become short (BGREWRITEAOF).
    Rewrite,
}

/// When something is to be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveTime {
    /// Now, or it is refused.
    Now,
    /// Now, or behind what is being saved.
    WhenFree,
    /// A little later: a transaction asks for it, all of which is to be saved.
    Later,
}

/// What DEBUG RELOAD does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadOptions {
    /// Everything is saved first; otherwise what was saved last is loaded (NOSAVE).
    pub saves: bool,
    /// What is there is forgotten before the load; otherwise it stays (NOFLUSH).
    pub flushes: bool,
    /// A key or a library that is there already is replaced; otherwise it is an error (MERGE).
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

/// When something will be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveStart {
    /// Now.
    Started,
    /// Behind what is being saved.
    Scheduled,
}

/// Why nothing will be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveRefusal {
    /// Something is being saved already.
    Busy(SaveKind),
    /// It cannot be; the log says why.
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
