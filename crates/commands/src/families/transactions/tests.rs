//! Transactions of one client: what is queued, refused and run.

use engine::engine::Next;
use engine::session::Fate;
use protocol::Value;

use testkit::engine_server::TestServer;

fn simple(text: &str) -> Value {
    Value::Simple(text.as_bytes().to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// Returns the reply of EXEC to these requests.
fn transaction(server: &mut TestServer, lines: &[&str]) -> Value {
    assert_eq!(server.run("MULTI"), simple("OK"));
    for line in lines {
        assert_eq!(server.run(line), simple("QUEUED"), "{line}");
    }
    server.run("EXEC")
}

#[test]
fn requests_are_queued_and_run_in_order() {
    let mut server = TestServer::new();
    server.run("MULTI");
    assert_eq!(server.run("SET a 1"), simple("QUEUED"));
    assert!(server.dump().is_empty());
    server.run("INCR a");
    server.run("GET a");
    let replies = server.run("EXEC");
    let expected = [simple("OK"), Value::Integer(2), bulk("2")];
    assert_eq!(replies, Value::Array(expected.to_vec()));
    assert_eq!(server.error("EXEC"), "ERR EXEC without MULTI");
    assert_eq!(transaction(&mut server, &[]), Value::Array(vec![]));
}

#[test]
fn an_error_while_running_stops_nothing() {
    let mut server = TestServer::new();
    let replies = transaction(&mut server, &["SET a x", "INCR a", "LPUSH a y", "SET b 2"]);
    let Value::Array(replies) = replies else {
        panic!("{replies:?}");
    };
    assert!(matches!(replies[1], Value::Error(_)) && matches!(replies[2], Value::Error(_)));
    assert_eq!(replies[3], simple("OK"));
    assert_eq!(server.text("GET b"), "2");
    assert_eq!(server.counts("INCR"), (1, 1));
}

#[test]
fn what_cannot_be_queued_spoils_the_transaction() {
    const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
    for wrong in ["SET a", "NOSUCH", "CLIENT NOSUCH", "SHUTDOWN"] {
        let mut server = TestServer::new();
        server.run("MULTI");
        server.run("SET a 1");
        assert!(matches!(server.run(wrong), Value::Error(_)), "{wrong}");
        assert_eq!(server.error("EXEC"), ABORTED, "{wrong}");
        assert_eq!(server.error("EXEC"), "ERR EXEC without MULTI");
        assert!(server.dump().is_empty());
    }
}

#[test]
fn multi_and_exec_are_refused_by_themselves() {
    let mut server = TestServer::new();
    let count = "wrong number of arguments for 'exec' command";
    let refused = format!("EXECABORT Transaction discarded because of: {count}");
    assert_eq!(server.error("EXEC x"), refused);
    assert_eq!(server.error("DISCARD"), "ERR DISCARD without MULTI");
    server.run("MULTI");
    assert_eq!(server.error("MULTI"), "ERR MULTI calls can not be nested");
    server.run("SET a 1");
    assert_eq!(server.error("EXEC x"), refused);
    assert_eq!(server.error("EXEC"), "ERR EXEC without MULTI");
    server.run("MULTI");
    server.run("SET a 1");
    assert_eq!(server.run("DISCARD"), simple("OK"));
    assert!(server.dump().is_empty());
}

#[test]
fn reset_and_quit_do_not_wait() {
    let mut server = TestServer::new();
    server.run("MULTI");
    assert_eq!(server.run("RESET"), simple("RESET"));
    assert_eq!(server.error("EXEC"), "ERR EXEC without MULTI");
    server.run("MULTI");
    assert_eq!(server.run("QUIT"), simple("OK"));
    assert!(server.session().fate == Fate::Close);
}

#[test]
fn a_database_is_selected_for_what_comes_behind() {
    let mut server = TestServer::new();
    transaction(
        &mut server,
        &[
            "SET a 0",
            "SELECT 3",
            "SET a 3",
            "MOVE a 5",
            "COPY b c DB 2",
        ],
    );
    assert_eq!(server.run("GET a"), Value::Null);
    server.run("SELECT 5");
    assert_eq!(server.text("GET a"), "3");
    server.run("SELECT 0");
    assert_eq!(server.text("GET a"), "0");
}

#[test]
fn commands_about_all_keys_run_inside() {
    let mut server = TestServer::new();
    server.run("RPUSH list 2 1");
    let replies = transaction(
        &mut server,
        &[
            "SET w_1 9",
            "DBSIZE",
            "KEYS w*",
            "SORT list BY w_*",
            "FLUSHALL",
            "DBSIZE",
        ],
    );
    let Value::Array(replies) = replies else {
        panic!("{replies:?}");
    };
    assert_eq!(replies[1], Value::Integer(2));
    assert_eq!(replies[2], Value::Array(vec![bulk("w_1")]));
    assert_eq!(replies[3], Value::Array(vec![bulk("2"), bulk("1")]));
    assert_eq!(replies[5], Value::Integer(0));
}

#[test]
fn replies_are_switched_off_from_within() {
    let mut server = TestServer::new();
    let lines = [
        "MULTI",
        "SET a 1",
        "CLIENT REPLY OFF",
        "GET a",
        "EXEC",
        "PING",
    ];
    let (output, next) = server.pipeline(&lines);
    let expected = "+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n";
    assert_eq!((output.as_slice(), next), (expected.as_bytes(), Next::Read));
    let lines = ["MULTI", "CLIENT REPLY ON", "GET a", "EXEC", "PING"];
    let (output, _) = server.pipeline(&lines);
    assert_eq!(output, b"+OK\r\n$1\r\n1\r\n+PONG\r\n");
}

#[test]
fn a_pipeline_of_transactions_is_as_good_as_one_by_one() {
    let mut server = TestServer::new();
    let lines: Vec<&str> = ["MULTI", "INCR a", "INCR b", "EXEC"].repeat(40);
    let (output, _) = server.pipeline(&lines);
    assert_eq!(output.iter().filter(|byte| **byte == b'*').count(), 40);
    assert_eq!(server.text("GET a"), "40");
    assert_eq!(server.text("GET b"), "40");
}

/// Whether EXEC runs after these requests, for a client that watches `watched`.
fn runs_after(server: &mut TestServer, watched: &str, lines: &[&str]) -> bool {
    server.run(&format!("WATCH {watched}"));
    for line in lines {
        server.run(line);
    }
    server.run("MULTI");
    server.run("PING");
    let replies = server.run("EXEC");
    assert!(!server.session().has_transaction());
    replies == Value::Array(vec![simple("PONG")])
}

#[test]
fn exec_does_nothing_when_a_watched_key_was_changed() {
    let mut server = TestServer::new();
    server.run("MSET a 1 b 1");
    for change in [
        "SET a 1",
        "INCR a",
        "DEL a",
        "SET a 1 NX",
        "EXPIRE a 100",
        "RENAME b a",
        "FLUSHALL",
    ] {
        assert!(!runs_after(&mut server, "a b", &[change]), "{change}");
    }
    server.run("MSET a 1 b 1");
    for harmless in [
        "GET a",
        "SET c 1",
        "SET a 1 NX",
        "DEL none",
        "EXPIRE none 1",
        "UNWATCH",
        "TOUCH a",
    ] {
        assert!(runs_after(&mut server, "a b", &[harmless]), "{harmless}");
    }
    // The watch ends with the transaction, whether it ran or not.
    assert!(runs_after(&mut server, "b", &["MULTI", "SET b 2", "EXEC"]));
    assert!(runs_after(
        &mut server,
        "b",
        &["MULTI", "DISCARD", "SET b 3"]
    ));
    assert!(runs_after(&mut server, "b", &["RESET", "SET b 4"]));
    assert!(!runs_after(&mut server, "b", &["SET b 5", "WATCH c"]));
    let lines = ["WATCH b", "SET b 6", "EXEC x", "MULTI", "EXEC"];
    let (output, _) = server.pipeline(&lines);
    assert!(output.ends_with(b"+OK\r\n*0\r\n"));
}

#[test]
fn structures_that_stay_as_they_are_are_not_changed() {
    let mut server = TestServer::new();
    server.run("SADD set x");
    server.run("HSET hash f v");
    for harmless in [
        "SADD set x",
        "SREM set y",
        "HDEL hash g",
        "HSETNX hash f w",
        "SMOVE set set x",
    ] {
        assert!(
            runs_after(&mut server, "set hash", &[harmless]),
            "{harmless}"
        );
    }
    for change in ["SADD set y", "SREM set y", "HDEL hash f", "SPOP set"] {
        assert!(!runs_after(&mut server, "set hash", &[change]), "{change}");
    }
}

#[test]
fn a_key_whose_time_comes_is_changed_and_one_whose_time_had_come_is_not() {
    let mut server = TestServer::new();
    for removed_by in ["PING", "GET a", "DEL a", "DBSIZE"] {
        server.run("SET a 1 PX 100");
        server.run("WATCH a");
        server.advance_ms(200);
        server.run(removed_by);
        server.run("MULTI");
        assert_eq!(server.run("EXEC"), Value::NullArray, "{removed_by}");
        server.run("SET a 1 PX 100");
        server.advance_ms(200);
        assert!(runs_after(&mut server, "a", &[removed_by]), "{removed_by}");
        server.run("SET a 1 PX 100");
        server.advance_ms(200);
        assert!(!runs_after(&mut server, "a", &["SET a 1"]));
    }
}

#[test]
fn a_database_that_is_emptied_or_exchanged_changes_what_is_there() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    assert!(runs_after(&mut server, "none", &["FLUSHALL"]));
    assert!(runs_after(&mut server, "none", &["SWAPDB 0 1"]));
    server.run("SET a 1");
    assert!(!runs_after(&mut server, "a", &["FLUSHDB"]));
    server.run("SET a 1");
    assert!(!runs_after(&mut server, "a", &["SWAPDB 0 1"]));
    // Now the key comes from database 1.
    assert!(!runs_after(&mut server, "a", &["SWAPDB 0 1"]));
    // The watch is on a key of one database.
    assert!(runs_after(
        &mut server,
        "a",
        &["SELECT 1", "SET a 2", "DEL a", "SELECT 0"]
    ));
    // The key was expired when it was watched; the key that replaces it is not.
    server.run("SET a 1 PX 100");
    server.advance_ms(200);
    assert!(runs_after(&mut server, "a", &["FLUSHALL"]));
    server.run("SET a 1 PX 100");
    server.advance_ms(200);
    assert!(runs_after(&mut server, "a", &["SWAPDB 0 1"]));
}
