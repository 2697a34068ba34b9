//! Frames: one effect or one group of them, as bytes with a sum.
//!
//! ```text
//!   0         8        12      14     15     16           24         32
//!   ├─────────┼────────┼───────┼──────┼──────┼────────────┼──────────┼─ payload ─ padding ─┬─────┐
//!   │sequence │length/8│databa.│ kind │paddi.│ generation │ unix_ms  │ …                   │ sum │
//!   └─────────┴────────┴───────┴──────┴──────┴────────────┴──────────┴─────────────────────┴─────┘
//! ```
//!
//! The sum stands in the last four bytes. It is that of the whole frame with zeroes in its own place.

use crate::checksum;
use crate::planted::{self, Bug};

/// Bytes before the payload.
pub(super) const HEAD_BYTES: usize = 32;
/// Frames are whole numbers of these.
pub(super) const WORD_BYTES: usize = 8;
const SUM_BYTES: usize = 4;
/// Shortest frame: no payload at all.
pub(super) const FRAME_BYTES_MIN: usize = HEAD_BYTES + WORD_BYTES;
const ENTRY_HEAD_BYTES: usize = 16;
/// Longest command of a group: its length has six bytes.
const ENTRY_BYTES_MAX: u64 = (1 << 48) - 1;
/// A scratch buffer that grew beyond this is given back after use.
const SCRATCH_BYTES_KEPT: usize = 1 << 20;

/// What the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One command, as an array of bulk strings.
    Effect = 1,
    /// Several, each with its length, database and generation in front.
    Group = 2,
}

/// A frame as it was read, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its place in the log.
    pub sequence: u64,
    /// Bytes it takes there; the next frame begins behind them.
    pub length: u64,
    /// When it was appended, in milliseconds since 1970 UTC.
    pub unix_ms: u64,
    head: EffectHead,
    is_group: bool,
    payload: &'a [u8],
}

/// One canonical command that repeats a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The database it applies to.
    pub database: u16,
    /// Snapshots that began with a higher generation hold it, others do not.
    pub generation: u64,
    /// The command: a RESP array of bulk strings.
    pub resp: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EffectHead {
    database: u16,
    generation: u64,
}

impl<'a> Frame<'a> {
    /// What the frame holds, which is to be applied whole or not at all.
    #[must_use]
    pub fn effects(&self) -> Effects<'a> {
        Effects {
            alone: (!self.is_group).then_some(self.head),
            rest: self.payload,
        }
    }

    /// Whether its effects were stated as a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.is_group
    }

    /// The frame at the start of `bytes`, which is to be the one at `sequence`; or what is wrong.
    pub(super) fn decode(bytes: &'a [u8], sequence: u64) -> Result<Self, &'static str> {
        let length = frame_length(bytes, sequence)?;
        let (summed, sum) = bytes
            .get(..length)
            .and_then(|bytes| bytes.split_last_chunk::<SUM_BYTES>())
            .ok_or("a frame is cut off")?;
        let own = checksum::append(checksum::crc32c(summed), &[0; SUM_BYTES]);
        if u32_at(sum, 0) != own && !planted::is_on(Bug::NoChecksum) {
            return Err("the sum of a frame is wrong");
        }
        Self::decode_summed(&bytes[..length], sequence)
    }

    /// As [`Frame::decode`], of a whole frame whose sum was found right.
    pub(super) fn decode_summed(bytes: &'a [u8], sequence: u64) -> Result<Self, &'static str> {
        let length = bytes.len();
        let summed = &bytes[..length - SUM_BYTES];
        let padding = usize::from(bytes[15]);
        if padding >= WORD_BYTES || HEAD_BYTES + padding > summed.len() {
            return Err("a frame has more padding than there is");
        }
        let frame = Self {
            sequence,
            length: length as u64,
            unix_ms: u64_at(bytes, 24),
            head: EffectHead {
                database: u16::from_le_bytes([bytes[12], bytes[13]]),
                generation: u64_at(bytes, 16),
            },
            is_group: bytes[14] == Kind::Group as u8,
            payload: &summed[HEAD_BYTES..summed.len() - padding],
        };
        if bytes[14] != Kind::Effect as u8 && !frame.is_group {
            return Err("a frame is of no known kind");
        }
        if frame.is_group && !frame.effects().end_with_the_frame() {
            return Err("a group does not end where its frame does");
        }
        Ok(frame)
    }
}

/// How many bytes the frame at the start of `bytes` takes, from its head alone; or what is wrong.
pub(super) fn frame_length(bytes: &[u8], sequence: u64) -> Result<usize, &'static str> {
    if bytes.len() < HEAD_BYTES {
        return Err("a frame is cut off");
    }
    if u64_at(bytes, 0) != sequence && !planted::is_on(Bug::NoChecksum) {
        return Err("a frame is not the next one");
    }
    let length = u64::from(u32_at(bytes, 8)) * WORD_BYTES as u64;
    match usize::try_from(length) {
        Ok(length) if length >= FRAME_BYTES_MIN => Ok(length),
        _ => Err("a frame has an impossible length"),
    }
}

