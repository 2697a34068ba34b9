//! Sends many requests from standard input unchanged, and counts replies meanwhile.
//!
//! An ECHO of a random text marks the end: all earlier requests are answered before it.

use std::io::{ErrorKind, Read as _, Write};
use std::os::fd::AsFd as _;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::random::Prng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::options::Options;
use super::out::written;
use crate::endpoint::Socket;
use crate::error::BenchError;
use crate::framing::ReplyEnd;

const PIECE_BYTES: usize = 64 << 10;
/// Maximum time until the socket is polled again.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Counts of what was received.
#[derive(Default)]
struct Counts {
    replies: u64,
    errors: u64,
}

struct Pipe {
    socket: Socket,
    input: Vec<u8>,
    end: ReplyEnd,
    /// The expected reply to the last request.
    last: Vec<u8>,
    counts: Counts,
    is_done: bool,
}

/// Sends standard input. Returns the exit code.
pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<u8, BenchError> {
    let socket = options.endpoint.connect()?.into_nonblocking();
    let socket = socket.map_err(|error| options.endpoint.lost(error))?;
    let clock = SystemClock::new();
    let seed = clock.now_unix_us();
    let mut random = Prng::seeded(seed ^ u64::from(std::process::id()) << 32);
    let magic = format!("{:016x}{:04x}", random.next_u64(), random.below(1 << 16));
    let mut pipe = Pipe {
        socket,
        input: Vec::new(),
        end: ReplyEnd::default(),
        last: format!("$20\r\n{magic}\r\n").into_bytes(),
        counts: Counts::default(),
        is_done: false,
    };
    let lost = |error| options.endpoint.lost(error);
    let mut stdin = std::io::stdin().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = stdin
            .read(&mut piece)
            .map_err(|error| BenchError::System("standard input", error))?;
        if count == 0 {
            break;
        }
        pipe.send(&piece[..count], out).map_err(lost)?;
    }
    written(out.write_all(b"All data transferred. Waiting for the last reply...\n"))?;
    pipe.send(
        format!("\r\n*2\r\n$4\r\nECHO\r\n$20\r\n{magic}\r\n").as_bytes(),
        out,
    )
    .map_err(lost)?;
    let mut heard_ns = clock.monotonic_ns();
    while !pipe.is_done {
        let silent = Duration::from_nanos(clock.monotonic_ns() - heard_ns);
        if silent > options.pipe_patience {
            return Err(BenchError::Usage(format!(
                "No replies for {} seconds: the last one is missing",
                options.pipe_patience.as_secs()
            )));
        }
        pipe.wait(PollFlags::IN).map_err(lost)?;
        if pipe.receive(out).map_err(lost)? {
            heard_ns = clock.monotonic_ns();
        }
    }
    let Counts { replies, errors } = pipe.counts;
    let text = format!("Last reply received from server.\nerrors: {errors}, replies: {replies}\n");
    written(out.write_all(text.as_bytes()))?;
    Ok(u8::from(errors > 0))
}

impl Pipe {
    fn wait(&self, flags: PollFlags) -> std::io::Result<()> {
        let timeout = Timespec::try_from(POLL_EVERY).unwrap_or_default();
        let socket = self.socket.as_fd();
        poll(&mut [PollFd::new(&socket, flags)], Some(&timeout))?;
        Ok(())
    }

    fn send(&mut self, mut bytes: &[u8], out: &mut dyn Write) -> std::io::Result<()> {
        while !bytes.is_empty() {
            match self.socket.send(bytes) {
                Ok(count) => bytes = &bytes[count..],
                // If replies are not read, the server stops reading requests.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.receive(out)?;
                    self.wait(PollFlags::IN | PollFlags::OUT)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.receive(out)?;
        Ok(())
    }

    /// Reads the available replies. Returns whether anything was received.
    fn receive(&mut self, out: &mut dyn Write) -> std::io::Result<bool> {
        let mut piece = [0; PIECE_BYTES];
        let mut has_come = false;
        loop {
            match self.socket.recv(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.input.extend_from_slice(&piece[..count]);
                    self.count(out)?;
                    has_come = true;
                    if self.is_done {
                        // A server that closes the connection then has answered all the same.
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(has_come),
                Err(error) => return Err(error),
            }
        }
    }

    fn count(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut begin = 0;
        while let Some(len) = self.end.find(&self.input[begin..]) {
            let reply = &self.input[begin..begin + len];
            if reply == self.last {
                self.is_done = true;
            } else {
                self.counts.replies += 1;
                if matches!(reply.first(), Some(b'-' | b'!')) {
                    self.counts.errors += 1;
                    out.write_all(&reply[1..])?;
                }
            }
            begin += len;
            self.end = ReplyEnd::default();
        }
        self.input.drain(..begin);
        Ok(())
    }
}
