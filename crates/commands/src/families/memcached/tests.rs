//! Replies and effects of the item commands.

use protocol::Value;
use testkit::engine_server::TestServer;

/// Returns the reply of MCSET: its status and the number of the item.
fn set(server: &mut TestServer, line: &str) -> (String, i64) {
    match server.run(line) {
        Value::Array(parts) => match &parts[..] {
            [Value::Simple(status), Value::Integer(cas)] => {
                (String::from_utf8_lossy(status).into_owned(), *cas)
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(text) | Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Null => "null".to_owned(),
        Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" "),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flags_stay_beside_a_plain_string() {
    let mut server = TestServer::new();
    let (status, cas) = set(&mut server, "MCSET k v 4294967295 0 SET");
    assert_eq!(status, "STORED");
    assert_eq!(server.text("GET k"), "v");
    let item = server.run("MCGET k");
    assert_eq!(text(&item), format!("4294967295 {cas} 0 1 v"));
    // A change in place keeps the flags, and changes the number.
    server.run("APPEND k w");
    let item = server.run("MCGET k CAS NOVALUE");
    assert_eq!(text(&item), format!("4294967295 {} 0 2 null", cas + 1));
    // Another value has no flags.
    server.run("SET k x");
    let item = text(&server.run("MCGET k"));
    assert_eq!(item, "0 0 0 1 x");
    server.assert_effects_replay();
}

#[test]
fn only_who_saw_the_last_value_replaces_it() {
    let mut server = TestServer::new();
    let (_, cas) = set(&mut server, "MCSET k a 1 0 SET");
    let (status, next) = set(&mut server, &format!("MCSET k a 1 0 SET CAS {cas}"));
    assert_eq!(status, "STORED");
    assert_ne!(next, cas);
    let (status, _) = set(&mut server, &format!("MCSET k a 1 0 SET CAS {cas}"));
    assert_eq!(status, "EXISTS");
    let (status, _) = set(&mut server, &format!("MCSET none a 1 0 SET CAS {cas}"));
    assert_eq!(status, "NOT_FOUND");
    // An item that was deleted and created again does not match the remembered number.
    server.run("DEL k");
    set(&mut server, "MCSET k a 1 0 SET");
    let (status, _) = set(&mut server, &format!("MCSET k b 1 0 SET CAS {next}"));
    assert_eq!(status, "EXISTS");
    server.assert_effects_replay();
}

#[test]
fn a_string_without_an_etag_is_compared_by_its_bytes() {
    let mut server = TestServer::new();
    server.run("SET k a");
    let Value::Array(item) = server.run("MCGET k CAS") else {
        panic!("no item");
    };
    let cas = text(&item[1]);
    server.run("SET k b");
    let (status, _) = set(&mut server, &format!("MCSET k c 0 0 SET CAS {cas}"));
    assert_eq!(status, "EXISTS");
    server.run("SET k a");
    let (status, _) = set(&mut server, &format!("MCSET k c 0 0 SET CAS {cas}"));
    assert_eq!(status, "STORED");
    assert_eq!(set(&mut server, "MCSET k d 0 0 SET CAS 0").0, "EXISTS");
}

#[test]
fn modes_are_those_of_memcached() {
    let mut server = TestServer::new();
    for (line, status) in [
        ("MCSET k a 7 0 REPLACE", "NOT_STORED"),
        ("MCSET k a 7 0 APPEND", "NOT_STORED"),
        ("MCSET k a 7 0 PREPEND", "NOT_STORED"),
        ("MCSET k b 7 0 ADD", "STORED"),
        ("MCSET k c 7 0 ADD", "NOT_STORED"),
        ("MCSET k c 9 0 APPEND", "STORED"),
        ("MCSET k a 9 0 PREPEND", "STORED"),
    ] {
        assert_eq!(set(&mut server, line).0, status, "{line}");
    }
    let item = text(&server.run("MCGET k"));
    assert!(item.starts_with("7 ") && item.ends_with(" abc"), "{item}");
    assert_eq!(set(&mut server, "MCSET k z 2 0 REPLACE").0, "STORED");
    assert_eq!(server.text("GET k"), "z");
    server.run("RPUSH l a");
    assert!(
        server
            .error("MCSET l b 0 0 APPEND")
            .starts_with("WRONGTYPE")
    );
    assert!(server.error("MCGET l").starts_with("WRONGTYPE"));
    assert_eq!(set(&mut server, "MCSET l b 0 0 SET").0, "STORED");
    server.assert_effects_replay();
}

#[test]
fn an_item_whose_time_has_come_is_gone() {
    let mut server = TestServer::new();
    server.run("MCSET k v 0 0 SET");
    assert_eq!(set(&mut server, "MCSET k w 0 1 SET").0, "STORED");
    assert_eq!(server.run("GET k"), Value::Null);
    server.run("MCSET k v 3 0 SET");
    let far = "9000000000000";
    let item = text(&server.run(&format!("MCGAT k {far}")));
    assert!(
        item.starts_with("3 ") && item.ends_with(&format!("{far} 1 v")),
        "{item}"
    );
    assert_eq!(server.dump()[0].3, Some(9_000_000_000_000));
    server.run("MCGAT k 0");
    assert_eq!(server.dump()[0].3, None);
    server.run("MCGAT k 1");
    assert_eq!(server.run("GET k"), Value::Null);
    assert_eq!(server.run("MCGAT k 0"), Value::Null);
    server.assert_effects_replay();
}

#[test]
fn numbers_have_64_bits_without_a_sign() {
    let mut server = TestServer::new();
    assert_eq!(text(&server.run("MCINCR k INCR 1")), "NOT_FOUND 0 0");
    server.run("MCSET k 18446744073709551615 5 0 SET");
    assert!(text(&server.run("MCINCR k INCR 3")).starts_with("STORED 2 "));
    assert!(text(&server.run("MCINCR k DECR 9")).starts_with("STORED 0 "));
    assert!(
        text(&server.run("MCINCR k INCR 18446744073709551615"))
            .starts_with("STORED 18446744073709551615 ")
    );
    assert!(text(&server.run("MCGET k")).starts_with("5 "));
    server.run("MCSET k x 0 0 SET");
    assert_eq!(
        server.error("MCINCR k INCR 1"),
        "ERR cannot increment or decrement non-numeric value"
    );
    assert!(text(&server.run("MCINCR new INCR 1 INIT 41 0")).starts_with("STORED 41 "));
    assert!(text(&server.run("MCINCR new INCR 1 INIT 41 0")).starts_with("STORED 42 "));
    assert_eq!(text(&server.run("MCINCR new INCR 1 CAS 1")), "EXISTS 0 0");
    server.run("MCINCR new INCR 1 PXAT 9000000000000");
    assert!(
        server
            .dump()
            .iter()
            .any(|one| one.3 == Some(9_000_000_000_000))
    );
    server.assert_effects_replay();
}

#[test]
fn one_of_all_who_ask_is_told_to_fetch_what_is_out_of_date() {
    let mut server = TestServer::new();
    let (_, cas) = set(&mut server, "MCSET k v 7 0 SET");
    assert_eq!(text(&server.run("MCDEL k STALE")), "DELETED");
    let item = text(&server.run("MCGET k CAS MARKS"));
    let stale = cas + 1;
    assert_eq!(item, format!("7 {stale} 0 1 v 1"));
    assert_eq!(
        text(&server.run("MCWIN k CAS")),
        format!("7 {stale} 0 1 v 7")
    );
    assert_eq!(
        text(&server.run("MCWIN k CAS")),
        format!("7 {stale} 0 1 v 3")
    );
    // A client that saw the value before the mark may still store if the option allows it; the item
    // stays stale.
    assert_eq!(
        set(&mut server, &format!("MCSET k w 7 0 SET CAS {cas}")).0,
        "EXISTS"
    );
    let late = set(
        &mut server,
        &format!("MCSET k w 7 9000000000000 SET CAS {cas} STALE"),
    );
    assert_eq!(late, ("STORED".to_owned(), stale));
    assert_eq!(
        text(&server.run("MCWIN k CAS")),
        format!("7 {stale} 0 1 w 3")
    );
    // The value that the chosen client stores is no longer stale.
    let won = set(&mut server, &format!("MCSET k x 7 0 SET CAS {stale} STALE"));
    assert_eq!(won.0, "STORED");
    assert_eq!(
        text(&server.run("MCWIN k CAS")),
        format!("7 {} 0 1 x 0", won.1)
    );
    server.assert_effects_replay();
}

#[test]
fn deleting_may_compare() {
    let mut server = TestServer::new();
    let (_, cas) = set(&mut server, "MCSET k v 0 0 SET");
    assert_eq!(text(&server.run("MCDEL k CAS 1")), "EXISTS");
    assert_eq!(text(&server.run(&format!("MCDEL k CAS {cas}"))), "DELETED");
    assert_eq!(text(&server.run("MCDEL k")), "NOT_FOUND");
    server.run("RPUSH l a");
    assert_eq!(text(&server.run("MCDEL l")), "DELETED");
    server.assert_effects_replay();
}
