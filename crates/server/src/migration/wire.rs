//! Messages between the two ends of a move: steps, and the commands that carry the copied data.
//!
//! ```text
//!   begin │ name 20 bytes │ count u16 │ ranges: first u16, last u16 │ keys u64 │ bytes u64
//!   entry │ length u32 │ kind u8 │ database u16 │ parts u32 │ each: length u32, bytes
//! ```
//!
//! Entries form a stream of bytes: a piece may end anywhere inside an entry. `docs/formats/link.md`
//! has the steps.

use cluster::entry::{SlotRange, are_ranges};

/// A step of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    /// The source wants to give slots away.
    Begin = 1,
    /// The target accepts them.
    Ready = 2,
    /// The target does not accept them, or no longer: the reason as text.
    Refused = 3,
    /// A piece of the entries.
    Data = 4,
    /// The target must report when it has applied everything: number u64, further request u8
    /// ([`Mark`]).
    Mark = 5,
    /// The target has: number u64.
    Done = 6,
    /// The group has given the slots to the target.
    Moved = 7,
    /// The target serves them.
    Served = 8,
    /// The target asks the receiver for slots: as `begin`.
    Ask = 9,
}

impl Step {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [
            Self::Begin,
            Self::Ready,
            Self::Refused,
            Self::Data,
            Self::Mark,
            Self::Done,
            Self::Moved,
            Self::Served,
            Self::Ask,
        ]
        .into_iter()
        .find(|step| *step as u8 == byte)
    }
}

/// Maximum length of an entry.
const ENTRY_BYTES_MAX: usize = 1 << 30;

const COMMAND: u8 = 1;
const GROUP_BEGIN: u8 = 2;
const GROUP_END: u8 = 3;

/// The move that the source proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub(super) name: [u8; 20],
    pub(super) ranges: Vec<SlotRange>,
    /// Approximate number of keys.
    pub(super) keys: u64,
    /// Approximate memory of the keys.
    pub(super) bytes: u64,
}

impl Begin {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.name.to_vec();
        let count = u16::try_from(self.ranges.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for (first, last) in &self.ranges {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&last.to_le_bytes());
        }
        out.extend_from_slice(&self.keys.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (name, rest) = bytes.split_first_chunk::<20>()?;
        let (count, mut rest) = rest.split_first_chunk()?;
        let mut ranges = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let (range, more) = rest.split_first_chunk::<4>()?;
            let [a, b, c, d] = *range;
            ranges.push((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])));
            rest = more;
        }
        let (keys, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        (rest.is_empty() && !ranges.is_empty() && are_ranges(&ranges)).then_some(Self {
            name: *name,
            ranges,
            keys: u64::from_le_bytes(*keys),
            bytes: u64::from_le_bytes(*bytes),
        })
    }
}

/// Request of a mark to the target. A target that does not know a kind treats it as
/// [`Mark::Applied`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// Everything before it must be applied, and what follows is applied without delay.
    Applied = 0,
    /// Everything before it must be durable.
    Durable = 1,
    /// What follows is applied in the background, until the next mark.
    Background = 2,
}

/// Encodes a mark with its number.
pub(super) fn mark(number: u64, kind: Mark) -> [u8; 9] {
    let mut bytes = [0; 9];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8] = kind as u8;
    bytes
}

/// Decodes the number of a mark and its request.
pub(super) fn number_and_mark(bytes: &[u8]) -> Option<(u64, Mark)> {
    let (number, rest) = number(bytes)?;
    let kinds = [Mark::Durable, Mark::Background];
    let kind = kinds.into_iter().find(|kind| rest == [*kind as u8]);
    Some((number, kind.unwrap_or(Mark::Applied)))
}

/// Decodes the number of a mark or of its answer. Returns the rest, too.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

