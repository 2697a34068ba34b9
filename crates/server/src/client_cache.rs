//! Client-side caching: which clients are notified of changes of which keys.
//!
//! ```text
//!   a tracked read ──► table: key ─► followers ◄── the key was changed (`store::Listener`)
//!                                                     └─► an invalidation to each, the entry goes
//!   any change (`store::EventSink`) ──► prefixes ─► keys of this turn ──► one message a prefix
//! ```
//!
//! An entry serves once: after a notification, the client must read the key again to be notified
//! again. The table has limits in keys and in bytes. Entries that are dropped because of them cause
//! invalidations, as changes do.
//!
//! The locks here are leaves. They are taken in the order of the fields of [`ClientCache`], and
//! before those of a [`Follower`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use engine::{ClientRecord, Follower, Push, TrackingMode};
use store::{ChangeKind, DatabaseId, Handle, Interest, Key, KeyChange, Listener};

use crate::link::WorkerLink;
use crate::mail::{Address, Letter};

/// Number of parts of the table, each with a lock.
const PARTS: usize = 16;

/// Maximum size of the table in bytes, whatever `tracking-table-max-keys` says.
const TABLE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of keys that are dropped in one step after a limit was lowered.
const DROPPED_MAX: usize = 2048;

/// Approximate memory of a key besides its name, in the table and among the observers of the store.
const KEY_BYTES: usize = 192;
/// Approximate memory of a key's follower, in the table and in its own list.
const ITEM_BYTES: usize = 96;

/// Channel of invalidations for RESP2 clients, which subscribe on another connection.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Followers of a key, each with the database in which it read the key.
type Followers = Vec<(DatabaseId, Arc<Follower>)>;
type Part = HashMap<Arc<[u8]>, Followers>;

/// See the module documentation.
#[derive(Default)]
pub struct ClientCache {
    workers: OnceLock<Arc<[WorkerLink]>>,
    hasher: RandomState,
    /// All clients that track, by id.
    everybody: Mutex<BTreeMap<u64, Arc<Follower>>>,
    parts: [Mutex<Part>; PARTS],
    broadcast: Mutex<Broadcast>,
    keys_max: AtomicU64,
    /// Whether a new limit was set and the keys above it are not dropped yet.
    is_limit_new: AtomicBool,
    /// Held while keys are dropped because of a new limit.
    dropping: Mutex<()>,
    /// Number of entries of the table.
    keys: AtomicUsize,
    /// Number of followers in all of them.
    items: AtomicUsize,
    bytes: AtomicUsize,
    prefixes: AtomicUsize,
    /// Number of changes that are not sent yet.
    changes: AtomicUsize,
    /// The next part to drop from.
    victim: AtomicUsize,
}

/// Tracked prefixes, each with the keys that changed since its last message.
#[derive(Default)]
struct Broadcast {
    by_prefix: BTreeMap<Box<[u8]>, Prefix>,
}

#[derive(Default)]
struct Prefix {
    followers: BTreeMap<u64, Arc<Follower>>,
    /// Changed keys, and the client that last changed each.
    changed: BTreeMap<Box<[u8]>, u64>,
}

/// Content of an invalidation.
enum News<'a> {
    Keys(&'a [&'a [u8]]),
    Everything,
}

impl ClientCache {
    /// Sets the links to the workers; called once.
    pub fn set_workers(&self, workers: Arc<[WorkerLink]>) {
        let _already_set = self.workers.set(workers);
    }

    /// Sets `tracking-table-max-keys`; 0 means no limit.
    pub fn set_keys_max(&self, keys_max: u64) {
        let before = self.keys_max.swap(keys_max, Ordering::Relaxed);
        if before != keys_max {
            self.is_limit_new.store(true, Ordering::Release);
        }
    }

