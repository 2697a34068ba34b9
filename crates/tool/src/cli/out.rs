//! Helpers that the client's modes share.

use std::time::Duration;

use crate::error::BenchError;

/// Converts the result of writing to standard output.
pub(super) fn written(result: std::io::Result<()>) -> Result<(), BenchError> {
    result.map_err(|error| BenchError::System("standard output", error))
}

/// Converts seconds with a fraction.
pub(super) fn seconds(amount: f64) -> Duration {
    Duration::try_from_secs_f64(amount).unwrap_or(Duration::MAX)
}
