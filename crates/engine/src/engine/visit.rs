//! The state of one call of [`Engine::run`](super::Engine::run), and what every way of running a
//! request needs: memory, errors, pushes, and service of clients that wait for changed keys.

use protocol::Reply;
use store::StoreError;

use super::lap::Lap;
use super::ledger::Ledger;
use super::place::Place;
use super::serving::{Names, Serving};
use crate::command_index::CommandIndex;
use crate::context::Context;
use crate::error::CommandError;

/// The client that is served, its context, and the destination of its replies.
pub(super) struct Visit<'a> {
    pub(super) place: Place,
    /// Whether an offload engine may hold keys for long. Determined when the thread enters the
    /// store, and again after every request that may have left the store: in between, no key can
    /// become locked for long.
    pub(super) may_be_busy: bool,
    /// Whether some values are out of memory, or were when the visit began.
    pub(super) may_be_cold: bool,
    /// Whether to read the values of later requests while one waits.
    pub(super) reads_ahead: bool,
    pub(super) reply: Reply<'a>,
    /// Where the reply of the current request begins, for requests that run one by one.
    pub(super) reply_start: usize,
    pub(super) context: Context<'a>,
    pub(super) ledger: Ledger<'a>,
    /// Requests that ran and are not in the ledger yet.
    pub(super) lap: Lap,
    /// Whether every request is handled one by one.
    pub(super) looks_at_each: bool,
    /// Whether every write is handled one by one.
    pub(super) looks_at_writes: bool,
    /// Whether only keys of hash slots that this node serves are served.
    pub(super) checks_slots: bool,
    /// Number of arguments that this batch may still have.
    pub(super) arguments_left: usize,
    /// When the visit began, on the clock of the latency sample.
    pub(super) started_ns: u64,
    pub(super) unserved: &'a mut Names,
}

impl Visit<'_> {
    /// Sets the time that the next commands see.
    #[inline]
    pub(super) fn set_time(&mut self, now_unix_ms: u64) {
        self.context.now_unix_ms = now_unix_ms;
        self.context.store.begin(now_unix_ms);
    }

    /// Frees memory for a request of this many bytes. Returns whether there is enough.
    #[inline(always)]
    pub(super) fn make_room(&mut self, index: CommandIndex, bytes: usize) -> bool {
        let made = self.context.store.make_room(bytes);
        if let Err(StoreError::OutOfMemory) = made {
            self.ledger.counters.count_rejection(index);
            return false;
        }
        true
    }

    /// Frees memory for a request that runs by itself. Returns whether there is enough.
    /// Invalidations of keys that were evicted for it precede the reply: after the reply, they
    /// would look like changes by the request.
    pub(super) fn make_room_and_tell(&mut self, index: CommandIndex, bytes: usize) -> bool {
        let is_made = self.make_room(index, bytes);
        if self.context.session.hears_pushes() {
            self.send_pushes();
            self.reply_start = self.reply.mark();
        }
        is_made
    }

    /// Replies with an error instead of everything written since `start`.
    pub(super) fn refuse(&mut self, start: usize, error: &CommandError) {
        refuse(&self.ledger, &mut self.reply, start, error);
    }

    /// Writes the pushes that the command caused, after its reply.
    #[cold]
    pub(super) fn send_pushes(&mut self) {
        let session = &mut *self.context.session;
        for push in std::mem::take(&mut session.held_pushes) {
            push.write(&mut self.reply);
        }
        self.context.server.catch_up(session, &mut self.reply);
    }

    /// Retries the requests of clients that wait for changed keys. No keys are locked.
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

/// Replies with an error instead of everything written since `start`.
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