    /// Drops the keys above a limit that CONFIG SET has set, before the reply of CONFIG SET leaves:
    /// once a client knows of the new limit, the invalidations are sent. One bounded step; the
    /// upkeep drops the rest.
    ///
    /// Every worker calls this at the end of its turn. The mark is cleared with `dropping` held,
    /// after the invalidations are sent. So a worker that finds it cleared has nothing to wait for.
    #[cold]
    pub fn enforce_new_limit(&self, store: &mut Handle, listener: &Arc<dyn Listener>) {
        let _turn = lock(&self.dropping);
        if self.has_new_limit() {
            self.keep_limits(store, listener);
            self.is_limit_new.store(false, Ordering::Release);
        }
    }

    /// Whether [`ClientCache::enforce_new_limit`] has work to do.
    #[inline]
    #[must_use]
    pub fn has_new_limit(&self) -> bool {
        self.is_limit_new.load(Ordering::Acquire)
    }

    /// Returns the number of clients that track.
    #[must_use]
    pub fn clients_count(&self) -> usize {
        lock(&self.everybody).len()
    }

    /// Returns the numbers of tracked keys, of their followers, and of tracked prefixes.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        [&self.keys, &self.items, &self.prefixes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the approximate size of the table in bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether changes have to be [noted](Self::note).
    #[inline]
    #[must_use]
    pub fn has_prefixes(&self) -> bool {
        self.prefixes.load(Ordering::Relaxed) > 0
    }

    /// Adds a client, or updates what it tracks.
    pub fn follow(&self, follower: &Arc<Follower>) {
        let id = follower.client.id;
        lock(&self.everybody).insert(id, Arc::clone(follower));
        let prefixes = follower.options().prefixes.clone();
        let mut broadcast = lock(&self.broadcast);
        for prefix in prefixes {
            let entry = broadcast.by_prefix.entry(prefix).or_default();
            entry.followers.insert(id, Arc::clone(follower));
        }
        let count = broadcast.by_prefix.len();
        self.prefixes.store(count, Ordering::Relaxed);
    }

    /// Removes a client and all that it tracks.
    pub fn unfollow(&self, store: &mut Handle, listener: &Arc<dyn Listener>, gone: &Follower) {
        let id = gone.client.id;
        lock(&self.everybody).remove(&id);
        let mut broadcast = lock(&self.broadcast);
        for prefix in &gone.options().prefixes {
            if let Some(entry) = broadcast.by_prefix.get_mut(prefix) {
                entry.followers.remove(&id);
                if entry.followers.is_empty() {
                    broadcast.by_prefix.remove(prefix);
                }
            }
        }
        let count = broadcast.by_prefix.len();
        self.prefixes.store(count, Ordering::Relaxed);
        drop(broadcast);
        let keys = std::mem::take(&mut *gone.keys());
        for (database, name) in keys {
            let is_of = |of: DatabaseId, follower: &Follower| {
                of == database && std::ptr::eq(follower, gone)
            };
            let (_, is_silent) = self.take(&name, database, is_of);
            if is_silent {
                store.unlisten_aside(&store.key(database, &name), listener);
            }
        }
    }

    /// Records that a client reads keys.
    pub fn track(
        &self,
        store: &mut Handle,
        listener: &Arc<dyn Listener>,
        follower: &Arc<Follower>,
        keys: &[Key<'_>],
    ) {
        for key in keys {
            self.insert(key, follower);
            store.listen(key, listener);
        }
        while self.is_over_its_limit() && self.drop_one(store, listener) {}
    }

    /// Takes one bounded step towards limits that were lowered.
    pub fn keep_limits(&self, store: &mut Handle, listener: &Arc<dyn Listener>) {
        for _ in 0..DROPPED_MAX {
            if !self.is_over_its_limit() || !self.drop_one(store, listener) {
                return;
            }
        }
    }

    #[inline]
    fn is_over_its_limit(&self) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        keys_max > 0 && self.keys.load(Ordering::Relaxed) as u64 > keys_max
            || self.held_bytes() > TABLE_BYTES_MAX
    }

