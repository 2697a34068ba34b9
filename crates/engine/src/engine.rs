//! Runs requests: one engine per worker thread.
//!
//! A batch has three stages: decode (views into the input), plan (`plan`: rows, hashes, prefetches)
//! and execute, in order (`execution`). Each call enters the store once, so that whole-store
//! operations of other threads find every worker outside at the end of a batch.

mod charging;
mod cold;
mod execution;
mod lap;
pub(crate) mod ledger;
mod outcome;
mod place;
mod placement;
pub(crate) mod series;
mod serving;
mod transaction;
mod visit;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::clock::Clock;
use base::random::Prng;
use protocol::{Batch, Reply, ReplyBuffer};
use store::Handle;

use crate::client_record::ClientRecord;
use crate::context::{Context, Pace};
use crate::counters::EngineCounters;
use crate::plan::Plan;
use crate::port::ServerPort;
pub use crate::resolved::{check, resolve, row_of};
use crate::session::Session;
use crate::shared::Shared;
use crate::table::Table;
use crate::transaction::shows_no_data;
use crate::waiting::{Progress, Turn, Waiters};
use lap::Lap;
pub use ledger::Ledger;
pub use outcome::{Next, Outcome, Share};
use place::Place;
pub use series::{Series, SeriesLoop};
use serving::{Names, Serving};
use visit::Visit;

/// Runs the requests of one worker's sessions.
pub struct Engine {
    place: Place,
    store: Handle,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    random: Prng,
    table: &'static Table,
    batch: Batch,
    plan: Plan,
    counters: Arc<EngineCounters>,
    /// Whether the engine serves only keys of hash slots that this node serves.
    checks_slots: bool,
    /// Monotonic time.
    turn_started_ns: u64,
    waiters: Arc<Waiters>,
    /// Keys that clients wait for, to be served when keys locked for long are released.
    unserved: Names,
}

impl Engine {
    /// Returns an engine that runs the commands of `table` over one handle of the store.
    #[must_use]
    pub fn new(
        table: &'static Table,
        store: Handle,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        random: Prng,
    ) -> Self {
        Self {
            place: Place::Alone,
            store,
            shared,
            clock,
            random,
            table,
            batch: Batch::new(),
            plan: Plan::new(),
            counters: Arc::new(EngineCounters::of_rows(table.rows_count())),
            checks_slots: true,
            turn_started_ns: 0,
            waiters: Arc::default(),
            unserved: Names::new(),
        }
    }

    /// Returns this engine with a queue of waiting clients that it shares: `waiters` is the same
    /// for all engines over a store.
    #[must_use]
    pub fn among(self, waiters: Arc<Waiters>) -> Self {
        Self { waiters, ..self }
    }

    /// Returns this engine as that of a worker. It offloads long requests ([`Next::Aside`]): it
    /// completes any request in bounded time, and waits for no key that is locked for long.
    #[must_use]
    pub fn of_worker(self) -> Self {
        Self {
            place: Place::Worker,
            ..self
        }
    }

    /// Returns this engine as the one that runs long requests for [workers](Engine::of_worker), on
    /// its own thread.
    #[must_use]
    pub fn aside(self) -> Self {
        Self {
            place: Place::Aside,
            ..self
        }
    }

    /// Returns this engine for replay of a log. It knows commands by their original names, and does
    /// not check who owns hash slots because it repeats what ran before.
    #[must_use]
    pub fn of_log(self) -> Self {
        Self {
            table: self.table.original(),
            checks_slots: false,
            ..self
        }
    }

    /// Returns the engine's handle of the store.
    pub fn store(&mut self) -> &mut Handle {
        &mut self.store
    }

    /// Returns when the store next removes an expired record of this thread, if ever
    /// ([`Handle::next_expiry_unix_ms`]).
    #[inline]
    #[must_use]
    pub fn next_expiry_unix_ms(&self) -> Option<u64> {
        self.store.next_expiry_unix_ms()
    }

