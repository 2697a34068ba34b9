//! What this server says it is, where clients ask.

/// The level of Redis whose commands this server has; clients switch features on it.
pub const REDIS_VERSION: &str = "7.2.4";
/// The version of this server.
pub const IOLITE_VERSION: &str = env!("CARGO_PKG_VERSION");
