//! Append-only files compared with Redis: its logs are loaded here, Redis starts from files
//! exported here, and both then hold the same data.

use std::fs;
use std::path::Path;
use std::process::Command;

use durability::disk::SystemDisk;
use persistence::aof::{AofFault, Flaw, Loaded, Source, export_aof, load};
use persistence::environment::Environment;
use persistence::export::ExportOptions;
use persistence::replay::ReplayFault;
use protocol::Value;
use testkit::client::Client;
use testkit::differential::difference;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, iolite_program};

use crate::rdb_files::{self, environment, fill, iolite, run, state};

const DIRECTORY: &str = "appendonlydir";
const FILE: &str = "appendonly.aof";

/// A directory that is removed after the test.
struct Scratch(TemporaryDirectory);

impl Scratch {
    fn new() -> Self {
        Self(TemporaryDirectory::new("aof").unwrap())
    }

    /// Writes a single-file log with these bytes.
    fn single(&self, bytes: &[u8]) -> Source {
        let path = self.0.join(FILE);
        fs::write(&path, bytes).unwrap();
        Source::at(&path).unwrap()
    }
}

fn redis(args: &[&str]) -> Server {
    let log = ["--appendonly", "yes", "--appendfsync", "no"];
    let builder = ServerBuilder::oracle().args(&log).args(args);
    builder.start().unwrap()
}

/// Starts Redis with the log in this directory.
fn redis_over(directory: &Path) -> Server {
    redis(&["--dir", directory.to_str().unwrap()])
}

fn find(directory: &Path) -> Source {
    let found = Source::find(directory, Path::new(DIRECTORY), Path::new(FILE));
    found.unwrap().unwrap()
}

/// Runs transactions, and commands that Redis logs differently from how they were sent.
fn change(client: &mut Client) {
    for line in [
        "SELECT 2",
        "SADD set a b c d e f g",
        "SPOP set 3",
        "SET short 1 PX 60000",
        "GETEX short PX 90000",
        "INCRBYFLOAT float 0.1",
        "HSET hash f 1",
        "HINCRBYFLOAT hash f 1.5",
        "PFADD pf a b c",
        "PFCOUNT pf",
        "MULTI",
        "SET in multi GET",
        "SELECT 5",
        "LPUSH list 1 2 3",
        "RPOPLPUSH list other",
        "EXEC",
        "LMPOP 2 none list RIGHT COUNT 2",
        "RENAME other another",
        "MOVE another 2",
        "COPY another copied DB 6",
        "SWAPDB 6 7",
        "SELECT 0",
        "XADD stream MAXLEN ~ 2 * f v",
        "XREADGROUP GROUP group two COUNT 2 STREAMS stream >",
        "XAUTOCLAIM stream group one 0 0 COUNT 1",
        "XACK stream group 5-1",
        "ZADD zs 1 a 2 b 3 c",
        "ZPOPMIN zs",
        "SORT list ALPHA STORE sorted",
        "EXPIRE number 5000",
        "DEL text",
    ] {
        run(client, line);
    }
}

fn rewrite(client: &mut Client) {
    run(client, "BGREWRITEAOF");
    loop {
        let Value::Bulk(info) = run(client, "INFO persistence") else {
            panic!("no text");
        };
        let info = String::from_utf8(info).unwrap();
        let is_on = |name: &str| info.contains(&format!("aof_rewrite_{name}:1"));
        if !is_on("in_progress") && !is_on("scheduled") {
            assert!(info.contains("aof_last_bgrewrite_status:ok"), "{info}");
            return;
        }
    }
}

fn export(env: &Environment, directory: &Path) {
    let options = ExportOptions {
        version: None,
        compresses: true,
        sums_up: true,
    };
    let exported = export_aof(
        env,
        &SystemDisk,
        directory,
        "appendonly.aof".as_ref(),
        options,
    )
    .unwrap();
    assert_eq!(exported.version, 10);
}

#[test]
fn what_redis_logs_comes_back_to_it_the_same() {
    for (args, rewrites) in [
        (&["--aof-timestamp-enabled", "yes"][..], false),
        (&["--aof-timestamp-enabled", "yes"], true),
        (&["--aof-use-rdb-preamble", "no"], true),
    ] {
        let written = redis(args);
        let mut client = written.client().unwrap();
        fill(&mut client);
        if rewrites {
            rewrite(&mut client);
        }
        change(&mut client);
        let env = environment();
        let source = find(written.directory());
        let loaded = load(&env, &source, false).unwrap();
        assert_eq!(loaded.replayed.failed, 0, "{loaded:?}");
        assert_eq!(loaded.left_out, None);
        let has_base_records = rewrites && args[0] != "--aof-use-rdb-preamble";
        assert_eq!(loaded.base_keys > 3000, has_base_records, "{loaded:?}");
        let scratch = Scratch::new();
        export(&env, &scratch.0.join(DIRECTORY));
        let after = state(&redis_over(&scratch.0));
        // Redis itself changes the encoding of some strings after loading them from records.
        let copy = copy_of(written.directory());
        run(&mut redis_over(&copy.0).client().unwrap(), "SAVE");
        let before = state(&rdb_files::redis_over(&copy.0.join("dump.rdb")));
        assert_eq!(difference(&before.0, &after.0), None, "{args:?} {rewrites}");
        assert_eq!(after.1, before.1);
    }
}

