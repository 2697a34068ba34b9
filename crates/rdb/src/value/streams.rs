//! Streams: blocks of entries, counters, and groups with pending entries.
//!
//! ```text
//!   count of blocks │ id of a block (a text of 16 bytes), listpack …
//!   entries │ last id │ 19, 21: first id, highest deleted id, entries ever added
//!   count of groups │ name, last id, 19, 21: entries read,
//!                     pending:   count │ id (16 bytes), time (8), deliveries …
//!                     consumers: count │ name, seen (8), 21: active (8), count │ id (16 bytes) …
//! ```
//!
//! A pending entry is in its group with its figures, and with its consumer by id only.
//!
//! Behind the groups, 26 records which requests of producers were carried out, so that none is
//! carried out twice: for how many seconds and for how many entries that is kept, the producers,
//! and two counts. Streams do not have this here; it is skipped.
//!
//! ```text
//!   seconds │ entries │ count of producers │ name, count │ request (a text), id (two lengths) … │ counts (two lengths)
//! ```

use std::collections::BTreeMap;

use structures::stream::{Counters, Group};
use structures::{EntryId, Stream};

use crate::code;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_length, write_length_u64, write_text};

mod blocks;

/// The first version with counters.
const COUNTERS_VERSION: u16 = 10;
/// The first version that distinguishes when a consumer got an entry from when it asked.
const ACTIVE_VERSION: u16 = 11;

const ID_BYTES: usize = 16;
/// Minimum bytes of a pending entry in its group: id, time, and a length.
const PENDING_BYTES_MIN: usize = ID_BYTES + 8 + 1;
/// Maximum of counts of events: clients see them as signed numbers.
const HAPPENED_MAX: u64 = i64::MAX.unsigned_abs();
/// The value of a group's number of read entries if it is unknown.
const READ_UNKNOWN: u64 = u64::MAX;
/// The time of a consumer that never got an entry.
const NEVER: i64 = -1;

pub(super) fn read(reader: &mut Reader<'_>, type_code: u8) -> Result<Stream, Malformed> {
    let mut stream = Stream::new();
    // An id of 16 bytes with its length, and a listpack with its length.
    for _ in 0..reader.count(ID_BYTES + 2)? {
        blocks::read(reader, stream.log_mut())?;
    }
    let has_counters = type_code != code::STREAM_PLAIN;
    read_counters(reader, has_counters, &mut stream)?;
    for _ in 0..reader.count(5)? {
        read_group(reader, type_code, &mut stream)?;
    }
    if type_code == code::STREAM_PRODUCERS {
        pass_producers(reader)?;
    }
    Ok(stream)
}

fn pass_producers(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    let _retention = (reader.length()?, reader.length()?);
    for _ in 0..reader.count(2)? {
        reader.text()?;
        for _ in 0..reader.count(3)? {
            reader.text()?;
            read_id(reader)?;
        }
    }
    let _counts = (reader.length()?, reader.length()?);
    Ok(())
}

fn read_counters(
    reader: &mut Reader<'_>,
    has_counters: bool,
    stream: &mut Stream,
) -> Result<(), Malformed> {
    let len = stream.len() as u64;
    if reader.length()? != len {
        return Err(Malformed::Length);
    }
    let mut counters = Counters {
        last_id: read_id(reader)?,
        max_deleted_id: EntryId::MIN,
        entries_added: len,
    };
    if has_counters {
        // The first entry is authoritative.
        let _first_id = read_id(reader)?;
        counters.max_deleted_id = read_id(reader)?;
        counters.entries_added = happened(reader.length()?)?;
    }
    let set = stream.log_mut().set_counters(counters);
    set.map_err(|_| Malformed::Number)
}

fn read_group(
    reader: &mut Reader<'_>,
    type_code: u8,
    stream: &mut Stream,
) -> Result<(), Malformed> {
    let name = reader.text()?;
    let last_delivered = read_id(reader)?;
    let entries_read = match type_code {
        // It follows from the group's position, as far as that is possible.
        code::STREAM_PLAIN => stream.log().added_up_to(last_delivered),
        // Larger values are READ_UNKNOWN and Redis' own counts that have wrapped around.
        _ => Some(reader.length()?).filter(|&read| read <= HAPPENED_MAX),
    };
    let mut pending = read_pending(reader)?;
    if !stream.create_group(name.as_bytes(), last_delivered, entries_read) {
        return Err(Malformed::Twice);
    }
    let consumers = stream.change_group(name.as_bytes(), |group, _| {
        for _ in 0..reader.count(10)? {
            read_consumer(reader, type_code, group, &mut pending)?;
        }
        Ok::<_, Malformed>(())
    });
    consumers.unwrap_or(Ok(()))?;
    // An entry without an owner cannot be acknowledged.
    if pending.is_empty() {
        Ok(())
    } else {
        Err(Malformed::Number)
    }
}

