//! The duration of a snapshot, and its cost for a concurrent writer.
//!
//! `cargo run --release -p store --example snapshot [keys]`. Keys of 16 bytes, values of 100, drawn
//! uniformly; the sink looks at every record and drops it. Wall time, because there are two
//! threads.

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::clock::{Clock, SystemClock};
use base::random::Prng;
use store::{
    Batch, Deadline, Ending, Handle, Options, SnapshotLimits, SnapshotSink, SnapshotStep, Store,
    Totals,
};

/// Buckets of one slice: some hundred microseconds.
const SLICE: usize = 1_024;

fn main() {
    let keys = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let keys: u64 = keys.unwrap_or(1_000_000);
    let Ok(store) = Store::new(&Options::default()) else {
        return println!("no addresses for a store");
    };
    let mut handle = store.handle();
    (0..keys).for_each(|number| set(&mut handle, number));
    println!("{keys} keys of 16 B with values of 100 B");
    for _ in 0..3 {
        let (seconds, totals) = snapshot(&mut handle);
        report("alone", seconds, totals);
    }
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut store.handle(), keys, &written, &done));
        let clock = SystemClock::new();
        for _ in 0..3 {
            let idle = rate(&clock, &written, || pass(&clock, 300));
            let mut outcome = (0.0, Totals::default());
            let busy = rate(&clock, &written, || outcome = snapshot(&mut handle));
            report("beside a writer", outcome.0, outcome.1);
            println!("  SETs per second: {idle:.0} without, {busy:.0} during a snapshot");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// A sink that looks at every record.
struct Look(Arc<Mutex<Option<(Ending, Totals)>>>);

impl SnapshotSink for Look {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        for saved in batch.records() {
            black_box(saved.key);
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        if let Ok(mut ended) = self.0.lock() {
            *ended = Some((ending, *totals));
        }
    }
}

/// Takes a snapshot. Returns the seconds it took.
fn snapshot(handle: &mut Handle) -> (f64, Totals) {
    let clock = SystemClock::new();
    let ended = Arc::default();
    let start_ns = clock.monotonic_ns();
    let sink = Box::new(Look(Arc::clone(&ended)));
    if handle
        .begin_snapshot(sink, SnapshotLimits::default())
        .is_err()
    {
        return (0.0, Totals::default());
    }
    while handle.advance_snapshot(SLICE) != SnapshotStep::Idle {}
    let seconds = (clock.monotonic_ns() - start_ns) as f64 / 1e9;
    let totals = ended.lock().ok().and_then(|mut ended| ended.take());
    match totals {
        Some((Ending::Complete, totals)) => (seconds, totals),
        other => {
            println!("not complete: {other:?}");
            (seconds, Totals::default())
        }
    }
}

fn report(how: &str, seconds: f64, totals: Totals) {
    println!(
        "{how}: {seconds:.3} s, {} records, {:.1} MB, at most {:.1} MB held",
        totals.records,
        totals.bytes as f64 / 1e6,
        totals.held_bytes_max as f64 / 1e6,
    );
}

fn set(handle: &mut Handle, number: u64) {
    let name = format!("key:{number:012}");
    let key = handle.key(0, name.as_bytes());
    let set = handle.upsert(&key, &[b'v'; 100], Deadline::Never, |_| ());
    black_box(set).ok();
}

/// Writes as fast as it can, and backs off when it should.
fn write(handle: &mut Handle, keys: u64, written: &AtomicU64, done: &AtomicBool) {
    let mut random = Prng::seeded(1);
    while !done.load(Ordering::Relaxed) {
        if handle.should_back_off() {
            std::thread::yield_now();
            continue;
        }
        set(handle, random.below(keys));
        written.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the number of SETs per second while `body` runs.
fn rate(clock: &SystemClock, written: &AtomicU64, body: impl FnOnce()) -> f64 {
    let (before, start_ns) = (written.load(Ordering::Relaxed), clock.monotonic_ns());
    body();
    let sets = written.load(Ordering::Relaxed) - before;
    sets as f64 / ((clock.monotonic_ns() - start_ns).max(1) as f64 / 1e9)
}

/// Waits for some time.
fn pass(clock: &SystemClock, ms: u64) {
    let end_ns = clock.monotonic_ns() + ms * 1_000_000;
    while clock.monotonic_ns() < end_ns {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
