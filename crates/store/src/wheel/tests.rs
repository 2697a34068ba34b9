//! The wheel against an ordered map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const DAY_MS: u64 = 24 * 3600 * 1000;
const YEAR_MS: u64 = 365 * DAY_MS;
/// Some day in 2024.
const NOW: u64 = 1_712_345_678_901;

/// Does what a store would do: keeps each key's deadline, and returns it when visited early.
#[derive(Default)]
struct Keys {
    deadlines: BTreeMap<u64, u64>,
    fired: Vec<(u64, u64)>,
    early: Vec<u64>,
}

impl Keys {
    fn visit(&mut self, now_unix_ms: u64, position: u64) -> Option<u64> {
        let deadline = *self.deadlines.get(&position)?;
        if deadline > now_unix_ms {
            self.early.push(position);
            return Some(deadline);
        }
        self.deadlines.remove(&position);
        self.fired.push((deadline, position));
        None
    }
}

fn arm(wheel: &mut Wheel, keys: &mut Keys, position: u64, deadline: u64) {
    keys.deadlines.insert(position, deadline);
    wheel.arm(position | 0xabc << POSITION_BITS, deadline);
}

fn advance(wheel: &mut Wheel, keys: &mut Keys, now: u64) {
    assert!(!wheel.advance(now, usize::MAX, &mut |position| keys.visit(now, position)));
}

#[test]
fn fires_at_its_millisecond_and_not_before() {
    for ahead in [
        1,
        2,
        255,
        256,
        257,
        65_536,
        1_000_000,
        16_777_216,
        40 * DAY_MS,
    ] {
        let mut wheel = Wheel::new(NOW);
        let mut keys = Keys::default();
        arm(&mut wheel, &mut keys, 7, NOW + ahead);
        advance(&mut wheel, &mut keys, NOW + ahead - 1);
        assert_eq!(keys.fired, []);
        advance(&mut wheel, &mut keys, NOW + ahead);
        assert_eq!(keys.fired, [(NOW + ahead, 7)]);
        assert_eq!(wheel.len(), 0);
    }
}

#[test]
fn far_deadlines_are_met_to_the_millisecond_too() {
    for ahead in [
        50 * DAY_MS,
        YEAR_MS,
        30 * YEAR_MS,
        1000 * YEAR_MS,
        u64::MAX - NOW,
    ] {
        let mut wheel = Wheel::new(NOW);
        let mut keys = Keys::default();
        arm(&mut wheel, &mut keys, 7, NOW + ahead);
        advance(&mut wheel, &mut keys, NOW + ahead - 1);
        assert_eq!(keys.fired, [], "{ahead}");
        assert!(keys.early.len() <= 8, "a visit per level at most");
        advance(&mut wheel, &mut keys, NOW + ahead);
        assert_eq!(keys.fired.len(), 1, "{ahead}");
    }
}

#[test]
fn what_has_passed_is_due_at_once() {
    let mut wheel = Wheel::new(NOW);
    let mut keys = Keys::default();
    arm(&mut wheel, &mut keys, 1, NOW);
    arm(&mut wheel, &mut keys, 2, 0);
    assert_eq!(wheel.next_unix_ms(), Some(NOW));
    advance(&mut wheel, &mut keys, NOW);
    assert_eq!(keys.fired.len(), 2);
    assert_eq!(wheel.next_unix_ms(), None);
}

#[test]
fn a_clock_that_goes_back_stops_it() {
    let mut wheel = Wheel::new(NOW);
    let mut keys = Keys::default();
    arm(&mut wheel, &mut keys, 1, NOW + 1);
    advance(&mut wheel, &mut keys, NOW - 1000);
    assert_eq!(keys.fired, []);
    advance(&mut wheel, &mut keys, NOW + 1);
    assert_eq!(keys.fired.len(), 1);
}

