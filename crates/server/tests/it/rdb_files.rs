//! RDB files compared with Redis: its files are loaded here, Redis loads files exported here, and
//! both then hold the same data.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use base::clock::SystemClock;
use durability::disk::SystemDisk;
use persistence::environment::Environment;
use persistence::export::{ExportOptions, export_rdb};
use persistence::import::import_rdb;
use protocol::Value;
use store::{Options, Store};
use testkit::client::Client;
use testkit::differential::{difference, full_state};
use testkit::process::{Server, ServerBuilder, iolite_program};

/// Returns a server without clients.
pub(super) fn environment() -> Environment {
    let store = Store::new(&Options { databases: 16 }).unwrap();
    let mut env = Environment::new(testkit::table(), store, Arc::new(SystemClock::new()));
    env.threads = 2;
    env
}

pub(super) fn run(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split_whitespace().collect();
    let reply = client.command(&words).unwrap();
    assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    reply
}

/// Writes all types in all their encodings, in several databases.
pub(super) fn fill(client: &mut Client) {
    let long = "x".repeat(100);
    let lines = [
        "SET text hello".to_owned(),
        "SET number 12345".into(),
        "SET negative -7".into(),
        "SET large 9223372036854775807".into(),
        format!("SET compressed {}", "abc".repeat(5_000)),
        "SET gone soon PX 1".into(),
        "SET later on EX 5000".into(),
        "RPUSH list a 1 b".into(),
        format!("RPUSH longlist {long}"),
        "SADD ints 1 2 300000 -5".into(),
        "SADD few a b 3".into(),
        format!("SADD table {long} b c"),
        "ZADD small 1 a 2.5 b -inf c inf d".into(),
        format!("ZADD tree 0.1 {long} 3.0000000000000004 b -0 z"),
        "HSET fields f v g 2".into(),
        format!("HSET wide {long} 1 b 2"),
        "EXPIRE wide 4000".into(),
        "XADD stream 5-1 a 1 b 2".into(),
        "XADD stream 5-2 a 1 b 3".into(),
        "XADD stream 7-0 other 1".into(),
        "XDEL stream 5-2".into(),
        "XGROUP CREATE stream group 0".into(),
        "XREADGROUP GROUP group one COUNT 1 STREAMS stream >".into(),
        "XGROUP CREATECONSUMER stream group two".into(),
        "PFADD loglog a b c".into(),
        "SELECT 9".into(),
        "SET text elsewhere".into(),
        "SETBIT bits 4000 1".into(),
    ];
    for line in &lines {
        run(client, line);
    }
    for number in 0..3_000 {
        run(client, &format!("SET key:{number} value:{number}"));
        run(client, &format!("RPUSH many element:{number}"));
        run(client, &format!("HSET map field:{number} {number}"));
        run(client, &format!("ZADD ranks {number}.5 member:{number}"));
        run(client, &format!("XADD log {}-1 name {number}", number + 1));
    }
    run(client, "SELECT 0");
}

/// Returns all keys with values and times, and the state of the stream's groups.
pub(super) fn state(server: &Server) -> (Value, Vec<Value>) {
    let mut client = server.client().unwrap();
    let state = full_state(&mut client).unwrap();
    run(&mut client, "SELECT 0");
    let of_stream = [
        "XPENDING stream group",
        "XINFO GROUPS stream",
        "XLEN stream",
        "XINFO CONSUMERS stream group",
    ];
    let mut replies: Vec<_> = of_stream
        .iter()
        .map(|line| run(&mut client, line))
        .collect();
    // The idle time of consumers is not part of the state.
    if let Some(Value::Array(consumers)) = replies.last_mut() {
        for consumer in consumers {
            if let Value::Array(parts) = consumer {
                parts.truncate(4);
            }
        }
    }
    (state, replies)
}

/// Starts Redis with a copy of this file as its data.
pub(super) fn redis_over(file: &Path) -> Server {
    let directory = file.parent().unwrap().to_str().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    ServerBuilder::oracle()
        .args(&["--dir", directory, "--dbfilename", name])
        .start()
        .unwrap()
}

fn export(env: &Environment, path: &Path, version: u16, compresses: bool) {
    let options = ExportOptions {
        version: Some(version),
        compresses,
        sums_up: true,
    };
    let exported = export_rdb(env, &SystemDisk, path, options).unwrap();
    assert_eq!(exported.version, version);
}

#[test]
fn what_redis_saves_comes_back_to_it_the_same() {
    for args in [
        vec![],
        vec!["--rdbcompression", "no", "--rdbchecksum", "no"],
    ] {
        let redis = ServerBuilder::oracle().args(&args).start().unwrap();
        fill(&mut redis.client().unwrap());
        run(&mut redis.client().unwrap(), "SAVE");
        let saved = redis.directory().join("dump.rdb");
        let env = environment();
        let loaded = import_rdb(&env, &saved).unwrap();
        assert_eq!(loaded.version, 10);
        assert_eq!(loaded.is_summed, args.is_empty());
        // Redis itself changes the encoding of some strings after loading them.
        let before = state(&redis_over(&saved));
        for version in [9, 10] {
            let written = redis.directory().join(format!("written-{version}.rdb"));
            export(&env, &written, version, args.is_empty());
            let other = redis_over(&written);
            let after = state(&other);
            // The first version of streams does not record what was deleted and read.
            if version > 9 {
                assert_eq!(after.1, before.1);
            }
            assert_eq!(difference(&before.0, &after.0), None, "version {version}");
        }
    }
}

