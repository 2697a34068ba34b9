//! Tests of cold values that cannot be read: requests that need them get a named error, and nothing
//! is done by half.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

use super::limits::eventually;
use super::recovery::files_of;
use super::tier::{ask, both_ways, figure, set_cold, start};

/// Returns a server with keys of all types whose values are good or cannot be read.
fn good_and_bad() -> (Server, Client) {
    let server = start(&["--maxmemory", "100mb", "--save", "", "--tier-scrub", "0"]);
    let mut client = server.client().unwrap();
    let mark = "DAMAGED".repeat(20);
    let fill = |client: &mut Client, name: &str, mark: &str| {
        ask(client, &["SET", &format!("{name}:string"), mark]);
        ask(client, &["RPUSH", &format!("{name}:list"), mark, "b", "c"]);
        ask(client, &["SADD", &format!("{name}:set"), mark, "b", "c"]);
        ask(
            client,
            &["ZADD", &format!("{name}:zset"), "1", mark, "2", "b"],
        );
        ask(
            client,
            &["XADD", &format!("{name}:stream"), "1-1", "field", mark],
        );
    };
    fill(&mut client, "bad", &mark);
    for kind in ["string", "list", "set", "zset", "stream"] {
        let key = format!("bad:{kind}");
        assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", &key]), ":1", "{key}");
    }
    damage(&server.directory().join("tier"), mark.as_bytes());
    fill(&mut client, "good", &"g".repeat(100));
    fill(&mut client, "other", &"o".repeat(100));
    ask(
        &mut client,
        &["XGROUP", "CREATE", "good:stream", "group", "0"],
    );
    (server, client)
}

/// Changes a byte of every entry that contains this text.
fn damage(directory: &Path, text: &[u8]) {
    for path in files_of(directory, "seg") {
        let bytes = std::fs::read(&path).unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let mut at = 0;
        while let Some(found) = bytes[at..]
            .windows(text.len())
            .position(|part| part == text)
        {
            at += found + text.len();
            file.write_all_at(b"!", (at - 1) as u64).unwrap();
        }
    }
}

/// Returns what all good keys hold.
fn all_good(client: &mut Client) -> String {
    let mut told = ask(client, &["DBSIZE"]);
    for name in ["good", "other"] {
        for kind in ["string", "list", "set", "zset", "stream"] {
            told += &ask(
                client,
                &["DEBUG", "DIGEST-VALUE", &format!("{name}:{kind}")],
            );
        }
    }
    told + &ask(client, &["XPENDING", "good:stream", "group"])
}

const UNREADABLE: &str = "TIERFAIL value cannot be read";

#[test]
fn a_write_that_meets_a_value_that_cannot_be_read_changes_nothing() {
    let (_server, mut client) = good_and_bad();
    let before = all_good(&mut client);
    for request in [
        "LMOVE good:list bad:list LEFT LEFT",
        "LMOVE bad:list good:list LEFT LEFT",
        "BLMOVE good:list bad:list LEFT LEFT 0",
        "RPOPLPUSH good:list bad:list",
        "SMOVE good:set bad:set b",
        "SMOVE bad:set good:set b",
        "SUNIONSTORE good:set other:set bad:set",
        "SINTERSTORE good:set other:set bad:set",
        "SDIFFSTORE good:set bad:set other:set",
        "ZUNIONSTORE good:zset 2 other:zset bad:zset",
        "ZINTERSTORE good:zset 2 other:zset bad:zset",
        "ZDIFFSTORE good:zset 2 other:zset bad:zset",
        "ZRANGESTORE good:zset bad:zset 0 -1",
        "BITOP OR good:string other:string bad:string",
        "BITOP NOT good:string bad:string",
        "SORT bad:list ALPHA STORE good:list",
        "COPY bad:string good:string REPLACE",
        "GETSET bad:string new",
        "SET bad:string new GET",
        "GETDEL bad:string",
        "APPEND bad:string tail",
        "SPOP bad:set 10",
        "LTRIM bad:list 1 0",
        "XREADGROUP GROUP group me STREAMS good:stream bad:stream > >",
    ] {
        let words: Vec<_> = request.split(' ').collect();
        let told = ask(&mut client, &words);
        assert!(told.contains(UNREADABLE), "{request}: {told}");
        assert_eq!(all_good(&mut client), before, "{request}");
    }
    // No unreadable value was taken for empty and removed.
    for key in [
        "bad:string",
        "bad:list",
        "bad:set",
        "bad:zset",
        "bad:stream",
    ] {
        assert_eq!(ask(&mut client, &["EXISTS", key]), ":1", "{key}");
    }
    assert_eq!(ask(&mut client, &["SET", "bad:string", "new"]), "+OK");
    assert_eq!(ask(&mut client, &["GET", "bad:string"]), "new");
}

