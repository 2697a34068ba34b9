//! The short way: decodes complete requests of one to nine arguments in the one form that client
//! libraries use. One pass, no state, and no errors: everything that is not recognised here is left
//! to [`frame`](crate::frame).
//!
//! The time is spent in a chain of dependent loads, one per argument: only an argument's length
//! says where the next one begins. So the code is written to find a length with one load and few
//! steps.

use crate::limits::Ceilings;
use crate::request::{
    Batch, NameKey, RunRange, SHORT_ARGUMENTS_MAX, SHORT_HEAD_BYTES, SHORT_REQUESTS_MAX, Span,
};

/// Decodes requests from `start` on until a request is not short or `batch` has `max` requests, but
/// at most [`SHORT_REQUESTS_MAX`]. Returns the end of the last request.
///
/// Not inlined, so that its working state fits into registers.
#[inline(never)]
pub(crate) fn decode_short_requests(
    input: &[u8],
    start: usize,
    ceilings: &Ceilings,
    max: usize,
    batch: &mut Batch,
) -> usize {
    let mut rest = input.get(start..).unwrap_or_default();
    if !ceilings.allow_short || rest.len() < HEAD_BYTES {
        return start;
    }
    let max = max.saturating_sub(batch.len()).min(SHORT_REQUESTS_MAX);
    let (runs, mut free, shape) = batch.room(max);
    let (mut requests_used, mut spans_used) = (0, 0);
    let (mut run, mut run_start) = (RunRange::default(), start);
    let Shape { head, lengths } = shape;
    while requests_used < max && !rest.is_empty() {
        let Some((name, behind_name)) = head.begin(rest) else {
            break;
        };
        let Some((spans, free_then)) = free.split_at_mut_checked(head.arguments) else {
            break;
        };
        let [name_span, spans @ ..] = spans else {
            break;
        };
        let position = input.len() - rest.len();
        *name_span = Span::new(position + HEAD_BYTES, head.name_bytes);
        let decoded = decode_arguments(behind_name, input.len(), ceilings, lengths, spans);
        let Some(behind) = decoded else {
            break;
        };
        let continues = run.takes(name, head.arguments)
            || (name == NameKey::NONE
                && run.is_of(name)
                && begin_alike(head, &input[run_start..], &input[position..]));
        if !continues {
            run.end_at(position, runs);
            run = RunRange::begin(name, head.arguments);
            run_start = position;
        }
        run.grow(1);
        requests_used += 1;
        spans_used += head.arguments;
        (free, rest) = (free_then, behind);
        if name != NameKey::NONE && head.is_at(rest) {
            let pattern = Pattern {
                head,
                name,
                lengths,
            };
            let repeated = pattern.decode(input.len(), rest, free, max - requests_used);
            run.grow(repeated);
            requests_used += repeated;
            spans_used += repeated * head.arguments;
            free = free
                .get_mut(repeated * head.arguments..)
                .unwrap_or_default();
            rest = rest
                .get(repeated * pattern.request_bytes()..)
                .unwrap_or_default();
        }
    }
    let end = input.len() - rest.len();
    run.end_at(end, runs);
    batch.take_room(requests_used, spans_used);
    end
}

/// Whether two requests, one of which begins with `head`, have the same name and number of
/// arguments: for names that have no key.
#[inline(never)]
fn begin_alike(head: &Head, one: &[u8], other: &[u8]) -> bool {
    one.get(..head.bytes()) == other.get(..head.bytes())
}

/// Decodes the arguments at the start of `rest`, the end of an input of `input_bytes` bytes, as
/// many as there are places in `spans`. Returns the bytes behind them.
#[inline(always)]
fn decode_arguments<'a>(
    mut rest: &'a [u8],
    input_bytes: usize,
    ceilings: &Ceilings,
    lengths: &mut [Length; SHORT_ARGUMENTS_MAX],
    spans: &mut [Span],
) -> Option<&'a [u8]> {
    for (span, length) in spans.iter_mut().zip(lengths) {
        length.read(rest, ceilings)?;
        let position = input_bytes - rest.len();
        *span = Span::new(position + length.header_bytes, length.content_bytes);
        rest = rest.get(length.line_bytes..)?;
    }
    Some(rest)
}

