//! This node's view of the control group: immutable, with a version number that shows whether there
//! is a newer one.
//!
//! The group's thread publishes views; any thread reads them. A frequent reader compares the
//! number, which is one load, and takes the view only when it has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::{ControlState, Membership, NodeId, ShardId};

/// The one shard of a group that is not a cluster.
pub const SHARD: ShardId = ShardId(0);

/// One view. It never changes.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// This node.
    pub own: NodeId,
    /// Nodes, shards, terms, users: the control state last applied here.
    pub state: Arc<ControlState>,
    /// The voters.
    pub membership: Membership,
    /// The control leader, if one is known.
    pub leader: Option<NodeId>,
    /// The term of the control log. Not of a shard.
    pub control_term: u64,
    /// How far this node's clock is behind the leader's, in parts per million, as the leader says.
    pub drift_ppm: i64,
    /// Why this node takes no part (its control log cannot be written), or `None` if it does.
    pub fault: Option<String>,
}

impl Seen {
    /// Returns the fields of INFO about the group, in order.
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
            // The text must be one line.
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
    /// Number of the view. Rises with each view; 0 while there is no group.
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

    /// Publishes a new view.
    pub fn publish(&self, seen: Seen) {
        let mut now = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(seen);
        // After the view is stored: a reader that sees the number sees that view or a newer one.
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
