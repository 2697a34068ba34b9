//! The arena's words and copies, from one thread.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a wrong test fails"
)]

use super::*;
use proptest::prelude::*;
use std::sync::atomic::Ordering;

const MIB: usize = 1 << 20;

fn arena() -> Arena {
    Arena::with_reserve(4 * MIB, 4 * MIB, HugePages::Never).unwrap()
}

fn offset(bytes: u64) -> Offset {
    Offset::new(bytes).unwrap()
}

#[test]
fn an_offset_is_aligned_and_not_zero() {
    assert_eq!(Offset::new(0), None);
    assert_eq!(Offset::new(8), None);
    assert_eq!(offset(65536).bytes(), 65536);
}

#[test]
fn words_and_bytes_are_the_same_memory() {
    let arena = arena();
    let at = offset(65536);
    arena.word(at, 1).store(u64::MAX, Ordering::Relaxed);
    let mut bytes = [7; 24];
    arena.copy_out(at, 0, &mut bytes);
    assert_eq!(bytes[..8], [0; 8]);
    assert_eq!(bytes[8..16], [255; 8]);
    assert_eq!(bytes[16..], [0; 8]);
    // SAFETY: no other thread knows this arena.
    let seen = unsafe { arena.bytes_under_lock(at, 4..12) };
    assert_eq!(seen, [0, 0, 0, 0, 255, 255, 255, 255]);
}

#[test]
#[should_panic(expected = "outside of the arena")]
fn a_word_outside_is_refused() {
    let arena = arena();
    let _word = arena.word(offset(65536), 4 * MIB / 8);
}

#[test]
#[should_panic(expected = "outside of the arena")]
fn a_wild_index_is_refused() {
    let arena = arena();
    let _word = arena.word(offset(65536), usize::MAX - 1000);
}

#[test]
#[should_panic(expected = "outside of the arena")]
fn a_range_outside_is_refused() {
    arena().copy_out(offset(4 * MIB as u64 - 16), 0, &mut [0; 17]);
}

#[test]
fn the_whole_range_may_be_used() {
    let arena = arena();
    let last = offset(4 * MIB as u64 - 256);
    arena.copy_in(last, 0, &[9; 256]);
    let mut bytes = [0; 256];
    arena.copy_out(last, 0, &mut bytes);
    assert_eq!(bytes, [9; 256]);
}

/// Memory that was requested ahead of its use goes back if so much is free that it will not be
/// needed soon.
#[test]
#[cfg_attr(miri, ignore = "the content stays there")]
fn memory_that_was_prepared_in_vain_is_given_back() {
    let huge_pages = HugePages::After { bytes: 0 };
    let arena = Arena::with_reserve(16 * MIB, 16 * MIB, huge_pages).unwrap();
    let taken: Vec<_> = (0..70).map(|_| arena.take_chunk().unwrap()).collect();
    // In the 2 MiB after those that the last of them lies in.
    let prepared = offset(7 * MIB as u64);
    let word = || arena.word(prepared, 0).load(Ordering::Relaxed);
    arena.word(prepared, 0).store(7, Ordering::Relaxed);
    arena.clean_unused();
    assert_eq!(word(), 7, "it may be needed soon");
    arena.give_chunks(&taken, 0);
    arena.give_dirty();
    arena.clean_unused();
    assert_eq!(word(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// Compares word loops and the bulk copy with a plain vector, at every alignment.
    #[test]
    fn copies_do_what_a_vector_does(
        writes in prop::collection::vec((0_usize..2000, 0_usize..2500, any::<u8>()), 1..8),
        zero in (0_usize..2000, 0_usize..2500),
        read in (0_usize..2000, 0_usize..2500),
    ) {
        let arena = arena();
        let at = offset(65536 + 16);
        let mut twin = vec![0; 8192];
        for (start, len, seed) in writes {
            let data: Vec<u8> = (0..len).map(|i| seed.wrapping_add((i % 251) as u8)).collect();
            arena.copy_in(at, start, &data);
            twin[start..start + len].copy_from_slice(&data);
            prop_assert!(arena.matches(at, start, &data));
        }
        arena.zero(at, zero.0, zero.1);
        twin[zero.0..zero.0 + zero.1].fill(0);
        let mut all = vec![1; 8192];
        arena.copy_out(at, 0, &mut all);
        prop_assert_eq!(&all, &twin);
        let (start, len) = read;
        let mut part = vec![1; len];
        arena.copy_out(at, start, &mut part);
        prop_assert_eq!(&part[..], &twin[start..start + len]);
        // SAFETY: no other thread knows this arena.
        let seen = unsafe { arena.bytes_under_lock(at, start..start + len) };
        prop_assert_eq!(seen, &twin[start..start + len]);
        if let Some(last) = part.last_mut() {
            *last ^= 1;
            prop_assert!(!arena.matches(at, start, &part));
        }
    }
}
