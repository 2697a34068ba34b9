//! A server in one process for unit tests: an engine over the default store, a clock that stands
//! still, and a record of every effect.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use protocol::{Reply, ReplyBuffer, Resp, Value, decode_value, encode_request, split_line};
use store::{Cause, DatabaseId, EffectSink, Encoding, Handle, Key, Options, Store};
use structures::Object;

use crate::table;
use engine::cluster::{ClusterOrder, ClusterSeen, DISABLED, Ordered};
use engine::counters::Counts;
use engine::engine::{Engine, Next, Share};
use engine::error::CommandError;
use engine::port::ReplicationPort;
use engine::port::{
    AskServer, ClientFilter, ClientsPort, ClusterPort, ConfigPort, KillCount, LogPosition,
    PersistencePort, ProcessPort, PubSubPort, Published, ReloadOptions, SaveKind, SaveRefusal,
    SaveStart, SaveTime, ServerMemory, ShutdownRequest, TrackingPort, UsersPort,
};
use engine::push::Push;
use engine::replication::{Copies, SyncRequest};
use engine::session::{ClientRecord, Session};
use engine::shared::Shared;
use engine::topic::{Topic, TopicKind};
use engine::tracking::Follower;
use engine::waiting::Progress;

/// Time that the clock shows when a test begins.
pub const START_UNIX_MS: u64 = 1_700_000_000_000;

/// One effect, as the database and the parts of the canonical command.
pub type Stated = (DatabaseId, Vec<Vec<u8>>);

/// One record as it is compared after a replay: database, key, value, deadline, encoding, object,
/// etag.
pub type Dumped = (
    DatabaseId,
    Vec<u8>,
    Vec<u8>,
    Option<u64>,
    Encoding,
    Option<Object>,
    u64,
);

/// An engine with one client.
pub struct TestServer {
    engine: Engine,
    session: Session,
    /// The other clients, by id.
    others: BTreeMap<u64, Session>,
    clock: Arc<ManualClock>,
    effects: Arc<Mutex<Vec<Stated>>>,
    seen: usize,
    /// The shared state that its commands check.
    pub shared: Arc<Shared>,
    /// The server around its commands.
    pub port: TestPort,
}

impl Default for TestServer {
    fn default() -> Self {
        Self::new()
    }
}

impl TestServer {
    /// Returns a server with an empty store and a client that may do everything.
    pub fn new() -> Self {
        let store = Store::new(&Options::default()).expect("a small store fits");
        let effects = Arc::new(Mutex::new(Vec::new()));
        let mut handle = store.handle();
        handle.set_sink(Some(Box::new(Recorder(Arc::clone(&effects)))));
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let shared = Arc::new(Shared::default());
        let user = shared.access.users.default_user();
        let record = ClientRecord::new(1, "test:0".into(), "test:0".into(), 0, -1, START_UNIX_MS);
        record.set_user(Arc::clone(user));
        Self {
            engine: Engine::new(
                table(),
                handle,
                Arc::clone(&shared),
                Arc::<ManualClock>::clone(&clock),
                Prng::seeded(1),
            ),
            session: Session::new(Arc::new(record), true),
            others: BTreeMap::new(),
            port: TestPort {
                clock: Some(Arc::clone(&clock)),
                ..TestPort::default()
            },
            clock,
            effects,
            seen: 0,
            shared,
        }
    }

    /// Returns a new server whose engine is that of a worker, which never waits for a key.
    pub fn of_worker() -> Self {
        let server = Self::new();
        Self {
            engine: server.engine.of_worker(),
            ..server
        }
    }

    /// Returns a new server whose client may use DEBUG.
    pub fn with_debug() -> Self {
        let mut server = Self::new();
        server.port.allows_debug = true;
        server
    }

    /// Returns another handle to its store.
    pub fn another_handle(&mut self) -> Handle {
        self.engine.store().store().handle()
    }

