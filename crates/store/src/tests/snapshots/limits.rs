//! The memory that a snapshot holds stays below its limits, however fast a writer writes.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use structures::{BlockLimit, Element, End, List};

use super::super::Force;
use super::{fill, set};
use crate::handle::Handle;
use crate::snapshot::{Batch, Ending, SnapshotLimits, SnapshotSink, SnapshotStep, Totals};
use crate::value::Deadline;

const LIMITS: SnapshotLimits = SnapshotLimits {
    soft_bytes: 1 << 20,
    hard_bytes: 4 << 20,
};

/// One bucket of a thread, which may come on top, and the growth of buffers.
const SLACK_BYTES: u64 = 512 << 10;

const KEYS: usize = 40_000;

/// A slow sink: it keeps batches until the test releases some.
#[derive(Clone, Default)]
struct Slow {
    batches: Arc<Mutex<Vec<Batch>>>,
    ended: Arc<Mutex<Option<(Ending, Totals)>>>,
}

impl Slow {
    fn let_go(&self) {
        self.batches.lock().unwrap().clear();
    }

    fn ended(&self) -> Option<(Ending, Totals)> {
        *self.ended.lock().unwrap()
    }
}

impl SnapshotSink for Slow {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        self.batches.lock().unwrap().push(batch);
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        *self.ended.lock().unwrap() = Some((ending, *totals));
    }
}

/// Fills the store with values of a kilobyte, in sum many times the limits.
fn fill_long(handle: &mut Handle) {
    fill(handle, KEYS);
    write_all(handle, |_| ());
}

/// Writes every key once, and calls `before` ahead of each.
fn write_all(handle: &mut Handle, mut before: impl FnMut(&mut Handle)) {
    for number in 0..KEYS {
        before(handle);
        write(handle, number);
    }
}

fn write(handle: &mut Handle, number: usize) {
    let key = format!("key:{number}");
    set(handle, 0, &key, &[b'v'; 1_000], Deadline::Never);
}

#[test]
fn the_scanner_pauses_while_nothing_is_let_go() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill_long(&mut handle);
    let sink = Slow::default();
    handle
        .begin_snapshot(Box::new(sink.clone()), LIMITS)
        .unwrap();
    let mut waits = 0;
    loop {
        match handle.advance_snapshot(usize::MAX) {
            SnapshotStep::Idle => break,
            SnapshotStep::More => {}
            SnapshotStep::Later => {
                let held_bytes = store.snapshot_progress().unwrap().held_bytes;
                assert!(held_bytes > LIMITS.soft_bytes / 2);
                assert!(!handle.should_back_off());
                waits += 1;
                sink.let_go();
            }
        }
    }
    let (ending, totals) = sink.ended().unwrap();
    assert_eq!((ending, totals.records), (Ending::Complete, KEYS as u64));
    assert!(waits > 20, "{waits}");
    assert!(totals.held_bytes_max < LIMITS.soft_bytes / 2 + SLACK_BYTES);
}

#[test]
fn who_backs_off_when_told_stays_under_the_soft_limit() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill_long(&mut handle);
    let sink = Slow::default();
    handle
        .begin_snapshot(Box::new(sink.clone()), LIMITS)
        .unwrap();
    let mut waits = 0;
    write_all(&mut handle, |handle| {
        while handle.should_back_off() {
            waits += 1;
            handle.advance_snapshot(0);
            sink.let_go();
        }
    });
    assert!(!handle.should_back_off() && waits > 20, "{waits}");
    while handle.advance_snapshot(64) != SnapshotStep::Idle {
        sink.let_go();
    }
    let (ending, totals) = sink.ended().unwrap();
    assert_eq!((ending, totals.records), (Ending::Complete, KEYS as u64));
    assert!(totals.held_bytes_max < LIMITS.soft_bytes + SLACK_BYTES);
}

/// A writer that does nothing but what every command does, while no sink takes anything: it waits a
/// little each time, and never for ever.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn who_makes_room_first_is_slowed_down_and_goes_on() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill_long(&mut handle);
    let sink = Slow::default();
    handle
        .begin_snapshot(Box::new(sink.clone()), LIMITS)
        .unwrap();
    // On a busy machine each slowed-down write waits for its turn: some are enough.
    let mut pressed = 0;
    for number in 0..KEYS {
        pressed += usize::from(handle.should_back_off());
        if pressed == 100 {
            break;
        }
        handle.make_room(1_000).unwrap();
        write(&mut handle, number);
    }
    assert!(pressed > 0, "nobody took anything meanwhile");
    while handle.advance_snapshot(64) != SnapshotStep::Idle {
        sink.let_go();
    }
    assert!(sink.ended().is_some() && !handle.should_back_off());
}

#[test]
fn at_the_hard_limit_it_is_given_up() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill_long(&mut handle);
    let sink = Slow::default();
    handle
        .begin_snapshot(Box::new(sink.clone()), LIMITS)
        .unwrap();
    write_all(&mut handle, |_| ());
    let progress = store.snapshot_progress().unwrap();
    assert!(progress.is_given_up && !handle.should_back_off());
    while handle.advance_snapshot(64) != SnapshotStep::Idle {}
    let (ending, totals) = sink.ended().unwrap();
    assert_eq!(ending, Ending::OverLimit);
    assert!(totals.held_bytes_max >= LIMITS.hard_bytes);
    assert!(totals.held_bytes_max < LIMITS.hard_bytes + SLACK_BYTES);
    // Nothing is left of it: the next snapshot is complete.
    let sink = super::begin(&mut handle);
    super::finish(&mut handle);
    assert_eq!(sink.complete().len(), KEYS);
}

/// One thread drives the snapshot and releases batches, and one writes as fast as it can without
/// backing off.
#[test]
fn a_writer_at_full_speed_is_never_the_end_of_memory() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill_long(&mut handle);
    for _ in 0..if cfg!(miri) { 1 } else { 5 } {
        let sink = Slow::default();
        handle
            .begin_snapshot(Box::new(sink.clone()), LIMITS)
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| write_all(&mut store.handle(), |_| ()));
            while handle.advance_snapshot(64) != SnapshotStep::Idle {
                sink.let_go();
            }
        });
        let (ending, totals) = sink.ended().unwrap();
        assert_eq!(ending == Ending::Complete, totals.records == KEYS as u64);
        let most = LIMITS.hard_bytes + LIMITS.soft_bytes + SLACK_BYTES;
        assert!(totals.held_bytes_max < most, "{totals:?}");
    }
}

/// A list of many times the limits shares its blocks with its saved copy.
#[test]
fn a_large_object_fits_below_the_limits() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    fill(&mut handle, 1_000);
    let key = handle.key(0, b"list");
    let push = |handle: &mut Handle, count| {
        let limit = BlockLimit::default();
        let pushed = handle.modify(&key, |entry| {
            entry.change_or_create(|list: &mut List| {
                for number in 0..count {
                    list.push(End::Back, Element::Integer(number), limit);
                }
            })
        });
        pushed.unwrap();
    };
    push(&mut handle, 4_000_000);
    let sink = Slow::default();
    handle
        .begin_snapshot(Box::new(sink.clone()), LIMITS)
        .unwrap();
    push(&mut handle, 1);
    while handle.advance_snapshot(64) != SnapshotStep::Idle {
        sink.let_go();
    }
    let (ending, totals) = sink.ended().unwrap();
    assert_eq!((ending, totals.records), (Ending::Complete, 1_001));
    assert!(totals.bytes > 2 * LIMITS.hard_bytes, "{totals:?}");
    assert!(totals.held_bytes_max < LIMITS.soft_bytes, "{totals:?}");
}
