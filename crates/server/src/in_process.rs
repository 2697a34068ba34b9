//! A server without sockets, for tests and for programs that embed one: the same workers, sessions
//! and commands, over connections inside the process.

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

/// Capacity of each direction of an in-process connection, in bytes.
const PIPE_BYTES: usize = 256 * 1024;

/// A running server that is reached only through [`InProcessServer::connect`].
pub struct InProcessServer {
    node: Arc<Node>,
    workers: Workers,
}

impl InProcessServer {
    /// Starts workers over `store` with `settings`.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads.
    pub fn start(store: Arc<Store>, settings: Settings, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let config = Arc::new(SharedConfig::new(settings, Origin::default()));
        let node = Arc::new(Node::new(commands::table(), store, config, clock));
        node.open_tier()?;
        node.set_persistence(kept::start(&node).map_err(io::Error::other)?);
        let workers = Workers::start(Arc::clone(&node), Vec::new())?;
        node.replication.begin(&node);
        Ok(Self { node, workers })
    }

    /// Starts workers over an empty store, and loads the data in the working directory. `before`
    /// replication begins, the callback may do something else with the node.
    ///
    /// # Errors
    /// The process may have no more descriptors or threads, or the data cannot be loaded.
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

    /// Returns the state that its workers share.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Opens a connection to the least loaded worker.
    #[must_use]
    pub fn connect(&self) -> InProcessPeer {
        let (end, peer) = in_process_pair(PIPE_BYTES);
        // No listener accepts it, so it is counted here.
        self.node.sessions.clients.admit(u32::MAX);
        self.workers.balancer().connect(Box::new(end));
        peer
    }

    /// Stops the workers and waits for them.
    ///
    /// # Errors
    /// A worker's loop failed.
    pub fn stop(self) -> io::Result<()> {
        let ended = self.workers.stop();
        if let Some(persistence) = self.node.persistence() {
            persistence.log().end();
        }
        ended
    }
}
