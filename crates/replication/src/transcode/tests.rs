//! What a Redis replica reads of a log: the bytes, their offsets, and their independence of the
//! pieces.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use durability::checkpoint::Manifest;
use durability::log::Parts;
use proptest::prelude::*;

use super::*;

/// A command as the log has it.
#[derive(Clone, Debug)]
struct Stated {
    database: u16,
    generation: u64,
    count: usize,
    bytes: Vec<u8>,
}

impl Stated {
    fn new(database: u16, generation: u64, parts: &[&[u8]]) -> Self {
        let mut bytes = Vec::new();
        for part in parts {
            match u8::try_from(part.len()) {
                Ok(len) if len <= 252 => bytes.push(len),
                _ => {
                    bytes.push(253);
                    let len = u16::try_from(part.len()).unwrap();
                    bytes.extend_from_slice(&len.to_le_bytes());
                }
            }
            bytes.extend_from_slice(part);
        }
        Self {
            database,
            generation,
            count: parts.len(),
            bytes,
        }
    }

    fn of_line(database: u16, line: &str) -> Self {
        let parts: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Self::new(database, 1, &parts)
    }

    fn effect(&self) -> Effect<'_> {
        Effect {
            database: self.database,
            generation: self.generation,
            parts: Parts::of_copy(self.count, &self.bytes),
        }
    }
}

/// The frames that a log can contain.
#[derive(Clone, Debug)]
enum Step {
    Effects(Vec<Stated>),
    Term,
    Ping,
    GetAck,
    Silent,
}

fn run(transcoder: &mut Transcoder, step: &Step, sink: &mut impl Sink) -> Result<(), Unsupported> {
    let end = transcoder.place().sequence + 8;
    match step {
        Step::Effects(effects) => {
            return transcoder.effects(effects.iter().map(Stated::effect), end, sink);
        }
        Step::Term => transcoder.term(end),
        Step::Ping => transcoder.ping(end, sink),
        Step::GetAck => transcoder.getack(end, sink),
        Step::Silent => transcoder.silent(end),
    }
    Ok(())
}

/// Returns the stream as words: the arguments of its commands.
fn words(mut stream: &[u8]) -> Vec<String> {
    let mut commands = Vec::new();
    while !stream.is_empty() {
        let number = |stream: &mut &[u8]| -> usize {
            let end = stream.iter().position(|byte| *byte == b'\n').unwrap();
            let digits = std::str::from_utf8(&stream[1..end - 1]).unwrap();
            *stream = &stream[end + 1..];
            digits.parse().unwrap()
        };
        let count = number(&mut stream);
        let mut words = Vec::new();
        for _ in 0..count {
            let len = number(&mut stream);
            words.push(String::from_utf8_lossy(&stream[..len]).into_owned());
            assert_eq!(&stream[len..len + 2], b"\r\n");
            stream = &stream[len + 2..];
        }
        commands.push(words.join(" "));
    }
    commands
}

fn group(lines: &[(u16, &str)]) -> Step {
    let effects = lines
        .iter()
        .map(|(database, line)| Stated::of_line(*database, line));
    Step::Effects(effects.collect())
}

fn stream_of(form: Form, steps: &[Step]) -> Vec<u8> {
    let mut transcoder = Transcoder::new(form, Place::default());
    let mut stream = Vec::new();
    for step in steps {
        run(&mut transcoder, step, &mut stream).unwrap();
    }
    assert_eq!(transcoder.place().offset, stream.len() as u64);
    stream
}

#[test]
fn frames_become_commands() {
    let steps = [
        group(&[(0, "SET a 1")]),
        group(&[(0, "SET b 2")]),
        group(&[(3, "SET c 3"), (3, "DEL a"), (4, "DEL x")]),
        Step::Ping,
        group(&[(4, "SET d 4")]),
        Step::Term,
        Step::Silent,
        group(&[(4, "SET e 5")]),
        Step::GetAck,
    ];
    let expected = [
        "SELECT 0",
        "SET a 1",
        "SET b 2",
        "SELECT 3",
        "MULTI",
        "SET c 3",
        "DEL a",
        "SELECT 4",
        "DEL x",
        "EXEC",
        "PING",
        "SET d 4",
        "SELECT 4",
        "SET e 5",
        "REPLCONF GETACK *",
    ];
    assert_eq!(words(&stream_of(Form::default(), &steps)), expected);
}

#[test]
fn the_bytes_are_those_of_redis() {
    let stream = stream_of(Form::default(), &[group(&[(0, "SET key value")])]);
    assert_eq!(
        stream,
        b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"
    );
}

