//! All durations of a group. They derive from the time after which a silent node counts as failed.

/// Default of `cluster-node-timeout`, in milliseconds.
pub const NODE_TIMEOUT_MS: u64 = 1_500;
/// Minimum that may be configured.
pub const NODE_TIMEOUT_MS_MIN: u64 = 150;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a node may be silent before it counts as failed.
    pub node_timeout_ms: u64,
    /// How long a primary may serve after it sent the heartbeat for which a lease was granted.
    pub lease_ms: u64,
    /// Time between two heartbeats of a node.
    pub heartbeat_ms: u64,
    /// The longest time before a group without a leader begins an election; followers wait so long
    /// for their leader.
    pub election_ms_max: u64,
    /// The shortest such time.
    pub election_ms_min: u64,
    /// How recently a majority must have confirmed a leader for it to grant anything.
    pub quorum_ms: u64,
    /// How long further answers to a seal are awaited if those received suffice.
    pub answers_ms: u64,
    /// How long a shard without quorum waits for members that are not back from a restart of all
    /// members.
    pub recovery_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self::of(NODE_TIMEOUT_MS)
    }
}

impl Times {
    /// Derives all times from `cluster-node-timeout`.
    #[must_use]
    pub fn of(node_timeout_ms: u64) -> Self {
        let node_timeout_ms = node_timeout_ms.max(NODE_TIMEOUT_MS_MIN);
        Self {
            node_timeout_ms,
            lease_ms: node_timeout_ms,
            heartbeat_ms: node_timeout_ms / 15,
            election_ms_min: node_timeout_ms / 5,
            election_ms_max: node_timeout_ms / 3,
            quorum_ms: node_timeout_ms / 3,
            answers_ms: node_timeout_ms / 5,
            recovery_ms: 30_000,
        }
    }

    /// Returns these times with another node timeout, while the control log runs on with its
    /// election times. Grants need a confirmation at least as recent as with a log started with
    /// that timeout, so leases end within the time that waiting leaders assume.
    #[must_use]
    pub fn changed_to(&self, node_timeout_ms: u64) -> Self {
        let new = Self::of(node_timeout_ms);
        Self {
            election_ms_min: self.election_ms_min,
            election_ms_max: self.election_ms_max,
            recovery_ms: self.recovery_ms,
            quorum_ms: new.quorum_ms.min(self.election_ms_max),
            ..new
        }
    }

    /// Returns the minimum node timeout to which these times may be changed: with the control log's
    /// unchanged heartbeats a leader is still confirmed in time.
    #[must_use]
    pub fn node_timeout_ms_min(&self) -> u64 {
        self.election_ms_max.max(NODE_TIMEOUT_MS_MIN)
    }

    /// Returns how long a lease counts at its holder, from the sending of its heartbeat: the rates
    /// of clocks may differ by 1 %. If the grantor states how long the lease counts there, it is no
    /// longer than that.
    #[must_use]
    pub fn held_lease_ms(&self, granted_ms: Option<u64>) -> u64 {
        let lease_ms = granted_ms.map_or(self.lease_ms, |it| it.min(self.lease_ms));
        lease_ms.saturating_sub(lease_ms / 100 + 10)
    }

    /// Returns how long a lease counts at its grantor, from the grant.
    #[must_use]
    pub fn granted_lease_ms(&self) -> u64 {
        self.lease_ms + self.lease_ms / 100 + 10
    }

    /// Returns how long after this became known a lease of these times may stand, whoever granted
    /// it.
    #[must_use]
    pub fn may_stand_ms(&self) -> u64 {
        let time_ms = self.predecessor_ms();
        time_ms + time_ms / 100
    }

    /// Returns how long a new leader respects grants of its predecessor.
    #[must_use]
    pub fn predecessor_ms(&self) -> u64 {
        self.election_ms_max + self.granted_lease_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elections_take_what_they_took() {
        let begun = Times::of(1_500);
        assert_eq!(begun.changed_to(1_500), begun);
        for timeout_ms in [500, 700, 15_000] {
            let (changed, anew) = (begun.changed_to(timeout_ms), Times::of(timeout_ms));
            assert_eq!(changed.election_ms_max, begun.election_ms_max);
            assert_eq!(changed.lease_ms, anew.lease_ms);
            assert_eq!(changed.heartbeat_ms, anew.heartbeat_ms);
            // Granted leases end before other nodes assume it, and a leader is confirmed more often
            // than necessary.
            assert!(changed.quorum_ms <= anew.election_ms_max);
            assert!(changed.quorum_ms * 3 >= begun.heartbeat_ms * 5 - 3);
            assert_eq!(changed.changed_to(1_500), begun);
        }
        assert_eq!(begun.node_timeout_ms_min(), 500);
        assert_eq!(Times::of(150).node_timeout_ms_min(), 150);
    }

    #[test]
    fn a_lease_ends_at_its_holder_first() {
        for timeout_ms in [0, 150, 500, 1_500, 15_000] {
            let times = Times::of(timeout_ms);
            assert!(times.held_lease_ms(None) < times.lease_ms);
            assert_eq!(
                times.held_lease_ms(Some(1_000_000)),
                times.held_lease_ms(None)
            );
            assert!(times.held_lease_ms(Some(100)) < 100);
            assert!(times.granted_lease_ms() > times.lease_ms);
            assert!(times.heartbeat_ms > 0 && times.heartbeat_ms * 10 <= times.held_lease_ms(None));
        }
    }
}
