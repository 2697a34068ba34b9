//! Keys of files: RDB files and our checkpoints. `logs` counts those of logs.

use std::io::Read;
use std::path::{Path, PathBuf};

use base::clock::{Clock as _, SystemClock};
use base::record_head::{COLD, NUMBER, TEXT};
use durability::checkpoint::{MANIFEST_NAME, Record, open_part, read_manifest};
use durability::disk::SystemDisk;
use rdb::file::{FileReader, Item};
use rdb::{Limits, Malformed, Reader, Value, value};
use structures::{Encoding, Object};

use super::tally::{Seen, Tally};
use super::{append_only, logs};
use crate::error::BenchError;

/// Maximum length of a text that a server accepts.
const STRING_BYTES_MAX: usize = 512 << 20;
/// Number of elements beyond which collections have their large form.
const SMALL_ENTRIES: usize = 128;
/// Bytes of a record besides key, value and deadline. The key takes a multiple of its size.
const HEAD_BYTES: usize = 8;
/// A record's share of the index.
const INDEX_BYTES: usize = 12;
/// The smallest slot of a record; the step between slots, with the size up to which it applies; and
/// the largest slot.
const SLOT_BYTES_MIN: usize = 32;
const SLOT_STEP_BYTES: usize = 16;
const SLOT_FINE_BYTES_MAX: usize = 512;
const SLOT_BYTES_MAX: usize = 16 << 10;
/// Overhead of a longer string, whose bytes lie apart: words in the record, and their own head.
const APART_WORD_BYTES: usize = 24;
const APART_HEAD_BYTES: usize = 64;
/// The head of a large collection, which a collection of one block does not have.
const LARGE_HEAD_BYTES: usize = 48;
/// Bytes in a record that replace a value in a tier, as for [`COLD`].
const STUB_BYTES: usize = 16;
/// Type and encoding of such values by the number of their kind, as in `docs/formats/tier.md`.
const COLD_KINDS: [(&str, &str); 12] = [
    ("string", "raw"),
    ("string", "raw"),
    ("list", "listpack"),
    ("list", "quicklist"),
    ("hash", "listpack"),
    ("hash", "hashtable"),
    ("set", "intset"),
    ("set", "listpack"),
    ("set", "hashtable"),
    ("zset", "listpack"),
    ("zset", "skiplist"),
    ("stream", "stream"),
];
/// Positions of the value's length and kind in the body of such a record.
const COLD_LEN_AT: usize = 16;
const COLD_KIND_AT: usize = 20;
/// Directory of a server's files below `dir`.
const DATA_NAME: &str = "iolite-data";

/// Counts the keys of a file, and the later writes in a log. Returns what the file was.
pub(super) fn read(path: &Path, tally: &mut Tally) -> Result<String, BenchError> {
    for place in [path.to_owned(), path.join(DATA_NAME)] {
        let has_log = place.join(logs::LOG_NAME).is_dir();
        if place.join(MANIFEST_NAME).is_file() {
            return checkpoint(&place, tally);
        }
        if has_log {
            return logs::own(&place, None, tally);
        }
    }
    if let Some(files) = append_only::find(path).map_err(|error| fault(path, error))? {
        return logs::append_only(path, &files, tally);
    }
    logs::append_only(path, &[path.to_owned()], tally)
}

fn limits() -> Limits {
    Limits {
        string_bytes_max: STRING_BYTES_MAX,
        ..Limits::narrow(SMALL_ENTRIES)
    }
}

pub(super) fn fault(path: &Path, error: impl ToString) -> BenchError {
    BenchError::File(PathBuf::from(path), error.to_string())
}

/// Counts the records of an RDB file. Returns its version, and what follows it.
pub(super) fn records<R: Read>(
    path: &Path,
    source: R,
    tally: &mut Tally,
) -> Result<(u16, FileReader<R>), BenchError> {
    let limits = limits();
    let mut reader = FileReader::open(source, limits).map_err(|error| fault(path, error))?;
    let version = reader.version();
    let now_unix_ms = SystemClock::new().now_unix_ms();
    while let Some(item) = reader.next().map_err(|error| fault(path, error))? {
        let Item::Record(record) = item else { continue };
        // The length of a text is known without decoding; a collection is decoded to determine its
        // memory.
        let value = match record.value(version, &limits) {
            Ok(value) => value,
            Err(error) => return Err(fault(path, error)),
        };
        tally.add(&seen(
            record.database,
            record.key.as_bytes(),
            &value,
            record.deadline_unix_ms,
            now_unix_ms,
        ));
    }
    Ok((version, reader))
}

