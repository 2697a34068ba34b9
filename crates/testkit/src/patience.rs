//! How long a test waits for something that should come soon.
//!
//! The time of the machine, not of a test's clock: what is waited for happens in other processes.

use std::time::{Duration, Instant};

/// A wait with an end.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    deadline: Instant,
}

impl Patience {
    /// Patience for `timeout` from now on.
    #[must_use]
    pub fn of(timeout: Duration) -> Self {
        Self {
            deadline: now() + timeout,
        }
    }

    /// Whether there is some left.
    #[must_use]
    pub fn lasts(&self) -> bool {
        now() < self.deadline
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "other processes live in the machine's time"
)]
fn now() -> Instant {
    Instant::now()
}
