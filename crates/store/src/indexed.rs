//! One thread's way into the real store: what a [`crate::Handle`] is made of.
//!
//! The operations stand in modules of their own: [`crate::reader`], [`crate::writer`],
//! [`crate::locks`], [`crate::scan`], [`crate::expire`], [`crate::evict`]. Here is what they share:
//! being inside the gate, knowing the databases, growing.

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

/// The most splits one insertion pays for when the table has fallen behind.
const SPLITS_PER_INSERT: u32 = 2;

/// The most splits one lock set pays for.
const SPLITS_PER_SET: u32 = 64;

/// So often room that is to be made waits for a bucket in use: one that is held for long is not worth more.
const BUSY_MAX: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 1 << 20 };

/// One thread's way into the real store.
pub(crate) struct Indexed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) local: CachePadded<Local>,
    pub(crate) seen: Seen,
    /// Room for the places of a lock set, kept for the next.
    pub(crate) places: Vec<(DatabaseId, u64)>,
    /// When this thread last told what it counted.
    pub(crate) told_unix_ms: u64,
    /// How long records were then.
    pub(crate) record_span: RecordSpan,
    member: Arc<Member>,
    inside: bool,
    /// This thread has the store for itself.
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

    /// Goes inside, if this thread is not; whether it was not.
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

    /// Whether this thread is inside, be it alone.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside
    }

    /// Notes that this thread has the store for itself now, or no longer.
    pub(crate) fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
        self.inside = alone;
        if alone {
            self.seen.refresh(&self.shared.databases);
            self.local.in_force = self.shared.policy.load();
        }
    }

    /// Goes inside with `keys` locked and said to be held for long, at a moment when nobody else is
    /// inside. This thread is outside.
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

    /// Sees to it that this thread knows of a database's index, if there is one.
    #[inline]
    pub(crate) fn see_index(&mut self, database: DatabaseId) {
        if self.seen.get(database).is_none() {
            self.seen.refresh(&self.shared.databases);
        }
    }

    /// The index of a database, if it has one.
    #[inline]
    pub(crate) fn find_index(&mut self, database: DatabaseId) -> Option<&Arc<Index>> {
        self.see_index(database);
        self.seen.get(database)
    }

    /// Sees to it that a database has an index.
    ///
    /// # Panics
    /// When the system has no addresses left, as any allocation then would.
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

    /// Looks ahead at keys of a database.
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

    /// Splits if an insertion made the table too full. Called with no bucket held.
    #[inline]
    pub(crate) fn grow_after_insert(&mut self, database: DatabaseId) {
        if let Some(index) = self.seen.get(database)
            && index.wants_split(self.local.keys_about(index, database))
        {
            self.grow(database, 0, SPLITS_PER_INSERT);
        }
    }

    /// Splits until the table suits its records and `more`, at most `splits_max` times. Whoever comes to a bucket that is in use
    /// gives up.
    #[cold]
    pub(crate) fn grow(&mut self, database: DatabaseId, more: u64, splits_max: u32) {
        if let Some(index) = self.seen.get(database) {
            let keys = self.local.keys_about(index, database) + more;
            let _later_maybe = self.grow_to(database, keys, splits_max);
        }
    }

    /// Splits until the table suits so many records, at most `splits_max` times; what the last try came to.
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

    /// Makes the table of a database suit so many records more, which are on the way, and keeps it from becoming
    /// smaller until none are. Others may put records meanwhile: a bucket that one of them uses is waited for, where the
    /// caller has no keys locked.
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

    /// Makes up for what could not be split while buckets were held.
    pub(crate) fn grow_after_set(&mut self, database: DatabaseId) {
        if let Some(index) = self.seen.get(database)
            && index.wants_split(self.local.keys_about(index, database))
        {
            self.grow(database, 0, SPLITS_PER_SET);
        }
    }

    /// Says that a group of effects begins, or that it ended.
    pub(crate) fn group(&mut self, begins: bool) {
        match self.local.sink.as_deref_mut() {
            Some(sink) if begins => sink.group_begin(),
            Some(sink) => sink.group_end(),
            None => {}
        }
    }

    /// Says which place in a followed stream the group leads to.
    pub(crate) fn state_source(&mut self, source: &Source) {
        if let Some(sink) = self.local.sink.as_deref_mut() {
            sink.source(source);
        }
    }

    /// Where events go.
    pub(crate) fn outlet(&self) -> &Outlet {
        &self.local.events
    }

    /// Says what happened to a key, if somebody wants to know.
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
        // Others may count meanwhile, so that a record's end is seen without its beginning.
        let count = |sum: i64| usize::try_from(sum).unwrap_or(0);
        (count(records.keys), count(records.deadlines))
    }
}

impl Drop for Indexed {
    fn drop(&mut self) {
        // A panic may have left it in the middle of anything.
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

/// Hash of the key behind a link, for who holds the bucket.
pub(crate) fn hash_of(shared: &Shared, link: Link) -> u64 {
    let view = view_of(shared, link);
    // SAFETY: the caller holds the bucket that the link is in.
    let hash = view.map(|view| unsafe { view.with_key(|key| shared.hasher.hash(key)) });
    hash.unwrap_or(0)
}

/// Starts to bring records into the cache.
fn prefetcher(shared: &Shared) -> impl FnMut(Link) {
    |link| {
        if let Some(offset) = link.offset() {
            shared.arena_ref().prefetch(offset);
        }
    }
}
