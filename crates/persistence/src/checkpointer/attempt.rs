//! One checkpoint, from the cut to the removal of what it replaces.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use durability::checkpoint::{
    History, Manifest, PartHead, free_directory, read_manifest, remove_checkpoint, replace_manifest,
};
use store::{Batch, Ending, Handle, SnapshotStep};
use tier::{Hold, Named, Tier, TierFault};

use super::pace::Pace;
use super::parts::{Attempt, Feed, Part, QUEUE_LEN, Writer};
use super::{Checkpointer, Failure};
use crate::bodies;
use crate::lines::Level;
use crate::places;

/// Buckets that are walked before other threads get their turn with the store: some tenths of a
/// millisecond.
const BUCKETS_AT_ONCE: usize = 512;

/// The same while another thread wants the core: some hundredths.
const BUCKETS_CONTENDED: usize = 64;

/// Time that the walk pauses if too much is held, or it cannot continue.
const REST: Duration = Duration::from_micros(500);

/// Interval of progress reports to the operator.
const TOLD_EVERY_NS: u64 = 5_000_000_000;

/// The result of an attempt.
pub(super) struct Made {
    pub(super) result: Result<Arc<Manifest>, Failure>,
    /// The store's count of changes just before the cut.
    pub(super) changes_at_cut: u64,
    pub(super) held_bytes_max: u64,
}

impl Checkpointer {
    /// Makes a checkpoint; this thread walks through the store.
    pub(super) fn make(&self, handle: &mut Handle, attempt: &Arc<Attempt>) -> Made {
        let made = self.make_checkpoint(handle, attempt);
        let totals = attempt
            .ending()
            .map(|(_, totals)| totals)
            .unwrap_or_default();
        let mut held_bytes_max = totals.held_bytes_max;
        let made = made.and_then(|manifest| {
            held_bytes_max = held_bytes_max.max(self.save_beside(attempt)?);
            Ok(manifest)
        });
        Made {
            result: made.map(Arc::new),
            changes_at_cut: attempt.changes_at_cut.load(Ordering::Relaxed),
            held_bytes_max,
        }
    }

    /// Makes the checkpoint, reports its outcome, and lets it take effect.
    fn make_checkpoint(
        &self,
        handle: &mut Handle,
        attempt: &Arc<Attempt>,
    ) -> Result<Manifest, Failure> {
        let surroundings = &self.setup.surroundings;
        let started_ns = self.setup.clock.monotonic_ns();
        let made = self.write_checkpoint(handle, attempt);
        match &made {
            Ok(manifest) => {
                let ms = (self.setup.clock.monotonic_ns() - started_ns) / 1_000_000;
                surroundings.tell(
                    Level::Notice,
                    format_args!(
                        "Checkpoint {} saved: {} records, {} bytes in {ms} ms",
                        manifest.generation,
                        manifest.records(),
                        manifest.bytes(),
                    ),
                );
                surroundings.in_force(manifest);
            }
            Err(failure) => {
                surroundings.tell(Level::Warning, format_args!("Checkpoint failed: {failure}"));
            }
        }
        made
    }

    /// Writes what a save leaves beside its checkpoint; returns the maximum memory held for it.
    fn save_beside(&self, attempt: &Attempt) -> Result<u64, Failure> {
        if !attempt.is_save {
            return Ok(0);
        }
        let limits = self.snapshot_limits();
        let surroundings = &self.setup.surroundings;
        surroundings.save_beside(limits, &|| attempt.is_given_up())
    }

    fn write_checkpoint(
        &self,
        handle: &mut Handle,
        attempt: &Arc<Attempt>,
    ) -> Result<Manifest, Failure> {
        // Read once for the whole attempt, because it may change meanwhile.
        let directory = &*self.directory();
        let disk = &*self.setup.disk;
        if let Some(reason) = self.setup.surroundings.refuses() {
            return Err(Failure::NotWhole(reason));
        }
        let prepared = self.setup.surroundings.prepare();
        prepared.map_err(Failure::System)?;
        let cut = self.cut(handle, attempt)?;
        if let Some(reason) = cut.refused.clone() {
            attempt.fail(format_args!("{reason}"));
            drop(cut);
            self.walk(handle, attempt, &self.pace(None));
            return Err(Failure::NotWhole(reason));
        }
        let prepared = disk
            .create_directory(directory)
            .and_then(|()| free_directory(disk, directory, cut.generation))
            .and_then(|name| disk.create_directory(&directory.join(&name)).map(|()| name));
        let name = match prepared {
            Ok(name) => name,
            Err(error) => {
                attempt.fail(format_args!("{}: {error}", directory.display()));
                drop(cut);
                self.walk(handle, attempt, &self.pace(None));
                return Err(system(directory, &error));
            }
        };
        let own = directory.join(&name);
        let parts = self.write_parts(handle, attempt, &cut, &own);
        let result = parts.and_then(|parts| self.put_in_force(parts, &cut, directory, name));
        match &result {
            Ok(manifest) => {
                if let Err(error) = self.remove_replaced(directory, manifest) {
                    self.setup.surroundings.tell(
                        Level::Warning,
                        format_args!("Cannot remove an older checkpoint: {error}"),
                    );
                }
            }
            Err(_) => self.remove_rest(directory, &own),
        }
        result
    }

