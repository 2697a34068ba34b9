//! CONFIG GET and CONFIG SET.

use std::sync::Arc;

use super::super::shared::OWN_AT_START;
use super::super::{ApplyError, Change, ConfigReader};
use super::{get, set, shared, value_of};

/// Returns the error for one pair, without its constant prefix.
fn refusal(name: &str, value: &str) -> String {
    let text = set(&shared(""), &[(name, value)]).unwrap_err();
    let start = "ERR CONFIG SET failed (possibly related to argument '";
    text.strip_prefix(start)
        .map_or_else(|| text.clone(), str::to_owned)
}

#[test]
fn values_are_shown_as_redis_shows_them() {
    let config = shared(
        "maxmemory 100mb\nunixsocketperm 755\nmaxmemory-clients 10%\nbind 127.0.0.1 -::1\n\
         client-output-buffer-limit replica 1gb 1k 5\nshutdown-on-sigint now nosave\n\
         requirepass \"a b\"\nLOGLEVEL Warning\n",
    );
    for (name, value) in [
        ("maxmemory", "104857600"),
        ("unixsocketperm", "755"),
        ("maxmemory-clients", "10%"),
        ("bind", "127.0.0.1 -::1"),
        (
            "client-output-buffer-limit",
            "normal 0 0 0 slave 1073741824 1000 5 pubsub 33554432 8388608 60",
        ),
        ("shutdown-on-sigint", "nosave now"),
        ("requirepass", "a b"),
        ("loglevel", "warning"),
        ("save", "3600 1 300 100 60 10000"),
        ("appendonly", "no"),
        ("slave-read-only", "yes"),
        ("databases", "16"),
        ("repl-backlog-size", "67108864"),
    ] {
        assert_eq!(value_of(&config, name), value, "{name}");
    }
}

#[test]
fn patterns_find_aliases_and_every_name_once() {
    let config = shared("");
    let names = |patterns: &[&str]| -> Vec<String> {
        get(&config, patterns)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    };
    assert_eq!(
        names(&["TIMEOUT", "timeout", "time*", "nosuch"]),
        ["TIMEOUT"]
    );
    assert_eq!(names(&["TIME*"]), ["timeout"]);
    assert_eq!(
        names(&["*-max-ziplist-entries"]),
        ["hash-max-ziplist-entries", "zset-max-ziplist-entries"]
    );
    assert_eq!(names(&["slave-read-only", "replica-read-only"]).len(), 2);
    assert_eq!(names(&["maxm[e]mory", "max?emory"]), ["maxmemory"]);
    assert!(names(&[]).is_empty());
    assert!(names(&["*"]).len() > 180);
    assert!(!names(&["*", "key-load-*"]).contains(&"key-load-delay".to_owned()));
    assert_eq!(names(&["key-load-delay"]), ["key-load-delay"], "hidden");
    assert_eq!(
        value_of(&config, "io-threads"),
        value_of(&config, "threads")
    );
}

#[test]
fn values_are_set_all_or_none() {
    let config = shared("");
    set(
        &config,
        &[
            ("TIMEOUT", "7"),
            ("maxmemory", "1gb"),
            ("slave-read-only", "yes"),
        ],
    )
    .unwrap();
    assert_eq!(config.current().idle_timeout_s, 7);
    assert_eq!(config.current().memory_bytes_max, 1 << 30);
    let told = set(&config, &[("timeout", "8"), ("maxmemory", "x")]).unwrap_err();
    assert_eq!(
        told,
        "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value"
    );
    assert_eq!(config.current().idle_timeout_s, 7);
}

#[test]
fn refusals_have_the_texts_of_redis() {
    for (name, value, text) in [
        (
            "maxmemory",
            "-1",
            "maxmemory') - argument must be a memory value",
        ),
        (
            "hz",
            "x",
            "hz') - argument couldn't be parsed into an integer",
        ),
        (
            "timeout",
            "-1",
            "timeout') - argument must be between 0 and 2147483647 inclusive",
        ),
        (
            "timeout",
            "-0",
            "timeout') - argument couldn't be parsed into an integer",
        ),
        (
            "timeout",
            " 5",
            "timeout') - argument couldn't be parsed into an integer",
        ),
        (
            "TIMEOUT",
            "abc",
            "timeout') - argument couldn't be parsed into an integer",
        ),
        ("pidfile", "1", "pidfile') - can't set immutable config"),
        ("databases", "3", "databases') - can't set immutable config"),
        ("dir", "/", "dir') - can't set protected config"),
        (
            "protected-mode",
            "1",
            "protected-mode') - argument must be 'yes' or 'no'",
        ),
        (
            "maxclients",
            "0",
            "maxclients') - argument must be between 1 and 4294967295 inclusive",
        ),
        (
            "maxmemory-clients",
            "200%",
            "maxmemory-clients') - percentage argument must be less or equal to 100",
        ),
        (
            "maxmemory-clients",
            "abc",
            "maxmemory-clients') - argument must be a memory or percent value",
        ),
        (
            "proto-max-bulk-len",
            "10",
            "proto-max-bulk-len') - argument must be between 1048576 and 9223372036854775807 inclusive",
        ),
        (
            "maxmemory-policy",
            "foo",
            "maxmemory-policy') - argument(s) must be one of the following: volatile-lru, \
             volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, \
             allkeys-random, noeviction",
        ),
        (
            "client-output-buffer-limit",
            "normal 1 2 -3",
            "client-output-buffer-limit') - Error in hard, soft or soft_seconds setting in buffer \
             limit configuration.",
        ),
        (
            "client-output-buffer-limit",
            "master 1 2 3",
            "client-output-buffer-limit') - Invalid client class specified in buffer limit configuration.",
        ),
        ("save", "1 2  3 4", "save') - Invalid save parameters"),
        (
            "nosuch",
            "1",
            "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        (
            "a\r\nb",
            "1",
            "ERR Unknown option or number of arguments for CONFIG SET - 'a  b'",
        ),
    ] {
        assert_eq!(refusal(name, value), text);
    }
}

