//! One life of the data, in one thread: from the content of a device to the end of the process or a
//! power cut.
//!
//! It does what a server does, in an order that a seed decides: it recovers, appends effects and
//! groups of them, passes them to the system, syncs, writes checkpoints, cuts the log, changes the
//! level. Each beginning checks the recovered data against the ledger.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use base::clock::{Clock as _, ManualClock};
use base::random::Prng;
use durability::checkpoint::{Manifest, remove_replaced, replace_manifest, verify};
use durability::disk::Disk;
use durability::log::{Appender, Effect, Level, Log, Options, Reader, salvage};
use durability::simulated::SimulatedDisk;

use crate::checkpoints::{self, Parts};
use crate::ledger::{Change, Ledger, State, apply};

pub(crate) const DIRECTORY: &str = "data/iolite";
const LOG_DIRECTORY: &str = "data/iolite/log";

/// An error comes from a power cut, or from a requested fault: everything else is a failure of the
/// test.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) struct Life<'l> {
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    log: Arc<Log>,
    appender: Appender,
    ledger: &'l mut Ledger,
    state: State,
    generation: u64,
    checkpoint: Checkpoint,
    /// Milliseconds until the log's next step is due.
    next_step_ms: u64,
}

/// The progress of a checkpoint.
enum Checkpoint {
    None,
    Begun(Parts, State),
    Written(Manifest),
    InForce(Manifest),
}

impl<'l> Life<'l> {
    /// Recovers the data on the device, and checks it.
    pub(crate) fn begin(
        disk: &SimulatedDisk,
        clock: &Arc<ManualClock>,
        ledger: &'l mut Ledger,
        random: &mut Prng,
    ) -> Outcome<Self> {
        let device: Arc<dyn Disk> = Arc::new(disk.clone());
        let found = checkpoints::read(disk, Path::new(DIRECTORY))?;
        let (manifest, state) = found.unzip();
        let (state, end) = recover(
            &device,
            ledger,
            manifest.as_ref(),
            state.unwrap_or_default(),
        )?;
        let log = Log::open(
            device,
            clock.clone(),
            Path::new(LOG_DIRECTORY),
            end,
            options(random),
        )?;
        let generation = manifest
            .as_ref()
            .map_or(1, |manifest| manifest.generation + 1);
        let mut life = Self {
            disk: disk.clone(),
            clock: clock.clone(),
            appender: log.appender(),
            next_step_ms: log.sync_step(),
            log,
            ledger,
            state,
            generation,
            checkpoint: Checkpoint::None,
        };
        life.take_the_log_by_its_word();
        life.change_level(random);
        if let Some(manifest) = manifest {
            life.remove_what_it_replaces(&manifest)?;
        }
        Ok(life)
    }

    /// Does one of the things that a server does.
    pub(crate) fn step(&mut self, random: &mut Prng) -> Outcome<()> {
        let result = match random.below(100) {
            0..45 => {
                self.append(1, random);
                Ok(())
            }
            45..58 => {
                self.append(1 + random.index(5), random);
                Ok(())
            }
            58..74 => self.write_out(),
            74..84 => {
                self.sync_step();
                Ok(())
            }
            84..88 => {
                self.log.request_sync(self.log.tail());
                self.sync_step();
                Ok(())
            }
            88..91 => {
                self.pass(random.below(700));
                Ok(())
            }
            91..97 => self.advance_checkpoint(),
            97..99 => {
                self.change_level(random);
                Ok(())
            }
            _ => self.log.close().map_err(Into::into),
        };
        self.take_the_log_by_its_word();
        result
    }

    /// Writes at `level` for some time without a sync: the device is busy.
    pub(crate) fn write_for(&mut self, ms: u64, level: Level, random: &mut Prng) -> Outcome<()> {
        self.log.set_level(level);
        for _ in 0..ms / 10 {
            self.clock.advance_ms(10);
            self.append(1, random);
            self.write_out()?;
        }
        Ok(())
    }

    /// Appends a frame, if the log has room.
    fn append(&mut self, changes: usize, random: &mut Prng) {
        if !self.log.has_room() {
            return;
        }
        let changes: Vec<Change> = (0..changes)
            .map(|_| {
                let key = u8::try_from(random.below(40)).unwrap();
                match random.below(5) {
                    0 => Change::Delete(key),
                    _ => Change::Set(key, self.ledger.value()),
                }
            })
            .collect();
        self.appender.set_time(self.clock.now_unix_ms());
        self.appender.generation(self.generation);
        if changes.len() > 1 {
            self.appender.group_begin();
        }
        for change in &changes {
            let words = change.words();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            self.appender.command(0, &words);
        }
        if changes.len() > 1 {
            self.appender.group_end();
        }
        apply(&mut self.state, &changes);
        let unix_ms = self.clock.now_unix_ms();
        self.ledger.add(self.log.tail(), changes, unix_ms);
    }

    fn write_out(&mut self) -> Outcome<()> {
        let tail = self.log.tail();
        if let Err(fault) = self.log.write_out(tail) {
            assert!(self.refuses(), "it goes on as if nothing had been: {fault}");
            return Err(fault.into());
        }
        self.ledger.written = tail;
        Ok(())
    }

    pub(crate) fn sync_step(&mut self) {
        self.next_step_ms = self.log.sync_step();
    }

    /// Lets time pass, and runs the log's steps when they are due.
    fn pass(&mut self, mut ms: u64) {
        while self.next_step_ms <= ms {
            self.clock.advance_ms(self.next_step_ms.max(1));
            ms = ms.saturating_sub(self.next_step_ms.max(1));
            self.sync_step();
        }
        self.clock.advance_ms(ms);
        self.next_step_ms -= ms;
    }

