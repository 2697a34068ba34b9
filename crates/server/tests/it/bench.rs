//! Tests of the binary's load generator, with the binary's server.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use protocol::Value;
use testkit::process::{Server, ServerBuilder, iolite_program, signal, temporary_directory};

use crate::limits::eventually;

fn started() -> (Server, SocketAddr) {
    let server = ServerBuilder::iolite().tcp().start().unwrap();
    let address = server.address().unwrap();
    (server, address)
}

fn bench(words: &str) -> Output {
    let output = Command::new(iolite_program())
        .arg("bench")
        .args(words.split_whitespace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn printed(words: &str) -> String {
    String::from_utf8(bench(words).stdout).unwrap()
}

#[test]
fn a_count_of_requests_reaches_the_server_exactly() {
    let (server, address) = started();
    let port = address.port();
    let text = printed(&format!(
        "-p {port} -c 4 --threads 2 -P 7 -n 1003 -q INCR counter"
    ));
    assert!(text.starts_with("INCR counter: "), "{text}");
    let mut client = server.client().unwrap();
    assert_eq!(
        client.command(&["GET", "counter"]).unwrap(),
        Value::Bulk(b"1003".to_vec())
    );
}

#[test]
fn every_key_is_loaded_and_none_is_missed() {
    let (server, address) = started();
    let port = address.port();
    let text = printed(&format!(
        "-p {port} -c 3 -P 16 -r 5000 -n 3000 -d 10-300 -t get -3 --preload --zipf 0.9"
    ));
    assert!(text.contains("3,000 requests in"), "{text}");
    assert!(!text.contains("miss") && !text.contains("error"), "{text}");
    let mut client = server.client().unwrap();
    assert_eq!(client.command(&["DBSIZE"]).unwrap(), Value::Integer(5_000));
}

#[test]
fn errors_and_misses_are_counted_and_told() {
    let (server, address) = started();
    let port = address.port();
    let text = printed(&format!("-p {port} -n 100 NOSUCHCOMMAND"));
    assert!(
        text.contains("100 errors") && text.contains("unknown command"),
        "{text}"
    );
    let socket = server.socket();
    let text = printed(&format!("-s {} -r 10 -n 100 -t get", socket.display()));
    assert!(text.contains("100 misses"), "{text}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let output = Command::new(iolite_program())
        .args(["bench", "-s", "/nonexistent/socket", "-n", "1"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/socket"), "{text}");
}

#[test]
fn an_open_run_keeps_its_rate_and_writes_its_file() {
    let (_server, address) = started();
    let directory = temporary_directory("bench").unwrap();
    let file = directory.join("run.json");
    let words = format!(
        "-p {} -c 4 -t ping_mbulk --duration 0.5 --warmup 0.1 --rate 1000 --json {}",
        address.port(),
        file.display()
    );
    let text = printed(&words);
    assert!(text.contains("service"), "{text}");
    let json = std::fs::read_to_string(&file).unwrap();
    for member in [
        "\"format\":\"iolite-bench 1\"",
        "\"server_use\"",
        "\"latency\"",
        "\"rate\":1000",
        "\"processor\"",
    ] {
        assert!(json.contains(member), "{member} in {json}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn servers_take_turns_and_their_runs_make_a_page() {
    let (one, _) = started();
    let (two, _) = started();
    let directory = temporary_directory("bench-page").unwrap();
    let (json, page) = (directory.join("runs.json"), directory.join("page.html"));
    let text = printed(&format!(
        "--compare one={} two={} --rounds 2 --duration 0.1 --warmup 0 -t set -P 1,16 --json {}",
        one.socket().display(),
        two.socket().display(),
        json.display()
    ));
    assert!(
        text.contains("SET, pipeline 16") && text.contains("\u{d7})"),
        "{text}"
    );
    let path = printed(&format!("report {} -o {}", json.display(), page.display()));
    assert_eq!(path.trim_end(), page.display().to_string());
    let page = std::fs::read_to_string(&page).unwrap();
    for part in ["By pipeline depth", "<b>two</b>", "Latency under full load"] {
        assert!(page.contains(part), "{part}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// Waits until a process is in a state, as the system names it (`S` while it waits).
fn wait_for_state(pid: u32, state: &str) {
    eventually(state, || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.starts_with(state)
    });
}

/// The generator is stopped as by a terminal, and continued, while it waits for the reply of a
/// paused server.
#[test]
fn who_is_stopped_and_goes_on_still_gets_its_answer() {
    let (server, _) = started();
    server.signal("-STOP");
    let socket = server.socket();
    let running = Command::new(iolite_program())
        .args(["bench", "-n", "10", "-q", "-t", "set", "-s"])
        .arg(socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Repeated, so that one stop occurs while the generator waits for the reply.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        wait_for_state(running.id(), "S");
        signal("-STOP", running.id());
        signal("-CONT", running.id());
    }
    server.signal("-CONT");
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn data_that_is_not_its_own_is_never_deleted() {
    let (server, address) = started();
    let mut client = server.client().unwrap();
    client.command(&["SET", "mine", "1"]).unwrap();
    let port = address.port().to_string();
    let suite = |more: &[&str]| {
        let mut command = Command::new(iolite_program());
        command.args([
            "bench", "suite", "--only", "m", "-n", "10", "--warmup", "0.001", "-p", &port,
        ]);
        command.args(more).output().unwrap()
    };
    let refused = suite(&[]);
    assert!(!refused.status.success());
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("DBSIZE 1"), "{text}");
    assert_eq!(
        client.command(&["GET", "mine"]).unwrap(),
        Value::Bulk(b"1".to_vec())
    );
    let flushed = suite(&["--flush"]);
    assert!(flushed.status.success(), "{flushed:?}");
    assert_eq!(client.command(&["GET", "mine"]).unwrap(), Value::Null);
}
