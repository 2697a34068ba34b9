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
use store::{Handle, Key, StoreError};

use crate::args::Args;
use crate::context::Context;
use crate::counters::EngineCounters;
use crate::error::{CommandError, CommandResult, unknown_command, unknown_subcommand};
use crate::port::ServerPort;
use crate::session::{ClientRecord, Fate, ReplyMode, Session};
use crate::settings::Settings;
use crate::spec::{CommandSpec, Flags};
use crate::table::{CommandIndex, Table, table};

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

enum Executed {
    Done,
    Paused,
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
        let outcome = self.run_batches(
            session,
            server,
            input,
            output,
            share,
            &mut batch,
            now_unix_ms,
        );
        self.store.leave();
        self.batch = batch;
        outcome
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the one loop over a worker's scratch space"
    )]
    fn run_batches(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        input: &[u8],
        output: &mut ReplyBuffer,
        share: Share,
        batch: &mut Batch,
        now_unix_ms: u64,
    ) -> Outcome {
        let mut outcome = Outcome {
            consumed: 0,
            needed: 0,
            executed: 0,
            next: Next::Read,
        };
        let reply_bytes_end = output.len().saturating_add(share.reply_bytes_max);
        loop {
            let limits = self.limits(session);
            // Before authentication one request at a time: it may be the one that lifts the limits.
            let most = if session.authenticated { BATCH_MAX } else { 1 };
            let start = outcome.consumed;
            let rest = &input[start..];
            let decoded = session.decoder.decode(rest, &limits, most, batch);
            let planned = self.plan(session, batch, rest);
            for (index, key) in planned.iter().enumerate().take(batch.len()) {
                let request = batch.request(index, rest);
                match self.execute(session, server, request, *key, output, now_unix_ms) {
                    Executed::Done => outcome.executed += 1,
                    Executed::Paused => {
                        session.decoder.reset();
                        outcome.next = Next::Paused;
                        return outcome;
                    }
                }
                outcome.consumed = start + batch.end_of(index);
                if session.fate == Fate::Close {
                    outcome.next = Next::Close;
                    return outcome;
                }
                if output.len() >= reply_bytes_end {
                    session.decoder.reset();
                    outcome.next = Next::Yield;
                    return outcome;
                }
            }
            outcome.consumed = start + decoded.consumed;
            outcome.needed = decoded.needed;
            if let Some(error) = decoded.error {
                error.write_to(&mut Reply::new(output, session.resp));
                outcome.next = Next::Close;
                return outcome;
            }
            if batch.len() < most {
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

    /// Hashes the first key of every request and asks the cache for what they will touch.
    fn plan(
        &self,
        session: &Session,
        batch: &Batch,
        input: &[u8],
    ) -> [Option<(u64, usize)>; BATCH_MAX] {
        let mut planned = [None; BATCH_MAX];
        for (index, slot) in planned.iter_mut().enumerate().take(batch.len()) {
            let request = batch.request(index, input);
            let at = self
                .table
                .find(request.name())
                .map_or(0, |(_, spec)| spec.first_key());
            if at == 0 {
                continue;
            }
            if let Some(bytes) = request.arg(at) {
                let key = self.store.key(session.database, bytes);
                self.store.prefetch_bucket(&key);
                *slot = Some((key.hash(), at));
            }
        }
        if batch.len() > 1 {
            for (hash, _) in planned.iter().flatten() {
                self.store
                    .prefetch_record(&Key::with_hash(&[], *hash, session.database));
            }
        }
        planned
    }

    fn execute(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        request: Request<'_>,
        planned: Option<(u64, usize)>,
        output: &mut ReplyBuffer,
        now_unix_ms: u64,
    ) -> Executed {
        let found = self.table.find(request.name());
        if self.settings.paused_until_unix_ms.load(Ordering::Relaxed) != 0
            && self.is_paused(found.map(|(_, spec)| spec), now_unix_ms)
        {
            return Executed::Paused;
        }
        let start = output.mark();
        let mut reply = Reply::new(output, session.resp);
        if session.reply_mode == ReplyMode::SkipNext {
            session.reply_mode = ReplyMode::Skip;
        }
        let result = match found {
            None => Err(unknown_command(request)),
            Some(named) => self.call(
                session,
                server,
                named,
                request,
                planned,
                &mut reply,
                now_unix_ms,
            ),
        };
        if let Err(error) = result {
            reply.rollback(start);
            let text = error.text();
            self.counters.count_error(&text);
            reply.error_bytes(&text);
        }
        if session.reply_mode != ReplyMode::On {
            suppress_reply(session, output, start);
        }
        Executed::Done
    }

    #[allow(clippy::too_many_arguments, reason = "one request with all it needs")]
    fn call(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        named: (CommandIndex, &'static CommandSpec),
        request: Request<'_>,
        planned: Option<(u64, usize)>,
        reply: &mut Reply<'_>,
        now_unix_ms: u64,
    ) -> CommandResult {
        let (index, spec, first) = resolve(self.table, named, request)?;
        session.client.last_command.store(index, Ordering::Relaxed);
        if let Err(refusal) = check(self.table, (index, spec), request, session) {
            self.counters.count_rejection(index);
            return Err(refusal);
        }
        self.store.begin(now_unix_ms);
        if spec.flags.has(Flags::DENYOOM)
            && let Err(StoreError::OutOfMemory) = self.store.make_room(request.wire_bytes())
        {
            self.counters.count_rejection(index);
            return Err(CommandError::OutOfMemory);
        }
        let mut context = Context {
            planned: planned.and_then(|(hash, at)| {
                request
                    .arg(at)
                    .map(|bytes| Key::with_hash(bytes, hash, session.database))
            }),
            store: &mut self.store,
            session,
            server,
            settings: &self.settings,
            random: &mut self.random,
            now_unix_ms,
        };
        let result = (spec.handler)(&mut context, &mut Args::new(request, first), reply);
        self.counters.count_call(index, result.is_err());
        result
    }

    #[cold]
    fn is_paused(&self, spec: Option<&'static CommandSpec>, now_unix_ms: u64) -> bool {
        let until = self.settings.paused_until_unix_ms.load(Ordering::Relaxed);
        if until <= now_unix_ms {
            return false;
        }
        let writes_only = self.settings.paused_writes_only.load(Ordering::Relaxed) != 0;
        spec.is_some_and(|spec| {
            let writes = spec.flags.has(Flags::WRITE);
            writes || (!writes_only && !spec.flags.has(Flags::ADMIN) && spec.name != "CLIENT")
        })
    }
}

/// The row that runs: the subcommand's where there is one. Also where its arguments start.
#[inline]
fn resolve(
    table: &Table,
    (index, spec): (CommandIndex, &'static CommandSpec),
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
