//! The real store against its naive twin: the same operations, the same results, the same effects.

use std::collections::BTreeMap;

use proptest::prelude::*;
use structures::memory::allocated;
use structures::{BlockLimit, Element, End, List, Object};

use super::collections::{Collect, collect};
use super::{Force, Notes};
use crate::handle::Handle;
use crate::key::DatabaseId;
use crate::record::Record;
use crate::store::{Options, Store};
use crate::value::{Deadline, ETAG_MAX, Encoding, StoreError};

pub(super) const DATABASES: DatabaseId = 2;

/// A record, copied out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    value: Vec<u8>,
    integer: Option<i64>,
    encoding: Encoding,
    deadline_unix_ms: Option<u64>,
    etag: u64,
    object: Option<Object>,
}

fn seen(record: &Record<'_>) -> Seen {
    let value = record.to_vec();
    let mut pieces = Vec::new();
    record.for_each_chunk(0..usize::MAX, |piece| pieces.extend_from_slice(piece));
    assert_eq!(pieces, value, "pieces make up the whole");
    let half = value.len() / 2;
    let mut part = Vec::new();
    record.for_each_chunk(half..value.len(), |piece| part.extend_from_slice(piece));
    assert_eq!(part, &value[half..]);
    assert_eq!(record.is_empty(), value.is_empty());
    let object = record.object();
    assert_eq!(record.is_string(), object.is_none());
    let text_bytes = value.len().min(8);
    // A small object needs nothing that leads to its buffer.
    let box_bytes = allocated(size_of::<Object>());
    let least_bytes = object
        .as_deref()
        .map_or(text_bytes, |object| object.memory_bytes() - box_bytes);
    assert!(record.memory_bytes() >= least_bytes);
    Seen {
        integer: record.integer(),
        encoding: record.encoding(),
        deadline_unix_ms: record.deadline_unix_ms(),
        etag: record.etag(),
        object: object.as_deref().cloned(),
        value,
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Read(Name),
    Set(Name, Value, When),
    SetWithEtag(Name, Value, When, u64),
    SetEtag(Name, u64),
    SetRaw(Name, Value, When),
    SetText(Name, Value, When),
    SetInteger(Name, i64, When),
    Append(Name, Value),
    WriteAt(Name, usize, Value),
    SetDeadline(Name, Option<u64>),
    Delete(Name),
    Rename(Name, Name),
    Copy(Name, Name),
    Touch(Name),
    Push(Name, Value, End),
    Pop(Name, usize),
    Collect(Name, Collect),
    Increment(Name),
    ReadSeveral(Vec<Name>),
    WriteSeveral(Vec<(Name, Value)>),
    Flush(Option<DatabaseId>),
    Swap,
    Pass(u64),
    Tick,
}

#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) database: DatabaseId,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Value(pub(super) Vec<u8>);

#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Keep,
    Never,
    In(u64),
}

fn name() -> impl Strategy<Value = Name> {
    let bytes = prop_oneof![
        30 => (0..60_u32).prop_map(|number| format!("key:{number}").into_bytes()),
        2 => Just(Vec::new()),
        1 => (4_090..4_100_usize).prop_map(|len| vec![b'k'; len]),
        1 => Just(vec![b'l'; 70_000]),
    ];
    (0..DATABASES, bytes).prop_map(|(database, bytes)| Name { database, bytes })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        5 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        2 => (-20..20_i64).prop_map(|number| number.to_string().into_bytes()),
        10 => proptest::collection::vec(any::<u8>(), 0..50),
        4 => proptest::collection::vec(any::<u8>(), 50..600),
        2 => (0..3_000_usize).prop_map(|len| vec![b'm'; len]),
        1 => (16_000..17_000_usize).prop_map(|len| vec![b'n'; len]),
        1 => (65_000..140_000_usize).prop_map(|len| vec![b'o'; len]),
    ]
    .prop_map(Value)
}

pub(super) fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Front), Just(End::Back)]
}

pub(super) fn etag() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..20_u64, Just(ETAG_MAX)]
}

