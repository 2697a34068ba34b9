//! Reads a log back: every frame is checked, and the end is classified.
//!
//! Unreadable bytes are one of two things. Above everything that any block states to be durable,
//! they are what a crash left of the last writes, in any state: the log ends before them
//! ([`Tail`]). Below, they are damage, and [`LogError::Damage`] says where. So a reader looks at
//! everything behind a flaw before it answers.
//!
//! Everything below the sequence that a reader starts from is in a checkpoint. So nothing there
//! counts as damage if a whole block leads up to that sequence.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{self, Frame};
use super::ring;
use super::segment::{
    self, BLOCK_HEAD_BYTES, BlockHead, HeadFlaw, SEGMENT_HEAD_BYTES, SegmentHead,
};
use crate::disk::{Disk, DiskFile};
use crate::planted::{self, Bug};

/// Number of bytes read at once.
pub(super) const WINDOW_BYTES: usize = 256 << 10;

/// Reads the frames of a directory in order.
#[derive(Debug)]
pub struct Reader {
    disk: Arc<dyn Disk>,
    segments: Vec<Segment>,
    /// Frames below it are checked no further than needed, and not returned.
    from: u64,
    /// Sequence of the next frame.
    sequence: u64,
    /// Sequence at which reading resumed behind the last skipped flaw; 0 for none.
    resumed: u64,
    open: Option<Open>,
    tail: Option<Tail>,
}

/// A file of the log whose head is whole.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) path: PathBuf,
    pub(super) head: SegmentHead,
}

/// The segment that is being read.
#[derive(Debug)]
struct Open {
    /// Its index among the segments.
    at: usize,
    window: Window,
    salt: u64,
    /// Whether the file held other frames before.
    was_used: bool,
    /// Expected chain value of the next block's head.
    chain: u32,
    offset: u64,
    /// Bytes of frames that are left of the current block.
    block_left: u64,
    /// The highest durable sequence that the blocks read so far state, also those of earlier files.
    stated: u64,
}

/// Where a log ends, and what is behind the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Sequence of the next frame: everything below was read, and is whole.
    pub end: u64,
    /// What is behind the last frame.
    pub shape: Shape,
    /// The last file that was read, and the offset in it; `None` if there is no file.
    pub place: Option<(PathBuf, u64)>,
}

/// What is behind the last frame of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Clean,
    /// A block or a frame that is longer than the file.
    Short,
    /// Zeroes.
    Zeroed,
    /// What the file held before it was reused, or a part of the next block.
    Used,
    /// Bytes that are neither a block nor a frame.
    Garbage,
    /// A part of the next frame.
    Torn,
}

/// Why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// The system reported an error.
    Io {
        /// The file, or the directory.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Bytes that had been durable are damaged.
    Damage {
        /// The file.
        path: PathBuf,
        /// The offset in the file, in bytes.
        offset: u64,
        /// The sequence in the log: everything below was read.
        sequence: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A file has another version of the format.
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The log begins behind the requested sequence.
    Missing {
        /// The requested sequence.
        from: u64,
        /// Where the oldest file begins.
        first: u64,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Damage {
                path,
                offset,
                sequence,
                what,
            } => write!(
                f,
                "{} is damaged at offset {offset} (sequence {sequence}): {what}",
                path.display()
            ),
            Self::Version { path, version } => write!(
                f,
                "{} has version {version} of the log's format; this server reads versions {} to {}: {}",
                path.display(),
                segment::OLDEST_VERSION,
                segment::VERSION,
                if *version < segment::OLDEST_VERSION {
                    "`export` the data with the program that wrote it, and `import` that into an \
                     empty directory"
                } else {
                    "a newer one reads it"
                }
            ),
            Self::Missing { from, first } => write!(
                f,
                "the log begins at sequence {first}, but is needed from {from} on"
            ),
        }
    }
}

impl std::error::Error for LogError {}

