//! Applies canonical commands to the store: those of our log, and those of AOFs.
//!
//! A [`Replayer`] is an engine with a client of its own. Side effects of a command's first run are
//! not repeated: nothing is reported to logs or observers, nothing is counted for INFO, and there
//! is no server to ask.
//!
//! Invariants
//!  1. Time stands still, at 0: nothing expires while it is loaded, so that a command finds the
//!     same data as when it ran. Keys that have expired by then are removed like any key, once the
//!     store is in use.
//!  2. Memory is not limited: data that was held before is held again. If that is too much, the
//!     first client that writes finds out.
//!  3. Commands are applied in the order in which they come. A group needs nothing more to be one
//!     step, because no other thread reads the store meanwhile; the reader of the log ensures that
//!     the group is whole.
//!  4. None of our own commands may fail, or the store would differ from what it was: the first
//!     failure is a [`ReplayFault`]. Commands of other servers are treated as those servers do: an
//!     error is noted, and the next command is tried ([`Origin::Foreign`]).

mod lanes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::clock::ManualClock;
use base::random::Prng;
use durability::log::Parts;
use engine::{
    BATCH_MAX, ClientRecord, Engine, EngineCounters, Next, NoServer, Session, Share, Shared, Table,
    Threshold,
};
use protocol::{Batch, Decoder, Limits, ReplyBuffer, Request, Value, decode_value};
use store::{DatabaseId, Store};

pub use lanes::{Feed, replay_in_parallel};

/// Bytes of commands that are applied together: enough for the pipeline's look-ahead, few enough to
/// stay in the core's own cache.
const BATCH_BYTES: usize = 32 * 1024;

/// Maximum bytes that wait in a batch.
const PLACES_MAX: usize = u32::MAX as usize - 2;

/// Maximum number of failed commands whose reasons are kept.
const FAILURES_KEPT_MAX: usize = 16;

/// Maximum bytes of a command that are shown.
const SHOWN_BYTES_MAX: usize = 128;

/// The writer of the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This server: no command may fail.
    Own,
    /// Another server: commands that fail are left out.
    Foreign,
}

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its position, in the caller's units.
    pub position: u64,
    /// Its first bytes.
    pub command: String,
    /// Why it failed: the text of the error reply.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            position,
            command,
            reason,
        } = self;
        write!(f, "{command:?} at {position}: {reason}")
    }
}

/// Why commands cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayFault {
    /// One of our own commands failed.
    Refused(Failure),
    /// The bytes at a position are no request.
    Malformed {
        /// The position.
        position: u64,
    },
    /// There is no such database.
    NoDatabase {
        /// Position of the command that uses it.
        position: u64,
        /// The database.
        database: DatabaseId,
        /// Number of databases.
        databases: DatabaseId,
    },
    /// A thread that applies commands has ended.
    Stopped {
        /// Position of the command that it should have applied.
        position: u64,
    },
}

impl ReplayFault {
    /// Returns the position of the command.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self {
            Self::Refused(failure) => failure.position,
            Self::Malformed { position }
            | Self::NoDatabase { position, .. }
            | Self::Stopped { position } => *position,
        }
    }
}

impl fmt::Display for ReplayFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(failure) => write!(f, "a command that was logged fails: {failure}"),
            Self::Malformed { position } => write!(f, "no request at {position}"),
            Self::Stopped { position } => {
                write!(
                    f,
                    "a thread ended before it applied the command at {position}"
                )
            }
            Self::NoDatabase {
                position,
                database,
                databases,
            } => write!(
                f,
                "a command at {position} is about database {database}, and there are {databases} \
                 (directive databases)"
            ),
        }
    }
}

impl std::error::Error for ReplayFault {}

/// The applied commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of commands, including failed ones.
    pub commands: u64,
    /// Number of failed commands.
    pub failed: u64,
    /// Reasons of the first failures.
    pub failures: Vec<Failure>,
}

impl Replayed {
    /// Returns the sum of both, the first failures first.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.commands += other.commands;
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.position);
        self.failures.truncate(FAILURES_KEPT_MAX);
        self
    }
}

/// Applies commands, some hundred at once. If it is dropped, waiting commands are not applied: see
/// [`Replayer::finish`].
pub struct Replayer {
    origin: Origin,
    databases: DatabaseId,
    engine: Engine,
    counters: Arc<EngineCounters>,
    session: Session,
    /// Waiting commands, all about the session's database: requests as clients send them if `batch`
    /// is empty, otherwise the arguments to which `batch` refers.
    waiting: Vec<u8>,
    batch: Batch,
    /// Position of each of them.
    positions: Vec<u64>,
    output: ReplyBuffer,
    errors_seen: u64,
    done: Replayed,
}

