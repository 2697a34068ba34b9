//! An engine with one client, a manual clock, and a record of every effect.

use std::sync::{Arc, Mutex, PoisonError};

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use engine::{ClientRecord, Engine, Next, NoServer, Session, Share, Shared};
use protocol::{ReplyBuffer, Resp, Value, decode_value, encode_request};
use store::{
    Cause, DatabaseId, EffectSink, Encoding, Event, EventClass, EventSink, Handle, Options, Store,
};
use structures::Object;

/// The clock's time at the start of a test.
pub(crate) const START_UNIX_MS: u64 = 1_700_000_000_000;

/// An effect: the database and the parts of the canonical command.
pub(crate) type Stated = (DatabaseId, Vec<Vec<u8>>);

/// A record in the form in which it is compared: database, key, value, deadline, encoding, object,
/// etag.
pub(crate) type Dumped = (
    DatabaseId,
    Vec<u8>,
    Vec<u8>,
    Option<u64>,
    Encoding,
    Option<Object>,
    u64,
);

/// An engine with one client.
pub(crate) struct TestServer {
    engine: Engine,
    session: Session,
    clock: Arc<ManualClock>,
    effects: Arc<Mutex<Vec<Stated>>>,
    events: Arc<Mutex<Vec<String>>>,
    groups: Arc<Mutex<Groups>>,
}

/// Groups of effects that were stated as one step, by first and end. A nested group counts once, as
/// part of the outer one.
#[derive(Default)]
struct Groups {
    depth: usize,
    start: usize,
    ended: Vec<(usize, usize)>,
}

impl TestServer {
    /// Returns a server with an empty store.
    pub(crate) fn new() -> Self {
        let store = Store::new(&Options::default()).unwrap();
        let effects = Arc::new(Mutex::new(Vec::new()));
        let mut handle = store.handle();
        let groups = Arc::default();
        handle.set_sink(Some(Box::new(Recorder {
            effects: Arc::clone(&effects),
            groups: Arc::clone(&groups),
        })));
        let events = Arc::new(Mutex::new(Vec::new()));
        handle.set_event_sink(Some(Box::new(EventRecorder(Arc::clone(&events)))));
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let shared_clock = Arc::<ManualClock>::clone(&clock);
        let record = ClientRecord::new(1, "it:0".into(), "it:0".into(), 0, -1, START_UNIX_MS);
        Self {
            engine: Engine::new(
                testkit::table(),
                handle,
                Arc::new(Shared::default()),
                shared_clock,
                Prng::seeded(1),
            ),
            session: Session::new(Arc::new(record), true),
            clock,
            effects,
            events,
            groups,
        }
    }

    /// Returns the same with the present time.
    pub(crate) fn now() -> Self {
        let server = Self::new();
        server
            .clock
            .set_unix_ms(base::clock::SystemClock::new().now_unix_ms());
        server
    }

    /// Returns the same with a RESP3 client.
    pub(crate) fn resp3() -> Self {
        let mut server = Self::new();
        server.session.speak(Resp::V3);
        server
    }

    /// Runs one request. If its client has to wait, it is left waiting, a new client takes over,
    /// and the result is null.
    pub(crate) fn run<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Value {
        let args: Vec<&[u8]> = args.iter().map(AsRef::as_ref).collect();
        let mut input = Vec::new();
        encode_request(&mut input, &args);
        let mut output = ReplyBuffer::new();
        let share = Share {
            requests_max: 1,
            reply_bytes_max: usize::MAX,
        };
        let outcome = self.engine.run(
            &mut self.session,
            &mut NoServer { allows_debug: true },
            &input,
            &mut output,
            share,
        );
        assert_eq!(outcome.consumed, input.len(), "one whole request");
        if outcome.next == Next::Blocks {
            assert!(output.is_empty(), "a reply to who waits");
            self.session = self.another_session();
            return Value::NullArray;
        }
        let (value, length) = decode_value(&output.to_vec()).unwrap().unwrap();
        let written = output.len_with_attachments();
        assert_eq!(length, written, "exactly one reply");
        value
    }

    fn another_session(&self) -> Session {
        let address = || String::from("it:0");
        let id = self.session.client.id + 1;
        let record = ClientRecord::new(id, address(), address(), 0, -1, START_UNIX_MS);
        let mut session = Session::new(Arc::new(record), true);
        session.select(self.session.database);
        session
    }

