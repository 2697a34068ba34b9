//! Key look-ups.
//!
//! A reader takes no lock and writes no shared memory. It notes the bucket's word, searches, lets
//! the visitor copy what it wants, and reads the word again. If the word says that nothing changed
//! meanwhile, the visitor saw a record of that time; otherwise everything is thrown away and
//! repeated. The reader takes the lock
//!
//! * after some failures, so that a busy bucket does not starve its readers,
//! * for records that lead to more than their own words, or are so long that copying them by words
//!   would cost more than the lock,
//! * to write something: the clock of a record, once a second,
//! * inside a lock set, whose buckets are held already.
//!
//! Everything that is read before the word was read again may be torn: lengths are checked
//! ([`View::load`]) and chains are followed for a bounded number of steps.

use structures::Object;

use crate::bucket::{Bucket, Link, Word};
use crate::event::{Event, EventClass};
use crate::index::{Index, Spot};
use crate::indexed::Indexed;
use crate::key::Key;
use crate::layout::View;
use crate::local::{Local, view_of};
use crate::record::{Record, Visitor};
use crate::shared::Shared;
use crate::wait::Wait;

/// Number of failures after which the lock is taken.
const TRIES_MAX: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 8 };

/// Maximum number of keys that are read together without locks: the more keys there are, the
/// likelier it is that one of them changes meanwhile.
const TOGETHER_MAX: usize = 16;

/// Maximum number of overflow buckets followed without the lock. A chain that is being recycled may
/// lead in a circle.
const HOPS_MAX: u32 = 16;

impl Indexed {
    /// Looks a key up and shows its record to `visit`; an expired record is shown as absent.
    #[inline(never)]
    pub(crate) fn read<R>(
        &mut self,
        key: &Key<'_>,
        visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        self.read_by(key, Closure(visit))
    }

    /// As [`Indexed::read`], for a visitor that is inlined into the look-up.
    ///
    /// Nearly every look is a brief one. It is inlined, so that what it needs is in registers.
    #[inline(always)]
    pub(crate) fn read_by<V: Visitor>(&mut self, key: &Key<'_>, mut visitor: V) -> V::Answer {
        let trouble = match self.index(key) {
            Some(index) if self.is_inside() => match self.look_briefly(index, key, &mut visitor) {
                Ok((answer, seen)) => {
                    self.note(key, &seen);
                    return answer;
                }
                Err(trouble) => trouble,
            },
            _ => None,
        };
        visitor.forget();
        self.look_properly(*key, visitor, trouble)
    }

