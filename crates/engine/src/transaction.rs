//! What a client has queued since MULTI, and the keys that EXEC locks for it.
//!
//! ```text
//!   MULTI ─► queue: requests as they came ─► EXEC: all keys locked, in one order ─► one reply
//!                     │ one is refused                 │ one of them is about the whole keyspace
//!                     ▼                                ▼
//!                  EXECABORT                     nobody else is in the store
//! ```
//!
//! The keys are those that the requests name, in the databases that they will see (SELECT applies
//! to the requests after it). If a request reaches keys that its arguments do not name, EXEC takes
//! the whole store exclusively instead.

use protocol::Request;
use store::{DatabaseId, Handle, Key};

use crate::command_index::CommandIndex;
use crate::key_places as places;
use crate::queued::{QueuedRow, Transaction};
use crate::scripts;
use crate::scripts::Scripts;
use crate::spec::{Begin, CommandSpec, Find, Flags, Group, InTransaction};
use crate::table::Table;
use crate::watch::Watches;

/// The keys that a transaction reaches.
pub enum Reach<'t> {
    /// These.
    Keys(Vec<Key<'t>>),
    /// Any.
    Everything,
}

impl QueuedRow {
    /// Returns the facts about a row whose request has its arguments from `first` on.
    #[must_use]
    pub fn of(index: CommandIndex, spec: &CommandSpec, first: usize) -> Self {
        Self {
            index,
            first,
            flags: spec.flags,
            is_about_data: spec.group.is_data(),
            is_about_cluster: spec.group == Group::Cluster,
            is_script: spec.group == Group::Scripting,
        }
    }
}

impl Transaction {
    /// Whether one of the commands may change data.
    pub(crate) fn writes(&self, table: &Table, scripts: &Scripts) -> bool {
        let mut queue = self.queue().iter();
        queue.any(|queued| {
            let spec = table.spec(queued.index);
            spec.is_some_and(|spec| may_write(scripts, spec, queued.request()))
        })
    }

    /// Returns what the requests reach if they begin in `database`, together with the watched keys.
    pub fn reach<'t>(
        &'t self,
        table: &Table,
        store: &Handle,
        database: DatabaseId,
        watches: Option<&'t Watches>,
    ) -> Reach<'t> {
        let mut database = database;
        let mut keys: Vec<Key<'t>> = watches.into_iter().flat_map(Watches::keys).collect();
        for queued in self.queue() {
            let Some(spec) = table.spec(queued.index) else {
                return Reach::Everything;
            };
            let request = queued.request();
            if spec.flags.has(Flags::SELECTS_DATABASE) {
                database = database_at(store, &request, 1).unwrap_or(database);
            } else if !add_keys(&mut keys, table, store, database, spec, &request) {
                return Reach::Everything;
            }
        }
        Reach::Keys(keys)
    }
}

/// Whether a request may change data, as far as its row and a script's first line tell.
pub(crate) fn may_write(scripts: &Scripts, spec: &CommandSpec, request: Request<'_>) -> bool {
    spec.flags.has(Flags::WRITE)
        || (spec.flags.has(Flags::MAY_REPLICATE) && !scripts::only_reads(scripts, spec, request))
}

/// Returns the keys that a request reaches if it begins in `database`, or `None` if its arguments
/// do not name all of them.
pub fn keys_reached<'t>(
    table: &Table,
    store: &Handle,
    database: DatabaseId,
    spec: &CommandSpec,
    request: &Request<'t>,
) -> Option<Vec<Key<'t>>> {
    let mut keys = Vec::new();
    add_keys(&mut keys, table, store, database, spec, request).then_some(keys)
}

/// Adds the keys of a request. Returns `false` if its arguments do not name all of them.
pub(crate) fn add_keys<'t>(
    keys: &mut Vec<Key<'t>>,
    table: &Table,
    store: &Handle,
    database: DatabaseId,
    spec: &CommandSpec,
    request: &Request<'t>,
) -> bool {
    if spec.keys.is_empty() {
        return !may_reach_any_key(spec);
    }
    if spec.looks_up.is_some_and(|looks_up| looks_up(request)) {
        return false;
    }
    let Some(found) = places::of(table, spec, request) else {
        return false;
    };
    let named = found.iter().filter_map(|(at, _)| request.arg(*at));
    keys.extend(named.map(|name| store.key(database, name)));
    let elsewhere = spec.other_databases.map(|of| of(request));
    let elsewhere = elsewhere.unwrap_or_default().into_iter();
    keys.extend(elsewhere.filter_map(|(name_at, database_at)| {
        let database = self::database_at(store, request, database_at)?;
        Some(store.key(database, request.arg(name_at)?))
    }));
    true
}

/// Returns the only key that a request touches, if its row alone determines it.
pub(crate) fn only_key<'t>(
    store: &Handle,
    database: DatabaseId,
    spec: &CommandSpec,
    request: &Request<'t>,
) -> Option<Key<'t>> {
    let [keys] = spec.keys else {
        return None;
    };
    let is_one = matches!(keys.find, Find::Range { last: 0, .. }) && spec.keys_of.is_none();
    if !is_one || spec.other_databases.is_some() || spec.looks_up.is_some() {
        return None;
    }
    match keys.begin {
        Begin::Index(at) => Some(store.key(database, request.arg(usize::from(at))?)),
        _ => None,
    }
}

/// Whether a command without key arguments may still reach keys.
pub(crate) fn may_reach_any_key(spec: &CommandSpec) -> bool {
    let any = [Flags::WRITE, Flags::READONLY, Flags::REACHES_ANY_KEY];
    any.iter().any(|flag| spec.flags.has(*flag))
}

/// Whether the reply of a command can never contain data, whatever its arguments: INFO, PING.
pub(crate) fn shows_no_data(spec: &CommandSpec) -> bool {
    let runs_others = spec.group == Group::Scripting || spec.in_transaction == InTransaction::Runs;
    let may_wait = spec.flags.has(Flags::BLOCKING);
    spec.keys.is_empty() && !runs_others && !may_wait && !may_reach_any_key(spec)
}

/// Returns the database whose number is an argument, if there is one.
fn database_at(store: &Handle, request: &Request<'_>, at: usize) -> Option<DatabaseId> {
    let number = base::number::parse_i64(request.arg(at)?)?;
    let database = DatabaseId::try_from(number).ok()?;
    (database < store.store().databases()).then_some(database)
}
