//! The short way: complete requests of one to nine arguments, written in the one form that client
//! libraries use. One pass, no state, and no errors: what is not recognised here is left to
//! [`frame`](crate::frame).
//!
//! The time goes into a chain of dependent loads, one an argument: only an argument's length tells
//! where the next one begins. Hence the care to find a length with one load and few steps.

use crate::limits::Ceilings;
use crate::request::{Batch, NameKey, SHORT_ARGUMENTS_MAX, Span};

/// Decodes requests from `start` on until one is not short or `batch` has `max`. Returns the end
/// of the last one.
#[inline]
pub(crate) fn decode_short_requests(
    input: &[u8],
    start: usize,
    ceilings: &Ceilings,
    max: usize,
    batch: &mut Batch,
) -> usize {
    let mut consumed = start;
    if !ceilings.allow_short {
        return consumed;
    }
    let mut head = Head::NONE;
    while batch.len() < max
        && let Some(end) = decode_short_request(input, consumed, ceilings, &mut head, batch)
    {
        consumed = end;
    }
    consumed
}

/// What the first eight bytes of a request say: `*2 CR LF $3 CR LF`.
///
/// Kept from one request to the next, since requests of a pipeline are mostly alike.
struct Head {
    word: u64,
    arguments: usize,
    name_bytes: usize,
}

impl Head {
    /// One that no request has.
    const NONE: Self = Self {
        word: 0,
        arguments: 0,
        name_bytes: 0,
    };

    #[inline(always)]
    fn read(word: u64) -> Option<Self> {
        let (arguments, name_bytes) = (digit(word >> 8), digit(word >> 40));
        let is_short = word & 0xffff_00ff_ffff_00ff == u64::from_le_bytes(*b"*\0\r\n$\0\r\n")
            && arguments.wrapping_sub(1) < SHORT_ARGUMENTS_MAX
            && name_bytes <= 9;
        is_short.then_some(Self {
            word,
            arguments,
            name_bytes,
        })
    }
}

/// Decodes the request at `start` and returns its end.
#[inline(always)]
fn decode_short_request(
    input: &[u8],
    start: usize,
    ceilings: &Ceilings,
    head: &mut Head,
    batch: &mut Batch,
) -> Option<usize> {
    let request = input.get(start..)?;
    let word = u64::from_le_bytes(*request.first_chunk()?);
    if word != head.word {
        *head = Head::read(word)?;
    }
    let slots = batch.spans.next_few();
    let (name, others) = slots.get_mut(..head.arguments)?.split_first_mut()?;
    *name = Span::new(start + 8, head.name_bytes);
    let name = NameKey::at_front(&request[8..], head.name_bytes);
    let mut rest = request.get(8 + head.name_bytes + 2..)?;
    for slot in others {
        let (length, header_bytes) = short_bulk_header(rest)?;
        if length > ceilings.short_bulk_bytes_max {
            return None;
        }
        let position = input.len() - rest.len();
        *slot = Span::new(position + header_bytes, length);
        rest = rest.get(header_bytes + length + 2..)?;
    }
    let end = input.len() - rest.len();
    batch.push_short(head.arguments, start, end, name);
    Some(end)
}

/// As [`bulk_header`], with one look for two digits, which most keys have.
#[inline(always)]
fn short_bulk_header(bytes: &[u8]) -> Option<(usize, usize)> {
    if let Some(head) = bytes.first_chunk() {
        let head = u64::from_le_bytes(*head);
        let (tens, ones) = (digit(head >> 8), digit(head >> 16));
        let length = tens.wrapping_mul(10).wrapping_add(ones);
        let has_form = head & 0xff_ff00_00ff == u64::from_le_bytes(*b"$\0\0\r\n\0\0\0");
        // Ones that are a digit leave no number of two digits to tens that are not.
        if has_form && ones <= 9 && length.wrapping_sub(10) < 90 {
            return Some((length, 5));
        }
    }
    bulk_header(bytes)
}

/// The length an argument announces and the size of the announcement, if it is written as client
/// libraries do and has up to eight digits.
#[inline(always)]
pub(crate) fn bulk_header(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = u32::from_le_bytes(*bytes.first_chunk()?);
    let first = digit(u64::from(head >> 8));
    if head & 0xffff_00ff == u32::from_le_bytes(*b"$\0\r\n") && first <= 9 {
        return Some((first, 4));
    }
    let second = digit(u64::from(head >> 16));
    if head & 0xff00_00ff == u32::from_le_bytes(*b"$\0\0\r")
        && first.wrapping_sub(1) < 9
        && second <= 9
        && bytes.get(4) == Some(&b'\n')
    {
        return Some((first * 10 + second, 5));
    }
    long_bulk_header(bytes)
}

/// The same for more than two digits.
#[inline(never)]
fn long_bulk_header(bytes: &[u8]) -> Option<(usize, usize)> {
    let [b'$', first @ b'1'..=b'9', rest @ ..] = bytes else {
        return None;
    };
    let mut length = usize::from(first - b'0');
    for (index, &byte) in rest.iter().take(8).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            let ends = byte == b'\r' && rest.get(index + 1) == Some(&b'\n');
            return ends.then_some((length, index + 4));
        }
        length = length * 10 + usize::from(digit);
    }
    None
}

/// The value of the digit in the lowest byte, or more than 9 if there is none.
#[inline]
fn digit(word: u64) -> usize {
    ((word & 0xff) as usize).wrapping_sub(usize::from(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_any_size_are_read_or_left_alone() {
        for length in [0_usize, 1, 9, 10, 99, 100, 999, 1000, 12_345_678] {
            let header = format!("${length}\r\n");
            assert_eq!(bulk_header(header.as_bytes()), Some((length, header.len())));
        }
        for header in [
            "",
            "$",
            "$1",
            "$1\r",
            "$12\r",
            "$123\r",
            "$\r\n",
            "$-1\r\n",
            "$01\r\n",
            "$001\r\n",
            "$1 \r\n",
            "$12x\r\n",
            "$1\n\r\n",
            "$1\rx",
            "$12\rx",
            "$123\rx",
            "x1\r\n",
            "x12\r\n",
            "$:\r\n",
            "$/\r\n",
            "$1:\r\n",
            "$99999999999999999999999\r\n",
        ] {
            assert_eq!(bulk_header(header.as_bytes()), None, "{header:?}");
        }
    }
}
