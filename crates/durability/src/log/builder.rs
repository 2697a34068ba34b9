//! Builds frames, one after the other, in a reused buffer. [`super::frame`] describes their format.

use super::control::Control;
use super::frame::{
    CONTROL, CONTROL_AND_GROUP, EFFECT, EffectHead, GENERATION_BITS, GENERATION_LOW_BITS, GROUP,
    HEAD_BYTES, KIND_MASK, MEMBER, NUMBER_MAX, NUMBER_OF_2, NUMBER_OF_4, NUMBER_OF_8,
    OTHER_DATABASE, OTHER_GENERATION, TIME_BITS, WIDE, WIDE_HEAD_BYTES, WORD_BYTES,
};
use crate::checksum;
use crate::planted::{self, Bug};

/// A buffer that grew beyond this is freed after use.
const SCRATCH_BYTES_KEPT: usize = 1 << 20;
/// Maximum number of bytes in front of a command of a group: mark, database and generation.
const MEMBER_HEAD_BYTES_MAX: usize = 1 + 2 + 8;
/// Longest encoding of a number: one byte that gives its length, and eight.
const NUMBER_BYTES_MAX: usize = 1 + 8;

/// Builds one frame after the other.
///
/// The buffer is as long as the longest frame so far, so that nothing is cleared and, in the steady
/// state, nothing allocated.
#[derive(Debug, Default)]
pub(super) struct Builder {
    bytes: Vec<u8>,
    /// Bytes of the buffer that the frame takes so far.
    len: usize,
    stamp: Stamp,
    /// Database and generation of the first command of a group.
    first: EffectHead,
    /// Database and generation of the last command of the group. It begins at `last_start`.
    last: EffectHead,
    last_start: usize,
    /// Encoded control that goes in front of the group; empty if there is none.
    control: Vec<u8>,
}

/// A time and a generation in the form of a short head, built once for many frames.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    unix_ms: u64,
    generation: u64,
    /// Their part of the head's first word, with the kind of a frame of one command; 0 if a wide
    /// head is needed.
    first: u64,
    second: u64,
}

