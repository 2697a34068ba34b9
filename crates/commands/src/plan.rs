//! What a batch of requests is about to touch, found out before the first of them runs.
//!
//! Every request's row, and the hash of its keys: those of commands that take many as well, of reads
//! and of writes, up to [`KEYS_MAX`] for the whole batch. All their buckets are asked from the cache
//! first, then all records, then all structures, so that the waits for memory overlap. Handlers find
//! the hashes through [`Plan::hash_of`] as they name their keys, in the order in which these stand in
//! the request.

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

/// What the keys of a batch amount to.
struct FoundKeys {
    keys_count: usize,
    /// Some are of commands that expect structures.
    expects_structures: bool,
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
            next_key: Cell::new(KEYS_MAX),
        }
    }

    /// Plans a batch of at most [`BATCH_MAX`] requests.
    ///
    /// One stage after the other, each for all requests and none inlined: what a stage works with
    /// stays in registers.
    #[inline]
    pub(crate) fn make(
        &mut self,
        table: &Table,
        store: &Handle,
        database: DatabaseId,
        batch: &Batch,
        input: &[u8],
    ) {
        let found = self.find(table, batch, input);
        self.hash(found.keys_count, store, database, input);
        if found.keys_count > 1 {
            self.prefetch_records(found.keys_count, store, database);
            if found.expects_structures {
                self.prefetch_structures(found.keys_count, store, database);
            }
        }
    }

    /// Finds the rows and the keys.
    #[inline(never)]
    fn find(&mut self, table: &Table, batch: &Batch, input: &[u8]) -> FoundKeys {
        let Self { requests, keys, .. } = self;
        let mut keys_count = 0;
        let mut expects_structures = false;
        let mut index = 0;
        batch.for_each(input, |name, request| {
            let command = match table.find_key(name) {
                Some(found) => Some(found),
                None => table.find(request.name()),
            };
            let Some(planned) = requests.get_mut(index) else {
                return;
            };
            index += 1;
            *planned = Planned {
                command,
                first_key: keys_count,
            };
            let Some(found) = command else {
                return;
            };
            expects_structures |= found.is_about_structures;
            if let Some(bytes) = found.first_key(&request)
                && let Some(place) = keys[..KEYS_MAX].get_mut(keys_count)
            {
                place.set(bytes);
                keys_count += 1;
            }
            if found.keys.last != 0 {
                let places = &mut keys[keys_count..KEYS_MAX];
                // Anew, so that requests of one key need not be put together for this.
                let request = batch.request(index - 1, input);
                keys_count += find_more_keys(places, request, found.keys);
            }
        });
        keys[keys_count].address = 0;
        FoundKeys {
            keys_count,
            expects_structures,
        }
    }

    /// Hashes the keys, and asks for their buckets.
    #[inline(never)]
    fn hash(&mut self, keys_count: usize, store: &Handle, database: DatabaseId, input: &[u8]) {
        let input_address = input.as_ptr().addr();
        for key in self.keys.iter_mut().take(keys_count) {
            let offset = key.address.wrapping_sub(input_address);
            let bytes = input.get(offset..).and_then(|rest| rest.get(..key.bytes));
            let Some(bytes) = bytes else {
                // Of a request in quotes, which lies elsewhere: hashed when it runs.
                key.address = 0;
                continue;
            };
            let hashed = store.key(database, bytes);
            store.prefetch_bucket(&hashed);
            key.hash = hashed.hash();
        }
    }

    #[inline(never)]
    fn prefetch_records(&self, keys_count: usize, store: &Handle, database: DatabaseId) {
        for key in self.keys.iter().take(keys_count) {
            store.prefetch_record(&Key::with_hash(&[], key.hash, database));
        }
    }

    #[inline(never)]
    fn prefetch_structures(&self, keys_count: usize, store: &Handle, database: DatabaseId) {
        for key in self.keys.iter().take(keys_count) {
            store.prefetch_structure(&Key::with_hash(&[], key.hash, database));
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

impl PlannedKey {
    #[inline(always)]
    fn set(&mut self, bytes: &[u8]) {
        self.address = bytes.as_ptr().addr();
        self.bytes = bytes.len();
    }
}

/// Finds the keys behind the first, as far as there are places; how many were found.
#[inline(never)]
fn find_more_keys(
    places: &mut [PlannedKey],
    request: Request<'_>,
    KeyPlaces { first, last, step }: KeyPlaces,
) -> usize {
    let (first, step) = (usize::from(first), usize::from(step));
    let last = match usize::try_from(last) {
        Ok(last) => first + last,
        Err(_) => request
            .len()
            .saturating_sub(usize::from(last.unsigned_abs())),
    };
    let behind = (first + step..=last).step_by(step);
    let keys = behind.map_while(|at| request.arg(at));
    let mut found = 0;
    for (place, bytes) in places.iter_mut().zip(keys) {
        place.set(bytes);
        found += 1;
    }
    found
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
    fn all_keys_outside_quotes_are_hashed_ahead() {
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
                vec![no, no, no],
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
