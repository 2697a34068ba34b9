//! A conversation: requests and other commands, line by line. The prompt shows its state.
//!
//! `5 PING` is PING five times, `connect HOST PORT` goes to another server, `:set nohints` is a
//! preference; there are also `help`, `clear` and `quit`. A lost connection does not end the
//! conversation: the next line opens a new one. A request that was under way is not sent again.

use std::io::{BufRead as _, Write};

use protocol::{Value, split_line};

use super::client::{Client, listens};
use super::docs::Docs;
use super::options::Options;
use super::out::written;
use super::print::Form;
use crate::endpoint::Address;
use crate::error::BenchError;

/// What to do after a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    On,
    /// Clear the screen.
    Clear,
    /// Show help for these words.
    Help(Vec<String>),
    End,
}

/// See the module.
pub(super) struct Conversation<'o> {
    pub(super) client: Client<'o>,
    state: State,
    /// Whether hints for the words that may follow are shown.
    pub(super) shows_hints: bool,
    /// Whether a request got an error reply, or could not be sent.
    pub(super) has_failed: Failed,
}

/// Failures so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) with_error: bool,
    pub(super) to_talk: bool,
}

/// Sends the lines of standard input as requests. Returns the exit code.
pub(super) fn lines(options: &Options, out: &mut dyn Write) -> Result<u8, BenchError> {
    let mut conversation = Conversation::new(options);
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| BenchError::System("standard input", error))?;
        match conversation.line(&line, out)? {
            Next::On => {}
            Next::Clear => written(out.write_all(b"\x1b[H\x1b[2J"))?,
            Next::Help(words) => {
                let docs = conversation.client.connect().map(Docs::of);
                written(out.write_all(docs.unwrap_or_default().help(&words).as_bytes()))?;
            }
            Next::End => break,
        }
        if options.fails_on_errors && conversation.has_failed != Failed::default() {
            return Ok(1);
        }
    }
    Ok(u8::from(conversation.has_failed.to_talk))
}

impl<'o> Conversation<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self {
            client: Client::new(options),
            state: State {
                database: options.endpoint.database,
                ..State::default()
            },
            shows_hints: true,
            has_failed: Failed::default(),
        }
    }

    /// Returns the prompt.
    pub(super) fn prompt(&self) -> String {
        match self.client.is_connected() {
            true => self.state.prompt(self.client.address()),
            false => "not connected> ".to_owned(),
        }
    }

    pub(super) fn is_in_transaction(&self) -> bool {
        self.state.is_in_transaction
    }

    /// Connects, and reports a failure.
    pub(super) fn connect(&mut self) {
        if let Err(error) = self.client.connect() {
            self.tell(&error);
        }
    }

    /// Executes a line.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn line(&mut self, line: &[u8], out: &mut dyn Write) -> Result<Next, BenchError> {
        match self.step(line, out) {
            Err(error @ BenchError::System(..)) => Err(error),
            // A line that cannot be parsed is answered like a request.
            Err(BenchError::Usage(text)) => written(writeln!(out, "{text}")).map(|()| Next::On),
            Err(error) => {
                self.tell(&error);
                Ok(Next::On)
            }
            Ok(next) => Ok(next),
        }
    }

    fn tell(&mut self, error: &BenchError) {
        self.has_failed.to_talk = true;
        // Without standard error the message is lost.
        let _told = writeln!(std::io::stderr(), "{error}");
        if !self.client.is_connected() {
            self.state.is_in_transaction = false;
        }
    }

    fn step(&mut self, line: &[u8], out: &mut dyn Write) -> Result<Next, BenchError> {
        let Ok(mut words) = split_line(line) else {
            return Err(BenchError::Usage("Invalid argument(s)".to_owned()));
        };
        let Some(first) = words.first() else {
            return Ok(Next::On);
        };
        let first = String::from_utf8_lossy(first).to_lowercase();
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        match (first.as_str(), words.len()) {
            ("quit" | "exit", _) => return Ok(Next::End),
            ("clear", 1) => return Ok(Next::Clear),
            ("help" | "?", _) => return Ok(Next::Help(words[1..].iter().map(text).collect())),
            ("connect", 3) => {
                self.go_to(text(&words[1]), &text(&words[2]))?;
                return Ok(Next::On);
            }
            (":set", _) => {
                self.prefer(&words[1..].iter().map(text).collect::<Vec<_>>().join(" "))?;
                return Ok(Next::On);
            }
            _ => {}
        }
        let times = match first.parse::<i64>() {
            Ok(times) if words.len() > 1 => {
                words.remove(0);
                times
            }
            _ => 1,
        };
        if times <= 0 {
            return Err(BenchError::Usage(format!("{times} is no number of times")));
        }
        for _ in 0..times {
            self.request(&words, out)?;
        }
        Ok(Next::On)
    }

    fn request(&mut self, words: &[Vec<u8>], out: &mut dyn Write) -> Result<(), BenchError> {
        let Some(reply) = self.client.show(words, out)? else {
            self.state.is_in_transaction = false;
            return Ok(());
        };
        self.state.follow(words, &reply);
        self.client.set_database(self.state.database);
        if matches!(reply, Value::Error(_)) {
            self.has_failed.with_error = true;
        } else if listens(words) {
            if self.client.printer.form() == Form::Typed {
                written(out.write_all(b"Reading messages... (Ctrl-C ends the client)\n"))?;
            }
            self.client.listen(out)?;
        }
        Ok(())
    }

    fn go_to(&mut self, host: String, port: &str) -> Result<(), BenchError> {
        let port = port
            .parse()
            .map_err(|_| BenchError::Usage(format!("'{port}' is no port")))?;
        self.client.leave(Some(Address::Tcp(host, port)));
        self.state.is_in_transaction = false;
        self.client.connect().map(|_| ())
    }

    fn prefer(&mut self, preference: &str) -> Result<(), BenchError> {
        self.shows_hints = match preference {
            "hints" => true,
            "nohints" => false,
            other => return Err(BenchError::Usage(format!("unknown preference '{other}'"))),
        };
        Ok(())
    }
}

