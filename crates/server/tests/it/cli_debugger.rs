//! Compares `iolite cli --ldb` with `redis-cli --ldb`, on a `redis-server`, which has a debugger
//! for scripts, and on a server without one.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use testkit::process::{Server, ServerBuilder, TemporaryDirectory, iolite_program};

const SCRIPT: &str = "local x = redis.call('INCR', KEYS[1])\n\
                      local y = x + tonumber(ARGV[1])\n\
                      redis.debug('y is', y)\n\
                      return y\n";

fn own_client() -> Command {
    let mut own = Command::new(iolite_program());
    own.arg("cli");
    own
}

fn told(mut client: Command, server: &Server, words: &[&str], input: &str) -> Output {
    let port = server.address().unwrap().port().to_string();
    client.args(["-p", &port]).args(words);
    client.env_remove("IOLITE_AUTH").env_remove("REDISCLI_AUTH");
    let pipes = client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.stderr(Stdio::piped()).spawn().unwrap();
    // A client that ends early does not read all of the input.
    let _written = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Removes the colours of the other client's output.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

#[test]
fn a_script_is_debugged_as_by_the_other_client() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return;
    }
    let directory = TemporaryDirectory::new("debugger").unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (whole, broken) = (file("a.lua", SCRIPT), file("b.lua", "return foo("));
    let server = || ServerBuilder::oracle().tcp().start().unwrap();
    for (way, path, input) in [
        ("--ldb", &whole, "next\nprint\nbreak 3\nlist\n\nbogus\n"),
        (
            "--ldb",
            &whole,
            "redis GET k\ncontinue\nstep\ncontinue\nGET k\n",
        ),
        ("--ldb", &whole, "restart\nstep\nquit\n"),
        ("--ldb", &whole, "abort\n"),
        ("--ldb-sync-mode", &whole, "continue\ncontinue\nGET k\n"),
        ("--ldb", &broken, ""),
    ] {
        let words = [way, "--eval", path, "k", ",", "5"];
        let (own, other) = (server(), server());
        let own = told(own_client(), &own, &words, input);
        let other = told(Command::new("redis-cli"), &other, &words, input);
        assert_eq!(own.status.code(), other.status.code(), "{own:?}");
        assert_eq!(plain(&own.stdout), plain(&other.stdout), "{way} {input:?}");
    }
}

#[test]
fn a_server_without_a_debugger_runs_nothing() {
    let server = ServerBuilder::iolite().tcp().start().unwrap();
    let directory = TemporaryDirectory::new("debugger").unwrap();
    let path = directory.join("a.lua");
    std::fs::write(&path, SCRIPT).unwrap();
    let path = path.display().to_string();
    let refused = told(
        own_client(),
        &server,
        &["--ldb", "--eval", &path, "k", ",", "5"],
        "",
    );
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("SCRIPT DEBUG was refused: ERR "), "{said}");
    let kept = told(own_client(), &server, &["EXISTS", "k"], "");
    assert_eq!(kept.stdout, b"0\n");
    for words in [
        &["--bogus", "PING"][..],
        &["--cluster", "check", "127.0.0.1:1"],
    ] {
        let refused = told(own_client(), &server, words, "");
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}
