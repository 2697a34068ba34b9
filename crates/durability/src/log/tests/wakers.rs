//! A reader of the log is woken once for each request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::clock::ManualClock;

use super::running::{DIRECTORY, disk, options};
use crate::log::{Log, Options};

fn logs() -> [Arc<Log>; 3] {
    let clock = || Arc::new(ManualClock::at_unix_ms(1_000));
    let with_ring = Options {
        segment_bytes: 2048,
        ring_bytes: 1024,
        ..options()
    };
    let open = |options| {
        let disk = Arc::new(disk(1));
        Log::open(disk, clock(), Path::new(DIRECTORY), 0, options).unwrap()
    };
    [
        open(options()),
        open(with_ring),
        Log::in_memory(clock(), 0, 64 << 10),
    ]
}

#[test]
fn a_reader_is_woken_once_for_each_time_it_is_armed() {
    for log in logs() {
        let woken = Arc::new(AtomicU32::new(0));
        let others = Arc::new(AtomicU32::new(0));
        let count = |woken: &Arc<AtomicU32>| {
            let woken = Arc::clone(woken);
            move || {
                woken.fetch_add(1, Ordering::Relaxed);
            }
        };
        let append = || {
            let mut appender = log.appender();
            appender.command(0, &[b"SET", b"key", b"value"]);
            log.write_out(appender.end()).unwrap();
        };
        append();
        let waker = log.on_appended(count(&woken));
        append();
        assert_eq!(woken.load(Ordering::Relaxed), 0, "it did not ask for it");
        for round in 1..=3 {
            waker.arm();
            log.write_out(log.tail()).unwrap();
            assert_eq!(woken.load(Ordering::Relaxed), round - 1, "nothing is new");
            append();
            append();
            assert_eq!(woken.load(Ordering::Relaxed), round);
        }
        let other = log.on_appended(count(&others));
        waker.arm();
        other.arm();
        append();
        assert_eq!(woken.load(Ordering::Relaxed), 4);
        assert_eq!(others.load(Ordering::Relaxed), 1);
        drop(waker);
        other.arm();
        append();
        assert_eq!(woken.load(Ordering::Relaxed), 4, "it is gone");
        assert_eq!(others.load(Ordering::Relaxed), 2);
    }
}
