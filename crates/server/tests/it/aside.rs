//! Tests of commands over many elements, which run beside the workers: replies keep their order,
//! each command is one step for all clients, and other clients are served meanwhile.

use protocol::Value;
use testkit::client::{Client, Received};
use testkit::process::{Server, ServerBuilder};

use crate::limits::eventually;

/// Number of members of each set: so many that no worker processes all of them itself.
const MEMBERS: usize = 60_000;

fn start() -> Server {
    let args = ["--threads", "1"];
    ServerBuilder::iolite().args(&args).start().unwrap()
}

fn integer(client: &mut Client, line: &str) -> i64 {
    let words: Vec<&str> = line.split(' ').collect();
    match client.command(&words).unwrap() {
        Value::Integer(number) => number,
        other => panic!("{line}: {other:?}"),
    }
}

/// Fills `key` with the members from `first` on, by `command`, for which `part` makes each member's
/// arguments.
fn fill(client: &mut Client, command: &str, key: &str, first: usize, part: fn(usize) -> String) {
    for start in (first..first + MEMBERS).step_by(500) {
        let mut words = vec![command.to_owned(), key.to_owned()];
        for number in start..start + 500 {
            words.extend(part(number).split(' ').map(str::to_owned));
        }
        client.command(&words).unwrap();
    }
}

fn sets() -> (Server, Client) {
    let server = start();
    let mut client = server.client().unwrap();
    fill(&mut client, "SADD", "a", 0, |number| format!("m{number}"));
    fill(&mut client, "SADD", "b", MEMBERS / 2, |number| {
        format!("m{number}")
    });
    (server, client)
}

#[test]
fn sets_are_combined_and_replies_keep_their_order() {
    let (_server, mut client) = sets();
    let lines = [
        ("SUNIONSTORE u a b", MEMBERS * 3 / 2),
        ("SCARD u", MEMBERS * 3 / 2),
        ("SINTERSTORE i a b", MEMBERS / 2),
        ("SDIFFSTORE d a b", MEMBERS / 2),
        ("SINTERCARD 2 d i", 0),
        ("ZUNIONSTORE z 2 a b", MEMBERS * 3 / 2),
        ("ZRANGESTORE y z 0 -1", MEMBERS * 3 / 2),
        ("ZREMRANGEBYRANK y 5 -6", MEMBERS * 3 / 2 - 10),
        ("ZCARD y", 10),
    ];
    let requests = lines.map(|(line, _)| line.split(' ').collect::<Vec<_>>());
    for request in &requests {
        client.send(request).unwrap();
    }
    for (line, expected) in lines {
        let expected = Value::Integer(i64::try_from(expected).unwrap());
        assert_eq!(client.receive().unwrap().unwrap(), expected, "{line}");
    }
}

