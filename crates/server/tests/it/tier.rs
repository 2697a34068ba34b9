//! Tests of cold values as clients see them: the same replies, a limit that holds, and no loss.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, iolite_program};
use testkit::target::Launcher;
use testkit::transcript::show;

use super::ledger::kill;
use super::limits::eventually;
use super::recovery::{Directory, files_of};

pub(crate) fn start(args: &[&str]) -> Server {
    let builder =
        ServerBuilder::iolite().args(&["--tier-path", ".", "--enable-debug-command", "yes"]);
    // Compressed values of these tests would have only a few bytes.
    let builder = builder.args(&["--tier-compression", "no"]);
    builder.args(args).start().unwrap()
}

/// Runs a test with each way of reading; `auto` is io_uring if the kernel supports it.
pub(crate) fn both_ways(test: impl Fn(&Server, &mut Client)) {
    for io in ["auto", "threads"] {
        let server = start(&["--maxmemory", "100mb", "--save", "", "--tier-io", io]);
        let mut client = server.client().unwrap();
        test(&server, &mut client);
    }
}

pub(crate) fn ask(client: &mut Client, args: &[&str]) -> String {
    let told = show(&client.command(args).unwrap());
    told.trim_matches('"').to_owned()
}

/// Sets a string, and demotes it.
pub(crate) fn set_cold(client: &mut Client, key: &str, value: &str) {
    ask(client, &["SET", key, value]);
    assert_eq!(ask(client, &["DEBUG", "DEMOTE", key]), ":1");
}

/// Returns a number from TIER STATUS.
pub(crate) fn figure(client: &mut Client, name: &str) -> u64 {
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
    both_ways(|_, client| values_go_and_come_back(client));
}

fn values_go_and_come_back(client: &mut Client) {
    let long = "x".repeat(1_000);
    ask(client, &["SET", "a", &long]);
    ask(client, &["HSET", "h", "field", &long, "other", "2"]);
    ask(client, &["SET", "number", "12345"]);
    assert_eq!(
        ask(client, &["DEBUG", "DEMOTE", "a", "h", "number", "none"]),
        ":2"
    );
    for (key, tier) in [("a", "ssd"), ("h", "ssd"), ("number", "hot")] {
        assert_eq!(ask(client, &["OBJECT", "TIER", key]), tier);
    }
    assert_eq!(ask(client, &["STRLEN", "a"]), ":1000");
    assert_eq!(ask(client, &["TYPE", "h"]), "+hash");
    assert_eq!(ask(client, &["HLEN", "h"]), ":2");
    assert!(ask(client, &["LLEN", "h"]).starts_with("-WRONGTYPE"));
    assert_eq!(ask(client, &["OBJECT", "ENCODING", "h"]), "hashtable");
    assert_eq!(ask(client, &["EXPIRE", "a", "1000"]), ":1");
    assert_eq!(figure(client, "tier_reads"), 0, "nothing of this reads");
    assert_eq!(ask(client, &["HGET", "h", "other"]), "2");
    assert_eq!(ask(client, &["APPEND", "a", "y"]), ":1001");
    assert_eq!(ask(client, &["OBJECT", "TIER", "a"]), "hot");
    assert_eq!(ask(client, &["TTL", "a"]), ":1000");
    assert!(figure(client, "tier_reads") >= 2);
    assert_eq!(figure(client, "tier_blocking_reads"), 0);
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
fn a_checkpoint_names_cold_values_and_a_start_reads_none() {
    let directory = Directory::new();
    let data = directory.0.to_str().unwrap();
    let memory = ["--maxmemory", "100mb", "--tier-promotion", "never"];
    let args = [&["--dir", data, "--save", ""][..], &memory].concat();
    let server = start(&args);
    let mut client = server.client().unwrap();
    let value = |number: u32| format!("{number:05}").repeat(1_000);
    for number in 0..300 {
        let key = format!("key:{number}");
        ask(&mut client, &["SET", &key, &value(number), "EX", "100000"]);
        assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", &key]), ":1");
    }
    let long = "z".repeat(5_000);
    ask(&mut client, &["RPUSH", "list", "a", "b", &long]);
    ask(&mut client, &["DEBUG", "DEMOTE", "list"]);
    ask(&mut client, &["SET", "hot", &long]);
    let digest = ask(&mut client, &["DEBUG", "DIGEST"]);
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    let parts = size_of(&directory.data());
    assert!(
        parts < 60_000,
        "{parts} bytes for values that are kept elsewhere"
    );
    // Written after the checkpoint, and so lost with the process.
    ask(&mut client, &["SET", "key:7", "other"]);
    kill(&server);
    drop(server);

    let server = start(&args);
    let mut client = server.client().unwrap();
    assert_eq!(figure(&mut client, "tier_keys"), 301);
    assert_eq!(figure(&mut client, "tier_reads"), 0, "nothing was read");
    assert_eq!(ask(&mut client, &["STRLEN", "key:7"]), ":5000");
    assert_eq!(ask(&mut client, &["TYPE", "list"]), "+list");
    assert_eq!(ask(&mut client, &["OBJECT", "TIER", "key:9"]), "ssd");
    assert_eq!(ask(&mut client, &["OBJECT", "TIER", "hot"]), "hot");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), digest);
    for number in 0..300 {
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
    assert_eq!(ask(&mut client, &["DEBUG", "RELOAD"]), "+OK");
    assert_eq!(ask(&mut client, &["DEBUG", "DIGEST"]), digest);
    assert_eq!(ask(&mut client, &["LLEN", "list"]), ":3");
    drop(client);
    drop(server);
    let checked = checked(&directory.0);
    assert!(
        checked.contains("OK") && !checked.contains("DAMAGED"),
        "{checked}"
    );
    assert!(checked.contains("301 values in the tier"), "{checked}");
}

