//! One call of [`Engine::run`](super::Engine::run): the requests of one client, batch by batch.
//!
//! Most requests are plain: they belong to a command that touches nothing but keys, and come from a
//! client in no special state. The engine checks the client's state once per batch, and again after
//! each request that is not plain, because only those can change it. [`Visit::execute_with_care`]
//! has everything that applies to requests that are not plain. The short way ([`Visit::execute`])
//! leaves out what cannot apply, and runs consecutive requests of one command together.

use std::sync::atomic::Ordering;

use access::Origin;
use base::clock::Moment;
use protocol::{Batch, Decoded, Limits, Reply, Request, Run};
use store::Key;

use super::charging::{Ran, Traffic};
use super::outcome::{Next, Outcome, Share};
use super::place::Place;
use super::series::Series;
use super::transaction::{are_held_for_long, concerns};
use super::visit::Visit;
use crate::args::Args;
use crate::arrival::Arrival;
use crate::batch::{ARGUMENTS_MAX, BATCH_MAX};
use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::error::{CommandError, CommandResult, unknown_command};
use crate::hash_slots::Elsewhere;
use crate::key_places as places;
use crate::plan::PlannedRun;
use crate::resolved::{check, is_about_keys, resolve};
use crate::session::{Fate, ReplyMode, Session};
use crate::slot_usage::Usage;
use crate::spec::{CommandSpec, Flags, Group, InTransaction};
use crate::table::Found;
use crate::transaction::{keys_reached, may_reach_any_key, may_write};

/// How long one client is served before other clients get their turn. One batch, or one request
/// that is not plain, may exceed it.
const VISIT_NS_MAX: u64 = 500_000;

/// Maximum number of arguments of plain requests in a batch before other clients get their turn.
/// One request may exceed it. Without this limit, a batch of long requests would take many times as
/// long as a visit.
const BATCH_ARGUMENTS_MAX: usize = 512;

/// Where a batch was interrupted before its end.
pub(super) struct Left {
    /// The request that ran last, or that has to wait.
    index: usize,
    next: Next,
}

