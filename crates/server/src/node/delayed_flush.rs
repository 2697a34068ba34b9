//! Emptying database 0 later, as `flush_all` of the memcached port wants it.

use super::Node;
use crate::replication::role::Role;

impl Node {
    /// Empties database 0 where a client of the memcached port asked for that some time ago; nobody waits for it.
    pub(super) fn flush_when_due(&self, now_unix_ms: u64) {
        let is_due = self.core.shared.delayed_flush.take_due(now_unix_ms);
        // What a replica has is the primary's.
        if is_due && self.replication.role() == Role::Primary {
            self.run_own(*b"*1\r\n$7\r\nFLUSHDB\r\n");
        }
    }
}
