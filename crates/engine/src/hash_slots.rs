//! In cluster mode: which hash slots this node serves, and the replies for keys of other nodes.
//!
//! ```text
//!   plan ─► are all keys of the run in slots that are Mine? ─► the short way, as without a cluster
//!                     │ no
//!                     ▼
//!            Query: the keys of one request ─► admit ─► runs, or MOVED, CROSSSLOT, CLUSTERDOWN
//! ```
//!
//! The server publishes [`Routes`]. Requests mostly read one byte per slot that is derived from
//! them. Outside of cluster mode, only [`HashSlots::is_on`] is read.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::hash_slot::{self, HASH_SLOTS};

use crate::slot_usage::SlotUsage;

/// The state of a slot whose requests are served without a further check. For all other slots the
/// routes decide.
const MINE: u8 = 1;

/// The owner number of a slot without an owner.
pub const UNSERVED: u16 = u16::MAX;

/// The address at which clients reach a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address as given to clients; empty if clients are to use the address they know.
    pub host: String,
    /// The port without encryption; 0 if there is none.
    pub port: u16,
    /// The port with encryption; 0 if there is none.
    pub tls_port: u16,
    /// Its id, for other nodes.
    pub id: [u8; 20],
}

/// Which node serves which slot, as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The primaries.
    pub endpoints: Vec<Endpoint>,
    /// The index of each slot's owner in `endpoints`, or [`UNSERVED`].
    pub owners: Vec<u16>,
    /// The index of the primary of this node's shard.
    pub own: u16,
    /// Whether this node is a replica of that primary.
    pub is_replica: bool,
    /// Whether the cluster is down: no keys are served.
    pub is_down: bool,
    /// Whether reads are served nevertheless (`cluster-allow-reads-when-down`).
    pub reads_when_down: bool,
    /// Whether shard channels are served nevertheless (`cluster-allow-pubsubshard-when-down`).
    pub channels_when_down: bool,
    /// Whether one request may use keys of several slots of this node (`cluster-cross-slot`).
    pub crosses_slots: bool,
    /// This node's port with encryption; 0 if there is none.
    pub tls_port: u16,
    /// Number of databases (`cluster-databases`).
    pub databases: u16,
    /// Slots of this node that another node is taking over.
    pub leaving: Leaving,
}

/// Slots that another node is taking over. The code that moves them publishes this separately from
/// the routes ([`HashSlots::set_leaving`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaving {
    /// First and last of each range.
    pub ranges: Arc<[(u16, u16)]>,
    /// Which requests wait until the slots are gone, or stay.
    pub stage: LeavingStage,
}

/// Which requests about leaving slots wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeavingStage {
    /// None. But a request may use only one slot, so that no effect sent to the other node names
    /// keys that the other node does not have.
    #[default]
    Copied,
    /// Writes wait.
    WritesWait,
    /// All wait: the other node may serve the slots already.
    AllWait,
}

impl Leaving {
    /// Whether a slot is leaving.
    #[must_use]
    pub fn has(&self, slot: u16) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

impl Routes {
    /// Returns the owner of a slot, or `None` if it has none.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<u16> {
        let owner = self.owners.get(usize::from(slot)).copied();
        owner.filter(|owner| *owner != UNSERVED)
    }

    /// Whether this node is the primary that owns a slot.
    #[must_use]
    pub fn serves(&self, slot: u16) -> bool {
        !self.is_replica && self.owner(slot) == Some(self.own)
    }

    /// Whether this node is the primary that owns a slot, or a replica of it.
    #[must_use]
    pub fn is_of_shard(&self, slot: u16) -> bool {
        self.owner(slot) == Some(self.own)
    }
}

/// Why this node does not serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// The keys are in several slots.
    CrossSlot,
    /// The slot has no owner.
    Unserved,
    /// The cluster is down.
    Down,
    /// The cluster is down for writes.
    DownToWrites,
    /// Another node serves the slot.
    Moved {
        /// The slot.
        slot: u16,
        /// The node's address.
        host: String,
        /// The node's port.
        port: u16,
    },
}

