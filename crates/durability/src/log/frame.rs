//! Frames: one effect or one group of effects, as bytes with a sum.
//!
//! ```text
//!   0      4          6     7      8                       16
//!   ├─ sum ┼ length/8 ┼ db ─┼ kind ┼ unix ms │ generation ─┼─ payload ─ 0 … ─┤
//!   0      4          6     7      8          16           24        32
//!   ├─ sum ┼ database ┼ what┼ kind ┼ length/8 ┼ generation ┼ unix ms ┼─ payload ─ 0 … ─┤     wide
//! ```
//!
//! The sum covers the frame with zeroes in place of the sum, and the sequence behind it: a frame at
//! a wrong sequence has a wrong sum. The payload encodes its own end.
//!
//! This module reads frames; [`super::builder`] builds them.

use super::control::Control;
use crate::checksum;
use crate::planted::{self, Bug};

/// Bytes in front of the payload of most frames.
pub(super) const HEAD_BYTES: usize = 16;
/// Bytes in front of the payload if a value is too large for the short head.
pub(super) const WIDE_HEAD_BYTES: usize = 32;
/// Frames are whole numbers of words of this size.
pub(super) const WORD_BYTES: usize = 8;
pub(super) const SUM_BYTES: usize = 4;
/// The sum of zeroes in the length of a sum.
pub(super) const SUM_OF_NO_SUM: u32 = 0x4867_4bc7;

/// Bits of the kind byte that say which head a frame has, and what it holds.
pub(super) const KIND_MASK: u8 = 3;
/// One command.
pub(super) const EFFECT: u8 = 1;
/// Several commands, each with a mark in front.
pub(super) const GROUP: u8 = 2;
/// A wide head; the byte before has the actual kind.
pub(super) const WIDE: u8 = 3;
/// Only in the byte before: a control.
pub(super) const CONTROL: u8 = 3;
/// Only in the byte before: a control, and a group that is applied together with it.
pub(super) const CONTROL_AND_GROUP: u8 = 4;

/// In a short head: number of bits of the second word that hold the time. The others hold the
/// generation.
pub(super) const TIME_BITS: u32 = 42;
/// Bits of the generation beside the time. The next higher ones are beside the kind.
pub(super) const GENERATION_LOW_BITS: u32 = u64::BITS - TIME_BITS;
/// Bits of the generation in all.
pub(super) const GENERATION_BITS: u32 = GENERATION_LOW_BITS + KIND_MASK.count_zeros();

/// Mark in front of a command of a group.
pub(super) const MEMBER: u8 = 1;
/// Flag of the mark: the database differs from the previous command's; two bytes follow.
pub(super) const OTHER_DATABASE: u8 = 2;
/// Flag of the mark: the generation differs from the previous command's; eight bytes follow.
pub(super) const OTHER_GENERATION: u8 = 4;

/// Highest number (of parts, or of bytes of a part) that is encoded in one byte. Larger numbers
/// begin with one of the bytes above it, which gives the number's length in bytes.
pub(super) const NUMBER_MAX: u8 = 252;
pub(super) const NUMBER_OF_2: u8 = 253;
pub(super) const NUMBER_OF_4: u8 = 254;
pub(super) const NUMBER_OF_8: u8 = 255;

/// Flaw of a frame that was changed, or stands at a wrong sequence.
pub(super) const WRONG_SUM: &str = "the sum of a frame is wrong";
/// Flaw of a frame that only a newer server knows.
pub(super) const UNKNOWN_KIND: &str = "a frame is of no known kind";

/// A frame that was read and checked.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its sequence in the log.
    pub sequence: u64,
    /// Its length there in bytes; the next frame begins behind it.
    pub length: u64,
    /// When it was appended, in milliseconds since 1970 UTC.
    pub unix_ms: u64,
    head: EffectHead,
    is_group: bool,
    /// Encoded control; empty if there is none.
    control: &'a [u8],
    /// The bytes behind the control.
    payload: &'a [u8],
}

/// One canonical command that repeats a change.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    /// The database it applies to.
    pub database: u16,
    /// Snapshots that began with a higher generation contain the effect; others do not.
    pub generation: u64,
    /// The command: its name, and its arguments.
    pub parts: Parts<'a>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EffectHead {
    pub(super) database: u16,
    pub(super) generation: u64,
}

