//! Tests of the binary's tools with servers: their output as a person or a script sees it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, iolite_program, temporary_directory};

fn started() -> (Server, String) {
    let server = ServerBuilder::iolite()
        .args(&["--enable-debug-command", "yes"])
        .tcp()
        .start()
        .unwrap();
    let port = server.address().unwrap().port().to_string();
    (server, port)
}

pub(crate) fn tool(words: &[&str]) -> Output {
    Command::new(iolite_program())
        .args(words)
        .env_remove("IOLITE_AUTH")
        .env_remove("REDISCLI_AUTH")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns the standard output of a tool that succeeds.
fn told(words: &[&str]) -> String {
    let output = tool(words);
    assert!(output.status.success(), "{words:?} {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the client's standard output for these lines, and its exit code.
fn lines(port: &str, words: &[&str], input: &[u8]) -> (String, Option<i32>) {
    let mut client = Command::new(iolite_program())
        .args(["cli", "-p", port])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(input).unwrap();
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (text, output.status.code())
}

fn fill(port: &str, words: &[&str]) {
    let mut all = vec!["cli", "-p", port];
    all.extend(words);
    told(&all);
}

#[test]
fn the_client_answers_people_scripts_and_programs() {
    let (_server, port) = started();
    let cli = |words: &[&str]| {
        let mut all = vec!["cli", "-p", &port];
        all.extend(words);
        told(&all)
    };
    assert_eq!(cli(&["SET", "a", "x\"y"]), "OK\n");
    assert_eq!(cli(&["GET", "a"]), "x\"y\n");
    assert_eq!(cli(&["--no-raw", "GET", "a"]), "\"x\\\"y\"\n");
    cli(&["HSET", "h", "f", "1"]);
    assert_eq!(cli(&["--json", "HGETALL", "h"]), "{\"f\":\"1\"}\n");
    assert_eq!(cli(&["--csv", "HMGET", "h", "f", "g"]), "\"1\",NULL\n");
    assert_eq!(cli(&["-r", "3", "INCR", "n"]), "1\n2\n3\n");
    let (text, code) = lines(&port, &[], b"SET b 2\nGET b\n\nNOSUCH\n");
    assert!(text.starts_with("OK\n2\nERR unknown command"), "{text}");
    assert_eq!(code, Some(0));
    let (_, code) = lines(&port, &["-e"], b"NOSUCH\nGET b\n");
    assert_eq!(code, Some(1));
    let (text, _) = lines(&port, &["-x", "SET", "last"], b"of input");
    assert_eq!(text, "OK\n");
    assert_eq!(cli(&["GET", "last"]), "of input\n");
    let mut keys: Vec<String> = cli(&["--scan"]).lines().map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b", "h", "last", "n"]);
    let refused = tool(&["cli", "-p", "1", "PING"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn a_pipe_of_requests_ends_with_the_last_reply() {
    let (_server, port) = started();
    let mut requests = Vec::new();
    for number in 0..20_000 {
        requests.extend_from_slice(format!("SET key:{number} {number}\r\n").as_bytes());
    }
    let (text, code) = lines(&port, &["--pipe"], &requests);
    assert!(text.ends_with("errors: 0, replies: 20000\n"), "{text}");
    assert_eq!(code, Some(0));
    let (text, code) = lines(&port, &["--pipe"], b"NOSUCH\r\nPING\r\n");
    assert!(text.ends_with("errors: 1, replies: 2\n"), "{text}");
    assert_eq!(code, Some(1));
}

/// The timeout counts for each reply, not for all of them together.
#[test]
fn a_pipe_waits_for_as_long_as_replies_come() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut input = Vec::new();
        let mut piece = [0; 4096];
        // The last request is an ECHO of 20 bytes, from which the reply is made.
        let echo = loop {
            let count = stream.read(&mut piece).unwrap();
            input.extend_from_slice(&piece[..count]);
            let at = input.windows(5).position(|part| part == b"$20\r\n");
            match at.map(|at| &input[at..]) {
                Some(echo) if echo.len() == 27 => break echo.to_vec(),
                _ => {}
            }
        };
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(400));
            stream.write_all(b"+PONG\r\n").unwrap();
        }
        stream.write_all(&echo).unwrap();
    });
    let requests = b"PING\r\n".repeat(10);
    let (text, code) = lines(&port, &["--pipe", "--pipe-timeout", "3"], &requests);
    server.join().unwrap();
    assert!(text.ends_with("errors: 0, replies: 10\n"), "{text}");
    assert_eq!(code, Some(0));
}

/// Scripts read the output of `redis-cli --bigkeys`, so ours has to be the same.
#[test]
fn the_biggest_keys_are_told_as_redis_cli_tells_them() {
    let (_server, port) = started();
    fill(&port, &["SET", "s", "abc"]);
    fill(&port, &["RPUSH", "l", "1", "2"]);
    fill(&port, &["ZADD", "z", "1", "a"]);
    fill(&port, &["XADD", "x", "*", "f", "v"]);
    for flag in ["--bigkeys", "--memkeys"] {
        let own = told(&["cli", "-p", &port, flag]);
        let other = Command::new("redis-cli").args(["-p", &port, flag]).output();
        let Ok(other) = other else {
            return;
        };
        let other = String::from_utf8(other.stdout).unwrap();
        // In redis-cli, types are in the order of a hash table.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&own), sorted(&other), "{flag}");
    }
}

#[test]
fn a_frame_tells_what_the_server_does() {
    let (_server, port) = started();
    let text = told(&["top", "-p", &port, "--once", "-i", "0.1"]);
    assert!(text.contains("iolite") && text.contains("memory"), "{text}");
    let text = told(&["top", "-p", &port, "--once", "--json", "-i", "0.2"]);
    let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(frame["replication"]["role"], "master");
    assert!(frame["interval_s"].as_f64().unwrap() >= 0.2, "{text}");
    assert_eq!(frame["commands"][0]["name"], "info");
}

#[test]
fn a_doctor_tells_programs_too() {
    let (_server, port) = started();
    let output = tool(&["doctor", "-p", &port, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["code"].as_i64(), output.status.code().map(i64::from));
    let rules: Vec<&str> = told["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|found| found["rule"].as_str())
        .collect();
    assert!(rules.contains(&"memory-unlimited"), "{rules:?}");
}

/// A checkpoint, an RDB file and the running server report about the same sizes.
#[test]
fn an_analysis_of_files_agrees_with_the_server() {
    let (server, port) = started();
    for number in 0..300 {
        let key = format!("user:{number}");
        fill_quietly(&port, &key, 10 + number);
    }
    fill(&port, &["RPUSH", "jobs:a", "1", "2", "3"]);
    fill(&port, &["SET", "session:1", "x", "EX", "30"]);
    fill(&port, &["SAVE"]);
    let directory = server.directory().to_str().unwrap().to_owned();
    let live = analysis(&["--live", "-p", &port]);
    let checkpoint = analysis(&[&directory]);
    let file = temporary_directory("analyze").unwrap().join("dump.rdb");
    let dump = Command::new("redis-cli")
        .args(["-p", &port, "--rdb", file.to_str().unwrap()])
        .output();
    let dumped = dump.is_ok_and(|output| output.status.success());
    let mut others = vec![checkpoint];
    if dumped {
        others.push(analysis(&[file.to_str().unwrap()]));
    }
    let _removed = std::fs::remove_dir_all(file.parent().unwrap());
    let bytes = live["bytes"].as_f64().unwrap();
    for other in others {
        assert_eq!(other["keys"], live["keys"]);
        let of_other = other["bytes"].as_f64().unwrap();
        assert!((of_other / bytes - 1.0).abs() < 0.02, "{of_other} {bytes}");
        assert_eq!(other["prefixes"][0]["name"], "user:");
        assert_eq!(other["ttl"][0]["keys"], 1);
    }
}

/// A checkpoint does not contain values that are in a tier, but describes them.
#[test]
fn an_analysis_knows_values_that_are_in_a_tier() {
    let server = ServerBuilder::iolite()
        .args(&["--tier-path", ".", "--maxmemory", "100mb"])
        .args(&["--enable-debug-command", "yes"])
        .tcp()
        .start()
        .unwrap();
    let port = server.address().unwrap().port().to_string();
    fill_quietly(&port, "text:1", 5_000);
    let elements: Vec<String> = (0..1_000).map(|number| format!("{number:0>20}")).collect();
    let mut push = vec!["RPUSH", "list:1"];
    push.extend(elements.iter().map(String::as_str));
    fill(&port, &push);
    fill(&port, &["SET", "hot:1", "x"]);
    for key in ["text:1", "list:1"] {
        let demoted = told(&["cli", "-p", &port, "DEBUG", "DEMOTE", key]);
        assert_eq!(demoted, "1\n", "{key}");
    }
    fill(&port, &["SAVE"]);
    let live = analysis(&["--live", "-p", &port]);
    let checkpoint = analysis(&[server.directory().to_str().unwrap()]);
    assert_eq!(checkpoint["keys"], live["keys"]);
    let counts = |told: &serde_json::Value| -> Vec<serde_json::Value> {
        let types = told["types"].as_array().unwrap().iter();
        let counts = types.map(|of| serde_json::json!([of["name"], of["keys"], of["elements"]]));
        counts.collect()
    };
    assert_eq!(counts(&checkpoint), counts(&live));
    // The values take no memory.
    assert!(checkpoint["bytes"].as_u64() < Some(500), "{checkpoint}");
}

/// What a log contains after its base, or after a checkpoint, is counted separately.
#[test]
fn an_analysis_tells_what_logs_have() {
    let log = ["--appendonly", "yes"];
    let builders = [ServerBuilder::iolite(), ServerBuilder::oracle()];
    for builder in builders {
        let Ok(server) = builder.args(&log).tcp().start() else {
            // There is no redis-server.
            continue;
        };
        let port = server.address().unwrap().port().to_string();
        fill_quietly(&port, "kept:1", 1_000);
        fill_quietly(&port, "kept:2", 1_000);
        match server.name() {
            "iolite" => fill(&port, &["SAVE"]),
            _ => {
                fill(&port, &["BGREWRITEAOF"]);
                crate::limits::eventually("rewritten", || {
                    let info = told(&["cli", "-p", &port, "INFO", "persistence"]);
                    info.contains("aof_rewrite_in_progress:0")
                        && info.contains("aof_rewrite_scheduled:0")
                });
            }
        }
        for _ in 0..3 {
            fill_quietly(&port, "later:1", 100);
        }
        fill(&port, &["-n", "2", "RPUSH", "list:1", "a"]);
        fill(&port, &["DEL", "kept:1"]);
        let directory = server.directory().to_str().unwrap().to_owned();
        let stopped = tool(&["cli", "-p", &port, "SHUTDOWN", "NOSAVE"]);
        crate::limits::eventually("it has ended", || {
            !tool(&["cli", "-p", &port, "PING"]).status.success()
        });
        let told = analysis(&[&directory]);
        let written = &told["written"];
        assert_eq!(told["keys"], 2, "{stopped:?} {told}");
        assert_eq!(written["writes"], 5, "{told}");
        assert_eq!(written["prefixes"][0]["name"], "later:");
        assert_eq!(written["prefixes"][0]["writes"], 3);
        assert_eq!(written["keys"][0]["key"], "later:1");
        let text = self::told(&["analyze", &directory]);
        assert!(text.contains("WRITTEN AFTER THAT: 5 commands"), "{text}");
        let csv = self::told(&["analyze", &directory, "--csv"]);
        assert!(csv.contains("\n\"kept:\",2,"), "{csv}");
        assert!(csv.contains("\n\"later:\",0,0,0,3,"), "{csv}");
        let page = self::told(&["analyze", &directory, "--html"]);
        assert!(page.contains("Most written"), "{page}");
    }
}

/// A server that writes no base has a single file of requests, here truncated within a request.
#[test]
fn an_analysis_reads_a_plain_append_only_file() {
    let directory = temporary_directory("analyze-aof").unwrap();
    let file = directory.join("appendonly.aof");
    let request = "*3\r\n$3\r\nSET\r\n$3\r\na:1\r\n$1\r\nx\r\n";
    std::fs::write(&file, format!("{request}{request}*3\r\n$3\r\nSET")).unwrap();
    let path = file.to_str().unwrap();
    let told = analysis(&[path]);
    std::fs::write(&file, format!("{request}nonsense")).unwrap();
    let refused = tool(&["analyze", path]);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(
        (&told["keys"], &told["written"]["writes"]),
        (&0.into(), &2.into())
    );
    let source = told["source"].as_str().unwrap();
    assert!(
        source.ends_with("ends within the request at 58"),
        "{source}"
    );
    let refused = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.contains("at offset 29: this is no request"),
        "{refused}"
    );
}

fn analysis(words: &[&str]) -> serde_json::Value {
    let mut all = vec!["analyze", "--json"];
    all.extend(words);
    serde_json::from_str(&told(&all)).unwrap()
}

fn fill_quietly(port: &str, key: &str, len: usize) {
    fill(port, &["SET", key, &"x".repeat(len)]);
}

struct Pair {
    _source: Server,
    _target: Server,
    from: String,
    to: String,
    ports: [String; 2],
    directory: PathBuf,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

fn pair(name: &str) -> Pair {
    let ((source, from), (target, to)) = (started(), started());
    Pair {
        _source: source,
        _target: target,
        ports: [from.clone(), to.clone()],
        from: format!("127.0.0.1:{from}"),
        to: format!("127.0.0.1:{to}"),
        directory: temporary_directory(name).unwrap(),
    }
}

impl Pair {
    fn migrate(&self, words: &[&str]) -> (serde_json::Value, Option<i32>) {
        let mut all = vec!["migrate", &self.from, &self.to, "--json", "-q"];
        all.extend(words);
        let output = tool(&all);
        let told = serde_json::from_slice(&output.stdout);
        (told.unwrap_or_default(), output.status.code())
    }

    fn digests(&self) -> [String; 2] {
        [0, 1].map(|at| told(&["cli", "-p", &self.ports[at], "DEBUG", "DIGEST"]))
    }

    fn is_same(&self) -> bool {
        let [source, target] = self.digests();
        source == target
    }

    fn state(&self) -> String {
        self.directory.join("state").to_str().unwrap().to_owned()
    }
}

#[test]
fn a_migration_copies_compares_and_repairs() {
    let pair = pair("migrate");
    let [from, to] = [pair.ports[0].as_str(), pair.ports[1].as_str()];
    fill(from, &["DEBUG", "POPULATE", "3000", "key", "30"]);
    for words in [
        &["RPUSH", "l", "1", "2"][..],
        &["HSET", "h", "a", "1", "b", "2"],
        &["HPEXPIREAT", "h", "4000000000000", "FIELDS", "1", "a"],
        &["XADD", "x", "1-1", "f", "v"],
        &["XGROUP", "CREATE", "x", "g", "0"],
        &["SET", "ttl", "v", "PXAT", "4000000000000"],
        &["-n", "3", "SADD", "s", "a", "b"],
    ] {
        fill(from, words);
    }
    let (told, code) = pair.migrate(&["--compare"]);
    assert_eq!(
        (told["copied"].as_u64(), code),
        (Some(3005), Some(0)),
        "{told}"
    );
    assert!(pair.is_same());
    // A target that has keys is not changed.
    assert_eq!(pair.migrate(&[]).1, Some(2));
    // Changed, missing and added keys are found and corrected.
    fill(to, &["SET", "key:1", "other"]);
    fill(to, &["DEL", "key:2"]);
    fill(to, &["SET", "added", "x"]);
    fill(to, &["PERSIST", "ttl"]);
    let (told, code) = pair.migrate(&["--compare-only"]);
    assert_eq!(
        (told["differing"].as_u64(), code),
        (Some(4), Some(1)),
        "{told}"
    );
    let (told, code) = pair.migrate(&["--compare-only", "--repair"]);
    assert_eq!(
        (told["repaired"].as_u64(), code),
        (Some(4), Some(0)),
        "{told}"
    );
    assert!(pair.is_same());
}

/// Keys that change meanwhile are copied again, and no deleted key returns.
#[test]
fn a_migration_follows_what_changes_meanwhile() {
    let pair = pair("migrate-follow");
    let from = pair.ports[0].clone();
    fill(&from, &["DEBUG", "POPULATE", "20000", "key", "30"]);
    let mut requests = Vec::new();
    for number in 0..30_000_u32 {
        let at = number.wrapping_mul(2_654_435_761) % 20_000;
        let line = match number % 4 {
            0 => format!("SET key:{at} {number}\r\n"),
            1 => format!("DEL key:{at}\r\n"),
            2 => format!("HSET hash:{} f{} {number}\r\n", at % 50, at % 7),
            _ => format!("SET key:{at} {number} PX {}\r\n", 1 + at % 3_000),
        };
        requests.extend_from_slice(line.as_bytes());
    }
    let writer = std::thread::spawn(move || lines(&from, &["--pipe"], &requests));
    let (told, code) = pair.migrate(&["--follow-for", "4", "--count", "50", "--rate", "20000"]);
    assert_eq!(code, Some(0), "{told}");
    writer.join().unwrap();
    // Keys expire by themselves on both sides, but not at the same instant.
    crate::limits::eventually("both are the same", || pair.is_same());
    let events = [
        "cli",
        "-p",
        &pair.ports[0],
        "CONFIG",
        "GET",
        "notify-keyspace-events",
    ];
    assert_eq!(self::told(&events), "notify-keyspace-events\n\n");
}

/// Keys that do not match the pattern belong to the target, even if they change at the source.
#[test]
fn a_migration_follows_no_other_keys_than_it_copies() {
    let pair = pair("migrate-pattern");
    let [from, to] = pair.ports.clone();
    fill(&from, &["SET", "a:1", "source"]);
    fill(&to, &["SET", "b:1", "target"]);
    fill(&to, &["SET", "b:2", "target"]);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                fill(&from, &["SET", "b:1", "source"]);
                fill(&from, &["SET", "b:2", "source"]);
                fill(&from, &["DEL", "b:2"]);
            }
        }
    });
    let words = ["--pattern", "a:*", "--replace", "--follow-for", "2"];
    let (told, code) = pair.migrate(&words);
    is_over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert_eq!(code, Some(0), "{told}");
    let get = |key| self::told(&["cli", "-p", &to, "GET", key]);
    assert_eq!(
        ["a:1", "b:1", "b:2"].map(get),
        ["source\n", "target\n", "target\n"]
    );
}

