//! Runs a transcript against a target.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io;
use std::time::Duration;

use protocol::Value;

use super::file::{Expected, Line, Request, Section, Step, Transcript};
use super::notation::show;
use crate::client::Client;
use crate::patience::Patience;
use crate::target::{Launcher, Target};

/// Maximum time until a key expires, or clients block. After that, the transcript fails.
const EXPIRE_TIMEOUT: Duration = Duration::from_secs(120);

/// An unexpected reply, or a target that failed.
#[derive(Debug)]
pub struct Failure {
    /// File and line of the expectation.
    pub place: String,
    /// The target.
    pub target: String,
    /// What was sent, expected and received.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: [{}] {}", self.place, self.target, self.what)
    }
}

/// Runs a transcript on its own target. Returns every difference, so nothing if it passes.
#[must_use]
pub fn run(transcript: &Transcript, launcher: &Launcher) -> Vec<Failure> {
    let failure = |line: Line, what: String| Failure {
        place: format!("{}:{line}", transcript.path),
        target: launcher.name.to_owned(),
        what,
    };
    let target = match (launcher.start)(&transcript.server_args) {
        Ok(target) => target,
        Err(error) => return vec![failure(1, format!("cannot be started: {error}"))],
    };
    let mut run = Run::new(target.as_ref(), launcher.is_oracle);
    let mut failures = Vec::new();
    for (line, step) in &transcript.steps {
        match run.step(step) {
            Ok(differences) => {
                let differences = differences.into_iter();
                failures.extend(differences.map(|(line, what)| failure(line, what)));
            }
            Err(error) => {
                // The connection is in an unknown state, so later results would only confuse.
                failures.push(failure(*line, format!("{}: {error}", describe(step))));
                break;
            }
        }
    }
    failures
}

/// Connections and current section of a run.
pub(super) struct Run<'a> {
    target: &'a dyn Target,
    is_oracle: bool,
    section: Section,
    current: String,
    clients: HashMap<String, Client>,
}

impl<'a> Run<'a> {
    pub(super) fn new(target: &'a dyn Target, is_oracle: bool) -> Self {
        Self {
            target,
            is_oracle,
            section: Section::All,
            current: String::new(),
            clients: HashMap::new(),
        }
    }

    /// Whether requests are sent to this target in the current section.
    pub(super) fn is_active(&self) -> bool {
        !(self.is_oracle && self.section == Section::NotOracle)
    }

    /// Performs a step. Returns the differences from the expected replies.
    fn step(&mut self, step: &Step) -> io::Result<Vec<(Line, String)>> {
        let Step::Exchange {
            text,
            request,
            replies,
        } = step
        else {
            self.prepare(step)?;
            return Ok(Vec::new());
        };
        if !self.is_active() {
            return Ok(Vec::new());
        }
        self.send(request)?;
        let is_compared = !(self.is_oracle && self.section == Section::OracleDiffers);
        let mut differences = Vec::new();
        for expected in replies {
            let received = self.receive()?;
            if is_compared {
                differences.extend(compare(text, expected, received.as_ref()));
            }
        }
        Ok(differences)
    }

    /// Performs a step other than [`Step::Exchange`].
    pub(super) fn prepare(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Section(section) => self.section = section.clone(),
            Step::Client(name) => self.current.clone_from(name),
            _ if !self.is_active() => {}
            Step::Exchange { .. } => {}
            Step::Reconnect { resp3 } => self.reconnect(*resp3)?,
            Step::Fresh => {
                self.client()?.command(&["FLUSHALL"])?;
            }
            Step::UntilExpired(key) => self.wait_until_expired(key)?,
            Step::UntilBlocked(count) => self.wait_until_blocked(*count)?,
        }
        Ok(())
    }

    pub(super) fn send(&mut self, request: &Request) -> io::Result<()> {
        let sent = match request {
            Request::Args(args) => self.client()?.send(args),
            Request::Raw(bytes) => self.client()?.send_raw(bytes),
            Request::None => Ok(()),
        };
        match sent {
            // The server has closed the connection. The next read shows it.
            Err(error) if is_closed(&error) => Ok(()),
            other => other,
        }
    }

    /// Returns the next reply, or `None` if the connection is closed.
    pub(super) fn receive(&mut self) -> io::Result<Option<Value>> {
        match self.client()?.receive() {
            Err(error) if is_closed(&error) => Ok(None),
            other => other,
        }
    }

    fn client(&mut self) -> io::Result<&mut Client> {
        match self.clients.entry(self.current.clone()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(self.target.connect()?)),
        }
    }

    fn reconnect(&mut self, resp3: bool) -> io::Result<()> {
        if let Some(before) = self.clients.remove(&self.current) {
            // The connection may be closed already. What matters is that the server has finished
            // with it.
            let _ended = before.finish();
        }
        let mut client = self.target.connect()?;
        if resp3 {
            client.hello3()?;
        }
        self.clients.insert(self.current.clone(), client);
        Ok(())
    }

    fn wait_until_expired(&mut self, key: &[u8]) -> io::Result<()> {
        let patience = Patience::of(EXPIRE_TIMEOUT);
        while patience.lasts() {
            if self.client()?.command(&[b"EXISTS", key])? == Value::Integer(0) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other("the key does not expire"))
    }

    fn wait_until_blocked(&self, count: u32) -> io::Result<()> {
        let wanted = format!("\r\nblocked_clients:{count}\r\n");
        let mut watcher = self.target.connect()?;
        let patience = Patience::of(EXPIRE_TIMEOUT);
        while patience.lasts() {
            let answer = watcher.command(&["INFO", "clients"])?;
            if let Value::Bulk(text) = answer
                && String::from_utf8_lossy(&text).contains(&wanted)
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other("other clients are blocked"))
    }
}

fn compare(text: &str, expected: &Expected, received: Option<&Value>) -> Option<(Line, String)> {
    let (line, fits) = match (expected, received) {
        (Expected::Closed(line), received) => (*line, received.is_none()),
        (Expected::Reply(line, pattern), Some(value)) => (*line, pattern.accepts(value)),
        (Expected::Reply(line, _), None) => (*line, false),
    };
    if fits {
        return None;
    }
    let received = received.map_or_else(|| "(closed)".to_owned(), show);
    Some((line, format!("{text} was answered {received}")))
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionReset | ConnectionAborted
    )
}

fn describe(step: &Step) -> String {
    match step {
        Step::Exchange { text, .. } => text.clone(),
        other => format!("{other:?}"),
    }
}
