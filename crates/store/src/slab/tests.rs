//! Slots, from one and from several threads.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a wrong test fails"
)]

use super::*;
use crate::arena::HugePages;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

const MIB: usize = 1 << 20;

fn slab_of(bytes: usize) -> Arc<Slab> {
    let arena = Arena::with_reserve(bytes, bytes, HugePages::Never).unwrap();
    Slab::new(Arc::new(arena), Arc::default())
}

fn class(bytes: usize) -> SizeClass {
    class_for(bytes).unwrap()
}

/// Fills the slot with a pattern that belongs to `seed`.
fn fill(arena: &Arena, offset: Offset, class: SizeClass, seed: u64) {
    for index in 0..class_bytes(class) / 8 {
        let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
        arena.word(offset, index).store(word, Ordering::Relaxed);
    }
}

fn assert_filled(arena: &Arena, offset: Offset, class: SizeClass, seed: u64) {
    for index in 0..class_bytes(class) / 8 {
        let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
        let found = arena.word(offset, index).load(Ordering::Relaxed);
        assert_eq!(found, word, "slot {offset:?} word {index}");
    }
}

fn in_use_bytes(slab: &Slab) -> usize {
    usize::try_from(slab.arena().chunks().in_use_bytes()).unwrap()
}

#[test]
fn the_last_freed_is_the_first_reused() {
    let slab = Slab::new(
        Arc::new(Arena::new(HugePages::default()).unwrap()),
        Arc::default(),
    );
    let mut cache = slab.cache();
    let class = class(100);
    let first = cache.allocate(class).unwrap();
    let second = cache.allocate(class).unwrap();
    assert_ne!(first, second);
    cache.free(first, class);
    assert_eq!(cache.allocate(class).unwrap(), first);
}