/// Returns the output of `iolite check` for a directory.
pub(crate) fn checked(directory: &Path) -> String {
    let output = std::process::Command::new(iolite_program())
        .arg("check")
        .arg(directory)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the size of all files below a directory.
fn size_of(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    let sizes = entries.map(|entry| {
        let entry = entry.unwrap();
        let data = entry.metadata().unwrap();
        if data.is_dir() {
            size_of(&entry.path())
        } else {
            data.len()
        }
    });
    sizes.sum()
}

/// Returns a directory with a checkpoint of cold values, and no server.
fn kept() -> Directory {
    let directory = Directory::new();
    let server = start(&[
        "--dir",
        directory.0.to_str().unwrap(),
        "--maxmemory",
        "100mb",
    ]);
    let mut client = server.client().unwrap();
    for key in ["one", "two"] {
        set_cold(&mut client, key, &key.repeat(500));
    }
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    directory
}

/// Returns the message of a server that does not start.
pub(crate) fn refusal(directory: &Path, args: &[&str]) -> String {
    let builder = ServerBuilder::iolite().args(&["--dir", directory.to_str().unwrap()]);
    match builder.args(args).start() {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    }
}

const TIER: [&str; 4] = ["--tier-path", ".", "--maxmemory", "100mb"];

#[test]
fn a_start_without_the_segments_that_are_named_is_refused_with_what_is_missing() {
    let directory = kept();
    let told = refusal(&directory.0, &[]);
    assert!(told.contains("the values of 2 keys are in a tier") && told.contains("TIER DRAIN"));
    let segment = files_of(&directory.0.join("tier"), "seg").remove(0);
    let bytes = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &bytes[..bytes.len() - 1]).unwrap();
    let told = refusal(&directory.0, &TIER);
    assert!(told.contains("it ends too soon"), "{told}");
    std::fs::remove_file(&segment).unwrap();
    let told = refusal(&directory.0, &TIER);
    assert!(
        told.contains("0000000000000001.seg") && told.contains("2 keys"),
        "{told}"
    );
    let checked = checked(&directory.0);
    assert!(checked.contains("DAMAGED"), "{checked}");
    std::fs::write(&segment, &bytes).unwrap();
    let server = start(&[
        "--dir",
        directory.0.to_str().unwrap(),
        "--maxmemory",
        "100mb",
    ]);
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["GET", "two"]), "two".repeat(500));
}

