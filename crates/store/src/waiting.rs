//! Blocked clients: those that wait for keys, first come, first served, across all threads.
//!
//! ```text
//!   shard ── (database, key) ── a line for each kind of value that is wanted
//!                                  ticket ── Waiter ── what it was that could not be done
//! ```
//!
//! A client that finds nothing at its keys joins the end of the queue ([`Waiters::wait`]). A thread that
//! changes such a key is notified afterwards ([`Handle::take_served`](crate::Handle::take_served)) and runs
//! the waiting requests again, oldest first ([`Waiters::serve`]). No thread blocks meanwhile.
//!
//! Why no waiter is forgotten
//!  1. A client joins the queue with its keys still locked from the look that found nothing. A change is
//!     made under the same lock: before it, and the client finds something, or after it, and the changing
//!     thread is notified.
//!  2. A request runs again with all keys of the waiter locked, so no two threads try for the same waiter
//!     at once, and none skips a waiter that is being tried for.
//!  3. Whatever ends the wait (something was found, a timeout, the client is gone) first wins one atomic
//!     exchange of one word ([`Waiter::claim`]): the winner has to answer. A thread that takes an element for
//!     a waiter claims it before it changes anything, so nothing is taken for a client that is gone.
//!  4. A client that comes while others wait takes nothing before their turn ([`Waiters::is_ahead`]): until
//!     then, some thread has been notified, is about to serve this key, and will serve every client in the
//!     queue by then.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::hash::KeyHasher;
use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Mutex, MutexGuard};
use structures::Kind as ObjectKind;

use crate::handle::Handle;
use crate::key::{DatabaseId, Key};
use crate::listeners::{ChangeKind, Interest, KeyChange, Listener};
use crate::parking::Hold;
use crate::value::Kind;

/// Number of locks of the table: many, because a lock covers the waiters of one key in 64.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// Kind of value that a waiter wants at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A list.
    List,
    /// A sorted set.
    SortedSet,
    /// A stream.
    Stream,
    /// A stream that existed in the beginning: the waiter must also learn if the key holds another
    /// kind of value or nothing at all.
    KnownStream,
}

/// Number of these kinds.
const WANTED: usize = 4;

impl Wanted {
    const ALL: [Self; WANTED] = [Self::List, Self::SortedSet, Self::Stream, Self::KnownStream];

    /// Whether a key that holds this kind matters.
    fn heeds(self, kind: Option<Kind>) -> bool {
        let wanted = match self {
            Self::List => ObjectKind::List,
            Self::SortedSet => ObjectKind::SortedSet,
            Self::Stream => ObjectKind::Stream,
            Self::KnownStream => return true,
        };
        kind == Some(Kind::Object(wanted))
    }
}

/// The waiters for keys of a store. `T` is the request that could not be done yet.
pub struct Waiters<T> {
    shards: Box<[Mutex<Shard<T>>]>,
    hasher: KeyHasher,
    last_ticket: AtomicU64,
    /// Number of places taken in all queues.
    places: AtomicUsize,
}

/// A client that waits for keys.
pub struct Waiter<T> {
    ticket: u64,
    database: DatabaseId,
    keys: Box<[Box<[u8]>]>,
    wanted: Wanted,
    waits: AtomicBool,
    stands_in_line: AtomicBool,
    /// The request that could not be done yet.
    pub subject: T,
}

/// Outcome of another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The waiter has what it wanted, has left the queue, or there still is nothing for it.
    Done,
    /// The attempt was not possible now, because keys are held for long: no later waiter may try
    /// before.
    Busy,
}

type Lines<T> = [BTreeMap<u64, Arc<Waiter<T>>>; WANTED];

struct Shard<T> {
    keys: BTreeMap<DatabaseId, HashMap<Box<[u8]>, Lines<T>>>,
}

/// Numbers of keys that have waiters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitedKeys {
    /// All keys that have waiters.
    pub all: usize,
    /// Those with a waiter that must also learn of their removal.
    pub known_streams: usize,
}

impl<T> Waiter<T> {
    /// Ends the wait. Returns whether this call did. If so, the caller has to answer, and no other
    /// thread will.
    pub fn claim(&self) -> bool {
        self.waits.swap(false, Ordering::AcqRel)
    }

