//! Tests of the stream byte by byte, as a replica reads it.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::process::Server;

use super::{field, iolite, must, until};

/// A replica that only reads.
pub(super) struct Reader {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Reader {
    pub(super) fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address().unwrap()).unwrap();
        socket.set_read_timeout(Some(super::LONG)).unwrap();
        Self {
            socket,
            bytes: Vec::new(),
        }
    }

    pub(super) fn say(&mut self, line: &str) {
        self.socket
            .write_all(format!("{line}\r\n").as_bytes())
            .unwrap();
    }

    fn more(&mut self) {
        let mut buffer = [0; 4096];
        let count = self.socket.read(&mut buffer).unwrap();
        assert!(
            count > 0,
            "closed after {:?}",
            String::from_utf8_lossy(&self.bytes)
        );
        self.bytes.extend_from_slice(&buffer[..count]);
    }

    /// Returns the next line that is not empty.
    pub(super) fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.bytes.windows(1).position(|byte| byte == b"\n") {
                let line: Vec<u8> = self.bytes.drain(..=at).collect();
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if line.is_empty() {
                    continue;
                }
                return line;
            }
            self.more();
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<u8> {
        while self.bytes.len() < count {
            self.more();
        }
        self.bytes.drain(..count).collect()
    }

    /// Gets a full sync. Returns history and offset.
    pub(super) fn full(&mut self) -> (String, u64) {
        self.say("PSYNC ? -1");
        let line = self.line();
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("+FULLRESYNC"), "{line}");
        let id = words.next().unwrap().to_owned();
        let offset = words.next().unwrap().parse().unwrap();
        let head = self.line();
        let count: usize = head.strip_prefix('$').unwrap().parse().unwrap();
        let data = self.take(count);
        assert!(data.starts_with(b"REDIS0") || data.starts_with(b"VALKEY"));
        (id, offset)
    }

    /// Returns the next commands, as words.
    fn commands(&mut self, count: usize) -> Vec<String> {
        let mut commands = Vec::new();
        while commands.len() < count {
            let head = self.line();
            let parts: usize = head.strip_prefix('*').unwrap().parse().unwrap();
            let mut words = Vec::new();
            for _ in 0..parts {
                let head = self.line();
                let count: usize = head.strip_prefix('$').unwrap().parse().unwrap();
                let word = self.take(count + 2);
                words.push(String::from_utf8_lossy(&word[..count]).into_owned());
            }
            let command = words.join(" ");
            if command != "PING" && !command.starts_with("REPLCONF") {
                commands.push(command);
            }
        }
        commands
    }
}

#[test]
fn what_is_one_step_here_is_one_step_there() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    let mut reader = Reader::connect(&server);
    reader.full();
    for line in [
        "SET a 1", "SELECT 2", "MULTI", "INCR b", "SELECT 3", "SET c 1", "EXEC",
    ] {
        must(&mut client, line);
    }
    let script = "redis.call('set', KEYS[1], 'x') return redis.call('incr', KEYS[2])";
    client.command(&["EVAL", script, "2", "d", "e"]).unwrap();
    must(&mut client, "DEL nothing");
    must(&mut client, "SETEX f 1000 v");
    let commands = reader.commands(13);
    // The log decides how a number is set, but not where a step begins and ends.
    let words = |command: &String| {
        let word = command.split(' ').next().unwrap_or_default().to_owned();
        if matches!(word.as_str(), "MULTI" | "EXEC") || word == "SELECT" {
            return command.clone();
        }
        command.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let shown: Vec<String> = commands.iter().map(words).collect();
    let expected = [
        "SELECT 0", "a", "SELECT 2", "MULTI", "b", "SELECT 3", "c", "EXEC", "MULTI", "d", "e",
        "EXEC", "f",
    ];
    assert_eq!(shown, expected, "{commands:?}");
    assert!(
        commands[12].contains("PXAT"),
        "times are absolute: {}",
        commands[12]
    );
}

#[test]
fn an_old_sync_is_given_the_data_and_the_stream() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    must(&mut client, "SET k v");
    let mut reader = Reader::connect(&server);
    reader.say("SYNC");
    let head = reader.line();
    let count: usize = head.strip_prefix('$').unwrap().parse().unwrap();
    reader.take(count);
    must(&mut client, "SET k w");
    assert_eq!(reader.commands(2)[1], "SET k w");
}

#[test]
fn a_replica_that_comes_back_is_sent_what_follows() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    let mut reader = Reader::connect(&server);
    let (id, offset) = reader.full();
    drop(reader);
    until("it is gone", || {
        field(&mut client, "connected_slaves") == "0"
    });
    must(&mut client, "SET a 1");
    must(&mut client, "SET b 2");
    // The effects enter the stream a moment after the commands. Neither is shorter than this.
    let both = 2 * "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n".len() as u64;
    let mut end: u64 = 0;
    until("both are in the stream", || {
        end = field(&mut client, "master_repl_offset").parse().unwrap();
        end >= offset + both
    });
    let mut reader = Reader::connect(&server);
    reader.say(&format!(
        "REPLCONF capa psync2\r\nPSYNC {id} {}",
        offset + 1
    ));
    assert_eq!(reader.line(), "+OK");
    assert_eq!(reader.line(), format!("+CONTINUE {id}"));
    let all = reader.take(usize::try_from(end - offset).unwrap());
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.contains("a\r\n$1\r\n1") && text.ends_with("b\r\n$1\r\n2\r\n"),
        "{text}"
    );
    // From the middle of a command on, byte for byte.
    let mut reader = Reader::connect(&server);
    reader.say(&format!("PSYNC {id} {}", offset + 11));
    assert_eq!(reader.line(), "+CONTINUE");
    assert_eq!(reader.take(all.len() - 10), &all[10..]);
    // Offsets that never existed are not continued.
    for asked in [
        format!("PSYNC {id} {}", end + 1000),
        format!("PSYNC {} 1", "f".repeat(40)),
    ] {
        let mut reader = Reader::connect(&server);
        reader.say(&asked);
        assert!(reader.line().starts_with("+FULLRESYNC"));
    }
}

#[test]
fn what_no_replica_sends_ends_its_link() {
    let server = iolite(&["--durability", "none"]);
    let mut client = server.client().unwrap();
    let mut reader = Reader::connect(&server);
    reader.full();
    reader.say("*1\r\n$-5");
    until("it is gone", || {
        field(&mut client, "connected_slaves") == "0"
    });
    must(&mut client, "PING");
}
