//! Tests of client-side caching with clients of several workers, on Redis as well.

use std::sync::atomic::{AtomicBool, Ordering};

use protocol::Value;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder};
use testkit::transcript::show;

use crate::limits::eventually;

fn start(args: &[&str]) -> Server {
    let builder = ServerBuilder::iolite().args(&["--io-threads", "3"]);
    builder.args(args).start().unwrap()
}

/// Starts our server, and the one that it is compared with.
fn both() -> [Server; 2] {
    [start(&[]), ServerBuilder::oracle().start().unwrap()]
}

fn ask(client: &mut Client, args: &[&str]) -> String {
    show(&client.command(args).unwrap())
}

fn next(client: &mut Client) -> String {
    show(&client.receive().unwrap().unwrap())
}

fn resp3(server: &Server) -> Client {
    let mut client = server.client().unwrap();
    client.hello3().unwrap();
    client
}

fn id_of(client: &mut Client) -> String {
    ask(client, &["CLIENT", "ID"])
        .trim_start_matches(':')
        .into()
}

/// Returns a RESP2 client that receives the invalidations of other clients, and its id.
fn listener(server: &Server) -> (Client, String) {
    let mut client = server.client().unwrap();
    let id = id_of(&mut client);
    ask(&mut client, &["SUBSCRIBE", "__redis__:invalidate"]);
    (client, id)
}

fn invalidation(key: &str) -> String {
    format!(">[\"invalidate\", [\"{key}\"]]")
}

fn message(key: &str) -> String {
    format!("[\"message\", \"__redis__:invalidate\", [\"{key}\"]]")
}

/// Asserts that a client has received nothing after what it has read.
fn assert_quiet(client: &mut Client) {
    assert_eq!(ask(client, &["ECHO", "quiet"]), "\"quiet\"");
}

#[test]
fn each_kind_of_change_is_told_once() {
    for server in both() {
        let mut other = server.client().unwrap();
        let changes: [(&[&str], &[&str]); 9] = [
            (&["SET", "k", "1"], &["SET", "k", "2"]),
            (&["SET", "k", "1"], &["APPEND", "k", "2"]),
            (&["SET", "k", "1"], &["DEL", "k"]),
            (&["SET", "k", "1"], &["UNLINK", "k"]),
            (&["SET", "k", "1"], &["RENAME", "k", "other"]),
            (&["SET", "k", "1"], &["EXPIRE", "k", "100"]),
            (&["SET", "k", "1"], &["PEXPIRE", "k", "1"]),
            (&["SET", "k", "1"], &["INCR", "k"]),
            (&["DEL", "k"], &["SET", "k", "new"]),
        ];
        for (before, change) in changes {
            let mut client = resp3(&server);
            ask(&mut other, before);
            assert_eq!(ask(&mut client, &["CLIENT", "TRACKING", "ON"]), "+OK");
            ask(&mut client, &["GET", "k"]);
            ask(&mut client, &["GET", "k"]);
            ask(&mut other, change);
            let told = next(&mut client);
            assert_eq!(told, invalidation("k"), "{} {change:?}", server.name());
            ask(&mut other, &["SET", "k", "again"]);
            assert_quiet(&mut client);
        }
        // The lifetime doubles each time, until the key is read before it expires.
        let lives_ms = (0..12).map(|doublings| (30_u64 << doublings).to_string());
        let told = lives_ms.into_iter().find_map(|lives_ms| {
            let mut client = resp3(&server);
            assert_eq!(ask(&mut client, &["CLIENT", "TRACKING", "ON"]), "+OK");
            ask(&mut other, &["SET", "k", "1", "PX", &lives_ms]);
            let is_read = ask(&mut client, &["GET", "k"]) == "\"1\"";
            is_read.then(|| next(&mut client))
        });
        assert_eq!(told, Some(invalidation("k")), "{} expires", server.name());
    }
}

