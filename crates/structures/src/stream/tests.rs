//! Streams, compared with a map of entries.

use std::collections::BTreeMap;

use base::random::Prng;
use proptest::prelude::*;

use super::*;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The naive stream.
#[derive(Default)]
struct Twin {
    entries: BTreeMap<EntryId, Pairs>,
    counters: Counters,
}

fn pairs_of(entry: Entry<'_>) -> Pairs {
    let text =
        |(name, value): (crate::Element<'_>, crate::Element<'_>)| (name.to_vec(), value.to_vec());
    entry.fields().map(text).collect()
}

fn append(
    stream: &mut Stream,
    id: EntryId,
    pairs: &Pairs,
    limits: StreamLimits,
) -> Result<(), Refused> {
    let fields = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
    stream.log_mut().append(id, fields, limits)
}

fn check(stream: &Stream, twin: &Twin, random: &mut Prng) {
    let log = stream.log();
    assert_eq!(log.len(), twin.entries.len());
    assert_eq!(log.counters(), twin.counters);
    assert_eq!(log.first_id(), twin.entries.keys().next().copied());
    assert_eq!(log.newest_id(), twin.entries.keys().next_back().copied());
    let last = twin.counters.last_id.ms + 2;
    for _ in 0..8 {
        let from = EntryId::new(random.below(last), random.below(3));
        let to = EntryId::new(random.below(last), random.below(3));
        let expected: Vec<_> = if from > to {
            Vec::new()
        } else {
            twin.entries
                .range(from..=to)
                .map(|(id, pairs)| (*id, pairs.clone()))
                .collect()
        };
        let shown = |entry: Entry<'_>| (entry.id, pairs_of(entry));
        assert!(log.range(from, to).map(shown).eq(expected.iter().cloned()));
        assert!(
            log.range_backwards(from, to)
                .map(shown)
                .eq(expected.into_iter().rev())
        );
        assert_eq!(
            log.get(from).map(pairs_of),
            twin.entries.get(&from).cloned()
        );
    }
    let buffers: usize = log.memory_bytes();
    assert_eq!(buffers == 0, twin.entries.is_empty());
}

/// Returns the pairs of an entry, mostly with the same names.
fn some_pairs(random: &mut Prng) -> Pairs {
    let value = |random: &mut Prng| match random.below(4) {
        0 => random.below(100_000).to_string().into_bytes(),
        1 => vec![b'v'; random.index(200)],
        2 => (random.next_u64().cast_signed()).to_string().into_bytes(),
        _ => b"some value".to_vec(),
    };
    let names: &[&str] = match random.below(8) {
        0 => &["other"],
        1 => &["temperature", "7", "more"],
        2 => &[],
        _ => &["temperature", "7"],
    };
    names
        .iter()
        .map(|name| (name.as_bytes().to_vec(), value(random)))
        .collect()
}

fn run(seed: u64, steps: usize, limits: StreamLimits) {
    let mut random = Prng::seeded(seed);
    let (mut stream, mut twin) = (Stream::new(), Twin::default());
    let mut copies = Vec::new();
    for step in 0..steps {
        match random.below(20) {
            0..14 => {
                let last = twin.counters.last_id;
                let id = match random.below(3) {
                    0 => last.next().unwrap(),
                    _ => EntryId::new(last.ms + 1 + random.below(3), random.below(3)),
                };
                let pairs = some_pairs(&mut random);
                assert_eq!(append(&mut stream, id, &pairs, limits), Ok(()));
                assert_eq!(append(&mut stream, id, &pairs, limits), Err(Refused::Id));
                twin.entries.insert(id, pairs);
                twin.counters.last_id = id;
                twin.counters.entries_added += 1;
            }
            14..18 => {
                let wanted = EntryId::new(random.below(twin.counters.last_id.ms + 2), 0);
                let id = twin
                    .entries
                    .range(wanted..)
                    .next()
                    .map_or(wanted, |(id, _)| *id);
                assert_eq!(
                    stream.log_mut().remove(id),
                    twin.entries.remove(&id).is_some()
                );
                if stream.log().counters() != twin.counters {
                    twin.counters.max_deleted_id = twin.counters.max_deleted_id.max(id);
                }
            }
            18 if random.below(10) == 0 => {
                let len = random.index(twin.entries.len() + 2);
                trim_to_len(&mut stream, &mut twin, len, random.below(2) == 0);
            }
            19 if random.below(10) == 0 => {
                let least = EntryId::new(random.below(twin.counters.last_id.ms + 2), 1);
                trim_to_id(&mut stream, &mut twin, least, random.below(2) == 0);
            }
            _ => {}
        }
        if step % (steps / 20) == 0 {
            check(&stream, &twin, &mut random);
            let contents: Vec<_> = stream
                .log()
                .iter()
                .map(|entry| (entry.id, pairs_of(entry)))
                .collect();
            copies.push((stream.clone(), contents));
        }
    }
    check(&stream, &twin, &mut random);
    for (copy, contents) in copies {
        assert!(
            copy.log()
                .iter()
                .map(|entry| (entry.id, pairs_of(entry)))
                .eq(contents)
        );
    }
}

