//! Sparse sketches: runs of registers, for counts up to a few thousand.
//!
//! | opcode | bytes | means |
//! |---|---|---|
//! | ZERO | `00nnnnnn` | n+1 registers of 0 |
//! | XZERO | `01nnnnnn nnnnnnnn` | n+1 registers of 0 |
//! | VAL | `1vvvvvnn` | n+1 registers of v+1 |
//!
//! Opcodes are split and joined exactly as in Redis, because clients can see the bytes.

use std::ops::Range;

use super::{Corrupted, HEADER_BYTES, REGISTERS, Registers};

/// Maximum value of a VAL.
pub const VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
const ZERO_RUN_MAX: usize = 64;

/// Number of opcodes around a change that are checked for neighbours to join.
const JOIN_SCAN: usize = 5;

/// Result of raising a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The register already was as large.
    None,
    /// The register was raised.
    Raised,
    /// The register cannot be raised in a sparse sketch of at most this many bytes: a dense one is
    /// needed.
    NeedsDense,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opcode {
    value: u8,
    run: usize,
    bytes: usize,
}

impl Opcode {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Self {
                value: 0,
                run: low + 1,
                bytes: 1,
            },
            1 => Self {
                value: 0,
                run: (low << 8 | usize::from(*bytes.get(1)?)) + 1,
                bytes: 2,
            },
            _ => Self {
                value: (first >> 2 & 0x1f) + 1,
                run: usize::from(first & 3) + 1,
                bytes: 1,
            },
        })
    }

    fn is_value(self) -> bool {
        self.value > 0
    }
}

/// Returns the opcodes of a sketch, each with its position and its first register. Ends at an
/// invalid opcode.
fn opcodes(sketch: &[u8]) -> impl Iterator<Item = (usize, usize, Opcode)> {
    let (mut at, mut first) = (HEADER_BYTES, 0);
    std::iter::from_fn(move || {
        let opcode = Opcode::decode(sketch.get(at..)?)?;
        let found = (at, first, opcode);
        at += opcode.bytes;
        first += opcode.run;
        Some(found)
    })
}

pub(super) fn append_zeroes(out: &mut Vec<u8>, run: usize) {
    let [low, high, ..] = (run - 1).to_le_bytes();
    if run > ZERO_RUN_MAX {
        out.extend([0x40 | high, low]);
    } else {
        out.push(low);
    }
}

fn value_opcode(value: u8, run: usize) -> u8 {
    let run = u8::try_from(run - 1).unwrap_or(0);
    0x80 | (value - 1) << 2 | run
}

