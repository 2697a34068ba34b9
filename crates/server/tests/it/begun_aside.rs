//! Tests that a log is begun beside the workers: whatever the disk does meanwhile, other clients
//! are served.
//!
//! A hanging disk is simulated by a FIFO under the name of a file of the log: an open of it waits
//! until its other end is opened, and then fails because a FIFO cannot be read at a position.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use base::random::Prng;
use protocol::Value;
use testkit::client::{Client, Received};
use testkit::patience::Patience;
use testkit::process::Server;

use crate::recovery::{Directory, fill, keys_count, kill, run, wait_until_kept};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn patience() -> Patience {
    Patience::of(Duration::from_secs(60))
}

/// A server whose disk hangs when a log is begun.
struct Hanging {
    directory: Directory,
    server: Server,
    fifo: PathBuf,
}

impl Hanging {
    /// Starts a server with this number of workers.
    fn start(workers: &str) -> Self {
        let directory = Directory::new();
        let args = ["--threads", workers, "--durability", "none"];
        let server = directory.builder(&args).start().unwrap();
        let log = directory.data().join("log");
        fs::create_dir_all(&log).unwrap();
        let fifo = log.join(format!("{:016x}.log", 0));
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        Self {
            directory,
            server,
            fifo,
        }
    }

    /// Returns a client with this name.
    fn client(&self, name: &str) -> Client {
        let mut client = self.server.client().unwrap();
        assert_eq!(run(&mut client, &format!("CLIENT SETNAME {name}")), ok());
        client
    }

