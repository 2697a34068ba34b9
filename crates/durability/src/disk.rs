//! Access to files: a narrow interface, so that a simulated device can replace the system's.
//!
//! All data that this room keeps goes through [`Disk`]. The interface is as narrow as possible:
//! whole writes at known positions, an explicit step that makes a file's bytes durable, and another
//! one for the names in a directory. Whatever was not made durable may be lost, in part and in any
//! order.

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

/// Maximum number of rows of words in one write.
pub const ROWS_MAX: usize = base::gather_write::ROWS_MAX;

/// Files and directories.
///
/// Errors are those of the system: [`io::ErrorKind::NotFound`], [`io::ErrorKind::StorageFull`] and
/// so on.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// Those of the system.
    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file for reading and writing. The file must not exist yet. Its name is durable
    /// after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a file as [`Disk::create`] does, for a caller that writes it from front to back and
    /// lets no other reader read it before [`DiskFile::sync`]. Until then written bytes may stay in
    /// this process, and any later call may report a failed write. If the file is dropped before
    /// the sync, its content is undefined.
    ///
    /// # Errors
    /// Those of the system.
    fn create_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// Like [`Disk::create_stream`], for a caller that writes long pieces, waits for the device
    /// meanwhile, and continues after a sync.
    ///
    /// # Errors
    /// Those of the system.
    fn create_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.create(path)
    }

    /// Opens an existing file, to be written like one that [`Disk::create_direct`] made. Its old
    /// content no longer counts.
    ///
    /// # Errors
    /// Those of the system.
    fn rewrite_direct(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open_for_writing(path)
    }

    /// Opens an existing file for a caller that reads it once, from front to back. Reads bypass the
    /// cache where the system supports it.
    ///
    /// # Errors
    /// Those of the system.
    fn open_stream(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }

    /// Opens an existing file once more, for a caller that has the kernel read whole blocks from it
    /// past the system's cache. Only [settled](DiskFile::settle) bytes may be read. Returns `None`
    /// where this is not supported.
    fn open_blocks(&self, path: &Path) -> Option<BlockFile> {
        let _ = path;
        None
    }

    /// Renames a file, and replaces any file that had the new name. The rename is durable after
    /// [`Disk::sync_directory`]; until then a reader finds either of the two files, never a
    /// mixture.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a synced file that may be long. In contrast to [`Disk::remove`] it works in small
    /// steps, so that a thread that wants the core does not wait until all of the file's pages are
    /// dropped, nor a user of the device until all of its space is freed.
    ///
    /// # Errors
    /// Those of the system.
    fn retire(&self, path: &Path) -> io::Result<()> {
        self.remove(path)
    }

    /// Creates a directory and its parents. An existing directory is no error.
    ///
    /// # Errors
    /// Those of the system.
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, sorted.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;

    /// Returns the bytes of the device that files in a directory can still take, if known.
    fn room_bytes(&self, directory: &Path) -> Option<u64> {
        let _ = directory;
        None
    }
}

/// A file of the system that is read past the system's cache.
#[derive(Clone, Debug)]
pub struct BlockFile {
    /// The file.
    pub file: Arc<File>,
    /// Block size in bytes: each read begins and ends at a multiple of it, and its buffer begins at
    /// a page.
    pub block_bytes: usize,
}

/// An open file.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Writes all of `bytes` at `offset`, and extends the file where needed.
    ///
    /// # Errors
    /// Those of the system; any part of the bytes may have been written then.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes `head` and, behind it, up to [`ROWS_MAX`] rows of words, as their bytes lie in
    /// memory. Equivalent to one [`DiskFile::write_at`] of all of them. No thread may change the
    /// words meanwhile.
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

    /// Reads at `offset` and returns the number of bytes. It is less than asked for only at the end
    /// of the file.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Starts the work that [`DiskFile::sync`] has to do for a range. It works in small steps, so
    /// that a thread that wants the core does not wait until all of it is done. It makes nothing
    /// durable; the sync reports its errors.
    fn begin_sync(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Passes the written bytes to the system, where they outlive this process.
    ///
    /// # Errors
    /// Those of the system.
    fn hand_over(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes the written bytes and the file's length durable. After an error it is unknown which of
    /// them are durable, and a second call would not reveal it.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self) -> io::Result<()>;

    /// Returns the length in bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn size(&self) -> io::Result<u64>;

    /// Sets the length of the file, with zeroes where it grows.
    ///
    /// # Errors
    /// Those of the system.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space on the device for the first `len` bytes, which read as zeroes where nothing
    /// was written. The file has that length afterwards.
    ///
    /// # Errors
    /// Those of the system, [`io::ErrorKind::StorageFull`] above all.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Like [`DiskFile::allocate`], for a part of a file that is already long enough. Writes to a
    /// part without space are refused.
    ///
    /// # Errors
    /// Those of the system, [`io::ErrorKind::StorageFull`] above all.
    fn allocate_part(&self, range: Range<u64>) -> io::Result<()> {
        let _ = range;
        Ok(())
    }

    /// Returns the first `count` words of a file of that length. Any thread may write to them:
    /// their bytes are with the system at once, and durable after [`DiskFile::sync`] or before.
    /// Returns `None` where this is not safe.
    ///
    /// # Errors
    /// Those of the system.
    fn words(&self, count: usize) -> io::Result<Option<SharedWords>> {
        let _ = count;
        Ok(None)
    }

    /// Returns the file itself, for a caller that has the kernel read from it by means other than
    /// [`DiskFile::read_at`]. Returns `None` if it is not a file of the system.
    fn system_file(&self) -> Option<&Arc<File>> {
        None
    }

    /// Moves the written bytes of a range to the device and out of the system's cache, as far as
    /// the system supports it. It makes nothing durable. May take long.
    fn settle(&self, range: Range<u64>) {
        let _ = range;
    }

    /// Whether writes go to the device at once, so that the system does not accumulate dirty pages
    /// which it must write back later. They are not durable for that.
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
        // Errors are ignored: the same cause also makes the removal fail, or the call only takes
        // longer.
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
        // A file system in memory without a limit reports zero blocks.
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

    /// Does not copy. Under a model checker, words are larger than their bytes.
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
            // Not every file system supports this: then space is found when it is needed.
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
        // Not every file system supports reads of blocks.
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