#[test]
fn long_replies_come_whole() {
    let (_server, mut client) = sets();
    let Value::Array(mut members) = client.command(&["SMEMBERS", "a"]).unwrap() else {
        panic!("no array");
    };
    assert_eq!(
        client.command(&["PING"]).unwrap(),
        Value::Simple("PONG".into())
    );
    let text = |member: &Value| match member {
        Value::Bulk(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    members.sort_by_key(text);
    members.dedup();
    assert_eq!(members.len(), MEMBERS);
    fill(&mut client, "RPUSH", "l", 0, |number| number.to_string());
    let Value::Array(elements) = client.command(&["LRANGE", "l", "0", "-1"]).unwrap() else {
        panic!("no array");
    };
    let numbers = (0..MEMBERS).map(|number| Value::Bulk(number.to_string().into_bytes()));
    assert!(elements.into_iter().eq(numbers));
}

#[test]
fn what_shares_many_nodes_is_copied_aside() {
    let server = start();
    let mut client = server.client().unwrap();
    let one_a_node = ["CONFIG", "SET", "list-max-listpack-size", "1"];
    client.command(&one_a_node).unwrap();
    fill(&mut client, "RPUSH", "l", 0, |number| number.to_string());
    let members = i64::try_from(MEMBERS).unwrap();
    assert_eq!(integer(&mut client, "COPY l copy"), 1);
    assert_eq!(integer(&mut client, "COPY l copy"), 0);
    assert_eq!(integer(&mut client, "RPUSH l more"), members + 1);
    assert_eq!(integer(&mut client, "LLEN copy"), members);
    assert_eq!(integer(&mut client, "COPY l copy REPLACE"), 1);
    assert_eq!(integer(&mut client, "LLEN copy"), members + 1);
}

#[test]
fn streams_are_read_aside() {
    let server = start();
    let mut client = server.client().unwrap();
    let entries = 12_000;
    let appends: Vec<Vec<String>> = (1..=entries)
        .map(|number| {
            ["XADD", "s", &number.to_string(), "f", "v"]
                .map(str::to_owned)
                .to_vec()
        })
        .collect();
    for part in appends.chunks(500) {
        let part: Vec<&[String]> = part.iter().map(Vec::as_slice).collect();
        client.pipeline(&part).unwrap();
    }
    client
        .command(&["XGROUP", "CREATE", "s", "g", "0"])
        .unwrap();
    let requests = [
        "XRANGE s - +",
        "XREVRANGE s + - COUNT 9000",
        "XREAD STREAMS s 0",
        "XREADGROUP GROUP g c COUNT 11000 STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c STREAMS s >",
        "XINFO STREAM s FULL COUNT 0",
        "XRANGE s - + COUNT 3",
    ];
    for line in requests {
        let words: Vec<&str> = line.split(' ').collect();
        client.send(&words).unwrap();
    }
    let list = |value: Value| match value {
        Value::Array(items) => items,
        other => panic!("{other:?}"),
    };
    let first = |value: Value| list(value).into_iter().next().unwrap();
    let entry_number = |entry: &Value| match first(entry.clone()) {
        Value::Bulk(id) => String::from_utf8(id).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut replies = requests
        .map(|_| client.receive().unwrap().unwrap())
        .into_iter();
    let mut next = || replies.next().unwrap();
    let all = list(next());
    assert_eq!(all.len(), entries);
    assert_eq!(entry_number(&all[0]), "1-0");
    let last = list(next());
    assert_eq!(last.len(), 9_000);
    assert_eq!(entry_number(&last[0]), "12000-0");
    for expected in [entries, 11_000, 11_000, 1_000] {
        let stream = list(first(next()));
        assert_eq!(list(stream[1].clone()).len(), expected);
    }
    let info = list(next());
    let entries_told = info
        .iter()
        .position(|one| *one == Value::Bulk(b"entries".to_vec()));
    assert_eq!(list(info[entries_told.unwrap() + 1].clone()), all);
    assert_eq!(list(next()), all[..3]);
}

/// A writer continuously moves members between two sets. The union of both has the same size at
/// every moment, whether an offloaded command or a worker computes it.
#[test]
fn others_see_all_of_it_or_nothing() {
    let (server, mut client) = sets();
    let moves = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut mover = server.client().unwrap();
            mover.command(&["SET", "begun", "1"]).unwrap();
            let mut moves = 0;
            while moves == 0 || integer(&mut mover, "EXISTS stop") == 0 {
                for number in 0..MEMBERS / 2 {
                    if number % 64 == 0 && integer(&mut mover, "EXISTS stop") == 1 {
                        break;
                    }
                    let (from, to) = if moves % 2 == 0 {
                        ("a", "b")
                    } else {
                        ("b", "a")
                    };
                    integer(&mut mover, &format!("SMOVE {from} {to} m{number}"));
                }
                moves += 1;
            }
            moves
        });
        let mut pinger = server.client().unwrap();
        eventually("the mover is there", || {
            integer(&mut pinger, "EXISTS begun") == 1
        });
        for _ in 0..5 {
            let expected = i64::try_from(MEMBERS * 3 / 2).unwrap();
            assert_eq!(integer(&mut client, "SUNIONSTORE u a b"), expected);
            assert_eq!(
                pinger.command(&["PING"]).unwrap(),
                Value::Simple("PONG".into())
            );
            assert_eq!(integer(&mut pinger, "SCARD u"), expected);
            assert_eq!(integer(&mut client, "SDIFFSTORE e u a b"), 0);
        }
        client.command(&["SET", "stop", "1"]).unwrap();
        mover.join().unwrap()
    });
    assert!(moves > 0);
}

