//! Files that are kept for readers, and when they no longer are.

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;

use super::running::{DIRECTORY, disk, options};
use crate::log::{Log, Read};

fn log() -> Arc<Log> {
    let clock = Arc::new(ManualClock::at_unix_ms(1_000));
    let disk = Arc::new(disk(1));
    Log::open(disk, clock, Path::new(DIRECTORY), 0, options()).unwrap()
}

/// Appends frames of 128 bytes, and makes them durable.
fn append(log: &Arc<Log>, count: usize) {
    let mut appender = log.appender();
    for _ in 0..count {
        appender.command(0, &[b"SET", b"key", &[b'v'; 100]]);
        log.write_out(log.tail()).unwrap();
        log.request_sync(log.tail());
        log.sync_step();
    }
}

fn is_there(log: &Arc<Log>, sequence: u64) -> bool {
    let read = log.cursor().read(sequence, 128, &mut Vec::new());
    !matches!(read, Read::Lapped { .. })
}

#[test]
fn what_is_pinned_is_not_cut_off() {
    let log = log();
    let all = log.pin("all", 0);
    append(&log, 50);
    let some = log.pin("some", 20 * 128);
    append(&log, 50);
    log.cut(log.durable()).unwrap();
    assert!(is_there(&log, 0));
    all.advance(10 * 128);
    all.advance(128);
    assert_eq!(all.sequence(), 10 * 128, "it never goes back");
    log.cut(log.durable()).unwrap();
    assert!(!is_there(&log, 0) && is_there(&log, 10 * 128));
    drop(all);
    log.cut(log.durable()).unwrap();
    assert!(!is_there(&log, 10 * 128) && is_there(&log, 20 * 128));
    assert!(!some.is_broken());
    let late = log.pin("late", 128);
    assert!(late.is_broken(), "that is gone");
    let names: Vec<_> = log.pins().into_iter().map(|pin| pin.name).collect();
    assert_eq!(names, ["some", "late"]);
    drop((some, late));
    assert!(log.pins().is_empty());
    log.cut(log.durable()).unwrap();
    assert!(!is_there(&log, 20 * 128));
}

#[test]
fn a_pin_that_keeps_too_much_is_broken() {
    let log = log();
    let (far, near) = (log.pin("far", 0), log.pin("near", 60 * 128));
    log.set_keep_bytes(50 * 128);
    append(&log, 100);
    assert!(!far.is_broken(), "all of it is needed by the checkpoint");
    log.cut(50 * 128).unwrap();
    assert!(!far.is_broken() && is_there(&log, 0));
    log.cut(log.durable()).unwrap();
    assert!(far.is_broken() && !near.is_broken());
    assert!(!is_there(&log, 0) && is_there(&log, 60 * 128));
    far.advance(log.tail());
    assert!(far.is_broken(), "for good");
    assert_eq!(log.pins()[0].name, "far");
    assert!(log.pins()[0].is_broken);
}
