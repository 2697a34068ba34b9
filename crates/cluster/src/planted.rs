//! Mistakes that tests plant to verify that the simulation detects them.
//!
//! In a release build, the check for a planted mistake is a constant.

/// A mistake that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Reports in members' heartbeats count as their answers, and they continue in the old term.
    PromoteWithoutSeal,
    /// A leader grants leases without a quorum.
    LeaseWithoutQuorum,
    /// A member is promoted while the primary's lease may stand.
    PromoteWithinLease,
    /// The holder counts a lease from the receipt of the grant, and without the margin.
    LeaseFromReceipt,
    /// One answer suffices for a promotion in a quorum shard.
    OneAnswer,
    /// Entries that expect another state are applied all the same.
    ApplyUnchecked,
    /// A new leader does not wait for the grants of its predecessor.
    ForgetPredecessor,
    /// A restarted voter reports as if it had acknowledged no leader before.
    ForgetLeaderLease,
    /// After a restart, the only copy of a shard takes the office again in which it was before.
    OfficeAgain,
    /// A primary that hands over reports that it left its office, and keeps using its lease.
    LeaseKept,
    /// A member that has nothing of the shard is promoted, and takes office.
    BlankPromoted,
    /// The member with the most data is promoted, although a log-only copy has more.
    RestIgnored,
    /// An elected leader waits for leases of the present length, not for earlier ones that were
    /// longer.
    ShorterLeaseOnly,
    /// An elected leader waits for the longer leases that it has heard of itself, not for those in
    /// the control state.
    LongerLeaseForgotten,
    /// A leader forgets a longer lease that it granted when it grants a shorter one.
    GrantShortened,
}

base::planted!(Bug);
