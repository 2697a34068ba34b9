//! A small log with every byte flipped and cut at every offset: the result is a prefix or a
//! refusal, never a wrong frame, and never a prefix that lacks durable frames.

use super::written::{Directory, Written, read};
use crate::log::{LogError, Shape};
use crate::planted::{self, Bug};

const FIRST: &str = "0000000000000000.log";
/// Bytes of a `SET` of one letter and one digit.
const SET_BYTES: usize = 32;

/// Two files. The first frame of the second file was durable, the others were not.
struct Small {
    files: Vec<(String, Vec<u8>)>,
    frames: Vec<String>,
    durable: u64,
}

impl Small {
    fn new() -> Self {
        let mut first = Written::new(0, 0);
        first.block(0, &[&[&[b"SET", b"a", b"1"]], &[&[b"SET", b"b", b"2"]]]);
        first.gap = 16;
        first.block(0, &[&[&[b"SET", b"c", b"3"], &[b"DEL", b"a"]]]);
        first.gap = 0;
        // With a wide head.
        first.database = 300;
        first.block(0, &[&[&[b"SET", b"c", b"3"]]]);
        let mut second = Written::new(1, first.sequence);
        second.block(0, &[&[&[b"SET", b"d", b"4"]]]);
        let durable = second.sequence;
        second.gap = 8;
        second.block(durable, &[&[&[b"SET", b"e", b"5"]], &[&[b"DEL", b"e"]]]);
        second.block(durable, &[&[&[b"SET", b"f", b"6"]]]);
        let files = vec![
            (FIRST.to_owned(), first.bytes),
            (format!("{:016x}.log", first.sequence), second.bytes),
        ];
        let directory = Directory::new();
        for (name, bytes) in &files {
            directory.put(name, bytes);
        }
        let (frames, _) = read(&directory, 0);
        assert_eq!(frames.len(), 8);
        Self {
            files,
            frames,
            durable,
        }
    }

    /// Reads the log with other bytes in one of the files; returns whether it was refused. A prefix
    /// that ends before `durable` is a failure.
    fn check(
        &self,
        directory: &Directory,
        file: usize,
        bytes: &[u8],
        durable: u64,
        note: &str,
    ) -> bool {
        directory.put(&self.files[1 - file].0, &self.files[1 - file].1);
        directory.put(&self.files[file].0, bytes);
        let (frames, end) = read(directory, 0);
        assert!(self.frames.starts_with(&frames), "{note}: {frames:?}");
        match end {
            Ok(tail) => assert!(tail.end >= durable, "{note}: {tail:?}"),
            Err(LogError::Damage { path, offset, .. }) => {
                assert!(path.ends_with(&self.files[file].0), "{note}: {path:?}");
                assert!(offset <= bytes.len() as u64, "{note}");
                return true;
            }
            Err(error) => panic!("{note}: {error}"),
        }
        false
    }
}

#[test]
fn every_byte_flipped() {
    let (small, directory) = (Small::new(), Directory::new());
    let mut refused = [0; 2];
    for (file, (_, good)) in small.files.iter().enumerate() {
        for at in 0..good.len() {
            for bits in [0x01, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= bits;
                let note = format!("file {file}, byte {at} ^ {bits}");
                let is_refused = small.check(&directory, file, &bytes, small.durable, &note);
                refused[file] += usize::from(is_refused);
                assert!(is_refused || file == 1, "{note}");
            }
        }
    }
    // The head of the segment, the head of the block and the durable frame.
    assert_eq!(refused[1], 2 * (40 + 40 + SET_BYTES));
}

/// Bytes that lead up to the start of reading may be damaged, unless they are a head.
#[test]
fn a_gap_below_what_is_asked_for_may_hold_anything() {
    let mut written = Written::new(0, 0);
    written.gap = 16;
    written.block(0, &[&[&[b"SET", b"a", b"1"]], &[&[b"SET", b"b", b"2"]]]);
    written.gap = 0;
    written.block(written.sequence, &[&[&[b"SET", b"c", b"3"]]]);
    written.bytes[40 + 40 + 3] ^= 1;
    let directory = Directory::new();
    directory.put(FIRST, &written.bytes);
    let (frames, end) = read(&directory, SET_BYTES as u64);
    assert_eq!((frames.len(), end.unwrap().end), (2, written.sequence));
    assert!(matches!(
        read(&directory, 0).1,
        Err(LogError::Damage { .. })
    ));
}

