//! Cursors: the same bytes as a reader's, from memory and from files, and the result when there are
//! none.

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;
use base::random::Prng;

use super::running::{DIRECTORY, disk, options};
use crate::disk::Disk;
use crate::log::frame::Frame;
use crate::log::{Control, Cursor, Log, Options, Read, Reader, frame_bytes, frames};
use crate::simulated::{Fault, SimulatedDisk};

fn with_ring() -> Options {
    Options {
        segment_bytes: 2048,
        chunk_bytes: 256,
        ring_bytes: 1024,
        ring_bytes_min: 256,
        unsynced_bytes_max: 512,
        ..options()
    }
}

fn open(disk: &SimulatedDisk, start: u64, options: Options) -> Arc<Log> {
    let clock = Arc::new(ManualClock::at_unix_ms(1_000));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Log::open(disk, clock, Path::new(DIRECTORY), start, options).unwrap()
}

fn append(log: &Arc<Log>, value: &[u8]) {
    let mut appender = log.appender();
    appender.command(0, &[b"SET", b"key", value]);
    log.write_out(appender.end()).unwrap();
}

/// Makes everything durable, and releases the memory.
fn sync(log: &Log) {
    log.request_sync(log.tail());
    log.sync_step();
    assert_eq!(log.durable(), log.tail());
}

