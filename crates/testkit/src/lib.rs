//! Shared parts of tests: transcripts, the differential kit, clients, a running server. Never
//! shipped.
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
//! Only functions that tests call directly may panic, with a message that a developer understands.
//! All other parts return errors.
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

/// Returns the table of all commands, built once per test process.
#[must_use]
pub fn table() -> &'static Table {
    static TABLE: LazyLock<&Table> = LazyLock::new(commands::table);
    &TABLE
}