#[test]
fn what_a_peer_is_not_told_leaves_no_trace() {
    let steps = [
        group(&[(0, "SETETAG k 4")]),
        group(&[(1, "SADD k a"), (1, "SETETAG k 5")]),
        group(&[(2, "SETETAG k 5"), (3, "SETETAG k 5")]),
    ];
    let stream = stream_of(Form::default(), &steps);
    assert_eq!(words(&stream), ["SELECT 1", "SADD k a"]);
}

/// Returns what a peer gets for one command, or the command that it lacks.
fn told(peer: Peer, line: &str) -> Result<Vec<String>, String> {
    let mut transcoder = Transcoder::new(Form::of(peer), Place::default()).for_reader(peer);
    let mut stream = Vec::new();
    match run(&mut transcoder, &group(&[(0, line)]), &mut stream) {
        Ok(()) => Ok(words(&stream).split_off(1)),
        Err(unsupported) => {
            assert_eq!(transcoder.place(), Place::default());
            assert!(stream.is_empty());
            Err(unsupported.to_string())
        }
    }
}

#[test]
fn the_table_of_peers() {
    let newest = [Peer::Redis80, Peer::Valkey90];
    let older = [Peer::Redis62, Peer::Redis70, Peer::Redis72, Peer::Valkey72];
    for peer in Peer::ALL {
        let same = |line: &str| assert_eq!(told(peer, line).unwrap(), [line], "{peer}");
        same("SET k v PXAT 1700000000000");
        same("COPY a b DB 0 REPLACE");
        same("XTRIM x MAXLEN = 5");
        same("HDEL h f");
        assert_eq!(
            told(peer, "SETIFGREATER k v 7 NOGET PXAT 1700000000000").unwrap(),
            ["SET k v PXAT 1700000000000"]
        );
        assert_eq!(told(peer, "SETIFGREATER k v 7 NOGET").unwrap(), ["SET k v"]);
    }
    for peer in newest {
        for line in [
            "HSETEX h PXAT 1700000000000 FIELDS 1 a 1",
            "HSETEX h KEEPTTL FIELDS 1 a 1",
            "HPEXPIREAT h 1700000000000 FIELDS 1 a",
        ] {
            assert_eq!(told(peer, line).unwrap(), [line], "{peer}");
        }
    }
    let pair = "HSETEX h PXAT 1700000000000 FIELDS 2 a 1 b 2";
    assert_eq!(
        told(Peer::Redis74, pair).unwrap(),
        [
            "MULTI",
            "HSET h a 1 b 2",
            "HPEXPIREAT h 1700000000000 FIELDS 2 a b",
            "EXEC"
        ]
    );
    assert_eq!(
        told(Peer::Redis74, "HSETEX h KEEPTTL FIELDS 1 a 1"),
        Err("unsupported by redis 7.4: HSETEX".to_owned())
    );
    for peer in older {
        assert_eq!(
            told(peer, "HSETEX h FIELDS 2 a 1 b 2").unwrap(),
            ["HSET h a 1 b 2"]
        );
        for (line, name) in [
            (pair, "HSETEX"),
            ("HPEXPIREAT h 1 FIELDS 1 a", "HPEXPIREAT"),
            ("HPERSIST h FIELDS 1 a", "HPERSIST"),
        ] {
            assert_eq!(
                told(peer, line),
                Err(format!("unsupported by {peer}: {name}"))
            );
        }
    }
    let oldest = |line: &str| told(Peer::Redis62, line);
    assert_eq!(
        oldest("XSETID x 5-0 ENTRIESADDED 9 MAXDELETEDID 1-0").unwrap(),
        ["XSETID x 5-0"]
    );
    assert_eq!(
        oldest("XGROUP CREATE x g 0-0 MKSTREAM ENTRIESREAD 5").unwrap(),
        ["XGROUP CREATE x g 0-0 MKSTREAM"]
    );
    assert!(oldest("FUNCTION RESTORE x FLUSH").is_err());
}