/// The state of a connection that the prompt shows.
#[derive(Clone, Debug, Default)]
struct State {
    database: u32,
    is_in_transaction: bool,
    /// The database that the transaction will select.
    queued_database: Option<u32>,
}

impl State {
    fn prompt(&self, address: &Address) -> String {
        let address = match address {
            // As in a URI.
            Address::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
            Address::Unix(path) => format!("redis {}", path.display()),
            address @ Address::Tcp(..) => address.to_string(),
        };
        let database = match self.database {
            0 => String::new(),
            number => format!("[{number}]"),
        };
        let transaction = if self.is_in_transaction { "(TX)" } else { "" };
        format!("{address}{database}{transaction}> ")
    }

    /// Updates the state after a request.
    fn follow(&mut self, words: &[Vec<u8>], reply: &Value) {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if let Value::Error(text) = reply {
            // The transaction is over, although without effect.
            self.is_in_transaction &= !text.starts_with(b"EXECABORT");
            return;
        }
        if is("SELECT") {
            let number = words.get(1).map(|word| std::str::from_utf8(word));
            let number = number.and_then(|word| word.ok()?.parse().ok());
            match self.is_in_transaction {
                true => self.queued_database = number,
                false => self.database = number.unwrap_or(self.database),
            }
        } else if is("MULTI") {
            self.is_in_transaction = true;
            self.queued_database = None;
        } else if is("EXEC") || is("DISCARD") {
            self.is_in_transaction = false;
            let queued = self.queued_database.take();
            if is("EXEC") && matches!(reply, Value::Array(_)) {
                self.database = queued.unwrap_or(self.database);
            }
        } else if is("RESET") {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(requests: &[(&str, &str)]) -> String {
        let mut state = State::default();
        for (request, reply) in requests {
            let words = split_line(request.as_bytes()).unwrap();
            let (reply, _) = protocol::decode_value(reply.as_bytes()).unwrap().unwrap();
            state.follow(&words, &reply);
        }
        state.prompt(&Address::Tcp("127.0.0.1".to_owned(), 6379))
    }

    #[test]
    fn the_prompt_shows_where_the_connection_stands() {
        const OK: &str = "+OK\r\n";
        const QUEUED: &str = "+QUEUED\r\n";
        assert_eq!(state(&[]), "127.0.0.1:6379> ");
        assert_eq!(state(&[("select 3", OK)]), "127.0.0.1:6379[3]> ");
        assert_eq!(state(&[("select 3", "-ERR no\r\n")]), "127.0.0.1:6379> ");
        assert_eq!(state(&[("multi", OK)]), "127.0.0.1:6379(TX)> ");
        let queued = [("multi", OK), ("select 3", QUEUED)];
        assert_eq!(state(&queued), "127.0.0.1:6379(TX)> ");
        let done = [queued[0], queued[1], ("exec", "*1\r\n+OK\r\n")];
        assert_eq!(state(&done), "127.0.0.1:6379[3]> ");
        let dropped = [queued[0], queued[1], ("exec", "*-1\r\n")];
        assert_eq!(state(&dropped), "127.0.0.1:6379> ");
        let dropped = [queued[0], queued[1], ("discard", OK)];
        assert_eq!(state(&dropped), "127.0.0.1:6379> ");
        let aborted = [("multi", OK), ("exec", "-EXECABORT no\r\n")];
        assert_eq!(state(&aborted), "127.0.0.1:6379> ");
        let refused = [("multi", OK), ("exec x", "-ERR wrong number\r\n")];
        assert_eq!(state(&refused), "127.0.0.1:6379(TX)> ");
        let reset = [("select 3", OK), ("multi", OK), ("reset", "+RESET\r\n")];
        assert_eq!(state(&reset), "127.0.0.1:6379> ");
        let six = State::default().prompt(&Address::Tcp("::1".to_owned(), 7));
        assert_eq!(six, "[::1]:7> ");
        let socket = State::default().prompt(&Address::Unix("/tmp/s".into()));
        assert_eq!(socket, "redis /tmp/s> ");
    }
}
