//! The thread that has full segments leave the system's cache, so that rings read them past it.

use std::sync::Arc;
use std::time::Duration;

use tier::Tier;

use crate::rest::Rest;

/// How often it looks for one: a segment takes longer to be filled.
const REST: Duration = Duration::from_millis(100);

/// See the module.
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

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.rest.end();
    }

    /// Sees to one segment after the other, until it is over.
    pub(super) fn run(&self) {
        while !self.rest.is_over() {
            if !self.tier.settle_next() {
                self.rest.sleep(REST);
            }
        }
    }
}
