//! Simulates all of persistence in one process without sockets or files, from one seed: commands,
//! their effects in the log, checkpoints, cuts of the log, power cuts, ends of the process, failing
//! devices, and recovery.
//!
//! ```text
//!   random requests ──► Engine ──► store ──► LogSink ──► Log ──┐
//!        │                          └──► checkpoints ──────────┤ SimulatedDisk
//!        └──► state behind each request                        │   crash(seed)
//!                    ▲ compared with ◄──── recover ◄───────────┘
//! ```
//!
//! Everything between the engine and the device is the server's own code. The recovered state must
//! be the state after some frame, and not before what was promised. If that frame is in the middle
//! of one request's effects, the rest of them is applied by hand before the states are compared.
//!
//! One seed yields one history: only one thread at a time uses the device, even if a checkpoint has
//! a thread for its part. `SIMULATION_SEED` and `SIMULATION_SEEDS` choose other seeds than in CI.

use std::error::Error;
use std::io;
use std::ops::{ControlFlow, Range};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::clock::{Clock, ManualClock};
use base::random::Prng;
use durability::checkpoint::{
    History, Lineage, Manifest, PartHead, PartWriter, free_directory, part_name, remove_replaced,
    replace_manifest,
};
use durability::disk::Disk;
use durability::log::{Level, Log, Options};
use durability::planted::{self, Bug};
use durability::simulated::{Fault, SimulatedDisk};
use engine::{ClientRecord, Engine, Next, Session, Share};
use persistence::bodies;
use persistence::checkpointer::{Checkpointer, Setup, Surroundings, Why};
use persistence::recovery::{Effects, Place, Recovered, Target, recover};
use persistence::replay::{Origin, Replayer};
use persistence::sink::LogSink;
use persistence::tail::Appended;
use protocol::{ReplyBuffer, encode_request};
use server::config::{Origin as ConfigOrigin, Settings, SharedConfig};
use server::node::Node;
use server::port::Port;
use store::{
    Batch, Cause, DatabaseId, EffectSink, Ending, Handle, SnapshotLimits, SnapshotSink, Store,
    Totals,
};

use crate::dump::{Record, dump};

pub(crate) const DIRECTORY: &str = "data/iolite-data";
pub(crate) const LOG_DIRECTORY: &str = "data/iolite-data/log";
const LIVES: u64 = 4;
const STEPS_MAX: u64 = 90;
const LINEAGE: Lineage = Lineage([7; 20]);

/// The result of a step. Errors come from power cuts or injected faults: everything else is a
/// failure of the test.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// The effects of one frame, and the frame's end.
struct Stated {
    end: u64,
    effects: Vec<(DatabaseId, Vec<u8>)>,
}

/// The whole state at one length of the log.
struct Mark {
    end: u64,
    unix_ms: u64,
    state: Vec<Record>,
}

/// The test's knowledge, independent of the device.
#[derive(Default)]
pub(crate) struct Truth {
    /// The end of what was promised to survive a power cut.
    durable: u64,
    /// The end of what was promised to survive the end of the process.
    written: u64,
    /// Whether promises are made: a checkpoint is in force, and the log continues from it.
    counts: bool,
    marks: Vec<Mark>,
    stated: Arc<Mutex<Vec<Stated>>>,
    tally: Tally,
}

/// Counts of events.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    frames: u64,
    checkpoints: u64,
    recoveries: u64,
    power_cuts: u64,
    faults: u64,
    frames_lost: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.frames += other.frames;
        self.checkpoints += other.checkpoints;
        self.recoveries += other.recoveries;
        self.power_cuts += other.power_cuts;
        self.faults += other.faults;
        self.frames_lost += other.frames_lost;
    }
}

impl Truth {
    fn stated(&self) -> MutexGuard<'_, Vec<Stated>> {
        self.stated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the current state, if it may have changed.
    fn mark(&mut self, end: u64, unix_ms: u64, handle: &mut Handle) {
        if self.marks.last().is_none_or(|last| last.end < end) {
            let state = dump(handle, unix_ms);
            self.marks.push(Mark {
                end,
                unix_ms,
                state,
            });
        }
    }

