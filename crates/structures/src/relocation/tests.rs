//! Moved collections stay equal, and every piece of them can be moved.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use super::*;
use crate::element::Element;
use crate::hash::{FieldDeadline, Hash, HashLimits};
use crate::list::{BlockLimit, End, List};
use crate::object::Object;
use crate::set::{Set, SetLimits};
use crate::sorted_set::{SortedSet, SortedSetLimits};
use crate::stream::{EntryId, Stream, StreamLimits};
use crate::{Compact, Kept};
use std::collections::BTreeSet;

const HASH: HashLimits = HashLimits {
    listpack_entries: 10,
    listpack_value_bytes: 64,
};
const SET: SetLimits = SetLimits {
    intset_entries: 10,
    listpack_entries: 10,
    listpack_value_bytes: 64,
};
const SORTED_SET: SortedSetLimits = SortedSetLimits {
    listpack_entries: 10,
    listpack_value_bytes: 64,
};

/// Returns one collection of each kind with `count` elements, some of them long.
fn collections(count: u64) -> Vec<Object> {
    let text = |number: u64| match number % 7 {
        0 => format!("{number}:{}", "long".repeat(200)),
        _ => format!("element {number}"),
    };
    let (mut list, mut hash, mut numbers) = (List::new(), Hash::new(), Set::new());
    let (mut set, mut sorted, mut stream) = (Set::new(), SortedSet::new(), Stream::new());
    for number in 0..count {
        let text = text(number);
        let end = [End::Back, End::Front][usize::from(number % 3 == 0)];
        list.push(end, Element::parse(text.as_bytes()), BlockLimit::default());
        let deadline = match number % 5 {
            0 if count > 20 => FieldDeadline::At(1_000_000 + number),
            _ => FieldDeadline::Never,
        };
        hash.set(
            format!("field {number}").as_bytes(),
            text.as_bytes(),
            deadline,
            0,
            &HASH,
        )
        .unwrap();
        set.insert(text.as_bytes(), &SET).unwrap();
        numbers
            .insert((number * 7).to_string().as_bytes(), &SET)
            .unwrap();
        let score = [1.5, -2.0, 7e9][usize::try_from(number % 3).unwrap()];
        sorted.insert(text.as_bytes(), score, &SORTED_SET).unwrap();
        let id = EntryId {
            ms: number + 1,
            seq: 0,
        };
        let fields = [(b"name".as_slice(), text.as_bytes())];
        stream
            .log_mut()
            .append(id, fields.into_iter(), StreamLimits::default())
            .unwrap();
    }
    vec![
        list.into_object(),
        hash.into_object(),
        set.into_object(),
        numbers.into_object(),
        sorted.into_object(),
        stream.into_object(),
    ]
}

/// Requests a move of everything, in steps of `work_bytes`. Returns the visited addresses.
fn relocate_all(object: &mut Object, work_bytes: u64) -> (BTreeSet<usize>, usize) {
    let (mut addresses, mut steps, mut from) = (BTreeSet::new(), 0, Some(0));
    while let Some(place) = from {
        let mut wants = |address: *const u8| {
            addresses.insert(address.addr());
            true
        };
        let mut relocation = Relocation::new(place, work_bytes, &mut wants);
        object.move_pieces(&mut relocation);
        from = relocation.rest();
        steps += 1;
    }
    (addresses, steps)
}

#[test]
fn what_was_moved_is_what_it_was() {
    for count in [1, 9, 200, 3_000] {
        for mut object in collections(count) {
            let (bytes, copy) = (object.memory_bytes(), collections(count));
            let twin = copy.into_iter().find(|one| *one == object).unwrap();
            let (addresses, steps) = relocate_all(&mut object, u64::MAX);
            assert!(!addresses.is_empty(), "{:?} of {count}", object.kind());
            assert_eq!(steps, 1);
            assert_eq!(object, twin, "{:?} of {count}", object.kind());
            assert_eq!(object.memory_bytes(), bytes, "{:?}", object.kind());
            assert_eq!(object.encoding(), twin.encoding());
        }
    }
}

#[test]
fn steps_reach_every_piece() {
    for (mut object, mut at_once) in collections(3_000).into_iter().zip(collections(3_000)) {
        let (all, _) = relocate_all(&mut at_once, u64::MAX);
        let (by_steps, steps) = relocate_all(&mut object, 1_000);
        assert!(steps > 3, "{:?}: {steps}", object.kind());
        assert_eq!(by_steps.len(), all.len(), "{:?}", object.kind());
        assert_eq!(object, at_once);
    }
}

/// The number of visited pieces is about the collection's own count, so none was forgotten.
#[test]
fn all_but_a_few_pieces_are_asked_for() {
    for mut object in collections(3_000) {
        let pieces = object.allocations();
        let (addresses, _) = relocate_all(&mut object, u64::MAX);
        let asked = addresses.len();
        assert!(
            asked >= pieces * 3 / 4,
            "{:?}: {asked} of {pieces}",
            object.kind()
        );
    }
}

#[test]
fn what_a_copy_shares_stays_where_it_is() {
    for mut object in collections(3_000) {
        let copy = object.clone();
        let bytes = (object.memory_bytes(), copy.memory_bytes());
        let (shared, _) = relocate_all(&mut object, u64::MAX);
        assert_eq!(object, copy);
        assert_eq!((object.memory_bytes(), copy.memory_bytes()), bytes);
        drop(copy);
        let (own, _) = relocate_all(&mut object, u64::MAX);
        assert!(shared.len() < own.len() / 2, "{:?}", object.kind());
    }
}

#[test]
fn what_is_wanted_where_it_is_stays_there() {
    for mut object in collections(9).into_iter().chain(collections(500)) {
        let mut asked = Vec::new();
        for _ in 0..2 {
            let mut addresses = Vec::new();
            let mut wants = |address: *const u8| {
                addresses.push(address.addr());
                false
            };
            let mut relocation = Relocation::new(0, u64::MAX, &mut wants);
            object.move_pieces(&mut relocation);
            let (moved, left) = relocation.counts();
            assert_eq!(moved, 0);
            assert_eq!(left, addresses.len() as u64);
            asked.push(addresses);
        }
        assert_eq!(asked[0], asked[1], "{:?}", object.kind());
    }
}

/// Repeats what the store does with a collection in parts.
#[test]
fn a_buffer_in_parts_keeps_its_capacity() {
    for mut object in collections(3) {
        let Some(Compact { buffer, .. }) = object.take_compact() else {
            continue;
        };
        let mut bytes = buffer.bytes;
        let before = (bytes.clone(), bytes.capacity(), bytes.as_ptr());
        let mut wants = |_: *const u8| true;
        let mut relocation = Relocation::new(0, u64::MAX, &mut wants);
        assert!(relocation.buffer(&mut bytes));
        assert_eq!((bytes.clone(), bytes.capacity()), (before.0, before.1));
        assert_ne!(bytes.as_ptr(), before.2);
    }
    let mut none: Vec<u8> = Vec::new();
    assert!(!Relocation::new(0, u64::MAX, &mut |_| true).buffer(&mut none));
}
