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

    /// As [`Builder::length`], in words.
    #[inline]
    pub(super) fn words_count(&self) -> usize {
        self.len / WORD_BYTES
    }

    /// The finished frame, whose place is now known, in words; with zeroes in place of its sum.
    #[inline]
    pub(super) fn unsummed(&mut self, sequence: u64) -> &mut [[u8; WORD_BYTES]] {
        let (words, _) = self.bytes[..self.len].as_chunks_mut();
        if let Some(first) = words.first_mut() {
            *first = sequence.to_le_bytes();
        }
        words
    }

    /// The finished frame, whose place is now known, in words.
    pub(super) fn words(&mut self, sequence: u64) -> &[[u8; WORD_BYTES]] {
        let words = self.unsummed(sequence);
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
            copy(&mut self.bytes[at..at + part.len()], part);
            at += part.len();
            self.bytes[at..at + 2].copy_from_slice(b"\r\n");
            at += 2;
        }
        self.len = at;
    }

    /// A mark, a number and an end of line at a place; the place behind.
    #[inline]
    fn length_line(&mut self, at: usize, mark: u8, number: usize) -> usize {
        let short = self.bytes.get_mut(at..at + WORD_BYTES);
        let (Some(place), Some(line)) = (short, SHORT_LINES.get(number)) else {
            return self.long_length_line(at, mark, number);
        };
        // In one store, whatever the length: what is behind it is written next.
        place.copy_from_slice(&(line & !0xff | u64::from(mark)).to_le_bytes());
        let [line_bytes, ..] = line.to_le_bytes();
        at + usize::from(line_bytes)
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
        let what = u64::from(words)
            | u64::from(database) << 32
            | u64::from(kind as u8) << 48
            | (padding as u64) << 56;
        let head = [what, generation, unix_ms].map(u64::to_le_bytes);
        self.bytes[WORD_BYTES..HEAD_BYTES].copy_from_slice(head.as_flattened());
        self.len = length;
    }
}

/// A mark, the digits of any length, and an end of line.
const LENGTH_BYTES_MAX: usize = 1 + 20 + 2;

/// Lines of lengths below 1,000, in the order of their bytes from the lowest on. The first is to be the mark;
/// here it is how many bytes the line has.
static SHORT_LINES: [u64; 1000] = short_lines();

const fn short_lines() -> [u64; 1000] {
    const END: u64 = 0x0a0d;
    let mut lines = [0; 1000];
    let mut number = 0;
    while number < lines.len() {
        let (mut rest, mut digits, mut count) = (number as u64, 0, 0);
        while rest > 0 || count == 0 {
            digits = (digits << 8) | (0x30 + rest % 10);
            rest /= 10;
            count += 1;
        }
        lines[number] = (count + 3) | digits << 8 | END << (8 * (count + 1));
        number += 1;
    }
    lines
}

/// Copies what is as long as its place. Names and keys are short, for which a call is much.
#[inline]
fn copy(place: &mut [u8], part: &[u8]) {
    let is_short = part.len() <= 32;
    let is_copied = is_short
        && (copy_ends::<16>(place, part)
            || copy_ends::<8>(place, part)
            || copy_ends::<4>(place, part)
            || copy_ends::<2>(place, part));
    if !is_copied {
        place.copy_from_slice(part);
    }
}

/// Copies what is at least `N` bytes long, and twice that at most, as its first and its last `N` bytes.
#[inline]
fn copy_ends<const N: usize>(place: &mut [u8], part: &[u8]) -> bool {
    let (Some(first), Some(last)) = (part.first_chunk::<N>(), part.last_chunk::<N>()) else {
        return false;
    };
    let is_short = part.len() <= 2 * N;
    if is_short && let Some(place) = place.first_chunk_mut::<N>() {
        *place = *first;
    }
    if is_short && let Some(place) = place.last_chunk_mut::<N>() {
        *place = *last;
    }
    is_short
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    /// Of every length that is written in another way than those beside it.
    #[test]
    fn parts_of_any_length() {
        let mut builder = Builder::default();
        let bytes: Vec<u8> = (0..2_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for length in (0..=40).chain([99, 100, 999, 1000, 1001, 2_000]) {
            let part = &bytes[..length];
            builder.effect(0, 1, 2, &[b"SET", part, b"", part]);
            let frame = builder.words(8).as_flattened();
            let frame = Frame::decode(frame, 8).unwrap();
            let mut expected = b"*4\r\n$3\r\nSET\r\n".to_vec();
            for part in [part, b"", part] {
                expected.extend(format!("${}\r\n", part.len()).bytes());
                expected.extend(part);
                expected.extend(b"\r\n");
            }
            assert_eq!(frame.effects().next().unwrap().resp, expected, "{length}");
            builder.clear();
        }
        for number in 0..1_002 {
            builder.bytes.resize(32, 0);
            let end = builder.length_line(0, b'$', number);
            let line = format!("${number}\r\n");
            assert_eq!(&builder.bytes[..end], line.as_bytes());
        }
    }
}
