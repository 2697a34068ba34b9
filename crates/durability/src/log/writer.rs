//! From memory to files: blocks, segments, and the handling of failures.
//!
//! One thread at a time writes: the holder of the [`Writer`]. A segment that failed once, in a
//! write or a sync, is not touched again. It is unknown which of its bytes a device has, and a
//! second sync may succeed without having kept anything. Frames that are not durable are written to
//! another segment, from memory ([`Log::heal`]).

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

/// Next segments, before they have their names: as many of the default length as can be filled
/// before writes stop because too much is held.
const READY_NAMES: [&str; 3] = ["next.new", "second.new", "third.new"];
/// A segment that is made on demand, because no other is ready.
const NOW_NAME: &str = "now.new";
/// A segment that replaces one that failed, before it has its name.
const HEALING_NAME: &str = "healing.new";
const UNUSED_EXTENSION: &str = ".new";
/// The same, for a file that was a segment.
pub(super) const SPARE_EXTENSION: &str = "new";
/// Maximum number of cut-off files that are kept for reuse.
const SPARES_MAX: usize = 8;
/// The next segment is made when this fraction of the current one is written. A device that is busy
/// with syncs needs as long for a new file as half a segment takes to fill, and a writer that finds
/// none waits for all of that. A second one is made when this much is not durable yet, and a third
/// one at twice that: then the log is written so fast that segments may be filled while one file is
/// synced.
const NEXT_SHARE: u64 = 16;
/// Number of directory levels whose names may be new: the log's, and its parent's.
const DIRECTORIES_OWN: usize = 2;
/// Number of spins between two yields while a thread waits for another that copies a frame.
const SPINS: u32 = 64;

/// The files to which frames are written.
#[derive(Debug)]
pub(super) struct Writer {
    /// The segment that blocks go to; `None` before the first one and after a failure.
    pub(super) current: Option<Segment>,
    /// Segments written before that are still to be synced, oldest first.
    pub(super) full: Vec<Segment>,
    /// The next segments, with rising ordinals; used from the front.
    ready: VecDeque<Segment>,
    /// Whether a file got its name since the directory was synced.
    pub(super) has_new_name: bool,
    /// Whether a device may still have discarded frames in the ring.
    pub(super) has_stale_ring: bool,
    /// The highest durable sequence that a block states.
    stated: u64,
    /// All files of the log, ordered by their first sequence.
    files: Vec<(u64, PathBuf)>,
    /// Files that are no longer in force once the directory is synced.
    superseded: Vec<PathBuf>,
    /// Cut-off files, by their durable names. Reuse needs no new space, neither on the device nor
    /// in the system's memory.
    spares: Vec<PathBuf>,
    ordinal: u32,
    random: Prng,
}

/// Space on the device that a segment takes before it is written.
#[derive(Clone, Copy)]
struct Room {
    /// The wanted space, ...
    wanted: u64,
    /// ... or, if the device has less, this much. A block for which there is no space is not begun,
    /// at any attempt.
    least: u64,
}

impl Room {
    /// Returns the space of a whole segment, or of a block if that is longer.
    fn of_block(log: &Log, block_bytes: u64) -> Self {
        let least = SEGMENT_HEAD_BYTES as u64 + block_bytes;
        Self {
            wanted: log.options.segment_bytes.max(least),
            least,
        }
    }

    /// Returns the space of the first segment of a log, or of one after a fault: it may never be
    /// written, and it becomes longer when it is.
    fn first(log: &Log, block_bytes: u64) -> Self {
        let whole = Self::of_block(log, block_bytes);
        let first_bytes = log.options.segment_bytes_first.max(whole.least);
        Self {
            wanted: whole.wanted.min(first_bytes),
            ..whole
        }
    }

    /// Takes the space; returns how much it took.
    fn reserve(self, log: &Log, file: &dyn DiskFile) -> io::Result<u64> {
        if !log.is_full() {
            match file.allocate(self.wanted) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => file.set_len(0)?,
                result => return result.map(|()| self.wanted),
            }
        }
        file.allocate(self.least)?;
        Ok(self.least)
    }
}

/// A file to which blocks are written.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    /// Offset of the next block.
    pub(super) offset: u64,
    /// End of the space that the file has on the device, or of the file if it has its final length.
    reserved: u64,
    /// Sequence behind the last frame.
    end: u64,
    salt: u64,
    chain: u32,
}

