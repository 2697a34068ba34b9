//! Answers of a Redis primary, split into arbitrary pieces, and the replica's events.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use proptest::prelude::*;

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef01234567";
const MARK: &[u8] = b"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm";

fn id() -> ReplicationId {
    ReplicationId::parse(ID.as_bytes()).unwrap()
}

/// The events of some bytes, with the content joined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Heard {
    events: Vec<String>,
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    failure: Option<Failure>,
}

/// Passes the bytes of a primary to the follower, in pieces of `step` bytes.
fn hear(follower: &mut Follower, bytes: &[u8], step: usize) -> Heard {
    let mut heard = Heard::default();
    let mut waiting = Vec::new();
    for piece in bytes.chunks(step) {
        waiting.extend_from_slice(piece);
        loop {
            let (taken, event) = match follower.on_bytes(&waiting, 0) {
                Ok(got) => got,
                Err(failure) => {
                    heard.failure = Some(failure);
                    return heard;
                }
            };
            let is_quiet = taken == 0 && event.is_none();
            match event {
                Some(Event::Snapshot(bytes)) => heard.snapshot.extend_from_slice(bytes),
                Some(Event::Stream(bytes)) => heard.stream.extend_from_slice(bytes),
                Some(Event::SnapshotEnds) => {
                    heard.events.push("ends".to_owned());
                    follower.on_loaded(0);
                }
                Some(event) => heard.events.push(format!("{event:?}")),
                None => {}
            }
            waiting.drain(..taken);
            if is_quiet {
                break;
            }
        }
    }
    heard
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap().replace("\r\n", " ")
}

#[test]
fn the_handshake_of_a_new_replica() {
    let mut follower = Follower::new(Introduction {
        user: b"app".to_vec(),
        password: b"secret".to_vec(),
        listening_port: 6380,
        ip_address: Some("10.0.0.9".to_owned()),
        version: Some("9.0.0"),
        timeout_ms: 60_000,
        ..Introduction::default()
    });
    follower.on_connected(0);
    assert_eq!(text(follower.take_output()), "*1 $4 PING ");
    hear(&mut follower, b"-NOAUTH Authentication required.\r\n", 3);
    assert_eq!(
        text(follower.take_output()),
        "*3 $4 AUTH $3 app $6 secret \
         *3 $8 REPLCONF $14 listening-port $4 6380 \
         *3 $8 REPLCONF $10 ip-address $8 10.0.0.9 \
         *5 $8 REPLCONF $4 capa $3 eof $4 capa $6 psync2 \
         *3 $8 REPLCONF $7 version $5 9.0.0 "
    );
    hear(
        &mut follower,
        b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n-ERR Unrecognized REPLCONF option: version\r\n",
        4,
    );
    assert_eq!(text(follower.take_output()), "*3 $5 PSYNC $1 ? $2 -1 ");
    assert_eq!(follower.stage_name(), "handshake");
    let answer = format!("\n\n+FULLRESYNC {ID} 4711\r\n\n$5\r\nREDISabc");
    let heard = hear(&mut follower, answer.as_bytes(), 7);
    assert_eq!(
        heard.events,
        [
            format!("Full {{ id: {ID}, offset: 4711 }}"),
            "SnapshotBegins { bytes: Some(5) }".to_owned(),
            "ends".to_owned()
        ]
    );
    assert_eq!(heard.snapshot, b"REDIS");
    assert_eq!(heard.stream, b"abc");
    assert_eq!(
        text(follower.take_output()),
        "*3 $8 REPLCONF $3 ACK $4 4711 "
    );
}

/// Returns a link that has requested a full sync, or the stream from an offset on.
fn asking(from: Option<(ReplicationId, u64)>) -> Follower {
    let mut follower = Follower::new(Introduction {
        from,
        timeout_ms: 5_000,
        ..Introduction::default()
    });
    follower.on_connected(0);
    let heard = hear(&mut follower, b"+PONG\r\n+OK\r\n+OK\r\n", 100);
    assert_eq!(heard, Heard::default());
    drop(follower.take_output());
    follower
}

