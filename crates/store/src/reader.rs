//! Looking a key up.
//!
//! A reader takes no lock and writes no shared memory: it notes the bucket's word, searches, lets
//! the visitor copy what it wants, and looks at the word again. If the word says that nothing was
//! changed meanwhile, what the visitor saw was a record of that time; otherwise all of it is thrown
//! away and done again. The lock is taken
//!
//! * after some failures, so that a busy bucket does not starve its readers,
//! * for records that lead to more than their own words, or are so long that copying them by words
//!   would cost more than the lock,
//! * when the reader has something to write: the clock of a record, once a second,
//! * inside a lock set, whose buckets are held already.
//!
//! Everything that is read before the word was looked at again may be torn: lengths are checked
//! ([`View::load`]) and chains are followed for a bounded number of steps.

use structures::Object;

use crate::bucket::{Bucket, Link, Word};
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::Key;
use crate::layout::View;
use crate::local::{Local, view_of};
use crate::record::Record;
use crate::shared::Shared;
use crate::wait::Wait;

/// Failures after which the lock is taken.
const TRIES_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

/// Overflow buckets followed without the lock. A chain that is being recycled may lead in a circle.
const HOPS_MAX: u32 = 16;

impl Indexed {
    /// Looks a key up and shows it to `visit`, expired ones as absent.
    #[inline]
    pub(crate) fn read<R>(
        &mut self,
        key: &Key<'_>,
        mut visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        let entered = self.enter();
        let answer = if self.find_index(key.database()).is_some() {
            self.read_in_index(key, visit)
        } else {
            self.local.cell.events.misses.count();
            visit(None)
        };
        if entered {
            self.leave();
        }
        answer
    }

    /// As [`Indexed::read`], with the bucket held from the start: for keys that lead to objects
    /// nearly always, which are not looked at otherwise.
    #[inline]
    pub(crate) fn read_held<R>(
        &mut self,
        key: &Key<'_>,
        mut visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        let entered = self.enter();
        let answer = if self.find_index(key.database()).is_some() {
            let (shared, local) = (&*self.shared, &*self.local);
            let Some(index) = self.seen.get(key.database()) else {
                unreachable!("looked up before");
            };
            let held = look_locked(shared, local, index, key);
            held.look.note(local);
            visit(held.record(local, key).as_ref())
        } else {
            self.local.cell.events.misses.count();
            visit(None)
        };
        if entered {
            self.leave();
        }
        answer
    }

    /// Shows the object at a key, if there is one, to somebody who only wants advice: it does not
    /// count as a use, and nobody waits for it who could wait long.
    pub(crate) fn glance(&mut self, key: &Key<'_>, visit: impl FnOnce(&Object)) {
        if self.holds_several() || self.shared.parking.has_long() {
            return;
        }
        let entered = self.enter();
        if self.find_index(key.database()).is_some() {
            let notes_use = std::mem::replace(&mut self.local.notes_use, false);
            if let Some(index) = self.seen.get(key.database()) {
                let held = look_locked(&self.shared, &self.local, index, key);
                let record = held.record(&self.local, key);
                if let Some(object) = record.as_ref().and_then(Record::object) {
                    visit(object);
                }
            }
            self.local.notes_use = notes_use;
        }
        if entered {
            self.leave();
        }
    }

    #[inline]
    fn read_in_index<R>(
        &self,
        key: &Key<'_>,
        mut visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        let (shared, local) = (&*self.shared, &*self.local);
        let Some(index) = self.seen.get(key.database()) else {
            unreachable!("looked up before");
        };
        // The first try is in line and by itself, so that what it needs is in registers.
        match look_freely(shared, local, index, key) {
            Ok(look) => {
                let answer = visit(look.record(local, key).as_ref());
                if look.may_be_believed() {
                    look.note(local);
                    answer
                } else {
                    read_patiently(shared, local, index, key, Trouble::Torn, &mut visit)
                }
            }
            Err(trouble) => read_patiently(shared, local, index, key, trouble, &mut visit),
        }
    }
}

/// What a look at a key came to.
struct Look<'a> {
    /// The record, unless there is none or it has expired.
    found: Option<(Spot<'a>, View<'a>)>,
    home: &'a Bucket,
    /// The word before a look without the lock; later it says whether what was seen may be believed.
    seen: Word,
}

/// A look with the bucket held, which is given back afterwards.
struct HeldLook<'a> {
    look: Look<'a>,
    /// The bucket was locked for this look, and is not one of a lock set.
    is_own: bool,
    changed: bool,
}

impl HeldLook<'_> {
    fn record<'l>(&'l self, local: &Local, key: &Key<'l>) -> Option<Record<'l>> {
        let (_, view) = self.look.found?;
        let (in_force, now) = (local.in_force, local.now_unix_ms);
        // SAFETY: the bucket is held as long as `self` lives, and the record lives no longer.
        Some(unsafe { Record::locked(key.bytes(), view, in_force, now) })
    }
}

impl Drop for HeldLook<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.look.home.unlock(self.changed);
        }
    }
}

/// Why a look without the lock came to nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Somebody holds the bucket, or it was just split.
    Busy,
    /// What was seen cannot be whole.
    Torn,
    /// The lock is needed.
    NeedsLock,
}

