//! [`Handle`]: one thread's access to the store.

use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::blob::Incoming;
use crate::effect::{Effect, EffectSink, Source};
use crate::entry::Entry;
use crate::event::{EventClass, EventSink};
use crate::free_memory::FreeMemory;
use crate::indexed::Indexed;
use crate::key::{DatabaseId, Key};
use crate::listeners::Listener;
use crate::lookahead::Lookahead;
#[cfg(any(test, feature = "naive"))]
use crate::naive::{self, NaiveHandle};
use crate::parking::{Busy, Hold, Wake};
use crate::record::{Record, Visitor};
use crate::scan::HeldLong;
use crate::snapshot::{SnapshotInProgress, SnapshotLimits, SnapshotSink, SnapshotStep};
use crate::store::{Backend, Statistics, Store};
use crate::value::{Deadline, StoreError};

/// One thread's access to the store.
///
/// Not shared: it owns the thread's free lists, counters and effect sink. Every operation uses the
/// clock sample given to [`Handle::begin`], so that one command sees one time.
pub struct Handle {
    store: Arc<Store>,
    way: Way,
}

#[cfg_attr(
    any(test, feature = "naive"),
    expect(
        clippy::large_enum_variant,
        reason = "one per thread, and on the path of every operation"
    )
)]
enum Way {
    Indexed(Indexed),
    #[cfg(any(test, feature = "naive"))]
    Naive(NaiveHandle),
}

/// Does the same with whichever backend there is.
macro_rules! with_way {
    ($way:expr, $name:ident => $body:expr) => {
        match $way {
            Way::Indexed($name) => $body,
            #[cfg(any(test, feature = "naive"))]
            Way::Naive($name) => $body,
        }
    };
}