#[test]
fn a_replica_that_comes_back_continues() {
    let mut follower = Follower::new(Introduction {
        from: Some((id(), 99)),
        is_failover: true,
        ..Introduction::default()
    });
    follower.on_connected(0);
    hear(&mut follower, b"+PONG\r\n+OK\r\n+OK\r\n", 100);
    let sent = text(follower.take_output());
    assert!(
        sent.ends_with(&format!("*4 $5 PSYNC $40 {ID} $3 100 $8 FAILOVER ")),
        "{sent}"
    );
    let other = "f".repeat(40);
    let heard = hear(
        &mut follower,
        format!("+CONTINUE {other}\r\nrest").as_bytes(),
        5,
    );
    assert_eq!(heard.events, [format!("Continues {{ id: Some({other}) }}")]);
    assert_eq!(heard.stream, b"rest");
    assert_eq!(text(follower.take_output()), "*3 $8 REPLCONF $3 ACK $2 99 ");
    let heard = hear(&mut asking(Some((id(), 99))), b"+CONTINUE\r\n", 100);
    assert_eq!(heard.events, ["Continues { id: None }"]);
    // It requested nothing that could be continued.
    assert!(matches!(
        hear(&mut asking(None), b"+CONTINUE\r\n", 100).failure,
        Some(Failure::Malformed(..))
    ));
}

#[test]
fn the_own_link_is_found() {
    let mut follower = Follower::new(Introduction {
        asks_for_link: true,
        ..Introduction::default()
    });
    follower.on_connected(0);
    let heard = hear(&mut follower, b"+PONG\r\n+16379 abc\r\n", 100);
    assert_eq!(heard.events, ["OwnLink { port: 16379 }"]);
    assert!(text(follower.take_output()).contains("iolite-link"));
}

#[test]
fn what_a_primary_may_say_instead() {
    let failure = |answer: &[u8]| hear(&mut asking(None), answer, 100).failure.unwrap();
    for later in [
        &b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n"[..],
        b"-LOADING Redis is loading the dataset in memory\r\n",
    ] {
        assert!(matches!(failure(later), Failure::Later(_)));
    }
    assert!(matches!(
        failure(b"-ERR unknown command 'PSYNC'\r\n"),
        Failure::Refused("PSYNC", _)
    ));
    for malformed in [
        &b"+FULLRESYNC short 5\r\n"[..],
        b"+FULLRESYNC 0123456789abcdef0123456789abcdef01234567 -5\r\n",
        b"+FULLRESYNC\r\n",
        b"+DUALCHANNELSYNC\r\n",
        b":1\r\n",
        &[b'x'; LINE_BYTES_MAX],
    ] {
        assert!(matches!(failure(malformed), Failure::Malformed(..)));
    }
    let head = |line: &[u8]| {
        let answer = [format!("+FULLRESYNC {ID} 5\r\n").as_bytes(), line].concat();
        hear(&mut asking(None), &answer, 100).failure
    };
    for line in [&b"$-1\r\n"[..], b"$x\r\n", b"$EOF:short\r\n", b"REDIS\r\n"] {
        assert!(matches!(head(line), Some(Failure::Malformed(..))));
    }
    let mut follower = Follower::new(Introduction {
        password: b"wrong".to_vec(),
        ..Introduction::default()
    });
    follower.on_connected(0);
    let heard = hear(
        &mut follower,
        b"+PONG\r\n-WRONGPASS invalid username-password pair\r\n",
        100,
    );
    assert!(matches!(heard.failure, Some(Failure::Refused("AUTH", _))));
}

#[test]
fn it_acknowledges_and_does_not_wait_for_ever() {
    let mut follower = asking(Some((id(), 99)));
    hear(&mut follower, b"+CONTINUE\r\n", 100);
    drop(follower.take_output());
    follower.on_tick(500).unwrap();
    assert!(follower.take_output().is_empty());
    follower.set_applied(150, Some(120));
    follower.on_tick(1_000).unwrap();
    assert_eq!(
        text(follower.take_output()),
        "*5 $8 REPLCONF $3 ACK $3 150 $4 FACK $3 120 "
    );
    assert_eq!(follower.on_tick(5_001), Err(Failure::Silent));
    // While it loads a snapshot, the replica does not read; an empty line is its sign of life.
    let mut follower = asking(None);
    let answer = format!("+FULLRESYNC {ID} 5\r\n$3\r\nabc");
    let mut rest = answer.as_bytes();
    while follower.stage != Stage::Loading {
        let (taken, _) = follower.on_bytes(rest, 0).unwrap();
        rest = &rest[taken..];
    }
    drop(follower.take_output());
    follower.on_tick(50_000).unwrap();
    assert_eq!(follower.take_output(), b"\n");
    follower.on_loaded(50_000);
    follower.on_tick(50_500).unwrap();
}

