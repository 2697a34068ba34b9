//! Compares the rules for commands on a replica with redis-server: the same commands and the same
//! errors.

use protocol::Value;
use testkit::client::Client;
use testkit::process::{ServerBuilder, temporary_directory};

use super::{error, field, iolite, must, redis, run, until};

/// A port without a listener.
const NOBODY: &str = "127.0.0.1 1";

/// Runs lines on both servers. Their replies must be the same.
fn same(both: &mut [Client; 2], lines: &[&str]) {
    for line in lines {
        let words = words(line);
        let [one, two] = both
            .each_mut()
            .map(|client| client.command(&words).unwrap());
        assert_eq!(one, two, "{line}");
    }
}

/// Splits a line into words, some of them in quotes.
fn words(line: &str) -> Vec<String> {
    let words = protocol::split_line(line.as_bytes()).unwrap();
    let text = |word: Vec<u8>| String::from_utf8(word).unwrap();
    words.into_iter().map(text).collect()
}

#[test]
fn a_replica_answers_as_redis_does() {
    let (iolite, redis) = (iolite(&[]), redis(&[]));
    let mut both = [iolite.client().unwrap(), redis.client().unwrap()];
    same(
        &mut both,
        &[
            "SET k v",
            "FAILOVER",
            "FAILOVER ABORT",
            "FAILOVER TO 127.0.0.1",
            "FAILOVER TIMEOUT 0",
            "FAILOVER TIMEOUT x",
            "FAILOVER TO 127.0.0.1 1 FORCE TIMEOUT 5",
            "REPLICAOF 127.0.0.1 x",
            "REPLICAOF 127.0.0.1 1",
            "REPLICAOF 127.0.0.1 1",
            "GET k",
            "SET k w",
            "DEL k",
            "FLUSHALL",
            "BLPOP l 0",
            "WAIT 0 0",
            "FAILOVER",
            "MULTI",
            "GET k",
            "SET k w",
            "EXEC",
            "MULTI",
            "GET k",
            "EXEC",
            "EVAL \"return redis.call('get', KEYS[1])\" 1 k",
            "EVAL \"#!lua\\nreturn 1\" 0",
            "EVAL \"#!lua flags=no-writes\\nreturn redis.call('get', KEYS[1])\" 1 k",
            "EVAL_RO \"return redis.call('get', KEYS[1])\" 1 k",
            "EVAL \"return redis.pcall('set', KEYS[1], 'w')\" 1 k",
            "FUNCTION FLUSH",
            "CONFIG SET replica-serve-stale-data no",
            "GET k",
            "SET k w",
            "PING",
            "EVAL \"return redis.pcall('get', KEYS[1])\" 1 k",
            "EVAL \"#!lua flags=no-writes\\nreturn 1\" 0",
            "EVAL \"#!lua flags=no-writes,allow-stale\\nreturn 1\" 0",
            "PSYNC ? -1",
            "CONFIG SET replica-serve-stale-data yes",
            "GET k",
            "REPLICAOF NO ONE",
            "SET k x",
            "GET k",
            "ROLE",
        ],
    );
}

#[test]
fn a_replica_says_whom_it_follows() {
    let server = iolite(&[]);
    let mut client = server.client().unwrap();
    must(&mut client, &format!("REPLICAOF {NOBODY}"));
    assert_eq!(field(&mut client, "role"), "slave");
    assert_eq!(field(&mut client, "master_host"), "127.0.0.1");
    assert_eq!(field(&mut client, "master_port"), "1");
    assert_eq!(field(&mut client, "master_link_status"), "down");
    let Value::Array(role) = must(&mut client, "ROLE") else {
        panic!("no ROLE");
    };
    assert_eq!(role.len(), 5);
    assert_eq!(role[0], Value::Bulk(b"slave".to_vec()));
    assert_eq!(role[4], Value::Integer(-1));
    let id = field(&mut client, "master_replid");
    must(&mut client, "REPLICAOF NO ONE");
    must(&mut client, "SET k v");
    assert_eq!(field(&mut client, "role"), "master");
    assert_eq!(
        field(&mut client, "master_replid2"),
        id,
        "it goes on under another name"
    );
    assert_ne!(field(&mut client, "second_repl_offset"), "-1");
    assert!(error(&mut client, "CONFIG SET replica-read-only no").contains("primary"));
}

/// A client does not wait for what can no longer happen.
#[test]
fn who_waits_hears_when_the_server_becomes_a_replica() {
    let server = iolite(&[]);
    let mut client = server.client().unwrap();
    let mut waits = server.client().unwrap();
    waits.send(&["BLPOP", "l", "0"]).unwrap();
    until("it waits", || field(&mut client, "blocked_clients") == "1");
    must(&mut client, &format!("REPLICAOF {NOBODY}"));
    let reply = waits.receive().unwrap();
    let Some(Value::Error(text)) = reply else {
        panic!("{reply:?}");
    };
    assert!(text.starts_with(b"UNBLOCKED "), "{text:?}");
}

/// Sentinel sends its commands as one transaction.
#[test]
fn a_transaction_changes_the_role_and_the_file() {
    let directory = temporary_directory("roles").unwrap();
    let file = directory.join("iolite.conf");
    std::fs::write(&file, "replicaof 127.0.0.1 1\n").unwrap();
    let server = ServerBuilder::iolite().file(&file).start().unwrap();
    let mut client = server.client().unwrap();
    assert_eq!(field(&mut client, "role"), "slave", "it starts as one");
    assert!(error(&mut client, "SET k v").starts_with("READONLY"));
    for line in ["MULTI", "SLAVEOF NO ONE", "CONFIG REWRITE"] {
        must(&mut client, line);
    }
    let done = must(&mut client, "EXEC");
    let ok = || Value::Simple(b"OK".to_vec());
    assert_eq!(done, Value::Array(vec![ok(), ok()]));
    must(&mut client, "SET k v");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("replicaof"), "{text}");
    for line in ["MULTI", "SLAVEOF 127.0.0.1 2", "CONFIG REWRITE", "SET k w"] {
        must(&mut client, line);
    }
    let Value::Array(done) = must(&mut client, "EXEC") else {
        panic!("no EXEC");
    };
    assert!(matches!(&done[2], Value::Error(text) if text.starts_with(b"READONLY")));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("replicaof 127.0.0.1 2"), "{text}");
    assert_eq!(run(&mut client, "GET k"), Value::Bulk(b"v".to_vec()));
}

/// An expired key is hidden on a replica and stays. A node that becomes the primary again removes
/// it.
#[test]
fn a_replica_hides_what_is_due_and_keeps_it() {
    let server = iolite(&[]);
    let mut client = server.client().unwrap();
    must(&mut client, "SET k v PX 300");
    must(&mut client, "SET other v");
    must(&mut client, &format!("REPLICAOF {NOBODY}"));
    until("it is due", || run(&mut client, "GET k") == Value::Null);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(must(&mut client, "DBSIZE"), Value::Integer(2));
    assert_eq!(field(&mut client, "expired_keys"), "0");
    must(&mut client, "REPLICAOF NO ONE");
    until("it is gone", || {
        run(&mut client, "DBSIZE") == Value::Integer(1)
    });
}
