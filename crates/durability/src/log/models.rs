//! The log under a model checker that tries random interleavings (`--cfg shuttle`): threads that append
//! against one that writes and syncs, with chunks of a few words, so that frames lie across them and
//! they are used again at once.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;
use base::sync::thread;

use super::{Level, Log, Options, Reader};
use crate::disk::Disk;
use crate::simulated::{Fault, SimulatedDisk};

const DIRECTORY: &str = "log";
const FRAMES: u8 = 3;

fn check(test: impl Fn() + Sync + Send + 'static) {
    shuttle::check_pct(test, 1_000, 3);
}

fn open(disk: &SimulatedDisk) -> Arc<Log> {
    let options = Options {
        segment_bytes: 256,
        chunk_bytes: 32,
        ring_bytes: 0,
        ring_bytes_min: 0,
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

/// The frames of each thread, in its order and with nothing missing, up to some place.
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

/// Two threads append; this one syncs meanwhile, and looks at the device behind every step.
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

/// Two threads that each want their own frames out, and write those of the other as well.
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
