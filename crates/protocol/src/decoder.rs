//! Decodes received bytes to requests.
//!
//! ```text
//!   input:  | complete requests, into the batch       | incomplete |  not received yet
//!           0                                     consumed       len   consumed + needed
//! ```
//!
//! Complete requests are decoded by the short way ([`short`](crate::short)) if possible, and by the
//! exact one ([`frame`](crate::frame)) otherwise. An incomplete request of few arguments is decoded
//! again from its start when more bytes are received. A request of many arguments keeps its
//! progress here, so that the work stays linear in the received bytes. While a long argument is
//! awaited, `needed` answers immediately.
//!
//! Invariants
//!  1. The requests do not depend on how the input was cut into pieces.
//!  2. Memory grows with received bytes, never with a count or length that a peer announced.
//!  3. Positions fit `u32`: one call reads at most `u32::MAX` bytes.

use crate::error::ProtocolError;
use crate::frame::{Frame, Progress, Searched, Step};
use crate::limits::{Ceilings, Limits};
use crate::request::{Batch, Spans};
use crate::short::decode_short_requests;

/// From this many decoded arguments on, an incomplete request keeps its progress.
const ARGUMENTS_REDECODED_MAX: usize = 32;

/// Result of one call of [`Decoder::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of the decoded requests, and of skipped empty ones.
    pub consumed: usize,
    /// Length that the input must have from `consumed` on before another request can be decoded; 0
    /// if any further byte may be enough.
    pub needed: usize,
    /// The error of the request at `consumed`. The requests before it are valid and executed first.
    /// Then the session answers the error and closes the connection.
    pub error: Option<ProtocolError>,
}

/// The state of one session's input. It is tiny while no request is partly received.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Progress in the request at the front of the input, if that is worth keeping.
    partial: Option<Box<Partial>>,
    /// Length of the input below which decoding is useless.
    needed: usize,
    /// The awaited line of the request at the front of the input.
    searched: Searched,
}

/// Every idle session has a decoder.
const _: () = assert!(size_of::<Decoder>() <= 32);

/// A request of which many arguments are decoded. Positions count from the request's start.
#[derive(Debug)]
struct Partial {
    progress: Progress,
    spans: Spans,
}

impl Decoder {
    /// Creates the state before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes up to `max` complete requests from the front of `input` into `batch`, which is
    /// cleared first.
    ///
    /// The next call's input must begin at this call's `consumed`, unless [`reset`](Self::reset) is
    /// called in between. The caller calls again immediately while requests are decoded: no request
    /// is decoded only if bytes are missing or an error is reported.
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
        let mut consumed = 0;
        let ceilings = Ceilings::new(limits);
        let error = self.decode_requests(input, &ceilings, max, batch, &mut consumed);
        Decoded {
            consumed,
            needed: self.needed,
            error,
        }
    }

    /// Forgets a partly received request.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the bytes of memory for a partly received request.
    pub fn held_bytes(&self) -> usize {
        let partial = self.partial.as_ref();
        partial.map_or(0, |partial| {
            size_of::<Partial>() + partial.spans.held_bytes()
        })
    }

    fn decode_requests(
        &mut self,
        input: &[u8],
        ceilings: &Ceilings,
        max: usize,
        batch: &mut Batch,
        consumed: &mut usize,
    ) -> Option<ProtocolError> {
        while batch.len() < max && *consumed < input.len() {
            if self.partial.is_none() {
                let short_end = decode_short_requests(input, *consumed, ceilings, max, batch);
                if short_end > *consumed {
                    self.searched = Searched::default();
                    *consumed = short_end;
                    continue;
                }
            }
            let (bytes, start) = (&input[*consumed..], *consumed);
            let frame = Frame {
                bytes,
                start,
                searched: self.searched,
                ceilings,
            };
            self.searched = Searched::default();
            match self.decode_frame(&frame, batch) {
                Step::Complete(len) => *consumed += len,
                Step::AwaitsArgument(end) => {
                    self.needed = end;
                    break;
                }
                Step::AwaitsLine(searched) => {
                    self.searched = searched;
                    break;
                }
                Step::Failed(error) => return Some(error),
            }
        }
        None
    }

    #[cold]
    fn decode_frame(&mut self, frame: &Frame<'_>, batch: &mut Batch) -> Step {
        if let Some(partial) = self.partial.take() {
            self.resume(partial, frame, batch)
        } else if frame.bytes.first() == Some(&b'*') {
            self.begin(frame, batch)
        } else {
            frame.decode_inline(batch)
        }
    }

    /// Decodes a request from its start.
    fn begin(&mut self, frame: &Frame<'_>, batch: &mut Batch) -> Step {
        let mut progress = match frame.decode_count() {
            Ok(Progress {
                arguments_left: 0,
                position,
            }) => return Step::Complete(position),
            Ok(progress) => progress,
            Err(step) => return step,
        };
        let spans_start = batch.spans.len();
        let step = frame.decode_arguments(&mut progress, &mut batch.spans);
        let many = batch.spans.len() - spans_start >= ARGUMENTS_REDECODED_MAX;
        match step {
            Step::Complete(len) => {
                batch.push_request(spans_start, frame.start, frame.start + len, false);
            }
            Step::AwaitsArgument(_) | Step::AwaitsLine(_) if many => {
                let spans = batch.spans.split_off(spans_start, frame.start);
                self.partial = Some(Box::new(Partial { progress, spans }));
            }
            Step::AwaitsArgument(_) | Step::AwaitsLine(_) | Step::Failed(_) => {}
        }
        step
    }

    /// Decodes a request whose beginning is already decoded. It is the first of the input.
    fn resume(&mut self, mut partial: Box<Partial>, frame: &Frame<'_>, batch: &mut Batch) -> Step {
        let Partial { progress, spans } = &mut *partial;
        let step = frame.decode_arguments(progress, spans);
        match step {
            Step::Complete(len) => {
                batch.spans = std::mem::take(spans);
                batch.push_request(0, 0, len, false);
            }
            Step::AwaitsArgument(_) | Step::AwaitsLine(_) => self.partial = Some(partial),
            Step::Failed(_) => {}
        }
        step
    }
}
