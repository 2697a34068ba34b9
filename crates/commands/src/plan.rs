//! What a batch of requests is about to touch, found out before the first of them runs.
//!
//! Every request's row, and the hash of its keys: those of commands that take many as well, of reads
//! and of writes, up to [`KEYS_MAX`] for the whole batch. All their buckets are asked from the cache
//! first, then all records, then all structures, so that the waits for memory overlap. Handlers find
//! the hashes through [`Plan::hash_of`] as they name their keys, in the order in which these stand in
//! the request.

use std::cell::Cell;

use protocol::{NameKey, Request, Requests};
use store::Lookahead;

use crate::table::{Found, KeyPlaces, Table};

/// How many requests are planned together.
pub const BATCH_MAX: usize = 16;

/// How many keys are hashed ahead and asked from the cache: what a core has under way at once is
/// less, and what came too early is gone again.
const KEYS_MAX: usize = 63;

/// The plan of one batch.
pub(crate) struct Plan {
    runs: [Run; BATCH_MAX],
    runs_count: usize,
    /// Behind the last of the batch is one that no argument is.
    keys: [PlannedKey; KEYS_MAX + 1],
    keys_count: usize,
    /// Which key the running request names next.
    next_key: Cell<usize>,
}

/// Requests one behind the other that have the same name, as many arguments, and one key each or
/// none. Those of other commands, and those whose name has no [key](NameKey), stand alone.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// What their name leads to.
    pub(crate) command: Option<&'static Found>,
    /// How many there are.
    pub(crate) requests_count: usize,
    /// Whether they are of a command that is [plain](Found::is_plain) and takes so many arguments.
    pub(crate) is_plain: bool,
    /// The first request's key; each of the others has the next one.
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
        let run = Run {
            command: None,
            requests_count: 0,
            is_plain: false,
            first_key: KEYS_MAX,
        };
        Self {
            runs: [run; BATCH_MAX],
            runs_count: 0,
            keys: [PlannedKey::NONE; KEYS_MAX + 1],
            keys_count: 0,
            next_key: Cell::new(KEYS_MAX),
        }
    }

    /// Plans a batch of at most [`BATCH_MAX`] requests.
    ///
    /// One stage after the other, each for all requests and none inlined: what a stage works with
    /// stays in registers.
    #[inline]
    pub(crate) fn make(&mut self, table: &Table, ahead: &Lookahead<'_>, requests: Requests<'_>) {
        let expects_structures = self.find(table, ahead, requests);
        if self.keys_count > 1 {
            self.prefetch_records(ahead);
            if expects_structures {
                self.prefetch_structures(ahead);
            }
        }
    }

    /// Finds the rows and the keys, hashes these, and asks for their buckets. Says whether some
    /// are of commands that expect structures.
    #[inline(never)]
    fn find(&mut self, table: &Table, ahead: &Lookahead<'_>, mut requests: Requests<'_>) -> bool {
        (self.runs_count, self.keys_count) = (0, 0);
        let mut expects_structures = false;
        let mut request = requests.next_with_key();
        while let Some((name, first)) = request {
            let command = table.find_key(name).or_else(|| table.find(first.name()));
            let arguments = first.len();
            let mut run = Run::begin(command, arguments, self.keys_count);
            expects_structures |= command.is_some_and(|found| found.is_about_structures);
            let key_at = command.map_or(0, |found| usize::from(found.keys.first));
            self.plan_key(ahead, &first, key_at);
            let repeats = match command {
                Some(found) if found.keys.last != 0 => {
                    self.plan_more_keys(ahead, first, found.keys);
                    false
                }
                _ => name != NameKey::NONE,
            };
            request = requests.next_with_key();
            while let Some((next_name, next)) = request
                && repeats
                && next_name == name
                && next.len() == arguments
            {
                run.requests_count += 1;
                self.plan_key(ahead, &next, key_at);
                request = requests.next_with_key();
            }
            self.add_run(run);
        }
        self.keys[self.keys_count].address = 0;
        expects_structures
    }

    #[inline]
    fn add_run(&mut self, run: Run) {
        if let Some(place) = self.runs.get_mut(self.runs_count) {
            *place = run;
            self.runs_count += 1;
        }
    }

    /// Plans the argument at `at`, if there is one, as the next key. The name at 0 is no key.
    #[inline(always)]
    fn plan_key(&mut self, ahead: &Lookahead<'_>, request: &Request<'_>, at: usize) {
        if at != 0
            && let Some(bytes) = request.arg(at)
            && let Some(place) = self.keys[..KEYS_MAX].get_mut(self.keys_count)
        {
            let hash = ahead.hash(bytes);
            ahead.bucket(hash);
            *place = PlannedKey {
                address: bytes.as_ptr().addr(),
                bytes: bytes.len(),
                hash,
            };
            self.keys_count += 1;
        }
    }

    /// Plans the keys behind the first, as far as there are places.
    #[inline(never)]
    fn plan_more_keys(&mut self, ahead: &Lookahead<'_>, request: Request<'_>, keys: KeyPlaces) {
        let (first, step) = (usize::from(keys.first), usize::from(keys.step));
        let last = match usize::try_from(keys.last) {
            Ok(last) => first + last,
            Err(_) => request
                .len()
                .saturating_sub(usize::from(keys.last.unsigned_abs())),
        };
        for at in (first + step..=last).step_by(step) {
            self.plan_key(ahead, &request, at);
        }
    }

    #[inline(never)]
    fn prefetch_records(&self, ahead: &Lookahead<'_>) {
        for key in self.keys.iter().take(self.keys_count) {
            ahead.record(key.hash);
        }
    }

    #[inline(never)]
    fn prefetch_structures(&self, ahead: &Lookahead<'_>) {
        for key in self.keys.iter().take(self.keys_count) {
            ahead.structure(key.hash);
        }
    }

    /// The run with this number, counted from the first of the batch.
    #[inline]
    pub(crate) fn run(&self, number: usize) -> Option<Run> {
        let runs = self.runs.get(..self.runs_count)?;
        runs.get(number).copied()
    }

    /// Says which request of a run is the one that names its keys from now on.
    #[inline(always)]
    pub(crate) fn begin(&self, run: &Run, index: usize) {
        self.next_key.set(run.first_key + index);
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

impl Run {
    /// The first request of a run: with so many arguments, the name included, and the next key.
    #[inline(always)]
    fn begin(command: Option<&'static Found>, arguments: usize, next_key: usize) -> Self {
        Self {
            command,
            requests_count: 1,
            is_plain: command.is_some_and(|found| found.is_plain && found.surely_takes(arguments)),
            first_key: next_key,
        }
    }
}

impl PlannedKey {
    /// Which no argument is.
    const NONE: Self = Self {
        address: 0,
        bytes: 0,
        hash: 0,
    };
}

#[cfg(test)]
mod tests {
    use protocol::{Batch, Decoder, Limits};
    use store::{Handle, Options, Store};

    use super::*;
    use crate::table::table;

    /// A plan of these lines, and what it says of every argument when asked in order.
    fn plan_of(plan: &mut Plan, store: &Handle, input: &str) -> Vec<Vec<bool>> {
        let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
        let (input, limits) = (input.as_bytes(), Limits::default());
        decoder.decode(input, &limits, BATCH_MAX, &mut batch);
        plan.make(table(), &store.lookahead(0), batch.iter(input));
        let runs = (0..).map_while(|number| plan.run(number));
        let places = runs.flat_map(|run| (0..run.requests_count).map(move |index| (run, index)));
        let known = |((run, index), request): ((Run, usize), Request<'_>)| {
            plan.begin(&run, index);
            let known = |arg: &[u8]| {
                let hash = plan.hash_of(arg);
                assert!(hash.is_none_or(|hash| hash == store.hash(arg)));
                hash.is_some()
            };
            request.iter().map(known).collect()
        };
        places.zip(batch.iter(input)).map(known).collect()
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
