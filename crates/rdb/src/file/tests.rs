//! Tests of files of every version, intact and damaged.

use std::io::Read;

use base::crc::crc64;
use proptest::prelude::*;

use super::*;
use crate::reader::Limits;
use crate::tests::{is_same_in, limits, value};
use crate::value;
use crate::{Style, VERSION_VALKEY, Value};

mod golden;
mod members;
mod newer;

/// A record that was read, with all its attributes.
#[derive(Clone, Debug)]
struct Kept {
    database: u32,
    key: Vec<u8>,
    deadline_unix_ms: Option<u64>,
    usage: Option<Usage>,
    value: Value,
}

/// The content of a file.
#[derive(Debug, Default)]
struct Contents {
    records: Vec<Kept>,
    /// All other items, as text.
    others: Vec<String>,
}

/// Returns a few bytes at a time.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len());
        self.0.read(&mut buffer[..count])
    }
}

fn read(file: &[u8]) -> Result<Contents, FileError> {
    read_from(file, limits(16))
}

fn read_from(source: impl Read, limits: Limits) -> Result<Contents, FileError> {
    let mut reader = FileReader::open(source, limits)?;
    let version = reader.version();
    let mut contents = Contents::default();
    while let Some(item) = reader.next()? {
        match item {
            Item::Record(record) => contents.records.push(Kept {
                database: record.database,
                key: record.key.as_bytes().to_vec(),
                deadline_unix_ms: record.deadline_unix_ms,
                usage: record.usage,
                value: record.value(version, &limits)?,
            }),
            Item::Aux { name, value } => contents.others.push(format!(
                "aux {}={}",
                String::from_utf8_lossy(name.as_bytes()),
                String::from_utf8_lossy(value.as_bytes())
            )),
            Item::Function(code) => contents.others.push(format!(
                "function {}",
                String::from_utf8_lossy(code.as_bytes())
            )),
            Item::ModuleAux(name) => contents.others.push(format!("module {name}")),
            other => contents.others.push(format!("{other:?}")),
        }
    }
    reader.expect_nothing_behind()?;
    contents.others.push(format!("{:?}", reader.checksum()));
    Ok(contents)
}

fn written(records: &[Kept], style: Style) -> Vec<u8> {
    let mut writer = FileWriter::new(Vec::new(), style, true);
    writer.aux("redis-ver", b"7.2.4").unwrap();
    writer.aux("redis-bits", b"64").unwrap();
    for record in records {
        let sizes = Some(Sizes {
            keys: 3,
            expiring: 1,
        });
        writer.database(record.database, || sizes).unwrap();
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
        writer.record(&entry).unwrap();
    }
    let len = writer.len_bytes();
    let bytes = writer.finish().unwrap();
    let file = writer.into_sink();
    assert_eq!(file.len() as u64, bytes);
    assert_eq!(len + 9, bytes);
    file
}

fn kept() -> impl Strategy<Value = Kept> {
    let usage = prop_oneof![
        Just(None),
        any::<u64>().prop_map(|seconds| Some(Usage::IdleSeconds(seconds))),
        any::<u8>().prop_map(|count| Some(Usage::Frequency(count))),
    ];
    let deadline = prop::option::of(0..i64::MAX.unsigned_abs());
    let key = prop::collection::vec(any::<u8>(), 0..100);
    (0_u32..3, key, deadline, usage, value(limits(16))).prop_map(
        |(database, key, deadline_unix_ms, usage, value)| Kept {
            database,
            key,
            deadline_unix_ms,
            usage,
            value,
        },
    )
}

proptest! {
    #[test]
    fn files_come_back(
        records in prop::collection::vec(kept(), 0..12),
        version in prop::sample::select(vec![9_u16, 10, 11, 12, VERSION_VALKEY]),
        compresses: bool,
        step in prop_oneof![1_usize..20, Just(usize::MAX)],
    ) {
        let records: Vec<_> = records
            .into_iter()
            .filter(|one| value::version_needed(&one.value) <= version)
            .collect();
        let file = written(&records, Style { version, compresses });
        let back = read_from(Dribble(&file, step), limits(16)).unwrap();
        prop_assert_eq!(back.records.len(), records.len());
        for (back, one) in back.records.iter().zip(&records) {
            prop_assert_eq!(back.database, one.database);
            prop_assert_eq!(&back.key, &one.key);
            prop_assert_eq!(back.deadline_unix_ms, one.deadline_unix_ms);
            prop_assert_eq!(back.usage, one.usage);
            prop_assert!(is_same_in(version, &back.value, &one.value));
        }
        prop_assert!(back.others.last().unwrap().starts_with("Some(Right("));
    }

    #[test]
    fn bytes_of_a_stranger_do_no_harm(body: Vec<u8>, version in 1_u16..=15) {
        let mut file = format!("REDIS{version:04}").into_bytes();
        file.extend_from_slice(&body);
        if let Err(error) = read(&file) {
            prop_assert!(error.offset <= file.len() as u64);
        }
    }
}

fn string(key: &[u8], text: &[u8]) -> Kept {
    Kept {
        database: 0,
        key: key.to_vec(),
        deadline_unix_ms: None,
        usage: None,
        value: Value::String(text.to_vec()),
    }
}

