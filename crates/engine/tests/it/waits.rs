//! Requests that wait, with several clients of one engine.

use engine::waiting::{milliseconds, seconds};
use store::Hold;

use testkit::engine_server::TestServer;

#[test]
fn seconds_are_rounded_up_to_milliseconds() {
    let ms = |text: &str| seconds(text.as_bytes(), 1_700_000_000_000);
    assert_eq!(ms("0"), Ok(None));
    assert_eq!(ms("-0.0001"), Ok(None));
    assert_eq!(ms("0.0001"), Ok(Some(1)));
    assert_eq!(ms("1.0005"), Ok(Some(1001)));
    assert_eq!(ms("0x10"), Ok(Some(16_000)));
    let text = |text: &str| String::from_utf8(ms(text).unwrap_err().text().into_owned());
    assert_eq!(text("-1").as_deref(), Ok("ERR timeout is negative"));
    assert_eq!(text("-inf").as_deref(), Ok("ERR timeout is negative"));
    assert_eq!(text("inf").as_deref(), Ok("ERR timeout is out of range"));
    let longest = "9223372036854775";
    assert_eq!(text(longest).as_deref(), Ok("ERR timeout is out of range"));
    let no_number = Ok("ERR timeout is not a float or out of range");
    assert_eq!(text("nan").as_deref(), no_number);
    assert_eq!(text(" 1").as_deref(), no_number);
    assert_eq!(text("").as_deref(), no_number);
    // Beyond doubles, and beyond what Redis reads.
    assert_eq!(text("1e400").as_deref(), Ok("ERR timeout is out of range"));
    assert_eq!(text("-1e400").as_deref(), Ok("ERR timeout is negative"));
    assert_eq!((ms("1e-400"), ms("-1e-400")), (Ok(Some(1)), Ok(None)));
    assert_eq!(text("1e5000").as_deref(), no_number);
    assert_eq!(text("1e-5000").as_deref(), no_number);
}

#[test]
fn milliseconds_are_whole() {
    let ms = |text: &str| milliseconds(text.as_bytes(), 1_700_000_000_000);
    assert_eq!((ms("0"), ms("5")), (Ok(None), Ok(Some(5))));
    let text = |text: &str| String::from_utf8(ms(text).unwrap_err().text().into_owned());
    assert_eq!(text("-1").as_deref(), Ok("ERR timeout is negative"));
    assert_eq!(
        text("1.5").as_deref(),
        Ok("ERR timeout is not an integer or out of range")
    );
    assert_eq!(
        text("9223372036854775807").as_deref(),
        Ok("ERR timeout is out of range")
    );
}

/// Returns the clients' replies as text.
fn answers(server: &mut TestServer) -> Vec<String> {
    let answers = server.answers().into_iter();
    answers
        .map(|(id, reply)| format!("{id}: {reply}"))
        .collect()
}

#[test]
fn who_waits_is_served_in_turn_and_effects_replay() {
    let mut server = TestServer::new();
    server.client(2).wait("BLPOP q 0");
    server.client(3).wait("BLMOVE q r LEFT RIGHT 0");
    server.client(4).wait("BRPOP none r 1");
    server.client(5).wait("BLMPOP 0 2 q s RIGHT COUNT 5");
    assert_eq!(server.client(1).integer("RPUSH q 1 2 3 4"), 4);
    assert_eq!(
        answers(&mut server),
        [
            "2: [\"q\", \"1\"]",
            "3: \"2\"",
            "5: [\"q\", [\"4\", \"3\"]]",
            "4: [\"r\", \"2\"]",
        ]
    );
    assert_eq!(
        server.effects(),
        [
            "RPUSH q 1 2 3 4",
            "LPOP q",
            "LMOVE q r LEFT RIGHT",
            "RPOP q 2",
            "RPOP r"
        ]
    );
    server.client(2).wait("BZPOPMIN z y 0");
    server.client(3).wait("BZMPOP 0 1 y MAX COUNT 2");
    server.client(1).run("ZADD y 1 a 2 b 3 c 4 d");
    assert_eq!(
        answers(&mut server),
        [
            "2: [\"y\", \"a\", \"1\"]",
            "3: [\"y\", [[\"d\", \"4\"], [\"c\", \"3\"]]]"
        ]
    );
    assert_eq!(server.counts("blpop"), (1, 0));
    assert_eq!(server.counts("bzmpop"), (1, 0));
    server.assert_effects_replay();
}

#[test]
fn nothing_is_taken_for_who_gave_up() {
    let mut server = TestServer::new();
    server.client(2).wait("BLPOP q 1");
    assert!(server.gives_up() && !server.gives_up());
    assert_eq!(server.integer("RPUSH q 1"), 1);
    assert_eq!(server.integer("LLEN q"), 1);
    assert_eq!(answers(&mut server), [""; 0]);
    server.client(3).wait("BLPOP p 1");
    server.client(1).run("RPUSH p 1");
    assert!(!server.client(3).gives_up());
    assert_eq!(answers(&mut server), ["3: [\"p\", \"1\"]"]);
}

