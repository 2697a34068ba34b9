//! What a Redis replica may ask: REPLCONF and PSYNC with any arguments, and what follows from them.
//!
//! The lines of the input are the arguments.
#![no_main]

use libfuzzer_sys::fuzz_target;
use replication::psync::{
    Asked, Decision, History, Replconf, ReplconfAnswer, ReplicationId, decide, judge_takeover,
};
use replication::transcode::Peer;

fuzz_target!(|input: &[u8]| {
    let args: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let mut conf = Replconf::default();
    match conf.apply(&args) {
        ReplconfAnswer::Error(text) => {
            assert!(text.starts_with("ERR "));
            assert!(!text.contains(['\r', '\n']));
        }
        ReplconfAnswer::Ok | ReplconfAnswer::Silent(_) => {}
    }
    let _known = Peer::parse(&String::from_utf8_lossy(input));
    let Ok(asked) = Asked::parse(&args) else {
        return;
    };
    let (Some(id), Some(other)) = (
        ReplicationId::parse(&[b'a'; 40]),
        ReplicationId::parse(&[b'b'; 40]),
    ) else {
        return;
    };
    let history = History {
        id,
        second: Some((other, 500)),
        oldest: 100,
        end: 1_000,
    };
    if let Decision::Continue(from) = decide(&history, &asked) {
        assert!((history.oldest..=history.end).contains(&from));
        assert!(asked.from.is_some_and(|(_, offset)| offset == from));
    }
    let _taken_over = judge_takeover(Some(&history), &asked);
});
