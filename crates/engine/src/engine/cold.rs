//! Requests wait until the values of their keys that lie out of memory have been read.
//!
//! The check runs before a request, on the keys that its row names: a request that has to wait has
//! done nothing yet. Plain requests whose values are in memory run like those of a server without a
//! tier. A look at the index without a lock decides that.
//!
//! Some values are not known in advance: a script's undeclared keys, SORT's patterns, a key that
//! was demoted in between. They are read where they are needed, with the key locked: correct, but
//! slower.

use std::sync::atomic::Ordering;

use protocol::{Batch, Request, Run};
use store::{COLD_UNIT_BYTES, Key, Locator};

use super::execution::Left;
use super::place::Place;
use super::visit::Visit;
use crate::batch::BATCH_MAX;
use crate::context::Context;
use crate::flags::Flags;
use crate::key_places as places;
use crate::plan::PlannedRun;
use crate::port::ValuesAre;
use crate::resolved::resolve;
use crate::spec::InTransaction;
use crate::table::Found;
use crate::transaction::Reach;

/// Maximum number of times that a request waits for values. If it still finds others cold, it reads
/// them where it needs them.
const ROUNDS_MAX: u8 = 8;

/// While a request waits, at most this many later requests are examined, and at most this many
/// bytes of their values are read.
const AHEAD_REQUESTS_MAX: usize = 256;
const AHEAD_BYTES_MAX: usize = 256 << 10;

