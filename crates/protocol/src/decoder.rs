//! From received bytes to requests.
//!
//! Three ways through, fastest first:
//!  1. `decode_short`: a complete request of one to nine arguments, written as every client
//!     library writes it. One pass, no state.
//!  2. `decode_arguments`: any RESP request, exact in every error, able to stop anywhere.
//!  3. `decode_inline`: a line typed by a human.
//!
//! The first never reports an error: whatever it does not recognise is left to the others.
//!
//! A request that is incomplete with few arguments is decoded again from its start when more bytes
//! have come. One with many keeps its progress in the decoder, so that the work stays linear in
//! the bytes received. While a long argument is awaited, `needed` answers at once.
//!
//! Invariants
//!  1. What comes out does not depend on how the input was cut into pieces.
//!  2. Memory held grows with bytes received, never with a count or length a peer announced.
//!  3. Positions fit `u32`: no more than `u32::MAX` bytes are looked at in one call.

use crate::ProtocolError;
use crate::inline::Splitter;
use crate::number::parse_i64;
use crate::request::{Batch, Span, Spans};

/// Arguments a client may send in one request before it is authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: u32 = 10;
/// Length of an argument a client may send before it is authenticated.
const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16_384;
/// Up to here a position and a length add up to what fits `u32` with ease.
const SHORT_BULK_BYTES_MAX: usize = 1 << 30;
/// From this many decoded arguments on, an incomplete request keeps its progress.
const ARGUMENTS_REDECODED_MAX: usize = 32;

/// What a peer may send. All limits are inclusive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Arguments of one request.
    pub multibulk_max: u32,
    /// Bytes of one argument, the directive `proto-max-bulk-len`.
    pub bulk_bytes_max: u64,
    /// Bytes of an inline request, or of a line that announces a count or length.
    pub inline_bytes_max: usize,
    /// Whether the peer has shown who it is. If not, much smaller limits hold, and requests are
    /// decoded one at a time, since the next one may be the one that lifts them.
    pub authenticated: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            multibulk_max: 1_048_576,
            bulk_bytes_max: 512 * 1024 * 1024,
            inline_bytes_max: 64 * 1024,
            authenticated: true,
        }
    }
}

/// What one call of [`Decoder::decode`] used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the decoded requests, and of empty ones that were skipped.
    pub consumed: usize,
    /// How many bytes the input must have from `consumed` on before another request can come out
    /// of it; 0 when any further byte may do.
    pub needed: usize,
    /// What is wrong with the request at `consumed`. The requests before it are valid and executed
    /// first; then the error is answered and the connection closed.
    pub error: Option<ProtocolError>,
}

/// The state of one session's input: little more than nothing while no request is half received.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Progress in the request at the front of the input, when that is worth keeping.
    partial: Option<Box<Partial>>,
    /// The input's length below which there is no use in looking at it.
    needed: usize,
    /// Bytes of the input known not to end the line that is awaited.
    scanned: usize,
}

/// A request of which many arguments were decoded. Positions count from the request's start.
#[derive(Debug)]
struct Partial {
    progress: Progress,
    spans: Spans,
}

/// How far into a request decoding came.
#[derive(Debug, Clone, Copy)]
struct Progress {
    position: usize,
    arguments_left: usize,
}

/// Why decoding a request stopped.
enum Step {
    /// The request ends at this position.
    Complete(usize),
    /// More bytes must come: at least up to `needed` (from the request's start), if not 0;
    /// `scanned` bytes (from the request's start) hold no line end.
    Incomplete {
        needed: usize,
        scanned: usize,
    },
    Failed(ProtocolError),
}

impl Decoder {
    /// The state before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes up to `max` complete requests from the front of `input` into `batch`, which is
    /// cleared first.
    ///
    /// The next call's input must begin at this one's `consumed`, or [`reset`](Self::reset) must
    /// come between. Call again at once as long as requests come out; nothing more comes out only
    /// when bytes are missing or an error is reported.
    pub fn decode(
        &mut self,
        input: &[u8],
        limits: &Limits,
        max: usize,
        batch: &mut Batch,
    ) -> Decoded {
        batch.clear();
        if input.len() < self.needed {
            return Decoded {
                consumed: 0,
                needed: self.needed,
                error: None,
            };
        }
        self.needed = 0;
        let input = &input[..input.len().min(u32::MAX as usize)];
        let max = if limits.authenticated {
            max
        } else {
            max.min(1)
        };
        self.decode_requests(input, &Ceilings::new(limits), max, batch)
    }

