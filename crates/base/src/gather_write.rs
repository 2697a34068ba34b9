//! Writes to a file from memory that several threads write to, without a copy.
//!
//! The words are atomics, so a slice of bytes cannot refer to them: it would promise that no thread
//! changes them. The system makes no such promise and needs none. It reads what is there, as
//! another process would.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::AtomicU64;

/// Maximum number of rows that one call takes besides the head.
pub const ROWS_MAX: usize = 15;

/// Writes `head` and then the rows, as their bytes lie in memory, to a file from `offset` on. Words
/// that other threads change meanwhile are written with their old or their new value.
///
/// # Errors
/// Those of the system; any part may have been written then. More than [`ROWS_MAX`] rows are
/// refused.
pub fn write_words_at(
    file: &File,
    head: &[u8],
    rows: &[&[AtomicU64]],
    mut offset: u64,
) -> io::Result<()> {
    let mut pieces = [(std::ptr::null::<u8>(), 0_usize); ROWS_MAX + 1];
    let Some(places) = pieces.get_mut(..=rows.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    places[0] = (head.as_ptr(), head.len());
    for (place, row) in places[1..].iter_mut().zip(rows) {
        *place = (row.as_ptr().cast(), size_of_val(*row));
    }
    let mut first = 0;
    loop {
        first += places[first..]
            .iter()
            .take_while(|(_, bytes)| *bytes == 0)
            .count();
        if first == places.len() {
            return Ok(());
        }
        let written = write_some(file, &places[first..], offset)?;
        offset += written as u64;
        pass(&mut places[first..], written);
    }
}

/// Removes the written bytes from the front of the pieces.
fn pass(pieces: &mut [(*const u8, usize)], mut written: usize) {
    for (start, bytes) in pieces {
        let here = written.min(*bytes);
        *start = start.wrapping_add(here);
        *bytes -= here;
        written -= here;
    }
}

/// Makes one call. Returns the number of bytes written, at least one. The pieces lie in borrowed
/// memory.
fn write_some(file: &File, pieces: &[(*const u8, usize)], offset: u64) -> io::Result<usize> {
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut vectors = [none; ROWS_MAX + 1];
    for (vector, (start, bytes)) in vectors.iter_mut().zip(pieces) {
        vector.iov_base = start.cast_mut().cast();
        vector.iov_len = *bytes;
    }
    let count = libc::c_int::try_from(pieces.len()).map_err(io::Error::other)?;
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    loop {
        // SAFETY: each vector is a part of a slice that the caller of `write_words_at` lends until
        // that returns, and there are `count` of them; the system only reads them.
        let written = unsafe { libc::pwritev(file.as_raw_fd(), vectors.as_ptr(), count, offset) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => return Ok(written),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn head_and_rows_stand_behind_each_other() {
        let path = std::env::temp_dir().join(format!("iolite-words-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let words = [7, 8, 9].map(AtomicU64::new);
        let rows: [&[AtomicU64]; 3] = [&words[..2], &[], &words[2..]];
        write_words_at(&file, b"head", &rows, 3).unwrap();
        write_words_at(&file, b"", &[], 0).unwrap();
        write_words_at(&file, b"ab", &[], 1).unwrap();
        let mut expected = b"\0abhead".to_vec();
        for word in &words {
            expected.extend(word.load(Ordering::Relaxed).to_le().to_le_bytes());
        }
        assert_eq!(std::fs::read(&path).unwrap(), expected);
        let many = [&words[..]; ROWS_MAX + 1];
        let refused = write_words_at(&file, b"", &many, 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_was_taken_is_passed_across_pieces() {
        let bytes = [0_u8; 8];
        let start = bytes.as_ptr();
        let mut pieces = [(start, 3), (start, 0), (start, 5)];
        pass(&mut pieces, 4);
        let behind = [start.wrapping_add(3), start, start.wrapping_add(1)];
        let expected = [(behind[0], 0), (behind[1], 0), (behind[2], 4)];
        assert_eq!(pieces, expected);
    }
}
