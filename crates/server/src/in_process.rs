//! A server without sockets, for tests and for programs that carry their own: the same workers,
//! sessions and commands over connections inside the process.

use std::io;
use std::sync::Arc;

use base::clock::Clock;
use persistence::recovery::Target;
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

    /// Starts workers over an empty store, and loads what is kept in the working directory; `before` anybody follows or is
    /// followed, something else may be done with the node.
    ///
    /// # Errors
    /// When the process may have no more descriptors or threads, or what is kept cannot be loaded.
    pub fn start_loaded(
        store: Arc<Store>,
        settings: Settings,
        clock: Arc<dyn Clock>,
        before: &mut dyn FnMut(&Arc<Node>) -> Result<(), String>,
    ) -> io::Result<Self> {
        let config = Arc::new(SharedConfig::new(settings, Origin::default()));
        let wanted = kept::wanted(&config.current());
        let node = Arc::new(Node::new(commands::table(), store, config, clock));
        node.open_tier()?;
        node.set_persistence(kept::open(&node, Target::End).map_err(io::Error::other)?);
        let workers = Workers::start(Arc::clone(&node), Vec::new())?;
        let loaded = node.persistence().map_or(Ok(()), |it| it.load(&wanted));
        loaded.map_err(io::Error::other)?;
        before(&node).map_err(io::Error::other)?;
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
        let ended = self.workers.stop();
        if let Some(persistence) = self.node.persistence() {
            persistence.log().end();
        }
        ended
    }
}