    /// Records that the thread begins a turn now, on the monotonic clock. No request of this turn
    /// can have taken longer than the time since then.
    pub fn begin_turn(&mut self, now_ns: u64) {
        self.turn_started_ns = now_ns;
    }

    /// Returns this engine's counters.
    #[must_use]
    pub fn counters(&self) -> Arc<EngineCounters> {
        Arc::clone(&self.counters)
    }

    /// Forgets a session's transaction if it was not run, and its watched keys.
    pub fn end_transaction(&mut self, session: &mut Session) {
        if session.has_transaction() {
            session.end_transaction(&mut self.store);
        }
    }

    /// Removes a session's registrations elsewhere because its client is gone.
    pub fn close(&mut self, session: &mut Session) {
        session.end_transaction(&mut self.store);
        self.end_wait(session);
        self.shared.observer.monitors.remove(&session.client);
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
        session.was_refused = false;
        self.visit(session, server, output, |visit, batch| {
            let mut outcome = visit.run(input, share, batch);
            if outcome.needed > 0 {
                visit.begin_arrival(input, &mut outcome);
            }
            outcome
        })
    }

    /// Whether the replies of a session's last `requests` requests may contain data. Only a single
    /// request is judged by its command; several always count as showing data.
    #[must_use]
    pub fn may_show_data(&self, session: &Session, requests: usize) -> bool {
        let last = session.client.last_command.load(Ordering::Relaxed);
        let spec = self.table.spec(last);
        let shows_none = session.transaction.is_none() && spec.is_some_and(shows_no_data);
        requests != 1 || !(shows_none || session.was_refused)
    }

    /// Executes requests that the caller composed, at most [`BATCH_MAX`](crate::BATCH_MAX), with
    /// their arguments in `input`. Appends their replies to `output`. Executes all of them, however
    /// long that takes. Returns how many were executed, and [`Next::Read`] if that is all of them.
    pub fn run_batch(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        (batch, input): (&Batch, &[u8]),
        output: &mut ReplyBuffer,
    ) -> (usize, Next) {
        self.visit(session, server, output, |visit, _| {
            visit.run_batch(batch, input)
        })
    }

