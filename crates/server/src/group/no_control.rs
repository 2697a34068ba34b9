//! What keeps a node in the control group, in a server that was built without one: nothing.

use std::sync::Arc;

use crate::node::Node;
use crate::replication::session::Session;

/// See the module.
#[derive(Debug, Default)]
pub struct Control;

impl Control {
    /// Refuses where a group is wanted.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn prepare(&self, node: &Arc<Node>) -> std::io::Result<()> {
        match node.core.config.current().group.is_wanted() {
            true => Err(std::io::Error::other(
                "this server was built without a control group",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn begin(&self, _: &Arc<Node>) -> std::io::Result<()> {
        Ok(())
    }

    pub(crate) fn stop(&self) {}

    pub(crate) fn leave(&self, _: &[u8]) -> Result<(), engine::CommandError> {
        Err(engine::CommandError::fixed(
            "ERR this server is in no control group",
        ))
    }

    pub(crate) fn serve(&self, _: Session, _: &str) -> bool {
        false
    }
}