#[test]
fn the_segments_of_others_are_left_alone() {
    let directory = kept();
    let path = directory.0.to_str().unwrap();
    let other = Directory::new();
    let foreign = ["--tier-path", path, "--maxmemory", "100mb"];
    let told = refusal(&other.0, &foreign);
    assert!(told.contains("have values of the data in"), "{told}");
    assert_eq!(files_of(&directory.0.join("tier"), "seg").len(), 1);
    let server = start(&["--dir", path, "--maxmemory", "100mb"]);
    let told = refusal(&other.0, &foreign);
    assert!(told.contains("another server uses the tier"), "{told}");
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["GET", "one"]), "one".repeat(500));
    drop(server);
    // A data directory that was moved as a whole is valid.
    let moved = Directory::new();
    std::fs::remove_dir(&moved.0).unwrap();
    std::fs::rename(&directory.0, &moved.0).unwrap();
    let server = start(&["--dir", moved.0.to_str().unwrap(), "--maxmemory", "100mb"]);
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["GET", "one"]), "one".repeat(500));
}

#[test]
fn what_a_checkpoint_names_is_rewritten_and_kept_until_the_next_one() {
    let directory = Directory::new();
    let path = directory.0.to_str().unwrap();
    let args = [
        "--dir",
        path,
        "--maxmemory",
        "100mb",
        "--save",
        "",
        "--tier-segment-size",
        "64kb",
    ];
    let server = start(&args);
    let mut client = server.client().unwrap();
    let value = |number: u32| format!("{number:05}").repeat(400);
    for number in 0..200 {
        let key = format!("key:{number}");
        set_cold(&mut client, &key, &value(number));
    }
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    for number in (0..200).filter(|number| number % 5 != 0) {
        ask(&mut client, &["DEL", &format!("key:{number}")]);
    }
    ask(&mut client, &["TIER", "COMPACT"]);
    assert!(figure(&mut client, "tier_compacted_bytes") > 0);
    // The background thread may be processing one of the segments itself.
    eventually("what the checkpoint names is kept", || {
        figure(&mut client, "tier_bytes_kept") > 300_000
    });
    kill(&server);
    drop(server);
    // There is no log, so everything deleted after the checkpoint exists again, with every value.
    let server = start(&args);
    let mut client = server.client().unwrap();
    for number in 0..200 {
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
    for number in (0..200).filter(|number| number % 5 != 0) {
        ask(&mut client, &["DEL", &format!("key:{number}")]);
    }
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    ask(&mut client, &["TIER", "COMPACT"]);
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    eventually("what no checkpoint names goes", || {
        figure(&mut client, "tier_bytes_used") < 250_000
    });
    for number in (0..200).step_by(5) {
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
}

#[test]
fn a_start_loads_into_the_memory_that_it_ran_in() {
    let directory = Directory::new();
    let path = directory.0.to_str().unwrap();
    let args = ["--dir", path, "--maxmemory", "60mb", "--durability", "os"];
    let value = |number: u32| format!("{number:010}").repeat(200);
    let server = start(&args);
    let mut client = server.client().unwrap();
    for first in (0..60_000).step_by(100) {
        for number in first..first + 100 {
            client
                .send(&["SET", &format!("key:{number}"), &value(number)])
                .unwrap();
        }
        for _ in 0..100 {
            assert_eq!(show(&client.receive().unwrap().unwrap()), "+OK");
        }
        if first == 30_000 {
            ask(&mut client, &["BGREWRITEAOF"]);
        }
    }
    kill(&server);
    drop(server);
    let server = start(&args);
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":60000");
    for number in (0..60_000).step_by(97) {
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
    let info = ask(&mut client, &["INFO", "memory"]);
    let used = info.split("used_memory_peak:").nth(1).unwrap();
    let digits: String = used.chars().take_while(char::is_ascii_digit).collect();
    let peak: u64 = digits.parse().unwrap();
    assert!(peak < 66 << 20, "{peak}");
    let info = ask(&mut client, &["INFO", "stats"]);
    assert!(info.contains("evicted_keys:0"), "{info}");
}

#[test]
fn values_that_are_compressed_take_less_and_come_back_over_a_restart() {
    let directory = Directory::new();
    let path = directory.0.to_str().unwrap();
    let args = [
        "--dir",
        path,
        "--maxmemory",
        "100mb",
        "--tier-compression",
        "auto",
    ];
    let server = start(&args);
    let mut client = server.client().unwrap();
    let value = |number: u32| format!("{number:05} and more, ").repeat(300);
    for number in 0..100 {
        let key = format!("key:{number}");
        set_cold(&mut client, &key, &value(number));
    }
    let written = figure(&mut client, "tier_writes_bytes");
    assert!(
        written * 5 < figure(&mut client, "tier_raw_bytes"),
        "{written}"
    );
    assert_eq!(ask(&mut client, &["SAVE"]), "+OK");
    kill(&server);
    drop(server);
    let server = start(&args);
    let mut client = server.client().unwrap();
    for number in 0..100 {
        assert_eq!(
            ask(&mut client, &["STRLEN", &format!("key:{number}")]),
            ":4800"
        );
        let found = ask(&mut client, &["GET", &format!("key:{number}")]);
        assert_eq!(found, value(number), "{number}");
    }
}

#[test]
fn a_damaged_value_is_an_error_and_no_other_is_touched() {
    both_ways(|server, client| {
        for key in ["bad", "good"] {
            set_cold(client, key, &key.repeat(300));
        }
        flip(&server.directory().join("tier"), 4096 + 100);
        let failed = "-TIERFAIL value cannot be read";
        assert_eq!(ask(client, &["GET", "bad"]), failed);
        assert_eq!(ask(client, &["APPEND", "bad", "x"]), failed);
        assert_eq!(ask(client, &["GET", "good"]), "good".repeat(300));
        assert_eq!(ask(client, &["STRLEN", "bad"]), ":900");
        assert!(figure(client, "tier_checksum_errors") >= 2);
        assert_eq!(ask(client, &["SET", "bad", "new"]), "+OK");
        assert_eq!(ask(client, &["GET", "bad"]), "new");
    });
}

/// Flips a byte of the only segment.
pub(crate) fn flip(directory: &Path, offset: u64) {
    let segment = files_of(directory, "seg").remove(0);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
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
            set_cold(&mut client, &format!("key:{number}"), &long);
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

/// A request whose value is being read is not queued yet, and is not counted as blocked. If a test
/// waits until a client is blocked and then lets another client wait, the two are served in that
/// order.
#[test]
fn who_is_called_blocked_is_served_before_who_comes_later() {
    let server = start(&[
        "--maxmemory",
        "1gb",
        "--tier-demote-at",
        "0",
        "--tier-min-value",
        "1",
    ]);
    let mut client = server.client().unwrap();
    let (mut first, mut second) = (server.client().unwrap(), server.client().unwrap());
    for round in 0..40 {
        ask(&mut client, &["FLUSHALL"]);
        ask(
            &mut client,
            &["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"],
        );
        for (number, waiting) in [(1, &mut first), (2, &mut second)] {
            let name = format!("consumer-{number}");
            let words = ["XREADGROUP", "GROUP", "g", &name, "BLOCK", "0"];
            waiting
                .send(&[&words[..], &["STREAMS", "s", ">"]].concat())
                .unwrap();
            eventually("the client is blocked", || {
                let told = ask(&mut client, &["INFO", "clients"]);
                told.contains(&format!("blocked_clients:{number}"))
            });
        }
        for (id, waiting) in [("1-0", &mut first), ("2-0", &mut second)] {
            ask(&mut client, &["XADD", "s", id, "a", "b"]);
            let told = show(&waiting.receive().unwrap().unwrap());
            assert!(told.contains(id), "round {round}: {told}");
        }
    }
}

#[test]
fn a_drained_tier_has_nothing_and_may_be_removed() {
    let directory = Directory::new();
    let path = directory.0.to_str().unwrap();
    let server = start(&["--dir", path, "--maxmemory", "100mb"]);
    let mut client = server.client().unwrap();
    let long = "d".repeat(3_000);
    for number in 0..400 {
        let key = format!("key:{number}");
        set_cold(&mut client, &key, &long);
    }
    ask(&mut client, &["SAVE"]);
    assert!(ask(&mut client, &["TIER", "DRAIN"]).contains("400"));
    eventually("all values are back", || {
        ask(&mut client, &["TIER", "STATUS"]).contains("drained")
    });
    assert_eq!(figure(&mut client, "tier_keys"), 0);
    ask(&mut client, &["SAVE"]);
    kill(&server);
    drop(server);
    let builder = ServerBuilder::iolite().args(&["--dir", path]);
    let server = builder.start().unwrap();
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["GET", "key:7"]), long);
    assert_eq!(ask(&mut client, &["DBSIZE"]), ":400");
}

#[test]
fn the_background_finds_what_is_damaged_before_it_is_wanted() {
    let args = ["--maxmemory", "100mb", "--tier-segment-size", "64kb"];
    let server = start(&args);
    let mut client = server.client().unwrap();
    ask(&mut client, &["CONFIG", "SET", "tier-scrub", "0"]);
    for number in 0..20 {
        let key = format!("key:{number}");
        set_cold(&mut client, &key, &"s".repeat(10_000));
    }
    flip(&server.directory().join("tier"), 4096 + 100);
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "tier-scrub", "100mb"]),
        "+OK"
    );
    eventually("the damage is found", || {
        figure(&mut client, "tier_scrub_errors") == 1
    });
    assert!(server.log().contains("A segment of the tier is damaged"));
    assert_eq!(ask(&mut client, &["GET", "key:19"]), "s".repeat(10_000));
}

