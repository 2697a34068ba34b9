//! WATCH: which keys a client watches, and whether one of them was changed.
//!
//! Every watched key has a listener, which the store calls as the key is changed, with its bucket
//! locked. EXEC locks the watched keys with all others before it looks: so of two transactions that
//! each watch what the other writes, one is told.
//!
//! A key whose time had come when it was watched is as good as absent: that it goes then is no
//! change, that it is written is one. A key whose time comes later is found to be gone by EXEC,
//! whether or not somebody has removed it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{ChangeKind, DatabaseId, Handle, Interest, Key, KeyChange, Listener};

use crate::client_record::ClientRecord;

/// What a watched key takes besides its name, about: the listener, its place here and in the store.
const WATCHED_BYTES: usize = size_of::<WatchedKey>() + 128;

/// The keys that a client watches.
#[derive(Default)]
pub struct Watches {
    /// By database and hash.
    keys: BTreeMap<(DatabaseId, u64), Vec<Arc<WatchedKey>>>,
    count: usize,
    held_bytes: usize,
}

/// One of them.
struct WatchedKey {
    name: Box<[u8]>,
    database: DatabaseId,
    hash: u64,
    /// Whether it existed when it was watched.
    existed: bool,
    /// It was absent, and its database was emptied or exchanged since: who may look has to see.
    is_doubtful: AtomicBool,
    /// Whose record says that something was changed.
    client: Arc<ClientRecord>,
}

impl WatchedKey {
    fn key(&self) -> Key<'_> {
        Key::with_hash(&self.name, self.hash, self.database)
    }

    /// Whether it came, or its time did, without a word.
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
    /// How many are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes of memory behind them.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.each().map(|watched| watched.key())
    }

    /// Watches a key, once however often this is called.
    pub(crate) fn add(&mut self, store: &mut Handle, key: &Key<'_>, client: &Arc<ClientRecord>) {
        let place = self.keys.entry((key.database(), key.hash())).or_default();
        if place.iter().any(|watched| *watched.name == *key.bytes()) {
            return;
        }
        // Locked, so that nothing happens between the look and the registration.
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

    /// Watches them no more. Waits for nobody who holds one of them.
    pub(crate) fn end(&self, store: &mut Handle) {
        for watched in self.each() {
            store.unlisten_aside(&watched.key(), &as_listener(watched));
        }
    }

    /// The same for who has all of them locked.
    pub(crate) fn end_locked(&self, store: &mut Handle) {
        for watched in self.each() {
            store.unlisten(&watched.key(), &as_listener(watched));
        }
    }

    /// Whether one of them was changed. For who has all of them locked.
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