/// A checkpoint holds everything below the start of reading.
#[test]
fn damage_below_what_is_asked_for_is_passed() {
    let (small, directory) = (Small::new(), Directory::new());
    let (name, good) = &small.files[0];
    directory.put(&small.files[1].0, &small.files[1].1);
    directory.put(name, good);
    // A block begins behind the first and the third frame; the second is in the middle of one.
    for (skipped, in_middle) in [(1, true), (2, false), (3, false)] {
        let frames = &small.frames[skipped..];
        let from: u64 = frames[0].split_once(' ').unwrap().0.parse().unwrap();
        let start = offset_of(good, from, in_middle);
        for at in 40..start {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            directory.put(name, &bytes);
            let (found, end) = read(&directory, from);
            if in_middle && at < 80 {
                // The head that leads to it is damaged.
                assert!(matches!(end, Err(LogError::Damage { .. })), "{at}: {end:?}");
                continue;
            }
            assert_eq!(found, frames, "from {from}, byte {at}");
            assert!(end.unwrap().end >= small.durable, "from {from}, byte {at}");
        }
    }
}

/// Returns the offset of the head of the block that begins with a frame, or of the frame itself.
fn offset_of(file: &[u8], sequence: u64, is_frame: bool) -> usize {
    let frame = usize::try_from(sequence).unwrap();
    let is_head = |at: &usize| file[*at..].starts_with(b"LBLK");
    let heads = (40..file.len()).step_by(8).filter(is_head);
    // Sequences do not count heads.
    let offset = heads
        .enumerate()
        .map(|(before, head)| (head, head - 40 - 40 * before));
    let (head, first) = offset.filter(|(_, first)| *first <= frame).last().unwrap();
    if is_frame {
        head + 40 + frame - first
    } else {
        head
    }
}

#[test]
fn a_log_goes_on_behind_damage_that_a_checkpoint_holds() {
    let (small, directory) = (Small::new(), Directory::new());
    let (name, good) = &small.files[0];
    let mut bytes = good.clone();
    bytes[60] ^= 0xff;
    directory.put(name, &bytes);
    let from = 64;
    let (found, tail) = read(&directory, from);
    let end = tail.unwrap().end;
    drop(directory.open_log(end).unwrap());
    let (again, _) = read(&directory, from);
    assert_eq!(again, found);
    assert_eq!(
        found,
        small.frames[2..4],
        "what was not durable was written again"
    );
}

#[test]
fn what_has_to_be_written_again_is_whole_or_refused() {
    let (small, directory) = (Small::new(), Directory::new());
    let (name, good) = &small.files[0];
    let mut bytes = good.clone();
    // The second frame, in a block that is skipped by a reader of later frames.
    bytes[40 + 40 + SET_BYTES + 20] ^= 0xff;
    directory.put(name, &bytes);
    let (found, tail) = read(&directory, 64);
    assert_eq!(found, small.frames[2..4]);
    let error = directory.open_log(tail.unwrap().end).unwrap_err();
    assert!(error.to_string().contains("not whole"), "{error}");
    assert_eq!(directory.get(name), bytes, "nothing was done");
}

#[test]
fn every_offset_cut() {
    let (small, directory) = (Small::new(), Directory::new());
    for (file, (_, good)) in small.files.iter().enumerate() {
        for at in 0..good.len() {
            let mut zeroed = good.clone();
            zeroed[at..].fill(0);
            let mut garbage = good.clone();
            garbage[at..].iter_mut().for_each(|byte| *byte ^= 0x5a);
            for (kind, bytes) in [
                ("cut", &good[..at]),
                ("zeroed", &zeroed),
                ("garbage", &garbage),
            ] {
                let note = format!("file {file}, {kind} at {at}");
                // The statement that the first frame of the second file was durable is cut off,
                // too.
                let is_refused = small.check(&directory, file, bytes, 0, &note);
                let is_changed = bytes != good.as_slice();
                assert_eq!(is_refused, is_changed && (file == 0 || at < 40), "{note}");
            }
        }
    }
}

#[test]
fn tails_have_shapes() {
    let (small, directory) = (Small::new(), Directory::new());
    let (name, good) = &small.files[1];
    directory.put(FIRST, &small.files[0].1);
    let shape = |bytes: &[u8]| {
        directory.put(name, bytes);
        read(&directory, 0).1.unwrap().shape
    };
    let last = good.len() - SET_BYTES - 40;
    assert_eq!(shape(good), Shape::Clean);
    assert_eq!(shape(&good[..good.len() - 3]), Shape::Short);
    assert_eq!(shape(&good[..last + 7]), Shape::Short);
    assert_eq!(shape(&[good, &[0; 100][..]].concat()), Shape::Zeroed);
    assert_eq!(
        shape(&[&good[..last + 40], &[0; SET_BYTES]].concat()),
        Shape::Zeroed
    );
    assert_eq!(shape(&[good, &[1; 100][..]].concat()), Shape::Garbage);
    assert_eq!(
        shape(&[&good[..last + 40], &[1; SET_BYTES]].concat()),
        Shape::Garbage
    );
    for kept in 8..SET_BYTES - 7 {
        let rest = vec![0; SET_BYTES - kept];
        let torn = [&good[..last + 40 + kept], &rest].concat();
        assert_eq!(shape(&torn), Shape::Torn, "{kept}");
    }
}

