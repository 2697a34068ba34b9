//! Walks of a database: SCAN, and random keys.
//!
//! The cursor is the position where the next bucket's interval begins. Keys never change their
//! position and growing only halves intervals. So a walk meets every record that exists from its
//! beginning to its end, and meets none twice. When the table shrinks, two neighbouring intervals
//! become one: a walk that stood between them meets the records of the first once more.

use std::sync::Arc;

use crate::bucket::Bucket;
use crate::expire::look_once;
use crate::index::{Home, Index};
use crate::indexed::Indexed;
use crate::key::DatabaseId;
use crate::local::{Held, Local, view_of};
use crate::record::Record;
use crate::shared::Shared;

/// A step looks at this many buckets per requested record at most, so that it ends soon in a table
/// that was emptied.
const BUCKETS_PER_RECORD: usize = 10;

/// A step looks at this many buckets at least. A fresh table has no more, so no page of it is empty
/// while keys follow: some clients take an empty page for the end. A bucket is one cache line.
const BUCKETS_MIN: usize = 64;

/// Number of buckets tried at random before all are walked.
const RANDOM_TRIES: u64 = 64;

impl Indexed {
    /// Visits the records from `cursor` on. Returns the next cursor.
    pub(crate) fn scan(
        &mut self,
        database: DatabaseId,
        cursor: u64,
        count: usize,
        held_long: HeldLong,
        mut visit: impl FnMut(&Record<'_>),
    ) -> u64 {
        let entered = self.enter();
        let index = self.find_index(database).cloned();
        let next = index.map_or(0, |index| {
            let mut position = cursor;
            let mut visited = 0;
            for _ in 0..count.saturating_mul(BUCKETS_PER_RECORD).max(BUCKETS_MIN) {
                let hash = position.reverse_bits();
                position = match self.look_at_unless(held_long, database, &index, hash) {
                    Some(at) => {
                        let seen =
                            visit_all(&self.shared, &self.local, &index, at.bucket, &mut visit);
                        let next = at.home.end_position();
                        let removes = seen.expired && at.is_own && held_long == HeldLong::Awaited;
                        drop(at);
                        if removes && !self.shared.holds_removals() {
                            look_once(&self.shared, &mut self.local, &index, database, hash);
                        }
                        visited += seen.count;
                        next
                    }
                    None => index.state().home(hash).end_position(),
                };
                if position == 0 || visited >= count {
                    break;
                }
            }
            position
        });
        if entered {
            self.leave();
        }
        next
    }

    /// Returns a live key, chosen by `random`.
    pub(crate) fn random_key(&mut self, database: DatabaseId, random: u64) -> Option<Vec<u8>> {
        let entered = self.enter();
        let index = self.find_index(database).cloned();
        let key = index.and_then(|index| {
            let mut draws = base::random::Prng::seeded(random);
            (0..RANDOM_TRIES)
                .find_map(|_| self.key_of_bucket(database, &index, draws.next_u64(), &mut draws))
                .or_else(|| self.first_key_from(database, &index, random))
        });
        if entered {
            self.leave();
        }
        key
    }

    /// Returns the first live key of a walk that begins at a position and wraps around.
    fn first_key_from(
        &self,
        database: DatabaseId,
        index: &Arc<Index>,
        start: u64,
    ) -> Option<Vec<u8>> {
        let mut draws = base::random::Prng::seeded(start);
        let (mut position, mut is_around) = (start, false);
        loop {
            let hash = position.reverse_bits();
            if let Some(key) = self.key_of_bucket(database, index, hash, &mut draws) {
                return Some(key);
            }
            position = index.state().home(hash).end_position();
            if is_around && position > start {
                return None;
            }
            if position == 0 {
                if is_around {
                    return None;
                }
                is_around = true;
            }
        }
    }

    /// Returns one of the live keys in the bucket of `hash`.
    fn key_of_bucket(
        &self,
        database: DatabaseId,
        index: &Arc<Index>,
        hash: u64,
        draws: &mut base::random::Prng,
    ) -> Option<Vec<u8>> {
        let at = self.look_at(database, index, hash);
        let mut live = 0_u64;
        visit_all(&self.shared, &self.local, index, at.bucket, &mut |_| {
            live += 1;
        });
        if live == 0 {
            return None;
        }
        let (wanted, mut number, mut found) = (draws.below(live), 0, None);
        visit_all(&self.shared, &self.local, index, at.bucket, &mut |record| {
            if number == wanted {
                found = Some(record.key().to_vec());
            }
            number += 1;
        });
        found
    }

    /// Holds the bucket of `hash` for a look.
    fn look_at<'i>(&self, database: DatabaseId, index: &'i Index, hash: u64) -> Look<'i> {
        match self.own_look(database, index, hash) {
            Some(look) => look,
            None => Look::new(index, index.lock(hash)),
        }
    }

    /// As [`Indexed::look_at`], but returns `None` if the bucket is held for long and must not be
    /// waited for.
    fn look_at_unless<'i>(
        &self,
        held_long: HeldLong,
        database: DatabaseId,
        index: &'i Index,
        hash: u64,
    ) -> Option<Look<'i>> {
        match held_long {
            HeldLong::Awaited => Some(self.look_at(database, index, hash)),
            HeldLong::PassedBy => self
                .own_look(database, index, hash)
                .or_else(|| Some(Look::new(index, index.lock_unless_long(hash)?))),
        }
    }

    /// Returns a look at a bucket that this thread already holds.
    fn own_look<'i>(&self, database: DatabaseId, index: &'i Index, hash: u64) -> Option<Look<'i>> {
        let home = index.state().home(hash);
        let is_own = |held: &Held| held.database == database && held.home == home;
        self.local.held.iter().any(is_own).then(|| Look {
            bucket: index.bucket(home.number),
            home,
            is_own: false,
        })
    }
}

/// What a walk does at a bucket that a command holds for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldLong {
    /// Waits until it is free.
    Awaited,
    /// Skips its records.
    PassedBy,
}

/// A bucket that is held for a look.
struct Look<'i> {
    bucket: &'i Bucket,
    home: Home,
    /// Whether it was locked for this look.
    is_own: bool,
}

impl<'i> Look<'i> {
    fn new(index: &'i Index, home: Home) -> Self {
        Self {
            bucket: index.bucket(home.number),
            home,
            is_own: true,
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if self.is_own {
            self.bucket.unlock(false);
        }
    }
}

/// What a visit met in a chain.
struct Seen {
    /// Number of records, including expired ones.
    count: usize,
    /// Whether some of them have expired.
    expired: bool,
}

/// Visits the live records of a chain. The caller holds it.
fn visit_all(
    shared: &Shared,
    local: &Local,
    index: &Index,
    home: &Bucket,
    visit: &mut impl FnMut(&Record<'_>),
) -> Seen {
    let mut seen = Seen {
        count: 0,
        expired: false,
    };
    index.for_each(home, |spot| {
        seen.count += 1;
        let Some(view) = view_of(shared, spot.link) else {
            return;
        };
        if view.is_expired(local.now_unix_ms) {
            seen.expired = true;
            return;
        }
        let (in_force, now_unix_ms) = (local.in_force, local.now_unix_ms);
        // SAFETY: the caller holds the bucket.
        unsafe {
            view.with_key(|key| visit(&Record::locked(key, view, in_force, now_unix_ms)));
        }
    });
    seen
}
