//! Decodes one request exactly: detects every error, and can stop anywhere and continue later.
//!
//! Lines end as in Redis. A count or length ends at CR, and the byte after CR is skipped unchecked.
//! An inline request ends at LF, without a CR before it. A zero byte hides what follows it, so such
//! a line never ends and only becomes too long.
//!
//! Positions count from the request's first byte, unless they are called positions of the input.

use base::number::parse_i64;

use crate::error::ProtocolError;
use crate::inline::push_words;
use crate::limits::Ceilings;
use crate::request::{Batch, Span, Spans};
use crate::short::bulk_header;

/// Progress of decoding a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) position: usize,
    pub(crate) arguments_left: usize,
}

/// A line in which no end was found, so that it is not searched twice.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Searched {
    line_start: usize,
    end: usize,
}

/// Why decoding a request stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// The request ends at this position.
    Complete(usize),
    /// An argument ends at this position, and bytes before it are missing.
    AwaitsArgument(usize),
    /// The end of a line is missing.
    AwaitsLine(Searched),
    /// The request is malformed.
    Failed(ProtocolError),
}

/// A request that may be incomplete.
pub(crate) struct Frame<'a> {
    /// The input from the request's first byte on.
    pub(crate) bytes: &'a [u8],
    /// Start of the request in the input.
    pub(crate) start: usize,
    /// What an earlier call searched of its lines.
    pub(crate) searched: Searched,
    pub(crate) ceilings: &'a Ceilings,
}

impl<'a> Frame<'a> {
    /// Decodes the line that announces how many arguments follow.
    pub(crate) fn decode_count(&self) -> Result<Progress, Step> {
        let line = self.header_line(0, ProtocolError::TooBigMultibulkCount)?;
        let count = self.ceilings.check_count(parse_i64(&line[1..]));
        let arguments_left = count.map_err(Step::Failed)?;
        Ok(Progress {
            position: line.len() + 2,
            arguments_left,
        })
    }

    /// Decodes arguments up to the request's end.
    pub(crate) fn decode_arguments(&self, progress: &mut Progress, spans: &mut Spans) -> Step {
        while progress.arguments_left > 0 {
            let (content, length) = match self.decode_length(progress.position) {
                Ok(found) => found,
                Err(step) => return step,
            };
            let end = content + length + 2;
            if end > self.bytes.len() {
                return Step::AwaitsArgument(end);
            }
            spans.push(Span::new(self.start + content, length));
            progress.position = end;
            progress.arguments_left -= 1;
        }
        Step::Complete(progress.position)
    }

    /// Decodes an inline request.
    pub(crate) fn decode_inline(&self, batch: &mut Batch) -> Step {
        let line = match self.find_line(0, b'\n', ProtocolError::TooBigInlineRequest) {
            Ok(line) => line,
            Err(step) => return step,
        };
        let end = line.len() + 1;
        let words = line.strip_suffix(b"\r").unwrap_or(line);
        let spans_start = batch.spans.len();
        let unescaped = match push_words(words, self.start, batch) {
            Ok(unescaped) => unescaped,
            Err(error) => return Step::Failed(error),
        };
        if batch.spans.len() > spans_start {
            batch.push_request(spans_start, self.start, self.start + end, unescaped);
        }
        Step::Complete(end)
    }

    /// Returns the position and the length of the content of the argument announced at `position`.
    fn decode_length(&self, position: usize) -> Result<(usize, usize), Step> {
        if let Some((length, header_bytes)) = bulk_header(&self.bytes[position..])
            && length.max(position) <= self.ceilings.short_bulk_bytes_max
        {
            return Ok((position + header_bytes, length));
        }
        let line = self.header_line(position, ProtocolError::TooBigBulkCount)?;
        let content = position + line.len() + 2;
        let length = match line {
            [b'$', digits @ ..] => self.ceilings.check_length(parse_i64(digits), content),
            [byte, ..] => Err(ProtocolError::ExpectedBulk(*byte)),
            [] => Err(ProtocolError::ExpectedBulk(b'\r')),
        };
        Ok((content, length.map_err(Step::Failed)?))
    }

    /// Returns the line at `position` without its end, which is a CR and any byte.
    fn header_line(&self, position: usize, too_big: ProtocolError) -> Result<&'a [u8], Step> {
        let line = self.find_line(position, b'\r', too_big)?;
        let end = position + line.len();
        if end + 1 == self.bytes.len() {
            return Err(Step::AwaitsLine(Searched {
                line_start: position,
                end,
            }));
        }
        Ok(line)
    }

    /// Returns the bytes from `position` up to `terminator`.
    fn find_line(
        &self,
        position: usize,
        terminator: u8,
        too_big: ProtocolError,
    ) -> Result<&'a [u8], Step> {
        let bytes_max = self.ceilings.line_bytes_max();
        let rest = &self.bytes[position..];
        let window = &rest[..rest.len().min(bytes_max.saturating_add(1))];
        let stop = self.find_stop(position, window, terminator);
        if window.get(stop) == Some(&terminator) {
            Ok(&window[..stop])
        } else if rest.len() > bytes_max {
            Err(Step::Failed(too_big))
        } else {
            Err(Step::AwaitsLine(Searched {
                line_start: position,
                end: position + stop,
            }))
        }
    }

    /// Returns where the search for `terminator` in `window`, which begins at `position`, ends.
    fn find_stop(&self, position: usize, window: &[u8], terminator: u8) -> usize {
        let skipped = if self.searched.line_start == position {
            self.searched.end.saturating_sub(position).min(window.len())
        } else {
            0
        };
        let stop = window[skipped..]
            .iter()
            .position(|&byte| byte == terminator || byte == 0);
        stop.map_or(window.len(), |stop| skipped + stop)
    }
}
