//! Parking: a request waits for keys that are locked for long, while its thread goes on.
//!
//! A thread that locks several keys for long ([`crate::Hold::Long`]) marks their buckets. A thread that finds
//! such a mark does not block: it gets [`Busy`], holds nothing, and leaves a callback ([`Wake`]) here for the
//! bucket. The thread that unlocks the buckets calls the callbacks that are left for them. So a worker serves
//! its other sessions meanwhile.
//!
//! ```text
//!   gives back:  bucket's word without LONG      waits:  one more waits
//!                ── fence ──                             ── fence ──
//!                does anybody wait?                      bucket's word: still LONG?
//!                then wake those of the bucket           then leave the note; else go on
//! ```
//!
//! Both sides write before the fence and read after it, so at least one of them sees what the other
//! wrote: no callback is lost. Locking for a short time does not use this module, and while nothing is
//! locked for long, asking costs one load.

use base::sync::atomic::{AtomicU64, Ordering, fence};
use base::sync::{CachePadded, Mutex, MutexGuard};

use crate::index::Index;
use crate::wait::Wait;

/// Called once, when it is worth trying again, by the thread that unlocked the keys. That thread holds
/// nothing then; the callback should be quick.
pub type Wake = Box<dyn FnOnce() + Send>;

/// How long the keys of a set will be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// For some microseconds: others wait in place.
    Short,
    /// Perhaps for longer (EXEC of many commands, scripts, commands on large structures): other threads do
    /// not block, but park the request.
    Long,
}

/// The error that a thread which may take long holds one of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key is held for long")
    }
}

impl std::error::Error for Busy {}

/// Shards of the table, so that threads that park for different buckets do not contend for one lock.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The callbacks of threads that wait for buckets.
#[derive(Default)]
pub(crate) struct Parking {
    /// Number of sets of keys that are held for long.
    long_sets: CachePadded<AtomicU64>,
    /// Number of callbacks in all shards and of threads that are about to leave one.
    waiting: CachePadded<AtomicU64>,
    shards: [Mutex<Vec<Waiter>>; SHARDS],
}

/// A callback that was left for a bucket.
struct Waiter {
    place: BucketId,
    wake: Wake,
}

/// A bucket of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketId {
    pub(crate) index_id: u64,
    pub(crate) number: u64,
}

impl Parking {
    /// Whether anything was held for long a moment ago.
    #[inline]
    pub(crate) fn has_long(&self) -> bool {
        self.long_sets.load(Ordering::Relaxed) != 0
    }

    /// Counts a set that is about to be held for long.
    pub(crate) fn begin_long(&self) {
        self.long_sets.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls the callbacks for the buckets of a set that was held for long. All of these have been
    /// released.
    pub(crate) fn end_long(&self, places: impl Iterator<Item = BucketId>) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            places.for_each(|place| self.wake(place));
        }
        self.long_sets.fetch_sub(1, Ordering::Relaxed);
    }

    fn wake(&self, place: BucketId) {
        let mut woken = Vec::new();
        let mut waiters = self.shard(place);
        let mut at = 0;
        while at < waiters.len() {
            if waiters[at].place == place {
                woken.push(waiters.remove(at).wake);
            } else {
                at += 1;
            }
        }
        drop(waiters);
        self.waiting
            .fetch_sub(woken.len() as u64, Ordering::Relaxed);
        woken.into_iter().for_each(|wake| wake());
    }

    /// Leaves a callback at the bucket of `hash` if that is held for long.
    ///
    /// # Errors
    /// `wake`, if it is not: it is worth trying now.
    pub(crate) fn park(&self, index: &Index, hash: u64, wake: Wake) -> Result<(), Wake> {
        let mut wait = Wait::default();
        loop {
            let home = index.state().home(hash);
            let place = BucketId {
                index_id: index.id(),
                number: home.number,
            };
            let mut waiters = self.shard(place);
            self.waiting.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let word = index.bucket(home.number).word();
            let is_home = word.depth() == home.depth;
            if is_home && word.is_locked() && word.is_long() {
                waiters.push(Waiter { place, wake });
                return Ok(());
            }
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if is_home {
                return Err(wake);
            }
            // The bucket is being split or merged: look for the key again.
            drop(waiters);
            wait.pause();
        }
    }

    fn shard(&self, place: BucketId) -> MutexGuard<'_, Vec<Waiter>> {
        let number = usize::try_from(place.number % SHARDS as u64).unwrap_or(0);
        self.shards[number]
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Number of callbacks that were left.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Parking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parking")
            .field("long_sets", &self.long_sets)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
