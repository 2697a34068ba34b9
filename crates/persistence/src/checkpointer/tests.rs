//! Checkpoints of a store that is written to, loaded again: the result is the cut.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use base::clock::ManualClock;
use durability::checkpoint::{MANIFEST_NAME, read_manifest, verify};
use durability::simulated::SimulatedDisk;
use engine::{Gate, Shared};
use rdb::Limits;
use store::{
    Batch, DatabaseId, Deadline, Ending, Options, SavedValue, SnapshotSink, SnapshotStep, Totals,
};
use structures::{BlockLimit, HashLimits, Object, SetLimits, SortedSetLimits, StreamLimits};

use super::*;
use crate::bodies::Existing;
use crate::key_delay::KeyDelay;
use crate::loader::{LoadFault, LoadProgress, Source};
use crate::replay::{Origin, Replayer};

mod background;
mod bank;
mod cold;
mod devices;
mod held;
mod streamed;

const NOW_UNIX_MS: u64 = 1_700_000_000_000;

/// String, object, deadline and etag of each key of each database.
type Contents = BTreeMap<(DatabaseId, Vec<u8>), (Vec<u8>, Option<Object>, Option<u64>, u64)>;

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Contents>>);

impl SnapshotSink for Collected {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let mut contents = self.0.lock().unwrap();
        for saved in batch.records() {
            let object = match saved.value {
                SavedValue::Object(object) => Some(object.clone()),
                _ => None,
            };
            let content = (
                saved.value.to_vec(),
                object,
                saved.deadline_unix_ms,
                saved.etag,
            );
            contents.insert((saved.database, saved.key.to_vec()), content);
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _: &Totals) {
        assert_eq!(ending, Ending::Complete);
    }
}

fn contents(store: &Arc<Store>) -> Contents {
    let mut handle = store.handle();
    let sink = Collected::default();
    let limits = SnapshotLimits {
        soft_bytes: u64::MAX,
        hard_bytes: u64::MAX,
    };
    handle
        .begin_snapshot(Box::new(sink.clone()), limits)
        .unwrap();
    while handle.advance_snapshot(1_000) != SnapshotStep::Idle {}
    std::mem::take(&mut *sink.0.lock().unwrap())
}

fn store() -> Arc<Store> {
    Store::new(&Options::default()).unwrap()
}

fn limits() -> Limits {
    Limits {
        string_bytes_max: 512 << 20,
        list_blocks: BlockLimit::default(),
        hash: HashLimits {
            listpack_entries: 16,
            listpack_value_bytes: 64,
        },
        set: SetLimits {
            intset_entries: 16,
            listpack_entries: 16,
            listpack_value_bytes: 64,
        },
        sorted_set: SortedSetLimits {
            listpack_entries: 16,
            listpack_value_bytes: 64,
        },
        stream: StreamLimits {
            block_bytes: 4096,
            block_entries: 100,
        },
    }
}

/// Returns a checkpointer of `store` that writes to `disk`.
fn checkpointer(store: &Arc<Store>, disk: impl Disk + 'static) -> Arc<Checkpointer> {
    Arc::new(Checkpointer::new(setup(store, disk)))
}

fn setup(store: &Arc<Store>, disk: impl Disk + 'static) -> Setup {
    let clock = Arc::new(ManualClock::at_unix_ms(NOW_UNIX_MS));
    Setup {
        store: Arc::clone(store),
        disk: Arc::new(disk),
        directory: "/data".into(),
        background: Arc::new(Scheduler::of_machine(Arc::<ManualClock>::clone(&clock))),
        clock,
        lineage: Lineage([7; 20]),
        writers: 3,
        surroundings: Arc::new(()),
    }
}

/// Returns a device with the directory on it.
fn device(seed: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new(seed);
    disk.create_directory(Path::new("/data")).unwrap();
    disk.settle();
    disk
}

fn make(checkpointer: &Checkpointer) -> Result<Arc<Manifest>, Failure> {
    let mut handle = checkpointer.setup.store.handle();
    checkpointer
        .make_now(&mut handle, Why::Asked)
        .unwrap()
        .result
}