impl Stamp {
    fn new(unix_ms: u64, generation: u64) -> Self {
        let high = generation >> GENERATION_LOW_BITS << KIND_MASK.count_ones();
        let is_short = unix_ms >> TIME_BITS == 0 && generation >> GENERATION_BITS == 0;
        Self {
            unix_ms,
            generation,
            first: if is_short {
                (high | u64::from(EFFECT)) << 56
            } else {
                0
            },
            second: unix_ms | generation << TIME_BITS,
        }
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Builder {
    /// Sets the time of the frames that follow.
    #[inline]
    pub(super) fn set_time(&mut self, unix_ms: u64) {
        if unix_ms != self.stamp.unix_ms {
            self.stamp = Stamp::new(unix_ms, self.stamp.generation);
        }
    }

    /// Sets the generation of the commands that follow.
    #[inline]
    pub(super) fn set_generation(&mut self, generation: u64) {
        if generation != self.stamp.generation {
            self.stamp = Stamp::new(self.stamp.unix_ms, generation);
        }
    }

    /// Builds a frame of one command. [`Builder::words`] returns it.
    #[inline]
    pub(super) fn effect(&mut self, database: u16, parts: &[&[u8]]) {
        self.len = HEAD_BYTES;
        self.command(parts);
        if !self.put_short_head(database, self.stamp.first, self.stamp.second) {
            self.widen(EFFECT, database, self.stamp.generation);
        }
    }

    /// Adds a command to the group's frame; the first command begins it.
    pub(super) fn add(&mut self, database: u16, parts: &[&[u8]]) {
        let own = EffectHead {
            database,
            generation: self.stamp.generation,
        };
        if !self.has_group() {
            self.len = HEAD_BYTES;
            (self.first, self.last) = (own, own);
        }
        self.last_start = self.len;
        self.grow_to(self.len + MEMBER_HEAD_BYTES_MAX);
        let (mark_at, mut mark) = (self.len, MEMBER);
        self.len += 1;
        if own.database != self.last.database {
            mark |= OTHER_DATABASE;
            self.put(&database.to_le_bytes());
        }
        if own.generation != self.last.generation {
            mark |= OTHER_GENERATION;
            self.put(&own.generation.to_le_bytes());
        }
        self.bytes[mark_at] = mark;
        self.command(parts);
        self.last = own;
    }

    /// Builds a frame of a control. [`Builder::words`] returns it.
    pub(super) fn control(&mut self, control: &Control<'_>) {
        self.set_control(control);
        self.end_control();
    }

    /// Sets the control in front of the group, in place of an earlier one.
    pub(super) fn set_control(&mut self, control: &Control<'_>) {
        self.control.clear();
        control.encode(&mut self.control);
    }

    /// Whether there is a control to put in front of the group.
    pub(super) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Ends a frame of the control alone, without a group. [`Builder::words`] returns it.
    pub(super) fn end_control(&mut self) {
        self.len = HEAD_BYTES;
        self.put_control();
        self.widen(CONTROL, 0, self.stamp.generation);
    }

    /// Inserts the control in front of the commands, and pads the frame.
    fn put_control(&mut self) {
        let added = self.control.len();
        let end = self.len + added;
        self.grow_to(end + WORD_BYTES);
        self.bytes
            .copy_within(HEAD_BYTES..self.len, HEAD_BYTES + added);
        self.bytes[HEAD_BYTES..HEAD_BYTES + added].copy_from_slice(&self.control);
        self.bytes[end..end + WORD_BYTES].fill(0);
        self.len = end.next_multiple_of(WORD_BYTES);
        self.control.clear();
    }

    /// Whether the group has any command.
    pub(super) fn has_group(&self) -> bool {
        self.len > 0
    }

    /// Ends the frame of a group. [`Builder::words`] returns it.
    pub(super) fn end_group(&mut self) {
        if planted::is_on(Bug::GroupCutShort) {
            self.len = self.last_start;
            self.bytes[self.len..].fill(0);
        }
        let EffectHead {
            database,
            generation,
        } = self.first;
        if self.has_control() {
            self.put_control();
            return self.widen(CONTROL_AND_GROUP, database, generation);
        }
        let stamp = Stamp::new(self.stamp.unix_ms, generation);
        let kind = u64::from(EFFECT ^ GROUP) << 56;
        let first = (stamp.first != 0).then_some(stamp.first ^ kind);
        if !self.put_short_head(database, first.unwrap_or(0), stamp.second) {
            self.widen(GROUP, database, generation);
        }
    }

    /// Returns the length of the finished frame in the log, in bytes.
    #[inline]
    pub(super) fn length(&self) -> u64 {
        self.len as u64
    }

    /// Returns the finished frame in words, with zeroes in place of its sum.
    #[inline]
    pub(super) fn unsummed(&self) -> &[[u8; WORD_BYTES]] {
        let (words, _) = self.bytes[..self.len].as_chunks();
        words
    }

    /// Returns the finished frame in words, with the sum for its sequence.
    pub(super) fn words(&mut self, sequence: u64) -> &[[u8; WORD_BYTES]] {
        let (words, _) = self.bytes[..self.len].as_chunks_mut();
        let sum = checksum::of_words(words, sequence.to_le_bytes());
        if let Some(first) = words.first_mut().and_then(|word| word.first_chunk_mut()) {
            *first = sum.to_le_bytes();
        }
        words
    }

    /// Forgets the frame, and frees the buffer if it is large.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
        if self.bytes.len() > SCRATCH_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }

    fn grow_to(&mut self, needed: usize) {
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two(), 0);
        }
    }

    /// Appends one command, and zeroes behind it.
    #[inline]
    fn command(&mut self, parts: &[&[u8]]) {
        match put_command(&mut self.bytes, self.len, parts) {
            Some(end) => self.len = end,
            None => self.command_in_more_room(parts),
        }
    }

    #[cold]
    fn command_in_more_room(&mut self, parts: &[&[u8]]) {
        let content: usize = parts.iter().map(|part| part.len() + NUMBER_BYTES_MAX).sum();
        self.grow_to(self.len + NUMBER_BYTES_MAX + content + WORD_BYTES);
        let end = put_command(&mut self.bytes, self.len, parts);
        self.len = end.expect("there is room for it now");
    }

    fn put(&mut self, what: &[u8]) {
        self.bytes[self.len..self.len + what.len()].copy_from_slice(what);
        self.len += what.len();
    }

    /// Ends the frame and writes a short head, with zeroes in place of the sum. Returns whether a
    /// short head suffices.
    #[inline]
    fn put_short_head(&mut self, database: u16, first: u64, second: u64) -> bool {
        // Zeroes already stand behind the payload up to here.
        self.len = self.len.next_multiple_of(WORD_BYTES);
        let words = (self.len / WORD_BYTES) as u64;
        let is_short = words <= u64::from(u16::MAX) && database <= u16::from(u8::MAX);
        let Some(head) = self.bytes.first_chunk_mut::<HEAD_BYTES>() else {
            return false;
        };
        let first_word = words << 32 | u64::from(database) << 48 | first;
        let words = [first_word, second].map(u64::to_le_bytes);
        head.copy_from_slice(words.as_flattened());
        is_short && first != 0
    }

    /// Replaces the space of the short head by a wide head.
    #[cold]
    fn widen(&mut self, kind: u8, database: u16, generation: u64) {
        let end = self.len + WIDE_HEAD_BYTES - HEAD_BYTES;
        self.grow_to(end);
        self.bytes
            .copy_within(HEAD_BYTES..self.len, WIDE_HEAD_BYTES);
        self.len = end;
        let words = (self.len / WORD_BYTES) as u64;
        let first = u64::from(database) << 32 | u64::from(kind) << 48 | u64::from(WIDE) << 56;
        let head = [first, words, generation, self.stamp.unix_ms].map(u64::to_le_bytes);
        self.bytes[..WIDE_HEAD_BYTES].copy_from_slice(head.as_flattened());
    }
}

