//! The end of the log in a file that is mapped: with the system as soon as a frame is copied.
//!
//! ```text
//!   file "ring"   ┌ chunk 0 ┬ chunk 1 ┬ … ┬ chunk n-1 ┬ head ┐
//!                 └─────────┴─────────┴───┴───────────┴──────┘
//!   sequence s stands at s modulo the length of all chunks
//! ```
//!
//! Who appends copies frames to memory in any case. When that memory is a file's, nothing need be written before
//! a reply leaves: if the process ends, the system has them. The thread that syncs takes them to segments.
//! What a power cut leaves of a ring may be anything; nothing in it is durable.
//!
//! When a log is opened again, [`salvage`] puts what segments do not have into one. That is the only reader of
//! frames in a ring: replay and all others read segments.
//!
//! Rules
//!  1. The head says up to where frames are **complete**. It is raised when they are, before a reply leaves; so what
//!     stands behind in the ring, of an earlier lap, is never looked at.
//!  2. The head says what is durable, before any of it is overwritten: from there on the ring has all frames.
//!  3. Each log that is opened begins a ring in a new file, once the directory without the old one is durable.
//!     A ring that is found belongs to who was there last, and its frames were never given up.
//!
//! The bytes are in `docs/formats/log.md`.

use std::io;
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
/// What the frames of a ring are put into when a log is opened again: it is there with the ring, so that a device that
/// is full by then has the room.
const SPARE_NAME: &str = "ring.spare";
const MAGIC: &[u8; 8] = b"IOLITRNG";
/// Of the head here, and of the frames in the ring. The one before had no controls.
const VERSION: u32 = 3;
const OLDEST_VERSION: u32 = 2;
const HEAD_BYTES: usize = 4096;
/// Bytes of the head that have a sum, which stands behind them.
const STATED_BYTES: usize = 28;
/// Words of the head; each has a line of the caches of its own.
const COMPLETE_WORD: usize = 8;
const DURABLE_WORD: usize = 16;
/// What is written at once when the file is made: pages that lie together.
const FILL_BYTES: usize = 2 << 20;

/// The ring of a log that is open.
#[derive(Debug)]
pub(super) struct Ring {
    /// All chunks, and the head.
    words: SharedWords,
    /// Where the head begins.
    head: usize,
}

impl Ring {
    /// A new ring for a log that goes on at `start`, a shorter one where the wanted one cannot be had; none where that
    /// cannot either: then frames go to segments before replies leave. What leaves no room for a segment, or for `unwritten_bytes` of frames that are to be written first,
    /// cannot be had. Those before it in the directory were [removed](remove).
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
            let ring = create_spare(disk, directory, ring_bytes).and_then(|()| {
                Self::create_file(disk, &directory.join(NAME), start, room_bytes, ring_bytes)
            });
            if let Ok(Some(ring)) = ring {
                return Some(ring);
            }
            let _left = remove(disk, directory);
            if ring.is_ok() {
                // No length is one for this file system.
                break;
            }
        }
        None
    }

    /// How long it is.
    pub(super) fn bytes(&self) -> u64 {
        (self.head * WORD_BYTES) as u64
    }

    fn create_file(
        disk: &dyn Disk,
        path: &Path,
        start: u64,
        room_bytes: u64,
        ring_bytes: u64,
    ) -> io::Result<Option<Self>> {
        let file = disk.create(path)?;
        let all_bytes = ring_bytes + HEAD_BYTES as u64;
        let count = usize::try_from(all_bytes).map_err(io::Error::other)? / WORD_BYTES;
        file.allocate(all_bytes + room_bytes)?;
        file.set_len(all_bytes)?;
        let Some(words) = file.words(count)? else {
            return Ok(None);
        };
        fill(&*file, all_bytes)?;
        file.write_at(&stated_head(VERSION, ring_bytes), ring_bytes)?;
        let ring = Self {
            head: words.len() - HEAD_BYTES / WORD_BYTES,
            words,
        };
        ring.set_durable(start);
        ring.complete(start);
        Ok(Some(ring))
    }

    /// The words of the chunks, each of so many bytes.
    pub(super) fn chunks(&self, chunk_bytes: u64) -> impl Iterator<Item = SharedWords> {
        let count = usize::try_from(chunk_bytes).unwrap_or(usize::MAX) / WORD_BYTES;
        let starts = (0..self.head).step_by(count);
        starts.map(move |start| self.words.part(start..start + count))
    }

    /// Every frame below a sequence is whole, and in the ring if it is in no segment that is with the system.
    #[inline]
    pub(super) fn complete(&self, sequence: u64) {
        let word = &self.words[self.head + COMPLETE_WORD];
        let _before = word.fetch_update(Ordering::Release, Ordering::Relaxed, |before| {
            (u64::from_le(before) < sequence).then(|| sequence.to_le())
        });
    }

    /// What is from a sequence on was given up: it is neither complete nor durable any more. Nobody raises either meanwhile.
    pub(super) fn give_up(&self, sequence: u64) {
        for word in [COMPLETE_WORD, DURABLE_WORD] {
            let word = &self.words[self.head + word];
            let before = u64::from_le(word.load(Ordering::Acquire));
            word.store(before.min(sequence).to_le(), Ordering::Release);
        }
    }

    /// Everything below a sequence is durable, in segments.
    pub(super) fn set_durable(&self, sequence: u64) {
        self.words[self.head + DURABLE_WORD].store(sequence.to_le(), Ordering::Release);
    }
}

