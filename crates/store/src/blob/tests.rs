//! Blobs against plain vectors.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a wrong test fails"
)]

use super::*;
use crate::arena::{Arena, HugePages};
use crate::value::StoreError;
use proptest::prelude::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn slab_of(bytes: usize) -> Arc<Slab> {
    let arena = Arena::with_reserve(bytes, bytes, HugePages::Never).unwrap();
    Slab::new(Arc::new(arena), Arc::default())
}

fn bytes_of(blob: &Blob) -> Vec<u8> {
    blob.pin(0..usize::MAX).to_vec()
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| seed.wrapping_add((at % 251) as u8))
        .collect()
}

#[test]
fn costs_at_most_six_percent_more_than_its_bytes() {
    let slab = slab_of(8 * MIB);
    for len in [16 * KIB + 1, 17 * KIB, 64 * KIB, 100_000, 3 * MIB + 5] {
        let blob = Blob::from_bytes(&slab, &pattern(len, 1)).unwrap();
        assert_eq!(blob.len(), len);
        assert!(blob.memory_bytes() * 100 <= len * 106, "{len}");
        let counted = slab.ledger().used_bytes();
        assert_eq!(counted, blob.memory_bytes() as u64);
    }
    assert_eq!(slab.ledger().used_bytes(), 0);
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
}

#[test]
fn grown_by_appends_it_costs_little_more_too() {
    let slab = slab_of(8 * MIB);
    let mut blob = Blob::from_bytes(&slab, &pattern(17 * KIB, 1)).unwrap();
    let mut twin = pattern(17 * KIB, 1);
    while twin.len() < 2 * MIB {
        let data = pattern(1000, (twin.len() % 256) as u8);
        blob.append(&data).unwrap();
        twin.extend_from_slice(&data);
        let cost = blob.memory_bytes();
        assert!(cost * 100 <= twin.len() * 107, "{} {cost}", twin.len());
    }
    assert_eq!(bytes_of(&blob), twin);
}

#[test]
fn holes_cost_nothing() {
    let slab = slab_of(8 * MIB);
    let mut blob = Blob::from_bytes(&slab, b"start").unwrap();
    blob.write_at(512 * MIB - 2, b"ab").unwrap();
    assert_eq!(blob.len(), 512 * MIB);
    assert!(slab.ledger().used_bytes() < 256 * KIB as u64);
    let mut end = [9; 4];
    assert_eq!(blob.copy_to(512 * MIB - 4, &mut end), 4);
    assert_eq!(end, [0, 0, b'a', b'b']);
    let zeroes = blob.chunks(5..512 * MIB - 2);
    assert!(zeroes.flatten().step_by(97).all(|&byte| byte == 0));
}

#[test]
fn a_pin_keeps_what_was_and_shares_the_rest() {
    let slab = slab_of(8 * MIB);
    let before = pattern(10 * PAGE_BYTES + 100, 3);
    let mut blob = Blob::from_bytes(&slab, &before).unwrap();
    let held = slab.arena().chunks().in_use_bytes();
    let pin = blob.pin(0..usize::MAX);
    let part = pin.slice(PAGE_BYTES - 1..PAGE_BYTES + 2);
    blob.write_at(PAGE_BYTES, b"changed").unwrap();
    let held_more = slab.arena().chunks().in_use_bytes() - held;
    assert_eq!(held_more, PAGE_BYTES as u64, "one page was copied");
    assert_eq!(pin.to_vec(), before);
    assert_eq!(part.to_vec(), before[PAGE_BYTES - 1..PAGE_BYTES + 2]);
    let mut after = before.clone();
    after[PAGE_BYTES..PAGE_BYTES + 7].copy_from_slice(b"changed");
    assert_eq!(bytes_of(&blob), after);
    drop(blob);
    let sent = std::thread::spawn(move || pin.to_vec()).join().unwrap();
    assert_eq!(sent, before);
    drop(part);
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
    assert_eq!(slab.ledger().used_bytes(), 0);
}