impl Visit<'_> {
    /// Executes the complete requests at the front of `input`, as many as `share` allows.
    pub(super) fn run(&mut self, input: &[u8], share: Share, batch: &mut Batch) -> Outcome {
        let mut outcome = Outcome {
            consumed: 0,
            needed: 0,
            executed: 0,
            next: Next::Read,
        };
        let reply_bytes_end = self
            .reply
            .len_with_attachments()
            .saturating_add(share.reply_bytes_max);
        let mut now_unix_ms = self.context.now_unix_ms;
        loop {
            let rest = &input[outcome.consumed..];
            // Before authentication, one request at a time: it may be the one that lifts the
            // limits.
            let authenticated = self.context.session.authenticated;
            let most = if authenticated { BATCH_MAX } else { 1 };
            let decoded = self.decode(rest, most, batch);
            self.set_time(now_unix_ms);
            let left = self.execute_batch(batch, rest, reply_bytes_end, BATCH_ARGUMENTS_MAX);
            let is_last = left.is_some()
                || decoded.error.is_some()
                || batch.len() < most
                || outcome.consumed + decoded.consumed == input.len();
            let now = if is_last && self.lap.is_empty() {
                None
            } else {
                Some(self.ledger.clock.moment())
            };
            if let Some(now) = now {
                self.close_lap(batch, rest, now);
            }
            if let Some(left) = left {
                return self.end_early(outcome, (batch, rest), &left);
            }
            outcome.executed += batch.len();
            outcome.consumed += decoded.consumed;
            outcome.needed = decoded.needed;
            if let Some(error) = decoded.error {
                let start = self.reply.mark();
                error.write_to(&mut self.reply);
                // Skip the byte that marks an error.
                let text = self.reply.since(start).get(1..);
                self.ledger.counters.count_error(text.unwrap_or_default());
                outcome.next = Next::Close;
                return outcome;
            }
            if batch.len() < most || outcome.consumed == input.len() {
                return outcome;
            }
            now_unix_ms = now.map_or(now_unix_ms, |now| now.unix_ms);
            if self.is_over() || outcome.executed >= share.requests_max {
                outcome.next = Next::Yield;
                return outcome;
            }
        }
    }

    /// Ends a visit that was interrupted within a batch.
    fn end_early(
        &mut self,
        before: Outcome,
        (batch, rest): (&Batch, &[u8]),
        left: &Left,
    ) -> Outcome {
        self.context.session.decoder.reset();
        let end = batch.end_of(left.index);
        if self.reads_ahead {
            self.read_ahead(&rest[end..]);
        }
        if left.next == Next::Aside {
            let last = left.index.checked_sub(1);
            let start = last.map_or(0, |last| batch.end_of(last));
            self.context.session.aside = Some(rest[start..end].to_vec().into_boxed_slice());
        }
        let mut outcome = leave(before, batch, left);
        if outcome.next == Next::Yield && outcome.consumed == before.consumed + rest.len() {
            outcome.next = Next::Read;
        }
        outcome
    }

    /// Executes a batch that was not decoded here, while no other client waits for a turn. Returns
    /// how many requests ran, and how to go on.
    pub(super) fn run_batch(&mut self, batch: &Batch, input: &[u8]) -> (usize, Next) {
        debug_assert!(batch.len() <= BATCH_MAX);
        // With this start time the visit never exceeds its limit.
        self.started_ns = u64::MAX;
        self.plan(batch, input);
        self.set_time(self.context.now_unix_ms);
        let left = self.execute_batch(batch, input, usize::MAX, usize::MAX);
        if !self.lap.is_empty() {
            let now = self.ledger.clock.moment();
            self.close_lap(batch, input, now);
        }
        match left {
            None => (batch.len(), Next::Read),
            Some(left) => (executed(&left), left.next),
        }
    }

    /// Begins a bulk upload for the incomplete request at the end of the input, if it qualifies.
    #[cold]
    pub(super) fn begin_arrival(&mut self, input: &[u8], outcome: &mut Outcome) {
        let context = &mut self.context;
        let rest = &input[outcome.consumed..];
        if outcome.next == Next::Read
            && is_ordinary(context.session)
            && !self.looks_at_each
            && !self.looks_at_writes
        {
            let arrival = {
                let table = context.table;
                let long_argument = |name: &[u8]| Some(table.find(name)?.spec.long_value?.argument);
                Arrival::begin(context.store, rest, outcome.needed, long_argument)
            };
            if arrival.is_some() {
                context.session.arrival = arrival;
                context.session.decoder.reset();
                outcome.consumed = input.len();
                outcome.needed = 0;
                outcome.next = Next::Receive;
            }
        }
    }

    /// Decodes and plans a batch.
    #[inline]
    pub(super) fn decode(&mut self, input: &[u8], most: usize, batch: &mut Batch) -> Decoded {
        let settings = &self.context.shared.settings;
        let session = &mut *self.context.session;
        let limits = Limits {
            bulk_bytes_max: settings.string_bytes_max(),
            multibulk_max: settings.arguments_max.load(Ordering::Relaxed),
            authenticated: session.authenticated,
            ..Limits::default()
        };
        let decoded = session.decoder.decode(input, &limits, most, batch);
        self.plan(batch, input);
        decoded
    }

    #[inline]
    fn plan(&mut self, batch: &Batch, input: &[u8]) {
        let context = &mut self.context;
        let ahead = context.store.lookahead(context.session.database);
        context.plan.make(context.table, &ahead, batch.runs(input));
    }

    /// Runs a batch in order. Returns `None` if all of it ran and the reply has space left.
    fn execute_batch(
        &mut self,
        batch: &Batch,
        input: &[u8],
        reply_bytes_end: usize,
        arguments_max: usize,
    ) -> Option<Left> {
        let mut ordinary = is_ordinary(self.context.session);
        let mut done = 0;
        self.arguments_left = arguments_max;
        for (number, run) in batch.runs(input).enumerate() {
            let planned = self.context.plan.run(number)?;
            let requests_count = run.requests_count;
            let left = match planned.command {
                Some(found)
                    if ordinary
                        && planned.is_plain
                        && !self.is_gated()
                        && !self.may_be_busy
                        && !self.is_looked_at(found)
                        && (!self.checks_slots || self.are_mine(&run, found))
                        && (!self.may_be_cold || self.has_values(&run, &planned, found)) =>
                {
                    let numbered = (done, run);
                    match self.may_be_cold {
                        false => self.execute(numbered, &planned, found, reply_bytes_end),
                        true => self.execute_in_memory(numbered, &planned, found, reply_bytes_end),
                    }
                }
                _ => {
                    if !self.lap.is_empty() {
                        let now = self.ledger.clock.moment();
                        self.close_lap(batch, input, now);
                    }
                    let left = self.execute_with_care(run, &planned, reply_bytes_end);
                    ordinary = is_ordinary(self.context.session);
                    self.may_be_busy = self.needs_care();
                    self.looks_at_each = self.context.shared.looks_at_each();
                    self.looks_at_writes = self.context.shared.looks_at_writes();
                    left
                }
            };
            if let Some(Left { index, next }) = left {
                let index = done + index;
                return Some(Left { index, next });
            }
            done += requests_count;
        }
        None
    }

    /// Charges the requests of a batch that ran since the last clock reading, if any.
    #[inline]
    fn close_lap(&mut self, batch: &Batch, input: &[u8], now: Moment) {
        let of = Traffic {
            batch,
            input,
            table: self.context.table,
            client: &self.context.session.client,
        };
        let output = self.reply.len_with_attachments();
        self.lap.close(&self.ledger, now, output, &of);
    }

    /// Runs plain requests of a client in no special state.
    #[inline]
    pub(super) fn execute(
        &mut self,
        (first, run): (usize, Run<'_>),
        planned: &PlannedRun,
        found: &'static Found,
        reply_bytes_end: usize,
    ) -> Option<Left> {
        if found.element != 0 && run.requests_count > 1 {
            self.prefetch_elements(run.clone(), planned, found);
        }
        let mut requests_max = run.requests_count;
        let arguments = requests_max * run.arguments_count;
        if arguments > self.arguments_left {
            requests_max = (self.arguments_left / run.arguments_count).max(1);
        }
        self.arguments_left = self.arguments_left.saturating_sub(arguments);
        let mut series = Series {
            visit: self,
            first,
            requests: run.requests,
            requests_max,
            planned,
            found,
            reply_bytes_end,
            is_aside: false,
            done: 0,
        };
        (found.series)(&mut series);
        let series_done = series.done;
        let index = series_done.saturating_sub(1);
        if series.is_aside {
            return Some(Left {
                index,
                next: Next::Aside,
            });
        }
        let is_full = self.reply.len_with_attachments() >= reply_bytes_end;
        let is_cut = series_done < run.requests_count || self.arguments_left == 0;
        (is_full || is_cut).then_some(Left {
            index,
            next: Next::Read,
        })
    }

    /// Prefetches the elements for requests of a run that are about the same key, with one look at
    /// the key's structure for all of them.
    #[inline(never)]
    fn prefetch_elements(&mut self, run: Run<'_>, planned: &PlannedRun, found: &Found) {
        let none: &[u8] = &[];
        let mut wanted = [(0, none, none); BATCH_MAX];
        let mut count = 0;
        let (key_at, element_at) = (usize::from(found.keys.first), usize::from(found.element));
        for (index, request) in run.requests.enumerate() {
            if let Some(hash) = self.context.plan.key_hash(planned, index)
                && let (Some(key), Some(element)) = (request.arg(key_at), request.arg(element_at))
                && let Some(place) = wanted.get_mut(count)
            {
                *place = (hash, key, element);
                count += 1;
            }
        }
        let database = self.context.session.database;
        let mut rest = &mut wanted[..count];
        while let Some(&(hash, key, _)) = rest.first() {
            let mut same = 1;
            for index in 1..rest.len() {
                if rest[index].0 == hash {
                    rest.swap(same, index);
                    same += 1;
                }
            }
            let (group, others) = rest.split_at_mut(same);
            if same > 1 {
                let key = Key::with_hash(key, hash, database);
                let elements = group.iter().map(|(_, _, element)| *element);
                self.context.store.prefetch_elements(&key, elements);
            }
            rest = others;
        }
    }

    /// Runs requests of any kind.
    #[inline(never)]
    pub(super) fn execute_with_care(
        &mut self,
        run: Run<'_>,
        planned: &PlannedRun,
        reply_bytes_end: usize,
    ) -> Option<Left> {
        for (index, request) in run.requests.enumerate() {
            let first_key = planned.first_key + index * planned.keys_each;
            self.context.plan.begin(first_key);
            let next = self.execute_one(request, planned.command);
            let is_full = self.reply.len_with_attachments() >= reply_bytes_end;
            if next != Next::Read || is_full || self.is_over() {
                return Some(Left { index, next });
            }
        }
        None
    }

    /// Whether the client's turn is over, judged by the last clock reading.
    fn is_over(&self) -> bool {
        self.lap.since_ns().saturating_sub(self.started_ns) >= VISIT_NS_MAX
    }

    /// Whether each request of a command must be handled one by one.
    #[inline]
    fn is_looked_at(&self, found: &Found) -> bool {
        self.looks_at_each || self.looks_at_writes && found.spec.flags.has(Flags::WRITE)
    }

    /// Whether requests may have to wait, so that each must be handled one by one.
    #[inline]
    fn is_gated(&self) -> bool {
        !self.context.shared.gate.is_open()
    }

    /// Runs one request of any kind and writes its reply.
    fn execute_one(&mut self, request: Request<'_>, command: Option<&Found>) -> Next {
        // An offloaded request was begun before, and commands of the primary wait for nothing.
        if self.place != Place::Aside
            && self.is_gated()
            && !self.context.session.is_of_primary
            && let Some(next) = self.at_gate(command, request)
        {
            return next;
        }
        if self.is_about_leaving(command, request) {
            return Next::Paused;
        }
        self.reply_start = self.reply.mark();
        // Changes of the rules by other clients apply from here on.
        self.context.session.permit.rules();
        if let Some(next) = self.wait_if_it_has_to(command, request) {
            return next;
        }
        if self.context.session.reply_mode == ReplyMode::SkipNext {
            self.context.session.reply_mode = ReplyMode::Skip;
        }
        let reply_mode = self.context.session.reply_mode;
        let result = match command {
            None if is_from_a_browser(request) => {
                let browsers = &self.context.shared.observer.browsers;
                browsers.note(&self.context.session.client.address);
                self.context.session.fate = Fate::Close;
                return Next::Close;
            }
            None => {
                self.context.session.spoil_transaction();
                Err(unknown_command(request))
            }
            Some(found) if concerns(self.context.session, found) => {
                self.call_in_transaction(request, found)
            }
            Some(found) => self.call(request, found),
        };
        self.look_after_keys(command, request);
        let start = self.reply_start;
        if let Err(error) = result
            && let Some(next) = self.fail(start, &error)
        {
            return next;
        }
        let session = &mut *self.context.session;
        session.arrival = None;
        // A command that switches replies off decides about its own reply.
        let is_push = std::mem::take(&mut session.reply_is_push);
        if reply_mode != ReplyMode::On && !is_push {
            suppress_reply(session, &mut self.reply, start);
        }
        if let Some(tracking) = &mut session.tracking
            && session.transaction.is_none()
        {
            tracking.is_exception &=
                command.is_some_and(|found| found.spec.flags.has(Flags::KEEPS_TRACKING));
        }
        if session.hears_pushes() {
            self.send_pushes();
        }
        let session = &mut *self.context.session;
        match session.fate {
            Fate::Stay if std::mem::take(&mut session.is_throttled) => Next::Throttled,
            Fate::Stay => Next::Read,
            Fate::Close => Next::Close,
            Fate::HandOver => Next::HandOver,
        }
    }

    /// Returns how a request has to wait if its keys or values are not available now.
    #[inline]
    fn wait_if_it_has_to(&mut self, command: Option<&Found>, request: Request<'_>) -> Option<Next> {
        if self.may_be_busy && self.has_to_wait(command, request) {
            Some(self.wait_unless_late())
        } else if self.may_be_cold && self.waits_for_values(command, request) {
            Some(Next::Busy)
        } else {
            None
        }
    }

    /// Takes care of the keys of a request that ran: serves the clients that wait for them, and
    /// demotes their values if the server always does so.
    #[inline]
    fn look_after_keys(&mut self, command: Option<&Found>, request: Request<'_>) {
        if self.context.store.has_served() {
            self.serve();
        }
        if self.may_be_cold {
            store::release_held_values(0);
        }
        if self.may_be_cold
            && self
                .context
                .shared
                .settings
                .demotes_always
                .load(Ordering::Relaxed)
        {
            self.demote_keys(command, request);
        }
    }

    /// Replies with an error, or returns how to go on if the error is not for the client.
    fn fail(&mut self, start: usize, error: &CommandError) -> Option<Next> {
        match error {
            CommandError::Aside => {
                self.reply.rollback(start);
                Some(Next::Aside)
            }
            CommandError::Held => {
                self.reply.rollback(start);
                Some(self.wait_unless_late())
            }
            CommandError::Blocks => Some(self.block(start)),
            CommandError::Elsewhere(elsewhere)
                if self.context.session.forwards
                    && self.context.session.transaction.is_none()
                    && **elsewhere != Elsewhere::CrossSlot =>
            {
                self.reply.rollback(start);
                Some(Next::Elsewhere)
            }
            error => {
                self.refuse(start, error);
                None
            }
        }
    }

    /// Lets a request wait for keys that are locked for long. If a script holds them and has
    /// exceeded its time limit, refuses the request instead.
    #[cold]
    fn wait_unless_late(&mut self) -> Next {
        let Some(refusal) = self.context.shared.scripts.running.busy() else {
            return Next::Busy;
        };
        // In a transaction, only EXEC waits.
        let refusal = if self.context.session.transaction.is_some() {
            self.context.end_transaction();
            let text = format!("EXECABORT Transaction discarded because of: {refusal}");
            CommandError::Text(text.into())
        } else {
            CommandError::fixed(refusal)
        };
        self.refuse(self.reply_start, &refusal);
        Next::Read
    }

    /// Ends a request that waits.
    #[cold]
    fn block(&mut self, start: usize) -> Next {
        self.reply.rollback(start);
        let session = &mut *self.context.session;
        session.arrival = None;
        if session.reply_mode == ReplyMode::Skip {
            session.reply_mode = ReplyMode::On;
        }
        Next::Blocks
    }

    pub(super) fn call(&mut self, request: Request<'_>, found: &Found) -> CommandResult {
        let (index, spec, first) = resolve(self.context.table, found, request)?;
        let session = &*self.context.session;
        session.client.last_command.store(index, Ordering::Relaxed);
        if let Err(refusal) = self.check((index, spec), request) {
            return Err(self.reject(refusal, index, request));
        }
        let arrival = session.arrival.as_ref();
        let bytes = request.wire_bytes() + arrival.map_or(0, |arrival| arrival.held_bytes());
        let observer = self.ledger.observer;
        let long = arrival.map(|arrival| arrival.shown(observer.argument_bytes_shown()));
        let started_ns = self.lap.since_ns();
        if spec.flags.has(Flags::DENYOOM) && !self.make_room_and_tell(index, bytes) {
            return Err(CommandError::OutOfMemory);
        }
        let reply_start = self.reply.len_with_attachments();
        let result = self.run_handler(spec, request, first);
        match result {
            Err(CommandError::Aside | CommandError::Held) => return result,
            Err(CommandError::Blocks) => {
                // A request is shown when it arrives, and not again when it is served.
                self.ledger.show(&mut self.context, spec, request, None);
                return result;
            }
            _ => {}
        }
        self.ledger.counters.count_calls(index, 1);
        if result.is_err() {
            self.ledger.counters.count_failure(index);
        }
        let output = self.reply.len_with_attachments();
        let ran = Ran {
            table: self.context.table,
            command: (index, spec),
            request,
            long: long.as_ref(),
            request_bytes: bytes,
            reply_bytes: output.saturating_sub(reply_start),
        };
        let client = &self.context.session.client;
        let now = self
            .lap
            .charge(&self.ledger, started_ns, output, &ran, client);
        let slot = self.slot_counted(spec, request);
        self.count_usage(slot, || Usage {
            cpu_ns: now.ns.saturating_sub(started_ns),
            bytes_in: bytes as u64,
            bytes_out: bytes_replied(output.saturating_sub(reply_start), &result),
        });
        self.ledger
            .show(&mut self.context, spec, request, long.as_ref());
        if may_take_long(spec) {
            self.set_time(now.unix_ms);
        }
        result
    }

    /// Runs the handler of a row, with the values that it needs in memory.
    #[inline]
    fn run_handler(
        &mut self,
        spec: &'static CommandSpec,
        request: Request<'_>,
        first: usize,
    ) -> CommandResult {
        let mut args = Args::new(request, first);
        let handler = match spec.long_value {
            Some(long) if self.context.session.arrival.is_some() => long.handler,
            _ => spec.handler,
        };
        self.context.track_reads(spec, request);
        let defers = self.place == Place::Worker && may_defer(self.context.session);
        self.context.pace.defers = defers;
        if self.may_be_cold {
            self.context.hold_values(spec, request)?;
        }
        let result = match self.place {
            Place::Worker if request.len() > ARGUMENTS_MAX && !spec.keys.is_empty() && defers => {
                Err(CommandError::Aside)
            }
            // A script locks its keys itself.
            Place::Aside if is_about_keys(spec) && spec.group != Group::Scripting => {
                let keys = self.keys_of(spec, request);
                let reply = &mut self.reply;
                self.context
                    .locked_long(&keys, |context| handler(context, &mut args, reply))
            }
            _ => handler(&mut self.context, &mut args, &mut self.reply),
        };
        self.context.of_readable(result)
    }

    /// Counts and reports that a request was refused.
    #[cold]
    pub(super) fn reject(
        &mut self,
        refusal: CommandError,
        index: CommandIndex,
        request: Request<'_>,
    ) -> CommandError {
        self.ledger.counters.count_rejection(index);
        self.context.session.was_refused = true;
        if let CommandError::Denied(denied) = &refusal {
            let origin = match self.context.session.transaction {
                Some(_) => Origin::Transaction,
                None => Origin::Client,
            };
            self.context.report(denied.denial, index, request, origin);
        }
        refusal
    }

    /// Checks whether a command may run now, as far as possible without running it.
    #[inline]
    pub(super) fn check(
        &self,
        (index, spec): (CommandIndex, &'static CommandSpec),
        request: Request<'_>,
    ) -> CommandResult {
        let session = &*self.context.session;
        check(self.context.table, (index, spec), request, session)?;
        if self.checks_slots && !self.is_queued_for_others(spec) {
            self.check_slots(spec, request)?;
        }
        let row = (spec.flags, spec.in_transaction);
        let passed = self.context.shared.refusals.pass(row, session);
        if passed.is_err() && self.checks_slots && !self.is_queued_for_others(spec) {
            // During a handover, a primary first publishes the new owner of its slots, then refuses
            // writes. Both may have happened between the two checks above.
            self.check_slots(spec, request)?;
        }
        passed
    }

    /// Whether offload engines require that every request is handled one by one.
    #[inline]
    fn needs_care(&self) -> bool {
        self.place == Place::Aside || self.context.store.may_be_busy()
    }

    /// Whether a request has to wait for an offload engine, because of its keys or because it
    /// visits all keys.
    #[cold]
    fn has_to_wait(&mut self, command: Option<&Found>, request: Request<'_>) -> bool {
        let resolved = command.map(|found| resolve(self.context.table, found, request));
        let Some(Ok((index, spec, _))) = resolved else {
            return false;
        };
        if self.context.session.transaction.is_some() {
            return spec.in_transaction == InTransaction::Runs && self.exec_has_to_wait();
        }
        if self.place != Place::Worker || self.check((index, spec), request).is_err() {
            return false;
        }
        // A client that monitors the server with this command must notice a script that takes too
        // long.
        if spec.flags.has(Flags::PROBES) {
            return self.context.shared.scripts.running.busy().is_some();
        }
        if spec.keys.is_empty() {
            // A command that needs the store exclusively would block all workers.
            let is_quick = spec.flags.has(Flags::FAST) && !spec.flags.has(Flags::HAS_STORE_ALONE);
            return may_reach_any_key(spec) && !is_quick;
        }
        let Context {
            session,
            table,
            store,
            ..
        } = &mut self.context;
        match keys_reached(table, store, session.database, spec, &request) {
            Some(keys) => are_held_for_long(store, &keys),
            None => true,
        }
    }

    /// Returns the keys of a request.
    fn keys_of<'r>(&self, spec: &CommandSpec, request: Request<'r>) -> Vec<Key<'r>> {
        let database = self.context.session.database;
        let found = places::of(self.context.table, spec, &request).unwrap_or_default();
        let key = |(at, _)| Some(self.context.store.key(database, request.arg(at)?));
        found.into_iter().filter_map(key).collect()
    }

    /// Whether a pause of writes applies to a command, or to the transaction that it ends.
    pub(super) fn writes(&self, spec: &CommandSpec, request: Request<'_>) -> bool {
        let scripts = &self.context.shared.scripts;
        let transaction = self.context.session.transaction.as_ref();
        if spec.in_transaction == InTransaction::Runs {
            return transaction.is_some_and(|it| it.writes(self.context.table, scripts));
        }
        may_write(scripts, spec, request)
    }

    /// Whether a command is refused if memory is full, or ends a transaction that contains such a
    /// command.
    fn needs_memory(&self, spec: &CommandSpec) -> bool {
        let transaction = self.context.session.transaction.as_ref();
        match transaction {
            Some(queued) if spec.in_transaction == InTransaction::Runs => {
                queued.has(Flags::DENYOOM)
            }
            Some(_) => false,
            None => spec.flags.has(Flags::DENYOOM),
        }
    }

    /// Returns how the request has to wait, or `None` if it need not. A request that would be
    /// refused is refused at once. Every other request, even CLIENT UNPAUSE, waits for the end of a
    /// pause of all.
    #[cold]
    fn at_gate(&self, command: Option<&Found>, request: Request<'_>) -> Option<Next> {
        let resolved = command.map(|found| resolve(self.context.table, found, request));
        let Some(Ok((index, spec, _))) = resolved else {
            return None;
        };
        if self.check((index, spec), request).is_err() {
            return None;
        }
        let writes = self.writes(spec, request);
        let gate = &self.context.shared.gate;
        let is_paused = gate.paused_until_unix_ms() > self.context.now_unix_ms;
        let waits_for_role =
            (writes && gate.changes_role()) || (gate.has_no_office() && (writes || reads(spec)));
        if (is_paused && (writes || !gate.pauses_writes_only())) || waits_for_role {
            Some(Next::Paused)
        } else if writes && gate.is_log_full() {
            Some(Next::LogFull)
        } else if gate.is_memory_full() && self.needs_memory(spec) {
            Some(Next::Busy)
        } else {
            None
        }
    }
}

