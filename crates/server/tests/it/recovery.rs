//! Tests of starts with a log: what is recovered, what is refused and how, and switching the log on
//! and off at run time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, temporary_directory};

/// A directory that is removed after its test.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        Self(temporary_directory("recovery").unwrap())
    }

    pub(crate) fn builder(&self, args: &[&str]) -> ServerBuilder {
        let dir = self.0.to_str().unwrap();
        let own = ["--dir", dir, "--log-segment-size", "64kb"];
        ServerBuilder::iolite().args(&own).args(args)
    }

    pub(crate) fn server(&self, level: &str) -> Server {
        self.builder(&["--durability", level]).start().unwrap()
    }

    /// Returns the message of a server that does not start.
    pub(crate) fn refusal(&self, level: &str) -> String {
        match self.builder(&["--durability", level]).start() {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it started"),
        }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.join("iolite-data")
    }

    /// Returns the files of the log, oldest first.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        files_of(&self.data().join("log"), "log")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _may_be_gone = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn files_of(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory)
        .unwrap()
        .map(|it| it.unwrap().path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .collect();
    paths.sort();
    paths
}

pub(crate) fn run(client: &mut Client, line: &str) -> Value {
    let words: Vec<&str> = line.split(' ').collect();
    client.command(&words).unwrap()
}

pub(crate) fn fill(client: &mut Client, keys: std::ops::Range<u32>) {
    for key in keys {
        let name = format!("key:{key}");
        let value = "v".repeat(1_000) + &key.to_string();
        assert_eq!(
            client.command(&["SET", &name, &value]).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    }
}

pub(crate) fn keys_count(client: &mut Client) -> Value {
    run(client, "DBSIZE")
}

/// Kills a server at once, and waits until it is gone.
pub(crate) fn kill(server: Server) {
    drop(server);
}

/// Waits until the client's writes survive any failure.
pub(crate) fn wait_until_kept(client: &mut Client) {
    let patience = Patience::of(Duration::from_secs(60));
    let kept = Value::Array(vec![Value::Integer(1), Value::Integer(0)]);
    while run(client, "WAITAOF 1 0 100") != kept {
        assert!(patience.lasts(), "it is never kept");
    }
}

/// Changes one byte of a file.
pub(crate) fn flip(path: &Path, offset: usize) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    bytes[offset] ^= 1;
    fs::write(path, bytes)
}

/// Returns the file that holds the value that [`fill`] gave a key, and a position in the middle of
/// the value. The lengths of log files and the starts of their blocks depend on timing, and the
/// bytes between blocks may be anything.
pub(crate) fn place_of(key: &str, files: &[PathBuf]) -> (PathBuf, usize) {
    let mut places = files.iter().filter_map(|path| {
        let bytes = fs::read(path).unwrap();
        let mut windows = bytes.windows(key.len());
        let key_at = windows.position(|it| it == key.as_bytes())?;
        Some((path.clone(), key_at + 500))
    });
    places.next().expect("some file has the key")
}

#[test]
fn what_is_in_the_log_comes_back() {
    let directory = Directory::new();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    for part in 0..5 {
        fill(&mut client, part * 100..(part + 1) * 100);
        wait_until_kept(&mut client);
    }
    run(&mut client, "DEL key:7");
    run(&mut client, "SELECT 3");
    run(&mut client, "RPUSH list a b c");
    run(&mut client, "PEXPIRE list 1000000");
    assert!(directory.segments().len() > 3, "files are turned");
    kill(server);

    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(499));
    run(&mut client, "SELECT 3");
    assert_eq!(run(&mut client, "LLEN list"), Value::Integer(3));
    assert!(matches!(run(&mut client, "PTTL list"), Value::Integer(1..)));
    // Once more, from a checkpoint and the log after it.
    assert!(matches!(run(&mut client, "SAVE"), Value::Simple(_)));
    assert!(directory.segments().len() < 3, "what is kept twice goes");
    run(&mut client, "RPUSH list d");
    kill(server);
    let server = directory.server("always");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(499));
    run(&mut client, "SELECT 3");
    assert_eq!(run(&mut client, "LLEN list"), Value::Integer(4));
}