#[test]
fn a_flush_is_told_as_nothing() {
    for server in both() {
        let mut client = resp3(&server);
        let mut other = server.client().unwrap();
        ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
        ask(&mut other, &["MSET", "a", "1", "b", "2"]);
        for flush in ["FLUSHALL", "FLUSHDB"] {
            ask(&mut client, &["MGET", "a", "b", "c"]);
            ask(&mut other, &[flush]);
            assert_eq!(next(&mut client), ">[\"invalidate\", (nil)]", "{flush}");
            ask(&mut other, &["SET", "c", "1"]);
            assert_quiet(&mut client);
        }
        let info = ask(&mut other, &["INFO", "stats"]);
        assert!(info.contains("tracking_total_keys:0\\r"), "{info}");
        let (mut redirected, id) = listener(&server);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
        ask(&mut other, &["FLUSHALL"]);
        let told = next(&mut redirected);
        assert_eq!(told, "[\"message\", \"__redis__:invalidate\", (nil)]");
    }
}

#[test]
fn own_changes_are_told_behind_the_reply_unless_unwanted() {
    let server = start(&[]);
    let mut client = resp3(&server);
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    client
        .send_raw(b"GET k\r\nSET k 1\r\nGET k\r\nMULTI\r\nSET k 2\r\nGET k\r\nEXEC\r\nPING\r\n")
        .unwrap();
    for expected in [
        "(nil)",
        "+OK",
        ">[\"invalidate\", [\"k\"]]",
        "\"1\"",
        "+OK",
        "+QUEUED",
        "+QUEUED",
        "[+OK, \"2\"]",
        ">[\"invalidate\", [\"k\"]]",
        "+PONG",
    ] {
        assert_eq!(next(&mut client), expected);
    }
    for server in both() {
        let mut client = resp3(&server);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "NOLOOP"]);
        ask(&mut client, &["GET", "k"]);
        ask(&mut client, &["SET", "k", "1"]);
        assert_quiet(&mut client);
        ask(&mut client, &["GET", "k"]);
        ask(&mut server.client().unwrap(), &["SET", "k", "2"]);
        assert_eq!(next(&mut client), invalidation("k"));
    }
}

#[test]
fn reads_may_be_chosen() {
    for server in both() {
        let mut other = server.client().unwrap();
        let mut client = resp3(&server);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "OPTIN"]);
        ask(&mut client, &["GET", "a"]);
        ask(&mut client, &["CLIENT", "CACHING", "YES"]);
        ask(&mut client, &["GET", "b"]);
        ask(&mut client, &["GET", "c"]);
        for key in ["a", "b", "c"] {
            ask(&mut other, &["SET", key, "1"]);
        }
        assert_eq!(next(&mut client), invalidation("b"));
        assert_quiet(&mut client);
        ask(&mut client, &["CLIENT", "CACHING", "YES"]);
        ask(&mut client, &["MULTI"]);
        ask(&mut client, &["GET", "a"]);
        ask(&mut client, &["GET", "b"]);
        ask(&mut client, &["EXEC"]);
        ask(&mut other, &["SET", "b", "2"]);
        assert_eq!(next(&mut client), invalidation("b"));
        let mut client = resp3(&server);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "OPTOUT"]);
        ask(&mut client, &["CLIENT", "CACHING", "NO"]);
        ask(&mut client, &["GET", "a"]);
        ask(&mut client, &["GET", "b"]);
        ask(&mut other, &["SET", "a", "3"]);
        ask(&mut other, &["SET", "b", "3"]);
        assert_eq!(next(&mut client), invalidation("b"));
        assert_quiet(&mut client);
    }
}

