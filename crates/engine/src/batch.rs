//! How much is planned and run at once.

/// How many requests are planned together.
pub const BATCH_MAX: usize = 16;

/// A request of more arguments takes longer than a worker may be away from its other clients.
pub(crate) const ARGUMENTS_MAX: usize = 8192;
