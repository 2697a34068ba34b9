//! A log whose memory is a ring: the frames that the system has when the process ends, and those
//! that power cuts leave.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::clock::ManualClock;
use base::random::Prng;
use base::shared_words::SharedWords;

use super::running::{DIRECTORY, disk};
use crate::disk::{Disk, DiskFile, SystemDisk};
use crate::log::locks::lock;
use crate::log::segment::{
    BLOCK_HEAD_BYTES, BlockHead, SEGMENT_HEAD_BYTES, SegmentHead, path_of as segment_path_of,
};
use crate::log::{Log, Options, Reader, bound, remove_from, salvage};
use crate::simulated::{Fault, SimulatedDisk};

const RING: &str = "data/log/ring";

fn options() -> Options {
    Options {
        segment_bytes: 2048,
        segment_bytes_first: 1024,
        chunk_bytes: 256,
        ring_bytes: 1024,
        ring_bytes_min: 256,
        ring_bytes_first: u64::MAX,
        piece_bytes: 2 << 20,
        in_place_bytes: 64 << 10,
        held_bytes_max: 1 << 20,
        unsynced_bytes_max: 512,
        seed: Some(1),
    }
}

/// Like [`options`]. With half of the seeds, blocks of several frames have the same alignment in
/// their files as in the ring; with some seeds the ring grows.
fn in_place(seed: u64) -> Options {
    Options {
        ring_bytes_first: 256 * (1 + seed % 4),
        in_place_bytes: if seed.is_multiple_of(2) {
            100
        } else {
            64 << 10
        },
        ..options()
    }
}

fn shared(disk: &SimulatedDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn open(disk: &Arc<dyn Disk>, directory: &Path, start: u64, options: Options) -> Arc<Log> {
    let clock = Arc::new(ManualClock::at_unix_ms(1_000));
    Log::open(Arc::clone(disk), clock, directory, start, options).unwrap()
}

/// Returns the values of all frames, and their end.
fn values(disk: &Arc<dyn Disk>, directory: &Path) -> (Vec<Vec<u8>>, u64) {
    let mut reader = Reader::open(Arc::clone(disk), directory, 0).unwrap();
    let mut values = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        let effect = frame.effects().next().unwrap();
        values.push(effect.parts.last().unwrap().to_vec());
    }
    (values, reader.sequence())
}

fn salvaged(disk: &Arc<dyn Disk>, directory: &Path) -> u64 {
    let clock = ManualClock::at_unix_ms(2_000);
    salvage(disk, &clock, directory, &options()).unwrap()
}

fn append(log: &Arc<Log>, values: &[Vec<u8>]) {
    let mut appender = log.appender();
    for value in values {
        appender.command(0, &[b"SET", b"k", value]);
        log.write_out(appender.end()).unwrap();
    }
}

fn some_values(count: u8, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number; bytes]).collect()
}

fn some_value(random: &mut Prng, bytes_max: u64) -> Vec<u8> {
    let [byte, ..] = random.next_u64().to_le_bytes();
    vec![byte; usize::try_from(random.below(bytes_max)).unwrap()]
}

#[test]
fn what_was_written_outlives_the_process_without_a_write_to_a_file() {
    let disk = disk(1);
    let log = open(&shared(&disk), Path::new(DIRECTORY), 0, options());
    let before = disk.operations();
    let wanted = some_values(9, 60);
    append(&log, &wanted);
    assert_eq!(disk.operations(), before, "nothing but memory was touched");
    assert_eq!((log.written(), log.durable()), (log.tail(), 0));
    drop(log);
    let disk = shared(&disk);
    let directory = Path::new(DIRECTORY);
    assert_eq!(values(&disk, directory).0.len(), 0);
    assert!(salvaged(&disk, directory) > 0);
    assert_eq!(values(&disk, directory).0, wanted);
    assert_eq!(salvaged(&disk, directory), 0, "once is enough");
    let (_, end) = values(&disk, directory);
    let log = open(&disk, directory, end, options());
    append(&log, &some_values(1, 8));
    log.close().unwrap();
    assert_eq!(salvaged(&disk, directory), 0, "all of it is in segments");
    assert_eq!(values(&disk, directory).0.len(), 10);
}

