//! What a node knows of the node timeout in the control state, and what it grants leases by.

use cluster::directives::NodeTimeout;

/// What is known of the node timeout in the control state.
#[derive(Default)]
pub(super) struct Timing {
    /// The state that was looked at last.
    pub(super) index: u64,
    pub(super) timeout: NodeTimeout,
    /// Since when it is known.
    pub(super) since_ms: u64,
    /// How long leases count that this node grants.
    pub(super) leads_by_ms: u64,
    /// When the control state was told last of how long leases may stand.
    pub(super) proposed_ms: u64,
    /// What was told of a leader with another one.
    pub(super) told_ms: Option<u64>,
}

impl Timing {
    /// Who is elected next knows how long leases count that this node grants, whatever it has heard.
    pub(super) fn is_lease_stated(&self) -> bool {
        self.timeout.set_ms.is_none() || self.leads_by_ms <= self.timeout.longest_ms()
    }
}
