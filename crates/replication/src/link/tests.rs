//! The bytes of messages, and bytes that are not valid messages.
#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use proptest::prelude::*;

use super::*;
use crate::attach::{Attach, Refusal};
use crate::lineage::{Lineage, Term, TermId};

fn encoded(message: &Message<'_>, stream: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, stream, &mut bytes);
    bytes
}

/// Decodes the message at the start of `bytes` and passes it to `check`.
fn decoded<T>(bytes: &[u8], check: impl FnOnce(Result<Option<Message<'_>>, LinkError>) -> T) -> T {
    let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
    let header = match Header::decode(head, BODY_BYTES_MAX) {
        Ok(header) => header,
        Err(error) => return check(Err(error)),
    };
    check(header.message(body))
}

fn attach() -> Attach {
    let term = |number, id, start| Term {
        number,
        id: TermId([id; 20]),
        start,
    };
    Attach {
        lineage: Lineage::new(vec![term(1, 0xaa, 0), term(3, 0xbb, 64)]).unwrap(),
        end: 128,
        durable: 120,
        has_data: true,
        may_discard: false,
        is_damaged: false,
    }
}

/// Returns one message of each kind.
fn messages() -> Vec<Message<'static>> {
    let block = Block {
        sync: 7,
        part: 1,
        number: 2,
        bytes: b"block",
    };
    let hello = Hello {
        link_version: VERSION,
        log_version: 4,
        part_version: 1,
        features: 5,
        node: TermId([1; 20]),
        nonce: [2; 32],
        name: b"one".to_vec(),
    };
    let resume = Resume {
        node: TermId([9; 20]),
        sync: 7,
        generation: 8,
        blocks: vec![4, 0],
    };
    let full = Full {
        sync: 7,
        term: 3,
        streams: 2,
        source: Source::Cut,
        generation: 8,
        log_from: 64,
        records: 1_000,
        bytes: 116_000,
        fork: 9,
    };
    vec![
        Message::Hello(hello),
        Message::Proof([3; 32]),
        Message::Attach(attach(), None),
        Message::Attach(Attach::default(), Some(resume)),
        Message::Continue { from: 128, term: 3 },
        Message::Rewind { to: 64 },
        Message::Full(full),
        Message::Refuse(Refusal::PrimaryOlder),
        Message::Frames(Frames {
            term: 3,
            first: 128,
            committed: 64,
            bytes: b"frames..",
        }),
        Message::Ack(Ack {
            term: 3,
            appended: 136,
            durable: 128,
            applied: 136,
            lag_ms: 2,
        }),
        Message::Block(block),
        Message::PartEnd(block),
        Message::SyncEnd(SyncEnd {
            sync: 7,
            sequence: 136,
            manifest: b"iolite-manifest 2\n",
        }),
        Message::Transient(b"news"),
        Message::Floor { sequence: 96 },
        Message::Ping {
            unix_ms: 1_700_000_000_000,
            echo_unix_ms: 0,
        },
    ]
}

fn messages_of_digests() -> Vec<Message<'static>> {
    vec![
        Message::Takeover { sequence: 136 },
        Message::Ask(Ask {
            number: 1,
            subject: 2,
            has_more: true,
            bytes: b"beat",
        }),
        Message::Answer(Answer {
            number: 1,
            is_refused: true,
            has_more: false,
            bytes: b"no",
        }),
        Message::Slots(SlotsStep {
            step: 4,
            bytes: b"keys",
        }),
        Message::Verify {
            number: 5,
            groups: vec![1, 4_095],
        },
        Message::Digest(Digest {
            number: 5,
            sequence: 136,
            state: DigestState::Keys,
            bytes: b"keys",
        }),
    ]
}

#[test]
fn messages_come_back_as_they_were_sent() {
    for message in messages().into_iter().chain(messages_of_digests()) {
        let bytes = encoded(&message, 3);
        decoded(&bytes, |result| {
            assert_eq!(result, Ok(Some(message.clone())));
        });
    }
}

#[test]
fn the_bytes_of_version_1_are_those_of_the_paper() {
    let hex = |message: &Message<'_>| base::hex::text(&encoded(message, 0));
    let rewind = "0800000084000000".to_owned() + "a7ee1cdd" + "4000000000000000";
    assert_eq!(hex(&Message::Rewind { to: 64 }), rewind);
    let ping = Message::Ping {
        unix_ms: 1,
        echo_unix_ms: 0,
    };
    let ping_bytes =
        "1000000001000000".to_owned() + "d6121fc4" + "01000000000000000000000000000000";
    assert_eq!(hex(&ping), ping_bytes);
    let ask = Message::Ask(Ask {
        number: 1,
        subject: 2,
        has_more: false,
        bytes: b"x",
    });
    assert_eq!(hex(&ask), "0b0000008f000000c8f3eea80100000000000000020078");
}

