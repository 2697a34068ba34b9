//! What the system knows of a process: processor time of all its threads, and memory.

use std::fs;
use std::path::PathBuf;

/// A process that is watched from outside, or this one.
#[derive(Clone, Debug)]
pub struct Process {
    directory: PathBuf,
}

/// What a process had used at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time its threads have run, in nanoseconds. Exact to a tick of the scheduler (1 to 10 ms).
    pub cpu_ns: u64,
    /// Memory it holds, in bytes (resident set size).
    pub rss_bytes: u64,
}

impl Process {
    /// A process of this machine.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self {
            directory: PathBuf::from(format!("/proc/{pid}")),
        }
    }

    /// What it has used so far; `None` when it is gone, or the system does not tell.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        Some(Usage {
            cpu_ns: self.cpu_ns()?,
            rss_bytes: self.rss_bytes()?,
        })
    }

    fn cpu_ns(&self) -> Option<u64> {
        let mut sum = None;
        for task in fs::read_dir(self.directory.join("task")).ok()?.flatten() {
            // A thread may end between the listing and the reading.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else {
                continue;
            };
            let run_ns: u64 = text.split(' ').next()?.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + run_ns);
        }
        sum
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

/// What the calling process has used so far, threads that have ended included.
#[must_use]
pub fn own_usage() -> Option<Usage> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let cpu_ns = seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).ok()?;
    let rss_bytes = Process::new(std::process::id()).rss_bytes()?;
    Some(Usage { cpu_ns, rss_bytes })
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
