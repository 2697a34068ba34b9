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
