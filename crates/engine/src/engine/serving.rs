//! Retries the requests of clients that wait for keys that changed.
//!
//! After each command, the engine checks whether it changed keys that clients wait for. If so, it
//! runs the requests of these clients, the oldest first, until nothing is left for them. A change
//! by such a request may serve further waiting clients (BLMOVE). All of it happens before the reply
//! of the first command is sent, so that its client sees the same as on a server with one thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use access::Origin;
use base::random::Prng;
use protocol::{Reply, ReplyBuffer};
use store::{Attempt, DatabaseId, Handle, Hold, Key, StoreError};

use super::ledger::Ledger;
use super::place::Place;
use crate::args::Args;
use crate::context::{Context, Pace};
use crate::error::CommandError;
use crate::flags::Flags;
use crate::key_places as places;
use crate::plan::Plan;
use crate::port::ServerPort;
use crate::session::Session;
use crate::shared::Shared;
use crate::table::{Found, Table};
use crate::waiting::{Turn, Waited, Waiter, Waiters};

/// Keys by their names.
pub(super) type Names = Vec<(DatabaseId, Box<[u8]>)>;

/// Everything needed to run the requests of waiting clients.
pub(super) struct Serving<'a> {
    pub(super) place: Place,
    pub(super) table: &'static Table,
    pub(super) server: &'a mut dyn ServerPort,
    pub(super) shared: &'a Shared,
    pub(super) random: &'a mut Prng,
    pub(super) plan: &'a mut Plan,
    pub(super) waiters: &'a Arc<Waiters>,
    pub(super) now_unix_ms: u64,
    /// The client that is the author of all other changes.
    pub(super) author: u64,
    pub(super) ledger: Ledger<'a>,
    /// Keys that could not be served yet because some keys are locked for long.
    pub(super) unserved: &'a mut Names,
}

impl Serving<'_> {
    /// Serves `keys`, and the keys that change because of that.
    pub(super) fn run(&mut self, store: &mut Handle, keys: Names) {
        let mut keys = VecDeque::from(keys);
        while let Some((database, key)) = keys.pop_front() {
            let waiters = self.waiters;
            let is_served = waiters.serve(store, database, &key, |store, waiter| {
                store.set_author(waiter.subject.client.id);
                let attempt = self.attempt(store, waiter);
                store.set_author(self.author);
                // A waiter's change of the keys that it waits for leaves nothing for other waiters.
                let mut changed = store.take_served();
                changed.retain(|(database, key)| !waiter.waits_for(*database, key));
                keys.extend(changed);
                attempt
            });
            if !is_served
                && !self
                    .unserved
                    .iter()
                    .any(|one| *one == (database, key.clone()))
            {
                self.unserved.push((database, key));
            }
        }
    }

    /// Runs the request of a waiter, with all its keys locked.
    fn attempt(&mut self, store: &mut Handle, waiter: &Arc<Waiter>) -> Attempt {
        let waiting = &waiter.subject;
        if self.is_withheld(waiting) {
            return Attempt::Busy;
        }
        let Some(command) = self.table.found(waiting.command) else {
            unreachable!("what waits is a command of the table");
        };
        let (spec, request) = (command.spec, waiting.request.request());
        let needs_room = spec.flags.has(Flags::DENYOOM);
        let is_full =
            needs_room && store.make_room(request.wire_bytes()) == Err(StoreError::OutOfMemory);
        let found = places::of(self.table, spec, &request).unwrap_or_default();
        let name = |(at, _)| Some(store.key(waiter.database(), request.arg(at)?));
        let keys: Vec<Key<'_>> = found.into_iter().filter_map(name).collect();
        let place = self.place;
        let run = |store: &mut Handle| self.run_locked(store, waiter, command, is_full);
        let reply = match place {
            Place::Worker => store.try_locked(&keys, Hold::Short, run),
            Place::Alone | Place::Aside => Ok(store.locked(&keys, run)),
        };
        match reply {
            Ok(reply) => {
                if let Some(reply) = reply {
                    self.server.answer(&waiting.client, reply);
                }
                Attempt::Done
            }
            Err(_) => Attempt::Busy,
        }
    }

    /// Returns the reply of a waiter's request, or `None` if there is nothing for it or it no
    /// longer waits.
    fn run_locked(
        &mut self,
        store: &mut Handle,
        waiter: &Arc<Waiter>,
        found: &'static Found,
        is_full: bool,
    ) -> Option<Vec<u8>> {
        let waiting = &waiter.subject;
        let is_claimed = Cell::new(false);
        let waited = Waited {
            waiter,
            is_claimed: &is_claimed,
        };
        let mut session = Session::new(Arc::clone(&waiting.client), true);
        (session.database, session.resp) = (waiter.database(), waiting.resp);
        let mut context = Context {
            store,
            session: &mut session,
            table: self.table,
            server: self.server,
            shared: self.shared,
            random: self.random,
            now_unix_ms: self.now_unix_ms,
            pace: Pace {
                defers: false,
                is_aside: self.place == Place::Aside,
            },
            may_block: true,
            turn: Turn {
                waiters: self.waiters,
                waiter: Some(waited),
            },
            plan: self.plan,
            ledger: self.ledger,
        };
        let mut buffer = ReplyBuffer::with_capacity(0);
        let mut reply = Reply::new(&mut buffer, waiting.resp);
        let mut args = Args::new(waiting.request.request(), 1);
        let started = self.ledger.clock.moment();
        let request = waiting.request.request();
        if let Err(error) = context.permit((found.index, found.spec), request) {
            return deny(&mut context, waiter, &error);
        }
        let held = store::held_values();
        let result = match context.hold_values(found.spec, request) {
            _ if is_full => Err(CommandError::OutOfMemory),
            Ok(()) => (found.handler)(&mut context, &mut args, &mut reply),
            Err(unreadable) => Err(unreadable),
        };
        let result = context.of_readable(result);
        store::release_held_values(held);
        if result == Err(CommandError::Blocks) || !(is_claimed.get() || waiter.claim()) {
            return None;
        }
        self.waiters.leave(context.store, waiter);
        self.enter(started, waiting, buffer.len());
        if let Err(error) = result {
            let text = error.text();
            return Some(waiting.encoded(|reply| reply.error_bytes(&text)));
        }
        let is_silent = waiting.is_silent;
        Some(if is_silent {
            Vec::new()
        } else {
            buffer.to_vec()
        })
    }
}

/// Ends the wait of a request whose user may no longer run it.
#[cold]
fn deny(context: &mut Context<'_>, waiter: &Arc<Waiter>, error: &CommandError) -> Option<Vec<u8>> {
    if !waiter.claim() {
        return None;
    }
    context.turn.waiters.leave(context.store, waiter);
    let waiting = &waiter.subject;
    let index = waiting.command;
    if let CommandError::Denied(denied) = error {
        let request = waiting.request.request();
        context.report(denied.denial, index, request, Origin::Client);
    }
    let text = error.text();
    Some(waiting.encoded(|reply| reply.error_bytes(&text)))
}
