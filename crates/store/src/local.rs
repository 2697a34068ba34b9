//! State of one thread: free slots, counters, deadlines, locks it holds, the sink.
//!
//! All deletions go through one function here, [`Local::remove`]; those that no command asked for
//! go through [`Local::remove_unasked`].

use std::sync::Arc;

use crate::accounting::LocalBytes;
use crate::blob::Blob;
use crate::bucket::{BUCKET_BYTES, Bucket, Link};
use crate::clock::Clock;
use crate::databases::Seen;
use crate::deadlines::Deadlines;
use crate::effect::EffectSink;
use crate::event::{Event, EventClass, Outlet};
use crate::evict::Evictor;
use crate::heap;
use crate::index::{Home, Index, Spot};
use crate::key::{DatabaseId, Key};
use crate::layout::{Form, View};
use crate::listeners::{ChangeKind, Teller};
use crate::policy::InForce;
use crate::shared::Shared;
use crate::slab::SlabCache;
use crate::tally::{self, Records};
use crate::value::Cause;

/// State of one thread.
pub(crate) struct Local {
    pub(crate) cache: SlabCache,
    pub(crate) cell: Arc<tally::Cell>,
    pub(crate) sink: Option<Box<dyn EffectSink>>,
    pub(crate) events: Outlet,
    /// The time that deadlines are compared with: that of the running command, or 0 for an ageless
    /// thread.
    pub(crate) now_unix_ms: u64,
    /// The time that effects and uses are marked with: that of the running command.
    pub(crate) stated_unix_ms: u64,
    /// All ones, or 0 for an ageless thread, for which nothing expires.
    time_mask: u64,
    pub(crate) held: Vec<Held>,
    /// Number of records that came or went while `held` is held, by database.
    held_counts: Vec<(DatabaseId, Records)>,
    pub(crate) deadlines: Deadlines,
    pub(crate) evictor: Evictor,
    pub(crate) in_force: InForce,
    /// Whether a look-up counts as a use of the record.
    pub(crate) notes_use: bool,
    /// Whether a look shows expired records that still exist.
    pub(crate) sees_expired: bool,
    /// Whether this thread's writes ignore the memory limit.
    pub(crate) is_unlimited: bool,
    /// The side of the cut that the write in progress is on (see [`crate::snapshot`]).
    pub(crate) generation: u64,
    /// Whether the buckets held are marked as held for long.
    pub(crate) holds_long: bool,
    /// What listeners of keys and this thread tell each other.
    pub(crate) teller: Teller,
    /// Number of the buffer in which this thread saves records for a snapshot.
    pub(crate) buffer: usize,
    index_bytes: LocalBytes,
    object_bytes: LocalBytes,
    /// The bucket that this thread last put a stub into.
    pub(crate) last_swap: Option<LastSwap>,
}

/// A bucket of an index in which this thread put a stub: its version when the values were copied,
/// and its version afterwards. So all values of one bucket that were copied together may be
/// demoted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSwap {
    pub(crate) index: u64,
    pub(crate) bucket: u64,
    pub(crate) copied_at: u64,
    pub(crate) version: u64,
}

/// A bucket that a lock set holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) database: DatabaseId,
    pub(crate) home: Home,
    pub(crate) changed: bool,
}