#[test]
fn a_payload_is_for_peers_that_load_its_version() {
    let loads = |peer, version: u16| {
        let mut payload = b"\x00\x01v".to_vec();
        payload.extend_from_slice(&version.to_le_bytes());
        payload.extend_from_slice(&[0; 8]);
        let parts: [&[u8]; 6] = [b"RESTORE", b"k", b"0", &payload, b"ABSTTL", b"REPLACE"];
        let effect = Stated::new(0, 1, &parts);
        let mut transcoder = Transcoder::new(Form::of(peer), Place::default()).for_reader(peer);
        run(
            &mut transcoder,
            &Step::Effects(vec![effect]),
            &mut Count::default(),
        )
        .is_ok()
    };
    for (peer, versions) in [
        (Peer::Redis62, [9, 9]),
        (Peer::Redis70, [10, 10]),
        (Peer::Redis72, [11, 11]),
        (Peer::Valkey72, [11, 11]),
        (Peer::Redis74, [12, 12]),
        (Peer::Valkey90, [11, 80]),
    ] {
        for version in [9, 10, 11, 12, 80] {
            let expected = version <= versions[0] || version == versions[1];
            assert_eq!(loads(peer, version), expected, "{peer}, {version}");
        }
    }
}

#[test]
fn loss_is_counted_where_it_is_allowed() {
    let form = Form {
        peer: Peer::Redis70,
        allows_loss: true,
    };
    let mut transcoder = Transcoder::new(form, Place::default());
    let mut stream = Vec::new();
    for line in [
        "HSETEX h PXAT 1700000000000 FIELDS 1 a 1",
        "HPERSIST h FIELDS 1 a",
        "HSET h b 2",
        "SETETAG h 2",
    ] {
        run(&mut transcoder, &group(&[(0, line)]), &mut stream).unwrap();
    }
    assert_eq!(words(&stream), ["SELECT 0", "HSET h a 1", "HSET h b 2"]);
    assert_eq!(transcoder.lost(), 2);
}

#[test]
fn peers_are_known_by_their_names() {
    for (text, peer) in [
        ("redis 6.2.14", Some(Peer::Redis62)),
        ("Redis 7.0.15", Some(Peer::Redis70)),
        ("redis-7.2", Some(Peer::Redis72)),
        ("redis 7.4.1", Some(Peer::Redis74)),
        ("redis 8", Some(Peer::Redis80)),
        ("valkey 7.2.5", Some(Peer::Valkey72)),
        ("valkey 8.1", Some(Peer::Valkey72)),
        ("valkey/9.0.0", Some(Peer::Valkey90)),
        ("redis 5.0", None),
        ("redis", None),
        ("other 7.0", None),
        ("redis x", None),
    ] {
        assert_eq!(Peer::parse(text), peer, "{text}");
    }
    assert_eq!(Peer::of_version_sent(b"8.1.0"), Some(Peer::Valkey72));
    assert_eq!(Peer::of_version_sent(b"9.0.2"), Some(Peer::Valkey90));
    assert_eq!(Peer::of_version_sent(b"\xff"), None);
}

fn stated() -> impl Strategy<Value = Stated> {
    let parts = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4);
    let names = prop::sample::select(vec![
        "SET k v",
        "SETETAG k 1",
        "SETIFGREATER k v 1 NOGET",
        "HSETEX h FIELDS 1 f v",
        "DEL k",
    ]);
    (
        0..3_u16,
        0..4_u64,
        prop_oneof![
            parts.prop_map(|parts| parts.into_iter().collect::<Vec<_>>()),
            names.prop_map(|line| line.split(' ').map(|it| it.as_bytes().to_vec()).collect())
        ],
    )
        .prop_map(|(database, generation, parts)| {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            Stated::new(database, generation, &parts)
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(stated(), 0..4).prop_map(Step::Effects),
        1 => Just(Step::Term),
        1 => Just(Step::Ping),
        1 => Just(Step::GetAck),
        1 => Just(Step::Silent),
    ]
}