    /// Returns a server that requires a password, with a client that is not authenticated.
    pub fn with_password(password: &'static str) -> Self {
        let mut server = Self::new();
        let users = &server.shared.access.users;
        users.set_default_password(Some(password.as_bytes()));
        server.session.authenticated = false;
        server
    }

    /// Returns a new server whose client speaks RESP3.
    pub fn resp3() -> Self {
        let mut server = Self::new();
        server.session.speak(Resp::V3);
        server
    }

    /// Runs one command, given as a line in the quoting of inline commands.
    pub fn run(&mut self, line: &str) -> Value {
        let args = split_line(line.as_bytes()).expect("quotes are balanced");
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        self.run_args(&args)
    }

    /// Whether a command gets no reply at all.
    pub fn is_silent(&mut self, line: &str) -> bool {
        let args = split_line(line.as_bytes()).expect("quotes are balanced");
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        self.output(&args).is_empty()
    }

    /// Runs one command, given as its arguments.
    pub fn run_args(&mut self, args: &[&[u8]]) -> Value {
        let output = self.output(args);
        let (value, length) = decode_value(&output)
            .expect("a valid reply")
            .expect("a complete reply");
        assert_eq!(length, output.len(), "exactly one reply");
        value
    }

    fn output(&mut self, args: &[&[u8]]) -> Vec<u8> {
        let mut input = Vec::new();
        encode_request(&mut input, args);
        let mut output = ReplyBuffer::new();
        let share = Share {
            requests_max: 1,
            reply_bytes_max: usize::MAX,
        };
        let outcome = self.engine.run(
            &mut self.session,
            &mut self.port,
            &input,
            &mut output,
            share,
        );
        assert_eq!(outcome.consumed, input.len(), "one whole request");
        output.to_vec()
    }

    /// Runs several inline commands that are received at once. Returns all that is sent back, and
    /// how to go on.
    pub fn pipeline(&mut self, lines: &[&str]) -> (Vec<u8>, Next) {
        let mut output = ReplyBuffer::new();
        let share = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        let input = lines.join("\r\n") + "\r\n";
        let outcome = self.engine.run(
            &mut self.session,
            &mut self.port,
            input.as_bytes(),
            &mut output,
            share,
        );
        (output.to_vec(), outcome.next)
    }

    /// Runs several commands that are received at once, in the form that client libraries send.
    /// Each run does as much as `share` allows; runs are repeated until all commands are done.
    /// Returns the output of each run.
    pub fn shares(&mut self, lines: &[&str], share: Share) -> Vec<Vec<u8>> {
        let mut input = Vec::new();
        for line in lines {
            let args = split_line(line.as_bytes()).expect("quotes are balanced");
            let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
            encode_request(&mut input, &args);
        }
        let (mut rest, mut sent) = (&input[..], Vec::new());
        while !rest.is_empty() {
            let mut output = ReplyBuffer::new();
            let (session, port) = (&mut self.session, &mut self.port);
            let outcome = self.engine.run(session, port, rest, &mut output, share);
            assert!(outcome.consumed > 0, "something is done each time");
            rest = &rest[outcome.consumed..];
            sent.push(output.to_vec());
        }
        sent
    }

    /// Returns how often a command was called and how often it failed.
    pub fn counts(&self, name: &str) -> (u64, u64) {
        let mut counts = Counts::default();
        self.engine.counters().add_to(&mut counts);
        let found = table().find(name.as_bytes()).expect("a command");
        let row = &counts.rows[usize::from(found.index)];
        (row.calls, row.failed)
    }

    /// Runs a command, and returns the text of its error reply.
    pub fn error(&mut self, line: &str) -> String {
        match self.run(line) {
            Value::Error(text) => String::from_utf8(text).expect("error texts are ASCII here"),
            other => panic!("{line}: expected an error, got {other:?}"),
        }
    }

    /// Runs a command, and returns the number of its integer reply.
    pub fn integer(&mut self, line: &str) -> i64 {
        match self.run(line) {
            Value::Integer(number) => number,
            other => panic!("{line}: expected a number, got {other:?}"),
        }
    }

