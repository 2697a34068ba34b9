//! Cluster mode: turns files and orders into this node's view of its cluster, and into the routes
//! that requests are checked against.
//!
//! ```text
//!   CLUSTER … ─► orders ─► ControlLog ─► control state ─► shown: ClusterSeen (what CLUSTER tells)
//!                          (LoneLog,                 └─► Routes ─► engine's hash slots, clients that wait
//!                           or the group's)
//! ```
//!
//! A node by itself is a group of one: its log is [`lone_log`], without Raft. When it meets another
//! node it joins a group, whose log replaces its own, and brings the hash slots that it owned by
//! itself. Everything above the log needs only the trait [`ControlLog`].

mod lone_log;
#[cfg(feature = "cluster")]
mod membership;
mod migrate;
mod orders;
mod shown;
pub(crate) mod state;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::entry::ShardChange;
#[cfg(feature = "cluster")]
use cluster::entry::SlotRange;
use cluster::{Applied, ControlLog, ControlState, Entry, LogEnd, NodeId, ShardId};
use durability::disk::SystemDisk;
use engine::CommandError;
use engine::cluster::{ClusterOrder, ClusterSeen, DISABLED, Ordered};
use engine::hash_slots::Routes;
use engine::key_query::elsewhere;
use persistence::recovery::Place;
use replication::TermId;

use crate::config::Config;
use crate::group::holder::SharedLog;
use crate::group::record::record;
use crate::group::unique;
use crate::link::Message;
use crate::migration;
use crate::node::Node;
use crate::replication::role::Role;
use lone_log::LoneLog;

pub(crate) use migrate::ask_server;
pub use state::ClusterMode;
use state::Part;

/// The shard of a node by itself.
const FIRST_SHARD: ShardId = ShardId(0);

impl ClusterMode {
    /// Reads this node's stored state, if the configuration asks for cluster mode, and publishes
    /// what it serves: nothing yet, if it is a member of a group. Called before clients are served.
    ///
    /// # Errors
    /// Errors of the system, and a damaged file.
    pub(crate) fn begin(&self, node: &Node, member: Option<NodeId>) -> io::Result<()> {
        let config = node.core.config.current();
        if !config.cluster.is_on {
            return Ok(());
        }
        if config.replication.primary.is_some() {
            return Err(io::Error::other(
                "replicaof directive not allowed in cluster mode",
            ));
        }
        let taken = node.take_directory()?;
        let place = Place::within(&config.dir);
        let lone = LoneLog::open(Arc::new(SystemDisk), &place.directory)?;
        let part = Part {
            _taken: taken,
            lone: Arc::new(lone),
            ordering: Mutex::default(),
            member: Mutex::new(member),
            left: Mutex::default(),
            #[cfg(feature = "cluster")]
            brings: Mutex::default(),
            is_cut_off: AtomicBool::new(false),
        };
        if member.is_none() {
            part.introduce(&config)?;
            node.replication.own.set_id(TermId(part.lone.own().0));
        }
        let _first = self.0.set(part);
        self.publish(node);
        let seen = self.seen(node);
        if let Some(me) = seen.as_ref().and_then(|seen| seen.me()) {
            let id = &me.id;
            node.core
                .log
                .notice(format_args!("Cluster mode: this is node {id}"));
        }
        Ok(())
    }

    /// Applies changed directives.
    pub(crate) fn apply(&self, node: &Node, config: &Config) {
        let Some(part) = self.0.get() else { return };
        if part.is_member(node) {
            if let Some(group) = node.control.part() {
                group.configured(config);
            }
        } else if let Err(error) = part.introduce(config) {
            node.core.log.warning(format_args!(
                "What this node says of itself cannot be kept: {error}"
            ));
        }
        self.publish_by(node, config);
    }

    /// The cluster as this node knows it, or `None` outside of one.
    pub(crate) fn seen(&self, node: &Node) -> Option<Arc<ClusterSeen>> {
        let part = self.0.get()?;
        let config = node.core.config.current();
        let is_cut_off = part.is_cut_off.load(Ordering::Relaxed);
        let (state, own) = part.known(node);
        let mut seen = shown::seen(&state, own, &config, is_cut_off);
        if part.is_member(node) {
            let group = node.group.get();
            seen.leader = group
                .leader
                .map_or_else(String::new, |leader| leader.to_string());
            seen.control_term = group.control_term;
            let voters = group.membership.voters.len();
            seen.fault_tolerance = cluster::voters::fault_tolerance(voters);
        }
        seen.is_emptied = node.replication.is_emptied();
        if let Some(group) = node.control.part() {
            group.show_links(&mut seen);
        }
        if let Some(me) = seen.nodes.get_mut(seen.own) {
            me.replication_offset = node.replication.shown_offset(node);
            me.is_loading = node.core.shared.refusals.is_loading();
        }
        Some(Arc::new(seen))
    }