#[test]
fn without_a_pin_writes_are_in_place() {
    let slab = slab_of(8 * MIB);
    let mut blob = Blob::from_bytes(&slab, &pattern(3 * PAGE_BYTES, 0)).unwrap();
    let address = blob.chunks(0..1).next().unwrap().as_ptr();
    drop(blob.pin(0..1));
    blob.write_at(10, b"x").unwrap();
    assert_eq!(blob.chunks(0..1).next().unwrap().as_ptr(), address);
}

#[test]
fn a_refused_write_changes_nothing() {
    let slab = slab_of(2 * MIB);
    let before = pattern(20 * PAGE_BYTES + 7, 5);
    let mut blob = Blob::from_bytes(&slab, &before).unwrap();
    let pin = blob.pin(0..usize::MAX);
    let all = pattern(before.len() + 100, 9);
    assert_eq!(blob.write_at(0, &all), Err(OutOfMemory));
    assert_eq!(bytes_of(&blob), before);
    assert_eq!(pin.to_vec(), before);
    drop(pin);
    blob.write_at(0, &all).unwrap();
    assert_eq!(bytes_of(&blob), all);
    assert!(Blob::from_bytes(&slab, &vec![1; 4 * MIB]).is_err());
}

#[test]
fn goes_through_a_word() {
    let slab = slab_of(8 * MIB);
    let blob = Blob::from_bytes(&slab, &pattern(2 * PAGE_BYTES, 1)).unwrap();
    let mut word = blob.into_raw();
    // SAFETY: the word comes from `into_raw`, and this test alone uses it.
    let pin = unsafe { Blob::look(word) }.pin(0..5);
    // SAFETY: as above.
    unsafe { Blob::change(&mut word, |blob| blob.append(b"more")) }.unwrap();
    assert_eq!(pin.to_vec(), pattern(5, 1));
    // SAFETY: as above, and it is not used again.
    let blob = unsafe { Blob::from_raw(word) };
    assert_eq!(blob.len(), 2 * PAGE_BYTES + 4);
    let lazy = LazyFree::new();
    blob.free(&lazy);
    drop((pin, lazy));
    assert_eq!(slab.ledger().used_bytes(), 0);
}

#[test]
fn a_large_one_is_dropped_by_another_thread() {
    let slab = slab_of(16 * MIB);
    let lazy = LazyFree::new();
    let blob = Blob::from_bytes(&slab, &pattern(8 * MIB, 1)).unwrap();
    blob.free(&lazy);
    drop(lazy);
    assert_eq!(slab.ledger().used_bytes(), 0);
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: usize, len: usize, seed: u8 },
    Append { len: usize, seed: u8 },
    Resize { len: usize },
    Truncate { len: usize },
    Pin { start: usize, len: usize },
    Unpin,
    Copy,
}

