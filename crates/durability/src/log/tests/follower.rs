//! A replica's log: frames that are appended unchanged, refused, and discarded.

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;
use base::random::Prng;

use super::running::{DIRECTORY, disk, options};
use crate::disk::Disk;
use crate::log::builder::Builder;
use crate::log::{AppendError, Follower, Log, Options, Read, Reader, TruncateError, salvage};
use crate::simulated::{Fault, SimulatedDisk};

const FRAME_BYTES_MAX: u32 = 64 << 10;

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

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_unix_ms(1_000))
}

fn open(disk: &SimulatedDisk, start: u64, options: &Options) -> Arc<Log> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Log::open(disk, clock(), Path::new(DIRECTORY), start, options.clone()).unwrap()
}

/// Returns a frame with a value, as it is at a sequence.
fn frame(sequence: u64, value: &[u8]) -> Vec<u8> {
    let mut builder = Builder::default();
    builder.effect(0, &[b"SET", b"key", value]);
    builder.words(sequence).as_flattened().to_vec()
}

fn follow(log: &Arc<Log>) -> Follower {
    log.follower(FRAME_BYTES_MAX.into()).unwrap()
}

/// Appends a frame with this value; returns its bytes.
fn append(follower: &mut Follower, value: &[u8]) -> Vec<u8> {
    let at = follower.next();
    let bytes = frame(at, value);
    let end = follower.append_frames(at, &bytes).unwrap();
    assert_eq!(end, at + bytes.len() as u64);
    bytes
}

/// Returns the frames that a start finds, from the beginning on.
fn recover(disk: &SimulatedDisk, options: &Options) -> Vec<u8> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    salvage(&disk, &*clock(), Path::new(DIRECTORY), options).unwrap();
    let mut reader = Reader::open(disk, Path::new(DIRECTORY), 0).unwrap();
    let mut all = Vec::new();
    while let Some((_, bytes)) = reader.next_bytes().unwrap() {
        all.extend_from_slice(bytes);
    }
    all
}

/// Returns the bytes that a cursor reads.
fn read(log: &Arc<Log>) -> Vec<u8> {
    let (mut cursor, mut all, mut bytes) = (log.cursor(), Vec::new(), Vec::new());
    loop {
        match cursor.read(all.len() as u64, 512, &mut bytes) {
            Read::Frames { .. } => all.extend_from_slice(&bytes),
            Read::AtTail => return all,
            other => panic!("{other:?}"),
        }
    }
}

/// From one log to another, in pieces that are cut anywhere.
#[test]
fn a_replica_keeps_the_same_bytes() {
    for seed in 0..20 {
        let mut random = Prng::seeded(seed);
        let primary = Log::in_memory(clock(), 0, 1 << 20);
        let mut appender = primary.appender();
        for number in 0..100_u64 {
            let bytes = if number % 20 == 7 { 9_000 } else { 90 };
            appender.set_time(1_700_000_000_000 + number);
            appender.generation(number);
            appender.command(0, &[b"SET", b"key", &vec![b'v'; random.index(bytes)]]);
        }
        let disk = disk(seed);
        let replica = open(&disk, 0, &options());
        let mut follower = follow(&replica);
        let (mut cursor, mut bytes) = (primary.cursor(), Vec::new());
        while let Read::Frames { first, end } = cursor.read(follower.next(), 1_000, &mut bytes) {
            let (mut rest, mut at) = (&bytes[..], first);
            while !rest.is_empty() {
                let (here, behind) = rest.split_at(random.index(rest.len()) + 1);
                let tail = follower.append_frames(at, here).unwrap();
                assert!(tail <= at + here.len() as u64);
                (rest, at) = (behind, at + here.len() as u64);
            }
            assert_eq!(follower.next(), end);
            replica.write_out(replica.tail()).unwrap();
            replica.sync_step();
        }
        assert_eq!(replica.tail(), primary.tail());
        let wanted = read(&primary);
        assert!(read(&replica) == wanted);
        replica.close().unwrap();
        assert!(recover(&disk, &options()) == wanted);
    }
}

