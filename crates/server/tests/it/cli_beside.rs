//! Compares `iolite cli` with `redis-cli`: the same words on the same server yield the same output,
//! exit code and file. Without `redis-cli`, only `iolite cli` is tested with the known results.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use testkit::patience::Patience;
use testkit::process::{Server, ServerBuilder, TemporaryDirectory, iolite_program};

fn started(words: &[&str]) -> (Server, String) {
    let server = ServerBuilder::iolite().args(words).tcp().start().unwrap();
    let port = server.address().unwrap().port().to_string();
    (server, port)
}

/// Returns our client, then the other client if it is installed.
fn clients(port: &str) -> Vec<Command> {
    let mut own = Command::new(iolite_program());
    own.arg("cli");
    let mut clients = vec![own];
    let other = Command::new("redis-cli").arg("--version").output();
    if other.is_ok() {
        clients.push(Command::new("redis-cli"));
    }
    for client in &mut clients {
        client.args(["-p", port]);
        client.env_remove("IOLITE_AUTH").env_remove("REDISCLI_AUTH");
        client.stdin(Stdio::null());
    }
    clients
}

fn with_input(client: &mut Command, input: &[u8]) -> Output {
    let child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    // A client that ends early does not read all of the input.
    let _written = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs both clients with these words, asserts equal outputs except for what `shape` leaves out,
/// and returns the output.
fn same(port: &str, words: &[&str], shape: fn(&str) -> String) -> Output {
    let mut first: Option<Output> = None;
    for mut client in clients(port) {
        let told = client.args(words).output().unwrap();
        let Some(own) = &first else {
            first = Some(told);
            continue;
        };
        let text = |bytes: &[u8]| shape(&String::from_utf8_lossy(bytes));
        assert_eq!(own.status.code(), told.status.code(), "{words:?} {own:?}");
        assert_eq!(text(&own.stdout), text(&told.stdout), "{words:?}");
        assert_eq!(text(&own.stderr), text(&told.stderr), "{words:?}");
    }
    first.unwrap()
}

/// Replaces a run of digits by one sign: counters and lengths may differ.
fn without_numbers(text: &str) -> String {
    let mut shape = String::new();
    for letter in text.chars() {
        let sign = if letter.is_ascii_digit() { '#' } else { letter };
        if !(sign == '#' && shape.ends_with('#')) {
            shape.push(sign);
        }
    }
    shape
}

#[test]
fn a_server_that_ends_as_it_was_asked_is_no_failure() {
    for input in [None, Some(&b"SHUTDOWN NOSAVE\n"[..])] {
        for at in 0..clients("1").len() {
            let (mut server, port) = started(&[]);
            let mut client = clients(&port).swap_remove(at);
            let told = match input {
                None => client.args(["SHUTDOWN", "NOSAVE"]).output().unwrap(),
                Some(input) => with_input(&mut client, input),
            };
            assert_eq!(told.status.code(), Some(0), "{told:?}");
            assert!(told.stdout.is_empty() && told.stderr.is_empty(), "{told:?}");
            let patience = Patience::of(Duration::from_secs(30));
            while server.is_running().unwrap() {
                assert!(patience.lasts(), "the server goes on");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    // If no server ran to begin with, the exit code is 1.
    let told = clients("1").swap_remove(0).arg("SHUTDOWN").output();
    assert_eq!(told.unwrap().status.code(), Some(1));
}

#[test]
fn lines_are_a_conversation() {
    let (_server, port) = started(&[]);
    let (_second, other_port) = started(&[]);
    let went = format!("SET a 1\nconnect 127.0.0.1 {other_port}\nGET a\nDBSIZE\n");
    for input in [
        "SET a 1\n3 INCR a\n2 3\n0 PING\nGET a\n",
        "SELECT 3\nSET in three\nMULTI\nSELECT 1\nSET b 1\nEXEC\nGET b\nGET in\n",
        "\"unbalanced\n\nNOSUCH x\nGET a\n",
        ":set nohints\nclear\nGET a\n",
        "GET a\nquit\nGET a\n",
        "HSET h f v\nHGETALL h\nHELLO 3\nHGETALL h\n",
        &went,
    ] {
        for form in ["--raw", "--no-raw", "--csv"] {
            let mut told = clients(&port).into_iter().map(|mut client| {
                let told = with_input(client.arg(form), input.as_bytes());
                assert_eq!(told.status.code(), Some(0), "{input:?} {told:?}");
                // Client ids differ, and for the second client the field already exists.
                let text = String::from_utf8(told.stdout).unwrap();
                let text = text.replace("is no number of times", "");
                let text = text.replace("Invalid redis-cli repeat command option value.", "0 ");
                without_numbers(&text)
            });
            let own = told.next().unwrap();
            for other in told {
                assert_eq!(own, other, "{form} {input:?}");
            }
        }
    }
    // A missing server is reported for each line, and the next lines are still read.
    let told = with_input(&mut clients("1")[0], b"PING\nPING\nhelp\n");
    assert_eq!(told.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&told.stderr).lines().count(), 2);
    assert!(told.stdout.starts_with(b"help COMMAND"));
}

#[test]
fn help_comes_from_the_server() {
    let (_server, port) = started(&[]);
    let told = with_input(&mut clients(&port)[0], b"help getdel\nhelp @hyperloglog\n");
    let text = String::from_utf8(told.stdout).unwrap();
    for line in ["  GETDEL key\n", "  PFADD key", "  group: string\n"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn a_file_is_fetched_as_a_replica_does() {
    let (_server, port) = started(&[]);
    let library = "#!lua name=own\nredis.register_function('f', function() return 1 end)";
    same(&port, &["SET", "a", "1"], str::to_owned);
    let loaded = clients(&port)[0]
        .args(["FUNCTION", "LOAD", library])
        .status();
    assert!(loaded.unwrap().success());
    let directory = TemporaryDirectory::new("cli-rdb").unwrap();
    let file = directory.join("got.rdb");
    let path = file.to_str().unwrap();
    for flag in ["--rdb", "--functions-rdb"] {
        std::fs::write(&file, "older").unwrap();
        let told = same(&port, &[flag, path], without_numbers);
        assert!(told.status.success(), "{told:?}");
        // Our file is written again, because the other client wrote last.
        assert!(
            clients(&port)[0]
                .args([flag, path])
                .status()
                .unwrap()
                .success()
        );
        let mut check = Command::new(iolite_program());
        let checked = check.arg("check").arg(&file).output().unwrap();
        let found = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "{found}");
        assert_eq!(found.contains("1 keys"), flag == "--rdb", "{flag}: {found}");
        // The other client leaves the end mark of a transfer in its output.
        let told = clients(&port)[0].args([flag, "-"]).output().unwrap();
        assert!(told.stdout.starts_with(b"REDIS"), "{told:?}");
    }
    assert_eq!(std::fs::read_dir(directory.join("")).unwrap().count(), 1);
    // The old file stays if no complete file is received.
    let (_closed, closed) = started(&["--requirepass", "x"]);
    let before = std::fs::read(&file).unwrap();
    let told = clients(&closed)[0].args(["--rdb", path]).output().unwrap();
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// Only our client runs: the other client buffers its lines until there are many.
#[test]
fn what_a_replica_is_sent_is_shown() {
    let (server, port) = started(&[]);
    let mut client = server.client().unwrap();
    client.command(&["SET", "before", "1"]).unwrap();
    let mut child = clients(&port)[0]
        .arg("--replica")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ACK") {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0);
    }
    client.command(&["SET", "a", "x \"y"]).unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap());
    // Keep-alive pings of the link come in between.
    let request = loop {
        let mut line = String::new();
        assert_ne!(shown.read_line(&mut line).unwrap(), 0);
        let name = line.split(',').next().unwrap().to_lowercase();
        if !matches!(name.trim(), "\"ping\"" | "\"select\"") {
            break line;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(request, "\"SET\",\"a\",\"x \\\"y\"\n");
}

#[test]
fn keys_that_are_used_most_are_told() {
    // Counters that decay with time would differ between the clients.
    let words = ["--maxmemory-policy", "allkeys-lfu", "--lfu-decay-time", "0"];
    let (server, port) = started(&words);
    let mut client = server.client().unwrap();
    for number in 0..30 {
        let key = format!("key {number}");
        client.command(&["SET", &key, "1"]).unwrap();
        for _ in 0..number * 20 {
            client.command(&["GET", &key]).unwrap();
        }
    }
    let told = same(&port, &["--hotkeys"], str::to_owned);
    let text = String::from_utf8(told.stdout).unwrap();
    let (_, summary) = text.split_once("-------- summary -------").unwrap();
    assert_eq!(summary.matches("hot key found with counter").count(), 16);
    client
        .command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])
        .unwrap();
    for mut other in clients(&port) {
        let refused = other.arg("--hotkeys").output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            text.contains("An LFU maxmemory policy is not selected"),
            "{text}"
        );
    }
}

/// The output is the legend, and a line of characters, whose colours are not compared.
#[test]
fn a_spectrum_of_latencies_is_shown() {
    let (_server, port) = started(&[]);
    let mut shown = clients(&port).into_iter().map(|mut client| {
        client.args(["--latency-dist", "-i", "0.1"]);
        let mut child = client.stdout(Stdio::piped()).spawn().unwrap();
        let mut bytes = Vec::new();
        let mut output = child.stdout.take().unwrap();
        let mut byte = [0];
        while bytes.iter().filter(|byte| **byte == b'\n').count() < 9 {
            output.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        (lines[..8].join("\n"), without_colours(lines[8]))
    });
    let own = shown.next().unwrap();
    assert!(own.1.starts_with(".-*#123"), "{own:?}");
    for other in shown {
        assert_eq!(own, other);
    }
}

/// The other client prints such lines, too, but writes some dozens at a time to a pipe.
#[test]
fn hits_and_misses_of_keys_that_are_used_unevenly_are_shown() {
    let (_server, port) = started(&[]);
    let own = || clients(&port).remove(0);
    let mut child = own()
        .args(["--lru-test", "100000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let shape = "# Gets/sec | Hits: # (#.#%) | Misses: # (#.#%)\n";
    assert_eq!(without_numbers(&line), shape);
    for wrong in ["0", "x"] {
        let told = own().args(["--lru-test", wrong]).output().unwrap();
        assert!(!told.status.success(), "{wrong}");
    }
}

#[test]
fn a_password_is_taken_from_standard_input() {
    let (_server, port) = started(&["--requirepass", "secret"]);
    for (input, told) in [("secret\n", "PONG\n"), ("secret", "PONG\n")] {
        for mut client in clients(&port) {
            client.args(["--askpass", "-a", "wrong", "--no-auth-warning", "PING"]);
            let output = with_input(&mut client, input.as_bytes());
            let shown = String::from_utf8(output.stdout).unwrap();
            // The other client masks its input and shows the prompt wherever it reads from.
            assert!(shown.ends_with(told), "{client:?}: {shown}");
        }
    }
    let mut own = clients(&port).remove(0);
    own.args(["--askpass", "PING"]);
    let refused = with_input(&mut own, b"");
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("no password"), "{said}");
    let mut wrong = clients(&port).remove(0);
    wrong.args(["--askpass", "PING"]);
    let refused = with_input(&mut wrong, b"wrong\n");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("WRONGPASS"), "{said}");
}

/// The reader closes the pipe early, as `head` does: this causes no message and no abort.
#[test]
fn who_reads_no_further_is_told_nothing() {
    let (_server, port) = started(&[]);
    for words in [
        &["cli", "-p", &port, "SET", "a", "1"][..],
        &["analyze", "--live", "-p", &port],
        &["top", "--once", "-p", &port],
        &["doctor", "-p", &port],
        &["cluster", "status", "-p", &port],
        &["man"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut tool = Command::new(iolite_program());
        tool.args(words).stdout(writer).stderr(Stdio::piped());
        let output = tool.spawn().unwrap().wait_with_output().unwrap();
        assert!(
            output.status.code().is_some_and(|code| code < 3),
            "{output:?}"
        );
        assert!(output.stderr.is_empty(), "{words:?} {output:?}");
    }
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
    rest.fold(first, |text, part| text + part)
}
