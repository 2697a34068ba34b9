//! What appending an effect costs: `SET` of a key of 16 bytes and a value of 100, in processor
//! time, and what writing it out costs. `cargo bench -p durability --bench append [-- FRAMES]`.
//!
//! To count instructions, run it under `valgrind --tool=callgrind` with two numbers of frames and
//! take the difference.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::clock::SystemClock;
use durability::disk::{Disk, DiskFile, SystemDisk};
use durability::log::{Appender, Log, Options};

const FRAMES: u64 = 2_000_000;
/// Frames between two checks of the file, as at pipeline 100.
const FRAMES_PER_TURN: u64 = 100;
/// Frames between two clock readings, where writing is not counted.
const FRAMES_AT_ONCE: u64 = 10_000;
/// Bytes held in memory before they count as durable, as half a second of writes at everysec.
const HELD_BYTES: u64 = 32 << 20;

/// The system's disk without syncs, because the device's speed is not measured.
#[derive(Debug)]
struct Unsynced(SystemDisk);

#[derive(Debug)]
struct UnsyncedFile(Box<dyn DiskFile>);

impl Disk for Unsynced {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }
    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open_for_writing(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(UnsyncedFile(self.0.create(path)?)))
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
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for UnsyncedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
    fn write_words_at(&self, head: &[u8], rows: &[&[AtomicU64]], offset: u64) -> io::Result<()> {
        self.0.write_words_at(head, rows, offset)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
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
}

fn main() -> io::Result<()> {
    let given = std::env::args().find_map(|argument| argument.parse().ok());
    let frames: u64 = given.unwrap_or(FRAMES);
    let directory = std::env::temp_dir().join(format!("iolite-append-{}", std::process::id()));
    let clock = Arc::new(SystemClock::new());
    let disk: Arc<dyn Disk> = Arc::new(Unsynced(SystemDisk));
    let log = Log::open(disk, clock, &directory, 0, Options::default())?;
    let mut appender = log.appender();
    // The first use of memory is not measured either.
    append(&mut appender, 0, frames / 2);
    make_room(&log)?;

    let mut append_ns = 0;
    for turn in 0..frames / FRAMES_AT_ONCE {
        let started_ns = cpu_ns();
        append(&mut appender, turn, FRAMES_AT_ONCE);
        append_ns += cpu_ns() - started_ns;
        make_room(&log)?;
    }
    let started_ns = cpu_ns();
    for turn in 0..frames / FRAMES_PER_TURN {
        append(&mut appender, turn, FRAMES_PER_TURN);
        log.write_out(log.tail()).map_err(io::Error::other)?;
        if log.held_bytes() > HELD_BYTES {
            make_room(&log)?;
        }
    }
    let all_ns = cpu_ns() - started_ns;
    println!(
        "{frames} frames, processor time of one: {} ns to append it, {} ns with writing it out",
        append_ns / frames.max(1),
        all_ns / frames.max(1)
    );
    drop(appender);
    std::fs::remove_dir_all(&directory)
}

fn append(appender: &mut Appender, turn: u64, frames: u64) {
    let (mut key, value) = (*b"key:000000000000", [b'v'; 100]);
    for number in 0..frames {
        key[8..].copy_from_slice(&(turn * FRAMES_PER_TURN + number).to_le_bytes());
        appender.generation(1);
        appender.set_time(turn);
        let parts: [&[u8]; 3] = [b"SET", &key, &value];
        // The compiler does not know the lengths.
        appender.command(0, black_box(&parts));
    }
}

fn make_room(log: &Log) -> io::Result<()> {
    log.request_sync(log.tail());
    log.sync_step();
    log.cut(log.durable())
}

/// Returns the processor time of this thread, as far as the system reports it. A read takes about a
/// microsecond.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse().ok())
        .unwrap_or(0)
}
