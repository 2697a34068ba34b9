//! Restores the store from files: the checkpoint in force, then the log behind it.
//!
//! ```text
//!   MANIFEST ──► parts, loaded side by side ──► store
//!      └─ log sequence, generation ──► log ──► effects of that generation and later, by key ──► store
//! ```
//!
//! It is all or nothing: the store is as it was at the end of the log, or at the requested point.
//! Otherwise no client is served, and the operator is notified which file is wrong, where, and what
//! can be done.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durability::checkpoint::{CheckpointFault, Manifest, Overlap, TermEntry, read_manifest};
use durability::disk::{Disk, SystemDisk};
use durability::log::{self, LogError, Reader, Shape, Tail};
use engine::scripts;

use super::bodies::Existing;
use super::controls::{Controls, NotApplied};
use super::directory;
use super::loader::{LoadFault, Source as Parts, wait_for_memory};
use super::places;
use super::replay::{Feed, Origin, ReplayFault, replay_in_parallel};
use crate::environment::Environment;
use crate::lines::Lines;
use base::os_error::system_reason;

/// Bytes of the log between two updates of the progress.
const TELL_BYTES: u64 = 1 << 20;

/// The point up to which the log is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The end of the log.
    End,
    /// Everything written before this sequence.
    Sequence(u64),
    /// Everything written up to this time, in milliseconds since 1970 UTC.
    Time(u64),
}

impl Target {
    /// Whether a frame that ends at this sequence, and was written at this time, is behind the
    /// point.
    fn leaves_out(self, end: u64, unix_ms: u64) -> bool {
        match self {
            Self::End => false,
            Self::Sequence(wanted) => end > wanted,
            Self::Time(wanted) => unix_ms > wanted,
        }
    }

    /// Whether nothing from this sequence on is wanted.
    fn is_below(self, sequence: u64) -> bool {
        matches!(self, Self::Sequence(wanted) if wanted <= sequence)
    }
}

/// What happens to the effects in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// They are applied to the store.
    Applied,
    /// They are read and skipped: a log-only copy has no data.
    PassedOver,
}

/// The place of all files of a server.
#[derive(Clone, Debug)]
pub struct Place {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory of the manifest.
    pub directory: PathBuf,
    /// The directory of the log's segments.
    pub log_directory: PathBuf,
}

impl Place {
    /// Returns the place of a server with this working directory.
    #[must_use]
    pub fn within(dir: &Path) -> Self {
        let directory = dir.join(directory::NAME);
        Self {
            disk: Arc::new(SystemDisk),
            log_directory: directory.join(directory::LOG_NAME),
            directory,
        }
    }

    /// Returns the manifest in force, if anything is kept here.
    ///
    /// # Errors
    /// If the system reports an error, or the manifest differs from what was written.
    pub fn manifest(&self) -> Result<Option<Manifest>, CheckpointFault> {
        read_manifest(&*self.disk, &self.directory)
    }

    /// Returns the bytes of the log's segments, as far as they can be read.
    fn log_bytes(&self) -> u64 {
        let names = self.disk.list(&self.log_directory).unwrap_or_default();
        let segments = names.iter().filter(|name| name.ends_with(".log"));
        let sizes = segments.map(|name| {
            let file = self.disk.open(&self.log_directory.join(name));
            file.and_then(|file| file.size()).unwrap_or(0)
        });
        sizes.sum()
    }

    /// Discards the log behind the recovered point; the copy that was set aside stays. Returns a
    /// sequence that was never used, from which the log can continue.
    ///
    /// # Errors
    /// Those of the system.
    pub fn give_up_behind(&self, recovered: &Recovered) -> io::Result<u64> {
        let bound = log::bound(&*self.disk, &self.log_directory)?;
        let end = recovered.next_sequence();
        // If the checkpoint is needed without any of the log, no file of the log need be readable.
        let is_alone = recovered.manifest.log_sequence == Some(end);
        let first = if is_alone { 0 } else { end };
        log::remove_from(&*self.disk, &self.log_directory, first)?;
        Ok(bound.max(end))
    }

    /// Removes the log, of which nothing is needed any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove_log(&self) -> io::Result<()> {
        let names = match self.disk.list(&self.log_directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            names => names?,
        };
        for name in names {
            self.disk.remove(&self.log_directory.join(name))?;
        }
        self.disk.remove_directory(&self.log_directory)
    }
}

/// The recovered data.
#[derive(Debug)]
pub struct Recovered {
    /// The checkpoint that was in force.
    pub manifest: Manifest,
    /// The end of the log, if there is one.
    pub log: Option<LogEnd>,
}

