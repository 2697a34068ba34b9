//! Eviction: records are removed when the process holds more than it may.
//!
//! A writer evicts before it takes any lock, for as much as it is about to add, so that the limit
//! holds at any time and no writer pays for more than a few victims. If memory grows without a
//! write, for client buffers, housekeeping evicts.
//!
//! * LRU policies: a hand goes round the buckets and takes the records that were not used since it
//!   last passed. Use is a mark in the link, so the hand looks at no record but its victims. The
//!   hand is shared: many threads advance it. Measured on stationary traces this misses less often
//!   than LRU itself, because new records start unmarked and scans wash through.
//! * LFU and TTL: some records are sampled, and the best victims among them are remembered for
//!   later ([`sample`]).
//! * Random: a record of a random bucket.
//! * If only records with a deadline may be evicted, groups of buckets without any are skipped
//!   ([`crate::deadline_map`]).
//!
//! Databases take turns. A turn lasts as long as the hand needs for a part of the database's
//! buckets.

mod sample;

use base::random::Prng;
use base::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::arena::distance;
use crate::before_writes::BeforeWrites;
use crate::blob::Blob;
use crate::bucket::{Bucket, LINKS, Link};
use crate::deadline_map::GROUP_BUCKETS;
use crate::heap;
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::layout::{Form, View};
use crate::local::{Local, view_of};
use crate::policy::Policy;
use crate::shared::Shared;
use crate::slab::class_bytes;
use crate::value::{Cause, StoreError};
use sample::Sampled;

/// A call frees this many times the bytes that it is about to add before it may leave the rest to
/// other calls. So a debt goes down whatever the sizes of new and evicted records.
const DUE_TIMES: u64 = 2;

/// Part of the limit that is evicted beyond the need, so that the next calls need not evict.
const AHEAD_PART: u64 = 512;
const AHEAD_BYTES_MAX: u64 = 32 << 10;

/// How often a writer yields to other threads while deleted objects are being freed …
const YIELDS_MAX: u32 = 100;
/// … and how often it sleeps after that: some milliseconds, in which far more is freed than one
/// write takes.
const NAPS_MAX: u32 = 40;
const NAP: Duration = Duration::from_micros(50);

/// Number of random draws before neighbours of a place are taken as well.
const DRAWS_MAX: u32 = 64;

/// The hand stays in a database for this part of its buckets.
const TURN_PART: u64 = 8;

/// How many buckets ahead of the hand records are prefetched.
const RECORDS_AHEAD: u64 = 4;

/// State of one thread between evictions.
#[derive(Debug)]
pub(crate) struct Evictor {
    database: DatabaseId,
    /// Number of buckets that the hand may still pass before the next database has its turn.
    turn_left: u64,
    sampled: Sampled,
    random: Prng,
    /// Number of buckets looked into.
    pub(crate) looked: u64,
}

impl Evictor {
    pub(crate) fn new() -> Self {
        Self {
            database: 0,
            turn_left: 0,
            sampled: Sampled::default(),
            random: Prng::from_os(),
            looked: 0,
        }
    }
}

impl Indexed {
    /// Ensures that `bytes` more may be held.
    #[inline]
    pub(crate) fn make_room(&mut self, bytes: usize) -> Result<(), StoreError> {
        let reasons = self.shared.before_writes.get();
        if reasons == 0 {
            return Ok(());
        }
        if reasons & BeforeWrites::SNAPSHOT != 0 {
            self.back_off();
        }
        if reasons & BeforeWrites::LIMIT == 0 || self.local.is_unlimited {
            return Ok(());
        }
        if self.over_bytes(bytes) > 0 {
            self.evict_for(bytes)?;
        }
        if self.excess_bytes(bytes) > 0 {
            self.make_use(bytes);
        }
        Ok(())
    }

    /// The bytes by which idle memory exceeds its allowance under the limit.
    #[inline]
    fn excess_bytes(&self, more_bytes: usize) -> u64 {
        let used = self.shared.ledger.used_bytes();
        let wanted = used.saturating_add(more_bytes as u64);
        let idle = self.shared.idle_bytes();
        self.shared.budget.excess_bytes(wanted, idle)
    }