/// The pattern of requests whose parts all have the same lengths as those of the request before.
/// Such a request is compared as a whole, and its arguments are at the same offsets.
struct Pattern<'a> {
    head: &'a Head,
    name: NameKey,
    lengths: &'a [Length; SHORT_ARGUMENTS_MAX],
}

impl Pattern<'_> {
    /// Returns the length of each request.
    fn request_bytes(&self) -> usize {
        let arguments = &self.lengths[..self.head.arguments - 1];
        let lines = arguments.iter().map(|length| length.line_bytes);
        self.head.bytes() + lines.sum::<usize>()
    }

    /// Decodes at most `max` requests of this pattern at the start of `rest`, the end of an input
    /// of `input_bytes` bytes. Returns their number.
    fn decode(&self, input_bytes: usize, rest: &[u8], spans: &mut [Span], max: usize) -> usize {
        // The most frequent numbers of arguments, as constants, so that the state of the pattern
        // stays in registers.
        match self.head.arguments {
            2 => self.decode_some::<2>(input_bytes, rest, spans, max),
            3 => self.decode_some::<3>(input_bytes, rest, spans, max),
            4 => self.decode_some::<4>(input_bytes, rest, spans, max),
            _ => 0,
        }
    }

    #[inline(never)]
    fn decode_some<const ARGUMENTS: usize>(
        &self,
        input_bytes: usize,
        mut rest: &[u8],
        spans: &mut [Span],
        max: usize,
    ) -> usize {
        let (head, lengths) = (self.head, self.lengths);
        let request_bytes = self.request_bytes();
        let (places, _) = spans.as_chunks_mut::<ARGUMENTS>();
        let mut decoded = 0;
        for place in places.iter_mut().take(max) {
            let Some(behind) = rest.get(request_bytes..) else {
                break;
            };
            let Some((words, _)) = rest.split_first_chunk::<{ 2 * HEAD_BYTES }>() else {
                break;
            };
            let name = NameKey::new(first_word(&words[HEAD_BYTES..]), head.mask_and_tag);
            if first_word(words) != head.word || name != self.name {
                break;
            }
            let position = input_bytes - rest.len();
            place[0] = Span::new(position + HEAD_BYTES, head.name_bytes);
            let mut at = head.bytes();
            for (span, length) in place[1..].iter_mut().zip(lengths) {
                let announced = rest.get(at..).map_or(0, first_word);
                if announced & length.mask != length.word {
                    return decoded;
                }
                *span = Span::new(position + at + length.header_bytes, length.content_bytes);
                at += length.line_bytes;
            }
            decoded += 1;
            rest = behind;
        }
        decoded
    }
}

/// Bytes of the part that every short request has: `*2 CR LF $3 CR LF`.
const HEAD_BYTES: usize = SHORT_HEAD_BYTES as usize;

/// The shape of the last short request, from whichever client: the next one probably has the same
/// shape, in a pipeline and elsewhere. It is valid under all limits that permit the short way.
#[derive(Debug)]
pub(crate) struct Shape {
    head: Head,
    /// One per position of an argument, because keys often have equal lengths, and values, too.
    lengths: [Length; SHORT_ARGUMENTS_MAX],
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            head: Head::PING,
            lengths: [Length::NONE; SHORT_ARGUMENTS_MAX],
        }
    }
}

/// The meaning of the first bytes of a request: its number of arguments, and the length of its
/// name.
#[derive(Debug)]
struct Head {
    word: u64,
    arguments: usize,
    name_bytes: usize,
    /// Mask and tag that turn the following word into a key.
    mask_and_tag: (u64, u64),
}

impl Head {
    /// The head that the first request is compared with. It is that of a PING, because every word
    /// stored here must be a valid head.
    const PING: Self = Self {
        word: u64::from_le_bytes(*b"*1\r\n$4\r\n"),
        arguments: 1,
        name_bytes: 4,
        mask_and_tag: NameKey::mask_and_tag(4),
    };

