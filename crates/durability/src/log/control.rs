//! Control frames: statements of the log about itself and not about keys.
//!
//! A control is a frame of its own, or stands in front of a group of effects and is applied
//! together with them. Controls are ordered among the effects, and replicas have them at the same
//! sequences.
//!
//! ```text
//!   kind  1        8        20   20         20     8             8
//!   term  ├─ 1 ─┼ number ┼ id ┼ previous ┼ node ┼ resp offset ┼ flags ┤
//! ```
//!
//! The other kinds are in `docs/formats/log.md`. The length of a control follows from its kind and
//! content.

use std::fmt;

use super::frame::{NUMBER_MAX, NUMBER_OF_2, NUMBER_OF_4, NUMBER_OF_8, number};

const TERM: u8 = 1;
const SOURCE: u8 = 2;
const PING: u8 = 3;
const GET_ACK: u8 = 4;
const DIGEST_POINT: u8 = 5;
const TRIM: u8 = 6;
const CONFIG: u8 = 7;

/// Bytes of a range of hash slots.
const RANGE_BYTES: usize = 4;

/// The content of a control frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// A term begins: everything from this frame on belongs to it.
    Term(TermFrame),
    /// The effects of the same group are the content of a followed Redis stream up to there.
    Source(SourceFrame),
    /// A PING to Redis replicas.
    Ping,
    /// A REPLCONF GETACK to Redis replicas.
    GetAck,
    /// Primary and replicas compare their data at this sequence.
    DigestPoint {
        /// Number of the comparison.
        number: u64,
    },
    /// All keys of these hash slots are gone, because the slots were given away.
    Trim(SlotRanges<'a>),
    /// A setting that all copies share.
    Config {
        /// Its name.
        name: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
}

/// The beginning of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermFrame {
    /// Rises with each term of a history.
    pub number: u64,
    /// Random id, which distinguishes two terms of the same number.
    pub id: [u8; 20],
    /// Id of the previous term; zeroes for none.
    pub previous: [u8; 20],
    /// The node that begins it.
    pub node: [u8; 20],
    /// Offset of the stream for Redis replicas at this sequence.
    pub resp_offset: u64,
    /// Written as 0; any value is accepted.
    pub flags: u64,
}

/// A position in the stream of a Redis primary that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// The primary's replication id, as 40 characters.
    pub replid: [u8; 40],
    /// Offset behind the last byte that was applied.
    pub offset: u64,
    /// The database that the stream has selected there.
    pub database: u16,
}

/// Ranges of hash slots, each from its first to its last one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotRanges<'a>(&'a [u8]);

impl<'a> SlotRanges<'a> {
    /// Decodes the result of [`SlotRanges::bytes_of`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes
            .len()
            .is_multiple_of(RANGE_BYTES)
            .then_some(Self(bytes))
    }

    /// Encodes ranges.
    #[must_use]
    pub fn bytes_of(ranges: &[(u16, u16)]) -> Vec<u8> {
        let ranges = ranges.iter();
        ranges
            .flat_map(|(first, last)| [first.to_le_bytes(), last.to_le_bytes()])
            .flatten()
            .collect()
    }

    /// Returns the first and last slot of each range.
    pub fn iter(self) -> impl Iterator<Item = (u16, u16)> + 'a {
        let (ranges, _) = self.0.as_chunks::<RANGE_BYTES>();
        ranges
            .iter()
            .map(|[a, b, c, d]| (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d])))
    }
}

impl fmt::Debug for SlotRanges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> Control<'a> {
    /// Returns the name of the kind, for texts.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Term(_) => "term",
            Self::Source(_) => "source",
            Self::Ping => "ping",
            Self::GetAck => "getack",
            Self::DigestPoint { .. } => "digest-point",
            Self::Trim(_) => "trim",
            Self::Config { .. } => "config",
        }
    }

    /// Appends the encoded control.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Term(term) => {
                bytes.push(TERM);
                bytes.extend_from_slice(&term.number.to_le_bytes());
                for id in [term.id, term.previous, term.node] {
                    bytes.extend_from_slice(&id);
                }
                bytes.extend_from_slice(&term.resp_offset.to_le_bytes());
                bytes.extend_from_slice(&term.flags.to_le_bytes());
            }
            Self::Source(source) => {
                bytes.push(SOURCE);
                bytes.extend_from_slice(&source.replid);
                bytes.extend_from_slice(&source.offset.to_le_bytes());
                bytes.extend_from_slice(&source.database.to_le_bytes());
            }
            Self::Ping => bytes.push(PING),
            Self::GetAck => bytes.push(GET_ACK),
            Self::DigestPoint { number } => {
                bytes.push(DIGEST_POINT);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            Self::Trim(ranges) => {
                bytes.push(TRIM);
                put_sized(bytes, ranges.0);
            }
            Self::Config { name, value } => {
                bytes.push(CONFIG);
                put_sized(bytes, name);
                put_sized(bytes, value);
            }
        }
    }

    /// Decodes the control at the start of `bytes`; returns it and the bytes behind it, or `None`
    /// if there is none.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&kind, mut rest) = bytes.split_first()?;
        let rest = &mut rest;
        let control = match kind {
            TERM => Self::Term(TermFrame {
                number: take_u64(rest)?,
                id: take(rest)?,
                previous: take(rest)?,
                node: take(rest)?,
                resp_offset: take_u64(rest)?,
                flags: take_u64(rest)?,
            }),
            SOURCE => Self::Source(SourceFrame {
                replid: take(rest)?,
                offset: take_u64(rest)?,
                database: u16::from_le_bytes(take(rest)?),
            }),
            PING => Self::Ping,
            GET_ACK => Self::GetAck,
            DIGEST_POINT => Self::DigestPoint {
                number: take_u64(rest)?,
            },
            TRIM => Self::Trim(SlotRanges::new(take_sized(rest)?)?),
            CONFIG => Self::Config {
                name: take_sized(rest)?,
                value: take_sized(rest)?,
            },
            _ => return None,
        };
        Some((control, rest))
    }

    /// Whether `bytes` begin with a kind that is unknown here.
    pub(super) fn is_unknown(bytes: &[u8]) -> bool {
        bytes
            .first()
            .is_none_or(|kind| !(TERM..=CONFIG).contains(kind))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*array)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn take_sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = number(rest)?;
    let (bytes, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(bytes)
}

