//! Tests that the effects of writes, applied to an empty store, produce the same store.

use std::sync::{Arc, Mutex, PoisonError};

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use engine::{ClientRecord, Engine, Next, Session, Share, Shared as EngineShared};
use persistence::replay::{Origin, ReplayFault, Replayer, replay_in_parallel};
use protocol::{ReplyBuffer, encode_request};
use server::config::{Origin as ConfigOrigin, Settings, SharedConfig};
use server::node::Node;
use server::port::Port;
use store::{Cause, DatabaseId, EffectSink, Encoding, Handle, Options, Store};
use testkit::differential::REQUESTS_A_ROUND;

use crate::dump::{Record, dump_with};

const START_UNIX_MS: u64 = 1_700_000_000_000;
const ROUNDS: u64 = 60;

/// An effect: the database and the request.
type Stated = (DatabaseId, Vec<u8>);

/// A record in the form in which it is compared.
type Dumped = (Record, Encoding);

/// A sink that records effects.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Stated>>>);

impl EffectSink for Recorder {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let mut request = Vec::new();
        encode_request(&mut request, parts);
        let mut stated = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stated.push((database, request));
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

    fn group_begin(&mut self) {}

    fn group_end(&mut self) {}
}

/// Runs random requests. Returns their effects, and the resulting data.
fn play(seed: u64, round: u64) -> (Vec<Stated>, Vec<Dumped>) {
    let store = Store::new(&Options::default()).unwrap();
    let clock = Arc::new(ManualClock::at_unix_ms(START_UNIX_MS));
    let config = Arc::new(SharedConfig::new(
        Settings::default(),
        ConfigOrigin::default(),
    ));
    let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
    let node = Node::new(
        testkit::table(),
        Arc::clone(&store),
        config,
        Arc::clone(&shared),
    );
    let (mut handle, recorder) = (store.handle(), Recorder::default());
    handle.set_sink(Some(Box::new(recorder.clone())));
    let engine_shared = Arc::clone(&node.core.shared);
    let mut engine = Engine::new(
        testkit::table(),
        handle,
        engine_shared,
        shared,
        Prng::seeded(seed),
    );
    let mut session = session();
    for request in testkit::differential::requests_of_round(seed, round) {
        let parts: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let mut input = Vec::new();
        encode_request(&mut input, &parts);
        let share = Share {
            requests_max: 1,
            reply_bytes_max: usize::MAX,
        };
        let mut output = ReplyBuffer::new();
        let mut port = Port::new(&node, true);
        let outcome = engine.run(&mut session, &mut port, &input, &mut output, share);
        if outcome.next != Next::Read {
            session = self::session();
        }
        clock.advance_ms(50);
    }
    let now_unix_ms = clock.now_unix_ms();
    while engine.store().tick(now_unix_ms) {}
    let dumped = dump(engine.store(), now_unix_ms);
    let stated = recorder.0.lock().unwrap_or_else(PoisonError::into_inner);
    (stated.clone(), dumped)
}

fn session() -> Session {
    let client = ClientRecord::new(1, String::new(), String::new(), 0, -1, START_UNIX_MS);
    Session::new(Arc::new(client), true)
}

/// Returns everything that is stored.
fn dump(handle: &mut Handle, now_unix_ms: u64) -> Vec<Dumped> {
    dump_with(handle, now_unix_ms, |record| record.encoding())
}

/// Applies effects on this number of lanes. Returns the store's data.
fn replayed(stated: &[Stated], lanes: usize) -> Vec<Dumped> {
    let store = Store::new(&Options::default()).unwrap();
    let like = EngineShared::default();
    let done = replay_in_parallel(
        testkit::table(),
        &store,
        &like,
        Origin::Own,
        lanes,
        |feed| {
            for (position, (database, request)) in (0..).zip(stated) {
                feed.command(position, *database, request)?;
            }
            Ok::<_, ReplayFault>(())
        },
    );
    let ((), done) = done.unwrap();
    assert_eq!((done.commands, done.failed), (stated.len() as u64, 0));
    let now_unix_ms = START_UNIX_MS + 50 * REQUESTS_A_ROUND;
    let mut handle = store.handle();
    while handle.tick(now_unix_ms) {}
    dump(&mut handle, now_unix_ms)
}

#[test]
fn effects_of_random_requests_make_the_same_store() {
    let (mut stated_count, mut records_count) = (0, 0);
    for round in 0..ROUNDS {
        let (stated, expected) = play(7, round);
        for lanes in [1, 4] {
            assert_eq!(replayed(&stated, lanes), expected, "round {round}, {lanes}");
        }
        stated_count += stated.len();
        records_count += expected.len();
    }
    assert!(
        stated_count > 4000 && records_count > 100,
        "{stated_count} {records_count}"
    );
}

#[test]
fn effects_about_many_keys_make_the_same_store_on_several_lanes() {
    let mut random = Prng::seeded(3);
    let mut stated = Vec::new();
    for number in 0..60_000_u64 {
        let mut below = |most| random.below(most);
        let (database, key) = (below(3), format!("key{}", below(2000)));
        let line = match below(5000) {
            0 => format!("SWAPDB {} {}", below(3), below(3)),
            1 => format!("RENAME {key} key{}", below(2000)),
            2 => format!("DEL {key} key{}", below(2000)),
            3 => format!("MOVE {key} {}", below(3)),
            4..2500 => format!("SET {key} {number}"),
            2500..4000 => format!("APPEND {key} {number}"),
            _ => format!("DEL {key}"),
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut request = Vec::new();
        encode_request(&mut request, &words);
        stated.push((DatabaseId::try_from(database).unwrap(), request));
    }
    // A rename of a key that does not exist fails.
    let stated: Vec<Stated> = applicable(stated);
    assert!(stated.len() > 59_000);
    let expected = replayed(&stated, 1);
    assert!(expected.len() > 1000);
    for lanes in [2, 3, 8] {
        assert_eq!(replayed(&stated, lanes), expected, "{lanes}");
    }
}

/// Returns the effects that do not fail when they are applied one after the other.
fn applicable(stated: Vec<Stated>) -> Vec<Stated> {
    let store = Store::new(&Options::default()).unwrap();
    let mut replayer = Replayer::new(
        testkit::table(),
        &store,
        &EngineShared::default(),
        Origin::Foreign,
    );
    let mut failed = 0;
    stated
        .into_iter()
        .filter(|(database, request)| {
            replayer.command(0, *database, request).unwrap();
            let before = failed;
            failed = replayer.flush().unwrap().failed;
            failed == before
        })
        .collect()
}
