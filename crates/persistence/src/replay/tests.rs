//! Commands applied to an empty store, in one batch or several.

use std::path::Path;

use durability::disk::Disk;
use durability::log::{Log, Options, Reader};
use durability::simulated::SimulatedDisk;
use protocol::encode_request;
use store::Policy;

use super::*;

fn store() -> Arc<Store> {
    Store::new(&store::Options::default()).unwrap()
}

fn replayer(store: &Arc<Store>, origin: Origin) -> Replayer {
    Replayer::new(testkit::table(), store, &Shared::default(), origin)
}

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

fn replay(store: &Arc<Store>, origin: Origin, lines: &[&str]) -> Result<Replayed, ReplayFault> {
    let mut replayer = replayer(store, origin);
    for (position, line) in (100..).zip(lines) {
        replayer.parts(position, 0, &words(line))?;
    }
    replayer.finish()
}

fn value(store: &Arc<Store>, database: DatabaseId, key: &str, now_unix_ms: u64) -> Option<Vec<u8>> {
    let mut handle = store.handle();
    handle.begin(now_unix_ms);
    let key = handle.key(database, key.as_bytes());
    handle.read(&key, |record| record.map(store::Record::to_vec))
}

#[test]
fn commands_are_applied_in_their_databases() {
    let store = store();
    let mut replayer = replayer(&store, Origin::Own);
    replayer.parts(1, 0, &words("SET a 1")).unwrap();
    replayer.parts(2, 3, &words("SET a 2")).unwrap();
    replayer.parts(3, 0, &words("APPEND a 5")).unwrap();
    assert_eq!(replayer.finish().unwrap().commands, 3);
    assert_eq!(value(&store, 0, "a", 0), Some(b"15".to_vec()));
    assert_eq!(value(&store, 3, "a", 0), Some(b"2".to_vec()));
}

/// One behind the other, in any form, and more of them than fit into a batch.
#[test]
fn parts_and_requests_are_applied_in_their_order() {
    let store = store();
    let mut replayer = replayer(&store, Origin::Own);
    let (mut expected, mut position) = (Vec::new(), 0);
    for round in [1, 7, BATCH_MAX, 3 * BATCH_MAX + 1] {
        for _ in 0..round {
            replayer
                .parts(position, 0, &[b"APPEND", b"a", b"p"])
                .unwrap();
            position += 1;
        }
        for _ in 0..round {
            let mut request = Vec::new();
            encode_request(&mut request, &[b"APPEND", b"a", b"r"]);
            replayer.command(position, 0, &request).unwrap();
            position += 1;
        }
        expected.extend([vec![b'p'; round], vec![b'r'; round]].concat());
    }
    assert_eq!(replayer.finish().unwrap().commands, position);
    assert_eq!(value(&store, 0, "a", 0), Some(expected));
    let fault =
        Replayer::new(testkit::table(), &store, &Shared::default(), Origin::Own).parts(5, 0, &[]);
    assert_eq!(fault, Err(ReplayFault::Malformed { position: 5 }));
}

#[test]
fn nothing_expires_while_it_is_loaded_and_everything_does_later() {
    let store = store();
    let lines = [
        "SET a 1 PXAT 1000",
        "SET b 1 PXAT 1000",
        "PERSIST a",
        "SET c 1 PXAT 4102444800000",
    ];
    replay(&store, Origin::Own, &lines).unwrap();
    assert_eq!(value(&store, 0, "a", 2000), Some(b"1".to_vec()));
    assert_eq!(value(&store, 0, "b", 2000), None);
    let mut handle = store.handle();
    while handle.tick(1_700_000_000_000) {}
    assert_eq!(handle.statistics().expired, 1);
    while handle.tick(4_102_444_800_000) {}
    assert_eq!(handle.statistics().expired, 2);
}

#[test]
fn the_memory_limit_does_not_hold() {
    let store = store();
    store.set_memory_limit(1, Policy::NoEviction, 5);
    let lines = ["SET a 1", "RPUSH l 1 2 3"];
    assert_eq!(replay(&store, Origin::Own, &lines).unwrap().commands, 2);
    assert!(value(&store, 0, "a", 0).is_some());
}

#[test]
fn a_command_of_ours_that_fails_is_a_fault_where_it_stands() {
    let lines = ["SET a 1", "GET a", "LPUSH a x", "SET b 1"];
    let failure = Failure {
        position: 102,
        command: "LPUSH a x".into(),
        reason: "WRONGTYPE Operation against a key holding the wrong kind of value".into(),
    };
    let fault = replay(&store(), Origin::Own, &lines);
    assert_eq!(fault, Err(ReplayFault::Refused(failure.clone())));
    let store = store();
    let replayed = replay(&store, Origin::Foreign, &lines).unwrap();
    let expected = Replayed {
        commands: 4,
        failed: 1,
        failures: vec![failure],
    };
    assert_eq!(replayed, expected);
    assert!(value(&store, 0, "b", 0).is_some());
}

