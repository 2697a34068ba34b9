//! Mistakes that tests plant, to see that the simulation finds them.
//!
//! In a build for users the question whether one is on is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// What heartbeats said of members counts as their answers, and they go on in the old term.
    PromoteWithoutSeal,
    /// A leader grants leases though no quorum is behind it.
    LeaseWithoutQuorum,
    /// A member is promoted while the lease of the primary may stand.
    PromoteWithinLease,
    /// The holder of a lease counts from when the grant came, and without the margin.
    LeaseFromReceipt,
    /// One answer is enough to promote on a quorum shard.
    OneAnswer,
    /// Entries that expect another state are applied all the same.
    ApplyUnchecked,
    /// A new leader does not wait for the grants of its predecessor.
    ForgetPredecessor,
    /// A voter that was restarted reports as if it had acknowledged no leader before.
    ForgetLeaderLease,
    /// The only copy of a shard takes the office again in which it was before it was started anew.
    OfficeAgain,
    /// A primary that hands over tells that it left its office, and goes on with its lease.
    LeaseKept,
    /// A member that has nothing of the shard is promoted, and takes the office.
    BlankPromoted,
    /// Who has the most data is promoted, though a copy of the log alone has more.
    RestIgnored,
    /// Who is elected waits for leases as they are now, and not for those that were longer before.
    ShorterLeaseOnly,
    /// Who is elected waits for leases that were longer as it has heard of them itself, and not as the control state tells.
    LongerLeaseForgotten,
    /// A leader forgets a longer lease that it granted when it grants a shorter one.
    GrantShortened,
}

base::planted!(Bug);