/// Returns a small file with some of every item.
fn small_file() -> Vec<u8> {
    let texts: Vec<_> = ["a", "17", "a longer one"]
        .map(|text| text.as_bytes().to_vec())
        .into();
    let records = [
        string(b"string", b"text"),
        Kept {
            deadline_unix_ms: Some(4_000_000_000_000),
            ..string(b"with a deadline", &[b'x'; 100])
        },
        Kept {
            value: crate::tests::list(&texts, &limits(16)),
            usage: Some(Usage::IdleSeconds(70)),
            ..string(b"list", b"")
        },
        Kept {
            value: crate::tests::set(&texts, &limits(0)),
            database: 2,
            ..string(b"set", b"")
        },
    ];
    let style = Style {
        version: 11,
        compresses: true,
    };
    written(&records, style)
}

#[test]
fn every_flipped_bit_is_refused() {
    let file = small_file();
    assert_eq!(read(&file).unwrap().records.len(), 4);
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut bad = file.clone();
            bad[at] ^= 1 << bit;
            let error = read(&bad).unwrap_err();
            assert!(error.offset <= bad.len() as u64, "{at} {bit} {error}");
        }
    }
}

#[test]
fn every_cut_is_refused_at_its_end() {
    let file = small_file();
    for at in 0..file.len() {
        let error = read(&file[..at]).unwrap_err();
        match error.fault {
            Fault::Magic => assert!(at < HEAD_BYTES),
            Fault::Malformed(Malformed::Ended) => assert_eq!(error.offset, at as u64),
            other => panic!("{at}: {other:?}"),
        }
    }
    let behind = [&file[..], b"x"].concat();
    let error = read(&behind).unwrap_err();
    assert!(matches!(error.fault, Fault::Malformed(Malformed::Behind)));
    assert_eq!(error.offset, file.len() as u64);
}

#[test]
fn what_follows_the_end_can_be_had() {
    let file = [&small_file()[..], b"*1\r\n$4\r\nPING\r\n"].concat();
    let mut reader = FileReader::open(Dribble(&file, 7), limits(16)).unwrap();
    while reader.next().unwrap().is_some() {}
    assert!(reader.next().unwrap().is_none());
    let (mut rest, mut source) = reader.into_rest();
    source.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"*1\r\n$4\r\nPING\r\n");
}

#[test]
fn a_claim_takes_no_memory() {
    // A stated text of 512 MiB in a file of a few bytes; a stated set with the maximum number of
    // members.
    let text = [&b"REDIS0011\x00\x01k\x80\x20\x00\x00\x00"[..], b"few"].concat();
    let set = [&b"REDIS0011\x02\x01k\x81"[..], &[0xff; 8], b"\x01a\x01b"].concat();
    for file in [text, set] {
        let limits = Limits {
            string_bytes_max: 1 << 29,
            ..limits(16)
        };
        let mut reader = FileReader::open(&file[..], limits).unwrap();
        let error = reader.next().unwrap_err();
        assert_eq!(error.offset, file.len() as u64);
        assert!(matches!(error.fault, Fault::Malformed(Malformed::Ended)));
        assert!(reader.into_rest().0.capacity() < 1 << 20);
    }
}

#[test]
fn a_long_value_is_read_and_its_memory_given_back() {
    let long = vec![b'x'; 8 << 20];
    let mut records = vec![string(b"long", &long)];
    records.extend((0..2_000_u32).map(|at| string(&at.to_le_bytes(), &[b'y'; 1000])));
    let style = Style {
        version: 11,
        compresses: false,
    };
    let file = written(&records, style);
    let limits = Limits {
        string_bytes_max: 1 << 29,
        ..limits(16)
    };
    let mut reader = FileReader::open(&file[..], limits).unwrap();
    let mut count = 0;
    while let Some(item) = reader.next().unwrap() {
        if let Item::Record(record) = item {
            count += 1;
            let len = record.value(11, &limits).map(|value| match value {
                Value::String(text) => text.len(),
                Value::Object(_) => 0,
            });
            assert_eq!(len.unwrap(), if count == 1 { long.len() } else { 1000 });
        }
    }
    assert_eq!(count, 2_001);
    assert!(reader.into_rest().0.capacity() < 2 << 20);
}

#[test]
fn unknown_versions_are_refused_by_name() {
    for (head, version) in [
        ("REDIS0000", Some(0)),
        ("REDIS0016", Some(16)),
        ("VALKEY081", Some(81)),
        ("REDIS00x1", None),
        ("RODIS0011", None),
    ] {
        let error = read(head.as_bytes()).unwrap_err();
        match (error.fault, version) {
            (Fault::Version(found), Some(version)) => assert_eq!(found, version),
            (Fault::Magic, None) => {}
            (other, _) => panic!("{head}: {other:?}"),
        }
        assert_eq!(error.offset, 0);
    }
}

#[test]
fn a_source_that_fails_is_told_from_damage() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("a cable"))
        }
    }
    let start: &[u8] = b"REDIS0011\xfe";
    let mut reader = FileReader::open(start.chain(Failing), limits(16)).unwrap();
    let error = reader.next().unwrap_err();
    assert_eq!(error.to_string(), "at offset 10: cannot be read: a cable");
}

fn with_sum(mut file: Vec<u8>) -> Vec<u8> {
    let sum = crc64(0, &file);
    file.extend_from_slice(&sum.to_le_bytes());
    file
}
