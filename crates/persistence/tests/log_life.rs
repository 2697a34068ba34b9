//! The life of the log, in one process without threads or files, from one seed: a log that is
//! begun, changed and ended while it is written, with checkpoints in between, failing devices,
//! power cuts, and recovery.
//!
//! ```text
//!   writes ──► store ──► LogUser: busy, idle ──► LogOwner ──► Log ──┐
//!                └──► checkpoints, with changes in their middle ────┤ SimulatedDisk
//!   what was promised ≤ what comes back ◄──── recover ◄─────────────┘
//! ```
//!
//! Each write sets one of a few keys to its own number. So the recovered content must be that after
//! some write, and none before the promised one. Two things are promised: the content of a
//! checkpoint in force, and what a log reports as durable if it counts and is wanted.
//!
//! At the end every reachable row of the table must have occurred. `LOG_LIFE_SEED` and
//! `LOG_LIFE_SEEDS` choose other seeds than CI's.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use base::background::Scheduler;
use base::clock::{Clock, ManualClock};
use base::random::Prng;
use durability::checkpoint::{Lineage, Manifest};
use durability::disk::Disk;
use durability::log::{Level, Options};
use durability::simulated::{Fault, SimulatedDisk};
use persistence::checkpointer::{self, Checkpointer, Surroundings, Why};
use persistence::environment::Environment;
use persistence::host::Host;
use persistence::log_in_use::{LogInUse, LogUser, TakenUp};
use persistence::log_owner::table::{
    self, Action, Event, From, Next, Phase, Start, State, Stop, Work,
};
use persistence::log_owner::{Bases, LogOwner, LogWish, Setup};
use persistence::recovery::{Effects, Place, Target, recover};
use persistence::tail::Tail;
use store::{Deadline, Handle, Store};

const DIRECTORY: &str = "data/iolite-data";
const KEYS: u64 = 5;
const LIVES: u64 = 6;
const STEPS_MAX: u64 = 60;

/// A transition: the state before, and the event.
type Met = (State, Event);

/// Notes every transition.
struct Watcher(Arc<Mutex<HashSet<Met>>>);

impl Host for Watcher {
    fn log_stepped(&self, state: State, event: Event) {
        lock(&self.0).insert((state, event));
    }
}

/// A thread that changes the store.
struct Thread {
    user: LogUser,
    handle: Handle,
    /// The log to which it appends effects.
    log: Option<Arc<dyn Tail>>,
}

impl Thread {
    fn look(&mut self) {
        match self.user.take_up(&mut self.handle) {
            TakenUp::Same => {}
            TakenUp::Log(log) => self.log = Some(log),
            TakenUp::Nothing => self.log = None,
        }
    }

    /// Sets a key to `number`; returns the end of its effect in the log.
    fn write(&mut self, number: u64) -> Option<u64> {
        let name = format!("k{}", number % KEYS);
        let value = number.to_string();
        let (name, value) = (name.as_bytes(), value.as_bytes());
        self.handle.begin(1_000_000 + number);
        let key = self.handle.key(0, name);
        let state = |entry: &mut store::Entry<'_>| {
            entry.effect(|effect| effect.command(&[b"SET", name, value]));
        };
        self.handle
            .upsert(&key, value, Deadline::Never, state)
            .unwrap();
        self.log.as_ref().map(|_| self.user.appended().end())
    }
}

/// What is known outside of the device, over all lives.
#[derive(Default)]
struct Truth {
    /// Number of the last write.
    written: u64,
    /// Number of the last write that was promised to come back.
    promised: u64,
    met: Arc<Mutex<HashSet<Met>>>,
    recoveries: u64,
    power_cuts: u64,
}

/// One life, from recovery to an end or a power cut.
struct Life {
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    env: Arc<Environment>,
    in_use: Arc<LogInUse>,
    owner: Arc<LogOwner>,
    checkpointer: Arc<Checkpointer>,
    around: Arc<Around>,
}

