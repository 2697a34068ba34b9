//! Tests of `checkpoint-format rdb`: Redis loads the file that a save leaves beside its checkpoint.
//! This server does not start from that file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::differential::difference;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory};

use super::rdb_files::{fill, redis_over, run, state};

fn server(directory: &Path, more: &[&str]) -> Server {
    let dir = directory.to_str().unwrap();
    let args = [&["--dir", dir, "--save", ""], more].concat();
    ServerBuilder::iolite().args(&args).start().unwrap()
}

/// Waits until INFO contains this line.
fn wait_for(client: &mut Client, line: &str) {
    let patience = Patience::of(Duration::from_secs(60));
    while !info(client).lines().any(|one| one == line) {
        assert!(patience.lasts(), "no {line}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn info(client: &mut Client) -> String {
    let Value::Bulk(info) = run(client, "INFO persistence") else {
        panic!("INFO is a string");
    };
    String::from_utf8(info).unwrap()
}

fn refused(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    match client.command(&words).unwrap() {
        Value::Error(error) => String::from_utf8(error).unwrap(),
        other => panic!("{line}: {other:?}"),
    }
}

fn shut_down(server: &Server) {
    let mut client = server.client().unwrap();
    assert!(client.command(&["SHUTDOWN", "SAVE"]).is_err());
    let patience = Patience::of(Duration::from_secs(60));
    while server.socket().exists() {
        assert!(patience.lasts(), "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the data that Redis finds in a copy of the file, and the number in the key that records
/// when it was written.
fn found(file: &Path, copy: &Path) -> ((Value, Vec<Value>), Value) {
    fs::copy(file, copy).unwrap();
    let redis = redis_over(copy);
    let mut client = redis.client().unwrap();
    let mark = run(&mut client, "GET mark");
    run(&mut client, "DEL mark");
    (state(&redis), mark)
}

#[test]
fn however_a_save_comes_about_redis_loads_what_it_leaves() {
    let redis = ServerBuilder::oracle().start().unwrap();
    fill(&mut redis.client().unwrap());
    run(&mut redis.client().unwrap(), "SAVE");
    let saved = redis.directory().join("dump.rdb");
    let copy = redis.directory().join("copy.rdb");
    let (before, _) = found(&saved, &copy);
    let directory = TemporaryDirectory::new("rdb-beside").unwrap();
    let file = directory.join("dump.rdb");
    fs::copy(&saved, &file).unwrap();
    let server = server(&directory, &[]);
    let mut client = server.client().unwrap();
    wait_for(&mut client, "loading:0");
    let check = |mark: &str| {
        let (after, found) = found(&file, &copy);
        assert_eq!(found, Value::Bulk(mark.into()));
        assert_eq!(difference(&before.0, &after.0), None, "{mark}");
        assert_eq!(before.1, after.1, "{mark}");
    };
    let original = fs::read(&file).unwrap();
    run(&mut client, "SET mark 1");
    run(&mut client, "SAVE");
    assert_eq!(fs::read(&file).unwrap(), original, "nobody asked for it");
    run(&mut client, "CONFIG SET checkpoint-format rdb");
    run(&mut client, "BGREWRITEAOF");
    wait_for(&mut client, "aof_rewrites:1");
    assert_eq!(fs::read(&file).unwrap(), original, "that is no save");
    run(&mut client, "SET mark 2");
    run(&mut client, "SAVE");
    check("2");
    run(&mut client, "SET mark 3");
    run(&mut client, "BGSAVE");
    wait_for(&mut client, "rdb_saves:3");
    check("3");
    run(&mut client, "SET mark 4");
    let set = client.command(&["CONFIG", "SET", "save", "1 1"]).unwrap();
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
    wait_for(&mut client, "rdb_saves:4");
    check("4");
    run(&mut client, "CONFIG SET checkpoint-format iolite");
    run(&mut client, "SAVE");
    run(&mut client, "CONFIG SET checkpoint-format rdb");
    run(&mut client, "SET mark 5");
    shut_down(&server);
    check("5");
}

#[test]
fn a_start_takes_the_checkpoint_and_only_without_one_the_file() {
    let directory = TemporaryDirectory::new("rdb-start").unwrap();
    let asked = ["--checkpoint-format", "rdb"];
    let first = server(&directory, &asked);
    let mut client = first.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "SAVE");
    run(&mut client, "CONFIG SET checkpoint-format iolite");
    run(&mut client, "SET a 2");
    run(&mut client, "SAVE");
    drop((client, first));
    // The file is older than the checkpoint.
    let second = server(&directory, &asked);
    let mut client = second.client().unwrap();
    wait_for(&mut client, "loading:0");
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"2".to_vec()));
    drop((client, second));
    fs::remove_dir_all(directory.join("iolite-data")).unwrap();
    let third = server(&directory, &asked);
    let mut client = third.client().unwrap();
    wait_for(&mut client, "loading:0");
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
}

#[test]
fn with_a_log_the_file_is_there_and_the_log_counts() {
    let directory = TemporaryDirectory::new("rdb-log").unwrap();
    let asked = ["--checkpoint-format", "rdb", "--appendonly", "yes"];
    let first = server(&directory, &asked);
    let mut client = first.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "SAVE");
    run(&mut client, "SET a 2");
    drop((client, first));
    let redis = redis_over(&directory.join("dump.rdb"));
    let mut client = redis.client().unwrap();
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
    let second = server(&directory, &asked);
    let mut client = second.client().unwrap();
    wait_for(&mut client, "loading:0");
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"2".to_vec()));
}

