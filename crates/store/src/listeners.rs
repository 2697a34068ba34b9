//! Observers of changes of keys: WATCH, blocked clients, client-side caching.
//!
//! A listener is registered for a key, which need not exist. The home bucket of such a key has its
//! LISTEN bit set, so that a write to a bucket without listeners pays one bit test. A thread that
//! changes a key in a bucket with the bit notifies the listeners before it unlocks the bucket: a
//! thread that sees the change knows that they have been notified. Registrations are ordered by
//! position, so those of one bucket are an interval whatever the size of the table. The bit is
//! cleared with the last of them.
//!
//! The locks here are leaves: they are taken with a bucket held, and nothing is taken under them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use base::sync::{Mutex, MutexGuard};

use crate::index::Home;
use crate::key::{DatabaseId, Key};

/// An observer that is notified of changes of the keys it is registered for.
pub trait Listener: Send + Sync {
    /// A key was changed. Called by the thread that changed it, with the key's bucket locked: must not
    /// call the store, and must not block.
    fn changed(&self, change: &KeyChange<'_>) -> Interest;
}

/// A change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its database.
    pub database: DatabaseId,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The author of the change, by [`crate::Handle::set_author`]; 0 is the server itself.
    pub author: u64,
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was written to, and exists.
    Written,
    /// It was deleted.
    Removed,
    /// It was removed at its deadline.
    Expired,
    /// It was removed because memory was needed.
    Evicted,
    /// Its database was emptied or swapped, and it existed before or does so now.
    Flushed,
}

/// What a listener wants after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// It keeps listening.
    Keep,
    /// It is not notified of this key again.
    Forget,
    /// It keeps listening, and the key is to be [served](crate::Handle::take_served).
    Serve,
}

/// Data that a thread passes to the listeners that it notifies, and their results.
#[derive(Debug, Default)]
pub(crate) struct Teller {
    /// The author of the changes.
    pub(crate) author: u64,
    /// Keys that are to be served, in the order of their changes, each once.
    pub(crate) served: Vec<(DatabaseId, Box<[u8]>)>,
}

impl Teller {
    fn serve(&mut self, change: &KeyChange<'_>) {
        let is_known = |(database, key): &(DatabaseId, Box<[u8]>)| {
            *database == change.database && **key == *change.key
        };
        if !self.served.iter().any(is_known) {
            self.served.push((change.database, change.key.into()));
        }
    }
}

/// Number of hash bits that choose the shard: fewer than lead to a bucket of most tables, so that a
/// bucket's keys are in one shard.
const SHARD_BITS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 4 };

const SHARDS: usize = 1 << SHARD_BITS;

/// Registrations by database and position of the key.
type Shard = BTreeMap<(DatabaseId, u64), Vec<Registration>>;

struct Registration {
    key: Box<[u8]>,
    listener: Arc<dyn Listener>,
}

impl Registration {
    fn is(&self, key: &[u8], listener: &Arc<dyn Listener>) -> bool {
        *self.key == *key && Arc::ptr_eq(&self.listener, listener)
    }
}

/// All registrations.
#[derive(Default)]
pub(crate) struct Listeners {
    shards: [Mutex<Shard>; SHARDS],
}

impl Listeners {
    /// Registers a listener for a key; only once, however often this is called.
    pub(crate) fn add(&self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        let mut shard = self.shard(key.hash());
        let registrations = shard.entry(key.position()).or_default();
        if !registrations
            .iter()
            .any(|one| one.is(key.bytes(), listener))
        {
            registrations.push(Registration {
                key: key.bytes().into(),
                listener: Arc::clone(listener),
            });
        }
    }

    /// Removes a registration.
    pub(crate) fn remove(&self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        let mut shard = self.shard(key.hash());
        if let Some(registrations) = shard.get_mut(&key.position()) {
            registrations.retain(|one| !one.is(key.bytes(), listener));
            if registrations.is_empty() {
                shard.remove(&key.position());
            }
        }
    }

    /// Notifies the listeners of a key with this hash.
    pub(crate) fn tell(&self, teller: &mut Teller, hash: u64, change: &KeyChange<'_>) {
        let place = (change.database, hash.reverse_bits());
        let mut shard = self.shard(hash);
        let Some(registrations) = shard.get_mut(&place) else {
            return;
        };
        registrations.retain(|one| {
            if *one.key != *change.key {
                return true;
            }
            match one.listener.changed(change) {
                Interest::Keep => true,
                Interest::Forget => false,
                Interest::Serve => {
                    teller.serve(change);
                    true
                }
            }
        });
        if registrations.is_empty() {
            shard.remove(&place);
        }
    }

    /// Whether no key of this bucket has a listener; `false` if that cannot be found out easily.
    pub(crate) fn is_silent(&self, database: DatabaseId, home: Home) -> bool {
        if home.depth < SHARD_BITS.max(1) {
            return false;
        }
        let first = home.first_position();
        let last = home.end_position().wrapping_sub(1);
        let shard = self.shard(home.number);
        let mut range = shard.range((database, first)..=(database, last));
        range.next().is_none()
    }

    /// Returns the keys of a database that have listeners, with their hashes.
    pub(crate) fn keys_of(&self, database: DatabaseId) -> Vec<(u64, Box<[u8]>)> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            for ((_, position), registrations) in shard.range((database, 0)..=(database, u64::MAX))
            {
                let hash = position.reverse_bits();
                let first = keys.len();
                for registration in registrations {
                    let key = &registration.key;
                    // All registrations of a key are in one list.
                    if !keys[first..].iter().any(|(_, known)| known == key) {
                        keys.push((hash, key.clone()));
                    }
                }
            }
        }
        keys
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        let number = usize::try_from(hash & (SHARDS as u64 - 1)).unwrap_or(0);
        lock(&self.shards[number])
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