/// State that also changes in the middle of a checkpoint.
struct Inside {
    busy: Thread,
    idle: Thread,
    truth: Truth,
    random: Prng,
    /// Ends of writes in the log in use, with their numbers.
    ends: Vec<(u64, u64)>,
    /// Number of the last write before the cut of the running checkpoint.
    cut: u64,
}

/// The surroundings of the checkpointer, which also makes checkpoints for the log.
struct Around {
    inside: Mutex<Inside>,
    owner: Arc<LogOwner>,
    in_use: Arc<LogInUse>,
    env: Arc<Environment>,
    checkpointer: Mutex<Option<Arc<Checkpointer>>>,
    /// Whether a checkpoint was requested.
    is_asked: AtomicBool,
    /// Whether the start is over: then any event may happen.
    is_served: AtomicBool,
}

impl Around {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        lock(&self.inside)
    }

    fn below(&self, bound: u64) -> u64 {
        self.inside().random.below(bound)
    }

    /// Does something that may also happen in the middle of a checkpoint.
    fn happen(&self) {
        if !self.is_served.load(Ordering::Relaxed) {
            return;
        }
        let what = self.below(8);
        match what {
            0..3 => self.write(false),
            3 => self.write(true),
            4 => self.inside().busy.look(),
            5 => self.change(),
            _ => self.advance(),
        }
        self.note_promises();
    }

    fn write(&self, is_idle: bool) {
        let state = self.owner.state();
        if self.env.shared.refusals.is_log_faulty() {
            return;
        }
        // While threads let go of the log one by one, one thread still appends when another no
        // longer does, and none of it is promised.
        if state.phase == Phase::Stopping(Stop::LettingGo) {
            return;
        }
        let log = self.owner.log();
        if log.as_ref().is_some_and(|log| !log.has_room()) {
            return;
        }
        let mut inside = self.inside();
        let number = inside.truth.written + 1;
        inside.truth.written = number;
        let thread = if is_idle {
            inside.idle.user.set_idle(false);
            inside.idle.look();
            &mut inside.idle
        } else {
            &mut inside.busy
        };
        let end = thread.write(number);
        if is_idle {
            thread.user.set_idle(true);
        }
        if let Some(end) = end {
            inside.ends.push((number, end));
        }
    }

    fn change(&self) {
        let level = match self.below(5) {
            0..2 => Level::Checkpoint,
            2 => Level::Os,
            3 => Level::EverySecond,
            _ => Level::Always,
        };
        let options = options(&mut self.inside().random);
        let before = self.owner.state();
        let wish = LogWish { level, options };
        if self.owner.change(&wish).is_err() {
            let after = self.owner.state().phase;
            assert_eq!(after, before.phase, "what was refused has changed nothing");
        }
    }

    /// Does the work of the state, unless only other threads can end it.
    fn advance(&self) {
        let may = match self.owner.state().work() {
            Some(Work::AwaitTakenUp | Work::AwaitLetGo) => self.in_use.is_taken_up(),
            // Only one checkpoint is made at a time.
            Some(Work::MakeBase) => !self.checkpointer().as_ref().is_some_and(|it| {
                let figures = it.figures();
                figures.current.is_some()
            }),
            Some(Work::Open | Work::Close) => true,
            None => false,
        };
        if may {
            self.owner.advance();
        }
    }

    fn checkpointer(&self) -> Option<Arc<Checkpointer>> {
        lock(&self.checkpointer).clone()
    }

    fn make(&self, why: Why) -> Result<(), String> {
        let checkpointer = self.checkpointer().unwrap();
        let mut walker = self.env.store.handle();
        let made = checkpointer.make_now(&mut walker, why);
        let made = made.map_err(|refused| format!("{refused:?}"))?;
        made.result.map(drop).map_err(|failure| failure.to_string())
    }

    /// Notes as promised what is durable in a log that counts and is wanted.
    fn note_promises(&self) {
        let state = self.owner.state();
        if let Some(log) = self.owner.log()
            && state.names_log
            && state.phase == Phase::On
        {
            let durable = log.durable();
            let mut inside = self.inside();
            let kept = inside.ends.iter().filter(|(_, end)| *end <= durable);
            let last = kept.map(|(number, _)| *number).max();
            inside.truth.promised = inside.truth.promised.max(last.unwrap_or(0));
        }
    }
}

