//! In cluster mode: checks that the keys of requests are in hash slots that this node serves.

use base::clock::Moment;
use base::hash_slot;
use protocol::{Request, Run};

use super::serving::Serving;
use super::visit::Visit;
use crate::error::CommandResult;
use crate::flags::InTransaction;
use crate::hash_slots::{Elsewhere, Query, Routes};
use crate::key_query::{is_withheld, only_slot, query_about};
use crate::resolved::resolve;
use crate::slot_usage::Usage;
use crate::spec::CommandSpec;
use crate::table::Found;
use crate::waiting::Waiting;

impl Visit<'_> {
    /// Whether the keys of plain requests all belong to this node, with one slot per request. A
    /// quick check that may wrongly say no.
    #[inline]
    pub(super) fn are_mine(&self, run: &Run<'_>, found: &Found) -> bool {
        let slots = &self.context.shared.hash_slots;
        let spec = found.spec;
        if spec.keys.len() != 1 || spec.keys_of.is_some() || spec.other_databases.is_some() {
            return false;
        }
        let at = usize::from(found.keys.first);
        if found.keys.last == 0 {
            return run.requests.clone().all(|request| {
                let key = request.arg(at);
                key.is_none_or(|key| slots.is_mine(hash_slot::of(key)))
            });
        }
        run.requests.clone().all(|request| {
            let Some(first) = request.arg(at).map(hash_slot::of) else {
                return false;
            };
            let mut others = found.keys.places(request.len()).skip(1);
            slots.is_mine(first)
                && others.all(|at| request.arg(at).map(hash_slot::of) == Some(first))
        })
    }

    /// Whether a request has to wait because another node is about to serve its slot.
    #[inline]
    pub(super) fn is_about_leaving(&self, command: Option<&Found>, request: Request<'_>) -> bool {
        self.checks_slots
            && self.context.shared.hash_slots.has_waits()
            && !self.context.session.is_of_primary
            && self.waits_for_leaving(command, request)
    }

    #[cold]
    fn waits_for_leaving(&self, command: Option<&Found>, request: Request<'_>) -> bool {
        let resolved = command.map(|found| resolve(self.context.table, found, request));
        let Some(Ok((_, spec, _))) = resolved else {
            return false;
        };
        let routes = self.context.shared.hash_slots.routes();
        let mut query = self.query(&routes, spec, request);
        query.is_write |= self.writes(spec, request);
        query.waits(&routes)
    }

    /// Whether a request is queued for a client that forwards. EXEC then checks which node owns its
    /// keys.
    #[inline]
    pub(super) fn is_queued_for_others(&self, spec: &CommandSpec) -> bool {
        let session = &*self.context.session;
        session.forwards
            && session.transaction.is_some()
            && spec.in_transaction == InTransaction::Queued
    }

    /// Checks that this node serves the keys of a request, or of the transaction that it ends.
    #[cold]
    pub(super) fn check_slots(&self, spec: &CommandSpec, request: Request<'_>) -> CommandResult {
        let session = &*self.context.session;
        if session.is_of_primary {
            return Ok(());
        }
        let routes = self.context.shared.hash_slots.routes();
        match self.query(&routes, spec, request).judge(&routes) {
            Err(Elsewhere::Moved { host, port, .. })
                if spec.sends_to.is_some_and(|it| it(&request, &host, port)) =>
            {
                Ok(())
            }
            judged => Ok(judged?),
        }
    }

    /// Returns the slot under which a request, or the transaction that it ends, is counted, or
    /// `None` if usage is not counted by slot.
    #[inline]
    pub(super) fn slot_counted(&self, spec: &CommandSpec, request: Request<'_>) -> Option<u16> {
        let slots = &self.context.shared.hash_slots;
        if !slots.usage.is_on() || self.context.session.is_of_primary {
            return None;
        }
        self.query(&slots.routes(), spec, request).only_slot()
    }

    /// Adds what a request took to the slot's usage.
    #[inline]
    pub(super) fn count_usage(&self, slot: Option<u16>, usage: impl FnOnce() -> Usage) {
        if let Some(slot) = slot {
            self.context.shared.hash_slots.usage.add(slot, usage());
        }
    }

    /// Returns the slot query for a request, or for the transaction that it ends.
    fn query(&self, routes: &Routes, spec: &CommandSpec, request: Request<'_>) -> Query {
        let session = &*self.context.session;
        query_about(session, routes, self.context.table, spec, request)
    }
}

impl Serving<'_> {
    /// Records what a request that has waited took.
    pub(super) fn enter(&self, started: Moment, waiting: &Waiting, reply_bytes: usize) {
        let cpu_ns = self
            .ledger
            .enter_served(started, waiting, self.table, reply_bytes);
        let slots = &self.shared.hash_slots;
        if slots.usage.is_on()
            && let Some(slot) = only_slot(waiting, self.table, &slots.routes())
        {
            let usage = Usage {
                cpu_ns,
                bytes_in: waiting.request.request().wire_bytes() as u64,
                bytes_out: reply_bytes as u64,
            };
            slots.usage.add(slot, usage);
        }
    }

    /// Whether a waiting request may not run now, or not here, because its slot is leaving or gone.
    pub(super) fn is_withheld(&self, waiting: &Waiting) -> bool {
        let slots = &self.shared.hash_slots;
        slots.is_on() && is_withheld(waiting, self.table, &slots.routes())
    }
}
