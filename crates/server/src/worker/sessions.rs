//! The sessions of one worker, in places that run beside the loop's connections.

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
    /// Its requests that other nodes answer, and its connections to them.
    pub(super) forward: Option<Box<Forwarding>>,
    pub(super) peer_is_local: bool,
    /// Waits for the end of CLIENT PAUSE.
    pub(super) is_paused: bool,
    /// Waits for keys to be changed, for a request of its own that runs aside, or for keys that such a
    /// request holds.
    pub(super) is_waiting: bool,
    /// The request that waits for keys counts as one it sent only when it is answered.
    pub(super) owes_request: bool,
    /// When its wait for keys to be changed ends.
    pub(super) wait_end: Option<WaitEnd>,
    /// Up to where it waits for the log to be on disk.
    pub(super) disk_wait: Option<u64>,
    pub(super) wrote: Wrote,
    /// What its requests wait for at a replica, where it reads at level quorum.
    pub(super) read: ReadWait,
    /// When it connected or was last served as an authenticated client, on the monotonic clock.
    pub(super) since_ms: u64,
    pub(super) holding: Holding,
    pub(super) round: RoundMark,
    /// What a client of the memcached port sent and is owed; no other has it.
    pub(super) memcached: Option<Box<MemcachedClient>>,
}

/// What a client waits for that reads at level quorum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadWait {
    /// The round.
    pub(super) round: u64,
    /// Since when.
    pub(super) since_ms: u64,
    /// So much input was there when it began to wait.
    pub(super) asked_bytes: usize,
    /// So much input may run: it was there before a round that is over.
    pub(super) cleared_bytes: usize,
}

impl Connected {
    /// Whether its requests may have to wait for what the primary has, or did when they began to run.
    #[inline]
    pub(super) fn reads_at_quorum(&self) -> bool {
        self.session.waits_for_majority || self.read.cleared_bytes > 0
    }

    /// Nothing is read from it until its request can run, or has.
    pub(super) fn begin_to_wait(&mut self) {
        self.is_waiting = true;
    }

    /// The same of a client that is called blocked: who counts those finds its request in line for what it waits for, or
    /// without room in the log.
    pub(super) fn begin_to_be_blocked(&mut self) {
        self.begin_to_wait();
        self.session.client.set_flag(ClientRecord::BLOCKED, true);
    }

    /// It may go on.
    pub(super) fn end_to_wait(&mut self) {
        self.is_waiting = false;
        if std::mem::take(&mut self.owes_request) {
            self.session.client.requests.fetch_add(1, Ordering::Relaxed);
        }
        self.session.client.set_flag(ClientRecord::BLOCKED, false);
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Sessions {
    places: Vec<Option<Connected>>,
    count: usize,
}

impl Sessions {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes one in.
    pub(super) fn insert(&mut self, connected: Connected) {
        let place = place_of(connected.id);
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(connected);
        self.count += 1;
    }

    /// The session of a connection.
    #[inline]
    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connected> {
        let connected = self.places.get_mut(place_of(id))?.as_mut()?;
        (connected.id == id).then_some(connected)
    }

    /// The session of a connection.
    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connected> {
        let connected = self.places.get(place_of(id))?.as_ref()?;
        (connected.id == id).then_some(connected)
    }

    /// Takes the session of a connection out.
    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Connected> {
        let place = self.places.get_mut(place_of(id))?;
        let connected = place.take_if(|connected| connected.id == id)?;
        self.count -= 1;
        Some(connected)
    }

    /// The connection of a client, while it is connected.
    pub(super) fn connection_of(&self, client: u64, place: u32) -> Option<ConnectionId> {
        let place = usize::try_from(place).ok()?;
        let connected = self.places.get(place)?.as_ref()?;
        (connected.session.client.id == client).then_some(connected.id)
    }

    /// All of them, by place.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Connected> {
        self.places.iter().flatten()
    }

    /// All of them, by place.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connected> {
        self.places.iter_mut().flatten()
    }
}

fn place_of(id: ConnectionId) -> usize {
    usize::try_from(id.index()).unwrap_or(usize::MAX)
}
