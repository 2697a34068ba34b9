//! Waiting for a bucket: a little in place, then by letting others run.
//!
//! Holders are quick, but a holder may lose its core; then whoever waits in place keeps it from
//! getting one. So waiting in place is bounded.

use base::sync::{hint, thread};

/// Pauses before the core is offered to others.
const PAUSES_MAX: u32 = 100;

/// One wait.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    pauses: u32,
}

impl Wait {
    /// Waits a moment.
    #[inline]
    pub(crate) fn pause(&mut self) {
        // Under a model checker only a yield lets the holder go on.
        if cfg!(any(loom, shuttle)) || self.pauses >= PAUSES_MAX {
            thread::yield_now();
        } else {
            self.pauses += 1;
            hint::spin_loop();
        }
    }
}