    /// Compares the recovered state with the recorded one.
    fn compare(
        &self,
        node: &Node,
        end: u64,
        again: impl FnOnce() -> Outcome<Arc<Node>>,
    ) -> Outcome<()> {
        let Self {
            durable, written, ..
        } = *self;
        assert!(
            end >= durable,
            "lost: {durable} was durable, {end} is there"
        );
        assert!(
            end >= written,
            "lost: {written} was written, {end} is there"
        );
        let mark = self.marks.iter().find(|mark| mark.end >= end);
        let mark = mark.unwrap_or_else(|| panic!("come back: nothing reached {end}"));
        if mark.end == end {
            let found = dump(&mut node.core.store.handle(), mark.unix_ms);
            expect_equal(&found, &mark.state, end);
            return Ok(());
        }
        // The frame is in the middle of one request's effects.
        let node = again()?;
        let mut rest = Replayer::new(
            testkit::table(),
            &node.core.store,
            &node.core.shared,
            Origin::Own,
        );
        for stated in self.stated().iter() {
            if stated.end > end && stated.end <= mark.end {
                for (database, request) in &stated.effects {
                    rest.command(stated.end, *database, request).unwrap();
                }
            }
        }
        rest.finish().unwrap();
        let found = dump(&mut node.core.store.handle(), mark.unix_ms);
        expect_equal(&found, &mark.state, end);
        Ok(())
    }

    /// Notes that the log ends here now. Promises stay as they were made: what was read is not
    /// durable because of that.
    fn ends_at(&mut self, end: u64, unix_ms: u64, handle: &mut Handle) {
        let before = self.stated().len();
        self.stated().retain(|stated| stated.end <= end);
        let lost = before - self.stated().len();
        self.tally.frames_lost += lost as u64;
        self.marks.retain(|mark| mark.end <= end);
        self.mark(end, unix_ms, handle);
    }
}

fn expect_equal(found: &[Record], expected: &[Record], end: u64) {
    if found != expected {
        let differs = |one: &[Record], other: &[Record]| -> Vec<String> {
            let only = one.iter().filter(|record| !other.contains(record));
            only.map(|record| format!("{record:?}")).collect()
        };
        let (more, less) = (differs(found, expected), differs(expected, found));
        panic!("wrong: at {end} there is {more:?} instead of {less:?}");
    }
}

/// A sink that writes effects to the log, and records them.
struct Tee {
    log: LogSink,
    appended: Appended,
    depth: u32,
    open: Vec<(DatabaseId, Vec<u8>)>,
    stated: Arc<Mutex<Vec<Stated>>>,
}

impl Tee {
    fn note(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        let mut request = Vec::new();
        encode_request(&mut request, parts);
        self.open.push((database, request));
        self.close();
    }

    fn close(&mut self) {
        if self.depth == 0 && !self.open.is_empty() {
            let (end, effects) = (self.appended.end(), std::mem::take(&mut self.open));
            let mut stated = self.stated.lock().unwrap_or_else(PoisonError::into_inner);
            stated.push(Stated { end, effects });
        }
    }
}

impl EffectSink for Tee {
    fn command(&mut self, database: DatabaseId, parts: &[&[u8]]) {
        self.log.command(database, parts);
        self.note(database, parts);
    }

    fn removed(&mut self, database: DatabaseId, key: &[u8], cause: Cause) {
        self.log.removed(database, key, cause);
        self.note(database, &[b"DEL", key]);
    }

    fn member_expired(&mut self, database: DatabaseId, key: &[u8], member: &[u8]) {
        self.log.member_expired(database, key, member);
        self.note(database, &[b"HDEL", key, member]);
    }

    fn stands(&mut self, generation: u64, now_unix_ms: u64) {
        self.log.stands(generation, now_unix_ms);
    }

    fn group_begin(&mut self) {
        self.log.group_begin();
        self.depth += 1;
    }

    fn group_end(&mut self) {
        self.log.group_end();
        self.depth -= 1;
        self.close();
    }
}

/// The log as the surroundings of the server's own checkpointer.
struct Around(Arc<Log>);

impl Surroundings for Around {
    fn log_sequence(&self) -> Option<u64> {
        Some(self.0.tail())
    }

    fn make_log_durable(&self) -> io::Result<()> {
        make_durable(&self.0)
    }

    fn in_force(&self, manifest: &Manifest) {
        // The next cut removes what is left.
        let _cut = self.0.cut(manifest.log_sequence.unwrap());
    }
}