/// Raises a register to `value`, in a sketch of at most `bytes_max` bytes.
///
/// # Errors
/// [`Corrupted`] if the opcodes do not reach the register.
pub fn raise(
    sketch: &mut Vec<u8>,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<Change, Corrupted> {
    if value > VALUE_MAX {
        return Ok(Change::NeedsDense);
    }
    let mut before = HEADER_BYTES;
    let mut found = None;
    for (at, first, opcode) in opcodes(sketch) {
        if index < first + opcode.run {
            found = Some((at, first, opcode));
            break;
        }
        before = at;
    }
    let (at, first, opcode) = found.ok_or(Corrupted)?;
    if opcode.value >= value {
        return Ok(Change::None);
    }
    if opcode.run == 1 && opcode.bytes == 1 {
        sketch[at] = value_opcode(value, 1);
    } else {
        let parts = split(opcode, index - first, value);
        let grows = parts.len() > opcode.bytes;
        if grows && sketch.len() + parts.len() - opcode.bytes > bytes_max {
            return Ok(Change::NeedsDense);
        }
        sketch.splice(at..at + opcode.bytes, parts);
    }
    join(sketch, before);
    Ok(Change::Raised)
}

/// Returns the opcodes of a run in which the register `offset` from its start has another value.
fn split(opcode: Opcode, offset: usize, value: u8) -> Vec<u8> {
    let mut parts = Vec::with_capacity(5);
    let append = |parts: &mut Vec<u8>, run: usize| {
        if run == 0 {
        } else if opcode.is_value() {
            parts.push(value_opcode(opcode.value, run));
        } else {
            append_zeroes(parts, run);
        }
    };
    append(&mut parts, offset);
    parts.push(value_opcode(value, 1));
    append(&mut parts, opcode.run - offset - 1);
    parts
}

/// Joins neighbours of the same value, starting at the opcode at `at`.
fn join(sketch: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOIN_SCAN {
        let Some(one) = sketch.get(at..).and_then(Opcode::decode) else {
            return;
        };
        let next = sketch.get(at + one.bytes..).and_then(Opcode::decode);
        match next {
            Some(next)
                if one.is_value()
                    && next.value == one.value
                    && one.run + next.run <= VALUE_RUN_MAX =>
            {
                sketch[at] = value_opcode(one.value, one.run + next.run);
                sketch.remove(at + 1);
            }
            _ => at += one.bytes,
        }
    }
}

/// Raises `registers` to the values of a sparse sketch.
pub(super) fn merge(registers: &mut Registers, sketch: &[u8]) -> Result<(), Corrupted> {
    for_each_run(sketch, |value, run| {
        if value > 0 {
            for register in &mut registers[run] {
                *register = value.max(*register);
            }
        }
    })
}

/// Visits the runs of equal registers in order, with their value and range.
pub(super) fn for_each_run(
    sketch: &[u8],
    mut visit: impl FnMut(u8, Range<usize>),
) -> Result<(), Corrupted> {
    let mut end = 0;
    let mut end_at = HEADER_BYTES;
    for (at, first, opcode) in opcodes(sketch) {
        (end, end_at) = (first + opcode.run, at + opcode.bytes);
        if end > REGISTERS {
            return Err(Corrupted);
        }
        visit(opcode.value, first..end);
    }
    if end == REGISTERS && end_at == sketch.len() {
        Ok(())
    } else {
        Err(Corrupted)
    }
}

/// Returns the opcodes as PFDEBUG DECODE spells them.
#[must_use]
pub fn describe(sketch: &[u8]) -> String {
    let words = opcodes(sketch).map(|(_, _, opcode)| match opcode {
        Opcode {
            value: 0,
            run,
            bytes: 1,
        } => format!("z:{run}"),
        Opcode { value: 0, run, .. } => format!("Z:{run}"),
        Opcode { value, run, .. } => format!("v:{value},{run}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use base::random::Prng;

    use super::*;
    use crate::hyper_log_log::empty;

    #[test]
    fn registers_are_those_that_were_raised() {
        for seed in 0..20 {
            let mut random = Prng::seeded(seed);
            let mut sketch = empty();
            let mut twin = [0; REGISTERS];
            let near = random.index(16_000);
            for _ in 0..500 {
                let index = match random.below(3) {
                    0 => random.index(REGISTERS),
                    _ => near + random.index(40),
                };
                let value = 1 + u8::try_from(random.below(6)).unwrap();
                let change = raise(&mut sketch, index, value, 3_000).unwrap();
                assert_eq!(change == Change::Raised, value > twin[index]);
                twin[index] = value.max(twin[index]);
            }
            let mut registers = [0; REGISTERS];
            merge(&mut registers, &sketch).unwrap();
            assert_eq!(registers, twin);
        }
    }

    #[test]
    fn what_does_not_fit_needs_a_dense_sketch() {
        let mut sketch = empty();
        assert_eq!(raise(&mut sketch, 5, 33, 3_000), Ok(Change::NeedsDense));
        assert_eq!(
            raise(&mut sketch, 5, 1, empty().len()),
            Ok(Change::NeedsDense)
        );
        assert_eq!(sketch, empty());
    }

    #[test]
    fn nonsense_is_found() {
        let mut registers = [0; REGISTERS];
        for end in [HEADER_BYTES, HEADER_BYTES + 1] {
            assert_eq!(merge(&mut registers, &empty()[..end]), Err(Corrupted));
            let mut short = empty()[..end].to_vec();
            assert_eq!(raise(&mut short, 9, 1, 3_000), Err(Corrupted));
        }
        let mut long = empty();
        long.push(0);
        assert_eq!(merge(&mut registers, &long), Err(Corrupted));
    }
}