impl Replayer {
    /// Returns a replayer that applies commands to `store`, like a server with this state.
    #[must_use]
    pub fn new(table: &'static Table, store: &Arc<Store>, like: &Shared, origin: Origin) -> Self {
        let mut handle = store.handle();
        handle.set_unlimited(true);
        let clock = Arc::new(ManualClock::at_unix_ms(0));
        let engine = Engine::new(
            table,
            handle,
            Arc::new(shared(like)),
            clock,
            Prng::seeded(0),
        )
        .of_log();
        let address = || String::from("replay");
        let client = ClientRecord::new(0, address(), address(), 0, -1, 0);
        Self {
            origin,
            databases: store.databases(),
            counters: engine.counters(),
            engine,
            session: Session::new(Arc::new(client), true),
            waiting: Vec::with_capacity(2 * BATCH_BYTES),
            batch: Batch::new(),
            positions: Vec::new(),
            output: ReplyBuffer::new(),
            errors_seen: 0,
            done: Replayed::default(),
        }
    }

    /// Applies a command, given as the array of bulk strings that a client would send; soon, or
    /// with [`Replayer::flush`]. Also reports faults of earlier commands.
    ///
    /// # Errors
    /// [`ReplayFault`]; nothing is applied after that.
    #[inline]
    pub fn command(
        &mut self,
        position: u64,
        database: DatabaseId,
        request: &[u8],
    ) -> Result<(), ReplayFault> {
        if database != self.session.database {
            self.select(position, database)?;
        }
        if request.len() >= BATCH_BYTES || !self.batch.is_empty() {
            self.flush()?;
        }
        if request.len() >= BATCH_BYTES {
            self.positions.push(position);
            return self.apply(request);
        }
        self.waiting.extend_from_slice(request);
        self.positions.push(position);
        if self.waiting.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Like [`Replayer::command`], for a command in parts.
    ///
    /// # Errors
    /// [`ReplayFault`]; nothing is applied after that.
    pub fn parts(
        &mut self,
        position: u64,
        database: DatabaseId,
        parts: &[&[u8]],
    ) -> Result<(), ReplayFault> {
        self.begin_parts(position, database)?;
        let mut end = self.waiting.len();
        for part in parts {
            self.batch.add_argument(end, part.len());
            self.waiting.extend_from_slice(part);
            end += part.len();
        }
        self.end_parts(position, parts.len())
    }

    /// Like [`Replayer::parts`], for an effect in the form of the log.
    ///
    /// # Errors
    /// [`ReplayFault`]; nothing is applied after that.
    #[inline]
    pub fn effect(
        &mut self,
        position: u64,
        database: DatabaseId,
        parts: Parts<'_>,
    ) -> Result<(), ReplayFault> {
        self.begin_parts(position, database)?;
        let (batch, mut told) = (&mut self.batch, 0);
        parts.copy_to(&mut self.waiting, |start, len| {
            batch.add_argument(start, len);
            told += 1;
        });
        if told != parts.len() {
            return Err(ReplayFault::Malformed { position });
        }
        self.end_parts(position, told)
    }

    /// Applies waiting commands that are not in parts or not about this database.
    #[inline]
    fn begin_parts(&mut self, position: u64, database: DatabaseId) -> Result<(), ReplayFault> {
        if database != self.session.database {
            self.select(position, database)?;
        }
        if self.batch.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    /// Notes a waiting command of `count` parts.
    #[inline]
    fn end_parts(&mut self, position: u64, count: usize) -> Result<(), ReplayFault> {
        // Offsets in a batch have 32 bits.
        if count == 0 || self.waiting.len() > PLACES_MAX {
            return Err(ReplayFault::Malformed { position });
        }
        self.batch.end_added(count, &self.waiting);
        self.positions.push(position);
        if self.batch.len() == BATCH_MAX || self.waiting.len() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Applies requests at once, all about one database, and empties `positions`, which has the
    /// position of each of them.
    fn batch(
        &mut self,
        database: DatabaseId,
        requests: &[u8],
        positions: &mut Vec<u64>,
    ) -> Result<(), ReplayFault> {
        self.flush()?;
        if database != self.session.database {
            let position = positions.first().copied();
            self.select(position.unwrap_or(0), database)?;
        }
        std::mem::swap(&mut self.positions, positions);
        let applied = self.apply(requests);
        std::mem::swap(&mut self.positions, positions);
        applied
    }

    /// Applies waiting commands. Returns what was applied so far.
    ///
    /// # Errors
    /// [`ReplayFault`]; nothing is applied after that.
    pub fn flush(&mut self) -> Result<&Replayed, ReplayFault> {
        if !self.positions.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            let applied = if self.batch.is_empty() {
                self.apply(&waiting)
            } else {
                self.apply_batch(&waiting)
            };
            self.waiting = waiting;
            self.waiting.clear();
            self.waiting.shrink_to(2 * BATCH_BYTES);
            applied?;
        }
        Ok(&self.done)
    }

    /// Applies waiting commands, and returns what was applied in all. Timers armed for deadlines
    /// are passed to the other handles of the store.
    ///
    /// # Errors
    /// [`ReplayFault`].
    pub fn finish(mut self) -> Result<Replayed, ReplayFault> {
        self.flush()?;
        Ok(self.done)
    }

    fn select(&mut self, position: u64, database: DatabaseId) -> Result<(), ReplayFault> {
        self.flush()?;
        if database >= self.databases {
            return Err(ReplayFault::NoDatabase {
                position,
                database,
                databases: self.databases,
            });
        }
        self.session.select(database);
        Ok(())
    }

    /// Runs requests, whose positions are known.
    fn apply(&mut self, requests: &[u8]) -> Result<(), ReplayFault> {
        let share = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        let (session, output) = (&mut self.session, &mut self.output);
        let (mut consumed, mut executed) = (0, 0);
        let next = loop {
            let rest = &requests[consumed..];
            let outcome = self
                .engine
                .run(session, &mut NoServer::default(), rest, output, share);
            consumed += outcome.consumed;
            executed += outcome.executed;
            // No other client waits for its turn.
            let goes_on = outcome.next == Next::Yield && outcome.consumed > 0;
            if !goes_on || consumed == requests.len() {
                break outcome.next;
            }
        };
        let is_whole = consumed == requests.len() && matches!(next, Next::Read | Next::Yield);
        self.note(is_whole, executed, |index| {
            let (mut decoder, mut batch) = (Decoder::new(), Batch::new());
            let limits = Limits {
                multibulk_max: u32::MAX,
                bulk_bytes_max: u64::from(u32::MAX),
                ..Limits::default()
            };
            decoder.decode(requests, &limits, usize::MAX, &mut batch);
            batch.iter(requests).nth(index).map(shown)
        })
    }

    /// Runs the batch, whose positions are known.
    fn apply_batch(&mut self, input: &[u8]) -> Result<(), ReplayFault> {
        let (session, output) = (&mut self.session, &mut self.output);
        let batch = std::mem::take(&mut self.batch);
        let (executed, next) =
            self.engine
                .run_batch(session, &mut NoServer::default(), (&batch, input), output);
        let noted = self.note(next == Next::Read, executed, |index| {
            batch.iter(input).nth(index).map(shown)
        });
        self.batch = batch;
        self.batch.clear();
        noted
    }

    /// Counts requests with known positions that ran; `show` returns the text of one.
    fn note(
        &mut self,
        is_whole: bool,
        executed: usize,
        show: impl Fn(usize) -> Option<String>,
    ) -> Result<(), ReplayFault> {
        if !is_whole || executed != self.positions.len() {
            let position = self.positions.get(executed);
            let position = position.or_else(|| self.positions.last()).copied();
            return Err(ReplayFault::Malformed {
                position: position.unwrap_or(0),
            });
        }
        let errors = self.counters.errors_count();
        if errors != self.errors_seen {
            self.errors_seen = errors;
            self.note_failures(show)?;
        }
        self.done.commands += self.positions.len() as u64;
        self.positions.clear();
        self.output.clear();
        Ok(())
    }

    /// Finds out which of the requests that ran got an error reply.
    #[cold]
    fn note_failures(&mut self, show: impl Fn(usize) -> Option<String>) -> Result<(), ReplayFault> {
        let replies = self.output.to_vec();
        let mut rest = replies.as_slice();
        for (index, position) in self.positions.iter().enumerate() {
            let Ok(Some((reply, length))) = decode_value(rest) else {
                break;
            };
            rest = rest.get(length..).unwrap_or_default();
            let Value::Error(text) = reply else {
                continue;
            };
            let failure = Failure {
                position: *position,
                command: show(index).unwrap_or_default(),
                reason: String::from_utf8_lossy(&text).into_owned(),
            };
            if self.origin == Origin::Own {
                return Err(ReplayFault::Refused(failure));
            }
            self.done.failed += 1;
            if self.done.failures.len() < FAILURES_KEPT_MAX {
                self.done.failures.push(failure);
            }
        }
        Ok(())
    }
}

/// Returns the state that replayed commands check, without configurable limits. Collections get the
/// encodings that they would get now, and functions are loaded into the server's own registry.
pub fn shared(like: &Shared) -> Shared {
    let shared = Shared {
        scripts: Arc::clone(&like.scripts),
        ..Shared::default()
    };
    let settings = &shared.settings;
    settings
        .bulk_bytes_max
        .store(u64::from(u32::MAX), Ordering::Relaxed);
    settings.arguments_max.store(u32::MAX, Ordering::Relaxed);
    for (threshold, ..) in Threshold::ALL {
        let value = like.settings.thresholds.get(threshold);
        settings.thresholds.set(threshold, value);
    }
    shared
}

/// Returns the printable form of a request.
fn shown(request: Request<'_>) -> String {
    let mut shown = String::new();
    for argument in request.iter() {
        if shown.len() >= SHOWN_BYTES_MAX {
            shown.push_str(" ...");
            break;
        }
        if !shown.is_empty() {
            shown.push(' ');
        }
        let head = &argument[..argument.len().min(SHOWN_BYTES_MAX)];
        shown.push_str(&head.escape_ascii().to_string());
    }
    shown
}

#[cfg(test)]
mod tests;
