//! The node's handle of its membership in the control group. The node does not depend on the
//! implementation behind it.

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

/// The control log, for callers that may wait.
pub type SharedLog = Arc<dyn cluster::ControlLog + Send + Sync>;

/// The error for a client whose request needs a control group.
pub(super) const IN_NO_GROUP: CommandError =
    CommandError::fixed("ERR this server is in no control group");

/// The node that a node in cluster mode meets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The host of the other node.
    pub host: String,
    /// Its port of links.
    pub link_port: u16,
}

/// The implementation of a membership.
pub(crate) trait TakesPart: Send + Sync {
    /// Serves a link of the group until it ends.
    fn serve(&self, session: Session, address: &str);

    /// Drains a node, undrains it, or makes it leave as soon as it is not needed. Waits until that
    /// is decided.
    ///
    /// # Errors
    /// The error for the client.
    fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError>;

    /// Hands over what this node leads, because it is about to be restarted. It then leads nothing
    /// until the restart, until an order to lead again, or for ten minutes. Waits until other nodes
    /// lead, or `shutdown-timeout` is over.
    ///
    /// # Errors
    /// The error for the client.
    fn leave_for_restart(&self) -> Result<(), CommandError>;

    /// Notes that the client that ordered a restart was answered. If the restart is delayed, this
    /// node follows, which ends the connections of clients.
    fn restart_answered(&self);

    /// Whether this node leads something that another node could lead.
    fn has_to_give(&self) -> bool;

    /// Hands over what this node leads, because the server is about to stop. Waits at most `time`,
    /// and while `goes_on`. Returns whether other nodes lead it now.
    fn give_away(&self, time: Duration, goes_on: &dyn Fn() -> bool) -> bool;

    /// Cancels that: the server keeps running.
    fn keep_all(&self);

    /// The control log, or `None` if there is none yet.
    fn log(&self) -> Option<SharedLog>;

    /// This node's name in the group, or `None` if it is in no group, or has not joined yet.
    fn member(&self) -> Option<NodeId>;

    /// Applies changed directives.
    fn configured(&self, config: &Config);

    /// Brings this node and another one into the same cluster, and waits until they are.
    ///
    /// # Errors
    /// Why that failed.
    fn meet(&self, meeting: &Meeting) -> Result<(), String>;

    /// Sets the shard that this node joins as soon as it is in none, instead of beginning its own.
    /// `None`: a shard that needs it.
    fn set_destination(&self, shard: Option<ShardId>);

    /// Asks the primary of this node's shard to hand its office over to this node, and waits until
    /// the primary has left it.
    ///
    /// # Errors
    /// Why the primary does not.
    fn hand_over(&self, primary: NodeId) -> Result<(), String>;

    /// Sends a message to the other nodes' subscribers. Does not wait.
    fn relay(&self, kind: TopicKind, channel: &[u8], message: &[u8]);

    /// Asks another node for a token that admits a connection as a user, and waits for it.
    ///
    /// # Errors
    /// Why there is none.
    fn ask_for_token(&self, node: NodeId, user: &[u8], time: Duration) -> Result<Vec<u8>, String>;

    /// Adds this node's links, and when it last heard other nodes, to the view of the cluster.
    fn show_links(&self, seen: &mut ClusterSeen);

    /// Makes this primary hand its office over to the copy at an address, or else to the one with
    /// the longest log. Does not wait.
    ///
    /// # Errors
    /// This node is in no group.
    fn fail_over(&self, to: Option<(String, u16)>) -> Result<(), CommandError>;

    /// Makes this node leave and be by itself, and waits for that.
    ///
    /// # Errors
    /// Why the group needs it.
    fn leave_for_good(&self) -> Result<(), String>;

    /// Ends the membership, for a server that stops.
    fn stop(&self);
}

/// See the module.
#[derive(Default)]
pub struct Control {
    part: OnceLock<Arc<dyn TakesPart>>,
    /// The group's documents as applied at this node.
    pub(crate) documents: TakenDocuments,
    /// Minimum node timeout that may be set while this node runs. The elections of its control log
    /// determine it.
    pub(crate) node_timeout_ms_min: AtomicU64,
}

impl Control {
    /// Sets the implementation; once.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "nothing takes part")
    )]
    pub(super) fn set(&self, part: Arc<dyn TakesPart>) {
        let _already_set = self.part.set(part);
    }

    /// Serves a link of the group until it ends. Returns false if this node is in no group.
    pub(crate) fn serve(&self, session: Session, address: &str) -> bool {
        let part = self.part.get();
        if let Some(part) = part {
            part.serve(session, address);
        }
        part.is_some()
    }

    /// Drains a node, undrains it, or makes it leave. Waits until that is decided.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn order_node(&self, node: &[u8], order: NodeOrder) -> Result<(), CommandError> {
        let part = self.part.get().ok_or(IN_NO_GROUP)?;
        part.order_node(node, order)
    }

    /// As [`TakesPart::leave_for_restart`].
    ///
    /// # Errors
    /// The error for the client.
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

    /// The implementation, once it is set.
    pub(crate) fn part(&self) -> Option<&dyn TakesPart> {
        Some(&**self.part.get()?)
    }

    /// The control log, if this node takes part. Its calls wait, so workers must not use it.
    #[must_use]
    pub fn log(&self) -> Option<SharedLog> {
        self.part.get()?.log()
    }

    /// The control log, for a client.
    ///
    /// # Errors
    /// The error for the client if this node is in no group.
    pub(crate) fn log_for_client(&self) -> Result<SharedLog, CommandError> {
        self.log().ok_or(IN_NO_GROUP)
    }

    /// Ends the membership, for a server that stops.
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
