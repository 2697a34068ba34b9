//! Tests of the built program from start to end: its output, its listeners, and its notifications.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use protocol::Value;
use testkit::client::Client;
use testkit::process::{TemporaryDirectory, iolite_program};

/// A directory that is removed after its test.
struct Directory(TemporaryDirectory);

impl Directory {
    fn new() -> Self {
        Self(TemporaryDirectory::new("start").unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

/// A server that is killed with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_waited = self.0.wait();
    }
}

/// Returns the program's command with a socket in `directory`, so that tests do not collide.
fn command(directory: &Directory) -> Command {
    let mut command = Command::new(iolite_program());
    command
        .current_dir(&directory.0)
        .args(["--save", "", "--port", "0", "--unixsocket"])
        .arg(directory.path("socket"))
        .stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    let directory = Directory::new();
    let mut command = Command::new(iolite_program());
    command.args(arguments).stdin(Stdio::null());
    command.current_dir(&directory.0).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns a client as soon as the server listens.
fn connect(directory: &Directory) -> Client {
    for _ in 0..12_000 {
        if let Ok(client) = Client::connect_unix(Path::new(&directory.path("socket"))) {
            return client;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nobody listens");
}

/// Shuts the server down. It closes the connection instead of replying.
fn shut_down(directory: &Directory) {
    let _closed = connect(directory).command(&["SHUTDOWN", "NOSAVE"]);
}

/// Waits until `path` is gone.
fn wait_until_gone(path: &str) {
    for _ in 0..12_000 {
        if !Path::new(path).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{path} is still there");
}

/// Waits until the log contains a line.
fn wait_until_logged(path: &str, line: &str) {
    let mut log = String::new();
    for _ in 0..12_000 {
        log = fs::read_to_string(path).unwrap();
        if log.contains(line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no {line:?} in {log}");
}

#[test]
fn questions_are_answered_on_standard_output() {
    let version = output(&["--version"]);
    assert!(version.status.success());
    assert!(text(&version.stdout).starts_with("Iolite server v=7.4."));
    let help = output(&["-h"]);
    assert!(help.status.success());
    assert!(text(&help.stdout).starts_with("Usage: iolite "));
}

#[test]
fn faults_end_the_start_with_their_reason_on_standard_error() {
    let refused = output(&["--port", "0", "--io-threads", "none"]);
    assert_eq!(refused.status.code(), Some(1));
    let reason = text(&refused.stderr);
    assert!(
        reason.starts_with("\n*** FATAL CONFIG FILE ERROR (Iolite "),
        "{reason}"
    );
    assert!(reason.contains("io-threads"), "{reason}");
    assert!(text(&refused.stdout).is_empty());
}

#[test]
fn an_address_that_is_taken_is_told_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = output(&["--port", &port]);
    assert_eq!(refused.status.code(), Some(1));
    let fault = format!(
        "# Could not create server TCP listening socket 127.0.0.1:{port}: bind: Address already in use\n"
    );
    let log = text(&refused.stdout);
    assert_eq!(log.matches(&fault).count(), 1, "{log}");
    assert_eq!(text(&refused.stderr), "");
}

#[test]
fn readiness_is_told_on_standard_output_when_clients_are_accepted() {
    let directory = Directory::new();
    let mut child = command(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let _running = Running(child);
    let ready = lines
        .map_while(Result::ok)
        .find(|line| line.ends_with(" * Ready to accept connections unix"));
    assert!(ready.is_some());
    let mut client = Client::connect_unix(Path::new(&directory.path("socket"))).unwrap();
    let pong = client.command(&["PING"]).unwrap();
    assert_eq!(pong, Value::Simple(b"PONG".to_vec()));
}

#[test]
fn called_by_another_servers_name_it_is_the_same() {
    let directory = Directory::new();
    let link = directory.path("redis-server");
    std::os::unix::fs::symlink(iolite_program(), &link).unwrap();
    let version = Command::new(link).arg("-v").output().unwrap();
    assert_eq!(version.stdout, output(&["-v"]).stdout);
}

#[test]
fn the_environment_and_standard_input_configure() {
    let directory = Directory::new();
    fs::write(directory.path("password"), "hunter2\n").unwrap();
    fs::write(directory.path("input"), "timeout 7\nmaxclients 11\n").unwrap();
    let child = command(&directory)
        .arg("-")
        .stdin(fs::File::open(directory.path("input")).unwrap())
        .env("IOLITE_REQUIREPASS_FILE", directory.path("password"))
        .env("IOLITE_MAXCLIENTS", "12")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _running = Running(child);
    let mut client = connect(&directory);
    let refused = client.command(&["PING"]).unwrap();
    assert_eq!(
        refused,
        Value::Error(b"NOAUTH Authentication required.".to_vec())
    );
    let accepted = client.command(&["AUTH", "hunter2"]).unwrap();
    assert_eq!(accepted, Value::Simple(b"OK".to_vec()));
    let values = client
        .command(&["CONFIG", "GET", "timeout", "maxclients"])
        .unwrap();
    let expected = ["timeout", "7", "maxclients", "11"];
    let expected = expected.map(|text| Value::Bulk(text.as_bytes().to_vec()));
    assert_eq!(values, Value::Array(expected.to_vec()));
}

#[test]
fn a_daemon_has_a_log_and_a_pid_file_until_it_ends() {
    let directory = Directory::new();
    let started = command(&directory)
        .args([
            "--daemonize",
            "yes",
            "--pidfile",
            "server.pid",
            "--logfile",
            "server.log",
        ])
        .output()
        .unwrap();
    assert!(started.status.success());
    assert!(text(&started.stdout).is_empty() && text(&started.stderr).is_empty());
    let mut client = connect(&directory);
    let Value::Bulk(info) = client.command(&["INFO", "server"]).unwrap() else {
        panic!("INFO gives a string");
    };
    let pid = fs::read_to_string(directory.path("server.pid")).unwrap();
    assert!(text(&info).contains(&format!("process_id:{}\r", pid.trim())));
    // Clients are served before that. A server that is shut down earlier was never ready.
    wait_until_logged(
        &directory.path("server.log"),
        " * Ready to accept connections unix\n",
    );
    shut_down(&directory);
    wait_until_gone(&directory.path("server.pid"));
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_stops() {
    let directory = Directory::new();
    let listener = UnixDatagram::bind(directory.path("notify")).unwrap();
    listener
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let child = command(&directory)
        .args(["--supervised", "systemd", "--daemonize", "yes"])
        .env("NOTIFY_SOCKET", directory.path("notify"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut buffer = [0; 200];
    let mut next = || loop {
        match listener.recv(&mut buffer) {
            // A wait with a timeout is interrupted if the process is stopped and continued.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            length => break text(&buffer[..length.unwrap()]),
        }
    };
    assert!(next().ends_with("READY=1\n"));
    shut_down(&directory);
    assert_eq!(next(), "STOPPING=1\n");
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn a_rewritten_file_starts_the_server_it_was_written_by() {
    let directory = Directory::new();
    let file = directory.path("iolite.conf");
    fs::write(&file, "# kept\ntimeout 1\n").unwrap();
    let start = || {
        let child = Command::new(iolite_program())
            .arg(&file)
            .current_dir(&directory.0)
            .args(["--save", "", "--port", "0", "--unixsocket", "socket"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Running(child.unwrap())
    };
    let mut running = start();
    let mut client = connect(&directory);
    for words in [
        ["CONFIG", "SET", "timeout", "9"].as_slice(),
        &["CONFIG", "REWRITE"],
    ] {
        assert_eq!(
            client.command(words).unwrap(),
            Value::Simple(b"OK".to_vec())
        );
    }
    shut_down(&directory);
    assert!(running.0.wait().unwrap().success());
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .starts_with("# kept\ntimeout 9\n")
    );
    let _running = start();
    let values = connect(&directory)
        .command(&["CONFIG", "GET", "timeout"])
        .unwrap();
    let expected = ["timeout", "9"].map(|text| Value::Bulk(text.as_bytes().to_vec()));
    assert_eq!(values, Value::Array(expected.to_vec()));
}