    /// Runs a command, and returns the text of its string reply.
    pub fn text(&mut self, line: &str) -> String {
        match self.run(line) {
            Value::Bulk(text) => String::from_utf8(text).expect("text"),
            other => panic!("{line}: expected a string, got {other:?}"),
        }
    }

    /// Runs a command, and returns the texts of its array reply.
    pub fn texts(&mut self, line: &str) -> Vec<String> {
        let text = |value| match value {
            Value::Bulk(text) => String::from_utf8(text).expect("text"),
            other => panic!("{line}: expected a string, got {other:?}"),
        };
        match self.run(line) {
            Value::Array(items) => items.into_iter().map(text).collect(),
            other => panic!("{line}: expected an array, got {other:?}"),
        }
    }

    /// Switches to the client with this id, and connects it if it is not connected. The first
    /// client has id 1.
    pub fn client(&mut self, id: u64) -> &mut Self {
        let session = self.others.remove(&id).unwrap_or_else(|| {
            if self.session.client.id == id {
                return Session::new(Arc::clone(&self.session.client), true);
            }
            let address = format!("test:{id}");
            let record = ClientRecord::new(id, address.clone(), address, 0, -1, START_UNIX_MS);
            record.set_user(Arc::clone(self.shared.access.users.default_user()));
            Session::new(Arc::new(record), true)
        });
        if self.session.client.id != id {
            self.port.known.push(Arc::clone(&session.client));
            let before = std::mem::replace(&mut self.session, session);
            self.others.insert(before.client.id, before);
        }
        self
    }

    /// Runs one command that blocks, and leaves its client blocked.
    pub fn wait(&mut self, line: &str) {
        let (output, next) = self.pipeline(&[line]);
        assert_eq!(
            (output.as_slice(), next),
            (&b""[..], Next::Blocks),
            "{line}"
        );
    }

    /// Returns what was sent to blocked clients since the last call, by their ids, and ends their
    /// waits.
    pub fn answers(&mut self) -> Vec<(u64, String)> {
        let answers = std::mem::take(&mut self.port.answers);
        for (id, reply) in &answers {
            let own = (self.session.client.id == *id).then_some(&mut self.session);
            if let Some(session) = self.others.get_mut(id).or(own) {
                self.engine.end_answered_wait(session, reply);
            }
        }
        let shown = answers.into_iter().map(|(id, bytes)| {
            let (value, _) = decode_value(&bytes)
                .expect("a valid reply")
                .expect("a complete reply");
            (id, crate::transcript::show(&value))
        });
        shown.collect()
    }

    /// Ends the wait of the client because its timeout has passed. Returns what the client is sent,
    /// or `None` if it does not wait.
    pub fn gives_up_with(&mut self) -> Option<Vec<u8>> {
        self.engine.give_up(&mut self.session, &self.port)
    }

    /// Ends the wait of the client because its timeout has passed. Returns whether the client
    /// waited.
    pub fn gives_up(&mut self) -> bool {
        self.gives_up_with().is_some()
    }

    /// Calls `body` with the store, which this thread has entered.
    pub fn with_store(&mut self, body: impl FnOnce(&mut Handle)) {
        let now_unix_ms = self.clock.now_unix_ms();
        let store = self.engine.store();
        store.enter();
        store.begin(now_unix_ms);
        body(store);
        store.leave();
    }

    /// Returns the session of the current client.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Sets whether the client is the primary that the server follows.
    pub fn set_primary(&mut self, on: bool) {
        self.session.is_of_primary = on;
    }

    /// Does the work that a worker does between commands.
    pub fn tick(&mut self) {
        let now_unix_ms = self.clock.now_unix_ms();
        while self.engine.store().tick(now_unix_ms) {}
        self.engine.serve(&mut self.port);
    }

    /// Advances the clock.
    pub fn advance_ms(&self, by: u64) {
        self.clock.advance_ms(by);
    }

