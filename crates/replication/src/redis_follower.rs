//! The replica's end of a link to a Redis or Valkey primary.
//!
//! ```text
//!   Idle ─ connected ─► Ping ─► Hello ─► Asking ─┬─ +CONTINUE ──────────────────────────► Streaming
//!                        PING    AUTH     PSYNC  └─ +FULLRESYNC ─► Head ─► Snapshot ─► Loading ┘
//!                                REPLCONF                           $…       bytes       loaded
//! ```
//!
//! The state machine reads what the primary sends and returns events. The caller sends what
//! [`Follower::take_output`] returns. The caller passes unconsumed bytes again, with more after them.
//!
//! Invariants
//!  1. Whatever a primary sends, the machine keeps at most a line: it hands on snapshot and stream
//!     as they come.
//!  2. It acknowledges what was reported to it as applied, never what was received.
//!  3. After a failure it must not be used: the next link begins with a new machine.
//!
//! Facts of the protocol: `+PONG`, `-NOAUTH`, `-NOPERM` and `-ERR operation not permitted` let the
//! handshake continue. Errors to REPLCONF are ignored. Empty lines are signs of life of the
//! primary. After a snapshot that ends with a mark, the stream begins after the first
//! acknowledgement.

mod commands;
mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use base::number::{IntegerText, parse_i64};

use crate::psync::ReplicationId;

pub use commands::{Commands, Piece, PieceFlaw};
use snapshot::Framing;

/// Maximum length of a line of a primary's answer.
pub const LINE_BYTES_MAX: usize = 4096;
/// Interval between acknowledgements, and between empty lines while a snapshot is loaded.
pub const ACK_MS: u64 = 1_000;

/// Identity and request of this replica.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// `masteruser`; empty for the default user.
    pub user: Vec<u8>,
    /// `masterauth`; if it is empty, no AUTH is sent.
    pub password: Vec<u8>,
    /// The port this replica listens on.
    pub listening_port: u16,
    /// The name under which the primary shows it (`replica-announce-ip`).
    pub ip_address: Option<String>,
    /// The version it reports: a Valkey primary writes its snapshot for that version. Other
    /// primaries ignore it.
    pub version: Option<&'static str>,
    /// Whether it asks if the primary speaks the own link.
    pub asks_for_link: bool,
    /// The position it continues from, or `None` for a full sync.
    pub from: Option<(ReplicationId, u64)>,
    /// Whether the primary is to take office. It was this node's replica up to here.
    pub is_failover: bool,
    /// A link that received nothing for this time has failed (`repl-timeout`).
    pub timeout_ms: u64,
}

/// What the primary sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// The primary speaks the own link, on a port.
    OwnLink {
        /// The port.
        port: u16,
    },
    /// The stream continues at the requested position, under another id if one is given.
    Continues {
        /// The new id.
        id: Option<ReplicationId>,
    },
    /// A snapshot follows, and then a stream from an offset on.
    Full {
        /// Id of the stream.
        id: ReplicationId,
        /// Number of its bytes that the snapshot covers.
        offset: u64,
    },
    /// The snapshot begins.
    SnapshotBegins {
        /// Its length, if known.
        bytes: Option<u64>,
    },
    /// The next bytes of the snapshot.
    Snapshot(&'b [u8]),
    /// The snapshot is complete. The caller calls [`Follower::on_loaded`] after loading it.
    SnapshotEnds,
    /// The next bytes of the stream.
    Stream(&'b [u8]),
}

/// Why the link failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The primary cannot serve it at the moment: another attempt may succeed.
    Later(String),
    /// The primary refused: the step, and its answer.
    Refused(&'static str, String),
    /// The primary sent an unexpected answer: the step, and the answer.
    Malformed(&'static str, String),
    /// The primary sent nothing for too long.
    Silent,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later(text) => write!(f, "the primary is not ready: {text}"),
            Self::Refused(step, text) => write!(f, "the primary refused {step}: {text}"),
            Self::Malformed(step, text) => {
                write!(
                    f,
                    "the primary's answer to {step} is not understood: {text}"
                )
            }
            Self::Silent => f.write_str("the primary says nothing"),
        }
    }
}

impl std::error::Error for Failure {}

/// State of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Ping,
    /// Waits for these answers, in order.
    Hello(VecDeque<Awaited>),
    Asking,
    /// Waits for the line before the snapshot.
    Head,
    Snapshot(Framing),
    Loading,
    Streaming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Auth,
    Link,
    /// Ignored, whatever it is.
    Option,
}

