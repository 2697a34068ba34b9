//! Removal of expired records before a client asks for them.
//!
//! Every thread serves the deadlines that it armed. When a thread ends, the next thread that ticks
//! takes over its deadlines.

use base::sync::atomic::Ordering;

use crate::bucket::{Bucket, Link};
use crate::deadlines::Armed;
use crate::index::{Index, Spot};
use crate::indexed::{Indexed, hash_of};
use crate::key::{DatabaseId, Key};
use crate::local::{Local, view_of};
use crate::members;
use crate::shared::Shared;
use crate::value::Cause;
use crate::wheel::{POSITION_BITS, Wheel};

/// Maximum number of armed times looked at in one tick: some ten microseconds.
const VISITS_PER_TICK: usize = 64;

/// Maximum number of looks at one position before the next positions are served.
const LOOKS_MAX: usize = 32;

/// Maximum number of buckets walked in one tick to replace a wheel.
const BUCKETS_PER_TICK: usize = 64;

const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

impl Indexed {
    /// Removes what has expired up to now, in a bounded step. Returns whether more is waiting.
    pub(crate) fn expire_due(&mut self) -> bool {
        if !self.shared.expires_actively() {
            return false;
        }
        self.adopt_deadlines();
        let mut wheels = self.local.deadlines.take();
        let now_unix_ms = self.local.now_unix_ms;
        let (shared, seen, local) = (&*self.shared, &self.seen, &mut *self.local);
        let mut more = false;
        wheels.retain_mut(|armed| {
            let Some((database, index)) = seen.by_id(armed.index_id) else {
                let gone = std::mem::replace(&mut armed.wheel, Wheel::new(now_unix_ms));
                shared.lazy.submit(0, Box::new(gone));
                return false;
            };
            let mut visit = |position| look_after(shared, local, index, database, position);
            more |= armed
                .wheel
                .advance(now_unix_ms, VISITS_PER_TICK, &mut visit);
            let live = index.counts.about().deadlines;
            if armed.is_stale(usize::try_from(live).unwrap_or(0)) {
                armed.begin_replacement(now_unix_ms);
            }
            more |= fill_replacement(shared, index, armed);
            if let Some(empty) = armed.wheel.take_empty() {
                shared.lazy.submit(0, Box::new(empty));
            }
            true
        });
        self.local.deadlines.put_back(wheels);
        self.tell_deadlines();
        if more {
            self.local.cell.events.expiry_left.count();
        }
        more
    }

    /// When [`Indexed::expire_due`] has something to do next, if ever.
    #[inline]
    pub(crate) fn next_expiry_unix_ms(&self) -> Option<u64> {
        let next = self.local.deadlines.next_unix_ms()?;
        self.shared.expires_actively().then_some(next)
    }

    /// Removes the record of a key that a look found to be expired, so that the reader does not
    /// learn of the removal before the listeners do. Leaves it where it is if removals are held, or
    /// if its bucket is held for long.
    #[cold]
    #[inline(never)]
    pub(crate) fn remove_expired(&mut self, key: &Key<'_>) {
        if self.shared.holds_removals() {
            return;
        }
        if !self.local.held.is_empty() {
            self.modify(key, |_| ());
            return;
        }
        if let Some(index) = self.seen.get(key.database()) {
            let database = key.database();
            look_once(&self.shared, &mut self.local, index, database, key.hash());
        }
    }

    /// Reports the growth of this thread's wheels to the ledger.
    fn tell_deadlines(&mut self) {
        let growth = self.local.deadlines.take_growth();
        if growth != 0 {
            self.shared.ledger.add(growth);
        }
    }

    /// Leaves the deadlines of this thread, which ends, to the others.
    pub(crate) fn hand_over_deadlines(&mut self) {
        let mut wheels = self.local.deadlines.take();
        self.tell_deadlines();
        wheels.retain(|armed| armed.wheel.len() > 0);
        if !wheels.is_empty() {
            self.shared.orphans.leave(wheels);
        }
    }