impl Elsewhere {
    /// Returns the error text for a client, code included.
    #[must_use]
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::CrossSlot => CROSS_SLOT.into(),
            Self::Unserved => "CLUSTERDOWN Hash slot not served".into(),
            Self::Down => "CLUSTERDOWN The cluster is down".into(),
            Self::DownToWrites => {
                "CLUSTERDOWN The cluster is down and only accepts read commands".into()
            }
            Self::Moved { slot, host, port } => format!("MOVED {slot} {host}:{port}").into(),
        }
    }

    /// Returns the error text for a script that calls a command.
    #[must_use]
    pub fn text_in_script(&self) -> &'static str {
        match self {
            Self::Down => "ERR Script attempted to execute a command while the cluster is down",
            Self::DownToWrites => {
                "ERR Script attempted to execute a write command while the cluster is down and readonly"
            }
            Self::CrossSlot | Self::Unserved | Self::Moved { .. } => {
                "ERR Script attempted to access a non local key in a cluster node"
            }
        }
    }
}

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
/// The error for a script that reaches another slot than before.
pub const CROSS_SLOT_IN_SCRIPT: &str =
    "ERR Script attempted to access keys that do not hash to the same slot";

/// What the slot check needs to know about one request, or about all requests of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// The slot of the first key.
    pub slot: Option<u16>,
    /// Whether another key is in another slot.
    pub(crate) crosses: bool,
    /// One of those slots that does not belong to this node's shard.
    pub(crate) strays_to: Option<u16>,
    /// Whether the request changes something.
    pub is_write: bool,
    /// Whether the request is about shard channels.
    pub is_about_channels: bool,
    /// Whether the client reads from replicas (READONLY).
    pub reads_replicas: bool,
    /// Whether the client's connection is encrypted.
    pub is_encrypted: bool,
}

impl Query {
    /// Adds a key, or a shard channel.
    pub fn add(&mut self, routes: &Routes, name: &[u8]) {
        let slot = hash_slot::of(name);
        if self.slot.is_none_or(|first| first == slot) {
            self.slot = Some(slot);
            return;
        }
        self.crosses = true;
        if !routes.is_of_shard(slot) {
            self.strays_to = Some(slot);
        }
    }

    /// Returns the slot of all keys, or `None` if there is no single one.
    #[must_use]
    pub fn only_slot(&self) -> Option<u16> {
        self.slot.filter(|_| !self.crosses)
    }

    /// Whether the request has to wait because its slot is leaving. To be called before the request
    /// begins, and not again: the code that takes the slot away waits for requests that have begun.
    #[must_use]
    pub fn waits(&self, routes: &Routes) -> bool {
        let waits = match routes.leaving.stage {
            LeavingStage::Copied => false,
            LeavingStage::WritesWait => self.is_write,
            LeavingStage::AllWait => true,
        };
        let leaves = |slot| routes.leaving.has(slot);
        waits && !self.is_about_channels && self.slot.is_some_and(leaves)
    }

    /// Whether the request may run here.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, routes: &Routes) -> Result<(), Elsewhere> {
        let Some(slot) = self.slot else {
            return Ok(());
        };
        let Some(owner) = routes.owner(slot) else {
            return Err(Elsewhere::Unserved);
        };
        if self.crosses && (!routes.crosses_slots || self.strays_to.is_some()) {
            return Err(Elsewhere::CrossSlot);
        }
        // One of the slots may be leaving: the query does not keep the list of its slots.
        if self.crosses && !routes.leaving.ranges.is_empty() {
            return Err(Elsewhere::CrossSlot);
        }
        if routes.is_down {
            let is_served = if self.is_about_channels {
                routes.channels_when_down
            } else if routes.reads_when_down && self.is_write {
                return Err(Elsewhere::DownToWrites);
            } else {
                routes.reads_when_down
            };
            if !is_served {
                return Err(Elsewhere::Down);
            }
        }
        let reads_here = (self.reads_replicas && !self.is_write) || self.is_about_channels;
        if owner == routes.own && (!routes.is_replica || reads_here) {
            return Ok(());
        }
        let endpoint = routes.endpoints.get(usize::from(owner)).cloned();
        let endpoint = endpoint.unwrap_or_default();
        let port = if self.is_encrypted && endpoint.tls_port != 0 || endpoint.port == 0 {
            endpoint.tls_port
        } else {
            endpoint.port
        };
        Err(Elsewhere::Moved {
            slot,
            host: endpoint.host,
            port,
        })
    }
}

/// See the module.
#[derive(Debug)]
pub struct HashSlots {
    is_on: AtomicBool,
    /// Whether requests about leaving slots wait.
    has_waits: AtomicBool,
    /// Whether slots are about to become this node's: their keys are already here.
    is_taking: AtomicBool,
    /// Number of times that databases were emptied.
    flushes: AtomicU64,
    states: Box<[AtomicU8]>,
    routes: Mutex<Arc<Routes>>,
    version: AtomicU64,
    /// What the requests about each slot took.
    pub usage: SlotUsage,
}

