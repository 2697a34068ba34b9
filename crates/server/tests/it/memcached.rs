//! Tests of the memcached port of the built server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use protocol::Value;
use testkit::process::{Server, ServerBuilder, free_port, temporary_directory};

/// Starts a server with a memcached port, and returns both.
fn start(args: &[&str]) -> (Server, u16) {
    let port = free_port().unwrap();
    let number = port.to_string();
    let server = ServerBuilder::iolite()
        .args(&["--memcached-port", &number])
        .args(args);
    (server.start().unwrap(), port)
}

struct Client(TcpStream);

impl Client {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).unwrap();
        Self(stream)
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Reads as many bytes as `text` has, and asserts that they are equal.
    fn expect(&mut self, text: &[u8]) {
        let mut told = vec![0; text.len()];
        self.0.read_exact(&mut told).unwrap();
        assert!(
            told == text,
            "told {} for {}",
            told[..told.len().min(200)].escape_ascii(),
            text[..text.len().min(200)].escape_ascii()
        );
    }

    /// Sends bytes, and expects this text.
    fn tell(&mut self, bytes: &str, text: &str) {
        self.send(bytes.as_bytes());
        self.expect(text.as_bytes());
    }

    /// Returns a line without its end.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).unwrap()
    }

    fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).is_ok_and(|_| rest.is_empty())
    }
}

#[test]
fn both_protocols_see_one_store_and_flags_outlive_a_restart() {
    let directory = temporary_directory("memcached").unwrap();
    let dir = directory.to_str().unwrap().to_owned();
    let args = ["--dir", &dir, "--appendonly", "yes"];
    let (server, port) = start(&args);
    let mut client = Client::connect(port);
    client.tell("set k 4294967295 0 5\r\nhello\r\n", "STORED\r\n");
    client.tell("set far 7 2147483647 1\r\nx\r\n", "STORED\r\n");
    client.tell("mg k v f t\r\n", "VA 5 f4294967295 t-1\r\nhello\r\n");
    let mut redis = server.client().unwrap();
    assert_eq!(
        redis.command(&["GET", "k"]).unwrap(),
        Value::Bulk(b"hello".to_vec())
    );
    redis.command(&["APPEND", "k", "!"]).unwrap();
    redis.command(&["SET", "plain", "text"]).unwrap();
    client.tell(
        "get k plain none\r\n",
        "VALUE k 4294967295 6\r\nhello!\r\nVALUE plain 0 4\r\ntext\r\nEND\r\n",
    );
    drop(redis);
    drop(server);
    let (_server, port) = start(&args);
    let mut client = Client::connect(port);
    client.tell(
        "get k far\r\n",
        "VALUE k 4294967295 6\r\nhello!\r\nVALUE far 7 1\r\nx\r\nEND\r\n",
    );
    std::fs::remove_dir_all(directory).unwrap();
}