/// Writes a command at `at`: the number of parts, and each part with its length in front. Returns
/// its end, behind which zeroes stand, or `None` if the buffer is too short.
#[inline]
fn put_command(bytes: &mut [u8], at: usize, parts: &[&[u8]]) -> Option<usize> {
    let size = bytes.len();
    let mut rest = put_number(bytes.get_mut(at..)?, parts.len())?;
    for part in parts {
        rest = put_part(rest, part)?;
    }
    // One store, however many zeroes are needed.
    *rest.first_chunk_mut()? = [0; WORD_BYTES];
    Some(size - rest.len())
}

/// Writes a part at the front; returns the rest.
#[inline]
fn put_part<'b>(bytes: &'b mut [u8], part: &[u8]) -> Option<&'b mut [u8]> {
    if part.len() > usize::from(NUMBER_MAX) {
        return put_long_part(bytes, part);
    }
    let (place, behind) = bytes.split_at_mut_checked(1 + part.len())?;
    let (length, place) = place.split_first_mut()?;
    [*length, ..] = part.len().to_le_bytes();
    copy(place, part);
    Some(behind)
}

#[inline(never)]
fn put_long_part<'b>(bytes: &'b mut [u8], part: &[u8]) -> Option<&'b mut [u8]> {
    let (place, behind) = put_number(bytes, part.len())?.split_at_mut_checked(part.len())?;
    place.copy_from_slice(part);
    Some(behind)
}

/// Writes a number at the front; returns the rest.
#[inline]
fn put_number(bytes: &mut [u8], number: usize) -> Option<&mut [u8]> {
    if number > usize::from(NUMBER_MAX) {
        return put_long_number(bytes, number as u64);
    }
    let (place, behind) = bytes.split_first_mut()?;
    [*place, ..] = number.to_le_bytes();
    Some(behind)
}

#[inline(never)]
fn put_long_number(bytes: &mut [u8], number: u64) -> Option<&mut [u8]> {
    let (mark, count) = match number {
        0..=0xffff => (NUMBER_OF_2, 2),
        0x1_0000..=0xffff_ffff => (NUMBER_OF_4, 4),
        _ => (NUMBER_OF_8, 8),
    };
    let (place, behind) = bytes.split_at_mut_checked(1 + count)?;
    let (first, place) = place.split_first_mut()?;
    *first = mark;
    place.copy_from_slice(&number.to_le_bytes()[..count]);
    Some(behind)
}

/// Copies a part to a place of the same length. Names and keys are so short that a call would be
/// expensive.
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