fn load(disk: &dyn Disk, threads: usize) -> Result<(Arc<Store>, Manifest), LoadFault> {
    let directory = Path::new("/data");
    let manifest = read_manifest(disk, directory)?.expect("there is a checkpoint");
    let (limits, progress) = (limits(), LoadProgress::default());
    let source = Source {
        disk,
        directory,
        manifest: &manifest,
        limits: &limits,
        progress: &progress,
        existing: Existing::Refused,
        is_all: true,
        delay: &KeyDelay::default(),
        tier: None,
        gate: &Gate::default(),
    };
    let store = store();
    source.load(&store, threads)?;
    assert_eq!(progress.records.load(Ordering::Relaxed), manifest.records());
    assert_eq!(progress.bytes.load(Ordering::Relaxed), manifest.bytes());
    Ok((store, manifest))
}

/// Fills the store with keys of every kind.
fn fill(store: &Arc<Store>) {
    let mut replayer = Replayer::new(testkit::table(), store, &Shared::default(), Origin::Own);
    let mut run = |database: u16, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        replayer.parts(0, database, &words).unwrap();
    };
    for number in 0..300 {
        let database = number % 4;
        run(database, &format!("SET text:{number} value:{number}"));
        run(
            database,
            &format!("SET number:{number} {}", i64::from(number) - 150),
        );
        let at = NOW_UNIX_MS + u64::from(number);
        run(database, &format!("SET timed:{number} x PXAT {at}"));
        run(database, &format!("RPUSH list:{number} a 1 b {number}"));
        run(3, &format!("HSET hash a 1 field:{number} value:{number}"));
        run(3, &format!("SADD set a member:{number}"));
        run(3, &format!("SADD numbers {number}"));
        run(3, &format!("ZADD sorted {number}.5 member:{number}"));
        run(
            3,
            &format!("XADD stream {}-1 field value:{number}", number + 1),
        );
    }
    let long = "long ".repeat(60_000).replace(' ', "_");
    run(0, &format!("SET long {long}"));
    run(0, &format!("RPUSH longer {long} {long}"));
    run(15, "SET last \"\"");
    run(3, "XGROUP CREATE stream readers 0");
    run(3, "XREADGROUP GROUP readers one COUNT 5 STREAMS stream >");
    run(3, &format!("PEXPIREAT hash {}", NOW_UNIX_MS + 5));
    replayer.finish().unwrap();
    let mut handle = store.handle();
    for number in 0..50_u64 {
        let name = format!("etag:{number}");
        let key = handle.key(1, name.as_bytes());
        let deadline = match number % 2 {
            0 => Deadline::Never,
            _ => Deadline::At(NOW_UNIX_MS),
        };
        handle.modify(&key, |entry| match number % 3 {
            0 => entry.set_with_etag(b"5", deadline, number + 1).unwrap(),
            _ => entry
                .set_with_etag(b"etagged", deadline, number + 1)
                .unwrap(),
        });
    }
    let key = handle.key(3, b"hash");
    handle.modify(&key, |entry| entry.set_etag(77).unwrap());
}

#[test]
fn everything_comes_back() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let expected = contents(&store);
    let kinds: BTreeSet<bool> = expected.values().map(|one| one.1.is_some()).collect();
    assert_eq!(kinds.len(), 2, "strings and objects");
    let manifest = make(&checkpointer(&store, disk.clone())).unwrap();
    assert_eq!(manifest.records(), expected.len() as u64);
    assert_eq!(manifest.parts.len(), 3);
    verify(&disk, "/data".as_ref(), &manifest).unwrap();
    for threads in [1, 2, 8] {
        let (loaded, found) = load(&disk, threads).unwrap();
        assert_eq!(found, *manifest);
        let differs = |(key, value)| (expected.get(key) != Some(value)).then_some(key);
        let loaded = contents(&loaded);
        assert_eq!(loaded.iter().find_map(differs), None);
        assert_eq!(loaded.len(), expected.len());
    }
}

#[test]
fn nothing_is_a_checkpoint_too() {
    let disk = device(1);
    let manifest = make(&checkpointer(&store(), disk.clone())).unwrap();
    assert_eq!((manifest.records(), manifest.parts.len()), (0, 3));
    assert!(contents(&load(&disk, 2).unwrap().0).is_empty());
}

#[test]
fn the_next_one_replaces_it() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let checkpointer = checkpointer(&store, disk.clone());
    let first = make(&checkpointer).unwrap();
    store.handle().flush(Some(3));
    let second = make(&checkpointer).unwrap();
    assert_eq!(second.generation, first.generation + 1);
    assert!(second.records() < first.records());
    let names = disk.list("/data".as_ref()).unwrap();
    assert_eq!(names, [MANIFEST_NAME, &second.directory]);
    assert_eq!(contents(&load(&disk, 2).unwrap().0), contents(&store));
}