    /// Makes idle memory usable for new records.
    #[cold]
    fn make_use(&mut self, bytes: usize) {
        let entered = self.enter();
        let shared = Arc::clone(&self.shared);
        self.local.tell_bytes(&shared);
        let excess = self.excess_bytes(bytes);
        if excess > 0 {
            self.compact_for(bytes, excess);
        }
        if entered {
            self.leave();
        }
    }

    /// The bytes by which the limit would be exceeded.
    #[inline]
    fn over_bytes(&self, more_bytes: usize) -> u64 {
        let used = self.shared.ledger.used_bytes();
        let own = self.local.pending_bytes();
        let wanted = used
            .saturating_add_signed(own)
            .saturating_add(more_bytes as u64);
        self.shared.budget.over_bytes(wanted)
    }

    #[cold]
    fn evict_for(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.shared.holds_removals() || self.shared.cold().has_room() {
            return Ok(());
        }
        if self.evict_over(bytes) > 0 || self.over_bytes(bytes) == 0 || self.is_being_freed(bytes) {
            Ok(())
        } else {
            Err(StoreError::OutOfMemory)
        }
    }

    /// Evicts some records if the limit is exceeded without a write, for instance by client
    /// buffers. Returns whether more must be evicted.
    pub(crate) fn evict_in_passing(&mut self) -> bool {
        self.shared.before_writes.get() & BeforeWrites::LIMIT != 0
            && !self.shared.cold().has_room()
            && self.over_bytes(0) > 0
            && !self.shared.holds_removals()
            && self.evict_over(0) > 0
            && self.over_bytes(0) > 0
    }

    /// Evicts until `bytes` more may be held, or enough was done for one call. Returns the bytes
    /// freed.
    fn evict_over(&mut self, bytes: usize) -> u64 {
        // What this thread freed since its last report counts too.
        let shared = Arc::clone(&self.shared);
        self.local.tell_bytes(&shared);
        self.measure_writing();
        let over = self.over_bytes(bytes);
        if over == 0 {
            return 0;
        }
        let entered = self.enter();
        debug_assert!(
            self.local.held.is_empty(),
            "room is made before locks are taken"
        );
        let ahead = (shared.budget.limit_bytes() / AHEAD_PART).min(AHEAD_BYTES_MAX);
        let due = over.min((bytes as u64).saturating_mul(DUE_TIMES));
        let freed = self.evict(due, over + ahead);
        self.local.tell_bytes(&shared);
        if entered {
            self.leave();
        }
        freed
    }

