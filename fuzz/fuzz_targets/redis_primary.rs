//! Feeds what a Redis primary may send to the replica's end of the link, whole and in pieces.
//!
//! The first bytes choose how the link was opened and where the input is cut. The rest is what the
//! primary sends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use replication::psync::ReplicationId;
use replication::redis_follower::{Commands, Event, Follower, Introduction, Piece};

/// The result of receiving the bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    events: Vec<String>,
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    has_failed: bool,
}

fuzz_target!(|input: &[u8]| {
    let Some((&[flags, step], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let step = usize::from(step).max(1);
    let whole = hear(flags, bytes, usize::MAX);
    let cut = hear(flags, bytes, step);
    assert_eq!(whole, cut);
    let (counted, answers) = apply(&whole.stream, usize::MAX);
    let (again, more) = apply(&whole.stream, step);
    // A fault may become visible only when more input is there. Complete commands before it are
    // returned in either case.
    assert_eq!(counted, again);
    assert_eq!(answers, more);
    apply(bytes, step);
});

fn hear(flags: u8, bytes: &[u8], step: usize) -> Heard {
    let from = ReplicationId::parse(&[b'a'; 40]).filter(|_| flags & 1 != 0);
    let mut follower = Follower::new(Introduction {
        password: if flags & 2 != 0 {
            b"x".to_vec()
        } else {
            Vec::new()
        },
        version: (flags & 4 != 0).then_some("9.0.0"),
        asks_for_link: flags & 8 != 0,
        from: from.map(|id| (id, 1)),
        ..Introduction::default()
    });
    follower.on_connected(0);
    let mut heard = Heard::default();
    let (mut start, mut end) = (0_usize, 0_usize);
    while end < bytes.len() {
        end = bytes.len().min(end.saturating_add(step));
        loop {
            let Ok((taken, event)) = follower.on_bytes(&bytes[start..end], 0) else {
                heard.has_failed = true;
                return heard;
            };
            assert!(taken <= end - start);
            let is_quiet = taken == 0 && event.is_none();
            match event {
                Some(Event::Snapshot(content)) => heard.snapshot.extend_from_slice(content),
                Some(Event::Stream(content)) => heard.stream.extend_from_slice(content),
                Some(Event::SnapshotEnds) => follower.on_loaded(0),
                Some(event) => heard.events.push(format!("{event:?}")),
                None => {}
            }
            start += taken;
            if is_quiet {
                break;
            }
        }
        assert!(follower.take_output().len() < 4096);
    }
    heard
}

/// Returns how many bytes of a stream are applied, and how often the primary asks for an answer.
fn apply(stream: &[u8], step: usize) -> (usize, usize) {
    let mut commands = Commands::default();
    let (mut start, mut end, mut answers) = (0_usize, 0_usize, 0);
    while end < stream.len() {
        end = stream.len().min(end.saturating_add(step));
        loop {
            match commands.next_piece(&stream[start..end]) {
                Ok(Some(piece)) => {
                    let (Piece::Commands { bytes, .. }
                    | Piece::GetAck { bytes }
                    | Piece::Nothing { bytes }) = piece;
                    answers += usize::from(matches!(piece, Piece::GetAck { .. }));
                    assert!(0 < bytes && bytes <= end - start);
                    start += bytes;
                }
                Ok(None) => break,
                Err(_) => return (start, answers),
            }
        }
    }
    (start, answers)
}
