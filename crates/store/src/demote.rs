//! Demotion: a record's value moves out of memory, and the record becomes a stub with the value's
//! locator.
//!
//! A demotion has two steps, so that no thread waits for a device while it holds a bucket. First a
//! copy of the value is taken ([`Indexed::collect_victims`]), with the bucket's version; the record
//! stays as it is, and the cold store writes the copy. Then, if nothing in the bucket changed
//! meanwhile and the record was not used, a stub takes its place ([`Indexed::swap_cold`]). So a
//! stub never names bytes that are not written.
//!
//! ```text
//!   hot ── copied ── written ──► cold     same link, same version, not used since
//!    ▲                  │         │
//!    └── changed, used ─┘         └── promoted (`writer`): hot again
//! ```
//!
//! Neither is a change of the key: no effect, no event, no notification of observers, and a
//! snapshot need not save the record first. The version of the bucket goes up, for readers without
//! the lock.

use std::sync::Arc;

use crate::arena::WORD_BYTES;
use crate::blob::Blob;
use crate::bucket::{Bucket, Link};
use crate::cold::{ColdKind, Locator};
use crate::evict::bytes_of;
use crate::handle::Handle;
use crate::heap;
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::{DatabaseId, Key};
use crate::layout::{Form, Header, View};
use crate::local::{LastSwap, Local, view_of};
use crate::shared::Shared;
use crate::slab::{class_bytes, class_for};

/// Minimum number of bytes that a stub must save.
const GAIN_BYTES_MIN: u64 = 32;

/// Maximum number of buckets that one call looks into, so that other threads may have the store for
/// themselves in between.
const BUCKETS_MAX: u64 = 1 << 12;

/// Which values are demoted.
#[derive(Clone, Copy, Debug)]
pub struct DemotionLimits {
    /// Shorter values stay.
    pub value_bytes_min: usize,
    /// Longer values stay.
    pub value_bytes_max: usize,
    /// Objects that take more memory stay.
    pub object_bytes_max: usize,
    /// Whether values used since the hand last passed are demoted, too.
    pub takes_used: bool,
}

/// Position of the hand of demotions.
#[derive(Debug, Default)]
pub struct DemotionHand {
    database: DatabaseId,
    bucket: u64,
}

/// A record whose value was copied, to be written and replaced by a stub.
#[derive(Debug)]
pub struct Victim {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value: a string, or what [`ColdValues::encode`](crate::ColdValues::encode) made of an object.
    pub body: Vec<u8>,
    /// Kind and encoding.
    pub kind: ColdKind,
    /// The id of its index, which no other index of the process has.
    pub index: u64,
    /// Bytes of memory that the demotion frees.
    pub freed_bytes: u64,
    hash: u64,
    bucket: u64,
    version: u64,
    link: Link,
}

/// A key whose value is cold.
#[derive(Clone, Copy, Debug)]
pub struct ColdKey {
    /// Where the value is.
    pub locator: Locator,
    /// Whether it was used since the hand last passed.
    pub is_used: bool,
}

impl Handle {
    /// Number of keys whose value is cold.
    #[inline]
    #[must_use]
    pub fn stubs(&self) -> u64 {
        self.indexed_ref()
            .map_or(0, |way| way.shared.cold().stubs())
    }

    /// The locator of a key's value, if it is cold. Advice; the caller has no keys locked.
    pub fn cold_key(&mut self, key: &Key<'_>) -> Option<ColdKey> {
        self.indexed_mut()?.cold_key(key, false)
    }

    /// As [`Handle::cold_key`], and marks the value as used.
    pub fn use_cold_key(&mut self, key: &Key<'_>) -> Option<ColdKey> {
        self.indexed_mut()?.cold_key(key, true)
    }

    /// Copies about `bytes` bytes of values that may be demoted, from the hand's position on.
    /// Returns whether there may be more.
    pub fn collect_victims(
        &mut self,
        hand: &mut DemotionHand,
        limits: &DemotionLimits,
        bytes: usize,
        victims: &mut Vec<Victim>,
    ) -> bool {
        let way = self.indexed_mut();
        way.is_some_and(|way| way.collect_victims(hand, limits, bytes, victims))
    }

    /// Returns a copy of the value of a key, if it may be demoted.
    pub fn victim_of(&mut self, key: &Key<'_>, limits: &DemotionLimits) -> Option<Victim> {
        self.indexed_mut()?.victim_of(key, limits)
    }