pub(super) fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        Just(When::Keep),
        Just(When::Never),
        (0..200_u64).prop_map(When::In),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => name().prop_map(Step::Read),
        12 => (name(), value(), when()).prop_map(|(n, v, w)| Step::Set(n, v, w)),
        6 => (name(), value(), when(), etag()).prop_map(|(n, v, w, e)| Step::SetWithEtag(n, v, w, e)),
        3 => (name(), etag()).prop_map(|(n, e)| Step::SetEtag(n, e)),
        3 => (name(), value(), when()).prop_map(|(n, v, w)| Step::SetRaw(n, v, w)),
        2 => (name(), value(), when()).prop_map(|(n, v, w)| Step::SetText(n, v, w)),
        3 => (name(), any::<i64>(), when()).prop_map(|(n, v, w)| Step::SetInteger(n, v, w)),
        4 => (name(), value()).prop_map(|(n, v)| Step::Append(n, v)),
        4 => (name(), 0..20_000_usize, value()).prop_map(|(n, at, v)| Step::WriteAt(n, at, v)),
        4 => (name(), proptest::option::of(0..200_u64)).prop_map(|(n, d)| Step::SetDeadline(n, d)),
        5 => name().prop_map(Step::Delete),
        3 => (name(), name()).prop_map(|(a, b)| Step::Rename(a, b)),
        3 => (name(), name()).prop_map(|(a, b)| Step::Copy(a, b)),
        1 => name().prop_map(Step::Touch),
        8 => (name(), value(), end()).prop_map(|(n, v, end)| Step::Push(n, v, end)),
        4 => (name(), 0..3_usize).prop_map(|(n, count)| Step::Pop(n, count)),
        8 => (name(), collect()).prop_map(|(n, c)| Step::Collect(n, c)),
        4 => name().prop_map(Step::Increment),
        2 => proptest::collection::vec(name(), 0..8).prop_map(Step::ReadSeveral),
        2 => proptest::collection::vec((name(), value()), 0..8).prop_map(Step::WriteSeveral),
        1 => proptest::option::of(0..DATABASES).prop_map(Step::Flush),
        1 => Just(Step::Swap),
        4 => (0..60_u64).prop_map(Step::Pass),
        2 => Just(Step::Tick),
    ]
}

/// The result of a step, in terms that both stores must agree on.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Nothing,
    Seen(Option<Seen>),
    Several(Vec<Option<Seen>>),
    Flag(bool),
    Length(Result<usize, StoreError>),
    Done(Result<(), StoreError>),
}

