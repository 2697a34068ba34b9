//! Tests of long scripts with one worker: other clients are served, and the script can be ended.
//! Also tests of functions that survive the server.

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

/// Repeats a request until the reply begins with `beginning`: a script has to run for a while
/// first.
fn ask_until(client: &mut Client, request: &[&str], beginning: &str) {
    ask_until_one_of(client, request, &[beginning]);
}

/// Repeats a request until the reply begins with one of these, and returns which.
fn ask_until_one_of<'a>(client: &mut Client, request: &[&str], beginnings: &[&'a str]) -> &'a str {
    let patience = Patience::of(WAIT_MAX);
    loop {
        let reply = client.command(request).unwrap();
        let text = match &reply {
            Value::Simple(text) | Value::Error(text) => String::from_utf8_lossy(text),
            _ => "".into(),
        };
        if let Some(found) = beginnings.iter().find(|&&one| text.starts_with(one)) {
            return found;
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
fn where_it_is_asked_for_everybody_is_told_of_a_script_that_is_late() {
    let server = start();
    let (mut caller, mut other) = (server.client().unwrap(), server.client().unwrap());
    let asks = other.command(&["CONFIG", "SET", "busy-refuses-all", "yes"]);
    assert_eq!(asks.unwrap(), Value::Simple(b"OK".to_vec()));
    let mut late = server.client().unwrap();
    late.command(&["MULTI"]).unwrap();
    late.command(&["GET", "other"]).unwrap();
    caller.send(&["EVAL", FOREVER, "0"]).unwrap();
    ask_until(&mut other, &["GET", "other"], "BUSY");
    let told = error(late.command(&["EXEC"]).unwrap());
    let aborted = "EXECABORT Transaction discarded because of: BUSY";
    assert!(told.starts_with(aborted), "{told}");
    other.command(&["MULTI"]).unwrap();
    let told = error(other.command(&["GET", "other"]).unwrap());
    assert!(
        told.starts_with("BUSY Redis is busy running a script."),
        "{told}"
    );
    ask_until(&mut late, &["SCRIPT", "KILL"], "OK");
    error(caller.receive().unwrap().unwrap());
    let told = error(other.command(&["EXEC"]).unwrap());
    assert!(told.starts_with("EXECABORT"), "{told}");
    assert_eq!(other.command(&["GET", "other"]).unwrap(), Value::Null);
}

/// Returns a key that is not held, and whose value is now `v`. One in many keys shares the bucket
/// of the held key.
fn served_beside(client: &mut Client) -> String {
    let mut names = (0..8).map(|number| format!("free:{number}"));
    let served = names.find(|name| {
        let reply = client.command(&["SET", name, "v"]).unwrap();
        reply == Value::Simple(b"OK".to_vec())
    });
    served.unwrap()
}

#[test]
fn who_wants_the_keys_of_a_script_that_is_late_is_told_and_no_other() {
    let server = start();
    let _caller = hold(&server, "held");
    let mut other = server.client().unwrap();
    let free = served_beside(&mut other);
    ask_until(&mut other, &["EVAL", WRITES_FOREVER, "1", &free], "BUSY");
    other.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(!matches!(other.receive(), Ok(Some(Value::Error(_)))));
}

/// Starts a script that changes a key and never ends. If SCRIPT KILL comes before the script has
/// changed the key, it kills the script, and another is started.
fn hold(server: &Server, key: &str) -> Client {
    let (mut caller, mut other) = (server.client().unwrap(), server.client().unwrap());
    let run = ["EVAL", WRITES_FOREVER, "1", key];
    caller.send(&run).unwrap();
    let kill = ["SCRIPT", "KILL"];
    while ask_until_one_of(&mut other, &kill, &["UNKILLABLE", "OK"]) == "OK" {
        error(caller.receive().unwrap().unwrap());
        caller.send(&run).unwrap();
    }
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
        let free = served_beside(&mut other);
        for request in [
            &["MULTI"][..],
            &["EVAL", "return redis.call('SET', KEYS[1], 1)", "1", &free],
        ] {
            other.command(request).unwrap();
        }
        let told = error(other.command(&["EXEC"]).unwrap());
        let wanted = "EXECABORT Transaction discarded because of: BUSY ";
        assert!(told.starts_with(wanted), "{told}");
        let source = "return redis.call('GET', KEYS[1])";
        let got = other.command(&["EVAL", source, "1", &free]).unwrap();
        assert_eq!(got, Value::Bulk(b"v".to_vec()));
        assert!(!matches!(
            other.command(&["INFO"]).unwrap(),
            Value::Error(_)
        ));
    }
    other.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    assert!(!matches!(other.receive(), Ok(Some(Value::Error(_)))));
}

#[test]
fn what_a_script_runs_is_monitored_behind_it() {
    let server = start();
    let (mut client, mut monitor) = (server.client().unwrap(), server.client().unwrap());
    monitor.command(&["MONITOR"]).unwrap();
    let mut next = |words: &str| {
        let Some(Value::Simple(line)) = monitor.receive().unwrap() else {
            panic!("a line with {words}");
        };
        let line = String::from_utf8(line).unwrap();
        assert!(line.ends_with(words), "{line} instead of {words}");
    };
    // Access to keys that it does not declare restarts the script.
    let source = "redis.call('GET', 'a') redis.call('SELECT', 1) redis.call('SET', KEYS[1], 'v')";
    client.command(&["EVAL", source, "1", "k"]).unwrap();
    next("\"1\" \"k\"");
    next("[0 lua] \"GET\" \"a\"");
    next("[1 lua] \"SELECT\" \"1\"");
    next("[1 lua] \"SET\" \"k\" \"v\"");
    client.command(&["EVALSHA", "none", "0"]).unwrap();
    next("\"EVALSHA\" \"none\" \"0\"");
    for line in ["MULTI", "EVAL|return redis.call('ECHO', 'm')|0", "EXEC"] {
        let request: Vec<&str> = line.split('|').collect();
        client.command(&request).unwrap();
    }
    next("\"MULTI\"");
    next("\"0\"");
    next("[0 lua] \"ECHO\" \"m\"");
    next("\"EXEC\"");
}

/// Returns the nonzero counts in INFO, without times.
fn counts(client: &mut Client) -> Vec<String> {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]).unwrap() else {
        panic!("INFO is a text");
    };
    let text = String::from_utf8(text).unwrap();
    let mut counts = Vec::new();
    for line in text.lines() {
        if line.starts_with("errorstat_") || line.starts_with("total_error_replies") {
            counts.push(line.to_owned());
        } else if let Some((name, figures)) = line.split_once(':')
            && let Some(name) = name.strip_prefix("cmdstat_")
            && !name.starts_with("config")
            && name != "info"
        {
            let figure = |field: &str| {
                let mut fields = figures.split(',');
                fields.find_map(|one| one.strip_prefix(field)).unwrap()
            };
            let three = ["calls=", "rejected_calls=", "failed_calls="].map(figure);
            counts.push(format!("{name} {}", three.join(" ")));
        }
    }
    counts.sort();
    counts
}