fn trim_to_len(stream: &mut Stream, twin: &mut Twin, len: usize, is_approximate: bool) {
    let before = twin.entries.len();
    let trim = Trim {
        to: TrimTo::Len(len as u64),
        is_approximate,
        count_max: None,
    };
    let gone = stream.log_mut().trim(&trim);
    if is_approximate {
        assert!(before - gone >= len.min(before));
    } else {
        assert_eq!(gone, before.saturating_sub(len));
    }
    (0..gone).for_each(|_| drop(twin.entries.pop_first()));
}

fn trim_to_id(stream: &mut Stream, twin: &mut Twin, least: EntryId, is_approximate: bool) {
    let trim = Trim {
        to: TrimTo::Id(least),
        is_approximate,
        count_max: None,
    };
    let older = twin.entries.range(..least).count();
    let gone = stream.log_mut().trim(&trim);
    assert!(if is_approximate {
        gone <= older
    } else {
        gone == older
    });
    (0..gone).for_each(|_| drop(twin.entries.pop_first()));
}

#[test]
fn behaves_like_a_map_of_entries() {
    run(1, 4_000, StreamLimits::default());
    let limits = |block_bytes, block_entries| StreamLimits {
        block_bytes,
        block_entries,
    };
    run(2, 3_000, limits(0, 3));
    run(3, 3_000, limits(64, 0));
    run(4, 3_000, limits(0, 0));
    run(5, 3_000, limits(1, 1));
}

proptest! {
    #[test]
    fn entries_come_back_as_they_were(
        all in prop::collection::vec(
            (0_u64..4, 0_u64..u64::MAX >> 2, prop::collection::vec((".{0,9}", ".{0,70}"), 1..4)), 0..40)
    ) {
        let mut stream = Stream::new();
        let mut expected = Vec::new();
        for (ms, seq, pairs) in all {
            let last = stream.log().last_id();
            let id = EntryId::new(last.ms + ms, if ms == 0 { last.seq + 1 } else { seq });
            let pairs: Pairs = pairs.into_iter().map(|(name, value)| (name.into_bytes(), value.into_bytes())).collect();
            append(&mut stream, id, &pairs, StreamLimits::default()).unwrap();
            expected.push((id, pairs));
        }
        let found: Vec<_> = stream.log().iter().map(|entry| (entry.id, pairs_of(entry))).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(&stream.clone(), &stream);
    }
}

#[test]
fn ids_may_be_as_far_apart_as_they_can() {
    let mut stream = Stream::new();
    let pairs = vec![(b"f".to_vec(), b"v".to_vec())];
    let ids = [
        EntryId::new(0, 1),
        EntryId::new(0, u64::MAX),
        EntryId::new(1, 0),
        EntryId::new(u64::MAX, 0),
        EntryId::MAX,
    ];
    for id in ids {
        append(&mut stream, id, &pairs, StreamLimits::default()).unwrap();
    }
    assert!(stream.log().iter().map(|entry| entry.id).eq(ids));
    assert_eq!(
        append(&mut stream, EntryId::MAX, &pairs, StreamLimits::default()),
        Err(Refused::Id)
    );
}

#[test]
fn small_entries_take_few_bytes() {
    let mut stream = Stream::new();
    let pairs = vec![(b"field".to_vec(), b"value".to_vec())];
    for number in 1..=100_000 {
        let id = EntryId::new(1_700_000_000_000 + number, 0);
        append(&mut stream, id, &pairs, StreamLimits::default()).unwrap();
    }
    let bytes = stream.memory_bytes();
    assert!(bytes < 100_000 * 13, "{bytes}");
    let trim = Trim {
        to: TrimTo::Len(1),
        is_approximate: false,
        count_max: None,
    };
    assert_eq!(stream.log_mut().trim(&trim), 99_999);
    assert!(stream.memory_bytes() < 2_000, "{}", stream.memory_bytes());
}

#[test]
fn a_limit_ends_an_approximate_trim() {
    let mut stream = Stream::new();
    for number in 1..=1_000 {
        append(
            &mut stream,
            EntryId::new(number, 0),
            &Pairs::new(),
            StreamLimits::default(),
        )
        .unwrap();
    }
    let mut trim = |len, count_max| {
        stream.log_mut().trim(&Trim {
            to: TrimTo::Len(len),
            is_approximate: true,
            count_max,
        })
    };
    assert_eq!(trim(555, Some(250)), 200);
    assert_eq!(trim(555, Some(99)), 0);
    assert_eq!(trim(555, None), 200);
    assert_eq!(trim(555, None), 0);
}

/// Returns a stream of ten entries with a group that has read none.
fn ten() -> Stream {
    let mut stream = Stream::new();
    for number in 1..=10 {
        append(
            &mut stream,
            EntryId::new(number, 0),
            &Pairs::new(),
            StreamLimits::default(),
        )
        .unwrap();
    }
    assert!(stream.create_group(b"g", EntryId::MIN, Some(0)));
    assert!(!stream.create_group(b"g", EntryId::MIN, None));
    stream
}