    /// Returns the effects stated since the last call, each as one line.
    pub fn effects(&mut self) -> Vec<String> {
        let all = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = all[self.seen..].iter().map(|(_, parts)| {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| part.escape_ascii().to_string())
                .collect();
            parts.join(" ")
        });
        let fresh = fresh.collect();
        self.seen = all.len();
        fresh
    }

    /// Returns everything that is stored, sorted.
    pub fn dump(&mut self) -> Vec<Dumped> {
        let now = self.clock.now_unix_ms();
        let store = self.engine.store();
        store.begin(now);
        let databases = store.store().databases();
        let mut dumped = Vec::new();
        for database in 0..databases {
            dump_database(store, database, &mut dumped);
        }
        dumped.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        dumped
    }

    /// Replays all effects into an empty server, in which no time passes, and asserts that both
    /// hold the same.
    pub fn assert_effects_replay(&mut self) {
        let effects = self
            .effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut replica = Self::new();
        replica.clock.set_unix_ms(0);
        for (database, parts) in effects {
            let args: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            replica.session.select(database);
            if let Value::Error(text) = replica.run_args(&args) {
                panic!(
                    "{}: {}",
                    args.join(&b' ').escape_ascii(),
                    text.escape_ascii()
                );
            }
        }
        replica.clock.set_unix_ms(self.clock.now_unix_ms());
        assert_eq!(replica.dump(), self.dump());
    }
}

fn dump_database(store: &mut Handle, database: DatabaseId, dumped: &mut Vec<Dumped>) {
    let mut cursor = 0;
    loop {
        cursor = store.scan(database, cursor, 1000, |record| {
            dumped.push((
                database,
                record.key().to_vec(),
                record.to_vec(),
                record.deadline_unix_ms(),
                record.encoding(),
                record.object().as_deref().cloned(),
                record.etag(),
            ));
        });
        if cursor == 0 {
            return;
        }
    }
}

struct Recorder(Arc<Mutex<Vec<Stated>>>);

impl EffectSink for Recorder {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((database, parts));
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], _cause: Cause) {
        self.command(database, &[b"DEL", key]);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        self.command(database, &[b"HDEL", key, member]);
    }

    fn etag(&mut self, database: DatabaseId, key: &[u8], etag: u64) {
        self.command(database, &[b"SETETAG", key, etag.to_string().as_bytes()]);
    }
}

/// The server around the commands, which records what commands ask of it.
#[derive(Default)]
pub struct TestPort {
    /// `enable-debug-command`.
    pub allows_debug: bool,
    /// Result of CLIENT KILL.
    pub kills: KillCount,
    /// The clock to advance when a worker sleeps.
    pub clock: Option<Arc<ManualClock>>,
    /// Requests that had an effect on the server, as text.
    pub asked: Vec<String>,
    /// What was sent to blocked clients, by their ids.
    pub answers: Vec<(u64, Vec<u8>)>,
    /// The clients other than the first.
    pub known: Vec<Arc<ClientRecord>>,
    /// Messages pushed to clients.
    pub pushed: Vec<Push>,
    /// Result of a request to save, if it does not begin at once.
    pub saves: Option<Result<SaveStart, SaveRefusal>>,
    /// Position of the log, or `None` if there is no log.
    pub log: Option<LogPosition>,
    /// Whether connections may receive the replication stream.
    pub admits_sync: bool,
    /// Whether the server is a replica.
    pub is_replica: bool,
    /// Number of replicas that have everything.
    pub copies: Copies,
    /// The cluster, or `None` if there is none.
    pub cluster: Option<Arc<ClusterSeen>>,
    /// The cluster orders it was given.
    pub orders: Vec<ClusterOrder>,
    /// The answers of another server, or `None` if there is none.
    pub server_answers: Option<Vec<Result<(), Vec<u8>>>>,
    /// The bytes sent to the other server.
    pub server_requests: Vec<u8>,
}

