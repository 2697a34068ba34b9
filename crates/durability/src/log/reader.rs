//! Reading a log back: every frame checked, and an end that says what it is.
//!
//! What cannot be read is one of two things. Above everything that any block says was durable it is
//! what a crash left of the last writes, in any state: the log ends before it ([`Tail`]). Below, it is
//! damage, and [`LogError::Damage`] says where. So a reader looks at all that follows a flaw before it
//! answers.
//!
//! What is below the place that it is to read from is in a checkpoint, so nothing there is damage while
//! a whole block leads up to that place.

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

/// What is read at once.
pub(super) const WINDOW_BYTES: usize = 256 << 10;

/// Reads the frames of a directory in order.
#[derive(Debug)]
pub struct Reader {
    disk: Arc<dyn Disk>,
    segments: Vec<Segment>,
    /// Frames below are checked no further than needed, and not given.
    from: u64,
    /// Where the next frame begins.
    sequence: u64,
    /// Where reading went on behind the last flaw that was passed; 0 for none.
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
    /// Its place among the segments.
    at: usize,
    window: Window,
    salt: u64,
    /// The file held other frames before.
    was_used: bool,
    /// What the next block's head has to say.
    chain: u32,
    offset: u64,
    /// What is left of the block that is being read, in bytes of frames.
    block_left: u64,
    /// The highest durable sequence that the blocks read so far state, also those of files before.
    stated: u64,
}

/// Where a log ends, and what stands behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where the next frame would begin: everything below was read, and is whole.
    pub end: u64,
    /// What stands behind the last frame.
    pub shape: Shape,
    /// The last file that was read, and the place in it; none when there is no file.
    pub place: Option<(PathBuf, u64)>,
}

/// What stands behind the last frame of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Clean,
    /// A block or a frame that the file is too short for.
    Short,
    /// Zeroes.
    Zeroed,
    /// What the file held before it was used again, or the next block in part.
    Used,
    /// Something that is no block and no frame.
    Garbage,
    /// The next frame, in part.
    Torn,
}

