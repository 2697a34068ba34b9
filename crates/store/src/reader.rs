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
        if local.held.is_empty()
            && let Some(answer) = read_freely(shared, local, index, key, &mut visit)
        {
            return answer;
        }
        read_locked(shared, local, index, key, visit)
    }
}

/// What a search without the lock came to.
enum Found<'a> {
    /// This record, if the word stays as it was.
    Record(Spot<'a>, View<'a>),
    /// No record, if the word stays as it was.
    Nothing,
    /// The lock is needed.
    NeedsLock,
    /// What was seen cannot be whole.
    Torn,
}

/// Looks without the lock; `None` when it has to be taken.
#[inline]
fn read_freely<R>(
    shared: &Shared,
    local: &Local,
    index: &Index,
    key: &Key<'_>,
    visit: &mut impl FnMut(Option<&Record<'_>>) -> R,
) -> Option<R> {
    let mut wait = Wait::default();
    for _ in 0..TRIES_MAX {
        let home = index.state().home(key.hash());
        let bucket = index.bucket(home.number);
        let word = bucket.word();
        if word.is_locked() || word.depth() != home.depth {
            wait.pause();
            continue;
        }
        let (answer, spot) = match search(shared, index, bucket, word, key) {
            Found::NeedsLock => return None,
            Found::Torn => continue,
            Found::Record(spot, view) if !view.is_expired(local.now_unix_ms) => {
                let clock = view.clock();
                if local.notes_use && clock.is_some_and(|word| local.clock().used(word).is_some()) {
                    return None;
                }
                let (in_force, now) = (local.in_force, local.now_unix_ms);
                let record = Record::optimistic(key.bytes(), view, in_force, now);
                (visit(Some(&record)), Some(spot))
            }
            Found::Record(..) | Found::Nothing => (visit(None), None),
        };
        if word.validates(bucket.word_after()) {
            note(local, spot);
            return Some(answer);
        }
    }
    None
}

/// Searches a chain whose word was `word`, without the lock.
#[inline(always)]
fn search<'a>(
    shared: &'a Shared,
    index: &'a Index,
    home: &'a Bucket,
    word: Word,
    key: &Key<'_>,
) -> Found<'a> {
    let mut bucket = home;
    let mut next = word.overflow();
    for _ in 0..=HOPS_MAX {
        for at in bucket.candidates(key.hash()) {
            let link = bucket.link(at);
            let Some(offset) = link.offset() else {
                continue;
            };
            let Some(view) = View::load(shared.arena_ref(), offset) else {
                return Found::Torn;
            };
            match view.inline_key_is(key.bytes()) {
                Some(false) => {}
                Some(true) if !link.has(Link::LOCKED_READ) && view.is_short() => {
                    return Found::Record(Spot { bucket, at, link }, view);
                }
                _ => return Found::NeedsLock,
            }
        }
        match index.overflow().get(next) {
            None => return Found::Nothing,
            Some(overflow) => {
                bucket = overflow;
                next = bucket.word().overflow();
            }
        }
    }
    Found::NeedsLock
}

/// Counts a look, and marks the record as used if the policy wants to know.
#[inline]
fn note(local: &Local, spot: Option<Spot<'_>>) {
    let Some(spot) = spot else {
        local.cell.events.misses.count();
        return;
    };
    local.cell.events.hits.count();
    let marks = local.notes_use && local.in_force.policy.uses_marks();
    if marks && !spot.link.has(Link::VISITED) {
        spot.bucket.set_visited(spot.at);
    }
}

/// Gives a bucket back that was looked at.
struct Looking<'i> {
    bucket: &'i Bucket,
    is_own: bool,
    changed: bool,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.bucket.unlock(self.changed);
        }
    }
}

/// Looks with the bucket locked.
#[cold]
fn read_locked<R>(
    shared: &Shared,
    local: &Local,
    index: &Index,
    key: &Key<'_>,
    mut visit: impl FnMut(Option<&Record<'_>>) -> R,
) -> R {
    let is_own = local.held.is_empty();
    let home = if is_own {
        index.lock(key.hash())
    } else {
        local.held[local.held_at(index, key.database(), key.hash())].home
    };
    let mut looking = Looking {
        bucket: index.bucket(home.number),
        is_own,
        changed: false,
    };
    let is = |link: Link| {
        // SAFETY: the bucket is held.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key.bytes()) })
    };
    let found = index
        .find(looking.bucket, key.hash(), is)
        .and_then(|spot| Some((spot, view_of(shared, spot.link)?)))
        .filter(|(_, view)| !view.is_expired(local.now_unix_ms));
    note(local, found.map(|(spot, _)| spot));
    let Some((_, view)) = found else {
        return visit(None);
    };
    let clock = view.clock().filter(|_| local.notes_use);
    if let Some(clock) = clock.and_then(|word| local.clock().used(word)) {
        view.set_clock(clock);
        looking.changed = true;
    }
    let (in_force, now) = (local.in_force, local.now_unix_ms);
    // SAFETY: the bucket is held as long as `looking` lives.
    visit(Some(&unsafe {
        Record::locked(key.bytes(), view, in_force, now)
    }))
}
