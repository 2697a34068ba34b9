//! Tests at every level with a log that no acknowledged write is lost when the process is killed,
//! and that nothing deleted returns.
//!
//! ```text
//!   writers ── numbered writes, in pipelines ──► server ──► kill -9, at any moment
//!      │ ledger: what was sent, what was acknowledged           │
//!      └───────────────── compared with ◄───────── started again, read
//! ```
//!
//! The writes of one client are in the log in its order. So after a restart, the data must be the
//! result of its first n writes, where n is at least the number of acknowledged writes and at most
//! the number of sent ones. A missing write in the middle, half a transaction, or an undone
//! deletion match no such n.
//!
//! `LEDGER_SEED` sets other moments than in CI, `LEDGER_CYCLES` and `TIER_KILLS` set their number;
//! [`soak`] writes a record:
//!
//! ```text
//! RECORD=target/kills.md cargo test --release -p server --test it ledger::soak \
//!     -- --ignored
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::random::Prng;
use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, temporary_directory};

const WRITERS_COUNT: u64 = 4;
const KEYS_PER_WRITER: u64 = 40;
const PIPELINE_MAX: u64 = 24;
const CYCLES_COUNT: u64 = 8;
const TIER_CYCLES_COUNT: u64 = 12;
/// Minimum average number of acknowledged writes per cycle, below which the test would prove
/// nothing.
const ACKNOWLEDGED_PER_CYCLE: u64 = 50;
/// Maximum time that the server lives after it answers.
const LIFE_MS_MAX: u64 = 250;

/// The effect of one write on one key: the write's number, and whether the key then exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    number: u64,
    is_there: bool,
}

/// All writes of one client.
pub(crate) struct Ledger {
    writer: u64,
    random: Prng,
    sent: u64,
    pub(crate) acknowledged: u64,
    /// Number of writes acknowledged before the server's current start.
    base: u64,
    /// The writes acknowledged since then, with their times on the monotonic clock.
    times: Vec<(u64, u64)>,
    clock: SystemClock,
    /// Whether the device fails before the server does: then errors end the writing.
    outlives_device: bool,
    /// The steps of each key, oldest first. Of earlier lives, only the last relevant step is kept.
    keys: BTreeMap<u64, Vec<Step>>,
}

/// One write.
struct Write {
    requests: Vec<Vec<Vec<u8>>>,
    steps: Vec<(u64, Step)>,
}

impl Ledger {
    pub(crate) fn new(writer: u64, seed: u64) -> Self {
        Self {
            writer,
            random: Prng::seeded(seed ^ writer),
            sent: 0,
            acknowledged: 0,
            base: 0,
            times: Vec::new(),
            clock: SystemClock::new(),
            outlives_device: false,
            keys: BTreeMap::new(),
        }
    }

    /// Prepares the ledger for a device that may fail before the server does.
    pub(crate) fn on_a_device(mut self) -> Self {
        self.outlives_device = true;
        self
    }

