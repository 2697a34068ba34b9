//! Tests of real clients from their registries, unmodified, with the built server.
//!
//! The first run downloads their packages into the target directory. Therefore plain `cargo test`
//! skips these tests and `cargo xtask test clients` runs them. With `SERVER_BIN` set to
//! `redis-server`, the same programs prove that they are right about Redis.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, free_port, iolite_program};

use crate::programs::{
    go_program, java_program, node_with, output_of, programs, python_with, run, run_with_input,
};

pub(super) fn server() -> Server {
    let builder = match iolite_program().ends_with("iolite") {
        true => ServerBuilder::iolite().args(&["--io-threads", "4"]),
        // Another server may not know our options.
        false => ServerBuilder::iolite(),
    };
    builder.tcp().start().unwrap()
}

pub(super) fn port(server: &Server) -> String {
    server.address().unwrap().port().to_string()
}

fn redis_cli(server: &Server, args: &[&str]) -> String {
    run(Command::new("redis-cli")
        .args(["-p", &port(server)])
        .args(args))
}

#[test]
#[ignore = "needs redis-cli: cargo xtask test clients"]
fn redis_cli_talks() {
    let server = server();
    assert_eq!(
        redis_cli(&server, &["SET", "greeting", "hello world"]),
        "OK\n"
    );
    assert_eq!(redis_cli(&server, &["GET", "greeting"]), "hello world\n");
    assert_eq!(redis_cli(&server, &["-n", "5", "GET", "greeting"]), "\n");
    assert_eq!(
        redis_cli(&server, &["-3", "--no-raw", "STRLEN", "greeting"]),
        "(integer) 11\n"
    );
    assert_eq!(
        redis_cli(&server, &["-r", "3", "INCR", "count"]),
        "1\n2\n3\n"
    );
    let socket = server.socket();
    let over_unix = run(Command::new("redis-cli").arg("-s").arg(&socket).arg("PING"));
    assert_eq!(over_unix, "PONG\n");
    let mut interactive = Command::new("redis-cli");
    interactive.args(["-p", &port(&server)]);
    let lines = b"SET a \"b c\"\nGET a\nSELECT 3\nPING\nNONSENSE\nHELLO 3\nquit\n";
    let said = run_with_input(&mut interactive, lines);
    assert!(said.starts_with("OK\nb c\nOK\nPONG\n"), "{said}");
    assert!(said.contains("ERR unknown command 'NONSENSE'"), "{said}");
    assert!(said.contains("proto"), "{said}");
}

#[test]
#[ignore = "needs redis-cli: cargo xtask test clients"]
fn redis_cli_loads_and_walks() {
    let server = server();
    let mut requests = Vec::new();
    for number in 0..20_000 {
        let key = format!("key:{number}");
        let words: [&[u8]; 3] = [b"SET", key.as_bytes(), b"value"];
        protocol::encode_request(&mut requests, &words);
    }
    let mut pipe = Command::new("redis-cli");
    pipe.args(["-p", &port(&server), "--pipe"]);
    let said = run_with_input(&mut pipe, &requests);
    assert!(said.contains("errors: 0, replies: 20000"), "{said}");
    assert_eq!(redis_cli(&server, &["DBSIZE"]), "20000\n");

    let walked = redis_cli(&server, &["--scan", "--pattern", "key:1*"]);
    let mut keys: Vec<&str> = walked.lines().collect();
    keys.sort_unstable();
    keys.dedup();
    let expected = (0..20_000).filter(|number| number.to_string().starts_with('1'));
    assert_eq!(keys.len(), expected.count());

    redis_cli(&server, &["SETRANGE", "huge", "99999", "x"]);
    let report = redis_cli(&server, &["--bigkeys"]);
    assert!(report.contains("has 100000 bytes"), "{report}");
    let report = redis_cli(&server, &["--memkeys"]);
    assert!(report.contains("\"huge\""), "{report}");
}