/// The marks are in the log, too.
#[test]
fn one_client_fetches_what_is_out_of_date_also_after_a_restart() {
    let directory = temporary_directory("memcached-stale").unwrap();
    let dir = directory.to_str().unwrap().to_owned();
    let args = ["--dir", &dir, "--appendonly", "yes"];
    let (server, port) = start(&args);
    let [mut one, mut other] = [Client::connect(port), Client::connect(port)];
    one.tell("ms k 3 F7\r\nold\r\n", "HD\r\n");
    one.tell("md k I T600\r\n", "HD\r\n");
    // Many requests are sent at once, around the one that is repeated.
    let input = "ms a 1\r\nx\r\nmg a v\r\nmg k v f\r\nmg k v\r\nmg a v\r\nmn\r\n";
    let told = "HD\r\nVA 1\r\nx\r\nVA 3 f7 W X\r\nold\r\nVA 3 X Z\r\nold\r\nVA 1\r\nx\r\nMN\r\n";
    one.tell(input, told);
    other.tell("mg k\r\n", "HD X Z\r\n");
    drop(server);
    let (_server, port) = start(&args);
    let mut one = Client::connect(port);
    one.send(b"mg k c v\r\n");
    let line = one.line();
    let cas = line
        .strip_prefix("VA 3 c")
        .and_then(|rest| rest.strip_suffix(" X Z"));
    let cas = cas.unwrap_or_else(|| panic!("{line}")).to_owned();
    one.expect(b"old\r\n");
    one.tell(&format!("ms k 3 C{cas}\r\nnew\r\n"), "HD\r\n");
    one.tell("mg k v\r\n", "VA 3\r\nnew\r\n");
    // The first client that asks for a missing item is asked to make it, and no other client is.
    one.tell("mg none v N60\r\n", "VA 0 W\r\n\r\n");
    one.tell("mg none v N60\r\n", "VA 0 Z\r\n\r\n");
    one.tell(
        "ms soon 1 T5\r\nx\r\nmg soon R1\r\nmg soon R60\r\nmg soon R60\r\n",
        "HD\r\nHD\r\nHD W\r\nHD Z\r\n",
    );
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_flush_for_later_is_done_then() {
    let (server, port) = start(&[]);
    let mut client = Client::connect(port);
    client.tell("set k 0 0 1\r\nv\r\nflush_all 1000\r\n", "STORED\r\nOK\r\n");
    client.tell(
        "flush_all 1\r\nget k\r\n",
        "OK\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
    );
    crate::limits::eventually("it is empty", || {
        server.client().unwrap().command(&["DBSIZE"]).unwrap() == Value::Integer(0)
    });
    client.tell(
        "set k 0 0 1\r\nw\r\nget k\r\n",
        "STORED\r\nVALUE k 0 1\r\nw\r\nEND\r\n",
    );
}

#[test]
fn a_client_waits_while_clients_are_paused_and_goes_on() {
    let (server, port) = start(&[]);
    let mut client = Client::connect(port);
    client.tell("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let mut redis = server.client().unwrap();
    redis
        .command(&["CLIENT", "PAUSE", "60000", "WRITE"])
        .unwrap();
    client.send(b"get k\r\nset k 0 0 1\r\nw\r\nget k\r\nversion\r\n");
    // Together with the waiting requests, or before them.
    let waits = || {
        let mut redis = server.client().unwrap();
        let Value::Bulk(info) = redis.command(&["INFO", "clients"]).unwrap() else {
            panic!("no INFO");
        };
        String::from_utf8_lossy(&info).contains("blocked_clients:1")
    };
    for _ in 0..600 {
        if waits() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    redis.command(&["CLIENT", "UNPAUSE"]).unwrap();
    client.expect(b"VALUE k 0 1\r\nv\r\nEND\r\nSTORED\r\nVALUE k 0 1\r\nw\r\nEND\r\nVERSION ");
}

#[test]
fn many_keys_and_long_values_in_one_line() {
    const KEYS: usize = 5_000;
    let (_server, port) = start(&["--memcached-item-size-max", "2mb"]);
    let mut client = Client::connect(port);
    let mut input = String::new();
    let mut wanted = String::new();
    for key in 0..KEYS {
        input += &format!("set key:{key} {key} 0 4 noreply\r\n{key:04}\r\n");
        wanted += &format!("VALUE key:{key} {key} 4\r\n{key:04}\r\n");
    }
    client.send(input.as_bytes());
    let names: Vec<String> = (0..KEYS).map(|key| format!("key:{key}")).collect();
    client.tell(
        &format!("get {}\r\n", names.join(" ")),
        &(wanted + "END\r\n"),
    );
    let long = "x".repeat(1_500_000);
    client.tell(&format!("set long 1 0 1500000\r\n{long}\r\n"), "STORED\r\n");
    let told = format!("VALUE long 1 1500000\r\n{long}\r\nEND\r\n");
    client.tell("get long\r\n", &told);
    client.tell("flush_all\r\nget long key:1\r\n", "OK\r\nEND\r\n");
}

#[test]
fn a_password_is_asked_for_unless_a_user_is_named() {
    let args = ["--requirepass", "secret"];
    let (server, port) = start(&args);
    let mut client = Client::connect(port);
    client.tell("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let wrong = "set auth 0 0 13\r\ndefault wrong\r\n";
    client.tell(wrong, "CLIENT_ERROR authentication failure\r\n");
    let right = "set auth 0 0 14\r\ndefault secret\r\nget k\r\n";
    client.tell(right, "STORED\r\nEND\r\n");
    let mut redis = server.client().unwrap();
    for words in [
        &["AUTH", "secret"][..],
        &[
            "ACL", "SETUSER", "cache", "on", "nopass", "~c:*", "+mcget", "+mcset", "+mcdel",
        ],
        &["CONFIG", "SET", "memcached-user", "cache"],
    ] {
        assert_eq!(redis.command(words).unwrap(), Value::Simple(b"OK".to_vec()));
    }
    let mut client = Client::connect(port);
    client.tell("set c:1 0 0 1\r\nx\r\n", "STORED\r\n");
    client.send(b"set other 0 0 1\r\nx\r\n");
    let line = client.line();
    assert!(line.starts_with("CLIENT_ERROR NOPERM"), "{line}");
    client.send(b"flush_all\r\n");
    let line = client.line();
    assert!(line.starts_with("CLIENT_ERROR NOPERM"), "{line}");
}

#[test]
fn limits_are_named_and_hold() {
    let (server, port) = start(&["--memcached-item-size-max", "1kb"]);
    let mut client = Client::connect(port);
    let long = "x".repeat(2_000);
    client.tell(
        &format!("set k 0 0 2000\r\n{long}\r\nget k\r\n"),
        "SERVER_ERROR object too large for cache\r\nEND\r\n",
    );
    client.send(&[b'x'; 4_000]);
    client.expect(b"CLIENT_ERROR line too long\r\n");
    assert!(client.is_closed());
    let mut redis = server.client().unwrap();
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let mut client = Client::connect(port);
    client.tell(
        "set k 0 0 1\r\nx\r\n",
        "SERVER_ERROR out of memory storing object\r\n",
    );
    client.send(b"quit\r\n");
    assert!(client.is_closed());
}

/// Runs Debian's test of a memcached server (libmemcached-tools).
#[test]
#[ignore = "needs Debian's memccapable"]
fn memccapable_finds_nothing_amiss() {
    let (_server, port) = start(&[]);
    let told = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-a", "-t", "60", "-p", &port.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(text.contains("All tests passed"), "{text}");
}