impl<'a> Frame<'a> {
    /// Returns the effects of the frame, which are applied all or not at all.
    #[must_use]
    pub fn effects(&self) -> Effects<'a> {
        Effects {
            head: self.head,
            is_group: self.is_group,
            rest: self.payload,
        }
    }

    /// Returns the frame's control, if it has one. It is applied together with the effects.
    #[must_use]
    pub fn control(&self) -> Option<Control<'a>> {
        let (control, _) = Control::decode(self.control)?;
        Some(control)
    }

    /// Whether its effects form a group.
    #[must_use]
    pub fn is_group(&self) -> bool {
        self.is_group
    }

    /// Decodes the frame at the start of `bytes`, which must be the one at `sequence`; returns the
    /// flaw if it is invalid.
    pub(super) fn decode(bytes: &'a [u8], sequence: u64) -> Result<Self, &'static str> {
        let length = frame_length(bytes)?;
        let bytes = bytes.get(..length).ok_or("a frame is cut off")?;
        if u32_at(bytes, 0) != sum_of(bytes, sequence) && !planted::is_on(Bug::NoChecksum) {
            return Err(WRONG_SUM);
        }
        let frame = Self::decode_checked(bytes, sequence)?;
        if !frame.ends_with_what_it_holds() {
            return Err("a frame does not end where what it holds does");
        }
        Ok(frame)
    }

    /// Like [`Frame::decode`], for a whole frame that already passed its checks.
    pub(super) fn decode_checked(bytes: &'a [u8], sequence: u64) -> Result<Self, &'static str> {
        let length = frame_length(bytes)?;
        let (start, kind, head, unix_ms) = if kind_of(bytes) == WIDE {
            let head = EffectHead {
                database: u16_at(bytes, 4),
                generation: u64_at(bytes, 16),
            };
            (WIDE_HEAD_BYTES, bytes[6], head, u64_at(bytes, 24))
        } else {
            let (high, low) = (u64::from(bytes[7] & !KIND_MASK), u64_at(bytes, 8));
            let high = high >> KIND_MASK.count_ones() << GENERATION_LOW_BITS;
            let head = EffectHead {
                database: u16::from(bytes[6]),
                generation: high | low >> TIME_BITS,
            };
            let unix_ms = low & ((1 << TIME_BITS) - 1);
            (HEAD_BYTES, kind_of(bytes), head, unix_ms)
        };
        let mut payload = bytes.get(start..length).ok_or("a frame is cut off")?;
        let mut control: &[u8] = &[];
        if kind != EFFECT && kind != GROUP {
            (control, payload) = split_control(kind, payload)?;
        }
        Ok(Self {
            sequence,
            length: length as u64,
            unix_ms,
            head,
            // A control alone has an empty group.
            is_group: kind != EFFECT,
            control,
            payload,
        })
    }

    /// Whether the frame ends where its content does.
    fn ends_with_what_it_holds(&self) -> bool {
        let is_alone = !self.control.is_empty() && is_padding(self.payload);
        is_alone || self.effects().end_with_the_frame()
    }
}

/// Returns the whole frames at the start of `bytes`, the first of which has sequence `first`. The
/// bytes come from a [`Cursor`](super::Cursor) or were accepted by a [`Follower`](super::Follower),
/// so sums are not checked again.
pub fn frames(first: u64, bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let (mut sequence, mut rest) = (first, bytes);
    std::iter::from_fn(move || {
        let frame = Frame::decode_checked(rest, sequence).ok()?;
        rest = rest.get(usize::try_from(frame.length).ok()?..)?;
        sequence += frame.length;
        Some(frame)
    })
}

/// Returns the length of the frame that begins with `bytes`, of which 16 are enough. Returns `None`
/// if there are fewer, or no frame begins there.
#[must_use]
pub fn frame_bytes(bytes: &[u8]) -> Option<u64> {
    frame_length(bytes).ok().map(|length| length as u64)
}

/// Returns the control at the start of a payload, and the bytes behind it.
#[cold]
fn split_control(kind: u8, payload: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    if kind != CONTROL && kind != CONTROL_AND_GROUP || Control::is_unknown(payload) {
        return Err(UNKNOWN_KIND);
    }
    let (_, rest) = Control::decode(payload).ok_or("a control frame is cut off")?;
    if (kind == CONTROL) != is_padding(rest) {
        return Err("a control frame does not end where what it holds does");
    }
    Ok(payload.split_at(payload.len() - rest.len()))
}

/// Whether `bytes` are the padding between the end of a payload and that of its frame.
fn is_padding(bytes: &[u8]) -> bool {
    bytes.len() < WORD_BYTES && bytes.iter().all(|&byte| byte == 0)
}

/// Returns the length of the frame at the start of `bytes`, from its first 16 bytes, or its flaw.
pub(super) fn frame_length(bytes: &[u8]) -> Result<usize, &'static str> {
    if bytes.len() < HEAD_BYTES {
        return Err("a frame is cut off");
    }
    let (words, least) = match kind_of(bytes) {
        EFFECT | GROUP => (u64::from(u16_at(bytes, 4)), HEAD_BYTES),
        WIDE => (u64_at(bytes, 8), WIDE_HEAD_BYTES),
        _ => return Err(UNKNOWN_KIND),
    };
    let length = words.checked_mul(WORD_BYTES as u64);
    match length.map(usize::try_from) {
        Some(Ok(length)) if length >= least => Ok(length),
        _ => Err("a frame has an impossible length"),
    }
}

