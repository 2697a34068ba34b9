//! Tests that PUBLISH at a primary reaches subscribers at its replicas, in order with the writes
//! around it.

use protocol::Value;
use testkit::client::Client;
use testkit::process::Server;

use super::{field, follow, has_functions, iolite, must, redis, settle};

/// Returns the kind of a message, its channel and its text.
fn pushed(listener: &mut Client) -> [String; 3] {
    let Some(Value::Array(parts)) = listener.receive().unwrap() else {
        panic!("no push");
    };
    let text = |part: &Value| match part {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    let last = parts.len() - 1;
    [&parts[0], &parts[last - 1], &parts[last]].map(text)
}

/// Publishes messages of all kinds at the primary, and expects them at the replica.
fn messages_are_heard(primary: &Server, replica: &Server) {
    let [mut one, mut two] = [primary, replica].map(|server| server.client().unwrap());
    follow(&mut two, primary);
    let mut listeners = ["SUBSCRIBE news", "PSUBSCRIBE n*", "SSUBSCRIBE news"].map(|line| {
        let mut listener = replica.client().unwrap();
        // Before 7.0 there were no shard channels either.
        if has_functions() || line != "SSUBSCRIBE news" {
            must(&mut listener, line);
        }
        listener
    });
    // No client is subscribed here.
    assert_eq!(must(&mut one, "PUBLISH news 1"), Value::Integer(0));
    for line in [
        "MULTI",
        "SET k 2",
        "PUBLISH news 2",
        "SET k 3",
        "EXEC",
        "SELECT 4",
    ] {
        must(&mut one, line);
    }
    let script = "redis.call('PUBLISH', KEYS[1], '3') redis.call('SET', KEYS[1], 'x')";
    one.command(&["EVAL", script, "1", "news"]).unwrap();
    must(&mut one, "SELECT 0");
    if has_functions() {
        assert_eq!(must(&mut one, "SPUBLISH news 4"), Value::Integer(0));
    }
    must(&mut one, "PUBLISH news 5");
    let [listener, of_pattern, of_shard] = &mut listeners;
    for number in ["1", "2", "3", "5"] {
        assert_eq!(pushed(listener), ["message", "news", number]);
        assert_eq!(pushed(of_pattern), ["pmessage", "news", number]);
    }
    if has_functions() {
        assert_eq!(pushed(of_shard), ["smessage", "news", "4"]);
    }
    assert_eq!(must(&mut two, "GET k"), Value::Bulk(b"3".to_vec()));
    // A message published at the replica is received only there.
    assert_eq!(must(&mut two, "PUBLISH news 6"), Value::Integer(2));
    assert_eq!(pushed(listener), ["message", "news", "6"]);
    settle(&mut one, &mut two);
}

#[test]
fn by_the_stream_they_are_heard_at_a_replica_of_this_kind() {
    for args in [["--durability", "none"], ["--durability", "os"]] {
        let (primary, replica) = (iolite(&args), iolite(&["--durability", "none"]));
        messages_are_heard(&primary, &replica);
        let mut client = primary.client().unwrap();
        let info = String::from_utf8_lossy(&match must(&mut client, "INFO replication") {
            Value::Bulk(text) => text,
            other => panic!("{other:?}"),
        })
        .into_owned();
        assert!(info.contains("link=psync"), "{info}");
    }
}

#[test]
fn they_are_heard_at_a_redis_that_follows() {
    messages_are_heard(&iolite(&["--durability", "none"]), &redis(&[]));
}

#[test]
fn they_count_as_no_change() {
    let (primary, replica) = (iolite(&["--durability", "none"]), redis(&[]));
    let [mut one, mut two] = [&primary, &replica].map(|server| server.client().unwrap());
    follow(&mut two, &primary);
    must(&mut one, "SET k 1");
    let changes = field(&mut one, "rdb_changes_since_last_save");
    must(&mut one, "PUBLISH news 1");
    assert_eq!(field(&mut one, "rdb_changes_since_last_save"), changes);
}
