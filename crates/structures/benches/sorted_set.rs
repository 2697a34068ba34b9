//! Time and memory of a sorted set, compared with two maps of the standard library.
//!
//! `cargo bench -p structures --bench sorted_set` prints nanoseconds per operation;
//! `… -- set add 1000000` runs one part alone, for `valgrind --tool=callgrind`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use base::number::IntegerText;
use base::random::Prng;
use structures::{SortedSet, SortedSetLimits};

/// The system's allocator. Counts the bytes that were requested, rounded up as the allocator rounds
/// them.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(
            structures::memory::allocated(layout.size()),
            Ordering::Relaxed,
        );
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(
            structures::memory::allocated(layout.size()),
            Ordering::Relaxed,
        );
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMITS: SortedSetLimits = SortedSetLimits {
    listpack_entries: 128,
    listpack_value_bytes: 64,
};

/// The operations that both contestants implement.
trait Contestant: Default {
    const NAME: &'static str;
    fn add(&mut self, member: &[u8], score: f64);
    fn rank(&self, member: &[u8]) -> usize;
    fn remove(&mut self, member: &[u8]);
}

impl Contestant for SortedSet {
    const NAME: &'static str = "set";

    fn add(&mut self, member: &[u8], score: f64) {
        let _ = black_box(self.insert(member, score, &LIMITS));
    }

    fn rank(&self, member: &[u8]) -> usize {
        SortedSet::rank(self, member).map_or(0, |(rank, _)| rank)
    }

    fn remove(&mut self, member: &[u8]) {
        black_box(SortedSet::remove(self, member));
    }
}

/// Scores by member, and both in order. Keeps each member twice. Has no ranks: only finds the
/// position.
#[derive(Default)]
struct Maps {
    scores: HashMap<Vec<u8>, u64>,
    order: BTreeSet<(u64, Vec<u8>)>,
}

impl Contestant for Maps {
    const NAME: &'static str = "maps";

    fn add(&mut self, member: &[u8], score: f64) {
        let bits = score.to_bits();
        if let Some(old) = self.scores.insert(member.to_vec(), bits) {
            self.order.remove(&(old, member.to_vec()));
        }
        self.order.insert((bits, member.to_vec()));
    }

    fn rank(&self, member: &[u8]) -> usize {
        let Some(bits) = self.scores.get(member) else {
            return 0;
        };
        let from = (*bits, member.to_vec());
        self.order.range(from..).next().map_or(0, |one| one.1.len())
    }

    fn remove(&mut self, member: &[u8]) {
        if let Some(bits) = self.scores.remove(member) {
            self.order.remove(&(bits, member.to_vec()));
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if let [who, what, count] = &words[..] {
        let count = count.parse().unwrap_or(1_000);
        match &who[..] {
            "set" => one::<SortedSet>(what, count),
            _ => one::<Maps>(what, count),
        }
        return;
    }
    for count in [1_000, 1_000_000] {
        all::<SortedSet>(count);
        all::<Maps>(count);
    }
}

/// Returns `member:` and a number, in random order.
fn member(number: u64, room: &mut Vec<u8>) -> &[u8] {
    room.clear();
    room.extend_from_slice(b"member:");
    room.extend_from_slice(IntegerText::new_u64(number).as_bytes());
    room
}

fn filled<C: Contestant>(count: u64) -> C {
    let (mut contestant, mut random, mut room) = (C::default(), Prng::seeded(1), Vec::new());
    for number in 0..count {
        contestant.add(member(number, &mut room), random.below(1 << 40) as f64);
    }
    contestant
}

fn one<C: Contestant>(what: &str, count: u64) {
    let mut contestant = match what {
        "add" => C::default(),
        _ => filled(count),
    };
    run(what, &mut contestant, count);
    std::process::exit(0);
}

fn all<C: Contestant>(count: u64) {
    let before = BYTES.load(Ordering::Relaxed);
    let mut contestant = C::default();
    for what in ["add", "rank", "change", "remove"] {
        let start = Instant::now();
        let operations = run(what, &mut contestant, count);
        let ns = start.elapsed().as_nanos() as f64 / operations as f64;
        println!("{:5} {count:8} {what:7} {ns:8.0} ns", C::NAME);
        if what == "add" {
            let bytes = (BYTES.load(Ordering::Relaxed) - before) as f64;
            let names: usize = (0..count)
                .map(|one| 7 + IntegerText::new_u64(one).as_bytes().len())
                .sum();
            let beside = (bytes - names as f64) / count as f64;
            println!(
                "{:5} {count:8} bytes of a member beside itself {beside:.1}",
                C::NAME
            );
        }
    }
}

/// Runs one part and returns its number of operations.
fn run<C: Contestant>(what: &str, contestant: &mut C, count: u64) -> u64 {
    let (mut random, mut room) = (Prng::seeded(2), Vec::new());
    match what {
        "add" => *contestant = filled(count),
        "rank" => {
            for _ in 0..count {
                black_box(contestant.rank(member(random.below(count), &mut room)));
            }
        }
        "change" => {
            for _ in 0..count {
                let name = member(random.below(count), &mut room);
                contestant.add(name, random.below(1 << 40) as f64);
            }
        }
        _ => {
            for number in 0..count {
                contestant.remove(member(number, &mut room));
            }
        }
    }
    count
}
