//! Requests of a program about itself to the operating system: detaching from the terminal,
//! stopping until continued, and the local time of day.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

/// Continues as a child without a terminal. The calling process ends with success. The child leads
/// a new session, with its standard input, output and error on `/dev/null`.
///
/// # Errors
/// The system refused, or the process has other threads, which a child would lack.
pub fn detach() -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has several threads"));
    }
    // Parent and child would both write buffered output.
    io::stdout().flush()?;
    // SAFETY: this is the only thread (checked above, and no other thread could start one), so the
    // child has every thread that may hold a lock.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: ends the process and touches no memory of it.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: takes and gives numbers only.
    if unsafe { libc::setsid() } == -1 {
        return Err(io::Error::last_os_error());
    }
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: `null` is open, and the standard descriptors have no owner.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Stops this process until it is continued, as Upstart's `expect stop` requires.
///
/// # Errors
/// The system refused.
pub fn stop_until_continued() -> io::Result<()> {
    // SAFETY: takes and gives numbers only; SIGSTOP runs no handler.
    match unsafe { libc::raise(libc::SIGSTOP) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Maximum number of files that this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Before the call.
    pub before: u64,
    /// From now on.
    pub now: u64,
}

/// Raises the limit of open files to `wanted`, or as far as the process may.
///
/// # Errors
/// The system does not report the limit.
pub fn raise_open_files(wanted: u64) -> io::Result<OpenFiles> {
    let limit = open_files_limit()?;
    let before = limit.rlim_cur;
    if before >= wanted {
        return Ok(OpenFiles {
            before,
            now: before,
        });
    }
    // Only privileged processes raise the hard limit; for others it is the maximum.
    for highest in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit {
            rlim_cur: wanted.min(highest),
            rlim_max: highest,
        };
        // SAFETY: `raised` is a live value of the right type that is only read.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            break;
        }
    }
    let now = open_files_limit()?.rlim_cur;
    Ok(OpenFiles { before, now })
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live value of the right type, owned by this function.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A moment in local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallTime {
    /// Year of the common era.
    pub year: i32,
    /// Month, 0 to 11.
    pub month_index: usize,
    /// Day of the month, 1 to 31.
    pub day: i32,
    /// Hour, 0 to 23.
    pub hour: i32,
    /// Minute, 0 to 59.
    pub minute: i32,
    /// Second, 0 to 60.
    pub second: i32,
}

/// Returns the local time of this machine, `unix_s` seconds after 1970 UTC.
#[must_use]
#[allow(
    deprecated,
    reason = "with musl the type becomes another one, which this takes as well"
)]
pub fn wall_time(unix_s: u64) -> WallTime {
    let time = libc::time_t::try_from(unix_s).unwrap_or(libc::time_t::MAX);
    // SAFETY: every field of `tm` is a number or a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to live values of the right type, and this function owns the second. If
    // the year does not fit, `parts` stays zeroed.
    unsafe { libc::localtime_r(&raw const time, &raw mut parts) };
    WallTime {
        year: parts.tm_year.saturating_add(1900),
        month_index: usize::try_from(parts.tm_mon).unwrap_or(0),
        day: parts.tm_mday,
        hour: parts.tm_hour,
        minute: parts.tm_min,
        second: parts.tm_sec,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_time_is_within_a_day_of_utc() {
        let time = wall_time(1_000_000_000);
        assert_eq!((time.year, time.month_index), (2001, 8));
        assert!((8..=10).contains(&time.day));
        assert_eq!((time.minute % 15, time.second), (46 % 15, 40));
    }

    #[test]
    fn the_limit_of_open_files_is_never_lowered() {
        let first = raise_open_files(64).unwrap();
        assert!(first.now >= first.before && first.now >= 64, "{first:?}");
        let second = raise_open_files(1).unwrap();
        assert_eq!(second.before, second.now);
        assert!(second.now >= first.now);
    }

    #[test]
    fn a_process_with_threads_does_not_detach() {
        let other = std::thread::spawn(std::thread::park);
        assert!(detach().is_err());
        other.thread().unpark();
        other.join().unwrap();
    }
}