    /// Runs one request written as words.
    pub(crate) fn line(&mut self, line: &str) -> Value {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.run(&words)
    }

    /// Selects the database.
    pub(crate) fn select(&mut self, database: DatabaseId) {
        self.session.select(database);
    }

    /// Advances the clock.
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    /// Returns all effects so far.
    pub(crate) fn effects(&self) -> Vec<Stated> {
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Records events of every class from now on.
    pub(crate) fn want_events(&mut self) {
        let all = CLASSES
            .into_iter()
            .fold(EventClass::NONE, |all, (class, _)| all.and(class));
        self.engine.store().store().set_wanted_events(all);
    }

    /// Returns the events since the last call: the flag of the class, the name, the key, and the
    /// database if it is not the first.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *events)
    }

    /// Runs housekeeping.
    pub(crate) fn tick(&mut self) {
        let now_unix_ms = self.clock.now_unix_ms();
        while self.engine.store().tick(now_unix_ms) {}
    }

    /// Returns the groups of effects: the index of the first effect, and the index after the last.
    pub(crate) fn groups(&self) -> Vec<(usize, usize)> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.ended.clone()
    }

    /// Returns a new server after a replay of all effects of this one. No time passes during the
    /// replay; afterwards both have the same time.
    pub(crate) fn replica(&self) -> Self {
        let mut replica = Self::new();
        replica.clock.set_unix_ms(0);
        for (database, parts) in self.effects() {
            replica.select(database);
            if let Value::Error(text) = replica.run(&parts) {
                let command = parts.join(&b' ');
                panic!("{}: {}", command.escape_ascii(), text.escape_ascii());
            }
        }
        replica.clock.set_unix_ms(self.clock.now_unix_ms());
        replica
    }

    /// Returns everything in the store, in order.
    pub(crate) fn dump(&mut self) -> Vec<Dumped> {
        let now_unix_ms = self.clock.now_unix_ms();
        let store = self.engine.store();
        store.begin(now_unix_ms);
        let mut dumped = Vec::new();
        for database in 0..store.store().databases() {
            dump_database(store, database, &mut dumped);
        }
        dumped.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        dumped
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

struct Recorder {
    effects: Arc<Mutex<Vec<Stated>>>,
    groups: Arc<Mutex<Groups>>,
}

impl Recorder {
    fn effects_count(&self) -> usize {
        let effects = self.effects.lock();
        effects.unwrap_or_else(PoisonError::into_inner).len()
    }

    fn groups(&self) -> std::sync::MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EffectSink for Recorder {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((database, parts));
    }

    fn group_begin(&mut self) {
        let start = self.effects_count();
        let mut groups = self.groups();
        if groups.depth == 0 {
            groups.start = start;
        }
        groups.depth += 1;
    }

    fn group_end(&mut self) {
        let end = self.effects_count();
        let mut groups = self.groups();
        groups.depth -= 1;
        if groups.depth == 0 {
            let start = groups.start;
            groups.ended.push((start, end));
        }
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

/// Every class with its flag in `notify-keyspace-events`.
const CLASSES: [(EventClass, char); 12] = [
    (EventClass::GENERIC, 'g'),
    (EventClass::STRING, '$'),
    (EventClass::LIST, 'l'),
    (EventClass::SET, 's'),
    (EventClass::HASH, 'h'),
    (EventClass::SORTED_SET, 'z'),
    (EventClass::EXPIRED, 'x'),
    (EventClass::EVICTED, 'e'),
    (EventClass::STREAM, 't'),
    (EventClass::KEY_MISS, 'm'),
    (EventClass::MODULE, 'd'),
    (EventClass::NEW, 'n'),
];

struct EventRecorder(Arc<Mutex<Vec<String>>>);

impl EventSink for EventRecorder {
    fn event(&mut self, event: &Event<'_>) {
        let class = CLASSES.iter().find(|(class, _)| *class == event.class);
        let flag = class.map_or('?', |(_, flag)| *flag);
        let mut line = format!("{flag} {} {}", event.name, event.key.escape_ascii());
        if event.database != 0 {
            line.push_str(&format!("@{}", event.database));
        }
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(line);
    }
}
