//! What a handler works with.

use base::random::Prng;
use store::{DatabaseId, Handle, Key};

use crate::error::CommandError;
use crate::plan::Plan;
use crate::port::ServerPort;
use crate::session::Session;
use crate::settings::Settings;

/// The surroundings of one running command.
pub struct Context<'a> {
    /// The keyspace.
    pub store: &'a mut Handle,
    /// Who sent it.
    pub session: &'a mut Session,
    /// The server around it.
    pub server: &'a mut dyn ServerPort,
    /// Limits that commands check.
    pub settings: &'a Settings,
    /// Randomness; drawn before the store is called, so that effects are deterministic.
    pub random: &'a mut Prng,
    /// Time of this command, in milliseconds since 1970 UTC.
    pub now_unix_ms: u64,
    /// What is known about the batch that the command is part of.
    pub(crate) plan: &'a mut Plan,
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
        let Self {
            store,
            session,
            server,
            settings,
            random,
            now_unix_ms,
            plan,
        } = self;
        store.locked(keys, |store| {
            body(&mut Context {
                store,
                session,
                server: *server,
                settings,
                random,
                now_unix_ms: *now_unix_ms,
                plan,
            })
        })
    }
}