#[test]
fn a_slow_rate_of_reading_again_can_be_changed_at_once() {
    let args = ["--maxmemory", "100mb", "--tier-segment-size", "64kb"];
    let server = start(&[&args[..], &["--tier-scrub", "1"]].concat());
    let mut client = server.client().unwrap();
    for number in 0..20 {
        set_cold(&mut client, &format!("key:{number}"), &"s".repeat(10_000));
    }
    eventually("the first segment is read", || {
        figure(&mut client, "tier_scrubbed") > 0
    });
    // At one byte per second, the next segment would be read tomorrow.
    ask(&mut client, &["CONFIG", "SET", "tier-scrub", "100mb"]);
    eventually("all segments are read", || {
        figure(&mut client, "tier_scrubbed") > 12
    });
}

#[test]
fn one_client_that_sends_many_requests_has_their_values_read_together() {
    both_ways(|_, client| {
        ask(client, &["CONFIG", "SET", "tier-promotion", "never"]);
        let value = |number: u32| format!("{number:05}").repeat(100);
        for number in 0..300 {
            set_cold(client, &format!("key:{number}"), &value(number));
        }
        let gets = (0..300).map(|number| ["GET".to_owned(), format!("key:{number}")]);
        let replies = client.pipeline(&gets.collect::<Vec<_>>()).unwrap();
        for (number, reply) in (0..300).zip(&replies) {
            assert_eq!(show(reply).trim_matches('"'), value(number));
        }
        // One read each, and none by a worker.
        assert_eq!(figure(client, "tier_blocking_reads"), 0);
        let reads = figure(client, "tier_reads");
        assert!((300..=330).contains(&reads), "{reads}");
    });
}

