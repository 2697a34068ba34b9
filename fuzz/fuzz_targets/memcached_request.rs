//! What a client of the memcached port may send: whatever comes, limits hold, and each command has its answer.
//!
//! The input's first byte says how the rest is cut in two.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memcached::Front;
use memcached::limits::{AHEAD_BYTES_MAX, GET_LINE_BYTES_MAX};
use protocol::{ReplyBuffer, Value, decode_value};

const ITEM_BYTES_MAX: usize = 4096;

/// Answers the commands that wait, as if every key were absent.
fn answer(front: &mut Front) {
    let mut replies = Vec::new();
    let mut rest = front.requests();
    while !rest.is_empty() {
        let Ok(Some((Value::Array(words), taken))) = decode_value(rest) else {
            panic!("a command that is no request: {}", rest.escape_ascii());
        };
        let Some(Value::Bulk(name)) = words.first() else {
            panic!("a command without a name");
        };
        replies.extend_from_slice(match &name[..] {
            b"MCGET" | b"MCGAT" => b"*-1\r\n",
            b"MCSET" => b"*2\r\n+STORED\r\n:1\r\n",
            b"MCINCR" => b"*3\r\n+STORED\r\n$1\r\n1\r\n:1\r\n",
            b"MCDEL" => b"+NOT_FOUND\r\n",
            b"INFO" => b"$0\r\n\r\n",
            b"AUTH" | b"CONFIG" | b"FLUSHDB" => b"+OK\r\n",
            other => panic!("a command of no client: {}", other.escape_ascii()),
        });
        rest = &rest[taken..];
    }
    front.note_run(front.requests().len());
    let mut out = ReplyBuffer::new();
    front.answer(&replies, &mut out).expect("replies fit");
    assert!(!front.is_owed());
    assert!(out.is_empty() || out.as_slice().ends_with(b"\r\n"));
}

fuzz_target!(|input: &[u8]| {
    let Some((first, input)) = input.split_first() else {
        return;
    };
    let is_logged_in = first & 1 == 0;
    let cut = input.len() * usize::from(*first) / 256;
    let mut front = Front::new(ITEM_BYTES_MAX, "1.6.0-fuzz");
    let mut done = 0;
    for end in [cut, input.len()] {
        loop {
            let read = front.read(&input[done..end], is_logged_in, 1_700_000_000_000);
            assert!(read.consumed <= end - done);
            let most = AHEAD_BYTES_MAX + 64 * GET_LINE_BYTES_MAX;
            assert!(front.held_bytes() <= most);
            answer(&mut front);
            done += read.consumed;
            if read.is_over {
                return;
            }
            if read.consumed == 0 {
                break;
            }
        }
    }
});
