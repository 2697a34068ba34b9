//! Checkpoints as RDB streams, loaded again: the result is what the version can hold.

use structures::{FieldDeadline, Kept as _};

use super::*;
use crate::environment::Environment;
use crate::import::{ImportOptions, import_stream};
use crate::rdb_stream::{StreamFault, StreamOptions, Streamed, stream_checkpoint};

fn options(version: u16) -> StreamOptions {
    StreamOptions {
        version,
        compresses: false,
        sums_up: true,
        origin: vec![("redis-ver", b"7.2.4".to_vec())],
        has_data: true,
        has_functions: true,
        allows_loss: false,
    }
}

fn stream(
    disk: &dyn Disk,
    manifest: &Manifest,
    options: &StreamOptions,
) -> Result<(Vec<u8>, Streamed), StreamFault> {
    let mut bytes = Vec::new();
    let streamed = stream_checkpoint(
        disk,
        Path::new("/data"),
        manifest,
        options,
        &limits(),
        &mut bytes,
    )?;
    assert_eq!(streamed.bytes, bytes.len() as u64);
    Ok((bytes, streamed))
}

/// Returns the content of a stream; etags are not in it.
fn loaded(bytes: &[u8]) -> (Contents, Vec<Vec<u8>>) {
    let store = store();
    let clock = Arc::new(ManualClock::at_unix_ms(NOW_UNIX_MS));
    let env = Environment::new(testkit::table(), Arc::clone(&store), clock);
    let options = ImportOptions {
        keeps_expired: true,
    };
    let (loaded, reader) = import_stream(&env, bytes, options).unwrap();
    assert!(loaded.is_summed);
    let (rest, _) = reader.into_rest();
    assert!(rest.is_empty());
    (contents(&store), loaded.functions)
}

fn without_etags(mut contents: Contents) -> Contents {
    contents.values_mut().for_each(|value| value.3 = 0);
    contents
}

fn give_fields_deadlines(store: &Arc<Store>) {
    let mut handle = store.handle();
    for count in [3, 40] {
        let mut hash = structures::Hash::new();
        for number in 0..count {
            let deadline = match number % 2 {
                0 => FieldDeadline::Never,
                _ => FieldDeadline::At(NOW_UNIX_MS + number),
            };
            let name = format!("field:{number}");
            hash.set(name.as_bytes(), b"v", deadline, 0, &limits().hash)
                .unwrap();
        }
        let name = format!("lasting:{count}");
        let key = handle.key(2, name.as_bytes());
        let owned = store::Owned::of_object(hash.into_object(), None);
        handle.modify(&key, |entry| entry.put(owned).unwrap());
    }
}

#[test]
fn a_checkpoint_comes_back_in_the_versions_of_peers() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let manifest = make(&checkpointer(&store, disk.clone())).unwrap();
    let mut manifest = (*manifest).clone();
    manifest.libraries = vec![b"no library at all".to_vec()];
    let expected = without_etags(contents(&store));
    for version in [9, 10, 11, 12, 80] {
        let mut options = options(version);
        options.allows_loss = version == 9;
        let (bytes, streamed) = stream(&disk, &manifest, &options).unwrap();
        let magic: &[u8] = match version {
            80 => b"VALKEY080",
            _ => format!("REDIS{version:04}").leak().as_bytes(),
        };
        assert!(bytes.starts_with(magic));
        assert_eq!(streamed.keys, expected.len() as u64);
        assert_eq!(streamed.lost, u64::from(version == 9));
        let (found, functions) = loaded(&bytes);
        assert_eq!(functions.len(), usize::from(version != 9));
        assert_eq!(found.len(), expected.len());
        for (key, value) in &expected {
            // Version 9 does not count the entries of streams, and 10 has less data on consumers.
            let is_same = key.1 == b"stream" && version < 11 || found.get(key) == Some(value);
            assert!(is_same, "{version}: {key:?}");
        }
        options.compresses = true;
        let (smaller, _) = stream(&disk, &manifest, &options).unwrap();
        assert!(smaller.len() < bytes.len());
        assert_eq!(loaded(&smaller).0.len(), expected.len());
    }
    assert!(matches!(
        stream(&disk, &manifest, &options(9)),
        Err(StreamFault::Functions(9))
    ));
    assert!(matches!(
        stream(&disk, &manifest, &options(13)),
        Err(StreamFault::Unknown(13))
    ));
}

#[test]
fn deadlines_of_fields_need_a_version_that_has_them() {
    let (store, disk) = (store(), device(1));
    give_fields_deadlines(&store);
    let manifest = make(&checkpointer(&store, disk.clone())).unwrap();
    let expected = contents(&store);
    for version in [12, 80] {
        let (bytes, _) = stream(&disk, &manifest, &options(version)).unwrap();
        assert_eq!(loaded(&bytes).0, expected, "{version}");
    }
    for version in [9, 10, 11] {
        let refused = stream(&disk, &manifest, &options(version));
        assert!(matches!(refused, Err(StreamFault::Version { .. })));
        let mut options = options(version);
        options.allows_loss = true;
        let (bytes, streamed) = stream(&disk, &manifest, &options).unwrap();
        assert_eq!(streamed.lost, 2);
        assert_eq!(loaded(&bytes).0.len(), expected.len());
    }
}

#[test]
fn what_is_not_wanted_is_left_out() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let manifest = make(&checkpointer(&store, disk.clone())).unwrap();
    let mut manifest = (*manifest).clone();
    manifest.libraries = vec![b"library".to_vec()];
    let mut options = options(11);
    options.has_data = false;
    let (bytes, streamed) = stream(&disk, &manifest, &options).unwrap();
    assert_eq!(streamed.keys, 0);
    assert_eq!(loaded(&bytes), (Contents::new(), vec![b"library".to_vec()]));
    options.has_functions = false;
    let (bytes, _) = stream(&disk, &manifest, &options).unwrap();
    assert_eq!(loaded(&bytes), (Contents::new(), Vec::new()));
}
