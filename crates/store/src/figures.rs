//! Costs of the parts. Nothing is asserted; run by hand:
//! `cargo test -p store --release figures -- --ignored --nocapture --test-threads=1`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "run by hand")]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::clock::{Clock, SystemClock};
use base::random::Prng;

use crate::accounting::resident_bytes;
use crate::arena::{Arena, HugePages};
use crate::blob::Blob;
use crate::slab::{Slab, class_for};
use crate::wheel::Wheel;

/// Prints the best of a few runs of `items` each, in nanoseconds per item.
fn report(what: &str, items: u64, mut run: impl FnMut()) {
    let clock = SystemClock::new();
    let best = (0..7)
        .map(|_| {
            let start = clock.monotonic_ns();
            run();
            clock.monotonic_ns() - start
        })
        .min()
        .unwrap_or(0);
    println!("{:8.2} ns  {what}", best as f64 / items as f64);
}

fn slab() -> Arc<Slab> {
    Slab::new(
        Arc::new(Arena::new(HugePages::default()).unwrap()),
        Arc::default(),
    )
}

#[test]
#[ignore = "prints figures"]
fn figures_of_slots() {
    let slab = slab();
    let mut cache = slab.cache();
    let class = class_for(48).unwrap();
    report("allocate and free the same slot", 1_000_000, || {
        for _ in 0..1_000_000 {
            let slot = cache.allocate(class).unwrap();
            cache.free(black_box(slot), class);
        }
    });
    const MANY: usize = 4_000_000;
    let mut prng = Prng::seeded(1);
    let mut slots = Vec::with_capacity(MANY);
    let mut seconds = [f64::MAX; 3];
    let clock = SystemClock::new();
    for _ in 0..3 {
        let start = clock.monotonic_ns();
        slots.extend((0..MANY).map(|_| {
            let slot = cache.allocate(class).unwrap();
            slab.arena().word(slot, 1).store(1, Ordering::Relaxed);
            slot
        }));
        let allocated = clock.monotonic_ns();
        for at in (1..MANY).rev() {
            let other = usize::try_from(prng.below(at as u64 + 1)).unwrap();
            slots.swap(at, other);
        }
        let shuffled = clock.monotonic_ns();
        slots.drain(..).for_each(|slot| cache.free(slot, class));
        let freed = clock.monotonic_ns();
        seconds[0] = seconds[0].min((allocated - start) as f64);
        seconds[1] = seconds[1].min((freed - shuffled) as f64);
    }
    println!(
        "{:8.2} ns  allocate and touch, 4M slots",
        seconds[0] / MANY as f64
    );
    println!(
        "{:8.2} ns  free in random order, 4M slots",
        seconds[1] / MANY as f64
    );
    report("hand-over: allocate here, free there", 100_000, || {
        let mut other = slab.cache();
        for _ in 0..100 {
            let slots: [_; 1000] = std::array::from_fn(|_| cache.allocate(class).unwrap());
            slots.into_iter().for_each(|slot| other.free(slot, class));
        }
    });
}

#[test]
#[ignore = "prints figures"]
fn figures_of_copies() {
    let slab = slab();
    let mut cache = slab.cache();
    let slot = cache.allocate(class_for(16 << 10).unwrap()).unwrap();
    let mut buffer = vec![1; 16 << 10];
    for len in [8, 32, 100, 128, 256, 512, 1024, 4096, 16384] {
        report(&format!("copy out {len} bytes"), 100_000, || {
            for _ in 0..100_000 {
                slab.arena()
                    .copy_out(black_box(slot), 0, &mut buffer[..len]);
            }
        });
        report(&format!("copy in  {len} bytes"), 100_000, || {
            for _ in 0..100_000 {
                slab.arena().copy_in(black_box(slot), 0, &buffer[..len]);
            }
        });
    }
}

#[test]
#[ignore = "prints figures"]
fn figures_of_blobs() {
    let slab = slab();
    let value = vec![7; 1 << 20];
    report("make and drop a blob, per KiB of 1 MiB", 1024 * 20, || {
        for _ in 0..20 {
            black_box(Blob::from_bytes(&slab, &value).unwrap());
        }
    });
    let mut blob = Blob::from_bytes(&slab, &value).unwrap();
    report("write one byte in place", 100_000, || {
        for at in 0..100_000 {
            blob.write_at(at * 10, b"x").unwrap();
        }
    });
    report("pin and let go", 100_000, || {
        for at in 0..100_000 {
            black_box(blob.pin(at..at + 100));
        }
    });
}

#[test]
#[ignore = "prints figures"]
fn figures_of_the_wheel() {
    const MANY: u64 = 1_000_000;
    let mut prng = Prng::seeded(1);
    let mut now = 1_700_000_000_000;
    let before = resident_bytes().unwrap();
    let mut wheel = Wheel::new(now);
    let clock = SystemClock::new();
    let start = clock.monotonic_ns();
    for key in 0..MANY {
        wheel.arm(key, now + 1 + prng.below(3_600_000));
    }
    let armed = clock.monotonic_ns();
    let held = resident_bytes().unwrap().saturating_sub(before);
    let mut longest_ns = 0;
    while wheel.len() > 0 {
        now += 1;
        let tick = clock.monotonic_ns();
        let _more = wheel.advance(now, usize::MAX, &mut |_| None);
        longest_ns = longest_ns.max(clock.monotonic_ns() - tick);
    }
    let fired = clock.monotonic_ns();
    println!("{:8.2} ns  arm", (armed - start) as f64 / MANY as f64);
    println!(
        "{:8.2} ns  tick, of 3.6M in which all keys fired",
        (fired - armed) as f64 / 3_600_000.0
    );
    println!("{:8.2} us  longest tick", longest_ns as f64 / 1000.0);
    println!("{:8.2} bytes per entry", held as f64 / MANY as f64);
}

#[test]
#[ignore = "prints figures"]
fn figures_of_an_empty_store() {
    let before = resident_bytes().unwrap();
    let slab = slab();
    let caches: Vec<_> = (0..4).map(|_| slab.cache()).collect();
    let after = resident_bytes().unwrap();
    println!(
        "{:8} KiB resident for an arena and four caches",
        (after - before) / 1024
    );
    println!("{:8} GiB reserved", slab.arena().bytes() >> 30);
    drop(caches);
}
