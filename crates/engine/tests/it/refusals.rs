//! Conditions under which any command is refused or has to wait.

use engine::Next;
use engine::refusals::{
    MASTER_DOWN, NO_WRITES, NOT_SAVED, STALE_IN_SCRIPT, TOO_FEW, log_fault_text,
};
use testkit::engine_server::TestServer;

const LOADS: &str = "LOADING Redis is loading the dataset in memory";

#[test]
fn while_data_is_loaded_only_what_needs_none_runs() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    server.shared.refusals.set_loading(true);
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
    server.shared.refusals.set_loading(false);
    assert_eq!(server.text("GET a"), "1");
    // A refused request does not count as called.
    assert_eq!(server.counts("GET"), (1, 0));
}

/// A log may begin with a fault, when all data is loaded but no client was served yet.
#[test]
fn who_waits_for_the_data_hears_of_a_log_that_cannot_be_written_afterwards() {
    let mut server = TestServer::new();
    server.shared.refusals.set_loading(true);
    server.shared.refusals.set_log_fault(Some("full"));
    for line in ["PING", "SET a 1", "GET a"] {
        assert_eq!(server.error(line), LOADS, "{line}");
    }
    server.shared.refusals.set_loading(false);
    assert_eq!(server.error("PING"), log_fault_text("full"));
}

#[test]
fn a_series_of_plain_requests_is_refused_one_by_one() {
    let mut server = TestServer::new();
    server.shared.refusals.set_loading(true);
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
    server.shared.refusals.set_loading(true);
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
    server.shared.refusals.set_save_failed(true);
    assert!(server.error("EXEC").starts_with("EXECABORT"));
    assert_eq!(server.text("GET a"), "1");
    for line in ["SET a 2", "DEL a", "PING"] {
        assert_eq!(server.error(line), NOT_SAVED, "{line}");
    }
    server.shared.refusals.set_save_failed(false);
    assert_eq!(server.integer("INCR a"), 2);
}

#[test]
fn while_the_log_cannot_be_written_nothing_is_written() {
    let mut server = TestServer::new();
    server.run("SET k v");
    server.run("MULTI");
    server.run("SET k w");
    let before = server.dump();
    server.shared.refusals.set_log_fault(Some("No space left"));
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
    server.shared.refusals.set_log_fault(None);
    server.run("SET k w");
    assert_eq!(server.text("GET k"), "w");
}

#[test]
fn without_room_in_the_log_writes_wait() {
    let mut server = TestServer::new();
    server.run("SET k v");
    server.shared.gate.set_log_full(true);
    let (output, next) = server.pipeline(&["GET k", "SET k w", "GET k"]);
    let expected = (&b"$1\r\nv\r\n"[..], Next::LogFull);
    assert_eq!((output.as_slice(), next), expected);
    // Nothing was changed: the client sends it again.
    assert_eq!(server.text("GET k"), "v");
    // A request that would be refused is refused at once.
    assert!(server.error("SET k").contains("wrong number of arguments"));
    server.shared.gate.set_log_full(false);
    let (output, _) = server.pipeline(&["SET k w", "GET k"]);
    assert_eq!(output, b"+OK\r\n$1\r\nw\r\n");
}

#[test]
fn a_replica_writes_nothing_of_its_own() {
    let mut server = TestServer::new();
    server.run("SET a 1");
    server.run("MULTI");
    server.run("INCR a");
    server.shared.refusals.set_read_only(true);
    let aborted = format!("EXECABORT Transaction discarded because of: {NO_WRITES}");
    assert_eq!(server.error("EXEC"), aborted);
    for line in [
        "SET a 2",
        "DEL a",
        "FLUSHALL",
        "BLPOP l 0",
        "FUNCTION FLUSH",
    ] {
        assert_eq!(server.error(line), NO_WRITES, "{line}");
    }
    server.run("MULTI");
    assert_eq!(server.error("INCR a"), NO_WRITES);
    assert!(server.error("EXEC").starts_with("EXECABORT"));
    let error = server.error("EVAL \"return redis.call('set','a','2')\" 1 a");
    assert!(error.starts_with(NO_WRITES), "{error}");
    assert_eq!(
        server.text("EVAL \"return redis.call('get','a')\" 1 a"),
        "1"
    );
    let (output, _) = server.pipeline(&["GET a", "SET a 2", "GET a"]);
    let expected = format!("$1\r\n1\r\n-{NO_WRITES}\r\n$1\r\n1\r\n");
    assert_eq!(output, expected.as_bytes());
    server.run("PING");
    // Commands from the primary are executed.
    server.set_primary(true);
    assert_eq!(server.integer("INCR a"), 2);
}

#[test]
fn a_script_that_says_it_writes_does_not_begin_on_a_replica() {
    let mut server = TestServer::new();
    let eval = |flags: &str| format!("EVAL \"#!lua flags={flags}\\nreturn 1\" 0");
    server.shared.refusals.set_read_only(true);
    assert_eq!(server.error(&eval("")), NO_WRITES);
    assert_eq!(server.integer(&eval("no-writes")), 1);
    server.shared.refusals.set_stale(true);
    assert_eq!(server.error(&eval("no-writes")), MASTER_DOWN);
    assert_eq!(server.integer(&eval("no-writes,allow-stale")), 1);
    let get = "return redis.pcall('get','a')";
    let inside = format!("EVAL \"#!lua flags=allow-stale,no-writes\\n{get}\" 1 a");
    assert_eq!(server.error(&inside), STALE_IN_SCRIPT);
    assert_eq!(server.error(&format!("EVAL \"{get}\" 1 a")), MASTER_DOWN);
    assert_eq!(server.error("GET a"), MASTER_DOWN);
    assert_eq!(server.text("INFO server"), "server");
}

#[test]
fn with_too_few_replicas_nothing_is_written() {
    let mut server = TestServer::new();
    server.shared.refusals.set_few_replicas(true);
    assert_eq!(server.error("SET a 1"), TOO_FEW);
    assert_eq!(server.error("EVAL \"#!lua\\nreturn 1\" 0"), TOO_FEW);
    server.run("PING");
    server.shared.refusals.set_few_replicas(false);
    server.run("SET a 1");
}

/// PFCOUNT caches its count, which is a write.
#[test]
fn what_is_counted_on_a_replica_is_not_kept() {
    let mut server = TestServer::new();
    server.run("PFADD k a b c");
    let before = server.dump();
    server.shared.refusals.set_read_only(true);
    assert_eq!(server.integer("PFCOUNT k"), 3);
    assert_eq!(server.dump(), before);
}

#[test]
fn while_the_role_changes_writes_wait_and_a_pause_goes_on_by_itself() {
    let mut server = TestServer::new();
    server.run("SET k v");
    let gate = &server.shared.gate;
    gate.pause(100, true, 10);
    gate.set_changes_role(true);
    gate.unpause();
    assert!(gate.changes_role() && gate.paused_until_unix_ms() == 0);
    let (output, next) = server.pipeline(&["GET k", "SET k w"]);
    let expected = (&b"$1\r\nv\r\n"[..], Next::Paused);
    assert_eq!((output.as_slice(), next), expected);
    server.shared.gate.set_changes_role(false);
    let (output, _) = server.pipeline(&["SET k w", "GET k"]);
    assert_eq!(output, b"+OK\r\n$1\r\nw\r\n");
}