    fn insert(&self, key: &Key<'_>, follower: &Arc<Follower>) {
        let database = key.database();
        let mut part = self.part(key.bytes());
        let known = part.get_key_value(key.bytes());
        let name = match known {
            Some((name, _)) => Arc::clone(name),
            None => {
                self.keys.fetch_add(1, Ordering::Relaxed);
                let bytes = KEY_BYTES + key.bytes().len();
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                Arc::from(key.bytes())
            }
        };
        if follower.keys().insert((database, Arc::clone(&name))) {
            self.items.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(ITEM_BYTES, Ordering::Relaxed);
            let followers = part.entry(name).or_default();
            followers.push((database, Arc::clone(follower)));
        }
    }

    /// Removes and returns the `wanted` followers of a key. Also returns whether the key has no
    /// more followers in the database.
    fn take(
        &self,
        name: &[u8],
        database: DatabaseId,
        wanted: impl Fn(DatabaseId, &Follower) -> bool,
    ) -> (Followers, bool) {
        let mut part = self.part(name);
        let Some(followers) = part.get_mut(name) else {
            return (Vec::new(), true);
        };
        let (taken, kept): (Followers, Followers) = std::mem::take(followers)
            .into_iter()
            .partition(|(of, follower)| wanted(*of, follower));
        let is_silent = !kept.iter().any(|(of, _)| *of == database);
        self.items.fetch_sub(taken.len(), Ordering::Relaxed);
        self.bytes
            .fetch_sub(taken.len() * ITEM_BYTES, Ordering::Relaxed);
        if kept.is_empty() {
            part.remove(name);
            self.keys.fetch_sub(1, Ordering::Relaxed);
            self.bytes
                .fetch_sub(KEY_BYTES + name.len(), Ordering::Relaxed);
        } else {
            *followers = kept;
        }
        for (database, follower) in &taken {
            follower.keys().remove(&(*database, Arc::from(name)));
        }
        (taken, is_silent)
    }

    /// Drops any one key, as if it had been changed. Returns whether there was one.
    fn drop_one(&self, store: &mut Handle, listener: &Arc<dyn Listener>) -> bool {
        for _ in 0..PARTS {
            let number = self.victim.fetch_add(1, Ordering::Relaxed) % PARTS;
            let victim = lock(&self.parts[number]).keys().next().cloned();
            let Some(name) = victim else {
                continue;
            };
            let (followers, _) = self.take(&name, 0, |_, _| true);
            for (database, follower) in followers {
                store.unlisten_aside(&store.key(database, &name), listener);
                self.tell(&follower, &News::Keys(&[&name]));
            }
            return true;
        }
        false
    }

