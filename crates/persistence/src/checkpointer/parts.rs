//! Writes the parts of one checkpoint with several threads.
//!
//! ```text
//!   advance_snapshot ──► Feed ──► queue ──┬──► writer 0 ──► 0000.part
//!                         (waits when     ├──► writer 1 ──► 0001.part
//!                          it is full)    └──► …
//! ```
//!
//! Each writer takes the next batch, so that all parts become equally long. Batches in the queue,
//! and those being written, count as held by the snapshot.
//!
//! For a value that is not in memory, a part contains its place, and the [`Hold`] of the attempt
//! keeps it there. If the files are for another server, it contains the value itself: these values
//! are read in the order of their places, over several batches at a time.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use base::background::BackgroundThread;
use durability::checkpoint::{PartEntry, PartHead, PartReader, PartWriter, part_name};
use durability::disk::Disk;
use store::{Batch, Ending, Saved, SavedCold, SavedValue, SnapshotSink, Totals};
use tier::{Hold, Tier};

use super::pace::Pace;
use crate::bodies;
use crate::key_delay::KeyDelay;
use crate::places;

/// Maximum number of batches that wait for a writer: some five megabytes.
pub(super) const QUEUE_LEN: usize = 64;

/// Maximum number of batches that are kept until the values are read to which they only refer: some
/// megabytes.
const UNREAD_MAX: usize = 64;

/// State shared by all threads that work on one checkpoint.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// Whether it is to leave what a save leaves.
    pub(super) is_save: bool,
    /// Whether it must contain all values instead of references.
    pub(super) has_values: bool,
    pub(super) key_delay: KeyDelay,
    pub(super) is_cancelled: AtomicBool,
    /// The store's count of changes just before the cut.
    pub(super) changes_at_cut: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) written_records: AtomicU64,
    /// The first error.
    fault: Mutex<Option<String>>,
    has_fault: AtomicBool,
    ending: Mutex<Option<(Ending, Totals)>>,
}

impl Attempt {
    /// Returns a new attempt, for a save or not, with all values or not, with a delay for each key.
    pub(super) fn new(is_save: bool, has_values: bool, key_delay: i64) -> Self {
        Self {
            is_save,
            has_values,
            key_delay: KeyDelay::of(key_delay),
            ..Self::default()
        }
    }

    /// Whether further writing is useless.
    pub(super) fn is_given_up(&self) -> bool {
        self.has_fault.load(Ordering::Relaxed) || self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn fail(&self, what: impl ToString) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert_with(|| what.to_string());
        self.has_fault.store(true, Ordering::Relaxed);
    }