impl Handle {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        let way = match &store.backend {
            Backend::Indexed(shared) => Way::Indexed(Indexed::new(shared)),
            #[cfg(any(test, feature = "naive"))]
            Backend::Naive(databases, hasher) => {
                Way::Naive(NaiveHandle::new(databases.clone(), hasher.clone()))
            }
        };
        Self {
            store: Arc::clone(store),
            way,
        }
    }

    /// The store this handle belongs to.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Starts a command: all its operations see the time `now_unix_ms`.
    #[inline]
    pub fn begin(&mut self, now_unix_ms: u64) {
        match &mut self.way {
            Way::Indexed(way) => way.local.set_time(now_unix_ms),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.now_unix_ms = now_unix_ms,
        }
    }

    /// The time of the running command, in milliseconds since 1970 UTC.
    #[inline]
    #[must_use]
    pub fn now_unix_ms(&self) -> u64 {
        match &self.way {
            Way::Indexed(way) => way.local.stated_unix_ms,
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.now_unix_ms,
        }
    }

    /// Notes that this thread now works on the store (a batch). Whole-store operations of other
    /// threads wait until [`Handle::leave`]. Without this call each operation enters and leaves by
    /// itself.
    #[inline]
    pub fn enter(&mut self) {
        match &mut self.way {
            Way::Indexed(way) => {
                way.enter();
            }
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Ends what [`Handle::enter`] began.
    #[inline]
    pub fn leave(&mut self) {
        match &mut self.way {
            Way::Indexed(way) => way.leave(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Does the housekeeping of one loop turn: expired records, memory accounting. Bounded work;
    /// returns `true` if more is waiting and the caller should come back soon.
    pub fn tick(&mut self, now_unix_ms: u64) -> bool {
        match &mut self.way {
            Way::Indexed(way) => way.tick(now_unix_ms),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => {
                way.tick(now_unix_ms);
                false
            }
        }
    }

    /// When [`Handle::tick`] next removes something that this thread gave a deadline to, in
    /// milliseconds since 1970 UTC. `None` if nothing will be due, or nothing is removed at
    /// present. Never later than the first deadline. Costs a load if there are no deadlines.
    #[inline]
    #[must_use]
    pub fn next_expiry_unix_ms(&self) -> Option<u64> {
        match &self.way {
            Way::Indexed(way) => way.next_expiry_unix_ms(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => None,
        }
    }

    /// Installs or removes the sink for effects.
    pub fn set_sink(&mut self, sink: Option<Box<dyn EffectSink>>) {
        match &mut self.way {
            Way::Indexed(way) => way.local.sink = sink,
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.sinks.effects = sink,
        }
    }

    /// Installs or removes the sink for events, as far as they are
    /// [wanted](Store::set_wanted_events).
    pub fn set_event_sink(&mut self, sink: Option<Box<dyn EventSink>>) {
        with_way!(&mut self.way, way => way.outlet().set(sink));
    }

    /// States an event of a key, as [`Entry::event`] does: for a command with several keys whose
    /// events come in another order than its changes. The keys must be locked.
    #[inline]
    pub fn event(&mut self, key: &Key<'_>, class: EventClass, name: &'static str) {
        with_way!(&mut self.way, way => way.event(key, class, name));
    }

    /// Returns a value of `len` bytes to be received piece by piece, if it is long enough for that.
    #[must_use]
    pub fn incoming(&self, len: usize) -> Option<Incoming> {
        match &self.way {
            Way::Indexed(way) => Incoming::new(&way.shared.slab, len),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => None,
        }
    }

    /// Grows the table of a database for `records` records that are about to be added. This is
    /// cheaper than growing step by step while they come, when each step looks at the existing
    /// records again. The table keeps that size until a call with 0 says that no more are expected.
    ///
    /// O(`records`). The caller has no keys locked.
    pub fn expect(&mut self, database: DatabaseId, records: u64) {
        if let Some(way) = self.indexed_mut() {
            way.expect(database, records);
        }
    }

    /// Returns the hash of a key's bytes under the store's secret.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        match &self.way {
            Way::Indexed(way) => way.shared.hasher.hash(bytes),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.hasher.hash(bytes),
        }
    }

    /// Returns a key of `database`.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, database: DatabaseId, bytes: &'k [u8]) -> Key<'k> {
        Key::with_hash(bytes, self.hash(bytes), database)
    }

    /// Returns a look-ahead at keys of `database` that a batch is about to touch.
    #[inline]
    #[must_use]
    pub fn lookahead(&self, database: DatabaseId) -> Lookahead<'_> {
        match &self.way {
            Way::Indexed(way) => way.lookahead(database),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => Lookahead::blind(&way.hasher),
        }
    }

    /// Looks a key up. `visit` may be run more than once (see [`Record`]); its last answer counts.
    #[inline]
    pub fn read<R>(&mut self, key: &Key<'_>, visit: impl FnMut(Option<&Record<'_>>) -> R) -> R {
        with_way!(&mut self.way, way => way.read(key, visit))
    }

    /// Shows several keys in order, as they all are at one moment. `visit` may run again from the
    /// first key on; its last run for each key counts. If the buckets have to be locked, `ahead` is
    /// called before each key.
    pub fn read_together(
        &mut self,
        keys: &[Key<'_>],
        ahead: impl Fn(&Self, usize),
        mut visit: impl FnMut(usize, Option<&Record<'_>>),
    ) {
        if let Some(way) = self.indexed_mut()
            && way.read_together_briefly(keys, &mut visit)
        {
            return;
        }
        self.locked(keys, |store| {
            for (at, key) in keys.iter().enumerate() {
                ahead(store, at);
                store.read(key, |record| visit(at, record));
            }
        });
    }

    /// As [`Handle::read`], for a visitor that is inlined into its caller.
    #[inline(always)]
    pub fn read_by<V: Visitor>(&mut self, key: &Key<'_>, visitor: V) -> V::Answer {
        match &mut self.way {
            Way::Indexed(way) => way.read_by(key, visitor),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => {
                let mut visitor = visitor;
                way.read(key, |record| {
                    visitor.forget();
                    visitor.visit(record)
                })
            }
        }
    }

    /// As [`Handle::read`], faster if the key leads to a structure and slower if it does not.
    #[inline]
    pub fn read_structure<R>(
        &mut self,
        key: &Key<'_>,
        visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        match &mut self.way {
            Way::Indexed(way) => way.read_held(key, visit),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.read(key, visit),
        }
    }

    /// Shows the records of all `keys`, as of one moment: they are [locked](Handle::locked)
    /// meanwhile. Cheaper than reading them one after the other inside a lock set, and the visitor
    /// can keep all records at the same time.
    ///
    /// The first record that does not fit is the last that is looked at and shown.
    pub fn read_all<R>(
        &mut self,
        keys: &[Key<'_>],
        fits: impl Fn(&Record<'_>) -> bool,
        visit: impl FnOnce(&[Option<Record<'_>>]) -> R,
    ) -> R {
        self.locked(
            keys,
            |store| with_way!(&mut store.way, way => way.read_all(keys, fits, visit)),
        )
    }

    /// Prefetches what looking up these elements in the structure at `key` will read: worth while
    /// for several elements of one key. Advice, which does not count as a use of the record.
    #[inline]
    pub fn prefetch_elements<'e>(
        &mut self,
        key: &Key<'_>,
        elements: impl Iterator<Item = &'e [u8]>,
    ) {
        match &mut self.way {
            Way::Indexed(way) => way.glance(key, |object| object.prefetch(elements)),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// As [`Handle::read`], but does not count as a use of the record (TYPE, TTL, OBJECT …).
    pub fn peek<R>(&mut self, key: &Key<'_>, visit: impl FnMut(Option<&Record<'_>>) -> R) -> R {
        let before = self.note_use(false);
        let answer = self.read(key, visit);
        self.note_use(before);
        answer
    }

    /// As [`Handle::peek`], but a missing key is no event: for commands that ask about a record
    /// (OBJECT) or look at it before they change it (LMOVE).
    pub fn inspect<R>(&mut self, key: &Key<'_>, visit: impl FnMut(Option<&Record<'_>>) -> R) -> R {
        let before = with_way!(&mut self.way, way => way.outlet().hide_misses(true));
        let answer = self.peek(key, visit);
        with_way!(&mut self.way, way => way.outlet().hide_misses(before));
        answer
    }

    /// As [`Handle::inspect`], but an expired key that was not removed yet is shown, and stays
    /// (DEBUG OBJECT).
    pub fn inspect_expired<R>(
        &mut self,
        key: &Key<'_>,
        visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        self.see_expired(true);
        let answer = self.inspect(key, visit);
        self.see_expired(false);
        answer
    }

    fn see_expired(&mut self, on: bool) {
        match &mut self.way {
            Way::Indexed(way) => way.local.sees_expired = on,
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Sets whether [`Handle::read`] counts as a use of what it finds (CLIENT NO-TOUCH). Returns
    /// the previous setting. Initially it does.
    pub fn note_use(&mut self, on: bool) -> bool {
        match &mut self.way {
            Way::Indexed(way) => std::mem::replace(&mut way.local.notes_use, on),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => true,
        }
    }

    /// Makes a key hold a string, whatever it held. `state` states the change (see
    /// [`Entry::effect`] and [`Entry::event`]).
    ///
    /// # Errors
    /// As [`Entry::set`].
    #[inline]
    pub fn upsert(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        deadline: Deadline,
        state: impl FnOnce(&mut Entry<'_>),
    ) -> Result<(), StoreError> {
        let set = |entry: &mut Entry<'_>| {
            entry.set(value, deadline)?;
            state(entry);
            Ok(())
        };
        match &mut self.way {
            Way::Indexed(way) => {
                let bytes = matches!(deadline, Deadline::Never).then_some(value);
                way.modify_for(key, bytes, set)
            }
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.modify(key, set),
        }
    }

    /// Changes a key under its lock: `change` sees the record, if any, and may replace, alter or
    /// remove it. It runs exactly once.
    #[inline]
    pub fn modify<R>(&mut self, key: &Key<'_>, change: impl FnOnce(&mut Entry<'_>) -> R) -> R {
        with_way!(&mut self.way, way => way.modify(key, change))
    }

    /// Deletes a key. Returns whether it existed. `state` states the change (see [`Entry::effect`]
    /// and [`Entry::event`]) and runs only if it did.
    #[inline]
    pub fn delete(&mut self, key: &Key<'_>, state: impl FnOnce(&mut Entry<'_>)) -> bool {
        self.modify(key, |entry| {
            let existed = entry.remove();
            if existed {
                state(entry);
            }
            existed
        })
    }

    /// Walks a database: visits the records of the next intervals after `cursor` (0: the beginning)
    /// until about `count` were visited. Returns the next cursor (0: the end). It stops earlier if
    /// there is little to find.
    ///
    /// A record that exists during a whole walk is visited at least once. `visit` must not call
    /// back into the store.
    pub fn scan(
        &mut self,
        database: DatabaseId,
        cursor: u64,
        count: usize,
        visit: impl FnMut(&Record<'_>),
    ) -> u64 {
        with_way!(&mut self.way, way => way.scan(database, cursor, count, HeldLong::Awaited, visit))
    }

    /// As [`Handle::scan`], for a caller that must not wait for a long command: keys that such a
    /// command holds are skipped, so that a walk may miss them.
    pub fn survey(
        &mut self,
        database: DatabaseId,
        cursor: u64,
        count: usize,
        visit: impl FnMut(&Record<'_>),
    ) -> u64 {
        with_way!(&mut self.way, way => way.scan(database, cursor, count, HeldLong::PassedBy, visit))
    }

    /// Runs `body` with all of `keys` locked, so that what it does to them is one step for every
    /// other thread. Inside, the operations of this handle may touch those keys and no others. Keys
    /// may repeat and come in any order. Calls may be nested if the inner keys are already held.
    ///
    /// # Panics
    /// If `body` touches a key that is not held.
    pub fn locked<R>(&mut self, keys: &[Key<'_>], body: impl FnOnce(&mut Self) -> R) -> R {
        let Some(way) = self.indexed_mut() else {
            return self.exclusive(body);
        };
        if way.holds_several() {
            return body(self);
        }
        let entered = way.enter();
        way.lock_set(keys);
        self.run_locked(keys, entered, body)
    }

    /// As [`Handle::locked`], but does not wait if another thread holds one of the keys for long.
    /// `hold` may declare that `body` will take long: then other threads need not wait in place for
    /// these keys either. The caller has no keys locked, or all of these.
    ///
    /// # Errors
    /// [`Busy`], and nothing was done: do something else until [`Handle::park`] calls.
    pub fn try_locked<R>(
        &mut self,
        keys: &[Key<'_>],
        hold: Hold,
        body: impl FnOnce(&mut Self) -> R,
    ) -> Result<R, Busy> {
        let Some(way) = self.indexed_mut() else {
            return Ok(self.exclusive(body));
        };
        if way.holds_several() {
            return Ok(body(self));
        }
        let entered = way.enter();
        let locked = way.try_lock_set(keys, hold);
        if locked.is_err() && entered {
            way.leave();
        }
        locked.map(|()| self.run_locked(keys, entered, body))
    }

    /// As [`Handle::locked`], for a `body` that may take long. The keys are taken while no other
    /// handle is [inside](Handle::enter). So a thread that is inside and finds that [nothing is
    /// held](Handle::may_be_busy) need not ask again before it leaves, and never waits for `body`.
    /// The caller has no keys locked. Waits for other threads that hold some of the keys for long.
    pub fn locked_long<R>(&mut self, keys: &[Key<'_>], body: impl FnOnce(&mut Self) -> R) -> R {
        let Some(way) = self.indexed_mut() else {
            return self.exclusive(body);
        };
        debug_assert!(!way.holds_several(), "keys are locked already");
        let was_inside = way.is_inside();
        way.leave();
        way.enter_with_long(keys);
        self.run_locked(keys, !was_inside, body)
    }

    /// Whether a key may be touched inside [`Handle::locked`]: it is among the locked keys, or this
    /// thread has the whole store.
    #[must_use]
    pub fn holds(&self, key: &Key<'_>) -> bool {
        match &self.way {
            Way::Indexed(way) => way.holds(key),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.is_alone(),
        }
    }

    /// Locks further keys inside [`Handle::locked`], for as long as the keys that are already
    /// locked. Other threads that lock several keys may wait for each other and for these, so this
    /// gives up after some time.
    ///
    /// # Errors
    /// [`Busy`], and some of the keys may be locked now.
    pub fn lock_more(&mut self, keys: &[Key<'_>]) -> Result<(), Busy> {
        match self.indexed_mut() {
            Some(way) => way.lock_more(keys),
            None => Ok(()),
        }
    }

    /// Whether this thread has the whole store.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        match &self.way {
            Way::Indexed(way) => way.is_alone(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.is_alone(),
        }
    }

    /// Whether some keys were held for long a moment ago: one load. If not, no operation of this
    /// handle waits long.
    #[inline]
    #[must_use]
    pub fn may_be_busy(&self) -> bool {
        match &self.way {
            Way::Indexed(way) => way.shared.parking.has_long(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => false,
        }
    }

    /// Registers `wake`, to be called when it is worth trying again with `keys`, one of which was
    /// held for long. If none is any more, returns `false` and drops `wake`. An operation on a key
    /// that is held for long waits in place until the key is released; a caller with other work
    /// asks here first.
    pub fn park(&mut self, keys: &[Key<'_>], wake: Wake) -> bool {
        self.indexed_mut().is_some_and(|way| way.park(keys, wake))
    }

    /// Runs `body` with a lock set that was just taken, and releases it.
    #[inline]
    fn run_locked<R>(
        &mut self,
        keys: &[Key<'_>],
        entered: bool,
        body: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if let Some(way) = self.indexed_mut() {
            way.group(true);
        }
        let release = Release(self);
        let answer = body(release.0);
        if let Some(way) = release.0.indexed_mut() {
            way.group(false);
        }
        drop(release);
        if let Some(way) = self.indexed_mut() {
            way.grow_after(keys);
            if entered {
                way.leave();
            }
        }
        answer
    }

    /// Whether this thread holds [keys](Handle::locked), but not the whole store.
    #[must_use]
    pub fn holds_keys(&self) -> bool {
        match &self.way {
            Way::Indexed(way) => !way.is_alone() && way.holds_several(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => false,
        }
    }

    /// Runs `body` while no other thread is in the store (FLUSHALL, SWAPDB …). The caller has no
    /// keys locked.
    pub fn exclusive<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let Some(way) = self.indexed_mut() else {
            return self.exclusive_naive(body);
        };
        if way.is_alone() {
            return body(self);
        }
        debug_assert!(!way.holds_several(), "keys are locked");
        let shared = way.shared.clone();
        let was_inside = way.is_inside();
        way.leave();
        let answer = shared.gate.alone(|| {
            self.set_alone(true);
            let answer = body(self);
            self.set_alone(false);
            answer
        });
        if was_inside {
            self.enter();
        }
        answer
    }

    #[cfg(not(any(test, feature = "naive")))]
    fn exclusive_naive<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        body(self)
    }

    #[cfg(any(test, feature = "naive"))]
    fn exclusive_naive<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        fn naive_mut(handle: &mut Handle) -> Option<&mut NaiveHandle> {
            match &mut handle.way {
                Way::Naive(way) => Some(way),
                Way::Indexed(_) => None,
            }
        }
        naive::alone(self, naive_mut, body)
    }

    /// Returns the real backend for reading, if it is one.
    #[inline]
    pub(crate) fn indexed_ref(&self) -> Option<&Indexed> {
        match &self.way {
            Way::Indexed(way) => Some(way),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => None,
        }
    }

    /// Returns the real backend, if it is one.
    #[inline]
    pub(crate) fn indexed_mut(&mut self) -> Option<&mut Indexed> {
        match &mut self.way {
            Way::Indexed(way) => Some(way),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => None,
        }
    }

    fn set_alone(&mut self, alone: bool) {
        let Some(way) = self.indexed_mut() else {
            return;
        };
        if alone {
            way.set_alone(true);
            way.group(true);
        } else {
            way.group(false);
            way.set_alone(false);
        }
    }

    /// Whether any structure ever had a member with a deadline.
    #[must_use]
    pub fn has_member_deadlines(&self) -> bool {
        match &self.way {
            Way::Indexed(way) => way.shared.has_member_deadlines.load(Ordering::Relaxed),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => true,
        }
    }

    /// Number of keys of a database, including expired ones that are not yet freed.
    pub fn len(&mut self, database: DatabaseId) -> usize {
        with_way!(&mut self.way, way => way.len(database))
    }

    /// Number of keys of a database that have a deadline.
    pub fn expiring_len(&mut self, database: DatabaseId) -> usize {
        with_way!(&mut self.way, way => way.deadlines_len(database))
    }

    /// Returns a live key of the database, chosen by `random`, or `None` if there is none.
    pub fn random_key(&mut self, database: DatabaseId, random: u64) -> Option<Vec<u8>> {
        with_way!(&mut self.way, way => way.random_key(database, random))
    }

    /// Empties one database, or all (`None`), as one step for every other thread; the memory is
    /// freed in the background. Returns the number of removed keys.
    pub fn flush(&mut self, database: Option<DatabaseId>) -> usize {
        let all = 0..self.store.databases();
        self.exclusive(|handle| {
            all.filter(|id| database.is_none_or(|one| one == *id))
                .map(|id| with_way!(&mut handle.way, way => way.flush(id)))
                .sum()
        })
    }

    /// Swaps the contents of two databases, as one step for every other thread.
    pub fn swap(&mut self, one: DatabaseId, other: DatabaseId) {
        self.exclusive(|handle| with_way!(&mut handle.way, way => way.swap(one, other)));
    }

    /// Begins a group: the effects stated until [`Handle::end_group`] apply together or not at all.
    /// Their keys are not locked together, so the caller must be the only writer.
    pub fn begin_group(&mut self) {
        with_way!(&mut self.way, way => way.group(true));
    }

    /// Ends the group that [`Handle::begin_group`] began.
    pub fn end_group(&mut self) {
        with_way!(&mut self.way, way => way.group(false));
    }

    /// States, within a group, the position in a followed stream that its effects lead to.
    pub fn state_source(&mut self, source: &Source) {
        with_way!(&mut self.way, way => way.state_source(source));
    }

    /// States an effect on the whole store (FLUSHALL, SWAPDB); inside [`Handle::exclusive`].
    pub fn effect(&mut self, database: DatabaseId, state: impl FnOnce(&mut Effect<'_>)) {
        let sink = match &mut self.way {
            Way::Indexed(way) => {
                way.local.cell.events.changes.count();
                way.local.choose_side(&way.shared);
                way.local.told_sink()
            }
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.sinks.effects.as_deref_mut(),
        };
        if let Some(sink) = sink {
            state(&mut Effect::new(sink, database));
        }
    }

    /// States something that changes nothing in the store and is only for replicas (PUBLISH). It
    /// comes after what this handle stated before, and counts as no change.
    pub fn effect_for_followers(
        &mut self,
        database: DatabaseId,
        state: impl FnOnce(&mut Effect<'_>),
    ) {
        let sink = match &mut self.way {
            Way::Indexed(way) => way.local.told_sink(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.sinks.effects.as_deref_mut(),
        };
        if let Some(sink) = sink {
            state(&mut Effect::new(sink, database));
        }
    }

    /// Number of effects that this handle has stated so far, whether there was a sink or not.
    #[must_use]
    pub fn stated_count(&self) -> u64 {
        match &self.way {
            Way::Indexed(way) => way.local.cell.events.changes.get(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(way) => way.sinks.changes,
        }
    }

    /// Registers a listener for a key, which need not exist; only once, however often this is
    /// called. If keys are locked, the key must be one of these.
    pub fn listen(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        with_way!(&mut self.way, way => way.listen(key, listener));
    }

    /// Removes a registration: after this call the listener is no longer notified of the key. If
    /// keys are locked, the key must be one of these.
    pub fn unlisten(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        with_way!(&mut self.way, way => way.unlisten(key, listener));
    }

    /// As [`Handle::unlisten`], but does not wait for a holder of the key: its bucket learns at the
    /// next change that it has no listener any more.
    pub fn unlisten_aside(&mut self, key: &Key<'_>, listener: &Arc<dyn Listener>) {
        match &self.way {
            Way::Indexed(way) => way.shared.listeners.remove(key, listener),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => self.unlisten(key, listener),
        }
    }

    /// Sets the author of the changes from now on (see [`crate::KeyChange::author`]).
    #[inline]
    pub fn set_author(&mut self, author: u64) {
        with_way!(&mut self.way, way => way.teller_mut().author = author);
    }

    /// Whether this handle changed a key that is to be [served](Handle::take_served).
    #[inline]
    #[must_use]
    pub fn has_served(&self) -> bool {
        with_way!(&self.way, way => !way.teller().served.is_empty())
    }

    /// Takes the keys that listeners want [served](crate::Interest::Serve), since the last call:
    /// each once, in the order of their first changes.
    pub fn take_served(&mut self) -> Vec<(DatabaseId, Box<[u8]>)> {
        with_way!(&mut self.way, way => std::mem::take(&mut way.teller_mut().served))
    }

    /// Whether free memory suffices for `records` records whose keys and values have `bytes` bytes,
    /// for a command that writes all of them or none. Loads two numbers.
    pub fn free_memory_for(
        &mut self,
        database: DatabaseId,
        records: usize,
        bytes: usize,
    ) -> FreeMemory {
        self.indexed_mut().map_or(FreeMemory::Ample, |way| {
            way.free_memory_for(database, records, bytes)
        })
    }

    /// Ensures that `bytes` more may be held, and evicts by the policy if need be. Called before
    /// any lock is taken: here a writer waits a moment if a snapshot holds too much.
    ///
    /// # Errors
    /// [`StoreError::OutOfMemory`] if `maxmemory` is reached and the policy frees nothing.
    #[inline]
    pub fn make_room(&mut self, bytes: usize) -> Result<(), StoreError> {
        match &mut self.way {
            Way::Indexed(way) => way.make_room(bytes),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => Ok(()),
        }
    }

    /// Sets whether [`Handle::make_room`] ignores the memory limit: for a caller that restores what
    /// was held before. Initially it does not.
    pub fn set_unlimited(&mut self, on: bool) {
        match &mut self.way {
            Way::Indexed(way) => way.local.is_unlimited = on,
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Sets whether nothing expires for this handle, whatever the time: for a caller that applies
    /// effects of another server, which saw the keys as live when it ran. Effects are marked with
    /// the time all the same. Initially off.
    pub fn set_ageless(&mut self, on: bool) {
        match &mut self.way {
            Way::Indexed(way) => way.local.set_ageless(on),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Makes a cut: from now on `sink` is given every record as it is at this moment, while the
    /// store is read and written. A caller must call [`Handle::advance_snapshot`] until the
    /// snapshot is over. Returns the generation that begins with the cut. Waits for a thread that
    /// has the store for itself. The caller has no keys locked.
    ///
    /// # Errors
    /// [`SnapshotInProgress`] while an earlier snapshot is not over.
    pub fn begin_snapshot(
        &mut self,
        sink: Box<dyn SnapshotSink>,
        limits: SnapshotLimits,
    ) -> Result<u64, SnapshotInProgress> {
        let begun = self.begin_snapshot_and(sink, limits, || ());
        begun.map(|(generation, ())| generation)
    }

    /// As [`Handle::begin_snapshot`], and calls `look` right after the cut, before another batch of
    /// a follower is applied ([`Store::batch_turn`]): a stream position read there is that of the
    /// cut.
    ///
    /// # Errors
    /// [`SnapshotInProgress`] while an earlier snapshot is not over; then `look` is not called.
    pub fn begin_snapshot_and<R>(
        &mut self,
        sink: Box<dyn SnapshotSink>,
        limits: SnapshotLimits,
        look: impl FnOnce() -> R,
    ) -> Result<(u64, R), SnapshotInProgress> {
        let store = Arc::clone(&self.store);
        let (is_alone, was_inside) = self
            .indexed_mut()
            .map_or((false, false), |way| (way.is_alone(), way.is_inside()));
        // The thread that has the turn may need all other threads outside.
        if was_inside && !is_alone {
            self.leave();
        }
        let turn = (!is_alone).then(|| store.batch_turn());
        let begun = with_way!(&mut self.way, way => way.begin_snapshot(sink, limits));
        let begun = begun.map(|generation| (generation, look()));
        drop(turn);
        if was_inside && !is_alone {
            self.enter();
        }
        begun
    }

    /// Continues the snapshot in progress: passes at most `buckets` buckets (some five records
    /// each) and gives the sink what is ready, on this thread. For one thread or several in turn,
    /// preferably outside of a batch, because the sink may take its time. The caller has no keys
    /// locked.
    pub fn advance_snapshot(&mut self, buckets: usize) -> SnapshotStep {
        with_way!(&mut self.way, way => way.advance_snapshot(buckets))
    }

    /// Whether writers should wait a moment before they take their first lock, because a snapshot
    /// holds as much memory as it should. One load while there is none.
    #[inline]
    #[must_use]
    pub fn should_back_off(&self) -> bool {
        match &self.way {
            Way::Indexed(way) => way.shared.snapshots.is_pressing(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => false,
        }
    }

    /// Number of times that this thread armed for deadlines.
    #[cfg(test)]
    pub(crate) fn armed_len(&mut self) -> usize {
        self.indexed_mut()
            .map_or(0, |way| way.local.deadlines.len())
    }

    /// Number of buckets that this thread looked into for eviction.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn looked(&mut self) -> u64 {
        self.indexed_mut().map_or(0, |way| way.local.evictor.looked)
    }

    /// Returns the free slots of this thread to the shared pool.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn give_slots_back(&mut self) {
        if let Some(way) = self.indexed_mut() {
            let fresh = way.shared.slab.cache();
            drop(std::mem::replace(&mut way.local.cache, fresh));
        }
    }

    /// Merges the last bucket of a database. Returns whether this succeeded.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn merge(&mut self, database: DatabaseId) -> bool {
        let index = self.indexed_mut().and_then(|way| way.find_index(database));
        index.is_some_and(|index| index.merge() == crate::shrink::Merge::Done)
    }

    /// Number of home buckets of a database.
    #[cfg(test)]
    pub(crate) fn buckets(&mut self, database: DatabaseId) -> u64 {
        let index = self.indexed_mut().and_then(|way| way.find_index(database));
        index.map_or(0, |index| index.state().buckets())
    }

    /// Number of overflow buckets of a database.
    #[cfg(test)]
    pub(crate) fn overflow_buckets(&mut self, database: DatabaseId) -> u64 {
        let index = self.indexed_mut().and_then(|way| way.find_index(database));
        index.map_or(0, |index| index.overflow().in_use())
    }

    /// Returns free memory inside the store to the system (MEMORY PURGE).
    pub fn purge(&mut self) {
        match &mut self.way {
            Way::Indexed(way) => way.purge(),
            #[cfg(any(test, feature = "naive"))]
            Way::Naive(_) => {}
        }
    }

    /// Reports this thread's own memory counts to the shared counters.
    pub fn tell_memory(&mut self) {
        if let Some(way) = self.indexed_mut() {
            let shared = Arc::clone(&way.shared);
            way.local.tell_bytes(&shared);
        }
    }

    /// Counters of the store.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.store.statistics()
    }
}

/// Releases a lock set when dropped.
struct Release<'h>(&'h mut Handle);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if let Some(way) = self.0.indexed_mut() {
            way.release_held();
        }
    }
}
