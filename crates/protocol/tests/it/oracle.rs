//! Redis as the reference for malformed requests.
//!
//! The original frame, and the requests that we decode from it in canonical form, must get the same
//! answer from Redis, up to our error reply. So the test need not understand any command.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use protocol::Limits;

use crate::requests::vectors;
use crate::session::{Outcome, receive};

/// A running redis-server that is reachable only by its socket file.
struct Redis {
    process: Child,
    directory: PathBuf,
}

impl Redis {
    /// Starts a server, or prints why there is none. In CI that is a failure.
    #[expect(
        clippy::print_stderr,
        reason = "who runs the tests should know what was left out"
    )]
    fn start(name: &str) -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("iolite-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let process = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(directory.join("socket"))
            .stdout(Stdio::null())
            .spawn();
        match process {
            Ok(process) => Some(Self { process, directory }),
            Err(error) => {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "redis-server is required: {error}"
                );
                eprintln!("not compared with Redis: redis-server cannot be started: {error}");
                None
            }
        }
    }

    fn connect(&self) -> UnixStream {
        for _ in 0..6_000 {
            if let Ok(stream) = UnixStream::connect(self.directory.join("socket")) {
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                return stream;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not listen");
    }

    /// Returns everything that the server answers to `bytes` if nothing follows them.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        send(&mut stream, bytes);
        // If the server has already closed, there is nothing to shut down.
        stream.shutdown(Shutdown::Write).ok();
        read_to_end(&mut stream)
    }

    /// Waits until the server closes the connection by itself after `bytes`.
    fn expect_close(&self, bytes: &[u8]) {
        let mut stream = self.connect();
        send(&mut stream, bytes);
        read_to_end(&mut stream);
    }

    fn judge(&self, frame: &[u8], limits: &Limits) {
        let ours = receive([frame], limits, 16);
        let theirs = self.answer(frame);
        let expected = [self.answer(&ours.canonical_requests()), ours.error_reply()].concat();
        let shown = frame[..frame.len().min(60)].escape_ascii();
        assert_eq!(
            theirs.escape_ascii().to_string(),
            expected.escape_ascii().to_string(),
            "{shown} ({} bytes)",
            frame.len()
        );
        if let Outcome { error: Some(_), .. } = ours {
            self.expect_close(frame);
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

/// Sends as much as the server accepts: it may close before the end of a frame that it rejects.
fn send(stream: &mut UnixStream, bytes: &[u8]) {
    match stream.write_all(bytes) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        other => other.unwrap(),
    }
}

fn read_to_end(stream: &mut UnixStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => {
            other.unwrap();
        }
    }
    answer
}

fn repeated(front: &[u8], byte: u8, count: usize, back: &[u8]) -> Vec<u8> {
    [front, &vec![byte; count], back].concat()
}

/// Returns frames that are too long for the vectors file.
fn long_frames() -> Vec<Vec<u8>> {
    vec![
        repeated(b"", b'a', 65_536, b""),
        repeated(b"", b'a', 65_537, b""),
        repeated(b"", b'a', 65_536, b"\n"),
        repeated(b"\0", b'a', 65_535, b""),
        repeated(b"\0", b'a', 65_536, b""),
        repeated(b"*", b'1', 65_535, b""),
        repeated(b"*", b'1', 65_536, b""),
        repeated(b"*", b'1', 60_000, b"\r\n"),
        repeated(b"*1\r\n$", b'1', 65_535, b""),
        repeated(b"*1\r\n$", b'1', 65_536, b""),
        repeated(b"*1\r\n", b'a', 65_536, b""),
        repeated(b"*1\r\n", b'a', 65_537, b""),
        repeated(b"PING '", b'a', 40_000, b"'\r\n"),
        repeated(b"", b'\n', 40_000, b"PING\n"),
        b"*0\r\n".repeat(10_000),
        [
            &b"*2\r\n$4\r\nPING\r\n$100000\r\n"[..],
            &[b'x'; 100_000],
            b"\r\n*x\r\n",
        ]
        .concat(),
        [
            &b"*41\r\n$3\r\nDEL\r\n"[..],
            &b"$1\r\na\r\n".repeat(39),
            b"$x\r\n",
        ]
        .concat(),
        [
            &b"*41\r\n$3\r\nDEL\r\n"[..],
            &b"$1\r\na\r\n".repeat(40),
            b"PING\r\n",
        ]
        .concat(),
    ]
}

#[test]
fn malformed_frames_are_answered_as_redis_answers_them() {
    let Some(redis) = Redis::start("frames") else {
        return;
    };
    // Redis 7 accepts more arguments than our default allows.
    let limits = Limits {
        multibulk_max: 2_147_483_647,
        ..Limits::default()
    };
    for frame in vectors()
        .into_iter()
        .map(|vector| vector.received)
        .chain(long_frames())
    {
        redis.judge(&frame, &limits);
    }
}

#[test]
fn strangers_are_answered_as_redis_answers_them() {
    let Some(redis) = Redis::start("strangers") else {
        return;
    };
    let answer = redis.answer(b"CONFIG SET requirepass secret\r\n");
    assert_eq!(answer, b"+OK\r\n");
    let limits = Limits {
        authenticated: false,
        multibulk_max: 2_147_483_647,
        ..Limits::default()
    };
    for frame in [
        &b"*10\r\n$4\r\nPING\r\n"[..],
        b"*11\r\n$4\r\nPING\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$16384\r\n",
        b"*1\r\n$16385\r\n",
        b"*1\r\n$536870913\r\n",
        b"PING\r\n*11\r\n",
        b"PING a b c d\r\n",
        b"PING 'a\r\n",
        b"*1\r\nX\r\n",
    ] {
        redis.judge(frame, &limits);
    }
}
