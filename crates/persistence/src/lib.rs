//! From the store to files and back: the only room that knows both the store and `durability`.
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
//! [`running::Persistence`] owns the data of a running server, [`log_owner::LogOwner`] the life of
//! the log, and [`held_replies::HeldReplies`] the replies that wait for the log.
//!
//! This room knows no server, no workers and no configuration. It takes what it needs from them as
//! values and ports of its own: an [`environment::Environment`] to work in, [`lines::Lines`] for
//! messages to the operator, and a [`host::Host`] as the surrounding server.

#![forbid(unsafe_code)]

pub mod aof;
pub mod arriving;
pub mod bodies;
pub mod branch;
pub mod check;
pub mod checkpointer;
pub mod cold_bodies;
pub mod controls;
pub mod digests;
pub mod directory;
pub mod environment;
pub mod export;
pub mod followed;
pub mod held_replies;
pub mod host;
pub mod import;
pub mod key_delay;
pub mod lines;
pub mod loader;
pub mod loading;
pub mod log_alone;
pub mod log_in_use;
pub mod log_owner;
pub mod log_tail;
pub mod places;
pub mod rdb_beside;
pub mod rdb_stream;
pub mod recovery;
pub mod replacement;
pub mod replay;
pub mod rewound;
pub mod running;
pub mod seal;
pub mod sink;
pub mod tail;