/// Appends bytes with their length in front.
fn put_sized(bytes: &mut Vec<u8>, what: &[u8]) {
    let length = what.len() as u64;
    let (mark, count) = match length {
        0..=252 => (length.to_le_bytes()[0].min(NUMBER_MAX), 0),
        253..=0xffff => (NUMBER_OF_2, 2),
        0x1_0000..=0xffff_ffff => (NUMBER_OF_4, 4),
        _ => (NUMBER_OF_8, 8),
    };
    bytes.push(mark);
    bytes.extend_from_slice(&length.to_le_bytes()[..count]);
    bytes.extend_from_slice(what);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

    use super::super::builder::Builder;
    use super::super::frame::Frame;
    use super::*;

    /// Returns one control of each kind.
    fn all() -> [Control<'static>; 9] {
        [
            Control::Term(TermFrame {
                number: 7,
                id: *b"the id of this term!",
                previous: *b"the id of the former",
                node: *b"the id of the node!!",
                resp_offset: 1234,
                flags: 0,
            }),
            Control::Source(SourceFrame {
                replid: *b"8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb",
                offset: 5678,
                database: 3,
            }),
            Control::Ping,
            Control::GetAck,
            Control::DigestPoint { number: 9 },
            Control::Trim(SlotRanges::new(&[]).unwrap()),
            Control::Trim(SlotRanges::new(&[1, 0, 2, 0, 0, 1, 0xff, 0x3f]).unwrap()),
            Control::Config {
                name: b"name",
                value: b"",
            },
            Control::Config {
                name: &[b'n'; 253],
                value: &[b'v'; 0x1_0000],
            },
        ]
    }

    #[test]
    fn each_kind_comes_back_and_says_where_it_ends() {
        for control in all() {
            let mut bytes = Vec::new();
            control.encode(&mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(b"rest");
            let (decoded, rest) = Control::decode(&bytes).unwrap();
            assert_eq!((decoded, rest), (control, &b"rest"[..]));
            assert!(!Control::is_unknown(&bytes));
            for cut in 0..length {
                assert!(Control::decode(&bytes[..cut]).is_none(), "{control:?}");
            }
        }
        for unknown in [&[][..], &[0], &[8], &[255; 100]] {
            assert!(Control::decode(unknown).is_none() && Control::is_unknown(unknown));
        }
        assert!(SlotRanges::new(&[1, 2, 3]).is_none());
        let bytes = SlotRanges::bytes_of(&[(1, 2), (256, 16383)]);
        let ranges = SlotRanges::new(&bytes).unwrap();
        assert!(ranges.iter().eq([(1, 2), (256, 16383)]));
    }

    /// Controls alone, and in front of a group.
    #[test]
    fn controls_come_back() {
        let mut builder = Builder::default();
        builder.set_time(5);
        for control in all() {
            builder.control(&control);
            let frame = Frame::decode(builder.words(16).as_flattened(), 16).unwrap();
            assert_eq!((frame.control(), frame.unix_ms), (Some(control), 5));
            assert_eq!(frame.effects().count(), 0);
            builder.clear();
            builder.set_control(&Control::Ping);
            builder.add(3, &[b"SET", b"key", b"value"]);
            builder.set_control(&control);
            builder.add(300, &[b"DEL", b"key"]);
            builder.end_group();
            let frame = Frame::decode(builder.words(16).as_flattened(), 16).unwrap();
            assert_eq!((frame.control(), frame.is_group()), (Some(control), true));
            let found: Vec<_> = frame
                .effects()
                .map(|one| (one.database, one.parts.collect::<Vec<_>>().concat()))
                .collect();
            let wanted = [(3, b"SETkeyvalue".to_vec()), (300, b"DELkey".to_vec())];
            assert_eq!(found, wanted);
            builder.clear();
            builder.effect(0, &[b"PING"]);
            let frame = Frame::decode(builder.words(16).as_flattened(), 16).unwrap();
            assert_eq!(frame.control(), None);
            builder.clear();
        }
    }
}
