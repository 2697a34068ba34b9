//! Tests of what a client may not do to the server or to other clients: each limit, and the reply
//! when it is hit.

use std::io::{Read as _, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

fn start(args: &[&str]) -> Server {
    ServerBuilder::iolite().args(args).start().unwrap()
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    show(&client.command(args).unwrap())
}

/// Polls until `done` returns true, for at most three minutes.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Patience::of(Duration::from_secs(180));
    while !done() {
        assert!(patience.lasts(), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_client_too_many_is_told_and_closed() {
    let server = start(&["--maxclients", "2"]);
    let mut first = server.client().unwrap();
    eventually("whoever looked whether the server is ready is gone", || {
        ask(&mut first, &["INFO", "clients"]).contains("connected_clients:1\\r")
    });
    let mut second = server.client().unwrap();
    assert_eq!(ask(&mut second, &["PING"]), "+PONG");
    let mut third = server.client().unwrap();
    let told = third.receive().unwrap().unwrap();
    assert_eq!(show(&told), "-ERR max number of clients reached");
    assert_eq!(third.receive().unwrap(), None);
    assert_eq!(
        ask(&mut first, &["CONFIG", "SET", "maxclients", "3"]),
        "+OK"
    );
    let mut third = server.client().unwrap();
    assert_eq!(ask(&mut third, &["PING"]), "+PONG");
    assert!(ask(&mut first, &["INFO", "stats"]).contains("rejected_connections:1"));
}

#[test]
fn a_place_that_becomes_free_can_be_taken() {
    let server = start(&["--maxclients", "1"]);
    for _ in 0..3 {
        eventually("the place of the client before is free", || {
            let mut client = server.client().unwrap();
            matches!(client.command(&["PING"]), Ok(Value::Simple(_)))
        });
    }
}

#[test]
fn a_silent_client_is_closed_after_its_time() {
    let server = start(&["--timeout", "1"]);
    let mut silent = None;
    // If the system does not run this client for that long, the client counts as silent, too.
    eventually("somebody is answered in time", || {
        let mut client = server.client().unwrap();
        let is_answered = client.command(&["PING"]).is_ok();
        silent = Some(client);
        is_answered
    });
    let told = silent.unwrap().receive().unwrap();
    assert_eq!(told, None, "closed, not answered");
}

#[test]
fn a_client_that_does_not_read_is_closed_at_its_output_limit() {
    let server = start(&["--client-output-buffer-limit", "normal 256kb 0 0"]);
    let mut good = server.client().unwrap();
    let value = "x".repeat(1 << 20);
    assert_eq!(ask(&mut good, &["SET", "big", &value]), "+OK");
    let mut deaf = UnixStream::connect(server.socket()).unwrap();
    deaf.set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The write may fail midway if the server closes the connection.
    let _sent = deaf.write_all(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(64));
    eventually("the limit closes it", || {
        ask(&mut good, &["INFO", "stats"]).contains("client_output_buffer_limit_disconnections:1")
    });
    assert_eq!(ask(&mut good, &["STRLEN", "big"]), format!(":{}", 1 << 20));
}

/// A reply longer than the hard limit is not sent even to a client that reads it. What a
/// transaction did before such a reply remains done.
#[test]
fn one_reply_beyond_the_hard_limit_closes_its_client() {
    for threads in ["1", "3"] {
        let limit = "normal 100000 0 0";
        let server = start(&[
            "--client-output-buffer-limit",
            limit,
            "--io-threads",
            threads,
        ]);
        let mut good = server.client().unwrap();
        let value = "x".repeat(150_000);
        assert_eq!(ask(&mut good, &["SET", "big", &value]), "+OK");
        for _ in 0..150 {
            ask(&mut good, &["RPUSH", "list", &value[..1000]]);
        }
        assert_eq!(ask(&mut good, &["HSET", "hash", "a", "b"]), ":1");
        let requests: [&[u8]; 5] = [
            b"HRANDFIELD hash -999999999\r\n",
            b"GET big\r\n",
            b"LRANGE list 0 -1\r\n",
            b"PING\r\nLRANGE list 0 60\r\nLRANGE list 0 60\r\n",
            b"MULTI\r\nSET before 1\r\nLRANGE list 0 -1\r\nSET behind 1\r\nEXEC\r\n",
        ];
        for (times, request) in (1..).zip(requests) {
            // If the worker's turn ends between two replies, the first is sent before the second
            // exists.
            let tries = if request.starts_with(b"PING") {
                1_000
            } else {
                1
            };
            let mut told = (0..tries).map(|_| told_until_closed(&server, request, 100_000));
            assert!(told.any(|bytes| bytes < 100), "it is not closed");
            eventually("it is counted", || {
                figure(&mut good, "client_output_buffer_limit_disconnections") == times
            });
        }
        assert_eq!(
            ask(&mut good, &["MGET", "before", "behind"]),
            "[\"1\", \"1\"]"
        );
        let length = ask(&mut good, &["GETRANGE", "big", "0", "50000"]).len();
        assert!(length > 50_000, "what is within is sent");
    }
}

/// Returns the number of bytes, at most `bytes_max`, that a client receives before its request gets
/// it disconnected.
fn told_until_closed(server: &Server, request: &[u8], bytes_max: u64) -> usize {
    let mut client = UnixStream::connect(server.socket()).unwrap();
    client.write_all(request).unwrap();
    let mut told = Vec::new();
    // The connection may be reset.
    let _end = client.take(bytes_max).read_to_end(&mut told);
    told.len()
}

/// As in Redis, the header of a long argument counts as parsed, and no longer as waiting input.
#[test]
fn of_a_long_argument_that_is_coming_only_itself_is_told() {
    let server = start(&[]);
    let mut good = server.client().unwrap();
    for begin in [
        "*1\r\n$1000000\r\n",
        "*3\r\n$4\r\nECHO\r\n$1\r\nx\r\n$1000000\r\n",
    ] {
        let mut slow = UnixStream::connect(server.socket()).unwrap();
        slow.write_all(begin.as_bytes()).unwrap();
        slow.write_all(&[b'v'; 300_000]).unwrap();
        eventually("all of it has come", || {
            ask(&mut good, &["CLIENT", "LIST"]).contains(" qbuf=300000 ")
        });
        slow.write_all(&[b'v'; 700_000]).unwrap();
        slow.write_all(b"\r\n").unwrap();
        let mut told = [0; 4];
        slow.read_exact(&mut told).unwrap();
        assert_eq!(&told, b"-ERR");
        assert!(!ask(&mut good, &["CLIENT", "LIST"]).contains("qbuf=1000000"));
    }
}

/// Compares the kernel's rank of the server with its rank before the setting.
#[test]
fn the_kernel_is_told_whom_to_spare() {
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let pid = figure(&mut client, "process_id");
    let score = || -> i64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse().unwrap()
    };
    let before = score();
    let mut set = |pairs: &[&str]| ask(&mut client, &[&["CONFIG", "SET"], pairs].concat());
    assert_eq!(set(&["oom-score-adj-values", "3 20 30"]), "+OK");
    assert_eq!(score(), before, "not yet");
    assert_eq!(set(&["oom-score-adj", "relative"]), "+OK");
    assert_eq!(score(), before + 3);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = set(&["oom-score-adj-values", "9 9 9", "port", &port]);
    assert!(
        refused.contains("Unable to listen on this port"),
        "{refused}"
    );
    assert_eq!(score(), before + 3, "as before");
    let higher = format!("{0} {0} {0}", before + 7);
    let absolute = ["oom-score-adj", "absolute", "oom-score-adj-values", &higher];
    assert_eq!(set(&absolute), "+OK");
    assert_eq!(score(), before + 7);
    assert_eq!(set(&["oom-score-adj", "no"]), "+OK");
    assert_eq!(score(), before);
}

/// Returns a client that requests `key` this many times and reads nothing.
fn deaf(server: &Server, key: &str, times: usize) -> UnixStream {
    let mut deaf = UnixStream::connect(server.socket()).unwrap();
    deaf.set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // The write may fail midway if the server closes the connection.
    let _sent = deaf.write_all(format!("GET {key}\r\n").repeat(times).as_bytes());
    deaf
}

/// A pipeline of any length may be sent before the first reply is read, as libraries do.
#[test]
fn a_long_pipeline_is_answered_though_nobody_reads_before_its_end() {
    const REQUESTS: usize = 40_000;
    let server = start(&[]);
    let mut client = server.client().unwrap();
    let value = "v".repeat(1_000);
    assert_eq!(ask(&mut client, &["SET", &value, &value]), "+OK");
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let requests = format!("GET {value}\r\n").repeat(REQUESTS);
    stream.write_all(requests.as_bytes()).unwrap();
    let reply = format!("$1000\r\n{value}\r\n");
    let mut replies = vec![0; reply.len() * REQUESTS];
    stream.read_exact(&mut replies).unwrap();
    assert!(
        replies
            .chunks(reply.len())
            .all(|one| one == reply.as_bytes())
    );
    // All of its memory is freed.
    eventually("what waited for the client is given back", || {
        figure(&mut client, "mem_clients_normal") < 1_000_000
    });
}

/// Returns the number after `name:` in INFO.
fn figure(client: &mut Client, name: &str) -> u64 {
    let Value::Bulk(text) = client.command(&["INFO", "everything"]).unwrap() else {
        panic!("INFO is a string");
    };
    let text = String::from_utf8(text).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(field, _)| *field == name).unwrap().1;
    found.parse().unwrap()
}

/// A monitor counts as a subscriber, and the monitored commands do not wait for it.
#[test]
fn a_monitor_that_does_not_read_is_closed_at_the_limit_of_subscribers() {
    for threads in ["1", "3"] {
        let limit = "normal 0 0 0 pubsub 256kb 0 0";
        let args = [
            "--client-output-buffer-limit",
            limit,
            "--io-threads",
            threads,
        ];
        let server = start(&args);
        let mut deaf: Vec<Client> = (0..3).map(|_| server.client().unwrap()).collect();
        for monitor in &mut deaf {
            assert_eq!(ask(monitor, &["MONITOR"]), "+OK");
        }
        let mut good = server.client().unwrap();
        let value = "x".repeat(10_000);
        eventually("all are closed", || {
            ask(&mut good, &["SET", "key", &value]);
            !ask(&mut good, &["CLIENT", "LIST"]).contains("cmd=monitor")
        });
        let closed = figure(&mut good, "client_output_buffer_limit_disconnections");
        assert_eq!(closed, 3);
        // Before that, the monitors received whole lines and a part of one.
        while let Ok(Some(line)) = deaf[0].receive() {
            assert!(show(&line).contains(" ["), "{line:?}");
        }
        eventually("nothing is held", || {
            figure(&mut good, "mem_clients_normal") < 65_536
        });
    }
}

#[test]
fn a_lowered_output_limit_holds_for_those_who_are_above() {
    let server = start(&[]);
    let mut good = server.client().unwrap();
    let value = "x".repeat(2 << 20);
    assert_eq!(ask(&mut good, &["SET", "big", &value]), "+OK");
    let _deaf = deaf(&server, "big", 1);
    eventually("output waits", || {
        figure(&mut good, "client_recent_max_output_buffer") > 1 << 20
    });
    let limit = [
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "normal 1mb 0 0",
    ];
    assert_eq!(ask(&mut good, &limit), "+OK");
    eventually("the limit closes it", || {
        figure(&mut good, "client_output_buffer_limit_disconnections") == 1
    });
}

#[test]
fn clients_that_hold_most_are_evicted_when_all_hold_too_much() {
    const LIMIT: u64 = 8 << 20;
    for threads in ["1", "4"] {
        let server = start(&["--maxmemory-clients", "8mb", "--io-threads", threads]);
        let mut good = server.client().unwrap();
        let value = "x".repeat(2 << 20);
        assert_eq!(ask(&mut good, &["SET", "big", &value]), "+OK");
        let mut spared = UnixStream::connect(server.socket()).unwrap();
        spared
            .write_all(b"CLIENT NO-EVICT ON\r\nGET big\r\nGET big\r\n")
            .unwrap();
        let deaf: Vec<_> = (0..10).map(|_| deaf(&server, "big", 1)).collect();
        eventually("the rest is within the limit", || {
            figure(&mut good, "evicted_clients") >= 6
                && figure(&mut good, "mem_clients_normal") <= LIMIT
        });
        let list = ask(&mut good, &["CLIENT", "LIST"]);
        assert!(list.contains("flags=Ue "), "spared: {list}");
        assert!(
            list.matches("id=").count() > 2,
            "no more than needed: {list}"
        );
        drop(deaf);
    }
}

#[test]
fn incomplete_requests_count_as_what_clients_hold() {
    let server = start(&["--maxmemory-clients", "8mb"]);
    let mut good = server.client().unwrap();
    let half = [
        b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$4194304\r\n".as_slice(),
        &vec![b'x'; 2 << 20],
    ]
    .concat();
    let greedy: Vec<_> = (0..8)
        .map(|_| {
            let mut greedy = UnixStream::connect(server.socket()).unwrap();
            // The client may be evicted before it sent everything.
            let _sent = greedy.write_all(&half);
            greedy
        })
        .collect();
    eventually("some are evicted", || {
        figure(&mut good, "evicted_clients") >= 4
    });
    assert_eq!(ask(&mut good, &["EXISTS", "key"]), ":0");
    drop(greedy);
}

#[test]
fn what_sessions_hold_counts_as_what_clients_hold() {
    let server = start(&["--maxmemory-clients", "1mb"]);
    let mut good = server.client().unwrap();
    let name = "x".repeat(300 << 10);
    let all: [&[&[&str]]; 4] = [
        &[&["BLPOP", &name, "0"]],
        &[&["SUBSCRIBE", &name]],
        &[&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", &name]],
        &[&["MULTI"], &["GET", &name]],
    ];
    for requests in all {
        let mut greedy: Vec<_> = (0..5).map(|_| server.client().unwrap()).collect();
        for client in &mut greedy {
            ask(client, &["CLIENT", "SETNAME", "greedy"]);
            for request in requests {
                // The client may be evicted at any time.
                let sent = client.send(request);
                if sent.is_ok() && request[0] != "BLPOP" {
                    let _answer = client.receive();
                }
            }
        }
        eventually("some are evicted, the others hold what they sent", || {
            let held = held_by_the_greedy(&mut good);
            let expected = name.len()..name.len() + 65_536;
            (1..=3).contains(&held.len()) && held.iter().all(|bytes| expected.contains(bytes))
        });
        drop(greedy);
        eventually("nothing is held", || {
            figure(&mut good, "mem_clients_normal") < 65_536
        });
    }
}

/// Returns `tot-mem` of each client with that name.
fn held_by_the_greedy(client: &mut Client) -> Vec<usize> {
    let list = ask(client, &["CLIENT", "LIST"]);
    let lines = list
        .split("\\n")
        .filter(|line| line.contains("name=greedy "));
    let bytes = lines.map(|line| {
        let bytes = line.split("tot-mem=").nth(1).unwrap();
        bytes.split(' ').next().unwrap().parse().unwrap()
    });
    bytes.collect()
}

#[test]
fn a_limit_for_all_clients_holds_as_soon_as_it_is_lowered() {
    let server = start(&["--io-threads", "1"]);
    let mut good = server.client().unwrap();
    let name = "x".repeat(300 << 10);
    let mut waiting: Vec<_> = (0..3).map(|_| server.client().unwrap()).collect();
    for client in &mut waiting {
        client.send(&["BLPOP", &name, "0"]).unwrap();
    }
    eventually("all is held", || {
        figure(&mut good, "mem_clients_normal") > 900 << 10
    });
    // The limit is lifted again before the next timed check.
    good.send_raw(b"CONFIG SET maxmemory-clients 700kb\r\nCONFIG SET maxmemory-clients 0\r\n")
        .unwrap();
    for _ in 0..2 {
        assert_eq!(
            good.receive().unwrap().map(|it| show(&it)).as_deref(),
            Some("+OK")
        );
    }
    eventually("one is evicted", || {
        figure(&mut good, "evicted_clients") == 1
    });
}

/// After its reply, a client holds as much as before its wait.
#[test]
fn who_waits_no_longer_holds_nothing_for_it() {
    let server = start(&[]);
    let mut good = server.client().unwrap();
    let mut waiting = server.client().unwrap();
    let name = "x".repeat(600 << 10);
    waiting.send(&["BLPOP", &name, "key", "0"]).unwrap();
    eventually("it waits", || {
        figure(&mut good, "mem_clients_normal") > 600 << 10
    });
    assert_eq!(ask(&mut good, &["RPUSH", "key", "1"]), ":1");
    assert!(waiting.receive().unwrap().is_some());
    eventually("nothing is held", || {
        figure(&mut good, "mem_clients_normal") < 65_536
    });
}

#[test]
fn requests_that_wait_for_the_end_of_a_pause_count_as_what_clients_hold() {
    let server = start(&["--maxmemory-clients", "1mb"]);
    let mut good = server.client().unwrap();
    let pause = ["CLIENT", "PAUSE", "600000", "WRITE"];
    assert_eq!(ask(&mut good, &pause), "+OK");
    let value = "x".repeat(10_000);
    let mut held: Vec<_> = (0..2).map(|_| server.client().unwrap()).collect();
    for client in &mut held {
        // Not one long value, which would be a bulk upload.
        let mut request = vec!["RPUSH", "key"];
        request.extend([value.as_str(); 60]);
        let _sent = client.send(&request);
    }
    eventually("one is evicted", || {
        figure(&mut good, "evicted_clients") == 1
    });
}

#[test]
fn a_request_that_is_longer_than_all_may_hold_is_not_waited_for() {
    let server = start(&["--maxmemory-clients", "1mb"]);
    let mut good = server.client().unwrap();
    let mut greedy = UnixStream::connect(server.socket()).unwrap();
    let begun = b"*5\r\n$4\r\nMSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nk2\r\n$1048570\r\nvv";
    greedy.write_all(begun).unwrap();
    eventually("it is evicted", || {
        figure(&mut good, "evicted_clients") == 1
    });
    assert_eq!(ask(&mut good, &["EXISTS", "k"]), ":0");
    drop(greedy);
}

#[test]
fn keys_go_for_what_clients_hold_though_nobody_writes() {
    for threads in ["1", "2"] {
        let args = ["--maxmemory-policy", "allkeys-lru", "--io-threads", threads];
        let server = start(&args);
        let mut good = server.client().unwrap();
        let value = "x".repeat(50_000);
        for number in 0..100 {
            assert_eq!(ask(&mut good, &["SET", &number.to_string(), &value]), "+OK");
        }
        let limit = (figure(&mut good, "used_memory") + (2 << 20)).to_string();
        assert_eq!(
            ask(&mut good, &["CONFIG", "SET", "maxmemory", &limit]),
            "+OK"
        );
        let half = [b"*2\r\n$3\r\nGET\r\n$400000\r\n", &[b'x'; 300_000][..]].concat();
        let holding: Vec<_> = (0..10)
            .map(|_| {
                let mut client = UnixStream::connect(server.socket()).unwrap();
                client.write_all(&half).unwrap();
                client
            })
            .collect();
        eventually("keys were evicted", || {
            figure(&mut good, "evicted_keys") > 10
        });
        assert_eq!(figure(&mut good, "evicted_clients"), 0);
        drop(holding);
    }
}

/// Returns the timers of the server's sockets to the peers of `port`, as the kernel lists them.
fn keepalive_timers(port: u16) -> Vec<String> {
    let local = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace());
    rows.map(Iterator::collect::<Vec<_>>)
        .filter(|row| row[1].ends_with(&local) && row[3] == "01")
        .map(|row| row[5][..2].to_owned())
        .collect()
}

#[test]
fn silent_peers_are_probed_when_asked_for() {
    let server = ServerBuilder::iolite()
        .args(&["--tcp-keepalive", "0", "--io-threads", "1"])
        .tcp()
        .start()
        .unwrap();
    let port = server.address().unwrap().port();
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["PING"]), "+PONG");
    eventually("no timer runs", || keepalive_timers(port) == ["00"]);
    let change = ["CONFIG", "SET", "tcp-keepalive", "100"];
    assert_eq!(ask(&mut client, &change), "+OK");
    let mut probed = server.client().unwrap();
    assert_eq!(ask(&mut probed, &["PING"]), "+PONG");
    eventually("the new peer's timer runs", || {
        let mut timers = keepalive_timers(port);
        timers.sort();
        timers == ["00", "02"]
    });
}

