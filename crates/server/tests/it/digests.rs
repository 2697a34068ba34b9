//! Tests of DEBUG DIGEST while clients write: the digest is of one moment, and delays no client.

use std::sync::atomic::{AtomicBool, Ordering};

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};

/// Number of keys that no client changes: a walk over them takes many steps.
const STILL: usize = 10_000;
/// Number of keys that change together.
const MOVING: usize = 40;
/// Number of different values of these keys.
const VALUES: usize = 5;
const DIGESTS: usize = 20;

fn line(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    client.command(&words).unwrap()
}

fn start() -> (Server, Client) {
    let args = ["--threads", "2", "--enable-debug-command", "yes"];
    let args = [&args[..], &["--checkpoint-format", "rdb"]].concat();
    let server = ServerBuilder::iolite().args(&args).start().unwrap();
    let client = server.client().unwrap();
    (server, client)
}

/// Returns the command that sets all moving keys to this value at once.
fn move_to(value: usize) -> Vec<String> {
    let mut words = vec!["MSET".to_owned()];
    for key in 0..MOVING {
        words.extend([format!("moving:{key}"), format!("value:{value}")]);
    }
    words
}

#[test]
fn all_keys_are_seen_as_they_are_at_one_moment() {
    let (server, mut client) = start();
    line(&mut client, &format!("DEBUG POPULATE {STILL}"));
    assert_eq!(
        line(&mut client, "DBSIZE"),
        Value::Integer(i64::try_from(STILL).unwrap())
    );
    let states: Vec<Value> = (0..VALUES)
        .map(|value| {
            client.command(&move_to(value)).unwrap();
            line(&mut client, "DEBUG DIGEST")
        })
        .collect();
    assert_ne!(states[0], states[1]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = server.client().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                for value in 0..VALUES {
                    writer.command(&move_to(value)).unwrap();
                }
            }
        });
        scope.spawn(|| {
            // Saves take snapshots as well. Snapshots wait for each other.
            let mut saver = server.client().unwrap();
            while !is_over.load(Ordering::Relaxed) {
                line(&mut saver, "BGSAVE SCHEDULE");
                let info = match line(&mut saver, "INFO persistence") {
                    Value::Bulk(info) => String::from_utf8(info).unwrap(),
                    other => panic!("{other:?}"),
                };
                assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
            }
        });
        for _ in 0..DIGESTS {
            let digest = line(&mut client, "DEBUG DIGEST");
            assert!(states.contains(&digest), "{digest:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn data_that_was_saved_and_loaded_has_the_same_sum() {
    let (_server, mut client) = start();
    for write in [
        "DEBUG POPULATE 1000",
        "RPUSH list a b c 1",
        "ZADD zset 0.1 a 1e300 b",
        "HSET hash f v",
        "XADD stream 1-1 f v",
        "EXPIRE list 1000",
        "SELECT 7",
        "SADD set 1 2 x",
        "SET long x",
        "SETRANGE long 100000 y",
    ] {
        line(&mut client, write);
    }
    let before = line(&mut client, "DEBUG DIGEST");
    assert_eq!(
        line(&mut client, "DEBUG RELOAD"),
        Value::Simple("OK".into())
    );
    assert_eq!(line(&mut client, "DEBUG DIGEST"), before);
}
