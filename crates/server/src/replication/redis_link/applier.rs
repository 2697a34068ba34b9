//! Applies a primary's stream with an engine of its own, whose effects go to the own log.
//!
//! Each batch is one frame of the log, together with the stream position after it. Cuts of
//! snapshots fall between batches, so a checkpoint names one position of the stream as well.

use std::collections::VecDeque;
use std::sync::Arc;

use base::random::Prng;
use engine::{ClientRecord, Engine, EngineCounters, Next, Session, Share};
use persistence::checkpointer::{Ticket, Why};
use persistence::followed::BROKEN;
use persistence::log_in_use::LogUser;
use protocol::ReplyBuffer;
use store::Source;

use super::super::following::{Following, Primary};
use super::failed_command::failures;
use crate::node::Node;
use crate::port::Port;

/// Pause between attempts when a command cannot run yet.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Maximum number of positions not yet on disk that are kept apart.
const UNSYNCED_MAX: usize = 4096;

/// Why a batch was not applied completely.
#[derive(Debug)]
pub(super) enum Stop {
    /// Another thread wants this one to stop.
    Asked,
    /// A command failed.
    Fault(String),
}

/// See the module.
pub(super) struct Applier<'f> {
    node: Arc<Node>,
    following: &'f Following,
    engine: Engine,
    counters: Arc<EngineCounters>,
    errors_seen: u64,
    /// Number of members for which the primary set a deadline and that have none here.
    without_deadline: u64,
    session: Session,
    client: Arc<ClientRecord>,
    output: ReplyBuffer,
    log_user: LogUser,
    /// How far the stream is applied.
    source: Source,
    /// Offset up to which the stream was given to the engine. In an open transaction this is more
    /// than what is applied.
    given: u64,
    /// Ticket of the checkpoint of loaded data. It must be on disk before the log names the data's
    /// stream.
    unkept: Option<Ticket>,
    /// Pairs of a log end and the stream offset applied up to there that are not known to be on
    /// disk; both ascend.
    unsynced: VecDeque<(u64, u64)>,
    /// Offset up to which the stream is on disk, or `None` if nothing is kept there.
    durable: Option<u64>,
}

impl<'f> Applier<'f> {
    pub(super) fn new(node: &Arc<Node>, following: &'f Following) -> Self {
        let mut handle = node.handle(&Arc::default());
        handle.set_unlimited(true);
        handle.set_ageless(true);
        let engine = Engine::new(
            node.core.env.table,
            handle,
            Arc::clone(&node.core.shared),
            Arc::clone(&node.core.clock),
            Prng::from_os(),
        );
        let engine = engine.among(Arc::clone(&node.sessions.waiters)).of_log();
        let Primary { host, port } = following.primary();
        let client = Arc::new(ClientRecord::new(
            node.sessions.clients.next_id(),
            format!("{host}:{port}"),
            String::new(),
            0,
            -1,
            node.core.clock.now_unix_ms(),
        ));
        let log_user = node.keeping.log_in_use.join();
        log_user.set_idle(true);
        following.show_client(Some(Arc::clone(&client)));
        Self {
            node: Arc::clone(node),
            following,
            counters: engine.counters(),
            engine,
            errors_seen: 0,
            without_deadline: 0,
            session: session_of(&client),
            client,
            output: ReplyBuffer::new(),
            log_user,
            source: BROKEN,
            given: 0,
            unkept: None,
            unsynced: VecDeque::new(),
            durable: None,
        }
    }

    /// The offset up to which the stream is applied.
    pub(super) fn offset(&self) -> u64 {
        self.source.offset
    }

    /// Whether there are any keys here.
    pub(super) fn has_data(&mut self) -> bool {
        let databases = self.node.core.store.databases();
        let store = self.engine.store();
        (0..databases).any(|database| store.len(database) > 0)
    }

    /// Sets the stream that the data is of, now and in the log.
    pub(super) fn begin_stream(&mut self, source: Source) -> Result<(), Stop> {
        self.session = session_of(&self.client);
        self.session.select(source.database);
        self.source = source;
        self.given = source.offset;
        self.batch(|own| {
            own.state_source();
            Ok(())
        })?;
        self.write_out()
    }

    /// Drops all data, because the primary's data follows. Until that is complete, the data belongs
    /// to no stream.
    pub(super) fn drop_data(&mut self) -> Result<(), Stop> {
        const DROP: &[u8] = b"*2\r\n$8\r\nFLUSHALL\r\n$5\r\nASYNC\r\n*3\r\n$8\r\nFUNCTION\r\n$5\r\nFLUSH\r\n$4\r\nSYNC\r\n";
        self.node.core.env.followed.set_broken();
        self.batch(|own| {
            own.run(DROP).1?;
            own.engine.store().state_source(&BROKEN);
            Ok(())
        })?;
        self.write_out()
    }

