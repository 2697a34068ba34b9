//! A device in memory that loses data as a real one may: for tests of what is kept and what comes
//! back.
//!
//! ```text
//!             write_at            sync
//!   caller ────────────► pending ──────► durable          contents of a file
//!             rename …            sync_directory
//!   caller ────────────► pending ──────► durable          names
//!
//!   crash(seed):   durable + some of pending ──► the device as it is found afterwards
//! ```
//!
//! [`SimulatedDisk::crash`] lets pending changes survive in any way in which a device, its cache
//! and a file system without promises of their own may leave them:
//!
//! - any subset of the writes, whole or in part, cut at 512 or at 4,096 bytes;
//! - a file's length apart from its bytes: a longer file with zeroes, or with earlier content of
//!   the device, where the bytes did not arrive; a shorter one where only they did;
//! - any subset of the names made, changed and removed. A replaced name refers to the old or the
//!   new file, never a mixture. The content of a directory whose own name is lost is lost with it.
//!   A synced file may still lose its name.
//!
//! Faults are requested by the number of the operation. As with Linux, a file's failed sync forgets
//! the pending changes, while readers go on seeing them; **the next one succeeds**. Code that
//! trusts that one loses data, and the tests detect it. Names stay pending when the sync of their
//! directory fails: a file system that cannot keep those stops altogether.
//!
//! Readers see the current values of [mapped](DiskFile::words) words. At each sync the device gets
//! the changed pages of them, as one more pending write: a crash leaves each page as it was at some
//! time.
//!
//! All results follow from the seeds if one thread at a time uses the device.

mod content;
mod faults;
mod names;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use base::random::Prng;
use base::shared_words::SharedWords;
use base::sync::atomic::{AtomicU64, Ordering};
use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};
use content::Content;
pub use faults::Fault;
use faults::Plan;
use names::{Entry, Names};

/// A device in memory. Clones are the same device.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// Whether reads are stalled at present, and the condition that wakes them.
    stall: Arc<(Mutex<bool>, Condvar)>,
}

impl SimulatedDisk {
    /// Returns an empty device; `seed` decides what half-done operations leave behind.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::of(State {
            names: Names::default(),
            files: Vec::new(),
            mapped: Vec::new(),
            remains: Vec::new(),
            plan: Plan::default(),
            capacity_bytes: u64::MAX,
            random: Prng::seeded(seed),
        })
    }

    fn of(state: State) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            stall: Arc::default(),
        }
    }

    /// Returns the number of operations so far, including failed ones. It is also the number of the
    /// next one.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().plan.operations()
    }

    /// Returns the number of operations that failed on request.
    #[must_use]
    pub fn faults_struck(&self) -> u64 {
        self.lock().plan.struck()
    }

    /// Makes the operations of these numbers fail. An operation to which the kind cannot happen (a
    /// reader cannot run out of space) is not affected.
    pub fn fail(&self, operations: Range<u64>, fault: Fault) {
        self.lock().plan.fail(operations, fault);
    }

    /// Ends all requested faults.
    pub fn heal(&self) {
        self.lock().plan.heal();
    }

    /// Cuts the power during the operation of this number: it and all later ones fail.
    /// [`SimulatedDisk::crash`] decides what comes back.
    pub fn cut_power_at(&self, operation: u64) {
        self.lock().plan.cut_power_at(operation);
    }

    /// Whether the power has been cut.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.lock().plan.is_off()
    }

    /// Makes reads of files wait until this is called with `false`.
    pub fn stall_reads(&self, on: bool) {
        let (is_on, changed) = &*self.stall;
        *is_on.lock().unwrap_or_else(PoisonError::into_inner) = on;
        changed.notify_all();
    }

    fn wait_while_stalled(&self) {
        let (is_on, changed) = &*self.stall;
        let is_on = is_on.lock().unwrap_or_else(PoisonError::into_inner);
        // The stall has ended, so the state is not checked again.
        let _awake = changed.wait_while(is_on, |is_on| *is_on);
    }

    /// Limits the bytes of all files together from now on. Operations that need more fail for lack
    /// of space.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.lock().capacity_bytes = capacity_bytes;
    }

    /// Returns the bytes that the files take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Makes everything durable, as an orderly end of the system does. Counts as no operation.
    pub fn settle(&self) {
        let mut state = self.lock();
        state.take_mapped();
        state.names.settle();
        state.files.iter_mut().for_each(Content::sync);
    }

    /// Returns the device as it is found after a power cut at this moment; the old one is off from
    /// here on. Each seed is another possible outcome. No fault and no limit carries over.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.lock();
        state.plan.cut_power();
        state.take_mapped();
        let mut random = Prng::seeded(seed);
        let names = state.names.survivors(&mut random);
        let mut files = Vec::new();
        let names = names.map_files(|file| {
            let bytes = state.files[file].survivors(&mut random, &state.remains);
            files.push(Content::durable(bytes));
            files.len() - 1
        });
        Self::of(State {
            names,
            files,
            mapped: Vec::new(),
            remains: state.remains.clone(),
            plan: Plan::default(),
            capacity_bytes: u64::MAX,
            random,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, file: usize, is_writable: bool) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile {
            disk: self.clone(),
            file,
            is_writable,
        })
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        formatter
            .debug_struct("SimulatedDisk")
            .field("operations", &state.plan.operations())
            .field("files", &state.names.files().count())
            .finish_non_exhaustive()
    }
}

