//! Requests between MULTI and EXEC: queued, and run as one step.
//!
//! A request is checked when it is queued: a request that could not run spoils the transaction.
//! EXEC locks all keys at once, so other threads see the state before or after it. They wait only
//! if they want one of these keys. If a command fails during EXEC, its error is its reply and has
//! no other consequence.
//!
//! One clock sample applies to the whole transaction, nothing in it waits for keys, and memory is
//! requested once, before the first lock.
//!
//! A transaction of many commands is offloaded as a whole. A transaction that reaches a long
//! command is offloaded if it has only read until then, because nothing was changed. After a write
//! it is too late for that, and the long command runs here.

use std::sync::atomic::Ordering;

use access::Origin;
use protocol::{Reply, Request};
use store::{Handle, Hold, Key};

use super::charging::Ran;
use super::ledger::Ledger;
use super::place::Place;
use super::visit::Visit;
use crate::args::Args;
use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::permission::denied_at_exec;
use crate::queued::{Queued, QueuedRow, Transaction};
use crate::resolved::resolve;
use crate::session::{ReplyMode, Session};
use crate::slot_usage::{MULTI_BYTES, Usage};
use crate::spec::{CommandSpec, Flags, InTransaction};
use crate::table::Found;
use crate::transaction::Reach;
use crate::watch::Watches;

/// Whether a request is handled here: it is from a client in a transaction, or it is EXEC.
#[inline]
pub(super) fn concerns(session: &Session, found: &Found) -> bool {
    session.transaction.is_some() || found.spec.in_transaction == InTransaction::Runs
}

