//! A reference server on a Unix socket, and a minimal client for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use std::time::Duration;

use tempfile::TempDir;

/// A running server; dropping it ends the server and removes its directory.
pub(crate) struct Reference {
    server: Child,
    directory: TempDir,
    stream: BufReader<UnixStream>,
}

/// A reply of the server, without the types that no test here requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    Nothing,
    Array(Vec<Answer>),
}

impl Reference {
    /// Starts a server. If there is none to start, says so on the standard error and returns
    /// `None`.
    pub(crate) fn start() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--unixsocket", "socket", "--loglevel", "warning"])
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn();
        let Ok(server) = server else {
            eprintln!("skipped: there is no redis-server here");
            return None;
        };
        let socket = directory.path().join("socket");
        let stream = (0..12_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            UnixStream::connect(&socket).ok()
        });
        let stream = BufReader::new(stream.expect("the server listens after a minute"));
        Some(Self {
            server,
            directory,
            stream,
        })
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn call(&mut self, words: &[&[u8]]) -> Answer {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.send_raw(&request)
    }

    /// Sends bytes as they are and waits for one reply.
    pub(crate) fn send_raw(&mut self, request: &[u8]) -> Answer {
        self.stream.get_mut().write_all(request).unwrap();
        self.read_answer()
    }

    /// Returns the text reply of the command `words`.
    pub(crate) fn text(&mut self, words: &[&[u8]]) -> Option<String> {
        match self.call(words) {
            Answer::Text(text) => Some(String::from_utf8(text).unwrap()),
            _ => None,
        }
    }

    /// Whether the server prints doubles with the fewest digits (since 7.2), not with seventeen.
    pub(crate) fn prints_shortest_doubles(&mut self) -> bool {
        self.call(&[b"ZADD", b"probe", b"0.1", b"member"]);
        let text = self.text(&[b"ZSCORE", b"probe", b"member"]);
        self.call(&[b"DEL", b"probe"]);
        text.as_deref() == Some("0.1")
    }

    /// Reconnects, to continue after the server closed the connection.
    pub(crate) fn reconnect(&mut self) {
        let stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        self.stream = BufReader::new(stream);
    }

    fn read_answer(&mut self) -> Answer {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        match kind {
            "+" => Answer::Text(rest.as_bytes().to_vec()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Integer(rest.parse().unwrap()),
            "$" if rest == "-1" => Answer::Nothing,
            "$" => {
                let mut text = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut text).unwrap();
                text.truncate(text.len() - 2);
                Answer::Text(text)
            }
            "*" => {
                let count: usize = rest.parse().unwrap();
                Answer::Array((0..count).map(|_| self.read_answer()).collect())
            }
            _ => panic!("an answer of a kind nobody asked for: {line}"),
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _status = self.server.wait();
    }
}