fn checkpoint(path: &Path, tally: &mut Tally) -> Result<String, BenchError> {
    let manifest = read_manifest(&SystemDisk, path).map_err(|error| fault(path, error))?;
    let manifest = manifest.ok_or_else(|| fault(path, "there is no checkpoint"))?;
    let limits = limits();
    let now_unix_ms = SystemClock::new().now_unix_ms();
    for number in 0..manifest.parts.len() {
        let part = open_part(&SystemDisk, path, &manifest, number);
        let mut part = part.map_err(|error| fault(path, error))?;
        let version = part.head().value_version;
        while let Some(block) = part.next_block().map_err(|error| fault(path, error))? {
            for record in block.records() {
                let seen = seen_in_part(&record, version, &limits, now_unix_ms);
                tally.add(&seen.map_err(|error| fault(path, error))?);
            }
        }
    }
    logs::own(path, Some(&manifest), tally)
}

fn seen_in_part<'r>(
    record: &Record<'r>,
    version: u16,
    limits: &Limits,
    now_unix_ms: u64,
) -> Result<Seen<'r>, Malformed> {
    let value = match record.head.type_code {
        COLD => return seen_cold(record, now_unix_ms),
        TEXT => Value::String(record.body.to_vec()),
        // A number takes eight bytes, whatever its text.
        NUMBER => Value::String(b"10000000".to_vec()),
        code => value::read(code, &mut Reader::new(record.body, version, limits))?,
    };
    Ok(seen(
        record.head.database.into(),
        record.key,
        &value,
        record.head.deadline_unix_ms,
        now_unix_ms,
    ))
}

/// Returns a key whose value is in a tier, with what its record shows of the value. The memory is
/// that of the record alone.
fn seen_cold<'r>(record: &Record<'r>, now_unix_ms: u64) -> Result<Seen<'r>, Malformed> {
    let kind = record.body.get(COLD_KIND_AT).copied().map(usize::from);
    let kind = kind.and_then(|kind| COLD_KINDS.get(kind));
    let &(type_name, encoding) = kind.ok_or(Malformed::Type(COLD))?;
    let len = record.body.get(COLD_LEN_AT..).and_then(<[u8]>::first_chunk);
    let len = u32::from_le_bytes(*len.ok_or(Malformed::Length)?);
    let deadline_unix_ms = record.head.deadline_unix_ms;
    let record_bytes = record_bytes(record.key, deadline_unix_ms);
    Ok(Seen {
        database: record.head.database.into(),
        key: record.key,
        type_name,
        encoding,
        bytes: (slot_bytes(record_bytes + STUB_BYTES) + INDEX_BYTES) as u64,
        elements: if type_name == "string" { 1 } else { len.into() },
        ttl_ms: ttl_ms(deadline_unix_ms, now_unix_ms),
    })
}

/// Returns a record's bytes besides its value.
fn record_bytes(key: &[u8], deadline_unix_ms: Option<u64>) -> usize {
    let deadline_bytes = if deadline_unix_ms.is_some() { 8 } else { 0 };
    HEAD_BYTES + key.len().next_multiple_of(HEAD_BYTES) + deadline_bytes
}

fn ttl_ms(deadline_unix_ms: Option<u64>, now_unix_ms: u64) -> Option<u64> {
    deadline_unix_ms.map(|at| at.saturating_sub(now_unix_ms))
}

