//! Tests with a primary that a test controls: what a replica loads, refuses and acknowledges.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use protocol::Value;
use testkit::client::Client;

use super::{field, iolite, must, redis, run, until};

/// Returns an RDB file with the value `v` for each key in a database.
fn file_of(database: u8, keys: &[&str]) -> Vec<u8> {
    let mut file = b"REDIS0010\xfe".to_vec();
    file.push(database);
    for key in keys {
        file.push(0);
        file.push(u8::try_from(key.len()).unwrap());
        file.extend_from_slice(key.as_bytes());
        file.extend_from_slice(b"\x01v");
    }
    // No checksum.
    file.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    file
}

struct Primary(TcpListener);

impl Primary {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn followed_by(&self, client: &mut Client) {
        let port = self.0.local_addr().unwrap().port();
        must(client, &format!("REPLICAOF 127.0.0.1 {port}"));
    }

    /// Accepts a replica, up to its PSYNC.
    fn accept(&self) -> Link {
        let (socket, _) = self.0.accept().unwrap();
        socket.set_read_timeout(Some(super::LONG)).unwrap();
        let mut link = Link {
            socket,
            bytes: Vec::new(),
        };
        loop {
            let command = link.command();
            let reply = match command[0].as_str() {
                "PING" => "+PONG\r\n",
                "PSYNC" => return link,
                "REPLCONF" if command[1] == "iolite-link" => {
                    "-ERR Unrecognized REPLCONF option\r\n"
                }
                _ => "+OK\r\n",
            };
            link.say(reply.as_bytes());
        }
    }
}

struct Link {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Link {
    fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Replies with a full sync of a file, of which `sent` bytes are sent.
    fn give(&mut self, file: &[u8], sent: usize) {
        let id = "a".repeat(40);
        self.say(format!("+FULLRESYNC {id} 100\r\n${}\r\n", file.len()).as_bytes());
        self.say(&file[..sent]);
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=at).collect();
                let line = String::from_utf8(line).unwrap();
                if line.trim().is_empty() {
                    continue;
                }
                return line.trim().to_owned();
            }
            let mut buffer = [0; 1024];
            let count = self.socket.read(&mut buffer).unwrap();
            assert!(count > 0, "closed");
            self.bytes.extend_from_slice(&buffer[..count]);
        }
    }

    /// Returns the next command. No argument contains a line end.
    fn command(&mut self) -> Vec<String> {
        let head = self.line();
        let count: usize = head.strip_prefix('*').unwrap().parse().unwrap();
        let mut words = Vec::new();
        for _ in 0..count {
            let _length = self.line();
            words.push(self.line());
        }
        words
    }
}

fn keys(client: &mut Client) -> Value {
    must(client, "DBSIZE")
}

#[test]
fn what_breaks_while_it_comes_takes_nothing_away() {
    let replica = iolite(&["--durability", "none"]);
    let mut client = replica.client().unwrap();
    must(&mut client, "MSET a 1 b 2 c 3");
    let primary = Primary::new();
    primary.followed_by(&mut client);
    let file = file_of(0, &["one", "two"]);
    // Files that are truncated, of an unknown type, and of no version.
    let mut unknown = file.clone();
    unknown[11] = 99;
    let mut version = file.clone();
    version[5..9].copy_from_slice(b"0099");
    for (file, sent) in [
        (&file, file.len() - 12),
        (&unknown, unknown.len()),
        (&version, version.len()),
    ] {
        let mut link = primary.accept();
        link.give(file, sent);
        until("it is received", || {
            field(&mut client, "master_sync_in_progress") == "1" || sent == file.len()
        });
        drop(link);
        assert_eq!(keys(&mut client), Value::Integer(3));
        if sent == file.len() {
            until("it is refused", || {
                !field(&mut client, "master_link_refused_reason").is_empty()
            });
            primary.followed_by(&mut client);
            must(&mut client, "REPLICAOF NO ONE");
            until("it is a primary", || field(&mut client, "role") == "master");
            primary.followed_by(&mut client);
        }
    }
    let mut link = primary.accept();
    link.give(&file, file.len());
    until("the link is up", || {
        field(&mut client, "master_link_status") == "up"
    });
    assert_eq!(keys(&mut client), Value::Integer(2));
}