/// Appends a command.
pub(super) fn put_command<'p>(
    out: &mut Vec<u8>,
    database: u16,
    parts: impl IntoIterator<Item = &'p [u8]>,
) {
    let start = begin_entry(out, COMMAND, database);
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut count = 0_u32;
    for part in parts {
        out.extend_from_slice(&length(part.len()).to_le_bytes());
        out.extend_from_slice(part);
        count += 1;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    end_entry(out, start);
}

/// Appends the begin or the end of a group of commands that apply together.
pub(super) fn put_group(out: &mut Vec<u8>, is_begin: bool) {
    let kind = if is_begin { GROUP_BEGIN } else { GROUP_END };
    let start = begin_entry(out, kind, 0);
    end_entry(out, start);
}

fn begin_entry(out: &mut Vec<u8>, kind: u8, database: u16) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&database.to_le_bytes());
    start
}

fn end_entry(out: &mut [u8], start: usize) {
    let bytes = length(out.len() - start - 4);
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Lengths beyond `u32` do not occur: a frame of the log could not hold them.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A decoded entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'b> {
    /// A command on a database.
    Command(u16, Vec<&'b [u8]>),
    /// Begin of a group that applies together.
    GroupBegin,
    /// End of the group.
    GroupEnd,
}

/// Decodes the entry at the front of `bytes`. Returns it with its length, or `None` if it is
/// incomplete.
///
/// # Errors
/// What is wrong with it.
pub(super) fn entry(bytes: &[u8]) -> Result<Option<(Entry<'_>, usize)>, String> {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > ENTRY_BYTES_MAX {
        return Err(format!(
            "a command of {length} bytes is longer than {ENTRY_BYTES_MAX}"
        ));
    }
    let Some(body) = rest.get(..length) else {
        return Ok(None);
    };
    let malformed = || "a command that is cut off".to_owned();
    let entry = body_of(body).ok_or_else(malformed)?;
    Ok(Some((entry, 4 + length)))
}

fn body_of(body: &[u8]) -> Option<Entry<'_>> {
    let (head, rest) = body.split_first_chunk::<3>()?;
    match head[0] {
        GROUP_BEGIN => Some(Entry::GroupBegin),
        GROUP_END => Some(Entry::GroupEnd),
        COMMAND => {
            let database = u16::from_le_bytes([head[1], head[2]]);
            let (count, mut rest) = rest.split_first_chunk()?;
            let mut parts = Vec::new();
            for _ in 0..u32::from_le_bytes(*count) {
                let (length, more) = rest.split_first_chunk()?;
                let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
                let (part, more) = more.split_at_checked(length)?;
                parts.push(part);
                rest = more;
            }
            (rest.is_empty() && !parts.is_empty()).then_some(Entry::Command(database, parts))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in_however_they_are_cut() {
        let mut bytes = Vec::new();
        put_group(&mut bytes, true);
        put_command(&mut bytes, 3, [&b"SET"[..], b"key", b""]);
        put_group(&mut bytes, false);
        let expected = [
            Entry::GroupBegin,
            Entry::Command(3, vec![b"SET", b"key", b""]),
            Entry::GroupEnd,
        ];
        let mut rest = bytes.as_slice();
        for one in expected {
            let (found, length) = entry(rest).unwrap().unwrap();
            assert_eq!(found, one);
            for cut in 0..length {
                assert_eq!(entry(&rest[..cut]), Ok(None));
            }
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        assert!(entry(&[0xff; 8]).is_err() && entry(&[3, 0, 0, 0, 9, 0, 0]).is_err());
    }

    #[test]
    fn a_begin_is_what_it_was_or_nothing() {
        let begin = Begin {
            name: [7; 20],
            ranges: vec![(0, 5), (16_383, 16_383)],
            keys: 12,
            bytes: 34,
        };
        let bytes = begin.encode();
        assert_eq!(Begin::decode(&bytes), Some(begin.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(Begin::decode(&bytes[..cut]), None);
        }
        for ranges in [vec![(5, 4)], vec![(0, 16_384)], vec![(0, 5), (5, 6)]] {
            let wrong = Begin {
                ranges,
                ..begin.clone()
            };
            assert_eq!(Begin::decode(&wrong.encode()), None);
        }
    }
}