#[test]
fn a_wait_can_be_ended_by_others() {
    let mut server = TestServer::new();
    server.client(2).wait("BLPOP q 0");
    server.client(3).wait("WAIT 1 0");
    server.client(4).wait("BLMOVE q r LEFT LEFT 0");
    server.client(1);
    assert_eq!(server.integer("CLIENT UNBLOCK 2"), 1);
    assert_eq!(server.integer("CLIENT UNBLOCK 2"), 0);
    assert_eq!(server.integer("CLIENT UNBLOCK 3 TIMEOUT"), 1);
    assert_eq!(server.integer("CLIENT UNBLOCK 4 ERROR"), 1);
    assert_eq!(server.integer("CLIENT UNBLOCK 1"), 0);
    assert_eq!(
        answers(&mut server),
        [
            "2: (nil-array)",
            "3: :0",
            "4: -UNBLOCKED client unblocked via CLIENT UNBLOCK"
        ]
    );
    assert_eq!(server.counts("wait"), (1, 0));
    assert_eq!(server.counts("blmove"), (1, 1));
    server.run("RPUSH q 1");
    assert_eq!(server.integer("LLEN q"), 1);
}

#[test]
fn a_reader_waits_for_what_comes_behind_the_last_entry() {
    let mut server = TestServer::new();
    server.run("XADD s 1 a 1");
    server
        .client(2)
        .wait("XREAD COUNT 1 BLOCK 0 STREAMS s t $ 5");
    server.client(3).wait("XREAD BLOCK 0 STREAMS t s 0 1-1");
    server.client(1).run("XADD s 1-1 a 2");
    server.run("DEL s");
    server.run("SET s v");
    server.run("DEL s");
    server.run("XADD s 2 a 3");
    assert_eq!(
        answers(&mut server),
        [
            "2: [[\"s\", [[\"1-1\", [\"a\", \"2\"]]]]]",
            "3: [[\"s\", [[\"2-0\", [\"a\", \"3\"]]]]]"
        ]
    );
}

#[test]
fn consumers_share_out_what_comes() {
    let mut server = TestServer::new();
    server.run("XGROUP CREATE s g $ MKSTREAM");
    for client in 2..=4 {
        let line = format!("XREADGROUP GROUP g c{client} BLOCK 0 STREAMS s >");
        server.client(client).wait(&line);
    }
    server.client(1).run("XADD s 1 a 1");
    assert_eq!(
        answers(&mut server),
        ["2: [[\"s\", [[\"1-0\", [\"a\", \"1\"]]]]]"]
    );
    server.run("XADD s 2 a 2");
    assert_eq!(
        answers(&mut server),
        ["3: [[\"s\", [[\"2-0\", [\"a\", \"2\"]]]]]"]
    );
    server.run("XGROUP DESTROY s g");
    let gone = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    assert_eq!(answers(&mut server), [format!("4: {gone}")]);
    server.assert_effects_replay();
}

#[test]
fn a_consumer_is_told_that_its_stream_is_gone() {
    for (lines, expected) in [
        ("DEL s", "-NOGROUP No such key 's' or consumer group 'g'"),
        ("RENAME s t", "-NOGROUP "),
        ("FLUSHALL", "-NOGROUP "),
        ("SWAPDB 0 1", "-NOGROUP "),
        ("MOVE s 1", "-NOGROUP "),
        ("PEXPIRE s -1", "-NOGROUP "),
        ("SET s v", "-WRONGTYPE "),
    ] {
        let mut server = TestServer::new();
        server.run("XGROUP CREATE s g $ MKSTREAM");
        let line = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >";
        server.client(2).wait(line);
        server.client(1).run(lines);
        let answers = answers(&mut server);
        let fits = answers.len() == 1 && answers[0].starts_with(&format!("2: {expected}"));
        assert!(fits, "{lines}: {answers:?}");
    }
}

#[test]
fn a_stream_whose_time_has_come_ends_the_wait() {
    let mut server = TestServer::new();
    server.run("XGROUP CREATE s g $ MKSTREAM");
    server.run("PEXPIRE s 100");
    server
        .client(2)
        .wait("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    server.advance_ms(101);
    server.tick();
    assert_eq!(answers(&mut server).len(), 1);
}

/// Returns the name of a key that can be held while `key` is used. Keys in one bucket wait for each
/// other, and the distribution of hashes changes with each run.
fn name_outside_the_bucket_of(server: &mut TestServer, key: &str) -> String {
    let (mut holder, mut other) = (server.another_handle(), server.another_handle());
    let key = holder.key(0, key.as_bytes());
    let is_outside = |name: &String| {
        let beside = other.key(0, name.as_bytes());
        let held = holder.try_locked(&[key], Hold::Long, |_| {
            other.try_locked(&[beside], Hold::Short, |_| ()).is_ok()
        });
        held.ok() == Some(true)
    };
    let mut names = (0..100).map(|n| format!("busy{n}"));
    names.find(is_outside).expect("more than one bucket")
}

#[test]
fn who_waits_for_a_key_that_is_held_for_long_is_served_later() {
    let mut server = TestServer::of_worker();
    let mut holder = server.another_handle();
    let name = name_outside_the_bucket_of(&mut server, "q");
    let busy = holder.key(0, name.as_bytes());
    server.client(2).wait(&format!("BLPOP q {name} 0"));
    server.client(3).wait("BLPOP q 0");
    server.client(1);
    let held = holder.try_locked(&[busy], Hold::Long, |_| {
        assert_eq!(server.integer("RPUSH q 1 2 3"), 3);
        assert_eq!(server.integer("LLEN q"), 3);
        // No new request is served before the waiting ones.
        server.client(4).wait("BRPOP q 0");
        server.client(1).tick();
        assert_eq!(answers(&mut server), [""; 0]);
    });
    assert!(held.is_ok());
    server.tick();
    assert_eq!(
        answers(&mut server),
        [
            "2: [\"q\", \"1\"]",
            "3: [\"q\", \"2\"]",
            "4: [\"q\", \"3\"]"
        ]
    );
}
