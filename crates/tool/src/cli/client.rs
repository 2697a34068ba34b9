//! A connection that shows its replies. It is opened when a request needs it, and again after it
//! was lost.

use std::io::Write;

use protocol::Value;

use super::options::Options;
use super::out::written;
use super::print::{Form, Printer};
use crate::endpoint::{Address, Endpoint, Session};
use crate::error::BenchError;

/// Maximum number of redirections that are followed.
const REDIRECTIONS_MAX: usize = 16;

/// See the module.
pub(super) struct Client<'o> {
    options: &'o Options,
    /// The server that gets the requests.
    endpoint: Endpoint,
    session: Option<Session>,
    pub(super) printer: Printer,
}

/// The content of MOVED or ASK.
struct Redirection {
    slot: String,
    address: Address,
    /// Whether to send ASKING there first.
    is_asking: bool,
}

impl<'o> Client<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self {
            options,
            endpoint: options.endpoint.clone(),
            session: None,
            printer: options.printer,
        }
    }

    /// Returns the server that gets the requests.
    pub(super) fn address(&self) -> &Address {
        &self.endpoint.address
    }

    pub(super) fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the connection, or a new one if there is none.
    pub(super) fn connect(&mut self) -> Result<&mut Session, BenchError> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let mut session = self.endpoint.connect()?;
                session.set_patience(None)?;
                session
            }
        };
        Ok(self.session.insert(session))
    }

    /// Closes the connection. The next one goes to the server at `address`, if given.
    pub(super) fn leave(&mut self, address: Option<Address>) {
        self.session = None;
        if let Some(address) = address {
            self.endpoint.address = address;
        }
    }

    /// Sets the database that a new connection selects.
    pub(super) fn set_database(&mut self, database: u32) {
        self.endpoint.database = database;
    }

    /// Sends a request and shows the reply. Returns the exit code.
    pub(super) fn run(&mut self, words: &[Vec<u8>], out: &mut dyn Write) -> Result<u8, BenchError> {
        let reply = self.show(words, out)?;
        let is_error = matches!(reply, Some(Value::Error(_)));
        if !is_error && listens(words) {
            self.listen(out)?;
        }
        Ok(u8::from(is_error && self.options.fails_on_errors))
    }

    /// Sends a request and shows the reply. Returns `None` if the server ended, as requested.
    pub(super) fn show(
        &mut self,
        words: &[Vec<u8>],
        out: &mut dyn Write,
    ) -> Result<Option<Value>, BenchError> {
        let parts: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let Some(reply) = self.exchange(&parts, out)? else {
            return Ok(None);
        };
        let text = self.printer.show(&reply, is_text(words));
        written(out.write_all(&text).and_then(|()| out.flush()))?;
        Ok(Some(reply))
    }

    /// Sends a request. Returns its reply. Shows messages received meanwhile, and follows
    /// redirections if requested.
    fn exchange(
        &mut self,
        words: &[&[u8]],
        out: &mut dyn Write,
    ) -> Result<Option<Value>, BenchError> {
        self.connect()?;
        let exchanged = self.exchange_now(words, out);
        match exchanged {
            Ok(reply) => Ok(Some(reply)),
            Err(error @ BenchError::Connection(..)) => {
                self.session = None;
                let is_end = words
                    .first()
                    .is_some_and(|word| word.eq_ignore_ascii_case(b"SHUTDOWN"));
                if is_end { Ok(None) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    fn exchange_now(&mut self, words: &[&[u8]], out: &mut dyn Write) -> Result<Value, BenchError> {
        let mut request = Vec::new();
        protocol::encode_request(&mut request, words);
        self.connect()?.send(&request)?;
        let mut reply = self.next(words, out)?;
        for _ in 0..REDIRECTIONS_MAX {
            let Some(Redirection {
                slot,
                address,
                is_asking,
            }) = self.redirection(&reply)
            else {
                break;
            };
            if self.printer.form() == Form::Typed {
                let told = writeln!(out, "-> Redirected to slot [{slot}] located at {address}");
                written(told)?;
            }
            // Nodes of a cluster only have the first database, and the following requests go to the
            // last node.
            self.leave(Some(address));
            self.endpoint.database = 0;
            let session = self.connect()?;
            if is_asking {
                session.demand("ASKING", &["ASKING"])?;
            }
            session.send(&request)?;
            reply = self.next(words, out)?;
        }
        Ok(reply)
    }

    /// Returns the next reply. If a subscription begins, messages are the replies.
    fn next(&mut self, words: &[&[u8]], out: &mut dyn Write) -> Result<Value, BenchError> {
        let is_subscription = words.first().is_some_and(|word| subscribes(word));
        loop {
            let reply = self.connect()?.reply()?;
            match reply {
                Value::Push(_) if !is_subscription => {
                    if self.options.shows_pushes {
                        let text = self.printer.show(&reply, false);
                        written(out.write_all(&text))?;
                    }
                }
                Value::Attribute { value, .. } => return Ok(*value),
                reply => return Ok(reply),
            }
        }
    }

    /// Returns the redirection in a reply, if it is to be followed.
    fn redirection(&self, reply: &Value) -> Option<Redirection> {
        if !self.options.follows_redirections {
            return None;
        }
        let Value::Error(text) = reply else {
            return None;
        };
        let text = std::str::from_utf8(text).ok()?;
        let mut words = text.split(' ');
        let is_asking = match words.next()? {
            "MOVED" => false,
            "ASK" => true,
            _ => return None,
        };
        let slot = words.next()?.to_owned();
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = match (host, &self.endpoint.address) {
            ("", Address::Tcp(host, _)) => host.clone(),
            (host, _) => host.to_owned(),
        };
        Some(Redirection {
            slot,
            address: Address::Tcp(host, port.parse().ok()?),
            is_asking,
        })
    }

    /// Shows messages until the connection or the process ends.
    pub(super) fn listen(&mut self, out: &mut dyn Write) -> Result<(), BenchError> {
        loop {
            let message = match self.connect()?.reply() {
                Ok(message) => message,
                Err(error) => {
                    self.session = None;
                    return Err(error);
                }
            };
            let text = self.printer.show(&message, false);
            written(out.write_all(&text).and_then(|()| out.flush()))?;
        }
    }
}

fn subscribes(word: &[u8]) -> bool {
    [&b"SUBSCRIBE"[..], b"PSUBSCRIBE", b"SSUBSCRIBE"]
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name))
}

/// Whether messages follow the reply.
pub(super) fn listens(words: &[Vec<u8>]) -> bool {
    words
        .first()
        .is_some_and(|word| subscribes(word) || word.eq_ignore_ascii_case(b"MONITOR"))
}

/// Whether the reply is text for people, which is shown unchanged.
fn is_text(words: &[Vec<u8>]) -> bool {
    let is = |at: usize, name: &str| {
        words
            .get(at)
            .is_some_and(|word: &Vec<u8>| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let pair = |first: &str, second: &str| is(0, first) && is(1, second);
    is(0, "INFO")
        || is(0, "LOLWUT")
        || pair("CLUSTER", "NODES")
        || pair("CLUSTER", "INFO")
        || pair("CLIENT", "LIST")
        || pair("CLIENT", "INFO")
        || pair("LATENCY", "DOCTOR")
        || pair("LATENCY", "GRAPH")
        || pair("MEMORY", "DOCTOR")
        || pair("MEMORY", "MALLOC-STATS")
}
