//! Control frames: what the log says about itself and not about keys.
//!
//! A frame may be one, or a group of effects may have one in front, which then holds together with them. They have their
//! place among the effects, in order, and replicas have them at the same sequences.
//!
//! ```text
//!   kind  1        8        20   20         20     8             8
//!   term  ├─ 1 ─┼ number ┼ id ┼ previous ┼ node ┼ resp offset ┼ flags ┤
//! ```
//!
//! The others are in `docs/formats/log.md`. How a control ends is known from its kind and what it says.

use std::fmt;

use super::frame::{NUMBER_MAX, NUMBER_OF_2, NUMBER_OF_4, NUMBER_OF_8, number};

const TERM: u8 = 1;
const SOURCE: u8 = 2;
const PING: u8 = 3;
const GET_ACK: u8 = 4;
const DIGEST_POINT: u8 = 5;
const TRIM: u8 = 6;
const CONFIG: u8 = 7;

/// Bytes of a range of slots.
const RANGE_BYTES: usize = 4;

/// What a control frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// A primary's reign begins. Everything from this frame on is of that term.
    Term(TermFrame),
    /// The effects of the same group are what a followed Redis stream says up to there.
    Source(SourceFrame),
    /// What a Redis replica is sent as PING.
    Ping,
    /// What a Redis replica is sent as REPLCONF GETACK.
    GetAck,
    /// Primary and replicas compare what they hold at this place.
    DigestPoint {
        /// Which comparison it is.
        number: u64,
    },
    /// All keys of these slots are gone: they were given away.
    Trim(SlotRanges<'a>),
    /// A setting that all copies share.
    Config {
        /// Its name.
        name: &'a [u8],
        /// What it is from now on.
        value: &'a [u8],
    },
}

/// The beginning of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermFrame {
    /// Rises with each term of a history.
    pub number: u64,
    /// Chosen at random: two terms of the same number are told apart by it.
    pub id: [u8; 20],
    /// The term before it; zeroes for none.
    pub previous: [u8; 20],
    /// The node that begins it.
    pub node: [u8; 20],
    /// The offset of the stream for Redis replicas at this place.
    pub resp_offset: u64,
    /// 0 is written, anything is read.
    pub flags: u64,
}

/// A place in a stream of a Redis primary that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// The primary's replication id, as 40 characters.
    pub replid: [u8; 40],
    /// Behind the last byte that was applied.
    pub offset: u64,
    /// The database that the stream has selected there.
    pub database: u16,
}

/// Ranges of slots, each from its first to its last one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotRanges<'a>(&'a [u8]);

impl<'a> SlotRanges<'a> {
    /// From what [`SlotRanges::bytes_of`] gave.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes
            .len()
            .is_multiple_of(RANGE_BYTES)
            .then_some(Self(bytes))
    }

    /// The bytes of ranges.
    #[must_use]
    pub fn bytes_of(ranges: &[(u16, u16)]) -> Vec<u8> {
        let ranges = ranges.iter();
        ranges
            .flat_map(|(first, last)| [first.to_le_bytes(), last.to_le_bytes()])
            .flatten()
            .collect()
    }

    /// First and last slot of each.
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
    /// How it is called in texts.
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

    /// Adds its bytes.
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

    /// The control at the start of some bytes, and what follows it; none where there is none.
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

    /// Whether bytes begin with a kind that is not known here.
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

/// Adds bytes with their length in front.
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
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
pub(super) mod tests {
    use super::*;

    /// One of each kind.
    pub(in super::super) fn all() -> [Control<'static>; 9] {
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
}
