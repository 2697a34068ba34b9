//! Compares direct files with plain ones: any order of calls, file systems that refuse direct
//! writes, full devices.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use proptest::prelude::*;
use std::path::PathBuf;

use base::sync::atomic::AtomicU64;

use tempfile::TempDir;

use super::*;

/// Small, so that a few writes fill several pieces.
const SMALL_PIECE_BYTES: usize = 4 * PAGE_BYTES;

/// A file that is removed with its test.
#[derive(Debug)]
struct TestFile {
    file: PathBuf,
    _directory: TempDir,
}

impl TestFile {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self {
            file: directory.path().join("file"),
            _directory: directory,
        }
    }

    fn read(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap()
    }

    /// Creates a file as [`create`] does.
    fn file(&self, direct: Direct) -> DirectFile {
        let plain = File::create_new(&self.file).unwrap();
        let opened = open_direct(&self.file, OpenOptions::new().write(true));
        let opened = opened.filter(|_| !matches!(direct, Direct::Missing));
        let mut ways = Ways::new(plain, opened);
        ways.refuses = matches!(direct, Direct::Refusing);
        DirectFile::new(ways, SMALL_PIECE_BYTES, Helper::Thread).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Direct {
    AsItIs,
    Missing,
    Refusing,
}

#[derive(Clone, Debug)]
enum Act {
    Append(usize),
    Write(u64, usize),
    Words(usize, usize),
    /// Words that lie in pages of memory as in the file, behind a head of so many words.
    Pages(usize, usize),
    SetLen(u64),
    Allocate(u64),
    Sync,
    HandOver,
    Size,
    Read(u64, usize),
}

fn act() -> impl Strategy<Value = Act> {
    let far = 0..70_000_u64;
    prop_oneof![
        8 => (0..9_000_usize).prop_map(Act::Append),
        2 => (0..5_usize).prop_map(|pages| Act::Append(pages * PAGE_BYTES)),
        3 => (far.clone(), 0..9_000_usize).prop_map(|(at, len)| Act::Write(at, len)),
        3 => (0..100_usize, 0..1_500_usize).prop_map(|(head, words)| Act::Words(head, words)),
        3 => (0..600_usize, 0..9_000_usize).prop_map(|(head, words)| Act::Pages(head, words)),
        1 => far.clone().prop_map(Act::SetLen),
        1 => far.clone().prop_map(Act::Allocate),
        2 => Just(Act::Sync),
        2 => Just(Act::HandOver),
        1 => Just(Act::Size),
        2 => (far, 0..9_000_usize).prop_map(|(at, len)| Act::Read(at, len)),
    ]
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = AtomicU64> {
    let words = bytes.as_chunks().0.iter();
    words.map(|word| AtomicU64::new(u64::from_le_bytes(*word).to_le()))
}

/// The expected content of a file, built without it.
#[derive(Debug, Default)]
struct Model {
    bytes: Vec<u8>,
    end: usize,
    next: u8,
}

impl Model {
    fn fresh(&mut self, len: usize) -> Vec<u8> {
        (0..len)
            .map(|_| {
                self.next = self.next % 251 + 1;
                self.next
            })
            .collect()
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            let len = self.bytes.len().max(at + bytes.len());
            self.bytes.resize(len, 0);
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.end = at + bytes.len();
    }

    fn act(&mut self, file: &DirectFile, act: &Act) {
        match *act {
            Act::Append(len) => {
                let bytes = self.fresh(len);
                file.write_at(&bytes, self.end as u64).unwrap();
                self.write(self.end, &bytes);
            }
            Act::Write(at, len) => {
                let bytes = self.fresh(len);
                file.write_at(&bytes, at).unwrap();
                self.write(usize::try_from(at).unwrap(), &bytes);
            }
            Act::Words(head, words) => {
                let mut bytes = self.fresh(head + words * 8);
                let words: Vec<AtomicU64> = words_of(&bytes[head..]).collect();
                let rows = [&words[..words.len() / 2], &[], &words[words.len() / 2..]];
                let (head, at) = (bytes[..head].to_vec(), self.end as u64);
                file.write_words_at(&head, &rows, at).unwrap();
                self.write(self.end, &std::mem::take(&mut bytes));
            }
            Act::Pages(head, count) => {
                let head = head * 8 + self.end.next_multiple_of(8) - self.end;
                let bytes = self.fresh(head + count * 8);
                let in_page = (self.end + head) % PAGE_BYTES;
                let room: Vec<AtomicU64> = (0..count + PAGE_BYTES / 8)
                    .map(|_| AtomicU64::new(0))
                    .collect();
                let is_in_step = |at: &usize| room[*at..].as_ptr().addr() % PAGE_BYTES == in_page;
                let start = (0..PAGE_BYTES / 8).find(is_in_step).unwrap();
                let words = &room[start..start + count];
                for (word, value) in words.iter().zip(words_of(&bytes[head..])) {
                    word.store(value.into_inner(), Relaxed);
                }
                let at = self.end as u64;
                file.write_words_at(&bytes[..head], &[words], at).unwrap();
                for word in words {
                    // The caller may change them again.
                    word.store(0, Relaxed);
                }
                self.write(self.end, &bytes);
            }
            Act::SetLen(len) => {
                file.set_len(len).unwrap();
                self.bytes.resize(usize::try_from(len).unwrap(), 0);
            }
            Act::Allocate(len) => {
                file.allocate(len.max(1)).unwrap();
                let len = self.bytes.len().max(usize::try_from(len.max(1)).unwrap());
                self.bytes.resize(len, 0);
            }
            Act::Sync => file.sync().unwrap(),
            Act::HandOver => file.hand_over().unwrap(),
            Act::Size => assert_eq!(file.size().unwrap(), self.bytes.len() as u64),
            Act::Read(at, len) => {
                let mut found = vec![0; len];
                let count = file.read_at(&mut found, at).unwrap();
                let rest = usize::try_from(at).unwrap().min(self.bytes.len());
                let here = len.min(self.bytes.len() - rest);
                assert_eq!(found[..count], self.bytes[rest..rest + here]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_holds_what_any_file_would(
        acts in prop::collection::vec(act(), 1..40),
        has_thread in any::<bool>(),
        direct in prop_oneof![
            6 => Just(Direct::AsItIs),
            1 => Just(Direct::Missing),
            1 => Just(Direct::Refusing),
        ],
    ) {
        let place = TestFile::new();
        let file = place.file(direct);
        if !has_thread {
            file.state().pump = None;
        }
        let mut model = Model::default();
        for act in &acts {
            model.act(&file, act);
        }
        file.sync().unwrap();
        prop_assert_eq!(&place.read(), &model.bytes);
    }
}

/// Words behind the last whole page are buffered with what follows, and their page is written
/// again.
#[test]
fn pages_of_words_go_from_where_they_are() {
    let place = TestFile::new();
    let file = place.file(Direct::AsItIs);
    file.state().pump = None;
    let mut model = Model::default();
    for head in [5, 0, 511, 3] {
        let staged = file.state().filled;
        model.act(&file, &Act::Pages(head, 9 * PAGE_BYTES / 8));
        let in_place = staged + head * 8 + 9 * PAGE_BYTES - file.state().filled;
        assert!(in_place.is_multiple_of(PAGE_BYTES));
        assert!(in_place >= 9 * PAGE_BYTES, "none of it waits");
    }
    model.act(&file, &Act::Append(10));
    file.sync().unwrap();
    assert_eq!(place.read(), model.bytes);
}

#[test]
fn what_is_read_past_the_cache_is_what_was_written() {
    let place = TestFile::new();
    let file = create(&place.file, Helper::Thread).unwrap();
    let mut model = Model::default();
    for len in [64, 262_000, 1_300_000, 1_000_000, 56] {
        let bytes = model.fresh(len);
        file.write_at(&bytes, model.end as u64).unwrap();
        model.write(model.end, &bytes);
    }
    file.sync().unwrap();
    drop(file);
    let reader = open(&place.file).unwrap();
    assert_eq!(reader.size().unwrap(), model.bytes.len() as u64);
    for (at, len) in [(0, 64), (64, 262_144), (1_048_000, 1_400_000), (100, 7)] {
        let mut found = vec![0; len];
        assert_eq!(reader.read_at(&mut found, at as u64).unwrap(), len);
        assert_eq!(found, model.bytes[at..at + len], "{at}");
    }
    let end = model.bytes.len();
    let mut found = vec![0; 9_000];
    assert_eq!(
        reader.read_at(&mut found, end as u64 - 5_000).unwrap(),
        5_000
    );
    assert_eq!(found[..5_000], model.bytes[end - 5_000..]);
    assert_eq!(reader.read_at(&mut found, end as u64).unwrap(), 0);
    assert_eq!(reader.read_at(&mut found, end as u64 + 1).unwrap(), 0);
    assert!(create(&place.file, Helper::Thread).is_err(), "made once");
}

#[test]
fn what_is_written_again_goes_on_behind_a_hand_over_and_keeps_its_length() {
    let place = TestFile::new();
    std::fs::write(&place.file, [9; 3 * PAGE_BYTES]).unwrap();
    let file = rewrite(&place.file).unwrap();
    let mut end = 0;
    for len in [40, 5_000, 1, 4_055] {
        file.write_at(&vec![1; len], end as u64).unwrap();
        file.hand_over().unwrap();
        end += len;
        assert_eq!(place.read()[..end], vec![1; end]);
    }
    assert_eq!(place.read().len(), 3 * PAGE_BYTES);
    file.set_len(end as u64).unwrap();
    file.write_at(&[2; 40], end as u64).unwrap();
    file.hand_over().unwrap();
    assert_eq!(place.read(), [&vec![1; end][..], &[2; 40]].concat());
}

/// Returns the bytes of a new file, and a reader that reads it in small pieces.
fn written(place: &TestFile, len: usize) -> (Vec<u8>, DirectReader) {
    let bytes = Model::default().fresh(len);
    std::fs::write(&place.file, &bytes).unwrap();
    let plain = File::open(&place.file).unwrap();
    let direct = open_direct(&place.file, OpenOptions::new().read(true));
    // Without a direct way, the same file serves.
    let direct = direct.unwrap_or_else(|| plain.try_clone().unwrap());
    let reader = DirectReader::new(SystemFile::new(plain), direct, SMALL_PIECE_BYTES).unwrap();
    (bytes, reader)
}

fn check_read(reader: &DirectReader, bytes: &[u8], at: usize, len: usize) {
    let mut found = vec![0; len];
    let count = reader.read_at(&mut found, at as u64).unwrap();
    let from = at.min(bytes.len());
    let to = from + len.min(bytes.len() - from);
    assert_eq!(found[..count], bytes[from..to], "{len} bytes at {at}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_is_read_in_any_order_is_what_is_there(
        len in 0..200_000_usize,
        reads in prop::collection::vec((0..210_000_usize, 0..40_000_usize), 0..20),
        (step, window) in (1..9_000_usize, 1..9_000_usize),
    ) {
        let place = TestFile::new();
        let (bytes, reader) = written(&place, len);
        for (at, len) in reads {
            check_read(&reader, &bytes, at, len);
        }
        for at in (0..len + step).step_by(step) {
            check_read(&reader, &bytes, at, window);
        }
    }
}

#[test]
fn where_it_is_refused_the_usual_way_is_taken() {
    for direct in [Direct::Missing, Direct::Refusing] {
        let place = TestFile::new();
        let file = place.file(direct);
        let bytes = Model::default().fresh(3 * SMALL_PIECE_BYTES);
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        assert!(!file.is_past_cache());
        assert_eq!(place.read(), bytes);
    }
}

/// Returns a file on a full device.
fn full_file() -> DirectFile {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ways = Ways::new(full(), Some(full()));
    DirectFile::new(ways, SMALL_PIECE_BYTES, Helper::Thread).unwrap()
}

#[test]
fn a_piece_that_was_lost_is_an_error_of_what_follows() {
    let file = full_file();
    let bytes = vec![1; SMALL_PIECE_BYTES];
    let mut errors = 0;
    for number in 0..8 {
        let at = number * SMALL_PIECE_BYTES as u64;
        errors += u32::from(file.write_at(&bytes, at).is_err());
    }
    assert!(errors > 0, "before all memory is used");
    for _ in 0..2 {
        let error = file.sync().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    assert!(file.write_at(&bytes, 0).is_err() && file.size().is_err());

    let file = full_file();
    file.write_at(&bytes[..100], 0).unwrap();
    let error = file.sync().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn pages_of_words_that_were_lost_are_an_error_of_what_follows() {
    let file = full_file();
    file.state().pump = None;
    let words: Vec<AtomicU64> = words_of(&[1; 20 * PAGE_BYTES]).collect();
    let is_page = |at: &usize| words[*at..].as_ptr().addr().is_multiple_of(PAGE_BYTES);
    let start = (0..words.len()).find(is_page).unwrap();
    let pages = &words[start..start + 16 * PAGE_BYTES / 8];
    let errors = [
        file.write_words_at(&[], &[pages], 0).unwrap_err(),
        file.sync().unwrap_err(),
        file.write_at(b"more", 0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn without_a_thread_whoever_fills_a_piece_is_told() {
    let file = full_file();
    file.state().pump = None;
    let bytes = vec![1; SMALL_PIECE_BYTES];
    for _ in 0..2 {
        let error = file.write_at(&bytes, 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    let error = file.sync().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}