#[test]
fn an_older_or_empty_primary_takes_nothing_away() {
    let other = ReplicationId::NONE;
    let held = Held {
        stream: Some((id(), 100)),
        has_data: true,
        may_discard: false,
    };
    assert!(judge_full_sync(&held, other, 99).is_err());
    assert!(judge_full_sync(&held, id(), 99).is_err());
    assert!(judge_full_sync(&held, other, 100).is_ok());
    assert!(judge_full_sync(&held, id(), 5_000).is_ok());
    assert!(judge_empty_snapshot(&held).is_err());
    let unrelated = Held {
        stream: None,
        ..held
    };
    assert!(judge_full_sync(&unrelated, other, 5_000).is_err());
    for free in [
        Held {
            may_discard: true,
            ..unrelated
        },
        Held {
            has_data: false,
            ..unrelated
        },
    ] {
        assert!(judge_full_sync(&free, other, 0).is_ok());
        assert!(judge_empty_snapshot(&free).is_ok());
    }
}

proptest! {
    #[test]
    fn a_snapshot_ends_at_its_mark_however_it_comes(
        content in prop::collection::vec(prop::sample::select(b"mx".to_vec()), 0..200),
        rest in prop::collection::vec(any::<u8>(), 0..20),
        step in 1..100_usize,
        has_mark in any::<bool>(),
    ) {
        let is_in = content.windows(MARK.len()).any(|part| part == MARK);
        // The first occurrence of the mark ends the snapshot, so the content must not run into it.
        prop_assume!(!is_in && content.last() != Some(&b'm'));
        let mut answer = format!("+FULLRESYNC {ID} 5\r\n").into_bytes();
        if has_mark {
            answer.extend_from_slice(b"$EOF:");
            answer.extend_from_slice(MARK);
        } else {
            answer.extend_from_slice(format!("${}", content.len()).as_bytes());
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(&content);
        if has_mark {
            answer.extend_from_slice(MARK);
        }
        answer.extend_from_slice(&rest);
        let heard = hear(&mut asking(None), &answer, step);
        prop_assert_eq!(heard.failure, None);
        prop_assert_eq!(heard.snapshot, content);
        prop_assert_eq!(heard.stream, rest);
        prop_assert_eq!(heard.events.len(), 3);
    }

    #[test]
    fn any_answer_is_survived(
        answer in prop::collection::vec(any::<u8>(), 0..300),
        step in 1..50_usize,
    ) {
        let mut follower = Follower::new(Introduction::default());
        follower.on_connected(0);
        hear(&mut follower, &answer, step);
        hear(&mut asking(None), &answer, step);
    }
}

/// Returns the kinds and the joined bytes of the pieces of a stream that comes in parts of `step`
/// bytes.
fn pieces(stream: &[u8], step: usize) -> Result<Vec<(char, Vec<u8>)>, PieceFlaw> {
    let mut commands = Commands::default();
    let (mut found, mut waiting) = (Vec::<(char, Vec<u8>)>::new(), Vec::new());
    for part in stream.chunks(step.max(1)) {
        waiting.extend_from_slice(part);
        while let Some(piece) = commands.next_piece(&waiting)? {
            let (kind, bytes) = match piece {
                Piece::Commands { bytes, .. } => ('c', bytes),
                Piece::GetAck { bytes } => ('g', bytes),
                Piece::Nothing { bytes } => ('n', bytes),
            };
            assert!(bytes > 0);
            let content: Vec<u8> = waiting.drain(..bytes).collect();
            match found.last_mut() {
                Some((last, before)) if *last == kind => before.extend_from_slice(&content),
                _ => found.push((kind, content)),
            }
        }
    }
    Ok(found)
}

fn resp(line: &str) -> Vec<u8> {
    let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut bytes = Vec::new();
    put_command(&parts, &mut bytes);
    bytes
}

#[test]
fn pieces_end_outside_of_transactions() {
    let mut commands = Commands::default();
    let (set, multi, exec) = (resp("SET k v"), resp("multi"), resp("EXEC"));
    let stream = [&set[..], &multi, &set, &exec, &set, &multi, &set].concat();
    let whole = set.len() * 3 + multi.len() + exec.len();
    let piece = commands.next_piece(&stream).unwrap();
    let expected = Piece::Commands {
        bytes: whole,
        is_open: false,
    };
    assert_eq!(piece, Some(expected));
    // The transaction at the end is not whole, so its available part is returned.
    let piece = commands.next_piece(&stream[whole..]).unwrap();
    let expected = Piece::Commands {
        bytes: multi.len() + set.len(),
        is_open: true,
    };
    assert_eq!(piece, Some(expected));
    assert!(commands.is_open());
    let rest = [&set[..], &exec].concat();
    let piece = commands.next_piece(&rest).unwrap();
    let expected = Piece::Commands {
        bytes: rest.len(),
        is_open: false,
    };
    assert_eq!(piece, Some(expected));
    assert!(!commands.is_open());
}

#[test]
fn what_is_not_applied_stands_alone() {
    let (set, getack) = (resp("SET k v"), resp("REPLCONF GETACK *"));
    let stream = [&set[..], &getack, b"\n\n\n", &set, &resp("REPLCONF x y")].concat();
    let found = pieces(&stream, 1000).unwrap();
    let kinds: String = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, "cgncn");
    assert_eq!(found[2].1, b"\n\n\n");
}

