//! Tests of streams of every shape, and of inconsistent blocks.

use base::random::Prng;
use structures::stream::{Counters, EntryId, Stream};
use structures::{Element, Object, Packed};

use super::{limits, payload};
use crate::writer::{write_length, write_text};
use crate::{Limits, Malformed, Reader, Style, Value, dump, listpack, value};

/// Returns a random stream: entries with and without the names of earlier ones, deleted entries,
/// groups, and pending entries.
pub(super) fn any(seed: u64, limits: &Limits) -> Stream {
    let mut random = Prng::seeded(seed);
    let mut stream = Stream::new();
    let (mut id, mut ids) = (EntryId::new(random.below(3), 0), Vec::new());
    for _ in 0..random.below(300) {
        id = match random.below(4) {
            0 => EntryId::new(id.ms + 1 + random.below(1 << 40), random.below(5)),
            1 => EntryId::new(id.ms + 1, random.next_u64() / 2),
            _ => EntryId::new(id.ms, id.seq + 1 + random.below(3)),
        };
        let names = [&b"a"[..], b"17", b"other"];
        let first = random.index(2) * random.index(2);
        let fields: Vec<_> = (0..=random.index(2))
            .map(|at| (names[first + at], random.below(1 << 20).to_string()))
            .collect();
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        stream.log_mut().append(id, fields, limits.stream).unwrap();
        ids.push(id);
    }
    let most = random.index(ids.len() + 1);
    for id in &ids[..most] {
        if random.below(3) == 0 {
            stream.log_mut().remove(*id);
        }
    }
    for at in 0..random.below(3) {
        let name = format!("group {at}");
        let read = (random.below(2) == 0).then_some(at);
        stream.create_group(name.as_bytes(), id, read);
        stream.change_group(name.as_bytes(), |group, _| {
            for consumer in 0..random.below(4) {
                let name = consumer.to_string();
                let number = group.create_consumer(name.as_bytes(), 1_000 + at).unwrap();
                for _ in 0..random.index(ids.len() + 1) {
                    let id = ids[random.index(ids.len())];
                    group.deliver(id, number, 2_000 + at, 1 + at);
                }
            }
        });
    }
    stream
}