/// A server of the previous version ended without closing its log, and this version is started.
#[test]
fn a_ring_of_the_version_before_is_taken() {
    for (version, is_taken) in [(2_u32, true), (1, false), (4, false)] {
        let disk = disk(1);
        let log = open(&shared(&disk), Path::new(DIRECTORY), 0, options());
        append(&log, &some_values(9, 60));
        drop(log);
        let file = disk.open_for_writing(Path::new(RING)).unwrap();
        let mut head = [0; 32];
        file.read_at(&mut head, 1024).unwrap();
        head[8..12].copy_from_slice(&version.to_le_bytes());
        let sum = crate::checksum::crc32c(&head[..28]);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        file.write_at(&head, 1024).unwrap();
        let taken = salvaged(&shared(&disk), Path::new(DIRECTORY)) > 0;
        assert_eq!(taken, is_taken, "version {version}");
    }
}

/// The ring wraps around many times, overflows, and is reopened at any moment.
#[test]
fn it_has_what_segments_do_not_at_any_moment() {
    for seed in 0..60 {
        let mut random = Prng::seeded(seed);
        let disk = disk(seed);
        let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
        let (mut wanted, mut end) = (Vec::new(), 0);
        for _ in 0..4 {
            let log = open(&shared, directory, end, in_place(seed));
            for _ in 0..random.below(60) {
                let value = some_value(&mut random, 300);
                append(&log, std::slice::from_ref(&value));
                wanted.push(value);
                if random.below(4) == 0 {
                    log.request_sync(log.tail());
                    log.sync_step();
                }
            }
            drop(log);
            salvaged(&shared, directory);
            let (found, now_end) = values(&shared, directory);
            assert_eq!(found, wanted, "seed {seed}");
            end = now_end;
        }
    }
}

#[test]
fn a_power_cut_leaves_a_beginning_that_has_all_that_is_durable() {
    for seed in 0..120 {
        let mut random = Prng::seeded(seed);
        let mut device = disk(seed);
        let directory = Path::new(DIRECTORY);
        let (mut wanted, mut end) = (Vec::new(), 0);
        for life in 0..4 {
            let log = open(&shared(&device), directory, end, in_place(seed));
            let mut durable = wanted.len();
            for _ in 0..random.below(40) {
                let value = some_value(&mut random, 200);
                append(&log, std::slice::from_ref(&value));
                wanted.push(value);
                if random.below(3) == 0 {
                    log.request_sync(log.tail());
                    log.sync_step();
                    durable = wanted.len();
                }
            }
            device = device.crash(seed * 10 + life);
            let shared = shared(&device);
            salvaged(&shared, directory);
            let (found, now_end) = values(&shared, directory);
            assert!(
                found.len() >= durable,
                "seed {seed}: {} of {durable}",
                found.len()
            );
            assert!(wanted.starts_with(&found), "seed {seed}");
            (wanted, end) = (found, now_end);
        }
    }
}

/// The syncing thread puts frames into segments that are not with the system yet, and workers find
/// nothing left to do.
#[test]
fn what_others_put_into_segments_outlives_the_process_too() {
    for ring_bytes in [64 << 10, 1 << 20] {
        let disk = disk(1);
        let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
        let sizes = Options {
            chunk_bytes: 64 << 10,
            ring_bytes,
            segment_bytes: 4 << 20,
            unsynced_bytes_max: 4 << 20,
            ..options()
        };
        let staged = Staged(Arc::clone(&shared));
        let staged: Arc<dyn Disk> = Arc::new(staged);
        let log = open(&staged, directory, 0, sizes);
        let mut appender = log.appender();
        let wanted = some_values(80, 10_000);
        for value in &wanted {
            appender.command(0, &[b"SET", b"k", value]);
            if value[0] == 40 {
                log.write_out(appender.end()).unwrap();
            }
        }
        let complete = log.places.complete();
        log.write_block(&mut lock(&log.writer), complete).unwrap();
        assert_eq!(log.stored(), log.tail(), "what nobody wrote out as well");
        assert_eq!(log.durable(), 0, "it is not time for that");
        log.write_out(log.tail()).unwrap();
        drop((appender, log));
        salvaged(&shared, directory);
        assert_eq!(values(&shared, directory).0, wanted, "{ring_bytes}");
    }
}

