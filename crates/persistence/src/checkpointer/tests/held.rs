//! A device that blocks, so that events happen at a known time: between the cut and the first file.

use std::path::Path;

use durability::disk::DiskFile;

use super::*;

/// A device that blocks the listing of a directory, which is the first operation after a cut, until
/// it is released. It can also block the opening of parts, which is the first operation when they
/// are read again.
#[derive(Clone, Debug)]
struct HeldDisk {
    disk: SimulatedDisk,
    lists: Arc<Gate>,
    parts: Arc<Gate>,
}

/// Threads that pass it wait until it is open.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_open: bool,
    waiting: u64,
}

impl Gate {
    /// Waits until `count` threads wait.
    fn wait_for(&self, count: u64) {
        let mut state = self.state.lock().unwrap();
        while state.waiting < count {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn set_open(&self, is_open: bool) {
        self.state.lock().unwrap().is_open = is_open;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        while !state.is_open {
            state = self.changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }
}

impl HeldDisk {
    fn new() -> Self {
        let disk = Self {
            disk: device(5),
            lists: Arc::default(),
            parts: Arc::default(),
        };
        disk.parts.set_open(true);
        disk
    }

    /// Waits until a thread waits behind a cut.
    fn await_cut(&self) {
        self.lists.wait_for(1);
    }

    fn set_open(&self, is_open: bool) {
        self.lists.set_open(is_open);
    }
}

impl Disk for HeldDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        if path
            .extension()
            .is_some_and(|extension| extension == "part")
        {
            self.parts.pass();
        }
        self.disk.open(path)
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open_for_writing(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.lists.pass();
        self.disk.list(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.sync_directory(directory)
    }
}

/// Makes a checkpoint; `meanwhile` runs after the cut, before anything is walked.
fn with_cut(
    store: &Arc<Store>,
    buffer_limit_bytes: u64,
    meanwhile: impl FnOnce(&Checkpointer),
) -> (Outcome, HeldDisk) {
    let disk = HeldDisk::new();
    let checkpointer = checkpointer(store, disk.clone());
    checkpointer.set_buffer_limit(buffer_limit_bytes);
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    disk.await_cut();
    meanwhile(&checkpointer);
    disk.set_open(true);
    let outcome = checkpointer.wait(ticket);
    thread.stop();
    (outcome, disk)
}

/// Counts the requests to save a file beside, and fails on demand.
#[derive(Default)]
struct Beside {
    count: AtomicU64,
    fails: AtomicBool,
}

impl Surroundings for Beside {
    fn save_beside(&self, _: SnapshotLimits, _: &dyn Fn() -> bool) -> Result<u64, Failure> {
        self.count.fetch_add(1, Ordering::Relaxed);
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Failure::System("no room".into())),
            false => Ok(u64::MAX),
        }
    }
}

#[test]
fn saves_leave_more_and_fail_with_it() {
    let store = store();
    let disk = HeldDisk::new();
    let beside = Arc::new(Beside::default());
    let mut setup = setup(&store, disk.clone());
    setup.surroundings = Arc::<Beside>::clone(&beside);
    let checkpointer = Arc::new(Checkpointer::new(setup));
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::Rewrite).unwrap();
    disk.await_cut();
    // One checkpoint behind it serves both.
    let both = checkpointer.schedule(Why::LongLog).unwrap();
    assert_eq!(checkpointer.schedule(Why::Asked), Ok(both));
    assert_eq!(checkpointer.schedule(Why::Reload), Ok(both));
    disk.set_open(true);
    assert!(checkpointer.wait(ticket).result.is_ok());
    let outcome = checkpointer.wait(both);
    assert!(outcome.result.is_ok());
    assert_eq!(
        (outcome.why, outcome.held_bytes_max),
        (Why::Asked, u64::MAX)
    );
    assert_eq!(beside.count.load(Ordering::Relaxed), 1);
    beside.fails.store(true, Ordering::Relaxed);
    let ticket = checkpointer.request(Why::Shutdown).unwrap();
    let failure = Failure::System("no room".into());
    assert_eq!(checkpointer.wait(ticket).result, Err(failure.clone()));
    let figures = checkpointer.figures();
    assert_eq!(figures.last_failure, Some(failure));
    assert_eq!((figures.saves, figures.failures), (2, 1));
    // Its checkpoint counts nevertheless.
    let found = read_manifest(&disk.disk, "/data".as_ref()).unwrap();
    assert_eq!(found.unwrap().generation, 3);
    thread.stop();
}

fn change_everything(store: &Arc<Store>) {
    let mut handle = store.handle();
    for number in 0..300_u16 {
        for name in [format!("text:{number}"), format!("list:{number}")] {
            let key = handle.key(number % 4, name.as_bytes());
            handle
                .upsert(&key, b"another", Deadline::Never, |_| ())
                .unwrap();
        }
    }
    for name in ["set", "sorted", "stream"] {
        let key = handle.key(3, name.as_bytes());
        assert!(handle.delete(&key, |_| ()));
    }
}

#[test]
fn what_changes_behind_the_cut_is_not_in_it() {
    let store = store();
    fill(&store);
    let expected = contents(&store);
    let (outcome, disk) = with_cut(&store, 64 << 20, |_| change_everything(&store));
    outcome.result.unwrap();
    let (loaded, _) = load(&disk.disk, 2).unwrap();
    assert_eq!(contents(&loaded), expected);
    assert_ne!(contents(&store), expected);
}

