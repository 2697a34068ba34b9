//! Feeds a client's stream to the request decoder, whole and in pieces.
//!
//! The first bytes choose the limits and the cuts. The rest is the stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Batch, Decoder, Limits, ProtocolError, decode_value, encode_request};

/// The requests of a stream, and the error in the bytes after them.
type Requests = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, step, batch_max], stream)) = input.split_first_chunk::<3>() else {
        return;
    };
    let limits = limits(flags);
    let whole = decode(stream, &limits, usize::MAX, 16);
    let step = usize::from(step).max(1);
    let batch_max = usize::from(batch_max % 17).max(1);
    let cut = decode(stream, &limits, step, batch_max);
    assert_eq!(whole, cut);
    round_trip(&whole.0, &limits);
    if let Ok(Some((_value, consumed))) = decode_value(stream) {
        assert!(0 < consumed && consumed <= stream.len());
    }
});

fn limits(flags: u8) -> Limits {
    let mut limits = Limits {
        authenticated: flags & 1 == 0,
        ..Limits::default()
    };
    if flags & 2 != 0 {
        limits.multibulk_max = 8;
        limits.bulk_bytes_max = 64;
        limits.inline_bytes_max = 48;
    }
    limits
}

/// Decodes a stream that is received `step` bytes at a time.
fn decode(stream: &[u8], limits: &Limits, step: usize, batch_max: usize) -> Requests {
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let mut requests = Vec::new();
    let (mut start, mut end) = (0_usize, 0_usize);
    loop {
        end = stream.len().min(end.saturating_add(step));
        loop {
            let received = &stream[start..end];
            let decoded = decoder.decode(received, limits, batch_max, &mut batch);
            assert!(decoded.consumed <= received.len());
            assert!(batch.len() <= batch_max);
            for index in 0..batch.len() {
                let request = batch.request(index, received);
                assert!(request.len() > 0);
                assert!(batch.end_of(index) <= decoded.consumed);
                requests.push(request.iter().map(<[u8]>::to_vec).collect());
            }
            start += decoded.consumed;
            if decoded.error.is_some() {
                return (requests, decoded.error);
            }
            if batch.is_empty() {
                break;
            }
        }
        // State is kept for unfinished requests, but only in proportion to their size.
        assert!(decoder.held_bytes() <= 1024 + 64 * (end - start));
        if end == stream.len() {
            return (requests, None);
        }
    }
}

/// Checks that decoded requests can be encoded again and then decode to the same requests.
fn round_trip(requests: &[Vec<Vec<u8>>], limits: &Limits) {
    let mut stream = Vec::new();
    for request in requests {
        let arguments: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
        encode_request(&mut stream, &arguments);
    }
    // An inline line may have more words than a request may have arguments.
    if requests.iter().all(|request| fits(request, limits)) {
        let (again, error) = decode(&stream, limits, usize::MAX, 16);
        assert_eq!((again.as_slice(), error), (requests, None));
    }
}

fn fits(request: &[Vec<u8>], limits: &Limits) -> bool {
    let (arguments_max, bulk_bytes_max) = match limits.authenticated {
        true => (u64::from(limits.multibulk_max), limits.bulk_bytes_max),
        false => (
            u64::from(limits.multibulk_max).min(10),
            limits.bulk_bytes_max.min(16_384),
        ),
    };
    request.len() as u64 <= arguments_max
        && request
            .iter()
            .all(|argument| argument.len() as u64 <= bulk_bytes_max)
}