    /// Whether there is nothing to evict only because removed objects are still being freed. Waits
    /// a little for that: if writers went on at once, the limit would no longer hold.
    fn is_being_freed(&self, bytes: usize) -> bool {
        for turn in 0..YIELDS_MAX + NAPS_MAX {
            if self.shared.lazy.pending_objects() == 0 || self.over_bytes(bytes) == 0 {
                break;
            }
            match turn {
                ..YIELDS_MAX => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
        self.shared.lazy.pending_objects() > 0 || self.over_bytes(bytes) == 0
    }

    /// Evicts until `wanted_bytes` are free, or until `due_bytes` are free and enough was done for
    /// one call. Returns the bytes freed.
    fn evict(&mut self, due_bytes: u64, wanted_bytes: u64) -> u64 {
        let (mut freed, mut victims) = (0, 0);
        let victims_max = self.shared.victims_max.load(Ordering::Relaxed);
        if self.local.in_force.policy == Policy::NoEviction {
            return freed;
        }
        while freed < due_bytes || (freed < wanted_bytes && victims < victims_max) {
            match self.evict_one() {
                Some(bytes) => freed += bytes,
                None => break,
            }
            victims += 1;
        }
        freed
    }

    /// Evicts one record. Returns its bytes, or `None` if no record may be evicted.
    fn evict_one(&mut self) -> Option<u64> {
        let in_force = self.local.in_force;
        match in_force.policy {
            Policy::NoEviction => None,
            Policy::AllKeysLru
            | Policy::VolatileLru
            | Policy::AllKeysRandom
            | Policy::VolatileRandom => self.evict_by_hand(in_force.policy),
            Policy::AllKeysLfu | Policy::VolatileLfu | Policy::VolatileTtl => {
                self.evict_by_sample(in_force)
            }
        }
    }

    /// Advances the hand until it finds a record that may be evicted. Every database gets at least
    /// two whole rounds, because the first may only clear marks.
    fn evict_by_hand(&mut self, policy: Policy) -> Option<u64> {
        let databases = u32::from(self.shared.databases.count());
        let rounds = databases * u32::try_from(2 * (TURN_PART + 1)).unwrap_or(u32::MAX);
        for _ in 0..rounds {
            if let Some(bytes) = self.advance_hand(policy) {
                return Some(bytes);
            }
            self.next_database();
        }
        None
    }

    /// Advances the hand in the database whose turn it is, until the turn is over or a record is
    /// evicted.
    fn advance_hand(&mut self, policy: Policy) -> Option<u64> {
        let database = self.local.evictor.database;
        let index = Arc::clone(self.seen.get(database)?);
        if !self.has_candidates(database, policy) {
            self.local.evictor.turn_left = 0;
        }
        while self.local.evictor.turn_left > 0 {
            self.local.evictor.turn_left -= 1;
            let buckets = index.state().buckets();
            let place = if policy.uses_marks() {
                Place::of_hand(&index, buckets)
            } else if let Some(bytes) = self.evict_by_chance(database, &index, policy) {
                return Some(bytes);
            } else {
                Place::by_chance(&mut self.local.evictor.random, buckets)
            };
            let bytes = if policy.is_volatile() {
                let from = next_noted(&index, place.number, buckets)?;
                self.evict_in_group(database, &index, place, from..buckets)
            } else {
                look_ahead(&self.shared, &index, place.number, buckets);
                let looked = self.evict_at(database, &index, place.number, place.slot);
                place.pass(&index, place.number, looked, buckets);
                looked.bytes
            };
            if bytes.is_some() {
                return bytes;
            }
        }
        None
    }

    /// Draws places until one has a record. So each record is equally likely, whatever else is in
    /// its bucket. Gives up if there are few records.
    fn evict_by_chance(
        &mut self,
        database: DatabaseId,
        index: &Index,
        policy: Policy,
    ) -> Option<u64> {
        (0..DRAWS_MAX).find_map(|_| {
            let random = &mut self.local.evictor.random;
            let (number, slot) = (random.below(index.state().buckets()), random.index(SLOTS));
            let bucket = index.bucket(number);
            let guess = (0..LINKS).filter(|&at| {
                let link = bucket.link(at);
                link.offset().is_some() && (!policy.is_volatile() || link.has(Link::DEADLINE))
            });
            // The rest of a chain counts as one place.
            let places = guess.count() + usize::from(bucket.overflow() != 0);
            if slot >= places {
                return None;
            }
            let drawn = self.local.evictor.random.index(CHANCES);
            self.evict_at(database, index, number, drawn).bytes
        })
    }

    /// Evicts an eligible record of a bucket, from a slot on, if there is one and no other thread
    /// uses the bucket.
    fn evict_at(
        &mut self,
        database: DatabaseId,
        index: &Index,
        number: u64,
        slot: usize,
    ) -> Looked {
        self.local.evictor.looked += 1;
        let Some(bucket) = index.try_lock_number(number) else {
            return Looked::BUSY;
        };
        let (shared, local) = (&*self.shared, &mut *self.local);
        let looked = evict_in(shared, local, index, database, bucket, slot);
        bucket.unlock(looked.bytes.is_some());
        looked
    }

    /// Evicts a record with a deadline from the group of the first of `buckets`, from that bucket
    /// on; for a random choice also from the group's buckets before it. A group without such a
    /// record is forgotten.
    fn evict_in_group(
        &mut self,
        database: DatabaseId,
        index: &Index,
        place: Place,
        buckets: std::ops::Range<u64>,
    ) -> Option<u64> {
        let group = buckets.start / GROUP_BUCKETS;
        let first = group * GROUP_BUCKETS;
        let end = (first + GROUP_BUCKETS).min(buckets.end);
        let before = if place.hand.is_none() {
            first..buckets.start
        } else {
            0..0
        };
        let is_whole = first == buckets.start || !before.is_empty();
        let mut has_any = false;
        for number in (buckets.start..end).chain(before) {
            if !may_have_deadlines(index.bucket(number)) {
                continue;
            }
            let slot = if number == place.number || place.hand.is_none() {
                place.slot
            } else {
                0
            };
            let looked = self.evict_at(database, index, number, slot);
            if looked.bytes.is_some() {
                place.pass(index, number, looked, buckets.end);
                return looked.bytes;
            }
            has_any |= looked.has_any;
        }
        place.pass(index, end - 1, Looked::NOTHING, buckets.end);
        if is_whole && !has_any {
            forget_group(index, first..end);
        }
        None
    }

    /// Whether a database has records that may be evicted.
    fn has_candidates(&mut self, database: DatabaseId, policy: Policy) -> bool {
        // Usually one look at the reported counts is enough.
        let told = self.seen.get(database).map(|index| index.counts.about());
        if policy.is_volatile() {
            told.is_some_and(|told| told.deadlines > 0) || self.deadlines_len(database) > 0
        } else {
            told.is_some_and(|told| told.keys > 0) || self.len(database) > 0
        }
    }

    /// Gives the next database its turn.
    fn next_database(&mut self) {
        let count = self.shared.databases.count();
        let evictor = &mut self.local.evictor;
        evictor.database = (evictor.database + 1) % count;
        let index = self.seen.get(evictor.database);
        let buckets = index.map_or(0, |index| index.state().buckets());
        evictor.turn_left = buckets.div_ceil(TURN_PART);
    }
}

/// The result of a look into a bucket.
#[derive(Clone, Copy, Debug)]
struct Looked {
    /// Bytes that were evicted, or `None` if no record was.
    bytes: Option<u64>,
    /// Whether the bucket has, or may have, records that may be evicted at another time.
    has_any: bool,
    /// The slot at which to continue; [`SLOTS`] for the next bucket.
    next_slot: usize,
}

/// Slots of a bucket for the hand: its links, and one for the rest of the chain.
const SLOTS: usize = LINKS + 1;

/// A random number below this, modulo any count up to eight, is uniform.
const CHANCES: usize = 840;

/// Where to look for a victim.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    /// The slot that the hand is at, or a random number.
    slot: usize,
    /// The hand's count at this place; `None` for a random choice.
    hand: Option<u64>,
}

impl Place {
    /// Returns the place of the hand. The hand counts slots, so that it takes the victims of a
    /// bucket one by one and gives each record the same time.
    fn of_hand(index: &Index, buckets: u64) -> Self {
        let hand = index.hand.load(Ordering::Relaxed);
        Self {
            number: hand / SLOTS as u64 % buckets,
            slot: distance(hand % SLOTS as u64),
            hand: Some(hand),
        }
    }