    /// Drops what was loaded of a primary's data: an incomplete copy is of no use, whichever node
    /// takes over.
    pub(super) fn drop_part(&mut self) {
        // An error is ignored: without a log nothing needs to be logged.
        let _said = self.drop_data();
    }

    /// Applies whole commands. Within an open transaction they only wait for its end.
    pub(super) fn apply(&mut self, commands: &[u8], is_open: bool) -> Result<(), Stop> {
        let outcome = self.batch(|own| {
            let (consumed, outcome) = own.run(commands);
            own.given += consumed as u64;
            // An applier that is stopped between two commands resumes there.
            let is_between = match &outcome {
                Ok(()) => !is_open,
                Err(Stop::Asked) => !own.session.has_transaction(),
                Err(Stop::Fault(_)) => false,
            };
            if is_between {
                own.source.offset = own.given;
                own.source.database = own.session.database;
                own.state_source();
            }
            match outcome {
                Err(Stop::Asked) if !is_between && consumed > 0 => {
                    Err(Stop::Fault("it was stopped in a transaction".to_owned()))
                }
                outcome => outcome,
            }
        });
        if let Err(Stop::Fault(_)) = &outcome {
            self.give_up_stream();
        }
        outcome
    }

    /// Skips bytes that have no effect.
    pub(super) fn pass(&mut self, bytes: usize) {
        self.given += bytes as u64;
        self.source.offset = self.given;
        self.node.core.env.followed.set(self.source);
    }

    /// Notes that the data belongs to no stream any more.
    fn give_up_stream(&mut self) {
        self.node.core.env.followed.set_broken();
        let _anew_all_the_same = self.batch(|own| {
            own.engine.store().state_source(&BROKEN);
            Ok(())
        });
        let _anew_all_the_same = self.write_out();
    }

    /// Begins to save all loaded data to disk, if data is kept there. Until that has ended, the log
    /// does not name the data's stream: otherwise a start would find effects without the data that
    /// they changed.
    pub(super) fn keep_all(&mut self) {
        self.unkept = self.node.keep_all(Why::Imported);
    }

    /// Whether the loaded data is on disk, or nothing is kept there.
    fn is_kept(&mut self) -> bool {
        let Some(ticket) = self.unkept else {
            return true;
        };
        match self.node.is_kept(ticket) {
            None => false,
            Some(true) => {
                self.unkept = None;
                true
            }
            Some(false) => {
                self.keep_all();
                false
            }
        }
    }

    /// Names the data's stream in the log as soon as all loaded data is on disk.
    pub(super) fn keep_up(&mut self) -> Result<(), Stop> {
        if self.unkept.is_none() || self.session.has_transaction() || !self.is_kept() {
            return Ok(());
        }
        self.batch(|own| {
            own.state_source();
            Ok(())
        })
    }

    /// Writes the appended log to the kernel. Waits while that is not possible.
    pub(super) fn write_out(&self) -> Result<(), Stop> {
        let Some(log) = self.node.keeping.log_in_use.get() else {
            return Ok(());
        };
        let mut is_told = false;
        while let Err(reason) = log.write_out(self.log_user.appended().end()) {
            if !is_told {
                is_told = true;
                self.node.core.log.warning(format_args!(
                    "The stream of the primary waits for the log: {reason}"
                ));
            }
            self.pause()?;
        }
        Ok(())
    }

    /// Returns the applied offset that is on this server's disk, or `None` if nothing is kept
    /// there.
    pub(super) fn durable_offset(&mut self) -> Option<u64> {
        let log = self.node.keeping.log_in_use.get();
        let Some(log) = log.filter(|log| log.is_kept() && self.unkept.is_none()) else {
            self.unsynced.clear();
            self.durable = None;
            return None;
        };
        let (end, offset) = (self.log_user.appended().end(), self.source.offset);
        let is_news = self.unsynced.back().is_none_or(|last| last.1 < offset);
        if is_news && self.durable != Some(offset) {
            if self.unsynced.len() == UNSYNCED_MAX {
                // Replacing an entry by a later one only delays what is reported as durable.
                self.unsynced.pop_back();
            }
            self.unsynced.push_back((end, offset));
        }
        let durable = log.durable();
        while let Some((end, offset)) = self.unsynced.front().copied() {
            if end > durable {
                break;
            }
            self.durable = Some(offset);
            self.unsynced.pop_front();
        }
        Some(self.durable.unwrap_or(0))
    }

