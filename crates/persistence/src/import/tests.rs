//! Files are loaded into a store, and exported again.

use std::sync::Arc;

use base::clock::ManualClock;
use durability::disk::SystemDisk;
use rdb::Style;
use rdb::file::{Content, Entry, FileWriter};
use store::{Options, Policy, Store};
use structures::{Hash, HashLimits, Object};

use super::*;
use crate::export::{ExportError, ExportOptions, export_rdb};
use crate::lines::{Level, Lines};

const NOW_UNIX_MS: u64 = 1_800_000_000_000;

fn env() -> Environment {
    let store = Store::new(&Options { databases: 4 }).unwrap();
    let clock = ManualClock::at_unix_ms(NOW_UNIX_MS);
    let mut env = Environment::new(testkit::table(), store, Arc::new(clock));
    env.threads = 2;
    env
}

fn writer() -> FileWriter<Vec<u8>> {
    let style = Style {
        version: 11,
        compresses: true,
    };
    FileWriter::new(Vec::new(), style, true)
}

fn put(writer: &mut FileWriter<Vec<u8>>, database: u32, key: &[u8], deadline: Option<u64>) {
    writer.database(database, || None).unwrap();
    let entry = Entry {
        key,
        deadline_unix_ms: deadline,
        usage: Some(Usage::IdleSeconds(50)),
        content: Content::Text(b"text"),
    };
    writer.record(&entry).unwrap();
}

fn finish(mut writer: FileWriter<Vec<u8>>) -> Vec<u8> {
    writer.finish().unwrap();
    writer.into_sink()
}

fn load(env: &Environment, file: &[u8], keeps_expired: bool) -> Result<Loaded, ImportError> {
    import_stream(env, file, ImportOptions { keeps_expired }).map(|(loaded, _)| loaded)
}

/// Returns a path of this test's own.
fn path(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("iolite-import-{}-{name}", std::process::id()))
}

#[test]
fn keys_come_into_their_databases_and_the_expired_are_left_out() {
    let mut writer = writer();
    put(&mut writer, 0, b"a", None);
    put(&mut writer, 3, b"a", Some(NOW_UNIX_MS + 1));
    put(&mut writer, 3, b"old", Some(NOW_UNIX_MS - 1));
    writer.function(b"#!lua name=x\n").unwrap();
    let file = finish(writer);
    let env = env();
    env.store.set_memory_limit(0, Policy::AllKeysLru, 5);
    let loaded = load(&env, &file, false).unwrap();
    assert_eq!((loaded.keys, loaded.expired_keys), (2, 1));
    assert_eq!(loaded.bytes, file.len() as u64);
    assert!(loaded.is_summed);
    assert_eq!(loaded.functions, [b"#!lua name=x\n"]);
    let mut handle = env.store.handle();
    handle.begin(NOW_UNIX_MS);
    let key = handle.key(3, b"a");
    let seen = handle.peek(&key, |record| {
        record.map(|record| {
            let deadline = record.deadline_unix_ms();
            (record.to_vec(), deadline, record.idle_seconds())
        })
    });
    assert_eq!(seen, Some((b"text".to_vec(), Some(NOW_UNIX_MS + 1), 50)));
    assert_eq!((handle.len(0), handle.len(3)), (1, 1));
    let other = self::env();
    let kept = load(&other, &file, true).unwrap();
    assert_eq!((kept.keys, kept.expired_keys), (3, 0));
}

#[test]
fn what_this_server_cannot_hold_is_refused() {
    let mut outside = writer();
    put(&mut outside, 4, b"a", None);
    let refused = load(&env(), &finish(outside), false).unwrap_err();
    assert!(matches!(refused, ImportError::Database { number: 4, .. }));
    let mut twice = writer();
    put(&mut twice, 0, b"a", None);
    put(&mut twice, 0, b"b", None);
    put(&mut twice, 0, b"a", None);
    let refused = load(&env(), &finish(twice), false).unwrap_err();
    assert!(matches!(&refused, ImportError::Twice { key, .. } if key == b"a"));
    assert!(refused.to_string().starts_with("at offset "));
}

