//! In cluster mode: whether the keys of requests are of hash slots that are served here.

use base::hash_slot;
use protocol::{Request, Run};

use super::visit::Visit;
use crate::client_record::ClientRecord;
use crate::error::CommandResult;
use crate::flags::{Flags, InTransaction, KeyAccess};
use crate::hash_slots::{Query, Routes};
use crate::key_places as places;
use crate::session::Session;
use crate::spec::CommandSpec;
use crate::table::{Found, Table};

impl Visit<'_> {
    /// Whether plain requests are about keys of this node alone, each about those of one slot: as far as that can be
    /// said quickly.
    #[inline]
    pub(super) fn are_mine(&self, run: &Run<'_>, found: &Found) -> bool {
        let slots = &self.context.settings.hash_slots;
        let spec = found.spec;
        if spec.keys.len() != 1 || spec.keys_of.is_some() || spec.other_databases.is_some() {
            return false;
        }
        let at = usize::from(found.keys.first);
        if found.keys.last == 0 {
            return run.requests.clone().all(|request| {
                let key = request.arg(at);
                key.is_none_or(|key| slots.is_mine(hash_slot::of(key)))
            });
        }
        run.requests.clone().all(|request| {
            let Some(first) = request.arg(at).map(hash_slot::of) else {
                return false;
            };
            let mut others = found.keys.places(request.len()).skip(1);
            slots.is_mine(first)
                && others.all(|at| request.arg(at).map(hash_slot::of) == Some(first))
        })
    }

    /// Whether the keys of a request, or of the transaction that it ends, are served here.
    #[cold]
    pub(super) fn check_slots(&self, spec: &CommandSpec, request: Request<'_>) -> CommandResult {
        let session = &*self.context.session;
        if session.is_of_primary {
            return Ok(());
        }
        let routes = self.context.settings.hash_slots.routes();
        let mut query = query_of(session, &routes);
        let table = self.context.table;
        match &session.transaction {
            Some(transaction) if spec.in_transaction == InTransaction::Runs => {
                for queued in transaction.queue() {
                    if let Some(spec) = table.spec(queued.index) {
                        add_keys(&mut query, &routes, table, spec, queued.request());
                    }
                }
            }
            _ => add_keys(&mut query, &routes, table, spec, request),
        }
        Ok(query.judge(&routes)?)
    }
}

/// What is asked for a client, without a key yet.
pub(crate) fn query_of(session: &Session, routes: &Routes) -> Query {
    let local = session.client.local_address.rsplit_once(':');
    let port = local.and_then(|(_, port)| port.parse::<u16>().ok());
    Query {
        reads_replicas: session.client.has_flag(ClientRecord::READS_REPLICAS),
        is_encrypted: routes.tls_port != 0 && port == Some(routes.tls_port),
        ..Query::default()
    }
}

/// Adds the keys and shard channels of a request, as far as its arguments tell them.
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
    for (at, access) in places::of(table, spec, &request).unwrap_or_default() {
        if (is_about_channels || !access.has(KeyAccess::NOT_KEY))
            && let Some(name) = request.arg(at)
        {
            query.add(routes, name);
        }
    }
}