    /// Records a change for clients that track prefixes. [`ClientCache::tell_changes`] notifies
    /// them.
    #[cold]
    pub fn note(&self, key: &[u8], author: u64) {
        let mut broadcast = lock(&self.broadcast);
        for (prefix, entry) in &mut broadcast.by_prefix {
            if key.starts_with(prefix) {
                entry.changed.insert(key.into(), author);
                self.changes.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Notifies clients that track prefixes of the changes since the last call.
    #[inline]
    pub fn tell_changes(&self) {
        if self.changes.load(Ordering::Relaxed) > 0 {
            self.tell_prefixes();
        }
    }

    #[cold]
    fn tell_prefixes(&self) {
        let mut broadcast = lock(&self.broadcast);
        self.changes.store(0, Ordering::Relaxed);
        for entry in broadcast.by_prefix.values_mut() {
            let changed = std::mem::take(&mut entry.changed);
            for follower in entry.followers.values() {
                let skips_own = follower.options().skips_own;
                let id = follower.client.id;
                let keys: Vec<&[u8]> = changed
                    .iter()
                    .filter(|(_, author)| !(skips_own && **author == id))
                    .map(|(key, _)| &**key)
                    .collect();
                if !keys.is_empty() {
                    self.tell(follower, &News::Keys(&keys));
                }
            }
        }
    }

    /// Notifies all clients that all keys, or those of a database, are gone, and clears the table.
    pub fn tell_flush(&self, store: &mut Handle, listener: &Arc<dyn Listener>) {
        for part in &self.parts {
            let names: Vec<Arc<[u8]>> = lock(part).keys().cloned().collect();
            for name in names {
                let (followers, _) = self.take(&name, 0, |_, _| true);
                let databases: BTreeSet<_> = followers.iter().map(|(of, _)| *of).collect();
                for database in databases {
                    store.unlisten_aside(&store.key(database, &name), listener);
                }
            }
        }
        let everybody: Vec<_> = lock(&self.everybody).values().cloned().collect();
        for follower in everybody {
            self.tell(&follower, &News::Everything);
        }
    }

    /// Sends an invalidation to a follower, or to the client that it redirects to.
    fn tell(&self, follower: &Follower, news: &News<'_>) {
        let redirect = follower.options().redirect.clone();
        let client = &follower.client;
        let speaks_resp3 = |client: &ClientRecord| client.resp.load(Ordering::Relaxed) > 2;
        let Some(other) = redirect else {
            if speaks_resp3(client) {
                self.send(client, news.push());
            }
            return;
        };
        if other.has_flag(ClientRecord::GONE) {
            client.set_flag(ClientRecord::TRACKING_BROKEN, true);
            if speaks_resp3(client) {
                self.send(client, broken(other.id));
            }
        } else if speaks_resp3(&other) {
            self.send(&other, news.push());
        } else if other.has_flag(ClientRecord::PUBSUB) {
            self.send(&other, news.message());
        }
    }

    fn send(&self, client: &ClientRecord, push: Push) {
        let worker = self.workers.get().and_then(|all| all.get(client.worker));
        if let Some(worker) = worker {
            let (id, place) = (client.id, client.place);
            worker.post_push(Letter {
                to: Address::Client { id, place },
                push,
            });
        }
    }

    fn part(&self, name: &[u8]) -> MutexGuard<'_, Part> {
        let hash = self.hasher.hash_one(name);
        let number = usize::try_from(hash % PARTS as u64).unwrap_or_default();
        lock(&self.parts[number])
    }
}

impl Listener for ClientCache {
    fn changed(&self, change: &KeyChange<'_>) -> Interest {
        let (followers, _) = self.take(change.key, change.database, |database, _| {
            database == change.database
        });
        for (_, follower) in followers {
            let options = follower.options();
            let is_own = options.skips_own && follower.client.id == change.author;
            let is_by_client = matches!(change.kind, ChangeKind::Written | ChangeKind::Removed);
            // A client that has switched to broadcast mode is notified that way.
            let is_left_out = is_own && is_by_client || options.mode == TrackingMode::Broadcast;
            drop(options);
            if !is_left_out {
                self.tell(&follower, &News::Keys(&[change.key]));
            }
        }
        Interest::Forget
    }
}

impl News<'_> {
    /// Makes the push for clients that speak RESP3.
    fn push(&self) -> Push {
        Push::new(|reply| {
            reply.push(2);
            reply.bulk(b"invalidate");
            match self {
                Self::Keys(keys) => {
                    reply.array(keys.len());
                    keys.iter().for_each(|key| reply.bulk(key));
                }
                Self::Everything => reply.null(),
            }
        })
    }

    /// Makes the message for subscribed clients that speak RESP2.
    fn message(&self) -> Push {
        Push::new(|reply| {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(CHANNEL);
            match self {
                Self::Keys(keys) => {
                    reply.array(keys.len());
                    keys.iter().for_each(|key| reply.bulk(key));
                }
                Self::Everything => reply.raw(b"$-1\r\n"),
            }
        })
    }
}

/// Makes the push for a client whose redirection target is gone.
fn broken(redirect: u64) -> Push {
    Push::new(|reply| {
        reply.push(2);
        reply.bulk(b"tracking-redir-broken");
        reply.integer(i64::try_from(redirect).unwrap_or(i64::MAX));
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