impl Writer {
    /// Creates the directory if needed, and finds the files in it.
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
            // The name of the segment that superseded them may not be durable yet.
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

    /// Returns the writer of a log without files.
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

    /// Returns all files of the log, ordered by their first sequence.
    pub(super) fn files(&self) -> &[(u64, PathBuf)] {
        &self.files
    }

    /// Takes out the files that lie wholly below a sequence.
    pub(super) fn cut(&mut self, sequence: u64) -> Vec<PathBuf> {
        let is_below =
            |pair: &[(u64, PathBuf)]| pair[1].0 <= sequence && !self.is_in_use(&pair[0].1);
        let count = self.files.windows(2).take_while(|pair| is_below(pair));
        let count = count.count();
        self.files.drain(..count).map(|(_, path)| path).collect()
    }

    /// Returns how many of `cut_count` cut-off files are to be kept, and the spares to remove. As
    /// many spares are kept as the log needed since the last cut.
    pub(super) fn plan_spares(&mut self, cut_count: usize) -> (usize, Vec<PathBuf>) {
        let wanted = cut_count.clamp(1, SPARES_MAX);
        let kept = self.spares.len().min(wanted);
        let gone = self.spares.split_off(kept);
        (wanted - kept, gone)
    }

    /// Adds files that no longer belong to the log, for reuse.
    pub(super) fn add_spares(&mut self, paths: Vec<PathBuf>) {
        self.spares.extend(paths);
    }

    /// Removes superseded files once the directory is synced. Readers skip files that cannot be
    /// removed.
    pub(super) fn remove_superseded(&mut self, disk: &dyn Disk) {
        for path in self.superseded.drain(..) {
            let _ignored = disk.remove(&path);
        }
    }

    fn is_in_use(&self, path: &Path) -> bool {
        let mut used = self.full.iter().chain(&self.current);
        used.any(|segment| segment.path == path)
    }

    /// Returns the head of the next segment to be made.
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

    /// Names a segment after its first sequence. Files that begin there or later are no longer in
    /// force. They are removed once the new name is durable: until then they may hold durable
    /// frames.
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

    /// Returns the name under which another next segment is to be made now, if one is.
    /// `unsynced_bytes` were written and are not durable.
    fn wanted(&self, options: &Options, unsynced_bytes: u64) -> Option<&'static str> {
        let share = options.segment_bytes / NEXT_SHARE;
        let is_wanted = match self.ready.len() as u64 {
            0 => self
                .current
                .as_ref()
                .is_none_or(|one| one.offset >= share && one.reserved >= options.segment_bytes),
            count => unsynced_bytes >= share * count,
        };
        let is_free = |name: &&str| !self.ready.iter().any(|one| one.path.ends_with(name));
        READY_NAMES.into_iter().find(is_free).filter(|_| is_wanted)
    }

    /// Forgets the segments written so far: nothing is written to them again.
    fn seal(&mut self) {
        self.current = None;
        self.full.clear();
    }
}

impl Segment {
    /// Makes a file with a durable head, but without a segment's name, from a spare file if there
    /// is one. It has space for a block.
    fn make(
        log: &Log,
        name: &str,
        head: SegmentHead,
        spare: Option<PathBuf>,
        room: Room,
    ) -> io::Result<Self> {
        let path = log.directory.join(name);
        match log.disk.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let made = Self::make_at(log, &path, head, spare, room);
        if made.is_err() {
            // The last space of a full device is left for others.
            let _left = log.disk.remove(&path);
        }
        made
    }

    fn make_at(
        log: &Log,
        path: &Path,
        mut head: SegmentHead,
        spare: Option<PathBuf>,
        room: Room,
    ) -> io::Result<Self> {
        // If the spare cannot be opened, someone removed it.
        let used = spare.and_then(|spare| Self::take_over(log, &spare, path).ok());
        head.was_used = used.is_some();
        let file: Arc<dyn DiskFile> = match used {
            Some(file) => Arc::from(file),
            None if log.has_ring() => Arc::from(log.disk.create_direct(path)?),
            None => Arc::from(log.disk.create(path)?),
        };
        let reserved = room.reserve(log, &*file)?;
        file.write_at(&head.encode(), 0)?;
        file.sync()?;
        Ok(Self {
            file,
            path: path.to_owned(),
            offset: SEGMENT_HEAD_BYTES as u64,
            reserved,
            end: 0,
            salt: head.salt,
            chain: head.chain(),
        })
    }