/// Converts an error of reading into an error of opening a log.
pub(super) fn refusal(error: LogError) -> io::Error {
    match error {
        LogError::Io { error, .. } => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// What was found where a block or a frame should be.
#[derive(Clone, Copy, Debug)]
struct Flaw {
    shape: Shape,
    what: &'static str,
}

/// The result of one step of reading.
enum Step {
    /// A whole frame is at this offset, with this length.
    Frame(u64, usize),
    /// Something else was skipped.
    Passed,
    End,
}

impl Reader {
    /// Returns a reader of the frames from sequence `from` on, which is the start of a frame or the
    /// log's end. Files in the directory that are no segments are ignored.
    ///
    /// # Errors
    /// [`LogError::Missing`] if the log begins later, and errors of the system.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from: u64) -> Result<Self, LogError> {
        Self::open_below(disk, directory, from, u64::MAX)
    }

    /// Like [`Reader::open`], for a caller that wants nothing from the sequence `below` on: files
    /// that begin there or later are ignored, whatever their state. So an end that [`Reader::tail`]
    /// reports below `below` is not always the log's end.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_below(
        disk: Arc<dyn Disk>,
        directory: &Path,
        from: u64,
        below: u64,
    ) -> Result<Self, LogError> {
        let segments = in_force(&*disk, directory, below)?;
        Self::among(disk, segments, from)
    }

    /// Like [`Reader::open`], for a caller that knows which files [are in force](in_force).
    pub(super) fn among(
        disk: Arc<dyn Disk>,
        mut segments: Vec<Segment>,
        from: u64,
    ) -> Result<Self, LogError> {
        if let Some(oldest) = segments.first().map(|segment| segment.first)
            && oldest > from
        {
            if durable_of(&*disk, &segments)? > from {
                return Err(LogError::Missing {
                    from,
                    first: oldest,
                });
            }
            // Names, too, reach a device in any order: that of the first file did not.
            segments.clear();
        }
        let needed = segments.partition_point(|segment| segment.first <= from);
        segments.drain(..needed.saturating_sub(1));
        let sequence = segments.first().map_or(from, |segment| segment.first);
        Ok(Self {
            disk,
            segments,
            from,
            sequence,
            resumed: 0,
            open: None,
            tail: None,
        })
    }

    /// Returns the next frame, or `None` at the end, which [`Reader::tail`] describes.
    ///
    /// # Errors
    /// See [`LogError`]. All frames returned before are valid nevertheless.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, LogError> {
        let Some((offset, length)) = self.next_place()? else {
            return Ok(None);
        };
        let sequence = self.sequence - length as u64;
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        // The window still holds the checked bytes.
        let path = &self.segments[open.at].path;
        let bytes = view(&mut open.window, path, offset, length)?.unwrap_or_default();
        Frame::decode_checked(bytes, sequence)
            .map(Some)
            .map_err(|what| LogError::Damage {
                path: path.clone(),
                offset,
                sequence,
                what,
            })
    }

    /// Returns the sequence of the next frame, and its bytes, or `None` at the end.
    pub(super) fn next_bytes(&mut self) -> Result<Option<(u64, &[u8])>, LogError> {
        let Some((offset, length)) = self.next_place()? else {
            return Ok(None);
        };
        let sequence = self.sequence - length as u64;
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let path = &self.segments[open.at].path;
        let bytes = view(&mut open.window, path, offset, length)?;
        Ok(bytes.map(|bytes| (sequence, bytes)))
    }

    /// Returns the offset of the next frame in the open file, and its length.
    fn next_place(&mut self) -> Result<Option<(u64, usize)>, LogError> {
        loop {
            match self.step()? {
                Step::Frame(offset, length) if self.is_passed_over(offset, length)? => {}
                Step::Frame(offset, length) => return Ok(Some((offset, length))),
                Step::Passed => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Whether a [planted bug](Bug::DeletePassedOver) loses this frame.
    fn is_passed_over(&mut self, offset: u64, length: usize) -> Result<bool, LogError> {
        if !planted::is_on(Bug::DeletePassedOver) {
            return Ok(false);
        }
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let path = &self.segments[open.at].path;
        let bytes = view(&mut open.window, path, offset, length)?.unwrap_or_default();
        let frame = Frame::decode_checked(bytes, 0).ok();
        let frame = frame.filter(|frame| !frame.is_group());
        let mut effects = frame.into_iter().flat_map(|frame| frame.effects());
        Ok(effects.any(|mut effect| effect.parts.next() == Some(b"DEL")))
    }

    /// Checks all frames of the reader's first file, also those below the requested sequence.
    pub(super) fn check_whole_file(&mut self) {
        self.from = self.sequence;
    }

    /// Skips everything below a sequence, and blocks at it that only state what is durable.
    pub(super) fn pass(&mut self, end: u64) -> Result<(), LogError> {
        while self.sequence <= end && !matches!(self.step()?, Step::End) {}
        Ok(())
    }

    /// Returns the highest durable sequence that the blocks read so far state.
    pub(super) fn stated(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.stated)
    }

    /// Returns the sequence at which reading resumed behind the last flaw below the requested
    /// sequence; 0 for none. Frames below it are not available; from there on none is missing.
    pub(super) fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Returns how the log ends, once all frames were returned.
    #[must_use]
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Returns the sequence of the next frame: everything below was read.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    fn step(&mut self) -> Result<Step, LogError> {
        if self.tail.is_some() {
            return Ok(Step::End);
        }
        let next = self.open.as_ref().map_or(0, |open| open.at + 1);
        if let Some(segment) = self.segments.get(next)
            && segment.first == self.sequence
        {
            self.enter(next)?;
            return Ok(Step::Passed);
        }
        let limit = self.segments.get(next).map(|segment| segment.first);
        let Some(open) = &mut self.open else {
            self.tail = Some(Tail {
                end: self.sequence,
                shape: Shape::Clean,
                place: None,
            });
            return Ok(Step::End);
        };
        let path = &self.segments[open.at].path;
        let found = if open.block_left == 0 {
            open.block(path, self.sequence, self.from)?
        } else {
            open.frame(path, self.sequence)?
        };
        match found {
            Ok((step, passed)) => {
                if limit.is_some_and(|limit| limit < self.sequence + passed) {
                    let what = "the next file begins before it ends";
                    return Err(self.damage(what));
                }
                self.sequence += passed;
                Ok(match step {
                    Step::Frame(..) if self.sequence <= self.from => Step::Passed,
                    step => step,
                })
            }
            Err(_) if self.sequence < self.from && self.pass_flaw()? => Ok(Step::Passed),
            Err(flaw) => self.end(flaw),
        }
    }

    /// Continues at the next whole block behind a flaw, if that begins no higher than the requested
    /// sequence. Returns whether there is one.
    fn pass_flaw(&mut self) -> Result<bool, LogError> {
        let Some(open) = &mut self.open else {
            return Ok(false);
        };
        let path = &self.segments[open.at].path;
        let (range, mut found) = (self.sequence..=self.from, None);
        each_head(
            &mut open.window,
            path,
            open.offset,
            open.salt,
            |at, head| {
                if !range.contains(&head.sequence) {
                    return ControlFlow::Continue(());
                }
                found = Some((at, head));
                ControlFlow::Break(())
            },
        )?;
        let Some((at, head)) = found else {
            return Ok(false);
        };
        (open.offset, open.block_left, open.chain) = (at, 0, head.chain);
        (self.sequence, self.resumed) = (head.sequence, head.sequence);
        Ok(true)
    }

    /// Continues with another segment.
    fn enter(&mut self, at: usize) -> Result<(), LogError> {
        let path = &self.segments[at].path;
        let window = Window::open(&*self.disk, path).map_err(io_error(path))?;
        let head = self.segments[at].head;
        self.open = Some(Open {
            at,
            window,
            salt: head.salt,
            was_used: head.was_used,
            chain: head.chain(),
            offset: SEGMENT_HEAD_BYTES as u64,
            block_left: 0,
            stated: self.stated(),
        });
        Ok(())
    }

    /// Handles a flaw: the log ends here, unless durable bytes are behind.
    fn end(&mut self, flaw: Flaw) -> Result<Step, LogError> {
        if self.stated() > self.sequence {
            return Err(self.damage("the file behind it is missing"));
        }
        if self.durable_behind()? > self.sequence {
            return Err(self.damage(flaw.what));
        }
        let place = self.open.as_ref();
        self.tail = Some(Tail {
            end: self.sequence,
            shape: flaw.shape,
            place: place.map(|open| (self.segments[open.at].path.clone(), open.offset)),
        });
        Ok(Step::End)
    }

    /// Returns an error for damage at the current position.
    pub(super) fn damage(&self, what: &'static str) -> LogError {
        let (path, offset) = self.open.as_ref().map_or_else(
            || (PathBuf::new(), 0),
            |open| (self.segments[open.at].path.clone(), open.offset),
        );
        LogError::Damage {
            path,
            offset,
            sequence: self.sequence,
            what,
        }
    }

    /// Returns the highest durable sequence that any block behind this position states.
    fn durable_behind(&mut self) -> Result<u64, LogError> {
        let Some(open) = &mut self.open else {
            return Ok(0);
        };
        let path = &self.segments[open.at].path;
        let mut durable = durable_in(&mut open.window, path, open.offset, open.salt)?;
        durable = durable.max(durable_of(&*self.disk, &self.segments[open.at + 1..])?);
        Ok(durable)
    }
}

impl Open {
    /// Reads a block's head, and skips those of its frames that were not requested.
    fn block(&mut self, path: &Path, sequence: u64, from: u64) -> Result<Found, LogError> {
        let here = view(&mut self.window, path, self.offset, BLOCK_HEAD_BYTES)?;
        let head = here.and_then(|bytes| BlockHead::decode(bytes, self.salt));
        let flaw = match head {
            None => return self.no_block(path).map(Err),
            Some(head) if head.sequence != sequence => "a block is not the next one",
            Some(head) if head.chain != self.chain => "a block does not follow the one before",
            Some(head) => {
                self.chain = head.next_chain(self.salt);
                self.stated = self.stated.max(head.durable);
                self.offset += BLOCK_HEAD_BYTES as u64;
                if let Some(flaw) = self.pass_gap(path, head.gap, sequence >= from)? {
                    return Ok(Err(flaw));
                }
                let below = from.saturating_sub(sequence).min(head.length);
                let is_there = below <= self.window.size.saturating_sub(self.offset);
                let passed = if is_there { below } else { 0 };
                self.offset += passed;
                self.block_left = head.length - passed;
                return Ok(Ok((Step::Passed, passed)));
            }
        };
        Ok(Err(Flaw {
            shape: Shape::Garbage,
            what: flaw,
        }))
    }

    /// Skips the zeroes behind a head. Returns their flaw, if they are checked and have one.
    fn pass_gap(
        &mut self,
        path: &Path,
        gap: u32,
        is_checked: bool,
    ) -> Result<Option<Flaw>, LogError> {
        if gap == 0 {
            return Ok(None);
        }
        let length = usize::try_from(gap).unwrap_or(usize::MAX);
        let flaw = match view(&mut self.window, path, self.offset, length)? {
            None => Flaw {
                shape: Shape::Short,
                what: "the file is too short",
            },
            Some(bytes) if is_checked && bytes.iter().any(|&byte| byte != 0) => Flaw {
                shape: if self.was_used {
                    Shape::Used
                } else {
                    Shape::Garbage
                },
                what: "there is something between the head of a block and its frames",
            },
            Some(_) => {
                self.offset += u64::from(gap);
                return Ok(None);
            }
        };
        Ok(Some(flaw))
    }

    /// Describes what is here instead of a block's head.
    fn no_block(&mut self, path: &Path) -> Result<Flaw, LogError> {
        let left = self.window.size.saturating_sub(self.offset);
        let shape = if left == 0 {
            Shape::Clean
        } else if is_zeroed(&mut self.window, path, self.offset)? {
            Shape::Zeroed
        } else if left < BLOCK_HEAD_BYTES as u64 {
            Shape::Short
        } else if self.was_used {
            Shape::Used
        } else {
            Shape::Garbage
        };
        let what = match shape {
            Shape::Clean | Shape::Short => "the file is too short",
            Shape::Zeroed => "zeroes stand where a block should",
            Shape::Used | Shape::Garbage | Shape::Torn => "the head of a block is damaged",
        };
        Ok(Flaw { shape, what })
    }

    /// Checks the next frame of the block.
    fn frame(&mut self, path: &Path, sequence: u64) -> Result<Found, LogError> {
        let left = self.window.size.saturating_sub(self.offset);
        let short = Flaw {
            shape: Shape::Short,
            what: "the file is too short",
        };
        let Some(head) = view(&mut self.window, path, self.offset, frame::HEAD_BYTES)? else {
            return Ok(Err(short));
        };
        let length = match frame::frame_length(head) {
            Ok(length) if length as u64 > self.block_left => {
                Err("a frame is longer than its block")
            }
            Ok(length) if length as u64 > left => return Ok(Err(short)),
            length => length,
        };
        let length = match length {
            Ok(length) => length,
            Err(what) => return self.no_frame(path, what).map(Err),
        };
        let bytes = view(&mut self.window, path, self.offset, length)?.unwrap_or_default();
        if let Err(what) = Frame::decode(bytes, sequence) {
            let shape = Shape::Torn;
            return Ok(Err(Flaw { shape, what }));
        }
        let offset = self.offset;
        self.offset += length as u64;
        self.block_left -= length as u64;
        Ok(Ok((Step::Frame(offset, length), length as u64)))
    }

    fn no_frame(&mut self, path: &Path, what: &'static str) -> Result<Flaw, LogError> {
        let shape = if is_zeroed(&mut self.window, path, self.offset)? {
            Shape::Zeroed
        } else if self.was_used {
            Shape::Used
        } else {
            Shape::Garbage
        };
        Ok(Flaw { shape, what })
    }
}

/// A step and the bytes of frames that it passed, or a flaw.
type Found = Result<(Step, u64), Flaw>;

/// Like [`list`], without segments whose content was written again.
pub(super) fn in_force(
    disk: &dyn Disk,
    directory: &Path,
    below: u64,
) -> Result<Vec<Segment>, LogError> {
    let mut segments = list(disk, directory, below)?;
    take_superseded(&mut segments);
    Ok(segments)
}

/// Returns the segments of a directory that begin below a sequence, in order of their first
/// sequence. A directory that does not exist has none. Only the head of each segment is read.
pub(super) fn list(
    disk: &dyn Disk,
    directory: &Path,
    below: u64,
) -> Result<Vec<Segment>, LogError> {
    let mut segments = Vec::new();
    for (first, name) in names(disk, directory).map_err(io_error(directory))? {
        if first < below {
            let path = directory.join(name);
            let head = head_of(disk, &path, first)?;
            segments.push(Segment { first, path, head });
        }
    }
    segments.sort_unstable_by_key(|segment| segment.first);
    Ok(segments)
}

/// Returns the names of the segments in a directory, with their first sequences, oldest first.
fn names(disk: &dyn Disk, directory: &Path) -> io::Result<Vec<(u64, String)>> {
    let names = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names?,
    };
    let named = names.into_iter();
    let mut named: Vec<_> = named
        .filter_map(|name| Some((segment::first_of(&name)?, name)))
        .collect();
    named.sort_unstable();
    Ok(named)
}