    /// Replaces a record with a stub, if it is as it was when it was copied. Returns whether this
    /// was done.
    pub fn swap_cold(&mut self, victim: &Victim, locator: Locator) -> bool {
        let way = self.indexed_mut();
        way.is_some_and(|way| way.swap_cold(victim, locator))
    }

    /// Whether a stub of this key names a locator, in any database.
    pub fn names(&mut self, key: &[u8], locator: Locator) -> bool {
        let way = self.indexed_mut();
        way.is_some_and(|way| way.with_stub(key, locator, None))
    }

    /// Changes the locator of this key's stub from `old` to `new`, in whatever database it is.
    /// Returns whether there was such a stub.
    pub fn relocate(&mut self, key: &[u8], old: Locator, new: Locator) -> bool {
        let way = self.indexed_mut();
        way.is_some_and(|way| way.with_stub(key, old, Some(new)))
    }
}

impl Indexed {
    /// Runs `body` inside the store: no thread has the store for itself meanwhile.
    fn inside<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        let entered = self.enter();
        let result = body(self);
        if entered {
            self.leave();
        }
        result
    }

    fn cold_key(&mut self, key: &Key<'_>, uses: bool) -> Option<ColdKey> {
        if self.shared.cold().stubs() == 0 || self.holds_several() {
            return None;
        }
        self.inside(|way| {
            way.see_index(key.database());
            let index = way.seen.get(key.database())?;
            look_for_stub(&way.shared, index, key, uses)
        })
    }

    fn collect_victims(
        &mut self,
        hand: &mut DemotionHand,
        limits: &DemotionLimits,
        bytes: usize,
        victims: &mut Vec<Victim>,
    ) -> bool {
        self.inside(|way| way.collect_inside(hand, limits, bytes, victims))
    }

    fn collect_inside(
        &self,
        hand: &mut DemotionHand,
        limits: &DemotionLimits,
        bytes: usize,
        victims: &mut Vec<Victim>,
    ) -> bool {
        let databases = self.shared.databases.count();
        let (mut taken, mut left) = (0, BUCKETS_MAX);
        let mut emptied = 0;
        while taken < bytes && left > 0 && emptied < databases {
            let index = self.seen.get(hand.database).map(Arc::clone);
            let buckets = index.as_ref().map_or(0, |index| index.state().buckets());
            if hand.bucket >= buckets {
                hand.database = (hand.database + 1) % databases;
                hand.bucket = 0;
                emptied += 1;
                continue;
            }
            if let Some(index) = index {
                let before = victims.len();
                copy_bucket(
                    &self.shared,
                    &self.local,
                    &index,
                    hand.bucket,
                    limits,
                    victims,
                );
                taken += victims[before..]
                    .iter()
                    .map(|victim| victim.body.len() + victim.key.len())
                    .sum::<usize>();
            }
            hand.bucket += 1;
            left -= 1;
        }
        emptied < databases
    }

    fn victim_of(&mut self, key: &Key<'_>, limits: &DemotionLimits) -> Option<Victim> {
        self.inside(|way| {
            way.see_index(key.database());
            let index = way.seen.get(key.database())?;
            let home = index.lock(key.hash());
            let bucket = index.bucket(home.number);
            let spot = find(&way.shared, index, bucket, key.hash(), key.bytes());
            let victim = spot.and_then(|spot| {
                let place = (index.id(), home.number, bucket.word().version());
                copy_record(&way.shared, &way.local, place, spot.link, limits)
            });
            bucket.unlock(false);
            victim
        })
    }

    fn swap_cold(&mut self, victim: &Victim, locator: Locator) -> bool {
        self.inside(|way| way.swap_inside(victim, locator).is_some())
    }

    fn swap_inside(&mut self, victim: &Victim, locator: Locator) -> Option<()> {
        let (_, index) = self.seen.by_id(victim.index)?;
        let home = index.lock_soon(victim.hash)?;
        let bucket = index.bucket(home.number);
        let is_same = home.number == victim.bucket
            && is_as_copied(self.local.last_swap, victim, bucket.word().version());
        let spot = is_same
            .then(|| find(&self.shared, index, bucket, victim.hash, &victim.key))
            .flatten()
            .filter(|spot| spot.link.with_flags(0) == victim.link.with_flags(0))
            .filter(|spot| !spot.link.has(Link::VISITED) || victim.link.has(Link::VISITED));
        let version_after = bucket.word().next_version();
        let made = spot.and_then(|spot| make_stub(&self.shared, &mut self.local, spot, locator));
        bucket.unlock(made.is_some());
        if made.is_some() {
            self.local.last_swap = Some(LastSwap {
                index: victim.index,
                bucket: victim.bucket,
                copied_at: victim.version,
                version: version_after,
            });
        }
        made
    }

    /// Finds the stub of a key that names `locator`, and makes it name `new`, if that is given.
    /// Returns whether there is one. No two stubs have the same locator, so it does not matter
    /// which database the key was in when its value was written.
    fn with_stub(&mut self, key: &[u8], locator: Locator, new: Option<Locator>) -> bool {
        self.inside(|way| {
            let hash = way.shared.hasher.hash(key);
            way.seen.iter().any(|(_, index)| {
                let home = index.lock(hash);
                let bucket = index.bucket(home.number);
                let view = find_stub(&way.shared, index, bucket, hash, key)
                    .filter(|view| view.value_word() == locator.to_word());
                if let (Some(view), Some(new)) = (&view, new) {
                    view.set_value_word(new.to_word());
                }
                bucket.unlock(view.is_some() && new.is_some());
                view.is_some()
            })
        })
    }
}

