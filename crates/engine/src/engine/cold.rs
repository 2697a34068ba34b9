//! Requests whose keys' values lie out of memory wait until these have been read, and run then.
//!
//! Asked before a request runs, by the keys that its row names: a request that has to wait has done nothing yet.
//! What cannot be told before (a script's undeclared keys, SORT's patterns, a key that was demoted in between) is
//! read where it is needed, with the key held: right, and slower.

use protocol::Request;
use store::Key;

use super::place::Place;
use super::visit::Visit;
use crate::key_places as places;
use crate::resolved::resolve;
use crate::spec::InTransaction;
use crate::table::Found;
use crate::transaction::Reach;

/// A request that was given its values so often and finds others cold each time has them read where it needs them.
const ROUNDS_MAX: u8 = 8;

impl Visit<'_> {
    /// Whether a request has to wait for values that lie out of memory, which are being read then.
    #[cold]
    pub(super) fn waits_for_values(
        &mut self,
        command: Option<&Found>,
        request: Request<'_>,
    ) -> bool {
        let rounds = self.context.session.cold_rounds;
        self.context.session.cold_rounds = 0;
        let may_wait = matches!(self.place, Place::Worker | Place::Alone);
        if !may_wait || rounds >= ROUNDS_MAX {
            return false;
        }
        let resolved = command.map(|found| resolve(self.context.table, found, request));
        let Some(Ok((index, spec, _))) = resolved else {
            return false;
        };
        if self.check((index, spec), request).is_err() {
            return false;
        }
        // The keys of what is queued live in the session, which is asked for more below.
        let transaction = self.context.session.transaction.take();
        let waits = match &transaction {
            Some(queued) if spec.in_transaction == InTransaction::Runs => {
                let context = &self.context;
                let database = context.session.database;
                match queued.reach(context.table, context.store, database, None) {
                    Reach::Keys(keys) => self.wait_for(&keys),
                    Reach::Everything => false,
                }
            }
            Some(_) => false,
            None => {
                let keys = self.context.keys_with_values(spec, request);
                self.wait_for(&keys)
            }
        };
        self.context.session.transaction = transaction;
        if waits {
            self.context.session.cold_rounds = rounds + 1;
        }
        waits
    }

    /// Moves the values of all keys of a request out of memory, where that is done after every command.
    #[cold]
    pub(super) fn demote_keys(&mut self, command: Option<&Found>, request: Request<'_>) {
        let resolved = command.map(|found| resolve(self.context.table, found, request));
        let Some(Ok((_, spec, _))) = resolved else {
            return;
        };
        let database = self.context.session.database;
        let found = places::of(self.context.table, spec, &request).unwrap_or_default();
        for (at, _) in found {
            let Some(name) = request.arg(at) else {
                continue;
            };
            let context = &mut self.context;
            let key = context.store.key(database, name);
            // One that stays is tried again after the next command.
            let _stays = context.server.demote(context.store, &key);
        }
    }

    /// Whether values of some keys have to be waited for. If none has, notes that they are used; what was used
    /// before, since the hand of demotions came by, comes back into memory.
    fn wait_for(&mut self, keys: &[Key<'_>]) -> bool {
        let store = &mut *self.context.store;
        let cold: Vec<_> = keys
            .iter()
            .filter_map(|key| Some((*key, store.cold_key(key)?)))
            .collect();
        if cold.is_empty() {
            return false;
        }
        let wanted = cold
            .iter()
            .map(|(key, found)| (key.bytes().to_vec(), found.locator));
        if !self.context.server.have_values(wanted.collect()) {
            return true;
        }
        let promotes = self.context.server.promotes();
        for (key, _) in &cold {
            let store = &mut *self.context.store;
            let was_used = store.use_cold_key(key).is_some_and(|found| found.is_used);
            if promotes.applies(was_used) {
                // Where there is no memory for it, it is read from where it is.
                let _stays = store.modify(key, |entry| entry.promote());
            }
        }
        // Whoever needs one that cannot be read meets it again, and a SET in a transaction does not.
        store::take_unreadable();
        false
    }
}
