//! Histories of four clients: for each, a checker must find one order of all operations that
//! explains it.
//!
//! The clients send single commands, commands on several keys, transactions, and transactions that
//! watch keys, to few keys. Their requests and replies are recorded with moments in one order. The
//! checker and its model of a server are the Go program in `tests/linearizability`. Histories of
//! clients that break one rule show that the checker would notice: each of these is what a server
//! with that bug would produce.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use base::random::Prng;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

use crate::ledger::number_from;
use crate::programs::{packages, run};

const HISTORIES: u64 = 12;
const OPERATIONS: usize = 10_000;
const CLIENTS: usize = 4;
const KEYS: u64 = 5;

/// The rule that clients break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Transactions are sent as single commands: as if EXEC took no locks.
    NoLocks,
    /// No key is watched.
    NoWatch,
    /// The last of the keys to watch is not watched.
    ForgetsAKey,
}

/// A client that records its history.
struct Recorder<'c> {
    number: usize,
    client: Client,
    clock: &'c AtomicU64,
    random: Prng,
    bug: Bug,
    history: String,
    /// Number of operations recorded.
    count: usize,
}

#[test]
#[ignore = "needs Go and a module: cargo xtask soak linearizability"]
fn histories_are_linearizable() {
    let checker = Checker::build();
    let server = start();
    let mut paths = Vec::new();
    let first = number_from("LINEARIZABILITY_SEED", 0);
    for seed in first..first + HISTORIES {
        paths.push(record(&server, seed, Bug::None));
    }
    let (is_good, said) = checker.check(&paths);
    println!("{said}");
    assert!(is_good, "{said}");
    assert_eq!(said.matches("operations: Ok").count(), paths.len());
}

#[test]
#[ignore = "needs Go and a module: cargo xtask soak linearizability"]
fn planted_bugs_are_caught() {
    let checker = Checker::build();
    let server = start();
    for bug in [Bug::NoLocks, Bug::NoWatch, Bug::ForgetsAKey] {
        let (is_good, said) = checker.check(&[record(&server, 1, bug)]);
        println!("{bug:?}: {said}");
        assert!(
            !is_good && said.contains("operations: Illegal"),
            "{bug:?}: {said}"
        );
    }
}

fn start() -> Server {
    ServerBuilder::iolite()
        .args(&["--threads", "4"])
        .start()
        .unwrap()
}

/// The program that checks histories.
struct Checker(PathBuf);

impl Checker {
    fn build() -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linearizability");
        let directory = packages("linearizability");
        for file in ["main.go", "model.go", "go.mod"] {
            fs::copy(sources.join(file), directory.join(file)).unwrap();
        }
        // Checksums are written beside the copy. The repository does not need them.
        let go = |words: &[&str]| run(Command::new("go").args(words).current_dir(&directory));
        go(&["mod", "tidy"]);
        go(&["build", "-o", "checker", "."]);
        Self(directory.join("checker"))
    }

    /// Returns whether all histories are linearizable, and the checker's output.
    fn check(&self, histories: &[PathBuf]) -> (bool, String) {
        let output = Command::new(&self.0).args(histories).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    }
}