    /// Carries out an order of a client.
    ///
    /// # Errors
    /// The error for the client.
    pub(crate) fn order(&self, node: &Node, order: &ClusterOrder) -> Result<Ordered, CommandError> {
        let part = self.0.get().ok_or(DISABLED)?;
        let _one = lock(&part.ordering);
        let ordered = part.carry_out(node, order);
        self.publish(node);
        ordered
    }

    /// Publishes what is served here. Called when the state applied by the group's thread or this
    /// node's role has changed.
    pub(crate) fn publish(&self, node: &Node) {
        if self.0.get().is_some() {
            self.publish_by(node, &node.core.config.current());
        }
    }

    /// Publishes what is served here, and ends the waits of clients for keys that no longer are.
    fn publish_by(&self, node: &Node, config: &Config) {
        let Some(part) = self.0.get() else { return };
        let (newest, own) = part.known(node);
        part.note_left(&newest);
        // In a group, the state that its thread has applied: the thread orders this before or after
        // the change of this node's role.
        let state = match part.is_member(node) {
            true => Arc::clone(&node.group.get().state),
            false => newest,
        };
        let is_cut_off = part.is_cut_off.load(Ordering::Relaxed);
        let mut routes = shown::routes(&state, own, config, is_cut_off);
        // A node that is about to take over, or has just handed over, holds writes: they are then
        // served here or at the new primary.
        let is_out = matches!(node.replication.role(), Role::Sealed | Role::Following);
        routes.is_down |= !routes.is_replica && is_out && !node.replication.hands_over();
        let slots = &node.core.shared.hash_slots;
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
            node.broadcast(&Message::SlotsChanged);
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
    /// Whether this node is in a group.
    fn is_member(&self, node: &Node) -> bool {
        self.member(node).is_some()
    }

    fn member(&self, node: &Node) -> Option<NodeId> {
        let member = node.control.part().and_then(|part| part.member());
        member.or_else(|| *lock(&self.member))
    }

    /// This node's name.
    fn own(&self, node: &Node) -> NodeId {
        self.member(node).unwrap_or_else(|| self.lone.own())
    }

    /// The control log: the group's, once this node takes part in one, or its own.
    fn log(&self, node: &Node) -> Option<SharedLog> {
        let group = node.control.log();
        let lone = || (!self.is_member(node)).then(|| Arc::clone(&self.lone) as SharedLog);
        group.or_else(lone)
    }

    /// The known state, and this node's name. The state is empty until a member takes part.
    fn known(&self, node: &Node) -> (Arc<ControlState>, NodeId) {
        let log = self.log(node);
        let state = log.map(|log| log.watch()).unwrap_or_default();
        (state, self.own(node))
    }

    /// Remembers former members.
    fn note_left(&self, state: &ControlState) {
        let mut left = lock(&self.left);
        left.note(state);
    }

    /// Records in this node's own log that its shard owns hash slots, which have no owner there
    /// yet.
    #[cfg(feature = "cluster")]
    fn own_slots(&self, ranges: Vec<SlotRange>) -> io::Result<()> {
        let shard = self.lone.watch().shard_of(self.lone.own());
        let owner = Some(shard.unwrap_or(FIRST_SHARD));
        let slots = Entry::Slots {
            ranges,
            expected: None,
            owner,
        };
        match self.lone.propose(&unique::proposal(slots)) {
            Ok(Applied::Done) => Ok(()),
            Ok(_) => Err(io::Error::other("its own log does not take them")),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }

    /// Records this node and its shard in its own log.
    fn introduce(&self, config: &Config) -> io::Result<()> {
        let state = self.lone.watch();
        let node = self.lone.own();
        let record = record(config, self.lone.start_count(), true, None);
        let known = state.nodes.get(&node);
        let propose = |entry| {
            let applied = self.lone.propose(&unique::proposal(entry));
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
        if state.shard_of(node).is_none() {
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

/// Proposes an entry for a client, and waits until this node has applied it.
fn propose(log: &SharedLog, entry: Entry) -> Result<Applied, CommandError> {
    let applied = log.propose(&unique::proposal(entry));
    let applied = applied.map_err(|error| CommandError::Text(format!("ERR {error}").into()))?;
    // If no leader confirms that any more, the entry was applied all the same.
    let _seen = log.read_barrier();
    Ok(applied)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
