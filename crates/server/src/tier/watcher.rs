//! The thread that checks whether the device answers. It never waits for the device itself.
//!
//! ```text
//!   a read without an answer for `tier-read-timeout`  ── who waits for it is told that it cannot be read
//!   a write without one for [`STALLED`]               ── requests that wait for memory go on without
//! ```

use std::sync::Arc;
use std::time::Duration;

use super::Around;
use super::demoter::Demoter;
use super::readers::Readers;
use super::tuning::Tuning;
use super::values::Values;
use crate::rest::Rest;

/// Time without an answer after which the device counts as failed.
pub(super) const STALLED: Duration = Duration::from_secs(10);

/// Number of checks within the timeout of a read.
const LOOKS: u32 = 4;
/// Maximum time between two checks.
const REST_MAX: Duration = Duration::from_millis(250);

/// See the module documentation.
pub(super) struct Watcher {
    readers: Arc<Readers>,
    values: Arc<Values>,
    demoter: Arc<Demoter>,
    tuning: Arc<Tuning>,
    rest: Rest,
}

impl Watcher {
    pub(super) fn new(
        (readers, values): (&Arc<Readers>, &Arc<Values>),
        demoter: &Arc<Demoter>,
        tuning: &Arc<Tuning>,
    ) -> Self {
        Self {
            readers: Arc::clone(readers),
            values: Arc::clone(values),
            demoter: Arc::clone(demoter),
            tuning: Arc::clone(tuning),
            rest: Rest::default(),
        }
    }

    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Checks regularly, until it is stopped.
    pub(super) fn run(&self, around: &Around) {
        while !self.rest.is_over() {
            let timeout = Duration::from_millis(self.tuning.now().read_timeout_ms);
            self.readers
                .give_up_after(timeout, None, &self.values, &*around.requests);
            self.demoter.give_up_after(STALLED, around);
            self.rest.sleep((timeout / LOOKS).min(REST_MAX));
        }
    }
}
