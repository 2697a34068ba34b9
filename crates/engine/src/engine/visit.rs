//! What one call of [`Engine::run`](super::Engine::run) works with, and what all ways of running a request
//! need of it: memory, errors, pushes, and those who wait for the keys that were changed.

use protocol::Reply;
use store::StoreError;

use super::lap::Lap;
use super::ledger::Ledger;
use super::place::Place;
use super::serving::{Names, Serving};
use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::error::CommandError;

/// Who is served, through what, and where the replies go.
pub(super) struct Visit<'a> {
    pub(super) place: Place,
    /// Keys may be held for long by an engine aside. Known when the store is entered, and again after
    /// every request that may have left it meanwhile: while it is not left, none are taken so.
    pub(super) may_be_busy: bool,
    /// Some values lie out of memory, or did when the visit began.
    pub(super) may_be_cold: bool,
    /// Whether values of later requests are to be read while one waits.
    pub(super) reads_ahead: bool,
    pub(super) reply: Reply<'a>,
    /// Where the reply of the request begins that runs by itself.
    pub(super) reply_start: usize,
    pub(super) context: Context<'a>,
    pub(super) ledger: Ledger<'a>,
    /// What ran and is not in the ledger yet.
    pub(super) lap: Lap,
    /// Every request is looked at by itself.
    pub(super) looks_at_each: bool,
    /// Every request that changes something is.
    pub(super) looks_at_writes: bool,
    /// Only keys of hash slots that are served here are served.
    pub(super) checks_slots: bool,
    /// How many more arguments this batch may have.
    pub(super) arguments_left: usize,
    /// When the visit began, on the clock of the lap.
    pub(super) started_ns: u64,
    pub(super) unserved: &'a mut Names,
}

impl Visit<'_> {
    /// The time that the next commands see.
    #[inline]
    pub(super) fn set_time(&mut self, now_unix_ms: u64) {
        self.context.now_unix_ms = now_unix_ms;
        self.context.store.begin(now_unix_ms);
    }

    /// Sees to it that there is memory for a request of so many bytes; whether there is.
    #[inline(always)]
    pub(super) fn make_room(&mut self, index: CommandIndex, bytes: usize) -> bool {
        let made = self.context.store.make_room(bytes);
        if let Err(StoreError::OutOfMemory) = made {
            self.ledger.counters.count_rejection(index);
            return false;
        }
        true
    }

    /// Sees to it that there is memory for a request that runs by itself; whether there is. What its
    /// client is to hear of keys that were evicted for it comes before the reply: behind it, that
    /// would be taken for news of what the request did to them.
    pub(super) fn make_room_and_tell(&mut self, index: CommandIndex, bytes: usize) -> bool {
        let is_made = self.make_room(index, bytes);
        if self.context.session.hears_pushes() {
            self.send_pushes();
            self.reply_start = self.reply.mark();
        }
        is_made
    }

    /// Answers with an error instead of whatever was written since `start`.
    pub(super) fn refuse(&mut self, start: usize, error: &CommandError) {
        refuse(&self.ledger, &mut self.reply, start, error);
    }

    /// Writes the pushes behind a reply that the command led to.
    #[cold]
    pub(super) fn send_pushes(&mut self) {
        let session = &mut *self.context.session;
        for push in std::mem::take(&mut session.held_pushes) {
            push.write(&mut self.reply);
        }
        self.context.server.catch_up(session, &mut self.reply);
    }

    /// Gives those who wait for keys that were changed another try. No keys are locked.
    #[cold]
    pub(super) fn serve(&mut self) {
        let Context {
            store,
            table,
            server,
            shared,
            random,
            now_unix_ms,
            turn,
            plan,
            session,
            ..
        } = &mut self.context;
        let mut serving = Serving {
            place: self.place,
            table,
            server: &mut **server,
            shared,
            random,
            plan,
            waiters: turn.waiters,
            now_unix_ms: *now_unix_ms,
            author: session.client.id,
            ledger: self.ledger,
            unserved: self.unserved,
        };
        let keys = store.take_served();
        serving.run(store, keys);
    }
}

/// Answers with an error instead of whatever was written since `start`.
#[cold]
pub(super) fn refuse(
    ledger: &Ledger<'_>,
    reply: &mut Reply<'_>,
    start: usize,
    error: &CommandError,
) {
    let text = error.text();
    ledger.counters.count_reply(error);
    reply.rollback(start);
    reply.error_bytes(&text);
}
