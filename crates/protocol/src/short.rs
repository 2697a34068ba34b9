//! The short way: complete requests of one to nine arguments, written in the one form that client
//! libraries use. One pass, no state, and no errors: what is not recognised here is left to
//! [`frame`](crate::frame).
//!
//! The time goes into a chain of dependent loads, one an argument: only an argument's length tells
//! where the next one begins. Hence the care to find a length with one load and few steps.

use crate::limits::Ceilings;
use crate::request::{Batch, Span};

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
    while batch.len() < max
        && let Some(end) = decode_short_request(input, consumed, ceilings, batch)
    {
        consumed = end;
    }
    consumed
}

/// Decodes the request at `start` and returns its end.
#[inline(always)]
fn decode_short_request(
    input: &[u8],
    start: usize,
    ceilings: &Ceilings,
    batch: &mut Batch,
) -> Option<usize> {
    // `*2 CR LF $3 CR LF`: one look for the count and for the length of the command's name.
    let head = u64::from_le_bytes(*input.get(start..)?.first_chunk()?);
    let (count, name_bytes) = (digit(head >> 8), digit(head >> 40));
    if head & 0xffff_00ff_ffff_00ff != u64::from_le_bytes(*b"*\0\r\n$\0\r\n")
        || count.wrapping_sub(1) >= ceilings.short_arguments_max
        || name_bytes > 9
    {
        return None;
    }
    let [name, others @ ..] = batch.spans.reserve(count) else {
        return None;
    };
    *name = Span::new(start + 8, name_bytes);
    let mut position = start + 8 + name_bytes + 2;
    for slot in others {
        let (length, header_bytes) = bulk_header(input.get(position..)?)?;
        if length > ceilings.short_bulk_bytes_max {
            return None;
        }
        *slot = Span::new(position + header_bytes, length);
        position += header_bytes + length + 2;
    }
    if position > input.len() {
        return None;
    }
    let spans_start = batch.spans.len();
    batch.spans.commit(count);
    batch.push_request(spans_start, start, position, false);
    Some(position)
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