#[test]
fn an_error_inside_of_a_script_is_counted_once() {
    let server = start();
    let mut client = server.client().unwrap();
    client.command(&["SET", "text", "v"]).unwrap();
    let cases: [(&str, &str, &[&str]); 9] = [
        (
            "EVAL",
            "return redis.call('SELECT', 99)",
            &["eval 1 0 1", "select 1 0 1", "ERR"],
        ),
        (
            "EVAL",
            "return redis.pcall('SELECT', 99)",
            &["eval 1 0 1", "select 1 0 1", "ERR"],
        ),
        (
            "EVAL",
            "redis.pcall('SELECT', 99)",
            &["eval 1 0 0", "select 1 0 1", "ERR"],
        ),
        (
            "EVAL",
            "redis.call('LPUSH', 'text', 1)",
            &["eval 1 0 1", "lpush 1 0 1", "WRONGTYPE"],
        ),
        (
            "EVAL",
            "redis.call('SET', 'k')",
            &["eval 1 0 1", "set 0 1 0", "ERR"],
        ),
        (
            "EVAL",
            "redis.pcall('MULTI')",
            &["eval 1 0 0", "multi 0 1 0", "ERR"],
        ),
        (
            "EVAL_RO",
            "redis.call('SET', 'k', 1)",
            &["eval_ro 1 0 1", "set 0 1 0", "ERR"],
        ),
        (
            "EVAL",
            "return redis.error_reply('MINE text')",
            &["eval 1 0 1", "MINE"],
        ),
        ("EVAL", "error('unheard of')", &["eval 1 0 1", "ERR"]),
    ];
    for (name, source, expected) in cases {
        client.command(&["CONFIG", "RESETSTAT"]).unwrap();
        client.command(&[name, source, "0"]).unwrap();
        let Some((code, calls)) = expected.split_last() else {
            panic!("a code");
        };
        let mut expected: Vec<String> = calls.iter().map(|&line| line.to_owned()).collect();
        expected.push(format!("errorstat_{code}:count=1"));
        expected.push("total_error_replies:1".to_owned());
        expected.sort();
        assert_eq!(counts(&mut client), expected, "{name} {source}");
    }
}

#[test]
fn scripts_that_change_nothing_run_while_writes_are_paused() {
    let server = start();
    let (mut client, mut operator) = (server.client().unwrap(), server.client().unwrap());
    let library = "#!lua name=l\nredis.register_function{function_name='reads', \
                   callback=function() return 3 end, flags={'no-writes'}}";
    client.command(&["FUNCTION", "LOAD", library]).unwrap();
    let source = "#!lua flags=no-writes\nreturn 3";
    let Value::Bulk(digest) = client.command(&["SCRIPT", "LOAD", source]).unwrap() else {
        panic!("a digest");
    };
    let digest = String::from_utf8(digest).unwrap();
    operator
        .command(&["CLIENT", "PAUSE", "600000", "WRITE"])
        .unwrap();
    for request in [
        ["EVAL", source, "0"],
        ["EVAL", "#!lua flags=allow-oom,no-writes\nreturn 3", "0"],
        ["EVAL_RO", "return 3", "0"],
        ["EVALSHA", &digest, "0"],
        ["FCALL", "Reads", "0"],
    ] {
        assert_eq!(client.command(&request).unwrap(), Value::Integer(3));
    }
    client.send(&["EVAL", "#!lua\nreturn 4", "0"]).unwrap();
    crate::limits::eventually("what may write waits", || {
        let Value::Bulk(text) = operator.command(&["INFO", "clients"]).unwrap() else {
            return false;
        };
        String::from_utf8_lossy(&text).contains("blocked_clients:1\r")
    });
    operator.command(&["CLIENT", "UNPAUSE"]).unwrap();
    assert_eq!(client.receive().unwrap().unwrap(), Value::Integer(4));
}