/// Records a history of an empty server in a file.
fn record(server: &Server, seed: u64, bug: Bug) -> PathBuf {
    server.client().unwrap().command(&["FLUSHALL"]).unwrap();
    let clock = AtomicU64::new(0);
    let histories: Vec<String> = std::thread::scope(|scope| {
        let start = |number: usize| {
            let mut recorder = Recorder {
                number,
                client: server.client().unwrap(),
                clock: &clock,
                random: Prng::seeded(seed * 100 + number as u64),
                bug,
                history: String::new(),
                count: 0,
            };
            scope.spawn(move || {
                while recorder.count < OPERATIONS / CLIENTS {
                    recorder.act();
                }
                recorder.history
            })
        };
        let threads: Vec<_> = (0..CLIENTS).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let path = packages("linearizability").join(format!("{bug:?}-{seed}.jsonl"));
    fs::write(&path, histories.concat()).unwrap();
    path
}

impl Recorder<'_> {
    /// Runs a random operation.
    fn act(&mut self) {
        match self.below(10) {
            0..4 => {
                let command = self.single();
                self.ask("run", &command);
            }
            4..6 => {
                let command = self.several();
                self.ask("run", &command);
            }
            6..8 => self.transaction(),
            _ => self.watching(),
        }
    }

    /// Runs a transaction that watches keys, reads them and writes.
    fn watching(&mut self) {
        let (first, second) = (self.key(), self.key());
        let watch = format!("WATCH {first} {second}");
        match self.bug {
            Bug::NoWatch => self.pretend("watch", &watch, "PING"),
            Bug::ForgetsAKey => self.pretend("watch", &watch, &format!("WATCH {first}")),
            Bug::None | Bug::NoLocks => self.ask("watch", &watch),
        }
        self.ask("run", &format!("GET {first}"));
        if self.below(10) == 0 {
            self.ask("unwatch", "UNWATCH");
        }
        self.transaction();
    }

    /// Runs several commands as one transaction.
    fn transaction(&mut self) {
        let mut commands = Vec::new();
        if self.below(100) == 0 {
            // So many commands that the transaction is offloaded.
            commands = vec![format!("INCR {}", self.key()); 1100];
        }
        for _ in 0..=self.below(4) {
            commands.push(if self.below(3) == 0 {
                self.several()
            } else {
                self.single()
            });
        }
        if self.bug == Bug::NoLocks {
            let call = self.now();
            let each = commands.iter().map(|line| send(&mut self.client, line));
            let reply = format!("[{}]", each.collect::<Vec<_>>().join(", "));
            return self.note("exec", &commands, call, &reply);
        }
        let begin = ["MULTI".to_owned()];
        let lines = begin.iter().chain(&commands);
        let lines: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).collect();
        let queued: Vec<&[&str]> = lines.iter().map(Vec::as_slice).collect();
        self.client.pipeline(&queued).unwrap();
        let call = self.now();
        let reply = send(&mut self.client, "EXEC");
        self.note("exec", &commands, call, &reply);
    }

    /// Returns a command on one key.
    fn single(&mut self) -> String {
        let (key, value) = (self.key(), self.below(100));
        match self.below(7) {
            0..2 => format!("GET {key}"),
            2 => format!("SET {key} {value}"),
            3 => format!("GETSET {key} {value}"),
            4 => format!("SETNX {key} {value}"),
            5 => format!("INCR {key}"),
            _ => format!("DEL {key}"),
        }
    }

    /// Returns a command on several keys, or all.
    fn several(&mut self) -> String {
        let (one, other, value) = (self.key(), self.key(), self.below(100));
        match self.below(40) {
            0 => "FLUSHDB".to_owned(),
            1..3 => "DBSIZE".to_owned(),
            3..15 => format!("MGET {one} {other} key0"),
            15..25 => format!("MSET {one} {value} {other} {value}"),
            25..30 => format!("DEL {one} {other}"),
            30..36 => format!("RENAME {one} {other}"),
            _ if one == other => format!("GET {one}"),
            _ => format!("COPY {one} {other} REPLACE"),
        }
    }

    fn ask(&mut self, kind: &str, line: &str) {
        self.pretend(kind, line, line);
    }

    /// Sends one line and records another one.
    fn pretend(&mut self, kind: &str, told: &str, sent: &str) {
        let call = self.now();
        let reply = send(&mut self.client, sent).replace("PONG", "OK");
        self.note(kind, &[told.to_owned()], call, &reply);
    }

    /// Records an operation that returns now.
    fn note(&mut self, kind: &str, commands: &[String], call: u64, reply: &str) {
        let end = self.now();
        let quoted = |line: &String| {
            let words: Vec<String> = line.split(' ').map(|word| format!("{word:?}")).collect();
            format!("[{}]", words.join(","))
        };
        let commands: Vec<String> = commands.iter().map(quoted).collect();
        let (client, commands) = (self.number, commands.join(","));
        let written = writeln!(
            self.history,
            "{{\"client\":{client},\"call\":{call},\"return\":{end},\"kind\":{kind:?},\
             \"commands\":[{commands}],\"reply\":{reply:?}}}"
        );
        written.unwrap();
        self.count += 1;
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn key(&mut self) -> String {
        format!("key{}", self.below(KEYS))
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.next_u64() % most
    }
}

fn send(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    show(&client.command(&words).unwrap())
}
