//! Scripts that run for long, with one worker: others are served, and there is an end to it. Functions
//! that outlive the server.

use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};

const FOREVER: &str = "while true do end";
const WRITES_FOREVER: &str = "redis.call('SET', KEYS[1], 1) while true do end";
const WAIT_MAX: Duration = Duration::from_secs(60);

fn start() -> Server {
    let args = ["--io-threads", "1", "--busy-reply-threshold", "50"];
    ServerBuilder::iolite().args(&args).start().unwrap()
}

fn error(reply: Value) -> String {
    match reply {
        Value::Error(text) => String::from_utf8(text).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Asks until the answer begins so: a script has to run for a while first.
fn ask_until(client: &mut Client, request: &[&str], beginning: &str) {
    let patience = Patience::of(WAIT_MAX);
    loop {
        let reply = client.command(request).unwrap();
        let text = match &reply {
            Value::Simple(text) | Value::Error(text) => String::from_utf8_lossy(text),
            _ => "".into(),
        };
        if text.starts_with(beginning) {
            return;
        }
        assert!(patience.lasts(), "{request:?}: {reply:?}");
    }
}

#[test]
fn a_script_without_end_stops_nobody_and_is_killed() {
    let server = start();
    let (mut caller, mut other) = (server.client().unwrap(), server.client().unwrap());
    caller.send(&["EVAL", FOREVER, "0"]).unwrap();
    for _ in 0..100 {
        assert_eq!(
            other.command(&["SET", "k", "v"]).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    }
    ask_until(&mut other, &["SCRIPT", "KILL"], "OK");
    let told = error(caller.receive().unwrap().unwrap());
    assert!(
        told.contains("Script killed by user with SCRIPT KILL"),
        "{told}"
    );
    assert_eq!(
        error(other.command(&["SCRIPT", "KILL"]).unwrap())
            .split(' ')
            .next(),
        Some("NOTBUSY")
    );
}

#[test]
fn who_wants_the_keys_of_a_script_that_is_late_is_told_and_no_other() {
    let server = start();
    let (mut caller, mut other) = (server.client().unwrap(), server.client().unwrap());
    caller.send(&["EVAL", WRITES_FOREVER, "1", "held"]).unwrap();
    ask_until(&mut other, &["SCRIPT", "KILL"], "UNKILLABLE");
    ask_until(&mut other, &["GET", "held"], "BUSY");
    assert_eq!(
        other.command(&["SET", "free", "v"]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    ask_until(&mut other, &["EVAL", WRITES_FOREVER, "1", "free"], "BUSY");
    other.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(!matches!(other.receive(), Ok(Some(Value::Error(_)))));
}

/// What begins a script that changes a key and never ends.
fn hold(server: &Server, key: &str) -> Client {
    let mut caller = server.client().unwrap();
    caller.send(&["EVAL", WRITES_FOREVER, "1", key]).unwrap();
    let mut other = server.client().unwrap();
    ask_until(&mut other, &["SCRIPT", "KILL"], "UNKILLABLE");
    ask_until(&mut other, &["GET", key], "BUSY");
    caller
}

#[test]
fn who_needs_all_keys_beside_a_script_that_is_late_is_told_and_waits_for_nothing() {
    let server = start();
    let _caller = hold(&server, "held");
    let mut other = server.client().unwrap();
    let finds_out = "return redis.call('GET', 'he' .. 'ld')";
    let reaches_all = "return redis.call('FLUSHALL')";
    for is_tracked in [false, true] {
        if is_tracked {
            ask_until(&mut other, &["HELLO", "3"], "");
            ask_until(&mut other, &["CLIENT", "TRACKING", "ON"], "OK");
        }
        for request in [
            &["EVAL", finds_out, "0"][..],
            &["EVAL", reaches_all, "0"],
            &["EVAL", WRITES_FOREVER, "1", "held"],
            &["FLUSHALL"],
            &["SWAPDB", "0", "1"],
            &["KEYS", "*"],
            &["FUNCTION", "FLUSH"],
            &["PING"],
        ] {
            let told = error(other.command(request).unwrap());
            assert!(told.starts_with("BUSY "), "{request:?}: {told}");
        }
        for request in [
            &["MULTI"][..],
            &["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", "free"],
        ] {
            other.command(request).unwrap();
        }
        let told = error(other.command(&["EXEC"]).unwrap());
        let wanted = "EXECABORT Transaction discarded because of: BUSY ";
        assert!(told.starts_with(wanted), "{told}");
        let ok = Value::Simple(b"OK".to_vec());
        assert_eq!(other.command(&["SET", "free", "v"]).unwrap(), ok);
        let source = "return redis.call('GET', KEYS[1])";
        let got = other.command(&["EVAL", source, "1", "free"]).unwrap();
        assert_eq!(got, Value::Bulk(b"v".to_vec()));
        assert!(!matches!(
            other.command(&["INFO"]).unwrap(),
            Value::Error(_)
        ));
    }
    other.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(!matches!(other.receive(), Ok(Some(Value::Error(_)))));
}
