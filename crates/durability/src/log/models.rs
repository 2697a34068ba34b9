//! The log under a model checker that tries random interleavings (`--cfg shuttle`): threads append
//! while one thread writes and syncs. Chunks have a few words, so that frames lie across them and
//! they are reused at once.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;
use base::sync::thread;

use super::frame::Frame;
use super::{Level, Log, Options, Read, Reader};
use crate::disk::Disk;
use crate::simulated::{Fault, SimulatedDisk};

const DIRECTORY: &str = "log";
const FRAMES: u8 = 3;
/// Length of one frame.
const FRAME_BYTES: u64 = 24;

fn check(test: impl Fn() + Sync + Send + 'static) {
    shuttle::check_pct(test, 1_000, 3);
}

fn open(disk: &SimulatedDisk) -> Arc<Log> {
    let options = Options {
        segment_bytes: 256,
        segment_bytes_first: u64::MAX,
        chunk_bytes: 32,
        ring_bytes: 0,
        ring_bytes_min: 0,
        ring_bytes_first: 0,
        piece_bytes: 2 << 20,
        in_place_bytes: 64 << 10,
        held_bytes_max: 1 << 20,
        unsynced_bytes_max: 64,
        seed: Some(1),
    };
    let clock = Arc::new(ManualClock::at_unix_ms(1));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Log::open(disk, clock, Path::new(DIRECTORY), 0, options).unwrap()
}

fn append(log: &Arc<Log>, name: u8) {
    let mut appender = log.appender();
    for number in 0..FRAMES {
        if number == 1 {
            appender.group_begin();
        }
        appender.command(0, &[&[name], &[number]]);
        appender.group_end();
    }
}

/// Returns the frames of each thread: in order and without gaps, up to some sequence.
fn read(disk: &SimulatedDisk, at_least: u64) -> Vec<(u8, u8)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = Reader::open(disk, Path::new(DIRECTORY), 0).unwrap();
    let (mut found, mut next) = (Vec::new(), [0; 2]);
    while let Some(frame) = reader.next_frame().unwrap() {
        let mut parts = frame.effects().next().unwrap().parts;
        let mut byte = || parts.next().unwrap()[0];
        let (name, number) = (byte(), byte());
        assert_eq!(number, next[usize::from(name)], "in order");
        next[usize::from(name)] += 1;
        found.push((name, number));
    }
    assert!(reader.sequence() >= at_least);
    found
}

/// Two threads append. This one syncs meanwhile, and checks the device after every step.
fn append_and_sync(log: &Arc<Log>, steps: usize, look: impl Fn(u64)) {
    let appenders = [0, 1].map(|name| {
        let log = Arc::clone(log);
        thread::spawn(move || append(&log, name))
    });
    for _ in 0..steps {
        log.sync_step();
        let durable = log.durable();
        assert!(durable <= log.tail());
        look(durable);
    }
    appenders
        .into_iter()
        .for_each(|appender| appender.join().unwrap());
}

#[test]
fn model_what_threads_append_is_written_whole_and_in_order() {
    check(|| {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk);
        log.set_level(Level::Always);
        append_and_sync(&log, 3, |durable| drop(read(&disk, durable)));
        log.close().unwrap();
        assert_eq!(read(&disk, log.tail()).len(), 2 * usize::from(FRAMES));
    });
}

#[test]
fn model_a_device_that_fails_while_threads_append() {
    check(|| {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk);
        log.set_level(Level::Always);
        let now = disk.operations();
        disk.fail(now + 1..now + 3, Fault::Device);
        append_and_sync(&log, 4, |_| ());
        disk.heal();
        log.sync_step();
        log.close().unwrap();
        assert_eq!(read(&disk, log.tail()).len(), 2 * usize::from(FRAMES));
    });
}