    /// Forgets a request that is half received.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Bytes of memory held for a request that is half received.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>() + partial.spans.held_bytes()
        })
    }

    fn decode_requests(
        &mut self,
        input: &[u8],
        ceilings: &Ceilings,
        max: usize,
        batch: &mut Batch,
    ) -> Decoded {
        let mut consumed = 0;
        while batch.len() < max {
            if self.partial.is_none() {
                let short_end = decode_short_requests(input, consumed, ceilings, max, batch);
                if short_end > consumed {
                    self.scanned = 0;
                    consumed = short_end;
                    continue;
                }
            }
            if consumed == input.len() {
                break;
            }
            match self.decode_request(input, consumed, ceilings, batch) {
                Step::Complete(len) => {
                    self.scanned = 0;
                    consumed += len;
                }
                Step::Incomplete { needed, scanned } => {
                    self.needed = needed;
                    self.scanned = scanned;
                    return Decoded {
                        consumed,
                        needed,
                        error: None,
                    };
                }
                Step::Failed(error) => {
                    self.reset();
                    return Decoded {
                        consumed,
                        needed: 0,
                        error: Some(error),
                    };
                }
            }
        }
        Decoded {
            consumed,
            needed: 0,
            error: None,
        }
    }

    /// Decodes the request at `start`, continuing where the last call stopped.
    #[cold]
    fn decode_request(
        &mut self,
        input: &[u8],
        start: usize,
        ceilings: &Ceilings,
        batch: &mut Batch,
    ) -> Step {
        let bytes = &input[start..];
        if self.partial.is_some() {
            self.resume(bytes, ceilings, batch)
        } else if bytes.first() == Some(&b'*') {
            self.begin(bytes, start, ceilings, batch)
        } else {
            decode_inline(bytes, start, self.scanned, ceilings, batch)
        }
    }

    /// Decodes a RESP request from its start.
    fn begin(
        &mut self,
        bytes: &[u8],
        start: usize,
        ceilings: &Ceilings,
        batch: &mut Batch,
    ) -> Step {
        let mut progress = match decode_count(bytes, self.scanned, ceilings) {
            Ok(progress) => progress,
            Err(step) => return step,
        };
        if progress.arguments_left == 0 {
            return Step::Complete(progress.position);
        }
        let spans_start = batch.spans.len();
        let spans = &mut batch.spans;
        let step = decode_arguments(bytes, start, self.scanned, &mut progress, ceilings, spans);
        match step {
            Step::Complete(len) => batch.push_request(spans_start, start, start + len, false),
            Step::Incomplete { .. } if spans.len() - spans_start >= ARGUMENTS_REDECODED_MAX => {
                let spans = spans.split_off(spans_start, start);
                self.partial = Some(Box::new(Partial { progress, spans }));
            }
            Step::Incomplete { .. } | Step::Failed(_) => {}
        }
        step
    }

    /// Decodes on in the request of which `partial` knows the beginning; it is the input's first.
    fn resume(&mut self, bytes: &[u8], ceilings: &Ceilings, batch: &mut Batch) -> Step {
        let Some(mut partial) = self.partial.take() else {
            return Step::Incomplete {
                needed: 0,
                scanned: 0,
            };
        };
        let Partial { progress, spans } = &mut *partial;
        let step = decode_arguments(bytes, 0, self.scanned, progress, ceilings, spans);
        match step {
            Step::Complete(len) => {
                batch.spans = std::mem::take(spans);
                batch.push_request(0, 0, len, false);
            }
            Step::Incomplete { .. } => self.partial = Some(partial),
            Step::Failed(_) => {}
        }
        step
    }
}

/// The limits in force for one call.
struct Ceilings {
    limits: Limits,
    arguments_max: u64,
    bulk_bytes_max: u64,
    /// The same, but no more than what the short way is for.
    short_arguments_max: usize,
    short_bulk_bytes_max: usize,
}

