//! Compares the texts of this room with a live reference server, if one is installed.
//!
//! Each test starts its own server in a temporary directory. Without a `redis-server` in the path
//! the tests pass and report that they were skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "all of this is test code, also where it is not marked as such"
)]

mod numbers;
mod patterns;
mod reference;
mod texts;
