//! How many workers fit the machine, and where they run.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How many cores the process may use: the smaller of its affinity and of the CPU quota of its
/// control group (version 1 or 2, rounded down), at least 1.
///
/// The standard library looks at all of these; should it stop doing so, the tests of this module
/// notice the affinity.
#[must_use]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Keeps the calling thread on one core: the `nth` of those that it may run on now, counted from 0
/// and around. Gives the core's number.
///
/// # Errors
/// Those of `sched_setaffinity`, for instance where a sandbox forbids it; the thread then runs on.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_sees_one_core() {
        let before = available_cores();
        let pinned = std::thread::spawn(|| (pin_thread(5).is_ok(), available_cores()));
        let (is_pinned, cores) = pinned.join().unwrap();
        assert!(before >= 1);
        assert_eq!(cores, if is_pinned { 1 } else { before });
    }
}
