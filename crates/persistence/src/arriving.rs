//! Loads a checkpoint while its parts are being received, one part after the other.
//!
//! ```text
//!   pieces of parts ─► queue ─► a thread that reads blocks ─► queue ─┬─► a thread that puts records ─► store
//!                                (all sums of a part)                └─► another one
//! ```
//!
//! Blocks are independent, so those of one part are put in parallel. Both queues are short: the
//! thread that receives pieces waits for those that put them.
//!
//! Before [`Arriving::finish`] has succeeded, the store holds a part of a checkpoint and no valid
//! data: the caller empties the store if the load fails or is given up.

mod queue;
mod spares;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use durability::checkpoint::{
    BLOCK_BYTES_MAX, CheckpointFault, Flaw, Manifest, OwnedBlock, PartEntry, PartHead, PartReader,
    part_name,
};
use rdb::Limits;
use store::Handle;

use super::bodies::Existing;
use super::environment::Environment;
use super::loader::{LoadFault, Putter, check_counts, wait_for_memory};
use queue::Queue;
use spares::Spares;
use stream::Stream;

/// Maximum number of waiting pieces.
const PIECES_MAX: usize = 16;
/// Maximum length of a piece whose memory is reused.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// Maximum number of waiting blocks for each thread that puts them.
const BLOCKS_MAX: usize = 2;
/// Space is prepared in steps that grow by this factor, for at most this factor times twice the
/// records met: memory is allocated for records that exist, whatever the sender states. The last
/// step visits all present records again, while no thread puts others, so it should come long
/// before the end.
const EXPECTED_TIMES: u64 = 64;

/// See the module.
pub struct Arriving {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    env: Arc<Environment>,
    limits: Limits,
    /// Stated directory of the parts, for fault messages.
    directory: PathBuf,
    /// Stated number of records.
    records: u64,
    pieces: Arc<Queue<Piece>>,
    blocks: Queue<Work>,
    spare_pieces: Arc<Spares>,
    spare_blocks: Spares,
    parts: Mutex<Vec<(PartHead, PartEntry)>>,
    first_fault: Mutex<Option<LoadFault>>,
}

/// A received piece.
enum Piece {
    Bytes(Vec<u8>),
    /// The part is complete.
    End,
}

/// Records that one thread puts into the store.
struct Work {
    block: OwnedBlock,
    version: u16,
    part: u32,
    /// End of the block in its part.
    before: u64,
    /// Length of the block there.
    bytes: u64,
}