impl Surroundings for Around {
    fn log_sequence(&self) -> Option<u64> {
        let sequence = self.owner.sequence();
        // Between that and the cut.
        if self.below(2) == 0 {
            self.happen();
        }
        sequence
    }

    fn libraries(&self) -> Vec<Vec<u8>> {
        let mut inside = self.inside();
        inside.cut = inside.truth.written;
        drop(inside);
        for _ in 0..self.below(6) {
            self.happen();
        }
        Vec::new()
    }

    fn make_log_durable(&self) -> io::Result<()> {
        let made = self.owner.make_durable();
        for _ in 0..self.below(3) {
            self.happen();
        }
        made
    }

    fn in_force(&self, manifest: &Manifest) {
        {
            let mut inside = self.inside();
            inside.truth.promised = inside.truth.promised.max(inside.cut);
        }
        for _ in 0..self.below(2) {
            self.happen();
        }
        // The rest is removed the next time.
        let _removed = self.owner.in_force(manifest);
        self.note_promises();
    }
}

struct Maker(Weak<Around>);

impl Bases for Maker {
    fn make(&self) -> Result<(), String> {
        let around = self.0.upgrade().ok_or("the server stops")?;
        around.make(Why::Imported)
    }

    fn ask(&self) {
        if let Some(around) = self.0.upgrade() {
            around.is_asked.store(true, Ordering::Relaxed);
        }
    }
}

fn options(random: &mut Prng) -> Options {
    Options {
        segment_bytes: 1 << (11 + random.below(3)),
        segment_bytes_first: 1 << (8 + random.below(6)),
        chunk_bytes: 1 << 10,
        ring_bytes: random.below(2) << 13,
        ring_bytes_min: 1 << 10,
        ring_bytes_first: 1 << (10 + random.below(4)),
        piece_bytes: 1 << 9,
        in_place_bytes: 1 << 8,
        held_bytes_max: 1 << 16,
        unsynced_bytes_max: 1 << 14,
        seed: Some(random.next_u64()),
    }
}

fn place(disk: &SimulatedDisk) -> Place {
    Place {
        disk: Arc::new(disk.clone()),
        directory: DIRECTORY.into(),
        log_directory: Path::new(DIRECTORY).join("log"),
    }
}

fn content(handle: &mut Handle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut cursor = 0;
    handle.begin(1_000_000);
    loop {
        cursor = handle.scan(0, cursor, 100, |record| {
            found.insert(record.key().to_vec(), record.to_vec());
        });
        if cursor == 0 {
            return found;
        }
    }
}

/// Returns the content after `written` writes.
fn content_after(written: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let first = written.saturating_sub(KEYS - 1).max(1);
    (first..=written)
        .map(|number| {
            let name = format!("k{}", number % KEYS);
            (name.into_bytes(), number.to_string().into_bytes())
        })
        .collect()
}

impl Life {
    /// Recovers the data on the device, checks it, and continues like a start; returns `truth` if
    /// the device does not allow it.
    fn begin(
        disk: &SimulatedDisk,
        clock: &Arc<ManualClock>,
        truth: Truth,
        random: &mut Prng,
    ) -> Result<Self, Truth> {
        let life = Self::empty(disk, clock, truth, random);
        let begun = life.recover().and_then(|manifest| {
            if random.below(3) == 0 {
                return Ok(());
            }
            life.start(manifest.as_ref(), random)
        });
        if let Err(error) = begun {
            assert!(disk.is_off() || disk.faults_struck() > 0, "{error}");
            return Err(life.end_abruptly());
        }
        let mut inside = life.around.inside();
        inside.busy.user.set_idle(false);
        inside.busy.look();
        drop(inside);
        life.around.is_served.store(true, Ordering::Relaxed);
        Ok(life)
    }