    pub(super) fn fault(&self) -> Option<String> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.clone()
    }

    /// Returns how the snapshot ended, and its totals.
    pub(super) fn ending(&self) -> Option<(Ending, Totals)> {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the records of a snapshot into the queue.
pub(super) struct Feed {
    pub(super) queue: Option<SyncSender<Batch>>,
    pub(super) attempt: Arc<Attempt>,
}

impl SnapshotSink for Feed {
    fn take(&mut self, batch: Batch) -> ControlFlow<()> {
        let sent = self
            .queue
            .as_ref()
            .is_some_and(|queue| queue.send(batch).is_ok());
        if sent && !self.attempt.is_given_up() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    fn reads_cold(&self) -> bool {
        false
    }

    fn end(&mut self, ending: Ending, totals: &Totals) {
        let mut place = self
            .attempt
            .ending
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some((ending, *totals));
        // Writers end when no further batch can come.
        self.queue = None;
    }
}

/// The result of one writer.
pub(super) struct Part {
    pub(super) entry: PartEntry,
    pub(super) databases: BTreeMap<u16, u64>,
    /// Keeps the values to which it only refers.
    pub(super) hold: Hold,
}

/// Writes one part.
pub(super) struct Writer<'w> {
    pub(super) disk: &'w dyn Disk,
    /// Directory of the parts.
    pub(super) directory: &'w Path,
    pub(super) head: PartHead,
    pub(super) attempt: &'w Attempt,
    pub(super) pace: &'w Pace<'w>,
    /// The tier with values that may stay there.
    pub(super) tier: Option<&'w Tier>,
}

impl Writer<'_> {
    /// Writes batches until no further one can come, and reads them again. Returns `None` if the
    /// checkpoint failed.
    pub(super) fn run(&self, queue: &Mutex<Receiver<Batch>>) -> Option<Part> {
        let written = self.write(queue).and_then(|part| {
            self.verify(&part)?;
            Ok(part)
        });
        match written {
            Ok(part) => Some(part),
            Err(error) => {
                let path = self.path();
                self.attempt
                    .fail(format_args!("{}: {error}", path.display()));
                // The thread that feeds the queue must not wait for ever until it notices.
                while next(queue).is_some() {}
                None
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(part_name(self.head.part))
    }

    fn write(&self, queue: &Mutex<Receiver<Batch>>) -> io::Result<Part> {
        let mut writer = PartWriter::create(self.disk, &self.path(), self.head)?;
        let mut scratch = Vec::new();
        let mut thread = self.pace.enter();
        let attempt = self.attempt;
        let (mut hold, mut unread) = (Hold::default(), Vec::new());
        loop {
            let batch = match next_if_there(queue) {
                Some(batch) => batch,
                None => {
                    // Kept batches count as held, and the walk may be waiting for that to become
                    // less.
                    self.write_values(&mut thread, &mut unread, &mut writer, &mut scratch)?;
                    match next(queue) {
                        Some(batch) => batch,
                        None => break,
                    }
                }
            };
            if attempt.is_given_up() {
                unread.clear();
                continue;
            }
            self.pace.pause(&mut thread);
            let before = writer.bytes();
            let pause = || {
                // After the attempt was given up, others wait for its end.
                if !attempt.is_given_up() {
                    self.pace.pause(&mut thread);
                }
            };
            let records = batch.len() as u64;
            let mut left = 0;
            let mut cold = |named: (&Saved<'_>, &SavedCold), part: &mut PartWriter| match self.tier
            {
                Some(tier) => places::write(tier, &mut hold, named, part),
                None => {
                    left += 1;
                    Ok(())
                }
            };
            bodies::write_batch(&batch, &mut writer, &mut scratch, pause, &mut cold)?;
            let bytes = writer.bytes() - before;
            let is_given_up = || attempt.is_given_up();
            attempt.key_delay.wait(records, &is_given_up);
            attempt.written_bytes.fetch_add(bytes, Ordering::Relaxed);
            attempt
                .written_records
                .fetch_add(records - left, Ordering::Relaxed);
            if left > 0 {
                unread.push(batch);
            }
            if unread.len() >= UNREAD_MAX {
                self.write_values(&mut thread, &mut unread, &mut writer, &mut scratch)?;
            }
        }
        if attempt.is_given_up() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (entry, databases) = writer.finish(&part_name(self.head.part))?;
        Ok(Part {
            entry,
            databases,
            hold,
        })
    }

    /// Reads the values to which batches only refer, in the order of their places, and writes them.
    fn write_values(
        &self,
        thread: &mut BackgroundThread<'_>,
        batches: &mut Vec<Batch>,
        writer: &mut PartWriter,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        let attempt = self.attempt;
        let records = batches.iter().flat_map(Batch::records_unread);
        let mut cold: Vec<_> = records
            .filter_map(|(saved, cold)| Some((saved, cold?)))
            .collect();
        cold.sort_unstable_by_key(|(_, cold)| {
            let locator = cold.locator();
            (locator.slot(), locator.offset_units())
        });
        for (saved, cold) in cold {
            if attempt.is_given_up() {
                break;
            }
            self.pace.pause(thread);
            let before = writer.bytes();
            let value = cold.load(saved.key);
            let value = value
                .as_deref()
                .map_or(SavedValue::Unreadable, SavedValue::of_cold);
            bodies::write(&Saved { value, ..saved }, writer, scratch, || ())?;
            let bytes = writer.bytes() - before;
            attempt.written_bytes.fetch_add(bytes, Ordering::Relaxed);
            attempt.written_records.fetch_add(1, Ordering::Relaxed);
        }
        batches.clear();
        Ok(())
    }

    /// Reads the written part: only then may anything older be removed.
    fn verify(&self, part: &Part) -> io::Result<()> {
        let reader = PartReader::open(self.disk, &self.path());
        let reader = reader.and_then(|reader| reader.expect(&part.entry));
        let mut reader = reader.map_err(io::Error::other)?;
        let mut thread = self.pace.enter();
        while reader.check_block().map_err(io::Error::other)? {
            if self.attempt.is_given_up() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.pace.pause(&mut thread);
        }
        Ok(())
    }
}

/// Waits for the next batch; returns `None` after the last one.
fn next(queue: &Mutex<Receiver<Batch>>) -> Option<Batch> {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.recv().ok()
}

/// Returns the next batch, if there is one and no other writer waits for it.
fn next_if_there(queue: &Mutex<Receiver<Batch>>) -> Option<Batch> {
    queue.try_lock().ok()?.try_recv().ok()
}
