//! The present links between this node and others, and when those nodes were last heard: for people
//! and tools.
//!
//! ```text
//!   a link begins ─► LinkTable::open ─► OpenLink, listed until it is dropped            ─► CLUSTER LINKS
//!   asked, heard  ─► Contact of the node: since when no answer came, and the last one   ─► CLUSTER NODES
//! ```
//!
//! No decision depends on it. Counting a message costs a store to an atomic word.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::NodeId;

/// A link, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkShown {
    /// The node at its other end.
    pub(crate) node: NodeId,
    /// Whether this end made it.
    pub(crate) is_to: bool,
    /// When it was made.
    pub(crate) created_unix_ms: u64,
    /// Number of bytes that wait to be sent.
    pub(crate) waiting_bytes: usize,
}

/// When a node was asked and heard, in milliseconds of the monotonic clock; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContactShown {
    /// Since when a question is unanswered.
    pub(crate) asked_ms: u64,
    /// When it was last asked.
    pub(crate) asked_last_ms: u64,
    /// When it last sent anything.
    pub(crate) heard_ms: u64,
}

impl ContactShown {
    /// Since when an answer is awaited, or `None`. A node that is no longer asked owes no answer.
    pub(crate) fn waits_since_ms(self, now_ms: u64, node_timeout_ms: u64) -> Option<u64> {
        let is_asked = now_ms < self.asked_last_ms.saturating_add(node_timeout_ms);
        (is_asked && self.asked_ms > 0).then_some(self.asked_ms)
    }

    /// Whether the node is silent: an answer is overdue by half a node timeout, as in Redis.
    pub(crate) fn is_lost(self, now_ms: u64, node_timeout_ms: u64) -> bool {
        let waits = self.waits_since_ms(now_ms, node_timeout_ms);
        waits.is_some_and(|since_ms| now_ms >= since_ms.max(self.heard_ms) + node_timeout_ms / 2)
    }
}

/// See [`ContactShown`].
#[derive(Debug, Default)]
pub(super) struct Contact {
    asked_ms: AtomicU64,
    asked_last_ms: AtomicU64,
    heard_ms: AtomicU64,
}

