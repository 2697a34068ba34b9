//! The memory limit under every policy.

use structures::{BlockLimit, Element, End, List};

use super::{Force, Notes, Told};
use crate::handle::Handle;
use crate::policy::Policy;
use crate::value::{Deadline, StoreError};

const LIMIT_BYTES: u64 = 4 << 20;

/// Bytes that a thread may have counted without a report, and that it evicts ahead.
const SLACK_BYTES: u64 = 128 << 10;

fn set(handle: &mut Handle, key: &str, value: &[u8], deadline: Deadline) -> Result<(), StoreError> {
    let key = handle.key(0, key.as_bytes());
    handle.make_room(key.bytes().len() + value.len())?;
    handle.upsert(&key, value, deadline, |_| ())
}

/// Adds `count` records of a kilobyte.
fn fill(handle: &mut Handle, count: usize) {
    for number in 0..count {
        let key = format!("key:{number}");
        set(handle, &key, &[b'v'; 1_000], Deadline::Never).unwrap();
    }
}

fn exists(handle: &mut Handle, key: &str) -> bool {
    let key = handle.key(0, key.as_bytes());
    handle.read(&key, |record| record.is_some())
}

fn used_bytes(handle: &mut Handle, now: u64) -> u64 {
    // A tick reports what was counted.
    handle.tick(now);
    handle.statistics().used_bytes
}

const ALL: [Policy; 7] = [
    Policy::AllKeysLru,
    Policy::AllKeysLfu,
    Policy::AllKeysRandom,
    Policy::VolatileLru,
    Policy::VolatileLfu,
    Policy::VolatileRandom,
    Policy::VolatileTtl,
];