    fn by_chance(random: &mut Prng, buckets: u64) -> Self {
        Self {
            number: random.below(buckets),
            slot: random.index(CHANCES),
            hand: None,
        }
    }

    /// Moves the hand on from a bucket of `buckets` that was looked into. The hand never goes back.
    fn pass(self, index: &Index, number: u64, looked: Looked, buckets: u64) {
        let Some(hand) = self.hand else {
            return;
        };
        let around = if number < self.number { buckets } else { 0 };
        let bucket = hand / SLOTS as u64 + (number + around - self.number);
        let next = bucket * SLOTS as u64 + looked.next_slot as u64;
        index.hand.fetch_max(next, Ordering::Relaxed);
    }
}

impl Looked {
    /// Another thread uses the bucket.
    const BUSY: Self = Self {
        bytes: None,
        has_any: true,
        next_slot: SLOTS,
    };

    /// The bucket has no such record.
    const NOTHING: Self = Self {
        has_any: false,
        ..Self::BUSY
    };
}

/// Returns the first bucket from `number` on, wrapping around, whose group may have records with a
/// deadline.
fn next_noted(index: &Index, number: u64, buckets: u64) -> Option<u64> {
    if index.deadlines.is_noted(number) {
        return Some(number);
    }
    let groups = buckets.div_ceil(GROUP_BUCKETS);
    let next = index.deadlines.next(number / GROUP_BUCKETS + 1, groups)?;
    Some(next * GROUP_BUCKETS)
}

/// Whether a chain may have records with a deadline; a guess without the lock.
fn may_have_deadlines(bucket: &Bucket) -> bool {
    bucket.overflow() != 0 || (0..LINKS).any(|at| bucket.link(at).has(Link::DEADLINE))
}

/// Clears the note that a group of buckets has records with a deadline, unless it has some.
fn forget_group(index: &Index, buckets: std::ops::Range<u64>) {
    index.deadlines.clear(buckets.start / GROUP_BUCKETS);
    for number in buckets {
        let has_any = index.try_lock_number(number).map(|bucket| {
            let mut has_any = false;
            index.for_each(bucket, |spot| has_any |= spot.link.has(Link::DEADLINE));
            bucket.unlock(false);
            has_any
        });
        let is_dead = index.state().depth_of(number).is_none();
        if has_any.unwrap_or(!is_dead) {
            index.deadlines.note(number);
            return;
        }
    }
}

/// Evicts the first record of a chain, from a slot on, that was not used since the hand last
/// passed, and clears the marks before it. For a random choice, evicts the record that `slot` drew.
/// The caller holds the bucket.
fn evict_in(
    shared: &Shared,
    local: &mut Local,
    index: &Index,
    database: DatabaseId,
    bucket: &Bucket,
    slot: usize,
) -> Looked {
    let policy = local.in_force.policy;
    // A record that belongs to another node is that node's to evict.
    let is_hidden = |spot: &Spot<'_>| {
        shared.hidden.is_any()
            && view_of(shared, spot.link).is_some_and(|view| {
                // SAFETY: the caller holds the bucket.
                unsafe { view.with_key(|key| shared.hidden.hides(key)) }
            })
    };
    let may_go = |spot: &Spot<'_>| {
        (!policy.is_volatile() || spot.link.has(Link::DEADLINE)) && !is_hidden(spot)
    };
    let mut count = 0;
    index.for_each(bucket, |spot| count += usize::from(may_go(&spot)));
    let mut looked = Looked {
        has_any: count > 0,
        ..Looked::NOTHING
    };
    let mut victim: Option<(usize, Spot<'_>)> = None;
    let mut passed = 0;
    index.for_each(bucket, |spot| {
        if victim.is_some() || !may_go(&spot) {
            return;
        }
        passed += 1;
        let is_home = std::ptr::eq(spot.bucket, bucket);
        let at = if is_home { spot.at } else { LINKS };
        if !policy.uses_marks() {
            victim = (passed > slot % count).then_some((at, spot));
        } else if at >= slot && spot.link.has(Link::VISITED) {
            let flags = spot.link.flags() & !Link::VISITED;
            spot.bucket.set_link(spot.at, spot.link.with_flags(flags));
        } else if at >= slot {
            victim = Some((at, spot));
        }
    });
    if let Some((at, spot)) = victim {
        looked.next_slot = at + 1;
        let bytes = evict_spot(shared, local, index, database, bucket, spot);
        looked.bytes = Some(bytes);
    }
    looked
}

