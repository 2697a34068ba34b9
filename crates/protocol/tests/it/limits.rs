//! Limits, and the guarantee that work and memory follow what was received, not what was announced.

use protocol::{Batch, Decoded, Decoder, Limits, ProtocolError};

use crate::session::receive;

const BEFORE_AUTH: Limits = Limits {
    multibulk_max: 1_048_576,
    bulk_bytes_max: 512 * 1024 * 1024,
    inline_bytes_max: 64 * 1024,
    authenticated: false,
};

#[track_caller]
fn check_error(input: &[u8], limits: &Limits, expected: Option<ProtocolError>) {
    let outcome = receive([input], limits, 16);
    let shown = input[..input.len().min(40)].escape_ascii();
    assert_eq!(outcome.error, expected, "{shown}");
    assert_eq!(receive(input.chunks(4_000), limits, 16), outcome, "{shown}");
}

#[test]
fn counts_and_lengths_up_to_the_limit_are_awaited() {
    let limits = Limits::default();
    check_error(b"*1048576\r\n", &limits, None);
    check_error(
        b"*1048577\r\n",
        &limits,
        Some(ProtocolError::InvalidMultibulkLength),
    );
    check_error(b"*1\r\n$536870912\r\n", &limits, None);
    check_error(
        b"*1\r\n$536870913\r\n",
        &limits,
        Some(ProtocolError::InvalidBulkLength),
    );
}

#[test]
fn strangers_may_send_little() {
    check_error(b"*10\r\n", &BEFORE_AUTH, None);
    check_error(
        b"*11\r\n",
        &BEFORE_AUTH,
        Some(ProtocolError::UnauthenticatedMultibulkLength),
    );
    check_error(
        b"*1048577\r\n",
        &BEFORE_AUTH,
        Some(ProtocolError::InvalidMultibulkLength),
    );
    check_error(b"*1\r\n$16384\r\n", &BEFORE_AUTH, None);
    check_error(
        b"*1\r\n$16385\r\n",
        &BEFORE_AUTH,
        Some(ProtocolError::UnauthenticatedBulkLength),
    );
    check_error(
        b"*1\r\n$536870913\r\n",
        &BEFORE_AUTH,
        Some(ProtocolError::InvalidBulkLength),
    );
}

#[test]
fn before_authentication_requests_come_one_at_a_time() {
    let input = b"*2\r\n$4\r\nAUTH\r\n$1\r\np\r\n*11\r\n";
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let first = decoder.decode(input, &BEFORE_AUTH, 16, &mut batch);
    assert_eq!(
        first,
        Decoded {
            consumed: 21,
            needed: 0,
            error: None
        }
    );
    assert_eq!(batch.len(), 1);
    let then = decoder.decode(&input[21..], &Limits::default(), 16, &mut batch);
    assert_eq!(
        then.error, None,
        "the first request may have been the right password"
    );
}

#[test]
fn a_line_may_be_as_long_as_the_limit() {
    let limits = Limits::default();
    let line = |len: usize, end: &[u8]| [&vec![b'a'; len][..], end].concat();
    check_error(&line(65_536, b""), &limits, None);
    check_error(&line(65_536, b"\n"), &limits, None);
    check_error(
        &line(65_537, b""),
        &limits,
        Some(ProtocolError::TooBigInlineRequest),
    );
    check_error(
        &line(65_537, b"\n"),
        &limits,
        Some(ProtocolError::TooBigInlineRequest),
    );
    let count = |len: usize| [&b"*"[..], &vec![b'1'; len - 1]].concat();
    check_error(&count(65_536), &limits, None);
    check_error(
        &count(65_537),
        &limits,
        Some(ProtocolError::TooBigMultibulkCount),
    );
    let length = |len: usize| [&b"*1\r\n$"[..], &vec![b'1'; len - 1]].concat();
    check_error(&length(65_536), &limits, None);
    check_error(
        &length(65_537),
        &limits,
        Some(ProtocolError::TooBigBulkCount),
    );
}

#[test]
fn an_announcement_reserves_nothing() {
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let input = b"*1048576\r\n$536870912\r\n";
    let decoded = decoder.decode(input, &Limits::default(), 16, &mut batch);
    assert_eq!(decoded.needed, input.len() + 536_870_912 + 2);
    assert_eq!(decoder.held_bytes(), 0);
    // Places for the short requests of one call, whatever is announced.
    assert!(batch.held_bytes() < 4_000);
}

#[test]
fn a_long_argument_is_awaited_without_looking_at_it_again() {
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let mut input = b"*2\r\n$4\r\nECHO\r\n$1000000\r\n".to_vec();
    let needed = input.len() + 1_000_002;
    decoder.decode(&input, &Limits::default(), 16, &mut batch);
    while input.len() + 60_000 < needed {
        // This byte would be an error if it were read again.
        input[0] = b'\'';
        input.resize(input.len() + 60_000, b'x');
        let decoded = decoder.decode(&input, &Limits::default(), 16, &mut batch);
        assert_eq!(
            decoded,
            Decoded {
                consumed: 0,
                needed,
                error: None
            }
        );
    }
    input[0] = b'*';
    input.resize(needed, b'x');
    assert_eq!(
        decoder
            .decode(&input, &Limits::default(), 16, &mut batch)
            .consumed,
        needed
    );
}

#[test]
fn the_longest_request_in_pieces_is_decoded_once() {
    const PIECE_BYTES: usize = 16 * 1024;
    let mut input = b"*1048576\r\n".to_vec();
    input.extend(b"$1\r\na\r\n".repeat(1_048_576));
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let mut received = 0;
    while received < input.len() {
        // Decoded bytes are made invalid: they must not be decoded again.
        let done = received.saturating_sub(100);
        input[done.saturating_sub(PIECE_BYTES)..done].fill(b'\'');
        received = input.len().min(received + PIECE_BYTES);
        let decoded = decoder.decode(&input[..received], &Limits::default(), 16, &mut batch);
        assert_eq!(decoded.error, None);
        assert!(decoder.held_bytes() <= 4 * received + 1_000);
    }
    assert_eq!(batch.len(), 1);
    let request = batch.request(0, &input);
    assert_eq!(request.len(), 1_048_576);
    assert_eq!(request.wire_bytes(), input.len());
    assert_eq!(request.iter().next_back(), Some(&b"a"[..]));
    assert_eq!(decoder.held_bytes(), 0);
    batch.clear();
    assert!(
        batch.held_bytes() <= 1 << 20,
        "a worker's batch gives memory back"
    );
}

#[test]
fn reset_forgets_a_half_received_request() {
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    let start = [&b"*50\r\n"[..], &b"$1\r\na\r\n".repeat(40), b"$9\r\n"].concat();
    decoder.decode(&start, &Limits::default(), 16, &mut batch);
    assert!(decoder.held_bytes() > 0);
    decoder.reset();
    let decoded = decoder.decode(b"PING\r\n", &Limits::default(), 16, &mut batch);
    assert_eq!((decoded.consumed, batch.len()), (6, 1));
}

#[test]
fn a_session_can_stop_inside_a_batch() {
    let input = b"PING\r\n\r\n*1\r\n$4\r\nQUIT\r\nECHO 'x'\r\n";
    let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
    decoder.decode(input, &Limits::default(), 16, &mut batch);
    assert_eq!(batch.len(), 3);
    assert_eq!(batch.end_of(0), 6);
    assert_eq!(&input[batch.end_of(1)..], b"ECHO 'x'\r\n");
    assert_eq!(batch.end_of(2), input.len());
}
