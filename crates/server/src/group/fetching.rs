//! A sealed copy of the data gets what a copy of the log alone has more, before it is promoted.
//!
//! ```text
//!   leader: fetch ─► follows that copy, in the term of the seal ─► has all of its log ─► seal again ─► answer
//! ```
//!
//! What the thread "group" does for it is beside the seals (`acting`). The copy of the log is sealed for the same term, so nothing
//! comes to its log meanwhile. A later seal ends it; what was received until then stays, and is told with the answer to that.

use cluster::message::Fetch;

use super::links::Reply;

/// What is being got, and who waits for the seal's answer.
#[derive(Default)]
pub(super) struct Fetching {
    pub(super) fetch: Option<Fetch>,
    pub(super) waiting: Option<Reply>,
}

impl Fetching {
    /// Nothing is being got any more; who waits for it.
    pub(super) fn end(&mut self) -> Option<Reply> {
        self.fetch = None;
        self.waiting.take()
    }
}