/// Whether a directory has a log file that begins at or below a sequence. A log that was open for
/// writing there always has one.
///
/// # Errors
/// Those of the system.
pub fn has_file_of(disk: &dyn Disk, directory: &Path, sequence: u64) -> io::Result<bool> {
    let oldest = names(disk, directory)?.first().map(|(first, _)| *first);
    Ok(oldest.is_some_and(|first| first <= sequence))
}

/// Returns a sequence that no frame in a directory reaches, whatever the state of its files.
///
/// # Errors
/// Those of the system.
pub fn bound(disk: &dyn Disk, directory: &Path) -> io::Result<u64> {
    let mut bound: u64 = 0;
    for (first, name) in names(disk, directory)? {
        let bytes = disk.open(&directory.join(name))?.size()?;
        bound = bound.max(first.saturating_add(bytes));
    }
    bound = bound.max(ring::ring_end(disk, directory)?);
    Ok(bound.next_multiple_of(8))
}

/// Removes the files that begin at `sequence` or later, newest first, whatever their state. For
/// callers that discard their content: a log that is then [opened](super::Log::open) there
/// continues as if they had never existed.
///
/// # Errors
/// Those of the system; files that were not removed are whole.
pub fn remove_from(disk: &dyn Disk, directory: &Path, sequence: u64) -> io::Result<()> {
    // Frames of the ring may be in these files, too.
    ring::remove(disk, directory)?;
    let names = names(disk, directory)?;
    let behind = names.iter().filter(|(first, _)| *first >= sequence);
    for (_, name) in behind.rev() {
        disk.remove(&directory.join(name))?;
        disk.sync_directory(directory)?;
    }
    Ok(())
}

