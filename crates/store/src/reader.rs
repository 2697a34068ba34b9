//! Looking a key up.

use crate::bucket::{Bucket, Link};
use crate::index::Index;
use crate::indexed::Indexed;
use crate::key::Key;
use crate::local::{Local, view_of};
use crate::record::Record;
use crate::shared::Shared;

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
    fn read_in_index<R>(&self, key: &Key<'_>, visit: impl FnMut(Option<&Record<'_>>) -> R) -> R {
        let (shared, local) = (&*self.shared, &*self.local);
        let Some(index) = self.seen.get(key.database()) else {
            unreachable!("looked up before");
        };
        read_locked(shared, local, index, key, visit)
    }
}

/// Gives a bucket back that was only looked at.
struct Looking<'i> {
    bucket: &'i Bucket,
    is_own: bool,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.bucket.unlock(false);
        }
    }
}

/// Looks with the bucket locked.
fn read_locked<R>(
    shared: &Shared,
    local: &Local,
    index: &Index,
    key: &Key<'_>,
    mut visit: impl FnMut(Option<&Record<'_>>) -> R,
) -> R {
    let looking = if local.held.is_empty() {
        let home = index.lock(key.hash());
        Looking {
            bucket: index.bucket(home.number),
            is_own: true,
        }
    } else {
        let held = local.held[local.held_at(index, key.database(), key.hash())];
        Looking {
            bucket: index.bucket(held.home.number),
            is_own: false,
        }
    };
    let is = |link: Link| {
        // SAFETY: the bucket is held.
        view_of(shared, link).is_some_and(|view| unsafe { view.key_is(key.bytes()) })
    };
    let spot = index.find(looking.bucket, key.hash(), is);
    let view = spot
        .and_then(|spot| view_of(shared, spot.link))
        .filter(|view| !view.is_expired(local.now_unix_ms));
    let (Some(spot), Some(view)) = (spot, view) else {
        local.cell.events.misses.count();
        return visit(None);
    };
    local.cell.events.hits.count();
    if local.in_force.policy.uses_marks() && !spot.link.has(Link::VISITED) && local.notes_use {
        spot.bucket.set_visited(spot.at);
    }
    if let Some(word) = view.clock()
        && local.notes_use
        && let Some(clock) = local.clock().used(word)
    {
        view.set_clock(clock);
    }
    // SAFETY: the bucket is held as long as `looking` lives.
    visit(Some(&unsafe {
        Record::locked(key.bytes(), view, local.in_force, local.now_unix_ms)
    }))
}
