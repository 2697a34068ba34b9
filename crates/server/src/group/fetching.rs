//! A sealed copy of the data fetches what a log-only copy has beyond it, before it is promoted.
//!
//! ```text
//!   leader: fetch ─► follows that copy, in the term of the seal ─► has all of its log ─► seal again ─► answer
//! ```
//!
//! The thread "group" does this next to the seals (`acting`). The log-only copy is sealed for the
//! same term, so nothing is appended to its log meanwhile. A later seal ends the fetch. What was
//! received until then stays, and is part of the answer to that seal.

use cluster::message::Fetch;

use super::links::Reply;

/// The fetch in progress, and the waiting reply to its seal.
#[derive(Default)]
pub(super) struct Fetching {
    pub(super) fetch: Option<Fetch>,
    pub(super) waiting: Option<Reply>,
}

impl Fetching {
    /// Ends the fetch, and returns the waiting reply.
    pub(super) fn end(&mut self) -> Option<Reply> {
        self.fetch = None;
        self.waiting.take()
    }
}
