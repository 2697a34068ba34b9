//! How long a checkpoint takes to write and to load: `cargo bench -p persistence --bench checkpoint
//! -- KEYS DIR`.
//!
//! Keys of 16 bytes, values of 100 bytes; by default ten million of them and a directory below the
//! current one. The walk into memory alone is measured as well, to show the share of the files.
#![allow(clippy::print_stdout, reason = "figures are what it is for")]
#![allow(clippy::unwrap_used, reason = "a failure ends the run")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::background::Scheduler;
use base::clock::{Clock as _, SystemClock};
use durability::checkpoint::Lineage;
use durability::disk::SystemDisk;
use engine::{Gate, Settings};
use persistence::bodies::Existing;
use persistence::checkpointer::{Checkpointer, Setup, Why, writers_for};
use persistence::key_delay::KeyDelay;
use persistence::loader::{LoadProgress, Source};
use store::{
    Batch, Deadline, Ending, Options, SnapshotLimits, SnapshotSink, SnapshotStep, Store, Totals,
};

const KEYS: u64 = 10_000_000;
const VALUE_BYTES: usize = 100;
const THREADS: usize = 2;

/// Drops what it is given.
struct Nowhere;

impl SnapshotSink for Nowhere {
    fn take(&mut self, _: Batch) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: Ending, _: &Totals) {}
}

fn timed<R>(what: &str, keys: u64, body: impl FnOnce() -> R) -> R {
    let clock = SystemClock::new();
    let start_ns = clock.monotonic_ns();
    let answer = body();
    let ns = clock.monotonic_ns() - start_ns;
    let each_ns = ns / keys.max(1);
    println!("{what}: {} ms, {each_ns} ns a key", ns / 1_000_000);
    answer
}

fn fill(store: &Arc<Store>, keys: u64) {
    let mut handle = store.handle();
    let value = [b'v'; VALUE_BYTES];
    for number in 0..keys {
        let name = format!("key:{number:012}");
        let key = handle.key(0, name.as_bytes());
        let set = handle.upsert(&key, &value, Deadline::Never, |_| ());
        set.unwrap();
    }
}

fn walk(store: &Arc<Store>) {
    let mut handle = store.handle();
    let begun = handle.begin_snapshot(Box::new(Nowhere), SnapshotLimits::default());
    begun.unwrap();
    while handle.advance_snapshot(512) != SnapshotStep::Idle {}
}

fn load(directory: &Path, manifest: &durability::checkpoint::Manifest) {
    let store = Store::new(&Options::default()).unwrap();
    let (limits, progress) = (Settings::default().value_limits(), LoadProgress::default());
    let source = Source {
        disk: &SystemDisk,
        directory,
        manifest,
        limits: &limits,
        progress: &progress,
        existing: Existing::Refused,
        is_all: true,
        delay: &KeyDelay::default(),
        tier: None,
        gate: &Gate::default(),
    };
    let keys = manifest.records();
    timed("load", keys, || source.load(&store, THREADS)).unwrap();
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|one| one != "--bench");
    let keys = arguments.next().and_then(|keys| keys.parse().ok());
    let keys: u64 = keys.unwrap_or(KEYS);
    let directory: PathBuf = arguments
        .next()
        .unwrap_or_else(|| "target/checkpoint-bench".into())
        .into();
    std::fs::create_dir_all(&directory).unwrap();
    let store = Store::new(&Options::default()).unwrap();
    timed("fill", keys, || fill(&store, keys));
    timed("walk", keys, || walk(&store));
    let checkpointer = Checkpointer::new(Setup {
        store: Arc::clone(&store),
        disk: Arc::new(SystemDisk),
        directory: directory.clone(),
        clock: Arc::new(SystemClock::new()),
        lineage: Lineage::default(),
        background: Arc::new(Scheduler::of_machine(Arc::new(SystemClock::new()))),
        writers: writers_for(THREADS),
        surroundings: Arc::new(()),
    });
    let mut handle = store.handle();
    let outcome = timed("checkpoint", keys, || {
        checkpointer.make_now(&mut handle, Why::Asked)
    });
    let outcome = outcome.unwrap();
    let manifest = outcome.result.unwrap();
    println!(
        "{} bytes in {} parts, at most {} bytes held",
        manifest.bytes(),
        manifest.parts.len(),
        outcome.held_bytes_max
    );
    drop((checkpointer, handle, store));
    load(&directory, &manifest);
    std::fs::remove_dir_all(&directory).unwrap();
}