/// A link to a primary.
#[derive(Debug)]
pub struct Follower {
    introduction: Introduction,
    stage: Stage,
    output: Vec<u8>,
    heard_ms: u64,
    said_ms: u64,
    applied: u64,
    fsynced: Option<u64>,
}

impl Follower {
    /// Creates a link that is not connected yet.
    #[must_use]
    pub fn new(introduction: Introduction) -> Self {
        let applied = introduction.from.map_or(0, |(_, offset)| offset);
        Self {
            introduction,
            stage: Stage::Idle,
            output: Vec::new(),
            heard_ms: 0,
            said_ms: 0,
            applied,
            fsynced: None,
        }
    }

    /// Returns the bytes to be sent.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the words with which INFO shows its state.
    #[must_use]
    pub fn stage_name(&self) -> &'static str {
        match self.stage {
            Stage::Idle => "connect",
            Stage::Ping | Stage::Hello(_) | Stage::Asking => "handshake",
            Stage::Head | Stage::Snapshot(_) | Stage::Loading => "sync",
            Stage::Streaming => "connected",
        }
    }

    /// Begins the handshake on a connected link.
    pub fn on_connected(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
        self.said_ms = now_ms;
        self.stage = Stage::Ping;
        self.say(&[b"PING"]);
    }

    /// Records how many bytes of the stream are applied, and how many are durable, if known.
    pub fn set_applied(&mut self, offset: u64, fsynced: Option<u64>) {
        self.applied = offset;
        self.fsynced = fsynced;
    }

    /// Starts the stream after the snapshot was loaded.
    pub fn on_loaded(&mut self, now_ms: u64) {
        if self.stage == Stage::Loading {
            self.heard_ms = now_ms;
            self.stage = Stage::Streaming;
            self.acknowledge(now_ms);
        }
    }

    /// Acknowledges what is applied, when the primary asks and periodically.
    pub fn acknowledge(&mut self, now_ms: u64) {
        if self.stage != Stage::Streaming {
            return;
        }
        self.said_ms = now_ms;
        let applied = IntegerText::new_u64(self.applied);
        let fsynced = self.fsynced.map(IntegerText::new_u64);
        let mut command: Vec<&[u8]> = vec![b"REPLCONF", b"ACK", applied.as_bytes()];
        if let Some(fsynced) = &fsynced {
            command.extend([&b"FACK"[..], fsynced.as_bytes()]);
        }
        put_command(&command, &mut self.output);
    }

    /// Handles the passing of time. Must be called at least once a second.
    ///
    /// # Errors
    /// [`Failure::Silent`].
    pub fn on_tick(&mut self, now_ms: u64) -> Result<(), Failure> {
        let silent_ms = now_ms.saturating_sub(self.heard_ms);
        let timeout_ms = self.introduction.timeout_ms;
        match self.stage {
            Stage::Idle => return Ok(()),
            // The server does not read from the link while it loads the snapshot.
            Stage::Loading => self.heard_ms = now_ms,
            _ if timeout_ms > 0 && silent_ms > timeout_ms => return Err(Failure::Silent),
            _ => {}
        }
        if now_ms.saturating_sub(self.said_ms) >= ACK_MS {
            match self.stage {
                Stage::Streaming => self.acknowledge(now_ms),
                Stage::Head | Stage::Snapshot(_) | Stage::Loading => {
                    self.said_ms = now_ms;
                    self.output.push(b'\n');
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Consumes bytes from the primary. Returns how many, and their event, if any. Must be called
    /// again while it consumes bytes or returns events.
    ///
    /// # Errors
    /// [`Failure`]; the caller closes the link.
    pub fn on_bytes<'b>(
        &mut self,
        bytes: &'b [u8],
        now_ms: u64,
    ) -> Result<(usize, Option<Event<'b>>), Failure> {
        if !bytes.is_empty() {
            self.heard_ms = now_ms;
        }
        match &mut self.stage {
            Stage::Idle | Stage::Loading => Ok((0, None)),
            Stage::Streaming => {
                let event = (!bytes.is_empty()).then_some(Event::Stream(bytes));
                Ok((bytes.len(), event))
            }
            Stage::Snapshot(framing) => {
                if framing.is_at_end() {
                    self.stage = Stage::Loading;
                    return Ok((0, Some(Event::SnapshotEnds)));
                }
                let (taken, content) = framing.take(bytes);
                let event = (!content.is_empty()).then_some(Event::Snapshot(content));
                if framing.is_at_end() && event.is_none() {
                    self.stage = Stage::Loading;
                    return Ok((taken, Some(Event::SnapshotEnds)));
                }
                Ok((taken, event))
            }
            Stage::Ping | Stage::Hello(_) | Stage::Asking | Stage::Head => {
                let Some((line, taken)) = line_of(bytes, self.step())? else {
                    return Ok((0, None));
                };
                Ok((taken, self.on_line(line, now_ms)?))
            }
        }
    }

    fn step(&self) -> &'static str {
        match self.stage {
            Stage::Ping => "PING",
            Stage::Hello(_) => "REPLCONF",
            Stage::Head => "the snapshot",
            _ => "PSYNC",
        }
    }

    fn on_line(&mut self, line: &[u8], now_ms: u64) -> Result<Option<Event<'static>>, Failure> {
        if line.is_empty() {
            return Ok(None);
        }
        match &mut self.stage {
            Stage::Ping => self.on_pong(line).map(|()| None),
            Stage::Hello(awaited) => {
                let front = awaited.pop_front();
                let is_last = awaited.is_empty();
                let event = on_option(front, line)?;
                if is_last {
                    self.ask();
                }
                Ok(event)
            }
            Stage::Head => {
                let framing = Framing::of_line(line)
                    .ok_or_else(|| Failure::Malformed("PSYNC", text_of(line)))?;
                let bytes = framing.bytes();
                self.stage = Stage::Snapshot(framing);
                Ok(Some(Event::SnapshotBegins { bytes }))
            }
            _ => self.on_answer(line, now_ms).map(Some),
        }
    }

    fn on_pong(&mut self, line: &[u8]) -> Result<(), Failure> {
        const PASSED_OVER: [&[u8]; 3] = [b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
        let goes_on =
            line.first() == Some(&b'+') || PASSED_OVER.iter().any(|it| line.starts_with(it));
        if !goes_on {
            return Err(refusal("PING", line));
        }
        let introduction = std::mem::take(&mut self.introduction);
        let mut awaited = VecDeque::new();
        if !introduction.password.is_empty() {
            awaited.push_back(Awaited::Auth);
            let (user, password) = (&introduction.user, &introduction.password);
            match user.is_empty() {
                true => self.say(&[b"AUTH", password]),
                false => self.say(&[b"AUTH", user, password]),
            }
        }
        if introduction.asks_for_link {
            awaited.push_back(Awaited::Link);
            self.say(&[b"REPLCONF", b"iolite-link", b"1"]);
        }
        let port = IntegerText::new_u64(introduction.listening_port.into());
        self.say(&[b"REPLCONF", b"listening-port", port.as_bytes()]);
        awaited.push_back(Awaited::Option);
        if let Some(address) = &introduction.ip_address {
            self.say(&[b"REPLCONF", b"ip-address", address.as_bytes()]);
            awaited.push_back(Awaited::Option);
        }
        self.say(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"]);
        awaited.push_back(Awaited::Option);
        if let Some(version) = introduction.version {
            self.say(&[b"REPLCONF", b"version", version.as_bytes()]);
            awaited.push_back(Awaited::Option);
        }
        self.introduction = introduction;
        self.stage = Stage::Hello(awaited);
        Ok(())
    }

    fn ask(&mut self) {
        self.stage = Stage::Asking;
        let is_failover = self.introduction.is_failover;
        let Some((id, offset)) = self.introduction.from else {
            return self.say(&[b"PSYNC", b"?", b"-1"]);
        };
        let first = IntegerText::new_u64(offset.saturating_add(1));
        let mut command = vec![&b"PSYNC"[..], id.as_str().as_bytes(), first.as_bytes()];
        if is_failover {
            command.push(b"FAILOVER");
        }
        put_command(&command, &mut self.output);
    }

    fn on_answer(&mut self, line: &[u8], now_ms: u64) -> Result<Event<'static>, Failure> {
        let malformed = || Failure::Malformed("PSYNC", text_of(line));
        let mut words = line.split(|byte| *byte == b' ');
        match words.next().unwrap_or_default() {
            b"+CONTINUE" => {
                if self.introduction.from.is_none() {
                    return Err(malformed());
                }
                let id = words.next().map(ReplicationId::parse);
                if id == Some(None) {
                    return Err(malformed());
                }
                self.stage = Stage::Streaming;
                self.acknowledge(now_ms);
                Ok(Event::Continues { id: id.flatten() })
            }
            b"+FULLRESYNC" => {
                let id = words.next().and_then(ReplicationId::parse);
                let offset = words.next().and_then(parse_i64);
                let offset = offset.and_then(|it| u64::try_from(it).ok());
                let (Some(id), Some(offset)) = (id, offset) else {
                    return Err(malformed());
                };
                self.applied = offset;
                self.stage = Stage::Head;
                Ok(Event::Full { id, offset })
            }
            b"-NOMASTERLINK" | b"-LOADING" | b"-MASTERDOWN" | b"-BUSY" | b"-TRYAGAIN" => {
                Err(Failure::Later(text_of(&line[1..])))
            }
            word if word.starts_with(b"-") => Err(refusal("PSYNC", line)),
            _ => Err(malformed()),
        }
    }

    fn say(&mut self, command: &[&[u8]]) {
        put_command(command, &mut self.output);
    }
}

/// Returns the first line, without its end, and how many bytes it takes.
fn line_of<'b>(bytes: &'b [u8], step: &'static str) -> Result<Option<(&'b [u8], usize)>, Failure> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        if bytes.len() >= LINE_BYTES_MAX {
            return Err(Failure::Malformed(step, "a line without an end".to_owned()));
        }
        return Ok(None);
    };
    let line = &bytes[..end];
    Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
}