fn make_durable(log: &Log) -> io::Result<()> {
    let up_to = log.tail();
    log.request_sync(up_to);
    log.sync_step();
    match log.fault() {
        Some(fault) => Err(io::Error::other(fault.text)),
        None if log.durable() >= up_to => Ok(()),
        None => Err(io::Error::other("a sync that was asked for has not come")),
    }
}

/// A checkpoint that is made in steps, with requests in between.
struct Walk {
    generation: u64,
    log_sequence: u64,
    created_unix_ms: u64,
    saved: Arc<Mutex<Saved>>,
}

#[derive(Default)]
struct Saved {
    batches: Vec<Batch>,
    ending: Option<Ending>,
}

struct Collector(Arc<Mutex<Saved>>);

impl SnapshotSink for Collector {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        self.0.lock().unwrap().batches.push(batch);
        ControlFlow::Continue(())
    }

    fn end(&mut self, ending: Ending, _: &Totals) {
        self.0.lock().unwrap().ending = Some(ending);
    }
}

/// The time from recovery to the end of the process or a power cut.
pub(crate) struct Life<'t> {
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    node: Arc<Node>,
    engine: Engine,
    session: Session,
    /// The handle of the thread that makes checkpoints.
    walker: Handle,
    walk: Option<Walk>,
    log: Arc<Log>,
    truth: &'t mut Truth,
    requests: Vec<Vec<Vec<u8>>>,
    next_step_ms: u64,
}

pub(crate) fn place(disk: &SimulatedDisk) -> Place {
    Place {
        disk: Arc::new(disk.clone()),
        directory: DIRECTORY.into(),
        log_directory: LOG_DIRECTORY.into(),
    }
}

fn empty_node(clock: &Arc<ManualClock>) -> Arc<Node> {
    let store = Store::new(&store::Options::default()).unwrap();
    let config = SharedConfig::new(Settings::default(), ConfigOrigin::default());
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    Arc::new(Node::new(testkit::table(), store, Arc::new(config), clock))
}

fn session(unix_ms: u64) -> Session {
    let client = ClientRecord::new(1, String::new(), String::new(), 0, -1, unix_ms);
    Session::new(Arc::new(client), true)
}

/// Recovers the device's data into a new node.
pub(crate) fn recovered(
    disk: &SimulatedDisk,
    clock: &Arc<ManualClock>,
    manifest: &Manifest,
) -> Outcome<(Arc<Node>, Recovered)> {
    let node = empty_node(clock);
    let recovered = recover(
        &node.core.env,
        &place(disk),
        manifest.clone(),
        (Target::End, Effects::Applied),
        1,
    )?;
    node.end_loading();
    Ok((node, recovered))
}

impl<'t> Life<'t> {
    /// Recovers the device's data, and checks it.
    pub(crate) fn begin(
        disk: &SimulatedDisk,
        clock: &Arc<ManualClock>,
        truth: &'t mut Truth,
        random: &mut Prng,
    ) -> Outcome<Self> {
        let manifest = place(disk).manifest()?;
        let now_unix_ms = clock.now_unix_ms();
        let (node, start) = match &manifest {
            None => {
                assert!(!truth.counts, "lost: there is no checkpoint any more");
                (empty_node(clock), 0)
            }
            Some(manifest) => {
                truth.tally.recoveries += 1;
                let (node, found) = recovered(disk, clock, manifest)?;
                let end = found.next_sequence();
                let again = || Ok(recovered(disk, clock, manifest)?.0);
                truth.compare(&node, end, again)?;
                node.core
                    .store
                    .raise_generation(found.generation())
                    .unwrap();
                (node, end)
            }
        };
        truth.ends_at(start, now_unix_ms, &mut node.core.store.handle());
        let options = options(random);
        let (device, own_clock) = (Arc::new(disk.clone()), Arc::clone(clock));
        let log = Log::open(device, own_clock, Path::new(LOG_DIRECTORY), start, options)?;
        let appended = Appended::default();
        let mut handle = node.core.store.handle();
        handle.set_sink(Some(Box::new(Tee {
            log: LogSink::new(log.appender(), appended.clone()),
            appended,
            depth: 0,
            open: Vec::new(),
            stated: Arc::clone(&truth.stated),
        })));
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
        let seed = random.next_u64();
        let mut life = Self {
            disk: disk.clone(),
            clock: Arc::clone(clock),
            engine: Engine::new(
                testkit::table(),
                handle,
                Arc::clone(&node.core.shared),
                shared,
                Prng::seeded(seed),
            ),
            session: session(now_unix_ms),
            walker: node.core.store.handle(),
            walk: None,
            node,
            next_step_ms: log.sync_step(),
            log,
            truth,
            requests: Vec::new(),
        };
        if manifest.is_none() {
            life.checkpoint()?;
        }
        life.take_the_log_by_its_word();
        Ok(life)
    }