/// Takes out the segments whose content was written again, into a segment that begins earlier and
/// was made later.
pub(super) fn take_superseded(segments: &mut Vec<Segment>) -> Vec<Segment> {
    let mut newest = None;
    let is_superseded = |segment: &mut Segment| {
        let ordinal = Some(segment.head.ordinal);
        let is_older = ordinal < newest;
        newest = newest.max(ordinal);
        is_older
    };
    segments.extract_if(.., is_superseded).collect()
}

/// Returns the head of a segment. It was durable before the file got its name, so it is whole or
/// damaged.
fn head_of(disk: &dyn Disk, path: &Path, first: u64) -> Result<SegmentHead, LogError> {
    let mut bytes = [0; SEGMENT_HEAD_BYTES];
    let file = disk.open(path).map_err(io_error(path))?;
    let read = file.read_at(&mut bytes, 0).map_err(io_error(path))?;
    SegmentHead::decode(&bytes[..read]).map_err(|flaw| match flaw {
        HeadFlaw::Version(version) => LogError::Version {
            path: path.to_owned(),
            version,
        },
        HeadFlaw::Damaged => LogError::Damage {
            path: path.to_owned(),
            offset: 0,
            sequence: first,
            what: "the head of the file is damaged",
        },
    })
}

/// Returns the highest durable sequence that the blocks of some segments state.
fn durable_of(disk: &dyn Disk, segments: &[Segment]) -> Result<u64, LogError> {
    let mut durable = 0;
    for Segment { path, head, .. } in segments {
        let mut window = Window::open(disk, path).map_err(io_error(path))?;
        let start = SEGMENT_HEAD_BYTES as u64;
        durable = durable.max(durable_in(&mut window, path, start, head.salt)?);
    }
    Ok(durable)
}