    /// Whether nothing has ended the wait yet.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// The later the wait began, the larger this number is.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether this is one of the waiter's keys. Looks at all of them.
    pub fn waits_for(&self, database: DatabaseId, key: &[u8]) -> bool {
        database == self.database && self.keys.iter().any(|one| **one == *key)
    }

    /// The database of its keys.
    pub fn database(&self) -> DatabaseId {
        self.database
    }
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            hasher: KeyHasher::from_os(),
            last_ticket: AtomicU64::new(0),
            places: AtomicUsize::new(0),
        }
    }
}

impl<T: Send + Sync + 'static> Waiters<T> {
    /// Joins the end of the queue at each of `keys`, which are of one database. Called while these
    /// are [locked](Handle::locked) and nothing was found at them.
    pub fn wait(
        self: &Arc<Self>,
        handle: &mut Handle,
        keys: &[Key<'_>],
        wanted: Wanted,
        subject: T,
    ) -> Arc<Waiter<T>> {
        let waiter = Arc::new(Waiter {
            ticket: self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1,
            database: keys.first().map_or(0, Key::database),
            keys: keys.iter().map(|key| key.bytes().into()).collect(),
            wanted,
            waits: AtomicBool::new(true),
            stands_in_line: AtomicBool::new(true),
            subject,
        });
        let listener: Arc<dyn Listener> = Arc::<Self>::clone(self);
        for key in keys {
            self.stand_in_line(key.bytes(), &waiter);
            handle.listen(key, &listener);
        }
        waiter
    }

    /// Whether another waiter waits for this kind of value at `key`, and longer than the one with
    /// `ticket` (`None`: a client that does not wait yet). Called while the key is locked.
    #[inline]
    pub fn is_ahead(&self, key: &Key<'_>, wanted: Wanted, ticket: Option<u64>) -> bool {
        // All waiters for this key joined the queue under the lock that is held.
        self.places.load(Ordering::Relaxed) > 0 && self.is_ahead_in_line(key, wanted, ticket)
    }

    #[cold]
    fn is_ahead_in_line(&self, key: &Key<'_>, wanted: Wanted, ticket: Option<u64>) -> bool {
        let shard = self.shard(key.bytes());
        let Some(lines) = shard.lines(key.database(), key.bytes()) else {
            return false;
        };
        let mut line = lines[wanted as usize].iter();
        let first = line.find(|(_, waiter)| waiter.waits());
        first.is_some_and(|(first, _)| ticket.is_none_or(|ticket| *first < ticket))
    }

    /// Gives the waiters for a key another attempt, in the order of the queue. Returns `false` if
    /// that has to be done again, once keys that are held for long are released. The caller has no
    /// keys locked. An attempt locks the waiter's keys that it needs, [claims](Waiter::claim) the
    /// waiter before anything is changed, and then removes it [from the queue](Waiters::leave).
    pub fn serve(
        &self,
        handle: &mut Handle,
        database: DatabaseId,
        key: &[u8],
        mut attempt: impl FnMut(&mut Handle, &Arc<Waiter<T>>) -> Attempt,
    ) -> bool {
        for wanted in Wanted::ALL {
            let mut ticket = 0;
            // The kind is looked up anew each time: an attempt may have taken the last element.
            while let Some(waiter) = self.next_behind(database, key, wanted, ticket) {
                let name = handle.key(database, key);
                let kind = handle.peek(&name, |record| record.map(|record| record.kind()));
                if !wanted.heeds(kind) {
                    break;
                }
                ticket = waiter.ticket;
                if attempt(handle, &waiter) == Attempt::Busy {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the first waiter after a ticket that still waits for this kind of value at a key.
    fn next_behind(
        &self,
        database: DatabaseId,
        key: &[u8],
        wanted: Wanted,
        ticket: u64,
    ) -> Option<Arc<Waiter<T>>> {
        let shard = self.shard(key);
        let line = &shard.lines(database, key)?[wanted as usize];
        let mut line = line.range(ticket + 1..);
        let waiter = line.find(|(_, waiter)| waiter.waits())?.1;
        Some(Arc::clone(waiter))
    }

    /// Removes a waiter whose wait has ended from all queues; a no-op if it is in none. Stops
    /// listening to keys that then have no waiter. If keys are locked, they must be all of the
    /// waiter's.
    pub fn leave(self: &Arc<Self>, handle: &mut Handle, waiter: &Arc<Waiter<T>>) {
        debug_assert!(!waiter.waits(), "gives its place up and still waits");
        if !waiter.stands_in_line.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut forsaken = Vec::new();
        for key in &waiter.keys {
            if self.leave_line(key, waiter) {
                forsaken.push(handle.key(waiter.database, key));
            }
        }
        self.forsake(handle, &forsaken);
    }

    /// Stops listening to keys, unless a waiter joined meanwhile: waiters join under the locks that
    /// are held here. A key that is held for long now is left: its listener is removed at its next
    /// change.
    fn forsake(self: &Arc<Self>, handle: &mut Handle, keys: &[Key<'_>]) {
        let listener: Arc<dyn Listener> = Arc::<Self>::clone(self);
        for key in keys {
            let _left_for_later = handle.try_locked(&[*key], Hold::Short, |handle| {
                let shard = self.shard(key.bytes());
                let is_waited_for = shard.lines(key.database(), key.bytes()).is_some();
                drop(shard);
                if !is_waited_for {
                    handle.unlisten(key, &listener);
                }
            });
        }
    }

    fn stand_in_line(&self, key: &[u8], waiter: &Arc<Waiter<T>>) {
        let mut shard = self.shard(key);
        let keys = shard.keys.entry(waiter.database).or_default();
        let lines = match keys.get_mut(key) {
            Some(lines) => lines,
            None => keys.entry(key.into()).or_default(),
        };
        let line = &mut lines[waiter.wanted as usize];
        // A key may be named twice.
        if line.insert(waiter.ticket, Arc::clone(waiter)).is_none() {
            self.places.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a waiter from the queue of one key. Returns whether that key has no waiter any more.
    fn leave_line(&self, key: &[u8], waiter: &Waiter<T>) -> bool {
        let mut shard = self.shard(key);
        let Some(keys) = shard.keys.get_mut(&waiter.database) else {
            return false;
        };
        let Some(lines) = keys.get_mut(key) else {
            return false;
        };
        if lines[waiter.wanted as usize]
            .remove(&waiter.ticket)
            .is_some()
        {
            self.places.fetch_sub(1, Ordering::Relaxed);
        }
        let is_over = lines.iter().all(BTreeMap::is_empty);
        if is_over {
            keys.remove(key);
            if keys.is_empty() {
                shard.keys.remove(&waiter.database);
            }
        }
        is_over
    }
}

impl<T> Waiters<T> {
    /// Returns the numbers of keys that have waiters. Looks at each key. A waiter that is still in
    /// the queue after its wait has ended does not count.
    pub fn waited_keys(&self) -> WaitedKeys {
        let mut count = WaitedKeys::default();
        let waits = |line: &BTreeMap<u64, Arc<Waiter<T>>>| line.values().any(|one| one.waits());
        for shard in &self.shards {
            let shard = lock(shard);
            for lines in shard.keys.values().flat_map(HashMap::values) {
                count.all += usize::from(lines.iter().any(waits));
                let line = &lines[Wanted::KnownStream as usize];
                count.known_streams += usize::from(waits(line));
            }
        }
        count
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard<T>> {
        let number = self.hasher.hash(key) % SHARDS as u64;
        lock(&self.shards[usize::try_from(number).unwrap_or(0)])
    }
}

impl<T: Send + Sync> Listener for Waiters<T> {
    fn changed(&self, change: &KeyChange<'_>) -> Interest {
        let shard = self.shard(change.key);
        let Some(lines) = shard.lines(change.database, change.key) else {
            return Interest::Forget;
        };
        match change.kind {
            // Another database may have come instead.
            ChangeKind::Written | ChangeKind::Flushed => Interest::Serve,
            _ if lines[Wanted::KnownStream as usize].is_empty() => Interest::Keep,
            _ => Interest::Serve,
        }
    }
}

impl<T> Shard<T> {
    fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
        }
    }

    fn lines(&self, database: DatabaseId, key: &[u8]) -> Option<&Lines<T>> {
        self.keys.get(&database)?.get(key)
    }
}

fn lock<T>(shard: &Mutex<Shard<T>>) -> MutexGuard<'_, Shard<T>> {
    shard
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl<T> std::fmt::Debug for Waiters<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiters")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Waiter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
