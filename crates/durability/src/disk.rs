//! The way to files: a narrow surface, so that a simulated device can stand in for the system's.
//!
//! Everything of this room that is kept goes through [`Disk`]. It is as narrow as that is possible:
//! whole writes at known places, an explicit step that makes a file's bytes durable, and another one
//! for the names in a directory. What was not made durable may be lost, in part and in any order.

mod direct;

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use base::cached_file;
use base::shared_words::SharedWords;
use base::sync::atomic::{AtomicU64, Ordering};

use direct::Helper;

/// Rows of words that are written at once.
pub const ROWS_MAX: usize = base::gather_write::ROWS_MAX;

/// Files and directories.
///
/// Errors are those of the system: [`io::ErrorKind::NotFound`], [`io::ErrorKind::StorageFull`] and so on.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens a file that exists, for reading.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that exists, for reading and writing.
    ///
    /// # Errors
    /// Those of the system.
    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file that must not exist yet, for reading and writing. Its name is durable after
    /// [`Disk::sync_directory`].
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file as [`Disk::create`] does, for who writes it from front to back and has nobody read it before
    /// [`DiskFile::sync`]: until then what was written may stay with this process, and what could not be written
    /// may be told by any later call. Dropped before that, the file is rubbish.
    ///
    /// # Errors
    /// Those of the system.
    fn create_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// As [`Disk::create_stream`], for who writes long pieces, waits for the device meanwhile, and goes on
    /// behind a sync.
    ///
    /// # Errors
    /// Those of the system.
    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// Opens a file that exists, to be written as one that [`Disk::create_direct`] made: what it held counts no
    /// more.
    ///
    /// # Errors
    /// Those of the system.
    fn rewrite_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open_for_writing(path)
    }

    /// Opens a file that exists, for who reads it from front to back and only once: from the device, where
    /// that can be had.
    ///
    /// # Errors
    /// Those of the system.
    fn open_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    /// Opens a file that exists once more, for who has the kernel read from it past the system's cache: what was
    /// [settled](DiskFile::settle), in whole blocks. None where that cannot be had.
    fn open_blocks(&self, path: &Path) -> Option<BlockFile> {
        let _ = path;
        None
    }

    /// Gives a file another name, in place of what had that name. Durable after
    /// [`Disk::sync_directory`]; until then either of them is found, never a mixture.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// As [`Disk::remove`], of a file that may be long and was synced: takes its time over it, so that nobody who
    /// wants the core waits until all of its pages are forgotten, nor who wants the device until it has all room back.
    ///
    /// # Errors
    /// Those of the system.
    fn retire(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    /// Makes a directory and those above it; that it exists already is no error.
    ///
    /// # Errors
    /// Those of the system.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory, which is empty.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Bytes that files in a directory could still take of the device, if that is known.
    fn room_bytes(&self, directory: &Path) -> Option<u64> {
        let _ = directory;
        None
    }
}

/// A file of the system that is read past its cache.
#[derive(Clone, Debug)]
pub struct BlockFile {
    /// The file.
    pub file: Arc<File>,
    /// What is asked for begins and ends with blocks of so many bytes, in a buffer that begins a page.
    pub block_bytes: usize,
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Writes all of `bytes` at `offset`, making the file longer where needed.
    ///
    /// # Errors
    /// Those of the system; any part of the bytes may have been written then.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes `head` and behind it rows of words, up to [`ROWS_MAX`] of them, as their bytes lie in memory: as
    /// [`DiskFile::write_at`] does of one piece. Nobody changes them meanwhile.
    ///
    /// # Errors
    /// Those of the system; any part of the bytes may have been written then.
    fn write_words_at(&self, head: &[u8], rows: &[&[AtomicU64]], offset: u64) -> io::Result<()> {
        let mut bytes = head.to_vec();
        for word in rows.iter().copied().flatten() {
            bytes.extend_from_slice(&word.load(Ordering::Relaxed).to_le().to_le_bytes());
        }
        self.write_at(&bytes, offset)
    }