/// Returns the highest durable sequence that the blocks of a file state from an offset on. It looks
/// at every offset, because the links from block to block may be damaged.
fn durable_in(window: &mut Window, path: &Path, offset: u64, salt: u64) -> Result<u64, LogError> {
    let mut durable = 0;
    each_head(window, path, offset, salt, |_, head| {
        durable = durable.max(head.durable);
        ControlFlow::Continue(())
    })?;
    Ok(durable)
}

/// Calls `look` with each block head of a file from an offset on, at any position, and its offset,
/// until `look` breaks.
fn each_head(
    window: &mut Window,
    path: &Path,
    offset: u64,
    salt: u64,
    mut look: impl FnMut(u64, BlockHead) -> ControlFlow<()>,
) -> Result<(), LogError> {
    let mut at = offset.next_multiple_of(8);
    while at + BLOCK_HEAD_BYTES as u64 <= window.size {
        let left = usize::try_from(window.size - at).unwrap_or(usize::MAX);
        let bytes = view(window, path, at, left.min(WINDOW_BYTES))?.unwrap_or_default();
        let last = bytes.len() - BLOCK_HEAD_BYTES;
        for start in (0..=last).step_by(8) {
            if let Some(head) = BlockHead::decode(&bytes[start..], salt)
                && look(at + start as u64, head).is_break()
            {
                return Ok(());
            }
        }
        at += (last + 1).next_multiple_of(8) as u64;
    }
    Ok(())
}

