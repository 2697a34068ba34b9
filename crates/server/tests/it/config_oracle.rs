//! Compares the configuration with Redis: the results of CONFIG GET, SET and REWRITE, and of the
//! start.

use std::process::{Command, Output};

use protocol::Value;
use server::cli::{self, Invocation, Startup};
use server::config::SharedConfig;
use testkit::client::Client;
use testkit::process::{Server, ServerBuilder, oracle_program, temporary_directory};

/// The directives whose values both servers take the same way.
const ALIKE: &[&str] = &[
    "tcp-keepalive",
    "timeout",
    "protected-mode",
    "hz",
    "maxmemory",
    "maxmemory-policy",
    "maxmemory-samples",
    "maxmemory-clients",
    "lfu-log-factor",
    "lfu-decay-time",
    "active-expire-effort",
    "client-query-buffer-limit",
    "client-output-buffer-limit",
    "proto-max-bulk-len",
    "loglevel",
    "requirepass",
    "hash-max-ziplist-entries",
    "hash-max-listpack-value",
    "list-max-listpack-size",
    "list-compress-depth",
    "set-max-intset-entries",
    "zset-max-listpack-value",
    "hll-sparse-max-bytes",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "activerehashing",
    "dynamic-hz",
    "lazyfree-lazy-user-del",
    "active-defrag-cycle-max",
    "active-defrag-threshold-lower",
    "active-defrag-ignore-bytes",
    "active-defrag-max-scan-fields",
    // These are refused before their value is checked.
    "databases",
    "io-threads",
    "unixsocketperm",
    "logfile",
    "dir",
    "dbfilename",
    "enable-debug-command",
    "no-such-directive",
];

/// The values, each tried with every directive.
const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "-0",
    "+1",
    "07",
    " 5",
    "5 ",
    "1.5",
    "0x10",
    "1e3",
    "500",
    "501",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "1b",
    "64k",
    "64KB",
    "3mb",
    "2g",
    "2Gb",
    "mb",
    "1tb",
    "-1mb",
    "1 mb",
    "5%",
    "100%",
    "101%",
    "-5%",
    "%",
    "yes",
    "NO",
    "maybe",
    "yes no",
    "allkeys-LFU",
    "volatile-ttl",
    "warning",
    "Debug",
    "normal 1 2 3",
    "slave 1mb 2kb 3 pubsub 0 0 0",
    "REPLICA 1 1 1",
    "normal 1 2",
    "normal 1 2 3 4",
    "pubsub 1 2 x",
    "pubsub 1 -2 3",
    "pubsub 1 2 -3",
    "master 0 0 0",
    "normal  1 2 3",
];

/// The intended differences: directive and reason.
const DEFAULTS_THAT_DIFFER: &[(&str, &str)] = &[
    ("io-threads", "follows the machine"),
    (
        "repl-backlog-size",
        "replicas that come back find what they missed; Valkey has raised it, too",
    ),
    (
        "cluster-node-timeout",
        "the control group finds a lost node within it",
    ),
    ("dir", "is made absolute when the server enters it"),
    ("unixsocket", "set by this test"),
    ("port", "set by this test"),
    ("bind", "set by this test"),
];

/// The settings with different results, and the reasons.
const SETS_THAT_DIFFER: &[(&str, &str, &str)] = &[(
    "maxmemory-clients",
    "9223372036854775808",
    "Redis reads a size beyond 63 bits as a percentage",
)];

/// Command lines that both servers refuse with the same words.
const FAULTY_STARTS: &[&[&str]] = &[
    &["--port", "abc"],
    &["--port"],
    &["--port", "1", "2"],
    &["--port 7995", "--databases", "0"],
    &["--no-such-directive", "1"],
    &["--maxmemory", "1 2"],
    &["-foo"],
    &["--unixsocketperm", "9"],
    &["--unixsocketperm", "1000"],
    &["--supervised", "foo"],
    &["--bind", "a b", "--no-such-directive", "x y"],
    &["--daemonize", "maybe"],
    &["--enable-debug-command", "foo"],
    &["--client-output-buffer-limit", "normal", "1"],
    &["--save", "1"],
    &["--save", "0", "1"],
    &["--tcp-backlog", "-1"],
    &["--dir", "/does/not/exist"],
    &["--port", "a\nb\u{1}\"\\"],
    &["--include", "a", "b"],
    &["--timeout", "1", "--port", "x"],
    &["--logfile", "/does/not/exist"],
];