/// Two threads that each want their own frames written out, and also write those of the other.
#[test]
fn model_each_thread_writes_out_what_it_appended() {
    check(|| {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk);
        log.set_level(Level::Os);
        let writers = [0, 1].map(|name| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&log, name);
                let tail = log.tail();
                log.write_out(tail).unwrap();
                assert!(log.written() >= tail);
            })
        });
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        assert_eq!(read(&disk, log.tail()).len(), 2 * usize::from(FRAMES));
    });
}

/// Reads from a sequence up to the tail, and checks every frame; returns where it ends.
fn read_on(log: &Arc<Log>, mut at: u64, max_bytes: usize) -> u64 {
    let (mut cursor, mut bytes, mut open) = (log.cursor(), Vec::new(), Vec::new());
    loop {
        match cursor.read(at, max_bytes, &mut bytes) {
            Read::Frames { first, end } => {
                assert_eq!(first, at);
                at = end;
                open.extend_from_slice(&bytes);
                while let Ok(frame) = Frame::decode(&open, end - open.len() as u64) {
                    open.drain(..usize::try_from(frame.length).unwrap());
                }
                assert!(open.is_empty() || open.len() >= max_bytes);
            }
            Read::AtTail => {
                assert!(open.is_empty());
                return at;
            }
            // The position need not be the start of a frame.
            Read::Lapped { .. } => {
                open.clear();
                at = log.tail_complete();
            }
            Read::Damaged(error) => panic!("{error}"),
        }
    }
}

/// Frames that were read are correct, whatever is overwritten meanwhile: chunks have four words,
/// and frames are longer.
#[test]
fn model_a_cursor_beside_threads_that_overwrite_what_it_reads() {
    check(|| {
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let log = Log::of_backlog(clock, 0, 64, 32);
        let appenders = [0, 1].map(|name| {
            let log = Arc::clone(&log);
            thread::spawn(move || append(&log, name))
        });
        let mut at = 0;
        for _ in 0..4 {
            at = read_on(&log, at, 64);
        }
        appenders
            .into_iter()
            .for_each(|appender| appender.join().unwrap());
        assert_eq!(read_on(&log, at, 64), log.tail());
    });
}

/// Memory is released, and files change, while a cursor reads them.
#[test]
fn model_a_cursor_finds_everything_while_threads_append() {
    check(|| {
        let disk = SimulatedDisk::new(1);
        let log = open(&disk);
        log.set_level(Level::Always);
        let reader = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                let mut at = 0;
                for _ in 0..4 {
                    at = read_on(&log, at, 64);
                }
                at
            })
        };
        append_and_sync(&log, 3, |_| ());
        let at = reader.join().unwrap();
        assert_eq!(log.oldest(), 0);
        assert_eq!(read_on(&log, at, 64), log.tail());
        assert_eq!(read_on(&log, 0, 1 << 10), log.tail());
    });
}

/// A reader that sleeps at the tail is woken for every frame.
#[test]
fn model_no_frame_is_slept_through() {
    check(|| {
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let log = Log::of_backlog(clock, 0, 1024, 32);
        let (woken, sleeper) = (
            Arc::new(base::sync::Mutex::new(false)),
            Arc::new(base::sync::Condvar::new()),
        );
        let waker = {
            let (woken, sleeper) = (Arc::clone(&woken), Arc::clone(&sleeper));
            log.on_appended(move || {
                *woken.lock().unwrap() = true;
                sleeper.notify_one();
            })
        };
        let appenders = [0, 1].map(|name| {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&log, name);
                log.write_out(log.tail()).unwrap();
            })
        });
        // Frames of the two threads have the same length.
        let mut at = 0;
        loop {
            waker.arm();
            at = read_on(&log, at, 64);
            if at == 2 * u64::from(FRAMES) * FRAME_BYTES {
                break;
            }
            let mut rung = woken.lock().unwrap();
            while !*rung {
                rung = sleeper.wait(rung).unwrap();
            }
            *rung = false;
        }
        appenders
            .into_iter()
            .for_each(|appender| appender.join().unwrap());
    });
}