#[test]
fn an_export_has_what_is_only_in_the_log() {
    let redis = ServerBuilder::oracle().start().unwrap();
    let data = redis.directory().join("data");
    std::fs::create_dir(&data).unwrap();
    let out = redis.directory().join("out.rdb");
    let [data, out] = [&data, &out].map(|path| path.to_str().unwrap());
    let server = ServerBuilder::iolite().args(&["--dir", data, "--appendonly", "yes"]);
    let server = server.start().unwrap();
    let mut client = server.client().unwrap();
    for line in [
        "SET a 1",
        "SELECT 3",
        "SADD s x y",
        "SET gone 1",
        "DEL gone",
    ] {
        run(&mut client, line);
    }
    let (code, text) = iolite(&["export", out, "--dir", data]);
    assert_eq!(code, Some(1), "a server has the data: {text}");
    // The server is killed without notice.
    drop(server);
    let (code, text) = iolite(&["export", out, "--dir", data]);
    assert_eq!(code, Some(0), "{text}");
    let other = redis_over(Path::new(out));
    let mut client = other.client().unwrap();
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
    run(&mut client, "SELECT 3");
    assert_eq!(run(&mut client, "DBSIZE"), Value::Integer(1));
    assert_eq!(run(&mut client, "SCARD s"), Value::Integer(2));
}

#[test]
fn check_tells_what_is_in_a_file() {
    let redis = ServerBuilder::oracle().start().unwrap();
    let mut client = redis.client().unwrap();
    for line in [
        "SET a 1",
        "SET b 2 EX 900",
        "RPUSH l 1",
        "SELECT 3",
        "ZADD z 1 a",
        "SAVE",
    ] {
        run(&mut client, line);
    }
    let saved = redis.directory().join("dump.rdb");
    let check = |path: &Path| {
        let done = Command::new(iolite_program())
            .arg("check")
            .arg(path)
            .output();
        let done = done.unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, text) = check(&saved);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "RDB version 10, ",
        "redis-ver: 7",
        "database 0: 3 keys, 1 with a deadline: 1 list, 2 string\n",
        "database 3: 1 keys, 0 with a deadline: 1 zset\n  OK\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let whole = std::fs::read(&saved).unwrap();
    let cut = redis.directory().join("cut.rdb");
    std::fs::write(&cut, &whole[..whole.len() - 9]).unwrap();
    let (code, text) = check(&cut);
    assert_eq!(code, Some(1));
    let damage = format!(
        "DAMAGED: at offset {}: it ends too early\n",
        whole.len() - 9
    );
    assert!(text.ends_with(&damage), "{text}");
}

/// Runs the built program with these words. Returns its exit code and its output.
pub(super) fn iolite(words: &[&str]) -> (Option<i32>, String) {
    let done = Command::new(iolite_program()).args(words).output().unwrap();
    let printed = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
fn a_file_goes_into_a_directory_and_out_of_it_again() {
    let redis = ServerBuilder::oracle().start().unwrap();
    fill(&mut redis.client().unwrap());
    run(&mut redis.client().unwrap(), "SAVE");
    let saved = redis.directory().join("dump.rdb");
    let data = redis.directory().join("data");
    std::fs::create_dir(&data).unwrap();
    let out = redis.directory().join("out.rdb");
    let [saved, data, out] = [&saved, &data, &out].map(|path| path.to_str().unwrap());
    let (code, text) = iolite(&["export", out, "--dir", data]);
    assert_eq!(code, Some(1), "there is nothing yet: {text}");
    let (code, text) = iolite(&["import", saved, "--dir", data]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = iolite(&["import", "--dir", data, saved]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("there is data already"), "{text}");
    let (code, text) = iolite(&["export", "--dir", data, out, "--rdb-version", "10"]);
    assert_eq!(code, Some(0), "{text}");
    let before = state(&redis_over(Path::new(saved)));
    let after = state(&redis_over(Path::new(out)));
    assert_eq!(difference(&before.0, &after.0), None);
    assert_eq!(before.1, after.1);
    let (code, text) = iolite(&["check", data]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("  database 0: 17 keys\n"), "{text}");
    assert!(text.contains("  database 9: "), "{text}");
    let (code, text) = iolite(&["export", out, "--dir", data, "--rdb-version", "8"]);
    assert_eq!(code, Some(1), "{text}");
    // If there is no data of our own, that of Redis is exported: to a file of another version.
    let other = redis.directory().to_str().unwrap();
    let (code, text) = iolite(&["export", out, "--dir", other, "--rdb-version", "12"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = iolite(&["check", out]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("RDB version 12, "), "{text}");
    let part = std::fs::read_dir(Path::new(data).join("iolite-data")).unwrap();
    let part = part.map(|entry| entry.unwrap().path());
    let part = part
        .filter(|path| path.is_dir())
        .map(|path| path.join("0000.part"));
    let part = part.last().unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    for path in [Path::new(data), &part] {
        let (code, text) = iolite(&["check", path.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("DAMAGED: ") && text.contains("0000.part"),
            "{text}"
        );
    }
}