/// Whether a bucket, which now has this version, changed only by stubs since a value was copied.
fn is_as_copied(last: Option<LastSwap>, victim: &Victim, version: u64) -> bool {
    let by_this_thread = last.is_some_and(|last| {
        (last.index, last.bucket, last.copied_at) == (victim.index, victim.bucket, victim.version)
            && last.version == version
    });
    version == victim.version || by_this_thread
}

/// Returns the stub of a key, if it has one; marks it as used if `uses`.
fn look_for_stub(shared: &Shared, index: &Index, key: &Key<'_>, uses: bool) -> Option<ColdKey> {
    // Most records are short and in memory: their link shows that.
    let home = index.state().home(key.hash());
    let bucket = index.bucket(home.number);
    let may_be = bucket.overflow() != 0
        || bucket
            .candidates(key.hash())
            .any(|at| bucket.link(at).has(Link::LOCKED_READ));
    if !may_be {
        return None;
    }
    let home = index.lock_unless_long(key.hash())?;
    let bucket = index.bucket(home.number);
    let found = find(shared, index, bucket, key.hash(), key.bytes()).and_then(|spot| {
        let view = view_of(shared, spot.link).filter(|view| view.form() == Form::Cold)?;
        let is_used = spot.link.has(Link::VISITED);
        if uses && !is_used {
            spot.bucket.set_visited(spot.at);
        }
        Some(ColdKey {
            locator: Locator::from_word(view.value_word()),
            is_used,
        })
    });
    bucket.unlock(false);
    found
}

/// Finds a key in a bucket. The caller holds the bucket.
fn find<'i>(
    shared: &Shared,
    index: &'i Index,
    bucket: &'i Bucket,
    hash: u64,
    key: &[u8],
) -> Option<Spot<'i>> {
    index.find(bucket, hash, |link| {
        // SAFETY: the caller holds the bucket.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key) })
    })
}

/// Returns the stub of a key in a bucket, if it has one. The caller holds the bucket.
fn find_stub<'a>(
    shared: &'a Shared,
    index: &Index,
    bucket: &Bucket,
    hash: u64,
    key: &[u8],
) -> Option<View<'a>> {
    let spot = find(shared, index, bucket, hash, key)?;
    view_of(shared, spot.link).filter(|view| view.form() == Form::Cold)
}

/// Copies the values of a bucket that may be demoted, and clears the marks of the others.
fn copy_bucket(
    shared: &Shared,
    local: &Local,
    index: &Index,
    number: u64,
    limits: &DemotionLimits,
    victims: &mut Vec<Victim>,
) {
    let Some(bucket) = index.try_lock_number(number) else {
        return;
    };
    let place = (index.id(), number, bucket.word().version());
    index.for_each(bucket, |spot| {
        if spot.link.has(Link::VISITED) && !limits.takes_used {
            let flags = spot.link.flags() & !Link::VISITED;
            spot.bucket.set_link(spot.at, spot.link.with_flags(flags));
        } else {
            victims.extend(copy_record(shared, local, place, spot.link, limits));
        }
    });
    bucket.unlock(false);
}

