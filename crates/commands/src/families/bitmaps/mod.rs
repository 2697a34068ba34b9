//! Bitmaps: strings as rows of bits, the first bit being the highest of the first byte.
//!
//! Bits are counted and searched a word at a time over the pieces a string is kept in.
//!
//! # Effects
//! - `SETBIT` as sent, unless the string stays unchanged;
//! - `BITFIELD key SET …` with every field that was written and its new value;
//! - for BITOP, which reads other keys, `DEL destination` and `SETRANGE destination 0 result`: that
//!   stores the result as bytes even if they represent a number, as the command itself does.

use engine::args::Args;
use engine::error::CommandError;
use engine::settings::Settings;
use engine::spec::CommandSpec;
use store::Record;

mod bit;
mod combine;
mod count;
mod field;
mod field_command;
mod search;

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    bit::SETBIT,
    bit::GETBIT,
    count::BITCOUNT,
    search::BITPOS,
    combine::BITOP,
    field_command::BITFIELD,
    field_command::BITFIELD_RO,
];

const BITS_PER_BYTE: u64 = 8;

/// The error for an invalid position, or one beyond the longest string.
const BAD_BIT_OFFSET: CommandError =
    CommandError::fixed("ERR bit offset is not an integer or out of range");

/// Parses the position of a bit. `step` is the unit of a number after `#` (BITFIELD), if that is
/// allowed.
fn bit_offset(text: &[u8], step: Option<u32>, settings: &Settings) -> Result<u64, CommandError> {
    let (digits, step) = match (text, step) {
        ([b'#', digits @ ..], Some(step)) => (digits, u64::from(step)),
        _ => (text, 1),
    };
    let count = base::number::parse_i64(digits).ok_or(BAD_BIT_OFFSET)?;
    let offset = u64::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(step));
    offset
        .filter(|offset| offset / BITS_PER_BYTE < settings.string_bytes_max())
        .ok_or(BAD_BIT_OFFSET)
}

/// Whether positions count bytes or bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeUnit {
    Byte,
    Bit,
}

impl RangeUnit {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        match args.option_word().as_ref().map(|word| word.as_bytes()) {
            Some(b"BYTE") => Ok(Self::Byte),
            Some(b"BIT") => Ok(Self::Bit),
            _ => Err(CommandError::Syntax),
        }
    }

    /// Returns the bits between two inclusive positions of a string, or `None` if there are none.
    fn bits(self, start: i64, end: i64, record: &Record<'_>) -> Option<std::ops::Range<u64>> {
        let len = bit_len(record);
        match self {
            Self::Bit => super::strings::shared::clamp_range(start, end, len),
            Self::Byte => {
                let bytes = super::strings::shared::clamp_range(start, end, len / BITS_PER_BYTE)?;
                Some(bytes.start * BITS_PER_BYTE..bytes.end * BITS_PER_BYTE)
            }
        }
    }
}

/// Returns the number of bits of a string.
fn bit_len(record: &Record<'_>) -> u64 {
    u64::try_from(record.len()).unwrap_or(u64::MAX / BITS_PER_BYTE) * BITS_PER_BYTE
}

/// Converts a number or index of bytes for the store: those of an existing string fit `usize`.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
