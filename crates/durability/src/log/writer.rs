//! From memory to files: blocks, segments, and what happens when one fails.
//!
//! One thread at a time writes: whoever holds the [`Writer`]. A segment that failed once, in a write or a
//! sync, is not touched again. Nobody knows what of it a device has, and a second sync may well succeed
//! without having kept anything. What is not durable is written to another segment, from memory
//! ([`Log::heal`]).

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::random::Prng;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{fence, thread};

use super::fault::LogFault;
use super::locks::lock;
use super::memory::Row;
use super::open_log::Log;
use super::options::Level;
use super::options::Options;
use super::reader;
use super::segment::{
    self, BLOCK_HEAD_BYTES, BlockHead, PAGE_BYTES, SEGMENT_HEAD_BYTES, SegmentHead,
};
use crate::disk::{Disk, DiskFile, ROWS_MAX};

/// Segments that come next, before they have their names: as many as may be filled, of the default length, before
/// nobody may write because too much is held.
const READY_NAMES: [&str; 3] = ["next.new", "second.new", "third.new"];
/// One that is made when it is needed, because no other is ready.
const NOW_NAME: &str = "now.new";
/// A segment that takes the place of one that failed, before it has its name.
const HEALING_NAME: &str = "healing.new";
const UNUSED_EXTENSION: &str = ".new";
/// As the one above, of a file that was a segment.
pub(super) const SPARE_EXTENSION: &str = "new";
/// So many files that were cut off are kept to be written again, at most.
const SPARES_MAX: usize = 8;
/// The next segment is made when such a share of the current one is written: a device that is busy with syncs
/// takes as long for one as it takes to fill half a segment, and who finds none waits for all of that. A second
/// one is made when so much is not durable yet, and a third one for twice that: then the log is written to so fast
/// that segments may be filled while one file is synced.
const NEXT_SHARE: u64 = 16;
/// How many directories up names may be new: that of the log, and the one it is in.
const DIRECTORIES_OWN: usize = 2;
/// How often a thread spins before it lets others run, waiting for one that copies a frame.
const SPINS: u32 = 64;

/// Where frames are written.
#[derive(Debug)]
pub(super) struct Writer {
    /// Where blocks go; none before the first one and after a failure.
    pub(super) current: Option<Segment>,
    /// Those written before, which are still to be synced, oldest first.
    pub(super) full: Vec<Segment>,
    /// Those that come next, with rising ordinals: used from the front.
    ready: VecDeque<Segment>,
    /// A file got its name since the directory was synced.
    pub(super) has_new_name: bool,
    /// A device may still have frames in the ring that were given up.
    pub(super) has_stale_ring: bool,
    /// The highest durable sequence that a block states.
    stated: u64,
    /// All files of the log, by where they begin.
    files: Vec<(u64, PathBuf)>,
    /// Files that count no more once the directory is synced.
    superseded: Vec<PathBuf>,
    /// Files that were cut off, by names that are durable: what is written again needs no new room, neither on
    /// the device nor in the system's memory.
    spares: Vec<PathBuf>,
    ordinal: u32,
    random: Prng,
}

/// A file that blocks are written to.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    /// Where the next block goes.
    pub(super) offset: u64,
    /// Behind the last frame.
    end: u64,
    salt: u64,
    chain: u32,
}

