//! Tests of redis-cli as a replica: `--rdb`, `--functions-rdb`, `--replica`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use protocol::Value;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory};

use super::{iolite, must};

fn redis_cli(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    let port = server.address().unwrap().port().to_string();
    command.args(["-p", &port]).args(args);
    command
}

/// Starts redis-server with a file, and returns its reply to a request.
fn loaded(directory: &TemporaryDirectory, ask: &[&str]) -> Value {
    let dir = directory.join("");
    let args = ["--dir", dir.to_str().unwrap(), "--dbfilename", "got.rdb"];
    let redis = ServerBuilder::oracle().args(&args).start().unwrap();
    redis.client().unwrap().command(ask).unwrap()
}

#[test]
fn a_file_is_had_from_afar() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    for number in 0..1000 {
        must(&mut client, &format!("SET key:{number} {number}"));
    }
    let library = "#!lua name=own\nredis.register_function('f', function() return 1 end)";
    client.command(&["FUNCTION", "LOAD", library]).unwrap();
    for (option, keys) in [("--rdb", 1000), ("--functions-rdb", 0)] {
        let directory = TemporaryDirectory::new("from-afar").unwrap();
        let file = directory.join("got.rdb");
        let got = redis_cli(&server, &[option, file.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(got.status.success(), "{option}: {got:?}");
        assert_eq!(
            loaded(&directory, &["DBSIZE"]),
            Value::Integer(keys),
            "{option}"
        );
        let Value::Array(functions) = loaded(&directory, &["FUNCTION", "LIST"]) else {
            panic!("no list");
        };
        assert_eq!(functions.len(), 1, "{option}");
    }
}

#[test]
fn the_stream_is_shown() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    let mut shown = redis_cli(&server, &["--replica"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(shown.stdout.take().unwrap()).lines();
    super::until("it is online", || {
        super::field(&mut client, "slave0").contains("state=online")
    });
    must(&mut client, "SET shown yes");
    let found = lines.any(|line| line.is_ok_and(|line| line.contains("shown")));
    assert!(found);
    shown.kill().unwrap();
    let _ended = shown.wait();
}
