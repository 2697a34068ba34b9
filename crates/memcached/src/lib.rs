//! The memcached text protocol, classic and meta commands: translates a client's bytes to commands
//! of the server, and their replies back to the client's text.
//!
//! ```text
//!   client's bytes ── Front::read ──> requests, as RESP ── the server runs them ──> replies ── Front::answer ──> text
//!                        └── what each reply is to become (`Owed`), in order ──────────────────────┘
//! ```
//!
//! Nothing here stores a key or knows a session: MCGET, MCSET and similar commands implement items,
//! so rights, memory limits, the log, replicas and events work as for any command.
//!
//! Invariants
//!  1. A request and its owed entry are added together: each reply finds the entry that says what
//!     it becomes.
//!  2. Nothing is read while something is owed, so texts of one client never overtake each other.
//!  3. Every limit is named in [`limits`]. No input causes a panic or is kept beyond a limit.
#![forbid(unsafe_code)]

mod classic;
mod data;
mod front;
pub mod limits;
mod meta;
mod meta_flags;
mod meta_reply;
mod owed;
mod replies;
mod stats;
mod words;

pub use front::{Broken, Front, Read};