#[test]
fn what_is_no_request_or_about_no_database_is_a_fault() {
    let store = store();
    for wrong in [&b"*2\r\n$3\r\nGET\r\n"[..], b"*1\r\n$x\r\n", b"", b"*0\r\n"] {
        let mut replayer = replayer(&store, Origin::Own);
        replayer.command(7, 0, wrong).unwrap();
        let fault = replayer.flush().map(|_| ());
        assert_eq!(
            fault,
            Err(ReplayFault::Malformed { position: 7 }),
            "{wrong:?}"
        );
    }
    let mut replayer = replayer(&store, Origin::Own);
    let fault = replayer.parts(9, 16, &words("SET a 1"));
    let expected = ReplayFault::NoDatabase {
        position: 9,
        database: 16,
        databases: 16,
    };
    assert_eq!(fault, Err(expected));
}

#[test]
fn long_commands_and_many_arguments_are_no_matter() {
    let store = store();
    let mut replayer = replayer(&store, Origin::Own);
    let long = vec![b'x'; 3 * BATCH_BYTES];
    replayer.parts(0, 0, &[b"SET", b"a", b"short"]).unwrap();
    let mut request = Vec::new();
    encode_request(&mut request, &[b"SET", b"a", &long]);
    replayer.command(1, 0, &request).unwrap();
    replayer.parts(2, 0, &[b"APPEND", b"a", b"y"]).unwrap();
    // More than a client may send.
    let mut parts: Vec<&[u8]> = vec![b"none"; 1_100_000];
    parts[0] = b"DEL";
    replayer.parts(3, 0, &parts).unwrap();
    assert_eq!(replayer.finish().unwrap().commands, 4);
    let expected = [&long[..], b"y"].concat();
    assert_eq!(value(&store, 0, "a", 0), Some(expected));
}

/// With lanes and without.
#[test]
fn effects_of_a_log_are_applied_as_it_has_them() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1));
    let clock = Arc::new(ManualClock::at_unix_ms(1));
    let path = Path::new("log");
    let log = Log::open(Arc::clone(&disk), clock, path, 0, Options::default()).unwrap();
    let mut appender = log.appender();
    let long = vec![b'x'; 2 * BATCH_BYTES];
    for number in 0..2_000 {
        let key = format!("key{}", number % 700);
        appender.group_begin();
        appender.command(number % 3, &[b"APPEND", key.as_bytes(), b"12"]);
        if number % 100 == 0 {
            appender.command(1, &[b"MSET", b"one", b"1", b"other", &long]);
        }
        appender.group_end();
    }
    log.close().unwrap();
    for threads in [1, 4] {
        let store = store();
        let fed = replay_in_parallel(
            testkit::table(),
            &store,
            &Shared::default(),
            Origin::Own,
            threads,
            |feed| {
                let mut reader = Reader::open(Arc::clone(&disk), path, 0).unwrap();
                while let Some(frame) = reader.next_frame().unwrap() {
                    for effect in frame.effects() {
                        feed.effect(frame.sequence, effect.database, effect.parts)?;
                    }
                }
                Ok::<_, ReplayFault>(())
            },
        );
        assert_eq!(fed.unwrap().1.commands, 2_020);
        assert_eq!(value(&store, 1, "other", 0), Some(long.clone()));
        for number in 0..700 {
            let key = format!("key{number}");
            let times = (0..2_000).filter(|it| it % 700 == number).count();
            let all = (0..3).filter_map(|database| value(&store, database, &key, 0));
            assert_eq!(all.map(|value| value.len()).sum::<usize>(), 2 * times);
        }
    }
}

#[test]
fn a_fault_of_a_lane_is_told_to_who_feeds() {
    let mut requests = Vec::new();
    for number in 0..20_000 {
        let key = format!("key{number}");
        let mut request = Vec::new();
        let name: &[u8] = if number == 700 { b"INCR" } else { b"SADD" };
        let parts: &[&[u8]] = &[name, key.as_bytes(), b"member"];
        encode_request(&mut request, parts);
        requests.push(request);
    }
    let fed = replay_in_parallel(
        testkit::table(),
        &store(),
        &Shared::default(),
        Origin::Own,
        4,
        |feed| {
            for (position, request) in (0..).zip(&requests) {
                feed.command(position, 0, request)?;
            }
            Ok(())
        },
    );
    let Err(ReplayFault::Refused(failure)) = fed else {
        panic!("{fed:?}");
    };
    assert_eq!(
        (failure.position, &*failure.command),
        (700, "INCR key700 member")
    );
    let fed = replay_in_parallel(
        testkit::table(),
        &store(),
        &Shared::default(),
        Origin::Own,
        4,
        |feed| {
            feed.command(1, 0, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1")?;
            feed.command(2, 0, b"*1\r\n$6\r\nDBSIZE\r\n")
        },
    );
    assert_eq!(fed, Err(ReplayFault::Malformed { position: 1 }));
}