    /// Enters the store, runs `body`, and updates the session.
    #[inline(always)]
    fn visit<R>(
        &mut self,
        session: &mut Session,
        server: &mut dyn ServerPort,
        output: &mut ReplyBuffer,
        body: impl FnOnce(&mut Visit<'_>, &mut Batch) -> R,
    ) -> R {
        let now = self.clock.moment();
        let now_unix_ms = now.unix_ms;
        session
            .client
            .active_unix_ms
            .store(now_unix_ms, Ordering::Relaxed);
        let touches = !session.client.has_flag(ClientRecord::NO_TOUCH);
        self.store.note_use(touches);
        self.store.set_author(session.client.id);
        self.store.enter();
        if self.store.stubs() > 0 {
            // An unreadable value that another client met does not concern this one.
            store::take_unreadable();
        }
        let output_start = output.len_with_attachments();
        let ledger = ledger(
            &*self.clock,
            &self.counters,
            &self.shared,
            self.turn_started_ns,
        );
        let mut visit = Visit {
            place: self.place,
            may_be_busy: self.place == Place::Aside || self.store.may_be_busy(),
            reads_ahead: false,
            may_be_cold: self.store.stubs() > 0
                || self.shared.settings.demotes_always.load(Ordering::Relaxed),
            reply: Reply::new(output, session.resp),
            reply_start: 0,
            context: Context {
                store: &mut self.store,
                session,
                table: self.table,
                server,
                shared: &self.shared,
                random: &mut self.random,
                now_unix_ms,
                pace: Pace {
                    defers: self.place == Place::Worker,
                    is_aside: self.place == Place::Aside,
                },
                may_block: true,
                turn: Turn::of_newcomer(&self.waiters),
                plan: &mut self.plan,
                ledger,
            },
            ledger,
            lap: Lap::begin(now.ns, output_start),
            looks_at_each: self.shared.looks_at_each(),
            looks_at_writes: self.shared.looks_at_writes(),
            checks_slots: self.checks_slots && self.shared.hash_slots.is_on(),
            arguments_left: 0,
            started_ns: now.ns,
            unserved: &mut self.unserved,
        };
        let outcome = body(&mut visit, &mut self.batch);
        self.store.leave();
        self.store.set_author(0);
        outcome
    }

    /// Retries the requests of clients that wait for keys that changed other than by a command, or
    /// that could not be locked before. To be called after housekeeping of the store, and when keys
    /// that were locked for long are released.
    pub fn serve(&mut self, server: &mut dyn ServerPort) {
        if self.unserved.is_empty() && !self.store.has_served() {
            return;
        }
        let mut keys = std::mem::take(&mut self.unserved);
        keys.extend(self.store.take_served());
        let now_unix_ms = self.clock.now_unix_ms();
        self.store.enter();
        self.store.begin(now_unix_ms);
        let mut serving = Serving {
            place: self.place,
            table: self.table,
            server,
            shared: &self.shared,
            random: &mut self.random,
            plan: &mut self.plan,
            waiters: &self.waiters,
            now_unix_ms,
            author: 0,
            ledger: ledger(
                &*self.clock,
                &self.counters,
                &self.shared,
                self.turn_started_ns,
            ),
            unserved: &mut self.unserved,
        };
        self.store.set_author(0);
        serving.run(&mut self.store, keys);
        self.store.leave();
    }

    /// Ends the wait of a session that timed out or that waited for the log. Returns its reply, or
    /// `None` if its answer is already on the way. `progress` tells how far the log is.
    pub fn give_up(&mut self, session: &mut Session, progress: &dyn Progress) -> Option<Vec<u8>> {
        let waiter = Arc::clone(&session.wait.as_ref()?.waiter);
        if !waiter.claim() {
            return None;
        }
        let reply = waiter.subject.in_vain(progress);
        self.end_answered_wait(session, &reply);
        Some(reply)
    }

    /// Ends the wait of a session with an error. Returns its reply, or `None` if its answer is
    /// already on the way.
    pub fn refuse_wait(&mut self, session: &mut Session, text: &str) -> Option<Vec<u8>> {
        let waiter = Arc::clone(&session.wait.as_ref()?.waiter);
        if !waiter.claim() {
            return None;
        }
        let reply = waiter.subject.refusal(text);
        self.end_answered_wait(session, &reply);
        Some(reply)
    }

    /// Forgets the wait of a session that is answered with `reply`, and counts the request.
    pub fn end_answered_wait(&mut self, session: &mut Session, reply: &[u8]) {
        if let Some(wait) = &session.wait {
            let index = wait.waiter.subject.command;
            // A request that was denied when it was woken did not run.
            if reply.starts_with(b"-NOPERM ") {
                self.counters.count_rejection(index);
            } else {
                self.counters.count_calls(index, 1);
            }
            if let [b'-', text @ ..] = reply {
                if !text.starts_with(b"NOPERM ") {
                    self.counters.count_failure(index);
                }
                self.counters.count_error(text);
            }
        }
        self.end_wait(session);
    }

    /// Forgets the wait of a session because its client is gone.
    pub fn end_wait(&mut self, session: &mut Session) {
        session.wait = None;
        if let Some(waiter) = session.client.set_waiter(None) {
            waiter.claim();
            self.waiters.leave(&mut self.store, &waiter);
        }
    }
}

/// Returns the ledger for requests on this thread.
fn ledger<'a>(
    clock: &'a dyn Clock,
    counters: &'a EngineCounters,
    shared: &'a Shared,
    turn_started_ns: u64,
) -> Ledger<'a> {
    Ledger {
        clock,
        counters,
        observer: &shared.observer,
        turn_started_ns,
    }
}