#[test]
fn a_flush_behind_the_cut_takes_nothing_from_it() {
    let store = store();
    fill(&store);
    let expected = contents(&store);
    let (outcome, disk) = with_cut(&store, 64 << 20, |_| {
        let mut handle = store.handle();
        handle.swap(0, 1);
        assert_eq!(handle.flush(None), expected.len());
        let key = handle.key(0, b"new");
        handle
            .upsert(&key, b"value", Deadline::Never, |_| ())
            .unwrap();
    });
    assert_eq!(outcome.result.unwrap().records(), expected.len() as u64);
    assert_eq!(contents(&load(&disk.disk, 2).unwrap().0), expected);
    assert_eq!(contents(&store).len(), 1);
}

#[test]
fn what_would_hold_too_much_is_given_up() {
    let store = store();
    fill(&store);
    let (outcome, disk) = with_cut(&store, 0, |_| change_everything(&store));
    assert_eq!(outcome.result, Err(Failure::OverLimit));
    assert_eq!(disk.list("/data".as_ref()).unwrap(), [""; 0]);
}

#[test]
fn it_can_be_cancelled_and_the_next_one_is_made() {
    let store = store();
    fill(&store);
    let mut next = None;
    let mut dropped = None;
    let (outcome, disk) = with_cut(&store, 64 << 20, |checkpointer| {
        assert_eq!(checkpointer.request(Why::Asked), Err(Refused::InProgress));
        let figures = checkpointer.figures();
        assert_eq!(figures.current.unwrap().why, Why::SavePoint);
        assert!(figures.scheduled.is_none());
        let ticket = checkpointer.schedule(Why::Asked).unwrap();
        assert_eq!(checkpointer.schedule(Why::Asked), Ok(ticket));
        assert!(checkpointer.figures().scheduled.is_some());
        assert!(checkpointer.cancel());
        dropped = checkpointer.outcome(ticket);
        let ticket = checkpointer.schedule(Why::LongLog).unwrap();
        next = Some(ticket);
        assert_eq!(checkpointer.outcome(ticket), None);
    });
    assert_eq!(outcome.result, Err(Failure::Cancelled));
    assert_eq!(dropped.unwrap().result, Err(Failure::Cancelled));
    assert!(next.is_some());
    let names = disk.disk.list("/data".as_ref()).unwrap();
    assert!(names.len() <= 2, "at most the scheduled one: {names:?}");
    // The remains of the cancelled one do no harm.
    let checkpointer = checkpointer(&store, disk.disk.clone());
    make(&checkpointer).unwrap();
    assert_eq!(contents(&load(&disk.disk, 2).unwrap().0), contents(&store));
    assert!(!checkpointer.cancel(), "there is nothing to cancel");
}

#[test]
fn what_was_given_up_is_not_read_again() {
    let store = store();
    let mut handle = store.handle();
    for number in 0..100 {
        let name = format!("long:{number}");
        let key = handle.key(0, name.as_bytes());
        let value = vec![b'v'; 200_000];
        handle
            .upsert(&key, &value, Deadline::Never, |_| ())
            .unwrap();
    }
    let disk = HeldDisk::new();
    disk.set_open(true);
    disk.parts.set_open(false);
    let setup = setup(&store, disk.clone());
    let writers = setup.writers as u64;
    let checkpointer = Arc::new(Checkpointer::new(setup));
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    disk.parts.wait_for(writers);
    assert!(checkpointer.cancel());
    let before = disk.disk.operations();
    disk.parts.set_open(true);
    let result = checkpointer.wait(ticket).result;
    assert_eq!(result, Err(Failure::Cancelled));
    // A full run has more than a hundred.
    let operations = disk.disk.operations() - before;
    assert!(operations < 60, "{operations}");
    thread.stop();
}

#[test]
fn changes_behind_the_cut_are_still_to_be_saved() {
    let store = store();
    fill(&store);
    let disk = HeldDisk::new();
    let checkpointer = checkpointer(&store, disk.clone());
    let thread = CheckpointThread::start(&checkpointer).unwrap();
    let ticket = checkpointer.request(Why::SavePoint).unwrap();
    disk.await_cut();
    let mut handle = store.handle();
    for number in 0..7 {
        let name = format!("new:{number}");
        let key = handle.key(0, name.as_bytes());
        handle
            .upsert(&key, b"v", Deadline::Never, |entry| {
                entry.effect(|effect| effect.command(&[b"SET"]));
            })
            .unwrap();
    }
    disk.set_open(true);
    checkpointer.wait(ticket).result.unwrap();
    assert_eq!(checkpointer.figures().changes_since_save, 7);
    thread.stop();
}

#[test]
fn a_directory_that_changes_meanwhile_is_for_the_next_one() {
    let store = store();
    fill(&store);
    let expected = contents(&store);
    let mut own = None;
    let (outcome, disk) = with_cut(&store, 64 << 20, |checkpointer| {
        checkpointer.set_directory(Path::new("/elsewhere"));
        own = Some(checkpointer.directory());
    });
    outcome.result.unwrap();
    assert_eq!(own.as_deref(), Some(Path::new("/elsewhere")));
    assert_eq!(contents(&load(&disk.disk, 2).unwrap().0), expected);
}
