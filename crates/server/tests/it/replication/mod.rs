//! Tests of replication between processes: the data of a replica, the messages to it, and the
//! roles.

mod fake_primary;
mod follow_redis;
mod messages;
mod migration;
mod peers;
mod redis_replica;
mod restart;
mod roles;
mod sentinel;
mod stream;
mod tls;
mod tools;

use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::differential::{difference, full_state};
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, oracle_program};

/// Commands that block, and commands that control the connection or the server. Random requests
/// about data leave them out.
pub(crate) const NOT_OF_DATA: &[&str] = &[
    "BLPOP",
    "BRPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "XREAD",
    "XREADGROUP",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "MONITOR",
    "CLIENT",
    "HELLO",
    "RESET",
    "QUIT",
    "DEBUG",
    "CONFIG",
    "WAIT",
    "WAITAOF",
    "AUTH",
    "SHUTDOWN",
    "REPLICAOF",
    "SLAVEOF",
];

/// Maximum time for something that should happen soon: machines may be slow.
const LONG: Duration = Duration::from_secs(120);

/// Returns the reply to a line of words.
fn run(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    client.command(&words).unwrap()
}

/// As [`run`], but an error is a failure.
fn must(client: &mut Client, line: &str) -> Value {
    let reply = run(client, line);
    assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    reply
}

/// Returns the text of an error.
fn error(client: &mut Client, line: &str) -> String {
    match run(client, line) {
        Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns a field of INFO.
pub(crate) fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(text) = run(client, "INFO all") else {
        panic!("no INFO");
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(&format!("{name}:")));
    found.unwrap_or_default().to_owned()
}

/// Waits until a condition is true.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Patience::of(LONG);
    while !is_so() {
        assert!(patience.lasts(), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The kind of the peer, as `repl-peer` names it. `REDIS_SERVER` may replace the oracle by a
/// program of another family or version.
static PEER: LazyLock<&str> = LazyLock::new(|| {
    let output = Command::new(oracle_program())
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, version) = text.split_once(" v=").unwrap();
    let part = |at| version.split(['.', ' ']).nth(at).unwrap().parse().unwrap();
    let (major, minor): (u32, u32) = (part(0), part(1));
    match (text.starts_with("Valkey"), major, minor) {
        (true, ..=8, _) => "valkey-8",
        (true, ..) => "valkey-9",
        // Versions after 7.4 and before 8 report 7.9.
        (false, 8.., _) | (false, 7, 9..) => "redis-8",
        (false, 7, 4..) => "redis-7.4",
        (false, 7, 2..) => "redis-7.2",
        (false, 7, _) => "redis-7",
        _ => "redis-6.2",
    }
});

/// Returns whether the peer has functions. A peer without them cannot be sent functions.
fn has_functions() -> bool {
    *PEER != "redis-6.2"
}

fn iolite(args: &[&str]) -> Server {
    let own = ["--enable-debug-command", "yes", "--threads", "2"];
    let args = [&own, ["--repl-peer", *PEER].as_slice(), args].concat();
    ServerBuilder::iolite().tcp().args(&args).start().unwrap()
}

fn redis(args: &[&str]) -> Server {
    oracle(args).tcp().start().unwrap()
}

fn oracle(args: &[&str]) -> ServerBuilder {
    // Before 7.0, every client could use DEBUG, and there was no directive.
    let debug: &[&str] = match *PEER {
        "redis-6.2" => &[],
        _ => &["--enable-debug-command", "yes"],
    };
    let args = [debug, &["--save", ""], args].concat();
    ServerBuilder::oracle().args(&args)
}

/// Makes one server a replica of the other, and waits for the stream.
fn follow(replica: &mut Client, primary: &Server) {
    let port = primary.address().unwrap().port();
    must(replica, &format!("REPLICAOF 127.0.0.1 {port}"));
    until("the link is up", || {
        field(replica, "master_link_status") == "up"
    });
}

fn port_of(server: &Server) -> String {
    server.address().unwrap().port().to_string()
}

/// Waits until the replica is at its primary's offset, and both hold the same data. The encodings
/// of short strings may differ, as between two Redis servers: they depend on whether the string was
/// in the snapshot or in the stream.
pub(crate) fn settle(primary: &mut Client, replica: &mut Client) {
    let mut seen = String::new();
    until_or("both hold the same", &mut || {
        let end = field(primary, "master_repl_offset");
        let is_there = field(replica, "slave_repl_offset") == end;
        let digests = [&mut *primary, &mut *replica].map(|client| run(client, "DEBUG DIGEST"));
        let mut differ = None;
        if is_there && digests[0] != digests[1] {
            // Redis 7.0 formats scores differently in its digest, although a comparison one by one
            // finds them equal.
            let [one, two] = [&mut *primary, &mut *replica].map(|client| {
                let state = full_state(client).unwrap();
                must(client, "SELECT 0");
                comparable(state)
            });
            differ = difference(&one, &two);
        }
        // Nothing was added meanwhile.
        let is_quiet = field(primary, "master_repl_offset") == end;
        seen = format!("{end}, there: {is_there}, quiet: {is_quiet}, {differ:?}");
        is_there && is_quiet && differ.is_none()
    })
    .unwrap_or_else(|what| panic!("{what}: {seen}"));
}

/// Returns the part of a state that every peer shows. Encodings are compared with Redis 7.0 alone,
/// and those of short strings not at all. Redis 6.2 does not show when keys expire.
fn comparable(state: Value) -> Value {
    let Value::Array(databases) = state else {
        return state;
    };
    let parts = databases.into_iter().map(|database| match database {
        Value::Array(parts) => Value::Array(parts.into_iter().map(comparable_key).collect()),
        other => other,
    });
    Value::Array(parts.collect())
}

fn comparable_key(part: Value) -> Value {
    match part {
        // The parts are a key, its type, its value, its time and its encoding.
        Value::Array(mut parts) if parts.len() == 5 && matches!(parts[1], Value::Simple(_)) => {
            if *PEER == "redis-6.2" {
                parts[3] = Value::Null;
            }
            if *PEER != "redis-7" {
                parts[4] = Value::Null;
            }
            Value::Array(parts.into_iter().map(without_string_encodings).collect())
        }
        other => other,
    }
}

fn without_string_encodings(state: Value) -> Value {
    match state {
        Value::Bulk(text) if text == b"raw" => Value::Bulk(b"embstr".to_vec()),
        other => other,
    }
}

fn until_or(what: &str, is_so: &mut dyn FnMut() -> bool) -> Result<(), String> {
    let patience = Patience::of(LONG);
    while !is_so() {
        if !patience.lasts() {
            return Err(format!("never: {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
