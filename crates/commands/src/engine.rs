//! Runs requests: one engine per worker thread.
//!
//! A batch goes through three stages: decode (views into the input), plan (hash the first key of
//! every request, ask the cache for all buckets, then for all records) and execute, in order. The
//! store is entered once per call, so that whole-store operations of other threads find every worker
//! outside at the end of a batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::clock::Clock;
use base::random::Prng;
use protocol::{Batch, Limits, Reply, ReplyBuffer, Request};
use store::{DatabaseId, Handle, Key, StoreError};

use crate::args::Args;
use crate::context::Context;
use crate::counters::EngineCounters;
use crate::error::{CommandError, CommandResult, unknown_command, unknown_subcommand};
use crate::port::ServerPort;
use crate::session::{ClientRecord, Fate, ReplyMode, Session};
use crate::settings::Settings;
use crate::spec::{CommandSpec, Flags, Group};
use crate::table::{CommandIndex, Found, Table, table};

/// How many requests are planned together.
pub const BATCH_MAX: usize = 16;

/// What one client may do before the others have their turn.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Requests; one batch more at the most.
    pub requests_max: usize,
    /// Bytes of replies; one reply more at the most.
    pub reply_bytes_max: usize,
}

/// Runs the requests of one worker's sessions.
pub struct Engine {
    store: Handle,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    random: Prng,
    table: &'static Table,
    batch: Batch,
    counters: Arc<EngineCounters>,
}

/// What [`Engine::run`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of input that are done with.
    pub consumed: usize,
    /// How many bytes the rest must grow to before another call can do anything; 0 if unknown.
    pub needed: usize,
    /// How many requests were executed.
    pub executed: usize,
    /// How to go on.
    pub next: Next,
}

/// How a session goes on after [`Engine::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again when there is more input.
    Read,
    /// Complete requests may be left: call again after the others had their turn.
    Yield,
    /// Clients are paused: call again, with the same input, when they no longer are.
    Paused,
    /// Send the replies, then close.
    Close,
}

/// One call of [`Engine::run`]: who is served, through what, and where the replies go.
struct Visit<'a> {
    session: &'a mut Session,
    server: &'a mut dyn ServerPort,
    output: &'a mut ReplyBuffer,
    now_unix_ms: u64,
}

/// What the plan of a batch found out about one request.
#[derive(Clone, Copy)]
struct Planned {
    command: Option<&'static Found>,
    /// Hash of the argument at the command's first key.
    key_hash: Option<u64>,
}

impl Planned {
    const UNKNOWN: Self = Self {
        command: None,
        key_hash: None,
    };
}

impl Engine {
    /// An engine over one handle of the store.
    #[must_use]
    pub fn new(
        store: Handle,
        settings: Arc<Settings>,
        clock: Arc<dyn Clock>,
        random: Prng,
    ) -> Self {
        let table = table();
        Self {
            store,
            settings,
            clock,
            random,
            table,
            batch: Batch::new(),
            counters: Arc::default(),
        }
    }

    /// The engine's way into the store.
    pub fn store(&mut self) -> &mut Handle {
        &mut self.store
    }

    /// What this engine counts.
    #[must_use]
    pub fn counters(&self) -> Arc<EngineCounters> {
        Arc::clone(&self.counters)
    }

    /// Executes the complete requests at the front of `input`, as many as `share` allows, and
    /// appends their replies to `output`.
    pub fn run(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        input: &[u8],
        output: &mut ReplyBuffer,
        share: Share,
    ) -> Outcome {
        if session.client.has_flag(ClientRecord::KILLED) {
            return Outcome {
                consumed: input.len(),
                needed: 0,
                executed: 0,
                next: Next::Close,
            };
        }
        let now_unix_ms = self.clock.now_unix_ms();
        session
            .client
            .active_unix_ms
            .store(now_unix_ms, Ordering::Relaxed);
        let mut batch = std::mem::take(&mut self.batch);
        let touches = !session.client.has_flag(ClientRecord::NO_TOUCH);
        self.store.note_use(touches);
        self.store.enter();
        let mut visit = Visit {
            session,
            server,
            output,
            now_unix_ms,
        };
        let outcome = self.run_batches(&mut visit, input, share, &mut batch);
        self.store.leave();
        self.batch = batch;
        outcome
    }

