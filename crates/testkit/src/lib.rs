//! What tests share: transcripts, the differential kit, clients, a running server. Never shipped.
//!
//! ```text
//!   process ── starts ──> redis-server (the oracle), iolite (the server under test)
//!      │
//!   client  ── speaks RESP over TCP, a Unix socket, or any other Link
//!      │
//!      ├── transcript    requests and replies written by hand, checked on every target
//!      └── differential  random requests sent to two targets, replies and data compared
//! ```
//!
//! Everything here may panic with a message a developer understands only at the edges that tests
//! call directly; the parts return errors.
#![forbid(unsafe_code)]

pub mod client;
pub mod differential;
pub mod engine_server;
#[cfg(feature = "server")]
pub mod in_process;
pub mod linearizable;
pub mod patience;
pub mod process;
pub mod relay;
pub mod target;
pub mod transcript;

use std::sync::LazyLock;

use engine::Table;

/// The table of all commands, built once in a process of tests.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<&Table> = LazyLock::new(commands::table);
    &TABLE
}