/// A command over all keys waits for the thread that holds some of them, and does not delay other
/// clients.
#[test]
fn a_flush_waits_for_its_turn() {
    let (server, mut client) = sets();
    let mut other = server.client().unwrap();
    client.send(&["SUNIONSTORE", "u", "a", "b"]).unwrap();
    other.send(&["KEYS", "*"]).unwrap();
    other.send(&["FLUSHALL"]).unwrap();
    other.send(&["DBSIZE"]).unwrap();
    let mut pinger = server.client().unwrap();
    assert_eq!(
        pinger.command(&["PING"]).unwrap(),
        Value::Simple("PONG".into())
    );
    assert!(matches!(
        client.receive().unwrap().unwrap(),
        Value::Integer(_)
    ));
    assert!(matches!(other.receive().unwrap().unwrap(), Value::Array(_)));
    assert_eq!(
        other.receive().unwrap().unwrap(),
        Value::Simple("OK".into())
    );
    assert_eq!(other.receive().unwrap().unwrap(), Value::Integer(0));
}

/// A client may disconnect while its command runs.
#[test]
fn the_client_may_leave() {
    let (server, mut client) = sets();
    client.send(&["SUNIONSTORE", "u", "a", "b"]).unwrap();
    drop(client);
    let mut other = server.client().unwrap();
    let union = i64::try_from(MEMBERS * 3 / 2).unwrap();
    eventually("the command is done", || {
        integer(&mut other, "SCARD u") == union
    });
}

