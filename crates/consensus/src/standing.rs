//! Raft's status: the leader, and whether a majority confirms it.

use std::time::Duration;

use cluster::control_log::RaftId;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, Raft};

use crate::{DiskFault, Machine, Types};

/// Raft's present status, as far as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The term of the control log.
    pub term: u64,
    /// The leader.
    pub leader: Option<RaftId>,
    /// Whether this node leads.
    pub is_leader: bool,
    /// Whether it has applied all that was committed before its election.
    pub is_ready: bool,
    /// Whether a majority has also confirmed that within one election timeout, or less if leases
    /// are now shorter than when the log was opened.
    pub has_quorum: bool,
    /// Why its files cannot be written, if so. It takes no part meanwhile.
    pub fault: Option<String>,
    /// Why its snapshot cannot be written, if so.
    pub snapshot_fault: Option<String>,
    /// Why it has ended, if so.
    pub ended: Option<String>,
}

impl Standing {
    /// Whether this node works: its files can be written, and its Raft has not ended.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.fault.is_none() && self.ended.is_none()
    }

    /// Returns the status of a node for which a majority's confirmation counts for `quorum_ms`. A
    /// node that waits for its disk does not count as a leader, unless it is the only voter.
    pub(crate) fn of<C: Types>(raft: &Raft<C, Machine>, quorum_ms: u64, disk: &DiskFault) -> Self {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let own = *raft.node_id();
        let is_alone = members.voter_ids().all(|id| id == own);
        let ended = metrics.running_state.as_ref().err();
        let ended = ended.map(ToString::to_string);
        let fault = disk.journal();
        let takes_part = is_alone || ended.is_none() && fault.is_none();
        let is_leader = takes_part && metrics.state.is_leader();
        let within = Duration::from_millis(quorum_ms);
        let is_acked = metrics
            .last_quorum_acked
            .is_some_and(|at| at.elapsed() < within);
        Self {
            term: metrics.current_term,
            leader: metrics.current_leader.filter(|_| takes_part),
            is_leader,
            is_ready: is_leader
                && metrics
                    .last_applied
                    .is_some_and(|last| last.leader_id.term == metrics.current_term),
            has_quorum: is_leader && (is_alone || is_acked),
            fault: fault.filter(|_| !is_alone),
            snapshot_fault: disk.snapshot(),
            ended,
        }
    }
}