    /// Shows several keys as they all are at one moment, without a lock, if each can be looked at
    /// briefly. Returns whether this succeeded. If not, what was shown does not count.
    ///
    /// All words are read once more after the last key. If they are what they were before the
    /// looks, nothing in any of the buckets changed between the first of these looks and now.
    pub(crate) fn read_together_briefly<R>(
        &self,
        keys: &[Key<'_>],
        mut visit: impl FnMut(usize, Option<&Record<'_>>) -> R,
    ) -> bool {
        if keys.len() > TOGETHER_MAX || !self.is_inside() || !self.local.held.is_empty() {
            return false;
        }
        let mut looks: [Option<(Watched<'_>, Seen<'_>)>; TOGETHER_MAX] = Default::default();
        for ((at, key), place) in keys.iter().enumerate().zip(&mut looks) {
            let Some(index) = self.index(key) else {
                return false;
            };
            let Some((bucket, word)) = home_of(index, key) else {
                return false;
            };
            let home = Watched { bucket, word };
            let mut visitor = Closure(|record: Option<&Record<'_>>| visit(at, record));
            match self.look_watched(index, &home, key, &mut visitor) {
                Ok((_, seen)) => *place = Some((home, seen)),
                Err(_) => return false,
            }
        }
        let is_one_moment = |look: &Option<(Watched<'_>, Seen<'_>)>| {
            look.as_ref().is_none_or(|(home, _)| home.is_as_it_was())
        };
        if !looks.iter().all(is_one_moment) {
            return false;
        }
        for (key, look) in keys.iter().zip(&looks) {
            if let Some((_, seen)) = look {
                self.note(key, seen);
            }
        }
        true
    }

    /// Counts a brief look.
    #[inline(always)]
    fn note(&self, key: &Key<'_>, seen: &Seen<'_>) {
        match seen {
            Some(spot) => self.local.note_hit(spot),
            None => self.local.note_miss(&self.shared, key),
        }
    }

    /// As [`Indexed::read`], with the bucket held from the start: for keys that nearly always lead
    /// to objects, which cannot be read without the lock.
    #[inline]
    pub(crate) fn read_held<R>(
        &mut self,
        key: &Key<'_>,
        mut visit: impl FnMut(Option<&Record<'_>>) -> R,
    ) -> R {
        let entered = self.enter();
        self.see_index(key.database());
        let mut patience = Patience::default();
        let mut look = patience.look_held(&self.shared, &self.local, self.index(key), key);
        if look.met_expired {
            drop(patience);
            self.remove_expired(key);
            patience = Patience::default();
            look = patience.look_held(&self.shared, &self.local, self.index(key), key);
        }
        look.note(&self.shared, &self.local, key);
        let answer = visit(look.record(&self.local, key).as_ref());
        drop(patience);
        if entered {
            self.leave();
        }
        answer
    }

    /// Shows the records of all keys of the lock set in `keys` at once, up to the first that does
    /// not fit.
    pub(crate) fn read_all<R>(
        &mut self,
        keys: &[Key<'_>],
        fits: impl Fn(&Record<'_>) -> bool,
        visit: impl FnOnce(&[Option<Record<'_>>]) -> R,
    ) -> R {
        debug_assert!(self.holds_several(), "the records could change");
        for key in keys {
            self.see_index(key.database());
        }
        let mut looks = self.look_at_all(keys, &fits);
        if looks.iter().any(|look| look.met_expired) {
            drop(looks);
            for key in keys {
                if self.look_in_set(key).met_expired {
                    self.remove_expired(key);
                }
            }
            looks = self.look_at_all(keys, &fits);
        }
        let shown = keys.iter().zip(&looks).map(|(key, look)| {
            look.note(&self.shared, &self.local, key);
            look.record(&self.local, key)
        });
        visit(&shown.collect::<Vec<_>>())
    }

    /// Looks at the keys of the lock set, up to the first whose record does not fit.
    fn look_at_all(&self, keys: &[Key<'_>], fits: impl Fn(&Record<'_>) -> bool) -> Vec<Look<'_>> {
        let mut looks = Vec::with_capacity(keys.len());
        for key in keys {
            let look = self.look_in_set(key);
            let is_last = look
                .record(&self.local, key)
                .is_some_and(|record| !fits(&record));
            looks.push(look);
            if is_last {
                break;
            }
        }
        looks
    }

    /// Looks at a key of the lock set, or at any key if this thread has the whole store.
    fn look_in_set<'a>(&'a self, key: &Key<'_>) -> Look<'a> {
        let (shared, local) = (&*self.shared, &*self.local);
        let Some(index) = self.index(key) else {
            return Look::NOWHERE;
        };
        let number = if local.held.is_empty() {
            index.state().home(key.hash()).number
        } else {
            let at = local.held_at(index, key.database(), key.hash());
            local.held[at].home.number
        };
        look_locked(shared, local, index, index.bucket(number), key).0
    }

    /// Shows the object at a key, if there is one, to a caller that only wants advice: this does
    /// not count as a use, and does not wait if the wait could be long.
    pub(crate) fn glance(&mut self, key: &Key<'_>, visit: impl FnOnce(&Object)) {
        if self.holds_several() || self.shared.parking.has_long() {
            return;
        }
        let entered = self.enter();
        self.see_index(key.database());
        let notes_use = std::mem::replace(&mut self.local.notes_use, false);
        let mut patience = Patience::default();
        let look = patience.look_held(&self.shared, &self.local, self.index(key), key);
        // A cold value is not loaded for advice.
        let record = look.record(&self.local, key);
        let record = record.filter(|record| !record.is_cold());
        if let Some(object) = record.as_ref().and_then(Record::object) {
            visit(&object);
        }
        drop(patience);
        self.local.notes_use = notes_use;
        if entered {
            self.leave();
        }
    }

    #[inline]
    fn index(&self, key: &Key<'_>) -> Option<&Index> {
        self.seen.get(key.database()).map(|index| &**index)
    }

    /// Looks once at the home bucket, and if that is full at the first overflow bucket, for a short
    /// record or none at all. Any other case fails and needs a [proper look](Self::look_properly);
    /// the error is the reason, if known. The caller then [notes](Self::note) what was seen.
    #[inline(always)]
    fn look_briefly<'a, V: Visitor>(
        &self,
        index: &'a Index,
        key: &Key<'_>,
        visitor: &mut V,
    ) -> Result<(V::Answer, Seen<'a>), Option<Trouble>> {
        if !self.local.held.is_empty() {
            return Err(Some(Trouble::NeedsLock));
        }
        let (bucket, word) = home_of(index, key).ok_or(Some(Trouble::Busy))?;
        self.look_watched(index, &Watched { bucket, word }, key, visitor)
    }

    /// As [`Indexed::look_briefly`], with the home bucket and its earlier word. On success, the
    /// word has not changed.
    #[inline(always)]
    fn look_watched<'a, V: Visitor>(
        &self,
        index: &'a Index,
        home: &Watched<'a>,
        key: &Key<'_>,
        visitor: &mut V,
    ) -> Result<(V::Answer, Seen<'a>), Option<Trouble>> {
        // Another record with the same tag is so rare that the search does not continue for it.
        match home.bucket.candidates(key.hash()).next() {
            Some(at) => self.show_briefly(home, home.bucket, at, key, visitor),
            None if home.word.overflow() == 0 => show_none(home, visitor),
            None => self.look_behind(index, home, key, visitor),
        }
    }

    /// As [`Indexed::look_briefly`], at the first overflow bucket.
    #[inline(never)]
    fn look_behind<'a, V: Visitor>(
        &self,
        index: &'a Index,
        home: &Watched<'a>,
        key: &Key<'_>,
        visitor: &mut V,
    ) -> Result<(V::Answer, Seen<'a>), Option<Trouble>> {
        let bucket = index.overflow().get(home.word.overflow()).ok_or(None)?;
        match bucket.candidates(key.hash()).next() {
            Some(at) => self.show_briefly(home, bucket, at, key, visitor),
            None if bucket.overflow() == 0 => show_none(home, visitor),
            None => Err(None),
        }
    }

    /// Shows the record that a link names, if it is the key's, short and in force.
    #[inline(always)]
    fn show_briefly<'a, V: Visitor>(
        &self,
        home: &Watched<'a>,
        bucket: &'a Bucket,
        at: usize,
        key: &Key<'_>,
        visitor: &mut V,
    ) -> Result<(V::Answer, Seen<'a>), Option<Trouble>> {
        let (shared, local) = (&*self.shared, &*self.local);
        let link = bucket.link(at);
        if link.has(Link::LOCKED_READ) {
            return Err(Some(Trouble::NeedsLock));
        }
        let offset = link.offset().ok_or(Some(Trouble::Torn))?;
        let Some(view) = View::find_short(shared.arena_ref(), offset, key.bytes()) else {
            return Err(None);
        };
        if view.has_times() && !is_current(local, &view) {
            return Err(None);
        }
        let (in_force, now) = (local.in_force, local.now_unix_ms);
        let record = Record::optimistic(key.bytes(), view, in_force, now);
        let answer = visitor.visit(Some(&record));
        if !home.is_as_it_was() {
            return Err(Some(Trouble::Torn));
        }
        Ok((answer, Some(Spot { bucket, at, link })))
    }

    /// Looks a key up, whatever it holds and wherever it is; `trouble` is the reason why an earlier
    /// look failed.
    #[inline(never)]
    fn look_properly<V: Visitor>(
        &mut self,
        key: Key<'_>,
        mut visitor: V,
        trouble: Option<Trouble>,
    ) -> V::Answer {
        let entered = self.enter();
        self.see_index(key.database());
        let mut removes = true;
        let answer = loop {
            match self.look(&key, &mut visitor, trouble, removes) {
                Some(answer) => break answer,
                None => self.remove_expired(&key),
            }
            removes = false;
        };
        if entered {
            self.leave();
        }
        answer
    }

    /// Looks a key up. Returns `None`, with nothing shown or noted, if `stops_at_expired` and the
    /// record has expired.
    fn look<V: Visitor>(
        &self,
        key: &Key<'_>,
        visitor: &mut V,
        mut trouble: Option<Trouble>,
        stops_at_expired: bool,
    ) -> Option<V::Answer> {
        let (shared, local) = (&*self.shared, &*self.local);
        let mut patience = Patience::default();
        loop {
            let look = patience.look(shared, local, self.index(key), key, trouble);
            if stops_at_expired && look.met_expired && look.may_be_believed() {
                return None;
            }
            let answer = visitor.visit(look.record(local, key).as_ref());
            if look.may_be_believed() {
                look.note(shared, local, key);
                return Some(answer);
            }
            visitor.forget();
            trouble = Some(Trouble::Torn);
        }
    }
}

/// Shows that there is no record.
#[inline(always)]
fn show_none<'a, V: Visitor>(
    home: &Watched<'_>,
    visitor: &mut V,
) -> Result<(V::Answer, Seen<'a>), Option<Trouble>> {
    let answer = visitor.visit(None);
    if !home.is_as_it_was() {
        return Err(Some(Trouble::Torn));
    }
    Ok((answer, None))
}

/// Where a brief look found a record, or `None` if there is none.
type Seen<'a> = Option<Spot<'a>>;

/// A closure as a visitor.
struct Closure<F>(F);

impl<R, F: FnMut(Option<&Record<'_>>) -> R> Visitor for Closure<F> {
    type Answer = R;

    #[inline(always)]
    fn visit(&mut self, record: Option<&Record<'_>>) -> R {
        (self.0)(record)
    }

    // The closure does so by itself.
    #[inline(always)]
    fn forget(&mut self) {}
}

/// The result of a look at a key.
struct Look<'a> {
    /// The record, unless there is none or it has expired.
    found: Option<(Spot<'a>, View<'a>)>,
    /// Whether there is a record that has expired.
    met_expired: bool,
    /// Says later whether what was seen without the lock may be believed. `None` for what cannot
    /// change: the bucket is held, or there is none.
    watched: Option<Watched<'a>>,
}

/// A home bucket, and its word before a look without the lock.
struct Watched<'a> {
    bucket: &'a Bucket,
    word: Word,
}

