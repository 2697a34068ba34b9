//! The way of events to subscribers: what the store hands to the sink of a thread becomes messages, and
//! invalidations for those who track keys by their prefixes.
//!
//! A message is published with its key locked, so that the messages about a key come in the order of
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

/// A buffer for names of channels that grew longer is not kept.
const NAME_BYTES_MAX: usize = 4096;

/// The classes of which every event is a change of a key, and of which every change has one.
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
    /// For whom the thread works; 0 for the server itself.
    static AUTHOR: Cell<u64> = const { Cell::new(0) };
}

/// Says for which client the calling thread works from now on; 0 for none.
#[inline]
pub fn work_for(client: u64) {
    AUTHOR.set(client);
}

/// To which channels events go, shared by all threads.
#[derive(Debug, Default)]
pub struct Channels {
    by_key: AtomicBool,
    by_event: AtomicBool,
    /// Classes, in bits.
    classes: AtomicU64,
}

impl Channels {
    /// Puts a value of `notify-keyspace-events` into force.
    pub fn set(&self, asked: Notifications) {
        self.by_key.store(asked.by_key, Ordering::Relaxed);
        self.by_event.store(asked.by_event, Ordering::Relaxed);
        let classes = asked.in_force().bits();
        self.classes.store(classes, Ordering::Relaxed);
    }

    /// Whether events of a class go to any.
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
    /// The name of the channel that is written to.
    name: Vec<u8>,
}

impl Announcer {
    /// A sink that publishes to these channels through `pubsub`. It sets `is_crowded` when so much waits to be
    /// delivered that whoever makes more should wait.
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
