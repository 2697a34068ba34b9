//! Money moves between accounts while snapshots are taken: none is created or lost in any of them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use base::random::Prng;

use super::super::Force;
use super::finish;
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::policy::Policy;
use crate::snapshot::{
    Batch, Ending, SavedValue, SnapshotLimits, SnapshotSink, SnapshotStep, Totals,
};
use crate::store::{Backend, Store};
use crate::value::Deadline;

const ACCOUNTS: usize = if cfg!(miri) { 20 } else { 3_000 };
const START_BALANCE: i64 = 1_000;

fn account(number: usize) -> String {
    format!("account:{number}")
}

fn add(handle: &mut Handle, name: &str, amount: i64) {
    let key = handle.key(0, name.as_bytes());
    handle.modify(&key, |entry| {
        let record = entry.record();
        let balance = record.and_then(|record| record.integer()).unwrap_or(0);
        entry.set_integer(balance + amount, Deadline::Keep).unwrap();
    });
}

/// Sets keys with a deadline around the bank, has keys evicted, flushed, swapped and compacted, and
/// lets them expire.
fn make_weather(store: &Arc<Store>, seed: u64, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut random = Prng::seeded(seed);
    let mut now = 1_000;
    while !done.load(Ordering::Relaxed) {
        handle.begin(now);
        for _ in 0..200 {
            let name = format!("weather:{}", random.below(20_000));
            let database = DatabaseId::try_from(random.below(4)).unwrap();
            let key = handle.key(database, name.as_bytes());
            let deadline = Deadline::At(now + random.below(500));
            let value = vec![b'w'; random.index(300)];
            if handle.make_room(value.len()).is_ok() {
                handle.upsert(&key, &value, deadline, |_| ()).unwrap();
            }
        }
        match random.below(8) {
            0 => drop(handle.flush(Some(2))),
            1 => handle.swap(2, 3),
            2 => handle.purge(),
            _ => now += 40,
        }
        handle.tick(now);
    }
}

fn transfer(handle: &mut Handle, from: &str, to: &str, between: impl FnOnce()) {
    let keys = [from, to].map(|name| handle.key(0, name.as_bytes()));
    handle.locked(&keys, |handle| {
        add(handle, from, -1);
        between();
        add(handle, to, 1);
    });
}

/// A sink that sums the balances of the accounts.
#[derive(Clone, Debug, Default)]
struct Balance(Arc<Mutex<(usize, i64)>>);

impl SnapshotSink for Balance {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let mut sum = self.0.lock().unwrap();
        for saved in batch
            .records()
            .filter(|saved| saved.key.starts_with(b"account:"))
        {
            let SavedValue::Integer(balance) = saved.value else {
                unreachable!("balances are numbers");
            };
            *sum = (sum.0 + 1, sum.1 + balance);
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _: &Totals) {
        assert_eq!(ending, Ending::Complete);
    }
}

fn begin(handle: &mut Handle) -> Balance {
    let sink = Balance::default();
    let begun = handle.begin_snapshot(Box::new(sink.clone()), SnapshotLimits::default());
    begun.unwrap();
    sink
}

/// Returns the number of accounts in a snapshot, and the sum of their balances.
fn total(sink: &Balance) -> (usize, i64) {
    *sink.0.lock().unwrap()
}

fn plant_the_bug(store: &Store) {
    let Backend::Indexed(shared) = &store.backend else {
        unreachable!("not naive");
    };
    let planted = &shared.snapshots.reads_for_each_bucket;
    planted.store(true, Ordering::Relaxed);
}

/// Makes a cut in the middle of a transfer. Returns whether the snapshot is balanced.
fn cut_in_the_middle(is_planted: bool) -> bool {
    let store = Force {
        level: 6,
        ..Force::TINY
    }
    .store(1);
    if is_planted {
        plant_the_bug(&store);
    }
    let (mut handle, mut other) = (store.handle(), store.handle());
    for number in 0..20 {
        add(&mut handle, &account(number), START_BALANCE);
    }
    (1..20).all(|number| {
        let mut sink = None;
        transfer(&mut handle, &account(0), &account(number), || {
            sink = Some(begin(&mut other));
            // The buckets of the transfer are held: the scanner passes none of them.
            other.advance_snapshot(1_000);
        });
        finish(&mut other);
        total(&sink.unwrap()) == (20, 20 * START_BALANCE)
    })
}

#[test]
fn a_cut_does_not_go_through_a_transfer() {
    assert!(cut_in_the_middle(false));
}

#[test]
fn reading_the_generation_for_each_bucket_would_break_it() {
    assert!(!cut_in_the_middle(true));
}

/// The results of a run of the bank.
#[derive(Debug, Default)]
struct Outcome {
    transfers: u64,
    snapshots: u64,
    unbalanced: u64,
    keys: usize,
}

/// Work that runs beside the bank.
type Beside = fn(&Arc<Store>, &AtomicBool);

fn run_bank(snapshots: u64, beside: &[Beside]) -> Outcome {
    let store = Force::TINY.store(4);
    let mut handle = store.handle();
    (0..ACCOUNTS).for_each(|number| add(&mut handle, &account(number), START_BALANCE));
    let (transfers, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, transfers, done) = (&store, &transfers, &done);
            scope.spawn(move || move_money(store, thread, transfers, done));
        }
        for beside in beside {
            scope.spawn(|| beside(&store, &done));
        }
        let expected = START_BALANCE * i64::try_from(ACCOUNTS).unwrap();
        while outcome.snapshots < snapshots {
            let sink = begin(&mut handle);
            while handle.advance_snapshot(256) != SnapshotStep::Idle {
                std::thread::yield_now();
            }
            outcome.snapshots += 1;
            outcome.unbalanced += u64::from(total(&sink) != (ACCOUNTS, expected));
        }
        done.store(true, Ordering::Relaxed);
    });
    outcome.transfers = transfers.load(Ordering::Relaxed);
    outcome.keys = handle.len(0);
    outcome
}

fn move_money(store: &Arc<Store>, seed: u64, transfers: &AtomicU64, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut random = Prng::seeded(seed);
    while !done.load(Ordering::Relaxed) {
        let [from, to] = [0; 2].map(|_: usize| account(random.index(ACCOUNTS)));
        transfer(&mut handle, &from, &to, || ());
        transfers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds keys, so that buckets are split all the time.
fn grow(store: &Arc<Store>, done: &AtomicBool) {
    let mut handle = store.handle();
    let mut number = 0_u32;
    while !done.load(Ordering::Relaxed) && number < 100_000 {
        let name = format!("other:{number}");
        let key = handle.key(0, name.as_bytes());
        let set = handle.upsert(&key, b"value", Deadline::Never, |_| ());
        set.unwrap();
        number += 1;
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the numbers are part of the proof")]
fn every_snapshot_is_balanced() {
    let outcome = run_bank(if cfg!(miri) { 3 } else { 20 }, &[grow]);
    println!("while the table grows: {outcome:?}");
    assert_eq!(outcome.unbalanced, 0);
    assert!(outcome.transfers > 0);
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
#[allow(clippy::print_stdout, reason = "the numbers are part of the proof")]
fn every_snapshot_is_balanced_in_any_weather() {
    let weather: [Beside; 2] = [
        |store, done| make_weather(store, 1, done),
        |store, done| {
            store.set_memory_limit(4 << 20, Policy::VolatileLru, 5);
            make_weather(store, 2, done);
        },
    ];
    let outcome = run_bank(15, &weather);
    println!("in any weather: {outcome:?}");
    assert_eq!(outcome.unbalanced, 0);
    assert!(outcome.transfers > 0);
}