    /// Takes space for a block before it is written. [`Log::lengthen_segment`] takes more in
    /// advance.
    fn make_room(&mut self, block_bytes: u64) -> io::Result<()> {
        let needed = self.offset + block_bytes;
        if needed > self.reserved {
            self.file.allocate(needed)?;
            self.reserved = needed;
        }
        Ok(())
    }

    /// Renames a spare file, and shortens it to a segment's length.
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

    /// States behind the last block that more than this file holds is durable, so that a missing
    /// next file is noticed. No thread writes to this file any more. Not synced, because the system
    /// writes it back: if a power cut loses the statement, it loses no promise.
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
    /// Passes everything below `up_to`, and whatever else is complete, to the system. Workers call
    /// it at the end of their turn, before their replies leave. At [`Level::Always`] it also wakes
    /// the syncing thread.
    ///
    /// # Errors
    /// The present fault, or a new one.
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
            // Appenders that still fill a place below report it when they are done.
            self.raise_written(self.places.complete());
            return Ok(());
        }
        // Discarded frames are no longer waited for.
        let up_to = up_to.min(self.tail());
        // A thread that heals holds the writer for as long as the device takes.
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

    /// Waits until everything below `up_to` is complete, and returns up to where the log is.
    /// `up_to` must have been appended.
    fn complete_up_to(&self, up_to: u64) -> u64 {
        let mut spins = 0;
        loop {
            let complete = self.places.complete();
            if complete >= up_to {
                return complete;
            }
            // Another thread is copying a frame.
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            } else {
                base::sync::hint::spin_loop();
            }
        }
    }

    /// Notes that the ring is complete up to here. Wakes the syncing thread if that makes a piece.
    fn shared(&self, complete: u64) {
        self.raise_written(complete);
        self.note_unsynced();
        let is_piece = complete.saturating_sub(self.stored()) >= self.options.piece_bytes;
        if is_piece && !self.is_called.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// Notes the time of a write, if everything before it is durable.
    fn note_unsynced(&self) {
        if self.unsynced_since_ns.load(Ordering::Relaxed) == 0 {
            let now_ns = self.clock.monotonic_ns().max(1);
            self.unsynced_since_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Notes that everything below `durable` is durable, and that no write behind it is known.
    pub(super) fn note_durable(&self, durable: u64) {
        self.unsynced_since_ns.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.written() > durable {
            // Frames were written meanwhile, and their writer may have seen the old time, which was
            // still set.
            self.note_unsynced();
        }
    }

    /// Puts the content of the ring into segments if it is a piece, so that a later sync finds
    /// little to do.
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

    /// Whether the ring has a piece that is to be put into segments.
    pub(super) fn has_piece(&self) -> bool {
        self.written().saturating_sub(self.stored()) >= self.options.piece_bytes
    }

    /// Passes the written blocks of the current segment to the system.
    fn hand_over(&self, writer: &mut Writer) -> Result<(), LogFault> {
        let current = writer.current.as_ref();
        current
            .map_or(Ok(()), |segment| segment.file.hand_over())
            .map_err(|error| self.fail(writer, &error))
    }

    /// Writes the complete frames that are in no segment into one, as one block.
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
        // The block may still be only in this process.
        match self.memory.ring_from(stored) {
            Some(ring) => ring.complete(complete),
            None => self.hand_over(writer)?,
        }
        self.stored.store(complete, Ordering::Release);
        self.raise_written(complete);
        Ok(())
    }

    /// Provides a current segment with space for another block, within the length of a segment.
    fn turn_segment(&self, writer: &mut Writer, first: u64, block_bytes: u64) -> io::Result<()> {
        if let Some(segment) = &mut writer.current {
            let is_new = segment.offset == SEGMENT_HEAD_BYTES as u64;
            if is_new || segment.offset + block_bytes <= self.options.segment_bytes {
                return segment.make_room(block_bytes);
            }
        }
        let mut segment = match writer.ready.pop_front() {
            Some(segment) => segment,
            None => {
                let spare = writer.spares.pop();
                let room = Room::of_block(self, block_bytes);
                Segment::make(self, NOW_NAME, writer.head(self), spare, room)?
            }
        };
        segment.make_room(block_bytes)?;
        // The previous segment's name may not be durable yet. If only this name survives a crash,
        // nothing leads to this segment, and nothing in it was durable: a reader ends before both.
        writer.name(self, &mut segment, first)?;
        if let Some(current) = writer.current.replace(segment) {
            // A full segment goes to the system now, because the syncing thread may take long to
            // reach it.
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

    /// Returns the number of zeroes behind the head of a block at `offset`, so that its frames have
    /// the same page alignment in the file as in the ring: then they go to the device without a
    /// copy.
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

    /// Returns the maximum length of a block with the frames of a range, at any offset.
    fn block_bytes_max(&self, start: u64, end: u64) -> u64 {
        let gap_bytes_max = if self.is_in_place(start, end) {
            PAGE_BYTES
        } else {
            0
        };
        (BLOCK_HEAD_BYTES + gap_bytes_max) as u64 + end - start
    }

    /// States what is durable if no block did, and none is due.
    pub(super) fn state_durable(&self, writer: &mut Writer) -> Result<(), LogFault> {
        let durable = self.durable();
        if writer.stated == durable || writer.current.is_none() || self.stored() != durable {
            return Ok(());
        }
        self.append_block(writer, durable, durable)
            .map_err(|error| self.fail(writer, &error))?;
        self.hand_over(writer)
    }

    /// Makes the next segment ready once the current one is in serious use, and more of them if the
    /// log is written fast. Other threads may write meanwhile; only one thread at a time calls
    /// this.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.lengthen_segment()?;
        loop {
            let mut writer = lock(&self.writer);
            let unsynced_bytes = self.written().saturating_sub(self.durable());
            let Some(name) = writer.wanted(&self.options, unsynced_bytes) else {
                return Ok(());
            };
            let (head, spare) = (writer.head(self), writer.spares.pop());
            let room = Room::of_block(self, 0);
            drop(writer);
            let segment = Segment::make(self, name, head, spare, room)?;
            let mut writer = lock(&self.writer);
            // A segment that was made on demand meanwhile supersedes this one.
            if writer.ordinal == head.ordinal.saturating_add(1) {
                writer.ready.push_back(segment);
            }
        }
    }

    /// Takes more space for a segment that has less than the full length: doubles it once half of
    /// it is used.
    fn lengthen_segment(&self) -> io::Result<()> {
        let wanted = |segment: &Segment| {
            let is_due = segment.offset >= segment.reserved / 2;
            let wanted = (2 * segment.reserved).min(self.options.segment_bytes);
            (is_due && wanted > segment.reserved).then_some(wanted)
        };
        loop {
            let current = lock(&self.writer).current.clone();
            let Some((segment, room_bytes)) =
                current.and_then(|one| wanted(&one).map(|wanted| (one, wanted)))
            else {
                return Ok(());
            };
            segment.file.allocate(room_bytes)?;
            let mut writer = lock(&self.writer);
            let same = writer.current.as_mut();
            let same = same.filter(|one| Arc::ptr_eq(&one.file, &segment.file));
            if let Some(same) = same {
                same.reserved = same.reserved.max(room_bytes);
            }
        }
    }

    /// Notes that the current segment failed.
    pub(super) fn fail(&self, writer: &mut Writer, error: &io::Error) -> LogFault {
        self.fail_at(writer, &self.directory, error)
    }

    /// Like [`Log::fail`], with the path to report if there is no current segment.
    fn fail_at(&self, writer: &mut Writer, path: &Path, error: &io::Error) -> LogFault {
        let in_use = writer.current.as_ref().map(|segment| &*segment.path);
        let fault = LogFault::new(in_use.unwrap_or(path), error);
        writer.seal();
        self.stored.store(self.durable(), Ordering::Release);
        self.written.store(self.durable(), Ordering::Release);
        self.faults.set(Some(fault.clone()));
        fault
    }

    /// Whether the present fault is a full device.
    pub(super) fn is_full(&self) -> bool {
        let is_full = |fault: LogFault| fault.kind == io::ErrorKind::StorageFull;
        self.fault().is_some_and(is_full)
    }

    /// Writes everything that is not durable to a new segment, and makes it durable. No other
    /// thread writes meanwhile.
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
        // The new segment has a higher ordinal than the ready ones, and may need their space.
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
        let room = Room::first(self, block_bytes);
        writer.current = Some(Segment::make(self, HEALING_NAME, head, None, room)?);
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