#[test]
fn news_may_go_to_another_client() {
    for server in both() {
        let (mut redirected, id) = listener(&server);
        let mut other = server.client().unwrap();
        let mut client = server.client().unwrap();
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
        assert_eq!(ask(&mut client, &["CLIENT", "GETREDIR"]), format!(":{id}"));
        ask(&mut client, &["GET", "k"]);
        ask(&mut other, &["SET", "k", "1"]);
        assert_eq!(next(&mut redirected), message("k"));
        // A RESP3 client need not subscribe.
        let mut listening = resp3(&server);
        let id = id_of(&mut listening);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
        ask(&mut client, &["GET", "k"]);
        ask(&mut other, &["SET", "k", "2"]);
        assert_eq!(next(&mut listening), invalidation("k"));
        let mut client = resp3(&server);
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "REDIRECT", &id]);
        ask(&mut client, &["GET", "k"]);
        drop(listening);
        eventually("the other one is gone", || {
            !ask(&mut other, &["CLIENT", "LIST"]).contains(&format!("id={id} "))
        });
        ask(&mut other, &["SET", "k", "3"]);
        let broken = format!(">[\"tracking-redir-broken\", :{id}]");
        assert_eq!(next(&mut client), broken);
        let info = ask(&mut client, &["CLIENT", "TRACKINGINFO"]);
        assert!(info.contains("broken_redirect"), "{info}");
    }
}

#[test]
fn what_is_tracked_goes_with_its_client() {
    let server = start(&[]);
    let mut other = server.client().unwrap();
    let totals = |other: &mut Client| {
        let info = ask(other, &["INFO", "everything"]);
        let value = |name: &str| {
            let rest = info.split(&format!("{name}:")).nth(1).unwrap();
            rest.split('\\').next().unwrap().to_owned()
        };
        [
            "tracking_clients",
            "tracking_total_keys",
            "tracking_total_items",
        ]
        .map(value)
    };
    let mut clients: Vec<Client> = (0..4).map(|_| resp3(&server)).collect();
    for client in &mut clients {
        ask(client, &["CLIENT", "TRACKING", "ON"]);
        ask(client, &["MGET", "a", "b", "c"]);
    }
    assert_eq!(totals(&mut other), ["4", "3", "12"]);
    let list = ask(&mut other, &["CLIENT", "LIST"]);
    assert_eq!(list.matches(" flags=tU ").count(), 4, "{list}");
    ask(&mut clients[0], &["CLIENT", "TRACKING", "OFF"]);
    assert_eq!(ask(&mut clients[1], &["RESET"]), "+RESET");
    drop(clients.pop());
    eventually("one is left", || totals(&mut other) == ["1", "3", "3"]);
    ask(&mut other, &["SET", "a", "1"]);
    assert_eq!(next(&mut clients[2]), invalidation("a"));
    assert_eq!(totals(&mut other), ["1", "2", "2"]);
    clients.clear();
    eventually("none is left", || totals(&mut other) == ["0", "0", "0"]);
}

#[test]
fn the_table_has_a_limit() {
    let server = start(&["--tracking-table-max-keys", "100"]);
    let mut client = resp3(&server);
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    for number in 0..300 {
        client.send(&["GET", &format!("key{number}")]).unwrap();
    }
    let (mut replies, mut dropped) = (0, 0);
    while replies < 300 || dropped < 200 {
        match client.receive().unwrap().unwrap() {
            Value::Push(_) => dropped += 1,
            _ => replies += 1,
        }
    }
    let info = ask(&mut server.client().unwrap(), &["INFO", "stats"]);
    assert!(info.contains("tracking_total_keys:100\\r"), "{info}");
    assert_quiet(&mut client);
}

#[test]
fn a_limit_that_is_lowered_holds_without_further_reads() {
    for server in both() {
        let mut client = resp3(&server);
        let mut other = server.client().unwrap();
        ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
        ask(&mut client, &["MGET", "a", "b", "c"]);
        let limit = ["CONFIG", "SET", "tracking-table-max-keys", "1"];
        assert_eq!(ask(&mut other, &limit), "+OK");
        let dropped = [next(&mut client), next(&mut client)];
        for told in &dropped {
            assert!(told.starts_with(">[\"invalidate\", [\""), "{told}");
        }
        assert_ne!(dropped[0], dropped[1]);
        assert_quiet(&mut client);
    }
}