    /// Takes over the deadlines that an ended thread had armed.
    fn adopt_deadlines(&mut self) {
        if self.shared.orphans.has_some() {
            let mut wheels = self.local.deadlines.take();
            wheels.append(&mut self.shared.orphans.take());
            self.local.deadlines.put_back(wheels);
        }
    }
}

/// Looks at the records at a position and removes those that have expired. Returns when to come
/// back, if any of the position's keys has a deadline ahead.
fn look_after(
    shared: &Shared,
    local: &mut Local,
    index: &Index,
    database: DatabaseId,
    position: u64,
) -> Option<u64> {
    let mut next = look_once(shared, local, index, database, position);
    // A bucket held for long is looked at later. Structures lose their members in steps; between
    // these, other threads may have the bucket.
    for _ in 1..LOOKS_MAX {
        if next.is_none_or(|next| next > local.now_unix_ms) {
            break;
        }
        next = look_once(shared, local, index, database, position);
    }
    next
}

/// Removes the expired records of the bucket of `position`. Returns when to come back.
pub(crate) fn look_once(
    shared: &Shared,
    local: &mut Local,
    index: &Index,
    database: DatabaseId,
    position: u64,
) -> Option<u64> {
    let Some(home) = index.lock_unless_long(position) else {
        return Some(local.now_unix_ms + 1);
    };
    let bucket = index.bucket(home.number);
    let mut changed = false;
    local.choose_side(shared);
    // Removing moves links, so the search starts again each time.
    while let Some(spot) = find_expired(shared, index, bucket, local.now_unix_ms) {
        local.save_first(shared, index, bucket);
        local.remove_unasked(shared, index, database, bucket, spot, Cause::Expired);
        changed = true;
    }
    let mut next: Option<u64> = None;
    if shared.has_member_deadlines.load(Ordering::Relaxed) {
        let place = members::LockedBucket {
            shared,
            index,
            database,
            home: bucket,
            position,
        };
        let members = members::look_after(place, local);
        next = members.0;
        changed |= members.1;
    }
    index.for_each(bucket, |spot| {
        if let Some(deadline) = deadline_of(shared, spot.link)
            && hash_of(shared, spot.link) & POSITION_MASK == position & POSITION_MASK
        {
            next = Some(next.map_or(deadline, |other| other.min(deadline)));
        }
    });
    bucket.unlock(changed);
    next
}

/// Fills a replacement wheel from some more buckets. Returns whether there are more to come.
fn fill_replacement(shared: &Shared, index: &Index, armed: &mut Armed) -> bool {
    let Some(replacement) = &mut armed.replacement else {
        return false;
    };
    let looks_at_members = shared.has_member_deadlines.load(Ordering::Relaxed);
    for _ in 0..BUCKETS_PER_TICK {
        let Some(home) = index.lock_unless_long(replacement.position.reverse_bits()) else {
            return false;
        };
        let bucket = index.bucket(home.number);
        index.for_each(bucket, |spot| {
            let of_members = looks_at_members.then(|| members::first_deadline(shared, spot.link));
            let deadlines = [deadline_of(shared, spot.link), of_members.flatten()];
            for deadline in deadlines.into_iter().flatten() {
                replacement.wheel.arm(hash_of(shared, spot.link), deadline);
            }
        });
        bucket.unlock(false);
        replacement.position = home.end_position();
        if replacement.position == 0 {
            if let Some(old) = armed.finish_replacement() {
                shared.lazy.submit(0, Box::new(old));
            }
            return false;
        }
    }
    true
}

/// Returns a record of a chain that has expired.
fn find_expired<'i>(
    shared: &Shared,
    index: &'i Index,
    bucket: &'i Bucket,
    now_unix_ms: u64,
) -> Option<Spot<'i>> {
    let mut found = None;
    index.for_each(bucket, |spot| {
        if deadline_of(shared, spot.link).is_some_and(|at| at <= now_unix_ms) {
            found = Some(spot);
        }
    });
    found
}

fn deadline_of(shared: &Shared, link: Link) -> Option<u64> {
    if link.has(Link::DEADLINE) {
        view_of(shared, link)?.deadline_unix_ms()
    } else {
        None
    }
}
