//! What is kept on disk, and how it comes back: the one place that knows both the store and
//! `durability`.
//!
//! ```text
//!   files ──► commands ──► replay ──► store
//!   parts of a checkpoint ──► loader ───┘ │
//!              ▲                          │ snapshot
//!              └────── checkpointer ◄─────┘
//!   dump.rdb ──► import ──► store ──► export ──► dump.rdb
//! ```

pub mod aof;
pub mod bodies;
pub mod check;
pub mod checkpointer;
pub mod directory;
pub mod export;
pub mod import;
pub mod keeper;
pub mod loader;
pub mod loading;
pub mod log_tail;
pub mod offline;
mod reloading;
pub mod replay;
pub mod saving;
pub mod sink;
pub mod tail;
