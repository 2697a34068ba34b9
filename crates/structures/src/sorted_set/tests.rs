//! Sorted sets, compared with a map and a sorted vector.

use std::collections::BTreeMap;

use base::random::Prng;
use proptest::prelude::*;

use super::*;

const LIMITS: SortedSetLimits = SortedSetLimits {
    listpack_entries: 128,
    listpack_value_bytes: 64,
};

/// The naive sorted set.
#[derive(Default)]
struct Twin {
    scores: BTreeMap<Vec<u8>, f64>,
}

impl Twin {
    fn sorted(&self) -> Vec<(f64, Vec<u8>)> {
        let mut all: Vec<_> = self
            .scores
            .iter()
            .map(|(key, score)| (*score, key.clone()))
            .collect();
        all.sort_by(|one, other| one.partial_cmp(other).unwrap());
        all
    }
}

fn contents(set: &SortedSet) -> Vec<(f64, Vec<u8>)> {
    let pair = |one: Scored<'_>| (one.score, one.member.as_bytes().to_vec());
    set.iter().map(pair).collect()
}

fn check(set: &SortedSet, twin: &Twin) {
    if let Repr::Large(large) = &set.form {
        large.check();
    }
    let sorted = twin.sorted();
    assert_eq!(contents(set), sorted);
    let backwards = set.iter().rev().map(|one| one.member.as_bytes().to_vec());
    assert!(backwards.eq(sorted.iter().rev().map(|one| one.1.clone())));
    for (rank, (score, member)) in sorted.iter().enumerate() {
        assert_eq!(set.rank(member), Some((rank, *score)));
        assert_eq!(set.score(member), Some(*score));
    }
    for at in [0, sorted.len() / 3, sorted.len().saturating_sub(1)] {
        let Some((score, _)) = sorted.get(at) else {
            continue;
        };
        let below = sorted.iter().filter(|one| one.0 < *score).count();
        let up_to = sorted.iter().filter(|one| one.0 <= *score).count();
        assert_eq!(set.rank_of_score(*score, false), below);
        assert_eq!(set.rank_of_score(*score, true), up_to);
        let range = set
            .range(at..at + 10)
            .map(|one| one.member.as_bytes().to_vec());
        assert!(range.eq(sorted.iter().skip(at).take(10).map(|one| one.1.clone())));
        let range = set.range(at..at + 10).rev().map(|one| one.score);
        let end = sorted.len().min(at + 10);
        assert!(range.eq(sorted[at..end].iter().rev().map(|one| one.0)));
    }
}

/// Makes random changes among `range` members and `scores` scores. The set grows and shrinks in
/// turns.
fn run(seed: u64, range: u64, scores: u64, steps: usize, checks: usize) {
    let mut random = Prng::seeded(seed);
    let (mut set, mut twin) = (SortedSet::new(), Twin::default());
    for step in 0..steps {
        let is_growing = (step * 4 / steps).is_multiple_of(2);
        let member = format!("member:{}", random.below(range)).into_bytes();
        let score = random.below(scores) as f64 / 4.0 - 10.0;
        if random.below(10) < if is_growing { 8 } else { 2 } {
            let old = set.insert(&member, score, &LIMITS).unwrap();
            assert_eq!(old, twin.scores.insert(member, score));
        } else if random.below(40) == 0 && !set.is_empty() {
            let start = random.index(set.len());
            let mut removed = Vec::new();
            set.remove_range(start..start + 7, |one| {
                removed.push((one.score, one.member.as_bytes().to_vec()));
            });
            let expected: Vec<_> = twin.sorted().into_iter().skip(start).take(7).collect();
            assert_eq!(removed, expected);
            removed
                .iter()
                .for_each(|one| assert!(twin.scores.remove(&one.1).is_some()));
        } else {
            assert_eq!(set.remove(&member), twin.scores.remove(&member));
        }
        assert_eq!(set.len(), twin.scores.len());
        if step % (steps / checks) == 0 {
            check(&set, &twin);
        }
    }
    check(&set, &twin);
}

#[test]
fn behaves_like_a_sorted_vector() {
    run(1, 100, 50, 2_000, 40);
    run(2, 3_000, 10_000, 10_000, 20);
    run(3, 30_000, 1_000_000, 30_000, 5);
}

#[test]
fn members_of_one_score_are_in_the_order_of_their_bytes() {
    run(4, 2_000, 1, 8_000, 20);
    run(5, 2_000, 3, 8_000, 20);
}

#[test]
fn ranges_of_members_are_found_by_their_bytes() {
    for count in [100, 2_000_u32] {
        let mut set = SortedSet::new();
        for number in 0..count {
            let member = format!("{number:05}");
            set.insert(member.as_bytes(), 0.0, &LIMITS).unwrap();
        }
        assert_eq!(set.rank_of_member(b"00050", false), 50);
        assert_eq!(set.rank_of_member(b"00050", true), 51);
        assert_eq!(set.rank_of_member(b"", false), 0);
        assert_eq!(set.rank_of_member(b"zz", false), count as usize);
    }
}

#[test]
fn everything_can_be_removed_from_either_end() {
    for is_from_front in [true, false] {
        let (mut set, mut twin) = (SortedSet::new(), Twin::default());
        for number in 0..20_000_u32 {
            let member = number.to_string().into_bytes();
            set.insert(&member, f64::from(number), &LIMITS).unwrap();
            twin.scores.insert(member, f64::from(number));
        }
        check(&set, &twin);
        while !set.is_empty() {
            let start = if is_from_front {
                0
            } else {
                set.len().saturating_sub(333)
            };
            set.remove_range(start..start + 333, |one| {
                twin.scores.remove(one.member.as_bytes());
            });
            check_form(&set);
        }
        assert!(twin.scores.is_empty());
    }
}

