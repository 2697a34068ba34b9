//! Logs that are only in memory, and cursors that race with appenders.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use base::clock::ManualClock;

use super::running::{DIRECTORY, disk, options};
use crate::log::frame::Frame;
use crate::log::{Log, Options, Read};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_unix_ms(1_000))
}

fn append(log: &Arc<Log>, value: &[u8]) {
    let mut appender = log.appender();
    appender.command(0, &[b"SET", b"key", value]);
    log.write_out(appender.end()).unwrap();
}

#[test]
fn the_last_bytes_are_kept_and_nothing_is_promised() {
    let log = Log::in_memory(clock(), 800, 64 << 10);
    assert_eq!(
        (log.tail(), log.oldest(), log.memory_bytes()),
        (800, 800, 0)
    );
    let mut cursor = log.cursor();
    let mut bytes = Vec::new();
    for number in 0..10_000_u64 {
        append(&log, &[b'v'; 96]);
        assert!(log.has_room() && log.held_bytes() == 0 && log.durable() == 800);
        assert_eq!(log.written(), log.tail());
        let read = cursor.read(800 + 128 * number, 4096, &mut bytes);
        assert!(matches!(read, Read::Frames { .. }), "{read:?}");
        assert_eq!(bytes.len(), 128, "it keeps up");
        let kept = log.tail() - log.oldest();
        assert!(kept >= (64 << 10).min(log.tail() - 800), "{kept}");
    }
    assert!(
        log.memory_bytes() <= (64 << 10) + 2 * 8192,
        "no more is taken"
    );
    match cursor.read(800, 4096, &mut bytes) {
        Read::Lapped { oldest } => assert_eq!(oldest, log.oldest()),
        other => panic!("{other:?}"),
    }
    // There are neither files nor syncs.
    log.request_sync(log.tail());
    assert!(log.sync_step() > 0);
    log.cut(log.tail()).unwrap();
    log.close().unwrap();
    assert_eq!((log.durable(), log.fault()), (800, None));
}

#[test]
fn a_frame_that_is_longer_than_the_backlog_is_lost_to_all() {
    let log = Log::in_memory(clock(), 0, 64 << 10);
    append(&log, b"before");
    append(&log, &vec![b'v'; 256 << 10]);
    let long_end = log.tail();
    for _ in 0..1_000 {
        append(&log, &[b'v'; 96]);
    }
    let (mut cursor, mut bytes) = (log.cursor(), Vec::new());
    let read = cursor.read(40, 4096, &mut bytes);
    assert!(
        matches!(read, Read::Lapped { oldest } if oldest >= long_end),
        "{read:?}"
    );
    assert!(
        log.memory_bytes() < 128 << 10,
        "what did not fit was given back"
    );
}

/// Number of frames that each reader reads while there are appenders.
const FRAMES_READ: u64 = 300;

/// Frames from a cursor are valid while they are being overwritten; a lapped cursor continues at
/// the tail.
fn race(log: &Arc<Log>, sync: impl Fn() + Send + Sync) {
    let stop = AtomicBool::new(false);
    let read = [AtomicU64::new(0), AtomicU64::new(0)];
    let is_enough = || {
        let mut read = read.iter().map(|frames| frames.load(Ordering::Relaxed));
        read.all(|frames| frames >= FRAMES_READ)
    };
    thread::scope(|scope| {
        let appenders: Vec<_> = (0..3_usize)
            .map(|thread| {
                let (log, sync, is_enough) = (Arc::clone(log), &sync, &is_enough);
                scope.spawn(move || {
                    let mut appender = log.appender();
                    for round in (0..).take_while(|round| *round < 500 || !is_enough()) {
                        let value = vec![b'v'; (round * 37 + thread) % 700];
                        appender.command(0, &[b"SET", b"key", &value]);
                        if round % 4 == 0 {
                            log.write_out(appender.end()).unwrap();
                        }
                        if round % 16 == 0 {
                            sync();
                            thread::yield_now();
                        }
                    }
                    log.write_out(appender.end()).unwrap();
                })
            })
            .collect();
        let (stop, read) = (&stop, &read);
        let readers: Vec<_> = (0..2_usize)
            .map(|number| {
                let (log, mut cursor) = (Arc::clone(log), log.cursor());
                scope.spawn(move || {
                    let (mut at, mut bytes, frames) = (0, Vec::new(), &read[number]);
                    let (max_bytes, mut is_open) = (304 + number * 8_000, false);
                    while !stop.load(Ordering::Acquire) {
                        match cursor.read(at, max_bytes, &mut bytes) {
                            Read::Frames { first, end } => {
                                at = end;
                                let mut rest = &bytes[..];
                                // The cursor checks the sum of a long frame.
                                let is_long = is_open || Frame::decode(rest, first).is_err();
                                is_open = is_long && bytes.len() == max_bytes;
                                while !is_long && !rest.is_empty() {
                                    let at = end - rest.len() as u64;
                                    let frame = Frame::decode(rest, at).unwrap();
                                    rest = &rest[usize::try_from(frame.length).unwrap()..];
                                    frames.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            Read::AtTail => thread::yield_now(),
                            Read::Lapped { .. } => (at, is_open) = (log.tail_complete(), false),
                            Read::Damaged(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        appenders.into_iter().for_each(|one| one.join().unwrap());
        stop.store(true, Ordering::Release);
        readers.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn nothing_that_is_overwritten_is_given_for_what_it_was() {
    let log = Log::of_backlog(clock(), 0, 8192, 256);
    race(&log, || ());
    let options = Options {
        segment_bytes: 64 << 10,
        chunk_bytes: 512,
        ring_bytes: 4096,
        ring_bytes_min: 0,
        ..options()
    };
    let disk = Arc::new(disk(1));
    let log = Log::open(disk, clock(), Path::new(DIRECTORY), 0, options).unwrap();
    race(&log, || {
        log.request_sync(log.tail());
        log.sync_step();
    });
}