#[test]
fn a_busy_bucket_is_visited_in_the_next_millisecond() {
    let mut wheel = Wheel::new(NOW);
    wheel.arm(1, NOW + 5);
    let mut visits = 0;
    let mut busy = |_| {
        visits += 1;
        Some(0)
    };
    assert!(!wheel.advance(NOW + 9, usize::MAX, &mut busy));
    assert!(!wheel.advance(NOW + 9, usize::MAX, &mut busy));
    assert!(!wheel.advance(NOW + 10, usize::MAX, &mut busy));
    assert_eq!(visits, 2);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn work_is_bounded_and_nothing_is_lost() {
    let mut wheel = Wheel::new(NOW);
    let mut keys = Keys::default();
    for key in 0..10_000 {
        arm(&mut wheel, &mut keys, key, NOW + 100_000 + key % 7);
    }
    let now = NOW + 200_000;
    let mut calls = 0;
    loop {
        let mut visited = 0;
        let more = wheel.advance(now, 64, &mut |position| {
            visited += 1;
            keys.visit(now, position)
        });
        assert!(visited <= 64);
        calls += 1;
        if !more {
            break;
        }
    }
    assert!(calls > 10_000 / 64);
    assert_eq!(keys.fired.len(), 10_000);
    assert!(keys.fired.is_sorted_by_key(|&(deadline, _)| deadline));
}

#[test]
fn a_million_entries_are_cleared_without_recursion() {
    let mut wheel = Wheel::new(NOW);
    let count = if cfg!(miri) { 1000 } else { 1_000_000 };
    for key in 0..count {
        wheel.arm(key, NOW + 1_000_000);
    }
    wheel.clear();
    assert_eq!((wheel.len(), wheel.next_unix_ms()), (0, None));
}

#[derive(Clone, Debug)]
enum Step {
    Arm { ahead: u64 },
    Rearm { which: usize, ahead: u64 },
    Advance { by: u64, work_max: usize },
}

fn span() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..600,
        0_u64..100_000,
        0_u64..2 * DAY_MS,
        0_u64..100 * DAY_MS,
        0_u64..50 * YEAR_MS,
        any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => span().prop_map(|ahead| Step::Arm { ahead }),
        1 => (any::<usize>(), span()).prop_map(|(which, ahead)| Step::Rearm { which, ahead }),
        3 => (span(), 1_usize..50).prop_map(|(by, work_max)| Step::Advance { by, work_max }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// After every advance exactly the keys have fired whose deadline has come, and early visits
    /// were made only for deadlines that differed from the time above the low 32 bits.
    #[test]
    fn fires_what_an_ordered_map_would(steps in prop::collection::vec(step(), 1..60)) {
        let mut now = NOW;
        let mut wheel = Wheel::new(now);
        let mut keys = Keys::default();
        let mut armed_far = std::collections::BTreeSet::new();
        let mut next_key = 0;
        for step in steps {
            match step {
                Step::Arm { ahead } => {
                    let deadline = now.saturating_add(ahead);
                    if (deadline ^ now) >> 32 != 0 {
                        armed_far.insert(next_key);
                    }
                    arm(&mut wheel, &mut keys, next_key, deadline);
                    next_key += 1;
                }
                // As a store does: armed again only if earlier, otherwise found at the visit.
                Step::Rearm { which, ahead } => {
                    let deadline = now.saturating_add(ahead);
                    let count = keys.deadlines.len().max(1);
                    let Some((&key, &before)) = keys.deadlines.iter().nth(which % count) else {
                        continue;
                    };
                    armed_far.insert(key);
                    keys.deadlines.insert(key, deadline);
                    if deadline < before {
                        wheel.arm(key, deadline);
                    }
                }
                Step::Advance { by, work_max } => {
                    now = now.saturating_add(by);
                    while wheel.advance(now, work_max, &mut |key| keys.visit(now, key)) {}
                    prop_assert!(keys.deadlines.values().all(|&deadline| deadline > now));
                    prop_assert!(keys.fired.iter().all(|&(deadline, _)| deadline <= now));
                }
            }
            prop_assert!(wheel.len() >= keys.deadlines.len());
            prop_assert!(keys.early.iter().all(|key| armed_far.contains(key)));
            let next = wheel.next_unix_ms();
            let earliest = keys.deadlines.values().min();
            prop_assert!(earliest.is_none_or(|&at| next.is_some_and(|next| next <= at.max(now))));
        }
    }
}