#[test]
fn a_collection_without_elements_is_left_out() {
    let file = b"REDIS0004\xfe\x00\x01\x01l\x00\x00\x01k\x01v\xff";
    let loaded = load(&env(), file, false).unwrap();
    assert_eq!((loaded.keys, loaded.empty_keys), (1, 1));
}

#[test]
fn a_value_that_lies_is_refused_where_it_is() {
    // Members of a set, one of them twice; many keys behind it.
    let mut file = b"REDIS0004\xfe\x00\x02\x01s\x02\x01a\x01a".to_vec();
    for number in 0..20_000_u32 {
        file.extend_from_slice(b"\x00\x04");
        file.extend_from_slice(&number.to_le_bytes());
        file.extend_from_slice(b"\x01v");
    }
    file.push(0xff);
    let refused = load(&env(), &file, false).unwrap_err();
    let ImportError::File(error) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(error.fault, Fault::Malformed(Malformed::Twice)));
    assert!((14..=20).contains(&error.offset), "{error}");
}

#[test]
fn a_file_that_is_damaged_at_its_end_is_refused() {
    let mut writer = writer();
    put(&mut writer, 0, b"a", None);
    let mut file = finish(writer);
    *file.last_mut().unwrap() ^= 1;
    let path = path("damaged.rdb");
    std::fs::write(&path, &file).unwrap();
    let env = env();
    let refused = import_rdb(&env, &path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(refused, ImportError::File(_)), "{refused:?}");
    assert!(!env.loading.progress().goes_on);
    let missing = import_rdb(&env, &path).unwrap_err();
    assert!(matches!(missing, ImportError::Open(_)));
}

fn fill(env: &Environment) {
    let mut handle = env.store.handle();
    handle.begin(NOW_UNIX_MS);
    for number in 0..5_000_u64 {
        let database = DatabaseId::from(number % 3 == 0);
        let name = format!("key {number}");
        let key = handle.key(database, name.as_bytes());
        let deadline = match number % 5 {
            0 => Deadline::At(NOW_UNIX_MS + 1_000_000 + number),
            _ => Deadline::Never,
        };
        let value = name.repeat(usize::try_from(number % 40).unwrap());
        handle
            .modify(&key, |entry| entry.set(value.as_bytes(), deadline))
            .unwrap();
    }
    let long = handle.key(0, b"long");
    let value = vec![b'x'; 3 << 20];
    handle
        .modify(&long, |entry| entry.set(&value, Deadline::Never))
        .unwrap();
}

/// Database, key, value and deadline of a record.
type Held = (DatabaseId, Vec<u8>, Vec<u8>, Option<u64>);

/// Returns all records of two databases, in a fixed order.
fn contents(env: &Environment) -> Vec<Held> {
    let mut handle = env.store.handle();
    handle.begin(NOW_UNIX_MS);
    let mut all = Vec::new();
    for database in 0..2 {
        let names = (0..5_000).map(|number| format!("key {number}").into_bytes());
        for name in names.chain([b"long".to_vec()]) {
            let key = handle.key(database, &name);
            let seen = handle.peek(&key, |record| {
                record.map(|record| (record.to_vec(), record.deadline_unix_ms()))
            });
            all.extend(seen.map(|(value, deadline)| (database, name, value, deadline)));
        }
    }
    all
}

fn export(
    env: &Environment,
    path: &Path,
    version: Option<u16>,
) -> Result<crate::export::Exported, ExportError> {
    let options = ExportOptions {
        version,
        compresses: true,
        sums_up: true,
    };
    export_rdb(env, &SystemDisk, path, options)
}

#[test]
fn a_store_is_written_and_read_again() {
    let env = env();
    fill(&env);
    let before = contents(&env);
    assert_eq!(before.len(), 5_001);
    for version in [9, 10, 11, 12] {
        let path = path(&format!("again-{version}.rdb"));
        let exported = export(&env, &path, Some(version)).unwrap();
        assert_eq!((exported.version, exported.keys), (version, 5_001));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), exported.bytes);
        let other = self::env();
        // As part of a loading, or as all of it.
        let is_part = version % 2 == 0;
        if is_part {
            other.begin_loading(0);
        }
        let loaded = import_rdb(&other, &path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(other.loading.progress().goes_on, is_part);
        assert_eq!(other.loading.progress().total_bytes, exported.bytes);
        assert_eq!((loaded.keys, loaded.version), (5_001, version));
        assert_eq!(contents(&other), before);
        assert_eq!(other.loading.progress().loaded_bytes, exported.bytes);
        assert_eq!(other.loading.keys(), [5_001, 0]);
    }
    let path = path("unknown.rdb");
    let refused = export(&env, &path, Some(8)).unwrap_err();
    assert!(matches!(refused, ExportError::Unknown(8)));
    assert!(!path.exists());
}

