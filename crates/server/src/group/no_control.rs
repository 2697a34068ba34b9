//! How this node takes part in the control group, in a server that was built without one: not at all.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster::NodeId;

use crate::node::Node;

/// Never made.
pub(crate) enum Known {}
/// Never made.
pub(crate) enum Part {}

impl Known {
    /// Never called.
    pub(crate) fn member(&self) -> Option<NodeId> {
        match *self {}
    }
}

/// Never.
pub(crate) fn is_member(_: &Path) -> bool {
    false
}

/// Refuses where a group is wanted.
///
/// # Errors
/// Why there is none.
pub(crate) fn look(node: &Node) -> io::Result<Option<Known>> {
    match node.core.config.current().group.is_wanted() {
        true => Err(io::Error::other(
            "this server was built without a control group",
        )),
        false => Ok(None),
    }
}

/// Does nothing.
///
/// # Errors
/// None.
pub(crate) fn prepare(_: &Arc<Node>, known: Known) -> io::Result<Arc<Part>> {
    match known {}
}

/// Does nothing.
///
/// # Errors
/// None.
pub(crate) fn begin(part: &Arc<Part>, _: &Arc<Node>) -> io::Result<()> {
    match **part {}
}
