//! A running log in one thread, with a manual clock.

use std::path::Path;
use std::sync::Arc;

use base::clock::ManualClock;

use super::written::read_from;
use crate::disk::Disk;
use crate::log::{Appender, Level, Log, Options, Shape, has_file_of, remove_from};
use crate::planted::{self, Bug};
use crate::simulated::SimulatedDisk;

pub(super) const DIRECTORY: &str = "data/log";

/// A log, and what a test needs around it.
pub(super) struct Running {
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Arc<ManualClock>,
    pub(super) log: Arc<Log>,
    pub(super) appender: Appender,
    /// The appended frames as the reader shows them, each with its end.
    pub(super) frames: Vec<(String, u64)>,
}

pub(super) fn options() -> Options {
    Options {
        segment_bytes: 512,
        segment_bytes_first: u64::MAX,
        chunk_bytes: 64,
        ring_bytes: 0,
        ring_bytes_min: 0,
        ring_bytes_first: u64::MAX,
        piece_bytes: 2 << 20,
        in_place_bytes: 64 << 10,
        held_bytes_max: 4096,
        unsynced_bytes_max: 1024,
        seed: Some(1),
    }
}

/// Returns a device with the parent directory of the log's.
pub(super) fn disk(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new(DIRECTORY).parent().unwrap())
        .unwrap();
    disk.settle();
    disk
}

impl Running {
    pub(super) fn new() -> Self {
        Self::open(disk(1), 0)
    }

    pub(super) fn open(disk: SimulatedDisk, start: u64) -> Self {
        Self::try_open(disk, start).unwrap()
    }

    pub(super) fn try_open(disk: SimulatedDisk, start: u64) -> std::io::Result<Self> {
        let clock = Arc::new(ManualClock::at_unix_ms(1_000));
        clock.advance_ms(1);
        let directory = Path::new(DIRECTORY);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let log = Log::open(shared, Arc::clone(&clock) as _, directory, start, options())?;
        let appender = log.appender();
        Ok(Self {
            disk,
            clock,
            log,
            appender,
            frames: Vec::new(),
        })
    }

    /// Appends a frame: `SET` of a number, or every third time two commands as a group.
    pub(super) fn append(&mut self) {
        let number = self.frames.len().to_string();
        let value = "v".repeat(self.frames.len() % 50);
        let parts: [&[u8]; 3] = [b"SET", number.as_bytes(), value.as_bytes()];
        let set = format!("0/0 SET {number} {value}");
        let sequence = self.log.tail();
        let text = if self.frames.len() % 3 == 2 {
            self.appender.group_begin();
            self.appender.command(0, &parts);
            self.appender.command(1, &[b"PING"]);
            self.appender.group_end();
            format!("{sequence} {set}; 1/0 PING")
        } else {
            self.appender.command(0, &parts);
            format!("{sequence} {set}")
        };
        self.frames.push((text, self.log.tail()));
    }

    /// Checks the frames on a device: they must be a prefix, and reach `at_least`. Returns where
    /// they end.
    pub(super) fn check(&self, disk: &SimulatedDisk, at_least: u64) -> u64 {
        let (frames, tail) = read_from(Arc::new(disk.clone()), Path::new(DIRECTORY), 0);
        let tail = tail.unwrap();
        let all: Vec<&String> = self.frames.iter().map(|(text, _)| text).collect();
        let frames: Vec<&String> = frames.iter().collect();
        assert!(all.starts_with(&frames), "{frames:?}\nof {all:?}");
        assert!(
            tail.end >= at_least,
            "{tail:?} lacks what is below {at_least}"
        );
        tail.end
    }
}

#[test]
fn what_is_appended_comes_back() {
    let mut running = Running::new();
    for round in 0..100 {
        running.append();
        if round % 3 == 0 {
            running.log.write_out(running.log.tail()).unwrap();
            assert_eq!(running.log.written(), running.log.tail());
            running.check(&running.disk, running.log.tail());
        }
        if round % 10 == 0 {
            running.log.request_sync(running.log.tail());
            running.log.sync_step();
            assert_eq!(running.log.durable(), running.log.tail());
            assert_eq!(running.log.held_bytes(), 0);
        }
    }
    running.log.close().unwrap();
    let (frames, tail) = read_from(Arc::new(running.disk.clone()), Path::new(DIRECTORY), 0);
    assert_eq!(frames.len(), 100);
    assert_eq!(tail.unwrap().shape, Shape::Clean);
    let files = running.disk.list(Path::new(DIRECTORY)).unwrap();
    assert!(files.len() > 10, "segments are turned: {files:?}");
}

