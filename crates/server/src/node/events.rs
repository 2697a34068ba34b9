//! Changes of keys that clients hear of: which events the store states, and who tracks keys.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use engine::Follower;
use store::{Handle, Listener};

use super::{Node, Sessions};
use crate::announcer::{self, Announcer};
use crate::client_cache::ClientCache;
use crate::config::Config;

impl Node {
    /// A way into the store whose events clients hear of (see [`Announcer::new`]).
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

    /// Takes a client in that tracks keys, or what it asks for now.
    pub fn follow(&self, follower: &Arc<Follower>) {
        self.sessions.client_cache.follow(follower);
        self.want_events(&self.core.config.current());
    }

    /// Lets a client go that tracked keys.
    pub fn unfollow(&self, store: &mut Handle, follower: &Follower) {
        self.sessions
            .client_cache
            .unfollow(store, &self.tracking_listener(), follower);
        self.want_events(&self.core.config.current());
    }

    /// What the store tells of changes of tracked keys.
    #[must_use]
    pub fn tracking_listener(&self) -> Arc<dyn Listener> {
        Arc::<ClientCache>::clone(&self.sessions.client_cache)
    }

    /// Has the store state the events that somebody wants.
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
