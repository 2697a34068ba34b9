//! How many workers fit the machine, and where they run.

/// How many cores the process may use: the smaller of its affinity and of its control group's
/// quota, at least 1.
#[must_use]
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