/// The effects of a frame, in order.
#[derive(Clone, Debug)]
pub struct Effects<'a> {
    /// Of a frame with one effect: what its head says of it.
    alone: Option<EffectHead>,
    rest: &'a [u8],
}

impl Effects<'_> {
    /// Whether each is whole, and nothing is behind the last.
    fn end_with_the_frame(mut self) -> bool {
        self.by_ref().for_each(drop);
        self.rest.is_empty()
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Effect<'a>;

    fn next(&mut self) -> Option<Effect<'a>> {
        let (head, length) = match self.alone.take() {
            Some(head) => (head, self.rest.len()),
            None => {
                let head = self.rest.get(..ENTRY_HEAD_BYTES)?;
                let length = usize::try_from(u64_at(head, 0) & ENTRY_BYTES_MAX).ok()?;
                let found = EffectHead {
                    database: u16::from_le_bytes([head[6], head[7]]),
                    generation: u64_at(head, 8),
                };
                if self.rest.len() - ENTRY_HEAD_BYTES < length {
                    return None;
                }
                self.rest = &self.rest[ENTRY_HEAD_BYTES..];
                (found, length)
            }
        };
        let (resp, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(Effect {
            database: head.database,
            generation: head.generation,
            resp,
        })
    }
}

/// Builds one frame after the other in a buffer that is used again.
///
/// The buffer is as long as the longest frame so far, so that nothing is cleared and, in the steady
/// state, nothing allocated.
#[derive(Debug, Default)]
pub(super) struct Builder {
    bytes: Vec<u8>,
    /// How much of it the frame takes so far.
    len: usize,
    /// Where the last command of a group begins.
    last_of_group: usize,
}

impl Builder {
    /// A frame of one command. [`Builder::words`] gives it.
    #[inline]
    pub(super) fn effect(&mut self, database: u16, generation: u64, unix_ms: u64, parts: &[&[u8]]) {
        self.len = HEAD_BYTES;
        self.command(parts);
        self.finish(Kind::Effect, database, generation, unix_ms);
    }

    /// Adds a command to the frame of several; the first one begins it.
    pub(super) fn add(&mut self, database: u16, generation: u64, parts: &[&[u8]]) {
        let start = self.len.max(HEAD_BYTES);
        self.last_of_group = start;
        self.len = start + ENTRY_HEAD_BYTES;
        self.command(parts);
        let length = (self.len - start - ENTRY_HEAD_BYTES) as u64;
        debug_assert!(length <= ENTRY_BYTES_MAX, "no command is that long");
        let head = length | u64::from(database) << 48;
        self.bytes[start..start + 8].copy_from_slice(&head.to_le_bytes());
        self.bytes[start + 8..start + 16].copy_from_slice(&generation.to_le_bytes());
    }

    /// Whether the frame of several has any.
    pub(super) fn has_group(&self) -> bool {
        self.len > 0
    }

    /// Ends a frame of several commands. [`Builder::words`] gives it.
    pub(super) fn end_group(&mut self, generation: u64, unix_ms: u64) {
        if planted::is_on(Bug::GroupCutShort) {
            self.len = self.last_of_group;
        }
        self.finish(Kind::Group, 0, generation, unix_ms);
    }

    /// Bytes that the finished frame takes in the log.
    #[inline]
    pub(super) fn length(&self) -> u64 {
        self.len as u64
    }

