//! HyperLogLog: estimates the number of distinct elements in at most 12 KiB, with an error of 0.81
//! %.
//!
//! A sketch is an ordinary string. It has the bytes that Redis has after the same additions, so
//! clients can read it with GET, store it elsewhere, and set it again:
//!
//! ```text
//!   "HYLL" encoding:u8 0 0 0 card:u64    a cached count; its highest bit says that it is out of date
//!   dense    16,384 registers of 6 bits, lowest bit first
//!   sparse   opcodes: ZERO 00nnnnnn, XZERO 01nnnnnn nnnnnnnn, VAL 1vvvvvnn (see `sparse`)
//! ```
//!
//! The low 14 bits of an element's hash choose a register. The register keeps the largest number of
//! zero bits that followed in any hash, plus one.
//!
//! Sources: Flajolet et al., HyperLogLog (AofA 2007); Ertl, New cardinality estimation algorithms for
//! HyperLogLog sketches (arXiv 1702.01284), for the count; MurmurHash64A by Austin Appleby, whose
//! values the format depends on.

mod count;
mod murmur;
pub mod sparse;

use std::ops::Range;

pub use count::{Histogram, count};

/// Number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;

/// Bytes in front of the registers.
pub const HEADER_BYTES: usize = 16;

/// Bytes of a dense sketch.
pub const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

/// Position of the cached count.
pub const CARD_BYTES: Range<usize> = 8..16;

const INDEX_BITS: u32 = 14;
const REGISTER_BITS: usize = 6;
const REGISTER_MASK: u16 = (1 << REGISTER_BITS) - 1;
/// Number of registers that begin and end at a byte boundary in a dense sketch.
const GROUP_REGISTERS: usize = 8;
/// Bytes of these registers.
const GROUP_BYTES: usize = GROUP_REGISTERS * REGISTER_BITS / 8;
const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
/// Flag in the last byte of the cached count: the count is out of date.
const OUT_OF_DATE: u8 = 0x80;

/// All registers, unpacked.
pub type Registers = [u8; REGISTERS];

/// How the registers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Six bits each.
    Dense,
    /// Runs of equal registers.
    Sparse,
}

/// The opcodes of a sparse sketch are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupted;

/// Returns the form of a sketch with this header and length in bytes, or `None` if it is not a
/// sketch.
#[must_use]
pub fn form_of(header: &[u8; HEADER_BYTES], len: usize) -> Option<Form> {
    let form = match header[ENCODING_AT] {
        0 => Form::Dense,
        1 => Form::Sparse,
        _ => return None,
    };
    let has_length = form == Form::Sparse || len == DENSE_BYTES;
    (header.starts_with(MAGIC) && has_length).then_some(form)
}

/// Returns the cached count, or `None` if it is out of date.
#[must_use]
pub fn cached_count(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let card = header.last_chunk::<8>()?;
    (card[7] & OUT_OF_DATE == 0).then(|| u64::from_le_bytes(*card))
}

/// Returns the position of the header byte that marks the count as out of date, and its new value.
#[must_use]
pub fn out_of_date(header: &[u8; HEADER_BYTES]) -> (usize, u8) {
    let at = CARD_BYTES.end - 1;
    (at, header[at] | OUT_OF_DATE)
}

/// Returns a sketch that has seen no elements.
#[must_use]
pub fn empty() -> Vec<u8> {
    let mut sketch = header(Form::Sparse);
    sparse::append_zeroes(&mut sketch, REGISTERS);
    sketch
}

fn header(form: Form) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.push(match form {
        Form::Dense => 0,
        Form::Sparse => 1,
    });
    header.resize(HEADER_BYTES, 0);
    header
}

/// Returns the register of an element, and the register's minimum value.
#[must_use]
pub fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur::hash(element);
    let index = hash & (REGISTERS as u64 - 1);
    // The guard ends the run when all other bits are zero.
    let rest = hash >> INDEX_BITS | 1 << (64 - INDEX_BITS);
    let zeroes = u8::try_from(rest.trailing_zeros()).unwrap_or(u8::MAX);
    (usize::try_from(index).unwrap_or(0), zeroes + 1)
}

/// Returns where a register of a dense sketch is: its bytes, and its lowest bit in them.
#[must_use]
pub fn window(index: usize) -> (Range<usize>, u32) {
    let bit = index * REGISTER_BITS;
    let start = HEADER_BYTES + bit / 8;
    let shift = u32::try_from(bit % 8).unwrap_or(0);
    (start..(start + 2).min(DENSE_BYTES), shift)
}

/// Reads the register from its window.
#[must_use]
pub fn read_window(bytes: &[u8], shift: u32) -> u8 {
    let [low, high] = (word_of(bytes) >> shift & REGISTER_MASK).to_le_bytes();
    debug_assert_eq!(high, 0);
    low
}

/// Writes a register to its window.
pub fn write_window(bytes: &mut [u8], shift: u32, value: u8) {
    let word = word_of(bytes) & !(REGISTER_MASK << shift) | u16::from(value) << shift;
    let len = bytes.len();
    bytes.copy_from_slice(&word.to_le_bytes()[..len]);
}

fn word_of(bytes: &[u8]) -> u16 {
    let byte = |at| bytes.get(at).copied().unwrap_or(0);
    u16::from_le_bytes([byte(0), byte(1)])
}