impl Visit<'_> {
    /// Queues a request, or runs it if it controls the transaction.
    #[cold]
    pub(super) fn call_in_transaction(
        &mut self,
        request: Request<'_>,
        found: &Found,
    ) -> CommandResult {
        let role = found.spec.in_transaction;
        let command = match self.admit(request, found, role) {
            Ok(command) => command,
            Err(refusal) if role == InTransaction::Runs => {
                self.context.end_transaction();
                if matches!(refusal, CommandError::Elsewhere(_)) {
                    return Err(refusal);
                }
                return Err(abort_because_of(&refusal));
            }
            Err(refusal) => {
                self.context.session.spoil_transaction();
                return Err(refusal);
            }
        };
        match role {
            InTransaction::Begins | InTransaction::AtOnce | InTransaction::Refuses => {
                self.call(request, found)
            }
            InTransaction::Runs if self.context.session.transaction.is_none() => {
                self.call(request, found)
            }
            InTransaction::Runs => {
                let result = self.exec(request, found);
                // An offloaded transaction is shown there, after the commands that it runs.
                if result != Err(CommandError::Aside) {
                    self.ledger
                        .show(&mut self.context, found.spec, request, None);
                }
                result
            }
            InTransaction::Queued => {
                let (index, spec, first) = command;
                let row = QueuedRow::of(index, spec, first);
                self.context.session.queue(request, row);
                self.reply.simple("QUEUED");
                Ok(())
            }
        }
    }

    /// Returns the row of a request if it may be queued or run.
    fn admit(
        &mut self,
        request: Request<'_>,
        found: &Found,
        role: InTransaction,
    ) -> Result<(CommandIndex, &'static CommandSpec, usize), CommandError> {
        let command = resolve(self.context.table, found, request)?;
        let (index, spec, _) = command;
        let session = &*self.context.session;
        let mut admitted = self.check((index, spec), request);
        if admitted.is_ok() && session.transaction.is_some() && spec.flags.has(Flags::NO_MULTI) {
            admitted = Err(CommandError::fixed(
                "ERR Command not allowed inside a transaction",
            ));
        }
        if let Err(refusal) = admitted {
            return Err(self.reject(refusal, index, request));
        }
        let session = &*self.context.session;
        let bytes = match (role, &session.transaction) {
            (InTransaction::Begins | InTransaction::AtOnce, _) | (InTransaction::Runs, None) => {
                return Ok(command);
            }
            (InTransaction::Runs, Some(transaction)) if !transaction.has(Flags::DENYOOM) => {
                return Ok(command);
            }
            (InTransaction::Runs, Some(transaction)) => transaction.wire_bytes(),
            (InTransaction::Queued | InTransaction::Refuses, _) => request.wire_bytes(),
        };
        // A transaction that was refused before needs no memory.
        let is_spoilt = session
            .transaction
            .as_ref()
            .is_some_and(|it| it.is_spoilt());
        if (role != InTransaction::Runs || !is_spoilt) && !self.make_room_and_tell(index, bytes) {
            return Err(CommandError::OutOfMemory);
        }
        Ok(command)
    }

    /// Ends the transaction. Runs the queued requests unless it is spoilt.
    ///
    /// # Errors
    /// After [`CommandError::Aside`] everything is unchanged.
    fn exec(&mut self, request: Request<'_>, found: &Found) -> CommandResult {
        let index = found.index;
        let started_ns = self.lap.since_ns();
        let reply_start = self.reply.len_with_attachments();
        let slot = self.slot_counted(found.spec, request);
        let session = &mut *self.context.session;
        session.client.last_command.store(index, Ordering::Relaxed);
        let Some(transaction) = session.transaction.take() else {
            return Ok(());
        };
        let watches = session.watches.take();
        let result = if transaction.is_spoilt() {
            self.ledger.counters.count_failure(index);
            Err(CommandError::fixed(
                "EXECABORT Transaction discarded because of previous errors.",
            ))
        } else {
            // This applies even if a watched key is known to have changed: the client that changed
            // it may still be in its transaction, and requests after this reply must see all of
            // that transaction.
            self.run_queue(&transaction, watches.as_deref())
        };
        let session = &mut *self.context.session;
        session.watches = watches;
        if result == Err(CommandError::Aside) {
            session.transaction = Some(transaction);
            return result;
        }
        self.context.end_transaction();
        self.ledger.counters.count_calls(index, 1);
        let output = self.reply.len_with_attachments();
        let now = self.lap.charge_all(&self.ledger, index, started_ns, output);
        let bytes_in = transaction.wire_bytes() + request.wire_bytes() + MULTI_BYTES;
        self.count_usage(slot, || Usage {
            cpu_ns: now.ns.saturating_sub(started_ns),
            bytes_in: bytes_in as u64,
            bytes_out: output.saturating_sub(reply_start) as u64,
        });
        self.set_time(now.unix_ms);
        result
    }

    /// Runs all requests of a transaction with its keys locked, unless a watched one was changed.
    fn run_queue(&mut self, transaction: &Transaction, watches: Option<&Watches>) -> CommandResult {
        let Context {
            session,
            table,
            store,
            ..
        } = &self.context;
        let gives_orders = transaction.is_about_cluster() && watches.is_none();
        if gives_orders && self.place == Place::Worker && session.reply_mode == ReplyMode::On {
            // These commands wait for disks and for other nodes.
            return Err(CommandError::Aside);
        }
        let reach = transaction.reach(table, store, session.database, watches);
        let may_defer = self.place == Place::Worker
            && transaction.is_about_data()
            && session.reply_mode == ReplyMode::On
            // Keys that are read on the offload thread are not tracked.
            && session.tracking.is_none()
            && matches!(reach, Reach::Keys(_));
        if may_defer && (transaction.is_long() || transaction.has_scripts()) {
            return Err(CommandError::Aside);
        }
        if self.may_be_cold {
            self.hold_values_of(transaction)?;
        }
        let place = self.place;
        self.context.may_block = gives_orders && place != Place::Worker;
        self.context.session.holds_pushes = true;
        let mut running = Running {
            ledger: &self.ledger,
            since_ns: self.lap.since_ns(),
            may_defer,
            reply: &mut self.reply,
        };
        let mut body = |context: &mut Context<'_>| {
            let client = &context.session.client;
            if watches.is_some_and(|it| it.were_changed(context.store, client)) {
                running.reply.null_array();
                return Ok(());
            }
            let result = running.run_each(context, transaction.queue());
            if let (Ok(()), Some(watches)) = (&result, watches) {
                watches.end_locked(context.store);
            }
            result
        };
        let result = match reach {
            _ if gives_orders => body(&mut self.context),
            Reach::Keys(keys) if place == Place::Aside => self.context.locked_long(&keys, body),
            Reach::Keys(keys) if !transaction.has_scripts() => self.context.locked(&keys, body),
            Reach::Keys(_) | Reach::Everything => self.context.exclusive(body),
        };
        self.context.session.holds_pushes = false;
        self.context.may_block = true;
        result
    }

    /// Keeps the values that the requests of a transaction need in memory. If one cannot be read,
    /// none of the requests runs. Requests for another database load their own values.
    fn hold_values_of(&mut self, transaction: &Transaction) -> CommandResult {
        for queued in transaction.queue() {
            let Some(spec) = self.context.table.spec(queued.index) else {
                break;
            };
            if spec.flags.has(Flags::SELECTS_DATABASE) {
                break;
            }
            self.context.hold_values(spec, queued.request())?;
        }
        Ok(())
    }

    /// Whether EXEC has to wait for an offload engine.
    pub(super) fn exec_has_to_wait(&mut self) -> bool {
        let Context {
            session,
            table,
            store,
            ..
        } = &mut self.context;
        let Some(transaction) = session.transaction.as_deref() else {
            return false;
        };
        if self.place != Place::Worker || transaction.is_spoilt() {
            return false;
        }
        match transaction.reach(table, store, session.database, session.watches.as_deref()) {
            Reach::Everything => true,
            // Scripts get the whole store.
            Reach::Keys(_) if transaction.has_scripts() => true,
            Reach::Keys(keys) => are_held_for_long(store, &keys),
        }
    }
}