#[test]
fn a_request_that_outgrows_the_query_buffer_closes_its_client() {
    let server = start(&["--client-query-buffer-limit", "1mb"]);
    let mut good = server.client().unwrap();
    let mut greedy = UnixStream::connect(server.socket()).unwrap();
    let mut request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$8388608\r\n".to_vec();
    request.resize(request.len() + (8 << 20), b'x');
    let _sent = greedy.write_all(&request);
    eventually("the limit closes it", || {
        ask(&mut good, &["INFO", "stats"]).contains("client_query_buffer_limit_disconnections:1")
    });
    assert_eq!(ask(&mut good, &["EXISTS", "key"]), ":0");
}

#[test]
fn before_authentication_only_little_may_be_sent() {
    let server = start(&["--requirepass", "secret"]);
    let mut client = server.client().unwrap();
    assert_eq!(
        ask(&mut client, &["GET", "key"]),
        "-NOAUTH Authentication required."
    );
    assert_eq!(
        ask(&mut client, &["AUTH", "wrong"]),
        "-WRONGPASS invalid username-password pair or user is disabled."
    );
    client.send_raw(b"*11\r\n").unwrap();
    let told = client.receive().unwrap().unwrap();
    assert_eq!(
        show(&told),
        "-ERR Protocol error: unauthenticated multibulk length"
    );
    assert_eq!(client.receive().unwrap(), None);
    // Requests after AUTH in the same packet have the ordinary limits.
    let mut client = server.client().unwrap();
    let value = "x".repeat(100_000);
    let requests = [
        vec!["AUTH", "secret"],
        vec!["SET", "key", &value],
        vec!["STRLEN", "key"],
    ];
    let replies: Vec<String> = client
        .pipeline(&requests)
        .unwrap()
        .iter()
        .map(show)
        .collect();
    assert_eq!(replies, ["+OK", "+OK", ":100000"]);
}

