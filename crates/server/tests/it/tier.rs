//! Values out of memory, as clients see them: the same replies, a limit that holds, and nothing lost.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::target::Launcher;
use testkit::transcript::show;

use super::limits::eventually;

fn start(args: &[&str]) -> Server {
    let builder =
        ServerBuilder::iolite().args(&["--tier-path", ".", "--enable-debug-command", "yes"]);
    builder.args(args).start().unwrap()
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    let told = show(&client.command(args).unwrap());
    told.trim_matches('"').to_owned()
}

/// A number that TIER STATUS tells.
fn figure(client: &mut Client, name: &str) -> u64 {
    let told = ask(client, &["TIER", "STATUS"]);
    let mut words = told.split(|byte: char| !byte.is_alphanumeric() && byte != '_');
    words.find(|word| *word == name).unwrap();
    let number = words.find(|word| !word.is_empty()).unwrap();
    number.parse().unwrap()
}

#[test]
fn a_tier_needs_a_limit_of_memory() {
    let told = ServerBuilder::iolite().args(&["--tier-path", "."]).start();
    let error = told.err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("maxmemory"), "{error}");
}

#[test]
fn values_go_come_back_and_are_told_of() {
    let server = start(&["--maxmemory", "100mb"]);
    let mut client = server.client().unwrap();
    let long = "x".repeat(1_000);
    ask(&mut client, &["SET", "a", &long]);
    ask(&mut client, &["HSET", "h", "field", &long, "other", "2"]);
    ask(&mut client, &["SET", "number", "12345"]);
    assert_eq!(
        ask(
            &mut client,
            &["DEBUG", "DEMOTE", "a", "h", "number", "none"]
        ),
        ":2"
    );
    for (key, tier) in [("a", "ssd"), ("h", "ssd"), ("number", "hot")] {
        assert_eq!(ask(&mut client, &["OBJECT", "TIER", key]), tier);
    }
    assert_eq!(ask(&mut client, &["STRLEN", "a"]), ":1000");
    assert_eq!(ask(&mut client, &["TYPE", "h"]), "+hash");
    assert_eq!(ask(&mut client, &["OBJECT", "ENCODING", "h"]), "hashtable");
    assert_eq!(ask(&mut client, &["EXPIRE", "a", "1000"]), ":1");
    assert_eq!(
        figure(&mut client, "tier_reads"),
        0,
        "nothing of this reads"
    );
    assert_eq!(ask(&mut client, &["HGET", "h", "other"]), "2");
    assert_eq!(ask(&mut client, &["APPEND", "a", "y"]), ":1001");
    assert_eq!(ask(&mut client, &["OBJECT", "TIER", "a"]), "hot");
    assert_eq!(ask(&mut client, &["TTL", "a"]), ":1000");
    assert!(figure(&mut client, "tier_reads") >= 2);
    assert_eq!(figure(&mut client, "tier_blocking_reads"), 0);
}

#[test]
fn what_does_not_fit_into_memory_is_served_and_nothing_is_evicted() {
    let server = start(&["--maxmemory", "60mb", "--save", ""]);
    let mut client = server.client().unwrap();
    let value = |number: u32| format!("{number:010}").repeat(200);
    for first in (0..60_000).step_by(100) {
        for number in first..first + 100 {
            client
                .send(&["SET", &format!("key:{number}"), &value(number)])
                .unwrap();
        }
        for _ in 0..100 {
            assert_eq!(show(&client.receive().unwrap().unwrap()), "+OK");
        }
    }
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":60000");
    assert!(figure(&mut client, "tier_keys") > 20_000);
    for number in (0..60_000).step_by(97) {
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
    let info = ask(&mut client, &["INFO", "stats"]);
    assert!(info.contains("evicted_keys:0"), "{info}");
    let info = ask(&mut client, &["INFO", "memory"]);
    let used = info.split("used_memory:").nth(1).unwrap();
    let digits: String = used.chars().take_while(char::is_ascii_digit).collect();
    let used: u64 = digits.parse().unwrap();
    assert!(used < 63 << 20, "{used}");
}

#[test]
fn a_checkpoint_has_cold_values_and_a_start_reads_them() {
    let mut server = start(&["--maxmemory", "100mb", "--save", ""]);
    let directory = server.directory().to_owned();
    let mut client = server.client().unwrap();
    let long = "z".repeat(5_000);
    for number in 0..50 {
        ask(&mut client, &["SET", &format!("key:{number}"), &long]);
        ask(&mut client, &["DEBUG", "DEMOTE", &format!("key:{number}")]);
    }
    ask(&mut client, &["RPUSH", "list", "a", "b", &long]);
    assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", "list"]), ":1");
    let digest = ask(&mut client, &["DEBUG", "DIGEST"]);
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "+OK");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), digest);
    assert_eq!(ask(&mut client, &["LLEN", "list"]), ":3");
    assert!(directory.join("tier").is_dir());
    assert!(server.is_running().unwrap());
}

#[test]
fn a_damaged_value_is_an_error_and_no_other_is_touched() {
    let server = start(&["--maxmemory", "100mb", "--save", ""]);
    let mut client = server.client().unwrap();
    for key in ["bad", "good"] {
        ask(&mut client, &["SET", key, &key.repeat(300)]);
        assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", key]), ":1");
    }
    flip(&server.directory().join("tier"), 4096 + 100);
    let failed = "-TIERFAIL value cannot be read";
    assert_eq!(ask(&mut client, &["GET", "bad"]), failed);
    assert_eq!(ask(&mut client, &["APPEND", "bad", "x"]), failed);
    assert_eq!(ask(&mut client, &["GET", "good"]), "good".repeat(300));
    assert_eq!(ask(&mut client, &["STRLEN", "bad"]), ":900");
    assert!(figure(&mut client, "tier_checksum_errors") >= 2);
    assert_eq!(ask(&mut client, &["SET", "bad", "new"]), "+OK");
    assert_eq!(ask(&mut client, &["GET", "bad"]), "new");
}

/// Flips a byte of the only segment.
fn flip(directory: &Path, offset: u64) {
    let segment = std::fs::read_dir(directory)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment.path())
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[test]
fn space_of_what_was_overwritten_is_used_again() {
    let server = start(&["--maxmemory", "100mb", "--save", ""]);
    let mut client = server.client().unwrap();
    let long = "w".repeat(7_000_000);
    for _ in 0..3 {
        for number in 0..12 {
            let key = format!("key:{number}");
            ask(&mut client, &["SET", &key, &long]);
            assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", &key]), ":1");
        }
    }
    eventually("segments of what was overwritten are removed", || {
        figure(&mut client, "tier_bytes_used") < 200_000_000
    });
    let found = ask(&mut client, &["GET", "key:3"]);
    assert_eq!(found.len(), long.len());
}

#[test]
fn transcripts_hold_when_every_value_leaves_after_every_command() {
    let launcher = Launcher {
        name: "cold always",
        is_oracle: false,
        start: Box::new(|args| {
            let builder = ServerBuilder::iolite();
            let cold = ["--tier-path", ".", "--tier-demote-at", "0"];
            let builder = builder.args(&cold).args(&["--tier-min-value", "1"]);
            Ok(Box::new(builder.args(args).tcp().start()?))
        }),
    };
    super::transcripts::run_all(&launcher);
}