/// Writes zeroes, so that pages are there before somebody waits for them.
fn fill(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; FILL_BYTES.min(usize::try_from(bytes).unwrap_or(FILL_BYTES))];
    let mut offset = 0;
    while offset < bytes {
        let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
        let piece = &zeroes[..zeroes.len().min(left)];
        file.write_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// The part of the head that stays as it is.
fn stated_head(version: u32, ring_bytes: u64) -> [u8; STATED_BYTES + 4] {
    let mut bytes = [0; STATED_BYTES + 4];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[16..24].copy_from_slice(&ring_bytes.to_le_bytes());
    let sum = checksum::crc32c(&bytes[..STATED_BYTES]);
    bytes[STATED_BYTES..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Takes the room of a segment that has all frames of a ring.
fn create_spare(disk: &dyn Disk, directory: &Path, ring_bytes: u64) -> io::Result<()> {
    let spare = disk.create(&directory.join(SPARE_NAME))?;
    spare.allocate(segment_bytes_of(ring_bytes))
}

/// Bytes of a segment that has so many bytes of frames in one block.
fn segment_bytes_of(frames_bytes: u64) -> u64 {
    (SEGMENT_HEAD_BYTES + BLOCK_HEAD_BYTES) as u64 + frames_bytes
}

/// Makes durable what is in the ring of a directory.
///
/// # Errors
/// Those of the system.
pub(super) fn sync(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    disk.open_for_writing(&directory.join(NAME))?.sync()
}

/// Removes the ring of a directory, if there is one, durably.
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

/// A ring as it was found.
struct Found {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    bytes: u64,
    complete: u64,
    durable: u64,
}

impl Found {
    /// The ring of a directory, if there is one that says what it holds.
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
        // What holds nothing was not used, and what says that it holds more than it can was left by a power cut.
        let held = found.complete.saturating_sub(found.durable);
        let mut versions = OLDEST_VERSION..=VERSION;
        let is_known = versions.any(|version| head.starts_with(&stated_head(version, bytes)));
        Ok((is_whole && is_known && (1..=bytes).contains(&held)).then_some(found))
    }

    /// The bytes of the frames from a sequence on, as far as they are whole.
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

/// A sequence that no frame in the ring of a directory reaches; 0 where there is none. What segments have not of what
/// is below it, [`salvage`] puts there.
///
/// # Errors
/// Those of the system.
pub fn ring_end(disk: &dyn Disk, directory: &Path) -> io::Result<u64> {
    Ok(Found::open(disk, directory)?.map_or(0, |found| found.complete))
}

/// Puts what a ring has and segments do not into a segment, durably; how many bytes of frames that are. To be
/// called before anything else reads a log that was open for writing, with nobody else in the directory. Where
/// segments cannot be read, nothing is done, and who reads them says why.
///
/// # Errors
/// Those of the system; the ring is as it was.
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
        // Nothing to add to, nothing to add, or damage.
        Ok(_) | Err(_) => return Ok(0),
    };
    let frames = found.frames_from(tail.end).map_err(refusal)?;
    if frames.is_empty() {
        return Ok(0);
    }
    write_segment(&**disk, clock, directory, options, tail.end, &frames)?;
    Ok(frames.len() as u64)
}

/// How the segments end that hold what was durable; none where there are none.
fn tail_of_segments(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    durable: u64,
) -> Result<Option<Tail>, LogError> {
    let reader = match Reader::open(Arc::clone(disk), directory, durable) {
        // A checkpoint that was made meanwhile holds what is below.
        Err(LogError::Missing { first, .. }) => Reader::open(Arc::clone(disk), directory, first),
        reader => reader,
    };
    let mut reader = reader?;
    while reader.next_bytes()?.is_some() {}
    let tail = reader.tail().filter(|tail| tail.place.is_some());
    Ok(tail.cloned())
}

/// Makes a segment that begins at a sequence, with frames.
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
        // A power cut left the ring alone.
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
