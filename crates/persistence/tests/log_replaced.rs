//! A log that another one replaces, as in a full sync, while an operator ends it, and if the new
//! one cannot be begun.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use base::clock::{Clock, ManualClock};
use durability::checkpoint::Manifest;
use durability::disk::Disk;
use durability::log::{Level, Options};
use durability::simulated::{Fault, SimulatedDisk};
use persistence::environment::Environment;
use persistence::host::Host;
use persistence::log_in_use::LogInUse;
use persistence::log_owner::table::Phase;
use persistence::log_owner::{LogOwner, LogWish, Setup};
use persistence::recovery::Place;
use persistence::replacement;
use store::Store;

const DIRECTORY: &str = "data";

/// Runs a closure at the first reading of the clock after the closure was set.
struct ClockWithEvent {
    time: ManualClock,
    event: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for ClockWithEvent {
    fn now_unix_us(&self) -> u64 {
        let event = self.event.lock().unwrap().take();
        if let Some(event) = event {
            event();
        }
        self.time.now_unix_us()
    }

    fn monotonic_ns(&self) -> u64 {
        self.time.monotonic_ns()
    }
}

/// Ignores all reports.
struct Nobody;

impl Host for Nobody {}

/// An owner whose log is on, its device and its clock.
struct Server {
    disk: SimulatedDisk,
    clock: Arc<ClockWithEvent>,
    owner: Arc<LogOwner>,
}

fn wish(level: Level) -> LogWish {
    let options = Options {
        segment_bytes: 1 << 12,
        ring_bytes: 0,
        ..Options::default()
    };
    LogWish { level, options }
}

fn place(disk: &SimulatedDisk) -> Place {
    Place {
        disk: Arc::new(disk.clone()),
        directory: DIRECTORY.into(),
        log_directory: Path::new(DIRECTORY).join("log"),
    }
}

fn manifest() -> Manifest {
    Manifest {
        generation: 9,
        log_sequence: Some(8_000),
        directory: "checkpoint-9-1".to_owned(),
        ..Manifest::default()
    }
}

impl Server {
    fn new() -> Self {
        let disk = SimulatedDisk::new(1);
        disk.create_directory(Path::new(DIRECTORY)).unwrap();
        let clock = Arc::new(ClockWithEvent {
            time: ManualClock::at_unix_ms(1),
            event: Mutex::default(),
        });
        let shared: Arc<dyn Clock> = Arc::<ClockWithEvent>::clone(&clock);
        let store = Store::new(&store::Options { databases: 1 }).unwrap();
        let env = Arc::new(Environment::new(testkit::table(), store, shared));
        let owner = Arc::new(LogOwner::new(Setup {
            env,
            host: Arc::new(Nobody),
            in_use: Arc::<LogInUse>::default(),
            place: place(&disk),
            usable_bytes: None,
            has_threads: false,
        }));
        let server = Self { disk, clock, owner };
        server.change(Level::Always).unwrap();
        assert_eq!(server.owner.state().phase, Phase::On);
        server
    }

    /// Changes the log as CONFIG SET does, and completes the change.
    fn change(&self, level: Level) -> Result<(), String> {
        change(&self.owner, level)
    }
}

fn change(owner: &Arc<LogOwner>, level: Level) -> Result<(), String> {
    owner.change(&wish(level))?;
    while owner.state().is_changing() {
        let before = owner.state();
        let _progress = owner.advance();
        assert_ne!(owner.state(), before, "the change does not go on");
    }
    Ok(())
}

/// Formerly, the log was ended in the middle of the replacement, when there was none; the new one
/// began in a state without a log, and no later change came to its end.
#[test]
fn a_log_is_not_ended_while_another_takes_its_place() {
    let server = Server::new();
    let answer = Arc::new(OnceLock::new());
    let (owner, told) = (Arc::clone(&server.owner), Arc::clone(&answer));
    *server.clock.event.lock().unwrap() = Some(Box::new(move || {
        let _first = told.set(change(&owner, Level::Checkpoint));
    }));
    let log = server.owner.replace(&manifest()).unwrap();
    let answer = answer.get().expect("it was asked for");
    let text = answer.as_ref().expect_err("it was refused");
    assert!(text.contains("just being begun or ended"), "{text}");
    assert_eq!(log.tail(), 8_000);
    assert!(Arc::ptr_eq(&server.owner.log().unwrap(), &log));

    server.change(Level::Checkpoint).unwrap();
    assert_eq!(server.owner.state().phase, Phase::Off);
    assert!(server.owner.log().is_none());
}

/// Formerly, the change stopped for good, and so did all later ones.
#[test]
fn a_log_that_could_not_be_begun_can_be_ended() {
    for operation in 0..60 {
        let server = Server::new();
        let first = server.disk.operations() + operation;
        server.disk.fail(first..u64::MAX, Fault::Full);
        let is_replaced = server.owner.replace(&manifest()).is_ok();
        server.disk.heal();
        server.change(Level::Checkpoint).unwrap();
        assert_eq!(server.owner.state().phase, Phase::Off, "{operation}");
        // The first thing that a checkpoint requests. Formerly, the later checkpoint was in force
        // only until a start finished the replacement.
        server.owner.finish_replacement().unwrap();
        assert!(
            !replacement::is_decided(&place(&server.disk)),
            "{operation}"
        );
        if is_replaced {
            return;
        }
    }
    panic!("the replacement never succeeded");
}
