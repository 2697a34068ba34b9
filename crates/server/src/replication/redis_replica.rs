//! Serves a replica that speaks PSYNC: a thread of its own for each, from the moment its connection leaves its worker.

use std::sync::Arc;

use commands::{ClientRecord, SyncRequest};
use reactor::Detached;

use crate::node::Node;

/// Begins to serve a connection.
pub(super) fn serve(
    node: &Arc<Node>,
    client: Arc<ClientRecord>,
    request: SyncRequest,
    mut connection: Detached,
) {
    let _ = (node, client, request);
    let text = b"-ERR this version does not serve replicas by PSYNC yet\r\n";
    // Whoever asked reads it, or is gone.
    let _sent = connection.send(text);
}