impl Default for HashSlots {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            has_waits: AtomicBool::new(false),
            is_taking: AtomicBool::new(false),
            flushes: AtomicU64::new(0),
            states: (0..HASH_SLOTS).map(|_| AtomicU8::new(0)).collect(),
            routes: Mutex::default(),
            version: AtomicU64::new(0),
            usage: SlotUsage::default(),
        }
    }
}

impl HashSlots {
    /// Whether cluster mode is on.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether requests about leaving slots wait.
    #[inline]
    pub(crate) fn has_waits(&self) -> bool {
        self.has_waits.load(Ordering::Relaxed)
    }

    /// Returns whether a database may be emptied now. It may not while this node takes over slots
    /// whose keys it already has, nor while another node takes over slots whose keys it already
    /// has: those keys would survive there. The caller has the store exclusively.
    #[must_use]
    pub fn begin_flush(&self) -> bool {
        let is_given = self.routes().leaving.stage == LeavingStage::AllWait;
        let may = !is_given && !self.is_taking.load(Ordering::Acquire);
        self.flushes.fetch_add(u64::from(may), Ordering::AcqRel);
        may
    }

    /// Returns how often databases were emptied.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Sets whether slots are being taken over. The caller that begins this has the store
    /// exclusively.
    pub fn set_taking(&self, on: bool) {
        self.is_taking.store(on, Ordering::Release);
    }

    /// Whether a slot is served without a further check.
    #[inline]
    pub(crate) fn is_mine(&self, slot: u16) -> bool {
        let state = self.states.get(usize::from(slot));
        state.is_some_and(|state| state.load(Ordering::Relaxed) == MINE)
    }

    /// Publishes new routes, and begins cluster mode. The slots that are
    /// [leaving](HashSlots::set_leaving) are kept.
    pub fn publish(&self, mut routes: Routes) {
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.leaving = known.leaving.clone();
        self.take_up(&mut known, routes);
        self.is_on.store(true, Ordering::Release);
    }

    /// Publishes which slots are leaving, and which requests wait. Requests that began before
    /// continue: a caller that needs them to be over waits until all threads have left the store.
    pub fn set_leaving(&self, leaving: Leaving) {
        let mut known = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let routes = Routes {
            leaving,
            ..Routes::clone(&known)
        };
        self.take_up(&mut known, routes);
    }

