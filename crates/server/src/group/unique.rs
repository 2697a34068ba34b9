//! Unique identifiers: names of nodes, and requests to the control log.

use base::random::fill_from_os;
use cluster::{Entry, NodeId, Proposal, RequestId};

/// Returns a name for a new node.
pub(crate) fn node_id() -> NodeId {
    let mut id = NodeId::default();
    fill_from_os(&mut id.0);
    id
}

/// Wraps an entry in a request with a new ID.
pub(crate) fn proposal(entry: Entry) -> Proposal {
    let mut request = RequestId::default();
    fill_from_os(&mut request.0);
    Proposal { request, entry }
}
