//! The table, compared with a map, and tests of its memory, cursors and deadlines.

use std::collections::{BTreeMap, BTreeSet};

use base::random::Prng;

use super::*;

#[test]
fn looking_ahead_takes_no_more_keys_than_it_looks_at() {
    let mut table = Table::new();
    let names: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    for (at, name) in names.iter().enumerate() {
        let entry = Entry {
            key: name.as_bytes(),
            value: b"",
            deadline_unix_ms: None,
        };
        table.insert(&entry).unwrap();
        let mut ahead = names[at..].iter().map(String::as_bytes);
        table.prefetch(ahead.by_ref());
        assert_eq!(ahead.len(), (names.len() - at).saturating_sub(AHEAD_MAX));
    }
    assert!(names.iter().all(|name| table.contains(name.as_bytes())));
}

type Twin = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn put(table: &mut Table, key: &[u8], value: &[u8]) {
    let entry = Entry {
        key,
        value,
        deadline_unix_ms: None,
    };
    table.insert(&entry).unwrap();
}

fn key(number: u64) -> Vec<u8> {
    format!("member:{number}").into_bytes()
}

fn numbered(count: u64) -> Table {
    let mut table = Table::new();
    for number in 0..count {
        put(&mut table, &key(number), b"");
    }
    table
}

fn contents(table: &Table) -> Twin {
    let own = |entry: Entry<'_>| {
        (
            entry.key.to_vec(),
            (entry.value.to_vec(), entry.deadline_unix_ms),
        )
    };
    let all: Vec<_> = table.iter().map(own).collect();
    assert_eq!(all.len(), table.len(), "an entry is there twice");
    all.into_iter().collect()
}

/// Checks the invariants of the table.
fn check(table: &Table) {
    let pages = table.pages.iter().map(|page| page.memory_bytes());
    assert_eq!(table.pages_bytes, pages.sum::<usize>());
    assert_eq!(table.directory.len(), 1 << table.depth);
    for (index, page) in table.pages.iter().enumerate() {
        let (first, last) = table.prefixes(page);
        let named = &table.directory[first..=last];
        assert!(named.iter().all(|number| *number as usize == index));
        let interval = page.first_hash..=page.last_hash();
        assert!(
            page.entries()
                .all(|entry| interval.contains(&hash(entry.key)))
        );
    }
    let deepest = table.pages.iter().map(|page| page.depth).max();
    assert_eq!(deepest, Some(table.depth));
    let expiring = table
        .iter()
        .filter(|entry| entry.deadline_unix_ms.is_some());
    assert_eq!(table.expiring_len(), expiring.count());
}

fn bytes(random: &mut Prng, length_max: u64) -> Vec<u8> {
    let length = match random.below(20) {
        0 => random.below(length_max * 40),
        1..5 => 0,
        _ => random.below(length_max),
    };
    let mut bytes: Vec<u8> = (0..length).map(|_| 0).collect();
    random.fill(&mut bytes);
    bytes
}

/// Applies random changes to the table and to a map, with few or many keys, so that it grows and
/// shrinks.
#[test]
fn behaves_like_a_map() {
    for (seed, keys) in (0..12).zip([20, 300, 3_000].into_iter().cycle()) {
        let mut random = Prng::seeded(seed);
        let (mut table, mut twin) = (Table::new(), Twin::new());
        for step in 0..12_000 {
            // Mostly additions in half of the phases, mostly removals in the others.
            let removes = if step / 3_000 % 2 == 0 { 2 } else { 7 };
            let key = key(random.below(keys));
            let action = random.below(10);
            if action < removes {
                assert_eq!(table.remove(&key), twin.remove(&key).is_some());
            } else {
                let value = bytes(&mut random, 40);
                let deadline_unix_ms = (action == 9).then(|| random.below(1_000));
                let entry = Entry {
                    key: &key,
                    value: &value,
                    deadline_unix_ms,
                };
                let added = table.insert(&entry).unwrap();
                let before = twin.insert(key.clone(), (value, deadline_unix_ms));
                assert_eq!(added, before.is_none());
            }
            let found = table.get(&key);
            let expected = twin.get(&key);
            assert_eq!(found.map(|one| one.value), expected.map(|one| &one.0[..]));
            assert_eq!(table.contains(&key), expected.is_some());
        }
        assert_eq!(contents(&table), twin);
        check(&table);
    }
}