/// Then a device takes their pages from where they lie.
#[test]
fn long_blocks_stand_on_their_pages_as_in_the_ring() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let sizes = Options {
        chunk_bytes: 64 << 10,
        ring_bytes: 512 << 10,
        segment_bytes: 4 << 20,
        unsynced_bytes_max: 4 << 20,
        ..options()
    };
    let log = open(&shared, directory, 0, sizes);
    let mut wanted = Vec::new();
    for bytes in [100, 70_000, 3_000, 64 << 10, 120_000, 8] {
        let value = vec![b'v'; bytes];
        append(&log, std::slice::from_ref(&value));
        wanted.push((log.tail(), value));
        log.request_sync(log.tail());
        log.sync_step();
    }
    let path = segment_path_of(directory, 0);
    let file = shared.open(&path).unwrap();
    let mut bytes = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    let (mut at, mut start) = (SEGMENT_HEAD_BYTES, 0);
    let salt = SegmentHead::decode(&bytes).unwrap().salt;
    for (end, value) in &wanted {
        let mut head = BlockHead::decode(&bytes[at..], salt).unwrap();
        if head.length == 0 {
            at += BLOCK_HEAD_BYTES;
            head = BlockHead::decode(&bytes[at..], salt).unwrap();
        }
        assert_eq!((head.sequence, head.length), (start, end - start));
        at += BLOCK_HEAD_BYTES + head.gap as usize;
        let is_in_step = (at as u64).abs_diff(start).is_multiple_of(4096);
        assert_eq!(is_in_step, value.len() >= 64 << 10, "{}", value.len());
        assert!(is_in_step || head.gap == 0);
        at += usize::try_from(head.length).unwrap();
        start = *end;
    }
    let wanted: Vec<_> = wanted.into_iter().map(|(_, value)| value).collect();
    assert_eq!(values(&shared, directory).0, wanted);
}

/// A full segment is passed to the system even while the syncing thread is busy elsewhere.
#[test]
fn a_segment_that_is_full_is_with_the_system() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let staged: Arc<dyn Disk> = Arc::new(Staged(Arc::clone(&shared)));
    let log = open(&staged, directory, 0, options());
    let mut appender = log.appender();
    let wanted = some_values(60, 100);
    let mut full = Vec::new();
    for (number, value) in wanted.iter().enumerate() {
        appender.command(0, &[b"SET", b"k", value]);
        if number % 7 == 0 {
            let complete = log.places.complete();
            let mut writer = lock(&log.writer);
            log.write_block(&mut writer, complete).unwrap();
            // As a sync that does not finish would take them.
            full.append(&mut writer.full);
        }
    }
    log.write_out(log.tail()).unwrap();
    assert!(!full.is_empty());
    drop((appender, log, full));
    salvaged(&shared, directory);
    assert_eq!(values(&shared, directory).0, wanted);
}

#[test]
fn what_was_given_up_does_not_come_back() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let log = open(&shared, directory, 0, options());
    append(&log, &some_values(3, 40));
    let (kept_end, kept) = (log.tail(), some_values(3, 40));
    append(&log, &some_values(3, 50));
    let tail = log.tail();
    drop(log);
    assert!(
        bound(&*shared, directory).unwrap() >= tail,
        "the ring counts"
    );
    salvaged(&shared, directory);
    remove_from(&*shared, directory, kept_end).unwrap();
    assert_eq!(salvaged(&shared, directory), 0);
    drop(open(&shared, directory, kept_end, options()));
    assert_eq!(salvaged(&shared, directory), 0);
    assert_eq!(values(&shared, directory).0, kept);
}