fn seen<'k>(
    database: u32,
    key: &'k [u8],
    value: &Value,
    deadline_unix_ms: Option<u64>,
    now_unix_ms: u64,
) -> Seen<'k> {
    let record_bytes = record_bytes(key, deadline_unix_ms);
    let (type_name, encoding, bytes, elements) = match value {
        Value::String(text) if record_bytes + text.len() > SLOT_BYTES_MAX => (
            "string",
            "raw",
            slot_bytes(record_bytes + APART_WORD_BYTES) + APART_HEAD_BYTES + text.len(),
            1,
        ),
        Value::String(text) => {
            let encoding = match base::number::parse_i64(text) {
                Some(_) => "int",
                None => "raw",
            };
            ("string", encoding, slot_bytes(record_bytes + text.len()), 1)
        }
        Value::Object(object) => {
            let own = match object.encoding() {
                Encoding::Listpack | Encoding::Intset => {
                    object.memory_bytes().saturating_sub(LARGE_HEAD_BYTES)
                }
                _ => object.memory_bytes(),
            };
            let bytes = slot_bytes(record_bytes) + own;
            (
                type_name(object),
                object.encoding().name(),
                bytes,
                object.len(),
            )
        }
    };
    Seen {
        database,
        key,
        type_name,
        encoding,
        bytes: (bytes + INDEX_BYTES) as u64,
        elements: elements as u64,
        ttl_ms: ttl_ms(deadline_unix_ms, now_unix_ms),
    }
}

/// Returns the slot size for a record of so many bytes: beyond the fine steps, four sizes between
/// one power of two and the next.
fn slot_bytes(bytes: usize) -> usize {
    let bytes = bytes.max(SLOT_BYTES_MIN);
    match bytes <= SLOT_FINE_BYTES_MAX {
        true => bytes.next_multiple_of(SLOT_STEP_BYTES),
        false => bytes.next_multiple_of((1_usize << bytes.ilog2()) / 4),
    }
}

fn type_name(object: &Object) -> &'static str {
    match object {
        Object::List(_) => "list",
        Object::Set(_) => "set",
        Object::SortedSet(_) => "zset",
        Object::Hash(_) => "hash",
        Object::Stream(_) => "stream",
    }
}

#[cfg(test)]
mod tests {
    use rdb::Style;
    use rdb::file::{Content, Entry, FileWriter};

    use super::super::tally::Rules;
    use super::*;

    fn tally() -> Tally {
        Tally::new(Rules {
            top: 3,
            depth: 1,
            delimiter: b":".to_vec(),
        })
    }

    /// As MEMORY USAGE shows for keys `k:N` with values of `N` bytes.
    #[test]
    fn sizes_are_those_of_the_server() {
        for (len, expected) in [
            (1, 44),
            (20, 60),
            (40, 76),
            (60, 92),
            (100, 140),
            (200, 236),
            (500, 652),
            (1000, 1036),
            (3000, 3084),
            (150, 188),
            (300, 332),
            (10_000, 10_252),
            (100_000, 100_124),
        ] {
            let key = format!("k:{len}");
            let value = Value::String(vec![b'x'; len]);
            let seen = seen(0, key.as_bytes(), &value, None, 0);
            assert_eq!(seen.bytes, expected, "{len}");
        }
    }

    #[test]
    fn a_file_is_counted() {
        let style = Style {
            version: 11,
            compresses: true,
        };
        let mut writer = FileWriter::new(Vec::new(), style, true);
        writer.database(0, || None).unwrap();
        for (key, text) in [("a:1", "x".repeat(100)), ("b:1", "x".repeat(10_000))] {
            let entry = Entry {
                key: key.as_bytes(),
                deadline_unix_ms: None,
                usage: None,
                content: Content::Text(text.as_bytes()),
            };
            writer.record(&entry).unwrap();
        }
        writer.finish().unwrap();
        let path = std::env::temp_dir().join(format!("iolite-analyze-{}", std::process::id()));
        std::fs::write(&path, writer.into_sink()).unwrap();
        let mut tally = tally();
        let source = read(&path, &mut tally);
        std::fs::write(&path, b"something else").unwrap();
        let refused = read(&path, &mut self::tally()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(source.unwrap().contains("RDB version 11"));
        assert_eq!(tally.total.keys, 2);
        assert_eq!(tally.total.bytes, 140 + 10_252);
        assert_eq!(tally.biggest()[0].key, b"b:1");
        assert!(refused.to_string().contains("this is no RDB file"));
    }
}
