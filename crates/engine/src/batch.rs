//! Limits on how much is planned and run at once.

/// Maximum number of requests that are planned together.
pub const BATCH_MAX: usize = 16;

/// Number of arguments above which a request takes longer than a worker may neglect its other
/// clients.
pub(crate) const ARGUMENTS_MAX: usize = 8192;
