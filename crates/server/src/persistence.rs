//! What is kept on disk, and how it comes back: the one place that knows both the store and
//! `durability`.
//!
//! ```text
//!   files ──► commands ──► replay ──► store
//!   parts of a checkpoint ──► loader ───┘ │
//!              ▲                          │ snapshot
//!              └────── checkpointer ◄─────┘
//!   dump.rdb ──► import ──► store ──► export ──► dump.rdb
//!                           store ──► sink ──► log ──► recovery ──► replay
//! ```
//!
//! `keeper` holds all of it together while a server runs: what is loaded at its start (`recovery`), who
//! makes checkpoints and when (`checkpointer`, `saving`), and the log (`logging`).

pub mod aof;
pub mod bodies;
pub mod branch;
pub mod check;
pub mod checkpointer;
pub mod directory;
pub mod export;
pub mod import;
pub mod keeper;
pub mod loader;
pub mod loading;
pub mod log_tail;
pub mod logging;
pub mod offline;
mod rdb_beside;
pub mod recovery;
mod reloading;
pub mod replay;
pub mod saving;
pub mod sink;
pub mod tail;
