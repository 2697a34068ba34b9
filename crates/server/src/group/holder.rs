//! Where a node holds what keeps it in the control group. The node knows nothing of what that is made of.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::{NodeId, ShardId};
use engine::cluster::ClusterSeen;
use engine::replication::NodeOrder;
use engine::{CommandError, TopicKind};

use super::taken::TakenDocuments;
use crate::config::Config;
use crate::replication::session::Session;

/// The control log, as callers that may wait have it.
pub type SharedLog = Arc<dyn cluster::ControlLog + Send + Sync>;

/// What a client is answered where its request takes a control group.
pub(super) const IN_NO_GROUP: CommandError =
    CommandError::fixed("ERR this server is in no control group");

/// Whom a node in cluster mode meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The host of the other node.
    pub host: String,
    /// Its port of links.
    pub link_port: u16,
}

/// What takes part in the group.
pub(crate) trait TakesPart: Send + Sync {
    /// Serves a link of the group until it ends.
    fn serve(&self, session: Session, address: &str);

    /// Has a node do less, do all again, or leave as soon as nobody needs it. Waits until that is decided.
    ///
    /// # Errors
    /// What the client is to read.
    fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError>;

    /// Gives away what this node leads, because it is to be restarted; leads nothing until then, until an order to lead again
    /// comes to this node, or for ten minutes. Waits until others lead that, or `shutdown-timeout` is over.
    ///
    /// # Errors
    /// What the client is to read.
    fn leave_for_restart(&self) -> Result<(), CommandError>;

    /// The client that ordered a restart is answered: where that does not come at once, this node follows, which ends the
    /// connections of clients.
    fn restart_answered(&self);

    /// Whether this node leads something that another one could.
    fn has_to_give(&self) -> bool;

    /// Gives away what this node leads, because the server is to stop; waits so long at most, and as long as that goes on.
    /// Whether others lead it now.
    fn give_away(&self, time: Duration, goes_on: &dyn Fn() -> bool) -> bool;

    /// The server goes on after all.
    fn keep_all(&self);

    /// The control log, once there is one.
    fn log(&self) -> Option<SharedLog>;

    /// This node's name in the group; none where it is in none, or is not let in yet.
    fn member(&self) -> Option<NodeId>;

    /// The directives have changed.
    fn configured(&self, config: &Config);

    /// Has this node and another one be of one cluster; waits until they are.
    ///
    /// # Errors
    /// Why they are not.
    fn meet(&self, meeting: &Meeting) -> Result<(), String>;

    /// Where this node goes as soon as it is of no shard, in place of beginning one; nothing: where it is needed.
    fn set_destination(&self, shard: Option<ShardId>);

    /// Has the primary of this node's shard hand its office over to this node; waits until it has given it up.
    ///
    /// # Errors
    /// Why it does not.
    fn hand_over(&self, primary: NodeId) -> Result<(), String>;

    /// Sends a message to the subscribers of the other nodes that it is for; waits for nothing.
    fn relay(&self, kind: TopicKind, channel: &[u8], message: &[u8]);

    /// Asks another node for a token that lets a connection in as a user; waits for it.
    ///
    /// # Errors
    /// Why there is none.
    fn ask_for_token(&self, node: NodeId, user: &[u8], time: Duration) -> Result<Vec<u8>, String>;

    /// Adds to what is told of the cluster the links of this node, and when it heard others.
    fn show_links(&self, seen: &mut ClusterSeen);

    /// Has this primary hand its office over to the copy at an address, or to the one that has most; waits for nothing.
    ///
    /// # Errors
    /// Where this node is in no group.
    fn fail_over(&self, to: Option<(String, u16)>) -> Result<(), CommandError>;

    /// Has this node be by itself; waits until it is.
    ///
    /// # Errors
    /// Why the group needs it.
    fn leave_for_good(&self) -> Result<(), String>;

    /// Takes part no more; for a server that stops.
    fn stop(&self);
}

/// See the module.
#[derive(Default)]
pub struct Control {
    part: OnceLock<Arc<dyn TakesPart>>,
    /// What this node has of the group beside data.
    pub(crate) documents: TakenDocuments,
    /// The least node timeout that may be set while this node runs: as elections of its control log have it.
    pub(crate) node_timeout_ms_min: AtomicU64,
}

impl Control {
    /// Says what takes part; once.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "nothing takes part")
    )]
    pub(super) fn set(&self, part: Arc<dyn TakesPart>) {
        let _already_set = self.part.set(part);
    }

    /// Serves a link of the group until it ends; false where this node is in none.
    pub(crate) fn serve(&self, session: Session, address: &str) -> bool {
        let part = self.part.get();
        if let Some(part) = part {
            part.serve(session, address);
        }
        part.is_some()
    }

    /// Has a node do less, do all again, or leave. Waits until that is decided.
    ///
    /// # Errors
    /// What the client is to read.
    pub(crate) fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        let part = self.part.get().ok_or(IN_NO_GROUP)?;
        part.order_node(node, order)
    }

    /// As [`TakesPart::leave_for_restart`].
    ///
    /// # Errors
    /// What the client is to read.
    pub(crate) fn leave_for_restart(&self) -> Result<(), CommandError> {
        let part = self.part.get().ok_or(IN_NO_GROUP)?;
        part.leave_for_restart()
    }

    /// As [`TakesPart::restart_answered`].
    pub(crate) fn restart_answered(&self) {
        if let Some(part) = self.part.get() {
            part.restart_answered();
        }
    }

    /// What takes part, once something does.
    pub(crate) fn part(&self) -> Option<&dyn TakesPart> {
        Some(&**self.part.get()?)
    }

    /// The control log, where this node takes part. Its calls wait: not for workers.
    #[must_use]
    pub fn log(&self) -> Option<SharedLog> {
        self.part.get()?.log()
    }

    /// The control log, for a client.
    ///
    /// # Errors
    /// What the client is to read where this node is in no group.
    pub(crate) fn log_for_client(&self) -> Result<SharedLog, CommandError> {
        self.log().ok_or(IN_NO_GROUP)
    }

    /// Takes part no more; for a server that stops.
    pub(crate) fn stop(&self) {
        if let Some(part) = self.part.get() {
            part.stop();
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}
