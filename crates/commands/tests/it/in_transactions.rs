//! Runs every request of every transcript in its own transaction: EXEC returns the reply that the
//! request alone would get. So no command touches a key that was not locked for it, and none waits.

use std::fs;
use std::path::{Path, PathBuf};

use engine::Flags;
use protocol::Value;

use crate::effect_server::TestServer;

/// Commands that are about the connection, are not allowed in a transaction, or reply differently
/// each time.
const OTHERS: &[&str] = &[
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH",
    "UNWATCH",
    "CLIENT",
    "HELLO",
    "AUTH",
    "RESET",
    "QUIT",
    "DEBUG",
    "SHUTDOWN",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SSUBSCRIBE",
    "SUNSUBSCRIBE",
    "MONITOR",
    "SAVE",
    "PSYNC",
    "REPLCONF",
    "SYNC",
];

/// Whether a request generates a password.
fn is_random(words: &[Vec<u8>]) -> bool {
    let is = |at: usize, word: &str| {
        let there: Option<&Vec<u8>> = words.get(at);
        there.is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes()))
    };
    is(0, "ACL") && is(1, "GENPASS")
}

/// Whether it is the only request that is refused inside a transaction regardless of the server's
/// state.
fn is_refused_inside(words: &[Vec<u8>]) -> bool {
    let request = words.join(&b' ');
    request.eq_ignore_ascii_case(b"REPLICATION LEAVE FOR-RESTART")
}

#[test]
fn requests_are_answered_the_same_in_a_transaction() {
    let mut differences = Vec::new();
    let mut count = 0;
    for path in transcripts() {
        let text = fs::read_to_string(&path).unwrap();
        let (mut plain, mut inside) = (TestServer::new(), TestServer::new());
        for line in text.lines().filter_map(|line| line.strip_prefix("> ")) {
            let Ok(words) = protocol::split_line(line.as_bytes()) else {
                continue;
            };
            let name = words.first().cloned().unwrap_or_default();
            let is_other = |other: &&str| name.eq_ignore_ascii_case(other.as_bytes());
            if name.is_empty() || OTHERS.iter().any(is_other) || is_refused_inside(&words) {
                continue;
            }
            let found = testkit::table().find(&name);
            if found.is_some_and(|found| found.spec.flags.has(Flags::BLOCKING)) {
                continue;
            }
            count += 1;
            let expected = plain.run(&words);
            let answered = in_transaction(&mut inside, &words);
            // These return keys in an order that differs between servers, or random values.
            let is_about_all = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            if ["KEYS", "SCAN", "RANDOMKEY"].into_iter().any(is_about_all) || is_random(&words) {
                continue;
            }
            if !is_same(&answered, &expected) {
                differences.push(format!(
                    "{}: {line}: {answered:?}, not {expected:?}",
                    path.display()
                ));
            }
        }
        assert_eq!(plain.dump(), inside.dump(), "{}", path.display());
    }
    assert!(count > 1000, "{count} requests");
    assert!(differences.is_empty(), "{differences:#?}");
}

fn in_transaction(server: &mut TestServer, words: &[Vec<u8>]) -> Value {
    server.line("MULTI");
    match server.run(words) {
        Value::Simple(text) if text == b"QUEUED" => match server.line("EXEC") {
            Value::Array(mut replies) if replies.len() == 1 => replies.remove(0),
            other => other,
        },
        refusal => {
            server.line("DISCARD");
            refusal
        }
    }
}

/// Whether two replies are the same, apart from call counts and similar.
fn is_same(one: &Value, other: &Value) -> bool {
    let is_report = |value: &Value| matches!(value, Value::Bulk(text) if text.len() > 200);
    one == other || (is_report(one) && is_report(other))
}

fn transcripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let families = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = families
        .filter(|path| path.is_dir())
        .flat_map(|family| {
            fs::read_dir(family)
                .unwrap()
                .map(|entry| entry.unwrap().path())
        })
        .collect();
    paths.sort();
    paths
}
