//! A snapshot at any point of a random sequence of commands equals the contents of the naive store
//! at that point.

use proptest::prelude::*;

use super::super::Force;
use super::super::twin::{DATABASES, Step, cases, run, step};
use crate::handle::Handle;
use crate::snapshot::{Collected, SnapshotLimits, SnapshotStep};
use crate::store::{Options, Store};

/// One snapshot of both stores, and the time of the cut.
struct Pair {
    sinks: [Collected; 2],
    cut_unix_ms: u64,
}

impl Pair {
    fn begin(handles: &mut [Handle; 2], now_unix_ms: u64) -> Self {
        let sinks = handles.each_mut().map(|handle| {
            let sink = Collected::default();
            let limits = SnapshotLimits::default();
            handle
                .begin_snapshot(Box::new(sink.clone()), limits)
                .unwrap();
            sink
        });
        Self {
            sinks,
            cut_unix_ms: now_unix_ms,
        }
    }

    /// Records that had expired at the cut may or may not have been removed by then.
    fn check(&self) {
        let [real, naive] = self.sinks.each_ref().map(|sink| {
            let mut records = sink.complete();
            records.retain(|_, saved| saved.1.is_none_or(|at| at > self.cut_unix_ms));
            records
        });
        assert_eq!(real.len(), naive.len());
        assert!(real == naive, "the same keys with other values");
    }
}

fn compare(force: Force, steps: &[(Step, usize)], every: usize) {
    let stores = [
        force.store(DATABASES),
        Store::naive(&Options {
            databases: DATABASES,
        }),
    ];
    let mut handles = stores.each_ref().map(|store| store.handle());
    let mut now = [1_000_000; 2];
    handles
        .iter_mut()
        .for_each(|handle| handle.begin(1_000_000));
    let mut running: Option<Pair> = None;
    for (at, (step, buckets)) in steps.iter().enumerate() {
        if at % every == every - 1 && running.is_none() {
            running = Some(Pair::begin(&mut handles, now[0]));
        }
        for (handle, now) in handles.iter_mut().zip(&mut now) {
            run(handle, step, now);
        }
        if handles[0].advance_snapshot(*buckets) == SnapshotStep::Idle
            && let Some(pair) = running.take()
        {
            pair.check();
        }
    }
    while handles[0].advance_snapshot(3) != SnapshotStep::Idle {}
    running.iter().for_each(Pair::check);
}

fn sequence() -> impl Strategy<Value = (Vec<(Step, usize)>, usize)> {
    let steps = proptest::collection::vec((step(), 0..3_usize), 1..200);
    (steps, 2..60_usize)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn while_a_table_grows((steps, every) in sequence()) {
        compare(Force::TINY, &steps, every);
    }

    #[test]
    fn with_hashes_that_collide((steps, every) in sequence()) {
        compare(Force { hash_mask: 0x8000_0000_0000_0003, ..Force::TINY }, &steps, every);
    }

    #[test]
    fn in_a_table_of_many_buckets((steps, every) in sequence()) {
        compare(Force { level: 6, ..Force::TINY }, &steps, every);
    }
}
