//! Replaces `control` in a server that was built without control groups: it never takes part in
//! one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cluster::NodeId;

use crate::node::Node;

/// Never created.
pub(crate) enum Known {}
/// Never created.
pub(crate) enum Part {}

impl Known {
    /// Never called.
    pub(crate) fn member(&self) -> Option<NodeId> {
        match *self {}
    }
}

/// Returns false.
pub(crate) fn is_member(_: &Path) -> bool {
    false
}

/// Fails if the configuration asks for a group.
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
