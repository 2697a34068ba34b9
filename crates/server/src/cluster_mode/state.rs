//! A node's state in cluster mode. The module above has the operations, which work on whole nodes;
//! the node itself knows no more of cluster mode than this.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use cluster::{ControlState, NodeId};
use persistence::directory::DataDirectory;

use super::lone_log::LoneLog;

/// State of the node in its cluster; empty outside of cluster mode.
#[derive(Default)]
pub struct ClusterMode(pub(super) OnceLock<Part>);

pub(super) struct Part {
    /// Set if nothing else has locked the data directory.
    pub(super) _taken: Option<DataDirectory>,
    /// This node's log while it is by itself.
    pub(super) lone: Arc<LoneLog>,
    /// Held while an order is carried out, so that what it has checked stays true.
    pub(super) ordering: Mutex<()>,
    /// This node's name in its group, if it was in one at its start, until it has left that.
    pub(super) member: Mutex<Option<NodeId>>,
    pub(super) left: Mutex<Left>,
    /// Whether it is about to leave its group with the hash slots in its own log.
    #[cfg(feature = "cluster")]
    pub(super) brings: Mutex<bool>,
    /// Whether no leader of the group has been known for a node timeout.
    pub(super) is_cut_off: AtomicBool,
}

/// Nodes that were members since this server started and have left. A tool that asks each node to
/// forget one of them gets the answer that this is done.
#[derive(Default)]
pub(super) struct Left {
    members: BTreeSet<NodeId>,
    gone: BTreeSet<NodeId>,
}

/// Maximum number of remembered nodes; then the list starts over.
const GONE_MAX: usize = 1_024;

impl Left {
    pub(super) fn note(&mut self, state: &ControlState) {
        if state.nodes.len() == self.members.len()
            && state.nodes.keys().all(|node| self.members.contains(node))
        {
            return;
        }
        if self.gone.len() > GONE_MAX {
            self.gone.clear();
        }
        let left = self
            .members
            .iter()
            .filter(|node| !state.nodes.contains_key(node));
        self.gone.extend(left);
        self.gone.retain(|node| !state.nodes.contains_key(node));
        self.members = state.nodes.keys().copied().collect();
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.gone.contains(&node)
    }
}

impl fmt::Debug for ClusterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMode").finish_non_exhaustive()
    }
}