/// Time and number of deliveries of a group's pending entries, by id.
type PendingById = BTreeMap<EntryId, (u64, u64)>;

fn read_pending(reader: &mut Reader<'_>) -> Result<PendingById, Malformed> {
    let mut pending = PendingById::new();
    for _ in 0..reader.count(PENDING_BYTES_MIN)? {
        let id = read_raw_id(reader)?;
        let delivered = (read_time(reader)?, happened(reader.length()?)?);
        if pending.insert(id, delivered).is_some() {
            return Err(Malformed::Twice);
        }
    }
    Ok(pending)
}

fn read_consumer(
    reader: &mut Reader<'_>,
    type_code: u8,
    group: &mut Group,
    pending: &mut PendingById,
) -> Result<(), Malformed> {
    let name = reader.text()?;
    let seen_unix_ms = read_time(reader)?;
    let number = group
        .create_consumer(name.as_bytes(), seen_unix_ms)
        .ok_or(Malformed::Twice)?;
    let active_unix_ms = match type_code {
        code::STREAM | code::STREAM_PRODUCERS => match reader.time_unix_ms()? {
            NEVER => None,
            time => Some(u64::try_from(time).map_err(|_| Malformed::Number)?),
        },
        _ => Some(seen_unix_ms),
    };
    group.set_active(number, active_unix_ms);
    for _ in 0..reader.count(ID_BYTES)? {
        let id = read_raw_id(reader)?;
        let (delivered_unix_ms, deliveries) = pending.remove(&id).ok_or(Malformed::Number)?;
        group.deliver(id, number, delivered_unix_ms, deliveries);
    }
    Ok(())
}

/// Reads an id as two lengths.
fn read_id(reader: &mut Reader<'_>) -> Result<EntryId, Malformed> {
    Ok(EntryId::new(reader.length()?, reader.length()?))
}

fn read_raw_id(reader: &mut Reader<'_>) -> Result<EntryId, Malformed> {
    Ok(EntryId::new(reader.big_endian()?, reader.big_endian()?))
}

fn read_time(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    u64::try_from(reader.time_unix_ms()?).map_err(|_| Malformed::Number)
}

fn happened(count: u64) -> Result<u64, Malformed> {
    if count > HAPPENED_MAX {
        return Err(Malformed::Number);
    }
    Ok(count)
}

pub(super) fn type_code(style: Style) -> u8 {
    if style.version >= ACTIVE_VERSION {
        code::STREAM
    } else if style.version >= COUNTERS_VERSION {
        code::STREAM_COUNTERS
    } else {
        code::STREAM_PLAIN
    }
}

pub(super) fn write(stream: &Stream, style: Style, out: &mut impl Output) {
    blocks::write(stream.log(), style, out);
    let Counters {
        last_id,
        max_deleted_id,
        entries_added,
    } = stream.log().counters();
    write_length(stream.len(), out);
    write_id(last_id, out);
    if style.version >= COUNTERS_VERSION {
        write_id(stream.log().first_id().unwrap_or(EntryId::MIN), out);
        write_id(max_deleted_id, out);
        write_length_u64(entries_added, out);
    }
    write_length(stream.groups_count(), out);
    for (name, group) in stream.groups() {
        write_text(name, style, out);
        write_group(group, style, out);
    }
}

fn write_group(group: &Group, style: Style, out: &mut impl Output) {
    write_id(group.last_delivered(), out);
    if style.version >= COUNTERS_VERSION {
        write_length_u64(group.entries_read().unwrap_or(READ_UNKNOWN), out);
    }
    write_length(group.pending_count(), out);
    for one in group.pending(EntryId::MIN, EntryId::MAX) {
        write_raw_id(one.id, out);
        out.extend_from_slice(&one.delivered_unix_ms.to_le_bytes());
        write_length_u64(one.deliveries, out);
    }
    write_length(group.consumers_count(), out);
    for (number, consumer) in group.consumers() {
        write_text(consumer.name(), style, out);
        out.extend_from_slice(&consumer.seen_unix_ms().to_le_bytes());
        if style.version >= ACTIVE_VERSION {
            let active = consumer.active_unix_ms().map(u64::cast_signed);
            out.extend_from_slice(&active.unwrap_or(NEVER).to_le_bytes());
        }
        write_length(consumer.pending_count(), out);
        for one in group.pending_of(number, EntryId::MIN, EntryId::MAX) {
            write_raw_id(one.id, out);
        }
    }
}

fn write_id(id: EntryId, out: &mut impl Output) {
    write_length_u64(id.ms, out);
    write_length_u64(id.seq, out);
}

fn write_raw_id(id: EntryId, out: &mut impl Output) {
    out.extend_from_slice(&id.ms.to_be_bytes());
    out.extend_from_slice(&id.seq.to_be_bytes());
}