impl Watched<'_> {
    /// Whether everything seen in the whole chain since then is of one moment.
    #[inline(always)]
    fn is_as_it_was(&self) -> bool {
        self.word.validates(self.bucket.word_after())
    }
}

/// Why a look without the lock failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Another thread holds the bucket, or it was just split.
    Busy,
    /// The words seen cannot be a whole record.
    Torn,
    /// The lock is needed.
    NeedsLock,
}

impl Look<'_> {
    /// The look in a database that has no table: there is nothing.
    const NOWHERE: Self = Self {
        found: None,
        met_expired: false,
        watched: None,
    };

    /// Returns the record. It may be believed only if [`Look::may_be_believed`] afterwards.
    #[inline(always)]
    fn record<'l>(&'l self, local: &Local, key: &Key<'l>) -> Option<Record<'l>> {
        let (_, view) = self.found?;
        let (in_force, now) = (local.in_force, local.now_unix_ms);
        Some(match self.watched {
            Some(_) => Record::optimistic(key.bytes(), view, in_force, now),
            // SAFETY: what is found and not watched is in a bucket that is held for as long as the
            // reader's `Patience` or the lock set lives, and the record is gone before that ends.
            None => unsafe { Record::locked(key.bytes(), view, in_force, now) },
        })
    }

    /// Whether everything seen since then is of one moment.
    #[inline(always)]
    fn may_be_believed(&self) -> bool {
        self.watched.as_ref().is_none_or(Watched::is_as_it_was)
    }

    /// Counts a look, and marks the record as used if the policy needs that.
    #[inline]
    fn note(&self, shared: &Shared, local: &Local, key: &Key<'_>) {
        match &self.found {
            Some((spot, _)) => local.note_hit(spot),
            None => local.note_miss(shared, key),
        }
    }
}

