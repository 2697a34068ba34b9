//! The end of the log in a mapped file: a frame is with the system as soon as it is copied.
//!
//! ```text
//!   file "ring"   ┌ chunk 0 ┬ chunk 1 ┬ … ┬ chunk n-1 ┬ head ┐
//!                 └─────────┴─────────┴───┴───────────┴──────┘
//!   sequence s stands at s modulo the length of all chunks
//! ```
//!
//! An appender copies frames to memory in any case. If that memory belongs to a file, nothing need
//! be written before a reply leaves: if the process ends, the system has the frames. The thread
//! that syncs moves them to segments. After a power cut the content of a ring may be anything;
//! nothing in it is durable.
//!
//! When a log is opened again, [`salvage`] puts the frames that segments lack into a segment. It is
//! the only reader of frames in a ring: replay and all others read segments.
//!
//! The ring grows in place. The file has its full length from the start, as a hole. A few chunks of
//! it are made **ready** when the log is opened, with space on the device and pages in memory. The
//! thread that syncs makes more of them ready, ahead of the appenders ([`super::growth`]). A chunk
//! that is not ready is skipped: then frames go to memory of the process, as when the ring is full.
//! `ring.spare` has space for as many chunks as are ready.
//!
//! Rules
//!  1. The head says up to where frames are **complete**. It is raised when they are, before a
//!     reply leaves. So bytes behind it, from an earlier pass through the ring, are never read.
//!  2. The head says what is durable, before any of it is overwritten: from there on the ring has
//!     all frames.
//!  3. Each opened log begins a ring in a new file, once the directory without the old one is
//!     durable. A ring that is found belongs to the last log that was open there, and its frames
//!     were never discarded.
//!
//! The byte format is in `docs/formats/log.md`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::clock::Clock;
use base::random::Prng;
use base::shared_words::SharedWords;
use base::sync::atomic::Ordering;

use super::frame::{self, Frame, WORD_BYTES, u64_at};
use super::options::Options;
use super::reader::{self, LogError, Reader, Tail, refusal};
use super::segment::{self, BLOCK_HEAD_BYTES, BlockHead, SEGMENT_HEAD_BYTES, SegmentHead};
use crate::checksum;
use crate::disk::{Disk, DiskFile};

const NAME: &str = "ring";
/// File that receives the frames of a ring when a log is opened again. It exists as long as the
/// ring, so that a device that is full by then still has the space.
const SPARE_NAME: &str = "ring.spare";
const MAGIC: &[u8; 8] = b"IOLITRNG";
/// Version of the head here, and of the frames in the ring. The previous one had no controls.
const VERSION: u32 = 3;
const OLDEST_VERSION: u32 = 2;
const HEAD_BYTES: usize = 4096;
/// Number of bytes of the head that are covered by the sum behind them.
const STATED_BYTES: usize = 28;
/// Words of the head; each has a cache line of its own.
const COMPLETE_WORD: usize = 8;
const DURABLE_WORD: usize = 16;
/// Number of zeroes written at once.
const ZEROES_BYTES: usize = 64 << 10;

/// The ring of an open log.
#[derive(Debug)]
pub(super) struct Ring {
    /// All chunks, and the head.
    words: SharedWords,
    /// Index of the head's first word.
    head: usize,
    file: Box<dyn DiskFile>,
    spare: Box<dyn DiskFile>,
    /// Number of chunks that are ready from the start, beginning with the one that holds the first
    /// sequence.
    first_count: u64,
}

impl Ring {
    /// Creates a ring for a log that continues at `start`, or a shorter one if the wanted one is
    /// impossible. Returns `None` if both are impossible: then frames go to segments before replies
    /// leave. A ring is impossible if it leaves no space for a segment, or for the
    /// `unwritten_bytes` of frames that are written first. Earlier rings in the directory must have
    /// been [removed](remove).
    pub(super) fn create(
        disk: &dyn Disk,
        directory: &Path,
        start: u64,
        unwritten_bytes: u64,
        options: &Options,
    ) -> Option<Self> {
        let room_bytes = options.segment_bytes.max(segment_bytes_of(unwritten_bytes));
        let shorter = Some(options.ring_bytes_min).filter(|bytes| *bytes < options.ring_bytes);
        let lengths = [Some(options.ring_bytes), shorter];
        for ring_bytes in lengths.into_iter().flatten().filter(|bytes| *bytes > 0) {
            let sizes = Sizes::new(ring_bytes, options);
            let spare = disk.create(&directory.join(SPARE_NAME));
            let ring = spare.and_then(|spare| {
                spare.allocate(segment_bytes_of(sizes.first_bytes()))?;
                let path = directory.join(NAME);
                Self::create_file(disk, &path, spare, start, room_bytes, &sizes)
            });
            if let Ok(Some(ring)) = ring {
                return Some(ring);
            }
            let _left = remove(disk, directory);
            if ring.is_ok() {
                // This file system supports no length.
                break;
            }
        }
        None
    }