/// Regression test: only the next upkeep dropped the keys, up to a tenth of a second after the
/// reply.
#[test]
fn a_limit_that_is_lowered_is_told_before_the_next_reply() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut client = resp3(&server);
    let worker = worker_of(&mut client);
    let mut others: Vec<Client> = (0..12).map(|_| server.client().unwrap()).collect();
    let at = others.iter_mut().position(|one| worker_of(one) != worker);
    let mut other = others.swap_remove(at.unwrap());
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    for _ in 0..20 {
        let limit = ["CONFIG", "SET", "tracking-table-max-keys", "100"];
        assert_eq!(ask(&mut other, &limit), "+OK");
        ask(&mut client, &["MGET", "a", "b", "c"]);
        let limit = ["CONFIG", "SET", "tracking-table-max-keys", "1"];
        assert_eq!(ask(&mut other, &limit), "+OK");
        client.send(&["PING"]).unwrap();
        for _ in 0..2 {
            let told = next(&mut client);
            assert!(told.starts_with(">[\"invalidate\", [\""), "{told}");
        }
        assert_eq!(next(&mut client), "+PONG");
        // The third key is included, so that the next round begins with an empty table.
        ask(&mut other, &["MSET", "a", "1", "b", "1", "c", "1"]);
        let told = next(&mut client);
        assert!(told.starts_with(">[\"invalidate\", [\""), "{told}");
    }
}

/// Many clients change what many clients read, on all workers: no client is left with an old value.
#[test]
fn no_cache_stays_behind() {
    let server = start(&[]);
    const KEYS: usize = 8;
    let are_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (server, are_done) = (&server, &are_done);
        let writers = [0, 1].map(|writer| {
            scope.spawn(move || {
                let mut client = server.client().unwrap();
                for number in 0..1_500 {
                    let key = format!("k{}", (number * 7 + writer) % KEYS);
                    ask(&mut client, &["INCR", &key]);
                }
            })
        });
        for _ in 0..4 {
            scope.spawn(|| follow(server, KEYS, are_done));
        }
        let outcome = writers.map(std::thread::ScopedJoinHandle::join);
        are_done.store(true, Ordering::SeqCst);
        for ended in outcome {
            ended.unwrap();
        }
    });
}