#[test]
fn a_file_that_cannot_be_written_is_a_save_that_failed() {
    let directory = TemporaryDirectory::new("rdb-fails").unwrap();
    let file = directory.join("dump.rdb");
    let server = server(&directory, &["--checkpoint-format", "rdb"]);
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    // A file cannot replace a directory of that name.
    fs::create_dir(&file).unwrap();
    assert_eq!(refused(&mut client, "SAVE"), "ERR");
    wait_for(&mut client, "rdb_last_bgsave_status:err");
    run(&mut client, "BGSAVE");
    let told = format!("RDB file not saved: {}: ", file.display());
    let patience = Patience::of(Duration::from_secs(60));
    while server.log().matches(&told).count() < 2 {
        assert!(patience.lasts(), "{}", server.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for(&mut client, "rdb_bgsave_in_progress:0");
    assert!(!directory.join("temp-iolite.rdb").exists());
    assert!(directory.join("iolite-data/MANIFEST").exists());
    let set = client
        .command(&["CONFIG", "SET", "save", "3600 1"])
        .unwrap();
    assert_eq!(set, Value::Simple(b"OK".to_vec()));
    assert_eq!(refused(&mut client, "SAVE"), "ERR");
    assert!(refused(&mut client, "SET a 2").starts_with("MISCONF"));
    let shutdown = refused(&mut client, "SHUTDOWN");
    assert_eq!(shutdown, "ERR Errors trying to SHUTDOWN. Check logs.");
    fs::remove_dir(&file).unwrap();
    run(&mut client, "SAVE");
    wait_for(&mut client, "rdb_last_bgsave_status:ok");
    run(&mut client, "SET a 2");
    assert!(file.is_file());
}

#[test]
fn reloading_leaves_no_file() {
    let directory = TemporaryDirectory::new("rdb-reload").unwrap();
    let more = [
        "--checkpoint-format",
        "rdb",
        "--enable-debug-command",
        "yes",
    ];
    let server = server(&directory, &more);
    let mut client = server.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "DEBUG RELOAD");
    assert_eq!(run(&mut client, "GET a"), Value::Bulk(b"1".to_vec()));
    assert!(!directory.join("dump.rdb").exists());
}