/// Copies the log from the directory of a server.
fn copy_of(directory: &Path) -> Scratch {
    let copy = Scratch::new();
    fs::create_dir(copy.0.join(DIRECTORY)).unwrap();
    for entry in fs::read_dir(directory.join(DIRECTORY)).unwrap() {
        let from = entry.unwrap().path();
        let to = copy.0.join(DIRECTORY).join(from.file_name().unwrap());
        fs::copy(from, to).unwrap();
    }
    copy
}

#[test]
fn single_files_are_loaded_with_records_in_front_and_without() {
    let written = redis(&["--databases", "16"]);
    let mut client = written.client().unwrap();
    run(&mut client, "SET a 1");
    run(&mut client, "EXPIRE a 1000");
    rewrite(&mut client);
    run(&mut client, "SELECT 3");
    run(&mut client, "APPEND b 2");
    run(&mut client, "APPEND b 3");
    let files = find(written.directory()).files;
    let parts: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let scratch = Scratch::new();
    let env = environment();
    let loaded = load(&env, &scratch.single(&parts.concat()), false).unwrap();
    assert_eq!((loaded.base_keys, loaded.replayed.commands), (1, 2));
    let env = environment();
    let found = find(&scratch.0);
    assert_eq!(found.files, [scratch.0.join(FILE)]);
    fs::write(&found.files[0], parts.last().unwrap()).unwrap();
    let loaded = load(&env, &found, false).unwrap();
    assert_eq!((loaded.base_keys, loaded.replayed.commands), (0, 2));
}

fn encoded(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        protocol::encode_request(&mut bytes, &words);
    }
    bytes
}

/// Loads a single file with these bytes and returns the result.
fn load_bytes(bytes: &[u8], accepts_short: bool) -> Result<Loaded, AofFault> {
    let scratch = Scratch::new();
    load(&environment(), &scratch.single(bytes), accepts_short)
}

#[test]
fn a_tail_that_is_cut_off_is_left_out_or_refused() {
    let whole = encoded(&["SELECT 1", "SET a 1"]);
    let transaction = encoded(&["MULTI", "SET b 1", "SET c 1", "EXEC"]);
    let bytes = [whole.clone(), transaction].concat();
    for end in whole.len() + 1..bytes.len() {
        let loaded = load_bytes(&bytes[..end], true).unwrap();
        let (_, offset) = loaded.left_out.unwrap();
        let expected = (whole.len() as u64, 1);
        assert_eq!((offset, loaded.replayed.commands), expected, "{end}");
    }
    assert_eq!(load_bytes(&bytes, false).unwrap().replayed.commands, 3);
    let fault = load_bytes(&bytes[..bytes.len() - 1], false).unwrap_err();
    let at = whole.len() as u64;
    let is_expected = |offset: u64, is_last: bool| offset == at && is_last;
    assert!(
        matches!(fault.flaw, Flaw::Short { offset, is_last } if is_expected(offset, is_last)),
        "{fault}"
    );
    assert!(fault.to_string().contains("aof-load-truncated yes"));
}

#[test]
fn what_is_damaged_unknown_or_out_of_place_is_refused_where_it_stands() {
    let good = encoded(&["SET a 1"]);
    let at = good.len() as u64;
    let load = |behind: &[u8]| {
        let bytes = [good.as_slice(), behind].concat();
        load_bytes(&bytes, true).unwrap_err().flaw
    };
    for zeroes in [1, 100, 5000] {
        let flaw = load(&vec![0; zeroes]);
        assert!(
            matches!(flaw, Flaw::Damaged(offset) if offset == at),
            "{flaw}"
        );
    }
    for line in ["NOSUCH a", "SHUTDOWN", "EXEC", "CONFIG SET maxmemory 1"] {
        let flaw = load(&encoded(&[line]));
        let is_it = matches!(&flaw, Flaw::Request { offset, .. } if *offset == at);
        assert!(is_it, "{flaw}");
    }
    let flaw = load(&encoded(&["SELECT 16"]));
    let is_it =
        matches!(flaw, Flaw::Replay(ReplayFault::NoDatabase { position, .. }) if position == at);
    assert!(is_it, "{flaw}");
    // A failing command is noted, and those after it are applied.
    let loaded = load_bytes(&encoded(&["SET a x", "INCR a", "SET b 1"]), false).unwrap();
    assert_eq!((loaded.replayed.commands, loaded.replayed.failed), (3, 1));
    assert_eq!(loaded.replayed.failures[0].position, at);
}