fn length() -> impl Strategy<Value = usize> {
    let near_page = (0_usize..5, 0_usize..33)
        .prop_map(|(pages, off)| (pages * PAGE_BYTES + off).saturating_sub(16));
    prop_oneof![near_page, 0_usize..300_000, 0_usize..100]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (length(), length(), any::<u8>()).prop_map(|(at, len, seed)| Step::Write { at, len, seed }),
        (length(), any::<u8>()).prop_map(|(len, seed)| Step::Append { len, seed }),
        length().prop_map(|len| Step::Resize { len }),
        length().prop_map(|len| Step::Truncate { len }),
        (length(), length()).prop_map(|(start, len)| Step::Pin { start, len }),
        Just(Step::Unpin),
        Just(Step::Copy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn behaves_like_a_vector(steps in prop::collection::vec(step(), 1..20)) {
        let slab = slab_of(32 * MIB);
        let mut blob = Blob::from_bytes(&slab, &pattern(17 * KIB, 0)).unwrap();
        let mut twin = pattern(17 * KIB, 0);
        let mut pins: Vec<(BlobRef, Vec<u8>)> = Vec::new();
        let mut copies = Vec::new();
        for step in steps {
            match step {
                Step::Write { at, len, seed } => {
                    let data = pattern(len, seed);
                    blob.write_at(at, &data).unwrap();
                    if twin.len() < at + len {
                        twin.resize(at + len, 0);
                    }
                    twin[at..at + len].copy_from_slice(&data);
                }
                Step::Append { len, seed } => {
                    let data = pattern(len, seed);
                    blob.append(&data).unwrap();
                    twin.extend_from_slice(&data);
                }
                Step::Resize { len } => {
                    blob.resize(len).unwrap();
                    twin.resize(len, 0);
                }
                Step::Truncate { len } => {
                    blob.truncate(len);
                    twin.truncate(len);
                }
                Step::Pin { start, len } => {
                    let end = (start + len).min(twin.len());
                    let seen = twin[start.min(end)..end].to_vec();
                    pins.push((blob.pin(start..start + len), seen));
                }
                Step::Unpin => drop(pins.pop()),
                Step::Copy => copies.push((blob.clone(), twin.clone())),
            }
            prop_assert_eq!(blob.len(), twin.len());
            // Rewriting the whole value each time would copy gigabytes; so values stay small
            // enough.
            if twin.len() > 4 * MIB {
                blob.truncate(MIB);
                twin.truncate(MIB);
            }
        }
        prop_assert!(bytes_of(&blob) == twin);
        for (pin, seen) in &pins {
            prop_assert!(pin.to_vec() == *seen);
        }
        for (copy, seen) in &copies {
            prop_assert!(bytes_of(copy) == *seen);
        }
        drop((blob, pins, copies));
        prop_assert_eq!(slab.ledger().used_bytes(), 0);
        prop_assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
    }
}

/// Receives a value in pieces of any size. The ledger counts it once it is complete, and nothing
/// before.
#[test]
fn a_value_on_its_way_in_belongs_to_nobody_yet() {
    let slab = slab_of(8 * MIB);
    for len in [64 * KIB, 64 * KIB + 1, 200_000, 2 * MIB] {
        let bytes = pattern(len, 3);
        let mut incoming = Incoming::new(&slab, len).unwrap();
        assert!(incoming.held_bytes() < KIB);
        for piece in bytes.chunks(7_001) {
            assert!(!incoming.is_complete());
            assert_eq!(incoming.write(piece).unwrap(), piece.len());
            assert!(incoming.held_bytes() < incoming.filled_bytes() + 65 * KIB);
        }
        assert_eq!(incoming.write(b"more").unwrap(), 0);
        assert_eq!(slab.ledger().used_bytes(), 0);
        let owned = incoming.finish(None).unwrap();
        assert!(slab.ledger().used_bytes() >= len as u64);
        assert_eq!(owned.to_vec(), bytes);
        drop(owned);
        assert_eq!(slab.ledger().used_bytes(), 0);
    }
    assert!(Incoming::new(&slab, 64 * KIB - 1).is_none());
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
}

#[test]
fn a_value_that_is_given_up_half_way_leaves_nothing() {
    let slab = slab_of(4 * MIB);
    for filled in [0, 100, 70_000, MIB] {
        let mut incoming = Incoming::new(&slab, 2 * MIB).unwrap();
        incoming.write(&pattern(filled, 1)).unwrap();
        assert!(incoming.finish(None).is_none());
        assert_eq!(slab.ledger().used_bytes(), 0);
        assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
    }
    let mut greedy = Incoming::new(&slab, 16 * MIB).unwrap();
    assert_eq!(
        greedy.write(&pattern(16 * MIB, 1)),
        Err(StoreError::OutOfMemory)
    );
    drop(greedy);
    assert_eq!(slab.arena().chunks().in_use_bytes(), 0);
}
