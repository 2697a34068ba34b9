//! The appender of one thread.

use std::fmt;
use std::sync::Arc;

use super::builder::Builder;
use super::control::Control;
use super::frame::WORD_BYTES;
use super::memory::Chunk;
use super::open_log::Log;
use super::place::Claimant;

/// Appends the effects of one thread to the log.
///
/// Appending waits for no thread and touches no file: the appender builds a frame in its buffer,
/// gets the frame's place by one addition, and copies it there. No allocation in the steady state;
/// a lock only once per chunk of the log's memory.
pub struct Appender {
    log: Arc<Log>,
    claimant: Arc<Claimant>,
    builder: Builder,
    /// The chunk that was written last, with its number.
    chunk: Option<(u64, Arc<Chunk>)>,
    /// Number of open, nested groups. They count as one.
    groups: u32,
    end: u64,
}

impl Log {
    /// Returns an appender for one thread.
    #[must_use]
    pub fn appender(self: &Arc<Self>) -> Appender {
        Appender::new(Arc::clone(self))
    }
}

impl Appender {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let claimant = log.places.join();
        Self {
            log,
            claimant,
            builder: Builder::default(),
            chunk: None,
            groups: 0,
            end: 0,
        }
    }

    /// Returns the end of the last frame that this thread appended; 0 before the first.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Sets the time of the effects that follow, in milliseconds since 1970 UTC.
    #[inline]
    pub fn set_time(&mut self, unix_ms: u64) {
        self.builder.set_time(unix_ms);
    }

    /// Sets the generation of the effects that follow.
    #[inline]
    pub fn generation(&mut self, generation: u64) {
        self.builder.set_generation(generation);
    }

    /// Appends one canonical command: a frame, or a part of the open group.
    #[inline]
    pub fn command(&mut self, database: u16, parts: &[&[u8]]) {
        if self.groups > 0 {
            self.builder.add(database, parts);
        } else {
            self.builder.effect(database, parts);
            self.publish();
        }
    }

    /// Appends a control: a frame, or a part of the open group. In a group it replaces an earlier
    /// control of that group.
    pub fn control(&mut self, control: &Control<'_>) {
        if self.groups > 0 {
            self.builder.set_control(control);
        } else {
            self.builder.control(control);
            self.publish();
        }
    }

    /// Begins a group: everything up to its end is one frame.
    pub fn group_begin(&mut self) {
        self.groups += 1;
    }

    /// Ends the group, and appends its frame unless it is empty.
    pub fn group_end(&mut self) {
        self.groups = self.groups.saturating_sub(1);
        if self.groups == 0 && self.builder.has_group() {
            self.builder.end_group();
            self.publish();
        } else if self.groups == 0 && self.builder.has_control() {
            self.builder.end_control();
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        let Self {
            log,
            claimant,
            builder,
            chunk,
            end,
            ..
        } = self;
        let words = builder.unsummed();
        let sequence = log.places.claim(claimant, builder.length());
        *end = sequence + builder.length();
        let (index, at, left) = log.memory.place_of(sequence);
        match chunk {
            Some((held, chunk)) if *held == index && words.len() <= left => {
                chunk.write_summed(at, words, sequence);
                chunk.look_ahead(at + words.len());
            }
            _ => *chunk = Some(write_across(log, sequence, builder.words(sequence))),
        }
        log.places.fill(claimant);
        builder.clear();
    }
}

/// Writes a frame that reaches into other chunks than the last one did. Returns the chunk that it
/// ends in.
#[cold]
pub(super) fn write_across(
    log: &Log,
    sequence: u64,
    words: &[[u8; WORD_BYTES]],
) -> (u64, Arc<Chunk>) {
    let (mut rest, mut sequence) = (words, sequence);
    loop {
        let (index, at, left) = log.memory.place_of(sequence);
        let chunk = log.chunk(index);
        let (here, behind) = rest.split_at(rest.len().min(left));
        chunk.write(at, here);
        if behind.is_empty() {
            return (index, chunk);
        }
        sequence += size_of_val(here) as u64;
        rest = behind;
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.log.places.leave(&self.claimant);
    }
}

impl fmt::Debug for Appender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appender").finish_non_exhaustive()
    }
}
