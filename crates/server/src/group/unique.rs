//! What has to be like nothing else: names of nodes, and requests to the control log.

use base::random::fill_from_os;
use cluster::{Entry, NodeId, Proposal, RequestId};

/// The name of a node that is new.
pub(crate) fn node_id() -> NodeId {
    let mut id = NodeId::default();
    fill_from_os(&mut id.0);
    id
}

/// An entry as a request of its own.
pub(crate) fn proposal(entry: Entry) -> Proposal {
    let mut request = RequestId::default();
    fill_from_os(&mut request.0);
    Proposal { request, entry }
}
