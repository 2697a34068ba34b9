//! What a node has that is in cluster mode. What is done with it stands in the module above, which works on whole nodes;
//! the node itself knows no more of cluster mode than this.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use cluster::{ControlState, NodeId};
use persistence::directory::DataDirectory;

use super::lone_log::LoneLog;

/// What keeps this node in its cluster; nothing outside of one.
#[derive(Default)]
pub struct ClusterMode(pub(super) OnceLock<Part>);

pub(super) struct Part {
    /// Where nothing else has taken the directory of the data.
    pub(super) _taken: Option<DataDirectory>,
    /// The log of this node while it is by itself.
    pub(super) lone: Arc<LoneLog>,
    /// Held while an order is carried out: what it saw before is so still.
    pub(super) ordering: Mutex<()>,
    /// This node's name in its group, where it was in one when it was started, until it has left that.
    pub(super) member: Mutex<Option<NodeId>>,
    pub(super) left: Mutex<Left>,
    /// It is about to leave its group with the hash slots that its own log has.
    #[cfg(feature = "cluster")]
    pub(super) brings: Mutex<bool>,
    /// Nobody is known to lead the group for a node timeout.
    pub(super) is_cut_off: AtomicBool,
}

/// Who was a member since this server was started, and has left: whoever tells each node to forget one of them hears that it is
/// done.
#[derive(Default)]
pub(super) struct Left {
    members: BTreeSet<NodeId>,
    gone: BTreeSet<NodeId>,
}

/// So many are remembered; then it begins anew.
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
