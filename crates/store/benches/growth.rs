//! The longest insertion while a table grows from nothing, in processor time of this thread.
//! `cargo bench -p store --bench growth [-- KEYS]`; 10 M keys by default, which are 2 M buckets.
//!
//! Beside it are the figures of std's `HashMap`, which moves all of itself at once, and of two
//! loops that show how much of the figures may be due to the machine. One does nothing. The other
//! changes words at random places of as much memory as the store takes. On a virtual machine, time
//! that the hypervisor takes away counts as the thread's, and so does its work on its own pages at
//! the first touch; neither is a page fault here. What makes the store itself slow is page faults
//! (it holds no lock that another thread wants), so the longest insertion with one is shown
//! separately. A clock reading takes a third of a microsecond, which is in every figure.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::collections::HashMap;

use store::{Deadline, Options, Store};

const VALUE: [u8; 8] = *b"a value.";

/// Bytes of the store's memory per key, and the approximate number of its cache lines that an
/// insertion touches.
const BYTES_EACH: usize = 48;
const WORDS_EACH: usize = 6;

fn main() {
    let keys = std::env::args().find_map(|argument| argument.parse().ok());
    let keys: usize = keys.unwrap_or(10_000_000);
    println!("{keys} keys of 16 B and values of 8 B, from empty; microseconds of one insertion\n");
    println!("| Map | p50 | p99 | p99.9 | p99.99 | the five longest | longest with a page fault |");
    println!("|---|---|---|---|---|---|---|");
    report("nothing", keys, |_| ());
    report("words at random", keys, touch_at_random(keys));
    let mut map: HashMap<Box<[u8]>, Box<[u8]>> = HashMap::new();
    report("std's HashMap", keys, |name| {
        map.insert(Box::from(&name[..]), Box::from(&VALUE[..]));
    });
    drop(map);
    let Ok(store) = Store::new(&Options::default()) else {
        return println!("no addresses for a store");
    };
    let mut handle = store.handle();
    handle.begin(1_700_000_000_000);
    report("Iolite's store", keys, |name| {
        let key = handle.key(0, name);
        handle.upsert(&key, &VALUE, Deadline::Never, |_| ()).ok();
    });
}

/// Changes as many words as an insertion looks at, in memory that is already provided.
fn touch_at_random(keys: usize) -> impl FnMut(&[u8; 16]) {
    let mut words = vec![1_u64; keys * BYTES_EACH / size_of::<u64>()];
    let mut at = 88_172_645_463_325_252_usize;
    move |_| {
        for _ in 0..WORDS_EACH {
            at ^= at << 13;
            at ^= at >> 7;
            at ^= at << 17;
            let count = words.len();
            words[at % count] += 1;
        }
    }
}

fn report(what: &str, keys: usize, mut insert: impl FnMut(&[u8; 16])) {
    let mut spent: Vec<u64> = (0..keys as u64).map(|_| 0).collect();
    let mut longest_faulting = 0;
    for (number, spent) in spent.iter_mut().enumerate() {
        let mut name = *b"key:key:00000000";
        name[8..].copy_from_slice(&number.to_le_bytes());
        let faults = page_faults();
        let start = cpu_ns();
        insert(&name);
        *spent = cpu_ns() - start;
        if *spent > longest_faulting && page_faults() != faults {
            longest_faulting = *spent;
        }
    }
    spent.sort_unstable();
    let micros = |ns: u64| ns as f64 / 1000.0;
    let part = |of: usize| micros(spent[keys - 1 - keys / of]);
    let longest: Vec<String> = spent[keys - 5..]
        .iter()
        .rev()
        .map(|ns| format!("{:.0}", micros(*ns)))
        .collect();
    println!(
        "| {what} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {:.0} |",
        part(2),
        part(100),
        part(1_000),
        part(10_000),
        longest.join(", "),
        micros(longest_faulting)
    );
}

fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, rest) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + rest
}

/// Number of page faults of this thread.
fn page_faults() -> i64 {
    // SAFETY: zeroes are a valid value of this plain structure, and a valid place for the result.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}