#[test]
fn a_migration_goes_on_where_it_was_killed() {
    let pair = pair("migrate-kill");
    fill(&pair.ports[0], &["DEBUG", "POPULATE", "20000", "key", "30"]);
    let state = pair.state();
    for _ in 0..3 {
        let mut migration = Command::new(iolite_program())
            .args(["migrate", &pair.from, &pair.to, "--state", &state])
            .args(["--rate", "20000", "--count", "100", "-q"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        crate::limits::eventually("something is copied", || Path::new(&state).exists());
        std::thread::sleep(Duration::from_millis(50));
        migration.kill().unwrap();
        migration.wait().unwrap();
    }
    let (told, code) = pair.migrate(&["--state", &state, "--compare"]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["differing"].as_u64(), Some(0));
    assert!(pair.is_same());
}

/// A rate applies to what this run copies. The run does not wait for what was copied before.
#[test]
fn a_migration_that_goes_on_keeps_to_its_rate_at_once() {
    let pair = pair("migrate-rate");
    fill(&pair.ports[0], &["DEBUG", "POPULATE", "300", "key", "30"]);
    let state = pair.state();
    let port = pair.ports[0].as_str();
    let info = told(&["cli", "-p", port, "INFO", "server"]);
    let process = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let process = process.unwrap().trim();
    let text = format!(
        "iolite migrate 2\n{} {}\ntarget empty\nwalk 0 {process} 0 2400000\n",
        pair.from, pair.to
    );
    std::fs::write(&state, text).unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    let (told, code) = pair.migrate(&["--state", &state, "--rate", "20000", "--count", "10"]);
    assert_eq!(
        (told["copied"].as_u64(), code),
        (Some(300), Some(0)),
        "{told}"
    );
    // At this rate, everything that the file names would take two minutes.
    assert!(patience.lasts());
}

/// A cursor is only valid in the process that returned it: another process keeps its keys in
/// another order.
#[test]
fn a_migration_begins_anew_at_a_source_that_was_started_anew() {
    let pair = pair("migrate-restarted");
    fill(&pair.ports[0], &["DEBUG", "POPULATE", "300", "key", "30"]);
    let state = pair.state();
    let text = format!(
        "iolite migrate 2\n{} {}\ntarget empty\nwalk 0 {} done 300\n",
        pair.from,
        pair.to,
        "0".repeat(40)
    );
    std::fs::write(&state, text).unwrap();
    let (told, code) = pair.migrate(&["--state", &state]);
    assert_eq!(
        (told["copied"].as_u64(), code),
        (Some(300), Some(0)),
        "{told}"
    );
}

/// A migration fails if the source does not report what it has.
#[test]
fn a_migration_needs_to_be_told_what_there_is() {
    let mut pair = pair("migrate-refused");
    fill(&pair.ports[0], &["SET", "a", "1"]);
    let rules = ["ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-info"];
    fill(&pair.ports[0], &rules);
    pair.from = format!("redis://u:p@{}", pair.from);
    assert_eq!(pair.migrate(&[]).1, Some(2));
    let words = ["analyze", "--live", "-u", &pair.from];
    assert!(!tool(&words).status.success());
}

#[test]
fn a_migration_by_replication_hands_over() {
    let pair = pair("migrate-replicate");
    fill(&pair.ports[0], &["DEBUG", "POPULATE", "500", "key", "30"]);
    let done = told(&["migrate", &pair.from, &pair.to, "--replicate", "-q"]);
    assert!(done.contains("has all that it has"), "{done}");
    assert!(pair.is_same());
}

/// Programs get the same information as people.
#[test]
fn a_check_tells_programs_which_file_is_damaged() {
    let directory = temporary_directory("check-json").unwrap();
    let [good, bad] = ["good.aof", "bad.aof"].map(|name| directory.join(name));
    std::fs::write(&good, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n").unwrap();
    std::fs::write(&bad, "*3\r\n\"nonsense\r\n").unwrap();
    let paths = [good.to_str().unwrap(), bad.to_str().unwrap()];
    let output = tool(&["check", "--json", paths[0], paths[1]]);
    std::fs::remove_dir_all(&directory).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(told["is_good"], false);
    assert_eq!(told["files"][0]["path"], paths[0]);
    assert_eq!(told["files"][0]["is_good"], true, "{told}");
    assert!(told["files"][0]["damage"].is_null());
    assert!(
        told["files"][1]["damage"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{told}"
    );
}

/// The output that scripts read has the same shape in both tools. Times and counts differ from run
/// to run.
#[test]
fn figures_are_told_as_redis_cli_tells_them() {
    let (_server, port) = started();
    fill(&port, &["SET", "s", "abc"]);
    let shape = |text: &str| -> String {
        let mut shape = String::new();
        for letter in text.chars() {
            // A number becomes one sign, and so does a run of blanks.
            let sign = if letter.is_ascii_digit() { '#' } else { letter };
            if !(matches!(sign, '#' | ' ') && shape.ends_with(sign)) {
                shape.push(sign);
            }
        }
        shape
    };
    for words in [
        &["--latency", "--raw"][..],
        &["--latency", "--csv"],
        &["--scan"],
        &["-D", ";", "--raw", "GET", "s"],
        &["--quoted-input", "--raw", "GET", "\"\\x73\""],
        &["--quoted-json", "GET", "s"],
    ] {
        let mut other = Command::new("redis-cli");
        let Ok(other) = other.args(["-p", &port]).args(words).output() else {
            return;
        };
        let other = String::from_utf8(other.stdout).unwrap();
        if other.contains("Unrecognized option") {
            continue;
        }
        let mut all = vec!["cli", "-p", &port];
        all.extend(words);
        assert_eq!(shape(&told(&all)), shape(&other), "{words:?}");
    }
    // The program runs until it is ended. One of our lines is compared with one of theirs.
    let first_lines = |program: &mut Command| -> Option<String> {
        let mut child = program
            .args(["-p", &port, "--stat", "-i", "0.01"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut text = Vec::new();
        let mut output = child.stdout.take()?;
        let mut byte = [0];
        while text.iter().filter(|byte| **byte == b'\n').count() < 4 {
            output.read_exact(&mut byte).ok()?;
            text.push(byte[0]);
        }
        child.kill().ok()?;
        child.wait().ok()?;
        String::from_utf8(text).ok()
    };
    let own = first_lines(Command::new(iolite_program()).arg("cli")).unwrap();
    let Some(other) = first_lines(&mut Command::new("redis-cli")) else {
        return;
    };
    let head = |text: &str| text.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(head(&own), head(&other));
    let columns = |text: &str| -> Vec<usize> {
        let line = text.lines().nth(3).unwrap_or_default();
        let starts = line
            .char_indices()
            .filter(|(at, letter)| *letter != ' ' && (*at == 0 || line[..*at].ends_with(' ')));
        starts.map(|(at, _)| at).collect()
    };
    assert_eq!(columns(&own), columns(&other), "{own}{other}");
}