fn read(code: u8, body: &[u8]) -> Result<Stream, Malformed> {
    let limits = limits(16);
    match value::read(code, &mut Reader::new(body, 11, &limits))? {
        Value::Object(Object::Stream(stream)) => Ok(stream),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_last_version_tells_about_consumers_comes_back() {
    let mut stream = Stream::new();
    stream.create_group(b"g", EntryId::new(5, 5), Some(3));
    stream.change_group(b"g", |group, _| {
        for (name, active) in [(b"a", None), (b"b", Some(70))] {
            let number = group.create_consumer(name, 90).unwrap();
            group.set_active(number, active);
        }
    });
    let value = Value::Object(Object::Stream(stream));
    let times = |version| {
        let style = Style {
            version,
            compresses: false,
        };
        let mut body = Vec::new();
        value::write(&value, style, &mut body);
        let stream = read(value::type_code(&value, style), &body).unwrap();
        let group = stream.group(b"g").unwrap();
        let times = group
            .consumers()
            .map(|(_, one)| (one.seen_unix_ms(), one.active_unix_ms()));
        (group.entries_read(), times.collect::<Vec<_>>())
    };
    assert_eq!(times(11), (Some(3), vec![(90, None), (90, Some(70))]));
    assert_eq!(times(10), (Some(3), vec![(90, Some(90)), (90, Some(90))]));
    assert_eq!(times(9), (Some(0), vec![(90, Some(90)), (90, Some(90))]));
}

#[test]
fn a_count_that_wrapped_around_is_not_known() {
    let mut stream = Stream::new();
    assert!(stream.create_group(b"g", EntryId::MIN, Some(1 << 63)));
    let payload = payload(&Value::Object(Object::Stream(stream)), true);
    let Ok(Value::Object(Object::Stream(back))) = dump::read(&payload, &limits(16)) else {
        panic!("not a stream");
    };
    assert_eq!(back.group(b"g").unwrap().entries_read(), None);
}

#[test]
fn counters_come_back() {
    let mut stream = Stream::new();
    let counters = Counters {
        last_id: EntryId::new(u64::MAX, u64::MAX),
        max_deleted_id: EntryId::new(7, 8),
        entries_added: 1 << 40,
    };
    stream.log_mut().set_counters(counters).unwrap();
    let payload = payload(&Value::Object(Object::Stream(stream)), true);
    let Ok(Value::Object(Object::Stream(back))) = dump::read(&payload, &limits(16)) else {
        panic!("not a stream");
    };
    assert_eq!(back.log().counters(), counters);
}

/// Returns the body of a stream without groups: blocks of these elements, then what follows them.
fn body(blocks: &[&[i64]], behind: &[u64]) -> Vec<u8> {
    let style = Style {
        version: 9,
        compresses: false,
    };
    let mut body = Vec::new();
    write_length(blocks.len(), &mut body);
    for elements in blocks {
        let mut packed = Packed::new();
        elements
            .iter()
            .for_each(|number| packed.push_back(Element::Integer(*number)));
        write_text(
            &[&1_u64.to_be_bytes()[..], &[0; 8]].concat(),
            style,
            &mut body,
        );
        write_text(&listpack::framed(&packed), style, &mut body);
    }
    for number in behind {
        crate::writer::write_length_u64(*number, &mut body);
    }
    body
}

#[test]
fn blocks_that_lie_are_found() {
    // One entry with name 5 and value 6; then length, last id, no groups.
    let good: &[i64] = &[1, 0, 1, 5, 0, 2, 0, 0, 6, 4];
    let behind = &[1, 1, 0, 0];
    let stream = read(15, &body(&[good], behind)).unwrap();
    assert_eq!(
        stream
            .log()
            .iter()
            .map(|entry| entry.id)
            .collect::<Vec<_>>(),
        [EntryId::new(1, 0)]
    );
    let lies: [&[i64]; 15] = [
        &[],
        &[1, 0, 1, 5, 0],
        &[2, 0, 1, 5, 0, 2, 0, 0, 6, 4],
        &[0, 0, 1, 5, 0, 2, 0, 0, 6, 4],
        &[-1, 2, 1, 5, 0, 2, 0, 0, 6, 4],
        &[0, 1, 1, 5, 0, 2, 0, 0, 6, 4],
        &[1, i64::MAX, 1, 5, 0, 2, 0, 0, 6, 4],
        &[i64::MAX, 0, 1, 5, 0, 2, 0, 0, 6, 4],
        &[1, 0, 0, 0, 2, 0, 0, 3],
        &[1, 0, i64::MAX, 5, 0, 2, 0, 0, 6, 4],
        &[1, 0, 1, 5, 1, 2, 0, 0, 6, 4],
        &[1, 0, 1, 5, 0, 2, 0, 0, 6, 5],
        &[1, 0, 1, 5, 0, 0, 0, 0, i64::MAX, 6, 4],
        &[1, 0, 1, 5, 0, 2, 0, 0, 6, 4, 9],
        // The entry is 0-0, which is not allowed.
        &[1, 0, 1, 5, 0, 2, -1, 0, 6, 4],
    ];
    for lie in lies {
        assert!(read(15, &body(&[lie], behind)).is_err(), "{lie:?}");
    }
    // The same id again; a wrong length; a last id below the last entry.
    assert_eq!(
        read(15, &body(&[good, good], &[2, 1, 0, 0])),
        Err(Malformed::Number)
    );
    assert_eq!(
        read(15, &body(&[good], &[2, 1, 0, 0])),
        Err(Malformed::Length)
    );
    assert_eq!(
        read(15, &body(&[good], &[1, 0, 9, 0])),
        Err(Malformed::Number)
    );
    assert_eq!(
        read(15, &body(&[good], &[1, 1, 0, u64::MAX])),
        Err(Malformed::Ended)
    );
}

#[test]
fn deleted_entries_of_a_block_are_left_out() {
    let block: &[i64] = &[1, 1, 1, 5, 0, 3, 0, 0, 6, 4, 2, 0, 9, 7, 4];
    let stream = read(15, &body(&[block], &[1, 1, 9, 0])).unwrap();
    assert_eq!(
        stream
            .log()
            .iter()
            .map(|entry| entry.id)
            .collect::<Vec<_>>(),
        [EntryId::new(1, 9)]
    );
}