/// Evicts a record. Returns its bytes. The caller holds the bucket.
fn evict_spot(
    shared: &Shared,
    local: &mut Local,
    index: &Index,
    database: DatabaseId,
    bucket: &Bucket,
    spot: Spot<'_>,
) -> u64 {
    local.choose_side(shared);
    local.save_first(shared, index, bucket);
    let view = view_of(shared, spot.link);
    let bytes = view.as_ref().map_or(0, bytes_of);
    let is_expired = view.is_some_and(|view| view.is_expired(local.now_unix_ms));
    let cause = if is_expired {
        Cause::Expired
    } else {
        Cause::Evicted
    };
    local.remove_unasked(shared, index, database, bucket, spot, cause);
    bytes.max(1)
}

/// Bytes that a record's removal frees. The caller holds its bucket.
pub(crate) fn bytes_of(view: &View<'_>) -> u64 {
    let value_bytes = match view.form() {
        Form::Bytes | Form::ChangedBytes | Form::Integer | Form::Cold => 0,
        // SAFETY: the record's word names its blob, and the bucket is held.
        Form::Blob => unsafe { Blob::look(view.value_word()) }.memory_bytes() as u64,
        Form::Object | Form::Compact => heap::counted_bytes(view),
    };
    class_bytes(view.class()) as u64 + value_bytes
}

/// Prefetches the records that the hand will reach soon.
fn look_ahead(shared: &Shared, index: &Index, number: u64, buckets: u64) {
    let ahead = number + RECORDS_AHEAD;
    if ahead >= buckets {
        return;
    }
    let bucket = index.bucket(ahead);
    let first = (0..LINKS).map(|at| bucket.link(at));
    let unmarked = first.filter(|link| !link.has(Link::VISITED));
    if let Some(offset) = unmarked.filter_map(Link::offset).next() {
        shared.arena_ref().prefetch(offset);
    }
}