/// A configuration that uses every kind of line.
const FILE: &str = "\
# my config

port 0
bind 127.0.0.1


save \"\"
# maxmemory comment
maxmemory 100mb
  maxmemory 200mb
unixsocketperm 755
SLAVE-read-only yes
client-output-buffer-limit normal 1mb 0 0
client-output-buffer-limit replica 256mb 64mb 60
timeout 0
loglevel notice
#tail
";

#[test]
fn config_set_answers_as_redis_does() {
    let (_redis, mut client) = started_oracle(ServerBuilder::oracle());
    let ours = SharedConfig::new(started(&[]).settings, Default::default());
    for name in ALIKE {
        for value in VALUES {
            // After a new password, the next command would have to authenticate.
            let locks_out = *name == "requirepass" && !value.is_empty();
            let is_meant = |(other, with, _): &(&str, &str, &str)| (other, with) == (name, value);
            if locks_out || SETS_THAT_DIFFER.iter().any(is_meant) {
                continue;
            }
            let theirs = client.command(&["CONFIG", "SET", name, value]).unwrap();
            let answer = ours
                .set(&[(name.as_bytes(), value.as_bytes())], false, &mut |_| {
                    Ok(())
                })
                .map_err(|error| error.to_string().replace(", nothing", ""));
            let answer = answer.map_or_else(|text| text, |()| "OK".to_owned());
            assert_eq!(answer, line_of(theirs), "CONFIG SET {name} '{value}'");
            if *name != "no-such-directive" && *name != "io-threads" && *name != "dir" {
                assert_eq!(
                    config_get(&ours, name),
                    client.command(&["CONFIG", "GET", name]).unwrap(),
                    "CONFIG GET {name} after SET '{value}'"
                );
            }
        }
    }
}

#[test]
fn config_get_answers_as_redis_does_at_the_start() {
    let (_redis, mut client) = started_oracle(ServerBuilder::oracle());
    let ours = SharedConfig::new(started(&["--save", ""]).settings, Default::default());
    let Value::Array(all) = client.command(&["CONFIG", "GET", "*"]).unwrap() else {
        panic!("CONFIG GET gives an array");
    };
    let (pairs, _) = all.as_chunks::<2>();
    for [name, value] in pairs {
        let (Value::Bulk(name), Value::Bulk(value)) = (name, value) else {
            panic!("CONFIG GET gives strings");
        };
        let name = String::from_utf8(name.clone()).unwrap();
        if DEFAULTS_THAT_DIFFER.iter().any(|(other, _)| *other == name) {
            continue;
        }
        let expected = Value::Array(vec![
            Value::Bulk(name.clone().into_bytes()),
            Value::Bulk(value.clone()),
        ]);
        assert_eq!(config_get(&ours, &name), expected, "CONFIG GET {name}");
    }
    for pattern in [
        "TIMEOUT",
        "*-max-ziplist-value",
        "max[mc]*y",
        "nosuch",
        "h?",
    ] {
        let sorted = |value: Value| match value {
            Value::Array(items) => {
                let mut pairs: Vec<_> = items.as_chunks::<2>().0.to_vec();
                pairs.sort_by_key(|pair| format!("{pair:?}"));
                pairs
            }
            other => panic!("CONFIG GET gives an array, not {other:?}"),
        };
        let theirs = sorted(client.command(&["CONFIG", "GET", pattern]).unwrap());
        assert_eq!(
            sorted(config_get(&ours, pattern)),
            theirs,
            "CONFIG GET {pattern}"
        );
    }
}