impl Ceilings {
    fn new(limits: &Limits) -> Self {
        let (arguments_max, bulk_bytes_max) = if limits.authenticated {
            (u32::MAX, u64::MAX)
        } else {
            (
                UNAUTHENTICATED_ARGUMENTS_MAX,
                UNAUTHENTICATED_BULK_BYTES_MAX,
            )
        };
        let arguments_max = u64::from(limits.multibulk_max.min(arguments_max));
        let bulk_bytes_max = limits.bulk_bytes_max.min(bulk_bytes_max);
        Self {
            limits: *limits,
            arguments_max,
            bulk_bytes_max,
            short_arguments_max: usize::try_from(arguments_max).map_or(9, |max| max.min(9)),
            short_bulk_bytes_max: usize::try_from(bulk_bytes_max)
                .map_or(SHORT_BULK_BYTES_MAX, |max| max.min(SHORT_BULK_BYTES_MAX)),
        }
    }

    /// The count after `*`; none is as good as 0.
    fn check_count(&self, count: Option<i64>) -> Result<usize, ProtocolError> {
        let count = count.ok_or(ProtocolError::InvalidMultibulkLength)?;
        let count = u64::try_from(count).unwrap_or(0);
        if count > u64::from(self.limits.multibulk_max) {
            Err(ProtocolError::InvalidMultibulkLength)
        } else if count > self.arguments_max {
            Err(ProtocolError::UnauthenticatedMultibulkLength)
        } else {
            usize::try_from(count).map_err(|_| ProtocolError::InvalidMultibulkLength)
        }
    }

    /// The length after `$` of an argument whose content begins at `position`.
    fn check_length(&self, length: Option<i64>, position: usize) -> Result<usize, ProtocolError> {
        let length = length.and_then(|length| u64::try_from(length).ok());
        let length = length.ok_or(ProtocolError::InvalidBulkLength)?;
        if length > self.limits.bulk_bytes_max {
            Err(ProtocolError::InvalidBulkLength)
        } else if length > self.bulk_bytes_max {
            Err(ProtocolError::UnauthenticatedBulkLength)
        } else if length >= u64::from(u32::MAX).saturating_sub(position as u64 + 2) {
            Err(ProtocolError::InvalidBulkLength)
        } else {
            usize::try_from(length).map_err(|_| ProtocolError::InvalidBulkLength)
        }
    }
}

/// Decodes requests from `start` on as long as they are complete, of one to nine arguments and
/// written in the one form that client libraries use. Returns the end of the last one.
#[inline]
fn decode_short_requests(
    input: &[u8],
    start: usize,
    ceilings: &Ceilings,
    max: usize,
    batch: &mut Batch,
) -> usize {
    let mut consumed = start;
    while batch.len() < max
        && let Some(end) = decode_short(input, consumed, ceilings, batch)
    {
        consumed = end;
    }
    consumed
}