    /// Reads at `offset`; how many bytes. Fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Begins with what [`DiskFile::sync`] has to do for a range, and takes its time over it, so that nobody who
    /// wants the core waits until all of it is done. Nothing is durable for that, and errors are told by the sync.
    fn begin_sync(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Sees to it that what was written is with the system, where it outlives this process.
    ///
    /// # Errors
    /// Those of the system.
    fn hand_over(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes durable what was written and how long the file is. After an error nobody knows what of it
    /// is durable, and asking again would not tell.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn size(&self) -> io::Result<u64>;

    /// Makes the file so long, with zeroes where it grows.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sees to it that the first `len` bytes have room on the device, as zeroes where nothing was written.
    /// The file is that long afterwards.
    ///
    /// # Errors
    /// Those of the system, [`io::ErrorKind::StorageFull`] above all.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// As [`DiskFile::allocate`], of a part of a file that is long enough. What it gives no room to is refused when it
    /// is written.
    ///
    /// # Errors
    /// Those of the system, [`io::ErrorKind::StorageFull`] above all.
    fn allocate_part(&self, range: Range<u64>) -> io::Result<()> {
        let _ = range;
        Ok(())
    }

    /// The first `count` words of a file that is as long as that, to be written to by any thread: what is there is
    /// with the system at once, and durable after [`DiskFile::sync`] or before. None where that cannot be had
    /// without danger.
    ///
    /// # Errors
    /// Those of the system.
    fn words(&self, count: usize) -> io::Result<Option<SharedWords>> {
        let _ = count;
        Ok(None)
    }

    /// The file itself, for who has the kernel read from it by other means than a call of its own. None where it is not the
    /// system's.
    fn system_file(&self) -> Option<&Arc<File>> {
        None
    }

    /// Sees to it that the device has what was written to a range, and the system's cache nothing of it, as far as that
    /// can be had. Nothing is durable for that. Takes its time.
    fn settle(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Whether what is written goes to the device at once, so that the system has no heap of it that it would
    /// have to get rid of some time. Nothing is durable for that.
    fn is_past_cache(&self) -> bool {
        false
    }
}

/// The files of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SystemFile::new(File::open(path)?)))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Box::new(SystemFile::new(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = File::create_new(path)?;
        Ok(Box::new(SystemFile::new(file)))
    }

    fn create_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        direct::create(path, Helper::Thread)
    }

    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        direct::create(path, Helper::None)
    }

    fn rewrite_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        direct::rewrite(path)
    }

    fn open_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        direct::open(path)
    }

    fn open_blocks(&self, path: &Path) -> Option<BlockFile> {
        direct::open_blocks(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn retire(&self, path: &Path) -> io::Result<()> {
        // What is in the way of that is in the way of removing it, or costs no more than time.
        let file = OpenOptions::new().write(true).open(path);
        let _kept = file.as_ref().map(cached_file::forget);
        fs::remove_file(path)?;
        if let Ok(file) = file {
            cached_file::release(&file);
        }
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    fn room_bytes(&self, directory: &Path) -> Option<u64> {
        let room = rustix::fs::statvfs(directory).ok()?;
        // A file system in memory without a limit says that it has no blocks.
        (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
    }
}

#[derive(Debug)]
struct SystemFile(Arc<File>);

impl SystemFile {
    fn new(file: File) -> Self {
        Self(Arc::new(file))
    }
}

impl DiskFile for SystemFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    /// Without a copy. Under a model checker words are more than their bytes.
    #[cfg(not(any(loom, shuttle)))]
    fn write_words_at(&self, head: &[u8], rows: &[&[AtomicU64]], offset: u64) -> io::Result<()> {
        base::gather_write::write_words_at(&self.0, head, rows, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn begin_sync(&self, range: Range<u64>) {
        cached_file::begin_to_write(&self.0, range);
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        Some(&self.0)
    }

    fn settle(&self, range: Range<u64>) {
        cached_file::settle(&self.0, range);
    }

    fn size(&self) -> io::Result<u64> {
        self.0.metadata().map(|metadata| metadata.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    #[cfg(not(any(loom, shuttle)))]
    fn words(&self, count: usize) -> io::Result<Option<SharedWords>> {
        SharedWords::of_file(&self.0, count)
    }

    fn allocate_part(&self, range: Range<u64>) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::empty();
        let bytes = range.end.saturating_sub(range.start);
        match rustix::fs::fallocate(&self.0, flags, range.start, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => result.map_err(Into::into),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&self.0, flags, 0, len) {
            // Not every file system can: then the room is found when it is needed.
            Err(rustix::io::Errno::OPNOTSUPP) if self.size()? < len => self.set_len(len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => result.map_err(Into::into),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_back_what_was_written() {
        let directory = std::env::temp_dir().join(format!("iolite-disk-{}", std::process::id()));
        let disk = SystemDisk;
        disk.create_directory(&directory.join("a")).unwrap();
        let path = directory.join("a/file");
        let file = disk.create(&path).unwrap();
        assert!(disk.create(&path).is_err(), "made once");
        file.write_at(b"behind", 4).unwrap();
        file.allocate(16).unwrap();
        file.sync().unwrap();
        assert_eq!(file.size().unwrap(), 16);
        file.set_len(8).unwrap();
        let other = directory.join("a/other");
        disk.rename(&path, &other).unwrap();
        disk.sync_directory(&directory.join("a")).unwrap();
        assert_eq!(disk.list(&directory.join("a")).unwrap(), ["other"]);
        assert_eq!(disk.room_bytes(&directory.join("b")), None);
        let mut bytes = [1; 20];
        let read = disk.open(&other).unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..read], b"\0\0\0\0behi");
        disk.open_for_writing(&other).unwrap().begin_sync(0..8);
        let settled = disk.open(&other).unwrap();
        settled.settle(0..8);
        assert_eq!(settled.read_at(&mut bytes, 4).unwrap(), 4);
        assert!(settled.system_file().is_some());
        // Not every file system has blocks that can be read.
        if let Some(blocks) = disk.open_blocks(&other) {
            assert!(blocks.block_bytes.is_power_of_two() && blocks.block_bytes <= 4096);
        }
        disk.retire(&other).unwrap();
        assert_eq!(
            disk.open(&other).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        disk.remove_directory(&directory.join("a")).unwrap();
        disk.remove_directory(&directory).unwrap();
    }
}
