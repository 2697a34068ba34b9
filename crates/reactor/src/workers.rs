//! How many workers fit the machine, which cores they run on, and how soon they are scheduled.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns how many cores the process may use: the smaller of its affinity and the CPU quota of its
/// control group (version 1 or 2, rounded down), at least 1.
///
/// The standard library considers all of these. If it stops doing so, the tests of this module
/// detect it for the affinity.
#[must_use]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pins the calling thread to one core: the `nth` of those that it may run on now, counted from 0,
/// modulo their number. Returns the core's number.
///
/// # Errors
/// Those of `sched_setaffinity`, for instance if a sandbox forbids it. The thread is then not
/// pinned.
pub fn pin_thread(nth: usize) -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&core| allowed.is_set(core))
        .collect();
    let core = nth
        .checked_rem(cores.len())
        .and_then(|index| cores.get(index))
        .ok_or(io::ErrorKind::NotFound)?;
    let mut only = CpuSet::new();
    only.set(*core);
    sched_setaffinity(None, &only)?;
    Ok(*core)
}

/// The shortest slice that Linux accepts.
const SLICE: Duration = Duration::from_micros(100);

/// Scheduling attributes of a thread: Linux' `struct sched_attr`, first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// The slice of a thread with fair scheduling; 0 if the kernel does not support slices.
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

impl Scheduling {
    /// Flag: threads that this one starts get the default scheduling.
    const RESET_ON_FORK: u64 = 1;

    /// Returns the attributes of the calling thread.
    fn of_this_thread() -> io::Result<Self> {
        let mut found = Self::default();
        let size = libc::c_uint::try_from(size_of::<Self>()).map_err(io::Error::other)?;
        // SAFETY: the kernel fills at most `size` bytes, which is the length of `found`, with
        // integers.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getattr,
                0,
                (&raw mut found).cast::<libc::c_void>(),
                size,
                0,
            )
        };
        outcome(result).map(|()| found)
    }

    fn apply_to_this_thread(&self) -> io::Result<()> {
        let wanted = (&raw const *self).cast::<libc::c_void>();
        // SAFETY: the kernel reads as many bytes as `size` says. It set `size` itself, and `self`
        // has that many.
        outcome(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, wanted, 0) })
    }

    /// Whether the thread shares its core with others by weight, with slices.
    fn is_fair(&self) -> bool {
        let policy = libc::c_int::try_from(self.policy);
        policy.is_ok_and(|policy| [libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&policy))
    }
}

fn outcome(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Requests short slices of processor time for the calling thread, which sleeps until requests come
/// and then has little to do. From 6.12 on, Linux gives such a thread its core at once when it
/// wakes up. Otherwise the thread would wait for the next tick (4 ms at 250 a second) behind a
/// computing thread. It gets no more of the core than before. Weight and policy stay the same.
/// Threads that it starts later do not inherit the slice. A shorter slice that was set from outside
/// is kept. On a kernel without slices nothing happens.
///
/// # Errors
/// Those of the system, for instance if a sandbox forbids it. The thread then runs as before.
pub fn ask_for_short_slices() -> io::Result<()> {
    let found = Scheduling::of_this_thread()?;
    let wanted_ns = u64::try_from(SLICE.as_nanos()).map_err(io::Error::other)?;
    if !found.is_fair() || found.runtime_ns <= wanted_ns {
        return Ok(());
    }
    let wanted = Scheduling {
        flags: found.flags | Scheduling::RESET_ON_FORK,
        runtime_ns: wanted_ns,
        ..found
    };
    wanted.apply_to_this_thread()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_and_nothing_else_changes() {
        if Scheduling::of_this_thread().is_err() {
            // Not allowed in this sandbox.
            return;
        }
        let of_thread = || Scheduling::of_this_thread().unwrap();
        let all = std::thread::spawn(move || {
            let before = of_thread();
            let asked = ask_for_short_slices();
            let after = of_thread();
            let child = std::thread::spawn(of_thread).join().unwrap();
            (before, asked, after, child)
        });
        let (before, asked, after, child) = all.join().unwrap();
        let short_ns = u64::try_from(SLICE.as_nanos()).unwrap();
        // A kernel before 6.12 reports no slices.
        if before.runtime_ns > short_ns && before.is_fair() && asked.is_ok() {
            assert_eq!(after.runtime_ns, short_ns);
            // Resetting the slice also resets a priority above the ordinary one.
            let nice = before.nice.max(0);
            assert_eq!(child, Scheduling { nice, ..before });
        }
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
    }

    #[test]
    fn a_pinned_thread_sees_one_core() {
        let before = available_cores();
        let pinned = std::thread::spawn(|| (pin_thread(5).is_ok(), available_cores()));
        let (is_pinned, cores) = pinned.join().unwrap();
        assert!(before >= 1);
        assert_eq!(cores, if is_pinned { 1 } else { before });
    }
}