#[test]
fn fields_with_deadlines_are_never_lost() {
    let env = env();
    fill(&env);
    let limits = HashLimits {
        listpack_entries: 128,
        listpack_value_bytes: 64,
    };
    let mut hash = Hash::new();
    let deadline = structures::FieldDeadline::At(NOW_UNIX_MS + 5_000);
    hash.set(b"f", b"v", deadline, 0, &limits).unwrap();
    let mut handle = env.store.handle();
    let key = handle.key(0, b"hash");
    let object = Owned::of_object(Object::Hash(hash), None);
    handle.modify(&key, |entry| entry.put(object)).unwrap();
    let path = path("fields.rdb");
    let refused = export(&env, &path, Some(11)).unwrap_err();
    assert!(matches!(&refused, ExportError::Version { needed: 12, key } if key == b"hash"));
    assert!(!path.exists(), "nothing is left behind");
    let exported = export(&env, &path, None).unwrap();
    assert_eq!((exported.version, exported.keys), (12, 5_002));
    let loaded = import_rdb(&self::env(), &path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded.keys, 5_002);
}

/// The warnings in the log.
#[derive(Debug, Default)]
struct Warnings(Mutex<Vec<String>>);

impl Lines for Warnings {
    fn line(&self, level: Level, message: fmt::Arguments<'_>) {
        if level == Level::Warning {
            self.0.lock().unwrap().push(message.to_string());
        }
    }
}

/// Returns the deadline of a member, as KeyDB writes it.
fn deadline_of(member: &[u8], time: &[u8]) -> Vec<u8> {
    let text = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()][..], bytes].concat();
    let name = |name: &[u8]| [&b"\xfa"[..], &text(name)].concat();
    [
        name(b"keydb-subexpire-key"),
        text(member),
        name(b"keydb-subexpire-when"),
        text(time),
    ]
    .concat()
}

#[test]
fn deadlines_of_members_are_kept_in_hashes_and_told_of_in_sets() {
    let late = (NOW_UNIX_MS + 5_000).to_string();
    let long = LONG_BYTES + 1;
    let head = [&b"\x80"[..], &u32::try_from(long).unwrap().to_be_bytes()].concat();
    let file = [
        b"REDIS0004\xfe\x00\x04\x05small\x02\x01f\x01v\x01g\x01v",
        &deadline_of(b"f", late.as_bytes())[..],
        b"\x02\x01s\x02\x01a\x01b",
        &deadline_of(b"a", late.as_bytes()),
        &deadline_of(b"b", late.as_bytes()),
        b"\x04\x05large\x01\x01f",
        &head,
        &vec![b'x'; long],
        &deadline_of(b"f", late.as_bytes()),
        b"\x02\x01t\x01\x01a",
        &deadline_of(b"a", late.as_bytes()),
        b"\xff",
    ]
    .concat();
    let mut env = env();
    let warnings = Arc::new(Warnings::default());
    env.log = Arc::clone(&warnings) as Arc<_>;
    assert_eq!(load(&env, &file, false).unwrap().keys, 4);
    let mut handle = env.store.handle();
    handle.begin(NOW_UNIX_MS);
    for name in [&b"small"[..], b"large"] {
        let key = handle.key(0, name);
        let deadline = handle.peek(&key, |record| {
            let object = record.and_then(|record| record.object()).unwrap();
            let Object::Hash(hash) = &*object else {
                panic!("a hash");
            };
            hash.get(b"f", NOW_UNIX_MS).unwrap().deadline_unix_ms
        });
        assert_eq!(deadline, Some(NOW_UNIX_MS + 5_000));
    }
    let expected = "3 deadlines of members of sets and sorted sets were left out, the first at the key 's': only fields of hashes \
                    have deadlines here";
    assert_eq!(*warnings.0.lock().unwrap(), [expected]);
}