impl TestPort {
    /// Returns all pushed messages, as RESP2.
    pub fn pushed_text(&mut self) -> String {
        let mut buffer = ReplyBuffer::new();
        for push in self.pushed.drain(..) {
            push.write(&mut Reply::new(&mut buffer, Resp::V2));
        }
        String::from_utf8(buffer.to_vec()).expect("text")
    }
}

impl Progress for TestPort {
    fn durable(&self) -> u64 {
        self.log_durable()
    }

    fn copies(&self, _sequence: u64) -> Copies {
        self.copies
    }
}

impl ClusterPort for TestPort {
    fn cluster(&mut self) -> Option<Arc<ClusterSeen>> {
        self.cluster.clone()
    }

    fn order(&mut self, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        if self.cluster.is_none() {
            return Err(DISABLED);
        }
        self.orders.push(order.clone());
        Ok(Ordered::Done)
    }

    fn ask_server(
        &mut self,
        ask: &AskServer<'_>,
    ) -> Result<Vec<Result<(), Vec<u8>>>, CommandError> {
        self.server_requests = ask.requests.to_vec();
        let answers = self.server_answers.clone();
        answers.ok_or(CommandError::fixed(
            "IOERR error or timeout connecting to the client",
        ))
    }
}

impl engine::port::TierPort for TestPort {}

impl ReplicationPort for TestPort {
    fn is_replica(&self) -> bool {
        self.is_replica
    }

    fn admit_sync(
        &mut self,
        _session: &Session,
        _request: &SyncRequest,
    ) -> Result<(), CommandError> {
        let refused = CommandError::fixed("ERR not allowed without a server");
        self.admits_sync.then_some(()).ok_or(refused)
    }

    fn copies(&self, _sequence: u64) -> Copies {
        self.copies
    }
}

impl ConfigPort for TestPort {
    fn config_get(&mut self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8])) {
        for pattern in patterns {
            emit(pattern, b"value");
        }
    }

    fn config_set(&mut self, pairs: &[(&[u8], &[u8])], may_wait: bool) -> Result<(), CommandError> {
        if !may_wait && pairs.contains(&(b"appendonly", b"yes")) {
            return Err(CommandError::Aside);
        }
        self.asked.push(format!("set {} directives", pairs.len()));
        Ok(())
    }

    fn config_rewrite(&mut self, _all: bool) -> Result<(), CommandError> {
        Err(CommandError::fixed("ERR no configuration"))
    }

    fn debug_allowed(&self, _session: &Session) -> bool {
        self.allows_debug
    }
}

impl ClientsPort for TestPort {
    fn clients(&mut self, filter: &ClientFilter) -> String {
        format!("{filter:?}")
    }

    fn client(&mut self, id: u64) -> Option<Arc<ClientRecord>> {
        let mut known = self.known.iter();
        known.find(|client| client.id == id).cloned()
    }

    fn answer(&mut self, client: &ClientRecord, reply: Vec<u8>) {
        self.answers.push((client.id, reply));
    }

    fn kill_clients(&mut self, _session: &Session, filter: &ClientFilter) -> KillCount {
        self.asked.push(format!("kill {filter:?}"));
        self.kills
    }

    fn push(&mut self, to: &ClientRecord, push: &Push) {
        self.asked
            .push(format!("push {} bytes to {}", push.len(), to.id));
        self.pushed.push(push.clone());
    }

    fn pause_clients(&mut self, until_unix_ms: u64, writes_only: bool) {
        let which = if writes_only { "writes" } else { "all" };
        let for_ms = until_unix_ms - START_UNIX_MS;
        self.asked.push(format!("pause {which} for {for_ms} ms"));
    }

    fn unpause_clients(&mut self) {
        self.asked.push("unpause".to_owned());
    }
}

impl UsersPort for TestPort {}

impl PubSubPort for TestPort {
    fn publish(&mut self, _kind: TopicKind, channel: &[u8], message: &[u8]) -> Published {
        let (channel, message) = (channel.escape_ascii(), message.escape_ascii());
        self.asked.push(format!("publish {channel} {message}"));
        Published::default()
    }

