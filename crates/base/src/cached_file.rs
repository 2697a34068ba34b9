//! Care for a file's pages in the system's cache and its space on the device, one piece at a time.
//!
//! Writing eight megabytes to a device in one call takes the processor some milliseconds. So does
//! dropping the pages of a long file when it is removed. Kernels without preemption give that core
//! to no other thread meanwhile, however urgent, not even to a thread that serves clients. So each
//! is done in pieces here, with a short sleep between two pieces, in which another thread can take
//! the core.
//!
//! Freeing space is done in pieces, too. If the file system passes it on to the device (`discard`),
//! that takes a quarter of a millisecond per megabyte, in which the device serves nothing else: a
//! log that is written there waits for all of it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::Duration;

/// Bytes whose write-back is started at once: some two tenths of a millisecond of processor time.
const WRITTEN_BYTES: u64 = 1 << 20;

/// Bytes whose pages are dropped at once, which takes as long.
const FORGOTTEN_BYTES: u64 = 4 << 20;

/// Sleep between two pieces. A yield would suffice for a thread that wants the core at that moment;
/// but it gives up a whole slice, which on a busy core may be a hundred times what was used of it.
const REST: Duration = Duration::from_micros(50);

/// Bytes that are freed at once: half a millisecond of the device's time, after which requests that
/// came meanwhile have their turn.
const RELEASED_BYTES: u64 = 2 << 20;

/// `F_SETSIG` of `fcntl`. `libc` has it for few of the machines, but all of them have this number.
const F_SETSIG: libc::c_int = 10;

/// Starts the write-back of changed pages of a range to the device. Nothing becomes durable by it:
/// a sync has to follow, but finds less to do. That sync reports the errors of the write-back.
///
/// O(pages of the range). Sleeps between pieces of a megabyte.
pub fn begin_to_write(file: &File, range: Range<u64>) {
    in_pieces(range, WRITTEN_BYTES, |from, bytes| {
        // SAFETY: takes a descriptor, which `file` keeps open, and numbers; it touches no memory of ours.
        unsafe {
            libc::sync_file_range(file.as_raw_fd(), from, bytes, libc::SYNC_FILE_RANGE_WRITE) == 0
        }
    });
}

/// Drops the pages of a file that will not be read again from the system's cache, if they are on
/// the device already.
///
/// # Errors
/// The length of the file cannot be read. Pages that cannot be dropped are not an error.
///
/// O(pages of the file). Sleeps between pieces of four megabytes.
pub fn forget(file: &File) -> io::Result<()> {
    in_pieces(0..file.metadata()?.len(), FORGOTTEN_BYTES, |from, bytes| {
        // SAFETY: takes a descriptor, which `file` keeps open, and numbers; it touches no memory of ours.
        unsafe {
            libc::posix_fadvise64(file.as_raw_fd(), from, bytes, libc::POSIX_FADV_DONTNEED) == 0
        }
    });
    Ok(())
}

/// Has the system write changed pages of a range to the device, and drops them from the cache.
/// Nothing becomes durable by it: a sync reports errors of the write-back, and pages that could not
/// be written stay.
///
/// O(pages of the range). Sleeps between pieces of a megabyte, and waits for the device.
pub fn settle(file: &File, range: Range<u64>) {
    in_pieces(range, WRITTEN_BYTES, |from, bytes| {
        let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: takes a descriptor, which `file` keeps open, and numbers; it touches no memory of ours.
        let written = unsafe { libc::sync_file_range(file.as_raw_fd(), from, bytes, flags) == 0 };
        // SAFETY: as above.
        written
            && unsafe {
                libc::posix_fadvise64(file.as_raw_fd(), from, bytes, libc::POSIX_FADV_DONTNEED) == 0
            }
    });
}