    /// Discards an open transaction.
    pub(super) fn end(&mut self) {
        self.engine.end_transaction(&mut self.session);
        self.session = session_of(&self.client);
        self.engine.store().tell_memory();
    }

    /// Runs `body` as one frame of the log, on one side of every cut.
    fn batch(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Stop>) -> Result<(), Stop> {
        self.log_user.set_idle(false);
        let _whichever = self.log_user.take_up(self.engine.store());
        let node = Arc::clone(&self.node);
        let turn = node.core.store.batch_turn();
        self.engine.store().begin_group();
        let outcome = body(self);
        self.engine.store().end_group();
        drop(turn);
        self.engine.serve(&mut Port::new(&node, true));
        self.log_user.set_idle(true);
        outcome
    }

    /// Publishes the data's stream and offset, and appends them to the log, if there is one.
    fn state_source(&mut self) {
        self.node.core.env.followed.set(self.source);
        let is_kept = self.is_kept();
        self.node.core.env.followed.set_logged(is_kept);
        let source = if is_kept { self.source } else { BROKEN };
        self.engine.store().state_source(&source);
    }

    /// Runs commands. Returns how many bytes of them ran, and whether all succeeded.
    fn run(&mut self, commands: &[u8]) -> (usize, Result<(), Stop>) {
        let share = Share {
            requests_max: usize::MAX,
            reply_bytes_max: usize::MAX,
        };
        let node = Arc::clone(&self.node);
        let mut port = Port::new(&node, true);
        let mut consumed = 0;
        self.engine.begin_turn(node.core.clock.monotonic_ns());
        while consumed < commands.len() {
            let rest = &commands[consumed..];
            let outcome =
                self.engine
                    .run(&mut self.session, &mut port, rest, &mut self.output, share);
            consumed += outcome.consumed;
            let waited = match outcome.next {
                Next::Read | Next::Yield if outcome.consumed > 0 => Ok(()),
                Next::Busy | Next::Throttled | Next::Paused | Next::LogFull => self.pause(),
                next => Err(Stop::Fault(format!("a command cannot be run ({next:?})"))),
            };
            if waited.is_err() {
                return (consumed, waited);
            }
        }
        let outcome = self.look_for_errors(&commands[..consumed]);
        (consumed, outcome)
    }

    /// Checks whether one of these commands was answered with an error.
    fn look_for_errors(&mut self, commands: &[u8]) -> Result<(), Stop> {
        let errors = self.counters.errors_count();
        let count = errors - self.errors_seen;
        self.errors_seen = errors;
        let failed = (count > 0).then(|| failures(commands, &self.output.to_vec()));
        self.output.clear();
        let Some(failed) = failed else {
            return Ok(());
        };
        self.note_without_deadline(failed.without_deadline);
        let reason = match failed.first {
            Some(reason) => reason,
            None if failed.without_deadline == count => return Ok(()),
            None => "an error that was not answered".to_owned(),
        };
        if self.node.core.config.current().replication.skips_unknown {
            self.node.core.log.warning(format_args!(
                "A command of the primary failed and was passed over: {reason}"
            ));
            return Ok(());
        }
        Err(Stop::Fault(format!(
            "a command before offset {} failed: {reason}",
            self.given
        )))
    }

    /// Counts members that have no deadline here, and logs the count each time it has doubled.
    fn note_without_deadline(&mut self, count: u64) {
        let before = self.without_deadline;
        self.without_deadline += count;
        if self.without_deadline.checked_ilog2() != before.checked_ilog2() {
            self.node.core.log.warning(format_args!(
                "{} deadlines of members of sets and sorted sets that the primary set were left out: only fields of hashes \
                 have deadlines here, and the primary has to remove the others",
                self.without_deadline
            ));
        }
    }

    fn pause(&self) -> Result<(), Stop> {
        if self.following.is_stopping() || self.node.is_stopping() {
            return Err(Stop::Asked);
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }
}

impl Drop for Applier<'_> {
    fn drop(&mut self) {
        self.engine.close(&mut self.session);
        self.engine.store().tell_memory();
        self.following.show_client(None);
    }
}

fn session_of(client: &Arc<ClientRecord>) -> Session {
    let mut session = Session::new(Arc::clone(client), true);
    session.is_of_primary = true;
    session
}
