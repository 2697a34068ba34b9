//! Connection between the room `persistence` and the server: the server's [`Host`] implementation,
//! and the conversion of the configuration to that room's types.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use durability::checkpoint::History;
use persistence::checkpointer::Outcome;
use persistence::host::Host;
use persistence::log_alone;
use persistence::rdb_beside::RdbBeside;
use persistence::recovery::{Effects, Place, Target};
use persistence::running::{ForeignNames, OpenError, Persistence, Setup, Wanted};
use reactor::workers::available_cores;

use super::wish::log_wish;
use crate::config::{Config, system_reason};
use crate::group::control::is_member;
use crate::link::Message;
use crate::node::Node;
use crate::process;

/// Minimum length of the log kept for replicas if `repl-log-keep` sets none.
const LOG_KEEP_BYTES_MIN: u64 = 1 << 30;

/// Makes the persistence of a node that loads nothing.
///
/// # Errors
/// The process may have no more threads.
pub fn start(node: &Arc<Node>) -> Result<Persistence, OpenError> {
    Persistence::start(setup(node)).inspect(|persistence| apply(node, persistence))
}

/// Makes the persistence of a node with an empty store, and loads the data up to `target`.
///
/// # Errors
/// [`OpenError`]: the server must not start.
pub fn open(node: &Arc<Node>, target: Target) -> Result<Persistence, OpenError> {
    find_log_alone(node)?;
    Persistence::open(setup(node), target).inspect(|persistence| apply(node, persistence))
}

/// Checks whether the directory has a log-only copy; if so, this server keeps no more than that.
///
/// # Errors
/// The server must keep data, which is not there; errors of the system.
fn find_log_alone(node: &Node) -> Result<(), OpenError> {
    let config = node.core.config.current();
    let place = Place::within(&config.dir);
    let marked = log_alone::is_marked(&place);
    if !marked.map_err(|error| OpenError::Log(system_reason(&error)))? {
        return Ok(());
    }
    // Without its group it is an ordinary server.
    let is_grouped = config.group.is_wanted() || is_member(&config.dir);
    if !config.group.keeps_log_alone() || !is_grouped {
        return Err(OpenError::LogAlone(place.directory));
    }
    node.keeping.log_alone.store(true, Ordering::Release);
    Ok(())
}

fn setup(node: &Arc<Node>) -> Setup {
    let config = node.core.config.current();
    Setup {
        env: Arc::clone(&node.core.env),
        host: Arc::new(Around(Arc::downgrade(node))),
        in_use: Arc::clone(&node.keeping.log_in_use),
        background: Arc::clone(&node.work.background),
        dir: config.dir.clone(),
        cores_count: available_cores(),
        usable_bytes: process::usable_bytes(),
        effects: match node.keeping.keeps_log_alone() {
            true => Effects::PassedOver,
            false => Effects::Applied,
        },
    }
}

fn apply(node: &Node, persistence: &Persistence) {
    let config = node.core.config.current();
    let checkpointer = &persistence.checkpointer;
    checkpointer.set_buffer_limit(config.durability.checkpoint_buffer_bytes_max);
    checkpointer.key_delay().set(config.key_save_delay);
    node.core.env.load_delay.set(config.key_load_delay);
}

/// Returns what the configuration asks for at start.
#[must_use]
pub fn wanted(config: &Config) -> Wanted {
    let durability = &config.durability;
    Wanted {
        log: log_wish(durability),
        names: ForeignNames {
            rdb_file: durability.rdb_file_name.clone(),
            aof_directory: durability.aof_directory_name.clone(),
            aof_file: durability.aof_file_name.clone(),
            accepts_torn: durability.accepts_torn_log,
        },
    }
}

/// The node, which owns the persistence that calls this.
struct Around(Weak<Node>);

impl Host for Around {
    fn log_changed(&self) {
        if let Some(node) = self.0.upgrade() {
            node.broadcast(&Message::LogChanged);
        }
    }

    fn log_moved(&self) {
        if let Some(node) = self.0.upgrade() {
            node.wake_workers();
        }
    }

    fn is_stopping(&self) -> bool {
        self.0.upgrade().is_none_or(|node| node.is_stopping())
    }

    fn refuses_checkpoints(&self) -> Option<String> {
        let node = self.0.upgrade()?;
        if node.keeping.keeps_log_alone() {
            return Some("this node keeps the log alone, and has no data".to_owned());
        }
        node.replication.own.refuses_checkpoints()
    }

    fn history(&self, log_sequence: Option<u64>) -> Result<History, String> {
        let node = self.0.upgrade().ok_or("the server stops")?;
        node.replication.own.manifest_history(log_sequence)
    }

    fn log_keep_bytes(&self, base_bytes: u64) -> u64 {
        let Some(node) = self.0.upgrade() else {
            return u64::MAX;
        };
        let configured = node.core.config.current().replication.log_keep_bytes;
        configured.unwrap_or_else(|| base_bytes.max(LOG_KEEP_BYTES_MIN))
    }

    fn loaded(&self) {
        if let Some(node) = self.0.upgrade() {
            node.replication.stream.restore(&node);
            node.replication.hold_until_begun(&node);
        }
    }

    fn log_is_cut(&self) {
        if let Some(node) = self.0.upgrade() {
            node.replication.stream.log_is_cut(&node);
        }
    }

    fn checkpoint_ended(&self, outcome: &Outcome) {
        if let Some(node) = self.0.upgrade() {
            node.note_checkpoint(outcome);
        }
    }

    fn beside(&self) -> Option<RdbBeside> {
        let config = self.0.upgrade()?.core.config.current();
        config.durability.also_saves_rdb.then(|| RdbBeside {
            file_name: config.durability.rdb_file_name.clone(),
            compresses: config.compresses_dumps,
        })
    }
}
