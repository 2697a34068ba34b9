//! Where an engine runs.

/// Where an engine runs, which decides how it handles long requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Alone: all requests run here.
    Alone,
    /// In a worker that has an offload engine: long requests go there.
    Worker,
    /// On the offload thread: every request runs with its keys locked for long.
    Aside,
}