    /// The finished frame, whose place is now known, in words.
    #[inline]
    pub(super) fn words(&mut self, sequence: u64) -> &[[u8; WORD_BYTES]] {
        let bytes = &mut self.bytes[..self.len];
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        let (words, _) = bytes.as_chunks_mut();
        let sum = checksum::of_words(words);
        if let Some(last) = words.last_mut() {
            last[WORD_BYTES - SUM_BYTES..].copy_from_slice(&sum.to_le_bytes());
        }
        words
    }

    /// Forgets the frame, and gives the buffer back if it took much.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if self.bytes.len() > SCRATCH_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }

    /// One command: `*3`, then `$3`, `SET` and so on.
    #[inline]
    fn command(&mut self, parts: &[&[u8]]) {
        let longest = LENGTH_BYTES_MAX + 2;
        let content: usize = parts.iter().map(|part| part.len() + longest).sum();
        // The end of a frame, too, so that nothing else has to look.
        let needed = self.len + longest + content + FRAME_BYTES_MIN;
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two(), 0);
        }
        let mut at = self.length_line(self.len, b'*', parts.len());
        for part in parts {
            at = self.length_line(at, b'$', part.len());
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
            self.bytes[at..at + 2].copy_from_slice(b"\r\n");
            at += 2;
        }
        self.len = at;
    }

    /// A mark, a number and an end of line at a place; the place behind.
    #[inline]
    fn length_line(&mut self, at: usize, mark: u8, number: usize) -> usize {
        let short = self.bytes[at..].first_chunk_mut();
        let (Some(line), 0..1000) = (short, number) else {
            return self.long_length_line(at, mark, number);
        };
        // In one store, whatever the length: what is behind it is written next.
        let number = number as u64;
        let (hundreds, tens, units) = (number / 100, number / 10 % 10, number % 10);
        let (digits, digits_count) = match number {
            0..10 => (units, 1),
            10..100 => (tens | units << 8, 2),
            _ => (hundreds | tens << 8 | units << 16, 3),
        };
        let ascii = digits | 0x30_3030 >> (8 * (3 - digits_count));
        let end = u64::from(u16::from_le_bytes(*b"\r\n")) << (8 * digits_count);
        *line = (u64::from(mark) | (ascii | end) << 8).to_le_bytes();
        at + digits_count + 3
    }

    #[cold]
    fn long_length_line(&mut self, at: usize, mark: u8, number: usize) -> usize {
        let line = &mut self.bytes[at..at + LENGTH_BYTES_MAX];
        line[0] = mark;
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for place in (1..=digits).rev() {
            #[expect(clippy::cast_possible_truncation, reason = "one digit")]
            let digit = (rest % 10) as u8;
            line[place] = b'0' + digit;
            rest /= 10;
        }
        line[digits + 1] = b'\r';
        line[digits + 2] = b'\n';
        at + digits + 3
    }

    /// Fills in the head but for the sequence, padding, and zeroes where the sum goes.
    #[inline]
    fn finish(&mut self, kind: Kind, database: u16, generation: u64, unix_ms: u64) {
        let length = (self.len + SUM_BYTES).next_multiple_of(WORD_BYTES);
        let padding = length - SUM_BYTES - self.len;
        let words = u32::try_from(length / WORD_BYTES).expect("a frame is shorter than 32 GiB");
        // Of a fixed size, and not more than there is room for.
        self.bytes[self.len..self.len + 2 * WORD_BYTES].fill(0);
        let head = &mut self.bytes[8..HEAD_BYTES];
        head[..4].copy_from_slice(&words.to_le_bytes());
        head[4..6].copy_from_slice(&database.to_le_bytes());
        head[6] = kind as u8;
        #[expect(clippy::cast_possible_truncation, reason = "less than a word")]
        let padding = padding as u8;
        head[7] = padding;
        head[8..16].copy_from_slice(&generation.to_le_bytes());
        head[16..24].copy_from_slice(&unix_ms.to_le_bytes());
        self.len = length;
    }
}

/// A mark, the digits of any length, and an end of line.
const LENGTH_BYTES_MAX: usize = 1 + 20 + 2;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
