//! What a client has queued since MULTI, and the keys that EXEC locks for it.
//!
//! ```text
//!   MULTI ─► queue: requests as they came ─► EXEC: all keys locked, in one order ─► one reply
//!                     │ one is refused                 │ one of them is about the whole keyspace
//!                     ▼                                ▼
//!                  EXECABORT                     nobody else is in the store
//! ```
//!
//! The keys are those that the requests name, in the databases that they will see (SELECT counts for
//! what comes behind it). Where a request reaches keys that its arguments do not tell, the whole store
//! is had alone instead.

use protocol::{OwnedRequest, Request};
use store::{DatabaseId, Handle, Key};

use crate::key_places as places;
use crate::plan::ARGUMENTS_MAX;
use crate::scripts;
use crate::settings::Settings;
use crate::spec::{Begin, CommandSpec, Find, Flags, Group};
use crate::table::{CommandIndex, Table};
use crate::watch::Watches;

/// What a queued request takes besides its bytes, about.
const REQUEST_BYTES: usize = size_of::<Queued>() + 64;

/// A transaction of more commands takes longer than a worker may be away from its other clients.
const COMMANDS_MAX: usize = 1024;

/// What one argument takes besides its bytes.
const ARGUMENT_BYTES: usize = 8;

/// A transaction that was begun.
pub struct Transaction {
    queue: Vec<Queued>,
    /// Nothing but keys is touched.
    is_about_data: bool,
    /// There is a script among them.
    has_scripts: bool,
    arguments_count: usize,
    /// What any of the queued commands does.
    flags: Flags,
    /// A request was refused, so that EXEC will be.
    is_spoilt: bool,
    wire_bytes: usize,
    held_bytes: usize,
}

/// A request that waits for EXEC.
pub(crate) struct Queued {
    request: OwnedRequest,
    pub(crate) index: CommandIndex,
    pub(crate) spec: &'static CommandSpec,
    /// Where its arguments start.
    pub(crate) first: usize,
}

impl Queued {
    pub(crate) fn request(&self) -> Request<'_> {
        self.request.request()
    }
}

/// The keys of a transaction.
pub enum Reach<'t> {
    /// These.
    Keys(Vec<Key<'t>>),
    /// Any.
    Everything,
}

impl Default for Transaction {
    fn default() -> Self {
        Self {
            queue: Vec::new(),
            is_about_data: true,
            has_scripts: false,
            arguments_count: 0,
            flags: Flags::NONE,
            is_spoilt: false,
            wire_bytes: 0,
            held_bytes: 0,
        }
    }
}

impl Transaction {
    /// The requests, oldest first.
    pub(crate) fn queue(&self) -> &[Queued] {
        &self.queue
    }

    /// Whether EXEC will be refused.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.is_spoilt
    }

    /// Has EXEC refused.
    pub(crate) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// Whether one of the commands has all these flags.
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    /// Whether one of the commands may change something.
    pub(crate) fn writes(&self, settings: &Settings) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|queued| may_write(settings, queued.spec, queued.request()))
    }

    /// Whether the commands touch keys and nothing else, so that they may run without their session.
    pub(crate) fn is_about_data(&self) -> bool {
        self.is_about_data
    }

    /// Whether it may come to keys that its requests do not tell, and take long: there are scripts in
    /// it.
    pub(crate) fn has_scripts(&self) -> bool {
        self.has_scripts
    }

    /// Whether there are so many commands or arguments that it takes long.
    pub(crate) fn is_long(&self) -> bool {
        self.queue.len() > COMMANDS_MAX || self.arguments_count > ARGUMENTS_MAX
    }

    /// Bytes of all requests as they came.
    #[must_use]
    pub fn wire_bytes(&self) -> usize {
        self.wire_bytes
    }

    /// Bytes of memory held by the queue.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Adds a request of a command.
    pub fn push(
        &mut self,
        request: Request<'_>,
        (index, spec, first): (CommandIndex, &'static CommandSpec, usize),
    ) {
        self.flags = self.flags.with(spec.flags);
        self.is_about_data &= spec.group.is_data();
        self.has_scripts |= spec.group == Group::Scripting;
        self.arguments_count += request.len();
        self.wire_bytes += request.wire_bytes();
        self.held_bytes += request.wire_bytes() + request.len() * ARGUMENT_BYTES + REQUEST_BYTES;
        self.queue.push(Queued {
            request: OwnedRequest::from(request),
            index,
            spec,
            first,
        });
    }

    /// What the requests reach when they begin in `database`, with what is watched.
    pub fn reach<'t>(
        &'t self,
        table: &Table,
        store: &Handle,
        database: DatabaseId,
        watches: Option<&'t Watches>,
    ) -> Reach<'t> {
        let mut database = database;
        let mut keys: Vec<Key<'t>> = watches.into_iter().flat_map(Watches::keys).collect();
        for queued in &self.queue {
            let (spec, request) = (queued.spec, queued.request());
            if spec.flags.has(Flags::SELECTS_DATABASE) {
                database = database_at(store, &request, 1).unwrap_or(database);
            } else if !add_keys(&mut keys, table, store, database, spec, &request) {
                return Reach::Everything;
            }
        }
        Reach::Keys(keys)
    }
}

/// Whether a request may change something, as far as its row and a script's first line say.
pub(crate) fn may_write(settings: &Settings, spec: &CommandSpec, request: Request<'_>) -> bool {
    spec.flags.has(Flags::WRITE)
        || (spec.flags.has(Flags::MAY_REPLICATE) && !scripts::only_reads(settings, spec, request))
}

/// The keys that a request comes to when it begins in `database`; `None` when its arguments do not tell
/// them all.
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

/// Adds the keys of a request; `false` when its arguments do not tell them all.
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

/// The key of a request that touches this one and no other, when its row tells that by itself.
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

/// Whether a command that names no key may nevertheless come to some.
pub(crate) fn may_reach_any_key(spec: &CommandSpec) -> bool {
    let any = [Flags::WRITE, Flags::READONLY, Flags::REACHES_ANY_KEY];
    any.iter().any(|flag| spec.flags.has(*flag))
}

/// The database whose number is an argument, if there is one.
fn database_at(store: &Handle, request: &Request<'_>, at: usize) -> Option<DatabaseId> {
    let number = base::number::parse_i64(request.arg(at)?)?;
    let database = DatabaseId::try_from(number).ok()?;
    (database < store.store().databases()).then_some(database)
}