impl Writer {
    /// Makes the directory if it has to, and looks at what is there.
    pub(super) fn open(
        disk: &dyn Disk,
        directory: &Path,
        durable: u64,
        options: &Options,
    ) -> io::Result<Self> {
        disk.create_directory(directory)?;
        for above in directory.ancestors().skip(1).take(DIRECTORIES_OWN) {
            if !above.as_os_str().is_empty() {
                disk.sync_directory(above)?;
            }
        }
        let names = disk.list(directory)?;
        for name in names.iter().filter(|name| name.ends_with(UNUSED_EXTENSION)) {
            disk.remove(&directory.join(name))?;
        }
        let mut found = reader::list(disk, directory, u64::MAX).map_err(reader::refusal)?;
        let ordinals = found.iter().map(|segment| segment.head.ordinal);
        let ordinal = ordinals
            .max()
            .map_or(0, |highest| highest.saturating_add(1));
        let superseded = reader::take_superseded(&mut found);
        if !superseded.is_empty() {
            // The name of what they were superseded by may not be durable yet.
            disk.sync_directory(directory)?;
        }
        for superseded in superseded {
            disk.remove(&superseded.path)?;
        }
        let files = found.into_iter().map(|file| (file.first, file.path));
        Ok(Self {
            stated: durable,
            files: files.collect(),
            ordinal,
            random: options.seed.map_or_else(Prng::from_os, Prng::seeded),
            ..Self::without_files()
        })
    }

    /// That of a log that has no files.
    pub(super) fn without_files() -> Self {
        Self {
            current: None,
            full: Vec::new(),
            ready: VecDeque::new(),
            has_new_name: false,
            has_stale_ring: false,
            stated: 0,
            files: Vec::new(),
            superseded: Vec::new(),
            spares: Vec::new(),
            ordinal: 0,
            random: Prng::seeded(0),
        }
    }

    /// All files of the log, by where they begin.
    pub(super) fn files(&self) -> &[(u64, PathBuf)] {
        &self.files
    }

    /// Takes the files out that are wholly below a sequence.
    pub(super) fn cut(&mut self, sequence: u64) -> Vec<PathBuf> {
        let is_below =
            |pair: &[(u64, PathBuf)]| pair[1].0 <= sequence && !self.is_in_use(&pair[0].1);
        let count = self.files.windows(2).take_while(|pair| is_below(pair));
        let count = count.count();
        self.files.drain(..count).map(|(_, path)| path).collect()
    }

    /// How many of so many files that were cut off are to be kept, and the spares that are to go: there are
    /// as many as the log needed since it was last cut.
    pub(super) fn plan_spares(&mut self, cut_count: usize) -> (usize, Vec<PathBuf>) {
        let wanted = cut_count.clamp(1, SPARES_MAX);
        let kept = self.spares.len().min(wanted);
        let gone = self.spares.split_off(kept);
        (wanted - kept, gone)
    }

    /// Files that nothing leads to any more, to be written again.
    pub(super) fn add_spares(&mut self, paths: Vec<PathBuf>) {
        self.spares.extend(paths);
    }

    /// The directory was synced: removes what counts no more. What cannot be removed is passed over by readers.
    pub(super) fn remove_superseded(&mut self, disk: &dyn Disk) {
        for path in self.superseded.drain(..) {
            let _ignored = disk.remove(&path);
        }
    }

    fn is_in_use(&self, path: &Path) -> bool {
        let mut used = self.full.iter().chain(&self.current);
        used.any(|segment| segment.path == path)
    }

    /// The head of the segment that is made next.
    fn head(&mut self, log: &Log) -> SegmentHead {
        let ordinal = self.ordinal;
        self.ordinal = ordinal.saturating_add(1);
        SegmentHead {
            version: segment::VERSION,
            ordinal,
            salt: self.random.next_u64(),
            created_unix_ms: log.clock.now_unix_ms(),
            was_used: false,
        }
    }

    /// Gives a segment the name of the sequence that it begins with. Files that begin there or behind count
    /// no more, and are removed once that name is durable: they may hold what was promised.
    fn name(&mut self, log: &Log, segment: &mut Segment, first: u64) -> io::Result<()> {
        let path = segment::path_of(&log.directory, first);
        log.disk.rename(&segment.path, &path)?;
        self.has_new_name = true;
        while let Some((_, behind)) = self.files.pop_if(|(begin, _)| *begin >= first) {
            self.superseded.push(behind);
        }
        self.superseded.retain(|superseded| *superseded != path);
        self.files.push((first, path.clone()));
        log.files_version.fetch_add(1, Ordering::Release);
        segment.path = path;
        Ok(())
    }

