//! The path of slots between threads, under a model checker: `--cfg loom` tries every interleaving
//! of two threads (with three preemptions), `--cfg shuttle` random ones of four.

#![allow(clippy::unwrap_used, reason = "a wrong test fails")]

use super::*;
use base::sync::thread;

const SMALL: SizeClass = SizeClass::from_number(0).unwrap();
const LARGE: SizeClass = SizeClass::from_number(1).unwrap();

fn slab_of(chunks: usize) -> Arc<Slab> {
    let arena = Arena::with_chunks(chunks).unwrap();
    Slab::new(Arc::new(arena), Arc::default())
}

/// Takes a slot, marks it, and finds the mark unchanged: no other thread was given the same slot.
fn use_slot(cache: &mut SlabCache, class: SizeClass, mark: u64) -> Option<Offset> {
    let offset = cache.allocate(class).ok()?;
    for index in 0..class_bytes(class) / 8 {
        cache
            .arena()
            .word(offset, index)
            .store(mark, Ordering::Relaxed);
    }
    Some(offset)
}

fn drop_slot(cache: &mut SlabCache, class: SizeClass, slot: Option<Offset>, mark: u64) {
    let Some(offset) = slot else { return };
    for index in 0..class_bytes(class) / 8 {
        let found = cache.arena().word(offset, index).load(Ordering::Relaxed);
        assert_eq!(found, mark, "two owners");
    }
    cache.free(offset, class);
}

/// The work of one thread: holds so many slots at once that lists and chunks are handed over.
fn work(slab: &Arc<Slab>, class: SizeClass, held: usize, mark: u64) {
    let mut cache = slab.cache();
    let slots: Vec<_> = (0..held)
        .map(|_| use_slot(&mut cache, class, mark))
        .collect();
    cache.settle();
    for slot in slots {
        drop_slot(&mut cache, class, slot, mark);
    }
}

fn assert_all_back(slab: &Slab) {
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
    assert_eq!(slab.ledger().used_bytes(), 0);
}

#[cfg(loom)]
fn check(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[cfg(all(shuttle, not(loom)))]
fn check(test: impl Fn() + Sync + Send + 'static) {
    shuttle::check_pct(test, 2000, 3);
}

#[test]
fn slots_handed_over_have_one_owner() {
    check(|| {
        let slab = slab_of(4);
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || work(&other, LARGE, 3, 2));
        work(&slab, LARGE, 3, 1);
        thread.join().unwrap();
        assert_all_back(&slab);
    });
}

/// The chunk that one class empties is the only one that the other can have.
#[test]
fn an_emptied_chunk_changes_its_class() {
    check(|| {
        let slab = slab_of(2);
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || work(&other, LARGE, 1, 2));
        work(&slab, SMALL, 1, 1);
        thread.join().unwrap();
        assert_all_back(&slab);
    });
}

/// A slot is allocated by one thread and freed by another.
#[test]
fn a_slot_may_be_freed_by_another_thread() {
    check(|| {
        let slab = slab_of(3);
        let mut cache = slab.cache();
        let slot = use_slot(&mut cache, LARGE, 7);
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || {
            let mut cache = other.cache();
            drop_slot(&mut cache, LARGE, slot, 7);
        });
        let own = use_slot(&mut cache, LARGE, 8);
        drop_slot(&mut cache, LARGE, own, 8);
        drop(cache);
        thread.join().unwrap();
        assert_all_back(&slab);
    });
}

/// Chunks are retired while other threads allocate and free.
#[test]
fn retiring_takes_nobodys_slots() {
    check(|| {
        let slab = slab_of(4);
        let other = Arc::clone(&slab);
        let thread = thread::spawn(move || work(&other, LARGE, 2, 2));
        slab.retire_sparse(100);
        work(&slab, LARGE, 1, 1);
        thread.join().unwrap();
        assert_all_back(&slab);
    });
}

#[cfg(all(shuttle, not(loom)))]
#[test]
fn four_threads_share_what_there_is() {
    check(|| {
        let slab = slab_of(6);
        let threads: Vec<_> = (1..5)
            .map(|mark| {
                let slab = Arc::clone(&slab);
                thread::spawn(move || {
                    for round in 0..4 {
                        let class = if round % 2 == 0 { LARGE } else { SMALL };
                        work(&slab, class, 4, mark);
                        slab.retire_sparse(60);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_all_back(&slab);
    });
}