    fn step(&mut self, random: &mut Prng) -> Outcome<()> {
        let result = match random.below(100) {
            0..60 => {
                self.request(random);
                Ok(())
            }
            60..72 => self.write_out(),
            72..82 => {
                self.next_step_ms = self.log.sync_step();
                Ok(())
            }
            82..85 => make_durable(&self.log).map_err(Into::into),
            85..89 => {
                self.pass(random.below(700));
                Ok(())
            }
            89..95 => self.advance_walk(random),
            95..97 if self.walk.is_none() => self.checkpoint(),
            97..99 => {
                let levels = [Level::Os, Level::EverySecond, Level::Always];
                self.log.set_level(levels[random.index(levels.len())]);
                Ok(())
            }
            _ => self.log.close().map_err(Into::into),
        };
        self.take_the_log_by_its_word();
        result
    }

    /// Runs a request, if the log has space for its effects.
    pub(crate) fn request(&mut self, random: &mut Prng) {
        if !self.log.has_room() {
            return;
        }
        if self.requests.is_empty() {
            let (seed, round) = (random.next_u64(), random.below(1 << 32));
            self.requests = testkit::differential::requests_of_round(seed, round);
            self.requests.truncate(25);
        }
        let Some(request) = self.requests.pop() else {
            return;
        };
        let parts: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        let (mut input, mut output) = (Vec::new(), ReplyBuffer::new());
        encode_request(&mut input, &parts);
        let share = Share {
            requests_max: 1,
            reply_bytes_max: usize::MAX,
        };
        let mut port = Port::new(&self.node, true);
        let outcome = self
            .engine
            .run(&mut self.session, &mut port, &input, &mut output, share);
        if outcome.next != Next::Read {
            self.session = session(self.clock.now_unix_ms());
        }
        self.truth.tally.requests += 1;
        self.clock.advance_ms(random.below(30));
        self.mark();
    }

    /// Removes what has expired, and records the state.
    fn mark(&mut self) {
        let now_unix_ms = self.clock.now_unix_ms();
        let handle = self.engine.store();
        while handle.tick(now_unix_ms) {}
        self.truth.mark(self.log.tail(), now_unix_ms, handle);
    }

    /// Ends in order: everything is durable. Returns the whole state.
    pub(crate) fn end(mut self) -> Vec<Record> {
        self.log.close().unwrap();
        dump(self.engine.store(), self.clock.now_unix_ms())
    }

    fn write_out(&mut self) -> Outcome<()> {
        let tail = self.log.tail();
        self.log.write_out(tail)?;
        self.truth.written = if self.truth.counts { tail } else { 0 };
        Ok(())
    }

    /// Lets time pass, and runs the log's steps whenever they are due.
    fn pass(&mut self, mut ms: u64) {
        while self.next_step_ms <= ms {
            let step_ms = self.next_step_ms.max(1);
            self.clock.advance_ms(step_ms);
            ms = ms.saturating_sub(step_ms);
            self.next_step_ms = self.log.sync_step();
        }
        self.clock.advance_ms(ms);
        self.next_step_ms -= ms;
        self.mark();
    }

    /// Counts what the log calls durable as promised from now on.
    fn take_the_log_by_its_word(&mut self) {
        if self.truth.counts {
            self.truth.durable = self.truth.durable.max(self.log.durable());
        }
    }