/// Returns the bytes that a cursor reads up to the tail. Checks that each piece is whole frames or
/// a piece of a long one.
fn read_on(cursor: &mut Cursor, from: &mut u64, max_bytes: usize) -> Vec<u8> {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    let mut open = 0;
    loop {
        match cursor.read(*from, max_bytes, &mut bytes) {
            Read::Frames { first, end } => {
                assert_eq!((first, end), (*from, *from + bytes.len() as u64));
                assert!(!bytes.is_empty() && bytes.len() <= max_bytes.max(64));
                *from = end;
                all.extend_from_slice(&bytes);
                let mut rest = &all[open..];
                while let Ok(frame) = Frame::decode(rest, end - rest.len() as u64) {
                    open += usize::try_from(frame.length).unwrap();
                    rest = &all[open..];
                }
                let is_whole = rest.is_empty() || rest.len() >= max_bytes.max(64) / 8 * 8;
                assert!(is_whole, "{first} {end} {open}");
            }
            Read::AtTail => {
                assert_eq!(open, all.len());
                return all;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns all bytes of a closed log.
fn all_bytes(disk: &SimulatedDisk) -> Vec<u8> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut reader = Reader::open(disk, Path::new(DIRECTORY), 0).unwrap();
    let mut all = Vec::new();
    while let Some((_, bytes)) = reader.next_bytes().unwrap() {
        all.extend_from_slice(bytes);
    }
    all
}

/// A fast cursor, one that reads seldom, and one that reads everything at the end; frames as long
/// as several chunks.
#[test]
fn cursors_give_what_a_reader_gives() {
    for (seed, options) in (0..40).flat_map(|seed| [(seed, options()), (seed, with_ring())]) {
        let mut random = Prng::seeded(seed);
        let disk = disk(seed);
        let mut log = open(&disk, 0, options.clone());
        let (mut fast, mut slow) = (log.cursor(), log.cursor());
        let (mut fast_at, mut slow_at) = (0, 0);
        let (mut fast_read, mut slow_read) = (Vec::new(), Vec::new());
        for round in 0..200 {
            let bytes_max = if random.below(20) == 0 { 2_000 } else { 100 };
            let value = vec![b'v'; random.index(bytes_max)];
            append(&log, &value);
            if random.below(3) == 0 {
                sync(&log);
            }
            if random.below(2) == 0 {
                fast_read.extend(read_on(&mut fast, &mut fast_at, 300));
            }
            if random.below(30) == 0 {
                slow_read.extend(read_on(&mut slow, &mut slow_at, 80));
            }
            if round == 120 {
                sync(&log);
                log.close().unwrap();
                let tail = log.tail();
                drop((fast, slow));
                log = open(&disk, tail, options.clone());
                (fast, slow) = (log.cursor(), log.cursor());
            }
        }
        fast_read.extend(read_on(&mut fast, &mut fast_at, 300));
        slow_read.extend(read_on(&mut slow, &mut slow_at, 80));
        let late_read = read_on(&mut log.cursor(), &mut 0, 1 << 20);
        log.close().unwrap();
        let wanted = all_bytes(&disk);
        assert_eq!(wanted.len() as u64, log.tail());
        assert!(fast_read == wanted, "seed {seed}");
        assert!(slow_read == wanted, "seed {seed}");
        assert!(late_read == wanted, "seed {seed}");
    }
}

/// While files fail and are replaced, and through a failed read.
#[test]
fn a_cursor_goes_on_where_files_were_replaced() {
    for seed in 0..60 {
        let mut random = Prng::seeded(seed);
        let disk = disk(seed);
        let log = open(&disk, 0, options());
        let (mut cursor, mut at, mut read) = (log.cursor(), 0, Vec::new());
        for _ in 0..100 {
            let mut appender = log.appender();
            appender.command(0, &[b"SET", b"key", &vec![b'v'; random.index(100)]]);
            let _fault = log.write_out(appender.end());
            match random.below(8) {
                0 => {
                    let now = disk.operations();
                    disk.fail(now + 1..now + 3, Fault::Device);
                    log.request_sync(log.tail());
                    log.sync_step();
                    disk.heal();
                }
                1..3 => {
                    log.request_sync(log.tail());
                    log.sync_step();
                }
                3 => read.extend(read_on(&mut cursor, &mut at, 200)),
                _ => {}
            }
        }
        log.sync_step();
        read.extend(read_on(&mut cursor, &mut at, 200));
        log.close().unwrap();
        assert!(read == all_bytes(&disk), "seed {seed}");
    }
}

#[test]
fn what_was_released_is_read_from_the_ring_without_the_device() {
    let disk = disk(1);
    let log = open(&disk, 0, with_ring());
    let mut wanted = 0;
    for _ in 0..9 {
        append(&log, &[b'v'; 60]);
        wanted += 1;
        sync(&log);
    }
    assert!(log.durable() == log.tail() && log.tail() < 1024);
    let before = disk.operations();
    let read = read_on(&mut log.cursor(), &mut 0, 200);
    assert_eq!(disk.operations(), before, "nothing but memory was touched");
    assert_eq!(read.len() as u64, log.tail());
    assert_eq!(log.oldest(), 0);
    for _ in 0..9 {
        append(&log, &[b'v'; 60]);
        wanted += 1;
        sync(&log);
    }
    let before = disk.operations();
    let read = read_on(&mut log.cursor(), &mut 0, 200);
    assert!(disk.operations() > before, "it went round");
    assert_eq!(read.len() as u64, log.tail());
    assert_eq!(wanted, 18);
}

#[test]
fn a_cursor_is_told_that_the_log_was_cut() {
    for options in [options(), with_ring()] {
        let disk = disk(1);
        let log = open(&disk, 0, options);
        let (mut cursor, mut at) = (log.cursor(), 0);
        append(&log, b"value");
        let mut bytes = Vec::new();
        for _ in 0..100 {
            append(&log, &[b'v'; 60]);
            sync(&log);
        }
        // The second frame is in a file that the cursor has open.
        let read = cursor.read(at, 64, &mut bytes);
        assert!(matches!(read, Read::Frames { first: 0, .. }), "{read:?}");
        at += bytes.len() as u64;
        log.cut(log.durable()).unwrap();
        for _ in 0..100 {
            append(&log, &[b'w'; 60]);
            sync(&log);
        }
        match cursor.read(at, 64, &mut bytes) {
            Read::Lapped { oldest } => {
                assert_eq!(oldest, log.oldest());
                assert!(at < oldest && oldest < log.tail());
                let mut from = oldest;
                let rest = read_on(&mut cursor, &mut from, 200);
                assert_eq!(rest.len() as u64, log.tail() - oldest);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Flips a byte of the file that begins at 0.
fn flip(disk: &SimulatedDisk, at: u64) {
    let path = Path::new(DIRECTORY).join("0000000000000000.log");
    let file = disk.open_for_writing(&path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[!byte[0]], at).unwrap();
}

#[test]
fn nothing_damaged_is_given() {
    let disk = disk(1);
    let options = Options {
        segment_bytes: 2048,
        ..options()
    };
    let log = open(&disk, 0, options);
    for number in 0..20 {
        append(&log, &[number; 100]);
        if number == 0 {
            append(&log, &[b'l'; 300]);
        }
        sync(&log);
    }
    let long_start = 128;
    let mut bytes = Vec::new();
    // In the long frame.
    flip(&disk, 40 + 40 + 128 + 40 + 300);
    let mut cursor = log.cursor();
    let read = cursor.read(0, 128, &mut bytes);
    assert!(matches!(read, Read::Frames { end: 128, .. }), "{read:?}");
    let mut at = long_start;
    let damage = loop {
        match cursor.read(at, 64, &mut bytes) {
            Read::Frames { end, .. } => at = end,
            other => break other,
        }
    };
    assert!(at < long_start + 328, "the last piece is held back: {at}");
    let Read::Damaged(error) = damage else {
        panic!("{damage:?}");
    };
    let text = error.to_string();
    assert!(text.contains("0000000000000000.log is damaged"), "{text}");
    assert!(bytes.is_empty());
    // In one read: the frames before it are returned.
    let read = log.cursor().read(0, 4096, &mut bytes);
    assert!(matches!(read, Read::Frames { end: 128, .. }), "{read:?}");
    let read = log.cursor().read(128, 4096, &mut bytes);
    assert!(matches!(read, Read::Damaged(_)), "{read:?}");
    // Once the byte is restored, everything is readable again.
    flip(&disk, 40 + 40 + 128 + 40 + 300);
    let all = read_on(&mut cursor, &mut 0, 4096);
    assert_eq!(all.len() as u64, log.tail());
    // The head of the second block.
    flip(&disk, 40 + 40 + 10);
    let read = log.cursor().read(0, 4096, &mut bytes);
    assert!(matches!(read, Read::Damaged(_)), "{read:?}");
}

#[test]
fn a_cursor_waits_at_the_tail() {
    let disk = disk(1);
    let log = open(&disk, 0, options());
    let (mut cursor, mut bytes) = (log.cursor(), vec![1]);
    assert!(matches!(cursor.read(0, 100, &mut bytes), Read::AtTail));
    assert!(bytes.is_empty());
    append(&log, b"value");
    assert_eq!(log.tail_complete(), log.tail());
    let read = cursor.read(0, 0, &mut bytes);
    assert!(matches!(read, Read::Frames { first: 0, .. }), "{read:?}");
    assert!(matches!(
        cursor.read(log.tail(), 100, &mut bytes),
        Read::AtTail
    ));
}

#[test]
fn frames_are_taken_out_of_what_was_read() {
    let log = Log::in_memory(Arc::new(ManualClock::at_unix_ms(1)), 0, 64 << 10);
    let mut appender = log.appender();
    appender.set_time(7);
    appender.control(&Control::DigestPoint { number: 9 });
    // Alone in a group, and with others; the last control counts.
    appender.group_begin();
    appender.control(&Control::Ping);
    appender.group_end();
    appender.group_begin();
    appender.control(&Control::Ping);
    appender.command(0, &[b"SET", b"key", b"value"]);
    appender.control(&Control::GetAck);
    appender.group_end();
    appender.command(1, &[b"DEL", b"key"]);
    let mut bytes = Vec::new();
    let read = log.cursor().read(0, 4096, &mut bytes);
    assert!(matches!(read, Read::Frames { first: 0, .. }), "{read:?}");
    assert_eq!(frame_bytes(&bytes[..16]), Some(48));
    assert_eq!(frame_bytes(&bytes[..8]), None);
    let mut next = 0;
    let found: Vec<_> = frames(0, &bytes)
        .map(|frame| {
            assert_eq!((frame.sequence, frame.unix_ms), (next, 7));
            next += frame.length;
            let databases: Vec<u16> = frame.effects().map(|effect| effect.database).collect();
            (frame.control(), databases)
        })
        .collect();
    let wanted = [
        (Some(Control::DigestPoint { number: 9 }), vec![]),
        (Some(Control::Ping), vec![]),
        (Some(Control::GetAck), vec![0]),
        (None, vec![1]),
    ];
    assert_eq!(found, wanted);
    assert_eq!(next, log.tail());
    let cut = bytes.len() - 8;
    assert_eq!(frames(0, &bytes[..cut]).count(), 3, "whole ones");
}