#[test]
fn what_does_not_belong_there_is_refused_by_name() {
    let log = Log::in_memory(clock(), 0, 64 << 10);
    let mut follower = follow(&log);
    assert!(log.follower(1).is_none(), "one is enough");
    append(&mut follower, b"first");
    let at = log.tail();
    let good = frame(at, b"second");
    let mut refused = |first: u64, bytes: &[u8]| {
        let error = follower.append_frames(first, bytes).unwrap_err();
        assert_eq!((log.tail(), follower.next()), (at, at), "{error}");
        error
    };
    let gap = AppendError::Gap {
        expected: at,
        found: at + 8,
    };
    assert_eq!(refused(at + 8, &good), gap);
    let overlap = AppendError::Overlap {
        expected: at,
        found: at - 8,
    };
    assert_eq!(refused(at - 8, &good), overlap);
    let wrong_sum = |sequence| AppendError::Malformed {
        sequence,
        what: "the sum of a frame is wrong",
    };
    for byte in [0, 8, 16, 20, good.len() - 1] {
        let mut bad = good.clone();
        bad[byte] ^= 1;
        assert_eq!(refused(at, &bad), wrong_sum(at));
        let both = [&good[..], &frame(at, b"third")].concat();
        let behind = at + good.len() as u64;
        assert_eq!(refused(at, &both), wrong_sum(behind), "none of both");
    }
    let mut unknown = good.clone();
    unknown[7] = 0;
    assert_eq!(
        refused(at, &unknown),
        AppendError::UnknownKind { sequence: at }
    );
    let long = frame(at, &[b'v'; 64 << 10]);
    let too_long = AppendError::TooLong {
        sequence: at,
        bytes: long.len() as u64,
        bytes_max: FRAME_BYTES_MAX.into(),
    };
    assert_eq!(refused(at, &long[..1_000]), too_long);
    let text = too_long.to_string();
    assert!(text.ends_with("bytes, and may have 65536"), "{text}");
    // A frame that comes in one piece is not buffered first.
    follower.append_frames(at, &long).unwrap();
    drop(follower);
    let _appender = log.appender();
    assert!(log.follower(1).is_none(), "somebody else appends");
}

#[test]
fn pieces_count_when_they_are_whole() {
    let log = Log::in_memory(clock(), 0, 64 << 10);
    let mut follower = follow(&log);
    let bytes = frame(0, &[b'v'; 1_000]);
    assert_eq!(follower.append_frames(0, &bytes[..500]), Ok(0));
    assert_eq!((follower.next(), log.tail()), (500, 0));
    let error = follower.append_frames(0, &bytes).unwrap_err();
    assert!(matches!(error, AppendError::Overlap { .. }), "{error}");
    assert_eq!(follower.next(), 0, "the link ends, and begins anew");
    follower.append_frames(0, &bytes[..500]).unwrap();
    let mut rest = [&bytes[500..], &frame(bytes.len() as u64, b"next")].concat();
    rest[100] ^= 1;
    let error = follower.append_frames(500, &rest).unwrap_err();
    assert!(
        matches!(error, AppendError::Malformed { sequence: 0, .. }),
        "{error}"
    );
    assert_eq!(log.tail(), 0);
    follower.append_frames(0, &bytes[..500]).unwrap();
    follower.forget_piece();
    assert_eq!(follower.append_frames(0, &bytes), Ok(bytes.len() as u64));
}

#[test]
fn a_log_is_truncated_where_a_frame_begins() {
    for options in [options(), with_ring()] {
        let disk = disk(1);
        let log = open(&disk, 0, &options);
        let mut follower = follow(&log);
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for number in 0..40 {
            frames.push(append(&mut follower, &[number; 60]));
            log.write_out(log.tail()).unwrap();
            if number == 20 {
                log.request_sync(log.tail());
                log.sync_step();
            }
        }
        let length = frames[0].len() as u64;
        let end = log.tail();
        let refused = |follower: &mut Follower, sequence| {
            let error = follower.truncate(sequence).unwrap_err();
            assert_eq!(log.tail(), end, "{error}");
            error
        };
        let error = refused(&mut follower, end + 8);
        assert!(
            matches!(error, TruncateError::Beyond { end: 3520 }),
            "{error:?}"
        );
        for wrong in [8, length - 8, 20 * length + 16] {
            let error = refused(&mut follower, wrong);
            assert!(matches!(error, TruncateError::NoFrame), "{error:?}");
        }
        let other = log.appender();
        let error = refused(&mut follower, length);
        assert!(matches!(error, TruncateError::Appenders), "{error:?}");
        drop(other);
        follower.truncate(end).unwrap();
        // Truncates frames that are not durable, then durable ones, then all.
        for (kept, number) in [(30, 100), (10, 101), (0, 102)] {
            let at = kept as u64 * length;
            follower.truncate(at).unwrap();
            assert_eq!((log.tail(), log.written(), log.durable()), (at, at, at));
            frames.truncate(kept);
            assert!(read(&log) == frames.concat());
            for _ in 0..3 {
                frames.push(append(&mut follower, &[number; 60]));
            }
            assert!(read(&log) == frames.concat());
            log.write_out(log.tail()).unwrap();
            log.request_sync(log.tail());
            log.sync_step();
        }
        log.close().unwrap();
        assert!(recover(&disk.crash(1), &options) == frames.concat());
    }
}

