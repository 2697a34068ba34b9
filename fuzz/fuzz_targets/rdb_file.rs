//! Reads a whole file of the dump format from its first byte, in pieces of any size.
//!
//! However the file is cut into pieces, the reader returns the same records up to the same offset,
//! and the same error or none. What is read can be written in every version that can hold it, and
//! is then read back unchanged.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use rdb::file::{Content, Entry, FileReader, FileWriter, Item, Usage};
use rdb::{Limits, Style, VERSION_MAX, VERSION_MIN, Value, value};
use structures::Object;

/// A record that was read.
#[derive(Debug, PartialEq)]
struct Kept {
    database: u32,
    key: Vec<u8>,
    deadline_unix_ms: Option<u64>,
    usage: Option<Usage>,
    value: Value,
}

/// A reader that returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, file)) = input.split_first() else {
        return;
    };
    let (records, ending) = read(Pieces(file, usize::MAX));
    let piece = usize::from(piece).max(1);
    let (again, other_ending) = read(Pieces(file, piece));
    assert_eq!(ending, other_ending);
    assert_eq!(records, again);
    for version in [VERSION_MIN, 10, 11, VERSION_MAX] {
        comes_back(&records, version);
    }
});

/// Returns the records before the error or the end, and which of the two came.
fn read(source: impl Read) -> (Vec<Kept>, String) {
    let mut records = Vec::new();
    let ending = match read_into(source, &mut records) {
        Ok(offset) => format!("the end at {offset}"),
        Err(error) => error.to_string(),
    };
    (records, ending)
}

fn read_into(source: impl Read, records: &mut Vec<Kept>) -> Result<u64, rdb::file::FileError> {
    let limits = Limits::narrow(16);
    let mut reader = FileReader::open(source, limits)?;
    let version = reader.version();
    while let Some(item) = reader.next()? {
        if let Item::Record(record) = item {
            let value = record.value(version, &limits)?;
            records.push(Kept {
                database: record.database,
                key: record.key.as_bytes().to_vec(),
                deadline_unix_ms: record.deadline_unix_ms,
                usage: record.usage,
                value,
            });
        }
    }
    let offset = reader.offset();
    reader.expect_nothing_behind()?;
    Ok(offset)
}

fn comes_back(records: &[Kept], version: u16) {
    let style = Style {
        version,
        compresses: true,
    };
    let fits = |one: &&Kept| {
        // The first version of streams has no counters. Times are written with a sign.
        let is_whole =
            version > VERSION_MIN || !matches!(one.value, Value::Object(Object::Stream(_)));
        let deadline = one.deadline_unix_ms.unwrap_or(0);
        is_whole && version >= value::version_needed(&one.value) && i64::try_from(deadline).is_ok()
    };
    let records: Vec<&Kept> = records.iter().filter(fits).collect();
    let mut writer = FileWriter::new(Vec::new(), style, true);
    for record in &records {
        let content = match &record.value {
            Value::String(text) => Content::Text(text),
            Value::Object(object) => Content::Object(object),
        };
        let entry = Entry {
            key: &record.key,
            deadline_unix_ms: record.deadline_unix_ms,
            usage: record.usage,
            content,
        };
        let written = writer.database(record.database, || None);
        assert!(written.and_then(|()| writer.record(&entry)).is_ok());
    }
    assert!(writer.finish().is_ok());
    let file = writer.into_sink();
    let (back, ending) = read(&file[..]);
    assert_eq!(ending, format!("the end at {}", file.len()));
    assert!(back.iter().eq(records));
}
