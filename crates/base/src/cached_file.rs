//! What the system holds of a file in its cache, and its room on the device, taken care of a piece at a time.
//!
//! Writing eight megabytes to a device in one call takes the processor some milliseconds, and so does forgetting
//! the pages of a long file when it is removed. Kernels that do not preempt themselves let nobody else have that
//! core meanwhile, however urgent: a thread that serves clients least of all. So each is done in pieces here,
//! with a moment of sleep between two of them, in which whoever wants the core has it.
//!
//! So is giving room back. Where the file system tells the device of it (`discard`), that takes a quarter of a millisecond
//! for each megabyte, in which the device serves nobody else: a log that is written there waits for all of it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::thread;
use std::time::Duration;

/// What is begun to be written at once: some two tenths of a millisecond of processor time.
const WRITTEN_BYTES: u64 = 1 << 20;

/// What is forgotten at once, which takes as long.
const FORGOTTEN_BYTES: u64 = 4 << 20;

/// How long to sleep between two pieces. Giving way without a sleep would do for one who wants the core just then;
/// but it gives up a whole slice, which on a busy core may be a hundred times what was used of it.
const REST: Duration = Duration::from_micros(50);

/// What is given back at once: half a millisecond of the device's time, behind which whatever came meanwhile has its
/// turn.
const RELEASED_BYTES: u64 = 2 << 20;

/// `F_SETSIG` of `fcntl`, which `libc` has for few of the machines that all have this number.
const F_SETSIG: libc::c_int = 10;

/// Has the system begin to write what of a range was changed to the device. Nothing is durable for that, and a
/// sync has to follow; but it will find less to do. What goes wrong on the way is told by that sync.
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

/// Has the system forget the pages of a file that nobody will read again, those that are on the device already.
///
/// # Errors
/// That the length of the file cannot be had. What cannot be forgotten is not an error.
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

/// Has the system write what of a range was changed to the device, and forget its pages. Nothing is durable for that: what goes
/// wrong on the way is told by a sync, and pages that could not be written stay.
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

/// Gives the room of a file back whose name was removed, but for a last piece that goes with it, if nobody else has that
/// file, as far as the system can tell: neither by another name, which somebody may have given it to keep it, nor open, who
/// would find it shorter. Then nothing is done, and it goes as a whole with the last of those.
///
/// O(bytes of the file). Sleeps between pieces of two megabytes.
pub fn release(file: &File) {
    let found = file.metadata().ok().filter(|found| found.nlink() == 0);
    let Some(found) = found.filter(|_| is_open_once(file)) else {
        return;
    };
    let mut length = found.len();
    while length > RELEASED_BYTES {
        // At a multiple no block is cut, which the file system would have to read and write.
        length = (length - 1) / RELEASED_BYTES * RELEASED_BYTES;
        if file.set_len(length).is_err() {
            return;
        }
        thread::sleep(REST);
    }
}

/// Whether nobody else has the file open, as far as the system can tell: only then it grants a lease to write.
fn is_open_once(file: &File) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: takes a descriptor, which `file` keeps open, and a number; it touches no memory of ours.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // Who opens it in this moment makes the system tell us: by a signal that is ignored, other than the usual one.
    // SAFETY: as above.
    let is_quiet = unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) == 0 };
    is_quiet && lease(libc::F_WRLCK) && lease(libc::F_UNLCK)
}

/// Does something to each piece of a range, from its start on, as long as that can be done.
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
        // Not every file system can tell.
        let left = if is_open_once(&file) {
            RELEASED_BYTES
        } else {
            pieces
        };
        assert_eq!(length(&file), left);
    }
}