/// Returns the size of a reply with `bytes` written so far. The error of a failed request is not
/// written yet.
fn bytes_replied(bytes: usize, result: &CommandResult) -> u64 {
    let of_error = match result {
        Ok(()) => 0,
        Err(error) => b"-\r\n".len() + error.text().len(),
    };
    (bytes + of_error) as u64
}

/// Whether a command may show data.
fn reads(spec: &CommandSpec) -> bool {
    let has_keys = !spec.keys.is_empty() || spec.keys_of.is_some();
    has_keys || spec.flags.has(Flags::READONLY) || spec.in_transaction == InTransaction::Runs
}

/// Returns the outcome of a visit that ended within a batch.
#[cold]
fn leave(before: Outcome, batch: &Batch, left: &Left) -> Outcome {
    let done = executed(left);
    let consumed = done.checked_sub(1).map_or(0, |last| batch.end_of(last));
    Outcome {
        consumed: before.consumed + consumed,
        needed: 0,
        executed: before.executed + done,
        next: match left.next {
            Next::Read => Next::Yield,
            next => next,
        },
    }
}

/// Returns how many requests of a batch ran before it was interrupted.
fn executed(left: &Left) -> usize {
    match left.next {
        Next::Paused | Next::Busy | Next::LogFull | Next::Elsewhere => left.index,
        _ => left.index + 1,
    }
}

