//! What a client of the memcached port may send. For any input, limits hold and each command gets
//! its answer.
//!
//! The first byte of the input says where the rest is cut in two.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memcached::Front;
use memcached::limits::{AHEAD_BYTES_MAX, GET_LINE_BYTES_MAX};
use protocol::{ReplyBuffer, Value, decode_value};

const ITEM_BYTES_MAX: usize = 4096;

/// A stale item that no client has been asked to fetch again.
const STALE_ITEM: &[u8] = b"*6\r\n:0\r\n$1\r\n7\r\n:0\r\n:1\r\n$1\r\nx\r\n:1\r\n";
/// The same for the client that won the right to fetch the item.
const WON_ITEM: &[u8] = b"*6\r\n:0\r\n$1\r\n7\r\n:0\r\n:1\r\n$1\r\nx\r\n:5\r\n";

/// Returns the server's reply. Keys with an odd last byte are stale items; all others are absent.
fn reply(words: &[Value]) -> &'static [u8] {
    let word = |at: usize| match words.get(at) {
        Some(Value::Bulk(word)) => &word[..],
        _ => panic!("a command without a name or a key"),
    };
    let is_stale = || word(1).last().is_some_and(|last| last & 1 == 1);
    let has_marks = words.contains(&Value::Bulk(b"MARKS".to_vec()));
    match word(0) {
        b"MCGET" | b"MCGAT" if has_marks && is_stale() => STALE_ITEM,
        b"MCWIN" if is_stale() => WON_ITEM,
        b"MCGET" | b"MCGAT" | b"MCWIN" => b"*-1\r\n",
        b"MCSET" => b"*2\r\n+STORED\r\n:1\r\n",
        b"MCINCR" => b"*3\r\n+STORED\r\n$1\r\n1\r\n:1\r\n",
        b"MCDEL" => b"+NOT_FOUND\r\n",
        b"INFO" => b"$0\r\n\r\n",
        b"AUTH" | b"CONFIG" | b"FLUSHDB" | b"MCFLUSH" => b"+OK\r\n",
        other => panic!("a command of no client: {}", other.escape_ascii()),
    }
}

/// Answers the waiting commands, and those that the answers lead to.
fn answer(front: &mut Front) {
    let mut out = ReplyBuffer::new();
    loop {
        let mut replies = Vec::new();
        let mut rest = front.requests();
        while !rest.is_empty() {
            let Ok(Some((Value::Array(words), taken))) = decode_value(rest) else {
                panic!("a command that is no request: {}", rest.escape_ascii());
            };
            replies.extend_from_slice(reply(&words));
            rest = &rest[taken..];
        }
        front.note_run(front.requests().len());
        front.answer(&replies, &mut out).expect("replies fit");
        if front.requests().is_empty() {
            break;
        }
    }
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