    /// The name under which a segment that comes later is to be made now, if one is. `unsynced_bytes` were
    /// written and are not durable.
    fn wanted(&self, options: &Options, unsynced_bytes: u64) -> Option<&'static str> {
        let share = options.segment_bytes / NEXT_SHARE;
        let is_wanted = match self.ready.len() as u64 {
            0 => self.current.as_ref().is_none_or(|one| one.offset >= share),
            count => unsynced_bytes >= share * count,
        };
        let is_free = |name: &&str| !self.ready.iter().any(|one| one.path.ends_with(name));
        READY_NAMES.into_iter().find(is_free).filter(|_| is_wanted)
    }

    /// Forgets the segments that were written to: nothing is written to them again.
    fn seal(&mut self) {
        self.current = None;
        self.full.clear();
    }
}

impl Segment {
    /// A file with a head that is durable, but not the name of a segment: a spare one, if there is one. It has room
    /// for `least_bytes` behind its head.
    fn make(
        log: &Log,
        name: &str,
        head: SegmentHead,
        spare: Option<PathBuf>,
        least_bytes: u64,
    ) -> io::Result<Self> {
        let path = log.directory.join(name);
        match log.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let made = Self::make_at(log, &path, head, spare, least_bytes);
        if made.is_err() {
            // What a full device has left is for others as well.
            let _left = log.disk.remove(&path);
        }
        made
    }

    fn make_at(
        log: &Log,
        path: &Path,
        mut head: SegmentHead,
        spare: Option<PathBuf>,
        least_bytes: u64,
    ) -> io::Result<Self> {
        // Where it cannot be had, somebody took it away.
        let used = spare.and_then(|spare| Self::take_over(log, &spare, path).ok());
        head.was_used = used.is_some();
        let file: Arc<dyn DiskFile> = match used {
            Some(file) => Arc::from(file),
            None if log.has_ring() => Arc::from(log.disk.create_direct(path)?),
            None => Arc::from(log.disk.create(path)?),
        };
        Self::reserve(log, &*file, SEGMENT_HEAD_BYTES as u64 + least_bytes)?;
        file.write_at(&head.encode(), 0)?;
        file.sync()?;
        Ok(Self {
            file,
            path: path.to_owned(),
            offset: SEGMENT_HEAD_BYTES as u64,
            end: 0,
            salt: head.salt,
            chain: head.chain(),
        })
    }

    /// Takes the room of a whole segment, or, where the device has not so much, of so many bytes: what it has no
    /// room for is not begun to be written, each time that it is tried.
    fn reserve(log: &Log, file: &dyn DiskFile, least_bytes: u64) -> io::Result<()> {
        if !log.is_full() {
            match file.allocate(log.options.segment_bytes.max(least_bytes)) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => file.set_len(0)?,
                result => return result,
            }
        }
        file.allocate(least_bytes)
    }

    /// A spare file under another name, no longer than a segment is.
    fn take_over(log: &Log, spare: &Path, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = match log.has_ring() {
            true => log.disk.rewrite_direct(spare)?,
            false => log.disk.open_for_writing(spare)?,
        };
        if file.size()? > log.options.segment_bytes {
            file.set_len(log.options.segment_bytes)?;
        }
        log.disk.rename(spare, path)?;
        Ok(file)
    }

    /// Says behind the last block that more than this file holds is durable: so the next file is missed when
    /// it is gone. Nobody writes to this one any more. Not synced, for the system will see to it: a power cut
    /// that takes it takes no promise.
    pub(super) fn state_next(&self, durable: u64) -> io::Result<()> {
        let head = BlockHead {
            sequence: self.end,
            length: 0,
            durable,
            chain: self.chain,
            gap: 0,
        };
        self.file.write_at(&head.encode(self.salt), self.offset)?;
        self.file.hand_over()
    }
}