/// Copies `N` to 2 `N` bytes, as the first and the last `N` bytes.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

    use super::super::frame::Frame;
    use super::*;

    fn parts_of(effect: super::super::Effect<'_>) -> Vec<Vec<u8>> {
        effect.parts.map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_set_of_a_short_value_takes_144_bytes() {
        let mut builder = Builder::default();
        builder.effect(0, &[b"SET", &[b'k'; 16], &[b'v'; 100]]);
        assert_eq!(builder.length(), 144);
    }

    /// Parts of every length whose encoding differs from that of its neighbours.
    #[test]
    fn parts_of_any_length() {
        let mut builder = Builder::default();
        let bytes: Vec<u8> = (0..70_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let long = [99, 100, 251, 252, 253, 254, 255, 256, 65_535, 65_536];
        for length in (0..=40).chain(long) {
            let part = &bytes[..length];
            builder.effect(0, &[b"SET", part, b"", part]);
            let frame = builder.words(8).as_flattened();
            let frame = Frame::decode(frame, 8).unwrap();
            let effect = frame.effects().next().unwrap();
            assert_eq!(effect.parts.len(), 4);
            assert_eq!(parts_of(effect), [b"SET", part, b"", part], "{length}");
            builder.clear();
        }
        for count in [0, 1, 252, 253, 65_535, 65_536] {
            let parts = vec![&bytes[..1]; count];
            builder.effect(0, &parts);
            let frame = builder.words(8).as_flattened();
            let effect = Frame::decode(frame, 8).unwrap().effects().next().unwrap();
            assert!(effect.parts.eq(parts.iter().copied()), "{count}");
            builder.clear();
        }
    }

    #[test]
    fn numbers_of_any_size() {
        let mut bytes = [0; 16];
        for number in [
            0,
            252,
            253,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            0x1_0000_0000,
            usize::MAX,
        ] {
            let end = 16 - put_number(&mut bytes, number).unwrap().len();
            let (read, rest) = super::super::frame::number(&bytes[..end]).unwrap();
            assert_eq!((read, rest.len()), (number, 0));
            for cut in 0..end {
                assert!(super::super::frame::number(&bytes[..cut]).is_none());
            }
        }
    }

    /// Everything that does not fit into a short head has a wide one, and nothing else does.
    #[test]
    fn heads_hold_any_time_generation_database_and_length() {
        let mut builder = Builder::default();
        let times = [0, 1, (1 << 42) - 1, 1 << 42, u64::MAX];
        let generations = [
            0,
            1,
            (1 << 22) - 1,
            1 << 22,
            (1 << 28) - 1,
            1 << 28,
            u64::MAX,
        ];
        for (unix_ms, is_short_time) in times.map(|ms| (ms, ms < 1 << 42)) {
            for (generation, is_short) in generations.map(|one| (one, one < 1 << 28)) {
                for database in [0, 15, 255, 256, u16::MAX] {
                    builder.set_time(unix_ms);
                    builder.set_generation(generation);
                    let is_short = is_short && is_short_time && database < 256;
                    builder.effect(database, &[b"PING"]);
                    assert_eq!(builder.length(), if is_short { 24 } else { 40 });
                    let frame = Frame::decode(builder.words(8).as_flattened(), 8).unwrap();
                    let effect = frame.effects().next().unwrap();
                    let found = (frame.unix_ms, effect.generation, effect.database);
                    assert_eq!(found, (unix_ms, generation, database));
                    assert_eq!(parts_of(effect), [b"PING"]);
                    assert!(!frame.is_group());
                    builder.clear();
                }
            }
        }
        builder.set_time(7);
        builder.set_generation(8);
        for (length, head_bytes) in [(65_535 * 8, 16), (65_535 * 8 + 1, 32)] {
            // A name, the number of parts and their lengths.
            let value = vec![b'v'; length - 16 - 1 - 4 - 5];
            builder.effect(1, &[b"SET", &value]);
            let length = (length - 16).next_multiple_of(8) + head_bytes;
            assert_eq!(builder.length(), length as u64);
            let frame = Frame::decode(builder.words(8).as_flattened(), 8).unwrap();
            assert_eq!((frame.unix_ms, frame.length), (7, length as u64));
            assert_eq!(parts_of(frame.effects().next().unwrap())[1], value);
            builder.clear();
        }
    }

    #[test]
    fn commands_of_a_group_keep_their_databases_and_generations() {
        let mut builder = Builder::default();
        let members = [(3, 7), (3, 7), (3, 8), (300, 8), (0, u64::MAX), (0, 7)];
        for is_wide in [false, true] {
            builder.set_time(if is_wide { u64::MAX } else { 5 });
            for (database, generation) in members {
                builder.set_generation(generation);
                builder.add(database, &[b"SET", b"0"]);
            }
            builder.end_group();
            let frame = Frame::decode(builder.words(16).as_flattened(), 16).unwrap();
            assert!(frame.is_group());
            let found = frame.effects().map(|one| (one.database, one.generation));
            assert!(found.eq(members));
            let mut parts = frame.effects().map(parts_of);
            assert!(parts.all(|parts| parts == [b"SET".to_vec(), b"0".to_vec()]));
            builder.clear();
        }
    }

    /// Even if the sum is right.
    #[test]
    fn what_is_no_control_is_refused() {
        let mut builder = Builder::default();
        let mut wrong = |is_group: bool, change: &dyn Fn(&mut [u8])| {
            builder.set_control(&Control::DigestPoint { number: 9 });
            if is_group {
                builder.add(0, &[b"SET", b"key", b"value"]);
                builder.end_group();
            } else {
                builder.end_control();
            }
            change(&mut builder.bytes);
            let found = Frame::decode(builder.words(8).as_flattened(), 8).map(|_| ());
            builder.clear();
            found
        };
        for is_group in [false, true] {
            assert_eq!(wrong(is_group, &|_| ()), Ok(()));
            let unknown = Err("a frame is of no known kind");
            assert_eq!(wrong(is_group, &|bytes| bytes[6] = 5), unknown);
            assert_eq!(wrong(is_group, &|bytes| bytes[32] = 8), unknown);
            let cut_off = Err("a control frame is cut off");
            assert_eq!(wrong(is_group, &|bytes| bytes[32] = 1), cut_off);
            let end = Err("a control frame does not end where what it holds does");
            let other = if is_group { CONTROL } else { CONTROL_AND_GROUP };
            assert_eq!(wrong(is_group, &|bytes| bytes[6] = other), end);
        }
        let end = Err("a control frame does not end where what it holds does");
        assert_eq!(wrong(false, &|bytes| bytes[47] = 1), end);
        let end = Err("a frame does not end where what it holds does");
        assert_eq!(wrong(true, &|bytes| bytes[41] = 0), end);
    }

    #[test]
    fn a_frame_is_wrong_in_any_other_place() {
        let mut builder = Builder::default();
        builder.effect(0, &[b"SET", b"key", b"value"]);
        let bytes = builder.words(64).as_flattened().to_vec();
        assert!(Frame::decode(&bytes, 64).is_ok());
        for bit in 0..64 {
            let error = Frame::decode(&bytes, 64 ^ 1 << bit).unwrap_err();
            assert_eq!(error, "the sum of a frame is wrong");
        }
    }

    /// Even if the sum is right, invalid bytes are not accepted as a frame, and memory is not
    /// allocated for missing bytes.
    #[test]
    fn a_frame_ends_where_what_it_holds_does() {
        let summed = |builder: &mut Builder, change: &dyn Fn(&mut [u8])| {
            change(&mut builder.bytes);
            builder.bytes[..4].fill(0);
            let bytes = builder.words(8).as_flattened();
            Frame::decode(bytes, 8).map(|_| ())
        };
        let mut builder = Builder::default();
        let ends = Err("a frame does not end where what it holds does");
        builder.effect(0, &[b"SET", b"key", b"value"]);
        assert_eq!(builder.length(), 32);
        assert_eq!(summed(&mut builder, &|_| ()), Ok(()));
        let wrong = [0, 2, 5, 200, NUMBER_OF_2, NUMBER_OF_4, NUMBER_OF_8];
        for count in wrong {
            assert_eq!(summed(&mut builder, &|bytes| bytes[16] = count), ends);
        }
        builder.bytes[16] = 3;
        assert_eq!(summed(&mut builder, &|bytes| bytes[31] = 1), ends);
        builder.clear();
        builder.add(0, &[b"SET", b"key", b"value"]);
        builder.add(0, &[b"DEL", b"key"]);
        builder.end_group();
        assert_eq!(summed(&mut builder, &|_| ()), Ok(()));
        // The mark and the number of parts of the second command, and what is behind.
        for (at, byte) in [(32, 0), (32, 8), (32, 0xff), (33, 1), (33, 9), (47, 1)] {
            let before = builder.bytes[at];
            let found = summed(&mut builder, &|bytes| bytes[at] = byte);
            assert_eq!(found, ends, "{at}: {byte}");
            builder.bytes[at] = before;
        }
    }
}
