//! What is observed about requests: the audit log, the largest keys.

use std::sync::{Arc, Mutex};

use engine::observer::{AuditFilter, AuditSink};
use testkit::engine_server::TestServer;

struct Lines(Arc<Mutex<Vec<String>>>);

impl AuditSink for Lines {
    fn take(&self, line: String) -> bool {
        self.0.lock().unwrap().push(line);
        true
    }
}

/// Returns the audit lines written while `requests` run.
fn lines(filter: AuditFilter, requests: &[&str]) -> (Vec<String>, u64) {
    let mut server = TestServer::new();
    server.run("ACL SETUSER u on nopass ~* +@all -incr");
    let written = Arc::new(Mutex::new(Vec::new()));
    let sink = Box::new(Lines(Arc::clone(&written)));
    server.shared.observer.audit.set(Some((filter, sink)));
    server.pipeline(requests);
    let lines = written.lock().unwrap();
    let from = |line: &String| line.split_once("verdict=").unwrap().1.to_owned();
    let dropped = server.shared.observer.audit.dropped();
    (lines.iter().map(from).collect(), dropped)
}

#[test]
fn what_is_wanted_is_written_without_values() {
    let filter = AuditFilter {
        users: vec![b"u*".to_vec()],
        categories: vec!["write".to_owned()],
        keys: vec![b"a*".to_vec()],
        lines_per_second_max: 100,
    };
    let requests = [
        "SET a1 secret",
        "AUTH u secret",
        "SET a2 secret",
        "GET a2",
        "SET b secret",
        "MSET b 1 a3 2",
        "INCR a1",
    ];
    let of_u = |verdict: &str, rest: &str| {
        format!("{verdict} user=\"u\" client=1 address=\"test:0\" database=0 command={rest}")
    };
    let expected = [
        of_u("ok", "set key=\"a2\""),
        of_u("ok", "mset key=\"b\" key=\"a3\""),
        of_u("denied", "incr key=\"a1\""),
    ];
    assert_eq!(lines(filter, &requests), (expected.to_vec(), 0));
}

#[test]
fn lines_are_bounded() {
    let filter = AuditFilter {
        lines_per_second_max: 2,
        ..AuditFilter::default()
    };
    let requests = ["GET a", "MULTI", "GET b", "EXEC", "PING"];
    let (lines, dropped) = lines(filter, &requests);
    assert_eq!((lines.len(), dropped), (2, 3));
}

#[test]
fn the_largest_are_found_in_every_database() {
    let mut server = TestServer::new();
    for number in 0..2_000 {
        server.run(&format!("SET key:{number} {number}"));
    }
    server.run(&format!("SET big {}", "x".repeat(10_000)));
    server.run("SELECT 5");
    server.run(&format!("RPUSH bigger {}", "y ".repeat(20_000)));
    let big_keys = engine::observer::BigKeys::default();
    server.with_store(|store| (0..20).for_each(|_| big_keys.step(store, 512)));
    let found = big_keys.report(2);
    let names: Vec<_> = found.iter().map(|big| (big.database, &*big.key)).collect();
    assert_eq!(names, [(5, &b"bigger"[..]), (0, &b"big"[..])]);
    assert!(found[1].bytes >= 10_000);
    server.run("DEL bigger");
    server.with_store(|store| (0..20).for_each(|_| big_keys.step(store, 512)));
    assert_eq!(&*big_keys.report(1)[0].key, b"big");
}