pub(super) fn run(handle: &mut Handle, step: &Step, now: &mut u64) -> Answer {
    let at = *now;
    let deadline = |when: &When| match when {
        When::Keep => Deadline::Keep,
        When::Never => Deadline::Never,
        When::In(ms) => Deadline::At(at + ms),
    };
    macro_rules! key {
        ($name:expr) => {
            handle.key($name.database, &$name.bytes)
        };
    }
    match step {
        Step::Read(name) => {
            let key = key!(name);
            Answer::Seen(handle.read(&key, |record| record.map(seen)))
        }
        Step::Set(name, value, when) => {
            let key = key!(name);
            let done = handle.upsert(&key, &value.0, deadline(when), |entry| {
                entry.effect(|effect| effect.command(&[b"SET", &name.bytes, &value.0]));
            });
            Answer::Done(done)
        }
        Step::SetWithEtag(..) | Step::SetEtag(..) => run_on_etag(handle, step, deadline),
        Step::SetRaw(name, value, when) => {
            let key = key!(name);
            Answer::Done(handle.modify(&key, |entry| entry.set_raw(&value.0, deadline(when))))
        }
        Step::SetText(name, value, when) => {
            let key = key!(name);
            Answer::Done(handle.modify(&key, |entry| entry.set_text(&value.0, deadline(when))))
        }
        Step::SetInteger(name, value, when) => {
            let key = key!(name);
            Answer::Done(handle.modify(&key, |entry| entry.set_integer(*value, deadline(when))))
        }
        Step::Append(name, value) => {
            let key = key!(name);
            Answer::Length(handle.modify(&key, |entry| entry.append(&value.0)))
        }
        Step::WriteAt(name, start, value) => {
            let key = key!(name);
            Answer::Length(handle.modify(&key, |entry| entry.write_at(*start, &value.0)))
        }
        Step::SetDeadline(name, after_ms) => {
            let key = key!(name);
            let deadline = after_ms.map(|ms| at + ms);
            Answer::Done(handle.modify(&key, |entry| entry.set_deadline(deadline)))
        }
        Step::Delete(name) => {
            let key = key!(name);
            let existed = handle.delete(&key, |entry| {
                entry.effect(|effect| effect.command(&[b"DEL", &name.bytes]));
            });
            Answer::Flag(existed)
        }
        Step::Rename(from, to) => {
            let (from, to) = (key!(from), key!(to));
            handle.locked(&[from, to], |handle| {
                match handle.modify(&from, |entry| entry.take()) {
                    Some(owned) => Answer::Done(handle.modify(&to, |entry| entry.put(owned))),
                    None => Answer::Nothing,
                }
            })
        }
        Step::Copy(from, to) => {
            let (from, to) = (key!(from), key!(to));
            handle.locked(&[to, from], |handle| {
                match handle.modify(&from, |entry| entry.duplicate()) {
                    Some(owned) => Answer::Done(handle.modify(&to, |entry| entry.put(owned))),
                    None => Answer::Nothing,
                }
            })
        }
        Step::Increment(name) => {
            let key = key!(name);
            handle.modify(&key, |entry| {
                let number = match entry.record() {
                    None => Some(0),
                    Some(record) => record.integer(),
                };
                match number {
                    None => Answer::Nothing,
                    Some(number) => {
                        Answer::Done(entry.set_integer(number.wrapping_add(1), Deadline::Keep))
                    }
                }
            })
        }
        Step::ReadSeveral(names) => {
            let keys: Vec<_> = names.iter().map(|name| key!(name)).collect();
            handle.locked(&keys, |handle| {
                let look = |key| handle.read(key, |record| record.map(seen));
                Answer::Several(keys.iter().map(look).collect())
            })
        }
        Step::WriteSeveral(pairs) => {
            let keys: Vec<_> = pairs.iter().map(|(name, _)| key!(name)).collect();
            handle.locked(&keys, |handle| {
                let done = keys.iter().zip(pairs).try_for_each(|(key, (_, value))| {
                    handle.upsert(key, &value.0, Deadline::Never, |entry| {
                        entry.effect(|effect| effect.command(&[b"SET", key.bytes(), &value.0]));
                    })
                });
                Answer::Done(done)
            })
        }
        Step::Flush(database) => {
            handle.flush(*database);
            Answer::Nothing
        }
        Step::Swap => {
            handle.swap(0, 1);
            Answer::Nothing
        }
        Step::Pass(ms) => {
            *now += ms;
            handle.begin(*now);
            Answer::Nothing
        }
        Step::Tick => {
            while handle.tick(*now) {}
            Answer::Nothing
        }
        Step::Touch(_) | Step::Push(..) | Step::Pop(..) | Step::Collect(..) => {
            run_on_object(handle, step)
        }
    }
}

fn run_on_etag(handle: &mut Handle, step: &Step, deadline: impl Fn(&When) -> Deadline) -> Answer {
    let (name, etag) = match step {
        Step::SetWithEtag(name, _, _, etag) | Step::SetEtag(name, etag) => (name, *etag),
        _ => return Answer::Nothing,
    };
    let key = handle.key(name.database, &name.bytes);
    Answer::Done(handle.modify(&key, |entry| match step {
        Step::SetWithEtag(_, value, when, _) => entry.set_with_etag(&value.0, deadline(when), etag),
        _ => entry.set_etag(etag),
    }))
}