#[test]
fn entries_of_every_size_are_kept() {
    let mut table = Table::new();
    let lengths = [0, 1, 255, 256, 499, 500, 501, 65_535, 65_536, 1 << 20];
    for (number, length) in (0_u8..).zip(lengths) {
        let text = vec![number; length];
        put(&mut table, &text, b"");
        put(&mut table, &key(number.into()), &text);
    }
    for (number, length) in (0_u8..).zip(lengths) {
        let text = vec![number; length];
        assert!(table.contains(&text), "{length}");
        assert_eq!(table.get(&key(number.into())).unwrap().value, text);
    }
    let all: usize = lengths.iter().sum();
    assert!(table.memory_bytes() > 2 * all);
    for number in 0..10 {
        put(&mut table, &key(number), b"short");
    }
    assert!(table.memory_bytes() < all + all / 4);
    check(&table);
}

#[test]
fn what_is_emptied_gives_its_memory_back() {
    let mut table = numbered(100_000);
    let full = table.memory_bytes();
    assert!(full < 100_000 * 30, "{}", full / 100_000);
    for number in 0..100_000 {
        assert!(table.remove(&key(number)));
    }
    check(&table);
    assert!(table.is_empty());
    assert_eq!(table.depth, 0);
    assert!(table.memory_bytes() < 4_096, "{}", table.memory_bytes());
}

#[test]
fn a_copy_shares_pages_and_goes_its_own_way() {
    let mut table = numbered(5_000);
    let before = contents(&table);
    let copy = table.clone();
    for number in 0..5_000 {
        if number % 3 == 0 {
            table.remove(&key(number));
        } else {
            put(&mut table, &key(number), b"changed");
        }
    }
    assert_eq!(contents(&copy), before);
    check(&copy);
    check(&table);
}

/// A scan visits an entry that stays exactly once, whatever is added and removed between the calls.
#[test]
fn a_walk_shows_what_stays() {
    for (count, slice) in [(50, 10), (3_000, 10), (3_000, 1), (3_000, 1_000)] {
        let mut random = Prng::seeded(count);
        let mut table = numbered(count);
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        let mut calls = 0;
        loop {
            cursor = table.scan(cursor, slice, |entry| {
                let staying = entry.key.starts_with(b"member:");
                assert!(seen.insert(entry.key.to_vec()) || !staying, "shown twice");
            });
            calls += 1;
            if cursor == 0 {
                break;
            }
            for _ in 0..50 {
                let other = format!("other:{}", random.below(20_000));
                if calls < 30 {
                    put(&mut table, other.as_bytes(), b"");
                } else {
                    table.remove(other.as_bytes());
                }
            }
        }
        assert!((0..count).all(|number| seen.contains(&key(number))));
        assert!(calls <= 8 * count / slice as u64 + 8, "{calls}");
    }
}

#[test]
fn every_entry_is_drawn_as_often() {
    let table = numbered(300);
    let mut random = Prng::seeded(3);
    let mut drawn = BTreeMap::new();
    for _ in 0..300 * 200 {
        let entry = table.random(|| random.next_u64()).unwrap();
        *drawn.entry(entry.key.to_vec()).or_insert(0_u32) += 1;
    }
    assert_eq!(drawn.len(), 300);
    // 200 each; six standard deviations are 85.
    assert!(drawn.values().all(|count| (115..285).contains(count)));
    assert!(Table::new().random(|| 0).is_none());
}

#[test]
fn entries_go_in_the_order_of_their_deadlines() {
    let mut random = Prng::seeded(8);
    let mut table = Table::new();
    let mut twin = BTreeMap::new();
    for _ in 0..3_000 {
        let name = key(random.below(500));
        let deadline_unix_ms = (random.below(4) > 0).then(|| random.below(10_000));
        let entry = Entry {
            key: &name,
            value: b"1",
            deadline_unix_ms,
        };
        table.insert(&entry).unwrap();
        twin.insert(name, deadline_unix_ms);
    }
    check(&table);
    let mut now = 0;
    while let Some(first) = twin.values().flatten().min().copied() {
        assert_eq!(table.first_deadline_unix_ms(), Some(first));
        now = first + 100;
        let mut gone = BTreeSet::new();
        while table.expire(now, 7, |entry| assert!(gone.insert(entry.key.to_vec()))) == 7 {}
        let due = twin.extract_if(.., |_, deadline| deadline.is_some_and(|at| at <= now));
        assert_eq!(gone, due.map(|(name, _)| name).collect());
        check(&table);
    }
    assert!(now > 9_000);
    assert_eq!(table.len(), twin.len());
    assert_eq!(table.first_deadline_unix_ms(), None);
}

#[test]
fn marks_that_mean_nothing_are_few() {
    let mut table = Table::new();
    for number in 0..100_000 {
        let entry = Entry {
            key: b"field",
            value: b"",
            deadline_unix_ms: Some(1_000 + number),
        };
        table.insert(&entry).unwrap();
    }
    assert!(table.memory_bytes() < 8_192, "{}", table.memory_bytes());
}
