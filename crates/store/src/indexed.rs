//! One thread's access to the real store: the backend of a [`crate::Handle`].
//!
//! The operations are in modules of their own: [`crate::reader`], [`crate::writer`],
//! [`crate::locks`], [`crate::scan`], [`crate::expire`], [`crate::evict`]. This module has what
//! they share: entering the gate, knowing the databases, growing.

use base::sync::{CachePadded, thread};
use std::sync::Arc;

use crate::bucket::Link;
use crate::databases::Seen;
use crate::effect::Source;
use crate::event::{EventClass, Outlet};
use crate::gate::Member;
use crate::growth::Split;
use crate::index::Index;
use crate::key::{DatabaseId, Key};
use crate::local::{Local, view_of};
use crate::lookahead::Lookahead;
use crate::record_span::RecordSpan;
use crate::shared::Shared;
use crate::tally::Records;

/// Maximum number of splits that one insertion pays for when the table has fallen behind.
const SPLITS_PER_INSERT: u32 = 2;

/// Maximum number of splits that one lock set pays for.
const SPLITS_PER_SET: u32 = 64;

/// Number of times that [`Indexed::expect`] waits for a bucket in use: a bucket that is held for
/// long is not worth more.
const BUSY_MAX: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 20 };

/// One thread's access to the real store.
pub(crate) struct Indexed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) local: CachePadded<Local>,
    pub(crate) seen: Seen,
    /// Buffer for the places of a lock set, kept for the next one.
    pub(crate) places: Vec<(DatabaseId, u64)>,
    /// When this thread last reported its counts.
    pub(crate) told_unix_ms: u64,
    /// Average length of records at that time.
    pub(crate) record_span: RecordSpan,
    member: Arc<Member>,
    inside: bool,
    /// Whether this thread has the store for itself.
    alone: bool,
}

