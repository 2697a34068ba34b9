//! Compares the texts of this room with a live reference server, where one is installed.
//!
//! Each test starts a server of its own in a temporary directory; without a `redis-server` in the
//! path they pass and say that they were skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, also where it is not marked as such"
)]

mod numbers;
mod patterns;
mod reference;
mod texts;