#[test]
fn a_stream_that_is_none_is_refused() {
    for stream in [
        &b"SET k v\r\n"[..],
        b"*x\r\n",
        b"*1\r\n+OK\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n$99999999999\r\n",
        b"*1\r\n$1\r\nabc",
        b"*99999999\r\n",
        b"\rx",
        &[b'*'; 100],
        b"*11111111111111111111111111111111111111",
    ] {
        assert!(pieces(stream, 7).is_err(), "{}", stream.escape_ascii());
    }
    // The commands before it are applied.
    let stream = [&resp("SET k v")[..], b"PING\r\n"].concat();
    let mut commands = Commands::default();
    assert!(commands.next_piece(&stream).unwrap().is_some());
}

#[test]
fn long_commands_are_looked_at_once() {
    let value = "x".repeat(300_000);
    let mut line = String::from("MSET");
    for at in 0..20_000 {
        line.push_str(&format!(" key{at} v"));
    }
    let stream = [resp(&format!("SET k {value}")), resp(&line)].concat();
    let found = pieces(&stream, 100).unwrap();
    assert_eq!(found, [('c', stream)]);
}

proptest! {
    #[test]
    fn pieces_do_not_depend_on_how_bytes_come(
        lines in prop::collection::vec(
            prop::sample::select(vec!["SET k v", "MULTI", "EXEC", "REPLCONF GETACK *", "REPLCONF a b", "PING", "\n"]),
            0..30,
        ),
        step in 1..60_usize,
    ) {
        let encode = |line: &&str| if *line == "\n" { line.as_bytes().to_vec() } else { resp(line) };
        let stream: Vec<u8> = lines.iter().flat_map(encode).collect();
        let whole = pieces(&stream, stream.len().max(1)).unwrap();
        let all: Vec<u8> = whole.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        prop_assert_eq!(&all, &stream);
        let answered = |found: &[(char, Vec<u8>)]| found.iter().filter(|(kind, _)| *kind == 'g').map(|(_, bytes)| bytes.len()).sum::<usize>();
        let cut = pieces(&stream, step).unwrap();
        prop_assert_eq!(answered(&cut), answered(&whole));
        let all: Vec<u8> = cut.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        prop_assert_eq!(&all, &stream);
    }

    #[test]
    fn any_stream_is_survived(stream in prop::collection::vec(prop::sample::select(b"*$\r\n0123456789aMULTI".to_vec()), 0..200), step in 1..50_usize) {
        let _any = pieces(&stream, step);
    }
}