fn on_option(awaited: Option<Awaited>, line: &[u8]) -> Result<Option<Event<'static>>, Failure> {
    let is_error = line.first() == Some(&b'-');
    match awaited {
        Some(Awaited::Auth) if is_error => Err(refusal("AUTH", line)),
        Some(Awaited::Link) if line.first() == Some(&b'+') => {
            let mut words = line[1..].split(|byte| *byte == b' ');
            let port = words.next().and_then(parse_i64);
            let port = port.and_then(|port| u16::try_from(port).ok());
            Ok(port.map(|port| Event::OwnLink { port }))
        }
        _ => Ok(None),
    }
}

fn refusal(step: &'static str, line: &[u8]) -> Failure {
    if line.first() == Some(&b'-') {
        Failure::Refused(step, text_of(&line[1..]))
    } else {
        Failure::Malformed(step, text_of(line))
    }
}

/// Returns what an operator sees of a line.
fn text_of(line: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 200;
    line[..line.len().min(SHOWN_BYTES_MAX)]
        .escape_ascii()
        .to_string()
}

fn put_command(parts: &[&[u8]], out: &mut Vec<u8>) {
    let number = |mark: u8, count: usize, out: &mut Vec<u8>| {
        out.push(mark);
        out.extend_from_slice(IntegerText::new_u64(count as u64).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    number(b'*', parts.len(), out);
    for part in parts {
        number(b'$', part.len(), out);
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

/// What a replica has when a Redis primary offers a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The stream of its data, and how many bytes of it are applied, or `None` if its data is of no
    /// stream.
    pub stream: Option<(ReplicationId, u64)>,
    /// Whether it has data.
    pub has_data: bool,
    /// Whether an operator allowed it to discard the data: by REPLICAOF for this link, or
    /// `replica-accept-older-primary`.
    pub may_discard: bool,
}

/// Whether a replica may take a full sync, which replaces its data.
///
/// # Errors
/// Why it keeps its data, for the operator.
pub fn judge_full_sync(held: &Held, id: ReplicationId, offset: u64) -> Result<(), String> {
    if !held.has_data || held.may_discard {
        return Ok(());
    }
    match held.stream {
        Some((own, applied)) if own != id && offset < applied => Err(format!(
            "the primary is older: it is at offset {offset} of history {id}, this replica at {applied} of {own}"
        )),
        Some((own, applied)) if own == id && offset < applied => Err(format!(
            "the primary has less of the same history: {offset} of the {applied} bytes that this replica has"
        )),
        Some(_) => Ok(()),
        None => Err("the data of primary and replica have no history in common".to_owned()),
    }
}

/// Whether a replica may take a full sync that turned out to contain no data at all.
///
/// # Errors
/// Why it keeps its data.
pub fn judge_empty_snapshot(held: &Held) -> Result<(), String> {
    if !held.has_data || held.may_discard {
        return Ok(());
    }
    Err("the primary is empty and this replica has data".to_owned())
}