impl Log {
    /// Sees to it that everything below a sequence is with the system, and whatever else is complete. For a worker
    /// at the end of its turn, before its replies leave; at [`Level::Always`] it wakes the one who syncs, too.
    ///
    /// # Errors
    /// The fault that there is, or that this came upon.
    pub fn write_out(&self, up_to: u64) -> Result<(), LogFault> {
        if self.written() < up_to {
            self.write_up_to(up_to)?;
        }
        if self.level() == Level::Always {
            self.request_sync(up_to);
        }
        Ok(())
    }

    fn write_up_to(&self, up_to: u64) -> Result<(), LogFault> {
        if self.is_volatile {
            // Others, who fill a place below, say so when they have.
            self.raise_written(self.places.complete());
            return Ok(());
        }
        // What was given up is waited for no more.
        let up_to = up_to.min(self.tail());
        // Who heals holds the writer for as long as a device takes.
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if self.has_ring() {
            let complete = self.complete_up_to(up_to);
            if let Some(ring) = self.memory.ring_from(self.stored()) {
                ring.complete(complete);
                self.shared(complete);
                return Ok(());
            }
        }
        let mut writer = lock(&self.writer);
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        if self.written() >= up_to {
            return Ok(());
        }
        let complete = self.complete_up_to(up_to);
        let result = self.write_block(&mut writer, complete);
        drop(writer);
        if result.is_err() {
            self.bell.ring();
            self.tell();
        }
        result
    }

