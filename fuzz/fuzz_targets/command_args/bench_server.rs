//! An engine with one client, a clock that stands still, and a record of every effect.

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use engine::{
    ClientRecord, Engine, Fate, Next, NoServer, ReplyMode, Session, Shared, Share, Table,
};
use protocol::{ReplyBuffer, Resp, Value, decode_value, encode_request};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use store::{Cause, DatabaseId, EffectSink, Encoding, Handle, Options, Store};
use structures::Object;

const START_UNIX_MS: u64 = 1_700_000_000_000;
/// Maximum length of a value. Larger values are refused, so that a run stays fast and small.
const VALUE_BYTES_MAX: u64 = 1 << 16;

/// All commands.
pub(crate) static TABLE: LazyLock<&Table> = LazyLock::new(commands::table);

type Effects = Arc<Mutex<Vec<(DatabaseId, Vec<Vec<u8>>)>>>;

/// A record in the form that is compared: database, key, value, deadline, encoding, object, etag.
type Dumped = (
    DatabaseId,
    Vec<u8>,
    Vec<u8>,
    Option<u64>,
    Encoding,
    Option<Object>,
    u64,
);

/// An engine with one client.
pub(crate) struct Server {
    engine: Engine,
    session: Session,
    clock: Arc<ManualClock>,
    effects: Effects,
}

impl Server {
    pub(crate) fn new() -> Self {
        let store = Store::new(&Options::default()).expect("a small store fits");
        Self::over(store.handle())
    }

    /// Returns a server over the store of `handle`.
    pub(crate) fn over(mut handle: Handle) -> Self {
        let effects = Effects::default();
        handle.set_sink(Some(Box::new(Recorder(Arc::clone(&effects)))));
        let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
        let shared = Arc::new(Shared::default());
        shared
            .settings
            .bulk_bytes_max
            .store(VALUE_BYTES_MAX, Ordering::Relaxed);
        let shared_clock = Arc::<ManualClock>::clone(&clock);
        Self {
            engine: Engine::new(*TABLE, handle, shared, shared_clock, Prng::seeded(1)),
            session: new_session(),
            clock,
            effects,
        }
    }

    /// Advances the clock.
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.clock.advance_ms(ms % 1_000_000_000_000);
    }

    /// Runs one request and checks its reply.
    pub(crate) fn run(&mut self, arguments: &[Vec<u8>]) -> Option<Value> {
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let mut input = Vec::new();
        encode_request(&mut input, &arguments);
        let mut output = ReplyBuffer::new();
        let share = Share {
            requests_max: 1,
            reply_bytes_max: usize::MAX,
        };
        let answers = self.session.reply_mode == ReplyMode::On;
        let outcome = self.engine.run(
            &mut self.session,
            &mut NoServer { allows_debug: true },
            &input,
            &mut output,
            share,
        );
        if outcome.next == Next::Blocks {
            self.engine.give_up(&mut self.session, &NoServer::default());
            return None;
        }
        let answers = answers && self.session.reply_mode == ReplyMode::On;
        let name = arguments.first().copied().unwrap_or_default();
        let reply = answers.then(|| first_reply(output.as_slice(), self.session.resp, name));
        if outcome.next == Next::Close || self.session.fate == Fate::Close {
            self.session = new_session();
        }
        reply
    }

    /// Replays all effects into an empty server, in which no time passes, and asserts that both
    /// hold the same.
    pub(crate) fn check_replay(&mut self) {
        let effects = self
            .effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut replica = Self::new();
        replica.clock.set_unix_ms(0);
        for (database, parts) in effects {
            replica.session.select(database);
            if let Some(Value::Error(text)) = replica.run(&parts) {
                let command = parts.join(&b' ');
                panic!("{}: {}", command.escape_ascii(), text.escape_ascii());
            }
        }
        replica.clock.set_unix_ms(self.clock.now_unix_ms());
        assert_eq!(replica.dump(), self.dump());
    }

    fn dump(&mut self) -> Vec<Dumped> {
        let now = self.clock.now_unix_ms();
        let store = self.engine.store();
        store.begin(now);
        let mut dumped = Vec::new();
        for database in 0..store.store().databases() {
            dump_database(store, database, &mut dumped);
        }
        dumped.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        dumped
    }
}

fn new_session() -> Session {
    let record = ClientRecord::new(1, "fuzz:0".into(), "fuzz:0".into(), 0, -1, START_UNIX_MS);
    Session::new(Arc::new(record), true)
}

/// Returns the first reply in `output`. It is the only one, except for commands that reply once for
/// each channel, and for EXEC.
fn first_reply(output: &[u8], version: Resp, name: &[u8]) -> Value {
    let name = name.to_ascii_lowercase();
    let has_several = name.ends_with(b"subscribe") || name == b"exec";
    let mut first = None;
    let mut rest = output;
    while first.is_none() || !rest.is_empty() {
        let (value, length) = decode_value(rest)
            .expect("the reply is valid")
            .expect("the reply is complete");
        assert!(
            first.is_none() || has_several,
            "exactly one reply: {}",
            output.escape_ascii()
        );
        if version == Resp::V2 {
            let is_old = b"+-:$*".contains(&rest[0]);
            assert!(is_old, "a type of version 2: {}", rest.escape_ascii());
        }
        rest = &rest[length..];
        first.get_or_insert(value);
    }
    first.expect("a reply")
}

fn dump_database(store: &mut Handle, database: DatabaseId, dumped: &mut Vec<Dumped>) {
    let mut cursor = 0;
    loop {
        cursor = store.scan(database, cursor, 1000, |record| {
            let (key, value) = (record.key().to_vec(), record.to_vec());
            dumped.push((
                database,
                key,
                value,
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

struct Recorder(Effects);

impl EffectSink for Recorder {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        let mut effects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        effects.push((database, parts));
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], _cause: Cause) {
        self.command(database, &[b"DEL", key]);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        self.command(database, &[b"HDEL", key, member]);
    }
}