impl Arriving {
    /// Begins to load a checkpoint into empty databases, with at most `threads` threads that put
    /// records. `records` is the expected number of records, as far as known. `directory` is named
    /// in faults.
    ///
    /// # Errors
    /// If no threads can be started.
    pub fn begin(
        env: &Arc<Environment>,
        directory: &Path,
        records: u64,
        threads: usize,
    ) -> io::Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            env: Arc::clone(env),
            limits: env.shared.settings.value_limits(),
            directory: directory.to_owned(),
            records,
            pieces: Arc::new(Queue::new(PIECES_MAX)),
            blocks: Queue::new(BLOCKS_MAX * threads),
            spare_pieces: Arc::new(Spares::new(PIECES_MAX, PIECE_BYTES_MAX)),
            spare_blocks: Spares::new((BLOCKS_MAX + 1) * threads, BLOCK_BYTES_MAX),
            parts: Mutex::default(),
            first_fault: Mutex::default(),
        });
        let mut arriving = Self {
            shared,
            threads: Vec::new(),
        };
        arriving.spawn("arriving", Shared::read)?;
        for _ in 0..threads {
            arriving.spawn("loader", Shared::put)?;
        }
        Ok(arriving)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "threads that end with the loading"
    )]
    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Shared) -> Result<(), LoadFault> + Send + 'static,
    ) -> io::Result<()> {
        let own = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.into());
        self.threads.push(thread.spawn(move || {
            let _ending = Ending(&own);
            if let Err(fault) = work(&own) {
                own.fail(fault);
            }
        })?);
        Ok(())
    }

    /// Passes on the next bytes of the current part. Waits while too much waits to be loaded; calls
    /// `goes_on` meanwhile, several times a second. Returns `false` if no more is wanted:
    /// [`Arriving::finish`] says why.
    pub fn piece(&self, bytes: &[u8], goes_on: &dyn Fn() -> bool) -> bool {
        let mut piece = self.shared.spare_pieces.take();
        piece.clear();
        piece.extend_from_slice(bytes);
        self.shared.pieces.push(Piece::Bytes(piece), goes_on)
    }

    /// Ends the part; otherwise like [`Arriving::piece`].
    pub fn end_part(&self, goes_on: &dyn Fn() -> bool) -> bool {
        self.shared.pieces.push(Piece::End, goes_on)
    }

    /// Takes the fault because of which no more is wanted.
    #[must_use]
    pub fn take_fault(&self) -> Option<LoadFault> {
        lock(&self.shared.first_fault).take()
    }

    /// Ends the input: waits until everything is loaded, and checks it against the manifest.
    ///
    /// # Errors
    /// [`LoadFault`]: then the store has some of the records and must not be served.
    pub fn finish(mut self, manifest: &Manifest) -> Result<(), LoadFault> {
        self.shared.pieces.end();
        let is_whole = self.join();
        let shared = &self.shared;
        if let Some(fault) = lock(&shared.first_fault).take() {
            return Err(fault);
        }
        if !is_whole {
            return Err(LoadFault::Thread);
        }
        let found = std::mem::take(&mut *lock(&shared.parts));
        shared.compare(&found, manifest)?;
        let mut handle = shared.env.store.handle();
        check_counts(manifest, &mut handle)
    }

    /// Waits for all threads; returns whether none panicked.
    fn join(&mut self) -> bool {
        // Each thread is joined, also after one that panicked.
        let joined = self.threads.drain(..).map(JoinHandle::join);
        let panicked = joined.filter(Result::is_err).count();
        panicked == 0
    }
}

impl fmt::Debug for Arriving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").finish_non_exhaustive()
    }
}

impl Drop for Arriving {
    /// Gives the load up, unless it is finished.
    fn drop(&mut self) {
        self.shared.close();
        let _whole = self.join();
    }
}

/// Keeps other threads from waiting for a thread that panicked.
struct Ending<'s>(&'s Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}

impl Shared {
    fn close(&self) {
        self.pieces.close();
        self.blocks.close();
    }

    fn fail(&self, fault: LoadFault) {
        lock(&self.first_fault).get_or_insert(fault);
        self.close();
    }

    fn path(&self, part: u32) -> PathBuf {
        self.directory.join(part_name(part))
    }

    /// Reads blocks from pieces, and checks them.
    fn read(&self) -> Result<(), LoadFault> {
        let mut handle = self.env.store.handle();
        let mut met = BTreeMap::new();
        let read = self.read_parts(&mut handle, &mut met);
        for (database, _) in met {
            handle.expect(database, 0);
        }
        self.blocks.end();
        read
    }

    fn read_parts(
        &self,
        handle: &mut Handle,
        met: &mut BTreeMap<u16, u64>,
    ) -> Result<(), LoadFault> {
        let mut number = 0;
        while let Some(first) = self.pieces.pop() {
            if !self.read_part(number, first, handle, met)? {
                break;
            }
            number += 1;
        }
        Ok(())
    }