    /// Returns the number of writes acknowledged since the server's start.
    pub(crate) fn acknowledged_since_start(&self) -> u64 {
        self.acknowledged - self.base
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn name(&self, key: u64) -> Vec<u8> {
        format!("{}:{key}", self.writer).into_bytes()
    }

    /// Returns the next write.
    fn draw(&mut self) -> Write {
        let number = self.sent + 1;
        let key = self.below(KEYS_PER_WRITER);
        let there = |key| {
            let is_there = true;
            (key, Step { number, is_there })
        };
        let gone = |key| {
            let is_there = false;
            (key, Step { number, is_there })
        };
        let (name, value) = (self.name(key), number.to_string().into_bytes());
        let set = |name: Vec<u8>| vec![b"SET".to_vec(), name, value.clone()];
        match self.below(8) {
            0 => Write {
                requests: vec![vec![b"DEL".to_vec(), name]],
                steps: vec![gone(key)],
            },
            1 => {
                let other = (key + 1) % KEYS_PER_WRITER;
                Write {
                    requests: vec![
                        vec![b"MULTI".to_vec()],
                        set(name),
                        vec![b"DEL".to_vec(), self.name(other)],
                        vec![b"EXEC".to_vec()],
                    ],
                    steps: vec![there(key), gone(other)],
                }
            }
            2 => {
                let other = (key + 7) % KEYS_PER_WRITER;
                let mut request = set(name);
                request[0] = b"MSET".to_vec();
                request.extend([self.name(other), value.clone()]);
                Write {
                    requests: vec![request],
                    steps: vec![there(key), there(other)],
                }
            }
            3 => {
                let filler = vec![b'x'; usize::try_from(self.below(20_000)).unwrap()];
                let long = [value.clone(), b" ".to_vec(), filler].concat();
                Write {
                    requests: vec![vec![b"SET".to_vec(), name, long]],
                    steps: vec![there(key)],
                }
            }
            _ => Write {
                requests: vec![set(name)],
                steps: vec![there(key)],
            },
        }
    }

    /// Writes until the server is gone.
    fn write(&mut self, server: &Server, is_over: &AtomicBool) {
        let Ok(mut client) = server.client() else {
            return;
        };
        while !is_over.load(Ordering::Relaxed) {
            if self.write_some(&mut client).is_err() {
                return;
            }
        }
    }

    /// Sends one pipeline of writes.
    fn write_some(&mut self, client: &mut Client) -> io::Result<()> {
        let mut replies = Vec::new();
        for _ in 0..=self.below(PIPELINE_MAX) {
            let write = self.draw();
            self.sent += 1;
            for (key, step) in write.steps {
                self.keys.entry(key).or_default().push(step);
            }
            replies.push(write.requests.len());
            for request in &write.requests {
                client.send(request)?;
            }
        }
        for count in replies {
            for _ in 0..count {
                match client.receive()? {
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Some(Value::Error(_)) if self.outlives_device => {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                    Some(Value::Error(text)) => panic!("{}", text.escape_ascii()),
                    Some(_) => {}
                }
            }
            self.acknowledged += 1;
            self.times
                .push((self.acknowledged, self.clock.monotonic_ns()));
        }
        Ok(())
    }

    /// Compares the data with the writes, and drops the writes that were lost.
    fn compare(&mut self, client: &mut Client) {
        self.compare_from(client, self.acknowledged);
    }

    /// As `compare`, if acknowledged writes may be lost. Returns the times at which the lost ones
    /// were acknowledged.
    pub(crate) fn compare_with_window(&mut self, client: &mut Client) -> Vec<u64> {
        let times = std::mem::take(&mut self.times);
        let made = self.compare_from(client, self.base);
        let lost = times.into_iter().filter(|(number, _)| *number > made);
        lost.map(|(_, at_ns)| at_ns).collect()
    }

    /// Returns the number of writes in the data, and asserts that it is at least `lowest`.
    pub(crate) fn compare_from(&mut self, client: &mut Client, lowest: u64) -> u64 {
        let keys = self.keys.keys();
        let found: BTreeMap<u64, Option<u64>> = keys
            .map(|&key| {
                let get = [b"GET".to_vec(), self.name(key)];
                (key, number_of(client.command(&get).unwrap()))
            })
            .collect();
        let made = (lowest..=self.sent).rev().find(|&number| {
            let mut keys = self.keys.iter();
            keys.all(|(key, steps)| after(steps, number) == found[key])
        });
        let made = made.unwrap_or_else(|| self.fail(&found));
        (self.sent, self.acknowledged, self.base) = (made, made, made);
        self.times.clear();
        for steps in self.keys.values_mut() {
            steps.retain(|step| step.number <= made);
            steps.drain(..steps.len().saturating_sub(1));
        }
        made
    }

    fn fail(&self, found: &BTreeMap<u64, Option<u64>>) -> ! {
        let wrong: Vec<_> = self
            .keys
            .iter()
            .filter(|(key, steps)| after(steps, self.acknowledged) != found[key])
            .map(|(key, steps)| (key, found[key], steps))
            .collect();
        panic!(
            "lost, half applied or come back: writer {} had {} acknowledged of {} sent, but {wrong:?}",
            self.writer, self.acknowledged, self.sent
        );
    }
}

/// Returns what a key holds after this number of writes.
fn after(steps: &[Step], number: u64) -> Option<u64> {
    let last = steps.iter().rev().find(|step| step.number <= number)?;
    last.is_there.then_some(last.number)
}

/// Returns the number at the beginning of a value.
fn number_of(value: Value) -> Option<u64> {
    match value {
        Value::Bulk(bytes) => {
            let text = String::from_utf8(bytes).unwrap();
            Some(text.split(' ').next().unwrap().parse().unwrap())
        }
        Value::Null => None,
        other => panic!("{other:?}"),
    }
}

/// Starts a server on `directory`.
pub(crate) fn start(directory: &Path, level: &str) -> Server {
    start_with(directory, level, &[])
}

fn start_with(directory: &Path, level: &str, args: &[&str]) -> Server {
    let directory = directory.to_str().unwrap();
    let server = ServerBuilder::iolite().args(&[
        "--dir",
        directory,
        "--durability",
        level,
        "--log-segment-size",
        "256kb",
        "--threads",
        "2",
    ]);
    server.args(args).start().unwrap()
}

/// The results of a run.
#[derive(Debug, Default)]
struct Figures {
    cycles: u64,
    acknowledged: u64,
    /// Number of cycles that were killed while the server was still loading.
    killed_while_loading: u64,
    checkpoints: u64,
}

fn run(level: &str, args: &[&str], cycles: u64, seed: u64) -> Figures {
    let directory = temporary_directory("ledger").unwrap();
    let mut random = Prng::seeded(seed);
    let mut ledgers: Vec<_> = (0..WRITERS_COUNT)
        .map(|writer| Ledger::new(writer, seed))
        .collect();
    let mut figures = Figures::default();
    // On a slow machine, more cycles run until enough was written.
    let is_enough = |figures: &Figures| {
        figures.cycles >= cycles && figures.acknowledged > cycles * ACKNOWLEDGED_PER_CYCLE
    };
    while !is_enough(&figures) && figures.cycles < 20 * cycles {
        if random.below(4) == 0 {
            kill_while_starting(&directory, level, args, random.below(30));
            figures.killed_while_loading += 1;
        }
        let server = start_with(&directory, level, args);
        let mut client = server.client().unwrap();
        let before: u64 = ledgers
            .iter_mut()
            .map(|ledger| {
                ledger.compare(&mut client);
                ledger.acknowledged
            })
            .sum();
        figures.checkpoints += live(&server, &mut ledgers, &mut random, LIFE_MS_MAX, kill);
        let after: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
        figures.acknowledged += after - before;
        figures.cycles += 1;
    }
    let server = start_with(&directory, level, args);
    let mut client = server.client().unwrap();
    ledgers
        .iter_mut()
        .for_each(|ledger| ledger.compare(&mut client));
    // A checkpoint may be in progress.
    drop(server);
    fs::remove_dir_all(&directory).unwrap();
    figures
}

/// Lets all clients write for a while, with checkpoints in between, and ends with `kill`. Returns
/// the number of checkpoints requested.
pub(crate) fn live(
    server: &Server,
    ledgers: &mut [Ledger],
    random: &mut Prng,
    life_ms_max: u64,
    kill: impl FnOnce(&Server),
) -> u64 {
    let is_over = AtomicBool::new(false);
    let (life_ms, checkpoint_ms) = (1 + random.below(life_ms_max), random.below(life_ms_max));
    std::thread::scope(|scope| {
        for ledger in ledgers {
            scope.spawn(|| ledger.write(server, &is_over));
        }
        std::thread::sleep(Duration::from_millis(checkpoint_ms.min(life_ms)));
        let asks = checkpoint_ms < life_ms;
        if asks {
            let mut client = server.client().unwrap();
            client.command(&["BGREWRITEAOF"]).unwrap();
            std::thread::sleep(Duration::from_millis(life_ms - checkpoint_ms));
        }
        kill(server);
        is_over.store(true, Ordering::Relaxed);
        u64::from(asks)
    })
}

pub(crate) fn kill(server: &Server) {
    let pid = server.pid().to_string();
    let status = std::process::Command::new("kill")
        .args(["-KILL", &pid])
        .status();
    assert!(status.unwrap().success());
}

/// Kills a server so soon after its start that it may still be loading.
fn kill_while_starting(directory: &Path, level: &str, args: &[&str], life_ms: u64) {
    let own = temporary_directory("ledger-start").unwrap();
    let mut child = std::process::Command::new(testkit::process::iolite_program())
        .args(["--port", "0", "--unixsocket"])
        .arg(own.join("socket"))
        .args(["--durability", level, "--dir"])
        .arg(directory)
        .args(args)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(life_ms));
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(&own).unwrap();
}

pub(crate) fn number_from(name: &str, or: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(or)
}

fn check(level: &str) {
    check_with(level, &[], number_from("LEDGER_CYCLES", CYCLES_COUNT));
}

#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn check_with(level: &str, args: &[&str], cycles: u64) {
    let figures = run(level, args, cycles, number_from("LEDGER_SEED", 2026));
    println!("killed at {level} {args:?}: {figures:?}, lost 0, wrong 0, come back 0");
    assert!(
        figures.acknowledged > cycles * ACKNOWLEDGED_PER_CYCLE,
        "hardly anything was written"
    );
}

