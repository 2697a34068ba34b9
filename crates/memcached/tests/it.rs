//! Tests of a client's input and replies at the memcached port. The server's replies are written by
//! hand.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use memcached::limits::{AHEAD_REQUESTS_MAX, GET_LINE_BYTES_MAX, LINE_BYTES_MAX};
use memcached::{Broken, Front, Read};
use protocol::{ReplyBuffer, Value, decode_value};

const NOW_UNIX_MS: u64 = 1_000_000;
const ITEM_BYTES_MAX: usize = 1024;

fn front() -> Front {
    Front::new(ITEM_BYTES_MAX, "1.6.0-test")
}

/// Returns the commands that wait, one per line.
fn commands(front: &Front) -> Vec<String> {
    let mut rest = front.requests();
    let mut lines = Vec::new();
    while let Ok(Some((Value::Array(words), taken))) = decode_value(rest) {
        let words = words.iter().map(|word| match word {
            Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
        rest = &rest[taken..];
    }
    assert!(rest.is_empty());
    lines
}

/// Returns the commands for an input, and the text after they are answered with `replies`.
fn exchange(input: &str, replies: &str) -> (Vec<String>, String) {
    let mut front = front();
    let read = front.read(input.as_bytes(), true, NOW_UNIX_MS);
    assert_eq!(read.consumed, input.len(), "{input:?}");
    let lines = commands(&front);
    (lines, answer(&mut front, replies).unwrap())
}

fn answer(front: &mut Front, replies: &str) -> Result<String, Broken> {
    let mut out = ReplyBuffer::new();
    front.answer(replies.as_bytes(), &mut out)?;
    Ok(String::from_utf8_lossy(out.as_slice()).into_owned())
}

/// Returns a reply of MCGET.
fn item(flags: u32, cas: u64, deadline: u64, value: &str) -> String {
    let (cas, len) = (cas.to_string(), value.len());
    let cas_len = cas.len();
    format!(
        "*5\r\n:{flags}\r\n${cas_len}\r\n{cas}\r\n:{deadline}\r\n:{len}\r\n${len}\r\n{value}\r\n"
    )
}

/// Returns a reply of MCGET with marks.
fn marked(marks: u8, flags: u32, cas: u64, deadline: u64, value: &str) -> String {
    let item = item(flags, cas, deadline, value);
    format!("*6{}:{marks}\r\n", &item[2..])
}

#[test]
fn items_are_asked_for_and_told_one_by_one() {
    let replies = format!("{}*-1\r\n{}", item(5, 9, 0, "one"), item(0, 0, 0, ""));
    let (lines, text) = exchange("gets a b c\r\n", &replies);
    assert_eq!(lines, ["MCGET a CAS", "MCGET b CAS", "MCGET c CAS"]);
    assert_eq!(text, "VALUE a 5 3 9\r\none\r\nVALUE c 0 0 0\r\n\r\nEND\r\n");
    let (lines, text) = exchange("gat 10 a\r\n", &item(1, 9, 0, "x"));
    assert_eq!(lines, ["MCGAT a 1010000"]);
    assert_eq!(text, "VALUE a 1 1\r\nx\r\nEND\r\n");
}

#[test]
fn an_error_ends_the_answer_of_a_line() {
    let replies = format!("-WRONGTYPE no\r\n{}*-1\r\n", item(0, 0, 0, "x"));
    let (_, text) = exchange("get a b\r\nget c\r\n", &replies);
    assert_eq!(text, "SERVER_ERROR WRONGTYPE no\r\nEND\r\n");
}

#[test]
fn keys_of_any_length_are_found_again() {
    for len in [1, 9, 10, 99, 100, 250] {
        let key = "k".repeat(len);
        let (_, text) = exchange(&format!("get {key}\r\n"), &item(0, 0, 0, "x"));
        assert_eq!(text, format!("VALUE {key} 0 1\r\nx\r\nEND\r\n"));
    }
}

#[test]
fn storing_says_what_became_of_it() {
    for (line, command) in [
        ("set k 7 0 1", "MCSET k v 7 0 SET"),
        ("add k 7 100 1", "MCSET k v 7 1100000 ADD"),
        ("replace k 7 -1 1", "MCSET k v 7 1 REPLACE"),
        ("append k 0 0 1", "MCSET k v 0 0 APPEND"),
        ("prepend k 0 0 1", "MCSET k v 0 0 PREPEND"),
        ("cas k 7 0 1 12", "MCSET k v 7 0 SET CAS 12"),
    ] {
        for status in ["STORED", "NOT_STORED", "EXISTS", "NOT_FOUND"] {
            let reply = format!("*2\r\n+{status}\r\n:5\r\n");
            let (lines, text) = exchange(&format!("{line}\r\nv\r\n"), &reply);
            assert_eq!(lines, [command]);
            assert_eq!(text, format!("{status}\r\n"));
            let (_, text) = exchange(&format!("{line} noreply\r\nv\r\n"), &reply);
            assert_eq!(text, "");
        }
    }
    let (_, text) = exchange("set k 0 0 1\r\nv\r\n", "-OOM no\r\n");
    assert_eq!(text, "SERVER_ERROR out of memory storing object\r\n");
    let (_, text) = exchange("set k 0 0 1\r\nv\r\n", "-NOPERM no\r\n");
    assert_eq!(text, "CLIENT_ERROR NOPERM no\r\n");
}

#[test]
fn what_is_refused_takes_its_data_with_it() {
    let long = "x".repeat(ITEM_BYTES_MAX + 1);
    let over = ITEM_BYTES_MAX + 1;
    let key = "k".repeat(251);
    for (input, text) in [
        (
            format!("set k 0 0 {over}\r\n{long}\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        ),
        (
            format!("set {key} 0 0 3\r\nget\r\n"),
            "CLIENT_ERROR bad command line format\r\n",
        ),
        (
            "set k x 0 3\r\nget\r\n".to_owned(),
            "CLIENT_ERROR bad command line format\r\n",
        ),
        (
            "set k 0 0 3\r\nlonge".to_owned(),
            "CLIENT_ERROR bad data chunk\r\n",
        ),
        (
            format!("ms k {over}\r\n{long}\r\n"),
            "SERVER_ERROR object too large for cache\r\n",
        ),
        (
            "ms k 3 Q\r\nget\r\n".to_owned(),
            "CLIENT_ERROR invalid flag\r\n",
        ),
    ] {
        let (lines, told) = exchange(&format!("{input}\r\n"), "");
        assert_eq!(lines, [""; 0], "{input}");
        assert_eq!(told, format!("{text}ERROR\r\n"), "{input}");
    }
}

#[test]
fn counting_deleting_and_touching() {
    let counted = "*3\r\n+STORED\r\n$2\r\n12\r\n:5\r\n";
    let (lines, text) = exchange("incr k 5\r\n", counted);
    assert_eq!(
        (lines.join(""), text.as_str()),
        ("MCINCR k INCR 5".to_owned(), "12\r\n")
    );
    let (lines, text) = exchange("decr k 5\r\n", "*3\r\n+NOT_FOUND\r\n$1\r\n0\r\n:0\r\n");
    assert_eq!(
        (lines.join(""), text.as_str()),
        ("MCINCR k DECR 5".to_owned(), "NOT_FOUND\r\n")
    );
    let refused = "-ERR cannot increment or decrement non-numeric value\r\n";
    let (_, text) = exchange("incr k 5\r\n", refused);
    assert_eq!(
        text,
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"
    );
    let (_, text) = exchange("incr k -5\r\n", "");
    assert_eq!(text, "CLIENT_ERROR invalid numeric delta argument\r\n");
    let (lines, text) = exchange(
        "delete k\r\ndelete k 0 noreply\r\n",
        "+DELETED\r\n+NOT_FOUND\r\n",
    );
    assert_eq!(
        (lines.join(";"), text.as_str()),
        ("MCDEL k;MCDEL k".to_owned(), "DELETED\r\n")
    );
    let replies = format!("{}*-1\r\n", item(0, 0, 0, ""));
    let (lines, text) = exchange("touch k 1\r\ntouch k 0\r\n", &replies);
    assert_eq!(lines, ["MCGAT k 1001000 NOVALUE", "MCGAT k 0 NOVALUE"]);
    assert_eq!(text, "TOUCHED\r\nNOT_FOUND\r\n");
}

#[test]
fn meta_commands_return_what_was_asked_for() {
    let (lines, text) = exchange(
        "mg k s v t c f O12 k\r\n",
        &marked(0, 7, 9, NOW_UNIX_MS + 5_000, "ab"),
    );
    assert_eq!(lines, ["MCGET k MARKS CAS"]);
    assert_eq!(text, "VA 2 s2 t5 c9 f7 O12 kk\r\nab\r\n");
    let (lines, text) = exchange("mg k t\r\n", &marked(0, 7, 9, 0, "ab"));
    assert_eq!(
        (lines.join(""), text.as_str()),
        ("MCGET k MARKS NOVALUE".to_owned(), "HD t-1\r\n")
    );
    let (_, text) = exchange("mg k v\r\nmg k v q\r\nmn\r\n", "*-1\r\n*-1\r\n");
    assert_eq!(text, "EN\r\nMN\r\n");
    let (lines, text) = exchange("ms k 2 T0 F5 C3 c MR\r\nhi\r\n", "*2\r\n+STORED\r\n:4\r\n");
    assert_eq!(lines, ["MCSET k hi 5 0 REPLACE CAS 3"]);
    assert_eq!(text, "HD c4\r\n");
    let replies = "*2\r\n+STORED\r\n:4\r\n*2\r\n+EXISTS\r\n:0\r\n";
    let (_, text) = exchange("ms k 1 q\r\nx\r\nms k 1 q O9\r\nx\r\n", replies);
    assert_eq!(text, "EX O9\r\n");
    let (lines, text) = exchange("md k C5 q\r\nmd k\r\n", "+NOT_FOUND\r\n+NOT_FOUND\r\n");
    assert_eq!(
        (lines.join(";"), text.as_str()),
        ("MCDEL k CAS 5;MCDEL k".to_owned(), "NF\r\n")
    );
    let counted = "*3\r\n+STORED\r\n$2\r\n12\r\n:5\r\n";
    let (lines, text) = exchange("ma k N10 J5 D3 MD v c\r\n", counted);
    assert_eq!(lines, ["MCINCR k DECR 3 INIT 5 1010000"]);
    assert_eq!(text, "VA 2 c5\r\n12\r\n");
    // The key a2V5 is base64 for "key".
    let (lines, text) = exchange("mg a2V5 b k v\r\n", &marked(0, 0, 0, 0, "x"));
    assert_eq!(
        (lines.join(""), text.as_str()),
        ("MCGET key MARKS".to_owned(), "VA 1 b ka2V5\r\nx\r\n")
    );
    let (_, text) = exchange("mg k E30\r\n", "");
    assert_eq!(text, "CLIENT_ERROR flag is not served\r\n");
}

#[test]
fn a_flush_may_be_for_later() {
    for (line, command) in [
        ("flush_all\r\n", "FLUSHDB"),
        ("flush_all 0 noreply\r\n", "FLUSHDB"),
        ("flush_all -1\r\n", "FLUSHDB"),
        ("flush_all 10\r\n", "MCFLUSH 1010000"),
        ("flush_all 10 noreply\r\n", "MCFLUSH 1010000"),
    ] {
        let (lines, text) = exchange(line, "+OK\r\n");
        assert_eq!(lines, [command], "{line}");
        assert_eq!(text.is_empty(), line.contains("noreply"), "{line}");
    }
    let (_, text) = exchange("flush_all x\r\n", "");
    assert_eq!(text, "CLIENT_ERROR invalid exptime argument\r\n");
}

#[test]
fn whoever_is_told_to_fetch_an_item_is_one() {
    let requests = [
        (
            "mg k v N30 R10 T60 c\r\n",
            "MCWIN k PXAT 1060000 VIVIFY 1030000 RECACHE 1010000 CAS",
        ),
        ("md k I T30\r\n", "MCDEL k STALE PXAT 1030000"),
        ("md k x\r\n", "MCDEL k EMPTY"),
    ];
    for (line, command) in requests {
        let mut front = front();
        front.read(line.as_bytes(), true, NOW_UNIX_MS);
        assert_eq!(commands(&front), [command], "{line}");
    }
    let (lines, _) = exchange("ms k 1 C9 I\r\nx\r\n", "*2\r\n+STORED\r\n:9\r\n");
    assert_eq!(lines, ["MCSET k x 0 0 SET CAS 9 STALE"]);
    // Created for this client; another client has won already; outdated, and another client has
    // won.
    for (marks, told) in [(6, "W"), (2, "Z"), (3, "X Z"), (5, "W X")] {
        let (_, text) = exchange("mg k v N30\r\n", &marked(marks, 0, 2, 0, ""));
        assert_eq!(text, format!("VA 0 {told}\r\n\r\n"));
    }
}

/// If an item is outdated and no client fetches it, it is requested again with a chance to win.
/// Everything after it waits.
#[test]
fn an_item_that_is_out_of_date_is_asked_for_once_more() {
    let mut front = front();
    front.read(b"mg a v c\r\nmg b\r\nget c\r\n", true, NOW_UNIX_MS);
    let first = front.requests().len();
    front.note_run(first);
    let replies = [
        marked(1, 7, 9, 0, "old"),
        marked(1, 0, 9, 0, "x"),
        item(0, 1, 0, "c"),
    ];
    assert_eq!(answer(&mut front, &replies.concat()).unwrap(), "");
    assert_eq!(commands(&front), ["MCWIN a CAS"]);
    assert!(front.is_owed());
    // No command has run, so no text is written.
    assert_eq!(answer(&mut front, "").unwrap(), "");
    front.note_run(front.requests().len());
    let won = marked(5, 7, 10, 0, "old");
    assert_eq!(answer(&mut front, &won).unwrap(), "VA 3 c10 W X\r\nold\r\n");
    assert_eq!(commands(&front), ["MCWIN b NOVALUE"]);
    front.note_run(front.requests().len());
    // On a server that refuses writes, no client wins.
    let told = answer(&mut front, "-READONLY no\r\n").unwrap();
    assert_eq!(told, "HD X Z\r\nVALUE c 0 1\r\nc\r\nEND\r\n");
    assert!(!front.is_owed());
}

/// Otherwise commands that have not run, or that run elsewhere, would be answered before the
/// repeated one.
#[test]
fn nothing_is_asked_for_once_more_while_others_wait() {
    let stale = marked(1, 0, 9, 0, "x");
    let mut front = front();
    front.read(b"mg a\r\nset b 0 0 1\r\nb\r\n", true, NOW_UNIX_MS);
    let end = front
        .requests()
        .windows(5)
        .position(|some| some == b"MCSET");
    front.note_run(end.unwrap() - "*5\r\n$5\r\n".len());
    assert_eq!(answer(&mut front, &stale).unwrap(), "HD X\r\n");
    assert_eq!(commands(&front).len(), 1, "the other request");
    front.note_run(front.requests().len());
    let stored = answer(&mut front, "*2\r\n+STORED\r\n:9\r\n");
    assert_eq!(stored.unwrap(), "STORED\r\n");
    // All commands have run, but the last one has not been answered yet.
    front.read(b"mg a\r\nget c\r\nflush_all\r\n", true, NOW_UNIX_MS);
    front.note_run(front.requests().len());
    let replies = [stale, item(0, 1, 0, "c")].concat();
    let told = answer(&mut front, &replies).unwrap();
    assert_eq!(told, "HD X\r\nVALUE c 0 1\r\nc\r\nEND\r\n");
    assert_eq!(answer(&mut front, "+OK\r\n").unwrap(), "OK\r\n");
    assert!(!front.is_owed());
}

#[test]
fn nothing_runs_before_a_client_is_logged_in() {
    let mut front = front();
    let read = front.read(b"get a\r\n", false, NOW_UNIX_MS);
    assert_eq!((read.consumed, front.requests()), (7, &b""[..]));
    assert_eq!(
        answer(&mut front, "").unwrap(),
        "CLIENT_ERROR unauthenticated\r\n"
    );
    let read = front.read(
        b"set x 0 0 11\r\nalice pa ss\r\nget a\r\n",
        false,
        NOW_UNIX_MS,
    );
    assert_eq!(commands(&front), ["AUTH alice pa ss"]);
    assert_eq!(read.consumed, 27);
    assert_eq!(answer(&mut front, "+OK\r\n").unwrap(), "STORED\r\n");
    front.read(b"set x 0 0 1\r\na\r\n", false, NOW_UNIX_MS);
    let told = answer(&mut front, "-WRONGPASS no\r\n").unwrap();
    assert_eq!(told, "CLIENT_ERROR authentication failure\r\n");
}

#[test]
fn input_comes_in_any_pieces() {
    let input = b"set k 0 0 3\r\na\r\n\r\nget k\r\n";
    for cut in 0..input.len() {
        let mut front = front();
        let mut lines = Vec::new();
        let mut done = 0;
        for end in [cut, input.len()] {
            loop {
                let Read { consumed, .. } = front.read(&input[done..end], true, NOW_UNIX_MS);
                lines.extend(commands(&front));
                answer_all(&mut front);
                done += consumed;
                if consumed == 0 {
                    break;
                }
            }
        }
        assert_eq!(lines, ["MCSET k a\r\n 0 0 SET", "MCGET k"]);
    }
}

/// Answers all waiting commands as if all keys were absent.
fn answer_all(front: &mut Front) {
    let replies: String = commands(front)
        .iter()
        .map(|line| match line.split(' ').next() {
            Some("MCSET") => "*2\r\n+STORED\r\n:1\r\n",
            _ => "*-1\r\n",
        })
        .collect();
    answer(front, &replies).unwrap();
}

#[test]
fn limits_hold() {
    let mut front = front();
    let long = vec![b'x'; LINE_BYTES_MAX + 1];
    assert!(front.read(&long, true, NOW_UNIX_MS).is_over);
    assert_eq!(
        answer(&mut front, "").unwrap(),
        "CLIENT_ERROR line too long\r\n"
    );
    let many = [b"get ".as_slice(), &vec![b'x'; GET_LINE_BYTES_MAX]].concat();
    assert!(front.read(&many, true, NOW_UNIX_MS).is_over);
    answer(&mut front, "").unwrap();
    let versions = "version\r\n".repeat(2 * AHEAD_REQUESTS_MAX);
    let read = front.read(versions.as_bytes(), true, NOW_UNIX_MS);
    assert_eq!(read.consumed, versions.len() / 2);
}

#[test]
fn replies_of_other_requests_are_noticed() {
    let mut front = front();
    front.read(b"get a\r\n", true, NOW_UNIX_MS);
    assert_eq!(answer(&mut front, "+OK\r\n"), Err(Broken));
    front = self::front();
    front.read(b"get a\r\n", true, NOW_UNIX_MS);
    assert_eq!(answer(&mut front, "*-1\r\n*-1\r\n"), Err(Broken));
}

#[test]
fn statistics_come_from_info() {
    let info = "process_id:12\r\nserver_time_usec:1700000000999999\r\nworker_threads:2\r\nkeyspace_hits:3\r\ncmdstat_mcget:calls=4,usec=1\r\ndb0:keys=2,expires=0\r\n";
    let reply = format!("${}\r\n{info}\r\n", info.len());
    let (lines, text) = exchange("stats\r\n", &reply);
    assert_eq!(lines, ["INFO everything"]);
    for line in [
        "STAT version 1.6.0-test\r\n",
        "STAT time 1700000000\r\n",
        "STAT threads 2\r\n",
        "STAT pid 12\r\n",
        "STAT get_hits 3\r\n",
        "STAT cmd_get 4\r\n",
        "STAT curr_items 2\r\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.ends_with("\r\nEND\r\n"));
}