    /// Reads one part; returns whether more may follow.
    fn read_part(
        &self,
        number: u32,
        first: Piece,
        handle: &mut Handle,
        met: &mut BTreeMap<u16, u64>,
    ) -> Result<bool, LoadFault> {
        let path = self.path(number);
        let stream = Box::new(Stream::new(
            Arc::clone(&self.pieces),
            Arc::clone(&self.spare_pieces),
            first,
        ));
        let mut reader = PartReader::of_stream(stream, &path)?;
        let head = *reader.head();
        if head.part != number {
            return Err(damaged(&path, Flaw::Foreign).into());
        }
        let mut before = 0;
        while let Some(block) = reader.take_block(self.spare_blocks.take())? {
            let whole = block.block();
            if let Some(first) = whole.records().next() {
                let records = whole.len() as u64;
                self.expect(first.head.database, records, handle, met);
            }
            let work = Work {
                block,
                version: head.value_version,
                part: number,
                before: reader.bytes(),
                bytes: reader.bytes() - before,
            };
            before = reader.bytes();
            if !self.blocks.push(work, &|| true) {
                return Ok(false);
            }
        }
        if let Some(found) = reader.found() {
            // The foot, which is in no block.
            let rest = found.bytes - before;
            let progress = self.env.loading.parts();
            progress.bytes.fetch_add(rest, Ordering::Relaxed);
            lock(&self.parts).push((head, found.clone()));
        }
        Ok(true)
    }

    /// Prepares space in a database for `records` more records: in advance, in few steps.
    fn expect(
        &self,
        database: u16,
        records: u64,
        handle: &mut Handle,
        met: &mut BTreeMap<u16, u64>,
    ) {
        if database >= handle.store().databases() {
            return;
        }
        let before = met.entry(database).or_default();
        let now = *before + records;
        if *before == 0 || step_of(*before) != step_of(now) {
            handle.expect(database, self.records.min(step_of(now)).max(now));
        }
        *before = now;
    }

    /// Puts blocks into the store.
    fn put(&self) -> Result<(), LoadFault> {
        let mut handle = self.env.store.handle();
        handle.begin(0);
        let putter = Putter {
            limits: &self.limits,
            existing: Existing::Refused,
            tier: None,
        };
        let progress = self.env.loading.parts();
        let mut databases = BTreeMap::new();
        while let Some(work) = self.blocks.pop() {
            let block = work.block.block();
            handle.enter();
            let put = putter.put_block(&block, work.version, &mut handle, &mut databases);
            handle.leave();
            put.map_err(|(key, fault)| LoadFault::Record {
                path: self.path(work.part),
                before: work.before,
                key,
                fault,
            })?;
            let records = block.len() as u64;
            self.env
                .load_delay
                .wait(records, &|| self.blocks.is_closed());
            wait_for_memory(&self.env.shared.gate, &mut handle);
            progress.records.fetch_add(records, Ordering::Relaxed);
            progress.bytes.fetch_add(work.bytes, Ordering::Relaxed);
            self.spare_blocks.give(work.block.into_memory());
        }
        handle.tell_memory();
        Ok(())
    }

    /// Compares the received parts with a manifest.
    fn compare(
        &self,
        found: &[(PartHead, PartEntry)],
        manifest: &Manifest,
    ) -> Result<(), CheckpointFault> {
        if found.len() != manifest.parts.len() {
            return Err(damaged(&self.directory, Flaw::Short));
        }
        for ((head, found), named) in found.iter().zip(&manifest.parts) {
            let flaw = if (head.generation, head.lineage) != (manifest.generation, manifest.lineage)
            {
                Flaw::Foreign
            } else if found != named {
                Flaw::Digest
            } else {
                continue;
            };
            return Err(damaged(&self.directory.join(&named.name), flaw));
        }
        Ok(())
    }
}

/// Returns the number of records for which space is prepared after `met` were met.
fn step_of(met: u64) -> u64 {
    let mut step = EXPECTED_TIMES;
    while step < met.saturating_mul(2) {
        step = step.saturating_mul(EXPECTED_TIMES);
    }
    step
}

fn damaged(path: &Path, flaw: Flaw) -> CheckpointFault {
    CheckpointFault::Damaged {
        path: path.to_owned(),
        offset: 0,
        flaw,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
