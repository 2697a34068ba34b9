//! Registration and notification of listeners by a thread that holds the bucket of their key.

use std::sync::Arc;

use crate::bucket::{Bucket, Link};
use crate::index::Home;
use crate::indexed::Indexed;
use crate::key::{DatabaseId, Key};
use crate::listeners::{ChangeKind, KeyChange, Listener, Teller};
use crate::local::{Local, Scene, view_of};

impl Local {
    /// Notifies the listeners of a key in a bucket that has the bit.
    #[cold]
    pub(crate) fn tell(&mut self, scene: Scene<'_>, hash: u64, change: &KeyChange<'_>) {
        let listeners = &scene.shared.listeners;
        listeners.tell(&mut self.teller, hash, change);
        let home = scene.index.state().home(hash);
        if listeners.is_silent(change.database, home) {
            scene.home.set_listened(false);
        }
    }

    /// Notifies listeners that the record behind a link is removed, or loses members, without a
    /// command that asked for it.
    #[cold]
    pub(crate) fn tell_of(
        &mut self,
        scene: Scene<'_>,
        database: DatabaseId,
        link: Link,
        kind: ChangeKind,
    ) {
        let Some(view) = view_of(scene.shared, link) else {
            return;
        };
        // SAFETY: the caller holds the bucket.
        let key: Vec<u8> = unsafe { view.with_key(<[u8]>::to_vec) };
        let change = KeyChange {
            key: &key,
            database,
            kind,
            author: 0,
        };
        self.tell(scene, scene.shared.hasher.hash(&key), &change);
    }
}

impl Indexed {
    #[inline]
    pub(crate) fn teller(&self) -> &Teller {
        &self.local.teller
    }

    #[inline]
    pub(crate) fn teller_mut(&mut self) -> &mut Teller {
        &mut self.local.teller
    }

    /// Registers a listener for a key.
    pub(crate) fn listen(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        self.need_index(key.database());
        let shared = Arc::clone(&self.shared);
        self.with_bucket(key, |bucket, _| {
            bucket.set_listened(true);
            shared.listeners.add(key, listener);
        });
    }

    /// Removes a registration.
    pub(crate) fn unlisten(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        self.need_index(key.database());
        let shared = Arc::clone(&self.shared);
        self.with_bucket(key, |bucket, home| {
            shared.listeners.remove(key, listener);
            if bucket.is_listened() && shared.listeners.is_silent(key.database(), home) {
                bucket.set_listened(false);
            }
        });
    }

    /// Runs `body` with the bucket of a key held.
    fn with_bucket<R>(&mut self, key: &Key<'_>, body: impl FnOnce(&Bucket, Home) -> R) -> R {
        let entered = self.enter();
        let Some(index) = self.seen.get(key.database()) else {
            unreachable!("made before");
        };
        let answer = if self.local.held.is_empty() {
            let home = index.lock(key.hash());
            let bucket = index.bucket(home.number);
            let answer = body(bucket, home);
            bucket.unlock(false);
            answer
        } else {
            let at = self.local.held_at(index, key.database(), key.hash());
            let home = self.local.held[at].home;
            body(index.bucket(home.number), home)
        };
        if entered {
            self.leave();
        }
        answer
    }

    /// Returns which of `keys` have a record in a database, expired or not. The caller has the
    /// store for itself.
    pub(crate) fn present(&mut self, database: DatabaseId, keys: &[(u64, Box<[u8]>)]) -> Vec<bool> {
        let shared = Arc::clone(&self.shared);
        let Some(index) = self.find_index(database) else {
            return vec![false; keys.len()];
        };
        let is_present = |(hash, key): &(u64, Box<[u8]>)| {
            let home = index.lock(*hash);
            let bucket = index.bucket(home.number);
            let found = index.find(bucket, *hash, |link| {
                // SAFETY: the bucket is held.
                view_of(&shared, link).is_some_and(|view| unsafe { view.key_is(key) })
            });
            bucket.unlock(false);
            found.is_some()
        };
        keys.iter().map(is_present).collect()
    }

    /// Notifies the listeners of those of `keys` that existed before or do so now, and marks the
    /// buckets of all of them in the index that the database has now. The caller has the store for
    /// itself.
    pub(crate) fn tell_flushed(
        &mut self,
        database: DatabaseId,
        keys: &[(u64, Box<[u8]>)],
        was_present: &[bool],
    ) {
        if keys.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.need_index(database);
        let is_present = self.present(database, keys);
        for (((hash, key), was), is) in keys.iter().zip(was_present).zip(is_present) {
            let key = Key::with_hash(key, *hash, database);
            self.with_bucket(&key, |bucket, _| bucket.set_listened(true));
            if *was || is {
                let change = KeyChange {
                    key: key.bytes(),
                    database,
                    kind: ChangeKind::Flushed,
                    author: self.local.teller.author,
                };
                shared
                    .listeners
                    .tell(&mut self.local.teller, *hash, &change);
            }
        }
    }
}
