//! What the modes of the client share.

use std::time::Duration;

use crate::error::BenchError;

/// What writing to standard output came to.
pub(super) fn written(result: std::io::Result<()>) -> Result<(), BenchError> {
    result.map_err(|error| BenchError::System("standard output", error))
}

/// Seconds, with a fraction.
pub(super) fn seconds(amount: f64) -> Duration {
    Duration::try_from_secs_f64(amount).unwrap_or(Duration::MAX)
}
