//! Memory and processor time of this process, as the operating system reports them.

use std::fs;
use std::sync::OnceLock;

use crate::cgroup;

/// Memory of this process; 0 if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident bytes.
    pub resident_bytes: u64,
    /// The part of them that no file backs.
    pub private_bytes: u64,
}

/// Size below which the page tables of the process are walked to measure its memory. The counters
/// of `statm` are kept per processor and merged in batches: on a machine with many processors they
/// lag by megabytes. That is much of a small process and little of a large one, while a walk costs
/// the large one more.
const WALKED_BELOW_BYTES: u64 = 64 << 20;

/// Returns the present memory of this process.
#[must_use]
pub fn memory() -> ProcessMemory {
    let counted = memory_counted();
    if counted.resident_bytes >= WALKED_BELOW_BYTES {
        return counted;
    }
    memory_walked().unwrap_or(counted)
}

/// Returns the memory by the counters.
fn memory_counted() -> ProcessMemory {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map_while(|word| word.parse().ok());
    let (resident, shared): (u64, u64) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    ProcessMemory {
        resident_bytes: resident * page_bytes(),
        private_bytes: resident.saturating_sub(shared) * page_bytes(),
    }
}

/// Returns the memory by the page tables.
fn memory_walked() -> Option<ProcessMemory> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kilobytes << 10)
    };
    Some(ProcessMemory {
        resident_bytes: bytes("Rss:")?,
        private_bytes: bytes("Anonymous:")?,
    })
}

/// Returns the bytes of memory that this process may have: the machine's, or fewer if a [control
/// group](crate::cgroup) of the process has a limit; 0 if the system reports neither. The first
/// result is kept.
#[must_use]
pub fn usable_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let limit = cgroup::memory_limit_bytes(cgroup::GROUPS.as_ref(), cgroup::MOUNTED.as_ref());
        usable_of(machine_bytes(), limit)
    })
}

fn usable_of(machine_bytes: u64, limit_bytes: Option<u64>) -> u64 {
    match (machine_bytes, limit_bytes) {
        (0, limit) => limit.unwrap_or(0),
        (machine, limit) => limit.map_or(machine, |bytes| bytes.min(machine)),
    }
}

/// Returns the bytes of memory of the machine; 0 if the system does not report them.
#[must_use]
pub fn machine_bytes() -> u64 {
    // SAFETY: sysconf takes a number and returns one; it touches no memory of ours.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * page_bytes()
}

/// Returns system, release and machine, as `uname` names them.
#[must_use]
pub fn operating_system() -> String {
    let mut names = std::mem::MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `names` is writable memory of the size that uname fills; all-zero bytes are a valid
    // utsname (empty names), so it may be read even if the call failed.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    let text = |field: &[libc::c_char]| -> String {
        field
            .iter()
            .map(|byte| byte.to_ne_bytes()[0])
            .take_while(|b| *b != 0)
            .map(char::from)
            .collect()
    };
    format!(
        "{} {} {}",
        text(&names.sysname),
        text(&names.release),
        text(&names.machine)
    )
}

fn page_bytes() -> u64 {
    // SAFETY: as above.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Processor time of the process or of its children, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In the kernel.
    pub system_us: u64,
    /// In user space.
    pub user_us: u64,
}

/// Scope of processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads of this process.
    Process,
    /// The calling thread.
    Thread,
    /// Children that ended.
    Children,
}

/// Returns the processor time used so far.
#[must_use]
pub fn processor_time(whose: Whose) -> ProcessorTime {
    let who = match whose {
        Whose::Process => libc::RUSAGE_SELF,
        Whose::Thread => libc::RUSAGE_THREAD,
        Whose::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable memory of the size that getrusage fills; all-zero bytes are a
    // valid rusage, so it may be read even if the call failed.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    let microseconds = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    ProcessorTime {
        system_us: microseconds(usage.ru_stime),
        user_us: microseconds(usage.ru_utime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_where_the_machine_has_more() {
        assert_eq!(usable_of(64 << 30, None), 64 << 30);
        assert_eq!(usable_of(64 << 30, Some(1 << 30)), 1 << 30);
        // The first version of control groups reports no limit as this number.
        assert_eq!(usable_of(64 << 30, Some(0x7fff_ffff_ffff_f000)), 64 << 30);
        assert_eq!((usable_of(0, Some(5)), usable_of(0, None)), (5, 0));
    }

    #[test]
    fn the_process_holds_memory_and_uses_time() {
        let held = memory();
        assert!(held.private_bytes > 100_000);
        assert!(held.resident_bytes >= held.private_bytes);
        assert!(machine_bytes() > held.resident_bytes);
        assert!((1..=machine_bytes()).contains(&usable_bytes()));
        let before = processor_time(Whose::Process);
        let mut sum = 0_u64;
        while processor_time(Whose::Process) == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
