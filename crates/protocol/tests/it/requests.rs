//! Requests: golden vectors, and properties that hold for any bytes cut at any position.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Limits, encode_request, split_line};

use crate::escaped::{lines, unescape};
use crate::session::{Arguments, receive};

const VECTORS: &str = include_str!("../vectors/requests.resp");

/// An entry of the vectors: the received bytes and the expected result.
#[derive(Debug, Default)]
pub(crate) struct Vector {
    pub(crate) received: Vec<u8>,
    requests: Vec<Arguments>,
    error: Option<Vec<u8>>,
}

/// Returns all entries of the vectors file.
pub(crate) fn vectors() -> Vec<Vector> {
    let mut vectors = Vec::new();
    for line in lines(VECTORS) {
        let (kind, rest) = line.split_at_checked(2).unwrap_or((line, ""));
        if kind == "> " {
            vectors.push(Vector {
                received: unescape(rest),
                ..Vector::default()
            });
            continue;
        }
        let vector = vectors
            .last_mut()
            .expect("an entry begins with what is received");
        match kind {
            "= " => vector.requests.push(split_line(rest.as_bytes()).unwrap()),
            "- " => vector.error = Some(unescape(&format!("-{rest}\\r\\n"))),
            _ => panic!("no such line in a vector: {line}"),
        }
    }
    vectors
}

#[test]
fn vectors_come_out_as_written() {
    for vector in vectors() {
        let outcome = receive([&vector.received[..]], &Limits::default(), 16);
        let shown = vector.received.escape_ascii();
        assert_eq!(outcome.requests, vector.requests, "{shown}");
        assert_eq!(
            outcome.error_reply(),
            vector.error.unwrap_or_default(),
            "{shown}"
        );
    }
}

#[test]
fn vectors_come_out_the_same_byte_by_byte() {
    for vector in vectors() {
        let received = &vector.received;
        let whole = receive([&received[..]], &Limits::default(), 16);
        let single = receive(received.chunks(1), &Limits::default(), 16);
        assert_eq!(single, whole, "{}", received.escape_ascii());
    }
}

#[test]
fn a_batch_holds_at_most_what_was_asked_for() {
    let input = b"PING\r\n".repeat(5);
    for max in 1..7 {
        assert_eq!(
            receive([&input[..]], &Limits::default(), max)
                .requests
                .len(),
            5
        );
    }
}

fn any_request() -> impl Strategy<Value = Arguments> {
    let argument = prop_oneof![
        8 => vec(any::<u8>(), 0..20),
        1 => vec(any::<u8>(), 90..120),
        1 => vec(any::<u8>(), 990..1010),
    ];
    prop_oneof![4 => vec(argument.clone(), 1..6), 1 => vec(argument, 6..80)]
}

/// Generates fragments of requests, valid and invalid, of which streams are composed.
fn any_fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::sample::select(vec![
            &b"*1\r\n"[..], b"*2\r\n", b"*3\r\n", b"*12\r\n", b"*40\r\n", b"*0\r\n", b"*-1\r\n", b"*",
            b"$0\r\n", b"$1\r\n", b"$3\r\n", b"$12\r\n", b"$104\r\n", b"$-1\r\n", b"$", b"$1\rx",
            b"\r\n", b"\n", b"\r", b"\0", b"0", b"1", b"9", b" ", b"'", b"\"", b"\\", b"\\x4",
        ]).prop_map(<[u8]>::to_vec),
        4 => prop::sample::select(vec![
            &b"$1\r\na\r\n"[..], b"$3\r\nGET\r\n", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n",
            b"PING 'a b'\r\n", b"*2\r\n$3\r\nGET\r\n$16\r\n0123456789abcdef\r\n",
        ]).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..6),
        1 => (1..50_usize).prop_map(|count| b"$1\r\na\r\n".repeat(count)),
        1 => (1..200_usize).prop_map(|count| b"x".repeat(count)),
    ]
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    vec(any_fragment(), 0..30).prop_map(|fragments| fragments.concat())
}

fn tight_limits() -> Limits {
    Limits {
        multibulk_max: 39,
        bulk_bytes_max: 103,
        inline_bytes_max: 100,
        authenticated: true,
    }
}

proptest! {
    #[test]
    fn encoded_requests_decode_to_themselves(
        requests in vec(any_request(), 0..20),
        piece_bytes in 1..200_usize,
    ) {
        let mut stream = Vec::new();
        let mut wire_bytes = Vec::new();
        for request in &requests {
            let start = stream.len();
            encode_request(&mut stream, &request.iter().map(Vec::as_slice).collect::<Vec<_>>());
            wire_bytes.push(stream.len() - start);
        }
        for outcome in [
            receive([&stream[..]], &Limits::default(), 16),
            receive(stream.chunks(piece_bytes), &Limits::default(), 16),
        ] {
            prop_assert_eq!(&outcome.requests, &requests);
            prop_assert_eq!(&outcome.wire_bytes, &wire_bytes);
            prop_assert_eq!(outcome.consumed, stream.len());
            prop_assert_eq!(outcome.error, None);
        }
    }

    #[test]
    fn cuts_change_nothing(stream in any_stream(), piece_bytes in 2..50_usize) {
        for limits in [Limits::default(), tight_limits()] {
            let whole = receive([&stream[..]], &limits, 16);
            prop_assert_eq!(&receive(stream.chunks(1), &limits, 16), &whole);
            prop_assert_eq!(&receive(stream.chunks(piece_bytes), &limits, 16), &whole);
            prop_assert_eq!(&receive([&stream[..]], &limits, 1), &whole);
        }
    }

    #[test]
    fn before_authentication_too(stream in any_stream()) {
        let limits = Limits { authenticated: false, ..Limits::default() };
        let whole = receive([&stream[..]], &limits, 16);
        prop_assert_eq!(receive(stream.chunks(1), &limits, 16), whole);
    }

    #[test]
    fn arbitrary_bytes_are_survived(stream in vec(any::<u8>(), 0..300)) {
        let whole = receive([&stream[..]], &tight_limits(), 16);
        prop_assert_eq!(receive(stream.chunks(1), &tight_limits(), 16), whole);
    }
}
