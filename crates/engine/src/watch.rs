//! WATCH: the keys that a client watches, and whether one of them was changed.
//!
//! Every watched key has a listener, which the store calls when the key is changed, with its bucket
//! locked. EXEC locks the watched keys together with all others before it checks them: if two
//! transactions each watch what the other writes, one of them is aborted.
//!
//! A key that was already expired when it was watched counts as absent: its removal is not a
//! change, but a write to it is. If a key expires later, EXEC finds it gone, whether or not it has
//! been removed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{ChangeKind, DatabaseId, Handle, Interest, Key, KeyChange, Listener};

use crate::client_record::ClientRecord;

/// Approximate memory of a watched key besides its name: the listener, and its entries here and in
/// the store.
const WATCHED_BYTES: usize = size_of::<WatchedKey>() + 128;

/// The keys that a client watches.
#[derive(Default)]
pub struct Watches {
    /// By database and hash.
    keys: BTreeMap<(DatabaseId, u64), Vec<Arc<WatchedKey>>>,
    count: usize,
    held_bytes: usize,
}

/// One watched key.
struct WatchedKey {
    name: Box<[u8]>,
    database: DatabaseId,
    hash: u64,
    /// Whether it existed when it was watched.
    existed: bool,
    /// Whether the key was absent, and its database was emptied or swapped since: EXEC must look it
    /// up.
    is_doubtful: AtomicBool,
    /// The client whose record is marked when the key changes.
    client: Arc<ClientRecord>,
}

impl WatchedKey {
    fn key(&self) -> Key<'_> {
        Key::with_hash(&self.name, self.hash, self.database)
    }

    /// Whether the key appeared or expired without a notification.
    fn differs(&self, store: &mut Handle) -> bool {
        let may_differ = self.existed || self.is_doubtful.load(Ordering::Relaxed);
        may_differ && store.peek(&self.key(), |record| record.is_some()) != self.existed
    }
}

impl Listener for WatchedKey {
    fn changed(&self, change: &KeyChange<'_>) -> Interest {
        let is_change = match change.kind {
            ChangeKind::Written | ChangeKind::Removed => true,
            ChangeKind::Expired | ChangeKind::Evicted => self.existed,
            ChangeKind::Flushed => {
                self.is_doubtful.store(true, Ordering::Relaxed);
                self.existed
            }
        };
        if !is_change {
            return Interest::Keep;
        }
        self.client.set_flag(ClientRecord::TOUCHED, true);
        Interest::Forget
    }
}

impl Watches {
    /// Returns the number of watched keys.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns their memory in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Returns the keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.each().map(|watched| watched.key())
    }

    /// Watches a key. Repeated calls have no effect.
    pub(crate) fn add(&mut self, store: &mut Handle, key: &Key<'_>, client: &Arc<ClientRecord>) {
        let place = self.keys.entry((key.database(), key.hash())).or_default();
        if place.iter().any(|watched| *watched.name == *key.bytes()) {
            return;
        }
        // Locked, so that the key does not change between the look-up and the registration.
        let watched = store.locked(&[*key], |store| {
            let watched = Arc::new(WatchedKey {
                name: key.bytes().into(),
                database: key.database(),
                hash: key.hash(),
                existed: store.inspect(key, |record| record.is_some()),
                is_doubtful: AtomicBool::new(false),
                client: Arc::clone(client),
            });
            store.listen(key, &as_listener(&watched));
            watched
        });
        place.push(watched);
        self.count += 1;
        self.held_bytes += key.bytes().len() + WATCHED_BYTES;
    }

    /// Stops watching the keys. Does not wait for threads that hold one of them.
    pub(crate) fn end(&self, store: &mut Handle) {
        for watched in self.each() {
            store.unlisten_aside(&watched.key(), &as_listener(watched));
        }
    }

    /// Does the same for a caller that has all of them locked.
    pub(crate) fn end_locked(&self, store: &mut Handle) {
        for watched in self.each() {
            store.unlisten(&watched.key(), &as_listener(watched));
        }
    }

    /// Whether one of the keys was changed. The caller has all of them locked.
    pub(crate) fn were_changed(&self, store: &mut Handle, client: &ClientRecord) -> bool {
        client.has_flag(ClientRecord::TOUCHED) || self.each().any(|it| it.differs(store))
    }

    fn each(&self) -> impl Iterator<Item = &Arc<WatchedKey>> {
        self.keys.values().flatten()
    }
}

fn as_listener(watched: &Arc<WatchedKey>) -> Arc<dyn Listener> {
    Arc::<WatchedKey>::clone(watched)
}