impl Look<'_> {
    /// The record, to be believed only if [`Look::may_be_believed`] afterwards.
    #[inline]
    fn record<'l>(&'l self, local: &Local, key: &Key<'l>) -> Option<Record<'l>> {
        let (_, view) = self.found?;
        let (in_force, now) = (local.in_force, local.now_unix_ms);
        Some(Record::optimistic(key.bytes(), view, in_force, now))
    }

    /// Whether what was seen since was all of one time.
    #[inline]
    fn may_be_believed(&self) -> bool {
        self.seen.validates(self.home.word_after())
    }

    /// Counts a look, and marks the record as used if the policy wants to know.
    #[inline]
    fn note(&self, local: &Local) {
        let Some((spot, _)) = self.found else {
            local.cell.events.misses.count();
            return;
        };
        local.cell.events.hits.count();
        let marks = local.notes_use && local.in_force.policy.uses_marks();
        if marks && !spot.link.has(Link::VISITED) {
            spot.bucket.set_visited(spot.at);
        }
    }
}

/// Looks once, without the lock.
#[inline(always)]
fn look_freely<'a>(
    shared: &'a Shared,
    local: &Local,
    index: &'a Index,
    key: &Key<'_>,
) -> Result<Look<'a>, Trouble> {
    if !local.held.is_empty() {
        return Err(Trouble::NeedsLock);
    }
    let home = index.state().home(key.hash());
    let bucket = index.bucket(home.number);
    let seen = bucket.word();
    if seen.is_locked() || seen.depth() != home.depth {
        return Err(Trouble::Busy);
    }
    let found = search(shared, index, bucket, seen, key)?;
    let found = found.filter(|(_, view)| !view.is_expired(local.now_unix_ms));
    if let Some(clock) = found.and_then(|(_, view)| view.clock())
        && local.notes_use
        && local.clock().used(clock).is_some()
    {
        return Err(Trouble::NeedsLock);
    }
    Ok(Look {
        found,
        home: bucket,
        seen,
    })
}

/// Looks until what was seen may be believed, with the lock in the end.
#[cold]
#[inline(never)]
fn read_patiently<R>(
    shared: &Shared,
    local: &Local,
    index: &Index,
    key: &Key<'_>,
    mut trouble: Trouble,
    visit: &mut impl FnMut(Option<&Record<'_>>) -> R,
) -> R {
    let mut wait = Wait::default();
    for _ in 1..TRIES_MAX {
        match trouble {
            Trouble::NeedsLock => break,
            Trouble::Busy => wait.pause(),
            Trouble::Torn => {}
        }
        trouble = match look_freely(shared, local, index, key) {
            Err(trouble) => trouble,
            Ok(look) => {
                let answer = visit(look.record(local, key).as_ref());
                if look.may_be_believed() {
                    look.note(local);
                    return answer;
                }
                Trouble::Torn
            }
        };
    }
    let held = look_locked(shared, local, index, key);
    held.look.note(local);
    visit(held.record(local, key).as_ref())
}

/// Searches a chain whose word was `word`, without the lock: what is found there counts if the word
/// stays as it was.
#[inline(always)]
fn search<'a>(
    shared: &'a Shared,
    index: &'a Index,
    home: &'a Bucket,
    word: Word,
    key: &Key<'_>,
) -> Result<Option<(Spot<'a>, View<'a>)>, Trouble> {
    let mut bucket = home;
    let mut next = word.overflow();
    for _ in 0..=HOPS_MAX {
        for at in bucket.candidates(key.hash()) {
            let link = bucket.link(at);
            let Some(offset) = link.offset() else {
                continue;
            };
            let view = View::load(shared.arena_ref(), offset).ok_or(Trouble::Torn)?;
            match view.inline_key_is(key.bytes()) {
                Some(false) => {}
                Some(true) if !link.has(Link::LOCKED_READ) && view.is_short() => {
                    return Ok(Some((Spot { bucket, at, link }, view)));
                }
                _ => return Err(Trouble::NeedsLock),
            }
        }
        match index.overflow().get(next) {
            None => return Ok(None),
            Some(overflow) => {
                bucket = overflow;
                next = bucket.word().overflow();
            }
        }
    }
    Err(Trouble::NeedsLock)
}

/// Looks with the bucket locked.
fn look_locked<'a>(
    shared: &'a Shared,
    local: &'a Local,
    index: &'a Index,
    key: &Key<'_>,
) -> HeldLook<'a> {
    let is_own = local.held.is_empty();
    let number = if is_own {
        index.lock(key.hash()).number
    } else {
        let at = local.held_at(index, key.database(), key.hash());
        local.held[at].home.number
    };
    let home = index.bucket(number);
    let look = Look {
        found: None,
        home,
        seen: home.word(),
    };
    let mut held = HeldLook {
        look,
        is_own,
        changed: false,
    };
    let is = |link: Link| {
        // SAFETY: the bucket is held.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key.bytes()) })
    };
    held.look.found = index
        .find(home, key.hash(), is)
        .and_then(|spot| Some((spot, view_of(shared, spot.link)?)))
        .filter(|(_, view)| !view.is_expired(local.now_unix_ms));
    if let Some((_, view)) = held.look.found
        && let Some(word) = view.clock().filter(|_| local.notes_use)
        && let Some(clock) = local.clock().used(word)
    {
        view.set_clock(clock);
        held.changed = true;
    }
    held
}
