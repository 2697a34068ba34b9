//! Cluster mode: what this node knows of its cluster, from files and orders to what requests are checked by.
//!
//! ```text
//!   CLUSTER … ─► orders ─► ControlLog ─► control state ─► shown: ClusterSeen (what CLUSTER tells)
//!                          (LoneLog)                  └─► Routes ─► engine's hash slots, clients that wait
//! ```
//!
//! A node by itself is a group of itself: its log is [`lone_log`], without Raft. Everything above the log asks for no more
//! than the trait [`ControlLog`], so that the log of a group can take its place.

mod lone_log;
mod migrate;
mod orders;
mod shown;
pub(crate) mod state;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::entry::ShardChange;
use cluster::state::{FEATURE_LEVEL, roles};
use cluster::{Applied, ControlLog, ControlState, Entry, LogEnd, NodeId, NodeRecord, ShardId};
use durability::disk::SystemDisk;
use engine::CommandError;
use engine::cluster::{ClusterOrder, ClusterSeen, DISABLED, Ordered};
use engine::hash_slots::Routes;
use engine::key_query::elsewhere;
use persistence::recovery::Place;

use crate::config::{Config, LINK_PORT_DISTANCE};
use crate::group::unique;
use crate::migration;
use crate::node::Node;
use lone_log::LoneLog;

pub(crate) use migrate::ask_server;
pub use state::ClusterMode;
use state::Part;

/// The shard of a node by itself.
const FIRST_SHARD: ShardId = ShardId(0);

impl ClusterMode {
    /// Reads what this node knew, where the configuration asks for cluster mode, and says what it serves. Called before
    /// clients are served.
    ///
    /// # Errors
    /// Those of the system; a file that is damaged.
    pub(crate) fn begin(&self, node: &Node) -> io::Result<()> {
        let config = node.core.config.current();
        if !config.cluster.is_on {
            return Ok(());
        }
        if config.replication.primary.is_some() {
            return Err(io::Error::other(
                "replicaof directive not allowed in cluster mode",
            ));
        }
        if config.group.is_wanted() {
            return Err(io::Error::other(
                "a control group and cluster mode do not go together in this version",
            ));
        }
        let taken = node.take_directory()?;
        let place = Place::within(&config.dir);
        let log = LoneLog::open(Arc::new(SystemDisk), &place.directory)?;
        let part = Part {
            _taken: taken,
            log,
            ordering: Mutex::default(),
        };
        part.introduce(&config)?;
        let _first = self.0.set(part);
        self.publish(node, &node.core.config.current());
        let seen = self.seen(node);
        if let Some(me) = seen.as_ref().and_then(|seen| seen.me()) {
            let id = &me.id;
            node.core
                .log
                .notice(format_args!("Cluster mode: this is node {id}"));
        }
        Ok(())
    }

    /// The directives have changed.
    pub(crate) fn apply(&self, node: &Node, config: &Config) {
        let Some(part) = self.0.get() else { return };
        if let Err(error) = part.introduce(config) {
            node.core.log.warning(format_args!(
                "What this node says of itself cannot be kept: {error}"
            ));
        }
        self.publish(node, config);
    }

    /// The cluster as this node knows it; `None` outside of one.
    pub(crate) fn seen(&self, node: &Node) -> Option<Arc<ClusterSeen>> {
        let part = self.0.get()?;
        let config = node.core.config.current();
        let mut seen = shown::seen(&part.log.watch(), part.log.own(), &config);
        if let Some(me) = seen.nodes.get_mut(seen.own) {
            me.replication_offset = node.replication.offset(node);
            me.is_loading = node.core.settings.refusals.is_loading();
        }
        Some(Arc::new(seen))
    }

    /// Carries out an order of a client.
    ///
    /// # Errors
    /// What it is to read.
    pub(crate) fn order(&self, node: &Node, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        let part = self.0.get().ok_or(DISABLED)?;
        let _one = part.ordering.lock().unwrap_or_else(PoisonError::into_inner);
        let ordered = part.carry_out(order, &node.core.config.current());
        self.publish(node, &node.core.config.current());
        ordered
    }

    /// Says what is served here, and ends the waits of clients for keys that are not any more.
    fn publish(&self, node: &Node, config: &Config) {
        let Some(part) = self.0.get() else { return };
        let routes = shown::routes(&part.log.watch(), part.log.own(), config);
        let slots = &node.core.settings.hash_slots;
        if slots.is_on() && *slots.routes() == routes {
            return;
        }
        let is_first = !slots.is_on();
        node.core
            .store
            .hide_hash_slots(&migration::of_others(&routes));
        slots.publish(routes.clone());
        if !is_first {
            end_waits(node, &routes);
        }
    }
}

/// Ends the waits of clients for keys that are not served here.
fn end_waits(node: &Node, routes: &Routes) {
    let table = node.core.env.table;
    for client in node.sessions.clients.all() {
        let Some(waiter) = client.waiter() else {
            continue;
        };
        if let Some(why) = elsewhere(&waiter.subject, table, routes)
            && waiter.claim()
        {
            let reply = waiter.subject.refusal(&why.text());
            node.answer(&client, reply);
        }
    }
}

impl Part {
    /// Says in the log what this node is, and that its shard is there.
    fn introduce(&self, config: &Config) -> io::Result<()> {
        let state = self.log.watch();
        let node = self.log.own();
        let record = record(config, self.log.start_count());
        let known = state.nodes.get(&node);
        let propose = |entry| {
            let applied = self.log.propose(&unique::proposal(entry));
            applied.map_err(|error| io::Error::other(error.to_string()))
        };
        match known {
            None => {
                propose(Entry::Join { node, record })?;
            }
            Some(known) if known.record != record => {
                propose(Entry::Node { node, record })?;
            }
            Some(_) => {}
        }
        if shard_of(&state, node).is_none() {
            propose(Entry::Shard {
                shard: FIRST_SHARD,
                expected_epoch: 0,
                change: ShardChange::Create {
                    primary: node,
                    end: LogEnd::default(),
                    is_quorum: false,
                },
            })?;
        }
        Ok(())
    }
}

/// The shard that a node is a member of.
fn shard_of(state: &ControlState, node: NodeId) -> Option<ShardId> {
    let mut shards = state.shards.iter();
    let found = shards.find(|(_, shard)| shard.members.contains_key(&node));
    found.map(|(id, _)| *id)
}

/// Proposes an entry for a client.
fn propose(log: &LoneLog, entry: Entry) -> Result<Applied, CommandError> {
    let applied = log.propose(&unique::proposal(entry));
    applied.map_err(|error| CommandError::Text(format!("ERR {error}").into()))
}

/// What this node says of itself.
fn record(config: &Config, start_count: u64) -> NodeRecord {
    let told = |told: u16, real: u16| if told == 0 { real } else { told };
    let cluster = &config.cluster;
    let client_port = told(cluster.announce_port, config.port);
    let base_port = if config.port == 0 {
        config.tls.port
    } else {
        config.port
    };
    let link_port = match cluster.port {
        0 => base_port.saturating_add(LINK_PORT_DISTANCE),
        port => port,
    };
    NodeRecord {
        name: cluster.announce_name.clone(),
        host: cluster.announce_ip.clone(),
        client_port,
        link_port: told(cluster.announce_bus_port, link_port),
        zone: config.availability_zone.clone(),
        hostname: cluster.announce_hostname.clone(),
        tls_port: told(cluster.announce_tls_port, config.tls.port),
        roles: roles::DATA,
        start_count,
        feature_level: FEATURE_LEVEL,
    }
}