    fn run_batches(
        &mut self,
        visit: &mut Visit<'_>,
        input: &[u8],
        share: Share,
        batch: &mut Batch,
    ) -> Outcome {
        let mut outcome = Outcome {
            consumed: 0,
            needed: 0,
            executed: 0,
            next: Next::Read,
        };
        let reply_bytes_end = visit.output.len().saturating_add(share.reply_bytes_max);
        let mut plan = [Planned::UNKNOWN; BATCH_MAX];
        loop {
            let limits = self.limits(visit.session);
            // Before authentication one request at a time: it may be the one that lifts the limits.
            let most = if limits.authenticated { BATCH_MAX } else { 1 };
            let start = outcome.consumed;
            let rest = &input[start..];
            let decoded = visit.session.decoder.decode(rest, &limits, most, batch);
            if outcome.executed > 0 {
                visit.now_unix_ms = self.clock.now_unix_ms();
            }
            self.plan(visit.session.database, batch, rest, &mut plan);
            for (index, planned) in plan.iter().enumerate().take(batch.len()) {
                let request = batch.request(index, rest);
                let next = self.execute(visit, request, planned);
                if next != Next::Paused {
                    outcome.executed += 1;
                    outcome.consumed = start + batch.end_of(index);
                }
                let is_full = visit.output.len() >= reply_bytes_end;
                if next != Next::Read || is_full {
                    visit.session.decoder.reset();
                    outcome.next = if next == Next::Read {
                        Next::Yield
                    } else {
                        next
                    };
                    return outcome;
                }
            }
            outcome.consumed = start + decoded.consumed;
            outcome.needed = decoded.needed;
            if let Some(error) = decoded.error {
                let reply_start = visit.output.len();
                error.write_to(&mut Reply::new(visit.output, visit.session.resp));
                // Behind the byte that makes it an error.
                let text = visit.output.as_slice().get(reply_start + 1..);
                self.counters.count_error(text.unwrap_or_default());
                outcome.next = Next::Close;
                return outcome;
            }
            if batch.len() < most || outcome.consumed == input.len() {
                return outcome;
            }
            if outcome.executed >= share.requests_max {
                outcome.next = Next::Yield;
                return outcome;
            }
        }
    }

    fn limits(&self, session: &Session) -> Limits {
        Limits {
            bulk_bytes_max: self.settings.string_bytes_max(),
            authenticated: session.authenticated,
            ..Limits::default()
        }
    }

    /// Looks every request's command up, hashes its first key, and asks the cache for what it will
    /// touch: all buckets first, then all records.
    fn plan(
        &self,
        database: DatabaseId,
        batch: &Batch,
        input: &[u8],
        plan: &mut [Planned; BATCH_MAX],
    ) {
        for (index, planned) in plan.iter_mut().enumerate().take(batch.len()) {
            let request = batch.request(index, input);
            *planned = Planned::UNKNOWN;
            let Some(found) = self.table.find(request.name()) else {
                continue;
            };
            planned.command = Some(found);
            if found.first_key == 0 {
                continue;
            }
            if let Some(bytes) = request.arg(usize::from(found.first_key)) {
                let key = self.store.key(database, bytes);
                self.store.prefetch_bucket(&key);
                planned.key_hash = Some(key.hash());
            }
        }
        if batch.len() > 1 {
            for hash in plan[..batch.len()].iter().filter_map(|one| one.key_hash) {
                let key = Key::with_hash(&[], hash, database);
                self.store.prefetch_record(&key);
            }
        }
    }

    /// Runs one request and writes its reply.
    fn execute(&mut self, visit: &mut Visit<'_>, request: Request<'_>, planned: &Planned) -> Next {
        if self.settings.paused_until_unix_ms.load(Ordering::Relaxed) != 0
            && self.is_paused(planned.command, request, visit)
        {
            return Next::Paused;
        }
        let start = visit.output.mark();
        if visit.session.reply_mode == ReplyMode::SkipNext {
            visit.session.reply_mode = ReplyMode::Skip;
        }
        let result = match planned.command {
            None if is_from_a_browser(request) => {
                visit.session.fate = Fate::Close;
                return Next::Close;
            }
            None => Err(unknown_command(request)),
            Some(found) => self.call(visit, request, found, planned.key_hash),
        };
        if let Err(error) = result {
            let text = error.text();
            self.counters.count_error(&text);
            visit.output.truncate(start);
            Reply::new(visit.output, visit.session.resp).error_bytes(&text);
        }
        if visit.session.reply_mode != ReplyMode::On {
            suppress_reply(visit.session, visit.output, start);
        }
        match visit.session.fate {
            Fate::Stay => Next::Read,
            Fate::Close => Next::Close,
        }
    }