    /// Removes what a failed attempt wrote, unless it may be in force.
    fn remove_rest(&self, directory: &Path, own: &Path) {
        let disk = &*self.setup.disk;
        let named = match read_manifest(disk, directory) {
            Ok(manifest) => manifest.map(|manifest| directory.join(manifest.directory)),
            // It is unknown what the manifest names.
            Err(_) => return,
        };
        if named.as_deref() != Some(own) {
            // What cannot be removed is no checkpoint, and the next one removes it.
            let _removed = remove_checkpoint(disk, own);
        }
    }

    /// Writes all parts; on return they are durable, and were read again.
    fn write_parts(
        &self,
        handle: &mut Handle,
        attempt: &Attempt,
        cut: &Cut,
        own: &Path,
    ) -> Result<Vec<Part>, Failure> {
        let head = |part| PartHead {
            value_version: bodies::STYLE.version,
            part,
            generation: cut.generation,
            created_unix_ms: cut.created_unix_ms,
            lineage: self.setup.lineage,
        };
        let count = u32::try_from(self.setup.writers.max(1)).unwrap_or(1);
        let pace = &self.pace(cut.log_sequence);
        let tier = self.tier_for(attempt);
        let parts: Vec<Option<Part>> = std::thread::scope(|scope| {
            let writers = (0..count).map(|part| {
                let writer = Writer {
                    tier: tier.as_deref(),
                    disk: &*self.setup.disk,
                    directory: own,
                    head: head(part),
                    attempt,
                    pace,
                };
                let batches = &cut.batches;
                scope.spawn(move || writer.run(batches))
            });
            let writers: Vec<_> = writers.collect();
            self.walk(handle, attempt, pace);
            let ended = writers
                .into_iter()
                .map(|writer| writer.join().ok().flatten());
            ended.collect()
        });
        let parts: Option<Vec<Part>> = parts.into_iter().collect();
        check(attempt)?;
        let parts = parts.ok_or_else(|| Failure::System("a writing thread failed".into()))?;
        let written = parts.iter().map(|part| part.entry.records).sum::<u64>();
        let saved = attempt.ending().map_or(0, |(_, totals)| totals.records);
        if written != saved {
            // This is a bug of this program, and must not produce a checkpoint.
            let what = format!("{written} records were written of {saved} that were saved");
            return Err(Failure::System(what));
        }
        let synced = self.setup.disk.sync_directory(own);
        synced.map_err(|error| system(own, &error))?;
        Ok(parts)
    }

    /// Returns the tier, if the parts are to refer to its values.
    fn tier_for(&self, attempt: &Attempt) -> Option<Arc<Tier>> {
        let tier = self.setup.surroundings.tier();
        tier.filter(|_| !attempt.has_values)
    }

    /// Begins the snapshot, as soon as no other one is in progress.
    fn cut(&self, handle: &mut Handle, attempt: &Arc<Attempt>) -> Result<Cut, Failure> {
        loop {
            let log_sequence = self.setup.surroundings.log_sequence();
            let changes = self.setup.store.statistics().changes;
            let created_unix_ms = self.setup.clock.now_unix_ms();
            let (sender, batches) = sync_channel(QUEUE_LEN);
            let feed = Feed {
                queue: Some(sender),
                attempt: Arc::clone(attempt),
            };
            let surroundings = &self.setup.surroundings;
            let look = || (surroundings.libraries(), surroundings.history(log_sequence));
            let limits = self.snapshot_limits();
            let begun = handle.begin_snapshot_and(Box::new(feed), limits, look);
            if let Ok((generation, (libraries, history))) = begun {
                attempt.changes_at_cut.store(changes, Ordering::Relaxed);
                let (history, refused) = match history {
                    Ok(history) => (history, None),
                    Err(reason) => (History::default(), Some(reason)),
                };
                return Ok(Cut {
                    generation,
                    log_sequence: history.cut_sequence.or(log_sequence),
                    created_unix_ms,
                    libraries,
                    history,
                    refused,
                    batches: Mutex::new(batches),
                });
            }
            if attempt.is_given_up() {
                return Err(Failure::Cancelled);
            }
            handle.advance_snapshot(BUCKETS_AT_ONCE);
            std::thread::sleep(REST);
        }
    }