/// The more tenacious a call is, the less it leaves over the limit for the next ones.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_tenacious_call_evicts_more_of_what_a_lowered_limit_leaves() {
    let evicted_by_one_call = |tenacity: u8| {
        let store = Force::TINY.store(16);
        let mut handle = store.handle();
        fill(&mut handle, 4_000);
        store.set_tenacity(tenacity);
        let used = used_bytes(&mut handle, 1_000);
        store.set_memory_limit(used / 2, Policy::AllKeysLru, 5);
        set(&mut handle, "one", b"more", Deadline::Never).unwrap();
        4_001 - handle.len(0)
    };
    let counts = [0, 5, 10, 20, 100].map(evicted_by_one_call);
    assert_eq!(counts[..3], [1, 32, 64]);
    assert!(counts[3] > 200, "{counts:?}");
    assert!(counts[4] > 1_500, "{counts:?}");
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn the_limit_holds_under_every_policy() {
    for policy in ALL {
        let store = Force::TINY.store(16);
        store.set_memory_limit(LIMIT_BYTES, policy, 5);
        let mut handle = store.handle();
        let mut random = base::random::Prng::seeded(11);
        let mut evicted_at_most = 0;
        for round in 0..15_000_u64 {
            handle.begin(1_000 + round);
            let len = random.index(1_000);
            let key = format!("key:{}", random.below(20_000));
            let deadline = Deadline::At(1 << 40 | random.below(1 << 30));
            set(&mut handle, &key, &vec![b'v'; len], deadline).unwrap();
            if round % 500 == 0 {
                let used = used_bytes(&mut handle, 200 * round);
                assert!(used <= LIMIT_BYTES + SLACK_BYTES, "{policy}: {used}");
            }
            evicted_at_most += 1;
        }
        let statistics = store.statistics();
        assert!(statistics.evicted > 1_000, "{policy}");
        assert!(statistics.evicted < evicted_at_most);
        let used = used_bytes(&mut handle, 1 << 39);
        assert!(used > LIMIT_BYTES / 2, "{policy} evicted too much: {used}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn small_collections_go_with_all_that_they_were_counted_with() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    handle.begin(1_000);
    store.set_memory_limit(LIMIT_BYTES, Policy::AllKeysRandom, 5);
    let limit = BlockLimit::default();
    for number in 0..60_000 {
        let key = format!("list:{number}");
        let key = handle.key(0, key.as_bytes());
        handle.make_room(64).unwrap();
        let push = |list: &mut List| {
            for element in 0..number % 20 + 1 {
                list.push(End::Back, Element::Integer(element), limit);
            }
        };
        handle
            .modify(&key, |entry| entry.change_or_create(push))
            .unwrap();
    }
    let used = used_bytes(&mut handle, 1_001);
    assert!(used <= LIMIT_BYTES + SLACK_BYTES, "{used}");
    let evicted = store.statistics().evicted;
    // Record and buffer take 80 to 96 bytes.
    assert!((5_000..30_000).contains(&evicted), "{evicted}");
    for number in 0..60_000 {
        let key = format!("list:{number}");
        handle.delete(&handle.key(0, key.as_bytes()), |_| ());
    }
    handle.begin(20_000);
    let left = used_bytes(&mut handle, 20_001);
    assert!(left < LIMIT_BYTES / 4, "{left}");
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn long_values_push_out_as_many_short_ones_as_they_need() {
    const LONG_BYTES: usize = 256 << 10;
    for policy in [Policy::AllKeysLru, Policy::AllKeysRandom] {
        let store = Force::TINY.store(1);
        store.set_memory_limit(LIMIT_BYTES, policy, 5);
        let mut handle = store.handle();
        handle.begin(1_000);
        for number in 0..40_000 {
            let key = format!("short:{number}");
            set(&mut handle, &key, &[b'v'; 40], Deadline::Never).unwrap();
        }
        for number in 0..12 {
            let key = format!("long:{number}");
            set(&mut handle, &key, &[b'v'; LONG_BYTES], Deadline::Never).unwrap();
            let used = used_bytes(&mut handle, 2_000);
            assert!(used <= LIMIT_BYTES + SLACK_BYTES, "{policy}: {used}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn without_eviction_writes_are_refused() {
    let store = Force::TINY.store(1);
    store.set_memory_limit(1 << 20, Policy::NoEviction, 5);
    let mut handle = store.handle();
    let refused = (0..100_000).find(|number| {
        handle.tick(*number);
        set(&mut handle, &format!("key:{number}"), b"v", Deadline::Never).is_err()
    });
    assert!(refused.is_some());
    assert_eq!(store.statistics().evicted, 0);
    store.set_memory_limit(0, Policy::NoEviction, 5);
    set(&mut handle, "again", b"v", Deadline::Never).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn volatile_policies_spare_what_has_no_deadline() {
    for policy in ALL.into_iter().filter(|policy| policy.is_volatile()) {
        let store = Force::TINY.store(1);
        store.set_memory_limit(1 << 20, policy, 5);
        let mut handle = store.handle();
        let notes = Notes::default();
        handle.set_sink(Some(Box::new(notes.clone())));
        handle.begin(1_000);
        for number in 0..2_000 {
            set(
                &mut handle,
                &format!("stays:{number}"),
                &[b'v'; 100],
                Deadline::Never,
            )
            .unwrap();
        }
        let mut refused = 0;
        for number in 0..20_000 {
            let key = format!("goes:{number}");
            refused +=
                u32::from(set(&mut handle, &key, &[b'v'; 100], Deadline::At(1 << 40)).is_err());
        }
        assert_eq!(refused, 0, "{policy}");
        assert!((0..2_000).all(|number| exists(&mut handle, &format!("stays:{number}"))));
        let told = notes.take();
        assert!(told.len() > 5_000);
        assert!(told.iter().all(|told| match told {
            Told::Removed(0, key, "evicted") => key.starts_with(b"goes:"),
            _ => false,
        }));
        // If no eligible record is left, writes are refused.
        handle.flush(None);
        let refused = (0..20_000).any(|number| {
            set(
                &mut handle,
                &format!("stays:{number}"),
                &[b'v'; 100],
                Deadline::Never,
            )
            .is_err()
        });
        assert!(refused, "{policy}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn what_is_used_stays() {
    for (policy, share) in [(Policy::AllKeysLru, 0.99), (Policy::AllKeysLfu, 0.9)] {
        let store = Force::TINY.store(1);
        store.set_memory_limit(2 << 20, policy, 10);
        let mut handle = store.handle();
        let hot: Vec<_> = (0..500).map(|number| format!("hot:{number}")).collect();
        for key in &hot {
            set(&mut handle, key, &[b'v'; 100], Deadline::Never).unwrap();
        }
        for number in 0..50_000_u64 {
            handle.begin(1_000 + number);
            set(
                &mut handle,
                &format!("cold:{number}"),
                &[b'v'; 100],
                Deadline::Never,
            )
            .unwrap();
            let at = usize::try_from(number).unwrap();
            exists(&mut handle, &hot[at % hot.len()]);
            exists(&mut handle, &hot[(at * 7) % hot.len()]);
        }
        let left = hot.iter().filter(|key| exists(&mut handle, key)).count();
        let wanted = share * f64::from(u32::try_from(hot.len()).unwrap());
        assert!(
            f64::from(u32::try_from(left).unwrap()) >= wanted,
            "{policy}: {left}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn the_soonest_to_expire_go_first() {
    let store = Force::TINY.store(1);
    store.set_memory_limit(2 << 20, Policy::VolatileTtl, 10);
    let mut handle = store.handle();
    handle.begin(1_000);
    for number in 0..30_000_u64 {
        // In no order: 7919 is prime.
        let deadline = Deadline::At((1 << 40) + number * 7919 % 30_000);
        set(
            &mut handle,
            &format!("key:{number}"),
            &[b'v'; 100],
            deadline,
        )
        .unwrap();
    }
    let (mut sum, mut count) = (0, 0);
    for number in 0..30_000_u64 {
        if exists(&mut handle, &format!("key:{number}")) {
            sum += number * 7919 % 30_000;
            count += 1;
        }
    }
    let mean = sum / count;
    assert!(mean > 20_000, "those that stayed expire late: {mean}");
}

#[test]
fn use_is_noted_for_who_asks() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    store.set_memory_limit(0, Policy::AllKeysLru, 5);
    handle.begin(10_000);
    set(&mut handle, "key", b"value", Deadline::Never).unwrap();
    let key = handle.key(0, b"key");
    handle.begin(15_000);
    let idle = handle.modify(&key, |entry| {
        entry.record().map(|record| record.idle_seconds())
    });
    assert_eq!(idle, Some(5));
    handle.modify(&key, |entry| entry.touch());
    let idle = handle.modify(&key, |entry| {
        entry.record().map(|record| record.idle_seconds())
    });
    assert_eq!(idle, Some(0));
    store.set_memory_limit(0, Policy::AllKeysLfu, 5);
    set(&mut handle, "key", b"value", Deadline::Never).unwrap();
    let frequency = handle.modify(&key, |entry| {
        entry.record().map(|record| record.frequency())
    });
    assert!(frequency.is_some_and(|frequency| frequency >= 5));
}

#[test]
fn looking_without_touching_leaves_no_trace() {
    let store = Force::TINY.store(1);
    let mut handle = store.handle();
    store.set_memory_limit(0, Policy::AllKeysLru, 5);
    handle.begin(10_000);
    set(&mut handle, "key", b"value", Deadline::Never).unwrap();
    let key = handle.key(0, b"key");
    handle.begin(15_000);
    for _ in 0..2 {
        let idle = handle.peek(&key, |record| record.map(|record| record.idle_seconds()));
        assert_eq!(idle, Some(5));
    }
    handle.note_use(false);
    handle.read(&key, |_| ());
    let idle = handle.peek(&key, |record| record.map(|record| record.idle_seconds()));
    assert_eq!(idle, Some(5));
    handle.note_use(true);
    handle.read(&key, |_| ());
    let idle = handle.peek(&key, |record| record.map(|record| record.idle_seconds()));
    assert_eq!(idle, Some(0));
}

const VOLATILE: [Policy; 4] = [
    Policy::VolatileLru,
    Policy::VolatileLfu,
    Policy::VolatileRandom,
    Policy::VolatileTtl,
];

/// Evicts until no eligible record is left. Returns how many buckets were looked into.
fn evict_all(handle: &mut Handle) -> u64 {
    let before = handle.looked();
    while handle.make_room(1 << 30).is_ok() {}
    handle.looked() - before
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn few_that_may_go_are_found_among_many_that_may_not() {
    const FEW: u64 = 100;
    for policy in VOLATILE {
        let store = Force::TINY.store(16);
        store.set_memory_limit(0, policy, 5);
        let mut handle = store.handle();
        handle.begin(1_000);
        for number in 0..100_000 {
            let key = format!("stays:{number}");
            set(&mut handle, &key, b"v", Deadline::Never).unwrap();
        }
        for number in 0..FEW {
            let key = format!("goes:{number}");
            set(&mut handle, &key, b"v", Deadline::At(1 << 40)).unwrap();
        }
        store.set_memory_limit(1 << 20, policy, 5);
        let looked = evict_all(&mut handle);
        assert_eq!(handle.expiring_len(0), 0, "{policy}");
        assert_eq!(store.statistics().evicted, FEW);
        assert!(looked < FEW * 100, "{policy} looked into {looked} buckets");
        assert!(handle.make_room(1).is_err());
        assert!(handle.looked() - looked < 100, "nor are they looked for");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn whatever_has_a_deadline_can_be_found() {
    for policy in VOLATILE {
        let store = Force::TINY.store(2);
        store.set_memory_limit(0, policy, 5);
        let mut handle = store.handle();
        let mut random = base::random::Prng::seeded(5);
        for round in 0..6_u64 {
            handle.begin(1_000 + round);
            // The table grows and, after deletions, shrinks.
            for _ in 0..8_000 {
                let name = format!("key:{}", random.below(10_000));
                let key = handle.key(0, name.as_bytes());
                let deadline = Some(1 << 40).filter(|_| random.below(3) == 0);
                match random.below(if round % 2 == 0 { 4 } else { 20 }) {
                    0 => set(&mut handle, &name, &[b'v'; 40], deadline.into()).unwrap(),
                    1 => handle
                        .modify(&key, |entry| entry.set_deadline(deadline))
                        .unwrap(),
                    2 => set(&mut handle, &name, b"v", Deadline::Keep).unwrap(),
                    _ if round % 2 == 0 => {}
                    _ => {
                        handle.delete(&key, |_| ());
                    }
                }
            }
            while handle.tick(1_000 + round) {}
            let left = handle.len(0) - handle.expiring_len(0);
            store.set_memory_limit(1, policy, 5);
            evict_all(&mut handle);
            assert_eq!(handle.expiring_len(0), 0, "{policy}");
            assert_eq!(handle.len(0), left, "{policy}: the others stay");
            store.set_memory_limit(0, policy, 5);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn after_a_flush_nothing_is_refused() {
    let store = Force::TINY.store(1);
    store.set_memory_limit(LIMIT_BYTES, Policy::AllKeysLru, 5);
    let mut handle = store.handle();
    for number in 0..50_000 {
        set(
            &mut handle,
            &format!("key:{number}"),
            &[b'v'; 60],
            Deadline::Never,
        )
        .unwrap();
    }
    handle.flush(None);
    set(&mut handle, "new", b"v", Deadline::Never).unwrap();
    assert!(exists(&mut handle, "new"));
}

#[test]
fn what_is_held_elsewhere_makes_records_go_without_a_write() {
    let store = Force::TINY.store(1);
    store.set_memory_limit(LIMIT_BYTES, Policy::AllKeysLru, 5);
    let mut handle = store.handle();
    handle.begin(1);
    fill(&mut handle, 2_000);
    let elsewhere = LIMIT_BYTES / 2;
    store.set_other_bytes(elsewhere);
    store.hold_removals(true);
    while handle.tick(2) {}
    assert_eq!(handle.len(0), 2_000, "nothing goes during a pause");
    store.hold_removals(false);
    while handle.tick(3) {}
    assert!(used_bytes(&mut handle, 4) <= LIMIT_BYTES - elsewhere + SLACK_BYTES);
    assert!(handle.len(0) > 1_000);
}