#[test]
#[ignore = "needs redis-cli: cargo xtask test clients"]
fn redis_cli_watches() {
    let server = server();
    redis_cli(
        &server,
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"],
    );
    redis_cli(&server, &["SET", "hot", "value"]);
    redis_cli(&server, &["-r", "200", "GET", "hot"]);
    let report = redis_cli(&server, &["--hotkeys"]);
    assert!(report.contains("keyname: \"hot\""), "{report}");

    // Minimum, maximum and mean of a second's round trips, and their number.
    let report = redis_cli(&server, &["--latency", "--raw"]);
    assert_eq!(report.split_whitespace().count(), 4, "{report}");

    // This one never ends by itself.
    let mut endless = Command::new("stdbuf");
    endless.args([
        "-oL",
        "redis-cli",
        "-p",
        &port(&server),
        "-i",
        "0.2",
        "--stat",
    ]);
    let mut endless = endless
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(endless.stdout.take().unwrap()).lines();
    let report: Vec<String> = lines.map_while(Result::ok).take(4).collect();
    endless.kill().unwrap();
    endless.wait().unwrap();
    assert_eq!(report.len(), 4, "{report:?}");
    assert!(
        report.iter().any(|line| line.contains("keys")),
        "{report:?}"
    );
}

#[test]
#[ignore = "needs redis-benchmark: cargo xtask test clients"]
fn redis_benchmark_runs_its_string_tests() {
    let server = server();
    for depth in ["1", "16"] {
        for clients in ["1", "50"] {
            let mut benchmark = Command::new("redis-benchmark");
            benchmark.args(["-p", &port(&server), "-q", "-n", "20000", "-r", "1000"]);
            benchmark.args(["-t", "ping,set,get,incr,mset", "-P", depth, "-c", clients]);
            let Output {
                status,
                stdout,
                stderr,
            } = output_of(&mut benchmark, b"");
            let said = String::from_utf8_lossy(&stdout);
            let complaints = String::from_utf8_lossy(&stderr);
            assert!(status.success(), "{said}\n{complaints}");
            assert!(!complaints.contains("WARNING"), "{complaints}");
            for test in [
                "PING_INLINE",
                "PING_MBULK",
                "SET",
                "GET",
                "INCR",
                "MSET (10 keys)",
            ] {
                let result = format!("{test}: ");
                let is_there = said
                    .split(['\r', '\n'])
                    .any(|line| line.starts_with(&result) && line.contains("requests per second"));
                assert!(is_there, "{test}: {said}");
            }
            println!("pipeline {depth}, clients {clients}: passed");
        }
    }
}

#[test]
#[ignore = "needs Python and its packages: cargo xtask test clients"]
fn redis_py() {
    let server = server();
    let mut program = Command::new(python_with(&["redis==8.1.0"]));
    program.arg(programs().join("redis_py.py"));
    println!("{}", run(program.arg(port(&server))));
}

#[test]
#[ignore = "needs Node and its packages: cargo xtask test clients"]
fn ioredis() {
    let server = server();
    let directory = node_with("ioredis", &["ioredis@6.0.0"]);
    let mut program = Command::new("node");
    program
        .arg(programs().join("ioredis.mjs"))
        .arg(port(&server));
    println!("{}", run(program.current_dir(&directory)));
}

#[test]
#[ignore = "needs Node and its packages: cargo xtask test clients"]
fn upstash() {
    let http = free_port().unwrap().to_string();
    let args = ["--http-port", &http, "--http-commands", "yes"];
    let builder = ServerBuilder::iolite().tcp().args(&args);
    let _server = builder.args(&["--requirepass", "secret"]).start().unwrap();
    let patience = Patience::of(Duration::from_secs(60));
    while TcpStream::connect(format!("127.0.0.1:{http}")).is_err() {
        assert!(patience.lasts(), "no management port");
        std::thread::sleep(Duration::from_millis(50));
    }
    let directory = node_with("upstash", &["@upstash/redis@1.39.0"]);
    let mut program = Command::new("node");
    program.arg(programs().join("upstash.mjs"));
    program.args([&format!("http://127.0.0.1:{http}"), "secret"]);
    println!("{}", run(program.current_dir(&directory)));
}

#[test]
#[ignore = "needs Python and its packages: cargo xtask test clients"]
fn pymemcache() {
    let port = free_port().unwrap().to_string();
    let builder = ServerBuilder::iolite().tcp();
    let _server = builder.args(&["--memcached-port", &port]).start().unwrap();
    let mut program = Command::new(python_with(&["pymemcache==4.0.0"]));
    program
        .arg(programs().join("pymemcache_check.py"))
        .arg(&port);
    println!("{}", run(&mut program));
}

#[test]
#[ignore = "needs Go and its packages: cargo xtask test clients"]
fn go_redis() {
    let server = server();
    println!("{}", run(go_program(".").arg(port(&server))));
}

#[test]
#[ignore = "needs Maven and its packages: cargo xtask test clients"]
fn jedis() {
    let server = server();
    println!("{}", run(&mut java_program("Check", &port(&server))));
}