/// Copies the value of a record if it may be demoted. The caller holds its bucket: `bucket` of
/// `index`, with this `version`.
fn copy_record(
    shared: &Shared,
    local: &Local,
    (index, bucket, version): (u64, u64, u64),
    link: Link,
    limits: &DemotionLimits,
) -> Option<Victim> {
    let view = view_of(shared, link)?;
    let freed_bytes = gain(&view)?;
    if view.is_expired(local.stated_unix_ms) {
        return None;
    }
    let (kind, body) = body_of(shared, &view, limits)?;
    // SAFETY: the caller holds the bucket.
    let key = unsafe { view.with_key(<[u8]>::to_vec) };
    Some(Victim {
        hash: shared.hasher.hash(&key),
        key,
        body,
        kind,
        index,
        freed_bytes,
        bucket,
        version,
        link,
    })
}

/// Returns the value of a record as bytes, if it may be demoted. The caller holds its bucket.
fn body_of(
    shared: &Shared,
    view: &View<'_>,
    limits: &DemotionLimits,
) -> Option<(ColdKind, Vec<u8>)> {
    let len = view.header().value_len();
    let fits = (limits.value_bytes_min..=limits.value_bytes_max).contains(&len);
    match view.form() {
        Form::Integer | Form::Cold => None,
        Form::Bytes | Form::ChangedBytes | Form::Blob if !fits => None,
        Form::Bytes | Form::ChangedBytes => {
            let kind = if view.form() == Form::Bytes {
                ColdKind::BYTES
            } else {
                ColdKind::CHANGED_BYTES
            };
            // SAFETY: the caller holds the bucket.
            Some((kind, unsafe { view.with_inline_value(<[u8]>::to_vec) }))
        }
        Form::Blob => {
            // SAFETY: the record's word names its blob, and the bucket is held.
            let blob = unsafe { Blob::look(view.value_word()) };
            let mut body = vec![0; blob.len()];
            blob.copy_to(0, &mut body);
            Some((ColdKind::CHANGED_BYTES, body))
        }
        Form::Object | Form::Compact => {
            if heap::counted_bytes(view) > limits.object_bytes_max as u64 {
                return None;
            }
            // SAFETY: the bucket is held.
            let object = unsafe { heap::look::<structures::Object>(view) }?;
            let kind = ColdKind::of_object(&object)?;
            Some((kind, shared.cold().values()?.encode(&object)?))
        }
    }
}

/// Returns the bytes that replacing a record with a stub frees, if it is worth it.
fn gain(view: &View<'_>) -> Option<u64> {
    let class = class_for(view.value_at() + WORD_BYTES)?;
    let freed = bytes_of(view).checked_sub(class_bytes(class) as u64)?;
    (freed >= GAIN_BYTES_MIN).then_some(freed)
}

/// Replaces a record with a stub. The caller holds its bucket.
fn make_stub(shared: &Shared, local: &mut Local, spot: Spot<'_>, locator: Locator) -> Option<()> {
    let arena = shared.arena_ref();
    let view = view_of(shared, spot.link)?;
    let class = class_for(view.value_at() + WORD_BYTES)?;
    let len = if view.form().is_object() {
        // SAFETY: the caller holds the bucket.
        unsafe { heap::look::<structures::Object>(&view) }?.len()
    } else {
        view.header().value_len()
    };
    let len = u32::try_from(len).ok()?;
    let to = local.cache.allocate(class).ok()?;
    let front = view.value_at();
    // SAFETY: the caller holds the bucket, and the write goes to another slot.
    unsafe { view.with_slot(front, |record| arena.copy_in(to, 0, record)) };
    let header = Header::new(view.header().fields(), class, Form::Cold, len);
    let stub = View::create(arena, to, header)?;
    stub.set_value_word(locator.to_word());
    let link = spot.link.with_offset(to);
    let link = link.with_flags(link.flags() | Link::LOCKED_READ);
    spot.bucket.set_link(spot.at, link);
    shared.cold().came();
    // SAFETY: no link names the record any more; its key, if it is long, went to the stub.
    unsafe { local.free_value(shared, &view) };
    local.cache.free(view.offset(), view.class());
    Some(())
}
