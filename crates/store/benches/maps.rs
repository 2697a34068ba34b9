//! Costs of operations beside std's `HashMap` and hashbrown, in nanoseconds of this thread's
//! processor time. `cargo bench -p store --bench maps [-- KEYS…]`; 1 M and 10 M keys by default.
//!
//! Keys are 16 B, values 8 B, drawn uniformly, in batches of 16 as in a pipeline. The maps are what
//! one thread would have for itself: no lock of any kind. The store is the shared one, with its
//! work for other threads, deadlines, eviction and snapshots. One of the maps holds keys and values
//! of any length, as a server must; the other holds fixed arrays in the table itself: the lower
//! bound. All are loaded first; then they take turns, and the median of the rounds counts.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::collections::HashMap;
use std::hint::black_box;

use base::random::Prng;
use store::{Deadline, Handle, Key, Options, Store};

const BATCH: usize = 16;
const ROUNDS: usize = 5;

/// Number of operations in a step of a round; deletions are for a part of the keys.
const OPERATIONS: usize = 1_000_000;
const DELETED_PART: usize = 10;

type Name = [u8; 16];
type Value = [u8; 8];

#[derive(Clone, Copy)]
enum Operation {
    Lookup,
    Write,
    Delete,
}

/// A request: an operation and its key.
type Request = (Operation, Name);

/// A map under test.
trait Map {
    fn name(&self) -> &'static str;

    /// Runs some requests, in order. Returns how many found their key.
    fn run(&mut self, batch: &[Request; BATCH]) -> usize;
}

/// The shared store.
struct Shared {
    handle: Handle,
    prefetches: bool,
}

impl Shared {
    fn new(prefetches: bool) -> Option<Self> {
        let mut handle = Store::new(&Options::default()).ok()?.handle();
        handle.begin(1_700_000_000_000);
        Some(Self { handle, prefetches })
    }
}

impl Map for Shared {
    fn name(&self) -> &'static str {
        if self.prefetches {
            "Iolite's store"
        } else {
            "Iolite's store, without prefetch"
        }
    }

    fn run(&mut self, batch: &[Request; BATCH]) -> usize {
        let handle = &mut self.handle;
        handle.enter();
        let keys: [Key<'_>; BATCH] = std::array::from_fn(|at| handle.key(0, &batch[at].1));
        if self.prefetches {
            let ahead = handle.lookahead(0);
            keys.iter().for_each(|key| ahead.bucket(key.hash()));
            ahead.records(&keys, |key| key.hash());
        }
        let mut found = 0;
        for (key, (operation, name)) in keys.iter().zip(batch) {
            found += usize::from(match operation {
                Operation::Lookup => handle.read(key, |record| {
                    let mut out = Value::default();
                    let is_some = record.is_some();
                    record.into_iter().for_each(|it| it.copy_to(0, &mut out));
                    black_box(out);
                    is_some
                }),
                Operation::Write => handle
                    .upsert(key, &value_of(name), Deadline::Never, |_| ())
                    .is_ok(),
                Operation::Delete => handle.delete(key, |_| ()),
            });
        }
        handle.leave();
        found
    }
}

/// A map with the interface of the standard library's, with keys and values of any length or of a
/// fixed one.
macro_rules! map {
    ($kind:ident, $what:literal, $map:ty, $key:expr, $value:expr, $look:expr) => {
        #[derive(Default)]
        struct $kind($map);

        impl Map for $kind {
            fn name(&self) -> &'static str {
                $what
            }

            fn run(&mut self, batch: &[Request; BATCH]) -> usize {
                let mut found = 0;
                for (operation, name) in batch {
                    found += usize::from(match operation {
                        Operation::Lookup => {
                            let value = self.0.get($look(name));
                            black_box(value.map(|it| Value::try_from(&it[..])));
                            value.is_some()
                        }
                        Operation::Write => {
                            self.0.insert($key(name), $value(value_of(name)));
                            true
                        }
                        Operation::Delete => self.0.remove($look(name)).is_some(),
                    });
                }
                found
            }
        }
    };
}

map!(
    StdBoxed,
    "std, any length",
    HashMap<Box<[u8]>, Box<[u8]>>,
    |name: &Name| Box::from(&name[..]),
    |value: Value| Box::from(&value[..]),
    <[u8; 16]>::as_slice
);
map!(
    BrownBoxed,
    "hashbrown, any length",
    hashbrown::HashMap<Box<[u8]>, Box<[u8]>>,
    |name: &Name| Box::from(&name[..]),
    |value: Value| Box::from(&value[..]),
    <[u8; 16]>::as_slice
);
map!(
    BrownFixed,
    "hashbrown, fixed arrays",
    hashbrown::HashMap<Name, Value>,
    |name: &Name| *name,
    |value: Value| value,
    std::convert::identity
);

