//! What a batch of requests is about to touch, found out before the first of them runs.
//!
//! Every request's row, and the hash of its keys: those of commands that take many as well, of reads
//! and of writes, up to [`KEYS_MAX`] for the whole batch. All their buckets are asked from the cache
//! first, then all records, then all structures, so that the waits for memory overlap. Handlers find the hashes through
//! [`Plan::hash_of`] as they name their keys, in the order in which these stand in the request.

use std::cell::Cell;

use protocol::{Batch, Request};
use store::{DatabaseId, Handle, Key};

use crate::table::{Found, KeyPlaces, Table};

/// How many requests are planned together.
pub const BATCH_MAX: usize = 16;

/// How many keys are hashed ahead and asked from the cache: what a core has under way at once is
/// less, and what came too early is gone again.
const KEYS_MAX: usize = 63;

/// The plan of one batch.
pub(crate) struct Plan {
    requests: [Planned; BATCH_MAX],
    /// Behind the last of the batch is one that no argument is.
    keys: [PlannedKey; KEYS_MAX + 1],
    keys_count: usize,
    /// Which key the running request names next.
    next_key: Cell<usize>,
}

/// What is known about a request.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    /// What its name leads to.
    pub(crate) command: Option<&'static Found>,
    /// The first of its keys.
    first_key: usize,
}

/// A key that was hashed: the argument, known by its place in memory, and the hash.
#[derive(Clone, Copy)]
struct PlannedKey {
    address: usize,
    bytes: usize,
    hash: u64,
}

impl Plan {
    pub(crate) const fn new() -> Self {
        let request = Planned {
            command: None,
            first_key: KEYS_MAX,
        };
        let key = PlannedKey {
            address: 0,
            bytes: 0,
            hash: 0,
        };
        Self {
            requests: [request; BATCH_MAX],
            keys: [key; KEYS_MAX + 1],
            keys_count: 0,
            next_key: Cell::new(KEYS_MAX),
        }
    }

    /// Plans a batch of at most [`BATCH_MAX`] requests.
    ///
    /// Not inlined: with nothing around it, what it works with stays in registers.
    #[inline(never)]
    pub(crate) fn make(
        &mut self,
        table: &Table,
        store: &Handle,
        database: DatabaseId,
        batch: &Batch,
        input: &[u8],
    ) {
        self.keys_count = 0;
        let mut expects_structures = false;
        let named = batch.name_keys().zip(batch.iter(input));
        for (index, (name, request)) in named.take(BATCH_MAX).enumerate() {
            let command = match table.find_key(name) {
                Some(found) => Some(found),
                None => table.find(request.name()),
            };
            self.requests[index] = Planned {
                command,
                first_key: self.keys_count,
            };
            let Some(found) = command else {
                continue;
            };
            expects_structures |= found.is_about_structures;
            if let Some(bytes) = found.first_key(&request) {
                self.add_key(store, database, bytes);
            }
            if found.keys.last != 0 {
                self.add_more_keys(store, database, request, found.keys);
            }
        }
        self.keys[self.keys_count].address = 0;
        if self.keys_count > 1 {
            self.prefetch_records(store, database);
            if expects_structures {
                self.prefetch_structures(store, database);
            }
        }
    }

    #[inline(never)]
    fn prefetch_records(&self, store: &Handle, database: DatabaseId) {
        for key in self.keys.iter().take(self.keys_count) {
            store.prefetch_record(&Key::with_hash(&[], key.hash, database));
        }
    }

    #[inline(never)]
    fn prefetch_structures(&self, store: &Handle, database: DatabaseId) {
        for key in self.keys.iter().take(self.keys_count) {
            store.prefetch_structure(&Key::with_hash(&[], key.hash, database));
        }
    }