    /// What is complete, which is everything below `up_to` at least: that was appended.
    fn complete_up_to(&self, up_to: u64) -> u64 {
        let mut spins = 0;
        loop {
            let complete = self.places.complete();
            if complete >= up_to {
                return complete;
            }
            // Somebody copies a frame just now.
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            } else {
                base::sync::hint::spin_loop();
            }
        }
    }

    /// The ring says that everything below is complete. The one who syncs is woken when that is a piece.
    fn shared(&self, complete: u64) {
        self.raise_written(complete);
        self.note_unsynced();
        let is_piece = complete.saturating_sub(self.stored()) >= self.options.piece_bytes;
        if is_piece && !self.is_called.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// Something was written: from now on it is not durable, if nothing was before.
    fn note_unsynced(&self) {
        if self.unsynced_since_ns.load(Ordering::Relaxed) == 0 {
            let now_ns = self.clock.monotonic_ns().max(1);
            self.unsynced_since_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Everything below `durable` is, and nothing is known to be written behind it.
    pub(super) fn note_durable(&self, durable: u64) {
        self.unsynced_since_ns.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.written() > durable {
            // It came meanwhile, and whoever wrote it may have seen a time that was still running.
            self.note_unsynced();
        }
    }

    /// Puts what the ring has into segments, if it is enough to be worth it: a sync finds little to do then.
    pub(super) fn store_pieces(&self) -> Result<(), LogFault> {
        self.is_called.swap(false, Ordering::AcqRel);
        if !self.has_piece() {
            return Ok(());
        }
        let mut writer = lock(&self.writer);
        match self.fault() {
            Some(fault) => Err(fault),
            None => self.write_block(&mut writer, self.places.complete()),
        }
    }

    /// Whether the ring has so much that segments have not that it is to be put there.
    pub(super) fn has_piece(&self) -> bool {
        self.written().saturating_sub(self.stored()) >= self.options.piece_bytes
    }

    /// Sees to it that the system has what was put into segments.
    fn hand_over(&self, writer: &mut Writer) -> Result<(), LogFault> {
        let current = writer.current.as_ref();
        current
            .map_or(Ok(()), |segment| segment.file.hand_over())
            .map_err(|error| self.fail(writer, &error))
    }

    /// Puts what is complete and is in no segment into one, as one block.
    pub(super) fn write_block(&self, writer: &mut Writer, complete: u64) -> Result<(), LogFault> {
        let stored = self.stored();
        if complete <= stored {
            return Ok(());
        }
        let block_bytes = self.block_bytes_max(stored, complete);
        self.turn_segment(writer, stored, block_bytes)
            .and_then(|()| self.append_block(writer, stored, complete))
            .map_err(|error| self.fail(writer, &error))?;
        self.note_unsynced();
        // What was put into a segment may still be with this process alone.
        match self.memory.ring_from(stored) {
            Some(ring) => ring.complete(complete),
            None => self.hand_over(writer)?,
        }
        self.stored.store(complete, Ordering::Release);
        self.raise_written(complete);
        Ok(())
    }

    /// Sees to it that there is a segment, and that it is not too long for another block.
    fn turn_segment(&self, writer: &mut Writer, first: u64, block_bytes: u64) -> io::Result<()> {
        if let Some(segment) = &writer.current {
            let is_new = segment.offset == SEGMENT_HEAD_BYTES as u64;
            if is_new || segment.offset + block_bytes <= self.options.segment_bytes {
                return Ok(());
            }
        }
        let mut segment = match writer.ready.pop_front() {
            Some(segment) => {
                let needed = SEGMENT_HEAD_BYTES as u64 + block_bytes;
                if needed > self.options.segment_bytes {
                    segment.file.allocate(needed)?;
                }
                segment
            }
            None => {
                let spare = writer.spares.pop();
                Segment::make(self, NOW_NAME, writer.head(self), spare, block_bytes)?
            }
        };
        // The name before may not be durable yet. When this one survives it, nothing leads to what is here, and
        // nothing of it was durable: a reader ends before both.
        writer.name(self, &mut segment, first)?;
        if let Some(current) = writer.current.replace(segment) {
            // Those that are full are with the system: who syncs may be long in coming to this one.
            current.file.hand_over()?;
            writer.full.push(current);
        }
        Ok(())
    }

    /// Writes a block with the frames of a range, which may be empty.
    fn append_block(&self, writer: &mut Writer, start: u64, end: u64) -> io::Result<()> {
        let Writer {
            current: Some(segment),
            stated,
            ..
        } = writer
        else {
            return Ok(());
        };
        let block = BlockHead {
            sequence: start,
            length: end - start,
            durable: self.durable(),
            chain: segment.chain,
            gap: self.gap(segment.offset, start, end),
        };
        let mut head_and_gap = [0; BLOCK_HEAD_BYTES + PAGE_BYTES];
        head_and_gap[..BLOCK_HEAD_BYTES].copy_from_slice(&block.encode(segment.salt));
        let head = &head_and_gap[..BLOCK_HEAD_BYTES + block.gap as usize];
        let (mut from, mut offset, mut head) = (start, segment.offset, head);
        loop {
            let mut held: [Row; ROWS_MAX] = Default::default();
            let here = self.memory.rows(from, end, &mut held);
            let rows: [&[AtomicU64]; ROWS_MAX] = std::array::from_fn(|at| held[at].words());
            segment.file.write_words_at(head, &rows, offset)?;
            offset += head.len() as u64 + here - from;
            (from, head) = (here, &[]);
            if from == end {
                break;
            }
        }
        segment.offset = offset;
        segment.end = end;
        segment.chain = block.next_chain(segment.salt);
        *stated = block.durable;
        Ok(())
    }

    /// How many zeroes go behind the head of a block at an offset, so that its frames stand in pages of the file as
    /// they do in those of the ring: then they go to the device without a copy.
    fn gap(&self, offset: u64, start: u64, end: u64) -> u32 {
        if !self.is_in_place(start, end) {
            return 0;
        }
        let behind_head = offset + BLOCK_HEAD_BYTES as u64;
        let gap = start.wrapping_sub(behind_head) % PAGE_BYTES as u64;
        u32::try_from(gap).unwrap_or(0)
    }

    fn is_in_place(&self, start: u64, end: u64) -> bool {
        end - start >= self.options.in_place_bytes && self.memory.ring_from(start).is_some()
    }

    /// A block with the frames of a range is no longer, wherever it goes.
    fn block_bytes_max(&self, start: u64, end: u64) -> u64 {
        let gap_bytes_max = if self.is_in_place(start, end) {
            PAGE_BYTES
        } else {
            0
        };
        (BLOCK_HEAD_BYTES + gap_bytes_max) as u64 + end - start
    }

    /// States what is durable when no block did, and none is due.
    pub(super) fn state_durable(&self, writer: &mut Writer) -> Result<(), LogFault> {
        let durable = self.durable();
        if writer.stated == durable || writer.current.is_none() || self.stored() != durable {
            return Ok(());
        }
        self.append_block(writer, durable, durable)
            .map_err(|error| self.fail(writer, &error))?;
        self.hand_over(writer)
    }

    /// Gets the next segment ready when the current one is in earnest use, and more of them when the log is
    /// written to fast. Others write meanwhile; only one thread at a time does this.
    pub(super) fn prepare(&self) -> io::Result<()> {
        loop {
            let mut writer = lock(&self.writer);
            let unsynced_bytes = self.written().saturating_sub(self.durable());
            let Some(name) = writer.wanted(&self.options, unsynced_bytes) else {
                return Ok(());
            };
            let (head, spare) = (writer.head(self), writer.spares.pop());
            drop(writer);
            let segment = Segment::make(self, name, head, spare, 0)?;
            let mut writer = lock(&self.writer);
            // One that was made meanwhile, because it was needed, supersedes it.
            if writer.ordinal == head.ordinal.saturating_add(1) {
                writer.ready.push_back(segment);
            }
        }
    }

    /// Notes that the segment in use failed.
    pub(super) fn fail(&self, writer: &mut Writer, error: &io::Error) -> LogFault {
        self.fail_at(writer, &self.directory, error)
    }

    /// As [`Log::fail`], at a path if no segment is in use.
    fn fail_at(&self, writer: &mut Writer, path: &Path, error: &io::Error) -> LogFault {
        let in_use = writer.current.as_ref().map(|segment| &*segment.path);
        let fault = LogFault::new(in_use.unwrap_or(path), error);
        writer.seal();
        self.stored.store(self.durable(), Ordering::Release);
        self.written.store(self.durable(), Ordering::Release);
        self.faults.set(Some(fault.clone()));
        fault
    }

    /// Whether the fault that there is is that of a device without room.
    pub(super) fn is_full(&self) -> bool {
        let is_full = |fault: LogFault| fault.kind == io::ErrorKind::StorageFull;
        self.fault().is_some_and(is_full)
    }

    /// Writes everything that is not durable to a new segment, and makes it durable. Nobody else writes
    /// meanwhile.
    pub(super) fn heal(&self, writer: &mut Writer) -> Result<(), LogFault> {
        self.write_anew(writer).map_err(|error| {
            let made = self.directory.join(HEALING_NAME);
            self.fail_at(writer, &made, &error)
        })?;
        self.note_durable(self.durable());
        self.faults.set(None);
        Ok(())
    }

    fn write_anew(&self, writer: &mut Writer) -> io::Result<()> {
        writer.seal();
        self.forget_stale_ring(&mut writer.has_stale_ring)?;
        // What is made now has a higher ordinal than those that are ready, and may need their room.
        for unused in writer.ready.drain(..) {
            let _left = self.disk.remove(&unused.path);
        }
        if self.is_full() {
            for spare in writer.spares.drain(..) {
                let _left = self.disk.remove(&spare);
            }
        }
        let (first, end) = (self.durable(), self.places.complete());
        let head = writer.head(self);
        let block_bytes = self.block_bytes_max(first, end);
        writer.current = Some(Segment::make(self, HEALING_NAME, head, None, block_bytes)?);
        self.append_block(writer, first, end)?;
        let Some(mut segment) = writer.current.take() else {
            return Ok(());
        };
        segment.file.sync()?;
        writer.name(self, &mut segment, first)?;
        writer.current = Some(segment);
        self.disk.sync_directory(&self.directory)?;
        writer.has_new_name = false;
        writer.remove_superseded(&*self.disk);
        self.stored.store(end, Ordering::Release);
        self.raise_written(end);
        self.durable.fetch_max(end, Ordering::AcqRel);
        self.memory.release(end);
        Ok(())
    }
}