/// Why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// The system failed.
    Io {
        /// The file, or the directory.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// Something that had been durable is damaged.
    Damage {
        /// The file.
        path: PathBuf,
        /// The place in the file, in bytes.
        offset: u64,
        /// The place in the log: everything below was read.
        sequence: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A file of another version of the format.
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The log begins behind the place asked for.
    Missing {
        /// What was asked for.
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

/// An error in opening a log, of what reading it says.
pub(super) fn refusal(error: LogError) -> io::Error {
    match error {
        LogError::Io { error, .. } => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

/// What stands where a block or a frame should.
#[derive(Clone, Copy, Debug)]
struct Flaw {
    shape: Shape,
    what: &'static str,
}

/// What one step of reading came to.
enum Step {
    /// A whole frame stands at this offset, with so many bytes.
    Frame(u64, usize),
    /// Something else was passed.
    Passed,
    End,
}

impl Reader {
    /// A reader of the frames from a sequence on, which is the beginning of one, or the log's end. The
    /// files in the directory that are no segments are left alone.
    ///
    /// # Errors
    /// [`LogError::Missing`] when the log begins later, and what the system says.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, from: u64) -> Result<Self, LogError> {
        Self::open_below(disk, directory, from, u64::MAX)
    }

    /// As [`Reader::open`], for who wants nothing from the sequence `below` on: files that begin there or
    /// behind are not looked at, in whatever state they are. So the end is not always where
    /// [`Reader::tail`] says it is when that is below `below`.
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

    /// As [`Reader::open`], for who knows which files [are in force](in_force).
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

    /// The next frame; none at the end, which [`Reader::tail`] describes.
    ///
    /// # Errors
    /// See [`LogError`]. Everything given before is right nevertheless.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, LogError> {
        let Some((offset, length)) = self.next_place()? else {
            return Ok(None);
        };
        let sequence = self.sequence - length as u64;
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        // The window still holds what was checked.
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

    /// The sequence of the next frame, and its bytes; none at the end.
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

    /// Where the next frame stands in the open file, and how long it is.
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

    /// Whether a [planted bug](Bug::DeletePassedOver) loses the frame at this place.
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

    /// Checks all frames of the file that it begins with, also those below the place that was asked for.
    pub(super) fn check_whole_file(&mut self) {
        self.from = self.sequence;
    }

    /// Passes everything below a sequence, and what is only stated there.
    pub(super) fn pass(&mut self, end: u64) -> Result<(), LogError> {
        while self.sequence <= end && !matches!(self.step()?, Step::End) {}
        Ok(())
    }

    /// The highest durable sequence that the blocks read so far state.
    pub(super) fn stated(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.stated)
    }

    /// Where reading went on behind the last flaw below what was asked for; 0 for none. Nothing below it is
    /// to be had, and nothing is missing from there on.
    pub(super) fn resumed(&self) -> u64 {
        self.resumed
    }

    /// How the log ends, once all frames were given.
    #[must_use]
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Where the next frame begins: everything below was read.
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

    /// Goes on at the next whole block behind a flaw, if that begins no higher than what is asked for;
    /// whether there is one.
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

    /// Goes on with another segment.
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

    /// A flaw: the log ends here, unless something that was durable is behind.
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

    /// Damage at the place that was reached.
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

    /// The highest durable sequence that any block behind this place states.
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
    /// Reads a block's head, and passes those of its frames that are not asked for.
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

    /// Passes the zeroes behind a head; what is wrong with them, if they are looked at.
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

    /// What stands here instead of a block's head.
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

/// A step and how many bytes of frames it passed; or what is wrong.
type Found = Result<(Step, u64), Flaw>;

/// As [`list`], without those whose contents were written again.
pub(super) fn in_force(
    disk: &dyn Disk,
    directory: &Path,
    below: u64,
) -> Result<Vec<Segment>, LogError> {
    let mut segments = list(disk, directory, below)?;
    take_superseded(&mut segments);
    Ok(segments)
}

/// The segments of a directory that begin below a sequence, by where they begin. One that does not exist
/// has none. Of each of them its head is read, no more.
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

/// The names of the segments in a directory, with where they begin, oldest first.
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

/// Whether a directory has a file of a log that begins at or below a sequence. One that was open for writing
/// there always has.
///
/// # Errors
/// Those of the system.
pub fn has_file_of(disk: &dyn Disk, directory: &Path, sequence: u64) -> io::Result<bool> {
    let oldest = names(disk, directory)?.first().map(|(first, _)| *first);
    Ok(oldest.is_some_and(|first| first <= sequence))
}

/// A sequence that no frame in a directory reaches, whatever state its files are in.
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

/// Removes the files that begin at `sequence` or behind, the newest first, in whatever state they are. For who
/// gives up what is in them; a log that is then [opened](super::Log::open) there goes on as if they had never
/// been.
///
/// # Errors
/// Those of the system; what was not removed is whole.
pub fn remove_from(disk: &dyn Disk, directory: &Path, sequence: u64) -> io::Result<()> {
    // What it has may be in these files, too.
    ring::remove(disk, directory)?;
    let names = names(disk, directory)?;
    let behind = names.iter().filter(|(first, _)| *first >= sequence);
    for (_, name) in behind.rev() {
        disk.remove(&directory.join(name))?;
        disk.sync_directory(directory)?;
    }
    Ok(())
}

/// Takes out the segments whose contents were written again, in one that begins earlier and was made
/// later.
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

/// The head of a segment. It was durable before the file got its name, so it is whole or damaged.
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

/// The highest durable sequence that the blocks of some segments state.
fn durable_of(disk: &dyn Disk, segments: &[Segment]) -> Result<u64, LogError> {
    let mut durable = 0;
    for Segment { path, head, .. } in segments {
        let mut window = Window::open(disk, path).map_err(io_error(path))?;
        let start = SEGMENT_HEAD_BYTES as u64;
        durable = durable.max(durable_in(&mut window, path, start, head.salt)?);
    }
    Ok(durable)
}

/// The highest durable sequence that the blocks of a file state from a place on. Every place is looked
/// at: what leads from block to block may be what is damaged.
fn durable_in(window: &mut Window, path: &Path, offset: u64, salt: u64) -> Result<u64, LogError> {
    let mut durable = 0;
    each_head(window, path, offset, salt, |_, head| {
        durable = durable.max(head.durable);
        ControlFlow::Continue(())
    })?;
    Ok(durable)
}

/// Gives `look` the heads of blocks that a file has from a place on, wherever they stand, with their
/// offsets, until it breaks off.
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

/// Whether a file has nothing but zeroes from a place on.
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

/// The bytes at a place of a file; none when the file ends before.
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

    /// Forgets what was read: the file may have been written to since.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        self.bytes.clear();
        self.size = self.file.size()?;
        Ok(())
    }

    /// The bytes at a place; none when the file ends before.
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

    /// Reads from a place on, so many bytes at least; whether the file has them.
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
