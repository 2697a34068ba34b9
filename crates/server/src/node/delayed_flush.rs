//! Emptying database 0 later, as `flush_all` of the memcached port wants it.

use std::sync::Arc;

use engine::ClientRecord;
use protocol::Resp;
use reactor::ConnectionId;

use super::Node;
use crate::job::Job;
use crate::replication::role::Role;

impl Node {
    /// Empties database 0 where a client of the memcached port asked for that some time ago; nobody waits for it.
    pub(super) fn flush_when_due(&self, now_unix_ms: u64) {
        let is_due = self.core.shared.delayed_flush.take_due(now_unix_ms);
        // What a replica has is the primary's.
        if !is_due || self.replication.role() != Role::Primary {
            return;
        }
        let id = self.sessions.clients.next_id();
        let (peer, own) = (String::new(), String::new());
        let client = ClientRecord::new(id, peer, own, usize::MAX, -1, now_unix_ms);
        let _is_taken = self.run_aside(Job {
            request: (*b"*1\r\n$7\r\nFLUSHDB\r\n").into(),
            client: Arc::new(client),
            database: 0,
            resp: Resp::V2,
            transaction: None,
            watches: None,
            peer_is_local: true,
            is_of_server: true,
            connection: ConnectionId::NOBODY,
        });
    }
}