/// Decodes the short request at `start` and returns its end.
#[inline(always)]
fn decode_short(
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

/// The value of the digit in the lowest byte, or more than 9 if there is none.
#[inline]
fn digit(word: u64) -> usize {
    ((word & 0xff) as usize).wrapping_sub(usize::from(b'0'))
}

/// The length an argument announces and the size of the announcement, when it is written as
/// client libraries do; otherwise [`bulk_header_exact`] decides.
#[inline(always)]
fn bulk_header(bytes: &[u8]) -> Option<(usize, usize)> {
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
    bulk_header_long(bytes)
}

/// The same for lengths of two to eight digits.
#[inline(never)]
fn bulk_header_long(bytes: &[u8]) -> Option<(usize, usize)> {
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

/// Decodes the line that announces how many arguments follow.
fn decode_count(bytes: &[u8], scanned: usize, ceilings: &Ceilings) -> Result<Progress, Step> {
    let too_big = ProtocolError::TooBigMultibulkCount;
    let line = header_line(bytes, 0, scanned, ceilings, too_big)?;
    let count = ceilings.check_count(parse_i64(&line[1..]));
    let arguments_left = count.map_err(Step::Failed)?;
    Ok(Progress {
        position: line.len() + 2,
        arguments_left,
    })
}

/// Decodes arguments up to the request's end. `bytes` begins at the request, which lies at
/// `start` of the input that spans refer to.
fn decode_arguments(
    bytes: &[u8],
    start: usize,
    scanned: usize,
    progress: &mut Progress,
    ceilings: &Ceilings,
    spans: &mut Spans,
) -> Step {
    while progress.arguments_left > 0 {
        let (content, length) = match bulk_header_exact(bytes, progress.position, scanned, ceilings)
        {
            Ok(found) => found,
            Err(step) => return step,
        };
        let end = content + length + 2;
        if end > bytes.len() {
            return Step::Incomplete {
                needed: end,
                scanned: 0,
            };
        }
        spans.push(Span::new(start + content, length));
        progress.position = end;
        progress.arguments_left -= 1;
    }
    Step::Complete(progress.position)
}

/// Where the argument announced at `position` has its content, and how long it is.
fn bulk_header_exact(
    bytes: &[u8],
    position: usize,
    scanned: usize,
    ceilings: &Ceilings,
) -> Result<(usize, usize), Step> {
    if let Some((length, header_bytes)) = bulk_header(&bytes[position..])
        && length as u64 <= ceilings.bulk_bytes_max
        && length <= SHORT_BULK_BYTES_MAX
        && position <= SHORT_BULK_BYTES_MAX
    {
        return Ok((position + header_bytes, length));
    }
    let too_big = ProtocolError::TooBigBulkCount;
    let line = header_line(bytes, position, scanned, ceilings, too_big)?;
    let content = position + line.len() + 2;
    let length = match line {
        [b'$', digits @ ..] => ceilings.check_length(parse_i64(digits), content),
        // The line's end is what stands in the place of `$`.
        [] => Err(ProtocolError::ExpectedBulk(b'\r')),
        [byte, ..] => Err(ProtocolError::ExpectedBulk(*byte)),
    };
    Ok((content, length.map_err(Step::Failed)?))
}

/// The line at `position` without its end, which is a CR and any byte.
fn header_line<'a>(
    bytes: &'a [u8],
    position: usize,
    scanned: usize,
    ceilings: &Ceilings,
    too_big: ProtocolError,
) -> Result<&'a [u8], Step> {
    let line_bytes_max = ceilings.limits.inline_bytes_max;
    let line = find_line(bytes, position, scanned, b'\r', line_bytes_max, too_big)?;
    if position + line.len() + 1 == bytes.len() {
        return Err(Step::Incomplete {
            needed: 0,
            scanned: position + line.len(),
        });
    }
    Ok(line)
}

/// The bytes from `position` up to `terminator`, of which those before `scanned` need not be
/// looked at. A zero byte hides everything behind it: such a line never ends, only grows too big.
fn find_line(
    bytes: &[u8],
    position: usize,
    scanned: usize,
    terminator: u8,
    line_bytes_max: usize,
    too_big: ProtocolError,
) -> Result<&[u8], Step> {
    let line = &bytes[position..];
    let window = &line[..line.len().min(line_bytes_max.saturating_add(1))];
    let skipped = scanned.saturating_sub(position).min(window.len());
    let stop = window[skipped..]
        .iter()
        .position(|&byte| byte == terminator || byte == 0);
    let stop = skipped + stop.unwrap_or(window.len() - skipped);
    if window.get(stop) == Some(&terminator) {
        Ok(&window[..stop])
    } else if line.len() > line_bytes_max {
        Err(Step::Failed(too_big))
    } else {
        Err(Step::Incomplete {
            needed: 0,
            scanned: position + stop,
        })
    }
}

/// Decodes a line of arguments. They are unescaped into the batch's side buffer.
fn decode_inline(
    bytes: &[u8],
    start: usize,
    scanned: usize,
    ceilings: &Ceilings,
    batch: &mut Batch,
) -> Step {
    let line_bytes_max = ceilings.limits.inline_bytes_max;
    let too_big = ProtocolError::TooBigInlineRequest;
    let line = match find_line(bytes, 0, scanned, b'\n', line_bytes_max, too_big) {
        Ok(line) => line,
        Err(step) => return step,
    };
    let end = line.len() + 1;
    let mut splitter = Splitter::new(line.strip_suffix(b"\r").unwrap_or(line));
    let spans_start = batch.spans.len();
    loop {
        let argument_start = batch.unescaped.len();
        match splitter.next_into(&mut batch.unescaped) {
            Ok(true) => {
                let length = batch.unescaped.len() - argument_start;
                batch.spans.push(Span::new(argument_start, length));
            }
            Ok(false) => break,
            Err(_) => return Step::Failed(ProtocolError::UnbalancedQuotes),
        }
    }
    if batch.spans.len() > spans_start {
        batch.push_request(spans_start, start, start + end, true);
    }
    Step::Complete(end)
}
