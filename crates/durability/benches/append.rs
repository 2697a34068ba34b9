//! What appending an effect costs: `SET` of a key of 16 bytes and a value of 100, in processor time, and
//! what it costs to write it out. `cargo bench -p durability --bench append [-- FRAMES]`.
//!
//! For instructions run it under `valgrind --tool=callgrind` with two numbers of frames and take the
//! difference.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::io;
use std::path::Path;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use durability::disk::{Disk, DiskFile, SystemDisk};
use durability::log::{Log, Options};

const FRAMES: u64 = 2_000_000;
/// Frames between two looks at the file, as at pipeline 100.
const FRAMES_PER_TURN: u64 = 100;

/// The system's, but for syncs: how long a device takes is not the question.
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
    let log = Log::open(
        disk,
        Arc::clone(&clock) as _,
        &directory,
        0,
        Options::default(),
    )?;
    let mut appender = log.appender();
    let mut key = *b"key:000000000000";
    let value = [b'v'; 100];
    let (mut append_ns, mut write_ns) = (0, 0);
    for turn in 0..frames / FRAMES_PER_TURN {
        let started_ns = clock.monotonic_ns();
        for number in 0..FRAMES_PER_TURN {
            key[8..].copy_from_slice(&(turn * FRAMES_PER_TURN + number).to_le_bytes());
            appender.generation(1);
            appender.set_time(turn);
            appender.command(0, &[b"SET", &key, &value]);
        }
        let appended_ns = clock.monotonic_ns();
        log.write_out(log.tail()).map_err(io::Error::other)?;
        let done_ns = clock.monotonic_ns();
        append_ns += appended_ns - started_ns;
        write_ns += done_ns - appended_ns;
        if log.held_bytes() > 32 << 20 {
            log.request_sync(log.tail());
            log.sync_step();
            log.cut(log.durable())?;
        }
    }
    let per_frame = |ns: u64| ns / frames.max(1);
    println!(
        "{frames} frames of {} bytes: {} ns to append one, {} ns to write it out",
        log.tail() / frames.max(1),
        per_frame(append_ns),
        per_frame(write_ns)
    );
    drop(appender);
    std::fs::remove_dir_all(&directory)
}
