//! The memcached text protocol, classic and meta commands: bytes of a client to commands of the server, their replies back to
//! the client's text.
//!
//! ```text
//!   client's bytes ── Front::read ──> requests, as RESP ── the server runs them ──> replies ── Front::answer ──> text
//!                        └── what each reply is to become (`Owed`), in order ──────────────────────┘
//! ```
//!
//! Nothing here keeps a key or knows a session: an item is what MCGET, MCSET and their kin make of it, so that rights,
//! memory limits, the log, replicas and events are those of any command.
//!
//! Invariants
//!  1. Requests and what is owed for them are made together: each reply finds the entry that says what it becomes.
//!  2. Nothing is read while something is owed, so texts of one client never overtake each other.
//!  3. Every limit is named in [`limits`], and no input panics or is kept beyond it.
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
