//! Where an engine runs.

/// Where an engine runs, and so what becomes of requests that take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// By itself: all requests run.
    Alone,
    /// In a worker, with an engine aside: what takes long is left to that one.
    Worker,
    /// Aside: every request runs with its keys held for long.
    Aside,
}