#[test]
fn a_group_that_lacks_an_effect_is_noticed() {
    planted::plant(Some(Bug::GroupCutShort));
    let caught = std::panic::catch_unwind(what_is_appended_comes_back);
    planted::plant(None);
    assert!(caught.is_err());
}

#[test]
fn memory_is_given_back_once_durable() {
    let mut running = Running::new();
    while running.log.has_room() {
        running.append();
    }
    assert!(running.log.held_bytes() >= options().held_bytes_max);
    assert!(running.log.memory_bytes() >= options().held_bytes_max);
    running.log.request_sync(u64::MAX);
    for _ in 0..10 {
        running.log.sync_step();
    }
    assert!(running.log.has_room());
    assert!(running.log.memory_bytes() <= 4 * options().chunk_bytes);
    running.check(&running.disk, running.log.tail());
}

#[test]
fn every_second_syncs_every_half_second_and_keeps_writers_out_at_nine_tenths() {
    let mut running = Running::new();
    assert_eq!(running.log.level(), Level::EverySecond);
    running.append();
    running.log.write_out(running.log.tail()).unwrap();
    let wait_ms = running.log.sync_step();
    assert!(running.log.durable() == 0 && wait_ms > 0);
    running.clock.advance_ms(901);
    assert!(!running.log.has_room());
    running.log.sync_step();
    assert!(running.log.durable() == running.log.tail() && running.log.has_room());

    // The time starts with the oldest write that is not durable.
    running.clock.advance_ms(10_000);
    running.append();
    running.log.write_out(running.log.tail()).unwrap();
    running.clock.advance_ms(499);
    running.log.sync_step();
    assert!(running.log.durable() < running.log.tail());
    running.clock.advance_ms(1);
    running.log.sync_step();
    assert_eq!(running.log.durable(), running.log.tail());
}

#[test]
fn at_always_each_step_syncs_and_at_os_hardly_any() {
    let mut running = Running::new();
    running.log.set_level(Level::Always);
    running.append();
    running.log.sync_step();
    assert_eq!(running.log.durable(), running.log.tail());
    running.log.set_level(Level::Os);
    running.append();
    running.log.write_out(running.log.tail()).unwrap();
    running.clock.advance_ms(4_000);
    running.log.sync_step();
    assert!(running.log.durable() < running.log.tail() && running.log.has_room());
    running.clock.advance_ms(1_000);
    running.log.sync_step();
    assert_eq!(running.log.durable(), running.log.tail());
}

#[test]
fn who_listens_hears_that_something_is_durable() {
    let mut running = Running::new();
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    let listener = move |durable| ears.lock().unwrap().push(durable);
    running.log.on_durable(Box::new(listener));
    running.append();
    running.log.request_sync(running.log.tail());
    running.log.sync_step();
    running.log.sync_step();
    assert_eq!(*heard.lock().unwrap(), [running.log.tail()]);
}

#[test]
fn files_below_a_checkpoint_are_removed() {
    let mut running = Running::new();
    for _ in 0..60 {
        running.append();
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
    }
    let files = || names_of(&running.disk, ".log");
    let before = files();
    let middle = running.frames[30].1;
    running.log.cut(middle).unwrap();
    assert!(files() < before && files() > 1);
    let disk: Arc<dyn Disk> = Arc::new(running.disk.clone());
    let (frames, tail) = read_from(Arc::clone(&disk), Path::new(DIRECTORY), middle);
    assert_eq!((frames.len(), tail.unwrap().end), (29, running.log.tail()));
    running.log.cut(u64::MAX).unwrap();
    let (frames, _) = read_from(disk, Path::new(DIRECTORY), running.frames[58].1);
    assert_eq!(frames.len(), 1, "what is written to stays");
}

fn names_of(disk: &SimulatedDisk, extension: &str) -> usize {
    let names = disk.list(Path::new(DIRECTORY)).unwrap();
    names
        .iter()
        .filter(|name| name.ends_with(extension))
        .count()
}