#[test]
fn the_unix_socket_has_the_permissions_asked_for() {
    let server = start(&["--unixsocketperm", "700"]);
    let mode = std::fs::metadata(server.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn full_memory_refuses_writes_and_keeps_reads_up() {
    let server = start(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client().unwrap();
    assert_eq!(ask(&mut client, &["SET", "kept", "value"]), "+OK");
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory", "1"]),
        "+OK"
    );
    let refusal = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(ask(&mut client, &["SET", "more", "value"]), refusal);
    assert_eq!(ask(&mut client, &["GET", "kept"]), "\"value\"");
    assert_eq!(ask(&mut client, &["DEL", "kept"]), ":1");
    assert_eq!(
        ask(&mut client, &["CONFIG", "SET", "maxmemory", "0"]),
        "+OK"
    );
    assert_eq!(ask(&mut client, &["SET", "more", "value"]), "+OK");
}

/// Returns ten arguments of sixteen kilobytes, the last one without its end: the maximum that may
/// be sent before authentication, and never a request.
fn junk_before_authentication() -> Vec<u8> {
    let mut junk = b"*10\r\n".to_vec();
    for _ in 0..10 {
        junk.extend_from_slice(b"$16384\r\n");
        junk.extend_from_slice(&[b'x'; 16384]);
        junk.extend_from_slice(b"\r\n");
    }
    junk.truncate(junk.len() - 100);
    junk
}

/// Lets `count` unauthenticated clients send what they may, some of them repeatedly without
/// reading. Returns the maximum growth of the server's memory in bytes.
fn strangers(server: &Server, count: usize) -> u64 {
    let before = server.rss_bytes().unwrap();
    let junk = junk_before_authentication();
    let pings = b"PING\r\n".repeat(20_000);
    let mut grown = 0;
    let mut connected = Vec::new();
    for number in 0..count {
        let Ok(mut stranger) = UnixStream::connect(server.socket()) else {
            continue;
        };
        stranger.set_nonblocking(true).unwrap();
        let bytes = if number % 4 == 3 { &pings } else { &junk };
        // A client that is disconnected, or whose socket is full, has done what it can.
        let _sent = stranger.write_all(bytes);
        connected.push(stranger);
        if number % 100 == 99 {
            let now = server.rss_bytes().unwrap();
            grown = grown.max(now.saturating_sub(before));
        }
    }
    let mut friend = server.client().unwrap();
    assert_eq!(ask(&mut friend, &["AUTH", "secret"]), "+OK");
    assert_eq!(ask(&mut friend, &["PING"]), "+PONG");
    let now = server.rss_bytes().unwrap();
    grown.max(now.saturating_sub(before))
}

#[test]
fn strangers_make_the_server_hold_little() {
    for threads in ["1", "2", "4"] {
        let server = start(&["--requirepass", "secret", "--io-threads", threads]);
        let grown = strangers(&server, 600);
        assert!(grown <= 32 << 20, "{threads} workers: {grown} bytes");
    }
}

/// Measured with the optimised server: it grows by 27 MiB with one worker, 31 with two, 34 with
/// four.
#[test]
#[ignore = "ten thousand connections: run by hand, with the optimised server"]
#[allow(clippy::print_stdout, reason = "the figure is what it is run for")]
fn ten_thousand_strangers_make_the_server_hold_little() {
    base::process::raise_open_files(10_100).unwrap();
    for threads in ["1", "2", "4"] {
        let args = [
            "--requirepass",
            "secret",
            "--maxclients",
            "11000",
            "--io-threads",
        ];
        let server = start(&[&args[..], &[threads]].concat());
        let grown = strangers(&server, 10_000);
        println!("{threads} workers: {} KiB", grown / 1024);
        assert!(grown <= 64 << 20, "{threads} workers: {grown} bytes");
    }
}
