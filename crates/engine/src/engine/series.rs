//! Plain requests of one command that stand one behind the other, run in one loop.
//!
//! A command that is asked for often names such a loop of its own in its row
//! ([`CommandSpec::series`](crate::CommandSpec::series)): the compiler then puts the handler, the
//! arguments it takes and the store's operation together, and what is the same for all requests is
//! found out once. For all other commands the loop calls the handler of the row.

use std::sync::atomic::Ordering;

use protocol::{Reply, Requests};
use store::{Handle, Key};

use super::visit::{Visit, refuse};
use crate::args::Args;
use crate::context::Context;
use crate::error::{CommandError, CommandResult};
use crate::plan::PlannedRun;
use crate::table::Found;

/// A loop over a series: calls [`Series::each`] with the command's handler.
pub type SeriesLoop = fn(&mut Series<'_, '_, '_>);

/// A run of requests, and how far it is.
pub struct Series<'s, 'v, 'i> {
    pub(super) visit: &'s mut Visit<'v>,
    /// Number of the first one in its batch.
    pub(super) first: usize,
    pub(super) requests: Requests<'i>,
    /// How many of them run at most, one at least.
    pub(super) requests_max: usize,
    pub(super) planned: &'s PlannedRun,
    pub(super) found: &'static Found,
    /// When the replies are as long as this, the rest has to wait.
    pub(super) reply_bytes_end: usize,
    /// The last one is to be run aside.
    pub(super) is_aside: bool,
    /// How many ran.
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

    /// As [`Series::each`], for a command that looks up its first argument, a key, and changes nothing:
    /// then less can happen, and what the plan knows of the keys is taken in order.
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

    /// Notes how many ran, and how many of these to their end.
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