    /// Walks through the store until the snapshot is over, whatever its outcome.
    fn walk(&self, handle: &mut Handle, attempt: &Attempt, pace: &Pace<'_>) {
        let mut thread = pace.enter();
        let mut told_ns = self.setup.clock.monotonic_ns();
        loop {
            if attempt.ending().is_some() {
                return;
            }
            if attempt.is_given_up() {
                self.setup.store.cancel_snapshot();
            }
            let buckets = match thread.is_contended() {
                true => BUCKETS_CONTENDED,
                false => BUCKETS_AT_ONCE,
            };
            match handle.advance_snapshot(buckets) {
                SnapshotStep::Idle => return,
                SnapshotStep::More => pace.pause(&mut thread),
                SnapshotStep::Later => std::thread::sleep(REST),
            }
            let now_ns = self.setup.clock.monotonic_ns();
            if now_ns.saturating_sub(told_ns) >= TOLD_EVERY_NS {
                told_ns = now_ns;
                self.tell_progress();
            }
        }
    }

    fn tell_progress(&self) {
        if let Some(progress) = self.figures().current {
            self.setup.surroundings.tell(
                Level::Notice,
                format_args!(
                    "Checkpoint: {}.{} % walked, {} records, {} bytes, {} bytes/s",
                    progress.walked_per_mille / 10,
                    progress.walked_per_mille % 10,
                    progress.records,
                    progress.bytes,
                    progress.bytes_per_second(),
                ),
            );
        }
    }

    /// Puts the checkpoint in force.
    fn put_in_force(
        &self,
        parts: Vec<Part>,
        cut: &Cut,
        directory: &Path,
        name: String,
    ) -> Result<Manifest, Failure> {
        let disk = &*self.setup.disk;
        let mut manifest = Manifest {
            lineage: self.setup.lineage,
            generation: cut.generation,
            log_sequence: cut.log_sequence,
            created_unix_ms: cut.created_unix_ms,
            directory: name,
            parts: Vec::new(),
            databases: BTreeMap::new(),
            libraries: cut.libraries.clone(),
            segments: Vec::new(),
            dictionaries: Vec::new(),
            history: cut.history.clone(),
        };
        let mut hold = Hold::default();
        for part in parts {
            hold.join(part.hold);
            manifest.parts.push(part.entry);
            for (database, records) in part.databases {
                *manifest.databases.entry(database).or_default() += records;
            }
        }
        let surroundings = &self.setup.surroundings;
        if let Some(from) = cut
            .log_sequence
            .filter(|_| cut.history.cut_sequence.is_none())
        {
            let end = surroundings.log_end();
            manifest.history.settled_sequence = end.map(|end| end.max(from));
        }
        let tier = surroundings.tier();
        if let Some(tier) = tier.as_deref().filter(|_| !hold.is_empty()) {
            let named = keep_values(tier, &hold, directory)
                .map_err(|fault| Failure::System(fault.to_string()))?;
            places::note(&named, &mut manifest);
        }
        let durable = surroundings
            .make_log_durable()
            .and_then(|()| disk.sync_directory(directory))
            .and_then(|()| replace_manifest(disk, directory, &manifest));
        durable.map_err(|error| system(directory, &error))?;
        if let Some(tier) = tier {
            // Only now: until here it was uncertain which of the two is in force.
            places::in_force(&tier, &manifest);
        }
        Ok(manifest)
    }
}

/// Makes the values durable to which a checkpoint only refers, and keeps them once it is in force.
fn keep_values(tier: &Tier, hold: &Hold, directory: &Path) -> Result<Named, TierFault> {
    tier.claim(directory)?;
    let named = tier.make_durable(hold)?;
    tier.about_to_be_in_force(hold);
    Ok(named)
}

/// A cut, and the channel of its records.
struct Cut {
    generation: u64,
    log_sequence: Option<u64>,
    created_unix_ms: u64,
    libraries: Vec<Vec<u8>>,
    history: History,
    /// Why it must not become a checkpoint, if so.
    refused: Option<String>,
    batches: Mutex<Receiver<Batch>>,
}

/// Returns the failure of the attempt, if it has one.
fn check(attempt: &Attempt) -> Result<(), Failure> {
    if attempt.is_cancelled.load(Ordering::Relaxed) {
        return Err(Failure::Cancelled);
    }
    if let Some(what) = attempt.fault() {
        return Err(Failure::System(what));
    }
    match attempt.ending() {
        Some((Ending::Complete, _)) => Ok(()),
        Some((Ending::OverLimit, _)) => Err(Failure::OverLimit),
        Some((Ending::Cancelled, _)) | None => Err(Failure::Cancelled),
    }
}

fn system(path: &Path, error: &io::Error) -> Failure {
    Failure::System(format!("{}: {error}", path.display()))
}