#[test]
fn what_a_used_file_held_before_is_no_damage() {
    let directory = Directory::new();
    let mut before = Written::new(0, 0);
    let frame: &[&[&[u8]]] = &[&[b"SET", b"before", b"1"]];
    before.block(0, &[frame; 6]);
    let mut after = Written::in_used_file(1, before.sequence);
    after.block(0, &[&[&[b"SET", b"after", b"2"]]]);
    let name = format!("{:016x}.log", before.sequence);
    let last = after.bytes.len();
    after.block(before.sequence, &[&[&[b"SET", b"last", b"3"]]]);
    for kept in last..=after.bytes.len() {
        // The rest of the last block did not reach the device.
        let bytes = [&after.bytes[..kept], &before.bytes[kept..]].concat();
        directory.put(&name, &bytes);
        let (frames, tail) = read(&directory, before.sequence);
        let tail = tail.unwrap();
        let is_whole = kept == after.bytes.len();
        assert_eq!(frames.len(), 1 + usize::from(is_whole), "{kept}");
        let is_torn = tail.shape == Shape::Torn && !is_whole;
        assert!(
            is_torn || tail.shape == Shape::Used,
            "{kept}: {:?}",
            tail.shape
        );
    }
}

/// Unsynced blocks reach a device in any order, so a valid one may stand behind a damaged one.
#[test]
fn a_block_that_was_lost_before_one_that_was_not() {
    let (small, directory) = (Small::new(), Directory::new());
    let mut bytes = small.files[1].1.clone();
    bytes[40 + 40 + SET_BYTES..][..40].fill(0);
    assert!(!small.check(&directory, 1, &bytes, small.durable, "undurable"));
    bytes[40..][..40].fill(0);
    // The last block says that the first one was durable.
    assert!(small.check(&directory, 1, &bytes, small.durable, "durable"));
}

#[test]
fn a_file_in_the_middle_that_is_missing_is_damage() {
    let (small, directory) = (Small::new(), Directory::new());
    let mut third = Written::new(2, 0x1000);
    third.block(0x1000, &[&[&[b"PING"]]]);
    directory.put("0000000000001000.log", &third.bytes);
    for (name, bytes) in &small.files {
        directory.put(name, bytes);
    }
    let (frames, end) = read(&directory, 0);
    assert_eq!(frames, small.frames);
    assert!(matches!(end, Err(LogError::Damage { .. })), "{end:?}");
}

/// A file whose sync failed is left as it is; its frames are written again into the next one.
#[test]
fn what_is_behind_the_start_of_the_next_file_does_not_count() {
    let (small, directory) = (Small::new(), Directory::new());
    let mut bytes = small.files[0].1.clone();
    let mut again = Written::new(2, 32);
    again.block(32, &[&[&[b"SET", b"b", b"2"]]]);
    directory.put("0000000000000020.log", &again.bytes);
    for at in 40 + 40 + SET_BYTES..bytes.len() {
        bytes[at] ^= 0xff;
        directory.put(FIRST, &bytes);
        let (frames, tail) = read(&directory, 0);
        assert_eq!(frames, small.frames[..2]);
        assert_eq!((tail.unwrap().end), 64);
    }
}

#[test]
fn without_sums_a_flipped_byte_is_not_noticed() {
    planted::plant(Some(Bug::NoChecksum));
    let caught = std::panic::catch_unwind(every_byte_flipped);
    planted::plant(None);
    assert!(caught.is_err(), "the sweep notices a bug");
}

/// A file gets its name before the name is durable, and the next file may get its own meanwhile.
#[test]
fn a_first_file_whose_name_was_lost_held_nothing_durable() {
    let directory = Directory::new();
    let mut second = Written::new(1, 128);
    second.block(0, &[&[&[b"PING"]]]);
    directory.put("0000000000000080.log", &second.bytes);
    let (frames, tail) = read(&directory, 0);
    assert_eq!((frames.len(), tail.unwrap().end), (0, 0));
    second.block(128, &[]);
    directory.put("0000000000000080.log", &second.bytes);
    let (_, end) = read(&directory, 0);
    assert!(matches!(end, Err(LogError::Missing { .. })), "{end:?}");
}