    /// Lets the disk continue, with an error for the thread that waits for it. While the returned
    /// end of the FIFO is open, later threads get the error, too.
    fn go_on(&self) -> File {
        let patience = patience();
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        loop {
            match options.open(&self.fifo) {
                Ok(end) => return end,
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENXIO)),
            }
            assert!(patience.lasts(), "nobody waits for it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Opens clients until one is served by another worker than `client`. Returns that client, and
/// those opened before it.
fn on_another_worker(client: &mut Client, new: impl Fn() -> Client) -> (Client, Vec<Client>) {
    let worker_of = |client: &mut Client| {
        let (Value::Bulk(text) | Value::Verbatim { text, .. }) = run(client, "CLIENT INFO") else {
            panic!("no text");
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut fields = text.split_whitespace();
        let worker = fields.find(|field| field.starts_with("io-thread="));
        worker.unwrap().to_owned()
    };
    let worker = worker_of(client);
    let mut same = Vec::new();
    let patience = patience();
    loop {
        let mut other = new();
        if worker_of(&mut other) != worker {
            return (other, same);
        }
        same.push(other);
        assert!(patience.lasts(), "one worker has all clients");
    }
}

/// Sends a CONFIG SET, and returns when the worker has seen it.
fn send(client: &mut Client, name: &str, pair: &str, other: &mut Client) {
    let words = ["CONFIG", "SET"].into_iter().chain(pair.split(' '));
    client.send(&words.collect::<Vec<_>>()).unwrap();
    let patience = patience();
    let is_seen = |list: &str| {
        let mut lines = list.lines();
        let own = lines.find(|line| line.contains(&format!(" name={name} ")));
        own.unwrap().contains("cmd=config|set")
    };
    loop {
        let Value::Bulk(list) = run(other, "CLIENT LIST") else {
            panic!("no list");
        };
        if is_seen(&String::from_utf8_lossy(&list)) {
            return;
        }
        assert!(patience.lasts(), "it is never seen");
    }
}

fn is_on(client: &mut Client) -> bool {
    let shown = |value: &str| {
        let texts = ["appendonly", value];
        Value::Array(texts.map(|text| Value::Bulk(text.into())).into())
    };
    let value = run(client, "CONFIG GET appendonly");
    assert!([shown("yes"), shown("no")].contains(&value), "{value:?}");
    value == shown("yes")
}

fn nothing_came(client: &mut Client) -> io::Result<bool> {
    client
        .arrived()
        .map(|arrived| matches!(arrived, Received::Nothing))
}

#[test]
fn others_are_served_and_an_error_leaves_everything_as_it_was() {
    let hanging = Hanging::start("1");
    let mut other = hanging.client("other");
    let mut names = ["first", "second", "third", "fourth"].map(|name| (name, hanging.client(name)));
    let pairs = [
        "appendonly yes",
        "appendonly yes",
        "appendonly no",
        "timeout 100",
    ];
    for ((name, client), pair) in names.iter_mut().zip(pairs) {
        send(client, name, pair, &mut other);
    }
    fill(&mut other, 0..10);
    assert!(!is_on(&mut other));
    for line in ["FLUSHALL", "INFO", "CONFIG GET *", "PING"] {
        let reply = run(&mut other, line);
        assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
    }
    fill(&mut other, 0..5);
    // Clients that came while the first change was in progress wait as well.
    for (name, client) in &mut names[..2] {
        assert!(nothing_came(client).unwrap(), "{name}");
    }
    let end = hanging.go_on();
    let [first, second, third, fourth] =
        names.map(|(_, mut client)| client.receive().unwrap().unwrap());
    for refused in [first, second] {
        let Value::Error(error) = refused else {
            panic!("the log was begun");
        };
        let error = String::from_utf8_lossy(&error).into_owned();
        assert!(error.contains("CONFIG SET failed"), "{error}");
    }
    assert_eq!([third, fourth], [ok(), ok()]);
    drop(end);
    fs::remove_file(&hanging.fifo).unwrap();
    assert!(!is_on(&mut other));

    // The content of a log that is finally begun survives a restart.
    let begun = run(&mut other, "CONFIG SET appendonly yes");
    assert_eq!(begun, ok());
    assert!(is_on(&mut other));
    fill(&mut other, 5..20);
    wait_until_kept(&mut other);
    fill(&mut other, 20..30);
    let Hanging {
        directory, server, ..
    } = hanging;
    kill(server);
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(30));
}

#[test]
fn a_server_ends_while_a_log_is_being_begun() {
    let mut hanging = Hanging::start("1");
    let (mut own, mut other) = (hanging.client("own"), hanging.client("other"));
    send(&mut own, "own", "appendonly yes", &mut other);
    other.send(&["SHUTDOWN", "NOSAVE"]).unwrap();
    // Only the worker has ended.
    assert_eq!(other.receive().unwrap(), None);
    let end = hanging.go_on();
    let patience = patience();
    while hanging.server.is_running().unwrap() {
        assert!(patience.lasts(), "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(end);
    fs::remove_file(&hanging.fifo).unwrap();
    // The server leaves nothing that hinders the next one.
    let server = hanging.directory.server("everysec");
    let mut client = server.client().unwrap();
    fill(&mut client, 0..10);
    kill(server);
    let server = hanging.directory.server("everysec");
    assert_eq!(
        keys_count(&mut server.client().unwrap()),
        Value::Integer(10)
    );
}

/// A client with replies off cannot be answered later, but a thread that needs the whole store
/// still gets it.
#[test]
fn who_hears_nothing_begins_a_log_outside_of_the_store() {
    let hanging = Hanging::start("2");
    let mut own = hanging.client("own");
    let (mut other, _same) = on_another_worker(&mut own, || hanging.client("other"));
    own.send(&["CLIENT", "REPLY", "OFF"]).unwrap();
    send(&mut own, "own", "appendonly yes", &mut other);
    // If the worker waited inside the store, it would do so by now.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(run(&mut other, "FLUSHALL"), ok());
    drop(hanging.go_on());
}

/// One step of a transaction cannot run on another thread.
#[test]
fn a_transaction_begins_a_log_by_itself() {
    let directory = Directory::new();
    let args = ["--threads", "1", "--durability", "checkpoint"];
    let server = directory.builder(&args).start().unwrap();
    let mut client = server.client().unwrap();
    for line in ["MULTI", "SET a 1", "CONFIG SET appendonly yes", "SET b 2"] {
        run(&mut client, line);
    }
    let done = run(&mut client, "EXEC");
    assert_eq!(done, Value::Array(vec![ok(), ok(), ok()]));
    assert!(is_on(&mut client));
    run(&mut client, "SET c 3");
    wait_until_kept(&mut client);
    kill(server);
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(3));
}

/// Whatever happens concurrently, no client waits forever, and a log that is on in the end contains
/// everything.
#[test]
fn logs_are_begun_and_ended_by_many_at_once() {
    const ROUNDS: u64 = 30;
    let directory = Directory::new();
    let args = ["--threads", "2", "--durability", "checkpoint"];
    let server = directory.builder(&args).start().unwrap();
    let lines = [
        "CONFIG SET appendonly yes",
        "CONFIG SET appendonly no",
        "CONFIG SET durability always",
        "BGSAVE SCHEDULE",
        "SAVE",
        "FLUSHALL",
        "BGREWRITEAOF",
        "CONFIG SET timeout 0 appendfsync no",
        "SET key value",
        "MULTI|CONFIG SET appendonly yes|EXEC",
        "MULTI|CONFIG SET appendonly no|SET key value|EXEC",
    ];
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let mut client = server.client().unwrap();
            scope.spawn(move || {
                let mut random = Prng::seeded(seed);
                for _ in 0..ROUNDS {
                    for line in lines[random.index(lines.len())].split('|') {
                        // The command is refused during another save, or if too many changes
                        // coincide.
                        run(&mut client, line);
                    }
                }
            });
        }
    });
    let mut client = server.client().unwrap();
    run(&mut client, "FLUSHALL");
    for _ in 0..2 {
        assert_eq!(run(&mut client, "CONFIG SET appendonly yes"), ok());
        assert!(is_on(&mut client));
        assert_eq!(run(&mut client, "CONFIG SET durability always"), ok());
        fill(&mut client, 0..20);
        wait_until_kept(&mut client);
        fill(&mut client, 20..40);
    }
    kill(server);
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(40));
}