#[test]
fn a_part_of_a_primary_s_data_is_nobody_s() {
    let replica = iolite(&[
        "--durability",
        "none",
        "--repl-diskless-load",
        "flush-before-load",
    ]);
    let mut client = replica.client().unwrap();
    must(&mut client, "MSET a 1 b 2 c 3");
    let primary = Primary::new();
    primary.followed_by(&mut client);
    let names: Vec<String> = (0..2_000).map(|number| format!("key:{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let file = file_of(0, &names);
    let mut link = primary.accept();
    link.give(&file, file.len() - 100);
    until("it is loading", || field(&mut client, "loading") == "1");
    drop(link);
    until("it has given up", || field(&mut client, "loading") == "0");
    must(&mut client, "REPLICAOF NO ONE");
    until("it is a primary", || field(&mut client, "role") == "master");
    assert_eq!(keys(&mut client), Value::Integer(0));
}

/// A primary's file names the database of the next command, so the stream need not.
#[test]
fn the_stream_begins_in_the_database_that_the_file_names() {
    for load in ["disabled", "flush-before-load"] {
        let replica = iolite(&["--durability", "none", "--repl-diskless-load", load]);
        let mut client = replica.client().unwrap();
        let primary = Primary::new();
        primary.followed_by(&mut client);
        let mut file = file_of(3, &["k"]);
        let field_of_stream = b"\xfa\x0erepl-stream-db\x019";
        file.splice(9..9, field_of_stream.iter().copied());
        let mut link = primary.accept();
        link.give(&file, file.len());
        link.say(b"*3\r\n$3\r\nSET\r\n$5\r\nfirst\r\n$1\r\nv\r\n");
        must(&mut client, "SELECT 9");
        until("the command is applied", || {
            run(&mut client, "EXISTS first") == Value::Integer(1)
        });
        assert_eq!(field(&mut client, "db3"), field(&mut client, "db9"));
        assert_eq!(field(&mut client, "db0"), "", "{load}");
    }
}

#[test]
fn a_primary_with_more_databases_is_refused_by_name() {
    let primary = redis(&[]);
    let mut one = primary.client().unwrap();
    for line in ["SET k v", "SELECT 9", "SET k v"] {
        must(&mut one, line);
    }
    for load in ["disabled", "flush-before-load"] {
        let replica = iolite(&[
            "--durability",
            "none",
            "--databases",
            "4",
            "--repl-diskless-load",
            load,
        ]);
        let mut two = replica.client().unwrap();
        must(&mut two, "MSET a 1 b 2");
        must(&mut one, "CONFIG RESETSTAT");
        let port = super::port_of(&primary);
        must(&mut two, &format!("REPLICAOF 127.0.0.1 {port}"));
        until("it is refused", || {
            field(&mut two, "master_link_refused_reason").contains("raise 'databases'")
        });
        // A transfer that is first stored in a file is not applied, and no transfer is applied in
        // part.
        let left = if load == "disabled" { 2 } else { 0 };
        assert_eq!(keys(&mut two), Value::Integer(left), "{load}");
        assert_eq!(field(&mut one, "sync_full"), "1", "{load}");
        assert_eq!(field(&mut two, "iolite_state"), "refused");
    }
}

#[test]
fn what_is_on_disk_is_told_to_a_primary_that_asks() {
    let primary = Primary::new();
    for (level, tells) in [("always", true), ("none", false)] {
        let replica = iolite(&["--durability", level]);
        let mut client = replica.client().unwrap();
        primary.followed_by(&mut client);
        let mut link = primary.accept();
        let file = file_of(0, &["k"]);
        link.give(&file, file.len());
        until("the link is up", || {
            field(&mut client, "master_link_status") == "up"
        });
        let write = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n";
        link.say(write);
        let end = (100 + write.len()).to_string();
        loop {
            let ack = link.command();
            assert_eq!(&ack[..2], ["REPLCONF", "ACK"]);
            let is_applied = ack[2] == end;
            match ack.get(3).map(String::as_str) {
                Some("FACK") => {
                    assert!(tells);
                    let fsynced: usize = ack[4].parse().unwrap();
                    assert!(fsynced <= ack[2].parse().unwrap());
                    if is_applied && ack[4] == end {
                        break;
                    }
                }
                _ if is_applied && !tells => break,
                // The loaded data is not on disk yet.
                other => assert_eq!(other, None),
            }
        }
    }
}

/// KeyDB sends its replicas deadlines of members as its clients stated them.
#[test]
fn deadlines_of_members_are_taken_from_a_stream_of_keydb() {
    let replica = iolite(&["--durability", "none"]);
    let mut client = replica.client().unwrap();
    let primary = Primary::new();
    primary.followed_by(&mut client);
    // The file also contains a set with a deadline of a member.
    let mut file = b"REDIS0009\xfe\0\x02\x01s\x02\x01a\x01b".to_vec();
    file.extend_from_slice(
        b"\xfa\x13keydb-subexpire-key\x01a\xfa\x14keydb-subexpire-when\x0d1900000000000",
    );
    file.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let mut link = primary.accept();
    link.give(&file, file.len());
    for line in [
        "SELECT 0",
        "HSET h a 1 b 2 c 3",
        "EXPIREMEMBER h a 1000",
        "EXPIREMEMBER s a 1000",
        "MULTI",
        "PEXPIREMEMBERAT h b 1900000000123",
        "EXPIREMEMBERAT s b 1900000000",
        "EXEC",
        "EXPIREMEMBERAT h c 1900000000",
        "PERSIST h a",
        "HSET h last 1",
    ] {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut bytes = Vec::new();
        protocol::encode_request(&mut bytes, &words);
        link.say(&bytes);
    }
    until("all is applied", || {
        run(&mut client, "HEXISTS h last") == Value::Integer(1)
    });
    assert_eq!(
        must(&mut client, "HPEXPIRETIME h FIELDS 3 a b c"),
        Value::Array(vec![
            Value::Integer(-1),
            Value::Integer(1_900_000_000_123),
            Value::Integer(1_900_000_000_000),
        ])
    );
    assert_eq!(field(&mut client, "master_link_status"), "up");
    let log = replica.log();
    for said in [
        "1 deadlines of members of sets and sorted sets were left out, the first at the key 's'",
        "2 deadlines of members of sets and sorted sets that the primary set were left out",
    ] {
        assert!(log.contains(said), "{log}");
    }
}
