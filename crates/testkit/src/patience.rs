//! A limit on how long a test waits for something that should come soon.
//!
//! It uses the machine's time, not a test's clock, because the test waits for other processes.

use std::time::{Duration, Instant};

/// A wait with a deadline.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    deadline: Instant,
}

impl Patience {
    /// Returns a wait that lasts `timeout` from now.
    #[must_use]
    pub fn of(timeout: Duration) -> Self {
        Self {
            deadline: now() + timeout,
        }
    }

    /// Whether the deadline has not passed yet.
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
