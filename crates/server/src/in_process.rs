//! A server without sockets, for tests and for programs that carry their own: the same workers,
//! sessions and commands over connections inside the process.

use std::io;
use std::sync::Arc;

use base::clock::Clock;
use reactor::{InProcessPeer, in_process_pair};
use store::Store;

use crate::config::{Origin, Settings, SharedConfig};
use crate::keeping::kept;
use crate::node::Node;
use crate::runtime::Workers;

/// Bytes that either direction of an in-process connection holds.
const PIPE_BYTES: usize = 256 * 1024;

/// A running server that is reached by [`InProcessServer::connect`] only.
pub struct InProcessServer {
    node: Arc<Node>,
    workers: Workers,
}

impl InProcessServer {
    /// Starts workers over `store`, as `settings` say.
    ///
    /// # Errors
    /// When the process may have no more descriptors or threads.
    pub fn start(store: Arc<Store>, settings: Settings, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let config = Arc::new(SharedConfig::new(settings, Origin::default()));
        let node = Arc::new(Node::new(commands::table(), store, config, clock));
        node.open_tier()?;
        node.set_persistence(kept::start(&node).map_err(io::Error::other)?);
        let workers = Workers::start(Arc::clone(&node), Vec::new())?;
        node.replication.begin(&node);
        Ok(Self { node, workers })
    }

    /// What its workers share.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// A new connection to the least loaded worker.
    #[must_use]
    pub fn connect(&self) -> InProcessPeer {
        let (end, peer) = in_process_pair(PIPE_BYTES);
        // No listener accepts it, so nobody else counts it in.
        self.node.sessions.clients.admit(u32::MAX);
        self.workers.balancer().connect(Box::new(end));
        peer
    }

    /// Stops the workers and waits for them.
    ///
    /// # Errors
    /// When a worker's loop failed.
    pub fn stop(self) -> io::Result<()> {
        self.workers.stop()
    }
}
