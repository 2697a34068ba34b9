//! What this node knows of the control group: an immutable view, and a number that says whether there is a newer one.
//!
//! The group's thread publishes; anybody looks. Who looks often compares the number, which is one load, and takes the
//! view only when it has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::{ControlState, Membership, NodeId, ShardId};

/// The one shard of a group that is no cluster.
pub const SHARD: ShardId = ShardId(0);

/// One view. It never changes.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// This node.
    pub own: NodeId,
    /// Nodes, shards, terms, users: what was applied here last.
    pub state: Arc<ControlState>,
    /// Who votes.
    pub membership: Membership,
    /// The control leader, if one is known.
    pub leader: Option<NodeId>,
    /// The term of the control log. Not of a shard.
    pub control_term: u64,
    /// By how many parts in a million this node's clock is behind the leader's, as that says.
    pub drift_ppm: i64,
    /// Why this node takes no part, if so: its control log cannot be written.
    pub fault: Option<String>,
}

impl Seen {
    /// What INFO says of the group, in order.
    #[must_use]
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut fields = cluster::status::fields(
            &self.state,
            &self.membership,
            self.leader,
            self.control_term,
        );
        let drift = self.drift_ppm.to_string();
        fields.push(("control_clock_drift_ppm".to_owned(), drift));
        let status = if self.fault.is_none() { "ok" } else { "err" };
        fields.push(("control_log_status".to_owned(), status.to_owned()));
        if let Some(fault) = &self.fault {
            // One line.
            let fault = fault.replace(['\r', '\n'], " ");
            fields.push(("control_log_error".to_owned(), fault));
        }
        fields
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct View {
    version: AtomicU64,
    seen: Mutex<Arc<Seen>>,
}

impl View {
    /// Rises with each view; 0 as long as there is no group.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether this node is in a group.
    #[inline]
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.version() > 0
    }

    /// The newest view.
    #[must_use]
    pub fn get(&self) -> Arc<Seen> {
        Arc::clone(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has everybody see another one from now on.
    pub fn publish(&self, seen: Seen) {
        let mut now = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(seen);
        // Behind the view: who sees the number sees that view or a newer one.
        self.version.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_seen_with_its_number() {
        let view = View::default();
        assert!(!view.is_there());
        let control_term = 7;
        view.publish(Seen {
            control_term,
            ..Seen::default()
        });
        assert_eq!((view.version(), view.get().control_term), (1, 7));
    }
}
