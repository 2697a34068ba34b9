//! How requests run: the command table, sessions, transactions, waits, the interface to scripts,
//! and the engine.
//!
//! ```text
//!   Engine::run ─ decode ─ plan ─ execute ─► Table (name → row) ─► handler(Context, Args, Reply)
//!                                                                       │
//!                                            store::Handle, Session, ServerPort (a trait)
//! ```
//!
//! The commands themselves are in the room `commands`: the creator of an [`Engine`] gives it a
//! [`Table`] of them. A command's row ([`CommandSpec`]) says everything the engine needs about it.
//! This room knows no command, no socket, no thread and no file.
#![forbid(unsafe_code)]

pub mod args;
pub mod arrival;
pub mod client_record;
pub mod cluster;
pub mod command_index;
pub mod context;
pub mod counters;
pub mod delayed_flush;
pub mod engine;
pub mod error;
pub mod flags;
pub mod hash_slots;
pub mod histogram;
pub mod identity;
pub mod key_places;
pub mod key_query;
pub mod keys;
pub mod observer;
pub mod permission;
pub mod port;
pub mod push;
pub mod refusals;
pub mod replication;
pub mod scripts;
pub mod session;
pub mod settings;
pub mod shared;
pub mod shared_change;
pub mod slot_moves;
pub mod slot_usage;
pub mod spec;
pub mod subscriptions;
pub mod table;
pub mod thresholds;
pub mod topic;
pub mod tracking;
pub mod transaction;
pub mod waiting;

mod batch;
mod gate;
mod no_server;
mod plan;
mod queued;
mod resolved;
mod watch;

pub use args::Args;
pub use batch::BATCH_MAX;
pub use client_record::{ClientNames, ClientRecord};
pub use command_index::CommandIndex;
pub use context::{Context, Pace};
pub use counters::{Counts, EngineCounters, Latencies, RowCounts};
pub use engine::{Engine, Next, Outcome, Series, SeriesLoop, Share};
pub use error::{CommandError, CommandResult};
pub use flags::{Flags, KeyAccess};
pub use gate::Gate;
pub use histogram::Histogram;
pub use no_server::NoServer;
pub use observer::Observer;
pub use port::{
    AllocatorMemory, AskServer, ClientCondition, ClientFilter, ClientKind, ClientsPort,
    ClusterPort, ConfigPort, KillCount, LogLevel, LogPosition, NO_TIER, NO_USERS_FILE,
    PersistencePort, ProcessPort, Promotion, PubSubPort, Published, ReloadOptions, ReplicationPort,
    SaveKind, SaveRefusal, SaveStart, SaveTime, ServerMemory, ServerPort, ShutdownRequest,
    TierOrder, TierPort, TrackingPort, UsersPort,
};
pub use push::Push;
pub use queued::{QueuedRow, Transaction};
pub use refusals::Refusals;
pub use replication::{
    Copies, FailoverOrder, Followed, NodeOrder, ReplicaHello, ReplicaOf, RoleReport, SyncRequest,
};
pub use scripts::Scripts;
pub use session::{Fate, ReplyMode, Session};
pub use settings::{Settings, UseClock};
pub use shared::Shared;
pub use shared_change::{SharedChange, SharedPart};
pub use spec::{Arity, CommandSpec, Deprecation, Group, KeySpec};
pub use subscriptions::Subscriptions;
pub use table::{Found, Table};
pub use thresholds::{Threshold, Thresholds};
pub use topic::{Topic, TopicKind};
pub use tracking::{Follower, Tracking, TrackingMode, TrackingOptions};
pub use waiting::{Progress, Wait, Waiter, Waiters, Waiting};
pub use watch::Watches;