impl Local {
    /// Counts a look that found a record, and marks the record as used if the policy needs that.
    #[inline(always)]
    fn note_hit(&self, spot: &Spot<'_>) {
        self.cell.events.hits.count();
        let marks = self.in_force.uses_marks() && self.notes_use;
        if marks && !spot.link.has(Link::VISITED) {
            spot.bucket.set_visited(spot.at);
        }
    }

    /// Counts a look that found no record.
    #[inline]
    fn note_miss(&self, shared: &Shared, key: &Key<'_>) {
        self.cell.events.misses.count();
        self.event(shared, key, EventClass::KEY_MISS, Event::MISSED);
    }
}

/// State of repeated failing looks: their number, and the bucket once it is held.
#[derive(Default)]
struct Patience<'a> {
    tries: u32,
    wait: Wait,
    held: Option<Held<'a>>,
}

/// A bucket that was locked for a look and is released afterwards.
struct Held<'a> {
    home: &'a Bucket,
    changed: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.home.unlock(self.changed);
    }
}

impl<'a> Patience<'a> {
    /// Looks until a look succeeds, in the end with the lock. `trouble` is the reason why the look
    /// before failed, if there was one.
    fn look(
        &mut self,
        shared: &'a Shared,
        local: &'a Local,
        index: Option<&'a Index>,
        key: &Key<'_>,
        mut trouble: Option<Trouble>,
    ) -> Look<'a> {
        while self.tries + 1 < TRIES_MAX {
            self.tries += 1;
            match trouble {
                Some(Trouble::NeedsLock) => break,
                Some(Trouble::Busy) => self.wait.pause(),
                Some(Trouble::Torn) | None => {}
            }
            match look_freely(shared, local, index, key) {
                Ok(look) => return look,
                Err(another) => trouble = Some(another),
            }
        }
        self.look_held(shared, local, index, key)
    }

    /// Looks with the bucket held.
    fn look_held(
        &mut self,
        shared: &'a Shared,
        local: &'a Local,
        index: Option<&'a Index>,
        key: &Key<'_>,
    ) -> Look<'a> {
        let Some(index) = index else {
            return Look::NOWHERE;
        };
        let is_own = local.held.is_empty();
        let number = if is_own {
            index.lock(key.hash()).number
        } else {
            let at = local.held_at(index, key.database(), key.hash());
            local.held[at].home.number
        };
        let home = index.bucket(number);
        // From here on the bucket is released, whatever happens.
        let mut held = is_own.then(|| Held {
            home,
            changed: false,
        });
        let (look, changed) = look_locked(shared, local, index, home, key);
        if let Some(held) = &mut held {
            held.changed = changed;
        }
        self.held = held;
        look
    }
}