fn check_form(set: &SortedSet) {
    if let Repr::Large(large) = &set.form {
        large.check();
    }
}

#[test]
fn memory_goes_with_the_members() {
    let mut set = SortedSet::new();
    let name = |number: u32| format!("a member with a number {number:08}").into_bytes();
    for number in 0..50_000 {
        set.insert(&name(number), f64::from(number ^ 0x5555), &LIMITS)
            .unwrap();
    }
    let full = set.memory_bytes();
    for number in 0..50_000 {
        if number % 50 != 0 {
            set.remove(&name(number)).unwrap();
        }
    }
    assert!(
        set.memory_bytes() * 8 < full,
        "{} of {full}",
        set.memory_bytes()
    );
    check_form(&set);
}

#[test]
fn the_form_follows_what_is_in_it() {
    let mut set = SortedSet::new();
    for number in 0..128_u8 {
        set.insert(&[number], 1.5, &LIMITS).unwrap();
    }
    assert_eq!(set.encoding(), Encoding::Listpack);
    set.insert(&[0], 2.0, &LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Listpack);
    set.insert(b"one more", 2.0, &LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Skiplist);
    let mut set = SortedSet::new();
    set.insert(&[b'x'; 64], 1.0, &LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Listpack);
    set.insert(&[b'y'; 65], 1.0, &LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Skiplist);
    assert_eq!(
        SortedSet::for_members(129, 1, &LIMITS).encoding(),
        Encoding::Skiplist
    );
}

#[test]
fn a_large_set_of_few_members_can_be_made_small() {
    let mut set = SortedSet::for_members(usize::MAX, 0, &LIMITS);
    for one in 0..128_u8 {
        set.insert(&[one], f64::from(one), &LIMITS).unwrap();
    }
    let large = set.clone();
    set.compact(&LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Listpack);
    assert_eq!(set, large);
    let mut set = large;
    set.insert(&[b'x'; 65], 1.0, &LIMITS).unwrap();
    set.compact(&LIMITS).unwrap();
    assert_eq!(set.encoding(), Encoding::Skiplist);
}

#[test]
fn scores_of_every_kind_are_kept() {
    let scores = [
        f64::NEG_INFINITY,
        -1e300,
        -1.5,
        -0.0,
        0.0,
        f64::MIN_POSITIVE,
        1.0,
        9_007_199_254_740_993.0,
        1e300,
        f64::INFINITY,
    ];
    let mut set = SortedSet::new();
    for (number, score) in (b'a'..).zip(scores) {
        set.insert(&[number], score, &LIMITS).unwrap();
    }
    assert!(set.iter().map(|one| one.score).eq(scores));
    let mut set = SortedSet::for_members(200, 1, &LIMITS);
    set.insert(b"zero", -0.0, &LIMITS).unwrap();
    assert!(set.score(b"zero").unwrap().is_sign_negative());
}

#[test]
fn a_walk_shows_every_member() {
    for count in [10, 5_000_u32] {
        let mut set = SortedSet::new();
        for number in 0..count {
            set.insert(&number.to_le_bytes(), f64::from(number), &LIMITS)
                .unwrap();
        }
        let (mut seen, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = set.scan(cursor, 10, |one| seen.push(one.score));
            if cursor == 0 {
                break;
            }
        }
        seen.sort_by(f64::total_cmp);
        assert!(seen.into_iter().eq((0..count).map(f64::from)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_sequence_of_changes_gives_what_the_twin_has(
        entries in 0_usize..20,
        steps in proptest::collection::vec((0_u8..60, -4_i32..4, any::<bool>()), 0..300),
    ) {
        let limits = SortedSetLimits { listpack_entries: entries, listpack_value_bytes: 3 };
        let (mut set, mut twin) = (SortedSet::new(), Twin::default());
        for (member, score, is_added) in steps {
            let member = vec![b'0' + member % 10; usize::from(member / 10)];
            if is_added {
                let score = f64::from(score) / 2.0;
                let old = set.insert(&member, score, &limits).unwrap();
                prop_assert_eq!(old, twin.scores.insert(member, score));
            } else {
                prop_assert_eq!(set.remove(&member), twin.scores.remove(&member));
            }
        }
        check(&set, &twin);
        prop_assert_eq!(&set.clone(), &set);
    }
}

/// A copy and its original change independently, and both count their memory correctly.
#[test]
fn copies_change_apart() {
    let mut random = Prng::seeded(11);
    let mut sets = vec![(SortedSet::new(), Twin::default())];
    for round in 0..4_000_u64 {
        let at = random.index(sets.len());
        let (set, twin) = &mut sets[at];
        let member = format!("member {}", random.below(1_500)).into_bytes();
        if random.below(3) == 0 {
            assert_eq!(set.remove(&member), twin.scores.remove(&member));
        } else {
            let score = f64::from(u8::try_from(random.below(200)).unwrap());
            set.insert(&member, score, &LIMITS).unwrap();
            twin.scores.insert(member, score);
        }
        if round % 500 == 499 {
            let scores = sets[at].1.scores.clone();
            let copy = sets[at].0.clone();
            assert!(copy.memory_bytes() <= sets[at].0.memory_bytes());
            sets.push((copy, Twin { scores }));
        }
    }
    for (set, twin) in &mut sets {
        check(set, twin);
        for member in twin.scores.keys() {
            assert!(set.remove(member).is_some());
        }
        assert!(set.is_empty());
    }
}
