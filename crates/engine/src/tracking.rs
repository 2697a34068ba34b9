//! CLIENT TRACKING, as far as one client is concerned: what it asked for.
//!
//! Which clients are to be told of which keys is known to the server around the commands
//! ([`crate::TrackingPort::track`]). A key is entered there before it is read, so that of a change behind
//! the read its reader is told for sure; one that happens in between is told of needlessly.

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
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
    /// None: all changes of keys with some prefixes are told.
    Broadcast,
}

/// What a client asked CLIENT TRACKING for.
#[derive(Clone, Debug, Default)]
pub struct TrackingOptions {
    /// Which reads count.
    pub mode: TrackingMode,
    /// Its own changes are not told.
    pub skips_own: bool,
    /// Who is told instead of it.
    pub redirect: Option<Arc<ClientRecord>>,
    /// Of which keys changes are told in [`TrackingMode::Broadcast`].
    pub prefixes: Vec<Box<[u8]>>,
}

/// A client that is to be told of changes.
#[derive(Debug)]
pub struct Follower {
    /// The client.
    pub client: Arc<ClientRecord>,
    options: Mutex<TrackingOptions>,
    keys: Mutex<HashSet<(DatabaseId, Arc<[u8]>)>>,
}

impl Follower {
    /// A client that tracks no key yet.
    #[must_use]
    pub fn new(client: Arc<ClientRecord>) -> Self {
        Self {
            client,
            options: Mutex::default(),
            keys: Mutex::default(),
        }
    }

    /// What it asked for, locked.
    pub fn options(&self) -> MutexGuard<'_, TrackingOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys it is to be told of, locked.
    pub fn keys(&self) -> MutexGuard<'_, HashSet<(DatabaseId, Arc<[u8]>)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says in the client's record what is tracked, and who is told.
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

    /// Says in the client's record that nothing is tracked.
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
    /// Bytes of memory behind its prefixes, about.
    pub prefix_bytes: usize,
    /// CLIENT CACHING: the next command is an exception, with its replies.
    pub is_exception: bool,
    /// What the server knows it by.
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