    fn empty(
        disk: &SimulatedDisk,
        clock: &Arc<ManualClock>,
        truth: Truth,
        random: &mut Prng,
    ) -> Self {
        let store = Store::new(&store::Options { databases: 1 }).unwrap();
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
        let env = Arc::new(Environment::new(
            testkit::table(),
            store,
            Arc::clone(&shared),
        ));
        let in_use = Arc::<LogInUse>::default();
        let owner = Arc::new(LogOwner::new(Setup {
            env: Arc::clone(&env),
            host: Arc::new(Watcher(Arc::clone(&truth.met))),
            in_use: Arc::clone(&in_use),
            place: place(disk),
            usable_bytes: None,
            has_threads: false,
        }));
        let thread = || Thread {
            user: in_use.join(),
            handle: env.store.handle(),
            log: None,
        };
        let (busy, idle) = (thread(), thread());
        idle.user.set_idle(true);
        // A start begins the log before any client is served.
        busy.user.set_idle(true);
        let around = Arc::new(Around {
            inside: Mutex::new(Inside {
                busy,
                idle,
                truth,
                random: Prng::seeded(random.next_u64()),
                ends: Vec::new(),
                cut: 0,
            }),
            owner: Arc::clone(&owner),
            in_use: Arc::clone(&in_use),
            env: Arc::clone(&env),
            checkpointer: Mutex::default(),
            is_asked: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
        });
        let background = Scheduler::of_machine(Arc::<ManualClock>::clone(clock));
        let checkpointer = Arc::new(Checkpointer::new(checkpointer::Setup {
            store: Arc::clone(&env.store),
            disk: Arc::new(disk.clone()),
            directory: DIRECTORY.into(),
            clock: shared,
            lineage: Lineage([7; 20]),
            background: Arc::new(background),
            writers: 1,
            surroundings: Arc::<Around>::clone(&around),
        }));
        *lock(&around.checkpointer) = Some(Arc::clone(&checkpointer));
        owner.set_bases(Box::new(Maker(Arc::downgrade(&around))));
        Self {
            disk: disk.clone(),
            clock: Arc::clone(clock),
            env,
            in_use,
            owner,
            checkpointer,
            around,
        }
    }

    /// Loads the data on the device into the store, and checks it against what was promised;
    /// returns the checkpoint in force.
    fn recover(&self) -> Result<Option<Manifest>, String> {
        let (env, place) = (&self.env, place(&self.disk));
        let manifest = place.manifest().map_err(|fault| fault.to_string())?;
        let mut found = 0;
        if let Some(manifest) = &manifest {
            let recovered = recover(
                env,
                &place,
                manifest.clone(),
                (Target::End, Effects::Applied),
                1,
            );
            let recovered = recovered.map_err(|error| error.to_string())?;
            let content = content(&mut env.store.handle());
            let numbers = content.values().map(|value| {
                let text = String::from_utf8(value.clone()).unwrap();
                text.parse::<u64>().unwrap()
            });
            found = numbers.max().unwrap_or(0);
            assert_eq!(content, content_after(found), "not what was there once");
            let _raised = env.store.raise_generation(recovered.generation());
            self.owner.set_end(recovered.next_sequence());
            self.owner.set_base(manifest);
            env.end_loading();
        }
        let mut inside = self.around.inside();
        let promised = inside.truth.promised;
        assert!(found >= promised, "lost: {promised} was kept, {found} is");
        inside.truth.written = found;
        inside.truth.recoveries += u64::from(manifest.is_some());
        Ok(manifest)
    }