/// Frees the space of a file whose name was removed, except for a last piece, which is freed with
/// the file. Does nothing if the file has another name, which may have been given to keep it, or if
/// another process has it open, as far as the system can tell, because that reader would find it
/// shorter. Then the whole file is freed with the last of those.
///
/// O(bytes of the file). Sleeps between pieces of two megabytes.
pub fn release(file: &File) {
    let found = file.metadata().ok().filter(|found| found.nlink() == 0);
    let Some(found) = found.filter(|_| is_open_once(file)) else {
        return;
    };
    let mut length = found.len();
    while length > RELEASED_BYTES {
        // A multiple cuts no block, which the file system would have to read and write.
        length = (length - 1) / RELEASED_BYTES * RELEASED_BYTES;
        if file.set_len(length).is_err() {
            return;
        }
        thread::sleep(REST);
    }
}

/// Whether the file is open only here, as far as the system can tell: only then it grants a write
/// lease.
fn is_open_once(file: &File) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: takes a descriptor, which `file` keeps open, and a number; it touches no memory of ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // If another process opens the file at this moment, the system sends a signal: an ignored one
    // instead of the default.
    // SAFETY: as above.
    let is_quiet = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0 };
    is_quiet && lease(libc::F_WRLCK) && lease(libc::F_UNLCK)
}

/// Calls `act` for each piece of a range, from its start, until one call fails.
fn in_pieces(range: Range<u64>, piece_bytes: u64, mut act: impl FnMut(i64, i64) -> bool) {
    let mut from = range.start;
    while from < range.end {
        let bytes = piece_bytes.min(range.end - from);
        let (Ok(start), Ok(count)) = (i64::try_from(from), i64::try_from(bytes)) else {
            return;
        };
        if !act(start, count) {
            return;
        }
        from += bytes;
        if from < range.end {
            thread::sleep(REST);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn pieces_are_the_range() {
        let mut pieces = Vec::new();
        let mib = 1_i64 << 20;
        in_pieces(3..(5 << 19), 1 << 20, |from, bytes| {
            pieces.push((from, bytes));
            true
        });
        assert_eq!(
            pieces,
            [(3, mib), (mib + 3, mib), (2 * mib + 3, mib / 2 - 3)]
        );
        let mut count = 0;
        in_pieces(0..u64::MAX, 1 << 20, |_, _| {
            count += 1;
            count < 3
        });
        assert_eq!(count, 3, "it ends when it is refused");
    }

    #[test]
    fn bytes_stay_as_they_are() {
        let path = std::env::temp_dir().join(format!("iolite-cached-{}", std::process::id()));
        let bytes = vec![7; 3 << 20];
        std::fs::write(&path, &bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        begin_to_write(&file, 5..(2 << 20));
        settle(&file, 4096..(2 << 20) + 5);
        forget(&file).unwrap();
        file.write_all_at(b"a", 4).unwrap();
        begin_to_write(&file, 0..(4 << 20));
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((found[4], &found[5..]), (b'a', &bytes[5..]));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn room_is_given_back_of_what_nobody_else_has() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("file"), directory.path().join("kept"));
        let pieces = 3 * RELEASED_BYTES + 5;
        let made = || {
            let file = File::options().write(true).create_new(true).open(&path);
            let file = file.unwrap();
            file.set_len(pieces).unwrap();
            file
        };
        let length = |file: &File| file.metadata().unwrap().len();
        let named = made();
        release(&named);
        assert_eq!(length(&named), pieces, "it has its name");
        std::fs::hard_link(&path, &other).unwrap();
        std::fs::remove_file(&path).unwrap();
        release(&named);
        assert_eq!(length(&named), pieces, "it has another name");
        let file = made();
        let reader = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        release(&file);
        assert_eq!(length(&file), pieces, "somebody reads it");
        drop(reader);
        release(&file);
        // Not every file system can tell whether a file is open.
        let left = if is_open_once(&file) {
            RELEASED_BYTES
        } else {
            pieces
        };
        assert_eq!(length(&file), left);
    }
}
