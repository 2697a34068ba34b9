//! BITPOS.

use std::ops::Range;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::Record;

use super::{BITS_PER_BYTE, RangeUnit, bit_len, index};
use crate::families::strings::shared::check_string;

pub(super) const BITPOS: CommandSpec = CommandSpec {
    name: "BITPOS",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    keys: &[KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS))],
    group: Group::Bitmap,
    since: "2.8.7",
    history: &[("7.0.0", "Added the `BYTE|BIT` option.")],
    summary: "Finds the first bit that is set, or clear, in a string or a part of it.",
    complexity: "O(N)",
    syntax: "key bit [start [end [BYTE | BIT]]]",
    handler: bitpos,
    ..CommandSpec::BLANK
};

const ABSENT: i64 = -1;

fn bitpos(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let wanted = match args.integer()? {
        0 => false,
        1 => true,
        _ => {
            return Err(CommandError::fixed("ERR The bit argument must be 1 or 0."));
        }
    };
    let part = Part::parse(args)?;
    let position = context.store.read(&key, |record| {
        check_string(record)?;
        match record {
            None if wanted => Ok(ABSENT),
            None => Ok(0),
            Some(record) => Ok::<_, CommandError>(part.find(record, wanted)),
        }
    })?;
    reply.integer(position);
    Ok(())
}

/// The part of a string that is searched.
#[derive(Clone, Copy)]
struct Part {
    start: i64,
    /// `None`: to the end, after which a clear bit may be found.
    end: Option<i64>,
    unit: RangeUnit,
}

impl Part {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut part = Self {
            start: 0,
            end: None,
            unit: RangeUnit::Byte,
        };
        if args.remaining() > 3 {
            return Err(CommandError::Syntax);
        }
        if args.remaining() > 0 {
            part.start = args.integer()?;
        }
        let end = args.next();
        // The unit is checked before the end of the range, as in Redis.
        if args.remaining() > 0 {
            part.unit = RangeUnit::parse(args)?;
        }
        if let Some(end) = end {
            part.end = Some(base::number::parse_i64(end).ok_or(CommandError::NotInteger)?);
        }
        Ok(part)
    }

    fn find(self, record: &Record<'_>, wanted: bool) -> i64 {
        let bits = self.unit.bits(self.start, self.end.unwrap_or(-1), record);
        let Some(bits) = bits else {
            return ABSENT;
        };
        let found = first_bit(record, bits, wanted);
        let behind = (!wanted && self.end.is_none()).then(|| bit_len(record));
        let position = found.or(behind).map(i64::try_from);
        position.and_then(Result::ok).unwrap_or(ABSENT)
    }
}

/// Returns the position of the first bit with the wanted value in `bits`, which must lie within the
/// string.
fn first_bit(record: &Record<'_>, bits: Range<u64>, wanted: bool) -> Option<u64> {
    // If all bits are inverted, a clear bit is found as a set one.
    let flip = if wanted { 0 } else { u8::MAX };
    let first_byte = bits.start / BITS_PER_BYTE;
    let mut byte = [0];
    record.copy_to(index(first_byte), &mut byte);
    let head = (byte[0] ^ flip) & (u8::MAX >> (bits.start % BITS_PER_BYTE));
    let found = if head != 0 {
        Some(first_byte * BITS_PER_BYTE + u64::from(head.leading_zeros()))
    } else {
        first_one(
            record,
            first_byte + 1..bits.end.div_ceil(BITS_PER_BYTE),
            flip,
        )
    };
    found.filter(|position| bits.contains(position))
}

/// Returns the position of the first set bit in a range of bytes, after XOR with `flip`.
fn first_one(record: &Record<'_>, bytes: Range<u64>, flip: u8) -> Option<u64> {
    let mut found = None;
    let mut passed = bytes.start;
    record.for_each_chunk(index(bytes.start)..index(bytes.end), |chunk| {
        if found.is_none() {
            found = first_one_of(chunk, flip).map(|bit| passed * BITS_PER_BYTE + bit);
            passed += chunk.len() as u64;
        }
    });
    found
}

/// Bytes that are checked together: one branch per cache line.
const BLOCK_BYTES: usize = 64;

fn first_one_of(bytes: &[u8], flip: u8) -> Option<u64> {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let boring = blocks
        .iter()
        .take_while(|block| block.iter().fold(0, |any, byte| any | (byte ^ flip)) == 0)
        .count();
    let start = boring * BLOCK_BYTES;
    let (offset, byte) = (start..)
        .zip(&bytes[start..])
        .find(|(_, byte)| **byte != flip)?;
    let bit = u64::from((byte ^ flip).leading_zeros());
    Some(offset as u64 * BITS_PER_BYTE + bit)
}

#[cfg(test)]
mod tests {
    use super::first_one_of;
    use testkit::engine_server::TestServer;

    #[test]
    fn a_lone_bit_is_found_wherever_it_is() {
        for len in [1, 8, 63, 64, 65, 200] {
            for at in 0..len * 8 {
                let mut bytes = vec![0; len];
                bytes[at / 8] |= 0x80 >> (at % 8);
                assert_eq!(first_one_of(&bytes, 0), Some(at as u64));
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                assert_eq!(first_one_of(&bytes, 0xff), Some(at as u64));
            }
        }
        assert_eq!(first_one_of(&[0; 100], 0), None);
    }

    #[test]
    fn the_right_of_a_string_is_clear_unless_an_end_is_given() {
        let mut server = TestServer::new();
        server.run("SET k \"\\xff\\xff\"");
        assert_eq!(server.integer("BITPOS k 0"), 16);
        assert_eq!(server.integer("BITPOS k 0 1"), 16);
        assert_eq!(server.integer("BITPOS k 0 0 -1"), -1);
        assert_eq!(server.integer("BITPOS k 0 5"), -1);
        assert_eq!(server.integer("BITPOS k 1 1"), 8);
        assert_eq!(server.integer("BITPOS none 0"), 0);
        assert_eq!(server.integer("BITPOS none 1"), -1);
    }

    #[test]
    fn every_pair_of_bit_positions() {
        let mut server = TestServer::new();
        server.run("SET k \"\\x00\\x10\\xf0\"");
        let bits = format!("{:024b}", 0x10f0).into_bytes();
        for start in 0..24 {
            for end in start..24 {
                for wanted in [b'0', b'1'] {
                    let expected = bits[start..=end]
                        .iter()
                        .position(|bit| *bit == wanted)
                        .map_or(-1, |at| i64::try_from(start + at).expect("small"));
                    let line = format!("BITPOS k {} {start} {end} BIT", wanted as char);
                    assert_eq!(server.integer(&line), expected, "{line}");
                }
            }
        }
    }

    #[test]
    fn arguments_are_checked() {
        let mut server = TestServer::new();
        server.run("SET k v");
        let bit = "ERR The bit argument must be 1 or 0.";
        assert_eq!(server.error("BITPOS none 2"), bit);
        assert_eq!(
            server.error("BITPOS none 1 x"),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(server.error("BITPOS k 1 0 x foo"), "ERR syntax error");
        assert_eq!(
            server.error("BITPOS k 1 x 0 foo"),
            "ERR value is not an integer or out of range"
        );
    }
}
