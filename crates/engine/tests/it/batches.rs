//! What a batch and a series of requests do, and where they end.

use engine::{Next, Share};
use testkit::engine_server::TestServer;

#[test]
fn what_comes_behind_an_http_request_is_not_executed() {
    for line in ["POST / HTTP/1.1", "host: 127.0.0.1"] {
        let mut server = TestServer::new();
        let (output, next) = server.pipeline(&["PING", line, "SET k v"]);
        assert_eq!((output.as_slice(), next), (&b"+PONG\r\n"[..], Next::Close));
        assert!(server.dump().is_empty());
    }
}

#[test]
fn a_key_is_gone_when_its_time_passed_within_a_pipeline() {
    let mut server = TestServer::with_debug();
    let share = Share {
        requests_max: 1024,
        reply_bytes_max: usize::MAX,
    };
    let lines = ["SET k v PX 100", "DEBUG SLEEP 0.2", "GET k"];
    let sent = server.shares(&lines, share);
    assert_eq!(
        sent,
        [&b"+OK\r\n+OK\r\n"[..], b"$-1\r\n"],
        "others had their turn"
    );
}

const ALL: Share = Share {
    requests_max: usize::MAX,
    reply_bytes_max: usize::MAX,
};

#[test]
fn an_error_in_a_series_is_one_reply_among_others() {
    let mut server = TestServer::new();
    let lines = [
        "SET a 1",
        "SET b 2 NX",
        "SET b 3 NX",
        "SET b 4 SOON",
        "LPUSH list x",
        "GET a",
        "GET list",
        "GET b",
        "GET",
        "GET none",
        "GET a b",
        "INCR a",
        "INCR list",
        "INCR a",
    ];
    let sent = server.shares(&lines, ALL);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let count = "-ERR wrong number of arguments for 'get' command\r\n";
    let expected = format!(
        "+OK\r\n+OK\r\n$-1\r\n-ERR syntax error\r\n:1\r\n$1\r\n1\r\n{wrong}$1\r\n2\r\n{count}$-1\r\n{count}\
         :2\r\n{wrong}:3\r\n"
    );
    assert_eq!(
        sent.concat().escape_ascii().to_string(),
        expected.escape_default().to_string()
    );
    assert_eq!(server.counts("SET"), (4, 1));
    assert_eq!(server.counts("GET"), (4, 1));
    assert_eq!(server.counts("INCR"), (3, 1));
}

#[test]
fn a_batch_of_long_requests_is_cut_though_no_two_are_alike() {
    let mut server = TestServer::new();
    // The lengths differ, so that no request continues the series of the previous one.
    let lines: Vec<String> = (0..12)
        .map(|number| {
            let tail = "x".repeat(number);
            let members = (0..100).map(|member| format!("{member} m{member}{tail}"));
            format!("ZADD ranking {}", members.collect::<Vec<_>>().join(" "))
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let sent = server.shares(&lines, ALL);
    assert_eq!(sent, vec![b":100\r\n".repeat(3); 4]);
}

#[test]
fn a_series_stops_where_the_share_ends_and_goes_on_from_there() {
    let mut server = TestServer::new();
    server.run("SET a 0123456789");
    let lines = ["GET a"; 40];
    // Each reply has 17 bytes.
    for (reply_bytes_max, replies_each) in [(1, 1), (17, 1), (18, 2), (100, 6)] {
        let share = Share {
            reply_bytes_max,
            ..ALL
        };
        let sent = server.shares(&lines, share);
        assert_eq!(sent.concat(), b"$10\r\n0123456789\r\n".repeat(40));
        let (last, others) = sent.split_last().unwrap();
        assert!(
            others
                .iter()
                .all(|replies| replies.len() == 17 * replies_each)
        );
        assert!(last.len() <= 17 * replies_each);
    }
}

#[test]
fn a_client_in_a_special_state_is_answered_as_it_wants() {
    let mut server = TestServer::new();
    let lines = [
        "SET a 1",
        "CLIENT REPLY SKIP",
        "GET a",
        "GET a",
        "CLIENT REPLY OFF",
        "GET a",
    ];
    let sent = server.shares(&lines, ALL);
    assert_eq!(sent.concat(), b"+OK\r\n$1\r\n1\r\n");
    assert_eq!(server.counts("GET"), (3, 0));
}