#[test]
fn files_that_were_cut_off_are_written_again() {
    let mut running = Running::new();
    let append = |running: &mut Running| {
        running.append();
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
    };
    (0..60).for_each(|_| append(&mut running));
    let cut_off = running.frames[59].1;
    running.log.cut(cut_off).unwrap();
    let spares = names_of(&running.disk, ".new");
    assert!(spares > 3, "{spares}");
    (0..60).for_each(|_| append(&mut running));
    assert!(names_of(&running.disk, ".new") <= 3, "the next ones");
    let disk: Arc<dyn Disk> = Arc::new(running.disk.clone());
    let (frames, tail) = read_from(disk, Path::new(DIRECTORY), cut_off);
    let (tail, expected) = (tail.unwrap(), &running.frames[60..]);
    assert!(frames.iter().eq(expected.iter().map(|(text, _)| text)));
    assert_eq!(tail.end, running.log.tail());
    assert!(matches!(tail.shape, Shape::Used | Shape::Zeroed));

    // A log that needs few files keeps few.
    running.log.cut(running.log.tail()).unwrap();
    running.log.cut(running.log.tail()).unwrap();
    assert!(names_of(&running.disk, ".new") <= 4);
    // And a newly opened log ignores spare files.
    running.log.close().unwrap();
    let again = Running::open(running.disk.clone(), running.log.tail());
    assert!(names_of(&again.disk, ".new") <= 1, "the next one");
}

/// As in recovery to a point in time: everything behind it is gone for good, also when the log is
/// read again.
#[test]
fn a_log_goes_on_from_an_earlier_place() {
    let mut running = Running::new();
    for _ in 0..40 {
        running.append();
        running.log.write_out(running.log.tail()).unwrap();
    }
    running.log.close().unwrap();
    let kept = running.frames[9].1;
    let mut again = Running::open(running.disk.clone(), kept);
    again.frames = running.frames[..10].to_vec();
    again.frames.push(("other".to_owned(), 0));
    again.append();
    again.frames.remove(10);
    again.log.close().unwrap();
    assert_eq!(again.check(&again.disk, again.log.tail()), again.log.tail());
    let third = Running::open(again.disk.clone(), again.log.tail());
    assert_eq!(again.check(&third.disk, again.log.tail()), again.log.tail());
}

/// Like [`a_log_goes_on_from_an_earlier_place`], without writes after it and with damage behind.
#[test]
fn what_is_behind_an_earlier_place_is_gone_before_anything_is_written() {
    for damages in [false, true] {
        let mut running = Running::new();
        let mut kept = 0;
        for count in 0..40 {
            running.append();
            running.log.request_sync(u64::MAX);
            running.log.sync_step();
            if count == 9 {
                kept = running.log.tail();
            }
        }
        running.log.close().unwrap();
        let directory = Path::new(DIRECTORY);
        if damages {
            let last = running.disk.list(directory).unwrap();
            let last = last.iter().rfind(|name| name.ends_with(".log")).unwrap();
            let file = running.disk.open_for_writing(&directory.join(last));
            file.unwrap().write_at(b"no head", 0).unwrap();
            assert!(Running::try_open(running.disk.clone(), kept).is_err());
            remove_from(&running.disk, directory, kept).unwrap();
        }
        let again = Running::open(running.disk.clone(), kept);
        drop(again);
        assert_eq!(running.check(&running.disk, kept), kept);
    }
}

/// Removed by hand, or by a file system that repaired itself: any number of files at the end.
#[test]
fn a_log_whose_last_files_are_gone_is_missed() {
    let mut running = Running::new();
    for _ in 0..60 {
        running.append();
        running.log.request_sync(u64::MAX);
        running.log.sync_step();
    }
    running.log.close().unwrap();
    let directory = Path::new(DIRECTORY);
    let names = running.disk.list(directory).unwrap();
    let mut files: Vec<_> = names.iter().filter(|name| name.ends_with(".log")).collect();
    assert!(files.len() > 10, "{files:?}");
    let disk: Arc<dyn Disk> = Arc::new(running.disk.clone());
    while files.len() > 1 {
        running
            .disk
            .remove(&directory.join(files.pop().unwrap()))
            .unwrap();
        let (_, tail) = read_from(Arc::clone(&disk), directory, 0);
        let error = tail.unwrap_err().to_string();
        assert!(error.contains("the file behind it is missing"), "{error}");
        assert!(has_file_of(&*disk, directory, 0).unwrap());
    }
    running.disk.remove(&directory.join(files[0])).unwrap();
    assert!(!has_file_of(&*disk, directory, 0).unwrap());
    let opened = Running::open(running.disk.clone(), 0);
    assert!(has_file_of(&*disk, directory, 0).unwrap(), "from the first");
    assert_eq!(opened.log.durable(), 0);
}