/// The end of a log's replay.
#[derive(Debug)]
pub struct LogEnd {
    /// Number of applied effects.
    pub effects: u64,
    /// The highest generation found.
    pub generation: u64,
    /// End of the last applied frame.
    pub sequence: u64,
    /// The end of the log; `None` if the replay stopped before.
    pub tail: Option<Tail>,
    /// Content of the controls in the applied frames.
    pub controls: Controls,
}

impl LogEnd {
    /// Returns the end of a replay that has applied nothing behind a checkpoint.
    fn at_checkpoint(generation: u64, sequence: u64) -> Self {
        Self {
            effects: 0,
            generation,
            sequence,
            tail: None,
            controls: Controls::default(),
        }
    }
}

impl Recovered {
    /// Returns the highest generation in the kept data.
    #[must_use]
    pub fn generation(&self) -> u64 {
        let of_log = self.log.as_ref().map_or(0, |log| log.generation);
        self.manifest.generation.max(of_log)
    }

    /// Returns the terms of the log, oldest first: those that the checkpoint names, and those that
    /// begin after it.
    #[must_use]
    pub fn terms(&self) -> Vec<TermEntry> {
        let named = &self.manifest.history.terms;
        let from = self.manifest.log_sequence.unwrap_or(0);
        let read = self.log.as_ref().map(|log| &log.controls.terms);
        let below = named.iter().filter(|term| term.start < from);
        below.chain(read.into_iter().flatten()).copied().collect()
    }

    /// Reports a load that began at this monotonic time to the operator, and to the receiver of
    /// spans.
    pub fn tell(&self, env: &Environment, started_ns: u64) {
        let took_us = env.clock.monotonic_ns().saturating_sub(started_ns) / 1_000;
        env.shared.observer.spans.note(
            "load",
            env.clock.now_unix_us().saturating_sub(took_us),
            &*env.clock,
            Ok(()),
            &[
                ("iolite.records", &self.manifest.records()),
                ("iolite.bytes", &self.manifest.bytes()),
            ],
        );
        self.tell_operator(&*env.log, took_us / 1_000);
    }

    fn tell_operator(&self, log: &dyn Lines, ms: u64) {
        log.notice(format_args!(
            "Checkpoint {} loaded: {} records, {} bytes in {ms} ms",
            self.manifest.generation,
            self.manifest.records(),
            self.manifest.bytes()
        ));
        let Some(end) = &self.log else {
            return;
        };
        log.notice(format_args!(
            "Log applied up to sequence {}: {} commands",
            end.sequence, end.effects
        ));
        if let Some(tail) = &end.tail
            && let Some((path, offset)) = &tail.place
            && !matches!(tail.shape, Shape::Clean | Shape::Zeroed | Shape::Used)
        {
            let path = path.display();
            log.warning(format_args!(
                "What stands in {path} from offset {offset} on was never whole, and is left out"
            ));
        }
    }

    /// Returns where a log continues.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.sequence)
    }
}

/// Why no client can be served.
#[derive(Debug)]
pub enum RecoveryError {
    /// A part of the checkpoint is missing or damaged.
    Checkpoint(LoadFault),
    /// The log is damaged, or a part of it is missing.
    Log {
        /// The error.
        error: LogError,
        /// Everything below this sequence is in the checkpoint.
        held: u64,
    },
    /// An effect in the log cannot be applied.
    Replay(ReplayFault),
    /// A control in the log cannot be applied.
    Control(NotApplied),
    /// The requested point is not in the kept data.
    Target {
        /// The requested point.
        target: Target,
        /// The content of the checkpoint is before this sequence …
        sequence: u64,
        /// … and this time, in milliseconds since 1970 UTC.
        unix_ms: u64,
    },
    /// The log does not reach the requested sequence.
    Beyond {
        /// The requested sequence.
        sequence: u64,
        /// Where the log ends.
        end: u64,
    },
    /// There is no file of the log.
    NoLog {
        /// The directory.
        path: PathBuf,
        /// The sequence from which on it is needed.
        sequence: u64,
    },
    /// The checkpoint has a database that exceeds the directive `databases`.
    Database {
        /// The database.
        database: u16,
        /// Number of databases.
        databases: u16,
    },
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(fault) => fault.fmt(f),
            Self::Log { error, held } => match error {
                LogError::Io { path, error } => {
                    write!(f, "{}: {}", path.display(), system_reason(error))
                }
                LogError::Damage { sequence, .. } => {
                    write!(f, "{error}{}", way_out(*sequence.max(held)))
                }
                LogError::Missing { from, .. } => write!(f, "{error}{}", way_out(*from)),
                LogError::Version { .. } => error.fmt(f),
            },
            Self::NoLog { path, sequence } => write!(
                f,
                "{}: the log is missing, which is needed from sequence {sequence} on{}",
                path.display(),
                way_out(*sequence)
            ),
            Self::Beyond { sequence, end } => {
                write!(f, "sequence {sequence} is not kept: the log ends at {end}")
            }
            Self::Replay(fault) => fault.fmt(f),
            Self::Control(fault) => fault.fmt(f),
            Self::Target {
                target,
                sequence,
                unix_ms,
            } => write!(
                f,
                "{} is not kept: the checkpoint holds everything up to sequence {sequence} (time \
                 {unix_ms})",
                match target {
                    Target::End => "the end".to_owned(),
                    Target::Sequence(sequence) => format!("sequence {sequence}"),
                    Target::Time(unix_ms) => format!("time {unix_ms}"),
                }
            ),
            Self::Database {
                database,
                databases,
            } => write!(
                f,
                "there are keys in database {database}, but only {databases} databases (directive \
                 databases)"
            ),
        }
    }
}

