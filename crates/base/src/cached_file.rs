//! What the system holds of a file in its cache, taken care of a piece at a time.
//!
//! Writing eight megabytes to a device in one call takes the processor some milliseconds, and so does forgetting
//! the pages of a long file when it is removed. Kernels that do not preempt themselves let nobody else have that
//! core meanwhile, however urgent: a thread that serves clients least of all. So each is done in pieces here,
//! with a moment of sleep between two of them, in which whoever wants the core has it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

/// What is begun to be written at once: some two tenths of a millisecond of processor time.
const WRITTEN_BYTES: u64 = 1 << 20;

/// What is forgotten at once, which takes as long.
const FORGOTTEN_BYTES: u64 = 4 << 20;

/// How long to sleep between two pieces. Giving way without a sleep would do for one who wants the core just then;
/// but it gives up a whole slice, which on a busy core may be a hundred times what was used of it.
const REST: Duration = Duration::from_micros(50);

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
        forget(&file).unwrap();
        file.write_all_at(b"a", 4).unwrap();
        begin_to_write(&file, 0..(4 << 20));
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!((found[4], &found[5..]), (b'a', &bytes[5..]));
        std::fs::remove_file(&path).unwrap();
    }
}