/// Values are read where they are needed, with a key held, while rings have pending reads of other
/// requests.
#[test]
fn requests_that_name_their_keys_too_late_are_answered_beside_many_others() {
    both_ways(|server, client| {
        ask(client, &["CONFIG", "SET", "tier-promotion", "never"]);
        for number in 0..200 {
            set_cold(client, &format!("key:{number}"), &"v".repeat(2_000));
        }
        let mut others: Vec<_> = (0..8).map(|_| server.client().unwrap()).collect();
        for number in 0..200 {
            for other in &mut others {
                other.send(&["GET", &format!("key:{number}")]).unwrap();
            }
        }
        for number in 0..200 {
            let script = format!("return #redis.call('GET', 'key:{number}')");
            assert_eq!(ask(client, &["EVAL", &script, "0"]), ":2000");
        }
        for other in &mut others {
            for _ in 0..200 {
                let reply = show(&other.receive().unwrap().unwrap());
                assert_eq!(reply.trim_matches('"').len(), 2_000);
            }
        }
        assert_eq!(figure(client, "tier_reads_pending"), 0);
    });
}

#[test]
fn how_values_are_read_is_told_and_stays_as_it_was_at_the_start() {
    let server = start(&["--maxmemory", "100mb", "--tier-io", "threads"]);
    let mut client = server.client().unwrap();
    assert!(ask(&mut client, &["INFO", "tier"]).contains("tier_io:threads"));
    for directive in ["tier-io", "tier-read-depth"] {
        let told = ask(&mut client, &["CONFIG", "SET", directive, "1"]);
        assert!(told.starts_with('-'), "{told}");
    }
    let told = ServerBuilder::iolite()
        .args(&["--tier-path", ".", "--maxmemory", "100mb"])
        .args(&["--tier-io", "pigeons"])
        .start();
    assert!(told.is_err());
}

