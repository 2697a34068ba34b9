//! What a node has that is in cluster mode. What is done with it stands in the module above, which works on whole nodes;
//! the node itself knows no more of cluster mode than this.

use std::fmt;
use std::sync::{Mutex, OnceLock};

use persistence::directory::DataDirectory;

use super::lone_log::LoneLog;

/// What keeps this node in its cluster; nothing outside of one.
#[derive(Default)]
pub struct ClusterMode(pub(super) OnceLock<Part>);

pub(super) struct Part {
    /// Where nothing else has taken the directory of the data.
    pub(super) _taken: Option<DataDirectory>,
    pub(super) log: LoneLog,
    /// Held while an order is carried out: what it saw before is so still.
    pub(super) ordering: Mutex<()>,
}

impl fmt::Debug for ClusterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMode").finish_non_exhaustive()
    }
}