/// Whether another thread holds one of the keys for long.
pub(super) fn are_held_for_long(store: &mut Handle, keys: &[Key<'_>]) -> bool {
    store.try_locked(keys, Hold::Short, |_| ()).is_err()
}

/// A transaction that is running.
struct Running<'r, 'a> {
    ledger: &'r Ledger<'a>,
    /// When the current command began.
    since_ns: u64,
    /// Whether the transaction may be offloaded until its first write.
    may_defer: bool,
    reply: &'r mut Reply<'a>,
}

impl Running<'_, '_> {
    /// Runs requests one after the other, and writes their replies.
    fn run_each(&mut self, context: &mut Context<'_>, queue: &[Queued]) -> CommandResult {
        let beginning = self.reply.mark();
        self.reply.array(queue.len());
        // Replies are sent up to CLIENT REPLY OFF, and from CLIENT REPLY ON.
        self.suppress(context, beginning);
        let mut defers = self.may_defer;
        for queued in queue {
            context.pace.defers = defers;
            let start = self.reply.mark();
            if self.run_one(context, queued) == Err(CommandError::Aside) {
                self.reply.rollback(beginning);
                return Err(CommandError::Aside);
            }
            self.suppress(context, start);
            defers = defers && !queued.flags.has(Flags::WRITE);
        }
        Ok(())
    }

    fn run_one(&mut self, context: &mut Context<'_>, queued: &Queued) -> CommandResult {
        let (start, output) = (self.reply.mark(), self.reply.len_with_attachments());
        context.plan.begin_unplanned();
        let Some(spec) = context.table.spec(queued.index) else {
            unreachable!("what is queued is a row of the table");
        };
        if let Err(denied) = context.permit((queued.index, spec), queued.request()) {
            self.deny(context, queued, &denied);
            return Ok(());
        }
        let passed = context
            .shared
            .refusals
            .pass_queued(queued.flags, context.session);
        if let Err(refusal) = passed {
            self.ledger.counters.count_rejection(queued.index);
            self.ledger.counters.count_reply(&refusal);
            self.reply.error_bytes(&refusal.text());
            return Ok(());
        }
        context.track_reads(spec, queued.request());
        let mut args = Args::new(queued.request(), queued.first);
        let held = store::held_values();
        let result = match context.hold_values(spec, queued.request()) {
            Ok(()) => (spec.handler)(context, &mut args, self.reply),
            Err(unreadable) => Err(unreadable),
        };
        let result = context.of_readable(result);
        store::release_held_values(held);
        if result == Err(CommandError::Aside) {
            return result;
        }
        let counters = self.ledger.counters;
        counters.count_calls(queued.index, 1);
        let ran = Ran {
            table: context.table,
            command: (queued.index, spec),
            request: queued.request(),
            long: None,
            request_bytes: queued.request().wire_bytes(),
            reply_bytes: self.reply.len_with_attachments().saturating_sub(output),
        };
        let now = self.ledger.clock.moment();
        let client = &context.session.client;
        self.ledger.enter(now, self.since_ns, &ran, client);
        self.since_ns = now.ns;
        self.ledger.show(context, spec, queued.request(), None);
        if let Err(error) = result {
            counters.count_failure(queued.index);
            counters.count_reply(&error);
            self.reply.rollback(start);
            self.reply.error_bytes(&error.text());
        }
        Ok(())
    }

    /// Replies that the user may no longer run a queued request.
    #[cold]
    fn deny(&mut self, context: &mut Context<'_>, queued: &Queued, error: &CommandError) {
        if let CommandError::Denied(denied) = error {
            let (index, request) = (queued.index, queued.request());
            context.report(denied.denial, index, request, Origin::Transaction);
            let text = denied_at_exec(denied.denial);
            self.ledger.counters.count_rejection(index);
            self.ledger.counters.count_error(&text);
            self.reply.error_bytes(&text);
        }
    }

    fn suppress(&mut self, context: &Context<'_>, start: usize) {
        if context.session.reply_mode == ReplyMode::Off {
            self.reply.rollback(start);
        }
    }
}

/// Returns the error of an EXEC that is refused itself.
#[cold]
fn abort_because_of(refusal: &CommandError) -> CommandError {
    let text = refusal.text();
    let reason = text.strip_prefix(b"ERR ").unwrap_or(&text);
    let mut text = b"EXECABORT Transaction discarded because of: ".to_vec();
    text.extend_from_slice(reason);
    CommandError::Bytes(text)
}
