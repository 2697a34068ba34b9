//! Publication of events: what the store passes to a thread's sink becomes messages to subscribers,
//! and invalidations for clients that track keys by prefix.
//!
//! A message is published with its key locked, so that the messages about a key have the order of
//! its changes, whichever threads made them.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use engine::TopicKind;
use store::{Event, EventClass, EventSink};

use crate::client_cache::ClientCache;
use crate::notifications::Notifications;
use crate::pubsub::PubSub;

/// Maximum capacity of a buffer for channel names that is kept.
const NAME_BYTES_MAX: usize = 4096;

/// The classes whose events are all changes of keys, and which together cover every change.
pub const CHANGES: EventClass = EventClass::GENERIC
    .and(EventClass::STRING)
    .and(EventClass::LIST)
    .and(EventClass::SET)
    .and(EventClass::HASH)
    .and(EventClass::SORTED_SET)
    .and(EventClass::STREAM)
    .and(EventClass::EXPIRED)
    .and(EventClass::EVICTED);

thread_local! {
    /// The client that the thread works for; 0 for the server itself.
    static AUTHOR: Cell<u64> = const { Cell::new(0) };
}

/// Sets the client that the calling thread works for from now on; 0 for none.
#[inline]
pub fn work_for(client: u64) {
    AUTHOR.set(client);
}

/// The channels that events are published to, shared by all threads.
#[derive(Debug, Default)]
pub struct Channels {
    by_key: AtomicBool,
    by_event: AtomicBool,
    /// Classes, as bits.
    classes: AtomicU64,
}

impl Channels {
    /// Applies a value of `notify-keyspace-events`.
    pub fn set(&self, asked: Notifications) {
        self.by_key.store(asked.by_key, Ordering::Relaxed);
        self.by_event.store(asked.by_event, Ordering::Relaxed);
        let classes = asked.in_force().bits();
        self.classes.store(classes, Ordering::Relaxed);
    }

    /// Whether events of a class are published.
    fn take(&self, class: EventClass) -> bool {
        self.classes.load(Ordering::Relaxed) & class.bits() != 0
    }
}

/// The sink of one thread.
pub struct Announcer {
    pubsub: Arc<PubSub>,
    channels: Arc<Channels>,
    client_cache: Arc<ClientCache>,
    is_crowded: Arc<AtomicBool>,
    /// Buffer for the name of a channel.
    name: Vec<u8>,
}

impl Announcer {
    /// Makes a sink that publishes to these channels through `pubsub`. It sets `is_crowded` when so
    /// much waits to be delivered that threads which make more should wait.
    #[must_use]
    pub fn new(
        pubsub: &Arc<PubSub>,
        channels: &Arc<Channels>,
        client_cache: &Arc<ClientCache>,
        is_crowded: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            pubsub: Arc::clone(pubsub),
            channels: Arc::clone(channels),
            client_cache: Arc::clone(client_cache),
            is_crowded: Arc::clone(is_crowded),
            name: Vec::new(),
        }
    }

    fn publish(&mut self, prefix: &str, event: &Event<'_>, what: &[u8], message: &[u8]) {
        self.name.clear();
        // Writing into memory cannot fail.
        let _written = write!(self.name, "__{prefix}@{}__:", event.database);
        self.name.extend_from_slice(what);
        let kind = TopicKind::Channel;
        let published = self.pubsub.publish(kind, &self.name, message);
        if published.is_crowded {
            self.is_crowded.store(true, Ordering::Relaxed);
        }
        if self.name.capacity() > NAME_BYTES_MAX {
            self.name = Vec::new();
        }
    }
}

impl EventSink for Announcer {
    fn event(&mut self, event: &Event<'_>) {
        if self.client_cache.has_prefixes() && CHANGES.has(event.class) {
            self.client_cache.note(event.key, AUTHOR.get());
        }
        if !self.pubsub.has_subscribers() || !self.channels.take(event.class) {
            return;
        }
        let name = event.name.as_bytes();
        if self.channels.by_key.load(Ordering::Relaxed) {
            self.publish("keyspace", event, event.key, name);
        }
        if self.channels.by_event.load(Ordering::Relaxed) {
            self.publish("keyevent", event, name, event.key);
        }
    }
}