/// Truncates a log and its expected `frames`. Returns the frames before, if the truncation is not
/// final yet.
fn give_up_some(
    follower: &mut Follower,
    frames: &mut Vec<Vec<u8>>,
    kept: usize,
) -> Option<Vec<Vec<u8>>> {
    let at: usize = frames[..kept].iter().map(Vec::len).sum();
    let before = frames.clone();
    match follower.truncate(at as u64) {
        Ok(()) => {
            frames.truncate(kept);
            None
        }
        Err(TruncateError::Fault(_)) => {
            frames.truncate(kept);
            Some(before)
        }
        // The device is off or fails, and the frame is not in memory.
        Err(TruncateError::Damaged(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A log that is written, truncated and reopened, over and over; the power is cut, the process
/// ends, or a file fails at any moment. The frames found are those appended, of one history alone,
/// with all durable ones.
fn live(seed: u64, options: &Options, value_bytes_max: usize) {
    let mut random = Prng::seeded(seed);
    let mut device = disk(seed);
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut number = 0_u64;
    for _life in 0..5 {
        let log = open(&device, frames.concat().len() as u64, options);
        let mut follower = follow(&log);
        let mut given_up = None;
        let cut_at = device.operations() + 1 + random.below(60);
        let is_cut = random.below(2) == 0;
        if is_cut {
            device.cut_power_at(cut_at);
        }
        for _ in 0..random.below(60) {
            number += 1;
            let value = [
                number.to_le_bytes().as_slice(),
                &vec![b'v'; random.index(value_bytes_max)],
            ]
            .concat();
            frames.push(append(&mut follower, &value));
            let _fault = log.write_out(log.tail());
            match random.below(12) {
                0..3 => {
                    log.request_sync(log.tail());
                    log.sync_step();
                }
                3 => {
                    let now = device.operations();
                    device.fail(now..now + random.below(4), Fault::Device);
                }
                4..6 => {
                    let kept = random.index(frames.len() + 1);
                    given_up = give_up_some(&mut follower, &mut frames, kept).or(given_up);
                }
                _ => {}
            }
            if log.fault().is_none() {
                given_up = None;
            }
            if given_up.is_some() || device.is_off() {
                break;
            }
        }
        let durable = usize::try_from(log.durable()).unwrap();
        drop((follower, log));
        device.heal();
        if is_cut || random.below(3) == 0 {
            device = device.crash(random.next_u64());
        }
        let found = recover(&device, options);
        let fits = |frames: &[Vec<u8>]| frames.concat().starts_with(&found);
        if !fits(&frames) {
            frames = given_up.unwrap_or_else(|| panic!("seed {seed}: what was given up is back"));
            assert!(fits(&frames), "seed {seed}");
        } else {
            assert!(found.len() >= durable, "seed {seed}");
        }
        let mut end = 0;
        let is_found = |frame: &Vec<u8>| {
            end += frame.len();
            end <= found.len()
        };
        frames = frames.into_iter().take_while(is_found).collect();
        assert_eq!(frames.concat().len(), found.len());
    }
}

#[test]
fn what_was_given_up_does_not_come_back() {
    for seed in 0..60 {
        live(seed, &options(), 200);
        live(seed, &with_ring(), 200);
        // A device has some of its pages in their new state and others in an old one.
        let of_pages = Options {
            segment_bytes: 32 << 10,
            chunk_bytes: 4096,
            ring_bytes: 16 << 10,
            ..with_ring()
        };
        live(seed, &of_pages, 1_500);
    }
}
