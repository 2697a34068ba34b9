//! CLIENT TRACKING of one client: what it asked for.
//!
//! The server knows which clients are to be notified of which keys
//! ([`crate::TrackingPort::track`]). A key is entered there before it is read, so that its reader
//! is certainly notified of a change after the read. A change in between causes a needless
//! notification.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::DatabaseId;

use crate::client_record::ClientRecord;

/// Which reads make keys tracked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackingMode {
    /// All.
    #[default]
    Reads,
    /// Those after CLIENT CACHING YES.
    OptIn,
    /// All except those after CLIENT CACHING NO.
    OptOut,
    /// None: the client is notified of all changes of keys with some prefixes.
    Broadcast,
}

/// What a client asked CLIENT TRACKING for.
#[derive(Clone, Debug, Default)]
pub struct TrackingOptions {
    /// Which reads count.
    pub mode: TrackingMode,
    /// Whether the client is not notified of its own changes.
    pub skips_own: bool,
    /// The client that is notified instead of it.
    pub redirect: Option<Arc<ClientRecord>>,
    /// The prefixes of keys in [`TrackingMode::Broadcast`].
    pub prefixes: Vec<Box<[u8]>>,
}

/// A client that is notified of changes.
#[derive(Debug)]
pub struct Follower {
    /// The client.
    pub client: Arc<ClientRecord>,
    options: Mutex<TrackingOptions>,
    keys: Mutex<HashSet<(DatabaseId, Arc<[u8]>)>>,
}

impl Follower {
    /// Returns a client that tracks no key yet.
    #[must_use]
    pub fn new(client: Arc<ClientRecord>) -> Self {
        Self {
            client,
            options: Mutex::default(),
            keys: Mutex::default(),
        }
    }

    /// Returns its options, locked.
    pub fn options(&self) -> MutexGuard<'_, TrackingOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys whose changes it is notified of, locked.
    pub fn keys(&self) -> MutexGuard<'_, HashSet<(DatabaseId, Arc<[u8]>)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies to the client's record what is tracked, and which client is notified.
    pub fn tell(&self) {
        let options = self.options();
        let client = &self.client;
        let redirect = options.redirect.as_ref().map_or(0, |other| other.id);
        client.set_flag(ClientRecord::TRACKING, true);
        client.set_flag(ClientRecord::TRACKING_BROKEN, false);
        client.set_flag(
            ClientRecord::TRACKING_BROADCAST,
            options.mode == TrackingMode::Broadcast,
        );
        let redirect = i64::try_from(redirect).unwrap_or(i64::MAX);
        client.redirect.store(redirect, Ordering::Relaxed);
    }

    /// Records in the client's record that nothing is tracked.
    pub fn tell_end(&self) {
        let all = ClientRecord::TRACKING
            | ClientRecord::TRACKING_BROKEN
            | ClientRecord::TRACKING_BROADCAST;
        self.client.set_flag(all, false);
        self.client.redirect.store(-1, Ordering::Relaxed);
    }
}

/// Tracking of one session.
#[derive(Debug)]
pub struct Tracking {
    /// Which reads count.
    pub mode: TrackingMode,
    /// Approximate memory of its prefixes in bytes.
    pub prefix_bytes: usize,
    /// Whether the next command is an exception, with its replies (CLIENT CACHING).
    pub is_exception: bool,
    /// The server's handle of this client.
    pub follower: Arc<Follower>,
}

impl Tracking {
    /// Whether keys that are read now are tracked.
    #[must_use]
    pub fn tracks_reads(&self) -> bool {
        match self.mode {
            TrackingMode::Reads => true,
            TrackingMode::OptIn => self.is_exception,
            TrackingMode::OptOut => !self.is_exception,
            TrackingMode::Broadcast => false,
        }
    }
}