/// Maintains a cache of all keys until the writers are done and no invalidation came for a while,
/// then compares it.
fn follow(server: &Server, keys: usize, are_done: &AtomicBool) {
    let mut client = resp3(server);
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    let mut cache: Vec<Option<String>> = vec![None; keys];
    let mut rounds_quiet = 0;
    while rounds_quiet < 50 {
        rounds_quiet += u32::from(are_done.load(Ordering::SeqCst));
        for number in 0..keys {
            if cache[number].is_none() {
                rounds_quiet = 0;
                client.send(&["GET", &format!("k{number}")]).unwrap();
                loop {
                    match client.receive().unwrap().unwrap() {
                        Value::Push(items) => forget(&mut cache, &items),
                        value => break cache[number] = Some(show(&value)),
                    }
                }
            }
        }
        client.send(&["ECHO", "round"]).unwrap();
        while let Value::Push(items) = client.receive().unwrap().unwrap() {
            forget(&mut cache, &items);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let mut other = server.client().unwrap();
    for (number, cached) in cache.iter().enumerate() {
        let value = ask(&mut other, &["GET", &format!("k{number}")]);
        let cached = cached.as_deref();
        assert!(cached.is_none() || cached == Some(&value), "k{number}");
    }
}

fn forget(cache: &mut [Option<String>], items: &[Value]) {
    let Value::Array(keys) = &items[1] else {
        panic!("{items:?}");
    };
    for key in keys {
        let Value::Bulk(key) = key else {
            panic!("{key:?}");
        };
        let number: usize = String::from_utf8_lossy(&key[1..]).parse().unwrap();
        cache[number] = None;
    }
}

#[test]
fn changes_of_prefixes_are_told_together() {
    for server in both() {
        let (mut redirected, id) = listener(&server);
        let mut other = server.client().unwrap();
        let mut client = server.client().unwrap();
        let begin = "CLIENT TRACKING ON REDIRECT _ BCAST PREFIX foo PREFIX bar";
        let begin: Vec<&str> = begin.split(' ').collect();
        let begin: Vec<&str> = begin
            .into_iter()
            .map(|word| if word == "_" { id.as_str() } else { word })
            .collect();
        assert_eq!(ask(&mut client, &begin), "+OK");
        other
            .send_raw(b"MULTI\r\nINCR foo1\r\nINCR foo2\r\nINCR bar1\r\nINCR bar2\r\nEXEC\r\n")
            .unwrap();
        for _ in 0..6 {
            next(&mut other);
        }
        let told = |keys: &str| format!("[\"message\", \"__redis__:invalidate\", [{keys}]]");
        assert_eq!(next(&mut redirected), told("\"bar1\", \"bar2\""));
        assert_eq!(next(&mut redirected), told("\"foo1\", \"foo2\""));
        ask(&mut other, &["SET", "other", "1"]);
        ask(&mut other, &["DEL", "foo1"]);
        assert_eq!(next(&mut redirected), told("\"foo1\""));
        ask(&mut other, &["RPUSH", "foo-list", "1"]);
        assert_eq!(next(&mut redirected), told("\"foo-list\""));
        // So long that the invalidation by the request comes before that by the key's expiry.
        ask(&mut other, &["PEXPIRE", "foo-list", "500"]);
        assert_eq!(next(&mut redirected), told("\"foo-list\""));
        assert_eq!(next(&mut redirected), told("\"foo-list\""), "expired");
        assert_eq!(ask(&mut client, &["CLIENT", "TRACKING", "OFF"]), "+OK");
        ask(&mut other, &["SET", "foo1", "1"]);
        assert_eq!(ask(&mut redirected, &["PING"]), "[\"pong\", \"\"]");
    }
}

#[test]
fn own_changes_are_left_out_of_prefixes_where_unwanted() {
    for server in both() {
        let mut client = resp3(&server);
        let mut other = server.client().unwrap();
        ask(
            &mut client,
            &["CLIENT", "TRACKING", "ON", "BCAST", "NOLOOP"],
        );
        ask(&mut client, &["SET", "a", "1"]);
        assert_quiet(&mut client);
        ask(&mut other, &["SET", "a", "2"]);
        assert_eq!(next(&mut client), invalidation("a"));
        assert_eq!(ask(&mut client, &["CLIENT", "TRACKING", "OFF"]), "+OK");
        ask(&mut client, &["CLIENT", "TRACKING", "ON", "BCAST"]);
        ask(&mut client, &["SET", "a", "1"]);
        assert_eq!(next(&mut client), invalidation("a"));
    }
}

#[test]
fn no_prefix_behind_one_means_all_keys() {
    for server in both() {
        let mut client = resp3(&server);
        let mut other = server.client().unwrap();
        let begin = ["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "a"];
        assert_eq!(ask(&mut client, &begin), "+OK");
        for _ in 0..2 {
            assert_eq!(ask(&mut client, &begin[..4]), "+OK");
        }
        let info = ask(&mut client, &["CLIENT", "TRACKINGINFO"]);
        assert!(info.contains("[\"\", \"a\"]"), "{info}");
        ask(&mut other, &["SET", "b", "1"]);
        assert_eq!(next(&mut client), invalidation("b"));
        ask(&mut other, &["SET", "a", "1"]);
        for _ in 0..2 {
            assert_eq!(next(&mut client), invalidation("a"), "once a prefix");
        }
        let refusal = ask(&mut client, &begin);
        assert!(
            refusal.contains("overlaps with an existing prefix"),
            "{refusal}"
        );
    }
}

/// Invalidations by evictions for a request come before its reply. If they came after it, a cache
/// would drop what the request has just stored there.
#[test]
fn evictions_for_a_request_are_told_before_its_reply() {
    let server = start(&["--maxmemory-policy", "volatile-random"]);
    let mut client = resp3(&server);
    let mut other = server.client().unwrap();
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    ask(&mut client, &["SET", "volatile", "1", "EX", "1000"]);
    let value = "x".repeat(60_000);
    for number in 0..100 {
        ask(&mut other, &["SET", &format!("k{number}"), &value]);
    }
    ask(&mut client, &["GET", "volatile"]);
    let limit = "CONFIG SET maxmemory 1mb\r\nSETBIT volatile 7 1\r\n";
    client.send_raw(limit.as_bytes()).unwrap();
    assert_eq!(next(&mut client), "+OK");
    assert_eq!(next(&mut client), invalidation("volatile"));
    // Whether the command runs depends on how much memory that freed.
    next(&mut client);
    assert_quiet(&mut client);
}

/// Returns the worker of a client.
fn worker_of(client: &mut Client) -> String {
    let info = ask(client, &["CLIENT", "INFO"]);
    let worker = info.split("io-thread=").nth(1).unwrap();
    worker.split(' ').next().unwrap().into()
}

/// A client that learned of a change and then sends a request gets the invalidation before the
/// reply, even if the worker had no time between the two.
#[test]
fn what_happened_before_a_request_is_told_before_its_reply() {
    let server = start(&["--enable-debug-command", "yes"]);
    let mut client = resp3(&server);
    let worker = worker_of(&mut client);
    let mut others: Vec<Client> = (0..12).map(|_| server.client().unwrap()).collect();
    let at = others.iter_mut().position(|one| worker_of(one) == worker);
    let mut busy = others.swap_remove(at.unwrap());
    let at = others.iter_mut().position(|one| worker_of(one) != worker);
    let mut other = others.swap_remove(at.unwrap());
    ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
    for _ in 0..5 {
        ask(&mut client, &["GET", "k"]);
        busy.send(&["DEBUG", "SLEEP", "0.05"]).unwrap();
        ask(&mut other, &["INCR", "k"]);
        client.send(&["PING"]).unwrap();
        assert_eq!(next(&mut client), invalidation("k"));
        assert_eq!(next(&mut client), "+PONG");
        assert_eq!(next(&mut busy), "+OK");
    }
}

#[test]
fn who_is_served_hears_of_it_behind_the_answer() {
    for server in both() {
        let mut client = resp3(&server);
        let mut other = server.client().unwrap();
        ask(&mut client, &["CLIENT", "TRACKING", "ON"]);
        for round in 0..20 {
            ask(&mut client, &["LRANGE", "to", "0", "-1"]);
            let wait = ["BLMOVE", "from", "to", "LEFT", "LEFT", "0"];
            client.send(&wait).unwrap();
            eventually("the client waits", || {
                let info = ask(&mut other, &["INFO", "clients"]);
                info.contains("blocked_clients:1\\r")
            });
            let value = format!("value-{round}");
            ask(&mut other, &["RPUSH", "from", &value]);
            assert_eq!(next(&mut client), format!("\"{value}\""));
            assert_eq!(next(&mut client), invalidation("to"));
        }
    }
}

/// As in Redis 7.2; 7.0 tracks the keys that a script declares.
#[test]
fn of_a_script_what_it_reads_is_tracked_and_not_what_it_declares() {
    let server = start(&[]);
    let (mut reader, mut writer) = (resp3(&server), server.client().unwrap());
    ask(&mut writer, &["MSET", "read", "1", "declared", "1"]);
    ask(&mut reader, &["CLIENT", "TRACKING", "ON"]);
    for name in ["EVAL", "EVAL_RO"] {
        let script = "return redis.call('GET', KEYS[1])";
        ask(&mut reader, &[name, script, "2", "read", "declared"]);
        ask(&mut writer, &["MSET", "declared", "2", "read", "2"]);
        assert_eq!(next(&mut reader), invalidation("read"), "{name}");
        assert_quiet(&mut reader);
    }
    let script = "return redis.call('SET', KEYS[1], 3)";
    ask(&mut reader, &["EVAL", script, "2", "written", "declared"]);
    ask(&mut writer, &["MSET", "declared", "4", "written", "4"]);
    assert_quiet(&mut reader);
}