#[test]
fn the_first_fault_of_several_is_told() {
    let config = shared("");
    let told = |pairs: &[(&str, &str)]| set(&config, pairs).unwrap_err();
    assert!(told(&[("timeout", "0"), ("timeout", "1")]).ends_with("duplicate parameter"));
    assert!(told(&[("timeout", "x"), ("nosuch", "1")]).contains("Unknown option"));
    assert!(told(&[("io-threads", "3"), ("nosuch", "1")]).contains("immutable"));
    let threads = value_of(&config, "threads");
    assert!(set(&config, &[("threads", &threads)]).is_ok());
    assert!(told(&[("threads", "77")]).contains("immutable"));
    for name in OWN_AT_START {
        let value = value_of(&config, name);
        assert!(set(&config, &[(name, &value)]).is_ok(), "{name}");
        assert!(set(&config, &[(name, "other")]).is_err(), "{name}");
    }
    assert!(told(&[("maxclients", "0"), ("timeout", "x")]).contains("'maxclients'"));
    set(
        &config,
        &[("replica-read-only", "yes"), ("slave-read-only", "yes")],
    )
    .unwrap();
}

#[test]
fn what_this_version_lacks_is_not_switched_on() {
    for (name, value, lacks) in [
        (
            "extended-redis-compatibility",
            "yes",
            "gives its own name to clients; only 'extended-redis-compatibility no' is accepted",
        ),
        (
            "replica-read-only",
            "no",
            "writes to a replica what its primary wrote and nothing else, so that both have one log; \
             only 'replica-read-only yes' is accepted",
        ),
    ] {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            refusal(name, value),
            format!("{name}') - Iolite {version} {lacks}")
        );
    }
    let config = shared("");
    set(&config, &[("appendonly", "no"), ("tls-port", "0")]).unwrap();
    assert_eq!(config.generation(), 1);
}

#[test]
fn protected_directives_follow_enable_protected_configs() {
    let pair: [(&[u8], &[u8]); 1] = [(b"dbfilename", b"other.rdb")];
    let may =
        |text: &str, is_local: bool| shared(text).set(&pair, is_local, &mut |_| Ok(())).is_ok();
    assert!(!may("", true));
    assert!(may("enable-protected-configs yes", false));
    assert!(may("enable-protected-configs local", true));
    assert!(!may("enable-protected-configs local", false));
}

#[test]
fn the_runtime_hears_of_changes_and_may_refuse_them() {
    let config = shared("");
    let pairs: [(&[u8], &[u8]); 2] = [(b"maxclients", b"7777"), (b"timeout", b"0")];
    let mut told = Vec::new();
    let refused = config.set(&pairs, false, &mut |change| {
        told = change.names.to_vec();
        assert_eq!(
            (change.old.clients_max, change.new.clients_max),
            (10_000, 7777)
        );
        Err(ApplyError {
            name: "maxclients",
            reason: "Too many.".to_owned(),
        })
    });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - Too many."
    );
    assert_eq!(told, ["maxclients"]);
    assert_eq!(
        (config.current().clients_max, config.generation()),
        (10_000, 1)
    );
}

/// Applying may wait for a disk.
#[test]
fn readers_do_not_wait_for_a_change_and_writers_need_not() {
    let config = shared("");
    let pairs: [(&[u8], &[u8]); 1] = [(b"timeout", b"7")];
    let is_quick = |_: &Change<'_>| false;
    config
        .set(&pairs, false, &mut |_| {
            assert_eq!(config.current().idle_timeout_s, 0);
            assert_eq!(value_of(&config, "timeout"), "0");
            let other = config.set_unless_slow(&pairs, false, &is_quick, &mut |_| Ok(()));
            assert!(other.is_none());
            Ok(())
        })
        .unwrap();
    assert_eq!(value_of(&config, "timeout"), "7");

    let pairs: [(&[u8], &[u8]); 1] = [(b"timeout", b"8")];
    let is_slow = |change: &Change<'_>| change.names == ["timeout"];
    let not_made = config.set_unless_slow(&pairs, false, &is_slow, &mut |_| panic!("made"));
    assert!(not_made.is_none());
    assert_eq!(value_of(&config, "timeout"), "7");
    let made = config.set_unless_slow(&pairs, false, &is_quick, &mut |_| Ok(()));
    made.unwrap().unwrap();
    assert_eq!(value_of(&config, "timeout"), "8");
    // Invalid pairs are refused at once, and pairs that change nothing succeed at once.
    let mut never = |_: &Change<'_>| panic!("made");
    let same = config.set_unless_slow(&pairs, false, &|_| true, &mut never);
    same.unwrap().unwrap();
    let wrong: [(&[u8], &[u8]); 1] = [(b"timeout", b"x")];
    let refused = config.set_unless_slow(&wrong, false, &|_| true, &mut never);
    assert!(refused.unwrap().is_err());
}

#[test]
fn readers_take_up_changes_at_their_next_refresh() {
    let config = Arc::new(shared(""));
    let mut reader = ConfigReader::new(Arc::clone(&config));
    assert!(!reader.refresh());
    set(&config, &[("maxmemory", "1mb")]).unwrap();
    assert_eq!(reader.config().memory_bytes_max, 0);
    assert!(reader.refresh());
    assert_eq!(reader.config().memory_bytes_max, 1 << 20);
    assert!(!reader.refresh());
}
