//! The system's figures about a process: processor time of all its threads, and memory.

use std::fs;
use std::path::{Path, PathBuf};

/// A process that is observed from outside, or this one.
#[derive(Clone, Debug)]
pub struct Process {
    directory: PathBuf,
}

/// The resources that a process had used at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Running time of its threads, in nanoseconds. Accurate to a tick of the scheduler (1 to 10
    /// ms).
    pub cpu_ns: u64,
    /// Time for which its threads were ready while other threads had the processor, in nanoseconds.
    pub waited_ns: u64,
    /// Its resident memory (RSS), in bytes.
    pub rss_bytes: u64,
}

impl Process {
    /// Creates a handle for a process of this machine.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self {
            directory: PathBuf::from(format!("/proc/{pid}")),
        }
    }

    /// Returns its use so far, or `None` if it has ended or the system does not report it.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let mut usage = None;
        for task in fs::read_dir(self.directory.join("task")).ok()?.flatten() {
            // A thread may end after it was listed.
            let Some((cpu_ns, waited_ns)) = schedule(&task.path().join("schedstat")) else {
                continue;
            };
            let sum: &mut Usage = usage.get_or_insert_default();
            sum.cpu_ns += cpu_ns;
            sum.waited_ns += waited_ns;
        }
        let rss_bytes = self.rss_bytes()?;
        usage.map(|usage| Usage { rss_bytes, ..usage })
    }

    fn rss_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(self.directory.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }
}

/// Returns how long a thread has run, and how long it was ready without running.
fn schedule(file: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(file).ok()?;
    let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// Returns for how long the calling thread was ready while other threads had the processor.
#[must_use]
pub(crate) fn own_thread_waited_ns() -> u64 {
    schedule(Path::new("/proc/thread-self/schedstat")).map_or(0, |(_, waited_ns)| waited_ns)
}

/// Returns the calling process' use so far, including ended threads, but without its waiting time.
#[must_use]
pub fn own_usage() -> Option<Usage> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let cpu_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    let rss_bytes = Process::new(std::process::id()).rss_bytes()?;
    Some(Usage {
        cpu_ns,
        waited_ns: 0,
        rss_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_holds_memory() {
        let own = Process::new(std::process::id());
        let (before, own_before) = (own.usage().unwrap(), own_usage().unwrap());
        assert!(before.rss_bytes > 100_000);
        let mut sum = 0_u64;
        while own.usage().unwrap().cpu_ns == before.cpu_ns {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_usage().unwrap().cpu_ns > own_before.cpu_ns);
        assert!(Process::new(u32::MAX).usage().is_none());
    }
}