#[test]
fn damage_is_told_with_its_place_and_nothing_is_served() {
    let directory = Directory::new();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    fill(&mut client, 0..100);
    assert!(matches!(run(&mut client, "SAVE"), Value::Simple(_)));
    // The second batch records in the log that the first one is durable.
    for keys in [100..400, 400..401] {
        fill(&mut client, keys);
        assert!(matches!(run(&mut client, "WAITAOF 1 0 0"), Value::Array(_)));
    }
    fill(&mut client, 401..500);
    kill(server);

    let segments = directory.segments();
    let (middle, place) = &place_of("key:250", &segments);
    flip(middle, *place).unwrap();
    let refusal = directory.refusal("everysec");
    let name = middle.file_name().unwrap().to_str().unwrap();
    for told in [name, "is damaged at offset", "sequence"] {
        assert!(refusal.contains(told), "{told:?} in {refusal}");
    }
    flip(middle, *place).unwrap();

    let [checkpoint] = &*fs::read_dir(directory.data())
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains("checkpoint-"))
        .collect::<Vec<_>>()
    else {
        panic!("there is one checkpoint");
    };
    let parts = files_of(checkpoint, "part");
    let part = parts
        .iter()
        .max_by_key(|path| path.metadata().unwrap().len());
    let part = part.unwrap();
    let name = part.file_name().unwrap().to_str().unwrap();
    flip(part, 1_000).unwrap();
    let refusal = directory.refusal("everysec");
    assert!(refusal.contains(name), "{refusal}");
    flip(part, 1_000).unwrap();

    let aside = part.with_extension("aside");
    fs::rename(part, &aside).unwrap();
    let refusal = directory.refusal("everysec");
    assert!(refusal.contains(name), "{refusal}");
    fs::rename(&aside, part).unwrap();

    let missing = &segments[1];
    let aside = missing.with_extension("aside");
    fs::rename(missing, &aside).unwrap();
    let refusal = directory.refusal("everysec");
    assert!(refusal.contains("damaged"), "{refusal}");
    fs::rename(&aside, missing).unwrap();

    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(500));
}

#[test]
fn a_log_can_be_begun_and_ended_while_it_is_written_to() {
    let directory = Directory::new();
    let server = directory.server("checkpoint");
    let mut client = server.client().unwrap();
    fill(&mut client, 0..100);
    let begun = run(&mut client, "CONFIG SET appendonly yes");
    assert_eq!(begun, Value::Simple(b"OK".to_vec()));
    fill(&mut client, 100..200);
    wait_until_kept(&mut client);
    fill(&mut client, 200..300);
    kill(server);

    let server = directory.server("os");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(300));
    // Data written without a log is there as far as it was saved.
    let ended = run(&mut client, "CONFIG SET durability checkpoint");
    assert_eq!(ended, Value::Simple(b"OK".to_vec()));
    // The previous log has not ended yet: the next one begins after it.
    for level in ["everysec", "checkpoint", "os", "checkpoint", "everysec"] {
        let changed = run(&mut client, &format!("CONFIG SET durability {level}"));
        assert_eq!(changed, Value::Simple(b"OK".to_vec()));
    }
    fill(&mut client, 300..400);
    wait_until_kept(&mut client);
    run(&mut client, "FLUSHALL");
    run(&mut client, "SET last 1");
    kill(server);
    let server = directory.server("os");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(1));
}

/// A start that finds the next log does not skip what was written while there was no log.
#[test]
fn there_is_no_gap_between_two_logs() {
    for pause_ms in [0, 3, 10, 30, 100, 300] {
        let directory = Directory::new();
        let server = directory.server("everysec");
        let mut client = server.client().unwrap();
        run(&mut client, "SET first 1");
        run(&mut client, "CONFIG SET appendonly no");
        run(&mut client, "SET between 1");
        let begun = run(&mut client, "CONFIG SET appendonly yes");
        assert_eq!(begun, Value::Simple(b"OK".to_vec()));
        run(&mut client, "SET behind 1");
        std::thread::sleep(Duration::from_millis(pause_ms));
        run(&mut client, "SET last 1");
        kill(server);
        let server = directory.server("everysec");
        let mut client = server.client().unwrap();
        let names = ["last", "behind", "between", "first"];
        let there = names.map(|name| run(&mut client, &format!("EXISTS {name}")));
        let there = there.map(|value| value == Value::Integer(1));
        assert!(there.is_sorted() && there[3], "{names:?}: {there:?}");
    }
}

#[test]
fn files_of_redis_are_taken_in_and_kept_in_our_own_way() {
    let directory = Directory::new();
    let dir = directory.0.to_str().unwrap();
    let oracle = ServerBuilder::oracle().args(&["--dir", dir, "--save", "100 1"]);
    let oracle = oracle.start().unwrap();
    let mut client = oracle.client().unwrap();
    fill(&mut client, 0..50);
    run(&mut client, "SAVE");
    drop(oracle);
    assert!(directory.0.join("dump.rdb").exists());

    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(50));
    run(&mut client, "SET more 1");
    kill(server);
    // From now on the old file does not count.
    fs::remove_file(directory.0.join("dump.rdb")).unwrap();
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(51));
}