#[test]
fn nothing_is_lost_by_a_kill_at_os() {
    check("os");
}

#[test]
fn nothing_is_lost_by_a_kill_at_everysec() {
    check("everysec");
}

#[test]
fn nothing_is_lost_by_a_kill_at_always() {
    check("always");
}

/// Values leave memory after every command, segments are short and rewritten, and every checkpoint
/// names some segments.
#[test]
fn a_kill_with_a_tier_loses_nothing() {
    let tier = ["--tier-path", ".", "--tier-demote-at", "0"];
    let small = ["--tier-min-value", "1", "--tier-segment-size", "64kb"];
    let args = [&tier[..], &small[..]].concat();
    check_with("os", &args, number_from("TIER_KILLS", TIER_CYCLES_COUNT));
}

/// Writes a record to the path in `RECORD`, relative to the root, or prints it.
#[allow(clippy::print_stdout, reason = "for who reads the run")]
pub(crate) fn record(text: &str) {
    match std::env::var("RECORD") {
        Ok(path) => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            fs::write(root.join(path), text).unwrap();
        }
        Err(_) => println!("{text}"),
    }
}

#[test]
#[ignore = "takes minutes; writes a record"]
fn soak() {
    let cycles = number_from("LEDGER_CYCLES", 500);
    let seed = number_from("LEDGER_SEED", 2026);
    let mut rows = String::new();
    let (mut all_cycles, mut all_acknowledged) = (0, 0);
    for level in ["os", "everysec", "always"] {
        let Figures {
            cycles,
            acknowledged,
            killed_while_loading,
            checkpoints,
        } = run(level, &[], cycles, seed);
        rows += &format!(
            "| `{level}` | {cycles} | {killed_while_loading} | {checkpoints} | {acknowledged} | 0 | 0 | 0 |\n"
        );
        all_cycles += cycles;
        all_acknowledged += acknowledged;
    }
    record(&format!(
        "# The process killed

`RECORD=FILE LEDGER_CYCLES={cycles} cargo test --release -p server --test it ledger::soak -- --ignored`
wrote this. {WRITERS_COUNT} clients write in pipelines (SET, MSET, DEL, transactions, values of up to 20 kB; seed {seed}),
the server is killed with SIGKILL at a random moment of the first {LIFE_MS_MAX} ms, in every fourth cycle once more while
it starts; segments of 256 kB, a checkpoint is asked for in about every second life. It starts again, and what is there
must be what the first so-and-so many writes of each client made: not fewer than were acknowledged.

| level | cycles | killed while starting | checkpoints asked for | acknowledged writes checked | lost | wrong | come back |
|---|---|---|---|---|---|---|---|
{rows}
Together {all_cycles} cycles and {all_acknowledged} acknowledged writes.
"
    ));
}