impl Indexed {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let mut seen = shared.databases.unseen();
        seen.refresh(&shared.databases);
        Self {
            local: CachePadded::new(Local::new(shared)),
            seen,
            places: Vec::new(),
            told_unix_ms: 0,
            record_span: RecordSpan::default(),
            member: shared.gate.join(),
            shared: Arc::clone(shared),
            inside: false,
            alone: false,
        }
    }

    /// Goes inside, if this thread is outside. Returns whether it was outside.
    #[inline]
    pub(crate) fn enter(&mut self) -> bool {
        let enters = !self.inside;
        if enters {
            self.shared.gate.enter(&self.member);
            self.inside = true;
            self.seen.refresh(&self.shared.databases);
            self.local.in_force = self.shared.policy.load();
        }
        enters
    }

    /// Goes outside.
    #[inline]
    pub(crate) fn leave(&mut self) {
        if self.inside && !self.alone {
            debug_assert!(self.local.held.is_empty(), "left with buckets held");
            self.shared.gate.leave(&self.member);
            self.inside = false;
        }
    }

    /// Whether this thread has the store for itself.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether this thread is inside, alone or with others.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    /// Notes whether this thread has the store for itself.
    pub(crate) fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
        self.inside = alone;
        if alone {
            self.seen.refresh(&self.shared.databases);
            self.local.in_force = self.shared.policy.load();
        }
    }

    /// Goes inside with `keys` locked and marked as held for long, at a moment when no other thread
    /// is inside. This thread is outside.
    pub(crate) fn enter_with_long(&mut self, keys: &[Key<'_>]) {
        let shared = Arc::clone(&self.shared);
        shared.gate.alone(|| {
            shared.gate.enter_alone(&self.member);
            self.inside = true;
            self.seen.refresh(&self.shared.databases);
            self.local.in_force = self.shared.policy.load();
            self.lock_set(keys);
            self.hold_long();
        });
    }

    /// Ensures that this thread knows a database's index, if there is one.
    #[inline]
    pub(crate) fn see_index(&mut self, database: DatabaseId) {
        if self.seen.get(database).is_none() {
            self.seen.refresh(&self.shared.databases);
        }
    }

    /// Returns the index of a database, if it has one.
    #[inline]
    pub(crate) fn find_index(&mut self, database: DatabaseId) -> Option<&Arc<Index>> {
        self.see_index(database);
        self.seen.get(database)
    }

    /// Ensures that a database has an index.
    ///
    /// # Panics
    /// If the system has no address space left; any allocation would then panic too.
    #[inline]
    pub(crate) fn need_index(&mut self, database: DatabaseId) {
        if self.seen.get(database).is_none() {
            self.create_index(database);
        }
    }

    #[cold]
    fn create_index(&mut self, database: DatabaseId) {
        let created = self
            .shared
            .databases
            .create(database, || self.shared.snapshots.generation());
        let is_new = created.expect("the system has no addresses left for an index");
        self.seen.refresh(&self.shared.databases);
        if is_new && let Some(index) = self.seen.get(database) {
            let bytes = i64::try_from(index.home_bytes()).unwrap_or(i64::MAX);
            self.shared.ledger.add(bytes);
        }
    }

    /// Returns a look-ahead at keys of a database.
    #[inline]
    pub(crate) fn lookahead(&self, database: DatabaseId) -> Lookahead<'_> {
        let index = self.seen.get(database);
        let shared = &*self.shared;
        Lookahead::new(
            &shared.hasher,
            index.map(|index| &**index),
            shared.arena_ref(),
            self.record_span,
            shared.snapshots.cut_in_progress(&shared.before_writes),
            !self.local.in_force.notes_use(),
        )
    }

    /// Splits if an insertion made the table too full. The caller holds no bucket.
    #[inline]
    pub(crate) fn grow_after_insert(&mut self, database: DatabaseId) {
        if let Some(index) = self.seen.get(database)
            && index.wants_split(self.local.keys_about(index, database))
        {
            self.grow(database, 0, SPLITS_PER_INSERT);
        }
    }

    /// Splits until the table suits its records and `more`, at most `splits_max` times. Gives up at
    /// a bucket that is in use.
    #[cold]
    pub(crate) fn grow(&mut self, database: DatabaseId, more: u64, splits_max: u32) {
        if let Some(index) = self.seen.get(database) {
            let keys = self.local.keys_about(index, database) + more;
            let _later_maybe = self.grow_to(database, keys, splits_max);
        }
    }

    /// Splits until the table suits `keys` records, at most `splits_max` times. Returns the outcome
    /// of the last attempt.
    fn grow_to(&mut self, database: DatabaseId, keys: u64, splits_max: u32) -> Split {
        let shared = &*self.shared;
        let Some(index) = self.seen.get(database) else {
            return Split::Full;
        };
        for _ in 0..splits_max {
            if !index.wants_split(keys) {
                break;
            }
            let outcome = index.split(|link| hash_of(shared, link), prefetcher(shared));
            if outcome != Split::Done {
                return outcome;
            }
            self.local.count_buckets(shared, 1);
        }
        Split::Done
    }

    /// Grows the table of a database for this many expected records, and keeps it from shrinking
    /// until none are expected. Other threads may add records meanwhile: if one of them uses a
    /// bucket, the caller waits for it, unless it has keys locked.
    pub(crate) fn expect(&mut self, database: DatabaseId, records: u64) {
        let mut keys = None;
        for _ in 0..BUSY_MAX {
            let entered = self.enter();
            self.need_index(database);
            let mut outcome = Split::Full;
            if let Some(index) = self.seen.get(database) {
                index.shrinking.expect(records);
                let there = self.local.keys_about(index, database);
                let keys = *keys.get_or_insert(there + records);
                outcome = self.grow_to(database, keys, u32::MAX);
            }
            if !entered {
                return;
            }
            self.leave();
            if outcome != Split::Busy {
                return;
            }
            thread::yield_now();
        }
    }

    /// Does the splits that could not be done while buckets were held.
    pub(crate) fn grow_after_set(&mut self, database: DatabaseId) {
        if let Some(index) = self.seen.get(database)
            && index.wants_split(self.local.keys_about(index, database))
        {
            self.grow(database, 0, SPLITS_PER_SET);
        }
    }

    /// States that a group of effects begins or ends.
    pub(crate) fn group(&mut self, begins: bool) {
        match self.local.sink.as_deref_mut() {
            Some(sink) if begins => sink.group_begin(),
            Some(sink) => sink.group_end(),
            None => {}
        }
    }

    /// States the position in a followed stream that the group leads to.
    pub(crate) fn state_source(&mut self, source: &Source) {
        if let Some(sink) = self.local.sink.as_deref_mut() {
            sink.source(source);
        }
    }

    /// The outlet for events.
    pub(crate) fn outlet(&self) -> &Outlet {
        &self.local.events
    }

    /// States an event of a key, if it has subscribers.
    #[inline]
    pub(crate) fn event(&self, key: &Key<'_>, class: EventClass, name: &'static str) {
        self.local.event(&self.shared, key, class, name);
    }

    /// Number of records of a database.
    pub(crate) fn len(&mut self, database: DatabaseId) -> usize {
        self.count(database).0
    }

    /// Number of records of a database that have a deadline.
    pub(crate) fn deadlines_len(&mut self, database: DatabaseId) -> usize {
        self.count(database).1
    }

    /// Number of records of a database, and of those with a deadline.
    fn count(&mut self, database: DatabaseId) -> (usize, usize) {
        let entered = self.enter();
        let shared = Arc::clone(&self.shared);
        let index = self.find_index(database);
        let records = index.map_or_else(Records::default, |index| {
            shared.tallies.records(database, &index.counts)
        });
        if entered {
            self.leave();
        }
        // Other threads may count meanwhile, so that the removal of a record is seen without its
        // addition.
        let count = |sum: i64| usize::try_from(sum).unwrap_or(0);
        (count(records.keys), count(records.deadlines))
    }
}

impl Drop for Indexed {
    fn drop(&mut self) {
        // After a panic, the thread may be in the middle of anything.
        if self.alone {
            self.set_alone(false);
        }
        self.release_held();
        self.enter();
        for (database, index) in self.seen.iter() {
            index.counts.tell(self.local.cell.delta(database));
        }
        self.leave();
        self.hand_over_deadlines();
        self.local.tell_bytes(&self.shared);
        self.shared.gate.part(&self.member);
        self.shared.tallies.part(&self.local.cell);
    }
}

/// Returns the hash of the key that a link leads to. The caller holds the bucket.
pub(crate) fn hash_of(shared: &Shared, link: Link) -> u64 {
    let view = view_of(shared, link);
    // SAFETY: the caller holds the bucket that the link is in.
    let hash = view.map(|view| unsafe { view.with_key(|key| shared.hasher.hash(key)) });
    hash.unwrap_or(0)
}

/// Returns a closure that prefetches records.
fn prefetcher(shared: &Shared) -> impl FnMut(Link) {
    |link| {
        if let Some(offset) = link.offset() {
            shared.arena_ref().prefetch(offset);
        }
    }
}
