//! A node's state of its cluster giving way to another one. See `merging`, which does that.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::node::Node;

/// How long after its beginning a cluster may give way to another one.
const YOUNG_MS: u64 = 180_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// Whether this node is about to leave its cluster: it lets no node join, and assigns no hash
    /// slots to it.
    gives_way: AtomicBool,
    /// When this node last founded a cluster since its start, plus one millisecond; 0 if it did
    /// not.
    founded_ms: AtomicU64,
}

impl Merging {
    pub(super) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Acquire)
    }

    pub(super) fn set_gives_way(&self, gives_way: bool) {
        self.gives_way.store(gives_way, Ordering::Release);
    }

    /// Notes that this node has founded a cluster.
    pub(super) fn note_founded(&self, node: &Node) {
        let now_ms = node.core.clock.monotonic_ms();
        self.founded_ms.store(now_ms + 1, Ordering::Release);
    }

    /// Whether it did so a short time ago.
    pub(super) fn is_young(&self, node: &Node) -> bool {
        let founded_ms = self.founded_ms.load(Ordering::Acquire);
        founded_ms > 0 && node.core.clock.monotonic_ms() < founded_ms + YOUNG_MS
    }
}
