//! The connected clients of a server, and the way for other threads to reach them.
//!
//! A client belongs to the worker that reads its socket. Other threads see its [`ClientRecord`],
//! and send a message to its worker to act on it. A client is named by an id that is never used
//! again, so that a late message affects no other client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{ClientCondition, ClientFilter, ClientKind, ClientRecord, Table};

use crate::limits;

/// All connected clients, oldest first.
#[derive(Debug, Default)]
pub struct Clients {
    by_id: Mutex<BTreeMap<u64, Arc<ClientRecord>>>,
    last_id: AtomicU64,
    /// Number of open admitted connections, including those that no worker has taken over yet.
    count: AtomicUsize,
}

impl Clients {
    /// Returns an id that no client had before.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of connected clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no client is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts a new connection, unless there are `clients_max` already.
    pub fn admit(&self, clients_max: u32) -> bool {
        let clients_max = usize::try_from(clients_max).unwrap_or(usize::MAX);
        let grown = |count: usize| (count < clients_max).then_some(count + 1);
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .is_ok()
    }

    /// Adds an admitted client.
    pub fn add(&self, client: Arc<ClientRecord>) {
        self.lock().insert(client.id, client);
    }

    /// Removes a client; does nothing if it is gone already.
    pub fn remove(&self, id: u64) {
        if let Some(client) = self.lock().remove(&id) {
            client.set_flag(ClientRecord::GONE, true);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Uncounts a connection that was admitted and not added.
    pub fn leave(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds a client without a worker: the primary, or a replica whose link has a thread of its
    /// own.
    pub fn add_foreign(&self, client: Arc<ClientRecord>) {
        client.set_flag(ClientRecord::GONE, false);
        self.lock().insert(client.id, client);
    }

    /// Removes such a client.
    pub fn leave_foreign(&self, id: u64) {
        if let Some(client) = self.lock().remove(&id) {
            client.set_flag(ClientRecord::GONE, true);
        }
    }

    /// Returns all clients, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<ClientRecord>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the client with this id.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<Arc<ClientRecord>> {
        self.lock().get(&id).cloned()
    }

    /// Returns the number of connected clients without those that are being closed, even if their
    /// workers have not done so yet.
    #[must_use]
    pub fn staying(&self) -> usize {
        let clients = self.lock();
        let going = clients.values();
        let going = going.filter(|client| is_going(client) && !is_foreign(client));
        let going = going.count();
        self.len().saturating_sub(going)
    }

    /// Returns the clients that match the filter, oldest first, without those that are being
    /// closed.
    #[must_use]
    pub fn matching(&self, filter: &ClientFilter, now_unix_ms: u64) -> Vec<Arc<ClientRecord>> {
        self.lock()
            .values()
            .filter(|client| !is_going(client))
            .filter(|client| matches(client, filter, now_unix_ms))
            .cloned()
            .collect()
    }

    /// Returns the largest query buffer and the largest output of a client, in bytes.
    #[must_use]
    pub fn buffer_bytes_max(&self) -> (u64, u64) {
        self.lock()
            .values()
            .fold((0, 0), |(query, output), client| {
                (
                    query.max(client.query_bytes.load(Ordering::Relaxed)),
                    output.max(client.output_bytes.load(Ordering::Relaxed)),
                )
            })
    }

    /// Returns the number of clients with subscriptions.
    #[must_use]
    pub fn subscribed(&self) -> usize {
        self.lock()
            .values()
            .filter(|client| client.has_flag(ClientRecord::PUBSUB))
            .count()
    }

    /// Returns the number of blocked clients.
    #[must_use]
    pub fn blocked(&self) -> usize {
        self.lock()
            .values()
            .filter(|client| client.has_flag(ClientRecord::BLOCKED))
            .count()
    }

    /// Returns the number of clients that watch keys, and of keys that they watch.
    #[must_use]
    pub fn watching(&self) -> (usize, u64) {
        let watched = |client: &Arc<ClientRecord>| client.watched.load(Ordering::Relaxed);
        let clients = self.lock();
        let counts = clients.values().map(watched).filter(|count| *count > 0);
        counts.fold((0, 0), |(clients, keys), count| {
            (clients + 1, keys + u64::from(count))
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientRecord>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the client has no worker.
fn is_foreign(client: &ClientRecord) -> bool {
    client.has_flag(ClientRecord::REPLICA | ClientRecord::PRIMARY)
}

fn is_going(client: &ClientRecord) -> bool {
    client.has_flag(ClientRecord::KILLED)
}

fn matches(client: &ClientRecord, filter: &ClientFilter, now_unix_ms: u64) -> bool {
    let holds = |condition| holds(client, condition, now_unix_ms);
    let mut conditions = filter.conditions.iter();
    filter.except != Some(client.id)
        && conditions.all(|(condition, is_negated)| holds(condition) != *is_negated)
}

fn holds(client: &ClientRecord, condition: &ClientCondition, now_unix_ms: u64) -> bool {
    let seconds_since = |unix_ms: u64| now_unix_ms.saturating_sub(unix_ms) / 1000;
    match condition {
        ClientCondition::Id(ids) => ids.contains(&client.id),
        ClientCondition::Address(address) => **address == *client.address,
        ClientCondition::LocalAddress(address) => **address == *client.local_address,
        ClientCondition::Ip(ip) => {
            let address = client.address.rsplit_once(':');
            address.is_some_and(|(own, _)| own.trim_matches(['[', ']']) == ip)
        }
        ClientCondition::Kind(kind) => *kind == kind_of(client),
        ClientCondition::User(user) => *user == client.user_name(),
        ClientCondition::AgeSeconds(least) => seconds_since(client.connected_unix_ms) >= *least,
        ClientCondition::IdleSeconds(least) => {
            seconds_since(client.active_unix_ms.load(Ordering::Relaxed)) >= *least
        }
        ClientCondition::Flags(letters) => {
            let own = flags(client);
            letters.chars().all(|letter| own.contains(letter))
        }
        ClientCondition::Name(name) => *name == client.names().name,
        ClientCondition::LibraryName(name) => *name == client.names().lib_name,
        ClientCondition::LibraryVersion(version) => *version == client.names().lib_version,
        ClientCondition::Database(database) => client.database.load(Ordering::Relaxed) == *database,
        // CLIENT LIST's abbreviation.
        ClientCondition::Capability(letters) => {
            letters == "r" && client.has_flag(ClientRecord::REDIRECTS)
        }
    }
}

fn kind_of(client: &ClientRecord) -> ClientKind {
    if client.has_flag(ClientRecord::PRIMARY) {
        ClientKind::Primary
    } else if client.has_flag(ClientRecord::REPLICA) {
        ClientKind::Replica
    } else if client.has_flag(ClientRecord::PUBSUB) {
        ClientKind::PubSub
    } else {
        ClientKind::Normal
    }
}

/// Returns one line of CLIENT LIST without its line end: the fields of Valkey 8 in its order, and
/// our additional ones after the library's.
#[must_use]
pub fn describe(table: &Table, client: &ClientRecord, now_unix_ms: u64) -> String {
    let names = client.names();
    let idle_ms = now_unix_ms.saturating_sub(client.active_unix_ms.load(Ordering::Relaxed));
    let subscriptions = client
        .subscriptions
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    let query_bytes = client.query_bytes.load(Ordering::Relaxed);
    let output_bytes = client.output_bytes.load(Ordering::Relaxed);
    let queued = i64::from(client.transaction.load(Ordering::Relaxed)) - 1;
    let watched = client.watched.load(Ordering::Relaxed);
    let queued_bytes = client.transaction_bytes.load(Ordering::Relaxed);
    format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age} idle={idle} flags={flags} \
         db={db} sub={sub} psub={psub} ssub={ssub} multi={queued} watch={watched} qbuf={query_bytes} qbuf-free=0 argv-mem=0 \
         multi-mem={queued_bytes} rbs=0 rbp=0 obl={output_bytes} oll=0 omem={output_bytes} tot-mem={total} \
         events={events} cmd={command} user={user} redir={redirect} resp={resp} lib-name={library} \
         lib-ver={version} io-thread={worker} tot-net-in={net_in} tot-net-out={net_out} \
         tot-cmds={requests}",
        id = client.id,
        addr = client.address,
        laddr = client.local_address,
        fd = client.fd,
        name = names.name,
        age = now_unix_ms.saturating_sub(client.connected_unix_ms) / 1000,
        idle = idle_ms / 1000,
        flags = flags(client),
        db = client.database.load(Ordering::Relaxed),
        redirect = client.redirect.load(Ordering::Relaxed),
        sub = subscriptions[0],
        psub = subscriptions[1],
        ssub = subscriptions[2],
        total = limits::held_by(client),
        events = if output_bytes > 0 { "rw" } else { "r" },
        command = last_command(table, client),
        user = client.user_name(),
        resp = client.resp.load(Ordering::Relaxed),
        library = names.lib_name,
        version = names.lib_version,
        worker = client.worker,
        net_in = client.input_bytes_total.load(Ordering::Relaxed),
        net_out = client.output_bytes_total.load(Ordering::Relaxed),
        requests = client.requests.load(Ordering::Relaxed),
    )
}

/// Returns the letters for special properties of a client, in Redis' order.
fn flags(client: &ClientRecord) -> String {
    let letters: String = [
        (client.has_flag(ClientRecord::REPLICA), 'S'),
        (client.has_flag(ClientRecord::MONITOR), 'O'),
        (client.has_flag(ClientRecord::PRIMARY), 'M'),
        (client.has_flag(ClientRecord::PUBSUB), 'P'),
        (client.transaction.load(Ordering::Relaxed) > 0, 'x'),
        (client.has_flag(ClientRecord::BLOCKED), 'b'),
        (client.has_flag(ClientRecord::TRACKING), 't'),
        (client.has_flag(ClientRecord::TRACKING_BROKEN), 'R'),
        (client.has_flag(ClientRecord::TRACKING_BROADCAST), 'B'),
        (client.has_flag(ClientRecord::TOUCHED), 'd'),
        (client.has_flag(ClientRecord::KILLED), 'A'),
        (client.local_address.starts_with('/'), 'U'),
        (client.has_flag(ClientRecord::NO_EVICT), 'e'),
        (client.has_flag(ClientRecord::NO_TOUCH), 'T'),
        (client.has_flag(ClientRecord::READS_REPLICAS), 'r'),
    ]
    .into_iter()
    .filter_map(|(is_set, letter)| is_set.then_some(letter))
    .collect();
    if letters.is_empty() {
        "N".to_owned()
    } else {
        letters
    }
}

fn last_command(table: &Table, client: &ClientRecord) -> &'static str {
    let index = client.last_command.load(Ordering::Relaxed);
    table.full_name(index).unwrap_or("NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(clients: &Clients, address: &str) -> Arc<ClientRecord> {
        let id = clients.next_id();
        let record = ClientRecord::new(
            id,
            address.to_owned(),
            "127.0.0.1:6379".to_owned(),
            0,
            9,
            1_000,
        );
        let record = Arc::new(record);
        assert!(clients.admit(10));
        clients.add(Arc::clone(&record));
        record
    }

    #[test]
    fn filters_are_a_conjunction() {
        let clients = Clients::default();
        let one = client(&clients, "127.0.0.1:1");
        let two = client(&clients, "127.0.0.1:2");
        let ids = |filter: &ClientFilter| -> Vec<u64> {
            clients
                .matching(filter, 61_000)
                .iter()
                .map(|client| client.id)
                .collect()
        };
        assert_eq!(ids(&ClientFilter::default()), [one.id, two.id]);
        let is_two = ClientCondition::Address("127.0.0.1:2".into());
        let only_two = ClientFilter::of(is_two.clone());
        assert_eq!(ids(&only_two), [two.id]);
        let not_two = ClientFilter {
            conditions: vec![(is_two, true)],
            ..Default::default()
        };
        assert_eq!(ids(&not_two), [one.id]);
        let none_left = ClientFilter {
            except: Some(two.id),
            ..only_two
        };
        assert!(ids(&none_left).is_empty());
    }

    #[test]
    fn every_condition_is_about_its_own_field() {
        let clients = Clients::default();
        let one = client(&clients, "127.0.0.1:1");
        one.database.store(3, Ordering::Relaxed);
        one.change_names(|names| names.name = "me".into());
        one.set_flag(ClientRecord::NO_TOUCH, true);
        let fits = |condition| {
            let matching = clients.matching(&ClientFilter::of(condition), 61_000);
            !matching.is_empty()
        };
        assert!(fits(ClientCondition::AgeSeconds(60)) && !fits(ClientCondition::AgeSeconds(61)));
        assert!(fits(ClientCondition::IdleSeconds(60)) && !fits(ClientCondition::IdleSeconds(61)));
        assert!(fits(ClientCondition::Database(3)) && !fits(ClientCondition::Database(0)));
        assert!(
            fits(ClientCondition::Flags("T".into())) && !fits(ClientCondition::Flags("Tx".into()))
        );
        assert!(
            fits(ClientCondition::Name("me".into())) && !fits(ClientCondition::Name("".into()))
        );
        assert!(fits(ClientCondition::Ip("127.0.0.1".into())));
        assert!(fits(ClientCondition::LibraryName("".into())));
        assert!(fits(ClientCondition::Kind(ClientKind::Normal)));
        assert!(!fits(ClientCondition::Kind(ClientKind::PubSub)));
        assert!(fits(ClientCondition::LocalAddress("127.0.0.1:6379".into())));
    }

    #[test]
    fn no_more_than_the_limit_are_admitted() {
        let clients = Clients::default();
        assert!(clients.admit(2) && clients.admit(2));
        assert!(!clients.admit(2));
        assert_eq!(clients.len(), 2);
    }

    #[test]
    fn a_client_that_went_is_not_counted_twice() {
        let clients = Clients::default();
        let one = client(&clients, "127.0.0.1:1");
        clients.remove(one.id);
        clients.remove(one.id);
        assert!(clients.is_empty());
        assert_eq!(clients.next_id(), one.id + 1);
    }
}
