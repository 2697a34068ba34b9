//! What a batch of requests is about to touch, determined before the first of them runs.
//!
//! The plan has every request's row and the hashes of its keys, including those of commands with
//! many keys, of reads and of writes, up to [`KEYS_MAX`] for the whole batch. It prefetches first
//! all buckets, then all records, then all structures, so that the waits for memory overlap.
//! Handlers name their keys in the order of the request, and find the hashes through
//! [`Plan::hash_of`].

use std::cell::Cell;

use protocol::{Requests, Runs};
use store::Lookahead;

use crate::batch::{ARGUMENTS_MAX, BATCH_MAX};
use crate::table::{Found, KeyPlaces, Table};

/// Maximum number of keys that are hashed in advance and prefetched: those of a batch of MGET with
/// eleven keys each. Their buckets and records take some 30 KB, which fit in the core's own caches.
const KEYS_MAX: usize = 191;

/// Number of records that are prefetched in one call.
const RECORDS_AT_ONCE: usize = 64;

/// The plan of one batch.
pub(crate) struct Plan {
    runs: [PlannedRun; BATCH_MAX],
    /// The last key of the batch is followed by one that matches no argument.
    keys: [PlannedKey; KEYS_MAX + 1],
    keys_count: usize,
    /// Index of the key that the running request names next.
    next_key: Cell<usize>,
}

/// What is known about a [run](protocol::Run) of requests.
#[derive(Clone, Copy)]
pub(crate) struct PlannedRun {
    /// The command found by their name.
    pub(crate) command: Option<&'static Found>,
    /// Whether their command is [plain](Found::is_plain) and accepts this number of arguments.
    pub(crate) is_plain: bool,
    /// Index of the first key of the first request.
    pub(crate) first_key: usize,
    /// Number of keys of each request.
    pub(crate) keys_each: usize,
}

/// A key that was hashed: the argument, identified by its address, and the hash.
#[derive(Clone, Copy)]
pub(crate) struct PlannedKey {
    address: usize,
    bytes: usize,
    hash: u64,
}

/// What some commands of a batch will do.
#[derive(Clone, Copy, Debug, Default)]
struct Expected {
    /// They use records that point to structures.
    structures: bool,
    /// They add to buckets, or change them.
    writes: bool,
}

impl Plan {
    pub(crate) const fn new() -> Self {
        let run = PlannedRun {
            command: None,
            is_plain: false,
            first_key: KEYS_MAX,
            keys_each: 0,
        };
        Self {
            runs: [run; BATCH_MAX],
            keys: [PlannedKey::NONE; KEYS_MAX + 1],
            keys_count: 0,
            next_key: Cell::new(KEYS_MAX),
        }
    }

    /// Plans a batch of at most [`BATCH_MAX`] requests.
    ///
    /// Runs one stage after the other, each for all requests and none inlined, so that the working
    /// set of a stage stays in registers.
    #[inline]
    pub(crate) fn make(&mut self, table: &Table, ahead: &Lookahead<'_>, runs: Runs<'_>) {
        let expected = self.find(table, ahead, runs);
        if self.keys_count > 1 {
            self.prefetch_records(ahead);
            if expected.structures {
                self.prefetch_structures(ahead);
            }
            if expected.writes && ahead.is_saving() {
                self.prefetch_saved(ahead);
            }
        }
    }

    /// Finds the rows and the keys, hashes the keys, and prefetches their buckets. Returns what
    /// some of the commands will do.
    #[inline(never)]
    fn find(&mut self, table: &Table, ahead: &Lookahead<'_>, runs: Runs<'_>) -> Expected {
        self.keys_count = 0;
        let mut expected = Expected::default();
        let saves_alone = ahead.saves_alone();
        for (planned, run) in self.runs.iter_mut().zip(runs) {
            let command = table.find_run(&run);
            let keys = command.map_or(KeyPlaces::NONE, |found| found.keys);
            if let Some(found) = command {
                expected.structures |= found.is_about_structures;
                // A record that is only overwritten is saved alone, and is prefetched already.
                let sets = saves_alone && run.arguments_count == usize::from(found.sets_with);
                expected.writes |= found.needs_room && !sets;
            }
            *planned = PlannedRun {
                command,
                is_plain: command
                    .is_some_and(|found| found.is_plain && found.surely_takes(run.arguments_count))
                    && run.arguments_count <= ARGUMENTS_MAX,
                first_key: self.keys_count,
                keys_each: keys.count(run.arguments_count),
            };
            let free = &mut self.keys[self.keys_count..KEYS_MAX];
            self.keys_count += match planned.keys_each {
                0 => 0,
                1 => plan_keys(free, ahead, run.requests, usize::from(keys.first)),
                _ => plan_more_keys(free, ahead, run.requests, keys),
            };
        }
        self.keys[self.keys_count].address = 0;
        expected
    }

    #[inline(never)]
    fn prefetch_records(&self, ahead: &Lookahead<'_>) {
        let keys = self.keys.get(..self.keys_count).unwrap_or_default();
        for some in keys.chunks(RECORDS_AT_ONCE) {
            ahead.records(some, |key| key.hash);
        }
    }

    #[inline(never)]
    fn prefetch_structures(&self, ahead: &Lookahead<'_>) {
        for key in self.keys.iter().take(self.keys_count) {
            ahead.structure(key.hash);
        }
    }

