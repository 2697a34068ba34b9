//! The context that a handler works in.

mod needed_values;
mod tracked;
mod waits;

use std::sync::atomic::Ordering;

use base::random::Prng;
use store::{DatabaseId, Handle, Key};

use crate::client_record::ClientRecord;
use crate::engine::ledger::Ledger;
use crate::error::CommandError;
use crate::keys::KeyList;
use crate::plan::Plan;
use crate::port::ServerPort;
use crate::session::Session;
use crate::shared::Shared;
use crate::table::Table;
use crate::waiting::Turn;

/// The context of one running command.
pub struct Context<'a> {
    /// The keyspace.
    pub store: &'a mut Handle,
    /// The session of the client that sent the command.
    pub session: &'a mut Session,
    /// The server that the engine runs in.
    pub server: &'a mut dyn ServerPort,
    /// The command table.
    pub table: &'static Table,
    /// State that all engines of a server share.
    pub shared: &'a Shared,
    /// Random numbers. A handler draws them before it calls the store, so that effects are
    /// deterministic.
    pub random: &'a mut Prng,
    /// Time of this command, in milliseconds since 1970 UTC.
    pub now_unix_ms: u64,
    /// How much the command may do on this thread.
    pub pace: Pace,
    /// Whether the command may let its client wait. It may not if it is one step of several.
    pub may_block: bool,
    /// Whose turn it is among the clients that wait for keys.
    pub turn: Turn<'a>,
    /// What is known about the batch that contains the command.
    pub(crate) plan: &'a mut Plan,
    /// The clock, and the counters for commands that run inside this command.
    pub ledger: Ledger<'a>,
}

/// How much a command may do on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Whether a long command is refused here, so that it is offloaded.
    pub defers: bool,
    /// Whether the command runs on the offload thread.
    pub is_aside: bool,
}

/// Maximum work that a worker does for one command before it serves other clients, in look-ups of
/// an element. One takes about a quarter of a microsecond.
const LOOKUPS_MAX: usize = 4096;

/// Number of elements that a pass visits, or writes to a reply, in the time of one look-up.
const STEPS_PER_LOOKUP: usize = 8;

impl Pace {
    /// Checks whether this many elements may be looked up, added or removed on this thread. The
    /// handler asks before it changes anything.
    ///
    /// # Errors
    /// [`CommandError::Aside`] if that takes too long here.
    #[inline]
    pub fn admit(self, lookups: usize) -> Result<(), CommandError> {
        if self.defers && lookups > LOOKUPS_MAX {
            return Err(CommandError::Aside);
        }
        Ok(())
    }

    /// Does the same for work that waits for a disk.
    ///
    /// # Errors
    /// The errors of [`Pace::admit`].
    pub fn admit_waiting(self) -> Result<(), CommandError> {
        self.admit(usize::MAX)
    }

    /// Does the same for elements that are visited one after the other.
    ///
    /// # Errors
    /// The errors of [`Pace::admit`].
    #[inline]
    pub fn admit_steps(self, steps: usize) -> Result<(), CommandError> {
        self.admit(steps / STEPS_PER_LOOKUP)
    }
}