/// Returns what can be done about a log that is valid up to a sequence.
fn way_out(sequence: u64) -> String {
    format!(
        ". `iolite check` with this directory tells more. A start with --recover-to {sequence} serves what \
         is before that, and sets everything aside as it is now"
    )
}

impl std::error::Error for RecoveryError {}

impl From<ReplayFault> for RecoveryError {
    fn from(fault: ReplayFault) -> Self {
        Self::Replay(fault)
    }
}

/// Loads all kept data into the store of `env`, which is empty, with at most `threads` threads.
/// Progress goes to [`Environment::loading`].
///
/// # Errors
/// [`RecoveryError`]: then the store has some of it and must not be served.
pub fn recover(
    env: &Environment,
    place: &Place,
    manifest: Manifest,
    (target, effects): (Target, Effects),
    threads: usize,
) -> Result<Recovered, RecoveryError> {
    check_target(&manifest, target)?;
    let databases = env.store.databases();
    if let Some((&database, _)) = manifest.databases.range(databases..).next() {
        return Err(RecoveryError::Database {
            database,
            databases,
        });
    }
    let log_bytes = manifest.log_sequence.map_or(0, |_| place.log_bytes());
    env.begin_loading(manifest.bytes() + log_bytes);
    let loaded = load_checkpoint(env, place, &manifest, threads, Onto::Empty);
    loaded.map_err(RecoveryError::Checkpoint)?;
    scripts::install(&env.shared.scripts, &manifest.libraries).unwrap_or_else(|error| {
        let text = error.text();
        let reason = String::from_utf8_lossy(&text);
        env.log.warning(format_args!(
            "The libraries of functions of the checkpoint are not loaded: {reason}"
        ));
    });
    let log = match manifest.log_sequence {
        Some(from) => {
            let what = (target, effects);
            Some(replay_log(env, place, &manifest, from, what, threads)?)
        }
        None => None,
    };
    Ok(Recovered { manifest, log })
}

fn check_target(manifest: &Manifest, target: Target) -> Result<(), RecoveryError> {
    let sequence = manifest.log_sequence.unwrap_or(0);
    let is_kept = match target {
        Target::End => true,
        Target::Sequence(wanted) => manifest.log_sequence.is_some() && wanted >= sequence,
        Target::Time(wanted) => {
            manifest.log_sequence.is_some() && wanted >= manifest.created_unix_ms
        }
    };
    if is_kept {
        return Ok(());
    }
    Err(RecoveryError::Target {
        target,
        sequence,
        unix_ms: manifest.created_unix_ms,
    })
}

/// The store into which a checkpoint is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onto {
    /// A store without keys.
    Empty,
    /// A store with keys other than the loaded ones.
    Others,
    /// A store whose keys are replaced by the loaded ones.
    Older,
}

/// Loads the content of a checkpoint into the store of `env`, without the log.
///
/// # Errors
/// [`LoadFault`]: then the store has some of it and must not be served.
pub fn load_checkpoint(
    env: &Environment,
    place: &Place,
    manifest: &Manifest,
    threads: usize,
    onto: Onto,
) -> Result<(), LoadFault> {
    let limits = env.shared.settings.value_limits();
    let source = Parts {
        disk: &*place.disk,
        directory: &place.directory,
        manifest,
        limits: &limits,
        progress: env.loading.parts(),
        existing: match onto {
            Onto::Empty | Onto::Others => Existing::Refused,
            Onto::Older => Existing::Replaced,
        },
        is_all: onto == Onto::Empty,
        delay: &env.load_delay,
        tier: env.tier.get().map(|tier| &**tier),
        gate: &env.shared.gate,
    };
    if !manifest.segments.is_empty() {
        let records = manifest
            .segments
            .iter()
            .map(|segment| segment.records)
            .sum();
        let tier = source.tier.ok_or(LoadFault::NoTier { records })?;
        let adopted = places::adopt(tier, manifest);
        adopted.map_err(|fault| LoadFault::Segment { fault, records })?;
    }
    source.load(&env.store, threads)
}