    fn change_level(&self, random: &mut Prng) {
        let levels = [Level::Os, Level::EverySecond, Level::Always];
        self.log.set_level(levels[random.index(levels.len())]);
    }

    /// Records what the log reports as durable as promised.
    fn take_the_log_by_its_word(&mut self) {
        self.ledger.durable = self.ledger.durable.max(self.log.durable());
    }

    fn advance_checkpoint(&mut self) -> Outcome<()> {
        let directory = Path::new(DIRECTORY);
        let checkpoint = std::mem::replace(&mut self.checkpoint, Checkpoint::None);
        self.checkpoint = match checkpoint {
            Checkpoint::None => {
                self.generation += 1;
                let tail = self.log.tail();
                let parts = Parts::begin(&self.disk, directory, self.generation, tail)?;
                Checkpoint::Begun(parts, self.state.clone())
            }
            Checkpoint::Begun(parts, state) => {
                Checkpoint::Written(parts.write(&self.disk, directory, &state)?)
            }
            Checkpoint::Written(manifest) => {
                self.make_durable(log_from(&manifest))?;
                replace_manifest(&self.disk, directory, &manifest)?;
                Checkpoint::InForce(manifest)
            }
            Checkpoint::InForce(manifest) => {
                verify(&self.disk, directory, &manifest)?;
                self.remove_what_it_replaces(&manifest)?;
                Checkpoint::None
            }
        };
        Ok(())
    }

    fn make_durable(&mut self, sequence: u64) -> Outcome<()> {
        self.log.request_sync(sequence);
        self.sync_step();
        match self.log.fault() {
            Some(fault) => Err(fault.into()),
            None if self.log.durable() >= sequence => Ok(()),
            None => Err("a sync that was asked for has not come".into()),
        }
    }

    fn remove_what_it_replaces(&self, manifest: &Manifest) -> Outcome<()> {
        remove_replaced(&self.disk, Path::new(DIRECTORY), manifest)?;
        self.log.cut(log_from(manifest))?;
        Ok(())
    }

    /// Lets the log heal, which it must once the device works.
    pub(crate) fn heal(&mut self) {
        for _ in 0..20 {
            self.log.request_sync(self.log.tail());
            self.sync_step();
            self.clock.advance_ms(100);
            if self.log.fault().is_none() && self.log.durable() == self.log.tail() {
                self.take_the_log_by_its_word();
                assert!(self.log.has_room(), "well, but takes nothing");
                return;
            }
        }
        panic!("it does not get well: {:?}", self.log.fault());
    }

    /// Whether the log reports a fault and has no room.
    pub(crate) fn refuses(&self) -> bool {
        self.log.fault().is_some() && !self.log.has_room()
    }
}

/// Reads the log behind the checkpoint and checks every frame; returns the state and the log's end.
fn recover(
    disk: &Arc<dyn Disk>,
    ledger: &mut Ledger,
    manifest: Option<&Manifest>,
    mut state: State,
) -> Outcome<(State, u64)> {
    let from = manifest.map_or(0, log_from);
    assert_eq!(state, ledger.state_at(from), "not the state of that moment");
    let (path, clock) = (Path::new(LOG_DIRECTORY), ManualClock::at_unix_ms(1));
    salvage(disk, &clock, path, &Options::default())?;
    let mut reader = Reader::open(Arc::clone(disk), path, from)?;
    let mut expected = ledger.from(from).iter();
    while let Some(frame) = reader.next_frame()? {
        let sequence = frame.sequence;
        let entry = expected.next();
        let entry = entry.unwrap_or_else(|| panic!("resurrected: a frame at {sequence}"));
        let place = (frame.sequence, frame.sequence + frame.length);
        let is_deletion = matches!(entry.changes[..], [Change::Delete(_)]);
        assert!(
            place.0 == entry.start || !is_deletion,
            "wrong: a deletion is missing at {}",
            entry.start
        );
        assert_eq!(place, (entry.start, entry.end), "another frame");
        let words = |effect: Effect<'_>| effect.parts.map(<[u8]>::to_vec).collect();
        let effects: Vec<Vec<Vec<u8>>> = frame.effects().map(words).collect();
        let changes: Vec<Vec<Vec<u8>>> =
            entry.changes.iter().map(|change| change.words()).collect();
        assert_eq!(effects, changes, "wrong: the frame at {sequence}");
        apply(&mut state, &entry.changes);
    }
    let end = reader.sequence().max(from);
    let (durable, written) = (ledger.durable, ledger.written);
    assert!(
        end >= durable,
        "lost: {durable} was durable, {end} is there"
    );
    assert!(
        end >= written,
        "lost: {written} was written, {end} is there"
    );
    ledger.ends_at(end);
    Ok((state, end))
}

fn log_from(manifest: &Manifest) -> u64 {
    manifest.log_sequence.unwrap()
}

/// Returns small sizes, so that every limit is soon reached.
fn options(random: &mut Prng) -> Options {
    let chunk_bytes = 1 << (6 + random.below(8));
    Options {
        segment_bytes: 1 << (12 + random.below(4)),
        segment_bytes_first: 1 << (8 + random.below(8)),
        chunk_bytes,
        // Half of them have no ring.
        ring_bytes: chunk_bytes * random.below(8).saturating_sub(3),
        ring_bytes_min: chunk_bytes,
        ring_bytes_first: chunk_bytes * random.below(5),
        piece_bytes: 1 << (8 + random.below(7)),
        in_place_bytes: 1 << (6 + random.below(8)),
        held_bytes_max: 1 << (15 + random.below(7)),
        unsynced_bytes_max: 1 << (12 + random.below(5)),
        seed: Some(random.next_u64()),
    }
}
