//! What is refused or has to wait, whatever the command is.

use engine::Next;
use engine::refusals::{NOT_SAVED, log_fault_text};
use testkit::engine_server::TestServer;

const LOADS: &str = "LOADING Redis is loading the dataset in memory";

#[test]
fn while_data_is_loaded_only_what_needs_none_runs() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    server.settings.refusals.set_loading(true);
    for line in [
        "GET a",
        "SET a 2",
        "PING",
        "FLUSHALL",
        "DBSIZE",
        "BLPOP a 0",
    ] {
        assert_eq!(server.error(line), LOADS, "{line}");
    }
    assert_eq!(server.text("INFO server"), "server");
    assert_eq!(server.integer("LASTSAVE"), 7);
    assert!(server.error("GET").contains("wrong number of arguments"));
    server.settings.refusals.set_loading(false);
    assert_eq!(server.text("GET a"), "1");
    // What was refused does not count as called.
    assert_eq!(server.counts("GET"), (1, 0));
}

/// A log may be begun with a fault, when all is loaded but nobody served yet.
#[test]
fn who_waits_for_the_data_hears_of_a_log_that_cannot_be_written_afterwards() {
    let mut server = TestServer::new();
    server.settings.refusals.set_loading(true);
    server.settings.refusals.set_log_fault(Some("full"));
    for line in ["PING", "SET a 1", "GET a"] {
        assert_eq!(server.error(line), LOADS, "{line}");
    }
    server.settings.refusals.set_loading(false);
    assert_eq!(server.error("PING"), log_fault_text("full"));
}

#[test]
fn a_series_of_plain_requests_is_refused_one_by_one() {
    let mut server = TestServer::new();
    server.settings.refusals.set_loading(true);
    let (output, _) = server.pipeline(&["SET a 1", "SET a 2", "GET a", "TIME"]);
    let refusals = format!("-{LOADS}\r\n").repeat(3);
    assert!(output.starts_with(refusals.as_bytes()));
    assert!(output.ends_with(b"*2\r\n$10\r\n1700000000\r\n$1\r\n5\r\n"));
}

#[test]
fn a_transaction_that_would_touch_data_is_refused_as_a_whole() {
    let mut server = TestServer::new();
    server.run("MULTI");
    server.run("GET a");
    server.settings.refusals.set_loading(true);
    let aborted = format!("EXECABORT Transaction discarded because of: {LOADS}");
    assert_eq!(server.error("EXEC"), aborted);
    server.run("MULTI");
    assert_eq!(server.error("GET a"), LOADS);
    let spoilt = "EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(server.error("EXEC"), spoilt);
}

#[test]
fn when_nothing_can_be_saved_nothing_is_written() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    server.run("MULTI");
    server.run("INCR a");
    server.settings.refusals.set_save_failed(true);
    assert!(server.error("EXEC").starts_with("EXECABORT"));
    assert_eq!(server.text("GET a"), "1");
    for line in ["SET a 2", "DEL a", "PING"] {
        assert_eq!(server.error(line), NOT_SAVED, "{line}");
    }
    server.settings.refusals.set_save_failed(false);
    assert_eq!(server.integer("INCR a"), 2);
}

#[test]
fn while_the_log_cannot_be_written_nothing_is_written() {
    let mut server = TestServer::new();
    server.run("SET k v");
    server.run("MULTI");
    server.run("SET k w");
    let before = server.dump();
    server
        .settings
        .refusals
        .set_log_fault(Some("No space left"));
    let text = log_fault_text("No space left");
    let aborted = format!("EXECABORT Transaction discarded because of: {text}");
    assert_eq!(server.error("EXEC"), aborted);
    for line in ["SET k w", "DEL k", "INCR n", "FLUSHALL", "GETDEL k", "PING"] {
        assert_eq!(server.error(line), text, "{line}");
    }
    let (output, _) = server.pipeline(&["SET k w", "SET k x", "GET k"]);
    let expected = format!("-{text}\r\n-{text}\r\n$1\r\nv\r\n");
    assert_eq!(output, expected.as_bytes());
    assert_eq!(server.dump(), before);
    server.settings.refusals.set_log_fault(None);
    server.run("SET k w");
    assert_eq!(server.text("GET k"), "w");
}

#[test]
fn without_room_in_the_log_writes_wait() {
    let mut server = TestServer::new();
    server.run("SET k v");
    server.settings.gate.set_log_full(true);
    let (output, next) = server.pipeline(&["GET k", "SET k w", "GET k"]);
    let expected = (&b"$1\r\nv\r\n"[..], Next::LogFull);
    assert_eq!((output.as_slice(), next), expected);
    // Nothing was changed: it comes again.
    assert_eq!(server.text("GET k"), "v");
    // What would be refused is refused.
    assert!(server.error("SET k").contains("wrong number of arguments"));
    server.settings.gate.set_log_full(false);
    let (output, _) = server.pipeline(&["SET k w", "GET k"]);
    assert_eq!(output, b"+OK\r\n$1\r\nw\r\n");
}