fn kind_of(bytes: &[u8]) -> u8 {
    bytes[7] & KIND_MASK
}

/// Returns the sum of a frame at a sequence.
fn sum_of(frame: &[u8], sequence: u64) -> u32 {
    let sum = checksum::append(SUM_OF_NO_SUM, &frame[SUM_BYTES..]);
    checksum::append(sum, &sequence.to_le_bytes())
}

/// The effects of a frame, in order.
#[derive(Clone, Debug)]
pub struct Effects<'a> {
    /// Database and generation of the previous effect; at first those of the frame's head.
    head: EffectHead,
    is_group: bool,
    rest: &'a [u8],
}

impl<'a> Effects<'a> {
    /// Whether each effect is whole, and only zeroes follow the last one, up to the next word.
    fn end_with_the_frame(mut self) -> bool {
        let behind = if self.is_group {
            self.by_ref().for_each(drop);
            Some(self.rest)
        } else {
            Parts::at_the_start_of(self.rest).and_then(Parts::behind)
        };
        behind.is_some_and(is_padding)
    }

    /// Returns the next command of a group, and the bytes behind it.
    fn member(&self) -> Option<(Effect<'a>, &'a [u8])> {
        let (&mark, mut rest) = self.rest.split_first()?;
        if mark & !(OTHER_DATABASE | OTHER_GENERATION) != MEMBER {
            return None;
        }
        let mut head = self.head;
        if mark & OTHER_DATABASE != 0 {
            let (bytes, behind) = rest.split_first_chunk()?;
            (head.database, rest) = (u16::from_le_bytes(*bytes), behind);
        }
        if mark & OTHER_GENERATION != 0 {
            let (bytes, behind) = rest.split_first_chunk()?;
            (head.generation, rest) = (u64::from_le_bytes(*bytes), behind);
        }
        let parts = Parts::at_the_start_of(rest)?;
        Some((head.effect(parts), parts.behind()?))
    }
}

impl EffectHead {
    fn effect(self, parts: Parts<'_>) -> Effect<'_> {
        Effect {
            database: self.database,
            generation: self.generation,
            parts,
        }
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Effect<'a>;

    fn next(&mut self) -> Option<Effect<'a>> {
        if !self.is_group {
            let parts = Parts::at_the_start_of(std::mem::take(&mut self.rest))?;
            return Some(self.head.effect(parts));
        }
        let (effect, behind) = self.member()?;
        self.head = EffectHead {
            database: effect.database,
            generation: effect.generation,
        };
        self.rest = behind;
        Some(effect)
    }
}

/// The parts of a command, from its name on: slices of the bytes that were read.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn at_the_start_of(bytes: &'a [u8]) -> Option<Self> {
        let (left, rest) = number(bytes)?;
        Some(Self { left, rest })
    }

    /// Returns the `count` parts of a command that [`Parts::copy_to`] copied to the start of
    /// `bytes`.
    #[must_use]
    pub fn of_copy(count: usize, bytes: &'a [u8]) -> Self {
        Self {
            left: count,
            rest: bytes,
        }
    }

    /// Copies the encoded command to the end of `bytes`, and calls `tell` with the offset in
    /// `bytes` and the length of each part.
    #[inline]
    pub fn copy_to(mut self, bytes: &mut Vec<u8>, mut tell: impl FnMut(usize, usize)) {
        let (all, start) = (self.rest, bytes.len());
        while let Some(part) = self.next() {
            let end = start + all.len() - self.rest.len();
            tell(end - part.len(), part.len());
        }
        bytes.extend_from_slice(&all[..all.len() - self.rest.len()]);
    }

    /// Returns the bytes behind the last part, or `None` if the parts are cut off.
    #[must_use]
    pub fn behind(mut self) -> Option<&'a [u8]> {
        while self.left > 0 {
            self.next()?;
        }
        Some(self.rest)
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (length, rest) = number(self.rest)?;
        let (part, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The frame was checked.
impl ExactSizeIterator for Parts<'_> {}

/// Decodes the number at the start of `bytes`; returns it and the bytes behind it.
#[inline]
pub(super) fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    let (number, rest) = match first {
        0..=NUMBER_MAX => (u64::from(first), rest),
        NUMBER_OF_2 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_le_bytes(*bytes)), rest)
        }
        NUMBER_OF_4 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (u64::from(u32::from_le_bytes(*bytes)), rest)
        }
        NUMBER_OF_8 => {
            let (bytes, rest) = rest.split_first_chunk()?;
            (u64::from_le_bytes(*bytes), rest)
        }
    };
    Some((usize::try_from(number).ok()?, rest))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Reads the array with one load.
#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}