    fn take_up(&self, known: &mut Arc<Routes>, routes: Routes) {
        let routes = Arc::new(routes);
        *known = Arc::clone(&routes);
        let leaving = &routes.leaving;
        for (slot, state) in (0..).zip(&self.states) {
            let waits = leaving.stage != LeavingStage::Copied && leaving.has(slot);
            let is_mine = routes.serves(slot) && !routes.is_down && !waits;
            state.store(if is_mine { MINE } else { 0 }, Ordering::Release);
        }
        self.usage.forget(|slot| !routes.is_of_shard(slot));
        let has_waits = leaving.stage != LeavingStage::Copied && !leaving.ranges.is_empty();
        self.has_waits.store(has_waits, Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the current routes.
    #[must_use]
    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let endpoint = |host: &str, port, tls_port| Endpoint {
            host: host.to_owned(),
            port,
            tls_port,
            id: [0; 20],
        };
        let mut owners = vec![0; HASH_SLOTS];
        owners[12_182] = 1;
        owners[5_061] = UNSERVED;
        Routes {
            endpoints: vec![endpoint("a", 1, 2), endpoint("b", 3, 4)],
            owners,
            ..Routes::default()
        }
    }

    fn ask(routes: &Routes, query: Query, names: &[&str]) -> String {
        let mut query = query;
        for name in names {
            query.add(routes, name.as_bytes());
        }
        let judged = query.judge(routes);
        judged.map_or_else(|no| no.text().into_owned(), |()| "here".to_owned())
    }

    #[test]
    fn keys_are_served_moved_or_refused_as_redis_does() {
        let mut routes = routes();
        let plain = Query::default();
        let write = Query {
            is_write: true,
            ..plain
        };
        assert_eq!(ask(&routes, plain, &[]), "here");
        assert_eq!(ask(&routes, plain, &["hello"]), "here");
        assert_eq!(ask(&routes, plain, &["foo"]), "MOVED 12182 b:3");
        let encrypted = Query {
            is_encrypted: true,
            ..plain
        };
        assert_eq!(ask(&routes, encrypted, &["foo"]), "MOVED 12182 b:4");
        assert_eq!(
            ask(&routes, plain, &["bar"]),
            "CLUSTERDOWN Hash slot not served"
        );
        assert_eq!(ask(&routes, plain, &["hello", "{hello}2"]), "here");
        assert_eq!(ask(&routes, plain, &["hello", "other"]), CROSS_SLOT);
        routes.crosses_slots = true;
        assert_eq!(ask(&routes, plain, &["hello", "other"]), "here");
        assert_eq!(ask(&routes, plain, &["hello", "foo"]), CROSS_SLOT);
        routes.is_down = true;
        let down = "CLUSTERDOWN The cluster is down";
        assert_eq!(ask(&routes, plain, &["hello"]), down);
        let channels = Query {
            is_about_channels: true,
            ..plain
        };
        assert_eq!(ask(&routes, channels, &["hello"]), down);
        (routes.reads_when_down, routes.channels_when_down) = (true, true);
        assert_eq!(ask(&routes, plain, &["hello"]), "here");
        assert_eq!(ask(&routes, channels, &["hello"]), "here");
        let down = "CLUSTERDOWN The cluster is down and only accepts read commands";
        assert_eq!(ask(&routes, write, &["hello"]), down);
    }

    #[test]
    fn a_replica_serves_who_asks_to_read_from_it() {
        let routes = Routes {
            is_replica: true,
            ..routes()
        };
        let plain = Query::default();
        let reader = Query {
            reads_replicas: true,
            ..plain
        };
        let writer = Query {
            is_write: true,
            ..reader
        };
        assert_eq!(ask(&routes, plain, &["hello"]), "MOVED 866 a:1");
        assert_eq!(ask(&routes, reader, &["hello"]), "here");
        assert_eq!(ask(&routes, writer, &["hello"]), "MOVED 866 a:1");
    }

    #[test]
    fn requests_about_slots_that_leave_wait_as_the_stage_says() {
        let slots = HashSlots::default();
        slots.publish(routes());
        let leave = |stage| {
            let ranges = [(860, 866)].into();
            slots.set_leaving(Leaving { ranges, stage });
        };
        let asked = |name: &str, is_write| {
            let mut query = Query {
                is_write,
                ..Query::default()
            };
            query.add(&slots.routes(), name.as_bytes());
            query.waits(&slots.routes())
        };
        leave(LeavingStage::Copied);
        assert!(!slots.has_waits() && slots.is_mine(866) && !asked("hello", true));
        leave(LeavingStage::WritesWait);
        assert!(slots.has_waits() && !slots.is_mine(866) && slots.is_mine(867));
        assert!(asked("hello", true) && !asked("hello", false) && !asked("other", true));
        // New routes may be published meanwhile.
        slots.publish(routes());
        assert!(asked("hello", true) && !slots.is_mine(866));
        leave(LeavingStage::AllWait);
        assert!(asked("hello", false) && !asked("other", false));
        let crossing = ask(&slots.routes(), Query::default(), &["hello", "other"]);
        assert_eq!(crossing, CROSS_SLOT);
        slots.set_leaving(Leaving::default());
        assert!(!slots.has_waits() && slots.is_mine(866) && !asked("hello", true));
    }

    #[test]
    fn nothing_is_emptied_while_slots_change_hands() {
        let slots = HashSlots::default();
        slots.publish(routes());
        let leave = |stage| {
            let ranges = [(1, 1)].into();
            slots.set_leaving(Leaving { ranges, stage });
        };
        leave(LeavingStage::WritesWait);
        assert!(slots.begin_flush());
        leave(LeavingStage::AllWait);
        assert!(!slots.begin_flush());
        slots.set_leaving(Leaving::default());
        slots.set_taking(true);
        assert!(!slots.begin_flush());
        slots.set_taking(false);
        assert!(slots.begin_flush());
        assert_eq!(slots.flushes(), 2);
    }

    #[test]
    fn keys_of_several_slots_are_refused_while_slots_leave() {
        let slots = HashSlots::default();
        slots.publish(Routes {
            crosses_slots: true,
            ..routes()
        });
        let here = |names| ask(&slots.routes(), Query::default(), names);
        assert_eq!(here(&["hello", "other"]), "here");
        slots.set_leaving(Leaving {
            ranges: [(1, 1)].into(),
            stage: LeavingStage::Copied,
        });
        assert_eq!(here(&["hello", "other"]), CROSS_SLOT);
        assert_eq!(here(&["hello", "{hello}2"]), "here");
    }

    #[test]
    fn states_follow_the_routes() {
        let slots = HashSlots::default();
        assert!(!slots.is_on() && !slots.is_mine(866));
        slots.publish(routes());
        assert!(slots.is_on() && slots.is_mine(866) && !slots.is_mine(12_182));
        slots.publish(Routes {
            is_down: true,
            ..routes()
        });
        assert!(!slots.is_mine(866));
        slots.publish(Routes {
            is_replica: true,
            ..routes()
        });
        assert!(!slots.is_mine(866));
    }
}
