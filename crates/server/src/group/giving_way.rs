//! What a node knows of its cluster giving way to another one: see `merging`, where that is done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::node::Node;

/// So long after it began a cluster gives way to another one.
const YOUNG_MS: u64 = 180_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// It is about to leave its cluster: it lets nobody in, and brings it no hash slots.
    gives_way: AtomicBool,
    /// When this node began a cluster since it was started, and one millisecond; 0 where it did not.
    founded_ms: AtomicU64,
}

impl Merging {
    pub(super) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Acquire)
    }

    pub(super) fn set_gives_way(&self, gives_way: bool) {
        self.gives_way.store(gives_way, Ordering::Release);
    }

    /// This node has begun a cluster.
    pub(super) fn note_founded(&self, node: &Node) {
        let now_ms = node.core.clock.monotonic_ms();
        self.founded_ms.store(now_ms + 1, Ordering::Release);
    }

    /// Whether it did so a moment ago.
    pub(super) fn is_young(&self, node: &Node) -> bool {
        let founded_ms = self.founded_ms.load(Ordering::Acquire);
        founded_ms > 0 && node.core.clock.monotonic_ms() < founded_ms + YOUNG_MS
    }
}
