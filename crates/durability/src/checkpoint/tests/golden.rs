//! Files in the first version of the formats: the written bytes are exactly these, and they stay
//! readable.
//!
//! A change of a format makes a new version and a new directory of vectors. Only for that,
//! `WRITE_VECTORS=1 cargo test -p durability golden` writes them.

use super::*;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/v1")
}

/// The records of the golden part.
fn records() -> Vec<Kept> {
    let plain = |database, type_code| RecordHead {
        database,
        type_code,
        ..RecordHead::default()
    };
    let with = |deadline_unix_ms, etag| RecordHead {
        deadline_unix_ms,
        etag,
        ..plain(3, 0)
    };
    let bytes = |text: &str| text.as_bytes().to_vec();
    vec![
        (plain(0, 0), bytes("key"), bytes("value")),
        (
            plain(0, 255),
            bytes("number"),
            42_i64.to_le_bytes().to_vec(),
        ),
        (plain(1, 0), Vec::new(), Vec::new()),
        (
            with(Some(1_700_000_000_123), 0),
            bytes("d"),
            bytes("deadline"),
        ),
        (with(None, 5), bytes("e"), bytes("etag")),
        (with(Some(0), u64::MAX), bytes("both"), vec![0, 255]),
    ]
}

fn compare(name: &str, bytes: &[u8]) -> PathBuf {
    compare_at(vectors().join(name), bytes)
}

fn compare_at(path: PathBuf, bytes: &[u8]) -> PathBuf {
    if std::env::var_os("WRITE_VECTORS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "{path:?}");
    path
}

#[test]
fn golden_part() {
    let place = TestDirectory::new();
    let path = place.path().join("0000.part");
    let (entry, _) = write(&path, head(0), &records());
    let golden = compare("checkpoint.part", &std::fs::read(&path).unwrap());
    let mut reader = open(&golden, &entry).unwrap();
    assert_eq!(reader.head(), &head(0));
    assert_eq!(read(&mut reader).unwrap(), records());
}

#[test]
fn golden_manifest() {
    let part = |number, bytes, records, digest| PartEntry {
        name: part_name(number),
        bytes,
        records,
        digest,
    };
    let manifest = Manifest {
        lineage: head(0).lineage,
        generation: 7,
        log_sequence: Some(41_943_040),
        created_unix_ms: 1_700_000_000_000,
        directory: "checkpoint-7-1".into(),
        parts: vec![
            part(0, 1_310_720, 9_000, 0x8f3c_ba98_7654_3210),
            part(1, 1_179_648, 8_100, 0x0123_4567_89ab_cdef),
        ],
        databases: BTreeMap::from([(0, 17_000), (3, 100)]),
        libraries: Vec::new(),
        segments: Vec::new(),
        dictionaries: Vec::new(),
        history: History::default(),
    };
    let golden = compare("checkpoint.manifest", manifest.encode().as_bytes());
    let bytes = std::fs::read(golden).unwrap();
    assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&manifest));
    let with_history = Manifest {
        history: history(),
        ..manifest
    };
    let second = vectors().join("../v2/checkpoint.manifest");
    let golden = compare_at(second, with_history.encode().as_bytes());
    let bytes = std::fs::read(golden).unwrap();
    assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&with_history));
    let segment = |ordinal, records| SegmentEntry {
        ordinal,
        bytes: 67_108_864,
        salt: 0x3c0d_8f5f_4a2b_1e6d,
        records,
        dictionaries: Vec::new(),
    };
    let with_segments = Manifest {
        segments: vec![segment(41, 7), segment(42, 61_000)],
        ..with_history
    };
    let third = vectors().join("../v3/checkpoint.manifest");
    let golden = compare_at(third, with_segments.encode().as_bytes());
    let bytes = std::fs::read(golden).unwrap();
    assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&with_segments));
    let twice = Manifest {
        segments: vec![segment(42, 7), segment(42, 7)],
        ..with_segments.clone()
    };
    let refused = Manifest::decode(twice.encode().as_bytes());
    assert_eq!(refused, Err(ManifestFlaw::Segments));
    golden_manifest_with_dictionaries(&with_segments);
}

fn golden_manifest_with_dictionaries(before: &Manifest) {
    let dictionary = |number| DictionaryEntry {
        number,
        bytes: 65_568,
        sum: 0x9ac3_d2e1,
    };
    let needs = |dictionaries| SegmentEntry {
        ordinal: 43,
        dictionaries,
        ..before.segments[0].clone()
    };
    let with_dictionaries = Manifest {
        segments: vec![before.segments[0].clone(), needs(vec![7, 8])],
        dictionaries: vec![dictionary(7), dictionary(8)],
        ..before.clone()
    };
    let fourth = vectors().join("../v4/checkpoint.manifest");
    let golden = compare_at(fourth, with_dictionaries.encode().as_bytes());
    let bytes = std::fs::read(golden).unwrap();
    assert_eq!(Manifest::decode(&bytes).as_ref(), Ok(&with_dictionaries));
    for (needed, named) in [
        (vec![7], vec![7, 8]),
        (vec![7, 8], vec![7]),
        (vec![8, 7], vec![7, 8]),
        (vec![7, 8], vec![8, 7]),
        (vec![7, 7], vec![7]),
    ] {
        let other = Manifest {
            segments: vec![needs(needed)],
            dictionaries: named.into_iter().map(dictionary).collect(),
            ..with_dictionaries.clone()
        };
        let refused = Manifest::decode(other.encode().as_bytes());
        assert_eq!(refused, Err(ManifestFlaw::Dictionaries), "{other:?}");
    }
}

#[test]
fn a_newer_part_is_refused_by_its_version() {
    let place = TestDirectory::new();
    let mut bytes = std::fs::read(vectors().join("checkpoint.part")).unwrap();
    bytes[8] = 2;
    let path = place.write("0000.part", &bytes);
    let fault = PartReader::open(&SystemDisk, &path).unwrap_err();
    let text = fault.to_string();
    assert!(
        text.ends_with("damaged at offset 0: version 2 of the format is not known"),
        "{text}"
    );
}