    /// Reads the head of the request at the start of `bytes`. Returns the name's key and the bytes
    /// behind the name.
    #[inline(always)]
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> Option<(NameKey, &'a [u8])> {
        let (word, name) = if bytes.len() >= 2 * HEAD_BYTES {
            (first_word(bytes), first_word(&bytes[HEAD_BYTES..]))
        } else {
            last_words(bytes)
        };
        if word != self.word {
            *self = Self::read(word)?;
        }
        let behind = bytes.get(self.bytes()..)?;
        Some((NameKey::new(name, self.mask_and_tag), behind))
    }

    /// Whether `bytes` begin with this head.
    #[inline(always)]
    fn is_at(&self, bytes: &[u8]) -> bool {
        first_word(bytes) == self.word
    }

    /// Returns its length, including the name and its line end.
    #[inline(always)]
    fn bytes(&self) -> usize {
        HEAD_BYTES + self.name_bytes + 2
    }

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
            mask_and_tag: NameKey::mask_and_tag(name_bytes),
        })
    }
}

/// The announcement of an argument's length.
#[derive(Clone, Copy, Debug)]
struct Length {
    /// The bytes of the announcement, and the mask of their bits in a word.
    word: u64,
    mask: u64,
    header_bytes: usize,
    content_bytes: usize,
    /// Length of the whole argument: header, content and line end.
    line_bytes: usize,
}

impl Length {
    /// A value that no announcement matches.
    const NONE: Self = Self {
        word: 1,
        mask: 0,
        header_bytes: 0,
        content_bytes: 0,
        line_bytes: 0,
    };

    /// Reads the announcement at the start of `bytes`.
    #[inline(always)]
    fn read(&mut self, bytes: &[u8], ceilings: &Ceilings) -> Option<()> {
        if first_word(bytes) & self.mask != self.word {
            *self = Self::parse(bytes, ceilings)?;
        }
        Some(())
    }

    #[inline(always)]
    fn parse(bytes: &[u8], ceilings: &Ceilings) -> Option<Self> {
        let (content_bytes, header_bytes) = short_bulk_header(bytes, ceilings)?;
        let mask = match header_bytes {
            4 => 0xffff_ffff,
            5 => 0xff_ffff_ffff,
            6 => 0xffff_ffff_ffff,
            // Longer announcements are parsed and checked against the limit each time, as are those
            // that begin less than a word before the end of the input.
            _ => Self::NONE.mask,
        };
        let (word, mask) = match first_word(bytes) & mask {
            0 => (Self::NONE.word, Self::NONE.mask),
            word => (word, mask),
        };
        Some(Self {
            word,
            mask,
            header_bytes,
            content_bytes,
            line_bytes: header_bytes + content_bytes + 2,
        })
    }
}

/// Returns the first eight bytes, or 0 if there are fewer.
#[inline(always)]
fn first_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => 0,
    }
}

/// Returns the first two words of fewer bytes, padded with zeros.
#[cold]
fn last_words(bytes: &[u8]) -> (u64, u64) {
    let mut padded = [0; 16];
    padded[..bytes.len()].copy_from_slice(bytes);
    (first_word(&padded), first_word(&padded[HEAD_BYTES..]))
}

/// Does the same as [`bulk_header`], with one check for two digits, which most keys have, and with
/// the limit.
#[inline(always)]
fn short_bulk_header(bytes: &[u8], ceilings: &Ceilings) -> Option<(usize, usize)> {
    let head = first_word(bytes);
    if head & 0xff_fff0_f0ff == u64::from_le_bytes(*b"$00\r\n\0\0\0") {
        let digits = head >> 8 & 0x0f0f;
        // Ten times the lower byte plus the upper.
        let length = (((digits * 0x0a01) >> 8) & 0xff) as usize;
        let are_digits = (digits + 0x0606) & 0x1010 == 0;
        if are_digits && length >= 10 {
            return Some((length, 5));
        }
    }
    bulk_header(bytes).filter(|(length, _)| *length <= ceilings.short_bulk_bytes_max)
}