impl Disk for SimulatedDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        state.plan.asks()?;
        Ok(self.handle(state.names.file(path)?, false))
    }

    fn open_for_writing(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        state.plan.asks()?;
        Ok(self.handle(state.names.file(path)?, true))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        state.changes_names(|names, files| {
            names.create(path, files.len())?;
            files.push(Content::default());
            Ok(())
        })?;
        Ok(self.handle(state.files.len() - 1, true))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let replaced = state.names.file(to).ok();
        state.changes_names(|names, _| names.rename(from, to))?;
        state.leaves_remains(replaced);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let removed = state.names.file(path).ok();
        state.changes_names(|names, _| names.remove(path))?;
        state.leaves_remains(removed);
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.lock()
            .changes_names(|names, _| names.create_directory(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.lock()
            .changes_names(|names, _| names.remove_directory(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.plan.asks()?;
        state.names.list(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.lock();
        let State {
            names,
            plan,
            random,
            ..
        } = &mut *state;
        names.find_directory(directory)?;
        match plan.syncs() {
            Ok(()) => names.sync(directory),
            Err(error) if plan.is_off() => return Err(error),
            Err(error) => {
                names.fail_sync(directory, random);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Mapped words go to a device in pieces of this length.
const PAGE_BYTES: usize = 4096;

/// An open file; it stays usable after its name is gone.
struct SimulatedFile {
    disk: SimulatedDisk,
    file: usize,
    is_writable: bool,
}

impl SimulatedFile {
    /// Locks the device, if this file may be changed.
    fn for_change(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.is_writable {
            Ok(self.disk.lock())
        } else {
            Err(Errno::BADF.into())
        }
    }
}

impl fmt::Debug for SimulatedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SimulatedFile({})", self.file)
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.for_change()?.write(self.file, bytes, offset)
    }

    fn words(&self, count: usize) -> io::Result<Option<SharedWords>> {
        let mut state = self.for_change()?;
        state.plan.asks()?;
        let words = SharedWords::new(count);
        state.mapped.push((self.file, words.clone()));
        state.show_mapped(self.file, 0..usize::MAX);
        Ok(Some(words))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.wait_while_stalled();
        let mut state = self.disk.lock();
        state.plan.asks()?;
        state.take_mapped();
        Ok(state.files[self.file].read(buffer, in_memory(offset)?))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.lock().sync(self.file)
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.lock();
        state.plan.asks()?;
        Ok(state.files[self.file].live_bytes())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.for_change()?.resize(self.file, len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.for_change()?;
        let len = len.max(state.files[self.file].live_bytes());
        state.resize(self.file, len)
    }
}

struct State {
    names: Names,
    /// Files by number. Files without a name stay, because they may still be open.
    files: Vec<Content>,
    /// Files by number, and the mapped words that they begin with.
    mapped: Vec<(usize, SharedWords)>,
    /// Content of removed files: a device may show it where new bytes did not arrive.
    remains: Vec<Vec<u8>>,
    plan: Plan,
    capacity_bytes: u64,
    random: Prng,
}

impl State {
    fn changes_names(
        &mut self,
        change: impl FnOnce(&mut Names, &mut Vec<Content>) -> io::Result<()>,
    ) -> io::Result<()> {
        let planned = self.plan.changes();
        if planned.is_err() && !self.plan.is_cut_now() {
            return planned;
        }
        // Under way when the power was cut: pending like the changes before it.
        change(&mut self.names, &mut self.files)?;
        planned
    }

    fn write(&mut self, file: usize, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        let offset = in_memory(offset)?;
        let planned = self.plan.writes();
        if planned.is_ok() && self.has_room(file, end) {
            self.take_mapped();
            self.files[file].write(offset, bytes.to_vec());
            self.show_mapped(file, offset..offset + bytes.len());
            return Ok(());
        }
        if planned.is_ok() || self.plan.is_cut_now() || !self.plan.is_off() {
            let room = self.room_bytes(file).saturating_sub(offset);
            let part = self.random.index(bytes.len().max(1)).min(room);
            self.files[file].write(offset, bytes[..part].to_vec());
        }
        planned?;
        Err(Errno::NOSPC.into())
    }

    fn resize(&mut self, file: usize, len: u64) -> io::Result<()> {
        let planned = self.plan.changes();
        if planned.is_err() && !self.plan.is_cut_now() {
            return planned;
        }
        if !self.has_room(file, len) {
            return Err(Errno::NOSPC.into());
        }
        self.files[file].resize(in_memory(len)?);
        planned
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        let planned = self.plan.syncs();
        self.take_mapped();
        match planned {
            Ok(()) => self.files[file].sync(),
            Err(_) if self.plan.is_off() => {}
            Err(_) => self.files[file].fail_sync(&mut self.random, &self.remains),
        }
        planned
    }

    /// Takes the changes of mapped words over, page by page.
    fn take_mapped(&mut self) {
        for (file, words) in &self.mapped {
            for (page, words) in words
                .chunks(PAGE_BYTES / size_of::<AtomicU64>())
                .enumerate()
            {
                let bytes = words
                    .iter()
                    .flat_map(|word| word.load(Ordering::Acquire).to_le().to_le_bytes());
                let bytes: Vec<u8> = bytes.collect();
                let offset = page * PAGE_BYTES;
                let live = self.files[*file].live().get(offset..);
                if !live.is_some_and(|live| live.starts_with(&bytes)) {
                    self.files[*file].write(offset, bytes);
                }
            }
        }
    }

    /// Copies a part of a file's content to its mapped words. Threads may write to other words
    /// meanwhile.
    fn show_mapped(&self, file: usize, range: Range<usize>) {
        let mapped = self.mapped.iter().filter(|(one, _)| *one == file);
        let range =
            range.start / size_of::<AtomicU64>()..range.end.div_ceil(size_of::<AtomicU64>());
        for (_, words) in mapped {
            let (live, _) = self.files[file].live().as_chunks();
            let shown = words.iter().zip(live).take(range.end).skip(range.start);
            for (word, bytes) in shown {
                word.store(u64::from_le_bytes(*bytes).to_le(), Ordering::Release);
            }
        }
    }

    fn used_bytes(&self) -> u64 {
        let files = self.names.files();
        files.map(|file| self.files[file].live_bytes()).sum()
    }

    /// Whether a file may have this length.
    fn has_room(&self, file: usize, len: u64) -> bool {
        let more = len.saturating_sub(self.files[file].live_bytes());
        more == 0 || self.used_bytes().saturating_add(more) <= self.capacity_bytes
    }

    /// Returns the maximum length that a file may reach.
    fn room_bytes(&self, file: usize) -> usize {
        let free = self.capacity_bytes.saturating_sub(self.used_bytes());
        let room = self.files[file].live_bytes().saturating_add(free);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    fn leaves_remains(&mut self, file: Option<usize>) {
        /// Number of removed files whose content is kept, newest first.
        const REMAINS_MAX: usize = 4;
        if let Some(file) = file {
            self.remains.push(self.files[file].live().to_vec());
            if self.remains.len() > REMAINS_MAX {
                self.remains.remove(0);
            }
        }
    }
}

fn in_memory(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| Errno::FBIG.into())
}

fn is_file(entry: Entry) -> Option<usize> {
    match entry {
        Entry::File(file) => Some(file),
        Entry::Directory => None,
    }
}

#[cfg(test)]
mod tests;