impl Visit<'_> {
    /// Whether the values of all keys of a run are in memory, as far as a look without a lock
    /// tells.
    pub(super) fn has_values(&self, run: &Run<'_>, planned: &PlannedRun, found: &Found) -> bool {
        let Context {
            shared,
            store,
            session,
            plan,
            ..
        } = &self.context;
        if shared.settings.demotes_always.load(Ordering::Relaxed) {
            return false;
        }
        let needs_none = found.spec.keys.is_empty()
            || !found.spec.needs_values
            || run.arguments_count == usize::from(found.sets_with);
        if needs_none {
            return true;
        }
        // The plan has only the keys of the first key position, and none without a fixed position.
        let keys_count = match found.spec.keys {
            [_] => run.requests_count * planned.keys_each,
            _ => 0,
        };
        let keys = plan.keys_of(planned).get(..keys_count);
        let ahead = store.lookahead(session.database);
        keys_count > 0
            && keys.is_some_and(|keys| keys.iter().all(|key| ahead.is_in_memory(key.hash())))
    }

    /// Runs plain requests for which [`Visit::has_values`] returned true. A value that has left
    /// memory since is read where it is needed.
    #[inline(never)]
    pub(super) fn execute_in_memory(
        &mut self,
        (first, run): (usize, Run<'_>),
        planned: &PlannedRun,
        found: &'static Found,
        reply_bytes_end: usize,
    ) -> Option<Left> {
        let start = self.reply.mark();
        let left = self.execute((first, run.clone()), planned, found, reply_bytes_end);
        // A write that needed such a value has replied with the error itself, and changed nothing.
        if store::take_unreadable() && !found.spec.flags.has(Flags::WRITE) {
            // Some reply says that a key does not exist. These requests are counted twice.
            self.reply.rollback(start);
            return self.execute_with_care(run, planned, reply_bytes_end);
        }
        left
    }

    /// Whether a request has to wait for values out of memory. If so, the read of these values is
    /// under way.
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
        // The keys of queued requests borrow from the session, which is needed mutably below.
        let transaction = self.context.session.transaction.take();
        let waits = match &transaction {
            Some(queued) if spec.in_transaction == InTransaction::Runs => {
                let context = &self.context;
                let database = context.session.database;
                match queued.reach(context.table, context.store, database, None) {
                    Reach::Keys(keys) => self.wait_for(&keys),
                    Reach::Everything => ValuesAre::Here,
                }
            }
            Some(_) => ValuesAre::Here,
            None => {
                let keys = self.context.keys_with_values(spec, request);
                self.wait_for(&keys)
            }
        };
        self.context.session.transaction = transaction;
        // A request that was woken for another reason has made no progress.
        self.context.session.cold_rounds = match waits {
            ValuesAre::Here => 0,
            ValuesAre::Coming => rounds,
            ValuesAre::Wanted => rounds + 1,
        };
        self.reads_ahead = waits == ValuesAre::Wanted;
        waits != ValuesAre::Here
    }

    /// Moves the values of all keys of a request out of memory, for servers that do so after every
    /// command.
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
            // A value that stays is tried again after the next command.
            let _stays = context.server.demote(context.store, &key);
        }
    }

    /// Returns whether values of some keys must be waited for. If not, marks them as used. A value
    /// that was already used since the last demotion pass comes back into memory.
    fn wait_for(&mut self, keys: &[Key<'_>]) -> ValuesAre {
        let store = &mut *self.context.store;
        let cold: Vec<_> = keys
            .iter()
            .filter_map(|key| Some((*key, store.cold_key(key)?)))
            .collect();
        if cold.is_empty() {
            return ValuesAre::Here;
        }
        let wanted = cold
            .iter()
            .map(|(key, found)| (key.bytes().to_vec(), found.locator));
        let values = self.context.server.have_values(wanted.collect());
        if values != ValuesAre::Here {
            return values;
        }
        let promotes = self.context.server.promotes();
        for (key, _) in &cold {
            let store = &mut *self.context.store;
            let was_used = store.use_cold_key(key).is_some_and(|found| found.is_used);
            if promotes.applies(was_used) {
                // If there is no memory for it, it is read from its place in the tier.
                let _stays = store.modify(key, |entry| entry.promote());
            }
        }
        // A request that needs an unreadable value meets it again; a SET in a transaction does not.
        store::take_unreadable();
        ValuesAre::Here
    }

    /// Starts to read the values of requests behind one that waits, so that a single client that
    /// sends many requests keeps the device busy. A value that is not read in time is requested
    /// again.
    #[cold]
    pub(super) fn read_ahead(&mut self, input: &[u8]) {
        self.reads_ahead = false;
        if self.context.session.transaction.is_some() {
            return;
        }
        let (mut rest, mut batch) = (input, Batch::new());
        let (mut wanted, mut bytes) = (Vec::new(), 0);
        for _ in 0..AHEAD_REQUESTS_MAX / BATCH_MAX {
            let decoded = self.decode(rest, BATCH_MAX, &mut batch);
            self.context.session.decoder.reset();
            for request in batch.runs(rest).flat_map(|run| run.requests) {
                for (key, locator) in self.cold_values_of(request) {
                    let units = usize::try_from(locator.units()).unwrap_or(usize::MAX);
                    bytes += units.saturating_mul(COLD_UNIT_BYTES);
                    wanted.push((key, locator));
                }
            }
            let is_all = decoded.error.is_some() || batch.len() < BATCH_MAX;
            if is_all || bytes >= AHEAD_BYTES_MAX {
                break;
            }
            rest = &rest[decoded.consumed..];
        }
        if !wanted.is_empty() {
            self.context.server.read_ahead(wanted);
        }
    }

    /// Returns the cold values that a request needs.
    fn cold_values_of(&mut self, request: Request<'_>) -> Vec<(Vec<u8>, Locator)> {
        let table = self.context.table;
        let found = request.arg(0).and_then(|name| table.find(name));
        let Some(Ok((_, spec, _))) = found.map(|found| resolve(table, found, request)) else {
            return Vec::new();
        };
        let keys = self.context.keys_with_values(spec, request);
        let cold = keys.iter().filter_map(|key| {
            let found = self.context.store.cold_key(key)?;
            Some((key.bytes().to_vec(), found.locator))
        });
        cold.collect()
    }
}
