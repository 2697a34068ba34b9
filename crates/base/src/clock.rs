//! Time, as a thing that can be replaced.

/// A source of time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970 UTC.
    fn now_unix_ms(&self) -> u64;
}
