//! A node's knowledge of the node timeout in the control state, and the timeout by which it grants
//! leases.

use cluster::directives::NodeTimeout;

/// What this node knows of the node timeout in the control state.
#[derive(Default)]
pub(super) struct Timing {
    /// Index of the state that was last checked.
    pub(super) index: u64,
    pub(super) timeout: NodeTimeout,
    /// Since when it is known.
    pub(super) since_ms: u64,
    /// How long the leases that this node grants count.
    pub(super) leads_by_ms: u64,
    /// When the longest valid lease was last proposed for the control state.
    pub(super) proposed_ms: u64,
    /// The leader's differing timeout that was last logged.
    pub(super) told_ms: Option<u64>,
}

impl Timing {
    /// Whether the control state covers the leases that this node grants: then the next leader
    /// knows how long they count.
    pub(super) fn is_lease_stated(&self) -> bool {
        self.timeout.set_ms.is_none() || self.leads_by_ms <= self.timeout.longest_ms()
    }
}
