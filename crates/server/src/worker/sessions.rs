//! The sessions of one worker, in places that correspond to the loop's connections.

use std::sync::atomic::Ordering;

use engine::{ClientRecord, Session};
use persistence::held_replies::Wrote;
use reactor::ConnectionId;

use super::buffers::Holding;
use super::deliveries::RoundMark;
use super::memcached_client::MemcachedClient;
use super::waits::WaitEnd;
use crate::forward::client::Forwarding;

/// A connection and its session.
pub(super) struct Connected {
    pub(super) id: ConnectionId,
    pub(super) session: Session,
    /// Its requests that other nodes answer, and its upstreams.
    pub(super) forward: Option<Box<Forwarding>>,
    pub(super) peer_is_local: bool,
    /// Whether it waits for the end of CLIENT PAUSE.
    pub(super) is_paused: bool,
    /// Whether it waits for changes of keys, for its own offloaded request, or for keys that such a
    /// request holds.
    pub(super) is_waiting: bool,
    /// Whether its request that waits for keys is not counted yet: it counts when it is answered.
    pub(super) owes_request: bool,
    /// Deadline of its wait for changes of keys.
    pub(super) wait_end: Option<WaitEnd>,
    /// Log sequence that it waits for to be on disk.
    pub(super) disk_wait: Option<u64>,
    pub(super) wrote: Wrote,
    /// What its requests wait for at a replica, if it reads at level quorum.
    pub(super) read: ReadWait,
    /// Time of its connection, or of its last request as an authenticated client, on the monotonic
    /// clock.
    pub(super) since_ms: u64,
    pub(super) holding: Holding,
    pub(super) round: RoundMark,
    /// Input and pending replies of a client of the memcached port; `None` for other clients.
    pub(super) memcached: Option<Box<MemcachedClient>>,
}

/// Wait of a client that reads at level quorum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadWait {
    /// Number of the round that it waits for.
    pub(super) round: u64,
    /// Time at which the wait began.
    pub(super) since_ms: u64,
    /// Length of the input when the wait began.
    pub(super) asked_bytes: usize,
    /// Length of the input that may run, because it was received before a finished round.
    pub(super) cleared_bytes: usize,
}

impl Connected {
    /// Whether its requests may have to wait for the primary's data, or had to when they began to
    /// run.
    #[inline]
    pub(super) fn reads_at_quorum(&self) -> bool {
        self.session.waits_for_majority || self.read.cleared_bytes > 0
    }

    /// Stops reading from the client until its request can run or has run.
    pub(super) fn begin_to_wait(&mut self) {
        self.is_waiting = true;
    }

    /// As [`begin_to_wait`](Self::begin_to_wait), and counts the client as blocked. By the time it
    /// is counted, its request is queued for what it waits for, or lacks space in the log.
    pub(super) fn begin_to_be_blocked(&mut self) {
        self.begin_to_wait();
        self.session.client.set_flag(ClientRecord::BLOCKED, true);
    }

    /// Lets the client continue.
    pub(super) fn end_to_wait(&mut self) {
        self.is_waiting = false;
        if std::mem::take(&mut self.owes_request) {
            self.session.client.requests.fetch_add(1, Ordering::Relaxed);
        }
        self.session.client.set_flag(ClientRecord::BLOCKED, false);
    }
}

/// All sessions of the worker.
#[derive(Default)]
pub(super) struct Sessions {
    places: Vec<Option<Connected>>,
    count: usize,
}

impl Sessions {
    /// Returns the number of sessions.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a session.
    pub(super) fn insert(&mut self, connected: Connected) {
        let place = place_of(connected.id);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(connected);
        self.count += 1;
    }

    /// Returns the session of a connection.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        let connected = self.places.get_mut(place_of(id))?.as_mut()?;
        (connected.id == id).then_some(connected)
    }

    /// Returns the session of a connection.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connected> {
        let connected = self.places.get(place_of(id))?.as_ref()?;
        (connected.id == id).then_some(connected)
    }

    /// Removes and returns the session of a connection.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Connected> {
        let place = self.places.get_mut(place_of(id))?;
        let connected = place.take_if(|connected| connected.id == id)?;
        self.count -= 1;
        Some(connected)
    }

    /// Returns the connection of a client, while it is connected.
    pub(super) fn connection_of(&self, client: u64, place: u32) -> Option<ConnectionId> {
        let place = usize::try_from(place).ok()?;
        let connected = self.places.get(place)?.as_ref()?;
        (connected.session.client.id == client).then_some(connected.id)
    }

    /// Iterates over all sessions, by place.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connected> {
        self.places.iter().flatten()
    }

    /// Iterates over all sessions, by place.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connected> {
        self.places.iter_mut().flatten()
    }
}

fn place_of(id: ConnectionId) -> usize {
    usize::try_from(id.index()).unwrap_or(usize::MAX)
}
