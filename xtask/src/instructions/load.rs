//! The load for counting instructions: the same requests in the same order every time.
//!
//! In each round every connection is sent a pipeline; then all replies are awaited. The server thus
//! meets several ready connections at a wake-up, as under load.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

const CONNECTIONS: u32 = 50;
const PIPELINE: u32 = 16;
/// Number of requests in a round.
pub(super) const REQUESTS_PER_ROUND: u32 = CONNECTIONS * PIPELINE;
/// Number of keys set at once while filling.
const FILL_BATCH: u32 = 500;
const VALUE: &str = "xxxxxxxx";
/// Maximum time of any wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// The kind of request.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Get,
    Set,
}

/// The amount of load.
pub(super) struct Load {
    /// Number of keys, of 16 bytes with values of 8.
    pub(super) keys: u32,
    /// Rounds of the shorter and of the longer run.
    pub(super) rounds: (u32, u32),
}

impl Request {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
        }
    }

    fn write(self, key: u32, out: &mut String) {
        let text = match self {
            Self::Get => format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n"),
            Self::Set => {
                format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$8\r\n{VALUE}\r\n")
            }
        };
        out.push_str(&text);
    }

    fn reply_bytes(self) -> usize {
        match self {
            Self::Get => "$8\r\n\r\n".len() + VALUE.len(),
            Self::Set => "+OK\r\n".len(),
        }
    }
}

impl Load {
    /// Fills a server and sends it a number of rounds of requests.
    pub(super) fn run(&self, port: u16, request: Request, rounds: u32) -> Result<(), String> {
        let mut first = connect_patiently(port)?;
        self.fill(&mut first)?;
        let connections = (0..CONNECTIONS).map(|_| connect(port));
        let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
        let mut number = 0;
        for _ in 0..rounds {
            for connection in &mut connections {
                let mut pipeline = String::new();
                for _ in 0..PIPELINE {
                    request.write(self.key(number), &mut pipeline);
                    number += 1;
                }
                send(connection, &pipeline)?;
            }
            for connection in &mut connections {
                receive(connection, request.reply_bytes() * PIPELINE as usize)?;
            }
        }
        Ok(())
    }

    fn fill(&self, connection: &mut TcpStream) -> Result<(), String> {
        for first in (0..self.keys).step_by(FILL_BATCH as usize) {
            let batch = first..self.keys.min(first + FILL_BATCH);
            let mut requests = String::new();
            for key in batch.clone() {
                Request::Set.write(key, &mut requests);
            }
            send(connection, &requests)?;
            receive(connection, Request::Set.reply_bytes() * batch.len())?;
        }
        Ok(())
    }

    /// Returns the key of a request. Requests go through the keys in a pseudo-random order.
    fn key(&self, number: u32) -> u32 {
        let mixed = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        u32::try_from(mixed % u64::from(self.keys)).unwrap_or(0)
    }
}

/// Returns a port that no process listens on.
pub(crate) fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok(address.port())
}

/// Asks a server to shut down.
pub(super) fn shut_down(port: u16) -> Result<(), String> {
    send(&mut connect(port)?, "SHUTDOWN NOSAVE\r\n")
}

fn connect_patiently(port: u16) -> Result<TcpStream, String> {
    for _ in 0..600 {
        if let Ok(stream) = connect(port) {
            return Ok(stream);
        }
        sleep(Duration::from_millis(100));
    }
    Err(format!("does not answer on port {port}"))
}

fn connect(port: u16) -> Result<TcpStream, String> {
    let connect = || {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok::<_, std::io::Error>(stream)
    };
    connect().map_err(|error| error.to_string())
}

fn send(connection: &mut TcpStream, requests: &str) -> Result<(), String> {
    let sent = connection.write_all(requests.as_bytes());
    sent.map_err(|error| error.to_string())
}

/// Receives replies of this many bytes in total.
fn receive(connection: &mut TcpStream, bytes: usize) -> Result<(), String> {
    let mut replies = vec![0; bytes];
    let received = connection.read_exact(&mut replies);
    received.map_err(|error| error.to_string())?;
    match replies.contains(&b'-') {
        false => Ok(()),
        true => Err(String::from_utf8_lossy(&replies).into_owned()),
    }
}