/// Looks into a bucket that is held. Returns also whether the look changed the record's clock.
#[inline]
fn look_locked<'a>(
    shared: &'a Shared,
    local: &Local,
    index: &'a Index,
    home: &'a Bucket,
    key: &Key<'_>,
) -> (Look<'a>, bool) {
    let is = |link: Link| {
        // SAFETY: the bucket is held.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key.bytes()) })
    };
    let found = index
        .find(home, key.hash(), is)
        .and_then(|spot| Some((spot, view_of(shared, spot.link)?)));
    let met_expired = has_expired(local, found.as_ref());
    let found = found.filter(|_| !met_expired);
    let mut changed = false;
    if let Some((_, view)) = found
        && let Some(word) = view.clock().filter(|_| local.notes_use)
        && let Some(clock) = local.clock().used(word)
    {
        view.set_clock(clock);
        changed = true;
    }
    let look = Look {
        found,
        met_expired,
        watched: None,
    };
    (look, changed)
}

/// Looks once, without the lock. The result counts if the word does not change.
fn look_freely<'a>(
    shared: &'a Shared,
    local: &Local,
    index: Option<&'a Index>,
    key: &Key<'_>,
) -> Result<Look<'a>, Trouble> {
    let Some(index) = index else {
        return Ok(Look::NOWHERE);
    };
    if !local.held.is_empty() {
        return Err(Trouble::NeedsLock);
    }
    let (bucket, word) = home_of(index, key).ok_or(Trouble::Busy)?;
    // An expired record is the only one of its key.
    let found = match search_bucket(shared, bucket, key)? {
        Some(found) => Some(found),
        None => search_overflow(shared, index, word.overflow(), key)?,
    };
    let met_expired = has_expired(local, found.as_ref());
    let found = found.filter(|_| !met_expired);
    if found.is_some_and(|(_, view)| !is_current(local, &view)) {
        return Err(Trouble::NeedsLock);
    }
    Ok(Look {
        found,
        met_expired,
        watched: Some(Watched { bucket, word }),
    })
}