fn group<R>(stream: &mut Stream, change: impl FnOnce(&mut Group, &EntryLog) -> R) -> R {
    stream.change_group(b"g", change).unwrap()
}

#[test]
fn a_pending_entry_has_one_owner() {
    let mut stream = ten();
    let id = EntryId::new(3, 0);
    let everything = (EntryId::MIN, EntryId::MAX);
    group(&mut stream, |group, _| {
        let alice = group.create_consumer(b"alice", 5).unwrap();
        let bob = group.create_consumer(b"bob", 5).unwrap();
        assert_eq!(group.create_consumer(b"bob", 6), None);
        group.deliver(id, alice, 100, 1);
        group.deliver(id, bob, 200, 2);
        assert_eq!(
            group.pending_of(alice, everything.0, everything.1).count(),
            0
        );
        let pending = group
            .pending_of(bob, everything.0, everything.1)
            .next()
            .unwrap();
        assert_eq!(
            (pending.id, pending.delivered_unix_ms, pending.deliveries),
            (id, 200, 2)
        );
        assert_eq!(pending.consumer.name(), b"bob");
        assert_eq!(
            group
                .pending(EntryId::new(4, 0), EntryId::new(2, 0))
                .count(),
            0
        );
    });
    let full = stream.memory_bytes();
    group(&mut stream, |group, _| {
        assert!(group.acknowledge(id));
        assert!(!group.acknowledge(id));
        let bob = group.find_consumer(b"bob").unwrap();
        group.deliver(id, bob, 300, 1);
        assert_eq!(group.remove_consumer(b"bob"), Some(1));
        assert_eq!(group.remove_consumer(b"bob"), None);
        assert_eq!(group.pending_count(), 0);
        let carol = group.create_consumer(b"carol", 7).unwrap();
        assert_eq!(carol, bob, "a place that is free is taken again");
        assert_eq!(group.consumers().count(), 2);
    });
    assert!(stream.memory_bytes() < full);
    assert!(stream.remove_group(b"g") && !stream.remove_group(b"g"));
    let mut plain = ten();
    plain.remove_group(b"g");
    assert_eq!(stream.memory_bytes(), plain.memory_bytes());
    assert_eq!(stream, plain);
}

#[test]
fn a_count_of_entries_read_ends_at_the_largest_number() {
    let mut stream = ten();
    let largest = i64::MAX.unsigned_abs();
    group(&mut stream, |group, log| {
        group.set_position(EntryId::MIN, Some(largest));
        group.advance(EntryId::new(1, 0), log);
    });
    let group = stream.group(b"g").unwrap();
    assert_eq!(group.entries_read(), Some(largest));
}

#[test]
fn the_lag_is_known_while_nothing_is_missing_ahead() {
    let mut stream = ten();
    let read = |stream: &mut Stream, ms| {
        group(stream, |group, log| group.advance(EntryId::new(ms, 0), log));
    };
    let lag = |stream: &Stream| stream.group(b"g").unwrap().lag(stream.log());
    assert_eq!(lag(&stream), Some(10));
    (1..=3).for_each(|ms| read(&mut stream, ms));
    assert_eq!(lag(&stream), Some(7));
    stream.log_mut().remove(EntryId::new(6, 0));
    assert_eq!(lag(&stream), None);
    (4..=5).for_each(|ms| read(&mut stream, ms));
    assert_eq!(stream.group(b"g").unwrap().entries_read(), None);
    (7..=10).for_each(|ms| read(&mut stream, ms));
    assert_eq!(stream.group(b"g").unwrap().entries_read(), Some(10));
    assert_eq!(lag(&stream), Some(0));
    assert_eq!(stream.log().added_up_to(EntryId::new(11, 0)), None);
}

#[test]
fn counters_that_contradict_the_entries_are_refused() {
    let mut stream = ten();
    let counters = stream.log().counters();
    let log = stream.log_mut();
    let id = EntryId::new(9, 0);
    assert_eq!(
        log.set_counters(Counters {
            last_id: id,
            ..counters
        }),
        Err(BadCounters::LastId)
    );
    let few = Counters {
        entries_added: 9,
        ..counters
    };
    assert_eq!(log.set_counters(few), Err(BadCounters::EntriesAdded));
    let above = Counters {
        max_deleted_id: EntryId::new(11, 0),
        ..counters
    };
    assert_eq!(log.set_counters(above), Err(BadCounters::MaxDeletedId));
    assert_eq!(log.counters(), counters);
    let more = Counters {
        last_id: EntryId::new(20, 0),
        entries_added: 30,
        max_deleted_id: id,
    };
    assert_eq!(log.set_counters(more), Ok(()));
    assert_eq!(
        append(
            &mut stream,
            EntryId::new(15, 0),
            &Pairs::new(),
            StreamLimits::default()
        ),
        Err(Refused::Id)
    );
}