impl Local {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            cache: shared.slab.cache(),
            cell: shared.tallies.join(),
            sink: None,
            events: Outlet::default(),
            now_unix_ms: 0,
            stated_unix_ms: 0,
            time_mask: u64::MAX,
            held: Vec::new(),
            held_counts: Vec::new(),
            deadlines: Deadlines::default(),
            evictor: Evictor::new(),
            in_force: shared.policy.load(),
            notes_use: true,
            sees_expired: false,
            is_unlimited: false,
            generation: 0,
            holds_long: false,
            teller: Teller::default(),
            buffer: shared.snapshots.assign_buffer(),
            index_bytes: LocalBytes::default(),
            object_bytes: LocalBytes::default(),
            last_swap: None,
        }
    }

    /// Sets the time of the running command.
    #[inline]
    pub(crate) fn set_time(&mut self, now_unix_ms: u64) {
        self.stated_unix_ms = now_unix_ms;
        self.now_unix_ms = now_unix_ms & self.time_mask;
    }

    /// Sets whether this thread is ageless: nothing expires for it, whatever the time.
    pub(crate) fn set_ageless(&mut self, on: bool) {
        self.time_mask = if on { 0 } else { u64::MAX };
    }

    /// The clock for records that are written or used now.
    #[inline]
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.in_force, self.stated_unix_ms)
    }

    /// Returns which of the held buckets is the one of `hash`.
    ///
    /// # Panics
    /// If none is: command code touched a key that it had not declared, and would wait for another
    /// lock while it holds some.
    pub(crate) fn held_at(&self, index: &Index, database: DatabaseId, hash: u64) -> usize {
        let home = index.state().home(hash);
        let wanted = (database, home.first_position());
        let found = self
            .held
            .binary_search_by_key(&wanted, |held| (held.database, held.home.first_position()));
        found.expect("a key outside of the lock set was touched")
    }

    /// Counts a record that came (1) or went (-1).
    #[inline]
    pub(crate) fn count_keys(&mut self, index: &Index, database: DatabaseId, change: i64) {
        if !self.held.is_empty() {
            self.held_records(database).keys += change;
            return;
        }
        let delta = self.cell.delta(database);
        if delta.keys.add(change) {
            index.counts.tell(delta);
        }
    }

    /// Counts a deadline that came (1) or went (-1).
    #[inline]
    pub(crate) fn count_deadlines(&mut self, index: &Index, database: DatabaseId, change: i64) {
        if !self.held.is_empty() {
            self.held_records(database).deadlines += change;
            return;
        }
        let delta = self.cell.delta(database);
        if delta.deadlines.add(change) {
            index.counts.tell(delta);
        }
    }

    /// The records that came and went in a database while the lock set is held. All of them are
    /// reported at once, because other threads would otherwise count half of the change.
    fn held_records(&mut self, database: DatabaseId) -> &mut Records {
        let known = self.held_counts.iter().position(|one| one.0 == database);
        let at = known.unwrap_or(self.held_counts.len());
        if known.is_none() {
            self.held_counts.push((database, Records::default()));
        }
        &mut self.held_counts[at].1
    }

    /// Reports what came and went while the lock set was held. It is still held.
    pub(crate) fn tell_held_counts(&mut self, databases: &Seen) {
        for (database, records) in self.held_counts.drain(..) {
            let delta = self.cell.delta(database);
            let many_keys = delta.keys.add(records.keys);
            let many_deadlines = delta.deadlines.add(records.deadlines);
            if let Some(index) = databases.get(database)
                && (many_keys || many_deadlines)
            {
                index.counts.tell(delta);
            }
        }
    }

    /// Number of records of an index, as far as this thread knows: other threads may have counted a
    /// few more or less.
    #[inline]
    pub(crate) fn keys_about(&self, index: &Index, database: DatabaseId) -> u64 {
        let own = self.cell.delta(database).keys.get();
        (index.counts.about().keys + own).max(0).unsigned_abs()
    }

    /// Counts buckets of an index that came (positive) or went.
    pub(crate) fn count_buckets(&mut self, shared: &Shared, change: i64) {
        #[expect(clippy::cast_possible_wrap, reason = "64")]
        if let Some(due) = self.index_bytes.add(change * BUCKET_BYTES as i64) {
            shared.ledger.add(due);
        }
    }

    /// Counts a change of the bytes that objects take.
    #[inline]
    pub(crate) fn count_object(&mut self, shared: &Shared, before_bytes: u64, now_bytes: u64) {
        let change = now_bytes.wrapping_sub(before_bytes).cast_signed();
        if let Some(due) = self.object_bytes.add(change) {
            shared.ledger.add(due);
        }
    }

    /// Takes an object out of its record, and subtracts it from the counts.
    ///
    /// # Safety
    /// The caller holds the record's bucket, the record is one of an object, and its words are not
    /// used again.
    pub(crate) unsafe fn take_object(
        &mut self,
        shared: &Shared,
        view: &View<'_>,
    ) -> Option<Box<structures::Object>> {
        self.count_object(shared, heap::counted_bytes(view), 0);
        // SAFETY: passed on to the caller.
        unsafe { heap::take(view) }
    }

    /// Bytes that this thread counted and the ledger does not know yet.
    #[inline]
    pub(crate) fn pending_bytes(&self) -> i64 {
        self.cache.pending_bytes() + self.index_bytes.pending() + self.object_bytes.pending()
    }

    /// Reports the bytes that this thread counted to the ledger.
    pub(crate) fn tell_bytes(&mut self, shared: &Shared) {
        self.cache.flush();
        shared.ledger.add(self.index_bytes.take());
        shared.ledger.add(self.object_bytes.take());
    }

    /// Frees the slot of a record that no link names any more, and everything that the record owns.
    ///
    /// # Safety
    /// The caller holds the bucket that the record was in, and the record is not used again.
    pub(crate) unsafe fn free(&mut self, shared: &Shared, view: &View<'_>) {
        // SAFETY: passed on to the caller.
        unsafe { self.free_value(shared, view) };
        if let Some(word) = view.long_key_word() {
            // SAFETY: as above, for the key.
            unsafe { Blob::from_raw(word) }.free(&shared.lazy);
        }
        self.cache.free(view.offset(), view.class());
    }

    /// Frees what the value of a record leads to, if anything.
    ///
    /// # Safety
    /// The caller holds the bucket that the record was in, and its value is not used again.
    #[inline]
    pub(crate) unsafe fn free_value(&mut self, shared: &Shared, view: &View<'_>) {
        match view.form() {
            Form::Bytes | Form::ChangedBytes | Form::Integer => {}
            // SAFETY: the word of a blob's record owns one reference to it, which ends with the
            // record.
            Form::Blob => unsafe { Blob::from_raw(view.value_word()) }.free(&shared.lazy),
            Form::Object | Form::Compact => {
                self.count_object(shared, heap::counted_bytes(view), 0);
                // SAFETY: passed on to the caller.
                unsafe { heap::free(view, &shared.lazy) };
            }
            Form::Cold => shared.cold().forget(view.value_word()),
        }
    }

    /// Returns the sink, if there is one, after passing it the generation and time of the write in
    /// progress.
    #[inline]
    pub(crate) fn told_sink(&mut self) -> Option<&mut (dyn EffectSink + 'static)> {
        let sink = self.sink.as_deref_mut()?;
        sink.stands(self.generation, self.stated_unix_ms);
        Some(sink)
    }

    /// Removes a record from the store. All deletions go through this function. The caller holds
    /// `home`.
    pub(crate) fn remove(
        &mut self,
        shared: &Shared,
        index: &Index,
        database: DatabaseId,
        home: &Bucket,
        spot: Spot<'_>,
    ) {
        debug_assert!(!home.is_behind(self.generation), "not saved first");
        index.remove(home, spot);
        self.count_keys(index, database, -1);
        if spot.link.has(Link::DEADLINE) {
            self.count_deadlines(index, database, -1);
        }
        if let Some(view) = view_of(shared, spot.link) {
            if let Some(slots) = self.cell.slots() {
                // SAFETY: the bucket is held.
                unsafe { view.with_key(|key| slots.count(database, key, -1)) };
            }
            // SAFETY: the bucket is held, and the record's only link is gone.
            unsafe { self.free(shared, &view) };
        }
    }

    /// Removes a record that no client asked to remove, and states that. The caller holds `home`.
    pub(crate) fn remove_unasked(
        &mut self,
        shared: &Shared,
        index: &Index,
        database: DatabaseId,
        home: &Bucket,
        spot: Spot<'_>,
        cause: Cause,
    ) {
        match cause {
            Cause::Expired => self.cell.events.expired.count(),
            Cause::Evicted => self.cell.events.evicted.count(),
        }
        if let (Some(sink), Some(view)) = (self.told_sink(), view_of(shared, spot.link)) {
            // SAFETY: the caller holds the bucket.
            unsafe { view.with_key(|key| sink.removed(database, key, cause)) };
        }
        let (class, name) = Event::of_cause(cause);
        self.event_behind(shared, database, spot.link, class, name);
        if home.is_listened() {
            let scene = Scene {
                shared,
                index,
                home,
            };
            let kind = match cause {
                Cause::Expired => ChangeKind::Expired,
                Cause::Evicted => ChangeKind::Evicted,
            };
            self.tell_of(scene, database, spot.link, kind);
        }
        self.remove(shared, index, database, home, spot);
    }

    /// States an event of the key that a link leads to, if it has subscribers. The caller holds the
    /// bucket.
    pub(crate) fn event_behind(
        &self,
        shared: &Shared,
        database: DatabaseId,
        link: Link,
        class: EventClass,
        name: &'static str,
    ) {
        if shared.wanted_events.has(class)
            && let Some(view) = view_of(shared, link)
        {
            // SAFETY: the caller holds the bucket.
            unsafe {
                view.with_key(|key| {
                    self.events.tell(&Event {
                        class,
                        name,
                        database,
                        key,
                    });
                });
            }
        }
    }

    /// States an event, if it has subscribers.
    #[inline]
    pub(crate) fn event(
        &self,
        shared: &Shared,
        key: &Key<'_>,
        class: EventClass,
        name: &'static str,
    ) {
        if shared.wanted_events.has(class) {
            self.events.tell(&Event {
                class,
                name,
                database: key.database(),
                key: key.bytes(),
            });
        }
    }
}

/// The bucket of a change. The caller holds it.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'s> {
    pub(crate) shared: &'s Shared,
    pub(crate) index: &'s Index,
    pub(crate) home: &'s Bucket,
}

/// Returns the record that a link leads to. The caller holds the bucket.
#[inline]
pub(crate) fn view_of(shared: &Shared, link: Link) -> Option<View<'_>> {
    View::held(shared.arena_ref(), link.offset()?)
}
