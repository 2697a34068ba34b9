//! What this server says it is, where clients ask.

use std::sync::OnceLock;

/// The level of Redis whose commands this server has; clients switch features on it.
pub const REDIS_VERSION: &str = "7.4.2";
/// The version of this server.
pub const IOLITE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What an operator has this process say instead (`redis-version`).
static SAID: OnceLock<Box<str>> = OnceLock::new();

/// The version of Redis that clients and scripts are told.
#[must_use]
pub fn redis_version() -> &'static str {
    SAID.get().map_or(REDIS_VERSION, |said| said)
}

/// Has this process tell another version, from its start on: the first call counts.
pub fn say_redis_version(version: &str) {
    if version != REDIS_VERSION {
        SAID.get_or_init(|| version.into());
    }
}