#[test]
fn a_database_that_is_not_there_is_refused() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    make(&checkpointer(&store, disk.clone())).unwrap();
    let manifest = read_manifest(&disk, "/data".as_ref()).unwrap().unwrap();
    let (limits, progress) = (limits(), LoadProgress::default());
    let source = Source {
        disk: &disk,
        directory: "/data".as_ref(),
        manifest: &manifest,
        limits: &limits,
        progress: &progress,
        existing: Existing::Refused,
        is_all: true,
        delay: &KeyDelay::default(),
        tier: None,
        gate: &Gate::default(),
    };
    let small = Store::new(&Options { databases: 2 }).unwrap();
    let fault = source.load(&small, 2).unwrap_err();
    assert!(matches!(fault, LoadFault::Record { .. }), "{fault}");
    // Loaded twice: each key exists already.
    let twice = self::store();
    source.load(&twice, 2).unwrap();
    let fault = source.load(&twice, 2).unwrap_err().to_string();
    assert!(fault.ends_with("its key is there twice"), "{fault}");
}

/// With a manifest made by hand, whose own sums are right.
#[test]
fn no_table_is_made_for_more_records_than_the_files_can_hold() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    make(&checkpointer(&store, disk.clone())).unwrap();
    let mut manifest = read_manifest(&disk, "/data".as_ref()).unwrap().unwrap();
    let more = 1 << 22;
    manifest.parts[0].records += more;
    *manifest.databases.get_mut(&0).unwrap() += more;
    let (limits, progress) = (limits(), LoadProgress::default());
    let source = Source {
        disk: &disk,
        directory: "/data".as_ref(),
        manifest: &manifest,
        limits: &limits,
        progress: &progress,
        existing: Existing::Refused,
        is_all: true,
        delay: &KeyDelay::default(),
        tier: None,
        gate: &Gate::default(),
    };
    let loaded = self::store();
    let fault = source.load(&loaded, 2).unwrap_err();
    assert!(matches!(fault, LoadFault::File(_)), "{fault}");
    let index_bytes = loaded.statistics().memory.index_bytes;
    assert!(index_bytes < 4 << 20, "{index_bytes} bytes");
}

#[test]
fn figures_follow() {
    let (store, disk) = (store(), device(1));
    fill(&store);
    let checkpointer = checkpointer(&store, disk.clone());
    let before = checkpointer.figures();
    assert!(before.changes_since_save > 0);
    checkpointer.note_clean(5);
    let clean = checkpointer.figures();
    assert_eq!((clean.changes_since_save, clean.last_save_unix_ms), (0, 5));
    let manifest = make(&checkpointer).unwrap();
    let after = checkpointer.figures();
    assert_eq!((after.saves, after.failures, &after.current), (1, 0, &None));
    assert_eq!(after.last_save_unix_ms, NOW_UNIX_MS);
    assert_eq!(after.last_records, manifest.records());
    assert_eq!(after.last_bytes, manifest.bytes());
    disk.fail(
        disk.operations()..u64::MAX,
        durability::simulated::Fault::Full,
    );
    let failure = make(&checkpointer).unwrap_err();
    let failed = checkpointer.figures();
    assert_eq!((failed.saves, failed.failures), (1, 1));
    assert_eq!(failed.last_failure, Some(failure));
    assert_eq!(failed.last_save_unix_ms, NOW_UNIX_MS);
    disk.heal();
    make(&checkpointer).unwrap();
    assert_eq!(checkpointer.figures().last_failure, None);
}

/// A client that polls for the end would otherwise believe that it is over before it has begun.
#[test]
fn a_checkpoint_is_in_progress_from_the_moment_it_is_asked_for() {
    let checkpointer = checkpointer(&store(), device(1));
    for why in [Why::Asked, Why::Rewrite] {
        let ticket = checkpointer.request(why).unwrap();
        // There is no thread yet that could begin it.
        let figures = checkpointer.figures();
        assert_eq!(figures.current.map(|current| current.why), Some(why));
        assert!(figures.scheduled.is_none());
        assert_eq!(checkpointer.request(why), Err(Refused::InProgress));
        assert!(checkpointer.cancel());
        assert!(checkpointer.figures().current.is_none());
        assert!(checkpointer.outcome(ticket).is_some());
    }
}