    /// Runs the server's own checkpointer, from the cut to the removal of what it replaces.
    pub(crate) fn checkpoint(&mut self) -> Outcome<()> {
        let checkpointer = Checkpointer::new(Setup {
            store: Arc::clone(&self.node.core.store),
            disk: Arc::new(self.disk.clone()),
            directory: DIRECTORY.into(),
            clock: Arc::<ManualClock>::clone(&self.clock),
            lineage: LINEAGE,
            background: Arc::clone(&self.node.work.background),
            writers: 1,
            surroundings: Arc::new(Around(Arc::clone(&self.log))),
        });
        let made = checkpointer.make_now(&mut self.walker, Why::Asked);
        made.unwrap().result?;
        self.truth.counts = true;
        self.truth.tally.checkpoints += 1;
        Ok(())
    }

    /// Runs one step of a checkpoint: the cut, some buckets, or all writes to the device.
    fn advance_walk(&mut self, random: &mut Prng) -> Outcome<()> {
        let Some(walk) = &self.walk else {
            let saved = Arc::<Mutex<Saved>>::default();
            let log_sequence = self.log.tail();
            let sink = Box::new(Collector(Arc::clone(&saved)));
            let begun = self.walker.begin_snapshot(sink, SnapshotLimits::default());
            self.walk = Some(Walk {
                generation: begun.unwrap(),
                log_sequence,
                created_unix_ms: self.clock.now_unix_ms(),
                saved,
            });
            return Ok(());
        };
        let is_over = walk.saved.lock().unwrap().ending.is_some();
        if !is_over {
            let all = random.below(3) == 0;
            self.walker.advance_snapshot(if all {
                usize::MAX
            } else {
                1 + random.index(20)
            });
            return Ok(());
        }
        let walk = self.walk.take().unwrap();
        self.put_in_force(&walk)
    }

    fn put_in_force(&mut self, walk: &Walk) -> Outcome<()> {
        let directory = Path::new(DIRECTORY);
        let name = free_directory(&self.disk, directory, walk.generation)?;
        let own = directory.join(&name);
        self.disk.create_directory(&own)?;
        let head = PartHead {
            value_version: bodies::STYLE.version,
            part: 0,
            generation: walk.generation,
            created_unix_ms: walk.created_unix_ms,
            lineage: LINEAGE,
        };
        let mut part = PartWriter::create(&self.disk, &own.join(part_name(0)), head)?;
        let mut scratch = Vec::new();
        for batch in &walk.saved.lock().unwrap().batches {
            bodies::write_batch(batch, &mut part, &mut scratch, || (), &mut |_, _| Ok(()))?;
        }
        let (entry, databases) = part.finish(&part_name(0))?;
        self.disk.sync_directory(&own)?;
        let manifest = Manifest {
            lineage: LINEAGE,
            generation: walk.generation,
            log_sequence: Some(walk.log_sequence),
            created_unix_ms: walk.created_unix_ms,
            directory: name,
            parts: vec![entry],
            databases,
            libraries: Vec::new(),
            segments: Vec::new(),
            dictionaries: Vec::new(),
            history: History::default(),
        };
        make_durable(&self.log)?;
        self.disk.sync_directory(directory)?;
        replace_manifest(&self.disk, directory, &manifest)?;
        remove_replaced(&self.disk, directory, &manifest)?;
        self.log.cut(walk.log_sequence)?;
        self.truth.tally.checkpoints += 1;
        Ok(())
    }
}

/// Returns small sizes, so that every limit is reached soon.
fn options(random: &mut Prng) -> Options {
    let chunk_bytes = 1 << (6 + random.below(8));
    Options {
        segment_bytes: 1 << (11 + random.below(4)),
        segment_bytes_first: 1 << (8 + random.below(8)),
        chunk_bytes,
        // Half of them have no ring.
        ring_bytes: chunk_bytes * random.below(8).saturating_sub(3),
        ring_bytes_min: chunk_bytes,
        ring_bytes_first: chunk_bytes * random.below(5),
        piece_bytes: 1 << (8 + random.below(7)),
        in_place_bytes: 1 << (6 + random.below(8)),
        held_bytes_max: 1 << (14 + random.below(7)),
        unsynced_bytes_max: 1 << (12 + random.below(5)),
        seed: Some(random.next_u64()),
    }
}