    #[cold]
    fn prefetch_saved(&self, ahead: &Lookahead<'_>) {
        let keys = self.keys.get(..self.keys_count).unwrap_or_default();
        ahead.saved(keys, |key| key.hash);
    }

    /// Returns the plan of the run with this number.
    #[inline]
    pub(crate) fn run(&self, number: usize) -> Option<PlannedRun> {
        self.runs.get(number).copied()
    }

    /// Begins a request of a run whose first key has this index: it names its keys from now on.
    #[inline(always)]
    pub(crate) fn begin(&self, first_key: usize) {
        self.next_key.set(first_key);
    }

    /// Begins a request that is not in the batch: it names its keys from now on.
    pub(crate) fn begin_unplanned(&self) {
        self.next_key.set(KEYS_MAX);
    }

    /// Returns the planned keys of the requests of a run with one key each.
    #[inline]
    pub(crate) fn keys_of(&self, run: &PlannedRun) -> &[PlannedKey] {
        let keys = self.keys.get(run.first_key..self.keys_count);
        keys.unwrap_or_default()
    }

    /// Returns the hash of the key of a request of a run.
    #[inline]
    pub(crate) fn key_hash(&self, run: &PlannedRun, index: usize) -> Option<u64> {
        let keys = self.keys.get(..self.keys_count)?;
        keys.get(run.first_key + index * run.keys_each)
            .map(|key| key.hash)
    }

    /// Returns the hash of `bytes` if they are the next key of the running request.
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
    /// A key that matches no argument.
    const NONE: Self = Self {
        address: 0,
        bytes: 0,
        hash: 0,
    };

    /// Returns the hash.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    fn of(bytes: &[u8], ahead: &Lookahead<'_>) -> Self {
        let hash = ahead.hash(bytes);
        ahead.bucket(hash);
        Self {
            address: bytes.as_ptr().addr(),
            bytes: bytes.len(),
            hash,
        }
    }
}

/// Plans the key at `at` of each request while there is space. Returns how many were planned.
#[inline(always)]
fn plan_keys(
    places: &mut [PlannedKey],
    ahead: &Lookahead<'_>,
    requests: Requests<'_>,
    at: usize,
) -> usize {
    let mut planned = 0;
    for (place, request) in places.iter_mut().zip(requests) {
        let Some(bytes) = request.arg(at) else {
            break;
        };
        *place = PlannedKey::of(bytes, ahead);
        planned += 1;
    }
    planned
}

/// Does the same for requests with several keys each.
#[inline(never)]
fn plan_more_keys(
    places: &mut [PlannedKey],
    ahead: &Lookahead<'_>,
    requests: Requests<'_>,
    keys: KeyPlaces,
) -> usize {
    let found = requests.flat_map(|request| {
        let places = keys.places(request.len());
        places.filter_map(move |at| request.arg(at))
    });
    let mut planned = 0;
    for (place, bytes) in places.iter_mut().zip(found) {
        *place = PlannedKey::of(bytes, ahead);
        planned += 1;
    }
    planned
}

#[cfg(test)]
mod tests {
    use protocol::{Batch, Decoder, Limits};
    use store::{Handle, Options, Store};

    use super::*;
    use crate::spec::{CommandSpec, KeyAccess, KeySpec};

    /// A few commands with keys at fixed positions.
    fn table() -> &'static Table {
        const fn row(name: &'static str, keys: &'static [KeySpec]) -> CommandSpec {
            CommandSpec {
                name,
                keys,
                ..CommandSpec::BLANK
            }
        }
        static ROWS: [CommandSpec; 6] = [
            row("PING", &[]),
            row("GET", &[KeySpec::one(1, KeyAccess::RO)]),
            row("MGET", &[KeySpec::range(1, -1, 1, KeyAccess::RO)]),
            row("MSET", &[KeySpec::range(1, -1, 2, KeyAccess::OW)]),
            row("DEL", &[KeySpec::range(1, -1, 1, KeyAccess::RM)]),
            row("EXISTS", &[KeySpec::range(1, -1, 1, KeyAccess::RO)]),
        ];
        Table::build(&ROWS)
    }

    /// Plans these lines, and returns what the plan says of every argument when asked in order.
    fn plan_of(plan: &mut Plan, store: &Handle, input: &str) -> Vec<Vec<bool>> {
        let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
        let (input, limits) = (input.as_bytes(), Limits::default());
        decoder.decode(input, &limits, BATCH_MAX, &mut batch);
        plan.make(table(), &store.lookahead(0), batch.runs(input));
        let mut known = Vec::new();
        for (number, run) in batch.runs(input).enumerate() {
            for (index, request) in run.requests.enumerate() {
                let run = plan.run(number).unwrap();
                plan.begin(run.first_key + index * run.keys_each);
                let is_known = |arg: &[u8]| {
                    let hash = plan.hash_of(arg);
                    assert!(hash.is_none_or(|hash| hash == store.hash(arg)));
                    hash.is_some()
                };
                known.push(request.iter().map(is_known).collect());
            }
        }
        known
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
        // The same addresses with other bytes: the previous plan no longer applies.
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
        let line = format!("MGET{}\nGET a\n", " key".repeat(300));
        let known = plan_of(&mut plan, &store, &line);
        let count = known[0].iter().filter(|known| **known).count();
        assert_eq!((count, known[1].clone()), (KEYS_MAX, vec![false, false]));
    }
}