/// Whole transactions are offloaded: long ones, and those that read much before they write. Watches
/// work, replies keep their order, and other clients see all of a transaction or nothing.
#[test]
fn transactions_run_aside_as_one_step() {
    let (server, mut client) = sets();
    let mut other = server.client().unwrap();
    let exec = |client: &mut Client, lines: &[String]| {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            client.send(&words).unwrap();
        }
        client.send(&["EXEC"]).unwrap();
        client.send(&["PING"]).unwrap();
        for _ in lines {
            client.receive().unwrap();
        }
        let reply = client.receive().unwrap().unwrap();
        let pong = client.receive().unwrap().unwrap();
        assert_eq!(pong, Value::Simple("PONG".into()));
        reply
    };
    let multi = |lines: &[&str]| -> Vec<String> {
        let begin = ["MULTI"].into_iter();
        begin
            .chain(lines.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    let reading = multi(&["SCARD a", "SUNION a b", "SET written 1"]);
    let Value::Array(replies) = exec(&mut client, &reading) else {
        panic!("no array");
    };
    assert!(
        matches!(&replies[1], Value::Set(all) | Value::Array(all) if all.len() == MEMBERS * 3 / 2)
    );
    assert_eq!(replies[2], Value::Simple("OK".into()));
    // This transaction writes first, so it cannot be offloaded later.
    let writing = multi(&["SET written 2", "SUNIONSTORE c a b", "GET written"]);
    let Value::Array(replies) = exec(&mut client, &writing) else {
        panic!("no array");
    };
    assert_eq!(replies[2], Value::Bulk("2".into()));
    let mut long = multi(&[]);
    long.extend((0..3_000).map(|_| "INCR count".to_owned()));
    let Value::Array(replies) = exec(&mut client, &long) else {
        panic!("no array");
    };
    assert_eq!(replies[2_999], Value::Integer(3_000));
    for changed in [false, true] {
        client.command(&["WATCH", "a", "none"]).unwrap();
        if changed {
            other.command(&["SET", "none", "1"]).unwrap();
        }
        let reply = exec(&mut client, &reading);
        assert_eq!(reply == Value::NullArray, changed);
        let info = client.command(&["CLIENT", "INFO"]).unwrap();
        let info = testkit::transcript::show(&info);
        assert!(info.contains(" multi=-1 watch=0 qbuf="), "{info}");
    }
    // The transaction's own change during its run breaks no later watch.
    client.command(&["WATCH", "a"]).unwrap();
    let moved = multi(&["SDIFF a b", "SADD a last"]);
    assert!(matches!(exec(&mut client, &moved), Value::Array(_)));
    client.command(&["WATCH", "a"]).unwrap();
    assert!(matches!(
        exec(&mut client, &multi(&["PING"])),
        Value::Array(_)
    ));
}

/// One client runs an offloaded command, and another client runs a command on its keys, or on all
/// keys. A client that depends on neither gets many replies before the first command is answered.
#[test]
fn who_waits_for_a_long_command_keeps_nobody() {
    let (server, mut client) = sets();
    client
        .command(&["SADD", "elements", "u", "a", "b"])
        .unwrap();
    client.command(&["SELECT", "1"]).unwrap();
    client.command(&["SET", "u", "1"]).unwrap();
    client.command(&["SELECT", "0"]).unwrap();
    client.command(&["SET", "v", "1", "PX", "1"]).unwrap();
    let requests = [
        "SCAN 0 COUNT 1000",
        "RANDOMKEY",
        "KEYS u",
        "DBSIZE",
        "SWAPDB 3 4",
        "SORT elements BY nosort GET *",
        "SORT elements BY * ALPHA",
        "SORT elements BY w* STORE u",
        "COPY elements u DB 0 REPLACE",
        "OBJECT ENCODING u",
        "MEMORY USAGE a",
        "EXECWITHETAG SCARD a",
        "WATCH u",
        "TOUCH u",
        "UNLINK u",
        "EXPIRE u 100",
        "SMOVE a b none",
        "DEBUG OBJECT a",
        "XREAD STREAMS u 0",
        "INFO everything",
        "HOTKEYS BIG",
        "CONFIG SET hash-max-listpack-entries 512",
        "CLIENT LIST",
    ];
    for line in requests {
        let mut other = server.client().unwrap();
        others_are_served_beside(&server, &mut client, &mut other, line);
    }
    // The command moves a key from another database into this one.
    let mut elsewhere = server.client().unwrap();
    elsewhere.command(&["SELECT", "1"]).unwrap();
    for line in ["MOVE u 0", "COPY u u DB 0 REPLACE"] {
        others_are_served_beside(&server, &mut client, &mut elsewhere, line);
    }
}

/// Makes the long command longer each time until the effect is seen: on a busy machine, the
/// previous command may have ended too early.
fn others_are_served_beside(server: &Server, client: &mut Client, other: &mut Client, line: &str) {
    let mut times = 1;
    eventually(line, || {
        let is_seen = are_served_beside(server, client, other, line, times);
        times = (times * 2).min(64);
        is_seen
    });
}

/// Returns whether a third client was served while one client ran a long command and `other` waited
/// for it. Returns `false` if the long command ended too early, which may happen.
fn are_served_beside(
    server: &Server,
    client: &mut Client,
    other: &mut Client,
    line: &str,
    times: usize,
) -> bool {
    let mut pinger = server.client().unwrap();
    pinger.command(&["PING"]).unwrap();
    let long = [&["SUNIONSTORE", "u"][..], &["a", "b"].repeat(times)].concat();
    client.send(&long).unwrap();
    // The command is offloaded and begins meanwhile.
    for _ in 0..50 {
        pinger.command(&["PING"]).unwrap();
    }
    other.send(&line.split(' ').collect::<Vec<_>>()).unwrap();
    for _ in 0..10 {
        pinger.command(&["PING"]).unwrap();
    }
    let is_free = matches!(client.arrived().unwrap(), Received::Nothing);
    if is_free {
        client.receive().unwrap();
    }
    other.receive().unwrap();
    is_free
}
