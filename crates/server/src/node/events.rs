//! Events for clients about changes of keys: which ones the store emits, and which clients track
//! keys.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use engine::Follower;
use store::{Handle, Listener};

use super::{Node, Sessions};
use crate::announcer::{self, Announcer};
use crate::client_cache::ClientCache;
use crate::config::Config;

impl Node {
    /// Returns a store handle whose events reach clients (see [`Announcer::new`]).
    #[must_use]
    pub fn handle(&self, is_crowded: &Arc<AtomicBool>) -> Handle {
        let mut handle = self.core.store.handle();
        let Sessions {
            pubsub,
            event_channels,
            client_cache,
            ..
        } = &self.sessions;
        let announcer = Announcer::new(pubsub, event_channels, client_cache, is_crowded);
        handle.set_event_sink(Some(Box::new(announcer)));
        handle
    }

    /// Adds a client that tracks keys, or updates what it asks for.
    pub fn follow(&self, follower: &Arc<Follower>) {
        self.sessions.client_cache.follow(follower);
        self.want_events(&self.core.config.current());
    }

    /// Removes a client that tracked keys.
    pub fn unfollow(&self, store: &mut Handle, follower: &Follower) {
        self.sessions
            .client_cache
            .unfollow(store, &self.tracking_listener(), follower);
        self.want_events(&self.core.config.current());
    }

    /// Returns the store's observer of changes of tracked keys.
    #[must_use]
    pub fn tracking_listener(&self) -> Arc<dyn Listener> {
        Arc::<ClientCache>::clone(&self.sessions.client_cache)
    }

    /// Makes the store emit the events that any client wants.
    pub(super) fn want_events(&self, config: &Config) {
        let _alone = self
            .sessions
            .wanting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut wanted = config.notifications.in_force();
        self.sessions.event_channels.set(config.notifications);
        if self.sessions.client_cache.has_prefixes() {
            wanted = wanted.and(announcer::CHANGES);
        }
        self.core.store.set_wanted_events(wanted);
    }
}
