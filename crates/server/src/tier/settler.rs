//! The thread that drops full segments from the system's cache, so that rings read them past the
//! cache.

use std::sync::Arc;
use std::time::Duration;

use tier::Tier;

use crate::rest::Rest;

/// Interval between two checks: a segment takes longer to fill.
const REST: Duration = Duration::from_millis(100);

/// See the module documentation.
pub(super) struct Settler {
    tier: Arc<Tier>,
    rest: Rest,
}

impl Settler {
    pub(super) fn new(tier: &Arc<Tier>) -> Self {
        Self {
            tier: Arc::clone(tier),
            rest: Rest::default(),
        }
    }

    /// Stops the thread.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Settles one segment after the other, until it is stopped.
    pub(super) fn run(&self) {
        while !self.rest.is_over() {
            if !self.tier.settle_next() {
                self.rest.sleep(REST);
            }
        }
    }
}