/// A change is made as a whole or not at all, and all data is kept in one place.
#[test]
fn a_log_that_is_not_begun_leaves_everything_as_it_was() {
    let directory = Directory::new();
    let args = ["--threads", "1", "--durability", "none"];
    let builder = directory.builder(&args);
    let builder = builder.args(&["--enable-protected-configs", "yes"]);
    let server = builder.start().unwrap();
    let mut client = server.client().unwrap();
    let elsewhere = directory.data().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let dir = format!("CONFIG SET dir {}", elsewhere.display());
    let refused = run(&mut client, &format!("{dir} appendonly yes"));
    let Value::Error(error) = refused else {
        panic!("data goes to one directory and the log to another");
    };
    assert!(
        String::from_utf8_lossy(&error).contains("'dir'"),
        "{error:?}"
    );

    assert_eq!(run(&mut client, &dir), ok());
    let log = elsewhere.join("iolite-data/log");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, "in the way").unwrap();
    let port = testkit::process::free_port().unwrap();
    let line = format!("CONFIG SET port {port} appendonly yes");
    assert!(matches!(run(&mut client, &line), Value::Error(_)));
    server.client().unwrap();
    // The worker may have opened the port meanwhile.
    let patience = patience();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(patience.lasts(), "it goes on to listen there");
    }

    fs::remove_file(&log).unwrap();
    assert_eq!(run(&mut client, "CONFIG SET appendonly yes"), ok());
    fill(&mut client, 0..10);
    wait_until_kept(&mut client);
    assert!(log.is_dir());
}

/// A client that turns the log on waits for all workers, but not for an endless script.
#[test]
fn a_log_is_begun_beside_a_script_without_end() {
    let directory = Directory::new();
    let args = ["--threads", "2", "--durability", "none"];
    let builder = directory.builder(&args);
    let builder = builder.args(&["--busy-reply-threshold", "1"]);
    let server = builder.start().unwrap();
    // A change that affects tracking clients does not run on another thread.
    let mut late = server.client().unwrap();
    run(&mut late, "HELLO 3");
    assert_eq!(run(&mut late, "CLIENT TRACKING ON"), ok());
    let (mut other, _same) = on_another_worker(&mut late, || server.client().unwrap());
    late.send(&["EVAL", "while true do end", "0"]).unwrap();
    let is_eval = |list: Value| match list {
        Value::Bulk(list) => String::from_utf8_lossy(&list).contains("cmd=eval"),
        _ => false,
    };
    let patience = patience();
    while !is_eval(run(&mut other, "CLIENT LIST")) {
        assert!(patience.lasts(), "it is never run");
    }
    assert_eq!(run(&mut other, "CONFIG SET appendonly yes"), ok());
    assert!(is_on(&mut other));
    assert_eq!(run(&mut other, "SCRIPT KILL"), ok());
    assert!(matches!(late.receive().unwrap(), Some(Value::Error(_))));
    fill(&mut other, 0..10);
    wait_until_kept(&mut other);
    kill(server);
    let server = directory.server("everysec");
    let mut client = server.client().unwrap();
    assert_eq!(keys_count(&mut client), Value::Integer(10));
}