#[test]
fn any_changed_byte_is_noticed() {
    for message in messages().into_iter().chain(messages_of_digests()) {
        let bytes = encoded(&message, 0);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            decoded(&changed, |result| {
                assert!(result.is_err(), "{message:?}, byte {at}");
            });
        }
    }
}

/// Returns the bytes of a message with this kind and body, with a correct sum.
fn raw(kind: u8, body: &[u8]) -> Vec<u8> {
    let header = Header {
        length: body.len(),
        kind,
        flags: 0,
        stream: 0,
        sum: 0,
    };
    let summed = header.summed();
    let sum = sum_of(&summed, body);
    [&summed[..], &sum.to_le_bytes(), body].concat()
}

#[test]
fn unknown_kinds_are_passed_over_below_128_and_end_the_link_above() {
    decoded(&raw(77, b"later"), |result| assert_eq!(result, Ok(None)));
    decoded(&raw(200, b""), |result| {
        assert_eq!(result, Err(LinkError::Kind(200)));
    });
}

#[test]
fn bodies_that_cannot_be_are_refused_by_kind() {
    let mut impossible = attach();
    impossible.durable = impossible.end + 1;
    let mut ahead = attach();
    ahead.end = 64;
    ahead.durable = 0;
    for attach in [impossible, ahead] {
        let bytes = encoded(&Message::Attach(attach, None), 0);
        decoded(&bytes, |result| {
            assert_eq!(result, Err(LinkError::Body(130)));
        });
    }
    let ack = Ack {
        appended: 8,
        durable: 16,
        ..Ack::default()
    };
    decoded(&encoded(&Message::Ack(ack), 0), |result| {
        assert_eq!(result, Err(LinkError::Body(136)));
    });
    for message in messages() {
        let kind = message.kind();
        let bytes = encoded(&message, 0);
        let body = &bytes[HEADER_BYTES..];
        // A body that is one byte short is refused, unless the rest of the body may have any
        // length.
        let has_payload = matches!(
            message,
            Message::Frames(_)
                | Message::Block(_)
                | Message::PartEnd(_)
                | Message::SyncEnd(_)
                | Message::Transient(_)
        );
        decoded(&raw(kind, &body[..body.len() - 1]), |result| {
            assert_eq!(result.is_ok(), has_payload, "{message:?}");
        });
    }
}

#[test]
fn a_header_that_asks_for_too_much_is_refused_before_anything_is_allocated() {
    let mut head = [0; HEADER_BYTES];
    head[..4].copy_from_slice(&513_u32.to_le_bytes());
    let refused = LinkError::TooLong {
        bytes: 513,
        bytes_max: 512,
    };
    assert_eq!(Header::decode(&head, HELLO_BYTES_MAX), Err(refused));
    assert!(Header::decode(&head, BODY_BYTES_MAX).is_ok());
    head[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Header::decode(&head, usize::MAX).is_err());
}

#[test]
fn the_longest_payload_and_the_longest_lineage_fit_into_a_body() {
    let payload = vec![0; Message::payload_bytes_max()];
    let frames = Frames {
        term: 1,
        first: 0,
        committed: 0,
        bytes: &payload,
    };
    let block = Block {
        sync: 1,
        part: 0,
        number: 0,
        bytes: &payload,
    };
    for message in [Message::Frames(frames), Message::Block(block)] {
        assert!(encoded(&message, 0).len() <= HEADER_BYTES + BODY_BYTES_MAX);
    }
    let terms = (0..crate::lineage::TERMS_MAX as u64).map(|at| Term {
        number: at + 1,
        id: TermId([1; 20]),
        start: at * 8,
    });
    let attach = Attach {
        lineage: Lineage::new(terms.collect()).unwrap(),
        end: 1 << 40,
        ..Attach::default()
    };
    decoded(&encoded(&Message::Attach(attach, None), 0), |result| {
        assert!(matches!(result, Ok(Some(Message::Attach(..)))));
    });
}

proptest! {
    #[test]
    fn any_body_of_any_kind_is_taken_or_refused(kind: u8, body in prop::collection::vec(any::<u8>(), 0..300)) {
        decoded(&raw(kind, &body), |result| {
            if let Ok(Some(message)) = result {
                // A decoded message encodes to the same bytes, except those that a newer greeting
                // adds.
                let again = encoded(&message, 0);
                let again = &again[HEADER_BYTES..];
                prop_assert!(body.starts_with(again) && (again == body || message.is_greeting()));
            }
            Ok(())
        })?;
    }
}