proptest! {
    #[test]
    fn a_stream_is_the_same_wherever_it_is_taken_up(
        steps in prop::collection::vec(step(), 0..20),
        cut in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let whole = stream_of(Form::default(), &steps);
        // Another transcoder continues, and knows only the place.
        let cut = cut.index(steps.len() + 1);
        let mut first = Transcoder::new(Form::default(), Place::default());
        let mut stream = Vec::new();
        for step in &steps[..cut] {
            run(&mut first, step, &mut stream).unwrap();
        }
        let place = first.place();
        prop_assert_eq!(place.offset, stream.len() as u64);
        let mut second = Transcoder::new(Form::default(), place);
        for step in &steps[cut..] {
            run(&mut second, step, &mut stream).unwrap();
        }
        prop_assert_eq!(&stream, &whole);
        // A third one starts at any later byte, by dropping the bytes before it.
        let offset = usize::try_from(place.offset).unwrap();
        let from = offset + from.index(whole.len() - offset + 1);
        let mut skip = Skip::new(Vec::new(), (from - offset) as u64);
        let mut third = Transcoder::new(Form::default(), place);
        for step in &steps[cut..] {
            run(&mut third, step, &mut skip).unwrap();
        }
        prop_assert_eq!(skip.sink_mut().as_slice(), &whole[from..]);
    }

    #[test]
    fn what_is_hidden_takes_as_many_bytes(
        steps in prop::collection::vec(step(), 0..20),
        generation in 0..5_u64,
    ) {
        let whole = stream_of(Form::default(), &steps);
        let mut transcoder = Transcoder::new(Form::default(), Place::default());
        transcoder.hide(overlap(generation));
        let mut hiding = Vec::new();
        for step in &steps {
            run(&mut transcoder, step, &mut hiding).unwrap();
        }
        prop_assert_eq!(hiding.len(), whole.len());
        prop_assert_eq!(transcoder.place().offset, whole.len() as u64);
        let differs = hiding.iter().zip(&whole).filter(|(one, other)| one != other);
        prop_assert!(differs.map(|(one, _)| *one).all(|byte| byte == b'\n'));
        if generation == 0 {
            prop_assert_eq!(hiding, whole);
        }
    }
}

/// Returns an overlap with everything of older generations, at any position.
fn overlap(generation: u64) -> Overlap {
    let manifest = Manifest {
        generation,
        ..Manifest::default()
    };
    manifest.overlap()
}

/// Another primary has its own generations: its effects were mistaken for those in the checkpoint.
#[test]
fn what_comes_after_the_overlap_is_told_whatever_its_generation() {
    let steps = [b"a", b"b", b"c"].map(|key| {
        let parts: [&[u8]; 3] = [b"SET", key, b"1"];
        Step::Effects(vec![Stated::new(0, 1, &parts)])
    });
    let mut counting = Transcoder::new(Form::default(), Place::default());
    run(&mut counting, &steps[0], &mut Vec::new()).unwrap();
    let mut transcoder = Transcoder::new(Form::default(), Place::default());
    transcoder.hide(overlap(2).up_to(counting.place().sequence));
    let told = steps.each_ref().map(|step| {
        let mut out = Vec::new();
        run(&mut transcoder, step, &mut out).unwrap();
        out.windows(3).any(|bytes| bytes == b"SET")
    });
    assert_eq!(told, [false, true, true]);
}

/// A frame that one peer of a family cannot load takes as many bytes for it as for the others, or
/// ends its link.
#[test]
fn a_frame_that_cannot_be_said_is_not_passed_over_by_an_offset() {
    let mut payload = b"\0value".to_vec();
    payload.extend_from_slice(&[11, 0]);
    payload.extend_from_slice(&[0; 8]);
    let parts: [&[u8]; 6] = [b"RESTORE", b"k", b"0", &payload, b"ABSTTL", b"REPLACE"];
    let step = Step::Effects(vec![Stated::new(0, 1, &parts)]);
    let count = |form: Form, reader: Peer, hidden_below: u64| {
        let mut transcoder = Transcoder::new(form, Place::default()).for_reader(reader);
        transcoder.hide(overlap(hidden_below));
        let mut out = Vec::new();
        let done = run(&mut transcoder, &step, &mut out);
        done.map(|()| (transcoder.place().offset, out))
    };
    let form = Form::of(Peer::Redis70);
    let (offset, whole) = count(form, Peer::Valkey72, 0).unwrap();
    assert_eq!(offset, whole.len() as u64);
    assert!(count(form, Peer::Redis70, 0).is_err());
    // The checkpoint that was sent contains it.
    let (hidden, lines) = count(form, Peer::Redis70, u64::MAX).unwrap();
    assert_eq!((hidden, lines.len()), (offset, whole.len()));
    let loses = Form {
        allows_loss: true,
        ..form
    };
    assert_eq!(count(loses, Peer::Redis70, 0).unwrap().0, offset);
    // If no peer of the form can load it: one byte, sent only to a replica that has the effect from
    // elsewhere.
    let narrow = Form::of(Peer::Redis62);
    assert!(count(narrow, Peer::Redis62, 0).is_err());
    assert_eq!(
        count(narrow, Peer::Redis62, u64::MAX).unwrap(),
        (1, b"\n".to_vec())
    );
    let mut counter = Transcoder::new(narrow, Place::default());
    counter.unsaid(8);
    assert_eq!((counter.place().offset, counter.place().sequence), (1, 8));
    assert!(counter.trim().is_err());
}
