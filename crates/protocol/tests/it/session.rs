//! A session's use of a decoder, for tests: takes bytes in pieces, and returns requests.

use protocol::{Batch, Decoder, Limits, ProtocolError, Reply, ReplyBuffer, Resp, encode_request};

/// The arguments of one request.
pub(crate) type Arguments = Vec<Vec<u8>>;

/// Everything that was decoded from a stream of bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) requests: Vec<Arguments>,
    pub(crate) wire_bytes: Vec<usize>,
    pub(crate) consumed: usize,
    pub(crate) error: Option<ProtocolError>,
}

impl Outcome {
    /// Returns the error reply, if any, as bytes.
    pub(crate) fn error_reply(&self) -> Vec<u8> {
        let mut buffer = ReplyBuffer::new();
        if let Some(error) = self.error {
            error.write_to(&mut Reply::new(&mut buffer, Resp::V2));
        }
        buffer.as_slice().to_vec()
    }

    /// Returns the requests as a client library would have sent them.
    pub(crate) fn canonical_requests(&self) -> Vec<u8> {
        let mut encoded = Vec::new();
        for request in &self.requests {
            let arguments: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
            encode_request(&mut encoded, &arguments);
        }
        encoded
    }
}

/// Receives pieces, decodes at most `max` requests per call, and keeps incomplete ones.
pub(crate) fn receive<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limits: &Limits,
    max: usize,
) -> Outcome {
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let mut pending = Vec::new();
    let mut outcome = Outcome::default();
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let decoded = decoder.decode(&pending, limits, max, &mut batch);
            assert!(decoded.consumed <= pending.len());
            assert!(decoded.needed == 0 || decoded.needed > pending.len() - decoded.consumed);
            collect(&batch, &pending, decoded.consumed, &mut outcome);
            pending.drain(..decoded.consumed);
            outcome.consumed += decoded.consumed;
            outcome.error = decoded.error;
            if outcome.error.is_some() {
                return outcome;
            }
            if batch.is_empty() {
                break;
            }
        }
    }
    outcome
}

fn collect(batch: &Batch, input: &[u8], consumed: usize, outcome: &mut Outcome) {
    for index in 0..batch.len() {
        let request = batch.request(index, input);
        assert_eq!(Some(request.name()), request.arg(0));
        assert!(batch.end_of(index) <= consumed);
        outcome.wire_bytes.push(request.wire_bytes());
        outcome
            .requests
            .push(request.iter().map(<[u8]>::to_vec).collect());
    }
}
