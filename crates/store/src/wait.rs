//! Waiting for a bucket: a little in place, then by yielding to other threads.
//!
//! Holders are quick, but a holder may lose its core; then a thread that waits in place keeps the
//! holder from getting one. So waiting in place is bounded.

use base::sync::{hint, thread};

/// Number of pauses before the waiter yields its core.
const PAUSES_MAX: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// Number of yields before it matters that the holder may take long. None under a model checker:
/// the holder would always be done by then.
const YIELDS_MAX: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 4 };

/// State of one wait.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pauses: u32,
}

impl Wait {
    /// Whether it is time to do something else if the holder may take long.
    pub(crate) fn is_long_enough(&self) -> bool {
        self.pauses >= PAUSES_MAX + YIELDS_MAX
    }

    /// Waits a moment.
    #[inline]
    pub(crate) fn pause(&mut self) {
        // Under a model checker only a yield lets the holder continue.
        if self.pauses >= PAUSES_MAX {
            self.pauses = self.pauses.saturating_add(1);
            thread::yield_now();
        } else {
            self.pauses += 1;
            hint::spin_loop();
        }
    }
}
