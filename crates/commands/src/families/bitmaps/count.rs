//! BITCOUNT.

use std::ops::Range;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::Record;

use super::{BITS_PER_BYTE, RangeUnit, bit_len, index};
use crate::families::strings::shared::{check_string, is_reversed};

pub(super) const BITCOUNT: CommandSpec = CommandSpec {
    name: "BITCOUNT",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::Bitmap,
    since: "2.6.0",
    history: &[
        ("7.0.0", "Added the `BYTE|BIT` option."),
        ("8.0.0", "`end` may be left out."),
    ],
    summary: "Counts the bits that are set in a string or a part of it.",
    complexity: "O(N)",
    syntax: "key [start [end [BYTE | BIT]]]",
    handler: bitcount,
    ..CommandSpec::BLANK
};

fn bitcount(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let part = Part::parse(args)?;
    let count = context.store.read(&key, |record| {
        check_string(record)?;
        let Some(record) = record else {
            return Ok(0);
        };
        let bits = part.bits(record);
        Ok::<_, CommandError>(bits.map_or(0, |bits| count_ones(record, bits)))
    })?;
    reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// The requested part of a string.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    Nothing,
    Between(i64, i64, RangeUnit),
}

impl Part {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        if args.remaining() == 0 {
            return Ok(Self::Whole);
        }
        if args.remaining() > 3 {
            return Err(CommandError::Syntax);
        }
        let start = args.integer()?;
        if args.remaining() == 0 {
            return Ok(Self::Between(start, -1, RangeUnit::Byte));
        }
        let end = args.integer()?;
        let unit = match args.remaining() {
            0 => RangeUnit::Byte,
            _ => RangeUnit::parse(args)?,
        };
        if is_reversed(start, end) {
            return Ok(Self::Nothing);
        }
        Ok(Self::Between(start, end, unit))
    }

    fn bits(self, record: &Record<'_>) -> Option<Range<u64>> {
        match self {
            Self::Whole => Some(0..bit_len(record)),
            Self::Nothing => None,
            Self::Between(start, end, unit) => unit.bits(start, end, record),
        }
    }
}

/// Counts the set bits in a range, which must lie within the string.
fn count_ones(record: &Record<'_>, bits: Range<u64>) -> u64 {
    let bytes = index(bits.start / BITS_PER_BYTE)..index(bits.end.div_ceil(BITS_PER_BYTE));
    let mut count = 0;
    record.for_each_chunk(bytes, |chunk| count += ones(chunk));
    count - ones_before(record, bits.start) - ones_from(record, bits.end)
}

/// Counts the ones before `bit` in its byte.
fn ones_before(record: &Record<'_>, bit: u64) -> u64 {
    let kept = bit % BITS_PER_BYTE;
    shared_byte(record, bit).map_or(0, |byte| (u16::from(byte) << kept >> 8).count_ones().into())
}

/// Counts the ones from `bit` on in its byte.
fn ones_from(record: &Record<'_>, bit: u64) -> u64 {
    let cut = bit % BITS_PER_BYTE;
    shared_byte(record, bit).map_or(0, |byte| (byte << cut).count_ones().into())
}

/// Returns the byte that contains bits on both sides of a boundary, if there is one.
fn shared_byte(record: &Record<'_>, boundary: u64) -> Option<u8> {
    let mut byte = [0];
    (!boundary.is_multiple_of(BITS_PER_BYTE)).then(|| {
        record.copy_to(index(boundary / BITS_PER_BYTE), &mut byte);
        byte[0]
    })
}

/// Counts the set bits of `bytes`. The compiler counts several words in parallel, which measured as
/// fast as adding them up in columns first.
fn ones(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks();
    let in_words: u64 = words
        .iter()
        .map(|word| u64::from(u64::from_le_bytes(*word).count_ones()))
        .sum();
    let in_tail: u64 = tail.iter().map(|byte| u64::from(byte.count_ones())).sum();
    in_words + in_tail
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::ones;
    use testkit::engine_server::TestServer;

    #[test]
    fn ones_agree_with_counting_byte_by_byte() {
        let mut random = Prng::seeded(7);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.next_u64().to_le_bytes())
            .take(200)
            .flatten()
            .collect();
        for len in (0..300).chain([1000, 1599, 1600]) {
            for start in [0, 1, 7] {
                let part = &bytes[start..len.max(start)];
                let expected: u32 = part.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(ones(part), u64::from(expected), "{start}..{len}");
            }
        }
    }

    #[test]
    fn parts_are_given_in_bytes_or_bits() {
        let mut server = TestServer::new();
        server.run("SET k foobar");
        assert_eq!(server.integer("BITCOUNT k"), 26);
        assert_eq!(server.integer("BITCOUNT k 0 0"), 4);
        assert_eq!(server.integer("BITCOUNT k 1 1 byte"), 6);
        assert_eq!(server.integer("BITCOUNT k 5 30 BIT"), 17);
        assert_eq!(server.integer("BITCOUNT k 6 6 BIT"), 1);
        assert_eq!(server.integer("BITCOUNT k 4 2"), 0);
        assert_eq!(server.integer("BITCOUNT k -100 100 BIT"), 26);
    }

    #[test]
    fn every_pair_of_bit_positions() {
        let mut server = TestServer::new();
        server.run("SET k \"\\xa7\\x01\\xff\\x30\"");
        let bits: Vec<i64> = format!("{:032b}", 0xa701_ff30_u32)
            .bytes()
            .map(|digit| i64::from(digit - b'0'))
            .collect();
        for start in 0..32 {
            for end in start..32 {
                let expected: i64 = bits[start..=end].iter().sum();
                let line = format!("BITCOUNT k {start} {end} BIT");
                assert_eq!(server.integer(&line), expected, "{line}");
            }
        }
    }

    #[test]
    fn bad_positions_come_before_absent_keys() {
        let mut server = TestServer::new();
        server.run("SET k v");
        let error = "ERR syntax error";
        assert_eq!(server.error("BITCOUNT none 1 x BIT more"), error);
        assert_eq!(server.error("BITCOUNT none 2 1 foo"), error);
        assert_eq!(server.integer("BITCOUNT k 0"), 5);
        assert_eq!(server.integer("BITCOUNT none 0"), 0);
        assert_eq!(server.error("BITCOUNT k 1 2 foo"), "ERR syntax error");
        assert_eq!(
            server.error("BITCOUNT k x 2 foo"),
            "ERR value is not an integer or out of range"
        );
    }
}