#[test]
fn scripts_and_transactions_that_meet_a_value_that_cannot_be_read_change_nothing() {
    let (server, mut client) = good_and_bad();
    let before = all_good(&mut client);
    let script = "redis.call('SET', 'good:string', 'x'); return redis.call('GET', KEYS[1])";
    let told = ask(&mut client, &["EVAL", script, "1", "bad:string"]);
    assert!(told.contains(UNREADABLE), "{told}");
    assert_eq!(all_good(&mut client), before);
    // If a script accesses such a key without declaring it, it gets an error there, not an empty
    // value.
    let script = "local told = redis.pcall('GET', 'bad:string'); return told.err or 'none'";
    let told = ask(&mut client, &["EVAL", script, "0"]);
    assert!(told.contains(UNREADABLE), "{told}");
    let script = "return redis.pcall('SUNIONSTORE', 'good:set', 'other:set', 'bad:set').err";
    let told = ask(&mut client, &["EVAL", script, "0"]);
    assert!(told.contains(UNREADABLE), "{told}");
    assert_eq!(all_good(&mut client), before);

    ask(&mut client, &["MULTI"]);
    ask(&mut client, &["SET", "good:string", "x"]);
    ask(&mut client, &["APPEND", "bad:string", "x"]);
    let told = ask(&mut client, &["EXEC"]);
    assert!(told.contains(UNREADABLE), "{told}");
    assert_eq!(all_good(&mut client), before);
    ask(&mut client, &["MULTI"]);
    ask(&mut client, &["SET", "bad:string", "mended"]);
    let told = ask(&mut client, &["EXEC"]);
    assert!(!told.contains(UNREADABLE), "{told}");

    // If an element cannot be moved to a waiting client's target, it stays where it is.
    let late = "LATER".repeat(30);
    ask(&mut client, &["RPUSH", "late", &late]);
    let mut waiter = server.client().unwrap();
    waiter
        .send(&["BLMOVE", "empty", "late", "LEFT", "LEFT", "0"])
        .unwrap();
    eventually("the client waits", || {
        ask(&mut client, &["INFO", "clients"]).contains("blocked_clients:1")
    });
    assert_eq!(ask(&mut client, &["DEBUG", "DEMOTE", "late"]), ":1");
    damage(&server.directory().join("tier"), late.as_bytes());
    ask(&mut client, &["RPUSH", "empty", "element"]);
    let told = show(&waiter.receive().unwrap().unwrap());
    assert!(told.contains(UNREADABLE), "{told}");
    assert_eq!(ask(&mut client, &["LLEN", "empty"]), ":1");
}

#[test]
fn migrate_takes_values_that_are_out_of_memory_and_leaves_what_cannot_be_read() {
    let (_source, mut source) = good_and_bad();
    let builder = ServerBuilder::iolite().args(&["--enable-debug-command", "yes"]);
    let target = builder.tcp().start().unwrap();
    let mut there = target.client().unwrap();
    let port = target.address().unwrap().port().to_string();
    let kinds = ["string", "list", "set", "zset"];
    let keys = kinds.map(|kind| format!("other:{kind}"));
    let digest = |client: &mut Client| {
        keys.each_ref()
            .map(|key| ask(client, &["DEBUG", "DIGEST-VALUE", key]))
    };
    let before = digest(&mut source);
    for key in &keys {
        assert_eq!(ask(&mut source, &["DEBUG", "DEMOTE", key]), ":1", "{key}");
    }
    let migrate = |keys: &[String]| {
        let words = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"];
        let words = words.map(str::to_owned).into_iter();
        words.chain(keys.iter().cloned()).collect::<Vec<_>>()
    };
    let told = show(&source.command(&migrate(&keys)).unwrap());
    assert_eq!(told, "+OK");
    assert_eq!(digest(&mut there), before);
    for key in &keys {
        assert_eq!(ask(&mut source, &["EXISTS", key]), ":0", "{key}");
    }
    // A key that cannot be read stays where it is.
    let bad = ["bad:list".to_owned()];
    let told = show(&source.command(&migrate(&bad)).unwrap());
    assert!(told.contains(UNREADABLE), "{told}");
    assert_eq!(ask(&mut source, &["EXISTS", "bad:list"]), ":1");
    assert_eq!(ask(&mut there, &["EXISTS", "bad:list"]), ":0");
    assert!(ask(&mut source, &["DUMP", "bad:list"]).contains(UNREADABLE));
}

#[test]
fn a_client_that_leaves_while_its_value_is_read_takes_nothing_with_it() {
    both_ways(|server, client| {
        let long = "x".repeat(100_000);
        for round in 0..50 {
            let key = format!("key:{round}");
            set_cold(client, &key, &long);
            let mut other = server.client().unwrap();
            // The client disconnects, whether it was answered or not.
            other.send(&["GET", &key]).unwrap();
            drop(other);
        }
        eventually("no read is left", || {
            figure(client, "tier_reads_pending") == 0
        });
        for round in 0..50 {
            let key = format!("key:{round}");
            assert_eq!(ask(client, &["STRLEN", &key]), ":100000");
            assert_eq!(ask(client, &["GET", &key]), long);
        }
    });
}

#[test]
fn a_path_that_cannot_be_used_is_refused() {
    let args = ["--maxmemory", "100mb", "--tier-path", "/proc/version"];
    let told = ServerBuilder::iolite().args(&args).start();
    let error = told.err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("/proc/version"), "{error}");
}