#[test]
fn uses_the_whole_range_and_says_when_it_is_full() {
    let slab = slab_of(2 * MIB);
    let mut cache = slab.cache();
    let class = class(16 << 10);
    let mut slots = Vec::new();
    let refused = loop {
        match cache.allocate(class) {
            Ok(offset) => slots.push(offset),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, OutOfMemory);
    // All chunks except the page of zeroes, four slots each.
    assert_eq!(slots.len(), (2 * MIB / CHUNK_BYTES - 1) * 4);
    assert_eq!(cache.allocate(class_for(1).unwrap()), Err(OutOfMemory));
    let freed = slots.pop().unwrap();
    cache.free(freed, class);
    assert_eq!(cache.allocate(class), Ok(freed));
}

#[test]
fn emptied_chunks_serve_another_class() {
    let slab = slab_of(8 * MIB);
    let mut cache = slab.cache();
    let (small, large) = (class(48), class(3000));
    let count = 4 * MIB / 48;
    let slots: Vec<_> = (0..count).map(|_| cache.allocate(small).unwrap()).collect();
    let held = in_use_bytes(&slab);
    assert!((4 * MIB..5 * MIB).contains(&held), "{held}");
    slots.into_iter().for_each(|slot| cache.free(slot, small));
    assert!(
        in_use_bytes(&slab) <= 3 * CHUNK_BYTES,
        "all but the cache's"
    );
    for _ in 0..4 * MIB / 3072 {
        cache.allocate(large).unwrap();
    }
    assert!(in_use_bytes(&slab) < 5 * MIB);
    assert!(slab.held_bytes(small) <= 3 * CHUNK_BYTES as u64);
}

#[test]
fn what_one_thread_allocates_and_another_frees_goes_round() {
    let slab = slab_of(8 * MIB);
    let (mut giver, mut taker) = (slab.cache(), slab.cache());
    let class = class(64);
    for _ in 0..200 {
        let slots: Vec<_> = (0..1000).map(|_| giver.allocate(class).unwrap()).collect();
        slots.into_iter().for_each(|slot| taker.free(slot, class));
    }
    // 1000 slots are one chunk; each cache may hold one list and one chunk more.
    assert!(
        in_use_bytes(&slab) <= 5 * CHUNK_BYTES,
        "{}",
        in_use_bytes(&slab)
    );
    drop((giver, taker));
    assert_eq!(in_use_bytes(&slab), 0);
    assert_eq!(slab.ledger().used_bytes(), 0);
}

#[test]
fn counts_what_is_live_and_what_is_held() {
    let slab = slab_of(8 * MIB);
    let mut cache = slab.cache();
    let class = class(1000);
    let slots: Vec<_> = (0..100).map(|_| cache.allocate(class).unwrap()).collect();
    cache.flush();
    let usage = slab.usage();
    assert_eq!(usage.live_bytes, 100 * 1024);
    assert_eq!(usage.held_bytes, 2 * CHUNK_BYTES as u64);
    assert_eq!(slab.ledger().used_bytes(), usage.live_bytes);
    slots.into_iter().for_each(|slot| cache.free(slot, class));
    drop(cache);
    assert_eq!(slab.usage(), SlabUsage::default());
}

#[test]
fn sparse_chunks_are_emptied_by_moving_what_is_left() {
    let slab = slab_of(16 * MIB);
    let (mut cache, mut other) = (slab.cache(), slab.cache());
    let class = class(256);
    let count = 4 * MIB / 256;
    let slots: Vec<_> = (0..count).map(|_| cache.allocate(class).unwrap()).collect();
    // Three of four are freed, half of them into another thread's cache.
    let mut kept = Vec::new();
    for (index, slot) in slots.into_iter().enumerate() {
        match index % 8 {
            0 | 4 => {
                fill(slab.arena(), slot, class, index as u64);
                kept.push((slot, index as u64));
            }
            1..4 => cache.free(slot, class),
            _ => other.free(slot, class),
        }
    }
    let before = in_use_bytes(&slab);
    assert!(slab.retire_sparse(40) > 40);
    cache.settle();
    other.settle();
    for (slot, seed) in &mut kept {
        if !slab.is_retired(*slot) {
            continue;
        }
        let target = cache.allocate(class).unwrap();
        assert!(!slab.is_retired(target));
        let mut bytes = [0; 256];
        slab.arena().copy_out(*slot, 0, &mut bytes);
        slab.arena().copy_in(target, 0, &bytes);
        cache.free_moved(*slot, class);
        assert_filled(slab.arena(), target, class, *seed);
        *slot = target;
    }
    drop((cache, other));
    let after = in_use_bytes(&slab);
    assert!(after * 5 < before * 2, "{before} -> {after}");
    for (slot, seed) in kept {
        assert!(!slab.is_retired(slot));
        assert_filled(slab.arena(), slot, class, seed);
    }
}

#[test]
fn many_freed_chunks_go_back_to_the_system() {
    let slab = slab_of(64 * MIB);
    let mut cache = slab.cache();
    let class = class(16 << 10);
    let slots: Vec<_> = (0..2000).map(|_| cache.allocate(class).unwrap()).collect();
    for &slot in &slots {
        slab.arena()
            .word(slot, 5)
            .store(u64::MAX, Ordering::Relaxed);
    }
    slots.iter().for_each(|&slot| cache.free(slot, class));
    drop(cache);
    let chunks = slab.arena().chunks();
    assert_eq!(chunks.in_use_bytes(), 0);
    assert!(chunks.dirty_bytes() <= 4 * MIB as u64);
    let zeroed = slots
        .iter()
        .filter(|&&slot| slab.arena().word(slot, 5).load(Ordering::Relaxed) == 0)
        .count();
    assert!(cfg!(miri) || zeroed >= 2000 - 4 * MIB / (16 << 10));
}

/// Threads allocate, check, pass on and free slots, while another reads at random places.
#[test]
fn slots_keep_their_content_under_many_threads() {
    const THREADS: u64 = 4;
    let rounds = if cfg!(miri) { 200 } else { 40_000 };
    let slab = slab_of(64 * MIB);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|_| mpsc::channel::<(Offset, SizeClass, u64)>())
        .unzip();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stale_reader = scope.spawn(|| {
            let mut state = 1_u64;
            let mut sum = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let bytes = (state >> 20) % (8 * MIB as u64) / 16 * 16;
                let Some(offset) = Offset::new(bytes) else {
                    continue;
                };
                let mut copy = [0; 300];
                slab.arena().copy_out(offset, 0, &mut copy);
                sum = sum.wrapping_add(copy[17].into());
            }
            sum
        });
        let workers: Vec<_> = (0..THREADS)
            .zip(receivers)
            .map(|(me, receiver)| {
                let next = senders[usize::try_from((me + 1) % THREADS).unwrap()].clone();
                let slab = &slab;
                scope.spawn(move || {
                    let mut cache = slab.cache();
                    let mut own = Vec::new();
                    for round in 0..rounds {
                        let class = class(16 << (round % 9));
                        let slot = cache.allocate(class).unwrap();
                        let seed = round * THREADS + me;
                        fill(slab.arena(), slot, class, seed);
                        own.push((slot, class, seed));
                        if round % 3 == 0 {
                            let at = (seed as usize).wrapping_mul(31) % own.len();
                            next.send(own.swap_remove(at)).unwrap();
                        }
                        for (slot, class, seed) in receiver.try_iter().take(2) {
                            assert_filled(slab.arena(), slot, class, seed);
                            cache.free(slot, class);
                        }
                        if own.len() > 500 {
                            let at = (seed as usize).wrapping_mul(17) % own.len();
                            let (slot, class, seed) = own.swap_remove(at);
                            assert_filled(slab.arena(), slot, class, seed);
                            cache.free(slot, class);
                        }
                        if round % 1000 == 0 {
                            slab.retire_sparse(10);
                            cache.settle();
                        }
                    }
                    drop(next);
                    for (slot, class, seed) in own.into_iter().chain(receiver) {
                        assert_filled(slab.arena(), slot, class, seed);
                        cache.free(slot, class);
                    }
                })
            })
            .collect();
        drop(senders);
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        stale_reader.join().unwrap();
    });
    assert_eq!(in_use_bytes(&slab), 0);
    assert_eq!(slab.ledger().used_bytes(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { cache: bool, bytes: usize },
    Free { cache: bool, which: usize },
    FreeMany { cache: bool, every: usize },
    Retire { percent: u32 },
    Settle { cache: bool },
    Renew { cache: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![1_usize..100, 1_usize..=SLOT_BYTES_MAX];
    prop_oneof![
        20 => (any::<bool>(), size).prop_map(|(cache, bytes)| Step::Allocate { cache, bytes }),
        10 => (any::<bool>(), any::<usize>())
            .prop_map(|(cache, which)| Step::Free { cache, which }),
        1 => (any::<bool>(), 1_usize..4)
            .prop_map(|(cache, every)| Step::FreeMany { cache, every }),
        1 => (0_u32..101).prop_map(|percent| Step::Retire { percent }),
        1 => any::<bool>().prop_map(|cache| Step::Settle { cache }),
        1 => any::<bool>().prop_map(|cache| Step::Renew { cache }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    /// No two live slots overlap, none changes by itself, and nothing is left in the end.
    #[test]
    fn slots_are_disjoint_and_all_come_back(
        steps in prop::collection::vec(step(), 1..400),
        repeat in 1_usize..20,
    ) {
        let slab = slab_of(64 * MIB);
        let mut caches = [slab.cache(), slab.cache()];
        let mut live: BTreeMap<Offset, (SizeClass, u64)> = BTreeMap::new();
        let mut seed = 0;
        for step in steps {
            match step {
                Step::Allocate { cache, bytes } => {
                    for _ in 0..repeat {
                        let class = class(bytes);
                        let offset = caches[usize::from(cache)].allocate(class).unwrap();
                        let end = offset.bytes() + class_bytes(class) as u64;
                        let after = live.range(offset..).next();
                        prop_assert!(after.is_none_or(|(next, _)| next.bytes() >= end));
                        let before = live.range(..offset).next_back();
                        let ends = before.map(|(at, (class, _))| {
                            at.bytes() + class_bytes(*class) as u64
                        });
                        prop_assert!(ends.is_none_or(|ends| ends <= offset.bytes()));
                        prop_assert_eq!(
                            ChunkId::of(offset),
                            ChunkId::of(Offset::new(end - 16).unwrap())
                        );
                        seed += 1;
                        fill(slab.arena(), offset, class, seed);
                        live.insert(offset, (class, seed));
                    }
                }
                Step::Free { cache, which } => {
                    let count = live.len().max(1);
                    if let Some(&offset) = live.keys().nth(which % count) {
                        let (class, seed) = live.remove(&offset).unwrap();
                        assert_filled(slab.arena(), offset, class, seed);
                        caches[usize::from(cache)].free(offset, class);
                    }
                }
                Step::FreeMany { cache, every } => {
                    let gone: Vec<_> = live.keys().copied().step_by(every).collect();
                    for offset in gone {
                        let (class, seed) = live.remove(&offset).unwrap();
                        assert_filled(slab.arena(), offset, class, seed);
                        caches[usize::from(cache)].free(offset, class);
                    }
                }
                Step::Retire { percent } => {
                    slab.retire_sparse(percent);
                }
                Step::Settle { cache } => caches[usize::from(cache)].settle(),
                Step::Renew { cache } => caches[usize::from(cache)] = slab.cache(),
            }
        }
        for (offset, (class, seed)) in live {
            assert_filled(slab.arena(), offset, class, seed);
            caches[0].free(offset, class);
        }
        drop(caches);
        prop_assert_eq!(in_use_bytes(&slab), 0);
        prop_assert_eq!(slab.ledger().used_bytes(), 0);
        prop_assert_eq!(slab.usage(), SlabUsage::default());
    }
}