#[test]
fn config_rewrite_leaves_the_file_that_redis_leaves() {
    let directory = temporary_directory("config-rewrite").unwrap();
    let path = directory.join("server.conf");
    std::fs::write(&path, FILE).unwrap();
    let (_redis, mut client) = started_oracle(ServerBuilder::oracle().file(&path));
    let sets = [
        ("timeout", "5"),
        ("maxmemory", "1234567"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxmemory-clients", "5%"),
        ("client-output-buffer-limit", "pubsub 1mb 2 3"),
        ("proto-max-bulk-len", "3mb"),
        ("hash-max-ziplist-value", "65"),
        ("protected-mode", "no"),
        ("masteruser", ""),
    ];
    for (name, value) in sets {
        assert_eq!(
            client.command(&["CONFIG", "SET", name, value]).unwrap(),
            Value::Simple(b"OK".to_vec()),
            "{name}"
        );
    }
    assert_eq!(
        client.command(&["CONFIG", "REWRITE"]).unwrap(),
        Value::Simple(b"OK".to_vec())
    );
    let theirs = std::fs::read_to_string(&path).unwrap();

    std::fs::write(&path, FILE).unwrap();
    let startup = started(&[path.to_str().unwrap()]);
    let ours = SharedConfig::new(startup.settings, startup.origin);
    for (name, value) in sets {
        let pair = [(name.as_bytes(), value.as_bytes())];
        ours.set(&pair, false, &mut |_| Ok(())).unwrap();
    }
    ours.rewrite(&[], false).unwrap();
    let ours = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    assert_eq!(comparable(&ours), comparable(&theirs));
}

/// Returns the lines up to the marker unchanged, and those below it sorted, without blank lines and
/// without lines that only one of the two servers always appends.
fn comparable(text: &str) -> (Vec<&str>, Vec<&str>) {
    let appended = [
        "dir ",
        "user ",
        "latency-tracking-info-percentiles ",
        "unixsocket ",
    ];
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let kept = lines
        .by_ref()
        .take_while(|line| *line != "# Generated by CONFIG REWRITE");
    let kept: Vec<&str> = kept.collect();
    let mut new: Vec<&str> = lines
        .filter(|line| !appended.iter().any(|start| line.starts_with(start)))
        .collect();
    new.sort_unstable();
    (kept, new)
}

#[test]
fn faulty_starts_are_refused_in_the_words_of_redis() {
    for options in FAULTY_STARTS {
        let redis = Command::new(oracle_program())
            .args(*options)
            .output()
            .unwrap();
        assert_eq!(
            refusal(options),
            words_of(&redis),
            "redis-server {options:?}"
        );
    }
}

fn started_oracle(builder: ServerBuilder) -> (Server, Client) {
    let server = builder.start().unwrap();
    let client = server.client().unwrap();
    (server, client)
}

/// Returns what Redis wrote to standard error, with Iolite's name and version. Redis reports
/// options of the command line as lines of a file; we report their place.
fn words_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let (start, rest) = text.split_once("(Redis ").expect("a version");
    let (_, rest) = rest.split_once(')').expect("the version's end");
    let version = server::identity::IOLITE_VERSION;
    let text = format!("{start}(Iolite {version}){rest}");
    let place = |line: &str| -> String {
        if line.starts_with("Reading the configuration file, at line ") {
            "Reading the command line".to_owned()
        } else {
            line.to_owned()
        }
    };
    let lines: Vec<String> = text.trim_end().split('\n').map(place).collect();
    lines.join("\n")
}

/// Returns the message with which our server refuses to start with `options`.
fn refusal(options: &[&str]) -> String {
    let entered = match invocation(options) {
        Ok(Invocation::Serve(mut startup)) => startup.enter().map(drop),
        Ok(other) => panic!("{options:?}: {other:?}"),
        Err(error) => Err(error),
    };
    entered.expect_err("a refusal").to_string()
}

fn started(options: &[&str]) -> Startup {
    match invocation(options) {
        Ok(Invocation::Serve(startup)) => *startup,
        other => panic!("{options:?}: {other:?}"),
    }
}

fn invocation(options: &[&str]) -> Result<Invocation, cli::StartError> {
    let words = std::iter::once(&"iolite").chain(options);
    cli::read(
        words.map(Into::into).collect(),
        std::iter::empty(),
        &mut std::io::empty(),
    )
}

/// Returns the text of a status or an error.
fn line_of(reply: Value) -> String {
    match reply {
        Value::Simple(text) | Value::Error(text) => String::from_utf8(text).unwrap(),
        other => panic!("neither status nor error: {other:?}"),
    }
}

/// Returns the reply of CONFIG GET.
fn config_get(config: &SharedConfig, pattern: &str) -> Value {
    let mut items = Vec::new();
    config.get(&[pattern.as_bytes()], &mut |name, value| {
        items.push(Value::Bulk(name.to_vec()));
        items.push(Value::Bulk(value.to_vec()));
    });
    Value::Array(items)
}
