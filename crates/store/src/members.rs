//! Active expiry of members of structures, such as fields of hashes.
//!
//! A structure knows the deadlines of its members. The store's wheel has only the first of them:
//! when it is due (see `deadlines`), this module visits the key and removes the expired members.

use structures::Object;

use crate::bucket::{Bucket, Link};
use crate::event::{Event, EventClass};
use crate::heap;
use crate::index::{Index, Spot};
use crate::indexed::hash_of;
use crate::key::DatabaseId;
use crate::listeners::ChangeKind;
use crate::local::{Local, Scene, view_of};
use crate::shared::Shared;
use crate::wheel::POSITION_BITS;

/// Maximum number of members removed in one visit of a key: some tens of microseconds under its
/// bucket's lock.
const MEMBERS_PER_VISIT: usize = 256;

const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

/// A position whose bucket the caller holds, with its side of the last cut chosen.
#[derive(Clone, Copy)]
pub(crate) struct LockedBucket<'p> {
    pub(crate) shared: &'p Shared,
    pub(crate) index: &'p Index,
    pub(crate) database: DatabaseId,
    pub(crate) home: &'p Bucket,
    pub(crate) position: u64,
}

impl LockedBucket<'_> {
    /// Notifies the listeners of the key that a link leads to.
    fn tell(&self, local: &mut Local, link: Link, kind: ChangeKind) {
        if self.home.is_listened() {
            let scene = Scene {
                shared: self.shared,
                index: self.index,
                home: self.home,
            };
            local.tell_of(scene, self.database, link, kind);
        }
    }
}

/// Removes due members from the structures at a position, and structures that become empty. Returns
/// when to come back, if members there have deadlines ahead, and whether anything was removed.
pub(crate) fn look_after(place: LockedBucket<'_>, local: &mut Local) -> (Option<u64>, bool) {
    let LockedBucket {
        shared,
        index,
        home,
        ..
    } = place;
    let mut next: Option<u64> = None;
    let mut changed = false;
    // Removing a record moves links, so the search starts again each time.
    while let Some(spot) = find_emptied(place, |link| {
        if first_deadline(shared, link).is_some_and(|at| at <= local.now_unix_ms) {
            local.save_first(shared, index, home);
        }
        let deadline = expire(place, local, link, &mut changed)?;
        next = Some(next.map_or(deadline, |other| other.min(deadline)));
        next
    }) {
        local.save_first(shared, index, home);
        let (class, name) = (EventClass::GENERIC, Event::DELETED);
        local.event_behind(shared, place.database, spot.link, class, name);
        place.tell(local, spot.link, ChangeKind::Removed);
        local.remove(shared, index, place.database, home, spot);
        (next, changed) = (None, true);
    }
    (next, changed)
}

/// Returns the earliest deadline of the members of the structure that a link leads to. The caller
/// holds the bucket.
pub(crate) fn first_deadline(shared: &Shared, link: Link) -> Option<u64> {
    if !has_member_deadlines(shared, link) {
        return None;
    }
    let view = view_of(shared, link)?;
    // SAFETY: the caller holds the bucket, and the structure is used through this alone. It is in a
    // box, as are all structures that have members with deadlines.
    unsafe { heap::change(&view) }.first_member_deadline_unix_ms()
}

/// Visits the structures that have members with deadlines; stops at an empty one for which `visit`
/// finds no deadline.
fn find_emptied(
    place: LockedBucket<'_>,
    mut visit: impl FnMut(Link) -> Option<u64>,
) -> Option<Spot<'_>> {
    let LockedBucket { shared, index, .. } = place;
    let is_here = |link| (hash_of(shared, link) ^ place.position) & POSITION_MASK == 0;
    let mut emptied = None;
    index.for_each(place.home, |spot| {
        if emptied.is_none()
            && has_member_deadlines(shared, spot.link)
            && is_here(spot.link)
            && visit(spot.link).is_none()
            && is_emptied(shared, spot.link)
        {
            emptied = Some(spot);
        }
    });
    emptied
}

/// Removes due members from one structure. Returns the next deadline of its members.
fn expire(
    place: LockedBucket<'_>,
    local: &mut Local,
    link: Link,
    changed: &mut bool,
) -> Option<u64> {
    let view = view_of(place.shared, link)?;
    let now = local.now_unix_ms;
    if first_deadline(place.shared, link).is_some_and(|deadline| deadline <= now) {
        *changed = true;
        local.save_first(place.shared, place.index, place.home);
        // SAFETY: the caller holds the bucket, and the structure, which is in a box like the one
        // just looked at, is used through this alone.
        let object = unsafe { heap::change(&view) };
        let count = object.expire_members(now, MEMBERS_PER_VISIT, |member| {
            if let Some(sink) = local.told_sink() {
                let database = place.database;
                // SAFETY: the caller holds the bucket.
                unsafe { view.with_key(|key| sink.member_expired(database, key, member)) };
            }
        });
        local.cell.events.expired_members.add(count as u64);
        let (class, name) = (EventClass::HASH, "hexpired");
        local.event_behind(place.shared, place.database, link, class, name);
        let is_emptied = object.is_to_be_removed();
        let bytes = object.memory_bytes() as u64;
        local.count_object(place.shared, heap::counted_bytes(&view), bytes);
        view.set_second_word(bytes);
        if !is_emptied {
            place.tell(local, link, ChangeKind::Written);
        }
    }
    first_deadline(place.shared, link)
}

fn has_member_deadlines(shared: &Shared, link: Link) -> bool {
    object_of(shared, link).is_some_and(Object::has_member_deadlines)
}

fn is_emptied(shared: &Shared, link: Link) -> bool {
    object_of(shared, link).is_some_and(Object::is_to_be_removed)
}

/// Returns the boxed structure that a link leads to; only boxed structures have members with
/// deadlines. The caller holds the bucket.
fn object_of(shared: &Shared, link: Link) -> Option<&Object> {
    let view = view_of(shared, link)?;
    // SAFETY: the caller holds the bucket for as long as it looks.
    unsafe { heap::boxed(&view) }
}
