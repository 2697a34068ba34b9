//! Prefetching what a batch is about to touch.
//!
//! Look-ahead goes in stages, each for all keys of the batch before the next, so that the waits for
//! memory overlap: buckets, records, records of overflow buckets, and the objects that records
//! point to. It takes no lock and is only advice: if a table grows meanwhile, it is less useful,
//! never wrong.
//!
//! One key in fifteen is not in its home bucket. Without prefetching, each of them waited for memory twice:
//! a fifth of the time of a deep pipeline over a million keys.
//!
//! Tables that fit into a core's own cache are prefetched, too: without that a GET among 10,000
//! keys takes 55 instructions less, but 18 to 36 % more time (pipelines of 16 and 100, values of 8
//! and 100 bytes).

use crate::arena::Arena;
use crate::bucket::{Bucket, Candidates, Link};
use crate::hasher::Hasher;
use crate::heap;
use crate::index::{Index, State};
use crate::layout::View;
use crate::record_span::RecordSpan;

/// Looks ahead at the keys of one database, for a handle that is inside the store.
#[derive(Clone, Copy)]
pub struct Lookahead<'h> {
    hasher: &'h Hasher,
    table: Option<LookaheadTable<'h>>,
}

/// The database's table, with its size when the batch began.
#[derive(Clone, Copy)]
struct LookaheadTable<'h> {
    index: &'h Index,
    state: State,
    arena: &'h Arena,
    span: RecordSpan,
    /// The generation that the present snapshot's cut began, if a snapshot is in progress.
    cut: Option<u64>,
    /// The result of [`Lookahead::saves_alone`].
    saves_alone: bool,
}

impl<'h> Lookahead<'h> {
    /// Creates a look-ahead for keys of a database with this index; without an index there is
    /// nothing to prefetch.
    #[inline]
    pub(crate) fn new(
        hasher: &'h Hasher,
        index: Option<&'h Index>,
        arena: &'h Arena,
        span: RecordSpan,
        cut: Option<u64>,
        saves_alone: bool,
    ) -> Self {
        let table = index.map(|index| LookaheadTable {
            index,
            state: index.state(),
            arena,
            span,
            cut,
            saves_alone,
        });
        Self { hasher, table }
    }

    /// Creates a look-ahead for a database without a table.
    #[cfg(any(test, feature = "naive"))]
    pub(crate) fn blind(hasher: &'h Hasher) -> Self {
        Self {
            hasher,
            table: None,
        }
    }

    /// Returns the hash of a key's bytes under the store's secret.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash(bytes)
    }

    /// First stage: prefetches a key's bucket.
    #[inline]
    pub fn bucket(&self, hash: u64) {
        if let Some(table) = &self.table {
            table.index.prefetch_number(table.state.home(hash).number);
        }
    }

    /// Second and third stage, for at most 64 keys: prefetches their records; for keys that are not
    /// in their home buckets, first the overflow buckets and then the records in those. Longer
    /// chains are too rare.
    #[inline]
    pub fn records<K>(&self, keys: &[K], hash_of: impl Fn(&K) -> u64) {
        let Some(table) = &self.table else {
            return;
        };
        // One bit for each key that is not in its home bucket.
        let mut behind = 0_u64;
        for (at, key) in (0..u64::BITS).zip(keys) {
            behind |= u64::from(table.record_or_bucket_behind(hash_of(key))) << at;
        }
        while behind != 0 {
            let at = behind.trailing_zeros() as usize;
            behind &= behind - 1;
            if let Some(key) = keys.get(at) {
                table.record_behind(hash_of(key));
            }
        }
    }

    /// Whether the value of a key is in memory, if there is such a key. The result may be wrong if
    /// the value is demoted meanwhile, or if the table grows.
    #[inline]
    #[must_use]
    pub fn is_in_memory(&self, hash: u64) -> bool {
        let Some(table) = &self.table else {
            return true;
        };
        let mut next = Some(table.bucket(hash));
        while let Some(bucket) = next {
            for at in bucket.candidates(hash) {
                let link = bucket.link(at);
                // Most records are short and in memory: their link shows that.
                if link.has(Link::LOCKED_READ)
                    && let Some(offset) = link.offset()
                    && View::is_stub_at(table.arena, offset)
                {
                    return false;
                }
            }
            next = table.index.after(bucket);
        }
        true
    }

    /// Whether a snapshot is in progress, so that [`Lookahead::saved`] is useful.
    #[inline]
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.table.is_some_and(|table| table.cut.is_some())
    }

    /// Whether a record that is merely overwritten during a snapshot is saved without the rest of
    /// its bucket.
    #[inline]
    #[must_use]
    pub fn saves_alone(&self) -> bool {
        self.table.is_some_and(|table| table.saves_alone)
    }

    /// For keys that will be written during a snapshot: prefetches all records of their buckets
    /// that are not yet saved, because they are saved before the first change.
    pub fn saved<K>(&self, keys: &[K], hash_of: impl Fn(&K) -> u64) {
        let Some((table, cut)) = self.table.and_then(|table| Some((table, table.cut?))) else {
            return;
        };
        for key in keys {
            let bucket = table.bucket(hash_of(key));
            if bucket.is_behind(cut) {
                table.span.prefetch_records(table.arena, bucket);
            }
        }
    }

    /// Last stage, for commands that expect a structure: prefetches the object that the record
    /// leads to. Does not read through the pointer.
    #[inline]
    pub fn structure(&self, hash: u64) {
        let Some(table) = &self.table else {
            return;
        };
        let bucket = table.bucket(hash);
        for at in bucket.candidates(hash) {
            let link = bucket.link(at);
            if link.has(Link::LOCKED_READ)
                && let Some(offset) = link.offset()
                && let Some(word) = View::object_at(table.arena, offset)
            {
                heap::prefetch(word);
            }
        }
    }
}