fn main() {
    let sizes: Vec<usize> = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .collect();
    let sizes = if sizes.is_empty() {
        vec![1_000_000, 10_000_000]
    } else {
        sizes
    };
    for keys in sizes {
        compare(keys);
    }
}

fn name(number: usize) -> Name {
    let mut name = *b"key:000000000000";
    let mut rest = number;
    for digit in name[4..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    name
}

/// Consecutive keys have different values, and no value is a printed integer.
fn value_of(name: &Name) -> Value {
    let mut value = *b"value:..";
    value[6..].copy_from_slice(&name[14..]);
    value
}

/// The steps of a round.
const STEPS: [&str; 5] = ["lookup", "overwrite", "mixed", "delete", "insert again"];

fn compare(keys: usize) {
    let mut maps: Vec<Box<dyn Map>> = vec![
        Box::<StdBoxed>::default(),
        Box::<BrownBoxed>::default(),
        Box::<BrownFixed>::default(),
    ];
    for prefetches in [false, true] {
        let shared = Shared::new(prefetches);
        maps.extend(shared.map(|it| Box::new(it) as Box<dyn Map>));
    }
    println!("\n{keys} keys, ns per operation\n");
    print!("| Map | insert, growing |");
    STEPS.iter().for_each(|step| print!(" {step} |"));
    println!("\n|---|---|---|---|---|---|---|");
    let loads: Vec<f64> = maps.iter_mut().map(|map| load(&mut **map, keys)).collect();
    let mut figures = vec![[[0.0; ROUNDS]; STEPS.len()]; maps.len()];
    for round in 0..ROUNDS {
        let steps = steps(keys, round as u64);
        for (map, own) in maps.iter_mut().zip(&mut figures) {
            for (step, figure) in steps.iter().zip(own) {
                figure[round] = time(&mut **map, step);
            }
        }
    }
    for ((map, load), own) in maps.iter().zip(loads).zip(figures) {
        print!("| {} | {load:.0} |", map.name());
        for mut figure in own {
            figure.sort_by(f64::total_cmp);
            print!(" {:.0} |", figure[ROUNDS / 2]);
        }
        println!();
    }
}

fn load(map: &mut dyn Map, keys: usize) -> f64 {
    let mut spent = 0.0;
    for first in (0..keys).step_by(OPERATIONS) {
        let numbers = first..keys.min(first + OPERATIONS);
        let requests: Vec<Request> = numbers
            .map(|number| (Operation::Write, name(number)))
            .collect();
        spent += time(map, &requests) * requests.len() as f64;
    }
    spent / keys as f64
}

/// Returns the requests of a round, by step.
fn steps(keys: usize, seed: u64) -> [Vec<Request>; STEPS.len()] {
    let mut random = Prng::seeded(seed);
    let mut draw = |kind: fn(u64) -> Operation| -> Vec<Request> {
        let one = |_| {
            let kind = kind(random.below(10));
            (kind, name(random.index(keys)))
        };
        (0..OPERATIONS).map(one).collect()
    };
    let lookups = draw(|_| Operation::Lookup);
    let writes = draw(|_| Operation::Write);
    let mixed = draw(|chance| match chance {
        0 => Operation::Write,
        1 => Operation::Delete,
        _ => Operation::Lookup,
    });
    let deleted = (keys / DELETED_PART).min(OPERATIONS);
    // Each key once, in an order that is not that of any table.
    let spread = |kind| move |at: usize| (kind, name(at * 7_368_787 % keys));
    let delete = (0..deleted).map(spread(Operation::Delete)).collect();
    let insert = (0..deleted).map(spread(Operation::Write)).collect();
    [lookups, writes, mixed, delete, insert]
}

/// Returns nanoseconds per request.
fn time(map: &mut dyn Map, requests: &[Request]) -> f64 {
    let (batches, _) = requests.as_chunks::<BATCH>();
    let start = cpu_ns();
    let found: usize = batches.iter().map(|batch| map.run(batch)).sum();
    let spent = cpu_ns() - start;
    black_box(found);
    spent / (batches.len() * BATCH) as f64
}

fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
