//! Plain requests of one command that stand one behind the other, run in one loop.
//!
//! A command that is asked for often names such a loop of its own in its row
//! ([`CommandSpec::series`](crate::CommandSpec::series)): the compiler then puts the handler, the
//! arguments it takes and the store's operation together, and what is the same for all requests is
//! found out once. For all other commands the loop calls the handler of the row.

use std::sync::atomic::Ordering;

use protocol::{Reply, Requests};

use super::visit::Visit;
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
    pub(super) requests: Requests<'i>,
    pub(super) planned: &'s PlannedRun,
    pub(super) found: &'static Found,
    /// When the replies are as long as this, the rest has to wait.
    pub(super) reply_bytes_end: usize,
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
                    visit.counters.count_failure(found.index);
                    visit.refuse(start, &error);
                }
            }
            if visit.reply.len_with_attachments() >= self.reply_bytes_end {
                break;
            }
        }
        visit.counters.count_calls(found.index, done - refused);
        let client = &visit.context.session.client;
        client.last_command.store(found.index, Ordering::Relaxed);
        self.done = done;
    }

    /// Runs a series of a command without a loop of its own.
    pub(crate) fn each_by_row(&mut self) {
        self.each(self.found.handler);
    }
}