#[test]
fn only_the_last_file_of_a_directory_may_be_short() {
    let scratch = Scratch::new();
    let directory = scratch.0.join(DIRECTORY);
    fs::create_dir(&directory).unwrap();
    let first = encoded(&["SET a 1", "SET b 1"]);
    fs::write(directory.join("one"), &first[..first.len() - 3]).unwrap();
    fs::write(directory.join("two"), &first[..first.len() - 3]).unwrap();
    let manifest = directory.join(format!("{FILE}.manifest"));
    fs::write(&manifest, "file one seq 1 type b\nfile two seq 1 type i\n").unwrap();
    let fault = load(&environment(), &find(&scratch.0), true).unwrap_err();
    assert_eq!(fault.file, directory.join("one"));
    assert!(
        matches!(fault.flaw, Flaw::Short { is_last: false, .. }),
        "{fault}"
    );
    fs::write(&manifest, "file two seq 1 type i\n").unwrap();
    let loaded = load(&environment(), &Source::at(&directory).unwrap(), true).unwrap();
    assert_eq!(loaded.replayed.commands, 1);
    fs::write(&manifest, "file none seq 1 type i\n").unwrap();
    let fault = load(&environment(), &find(&scratch.0), true).unwrap_err();
    assert_eq!(fault.file, directory.join("none"));
    fs::write(&manifest, "nonsense\n").unwrap();
    let fault = Source::find(&scratch.0, Path::new(DIRECTORY), Path::new(FILE)).unwrap_err();
    assert!(matches!(fault.flaw, Flaw::Manifest(_)), "{fault}");
}

#[test]
fn a_log_is_not_exported_over_another() {
    let scratch = Scratch::new();
    export(&environment(), &scratch.0);
    let options = ExportOptions {
        version: Some(10),
        compresses: true,
        sums_up: true,
    };
    let again = export_aof(
        &environment(),
        &SystemDisk,
        &scratch.0,
        "appendonly.aof".as_ref(),
        options,
    )
    .unwrap_err();
    assert!(
        again
            .to_string()
            .contains("there is an append-only log already"),
        "{again}"
    );
}

fn check(path: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(iolite_program());
    let done = command.arg("check").arg(path).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    (done.status.code(), text)
}

#[test]
fn check_tells_what_is_in_a_log() {
    let written = redis(&[]);
    let mut client = written.client().unwrap();
    run(&mut client, "SET a 1");
    rewrite(&mut client);
    for line in ["SELECT 3", "MULTI", "SET b 2", "SET c 3", "EXEC", "DEL b"] {
        run(&mut client, line);
    }
    let directory = written.directory().join(DIRECTORY);
    let (code, text) = check(&directory);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        ".base.rdb\n  RDB version 10, ",
        "database 0: 1 keys, 0 with a deadline: 1 string\n  OK\n",
        ".incr.aof\n  ",
        " bytes of requests\n  database 3: 3 commands\n  OK\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let files = find(written.directory()).files;
    let parts: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let scratch = Scratch::new();
    let single = scratch.single(&parts.concat()).files.remove(0);
    let (code, text) = check(&single);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("database 0: 1 keys") && text.contains("database 3: 3 commands"));
    let whole = parts.concat();
    fs::write(&single, &whole[..whole.len() - 1]).unwrap();
    let (code, text) = check(&single);
    assert_eq!(code, Some(1));
    let offset = whole.len() - encoded(&["DEL b"]).len();
    let damage = format!("DAMAGED: at offset {offset}: the file ends within a request");
    assert!(text.contains(&damage), "{text}");
    fs::remove_file(&files[0]).unwrap();
    assert_eq!(check(&directory).0, Some(1));
    assert_eq!(check(&scratch.0).0, Some(1));
}

#[test]
fn a_log_goes_into_a_directory_and_out_of_it_again() {
    let written = redis(&[]);
    let mut client = written.client().unwrap();
    fill(&mut client);
    change(&mut client);
    let scratch = Scratch::new();
    let (data, out) = (scratch.0.join("data"), scratch.0.join("out"));
    for directory in [&data, &out] {
        fs::create_dir(directory).unwrap();
    }
    let log = written.directory().join(DIRECTORY);
    let to = out.join(DIRECTORY);
    let [log, data, to] = [&log, &data, &to].map(|path| path.to_str().unwrap());
    let (code, text) = iolite(&["import", log, "--dir", data]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = iolite(&["export", "--aof", to, "--dir", data]);
    assert_eq!(code, Some(0), "{text}");
    let after = state(&redis_over(&out));
    let copy = copy_of(written.directory());
    run(&mut redis_over(&copy.0).client().unwrap(), "SAVE");
    let before = state(&rdb_files::redis_over(&copy.0.join("dump.rdb")));
    assert_eq!(difference(&before.0, &after.0), None);
    assert_eq!(after.1, before.1);
    assert_eq!(check(&out.join(DIRECTORY)).0, Some(0));
}
