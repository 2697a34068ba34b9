//! What both ends of the own link need of the node: the timeout for a silent peer, lines of the
//! server log, and a lock whose holder may have panicked.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::node::Node;

pub(super) fn timeout_ms(node: &Weak<Node>) -> u64 {
    let seconds = node
        .upgrade()
        .map_or(60, |node| node.core.config.current().replication.timeout_s);
    u64::from(seconds) * 1000
}

pub(super) fn tell(node: &Weak<Node>, is_warning: bool, line: fmt::Arguments<'_>) {
    if let Some(node) = node.upgrade() {
        if is_warning {
            node.core.log.warning(line);
        } else {
            node.core.log.notice(line);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
