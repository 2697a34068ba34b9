//! Consecutive plain requests of one command, run in one loop.
//!
//! The row of a frequent command names its own such loop
//! ([`CommandSpec::series`](crate::CommandSpec::series)). The compiler then joins the handler, its
//! arguments and the store's operation, and everything common to all requests is computed once. For
//! all other commands, the loop calls the row's handler.

use std::sync::atomic::Ordering;

use protocol::{Reply, Requests};
use store::{Handle, Key};

use super::visit::{Visit, refuse};
use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::plan::PlannedRun;
use crate::table::Found;

/// A loop over a series. It calls [`Series::each`] with the command's handler.
pub type SeriesLoop = fn(&mut Series<'_, '_, '_>);

/// A run of requests, and its progress.
pub struct Series<'s, 'v, 'i> {
    pub(super) visit: &'s mut Visit<'v>,
    /// Index of the first request in its batch.
    pub(super) first: usize,
    pub(super) requests: Requests<'i>,
    /// Maximum number of requests that run, at least one.
    pub(super) requests_max: usize,
    pub(super) planned: &'s PlannedRun,
    pub(super) found: &'static Found,
    /// The length of the replies at which the remaining requests have to wait.
    pub(super) reply_bytes_end: usize,
    /// Whether the last request is to be offloaded.
    pub(super) is_aside: bool,
    /// Number of requests that ran.
    pub(super) done: usize,
}

impl Series<'_, '_, '_> {
    /// Runs one request after the other.
    #[inline(always)]
    pub fn each(
        &mut self,
        handler: impl Fn(&mut Context<'_>, &mut Args<'_>, &mut Reply<'_>) -> CommandResult,
    ) {
        let (found, visit) = (self.found, &mut *self.visit);
        let (mut done, mut refused) = (0, 0);
        let mut first_key = self.planned.first_key;
        for request in self.requests.clone() {
            visit.context.plan.begin(first_key);
            first_key += self.planned.keys_each;
            done += 1;
            let mut args = Args::new(request, 1);
            if found.needs_room && !visit.make_room(found.index, request.wire_bytes()) {
                visit.refuse(visit.reply.mark(), &CommandError::OutOfMemory);
                refused += 1;
            } else {
                let start = visit.reply.mark();
                let result = handler(&mut visit.context, &mut args, &mut visit.reply);
                if let Err(error) = result {
                    if error == CommandError::Aside {
                        visit.reply.rollback(start);
                        self.is_aside = true;
                        refused += 1;
                        break;
                    }
                    visit.ledger.counters.count_failure(found.index);
                    visit.refuse(start, &error);
                }
            }
            if visit.context.store.has_served() {
                visit.serve();
            }
            let is_full = visit.reply.len_with_attachments() >= self.reply_bytes_end;
            if is_full || done >= self.requests_max {
                break;
            }
        }
        self.note(done, done - refused);
    }

    /// Does the same as [`Series::each`], for a command that looks up its first argument, a key,
    /// and changes nothing. Fewer cases are possible then, and the plan's key hashes are taken in
    /// order.
    #[inline(always)]
    pub fn each_look(
        &mut self,
        look: impl Fn(&mut Handle, &Key<'_>, &mut Reply<'_>) -> CommandResult,
    ) {
        let (found, visit) = (self.found, &mut *self.visit);
        let context = &mut visit.context;
        let database = context.session.database;
        let mut planned = context.plan.keys_of(self.planned).iter();
        let mut done = 0;
        for request in self.requests.clone() {
            done += 1;
            let Some(name) = request.arg(1) else {
                continue;
            };
            let hash = match planned.next() {
                Some(key) => key.hash(),
                None => context.store.hash(name),
            };
            let key = Key::with_hash(name, hash, database);
            let start = visit.reply.mark();
            if let Err(error) = look(context.store, &key, &mut visit.reply) {
                visit.ledger.counters.count_failure(found.index);
                refuse(&visit.ledger, &mut visit.reply, start, &error);
            }
            let is_full = visit.reply.len_with_attachments() >= self.reply_bytes_end;
            if is_full || done >= self.requests_max {
                break;
            }
        }
        self.note(done, done);
    }

    /// Records how many requests ran, and how many of these were not refused.
    #[inline]
    fn note(&mut self, done: usize, calls: usize) {
        let (index, visit) = (self.found.index, &mut *self.visit);
        visit.ledger.counters.count_calls(index, calls);
        visit.lap.add(index, self.first, done, calls);
        let client = &visit.context.session.client;
        client.last_command.store(index, Ordering::Relaxed);
        self.done = done;
    }

    /// Runs a series of a command without a loop of its own.
    pub(crate) fn each_by_row(&mut self) {
        self.each(self.found.handler);
    }
}