    fn call(
        &mut self,
        visit: &mut Visit<'_>,
        request: Request<'_>,
        found: &Found,
        key_hash: Option<u64>,
    ) -> CommandResult {
        let (index, spec, first) = resolve(self.table, found, request)?;
        let session = &mut *visit.session;
        session.client.last_command.store(index, Ordering::Relaxed);
        if let Err(refusal) = check(self.table, (index, spec), request, session) {
            self.counters.count_rejection(index);
            return Err(refusal);
        }
        self.store.begin(visit.now_unix_ms);
        if spec.flags.has(Flags::DENYOOM)
            && let Err(StoreError::OutOfMemory) = self.store.make_room(request.wire_bytes())
        {
            self.counters.count_rejection(index);
            return Err(CommandError::OutOfMemory);
        }
        let planned = key_hash.and_then(|hash| {
            let bytes = request.arg(usize::from(found.first_key))?;
            Some(Key::with_hash(bytes, hash, session.database))
        });
        let mut reply = Reply::new(visit.output, session.resp);
        let mut context = Context {
            planned,
            store: &mut self.store,
            session,
            server: visit.server,
            settings: &self.settings,
            random: &mut self.random,
            now_unix_ms: visit.now_unix_ms,
        };
        let result = (spec.handler)(&mut context, &mut Args::new(request, first), &mut reply);
        self.counters.count_call(index, result.is_err());
        if may_take_long(spec) {
            visit.now_unix_ms = self.clock.now_unix_ms();
        }
        result
    }

    /// Whether the request has to wait. What would be refused is refused at once; everything else
    /// waits for the end of a pause of all, CLIENT UNPAUSE too.
    #[cold]
    fn is_paused(&self, command: Option<&Found>, request: Request<'_>, visit: &Visit<'_>) -> bool {
        let until = self.settings.paused_until_unix_ms.load(Ordering::Relaxed);
        if until <= visit.now_unix_ms {
            return false;
        }
        let writes_only = self.settings.paused_writes_only.load(Ordering::Relaxed) != 0;
        let resolved = command.map(|found| resolve(self.table, found, request));
        let Some(Ok((index, spec, _))) = resolved else {
            return false;
        };
        check(self.table, (index, spec), request, visit.session).is_ok()
            && (!writes_only || spec.flags.has(Flags::WRITE))
    }
}

/// Whether time passes while a command runs, so that the next one needs a clock sample of its own.
/// What is as quick as a GET or a SET shares one with the rest of its batch.
#[inline]
fn may_take_long(spec: &CommandSpec) -> bool {
    !spec.flags.has(Flags::FAST) && spec.group != Group::String
}

/// Whether this is a line of an HTTP request. A page in somebody's browser can have one sent to any
/// port of that machine, commands and all in its body, so nothing behind it is looked at.
#[cold]
fn is_from_a_browser(request: Request<'_>) -> bool {
    let name = request.name();
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The row that runs: the subcommand's where there is one. Also where its arguments start.
#[inline]
fn resolve(
    table: &Table,
    &Found { index, spec, .. }: &Found,
    request: Request<'_>,
) -> Result<(CommandIndex, &'static CommandSpec, usize), CommandError> {
    if spec.subcommands.is_empty() {
        return Ok((index, spec, 1));
    }
    let Some(word) = request.arg(1) else {
        return Ok((index, spec, 1));
    };
    match table.find_subcommand((index, spec), word) {
        Some((index, subcommand)) => Ok((index, subcommand, 2)),
        None => Err(unknown_subcommand(request)),
    }
}

#[inline]
fn check(
    table: &'static Table,
    (index, spec): (CommandIndex, &'static CommandSpec),
    request: Request<'_>,
    session: &Session,
) -> CommandResult {
    if !spec.arity.accepts(request.len()) {
        let full_name = table.full_name(index).unwrap_or_default();
        return Err(CommandError::WrongArity(full_name.into()));
    }
    if !session.authenticated && !spec.flags.has(Flags::NO_AUTH) {
        return Err(CommandError::fixed("NOAUTH Authentication required."));
    }
    Ok(())
}

#[cold]
fn suppress_reply(session: &mut Session, output: &mut ReplyBuffer, start: usize) {
    match session.reply_mode {
        ReplyMode::On | ReplyMode::SkipNext => {}
        ReplyMode::Off => output.truncate(start),
        ReplyMode::Skip => {
            output.truncate(start);
            session.reply_mode = ReplyMode::On;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[test]
    fn what_comes_behind_an_http_request_is_not_executed() {
        for line in ["POST / HTTP/1.1", "host: 127.0.0.1"] {
            let mut server = TestServer::new();
            let (output, next) = server.pipeline(&["PING", line, "SET k v"]);
            assert_eq!((output.as_slice(), next), (&b"+PONG\r\n"[..], Next::Close));
            assert!(server.dump().is_empty());
        }
    }

    #[test]
    fn a_key_is_gone_when_its_time_passed_within_a_pipeline() {
        let mut server = TestServer::new();
        server.port.allows_debug = true;
        let (output, _) = server.pipeline(&["SET k v PX 100", "DEBUG SLEEP 0.2", "GET k"]);
        assert_eq!(output, b"+OK\r\n+OK\r\n$-1\r\n");
    }
}