#[test]
fn a_ring_that_is_not_to_be_had_is_done_without() {
    for operation in 0..40 {
        let disk = disk(1);
        let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
        disk.fail(operation..operation + 1, Fault::Full);
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let Ok(log) = Log::open(Arc::clone(&shared), clock, directory, 0, options()) else {
            continue;
        };
        append(&log, &some_values(5, 30));
        drop(log);
        disk.heal();
        salvaged(&shared, directory);
        assert_eq!(values(&shared, directory).0.len(), 5, "{operation}");
    }
}

fn ring_bytes(disk: &SimulatedDisk) -> Option<u64> {
    let ring = shared(disk).open(Path::new(RING)).ok()?;
    Some(ring.size().unwrap() - 4096)
}

/// Appends until no further write may begin; returns the bytes appended.
fn room_of(log: &Arc<Log>) -> u64 {
    let mut appender = log.appender();
    let before = log.tail();
    while log.has_room() {
        appender.command(0, &[b"SET", b"k", b"v"]);
        log.write_out(appender.end()).unwrap();
    }
    log.tail() - before
}

/// On devices with more and more space, from too little for a segment to as much as is wanted.
#[test]
fn a_shorter_ring_is_made_where_a_longer_one_has_no_room() {
    let mut seen = Vec::new();
    for capacity in (0..24 << 10).step_by(64) {
        let disk = disk(1);
        let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
        disk.set_capacity(capacity);
        let clock = Arc::new(ManualClock::at_unix_ms(1));
        let sizes = options();
        let Ok(log) = Log::open(Arc::clone(&shared), clock, directory, 0, sizes) else {
            continue;
        };
        let ring_bytes = ring_bytes(&disk);
        if seen.last() != Some(&ring_bytes) {
            seen.push(ring_bytes);
        }
        let spare = shared.open(&directory.join("ring.spare"));
        assert_eq!(spare.is_ok(), ring_bytes.is_some(), "{capacity}");
        let Some(ring_bytes) = ring_bytes else {
            // There may be too little space for any frame.
            continue;
        };
        assert_eq!(log.fault(), None, "{capacity}");
        let wanted = some_values(3, 30);
        append(&log, &wanted);
        let room = log.tail() + room_of(&log);
        assert!(room.abs_diff(ring_bytes * 3 / 4) < 64, "{capacity}: {room}");
        assert_eq!(log.stored(), 0, "{capacity}: all of it is in the ring");
        drop(log);
        disk.set_capacity(u64::MAX);
        salvaged(&shared, directory);
        assert!(values(&shared, directory).0.starts_with(&wanted));
    }
    assert_eq!(seen, [None, Some(256), Some(1024)]);
}

/// As if the process had a limit on its address space.
#[test]
fn a_shorter_ring_is_mapped_where_a_longer_one_is_refused() {
    for (words_max, wanted) in [(5120, Some(1024)), (5119, Some(256)), (4351, None)] {
        let device = disk(1);
        let (shared, directory) = (shared(&device), Path::new(DIRECTORY));
        let refusing: Arc<dyn Disk> = Arc::new(Refusing(Arc::clone(&shared), words_max / 8));
        let log = open(&refusing, directory, 0, options());
        assert_eq!(ring_bytes(&device), wanted);
        assert_eq!(log.fault(), None);
        append(&log, &some_values(3, 30));
        drop(log);
        salvaged(&shared, directory);
        assert_eq!(values(&shared, directory).0, some_values(3, 30));
    }
}

#[test]
fn it_is_taken_on_a_device_that_is_full() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let log = open(&shared, directory, 0, options());
    let wanted = some_values(9, 60);
    append(&log, &wanted);
    drop(log);
    disk.set_capacity(disk.used_bytes());
    assert!(salvaged(&shared, directory) > 0);
    assert_eq!(values(&shared, directory).0, wanted);
}