/// Returns the length that an argument announces and the size of the announcement, if it is written
/// as client libraries write it and has up to eight digits.
#[inline]
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

/// Does the same for more than two digits.
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

/// Returns the value of the digit in the lowest byte, or more than 9 if it is not a digit.
#[inline]
fn digit(word: u64) -> usize {
    ((word & 0xff) as usize).wrapping_sub(usize::from(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_that_of_a_short_request_or_none() {
        let begins = |bytes: &[u8]| {
            let mut head = Head::PING;
            let (_, behind) = head.begin(bytes)?;
            Some((head.arguments, head.name_bytes, behind.len()))
        };
        assert_eq!(begins(b"*1\r\n$4\r\nPING\r\n"), Some((1, 4, 0)));
        assert_eq!(begins(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), Some((2, 3, 7)));
        for bytes in [
            &[0; 40][..],
            &[0; 10],
            b"*0\r\n$4\r\nPING\r\n",
            b"*1\r\n$4\r\n",
            b"",
        ] {
            assert_eq!(begins(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn what_looks_like_the_request_before_is_told_from_it() {
        let requests = [
            &[&b"GET"[..], b"0123456789"][..],
            &[b"GET", b"9876543210"],
            &[b"GET", b"$1\r\n$1\r\n"],
            &[b"get", b"0123456789"],
            &[b"DEL", b"0123456789"],
            &[b"GET", b"012345678"],
            &[b"GETRANGE", b"0123456789", b"0", b"1"],
            &[b"SETRANGE", b"0123456789", b"0", b"x"],
            &[b"SETRANGE", b"0123456789", b"10", b""],
            &[b"SET", b"0123456789", b"a"],
            &[b"SET", b"0123456789", b"bc"],
            &[b"SET", b"0123456789", &[b'd'; 200]],
            &[b"SET", b"0123456789", &[b'e'; 200]],
            &[b"PING"],
            &[b"PING"],
        ];
        // All orders of three requests, so that each may be mistaken for the one before.
        for (one, other, third) in (0..15 * 15 * 15).map(|n| (n / 225, n / 15 % 15, n % 15)) {
            let sent = [one, one, other, other, third, one].map(|at| requests[at]);
            let mut input = Vec::new();
            sent.iter()
                .for_each(|request| crate::encode_request(&mut input, request));
            let (mut decoder, mut batch) = (crate::Decoder::new(), Batch::new());
            let decoded = decoder.decode(&input, &crate::Limits::default(), 16, &mut batch);
            assert_eq!(decoded.consumed, input.len());
            let mut ends = 0;
            for (at, request) in batch.iter(&input).enumerate() {
                assert!(request.iter().eq(sent[at].iter().copied()), "{sent:?}");
                ends += request.wire_bytes();
                assert_eq!(batch.end_of(at), ends);
            }
        }
    }

    #[test]
    fn equal_names_make_a_run_whether_they_have_a_key_or_not() {
        let requests = [
            &[&b"GET"[..], b"a"][..],
            &[b"GET", b"bc"],
            &[b"SISMEMBER", b"a", b"b"],
            &[b"SISMEMBER", b"a", b"cde"],
            &[b"SISMEMBEr", b"a", b"b"],
            &[b"SISMEMBEr", b"a"],
            &[b"GETRANGE", b"a"],
            &[b"SETRANGE", b"a"],
            &[b"SETRANGE", b"a"],
            &[b"SINTERCARD", b"1", b"a"],
            &[b"SINTERCARD", b"1", b"a"],
            &[b"SETRANGE", b"a"],
        ];
        let mut input = Vec::new();
        requests
            .iter()
            .for_each(|request| crate::encode_request(&mut input, request));
        let (mut decoder, mut batch) = (crate::Decoder::new(), Batch::new());
        let decoded = decoder.decode(&input, &crate::Limits::default(), 16, &mut batch);
        assert_eq!(decoded.consumed, input.len());
        let runs: Vec<usize> = batch.runs(&input).map(|run| run.requests_count).collect();
        assert_eq!(runs, [2, 2, 1, 1, 1, 2, 1, 1, 1]);
    }

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