impl<'h> LookaheadTable<'h> {
    #[inline]
    fn bucket(&self, hash: u64) -> &'h Bucket {
        self.index.bucket(self.state.home(hash).number)
    }

    /// Prefetches a key's record, or its overflow bucket if the record is not in its home bucket.
    /// Returns whether it prefetched the overflow bucket.
    #[inline]
    fn record_or_bucket_behind(&self, hash: u64) -> bool {
        let bucket = self.bucket(hash);
        let candidates = bucket.candidates(hash);
        if !candidates.is_empty() {
            self.record_in(bucket, candidates);
            return false;
        }
        let behind = bucket.overflow();
        if behind != 0 {
            self.index.overflow().prefetch(behind);
        }
        behind != 0
    }

    /// Prefetches a key's record if it is in the first overflow bucket.
    #[inline]
    fn record_behind(&self, hash: u64) {
        let number = self.bucket(hash).overflow();
        if let Some(bucket) = self.index.overflow().get(number) {
            self.record_in(bucket, bucket.candidates(hash));
        }
    }

    #[inline]
    fn record_in(&self, bucket: &Bucket, candidates: Candidates) {
        for at in candidates {
            if let Some(offset) = bucket.link(at).offset() {
                self.span.prefetch(self.arena, offset);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use crate::handle::Handle;
    use crate::snapshot::{Collected, SnapshotLimits, SnapshotStep};
    use crate::store::{Options, Store};
    use crate::value::Deadline;

    /// Returns a handle of a store with `count` keys, and their names.
    fn filled(count: u32) -> (Handle, Vec<String>) {
        let store = Store::new(&Options::default()).unwrap();
        let mut handle = store.handle();
        handle.begin(1);
        let names: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
        for name in &names {
            let key = handle.key(0, name.as_bytes());
            handle
                .upsert(&key, b"value", Deadline::Never, |_| ())
                .unwrap();
        }
        (handle, names)
    }

    #[test]
    fn any_number_of_keys_wherever_they_are_may_be_asked_for() {
        let (mut handle, names) = filled(10_000);
        handle.tick(1_000);
        handle.enter();
        let ahead = handle.lookahead(0);
        for some in [&names[..0], &names[..64], &names] {
            ahead.records(some, |name| ahead.hash(name.as_bytes()));
        }
        handle.leave();
        let key = handle.key(0, b"key:7");
        assert!(handle.read(&key, |record| record.is_some()));
    }

    #[test]
    fn what_is_to_be_saved_is_asked_for_while_a_snapshot_is_in_progress() {
        let (mut handle, names) = filled(1_000);
        handle.enter();
        assert!(!handle.lookahead(0).is_saving());
        let sink = Collected::default();
        let limits = SnapshotLimits::default();
        handle.begin_snapshot(Box::new(sink), limits).unwrap();
        let ahead = handle.lookahead(0);
        assert!(ahead.is_saving());
        ahead.saved(&names, |name| ahead.hash(name.as_bytes()));
        handle.leave();
        while handle.advance_snapshot(64) != SnapshotStep::Idle {}
        handle.enter();
        assert!(!handle.lookahead(0).is_saving());
        handle.leave();
    }
}