    /// Adds the keys behind the first.
    #[inline(never)]
    fn add_more_keys(
        &mut self,
        store: &Handle,
        database: DatabaseId,
        request: Request<'_>,
        places: KeyPlaces,
    ) {
        let (first, step) = (usize::from(places.first), usize::from(places.step));
        let last = match usize::try_from(places.last) {
            Ok(last) => first + last,
            Err(_) => request
                .len()
                .saturating_sub(usize::from(places.last.unsigned_abs())),
        };
        let behind = (first + step..=last).step_by(step);
        for bytes in behind.map_while(|at| request.arg(at)) {
            if self.keys_count == KEYS_MAX {
                return;
            }
            self.add_key(store, database, bytes);
        }
    }

    #[inline(always)]
    fn add_key(&mut self, store: &Handle, database: DatabaseId, bytes: &[u8]) {
        if self.keys_count < KEYS_MAX {
            let key = store.key(database, bytes);
            store.prefetch_bucket(&key);
            self.keys[self.keys_count] = PlannedKey {
                address: bytes.as_ptr().addr(),
                bytes: bytes.len(),
                hash: key.hash(),
            };
            self.keys_count += 1;
        }
    }

    /// What is known about a request of the batch, which runs next.
    #[inline(always)]
    pub(crate) fn begin(&self, index: usize) -> Option<&'static Found> {
        let planned = self.requests.get(index)?;
        self.next_key.set(planned.first_key);
        planned.command
    }

    /// The hash of `bytes` if they are the next key of the running request.
    #[inline(always)]
    pub(crate) fn hash_of(&self, bytes: &[u8]) -> Option<u64> {
        let at = self.next_key.get();
        let key = self.keys.get(at)?;
        let is_it = key.address == bytes.as_ptr().addr() && key.bytes == bytes.len();
        is_it.then(|| {
            self.next_key.set(at + 1);
            key.hash
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Decoder, Limits};
    use store::{Options, Store};

    use super::*;
    use crate::table::table;

    /// A plan of these lines, and what it says of every argument when asked in order.
    fn plan_of(plan: &mut Plan, store: &Handle, input: &str) -> Vec<Vec<bool>> {
        let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
        let limits = Limits::default();
        decoder.decode(input.as_bytes(), &limits, BATCH_MAX, &mut batch);
        plan.make(table(), store, 0, &batch, input.as_bytes());
        let known = |(index, request): (usize, Request<'_>)| {
            plan.begin(index);
            let known = |arg: &[u8]| {
                let hash = plan.hash_of(arg);
                assert!(hash.is_none_or(|hash| hash == store.hash(arg)));
                hash.is_some()
            };
            request.iter().map(known).collect()
        };
        batch
            .iter(input.as_bytes())
            .enumerate()
            .map(known)
            .collect()
    }

    #[test]
    fn all_keys_are_hashed_ahead() {
        let store = Store::new(&Options::default()).expect("memory").handle();
        let mut plan = Plan::new();
        let lines =
            "GET a\nMGET a b c\nPING\nMSET a 1 b 2\nDEL x y\nnone a\nEXISTS \"q\" r\nGET z\n";
        let (no, yes) = (false, true);
        assert_eq!(
            plan_of(&mut plan, &store, lines),
            [
                vec![no, yes],
                vec![no, yes, yes, yes],
                vec![no],
                vec![no, yes, no, yes, no],
                vec![no, yes, yes],
                vec![no, no],
                vec![no, yes, yes],
                vec![no, yes],
            ]
        );
        // The same places in memory, other bytes: what was planned before counts no more.
        let mut other = lines.replace("GET a\nMGET", "PING \nPING");
        other.make_ascii_uppercase();
        for known in plan_of(&mut plan, &store, &other.replace(['D', 'E', 'M'], "_")) {
            assert!(!known.contains(&true));
        }
    }

    #[test]
    fn a_request_of_many_keys_is_planned_as_far_as_there_is_room() {
        let store = Store::new(&Options::default()).expect("memory").handle();
        let mut plan = Plan::new();
        let line = format!("MGET{}\nGET a\n", " key".repeat(100));
        let known = plan_of(&mut plan, &store, &line);
        let count = known[0].iter().filter(|known| **known).count();
        assert_eq!((count, known[1].clone()), (KEYS_MAX, vec![false, false]));
    }
}
