//! MIGRATE: asks another server over a separate connection for each call, on the waiting thread.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use base::clock::Clock;
use engine::{AskServer, CommandError};

/// Maximum length of a line of a reply.
const LINE_BYTES_MAX: usize = 64 << 10;

const CONNECT: CommandError =
    CommandError::fixed("IOERR error or timeout connecting to the client");
/// Also if the connection is refused: Redis notices that only when it writes, and clients expect
/// this text.
const WRITE: CommandError =
    CommandError::fixed("IOERR error or timeout writing to target instance");

/// Sends requests and reads their replies, which are lines: simple strings, integers or errors.
///
/// # Errors
/// The error for the client that called MIGRATE.
pub(crate) fn ask_server(
    ask: &AskServer<'_>,
    clock: &dyn Clock,
) -> Result<Vec<Result<(), Vec<u8>>>, CommandError> {
    let timeout = Duration::from_millis(ask.timeout_ms.max(1));
    let stream = connect(ask, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => WRITE,
        _ => CONNECT,
    })?;
    let limit = Limit::new(clock, timeout);
    send(&stream, ask.requests, &limit).map_err(|_| WRITE)?;
    let mut lines = Lines {
        stream,
        buffer: Vec::new(),
        limit,
    };
    let mut answers = Vec::new();
    for _ in 0..ask.count {
        let line = lines.next().map_err(|_| {
            CommandError::fixed("IOERR error or timeout reading from target instance")
        })?;
        answers.push(match line.strip_prefix(b"-") {
            Some(error) => Err(error.to_vec()),
            None => Ok(()),
        });
    }
    Ok(answers)
}

fn connect(ask: &AskServer<'_>, timeout: Duration) -> io::Result<TcpStream> {
    let text = |bytes| std::str::from_utf8(bytes).map_err(io::Error::other);
    let port: u16 = text(ask.port)?.parse().map_err(io::Error::other)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (text(ask.host)?, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn send(mut stream: &TcpStream, bytes: &[u8], limit: &Limit<'_>) -> io::Result<()> {
    for part in bytes.chunks(64 << 10) {
        stream.set_write_timeout(Some(limit.left()?))?;
        stream.write_all(part)?;
    }
    Ok(())
}

/// Deadline of a step.
struct Limit<'c> {
    clock: &'c dyn Clock,
    timeout: Duration,
    until_ns: u64,
}

impl<'c> Limit<'c> {
    fn new(clock: &'c dyn Clock, timeout: Duration) -> Self {
        let mut limit = Self {
            clock,
            timeout,
            until_ns: 0,
        };
        limit.begin();
        limit
    }

    /// Begins the next step.
    fn begin(&mut self) {
        let timeout_ns = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        self.until_ns = self.clock.monotonic_ns().saturating_add(timeout_ns);
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until_ns.saturating_sub(self.clock.monotonic_ns()) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }
}

struct Lines<'c> {
    stream: TcpStream,
    buffer: Vec<u8>,
    limit: Limit<'c>,
}

impl Lines<'_> {
    fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let mut line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                line.truncate(end);
                return Ok(line);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.stream.set_read_timeout(Some(self.limit.left()?))?;
            let mut part = [0; 4096];
            let count = self.stream.read(&mut part)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer
                .extend_from_slice(part.get(..count).unwrap_or_default());
            // Each answer has its own time.
            self.limit.begin();
        }
    }
}