/// Raises `registers` to the values of a sketch of this form.
///
/// # Errors
/// [`Corrupted`] if the sketch is invalid.
pub fn merge(registers: &mut Registers, form: Form, sketch: &[u8]) -> Result<(), Corrupted> {
    match form {
        Form::Sparse => sparse::merge(registers, sketch),
        Form::Dense => {
            let packed = sketch.get(HEADER_BYTES..DENSE_BYTES).ok_or(Corrupted)?;
            let groups = registers.chunks_exact_mut(GROUP_REGISTERS);
            for (group, packed) in groups.zip(packed.chunks_exact(GROUP_BYTES)) {
                for (register, other) in group.iter_mut().zip(unpack(packed)) {
                    *register = other.max(*register);
                }
            }
            Ok(())
        }
    }
}

/// Unpacks six bytes to eight registers of a byte each. Splits the bits in two, each half in two,
/// and so on, so that it takes a dozen steps.
fn unpack(packed: &[u8]) -> [u8; GROUP_REGISTERS] {
    let mut word = [0; 8];
    word[..GROUP_BYTES].copy_from_slice(packed);
    let word = u64::from_le_bytes(word);
    let halves = word & 0xff_ffff | (word & 0xffff_ff00_0000) << 8;
    let quarters = halves & 0x0000_0fff_0000_0fff | (halves & 0x00ff_f000_00ff_f000) << 4;
    let eighths = quarters & 0x003f_003f_003f_003f | (quarters & 0x0fc0_0fc0_0fc0_0fc0) << 2;
    eighths.to_le_bytes()
}

/// Reverses [`unpack`], for registers of six bits.
fn pack(registers: [u8; GROUP_REGISTERS]) -> [u8; GROUP_BYTES] {
    let eighths = u64::from_le_bytes(registers);
    let quarters = eighths & 0x003f_003f_003f_003f | (eighths & 0x3f00_3f00_3f00_3f00) >> 2;
    let halves = quarters & 0x0000_0fff_0000_0fff | (quarters & 0x0fff_0000_0fff_0000) >> 4;
    let [a, b, c, _, d, e, f, _] = halves.to_le_bytes();
    [a, b, c, d, e, f]
}

/// Returns a dense sketch of these registers, with the rest of `header`.
#[must_use]
pub fn dense(registers: &Registers, header: &[u8; HEADER_BYTES]) -> Vec<u8> {
    let mut sketch = header.to_vec();
    sketch[ENCODING_AT] = 0;
    sketch.reserve_exact(DENSE_BYTES - HEADER_BYTES);
    for group in registers.as_chunks::<GROUP_REGISTERS>().0 {
        sketch.extend_from_slice(&pack(*group));
    }
    sketch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(sketch: &[u8]) -> &[u8; HEADER_BYTES] {
        sketch.first_chunk().unwrap()
    }

    #[test]
    fn registers_of_a_dense_sketch_do_not_touch_each_other() {
        let mut registers = [0; REGISTERS];
        for (index, register) in registers.iter_mut().enumerate() {
            *register = u8::try_from(index % 52).unwrap();
        }
        let sketch = dense(&registers, header_of(&empty()));
        assert_eq!(sketch.len(), DENSE_BYTES);
        assert_eq!(form_of(header_of(&sketch), DENSE_BYTES), Some(Form::Dense));
        let mut read = [0; REGISTERS];
        merge(&mut read, Form::Dense, &sketch).unwrap();
        assert_eq!(read, registers);
    }

    #[test]
    fn a_group_is_what_its_registers_are_one_by_one() {
        let packed: Vec<u8> = (0..GROUP_BYTES)
            .map(|at| u8::try_from(at * 41 + 7).unwrap())
            .collect();
        let group = unpack(&packed);
        for (index, register) in group.iter().enumerate() {
            let bit = index * REGISTER_BITS;
            let end = (bit / 8 + 2).min(GROUP_BYTES);
            let shift = u32::try_from(bit % 8).unwrap();
            assert_eq!(read_window(&packed[bit / 8..end], shift), *register);
        }
        assert_eq!(pack(group).as_slice(), packed);
    }

    #[test]
    fn runs_are_counted_as_registers_are() {
        let mut sketch = empty();
        let mut registers = [0; REGISTERS];
        for element in 0..400_u32 {
            let (index, value) = register_of(&element.to_le_bytes());
            sparse::raise(&mut sketch, index, value, 3_000).unwrap();
            registers[index] = value.max(registers[index]);
        }
        let counted = Histogram::of_sparse(&sketch).unwrap();
        assert_eq!(counted, Histogram::of_registers(&registers));
        assert_eq!(counted.estimate(), count(&registers));
        assert_eq!(Histogram::of_sparse(&sketch[..40]), Err(Corrupted));
    }

    #[test]
    fn only_sketches_are_sketches() {
        let sketch = empty();
        assert_eq!(
            form_of(header_of(&sketch), sketch.len()),
            Some(Form::Sparse)
        );
        assert_eq!(cached_count(header_of(&sketch)), Some(0));
        for (at, byte) in [(0, b'X'), (4, 2), (4, 0)] {
            let mut other = sketch.clone();
            other[at] = byte;
            assert_eq!(form_of(header_of(&other), other.len()), None);
        }
        let mut stale = sketch;
        let (at, byte) = out_of_date(header_of(&stale));
        stale[at] = byte;
        assert_eq!(cached_count(header_of(&stale)), None);
    }

    #[test]
    fn counts_are_as_near_as_they_should_be() {
        for elements in [0_u64, 1, 10, 100, 1_000, 10_000, 100_000] {
            let mut registers = [0; REGISTERS];
            for element in 0..elements {
                let (index, value) = register_of(format!("element:{element}").as_bytes());
                registers[index] = value.max(registers[index]);
            }
            let error = count(&registers).abs_diff(elements);
            // Five standard errors of 0.81 %.
            assert!(error * 1_000 <= elements * 41, "{elements}: off by {error}");
        }
    }
}