impl Context<'_> {
    /// Returns a key of the session's database.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        let hash = match self.plan.hash_of(bytes) {
            Some(hash) => hash,
            None => self.store.hash(bytes),
        };
        Key::with_hash(bytes, hash, self.session.database)
    }

    /// Returns keys of the session's database, and prefetches their records as described at
    /// [`KeyList::look_ahead`].
    pub fn keys<'k>(&self, names: impl Iterator<Item = &'k [u8]>) -> KeyList<'k> {
        let database = self.session.database;
        let ahead = self.store.lookahead(database);
        let mut planned = 0;
        let keys = names.map(|bytes| {
            let hash = match self.plan.hash_of(bytes) {
                Some(hash) => {
                    planned += 1;
                    hash
                }
                None => {
                    let hash = ahead.hash(bytes);
                    ahead.bucket(hash);
                    hash
                }
            };
            Key::with_hash(bytes, hash, database)
        });
        let keys: KeyList<'k> = keys.collect();
        keys.planned(planned, self.store)
    }

    /// Returns the database with this number.
    ///
    /// # Errors
    /// "DB index is out of range".
    pub fn database(&self, index: i64) -> Result<DatabaseId, CommandError> {
        DatabaseId::try_from(index)
            .ok()
            .filter(|id| *id < self.store.store().databases())
            .ok_or(CommandError::fixed("ERR DB index is out of range"))
    }

    /// Runs `body` with all of `keys` locked (see [`Handle::locked`]).
    pub fn locked<R>(&mut self, keys: &[Key<'_>], body: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (store, mut rest) = self.split();
        store.locked(keys, |store| body(&mut rest.with(store)))
    }

    /// Does the same, with the keys locked for long (see [`Handle::locked_long`]).
    pub fn locked_long<R>(
        &mut self,
        keys: &[Key<'_>],
        body: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let (store, mut rest) = self.split();
        store.locked_long(keys, |store| body(&mut rest.with(store)))
    }

    /// Asks the server for something that waits. The thread leaves the store meanwhile, so that
    /// other threads may have it exclusively.
    pub fn outside<R>(&mut self, ask: impl FnOnce(&mut dyn ServerPort) -> R) -> R {
        self.store.leave();
        let answer = ask(self.server);
        self.store.enter();
        answer
    }

    /// Returns the reply size in bytes above which the client is closed instead of receiving the
    /// reply, or `None` if no such limit is known. A script continues with the replies of its
    /// calls, and subscribers have a limit of their own.
    pub fn replies_bytes_max(&self) -> Option<u64> {
        let subscribes = ClientRecord::PUBSUB | ClientRecord::MONITOR;
        if !self.may_block || self.session.client.has_flag(subscribes) {
            return None;
        }
        let bytes_max = self
            .shared
            .settings
            .replies_bytes_max
            .load(Ordering::Relaxed);
        (bytes_max > 0).then_some(bytes_max)
    }

    /// Runs `body` while no other thread is in the store (see [`Handle::exclusive`]).
    pub fn exclusive<R>(&mut self, body: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (store, mut rest) = self.split();
        store.exclusive(|store| body(&mut rest.with(store)))
    }

    /// Forgets the session's transaction and its watched keys.
    pub fn end_transaction(&mut self) {
        self.session.end_transaction(self.store);
    }

    fn split(&mut self) -> (&mut Handle, Surroundings<'_>) {
        let rest = Surroundings {
            session: self.session,
            server: self.server,
            table: self.table,
            shared: self.shared,
            random: self.random,
            now_unix_ms: self.now_unix_ms,
            pace: self.pace,
            may_block: self.may_block,
            turn: self.turn,
            plan: self.plan,
            ledger: self.ledger,
        };
        (self.store, rest)
    }
}

/// A context without its keyspace.
struct Surroundings<'a> {
    session: &'a mut Session,
    server: &'a mut dyn ServerPort,
    table: &'static Table,
    shared: &'a Shared,
    random: &'a mut Prng,
    now_unix_ms: u64,
    pace: Pace,
    may_block: bool,
    turn: Turn<'a>,
    plan: &'a mut Plan,
    ledger: Ledger<'a>,
}

impl Surroundings<'_> {
    fn with<'s>(&'s mut self, store: &'s mut Handle) -> Context<'s> {
        Context {
            store,
            session: self.session,
            server: self.server,
            table: self.table,
            shared: self.shared,
            random: self.random,
            now_unix_ms: self.now_unix_ms,
            pace: self.pace,
            may_block: self.may_block,
            turn: self.turn,
            plan: self.plan,
            ledger: self.ledger,
        }
    }
}