    fn subscribe(
        &mut self,
        _session: &mut Session,
        kind: TopicKind,
        name: &[u8],
        _reply: &mut Reply<'_>,
    ) -> Topic {
        let name = Arc::from(name);
        Topic { kind, name }
    }

    fn unsubscribe(&mut self, _session: &mut Session, _topic: &Topic, _reply: &mut Reply<'_>) {}

    fn catch_up(&mut self, _session: &mut Session, _reply: &mut Reply<'_>) {}

    fn channels(&self, _kind: TopicKind) -> Vec<Arc<[u8]>> {
        Vec::new()
    }

    fn subscribers(&self, _kind: TopicKind, _channel: &[u8]) -> usize {
        0
    }

    fn patterns_count(&self) -> usize {
        0
    }
}

impl TrackingPort for TestPort {
    fn follow(&mut self, _follower: &Arc<Follower>) {}

    fn unfollow(&mut self, _store: &mut Handle, _follower: &Arc<Follower>) {}

    fn track(&mut self, _store: &mut Handle, _follower: &Arc<Follower>, keys: &[Key<'_>]) {
        self.asked.push(format!("track {} keys", keys.len()));
    }

    fn tell_flush(&mut self, _store: &mut Handle) {}
}

impl PersistencePort for TestPort {
    fn flushed_all(&mut self) {
        self.asked.push("flushed".to_owned());
    }

    fn save(&mut self) -> Result<(), SaveRefusal> {
        self.asked.push("save".to_owned());
        self.saves.map_or(Ok(()), |saves| saves.map(|_| ()))
    }

    fn begin_save(&mut self, kind: SaveKind, time: SaveTime) -> Result<SaveStart, SaveRefusal> {
        self.asked.push(format!("{kind:?} {time:?}"));
        self.saves.unwrap_or(Ok(SaveStart::Started))
    }

    fn saves_at_shutdown(&self, request: ShutdownRequest) -> bool {
        request.save == Some(true)
    }

    fn log_position(&mut self, _session: &Session) -> Option<LogPosition> {
        self.log
    }

    fn log_durable(&self) -> u64 {
        self.log.map_or(0, |log| log.durable)
    }

    fn request_log_sync(&mut self, up_to: u64) {
        self.asked.push(format!("sync up to {up_to}"));
    }

    fn reload(&mut self, options: ReloadOptions) -> Result<(), CommandError> {
        let ReloadOptions {
            saves,
            flushes,
            merges,
        } = options;
        self.asked.push(format!(
            "reload, saves: {saves}, flushes: {flushes}, merges: {merges}"
        ));
        Ok(())
    }

    fn last_save_unix(&self) -> i64 {
        7
    }
}

impl ProcessPort for TestPort {
    fn info(&mut self, _store: &mut Handle, sections: &[String]) -> String {
        sections.join(",")
    }

    fn reset_statistics(&mut self) {
        self.asked.push("reset statistics".to_owned());
    }

    fn shutdown(&mut self, request: ShutdownRequest) -> Result<(), CommandError> {
        self.asked.push(format!("{request:?}"));
        Err(CommandError::fixed("ERR nothing to shut down"))
    }

    fn now_unix_us(&self) -> u64 {
        START_UNIX_MS * 1000 + 5
    }

    fn sleep_seconds(&mut self, seconds: f64) {
        self.asked.push(format!("sleep {seconds} s"));
        if let Some(clock) = &self.clock {
            let slept = std::time::Duration::from_secs_f64(seconds);
            clock.advance_ms(u64::try_from(slept.as_millis()).unwrap_or(u64::MAX));
        }
    }

    fn set_active_expire(&mut self, on: bool) {
        self.asked.push(format!("active expire: {on}"));
    }

    fn memory(&mut self) -> ServerMemory {
        ServerMemory {
            resident: 2_000_000,
            used: 1_000_000,
            peak: 4_000_000,
            ..ServerMemory::default()
        }
    }

    fn purge_memory(&mut self, _store: &mut Handle) {
        self.asked.push("purge".to_owned());
    }
}