/// Whether a file has only zeroes from an offset on.
fn is_zeroed(window: &mut Window, path: &Path, offset: u64) -> Result<bool, LogError> {
    let mut at = offset;
    while at < window.size {
        let left = usize::try_from(window.size - at).unwrap_or(usize::MAX);
        let bytes = view(window, path, at, left.min(WINDOW_BYTES))?.unwrap_or_default();
        if bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += bytes.len() as u64;
    }
    Ok(true)
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> LogError {
    |error| LogError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Returns the bytes at an offset of a file, or `None` if the file ends before.
#[inline]
fn view<'a>(
    window: &'a mut Window,
    path: &Path,
    offset: u64,
    length: usize,
) -> Result<Option<&'a [u8]>, LogError> {
    window.view(offset, length).map_err(io_error(path))
}

/// A file, and the part of it that was read last.
#[derive(Debug)]
pub(super) struct Window {
    file: Box<dyn DiskFile>,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> io::Result<Self> {
        let file = disk.open(path)?;
        Ok(Self {
            size: file.size()?,
            file,
            start: 0,
            bytes: Vec::new(),
        })
    }

    /// Forgets the bytes read before, because the file may have been written to since.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        self.bytes.clear();
        self.size = self.file.size()?;
        Ok(())
    }

    /// Returns the bytes at an offset, or `None` if the file ends before.
    #[inline]
    pub(super) fn view(&mut self, offset: u64, length: usize) -> io::Result<Option<&[u8]>> {
        let is_held =
            offset >= self.start && offset + length as u64 <= self.start + self.bytes.len() as u64;
        if !is_held && !self.fill(offset, length)? {
            return Ok(None);
        }
        let at = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(Some(&self.bytes[at..at + length]))
    }

    /// Reads at least `length` bytes from an offset on; returns whether the file has them.
    #[cold]
    fn fill(&mut self, offset: u64, length: usize) -> io::Result<bool> {
        let left = self.size.saturating_sub(offset);
        if length as u64 > left {
            return Ok(false);
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let wanted = length.max(left.min(WINDOW_BYTES));
        self.bytes.resize(wanted, 0);
        let read = self.file.read_at(&mut self.bytes, offset)?;
        self.bytes.truncate(read);
        self.start = offset;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(true)
    }
}
