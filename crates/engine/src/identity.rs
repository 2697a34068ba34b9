//! The versions that this server reports to clients.

use std::sync::OnceLock;

/// The version of Redis whose commands this server has. Clients switch features on it.
pub const REDIS_VERSION: &str = "7.4.2";
/// The version of this server.
pub const IOLITE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version that an operator has this process report instead (`redis-version`).
static SAID: OnceLock<Box<str>> = OnceLock::new();

/// Returns the version of Redis that clients and scripts see.
#[must_use]
pub fn redis_version() -> &'static str {
    SAID.get().map_or(REDIS_VERSION, |said| said)
}

/// Makes this process report another version, from its start on. Only the first call counts.
pub fn say_redis_version(version: &str) {
    if version != REDIS_VERSION {
        SAID.get_or_init(|| version.into());
    }
}