    fn start(&self, manifest: Option<&Manifest>, random: &mut Prng) -> Result<(), String> {
        let levels = [Level::Os, Level::EverySecond, Level::Always];
        let wish = LogWish {
            level: levels[random.index(levels.len())],
            options: options(random),
        };
        let begun = self.owner.load(&wish);
        begun.map_err(|error| error.to_string())?;
        let mut is_named = false;
        if let Some(manifest) = manifest {
            let removed = self.owner.in_force(manifest);
            removed.map_err(|error| error.to_string())?;
            is_named = manifest.log_sequence.is_some();
        }
        if !is_named {
            self.around.make(Why::Imported)?;
        }
        Ok(())
    }

    fn step(&self, random: &mut Prng) {
        match random.below(20) {
            0..14 => self.around.happen(),
            14..16 => self.sync(random),
            16 => self.clock.advance_ms(random.below(700)),
            _ => {
                let is_asked = self.around.is_asked.swap(false, Ordering::Relaxed);
                let why = if is_asked { Why::Rewrite } else { Why::Asked };
                // It may fail, and then nothing has changed.
                let _made = self.around.make(why);
            }
        }
        self.around.note_promises();
    }

    fn sync(&self, random: &mut Prng) {
        if let Some(log) = self.owner.log() {
            if random.below(2) == 0 {
                log.request_sync(log.tail());
            }
            log.sync_step();
        }
    }

    /// Ends the server: everything that went to the log by then comes back.
    fn end(self) -> Truth {
        let state = self.owner.state();
        let is_kept = state.phase == Phase::On && state.names_log;
        self.around.inside().busy.user.set_idle(true);
        let _written = self.owner.make_durable();
        self.around.note_promises();
        self.owner.end();
        assert_eq!(self.owner.state().next, Next::End);
        assert_eq!(self.owner.state().phase, Phase::Off);
        assert!(self.in_use.get().is_none());
        assert!(!self.env.store.holds_removals());
        let _never_again = self.owner.change(&LogWish {
            level: Level::Always,
            options: Options::default(),
        });
        assert_eq!(self.owner.state().phase, Phase::Off);
        let has_failed = self.disk.is_off() || self.disk.faults_struck() > 0;
        let mut truth = self.end_abruptly();
        if is_kept && !has_failed {
            truth.promised = truth.written;
        }
        truth
    }

    fn end_abruptly(self) -> Truth {
        *lock(&self.around.checkpointer) = None;
        drop(self.checkpointer);
        std::mem::take(&mut self.around.inside().truth)
    }
}

fn run(seed: u64) -> Truth {
    let mut random = Prng::seeded(seed);
    let clock = Arc::new(ManualClock::at_unix_ms(1_700_000_000_000));
    let mut disk = SimulatedDisk::new(random.next_u64());
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk.settle();
    let mut truth = Truth::default();
    for life in 0..LIVES {
        let steps = random.below(STEPS_MAX);
        let is_cut = random.below(3) > 0 && life + 1 < LIVES;
        if is_cut {
            disk.cut_power_at(disk.operations() + random.below(1 + 4 * steps));
        }
        if random.below(2) == 0 {
            let first = disk.operations() + random.below(200);
            let fault = Fault::ALL[random.index(Fault::ALL.len())];
            let count = if random.below(3) == 0 { 60 } else { 6 };
            disk.fail(first..first + 1 + random.below(count), fault);
        }
        truth = match Life::begin(&disk, &clock, truth, &mut random) {
            Err(truth) => truth,
            Ok(life) => {
                for _ in 0..steps {
                    life.step(&mut random);
                    if disk.is_off() {
                        break;
                    }
                }
                match random.below(3) {
                    0 if disk.is_off() || is_cut => life.end_abruptly(),
                    _ => life.end(),
                }
            }
        };
        disk.heal();
        if is_cut {
            truth.power_cuts += 1;
            disk = disk.crash(random.next_u64());
        }
    }
    truth
}

fn number_from(name: &str, or: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(or, |text| text.parse().unwrap())
}

/// A row of the table: a state's name, the event, the name of the next state, and the actions.
type Row = (&'static str, Event, &'static str, Vec<Action>);

fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Off => "off",
        Phase::Starting { step, .. } => match step {
            Start::Base => "starting: base",
            Start::Opening => "starting: opening",
            Start::TakingUp => "starting: taking up",
        },
        Phase::On => "on",
        Phase::Stopping(Stop::LettingGo) => "stopping: letting go",
        Phase::Stopping(Stop::Closing) => "stopping: closing",
        Phase::Failed => "failed",
    }
}

fn row(state: State, event: Event) -> Option<Row> {
    let (after, actions) = table::step(state, event);
    let is_one = after != state || !actions.is_empty();
    is_one.then(|| {
        (
            name(state.phase),
            event,
            name(after.phase),
            actions.to_vec(),
        )
    })
}

/// Returns all reachable rows.
fn rows() -> HashSet<Row> {
    let events = [
        Event::Load,
        Event::WantOn,
        Event::WantOff,
        Event::End,
        Event::BaseMade,
        Event::BaseFailed,
        Event::Opened,
        Event::OpenFailed,
        Event::OpenRefused,
        Event::TakenUp,
        Event::LetGo,
        Event::Closed,
        Event::InForce { names_log: false },
        Event::InForce { names_log: true },
    ];
    let mut states = HashSet::from([State::OFF]);
    let mut next = vec![State::OFF];
    let mut found = HashSet::new();
    while let Some(state) = next.pop() {
        for event in events {
            found.extend(row(state, event).filter(|row| is_possible(state, row)));
            let (after, _) = table::step(state, event);
            if states.insert(after) {
                next.push(after);
            }
        }
    }
    found
}

/// Whether a row is reachable: the table is total, and also decides some cases that cannot occur.
fn is_possible(state: State, (from, event, ..): &Row) -> bool {
    let is_load = matches!(
        state.phase,
        Phase::Starting {
            from: From::Load,
            ..
        }
    );
    match event {
        // A start is one call, during which no other event occurs except that a loaded checkpoint
        // is in force.
        _ if is_load => {
            let is_work = matches!(event, Event::Opened | Event::OpenRefused | Event::TakenUp);
            is_work && state.next == Next::Stay
        }
        // Before all effects go to a log, no checkpoint is cut that names it. One that names the
        // previous log was put in force before the next log is opened.
        Event::InForce { names_log: true } => {
            !matches!(*from, "starting: opening" | "starting: taking up")
                && (state.names_log || *from == "on")
        }
        // The checkpoint that is made names no log, and no other one is made meanwhile.
        Event::BaseMade => !state.names_log,
        // While a caller waits for the log that it requested, nothing else is requested.
        Event::OpenRefused => state.next == Next::Stay,
        _ => true,
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "figures for who reads the run")]
fn what_comes_back_is_what_was_promised() {
    let first = number_from("LOG_LIFE_SEED", 0);
    let seeds = number_from("LOG_LIFE_SEEDS", 200);
    let (mut met, mut recoveries, mut power_cuts) = (HashSet::new(), 0, 0);
    for seed in first..first + seeds {
        let run = std::panic::catch_unwind(|| run(seed));
        let truth = run.unwrap_or_else(|failure| {
            println!("To see it again: LOG_LIFE_SEED={seed} LOG_LIFE_SEEDS=1");
            std::panic::resume_unwind(failure);
        });
        met.extend(lock(&truth.met).iter().copied());
        recoveries += truth.recoveries;
        power_cuts += truth.power_cuts;
    }
    println!("{seeds} seeds: {recoveries} recoveries, {power_cuts} power cuts");
    if seeds >= 200 {
        assert!(recoveries > seeds && power_cuts > seeds);
        let all = rows();
        let met = met.iter().filter_map(|(state, event)| row(*state, *event));
        let met: HashSet<Row> = met.collect();
        let missing: Vec<_> = all.difference(&met).collect();
        for row in &missing {
            println!("not met: {row:?}");
        }
        let (count, of) = (missing.len(), all.len());
        println!("{of} rows of the table");
        assert!(missing.is_empty(), "{count} of {of} rows are not met");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
