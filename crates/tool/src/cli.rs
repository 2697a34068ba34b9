//! `iolite cli`: a client for people and scripts, with the options of `redis-cli`.
//!
//! ```text
//!   options ──┬─ words, or lines of standard input ──> exchange ──> print: as text, raw, CSV or JSON
//!             ├─ interactive: a line editor with hints from COMMAND DOCS
//!             └─ walk (--scan --bigkeys --memkeys), watch (--stat --latency), pipe (--pipe)
//! ```

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write};
use std::process::ExitCode;
use std::time::Duration;

use protocol::{Value, split_line};

use crate::endpoint::{Address, Endpoint, Session};
use crate::error::BenchError;

mod docs;
mod interactive;
pub(crate) mod keys;
mod options;
mod pipe;
mod print;
mod walk;
mod watch;

pub use options::command;
use options::{Mode, Options};
use print::Printer;

/// How often a redirection is followed.
const REDIRECTIONS_MAX: usize = 16;

/// Does what the words after `cli` say.
pub fn run(words: Vec<String>) -> ExitCode {
    let mut out = std::io::stdout();
    match execute(words, &mut out) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Without standard error there is nobody to tell.
            let _told = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(words: Vec<String>, out: &mut dyn Write) -> Result<u8, BenchError> {
    let options = match options::read(words)? {
        Ok(options) => options,
        Err(text) => {
            written(out.write_all(text.as_bytes()))?;
            return Ok(0);
        }
    };
    match &options.mode {
        Mode::Scan => walk::scan(&options, out).map(|()| 0),
        Mode::BigKeys => walk::big_keys(&options, out).map(|()| 0),
        Mode::MemoryKeys => walk::memory_keys(&options, out).map(|()| 0),
        Mode::Stat => watch::stat(&options, out).map(|()| 0),
        Mode::Latency => watch::latency(&options, out).map(|()| 0),
        Mode::LatencyHistory => watch::latency_history(&options, out).map(|()| 0),
        Mode::IntrinsicLatency(time) => watch::intrinsic_latency(*time, out).map(|()| 0),
        Mode::Pipe => pipe::run(&options, out),
        Mode::Commands(words) if !words.is_empty() => once(&options, words.clone(), out),
        Mode::Commands(_) if std::io::stdin().is_terminal() => {
            interactive::run(&options, out).map(|()| 0)
        }
        Mode::Commands(_) => lines(&options, out),
    }
}

/// What writing to standard output came to.
fn written(result: std::io::Result<()>) -> Result<(), BenchError> {
    result.map_err(|error| BenchError::System("standard output", error))
}

/// A request by the words of the command line, as often as wanted.
fn once(options: &Options, mut words: Vec<Vec<u8>>, out: &mut dyn Write) -> Result<u8, BenchError> {
    if options.takes_last_of_input || options.input_tag.is_some() {
        let mut input = Vec::new();
        let read = std::io::stdin().read_to_end(&mut input);
        read.map_err(|error| BenchError::System("standard input", error))?;
        match &options.input_tag {
            Some(tag) => {
                let tagged = words.iter_mut().filter(|word| *word == tag.as_bytes());
                tagged.for_each(|word| word.clone_from(&input));
            }
            None => words.push(input),
        }
    }
    let mut client = Client::connect(options)?;
    let mut code = 0;
    let mut left = options.repeats;
    while left != Some(0) {
        code = client.run(&words, out)?;
        if code != 0 {
            break;
        }
        left = left.map(|left| left - 1);
        if left != Some(0) && !options.pause.is_zero() {
            std::thread::sleep(options.pause);
        }
    }
    Ok(code)
}

/// Requests by the lines of standard input.
fn lines(options: &Options, out: &mut dyn Write) -> Result<u8, BenchError> {
    let mut client = Client::connect(options)?;
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| BenchError::System("standard input", error))?;
        let words =
            split_line(&line).map_err(|_| BenchError::Usage("Invalid argument(s)".to_owned()))?;
        if words.is_empty() {
            continue;
        }
        let code = client.run(&words, out)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}

/// A connection with how its replies are shown.
struct Client<'o> {
    options: &'o Options,
    session: Session,
    printer: Printer,
}

impl<'o> Client<'o> {
    fn connect(options: &'o Options) -> Result<Self, BenchError> {
        let mut session = options.endpoint.connect()?;
        session.set_patience(None)?;
        Ok(Self {
            options,
            session,
            printer: options.printer,
        })
    }

    /// Sends a request and shows the reply; the exit code.
    fn run(&mut self, words: &[Vec<u8>], out: &mut dyn Write) -> Result<u8, BenchError> {
        let parts: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.exchange(&parts, out)?;
        let is_error = matches!(reply, Value::Error(_));
        let text = self.printer.show(&reply, is_text(words));
        written(out.write_all(&text).and_then(|()| out.flush()))?;
        if !is_error && listens(words) {
            self.listen(out)?;
        }
        Ok(u8::from(is_error && self.options.fails_on_errors))
    }

    /// Sends a request; its reply. Messages that come meanwhile are shown, and redirections followed where wanted.
    fn exchange(&mut self, words: &[&[u8]], out: &mut dyn Write) -> Result<Value, BenchError> {
        let mut request = Vec::new();
        protocol::encode_request(&mut request, words);
        self.session.send(&request)?;
        let mut reply = self.next(words, out)?;
        for _ in 0..REDIRECTIONS_MAX {
            let Some((address, is_asking)) = self.redirection(&reply) else {
                break;
            };
            let endpoint = Endpoint {
                address,
                database: 0,
                ..self.options.endpoint.clone()
            };
            let mut session = endpoint.connect()?;
            session.set_patience(None)?;
            if is_asking {
                session.demand("ASKING", &["ASKING"])?;
            }
            self.session = session;
            self.session.send(&request)?;
            reply = self.next(words, out)?;
        }
        Ok(reply)
    }

    /// The next reply. Where a subscription begins, the messages are the replies.
    fn next(&mut self, words: &[&[u8]], out: &mut dyn Write) -> Result<Value, BenchError> {
        let is_subscription = words.first().is_some_and(|word| subscribes(word));
        loop {
            let reply = self.session.reply()?;
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

    /// Where a redirection leads to, if one is followed, and whether to ask there first.
    fn redirection(&self, reply: &Value) -> Option<(Address, bool)> {
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
        let (host, port) = words.nth(1)?.rsplit_once(':')?;
        let host = match (host, &self.options.endpoint.address) {
            ("", Address::Tcp(host, _)) => host.clone(),
            (host, _) => host.to_owned(),
        };
        Some((Address::Tcp(host, port.parse().ok()?), is_asking))
    }

    /// Shows messages until the connection ends, or the process.
    fn listen(&mut self, out: &mut dyn Write) -> Result<(), BenchError> {
        loop {
            let message = self.session.reply()?;
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

/// Whether what follows the reply is messages.
fn listens(words: &[Vec<u8>]) -> bool {
    words
        .first()
        .is_some_and(|word| subscribes(word) || word.eq_ignore_ascii_case(b"MONITOR"))
}

/// Whether the reply is text for people, which is shown as it is.
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

/// Seconds, with a fraction.
fn seconds(amount: f64) -> Duration {
    Duration::try_from_secs_f64(amount).unwrap_or(Duration::MAX)
}
