//! The way of events to subscribers: what the store hands to the sink of a thread becomes messages.
//!
//! A message is published with its key locked, so that the messages about a key come in the order of
//! its changes, whichever threads made them.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use commands::TopicKind;
use store::{Event, EventSink};

use crate::exchange::Exchange;
use crate::notifications::Notifications;

/// A buffer for names of channels that grew longer is not kept.
const NAME_BYTES_MAX: usize = 4096;

/// To which channels events go, shared by all threads.
#[derive(Debug, Default)]
pub struct Channels {
    by_key: AtomicBool,
    by_event: AtomicBool,
}

impl Channels {
    /// Puts a value of `notify-keyspace-events` into force.
    pub fn set(&self, asked: Notifications) {
        self.by_key.store(asked.by_key, Ordering::Relaxed);
        self.by_event.store(asked.by_event, Ordering::Relaxed);
    }
}

/// The sink of one thread.
pub struct Announcer {
    exchange: Arc<Exchange>,
    channels: Arc<Channels>,
    is_crowded: Arc<AtomicBool>,
    /// The name of the channel that is written to.
    name: Vec<u8>,
}

impl Announcer {
    /// A sink that publishes through `exchange`. It sets `is_crowded` when so much waits to be
    /// delivered that whoever makes more should wait.
    #[must_use]
    pub fn new(
        exchange: &Arc<Exchange>,
        channels: &Arc<Channels>,
        is_crowded: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            exchange: Arc::clone(exchange),
            channels: Arc::clone(channels),
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
        let published = self.exchange.publish(kind, &self.name, message);
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
        if !self.exchange.has_subscribers() {
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