#[test]
fn one_that_is_damaged_is_left_alone_or_read_as_far_as_it_is_whole() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let log = open(&shared, directory, 0, options());
    let wanted = some_values(6, 60);
    append(&log, &wanted);
    drop(log);
    let ring = shared.open(Path::new(RING)).unwrap();
    let mut bytes = vec![0; usize::try_from(ring.size().unwrap()).unwrap()];
    ring.read_at(&mut bytes, 0).unwrap();
    let mut random = Prng::seeded(1);
    for _ in 0..500 {
        let at = random.index(bytes.len());
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        damaged.truncate(bytes.len() - random.index(bytes.len()) * (random.below(4) / 3) as usize);
        let fresh = super::running::disk(2);
        let fresh_shared = self::shared(&fresh);
        drop(open(
            &fresh_shared,
            directory,
            0,
            Options {
                ring_bytes: 0,
                ..options()
            },
        ));
        let file = fresh_shared.create(Path::new(RING)).unwrap();
        file.write_at(&damaged, 0).unwrap();
        salvaged(&fresh_shared, directory);
        let (found, _) = values(&fresh_shared, directory);
        assert!(wanted.starts_with(&found), "flipped {at}");
    }
}

/// Frames that are longer than the ring, or more than it holds, go to segments before the reply.
#[test]
fn what_the_ring_does_not_hold_is_written() {
    let disk = disk(1);
    let (shared, directory) = (shared(&disk), Path::new(DIRECTORY));
    let log = open(&shared, directory, 0, options());
    let mut wanted = some_values(20, 100);
    wanted.insert(3, vec![b'l'; 5000]);
    append(&log, &wanted);
    assert_eq!(log.written(), log.tail());
    drop(log);
    salvaged(&shared, directory);
    assert_eq!(values(&shared, directory).0, wanted);
}

#[test]
#[cfg_attr(miri, ignore = "maps a file")]
fn the_system_keeps_it_too() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let sizes = Options {
        chunk_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        segment_bytes: 1 << 20,
        unsynced_bytes_max: 64 << 10,
        ..options()
    };
    let (mut wanted, mut end) = (Vec::new(), 0);
    for life in 0..4_u8 {
        let log = open(&disk, directory, end, sizes.clone());
        for number in 0..200_u8 {
            let value = vec![life; usize::from(number) * 50];
            append(&log, std::slice::from_ref(&value));
            wanted.push(value);
            if number % 16 == 0 {
                log.sync_step();
            }
        }
        // As if the process ended here: nothing is closed or waited for.
        drop(log);
        salvaged(&disk, directory);
        let found = values(&disk, directory);
        assert_eq!(found.0.len(), wanted.len());
        assert_eq!(found.0, wanted);
        end = found.1;
    }
}

/// A device whose files buffer written bytes until they are asked to hand them over, like files
/// that are written past the system's cache.
#[derive(Debug)]
struct Staged(Arc<dyn Disk>);

#[derive(Debug)]
struct StagedFile {
    file: Box<dyn DiskFile>,
    writes: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Disk for Staged {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_for_writing(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(path)
    }

    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(StagedFile {
            file: self.0.create(path)?,
            writes: Mutex::default(),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.sync_directory(directory)
    }
}

impl DiskFile for StagedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.writes.lock().unwrap().push((offset, bytes.to_vec()));
        Ok(())
    }

    fn hand_over(&self) -> io::Result<()> {
        for (offset, bytes) in self.writes.lock().unwrap().drain(..) {
            self.file.write_at(&bytes, offset)?;
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.hand_over()?;
        self.file.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.hand_over()?;
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.hand_over()?;
        self.file.size()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.hand_over()?;
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.hand_over()?;
        self.file.allocate(len)
    }
}

/// A device that maps only files of at most so many words.
#[derive(Debug)]
struct Refusing(Arc<dyn Disk>, usize);

#[derive(Debug)]
struct RefusingFile(Box<dyn DiskFile>, usize);

impl Disk for Refusing {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_for_writing(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.0.create(path)?;
        Ok(Box::new(RefusingFile(file, self.1)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.sync_directory(directory)
    }
}

impl DiskFile for RefusingFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }

    fn words(&self, count: usize) -> io::Result<Option<SharedWords>> {
        match count > self.1 {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => self.0.words(count),
        }
    }
}
