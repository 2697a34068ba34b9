//! Victims by sample, for the policies that compare records by their content.
//!
//! A sample looks at the configured number of records, neighbours in the index, from a random place
//! on. The best victims of this and earlier samples are remembered, and the best of them is
//! evicted. A sample has exactly that many records: with whole buckets the choice would be sharper,
//! but what was popular once would stay longer.
//!
//! The evicting thread counts the turnover for [`crate::clock`].

use std::sync::Arc;

use super::{evict_spot, forget_group, may_have_deadlines, next_noted};
use crate::arena::distance;
use crate::bucket::{Bucket, Link};
use crate::deadline_map::GROUP_BUCKETS;
use crate::index::{Index, Spot};
use crate::indexed::{Indexed, hash_of};
use crate::local::{Local, view_of};
use crate::policy::{InForce, Policy, TURNOVER_PARTS};
use crate::shared::Shared;

/// Maximum number of victims remembered from samples.
const POOL_MAX: usize = 16;

/// A record that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    /// The lower the score, the sooner the record is evicted.
    score: u64,
    index_id: u64,
    hash: u64,
}

/// The samples that one thread remembers.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    /// The best victim is the last.
    pool: Vec<Candidate>,
    /// Number of victims until the next turn.
    turn_left: u64,
}

impl Indexed {
    /// Samples some records and evicts the best remembered victim.
    pub(super) fn evict_by_sample(&mut self, in_force: InForce) -> Option<u64> {
        let databases = self.shared.databases.count();
        for attempt in 0..2 * databases {
            self.sample(in_force, attempt >= databases);
            while let Some(candidate) = self.local.evictor.sampled.pool.pop() {
                if let Some(bytes) = self.evict_candidate(candidate) {
                    self.count_turnover();
                    return Some(bytes);
                }
            }
            let evictor = &mut self.local.evictor;
            evictor.database = (evictor.database + 1) % databases;
        }
        None
    }

    /// Adds records of some neighbouring buckets to the pool. Continues `until_found` if wanted.
    fn sample(&mut self, in_force: InForce, until_found: bool) {
        let database = self.local.evictor.database;
        let Some(index) = self.seen.get(database).map(Arc::clone) else {
            return;
        };
        if !self.has_candidates(database, in_force.policy) {
            return;
        }
        let buckets = index.state().buckets();
        let (mut seen, wanted) = (0, u32::from(in_force.samples.max(1)));
        let tries = if until_found {
            buckets
        } else {
            buckets.min(u64::from(wanted) * 16)
        };
        let is_volatile = in_force.policy.is_volatile();
        let mut number = self.local.evictor.random.below(buckets);
        let mut group = Group::default();
        for _ in 0..tries {
            if seen >= wanted {
                return;
            }
            if is_volatile {
                let Some(noted) = next_noted(&index, number, buckets) else {
                    return;
                };
                number = noted;
                group.come_to(&index, number);
            }
            if !is_volatile || may_have_deadlines(index.bucket(number)) {
                self.local.evictor.looked += 1;
                if let Some(bucket) = index.try_lock_number(number) {
                    let some =
                        sample_in(&self.shared, &mut self.local, &index, bucket, wanted - seen);
                    seen += some;
                    group.has_any |= some > 0;
                    bucket.unlock(false);
                } else {
                    group.has_any = true;
                }
            }
            number = (number + 1) % buckets;
        }
    }

    /// Counts a victim. Once the victims amount to one part of all records, the policy's turnover
    /// goes up.
    fn count_turnover(&mut self) {
        let turn_left = &mut self.local.evictor.sampled.turn_left;
        *turn_left = turn_left.saturating_sub(1);
        if *turn_left > 0 {
            return;
        }
        let databases = 0..self.shared.databases.count();
        let told = databases.filter_map(|at| Some(self.seen.get(at)?.counts.about().keys));
        let keys = told.sum::<i64>().max(0).unsigned_abs();
        self.local.evictor.sampled.turn_left = (keys / u64::from(TURNOVER_PARTS)).max(1);
        self.shared.policy.turn();
    }

    /// Evicts a remembered record, if it still exists.
    fn evict_candidate(&mut self, candidate: Candidate) -> Option<u64> {
        let (database, index) = self.seen.by_id(candidate.index_id)?;
        let index = Arc::clone(index);
        let shared = &*self.shared;
        // A bucket held for long is in use, and not waited for.
        let home = index.lock_unless_long(candidate.hash)?;
        let bucket = index.bucket(home.number);
        let is = |link: Link| hash_of(shared, link) == candidate.hash;
        let may_go = |spot: &Spot<'_>| {
            !self.local.in_force.policy.is_volatile() || spot.link.has(Link::DEADLINE)
        };
        let spot = index.find(bucket, candidate.hash, is).filter(may_go);
        let bytes =
            spot.map(|spot| evict_spot(shared, &mut self.local, &index, database, bucket, spot));
        bucket.unlock(bytes.is_some());
        bytes
    }
}

/// A group of buckets that a sample walks through, to find out whether its note is obsolete.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    number: Option<u64>,
    has_any: bool,
}

impl Group {
    /// Enters a bucket. Clears the note of the group that was left if it has no record with a
    /// deadline.
    fn come_to(&mut self, index: &Index, number: u64) {
        let group = number / GROUP_BUCKETS;
        if self.number == Some(group) {
            return;
        }
        if let Some(left) = self.number.filter(|_| !self.has_any) {
            let first = left * GROUP_BUCKETS;
            forget_group(index, first..first + GROUP_BUCKETS);
        }
        // Nothing can be said about a group that is entered in its middle.
        self.has_any = !number.is_multiple_of(GROUP_BUCKETS);
        self.number = Some(group);
    }
}

/// Remembers the records of a chain that are better victims than the remembered ones. Looks at
/// `wanted` records at most, from a random one on, and returns their number. The caller holds the
/// bucket.
fn sample_in(
    shared: &Shared,
    local: &mut Local,
    index: &Index,
    bucket: &Bucket,
    wanted: u32,
) -> u32 {
    let policy = local.in_force.policy;
    let clock = local.clock();
    let may_go = |spot: &Spot<'_>| !policy.is_volatile() || spot.link.has(Link::DEADLINE);
    let mut count = 0;
    index.for_each(bucket, |spot| count += usize::from(may_go(&spot)));
    if count == 0 {
        return 0;
    }
    let evictor = &mut local.evictor;
    let first = evictor.random.index(count);
    let pool = &mut evictor.sampled.pool;
    let (mut passed, mut seen) = (0, 0);
    index.for_each(bucket, |spot| {
        if !may_go(&spot) {
            return;
        }
        let turn = (passed + count - first) % count;
        passed += 1;
        if turn >= distance(u64::from(wanted)) {
            return;
        }
        let Some(view) = view_of(shared, spot.link) else {
            return;
        };
        seen += 1;
        let score = match policy {
            Policy::VolatileTtl => view.deadline_unix_ms().unwrap_or(u64::MAX),
            _ => view.clock().map_or(0, |word| clock.rank(word)),
        };
        // The best victim is the last of the pool.
        let at = pool.partition_point(|other| other.score > score);
        if pool.len() < POOL_MAX || at > 0 {
            let candidate = Candidate {
                score,
                index_id: index.id(),
                hash: hash_of(shared, spot.link),
            };
            if !pool.contains(&candidate) {
                pool.insert(at, candidate);
            }
            if pool.len() > POOL_MAX {
                pool.remove(0);
            }
        }
    });
    seen
}
