//! In cluster mode: builds the slot query of a request from the key specifications of its command's
//! row.
//!
//! Nothing that rows are made of uses this module, so it adds nothing to the cycle of rows and
//! contexts.

use protocol::Request;

use crate::client_record::ClientRecord;
use crate::error::{CommandError, CommandResult};
use crate::flags::{Flags, InTransaction, KeyAccess};
use crate::hash_slots::{Elsewhere, HashSlots, Query, Routes};
use crate::key_places as places;
use crate::session::Session;
use crate::spec::{Begin, CommandSpec, Find};
use crate::table::Table;
use crate::waiting::Waiting;

/// Returns why this node no longer serves a waiting request, or `None` if it does.
#[must_use]
pub fn elsewhere(waiting: &Waiting, table: &Table, routes: &Routes) -> Option<Elsewhere> {
    let spec = table.spec(waiting.command)?;
    let mut query = Query {
        reads_replicas: waiting.client.has_flag(ClientRecord::READS_REPLICAS),
        ..Query::default()
    };
    add_keys(&mut query, routes, table, spec, waiting.request.request());
    query.judge(routes).err()
}

/// Whether a waiting request may not run now, or not here, because its slot is leaving or gone.
#[must_use]
pub(crate) fn is_withheld(waiting: &Waiting, table: &Table, routes: &Routes) -> bool {
    let Some(spec) = table.spec(waiting.command) else {
        return false;
    };
    let mut query = Query::default();
    add_keys(&mut query, routes, table, spec, waiting.request.request());
    query.waits(routes) || elsewhere(waiting, table, routes).is_some()
}

/// Returns the slot of all keys of a waiting request, or `None` if there is no single one.
#[must_use]
pub(crate) fn only_slot(waiting: &Waiting, table: &Table, routes: &Routes) -> Option<u16> {
    let mut query = Query::default();
    let spec = table.spec(waiting.command)?;
    add_keys(&mut query, routes, table, spec, waiting.request.request());
    query.only_slot()
}

/// Returns a query for a client, without any key yet.
pub(crate) fn query_of(session: &Session, routes: &Routes) -> Query {
    let local = session.client.local_address.rsplit_once(':');
    let port = local.and_then(|(_, port)| port.parse::<u16>().ok());
    Query {
        reads_replicas: session.client.has_flag(ClientRecord::READS_REPLICAS),
        is_encrypted: routes.tls_port != 0 && port == Some(routes.tls_port),
        ..Query::default()
    }
}

/// Checks whether a script that declares itself as writing may run here. A client that reads from
/// replicas is redirected to the primary, as with any command that writes.
///
/// # Errors
/// Where else its keys are served.
pub fn pass_writing_script(
    session: &Session,
    hash_slots: &HashSlots,
    keys: &[&[u8]],
) -> CommandResult {
    let reads_replicas = session.client.has_flag(ClientRecord::READS_REPLICAS);
    if !reads_replicas || session.is_of_primary || !hash_slots.is_on() {
        return Ok(());
    }
    let routes = hash_slots.routes();
    let mut query = query_of(session, &routes);
    query.is_write = true;
    for key in keys {
        query.add(&routes, key);
    }
    query
        .judge(&routes)
        .map_err(|elsewhere| CommandError::Elsewhere(Box::new(elsewhere)))
}

/// The owner of a request of a forwarding client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This node: the engine runs the request, or refuses it.
    Own,
    /// The primary with this number, which owns the request's slot.
    Other {
        /// The slot.
        slot: u16,
        /// Index in the endpoints of the routes.
        owner: u16,
    },
    /// No node at present.
    Nobodys {
        /// The slot.
        slot: u16,
    },
    /// The keys are in several slots.
    Several,
}

/// Returns the query for a request, or for the transaction that it ends.
pub(crate) fn query_about(
    session: &Session,
    routes: &Routes,
    table: &Table,
    spec: &CommandSpec,
    request: Request<'_>,
) -> Query {
    let mut query = query_of(session, routes);
    match &session.transaction {
        Some(transaction) if spec.in_transaction == InTransaction::Runs => {
            for queued in transaction.queue() {
                if let Some(spec) = table.spec(queued.index) {
                    add_keys(&mut query, routes, table, spec, queued.request());
                }
            }
        }
        _ => add_keys(&mut query, routes, table, spec, request),
    }
    query
}

/// Returns the owner of a request, as far as its arguments tell. For EXEC, the queued requests
/// decide.
#[must_use]
pub fn whose(
    session: &Session,
    routes: &Routes,
    table: &Table,
    spec: &CommandSpec,
    request: Request<'_>,
) -> Whose {
    let query = query_about(session, routes, table, spec, request);
    match (query.judge(routes), query.slot) {
        (Ok(()), _) | (_, None) => Whose::Own,
        (Err(Elsewhere::CrossSlot), _) => Whose::Several,
        (Err(Elsewhere::Moved { .. }), Some(slot)) => {
            routes
                .owner(slot)
                .map_or(Whose::Nobodys { slot }, |owner| Whose::Other {
                    slot,
                    owner,
                })
        }
        (Err(_), Some(slot)) => Whose::Nobodys { slot },
    }
}

/// Adds the keys and shard channels of a request, as far as its arguments tell.
pub(crate) fn add_keys(
    query: &mut Query,
    routes: &Routes,
    table: &Table,
    spec: &CommandSpec,
    request: Request<'_>,
) {
    query.is_write |= spec.flags.has(Flags::WRITE);
    if spec.keys.is_empty() {
        return;
    }
    let is_about_channels = spec.flags.has(Flags::PUBSUB);
    query.is_about_channels |= is_about_channels;
    if let [one] = spec.keys
        && let (Begin::Index(at), Find::Range { last: 0, .. }) = (one.begin, one.find)
        && spec.keys_of.is_none()
        && !one.access.has(KeyAccess::NOT_KEY)
    {
        // Most requests have one key at a fixed position.
        if let Some(name) = request.arg(usize::from(at)) {
            query.add(routes, name);
        }
        return;
    }
    for (at, access) in places::of(table, spec, &request).unwrap_or_default() {
        if (is_about_channels || !access.has(KeyAccess::NOT_KEY))
            && let Some(name) = request.arg(at)
        {
            query.add(routes, name);
        }
    }
}
