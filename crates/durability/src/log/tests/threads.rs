//! Threads that append concurrently while another one syncs, on files of the system.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use base::clock::SystemClock;

use super::written::read_from;
use crate::disk::SystemDisk;
use crate::log::{Level, Log, Options};

const THREADS: usize = 4;
const ROUNDS: usize = 2_000;

fn append(log: &Arc<Log>, thread: usize) {
    let (mut appender, name) = (log.appender(), thread.to_string());
    for round in 0..ROUNDS {
        let (number, value) = (round.to_string(), vec![b'v'; round % 700]);
        appender.set_time(round as u64);
        appender.command(0, &[name.as_bytes(), number.as_bytes(), &value]);
        if round % 16 == 15 {
            log.write_out(log.tail()).unwrap();
        }
        while !log.has_room() {
            thread::yield_now();
        }
    }
    log.write_out(log.tail()).unwrap();
}

#[test]
fn each_thread_finds_its_frames_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let options = Options {
        segment_bytes: 256 << 10,
        segment_bytes_first: u64::MAX,
        chunk_bytes: 4 << 10,
        ring_bytes: 0,
        ring_bytes_min: 0,
        ring_bytes_first: 0,
        piece_bytes: 2 << 20,
        in_place_bytes: 64 << 10,
        held_bytes_max: 64 << 10,
        unsynced_bytes_max: 16 << 10,
        seed: None,
    };
    let (disk, clock) = (Arc::new(SystemDisk), Arc::new(SystemClock::new()));
    let log = Log::open(disk, clock, directory, 0, options).unwrap();
    log.set_level(Level::Always);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| log.run_syncer(&stop));
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let log = Arc::clone(&log);
                    move || append(&log, thread)
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Release);
        log.wake_syncer();
    });
    log.close().unwrap();
    let (frames, tail) = read_from(Arc::new(SystemDisk), directory, 0);
    assert_eq!(tail.unwrap().end, log.tail());
    let mut seen: HashMap<String, usize> = HashMap::new();
    for frame in &frames {
        let words: Vec<&str> = frame.split(' ').collect();
        let next = seen.entry(words[2].to_owned()).or_default();
        assert_eq!(words[3], next.to_string());
        *next += 1;
    }
    assert_eq!(seen.len(), THREADS);
    assert!(seen.values().all(|&count| count == ROUNDS));
}
