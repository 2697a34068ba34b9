//! Delayed flush of database 0, for `flush_all` of the memcached port.

use super::Node;
use crate::replication::role::Role;

impl Node {
    /// Flushes database 0 when a delayed flush that a client of the memcached port asked for is
    /// due. No client waits for it.
    pub(super) fn flush_when_due(&self, now_unix_ms: u64) {
        let is_due = self.core.shared.delayed_flush.take_due(now_unix_ms);
        // A replica's data is changed only by its primary.
        if is_due && self.replication.role() == Role::Primary {
            self.run_own(*b"*1\r\n$7\r\nFLUSHDB\r\n");
        }
    }
}