/// Whether a client is in no state that matters to a plain request.
#[inline]
fn is_ordinary(session: &Session) -> bool {
    may_defer(session) && !session.hears_pushes() && !session.permit.is_restricted()
}

/// Whether a request of a client may be offloaded. The client must be in no state that matters to
/// the request. Receiving pushes is allowed: they come between replies, wherever these are made.
#[inline]
fn may_defer(session: &Session) -> bool {
    session.authenticated
        && session.reply_mode == ReplyMode::On
        && session.fate == Fate::Stay
        && session.arrival.is_none()
        && session.transaction.is_none()
}

/// Whether a command takes noticeable time, so that the next one needs its own clock sample.
/// Commands as quick as GET or SET share one sample with their batch.
#[inline]
fn may_take_long(spec: &CommandSpec) -> bool {
    !spec.flags.has(Flags::FAST) && spec.group != Group::String
}

/// Whether this is a line of an HTTP request. A web page can make a browser send one to any port of
/// its machine, with commands in the body, so nothing after it is examined.
#[cold]
fn is_from_a_browser(request: Request<'_>) -> bool {
    let name = request.name();
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

#[cold]
fn suppress_reply(session: &mut Session, reply: &mut Reply<'_>, start: usize) {
    match session.reply_mode {
        ReplyMode::On | ReplyMode::SkipNext => {}
        ReplyMode::Off => reply.rollback(start),
        ReplyMode::Skip => {
            reply.rollback(start);
            session.reply_mode = ReplyMode::On;
        }
    }
}
