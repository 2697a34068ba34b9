//! The command table and what each command does.
//!
//! ```text
//!   Engine::run ─ decode ─ plan ─ execute ─► table (name → row) ─► handler(Context, Args, Reply)
//!                                                                       │
//!                                            store::Handle, Session, ServerPort (a trait)
//! ```
//!
//! A family is a folder under [`families`]; a command's row, handler and unit tests are in one file
//! of it. This room knows no socket, no thread and no file.
#![forbid(unsafe_code)]

pub mod args;
pub mod arrival;
pub mod context;
pub mod counters;
pub mod engine;
pub mod error;
pub mod families;
pub mod histogram;
pub mod identity;
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
pub mod spec;
pub mod subscriptions;
pub mod table;
pub mod thresholds;
pub mod topic;
pub mod tracking;
pub mod transaction;
pub mod waiting;

mod chance;
mod gate;
mod help;
mod key_places;
mod no_server;
mod plan;
mod structure;
#[cfg(test)]
mod testing;
mod walk;
mod watch;

pub use args::Args;
pub use context::{Context, Pace};
pub use counters::{Counts, EngineCounters, Latencies, RowCounts};
pub use engine::{Engine, Next, Outcome, Series, SeriesLoop, Share};
pub use error::{CommandError, CommandResult};
pub use gate::Gate;
pub use histogram::Histogram;
pub use keys::KeyList;
pub use no_server::NoServer;
pub use observer::Observer;
pub use permission::catalog;
pub use plan::BATCH_MAX;
pub use port::{
    AllocatorMemory, ClientCondition, ClientFilter, ClientKind, KillCount, LogLevel, LogPosition,
    NO_USERS_FILE, Published, ReloadOptions, SaveKind, SaveRefusal, SaveStart, SaveTime,
    ServerMemory, ServerPort, ShutdownRequest,
};
pub use push::Push;
pub use refusals::Refusals;
pub use replication::{
    Copies, FailoverOrder, Followed, ReplicaHello, ReplicaOf, ReplicationPort, RoleReport, SyncRequest,
};
pub use scripts::Scripts;
pub use session::{ClientNames, ClientRecord, Fate, ReplyMode, Session};
pub use settings::{Settings, UseClock};
pub use spec::{Arity, CommandSpec, Deprecation, Flags, Group, KeyAccess, KeySpec};
pub use subscriptions::Subscriptions;
pub use table::{CommandIndex, Found, Table, original_table, rename_commands, table};
pub use thresholds::{Threshold, Thresholds};
pub use topic::{Topic, TopicKind};
pub use tracking::{Follower, Tracking, TrackingMode, TrackingOptions};
pub use transaction::Transaction;
pub use waiting::{Progress, Wait, Waiter, Waiters, Waiting};
pub use watch::Watches;
