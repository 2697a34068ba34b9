//! The minimum CPU time of a server per request: the loop, and a service that answers every request
//! with a constant. Everything beyond this is the cost of the real server.
//!
//! `cargo run --release -p reactor --example floor -- --port 7000`, one thread. A request is a `*`
//! in the input: the answer to `*3` (SET) is `+OK`, any other answer is a bulk of eight bytes. So
//! keys and values must contain no `*`.
#![allow(clippy::print_stderr, reason = "a command-line tool")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use reactor::{
    Balancer, CloseReason, ConnectionId, EventLoop, Io, Listener, Options, PeerInfo, Received,
    Service, TcpOptions,
};

/// Minimum length of a GET or SET request, so the next star cannot be nearer.
const REQUEST_BYTES_MIN: usize = 20;

/// A service that answers with constants.
struct Constant;

impl Service for Constant {
    type Output = Vec<u8>;

    fn opened(&mut self, _: &mut Io<'_>, _: ConnectionId, _: &PeerInfo) {}

    fn received(
        &mut self,
        _: &mut Io<'_>,
        _: ConnectionId,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Received {
        let mut rest = input;
        while let Some(star) = rest.iter().position(|&byte| byte == b'*') {
            match rest.get(star + 1) {
                Some(b'3') => output.extend_from_slice(b"+OK\r\n"),
                Some(_) => output.extend_from_slice(b"$8\r\nxxxxxxxx\r\n"),
                None => break,
            }
            rest = rest.get(star + REQUEST_BYTES_MIN..).unwrap_or_default();
        }
        // A star at the very end stays until the digit after it is received.
        let waits = usize::from(input.last() == Some(&b'*'));
        Received::consumed(input.len() - waits)
    }

    fn closed(&mut self, _: ConnectionId, _: CloseReason) {}
    fn woken(&mut self, _: &mut Io<'_>, _: &mut Vec<u8>) {}
    fn turn(&mut self, _: &mut Io<'_>, _: &mut Vec<u8>) {}

    fn next_deadline(&self) -> Option<Duration> {
        None
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = match (arguments.next().as_deref(), arguments.next()) {
        (Some("--port"), Some(port)) => port.parse().map_err(std::io::Error::other)?,
        (None, _) => 7000,
        _ => return Err(std::io::Error::other("usage: floor [--port N]")),
    };
    let listener = Listener::tcp((Ipv4Addr::LOCALHOST, port).into(), TcpOptions::default())?;
    eprintln!("listening on port {port}");
    let listeners = Arc::from([listener]);
    let balancer = Balancer::new(1)?;
    EventLoop::new(
        Constant,
        Vec::new(),
        &balancer,
        0,
        &listeners,
        &Options::default(),
    )?
    .run()?;
    Ok(())
}