/// Runs one seed: a device, and lives one after the other.
fn run(seed: u64) -> Tally {
    let mut random = Prng::seeded(seed);
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let mut truth = Truth::default();
    let mut disk = SimulatedDisk::new(random.next_u64());
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk.settle();
    for life in 0..=LIVES {
        let is_cut = random.below(4) > 0 && life < LIVES;
        let steps = random.below(STEPS_MAX);
        if is_cut {
            disk.cut_power_at(disk.operations() + random.below(1 + 2 * steps));
        }
        if random.below(4) == 0 {
            let first = disk.operations() + random.below(150);
            let fault = Fault::ALL[random.index(Fault::ALL.len())];
            disk.fail(first..first + 1 + random.below(3), fault);
        }
        live(&disk, &clock, &mut truth, &mut random, steps);
        disk.heal();
        if is_cut {
            truth.tally.power_cuts += 1;
            disk = disk.crash(random.next_u64());
            truth.written = truth.durable;
        }
    }
    live(&disk, &clock, &mut truth, &mut random, 0);
    let kept = truth.stated().len() as u64;
    truth.tally.frames = truth.tally.frames_lost + kept;
    truth.tally
}

fn live(
    disk: &SimulatedDisk,
    clock: &Arc<ManualClock>,
    truth: &mut Truth,
    random: &mut Prng,
    steps: u64,
) {
    let before = disk.faults_struck();
    let struck = || disk.faults_struck() - before;
    let check = |error: Box<dyn Error>, what: &str| {
        assert!(disk.is_off() || struck() > 0, "{what}: {error}");
    };
    match Life::begin(disk, clock, truth, random) {
        Err(error) => check(error, "refused to start"),
        Ok(mut life) => {
            for _ in 0..steps {
                if let Err(error) = life.step(random) {
                    check(error, "failed for no reason");
                }
                if disk.is_off() {
                    break;
                }
            }
        }
    }
    truth.tally.faults += struck();
}

#[allow(clippy::print_stderr, reason = "for who looks into a failure")]
fn run_all(seeds: Range<u64>) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = panic::catch_unwind(AssertUnwindSafe(|| run(seed)));
        let tally = tally.unwrap_or_else(|failure| {
            eprintln!(
                "To see it again: SIMULATION_SEED={seed} SIMULATION_SEEDS=1 cargo test -p server --test it \
                 simulation::what"
            );
            panic::resume_unwind(failure);
        });
        sum.add(&tally);
    }
    sum
}

fn number_from(name: &str, or: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(or, |text| text.parse().unwrap())
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn what_comes_back_is_what_was_promised() {
    let first = number_from("SIMULATION_SEED", 0);
    let seeds = number_from("SIMULATION_SEEDS", 100);
    let end = first + seeds;
    let middle = first.midpoint(end);
    let tally = std::thread::scope(|scope| {
        let half = scope.spawn(|| run_all(first..middle));
        let mut tally = run_all(middle..end);
        let half = half.join();
        tally.add(&half.unwrap_or_else(|failure| panic::resume_unwind(failure)));
        tally
    });
    println!("{seeds} seeds: {tally:?}");
    if seeds >= 100 {
        assert!(tally.frames > 15 * seeds && tally.recoveries > 3 * seeds);
        assert!(tally.checkpoints > seeds && tally.frames_lost > 0 && tally.faults > 0);
    }
}

/// The same seed yields the same history, to the last operation of the device.
#[test]
fn a_seed_is_one_history() {
    for seed in 0..10 {
        assert_eq!(format!("{:?}", run(seed)), format!("{:?}", run(seed)));
    }
}

fn with(bug: Bug) {
    planted::plant(Some(bug));
    run_all(0..300);
}

#[test]
#[should_panic(expected = "wrong: at ")]
fn a_deletion_that_is_undone_is_noticed() {
    with(Bug::DeletePassedOver);
}

#[test]
#[should_panic(expected = "wrong: at ")]
fn a_transaction_that_lacks_an_effect_is_noticed() {
    with(Bug::GroupCutShort);
}

/// The bug is noticed by a promised effect that is missing, or by a log that reports more as
/// durable than it holds. Which of them a seed finds first depends on the order in which files are
/// written.
#[test]
fn an_early_acknowledgement_is_noticed() {
    let noticed = panic::catch_unwind(|| with(Bug::AcknowledgedEarly)).unwrap_err();
    let what = noticed.downcast::<String>().unwrap();
    assert!(
        what.contains("lost: ") || what.contains(" is damaged at "),
        "{what}"
    );
}