#[test]
fn overwriting_goes_on_in_a_tier_of_which_most_is_in_use() {
    let small = ["--tier-max-size", "20mb", "--tier-segment-size", "1mb"];
    let args = [
        "--maxmemory",
        "16mb",
        "--save",
        "",
        "--tier-promotion",
        "never",
    ];
    let server = start(&[&args[..], &small[..]].concat());
    let mut client = server.client().unwrap();
    let value = |key: u32, round: u32| format!("{key:06}:{round:03}").repeat(100);
    let mut rounds = vec![0; 16_000];
    let mut random = base::random::Prng::seeded(5);
    let mut write = |writes: Vec<(u32, u32)>| {
        let sets = writes
            .iter()
            .map(|(key, round)| ["SET".to_owned(), format!("key:{key}"), value(*key, *round)]);
        for reply in client.pipeline(&sets.collect::<Vec<_>>()).unwrap() {
            assert_eq!(show(&reply), "+OK");
        }
    };
    for first in (0..16_000).step_by(100) {
        write((first..first + 100).map(|key| (key, 0)).collect());
    }
    for round in 1..300 {
        let mut keys: Vec<_> = (0..100).map(|_| random.index(16_000)).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            rounds[*key] = round;
        }
        let number = |key: usize| u32::try_from(key).unwrap();
        write(keys.into_iter().map(|key| (number(key), round)).collect());
    }
    assert!(figure(&mut client, "tier_compacted_bytes") > 0);
    for (key, round) in rounds.iter().enumerate().step_by(7) {
        let key = u32::try_from(key).unwrap();
        let told = ask(&mut client, &["GET", &format!("key:{key}")]);
        assert_eq!(told, value(key, *round));
    }
}
