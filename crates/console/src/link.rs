//! Commands over a connection inside the process: sends bytes and receives replies within a time
//! limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::{Value, decode_value, encode_request};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use crate::limits::{COMMAND_TIME_MAX, REPLY_BYTES_MAX};
use crate::ports::{Link, Sessions};

/// Number of bytes received at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Time to wait before sending again after the connection took nothing.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(1);

/// The reason why a connection is no longer usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server closed it: the user was removed, or the client killed.
    Closed,
    /// A command took too long.
    Late,
    /// A reply was too large.
    TooLarge,
}

impl Fault {
    /// Returns the reason as text for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Closed => "the session was closed by the server",
            Self::Late => {
                "the command took longer than the management port waits; the session is closed"
            }
            Self::TooLarge => {
                "the reply is larger than the management port takes; the session is closed"
            }
        }
    }
}

/// A connection, with input that is not a whole reply yet.
pub(crate) struct Conversation {
    link: Box<dyn Link>,
    arrived: Arc<Notify>,
    input: Vec<u8>,
    /// The selected database.
    pub(crate) database: u32,
    is_broken: bool,
}

impl Conversation {
    /// Opens a connection for the client at this address.
    pub(crate) fn open(sessions: &dyn Sessions, from: SocketAddr) -> io::Result<Self> {
        let arrived = Arc::new(Notify::new());
        let bell = Arc::clone(&arrived);
        let link = sessions.open(from, Arc::new(move || bell.notify_one()))?;
        Ok(Self {
            link,
            arrived,
            input: Vec::new(),
            database: 0,
            is_broken: false,
        })
    }

    /// Runs commands in order and returns their replies.
    pub(crate) async fn run(&mut self, requests: &[Vec<&[u8]>]) -> Result<Vec<Value>, Fault> {
        if self.is_broken {
            return Err(Fault::Closed);
        }
        // If the caller drops this future midway, replies remain unread. The connection then counts
        // as broken.
        self.is_broken = true;
        let done = self.converse(requests).await;
        self.is_broken = done.is_err();
        done
    }

    async fn converse(&mut self, requests: &[Vec<&[u8]>]) -> Result<Vec<Value>, Fault> {
        let until = Instant::now() + COMMAND_TIME_MAX;
        let mut output = Vec::new();
        for arguments in requests {
            encode_request(&mut output, arguments);
        }
        let mut rest = output.as_slice();
        let mut replies = Vec::with_capacity(requests.len());
        let mut chunk = vec![0; CHUNK_BYTES];
        while replies.len() < requests.len() {
            let sent = self.send_some(&mut rest)?;
            let got = self.receive_some(&mut chunk)?;
            self.take_replies(&mut replies)?;
            if sent || got || replies.len() >= requests.len() {
                continue;
            }
            if Instant::now() >= until {
                return Err(Fault::Late);
            }
            if rest.is_empty() {
                let arrived = timeout_at(until, self.arrived.notified());
                arrived.await.map_err(|_| Fault::Late)?;
            } else {
                sleep(NO_ROOM_PAUSE).await;
            }
        }
        Ok(replies)
    }

    fn send_some(&mut self, rest: &mut &[u8]) -> Result<bool, Fault> {
        if rest.is_empty() {
            return Ok(false);
        }
        match self.link.send(rest) {
            Ok(count) => {
                *rest = &rest[count..];
                Ok(count > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Fault::Closed),
        }
    }

    fn receive_some(&mut self, chunk: &mut [u8]) -> Result<bool, Fault> {
        match self.link.receive(chunk) {
            Ok(0) => Err(Fault::Closed),
            Ok(count) => {
                self.input.extend_from_slice(&chunk[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Fault::Closed),
        }
    }

    fn take_replies(&mut self, replies: &mut Vec<Value>) -> Result<(), Fault> {
        let mut taken = 0;
        while let Some((value, count)) =
            decode_value(&self.input[taken..]).map_err(|_| Fault::Closed)?
        {
            taken += count;
            // Push messages were not requested here.
            if !matches!(value, Value::Push(_)) {
                replies.push(value);
            }
        }
        self.input.drain(..taken);
        if self.input.len() > REPLY_BYTES_MAX {
            return Err(Fault::TooLarge);
        }
        Ok(())
    }
}