fn run_on_object(handle: &mut Handle, step: &Step) -> Answer {
    let limit = BlockLimit::default();
    match step {
        Step::Push(name, value, end) => {
            let key = handle.key(name.database, &name.bytes);
            let push = |list: &mut List| {
                list.push(*end, Element::parse(&value.0), limit);
                list.len()
            };
            Answer::Length(handle.modify(&key, |entry| entry.change_or_create(push)))
        }
        Step::Pop(name, count) => {
            let key = handle.key(name.database, &name.bytes);
            let pop = |list: &mut List| {
                list.pop(End::Front, *count, limit);
                list.len()
            };
            let left = handle.modify(&key, |entry| entry.change(pop));
            Answer::Length(left.map(|left| left.unwrap_or(usize::MAX)))
        }
        Step::Collect(name, change) => {
            let key = handle.key(name.database, &name.bytes);
            Answer::Length(handle.modify(&key, |entry| change.run(entry)))
        }
        Step::Touch(name) => {
            let key = handle.key(name.database, &name.bytes);
            handle.modify(&key, |entry| {
                entry.touch();
                Answer::Flag(entry.is_present())
            })
        }
        _ => Answer::Nothing,
    }
}

/// Returns everything in a database, by walking it.
fn dump(handle: &mut Handle, database: DatabaseId) -> BTreeMap<Vec<u8>, Seen> {
    let mut all = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = handle.scan(database, cursor, 3, |record| {
            let twice = all.insert(record.key().to_vec(), seen(record));
            assert!(twice.is_none(), "a walk meets a record once");
        });
        if cursor == 0 {
            return all;
        }
    }
}

pub(super) fn compare(force: Force, steps: &[Step]) {
    let stores = [
        force.store(DATABASES),
        Store::naive(&Options {
            databases: DATABASES,
        }),
    ];
    let mut handles = stores.each_ref().map(|store| store.handle());
    let notes = [Notes::default(), Notes::default()];
    let mut now = [1_000_000; 2];
    for (handle, notes) in handles.iter_mut().zip(&notes) {
        handle.set_sink(Some(Box::new(notes.clone())));
        handle.begin(1_000_000);
    }
    // An expired record is removed at a look or on a tick: both may be right.
    let told = |notes: &Notes| {
        let mut told = notes.take();
        told.retain(|told| !matches!(told, super::Told::Removed(..)));
        told
    };
    for step in steps {
        let answers = [0, 1].map(|at| run(&mut handles[at], step, &mut now[at]));
        assert_eq!(answers[0], answers[1], "{step:?}");
        assert_eq!(told(&notes[0]), told(&notes[1]), "{step:?}");
    }
    for database in 0..DATABASES {
        let dumps = handles.each_mut().map(|handle| dump(handle, database));
        assert_eq!(dumps[0], dumps[1]);
        let live = dumps[0].len();
        let deadlines = dumps[0]
            .values()
            .filter(|seen| seen.deadline_unix_ms.is_some());
        let deadlines = deadlines.count();
        let handle = &mut handles[0];
        while handle.tick(now[0]) {}
        assert_eq!(
            handle.len(database),
            live,
            "a tick removes all that expired"
        );
        assert_eq!(handle.expiring_len(database), deadlines);
        let key = handle.random_key(database, 77);
        assert_eq!(key.is_some(), live > 0);
        assert!(key.is_none_or(|key| dumps[0].contains_key(&key)));
    }
}

pub(super) fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

#[test]
fn a_change_that_is_refused_leaves_the_etag_as_it_is() {
    let name = || Name {
        database: 0,
        bytes: b"list".to_vec(),
    };
    let steps = [
        Step::Push(name(), Value(b"element".to_vec()), End::Back),
        Step::SetEtag(name(), 16),
        Step::Append(name(), Value(b"tail".to_vec())),
        Step::WriteAt(name(), 3, Value(b"bytes".to_vec())),
    ];
    compare(Force::TINY, &steps);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn a_table_that_grows_from_one_bucket(steps in proptest::collection::vec(step(), 1..200)) {
        compare(Force::TINY, &steps);
    }

    #[test]
    fn hashes_that_collide(steps in proptest::collection::vec(step(), 1..200)) {
        compare(Force { hash_mask: 0x8000_0000_0000_0003, ..Force::TINY }, &steps);
    }

    #[test]
    fn a_table_that_cannot_grow(steps in proptest::collection::vec(step(), 1..200)) {
        compare(Force { buckets_max: 2, ..Force::TINY }, &steps);
    }
}
