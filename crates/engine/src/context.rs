//! What a handler works with.

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

/// The surroundings of one running command.
pub struct Context<'a> {
    /// The keyspace.
    pub store: &'a mut Handle,
    /// Who sent it.
    pub session: &'a mut Session,
    /// The server around it.
    pub server: &'a mut dyn ServerPort,
    /// The commands there are.
    pub table: &'static Table,
    /// What the engines of a server have in common.
    pub shared: &'a Shared,
    /// Randomness; drawn before the store is called, so that effects are deterministic.
    pub random: &'a mut Prng,
    /// Time of this command, in milliseconds since 1970 UTC.
    pub now_unix_ms: u64,
    /// How much it may do here.
    pub pace: Pace,
    /// Whether it may let its client wait; not where it is one step of several.
    pub may_block: bool,
    /// Whose turn it is at keys that clients wait for.
    pub turn: Turn<'a>,
    /// What is known about the batch that the command is part of.
    pub(crate) plan: &'a mut Plan,
    /// Time, and where is counted what runs inside of the command.
    pub ledger: Ledger<'a>,
}

/// How much a command may do where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Whether what takes long is refused, to be run aside.
    pub defers: bool,
    /// Whether it runs aside.
    pub is_aside: bool,
}

/// A worker does so much for one command before its other clients have their turn: as many look-ups
/// of an element, about a quarter of a microsecond each.
const LOOKUPS_MAX: usize = 4096;

/// Elements that one pass goes by, or writes to a reply, in the time of one look-up.
const STEPS_PER_LOOKUP: usize = 8;

impl Pace {
    /// To be asked before anything was done: whether so many elements may be looked up, added or
    /// removed here.
    ///
    /// # Errors
    /// [`CommandError::Aside`] when that takes too long here.
    #[inline]
    pub fn admit(self, lookups: usize) -> Result<(), CommandError> {
        if self.defers && lookups > LOOKUPS_MAX {
            return Err(CommandError::Aside);
        }
        Ok(())
    }

    /// The same of what waits for a disk.
    ///
    /// # Errors
    /// As [`Pace::admit`].
    pub fn admit_waiting(self) -> Result<(), CommandError> {
        self.admit(usize::MAX)
    }

    /// The same of elements that are gone by one after the other.
    ///
    /// # Errors
    /// As [`Pace::admit`].
    #[inline]
    pub fn admit_steps(self, steps: usize) -> Result<(), CommandError> {
        self.admit(steps / STEPS_PER_LOOKUP)
    }
}

impl Context<'_> {
    /// A key of the session's database.
    #[inline]
    #[must_use]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        let hash = match self.plan.hash_of(bytes) {
            Some(hash) => hash,
            None => self.store.hash(bytes),
        };
        Key::with_hash(bytes, hash, self.session.database)
    }

    /// Keys of the session's database, whose records are on their way into the cache, as far as
    /// [`KeyList::look_ahead`] says.
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

    /// The database with this number.
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

    /// The same for long (see [`Handle::locked_long`]).
    pub fn locked_long<R>(
        &mut self,
        keys: &[Key<'_>],
        body: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let (store, mut rest) = self.split();
        store.locked_long(keys, |store| body(&mut rest.with(store)))
    }

    /// Asks the server for something that waits, outside of the store, so that others may have it for
    /// themselves meanwhile.
    pub fn outside<R>(&mut self, ask: impl FnOnce(&mut dyn ServerPort) -> R) -> R {
        self.store.leave();
        let answer = ask(self.server);
        self.store.enter();
        answer
    }

    /// Beyond how many bytes the command's reply closes its client instead of being sent, where it is
    /// known that it will: a script goes on with what it calls, and subscribers have a limit of their own.
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

    /// Forgets the session's transaction, and what was watched for it.
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