impl Contact {
    /// Notes that the node is asked something.
    pub(super) fn note_asked(&self, now_ms: u64) {
        self.asked_last_ms.store(now_ms, Ordering::Relaxed);
        // While the first question is unanswered, its time counts.
        let _waits =
            self.asked_ms
                .compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that the node has sent something.
    pub(super) fn note_heard(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Notes an answer, and since when the oldest unanswered question waits.
    pub(super) fn note_answered(&self, now_ms: u64, oldest_ms: Option<u64>) {
        self.note_heard(now_ms);
        self.asked_ms
            .store(oldest_ms.unwrap_or(0), Ordering::Relaxed);
    }

    fn shown(&self) -> ContactShown {
        ContactShown {
            asked_ms: self.asked_ms.load(Ordering::Relaxed),
            asked_last_ms: self.asked_last_ms.load(Ordering::Relaxed),
            heard_ms: self.heard_ms.load(Ordering::Relaxed),
        }
    }
}

/// Counts bytes that wait to be sent over a link, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Waiting {
    /// Adds `bytes` to the count.
    pub(super) fn count(of: &Arc<AtomicUsize>, bytes: usize) -> Self {
        of.fetch_add(bytes, Ordering::Relaxed);
        Self {
            of: Arc::clone(of),
            bytes,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A listed link. Dropping this removes it from the list.
pub(super) struct OpenLink {
    table: Arc<LinkTable>,
    number: u64,
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        let _ended = lock(&self.table.open).remove(&self.number);
    }
}

struct Open {
    node: NodeId,
    is_to: bool,
    created_unix_ms: u64,
    waiting: Arc<AtomicUsize>,
}

/// See the module.
#[derive(Default)]
pub(super) struct LinkTable {
    open: Mutex<BTreeMap<u64, Open>>,
    next: AtomicU64,
    contacts: Mutex<BTreeMap<NodeId, Arc<Contact>>>,
    sent: AtomicU64,
    received: AtomicU64,
}

impl LinkTable {
    /// Lists a link that has begun.
    pub(super) fn open(
        self: &Arc<Self>,
        node: NodeId,
        is_to: bool,
        created_unix_ms: u64,
        waiting: &Arc<AtomicUsize>,
    ) -> OpenLink {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let open = Open {
            node,
            is_to,
            created_unix_ms,
            waiting: Arc::clone(waiting),
        };
        lock(&self.open).insert(number, open);
        OpenLink {
            table: Arc::clone(self),
            number,
        }
    }

    /// Returns the record of when a node was asked and heard.
    pub(super) fn contact(&self, node: NodeId) -> Arc<Contact> {
        Arc::clone(lock(&self.contacts).entry(node).or_default())
    }

    /// Forgets all nodes for which `is_there` is false.
    pub(super) fn retain(&self, is_there: impl Fn(&NodeId) -> bool) {
        lock(&self.contacts).retain(|node, _| is_there(node));
    }

    /// Counts a sent message.
    pub(super) fn note_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a received message.
    pub(super) fn note_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages sent and received since the server started.
    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(&self.sent), count(&self.received))
    }

    /// The links, oldest first.
    pub(super) fn links(&self) -> Vec<LinkShown> {
        let open = lock(&self.open);
        let shown = open.values().map(|open| LinkShown {
            node: open.node,
            is_to: open.is_to,
            created_unix_ms: open.created_unix_ms,
            waiting_bytes: open.waiting.load(Ordering::Relaxed),
        });
        shown.collect()
    }

    /// When nodes were asked and heard.
    pub(super) fn contacts(&self) -> BTreeMap<NodeId, ContactShown> {
        let contacts = lock(&self.contacts);
        let shown = contacts
            .iter()
            .map(|(node, contact)| (*node, contact.shown()));
        shown.collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_listed_until_it_ends() {
        let table = Arc::new(LinkTable::default());
        let (node, waiting) = (NodeId([7; 20]), Arc::default());
        let link = table.open(node, true, 123, &waiting);
        let _other = table.open(node, false, 456, &Arc::default());
        let more = Waiting::count(&waiting, 30);
        let shown = LinkShown {
            node,
            is_to: true,
            created_unix_ms: 123,
            waiting_bytes: 30,
        };
        assert_eq!((table.links().len(), table.links()[0]), (2, shown));
        drop(more);
        assert_eq!(table.links()[0].waiting_bytes, 0);
        drop(link);
        assert_eq!(table.links().len(), 1);
    }

    #[test]
    fn a_node_is_lost_when_it_owes_an_answer_for_long() {
        const TIMEOUT_MS: u64 = 1_000;
        let contact = Contact::default();
        assert!(!contact.shown().is_lost(5_000, TIMEOUT_MS), "never asked");
        contact.note_asked(5_000);
        contact.note_asked(5_100);
        let shown = contact.shown();
        assert_eq!(shown.waits_since_ms(5_200, TIMEOUT_MS), Some(5_000));
        assert!(!shown.is_lost(5_499, TIMEOUT_MS));
        assert!(shown.is_lost(5_500, TIMEOUT_MS));
        // It sent something unasked.
        contact.note_heard(5_400);
        assert!(!contact.shown().is_lost(5_500, TIMEOUT_MS));
        contact.note_answered(5_500, Some(5_100));
        let shown = contact.shown();
        assert_eq!(shown.waits_since_ms(5_600, TIMEOUT_MS), Some(5_100));
        contact.note_answered(5_600, None);
        assert_eq!(contact.shown().waits_since_ms(5_700, TIMEOUT_MS), None);
        // A node that is no longer asked is not missed.
        contact.note_asked(6_000);
        assert!(!contact.shown().is_lost(9_000, TIMEOUT_MS));
    }
}