/// Applies the log behind a checkpoint.
fn replay_log(
    env: &Environment,
    place: &Place,
    manifest: &Manifest,
    from: u64,
    (target, effects): (Target, Effects),
    threads: usize,
) -> Result<LogEnd, RecoveryError> {
    if target.is_below(from) {
        // Only the checkpoint is wanted: the log may be in any state.
        return Ok(LogEnd::at_checkpoint(manifest.generation, from));
    }
    let below = match target {
        Target::Sequence(wanted) => wanted,
        Target::End | Target::Time(_) => u64::MAX,
    };
    let refused = |error| RecoveryError::Log { error, held: from };
    let (clock, options) = (&*env.clock, log::Options::default());
    let salvaged = log::salvage(&place.disk, clock, &place.log_directory, &options);
    let has_file =
        salvaged.and_then(|_| log::has_file_of(&*place.disk, &place.log_directory, from));
    let has_file = has_file.map_err(|error| {
        refused(LogError::Io {
            path: place.log_directory.clone(),
            error,
        })
    })?;
    if !has_file {
        return Err(no_log(place, from).unwrap_or_else(refused));
    }
    let disk = Arc::clone(&place.disk);
    let reader = Reader::open_below(disk, &place.log_directory, from, below).map_err(refused)?;
    let like = &*env.shared;
    let replay = Replay {
        env,
        reader,
        generation: manifest.generation,
        overlap: manifest.overlap(),
        from,
        target,
        effects,
    };
    let read = |feed: &mut Feed| replay.run(feed);
    let (mut end, replayed) =
        replay_in_parallel(env.table, &env.store, like, Origin::Own, threads, read)?;
    end.effects = replayed.commands;
    if let Some(stream) = end.controls.stream {
        env.followed.set(stream);
        env.followed.set_logged(true);
    }
    Ok(end)
}

/// Returns why a log without a file at or below `from` is refused.
fn no_log(place: &Place, from: u64) -> Result<RecoveryError, LogError> {
    // There may be later files, which the reader then reports.
    let _reader = Reader::open(Arc::clone(&place.disk), &place.log_directory, from)?;
    Ok(RecoveryError::NoLog {
        path: place.log_directory.clone(),
        sequence: from,
    })
}

/// The reading side of a replay.
struct Replay<'r> {
    env: &'r Environment,
    reader: Reader,
    /// Generation of the checkpoint.
    generation: u64,
    /// The effects of the log that are in the checkpoint.
    overlap: Overlap,
    /// Sequence below which everything is in the checkpoint.
    from: u64,
    target: Target,
    effects: Effects,
}

impl Replay<'_> {
    fn run(mut self, feed: &mut Feed) -> Result<LogEnd, RecoveryError> {
        let mut end = LogEnd::at_checkpoint(self.generation, self.from);
        let mut told = end.sequence;
        let mut handle = self.env.store.handle();
        loop {
            let frame = match self.reader.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                // Everything that is wanted was read.
                Err(LogError::Damage { sequence, .. }) if self.target.is_below(sequence) => {
                    return Ok(end);
                }
                Err(error) => {
                    let held = self.from;
                    return Err(RecoveryError::Log { error, held });
                }
            };
            let behind = frame.sequence + frame.length;
            if self.target.leaves_out(behind, frame.unix_ms) {
                return Ok(end);
            }
            if let Some(control) = frame.control() {
                let noted = end.controls.note(frame.sequence, &control);
                noted.map_err(RecoveryError::Control)?;
            }
            for effect in frame.effects() {
                end.generation = end.generation.max(effect.generation);
                let is_wanted = self.effects == Effects::Applied;
                if is_wanted && !self.overlap.has(frame.sequence, effect.generation) {
                    feed.effect(frame.sequence, effect.database, effect.parts)?;
                }
            }
            end.sequence = behind;
            if self.env.tier.get().is_some() {
                wait_for_memory(&self.env.shared.gate, &mut handle);
            }
            if behind - told >= TELL_BYTES {
                self.env.loading.add_bytes(behind - told);
                told = behind;
            }
        }
        self.env.loading.add_bytes(end.sequence - told);
        self.at_the_tail(end)
    }

    /// Handles the end of the log, or of its part below the requested point.
    fn at_the_tail(&self, mut end: LogEnd) -> Result<LogEnd, RecoveryError> {
        let Some(tail) = self.reader.tail() else {
            return Ok(end);
        };
        end.sequence = tail.end.max(self.from);
        match self.target {
            Target::Sequence(sequence) if sequence > end.sequence => Err(RecoveryError::Beyond {
                sequence,
                end: end.sequence,
            }),
            // Files that begin at or behind the sequence were not read.
            Target::Sequence(_) => Ok(end),
            Target::End | Target::Time(_) => {
                end.tail = Some(tail.clone());
                Ok(end)
            }
        }
    }
}

#[cfg(test)]
mod tests;