    /// Returns the length of the chunks in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.head * WORD_BYTES) as u64
    }

    fn create_file(
        disk: &dyn Disk,
        path: &Path,
        spare: Box<dyn DiskFile>,
        start: u64,
        room_bytes: u64,
        sizes: &Sizes,
    ) -> io::Result<Option<Self>> {
        let file = disk.create(path)?;
        let all_bytes = sizes.ring_bytes + HEAD_BYTES as u64;
        let count = usize::try_from(all_bytes).map_err(io::Error::other)? / WORD_BYTES;
        // The allocated space is released again, which leaves a hole.
        file.allocate(sizes.first_bytes() + HEAD_BYTES as u64 + room_bytes)?;
        file.set_len(0)?;
        file.set_len(all_bytes)?;
        let Some(words) = file.words(count)? else {
            return Ok(None);
        };
        let head_bytes = sizes.ring_bytes..all_bytes;
        file.allocate_part(head_bytes.clone())?;
        file.write_at(&[0; HEAD_BYTES], head_bytes.start)?;
        file.write_at(&stated_head(VERSION, sizes.ring_bytes), head_bytes.start)?;
        let head = words.len() - HEAD_BYTES / WORD_BYTES;
        words.part(head..words.len()).keep_in_memory();
        let ring = Self {
            head,
            words,
            file,
            spare,
            first_count: sizes.first_count,
        };
        let chunks: Vec<SharedWords> = ring.chunks(sizes.chunk_bytes).collect();
        for number in 0..sizes.first_count {
            let at = (start / sizes.chunk_bytes + number) % chunks.len() as u64;
            ring.fill(at, &chunks[usize::try_from(at).map_err(io::Error::other)?])?;
        }
        ring.set_durable(start);
        ring.complete(start);
        Ok(Some(ring))
    }

    /// Returns the number of chunks that are ready from the start, beginning with the one that
    /// holds the first sequence.
    pub(super) fn first_count(&self) -> u64 {
        self.first_count
    }

    /// Makes another, still unused chunk ready: chunk number `at` of the file. `ready_count` chunks
    /// are ready afterwards.
    ///
    /// # Errors
    /// Those of the system; then the chunk is not ready.
    pub(super) fn make_ready(
        &self,
        at: u64,
        words: &SharedWords,
        ready_count: u64,
    ) -> io::Result<()> {
        let ready_bytes = ready_count * size_of_val(&words[..]) as u64;
        self.spare.allocate(segment_bytes_of(ready_bytes))?;
        self.fill(at, words)
    }

    /// Allocates a chunk's space and writes zeroes, so that its pages exist before an appender
    /// needs them.
    fn fill(&self, at: u64, words: &SharedWords) -> io::Result<()> {
        let bytes = size_of_val(&words[..]) as u64;
        let start = at * bytes;
        self.file.allocate_part(start..start + bytes)?;
        write_zeroes(&*self.file, start..start + bytes)?;
        words.keep_in_memory();
        Ok(())
    }

    /// Returns the words of each chunk of `chunk_bytes`.
    pub(super) fn chunks(&self, chunk_bytes: u64) -> impl Iterator<Item = SharedWords> {
        let count = usize::try_from(chunk_bytes).unwrap_or(usize::MAX) / WORD_BYTES;
        let starts = (0..self.head).step_by(count);
        starts.map(move |start| self.words.part(start..start + count))
    }

    /// Declares every frame below `sequence` whole, and in the ring unless it is in a segment that
    /// is with the system.
    #[inline]
    pub(super) fn complete(&self, sequence: u64) {
        let word = &self.words[self.head + COMPLETE_WORD];
        let _before = word.fetch_update(Ordering::Release, Ordering::Relaxed, |before| {
            (u64::from_le(before) < sequence).then(|| sequence.to_le())
        });
    }

    /// Discards everything from `sequence` on: it is neither complete nor durable any more. No
    /// thread may raise either meanwhile.
    pub(super) fn give_up(&self, sequence: u64) {
        for word in [COMPLETE_WORD, DURABLE_WORD] {
            let word = &self.words[self.head + word];
            let before = u64::from_le(word.load(Ordering::Acquire));
            word.store(before.min(sequence).to_le(), Ordering::Release);
        }
    }

    /// Declares everything below `sequence` durable, in segments.
    pub(super) fn set_durable(&self, sequence: u64) {
        self.words[self.head + DURABLE_WORD].store(sequence.to_le(), Ordering::Release);
    }
}

