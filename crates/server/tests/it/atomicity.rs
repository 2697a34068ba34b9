//! Tests that commands over several keys are one step for every other client, with all workers
//! running.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};

/// Number of rounds per thread: enough for many thousands of overlaps, few enough for a slow
/// machine.
const ROUNDS: usize = 3_000;
const KEYS: [&str; 5] = ["atomic:a", "atomic:b", "atomic:c", "atomic:d", "atomic:e"];

fn start() -> Server {
    ServerBuilder::iolite()
        .args(&["--io-threads", "4"])
        .start()
        .unwrap()
}

fn bulks(value: &Value) -> Vec<Option<String>> {
    let Value::Array(items) = value else {
        panic!("not an array: {value:?}")
    };
    let text = |item: &Value| match item {
        Value::Bulk(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
        _ => None,
    };
    items.iter().map(text).collect()
}

/// Runs writers and checkers against one server until the writers are done.
fn race(
    server: &Server,
    writers: usize,
    write: impl Fn(&mut Client, usize, usize) + Sync,
    check: impl Fn(&mut Client) + Sync,
) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let running: Vec<_> = (0..writers)
            .map(|writer| {
                let write = &write;
                let mut client = server.client().unwrap();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        write(&mut client, writer, round);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let (check, done) = (&check, &done);
            let mut client = server.client().unwrap();
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    check(&mut client);
                }
            });
        }
        let outcome: Vec<_> = running
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        done.store(true, Ordering::Relaxed);
        for ended in outcome {
            ended.unwrap();
        }
    });
}

#[test]
fn mget_never_sees_half_an_mset() {
    let server = start();
    race(
        &server,
        3,
        |client, writer, round| {
            let value = format!("{writer}:{round}");
            let mut request = vec!["MSET"];
            // Each writer names the keys in another order.
            for step in 0..KEYS.len() {
                request.extend([KEYS[(step + writer) % KEYS.len()], &value]);
            }
            client.command(&request).unwrap();
        },
        |client| {
            let mut request = vec!["MGET"];
            request.extend(KEYS);
            let seen = bulks(&client.command(&request).unwrap());
            assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
        },
    );
}

#[test]
fn del_and_exists_see_all_or_nothing() {
    let server = start();
    race(
        &server,
        2,
        |client, writer, _| {
            let mut request = if writer == 0 {
                vec!["DEL"]
            } else {
                vec!["MSETNX"]
            };
            for key in KEYS {
                request.push(key);
                if writer == 1 {
                    request.push("1");
                }
            }
            client.command(&request).unwrap();
        },
        |client| {
            let mut request = vec!["EXISTS"];
            request.extend(KEYS);
            let seen = client.command(&request).unwrap();
            assert!(matches!(seen, Value::Integer(0 | 5)), "torn: {seen:?}");
        },
    );
}

#[test]
fn a_value_that_is_renamed_around_is_never_lost_or_doubled() {
    let server = start();
    let mut client = server.client().unwrap();
    client.command(&["SET", KEYS[0], "treasure"]).unwrap();
    race(
        &server,
        3,
        |client, writer, round| {
            let from = KEYS[(round + writer) % KEYS.len()];
            let to = KEYS[(round * 2 + writer + 1) % KEYS.len()];
            // Most of these fail because there is no key to rename.
            client.command(&["RENAME", from, to]).unwrap();
        },
        |client| {
            let mut request = vec!["EXISTS"];
            request.extend(KEYS);
            assert_eq!(client.command(&request).unwrap(), Value::Integer(1));
        },
    );
}

#[test]
fn flushall_leaves_nothing_behind_for_a_concurrent_mget() {
    let server = start();
    race(
        &server,
        2,
        |client, writer, round| {
            if writer == 0 {
                let value = round.to_string();
                let mut request = vec!["MSET"];
                for key in KEYS {
                    request.extend([key, &value]);
                }
                client.command(&request).unwrap();
            } else if round % 10 == 0 {
                client.command(&["FLUSHALL"]).unwrap();
            } else {
                client.command(&["SWAPDB", "0", "1"]).unwrap();
            }
        },
        |client| {
            let mut request = vec!["MGET"];
            request.extend(KEYS);
            let seen = bulks(&client.command(&request).unwrap());
            assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
        },
    );
}

#[test]
fn increments_from_many_clients_are_all_counted() {
    let server = start();
    race(
        &server,
        4,
        |client, _, _| {
            client.command(&["INCR", "atomic:counter"]).unwrap();
        },
        |client| {
            client.command(&["PING"]).unwrap();
        },
    );
    let mut client = server.client().unwrap();
    let total = client.command(&["GET", "atomic:counter"]).unwrap();
    assert_eq!(total, Value::Bulk((4 * ROUNDS).to_string().into_bytes()));
}