/// Returns the home bucket of a key and its word, unless another thread holds it or it was just
/// split.
#[inline(always)]
fn home_of<'a>(index: &'a Index, key: &Key<'_>) -> Option<(&'a Bucket, Word)> {
    let home = index.state().home(key.hash());
    let bucket = index.bucket(home.number);
    let word = bucket.word();
    if word.is_free_at(home.depth) {
        Some((bucket, word))
    } else {
        None
    }
}

/// Whether a record with a deadline or a clock can be shown as it is: it has not expired, and its
/// clock need not be set.
#[inline(always)]
fn is_current(local: &Local, view: &View<'_>) -> bool {
    let is_used = |clock| local.notes_use && local.clock().used(clock).is_some();
    !view.is_expired(local.now_unix_ms) && !view.clock().is_some_and(is_used)
}

#[inline]
fn has_expired(local: &Local, found: Option<&(Spot<'_>, View<'_>)>) -> bool {
    !local.sees_expired && found.is_some_and(|(_, view)| view.is_expired(local.now_unix_ms))
}

/// Searches the rest of a chain; few keys are not in their home bucket.
fn search_overflow<'a>(
    shared: &'a Shared,
    index: &'a Index,
    first: u32,
    key: &Key<'_>,
) -> Result<Option<(Spot<'a>, View<'a>)>, Trouble> {
    let mut next = first;
    for _ in 0..HOPS_MAX {
        let Some(bucket) = index.overflow().get(next) else {
            return Ok(None);
        };
        if let Some(found) = search_bucket(shared, bucket, key)? {
            return Ok(Some(found));
        }
        next = bucket.word().overflow();
    }
    Err(Trouble::NeedsLock)
}

fn search_bucket<'a>(
    shared: &'a Shared,
    bucket: &'a Bucket,
    key: &Key<'_>,
) -> Result<Option<(Spot<'a>, View<'a>)>, Trouble> {
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
    Ok(None)
}