/// The sizes of a ring.
struct Sizes {
    ring_bytes: u64,
    chunk_bytes: u64,
    /// Number of chunks that are ready from the start.
    first_count: u64,
}

impl Sizes {
    fn new(ring_bytes: u64, options: &Options) -> Self {
        let chunk_bytes = options.chunk_bytes;
        let first_count = options.ring_bytes_first.min(ring_bytes) / chunk_bytes;
        Self {
            ring_bytes,
            chunk_bytes,
            first_count: first_count.max(1),
        }
    }

    fn first_bytes(&self) -> u64 {
        self.first_count * self.chunk_bytes
    }
}

fn write_zeroes(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    static ZEROES: [u8; ZEROES_BYTES] = [0; ZEROES_BYTES];
    let mut offset = range.start;
    while offset < range.end {
        let left = usize::try_from(range.end - offset).unwrap_or(usize::MAX);
        let piece = &ZEROES[..ZEROES.len().min(left)];
        file.write_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Returns the constant part of the head.
fn stated_head(version: u32, ring_bytes: u64) -> [u8; STATED_BYTES + 4] {
    let mut bytes = [0; STATED_BYTES + 4];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&ring_bytes.to_le_bytes());
    let sum = checksum::crc32c(&bytes[..STATED_BYTES]);
    bytes[STATED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the length of a segment that has `frames_bytes` of frames in one block.
fn segment_bytes_of(frames_bytes: u64) -> u64 {
    (SEGMENT_HEAD_BYTES + BLOCK_HEAD_BYTES) as u64 + frames_bytes
}

/// Makes the content of a directory's ring durable.
///
/// # Errors
/// Those of the system.
pub(super) fn sync(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    disk.open_for_writing(&directory.join(NAME))?.sync()
}

/// Removes the ring of a directory, if there is one, and makes the removal durable.
///
/// # Errors
/// Those of the system.
pub(super) fn remove(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    let mut is_changed = false;
    for name in [NAME, SPARE_NAME] {
        match disk.remove(&directory.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => {
                removed?;
                is_changed = true;
            }
        }
    }
    match is_changed {
        true => disk.sync_directory(directory),
        false => Ok(()),
    }
}

/// A ring that was found in a directory.
struct Found {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    bytes: u64,
    complete: u64,
    durable: u64,
}

impl Found {
    /// Opens the ring of a directory, if there is one with a valid head.
    fn open(disk: &dyn Disk, directory: &Path) -> io::Result<Option<Self>> {
        let path = directory.join(NAME);
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let Some(bytes) = file.size()?.checked_sub(HEAD_BYTES as u64) else {
            return Ok(None);
        };
        let mut head = vec![0; HEAD_BYTES];
        let is_whole = file.read_at(&mut head, bytes)? == HEAD_BYTES;
        let found = Self {
            path,
            file,
            bytes,
            complete: u64_at(&head, COMPLETE_WORD * WORD_BYTES),
            durable: u64_at(&head, DURABLE_WORD * WORD_BYTES),
        };
        // An empty ring was not used. A ring that claims to hold more than its size was left by a
        // power cut.
        let held = found.complete.saturating_sub(found.durable);
        let mut versions = OLDEST_VERSION..=VERSION;
        let is_known = versions.any(|version| head.starts_with(&stated_head(version, bytes)));
        Ok((is_whole && is_known && (1..=bytes).contains(&held)).then_some(found))
    }

    /// Returns the bytes of the frames from `start` on, as far as they are whole.
    fn frames_from(&self, start: u64) -> Result<Vec<u8>, LogError> {
        let held = self.complete.saturating_sub(start);
        let mut bytes = vec![0; usize::try_from(held).unwrap_or(0)];
        let until_end = self.bytes - start % self.bytes;
        let (front, back) = bytes.split_at_mut(usize::try_from(held.min(until_end)).unwrap_or(0));
        let read = self.file.read_at(front, start % self.bytes);
        let read = read.and_then(|_| self.file.read_at(back, 0));
        read.map_err(|error| LogError::Io {
            path: self.path.clone(),
            error,
        })?;
        let mut end = 0;
        while let Ok(length) = frame::frame_length(&bytes[end..])
            && Frame::decode(&bytes[end..], start + end as u64).is_ok()
        {
            end += length;
        }
        bytes.truncate(end);
        Ok(bytes)
    }
}

/// Returns a sequence that no frame in a directory's ring reaches, or 0 if there is no ring.
/// [`salvage`] puts the frames below it that segments lack into a segment.
///
/// # Errors
/// Those of the system.
pub fn ring_end(disk: &dyn Disk, directory: &Path) -> io::Result<u64> {
    Ok(Found::open(disk, directory)?.map_or(0, |found| found.complete))
}

/// Durably puts the frames that a ring has and segments lack into a segment; returns their bytes.
/// Must be called before anything else reads a log that was open for writing, with no other user of
/// the directory. If segments cannot be read, it does nothing, and the next reader of them reports
/// why.
///
/// # Errors
/// Those of the system; the ring is then unchanged.
pub fn salvage(
    disk: &Arc<dyn Disk>,
    clock: &dyn Clock,
    directory: &Path,
    options: &Options,
) -> io::Result<u64> {
    let Some(found) = Found::open(&**disk, directory)? else {
        return Ok(0);
    };
    let tail = match tail_of_segments(disk, directory, found.durable) {
        Ok(Some(tail)) if (found.durable..found.complete).contains(&tail.end) => tail,
        Err(LogError::Io { path, error }) => return Err(refusal(LogError::Io { path, error })),
        // No segments to add to, nothing to add, or damage.
        Ok(_) | Err(_) => return Ok(0),
    };
    let frames = found.frames_from(tail.end).map_err(refusal)?;
    if frames.is_empty() {
        return Ok(0);
    }
    write_segment(&**disk, clock, directory, options, tail.end, &frames)?;
    Ok(frames.len() as u64)
}

/// Returns the end of the segments that hold the durable frames, or `None` if there are no
/// segments.
fn tail_of_segments(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    durable: u64,
) -> Result<Option<Tail>, LogError> {
    let reader = match Reader::open(Arc::clone(disk), directory, durable) {
        // A checkpoint made meanwhile holds everything below.
        Err(LogError::Missing { first, .. }) => Reader::open(Arc::clone(disk), directory, first),
        reader => reader,
    };
    let mut reader = reader?;
    while reader.next_bytes()?.is_some() {}
    let tail = reader.tail().filter(|tail| tail.place.is_some());
    Ok(tail.cloned())
}

/// Writes a segment with `frames`, which begins at sequence `first`.
fn write_segment(
    disk: &dyn Disk,
    clock: &dyn Clock,
    directory: &Path,
    options: &Options,
    first: u64,
    frames: &[u8],
) -> io::Result<()> {
    let segments = reader::list(disk, directory, u64::MAX).map_err(refusal)?;
    let ordinal = segments.iter().map(|segment| segment.head.ordinal).max();
    let mut random = options.seed.map_or_else(Prng::from_os, Prng::seeded);
    let head = SegmentHead {
        version: segment::VERSION,
        ordinal: ordinal.map_or(0, |highest| highest.saturating_add(1)),
        salt: random.next_u64(),
        created_unix_ms: clock.now_unix_ms(),
        was_used: false,
    };
    let block = BlockHead {
        sequence: first,
        length: frames.len() as u64,
        durable: 0,
        chain: head.chain(),
        gap: 0,
    };
    let path = directory.join(SPARE_NAME);
    let file = match disk.open_for_writing(&path) {
        // A power cut left only the ring.
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
        file => file?,
    };
    let bytes = [&head.encode()[..], &block.encode(head.salt), frames].concat();
    file.write_at(&bytes, 0)?;
    file.set_len(bytes.len() as u64)?;
    file.sync()?;
    disk.rename(&path, &segment::path_of(directory, first))?;
    disk.sync_directory(directory)
}
